//! blkparse's default output, `blktrace -d DEV -o - | blkparse -i -`:
//!
//! ```text
//!   8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]
//!   8,0    1        2     0.010000000     0  C   W 223490 + 56 [0]
//! ```
//!
//! Device, CPU, sequence number, seconds, process, action, what the command does, sector and sectors, and the process's
//! name or, in square brackets at a completion, its error. D: given to the device. C: completed. R: given back.

use super::text::{ns, number};
use super::{Op, RawWhat, Request, Sink};

/// Seconds, in ns.
const SECOND: u64 = 1_000_000_000;
/// A flush has no sector.
const FLUSH: u64 = u64::MAX;

#[derive(Debug)]
pub struct Blkparse {
    per_cpu: bool,
    is_summary: bool,
}

/// Whether this is an event and not something else that has numbers.
pub fn is_event(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace();
    fields.next().is_some_and(|text| device(text).is_some())
        && fields.next().is_some_and(|cpu| cpu.parse::<u32>().is_ok())
        && fields.next().is_some_and(|sequence| sequence.parse::<u64>().is_ok())
        && fields.next().is_some_and(|time| time.contains('.') && ns(time, SECOND).is_some())
}

/// `major,minor`.
fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(',')?;
    Some(u64::from(major.parse::<u32>().ok()?) << 32 | u64::from(minor.parse::<u32>().ok()?))
}

/// Flush, direction, and flags: `R`, `RA`, `WS`, `FWFS`, `FN`, `D`.
fn request(rwbs: &str) -> Request {
    let (preflush, rest) = match rwbs.strip_prefix('F') {
        Some(rest) => (true, rest),
        None => (false, rwbs),
    };
    let op = match rest.chars().next() {
        Some('R') => Op::Read,
        Some('W') => Op::Write,
        None | Some('F' | 'N' | 'S') if preflush => Op::Flush,
        _ => Op::Other,
    };
    let durable = op == Op::Write && (preflush || rest.contains('F'));
    Request { op, durable, ..Request::default() }
}

impl Blkparse {
    pub const fn new(per_cpu: bool) -> Self {
        Self { per_cpu, is_summary: false }
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
        let device = device(name).ok_or_else(|| format!("device is {name:?}, not MAJOR,MINOR"))?;
        let cpu: u32 = number("CPU", field("the CPU")?)?;
        let _: u64 = number("sequence number", field("the sequence number")?)?;
        let time = field("the time")?;
        let at = ns(time, SECOND).ok_or_else(|| format!("time is {time:?}, not in seconds"))?;
        let _: u64 = number("process", field("the process")?)?;
        let action = field("the action")?;
        if !matches!(action, "D" | "C" | "R") {
            sink.other();
            return Ok(());
        }
        let request = request(field("what the command does")?);
        let sector = fields.next().filter(|text| !text.starts_with('['));
        let key = match sector {
            _ if request.op == Op::Flush => FLUSH,
            Some(sector) => number("sector", sector)?,
            None => 0, // a command of the device's own, such as SMART
        };
        let what = match action {
            "D" => RawWhat::Submit(self.queue(name, cpu, sink), request),
            "C" => {
                let error = line.rsplit_once('[').and_then(|(_, error)| error.strip_suffix(']'));
                let error: i64 = number("error", error.ok_or("ends before the error")?.trim())?;
                RawWhat::Complete(self.queue(name, cpu, sink), error != 0)
            }
            _ => RawWhat::Requeue,
        };
        sink.event(at, device, key, what);
        Ok(())
    }

    fn queue(&self, device: &str, cpu: u32, sink: &mut Sink) -> usize {
        if self.per_cpu { sink.queue(&format!("{device} cpu {cpu}")) } else { sink.queue(device) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_understood() {
        for (rwbs, op, durable) in [
            ("R", Op::Read, false),
            ("RA", Op::Read, false),
            ("WS", Op::Write, false),
            ("WFS", Op::Write, true),
            ("FWS", Op::Write, true),
            ("FN", Op::Flush, false),
            ("FF", Op::Flush, false),
            ("F", Op::Flush, false),
            ("D", Op::Other, false),
            ("N", Op::Other, false),
        ] {
            assert_eq!(request(rwbs), Request { op, durable, ..Request::default() }, "{rwbs}");
        }
    }

    #[test]
    fn events_are_recognised() {
        assert!(is_event("  8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]"));
        assert!(!is_event("0, 105000, 0, 4096, 0, 0"));
        assert!(!is_event("CPU0 (8,0):"));
    }
}
