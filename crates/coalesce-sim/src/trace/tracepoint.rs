//! Linux's tracepoints, as `perf script`, ftrace (`trace`, `trace_pipe`), `trace-cmd report` and bpftrace's `printf` print them:
//!
//! ```text
//!      fio-155  [001] .....  6.506504: nvme_setup_cmd: nvme0: disk=nvme0n1, qid=2, cmdid=4096, nsid=1, ..., cmd=(nvme_cmd_read slba=8, ...)
//!   <idle>-0    [001] d.h1.  6.514444: nvme_complete_rq: nvme0: disk=nvme0n1, qid=2, cmdid=4096, res=0x0, ..., status=0x0
//!   fio   159   [001]   10.506331670: nvme:nvme_setup_cmd: [FAILED TO PARSE] disk=nvme0n1 ctrl_id=0 qid=2 opcode=2 ... cid=4864 ...
//!   fio   155   [001]    7.950390123:       block:block_rq_issue: 259,0 R 4096 () 7904 + 8 [fio]
//!   swapper 0   [001]    7.953711456:    block:block_rq_complete: 259,0 R () 7904 + 8 [0]
//! ```
//!
//! Who, perhaps the CPU in square brackets, the time, what happened, and to what (Linux `drivers/nvme/host/trace.h`,
//! `include/trace/events/block.h`). The driver's own events name a command by its queue and its number, which no other format
//! does. Where perf does not know a function of the driver's format, it prints the fields as they are recorded. A command is in the
//! events of the driver and of the block layer: a trace may have one kind.

use super::text::{SECOND, ns, number};
use super::{Op, RawWhat, Request, Sink, rwbs, text};

/// Linux counts a command's uses in the upper bits of its number since 5.14, but not every release does so in both events.
const TAG: u64 = 0xfff;
/// Opcodes of the NVM command set: how the driver names them, and their numbers.
const OPCODES: [(&str, u64, Op); 3] =
    [("nvme_cmd_flush", 0, Op::Flush), ("nvme_cmd_write", 1, Op::Write), ("nvme_cmd_read", 2, Op::Read)];
/// Force Unit Access of a write: bit 30 of CDW12, whose upper half is `ctrl`.
const FUA: u64 = 1 << 14;
/// What libtraceevent prints before fields as they are recorded.
const RECORDED: &str = "[FAILED TO PARSE]";

/// Which events the trace has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nvme,
    Block,
}

#[derive(Debug)]
pub struct Tracepoint {
    per_cpu: bool,
    kind: Option<Kind>,
    resolution: u64,
}

/// An event's line, taken apart.
#[derive(Debug)]
struct Event<'a> {
    cpu: Option<&'a str>,
    time: &'a str,
    has_colon: bool,
    name: &'a str,
    about: &'a str,
}

impl<'a> Event<'a> {
    /// `WHO [CPU] FLAGS TIME: SYSTEM:NAME: ABOUT`; only who it was may have anything in it. bpftrace's time is without a colon.
    fn of(line: &'a str) -> Option<Self> {
        let mut cpu = None;
        let mut fields = line.split_ascii_whitespace().peekable();
        while let Some(field) = fields.next() {
            if let Some(number) = field.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                cpu = Some(number);
            }
            let time = field.trim_end_matches(':');
            let Some(next) = fields.peek().and_then(|next| next.strip_suffix(':')) else { continue };
            let name = next.rsplit(':').next().unwrap_or_default();
            let is_time = ns(time, SECOND).is_some() || time.bytes().all(|byte| byte.is_ascii_digit());
            if is_time && !time.is_empty() && (field.ends_with(':') || Kind::of(name).is_some()) && !name.is_empty() {
                let about = &line[next.as_ptr() as usize - line.as_ptr() as usize + next.len() + 1..];
                return Some(Self { cpu, time, has_colon: field.ends_with(':'), name, about: about.trim() });
            }
        }
        None
    }

    /// Its time and how fine that is, both in ns. bpftrace counts ns.
    fn at(&self) -> Result<(u64, u64), String> {
        let wrong =
            || format!("time is {:?}, not SECONDS.DIGITS: nor, as bpftrace prints it, ns without a colon", self.time);
        match self.time.split_once('.') {
            None if self.has_colon => Err(wrong()),
            None => Ok((self.time.parse().map_err(|_| wrong())?, 1)),
            Some((_, digits)) => {
                let digits = u32::try_from(digits.len().min(9)).unwrap_or(9);
                Ok((ns(self.time, SECOND).ok_or_else(wrong)?, 10_u64.pow(9 - digits)))
            }
        }
    }
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        match name {
            "nvme_setup_cmd" | "nvme_complete_rq" => Some(Self::Nvme),
            "block_rq_issue" | "block_rq_complete" | "block_rq_requeue" => Some(Self::Block),
            _ => None,
        }
    }
}

