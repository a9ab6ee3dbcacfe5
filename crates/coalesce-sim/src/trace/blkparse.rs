//! blkparse's default output, `blktrace -d DEV -o - | blkparse -i -`:
//!
//! ```text
//!   8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]
//!   8,0    1        2     0.010000000     0  C   W 223490 + 56 [0]
//! ```
//!
//! Device, CPU, sequence number, seconds, process, action, what the command does, sector and sectors, and the process's
//! name or, in square brackets at a completion, its error. D: given to the device. C: completed. R: given back.
//!
//! A passthrough command has its size in bytes where others have the sector, and at its completion nothing: only what
//! stands before a `+` is a sector. A device that is made of others (dm, md) is given its commands when they are queued (Q):
//! it has no D. Where the trace has the devices below it, too (A says so), only theirs count.

use super::text::{SECOND, ns, number};
use super::{Op, QUEUES_MAX, RawWhat, Request, Sink, rwbs, text};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// Commands of a device that are remembered until it is known what gives them to it.
const QUEUED_MAX: usize = 1024;

#[derive(Debug)]
pub struct Blkparse {
    per_cpu: bool,
    is_summary: bool,
    devices: HashMap<u64, Given>,
}

/// What gives a device its commands.
#[derive(Debug)]
enum Given {
    /// Not known yet. What was queued.
    Unknown(VecDeque<Queued>),
    /// Being issued (D).
    Issue,
    /// Being queued (Q), as it has no requests of its own.
    Queue,
    /// Nothing that counts: the devices that it consists of are in the trace.
    Below,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    at: u64,
    key: u64,
    cpu: u32,
    request: Request,
}

/// Whether this is an event and not something else that has numbers.
pub fn is_event(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace();
    fields.next().is_some_and(|name| text::device(name).is_some())
        && fields.next().is_some_and(|cpu| cpu.parse::<u32>().is_ok())
        && fields.next().is_some_and(|sequence| sequence.parse::<u64>().is_ok())
        && fields.next().is_some_and(|time| time.contains('.') && ns(time, SECOND).is_some())
}

impl Blkparse {
    pub fn new(per_cpu: bool) -> Self {
        Self { per_cpu, is_summary: false, devices: HashMap::new() }
    }

    pub fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        // Statistics follow the last event; what is merged into it by a pipe precedes the first.
        self.is_summary |= line.starts_with("CPU") || line.starts_with("Total (");
        if self.is_summary || line.starts_with("Input file ") {
            sink.other();
            return Ok(());
        }
        let mut fields = line.split_ascii_whitespace();
        let mut field = |what: &str| fields.next().ok_or_else(|| format!("ends before {what}"));
        let name = field("the device")?;
        let device = text::device(name).ok_or_else(|| format!("device is {name:?}, not MAJOR,MINOR"))?;
        let cpu: u32 = number("CPU", field("the CPU")?)?;
        let _: u64 = number("sequence number", field("the sequence number")?)?;
        let time = field("the time")?;
        let at = ns(time, SECOND).ok_or_else(|| format!("time is {time:?}, not in seconds"))?;
        let _: u64 = number("process", field("the process")?)?;
        let action = field("the action")?;
        if action == "A"
            && let Some((_, above)) = line.split_once("<- (")
            && let Some(above) = above.split_once(')').and_then(|(above, _)| text::device(above))
        {
            let given = self.given(above)?;
            if !matches!(given, Given::Issue) {
                *given = Given::Below;
            }
        }
        let per_cpu = self.per_cpu;
        let given = self.given(device)?;
        if matches!(action, "G" | "I" | "D") {
            *given = Given::Issue; // only requests are allocated, inserted and issued
        }
        if !matches!(action, "D" | "C" | "R" | "Q")
            || matches!(given, Given::Below)
            || (action == "Q" && matches!(given, Given::Issue))
        {
            sink.other();
            return Ok(());
        }
        let request = rwbs::request(field("what the command does")?);
        let place = fields.next().unwrap_or_default();
        let sector = Some(place).filter(|_| fields.next() == Some("+"));
        if action == "C" && request.op == Op::Write && sector.is_none() && place.parse::<u64>().is_ok() {
            sink.other(); // it asked for a flush, which the block layer made of it: that was the device's
            return Ok(());
        }
        let key = rwbs::key(&request, sector.map(|sector| number("sector", sector)).transpose()?);
        let queue = |cpu: u32, sink: &mut Sink| {
            if per_cpu { sink.queue(&format!("{name} cpu {cpu}")) } else { sink.queue(name) }
        };
        let submit = |queued: &Queued, sink: &mut Sink| {
            sink.counts.queued += 1;
            let what = RawWhat::Submit(queue(queued.cpu, sink), queued.request);
            sink.push(queued.at, device, queued.key, what);
        };
        let what = match action {
            "D" => RawWhat::Submit(queue(cpu, sink), request),
            "Q" => {
                let queued = Queued { at, key, cpu, request };
                if let Given::Unknown(all) = given {
                    sink.other();
                    all.truncate(QUEUED_MAX - 1);
                    all.push_front(queued);
                } else {
                    submit(&queued, sink);
                }
                return Ok(());
            }
            "C" => {
                let error = line.rsplit_once('[').and_then(|(_, error)| error.strip_suffix(']'));
                let error: i64 = number("error", error.ok_or("ends before the error")?.trim())?;
                if let Given::Unknown(all) = given
                    && all.iter().any(|queued| queued.key == key)
                {
                    sink.counts.other -= all.len() as u64;
                    all.iter().rev().for_each(|queued| submit(queued, sink));
                    *given = Given::Queue;
                }
                RawWhat::Complete(queue(cpu, sink), error != 0)
            }
            _ => RawWhat::Requeue,
        };
        sink.event(at, device, key, what);
        Ok(())
    }

    /// What gives a device its commands, as far as that is known.
    fn given(&mut self, device: u64) -> Result<&mut Given, String> {
        let count = self.devices.len();
        match self.devices.entry(device) {
            Entry::Occupied(given) => Ok(given.into_mut()),
            Entry::Vacant(_) if count == QUEUES_MAX => {
                Err(format!("device is one more than the {QUEUES_MAX} that a trace may have"))
            }
            Entry::Vacant(place) => Ok(place.insert(Given::Unknown(VecDeque::new()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_recognised() {
        assert!(is_event("  8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]"));
        assert!(!is_event("0, 105000, 0, 4096, 0, 0"));
        assert!(!is_event("CPU0 (8,0):"));
    }
}