/// Whether this is an event, of a command or of something else.
pub fn is_event(line: &str) -> bool {
    Event::of(line).is_some()
}

/// What stands before the events, or between them: headings, and the calls that led to an event.
pub fn is_heading(line: &str) -> bool {
    line.starts_with(['#', '\t'])
        || line.trim_start().starts_with("=> ")
        || ["cpus=", "version = "].iter().any(|head| line.starts_with(head))
        || (line.starts_with("CPU ") && line.ends_with(" is empty"))
        || line.ends_with("<stack trace>")
}

/// `NAME=VALUE`, between separators.
fn value<'a>(about: &'a str, separator: char, name: &str) -> Result<&'a str, String> {
    let of_name = |field: &'a str| field.trim().strip_prefix(name)?.strip_prefix('=');
    about.split(separator).find_map(of_name).ok_or_else(|| format!("has no {name}="))
}

/// A number, in hexadecimal after `0x`.
fn hexadecimal(what: &str, text: &str) -> Result<u64, String> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| format!("{what} is {text:?}, not a number")),
        None => number(what, text),
    }
}

impl Tracepoint {
    pub const fn new(per_cpu: bool) -> Self {
        Self { per_cpu, kind: None, resolution: 1 }
    }

    /// How fine the times are, in ns.
    pub const fn resolution(&self) -> u64 {
        self.resolution
    }

    /// Whether a key belongs to one command in flight at most.
    pub fn has_unique_keys(&self) -> bool {
        self.kind == Some(Kind::Nvme)
    }

    pub fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        if is_heading(line) {
            sink.other();
            return Ok(());
        }
        let event = Event::of(line).ok_or("has no `TIME: EVENT:`")?;
        let Some(kind) = Kind::of(event.name) else {
            sink.other();
            return Ok(());
        };
        match *self.kind.get_or_insert(kind) {
            known if known == kind => {}
            known => {
                let (known, keep) = match known {
                    Kind::Nvme => ("nvme", "grep nvme_"),
                    Kind::Block => ("block", "grep block_rq_"),
                };
                return Err(format!(
                    "{} beside events of {known}: both are of the same commands, which would count twice; keep one kind: \
                     {keep} TRACE | coalesce-sim replay -",
                    event.name
                ));
            }
        }
        let (at, resolution) = event.at()?;
        self.resolution = resolution;
        match kind {
            Kind::Nvme => nvme(&event, at, sink),
            Kind::Block => self.block(&event, at, sink),
        }
    }

    fn block(&self, event: &Event<'_>, at: u64, sink: &mut Sink) -> Result<(), String> {
        // MAJOR,MINOR RWBS [BYTES] (COMMAND) SECTOR + SECTORS [PRIORITY] [WHO, or at a completion the error]
        let (head, tail) = event.about.split_once('(').ok_or("has no (COMMAND)")?;
        let (command, tail) = tail.split_once(')').ok_or("has no (COMMAND)")?;
        let mut head = head.split_ascii_whitespace();
        let name = head.next().ok_or("ends before the device")?;
        let device = text::device(name).ok_or_else(|| format!("device is {name:?}, not MAJOR,MINOR"))?;
        let letters = head.next().ok_or("ends before what the request does")?;
        let mut request = rwbs::request(letters);
        let mut fields = tail.split_ascii_whitespace();
        let mut field = |what: &str| fields.next().ok_or_else(|| format!("ends before {what}"));
        let sector: u64 = number("sector", field("the sector")?)?;
        let plus = field("the +")?;
        if plus != "+" {
            return Err(format!("has {plus:?} behind the sector, not +"));
        }
        let sectors: u64 = number("number of sectors", field("the number of sectors")?)?;
        let is_complete = event.name == "block_rq_complete";
        if is_complete && (request.op, sector, sectors, command) == (Op::Write, 0, 0, "") {
            sink.other(); // it asked for a flush, which the block layer made of it: that was the device's
            return Ok(());
        }
        let has_sector = sectors > 0 && sector != u64::MAX && !letters.starts_with('N');
        let key = rwbs::key(&request, has_sector.then_some(sector));
        let queue = match (self.per_cpu, event.cpu) {
            (false, _) => sink.queue(name),
            (true, Some(cpu)) => sink.queue(&format!("{name} cpu {}", number::<u32>("CPU", cpu)?)),
            (true, None) => return Err("names no CPU in square brackets, which --per-cpu needs".into()),
        };
        let what = match event.name {
            "block_rq_issue" => {
                request.ioprio = priority(field("who it was")?);
                RawWhat::Submit(queue, request)
            }
            _ if is_complete => {
                let error = tail.rsplit_once('[').and_then(|(_, error)| error.strip_suffix(']'));
                RawWhat::Complete(queue, number::<i64>("error", error.ok_or("ends before the error")?)? != 0)
            }
            _ => RawWhat::Requeue,
        };
        sink.event(at, device, key, what);
        Ok(())
    }
}

/// `CLASS,HINT,LEVEL` (Linux 6.8 and newer; perf prints the class as a number), as Linux's `ioprio`.
fn priority(text: &str) -> u16 {
    let mut parts = text.split(',');
    let class = match parts.next() {
        Some("rt" | "0x1") => 1,
        Some("be" | "0x2") => 2,
        Some("idle" | "0x3") => 3,
        _ => return 0,
    };
    class << 13 | parts.nth(1).and_then(|level| level.parse::<u16>().ok()).unwrap_or(0) & 7
}

/// Bits 31:16 of CDW12, of CDW10 to CDW15 as they are recorded: byte by byte.
fn recorded_control(fields: &str) -> Option<u64> {
    let byte = |nth| {
        let bytes = fields.split_once("ARRAY[")?.1.split([',', ']']);
        u64::from_str_radix(bytes.map(str::trim).nth(nth)?, 16).ok()
    };
    Some(byte(11)? << 8 | byte(10)?)
}

fn nvme(event: &Event<'_>, at: u64, sink: &mut Sink) -> Result<(), String> {
    let recorded = event.about.strip_prefix(RECORDED);
    let (controller, fields, command) = match recorded {
        Some(fields) => (value(fields, ' ', "ctrl_id")?, fields, ""),
        None => {
            let (name, fields) = event.about.split_once(':').ok_or("names no controller")?;
            let controller = name.strip_prefix("nvme").ok_or_else(|| format!("controller is {name:?}, not nvmeN"))?;
            let (fields, command) = fields.split_once("cmd=(").unwrap_or((fields, ""));
            (controller, fields, command)
        }
    };
    let (separator, cmdid) = if recorded.is_some() { (' ', "cid") } else { (',', "cmdid") };
    let field = |name: &str| value(fields, separator, name);
    let qid: u32 = number("qid", field("qid")?)?;
    let cmdid: u64 = number("cmdid", field(cmdid)?)?;
    let queue = sink.queue(&format!("nvme{controller}/{qid}"));
    let what = if event.name == "nvme_setup_cmd" {
        let (name, more) = command.split_once([' ', ')']).unwrap_or((command, ""));
        let opcode = if name.is_empty() { Some(hexadecimal("opcode", field("opcode")?)?) } else { None };
        let is_this = |(text, number, _): &&(&str, u64, Op)| *text == name || opcode == Some(*number);
        // Queue 0 is the admin queue, whose opcodes mean something else.
        let op = OPCODES.iter().find(is_this).filter(|_| qid > 0).map_or(Op::Other, |(_, _, op)| *op);
        let control = match recorded {
            Some(fields) => recorded_control(fields),
            None => value(more, ',', "ctrl").and_then(|text| hexadecimal("ctrl", text)).ok(),
        };
        let durable = op == Op::Write && control.unwrap_or(0) & FUA != 0;
        RawWhat::Submit(queue, Request { op, durable, ..Request::default() })
    } else {
        RawWhat::Complete(queue, hexadecimal("status", field("status")?)? != 0)
    };
    sink.event(at, queue as u64, cmdid & TAG, what);
    Ok(())
}
