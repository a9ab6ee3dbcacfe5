//! Public traces of storage, as comma-separated values. Each is known by its heading, or without one by its fields:
//!
//! ```text
//! Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime   MSR Cambridge: 100 ns since 1601, and 100 ns
//! Timestamp,Response,IOType,LUN,Offset,Size                     SYSTOR '17: s since 1970, and s
//! ASU,LBA,Size,Opcode,Timestamp                                 SPC, UMass: s since the trace began; more fields may follow
//! device_id,opcode,offset,length,timestamp                      Alibaba: us since 1970
//! Timestamp,Offset,Size,IOType,VolumeID                         Tencent: s since 1970, without decimals
//! ```
//!
//! The time is that of the arrival. Only the first two say when a request completed.

use super::text::{SECOND, ns, number};
use super::{Format, Op, Request, Sink};

/// What MSR's times count, in ns: Windows' `FILETIME`.
const TICK: u64 = 100;
/// 1970 as such a time.
const EPOCH: u64 = 116_444_736_000_000_000;
/// More fields than this are none of these formats.
const FIELDS_MAX: usize = 16;

/// One of these formats: what its columns are, and how a line of it is known.
#[derive(Debug)]
struct Form {
    format: Format,
    heading: &'static [&'static str],
    time: usize,
    /// ns of a unit of the time.
    unit: u64,
    response: Option<usize>,
    operation: usize,
    reads: &'static [&'static str],
    writes: &'static [&'static str],
    resolution: u64,
}

static FORMS: [Form; 5] = [
    Form {
        format: Format::Msr,
        heading: &["timestamp", "hostname", "disknumber", "type", "offset", "size", "responsetime"],
        time: 0,
        unit: TICK,
        response: Some(6),
        operation: 3,
        reads: &["Read"],
        writes: &["Write"],
        resolution: TICK,
    },
    Form {
        format: Format::Systor,
        heading: &["timestamp", "response", "iotype", "lun", "offset", "size"],
        time: 0,
        unit: SECOND,
        response: Some(1),
        operation: 2,
        reads: &["R"],
        writes: &["W"],
        resolution: 1000,
    },
    Form {
        format: Format::Spc,
        heading: &["asu", "lba", "size", "opcode", "timestamp"],
        time: 4,
        unit: SECOND,
        response: None,
        operation: 3,
        reads: &["R", "r"],
        writes: &["W", "w"],
        resolution: 1000,
    },
    Form {
        format: Format::Alibaba,
        heading: &["device_id", "opcode", "offset", "length", "timestamp"],
        time: 4,
        unit: 1000,
        response: None,
        operation: 1,
        reads: &["R"],
        writes: &["W"],
        resolution: 1000,
    },
    Form {
        format: Format::Tencent,
        heading: &["timestamp", "offset", "size", "iotype", "volumeid"],
        time: 0,
        unit: SECOND,
        response: None,
        operation: 3,
        reads: &["0"],
        writes: &["1"],
        resolution: SECOND,
    },
];

impl Form {
    fn is_heading(&self, line: &str) -> bool {
        let mut names = line.split(',').map(str::trim);
        self.heading.iter().all(|name| names.next().is_some_and(|other| other.eq_ignore_ascii_case(name)))
    }

    fn is_record(&self, line: &str) -> bool {
        let mut fields = [""; FIELDS_MAX];
        let mut count = 0;
        for (place, field) in fields.iter_mut().zip(line.split(',')) {
            (*place, count) = (field.trim(), count + 1);
        }
        let has_count = count == self.heading.len() || (self.format == Format::Spc && count > 5);
        let time = fields[self.time];
        // SYSTOR's times have decimals; Tencent's have none, and their digits tell them from the ms of fio's logs.
        let is_time = match self.format {
            Format::Systor | Format::Spc => time.contains('.'),
            Format::Tencent => time.len() == 10,
            _ => true,
        };
        has_count && is_time && ns(time, self.unit).is_some() && self.operation(fields[self.operation]).is_some()
    }

    fn operation(&self, text: &str) -> Option<Op> {
        match text {
            text if self.reads.contains(&text) => Some(Op::Read),
            text if self.writes.contains(&text) => Some(Op::Write),
            "" if self.format == Format::Systor => Some(Op::Other),
            _ => None,
        }
    }
}

/// Which of these formats a line is of.
pub fn format_of(line: &str) -> Option<Format> {
    FORMS.iter().find(|form| form.is_heading(line) || form.is_record(line)).map(|form| form.format)
}

/// A reader of lines of one of these formats.
#[derive(Debug)]
pub struct Csv {
    form: &'static Form,
    reader: csv_core::Reader,
    text: Vec<u8>,
    ends: [usize; FIELDS_MAX],
}

impl Csv {
    pub fn new(format: Format) -> Self {
        let form = FORMS.iter().find(|form| form.format == format).expect("one of these formats");
        Self { form, reader: csv_core::Reader::new(), text: Vec::new(), ends: [0; FIELDS_MAX] }
    }

    /// How fine the times are, in ns.
    pub const fn resolution(&self) -> u64 {
        self.form.resolution
    }

    /// Whether lines say when a request completed.
    pub const fn has_completions(&self) -> bool {
        self.form.response.is_some()
    }

    /// Splits a line. Returns how many fields it has.
    fn split(&mut self, line: &str) -> Result<usize, String> {
        self.text.resize(line.len() + 1, 0);
        self.reader.reset();
        let Self { reader, text, ends, .. } = self;
        let (mut written, mut fields) = (0, 0);
        for input in [line, "\n"] {
            let (result, _, more_text, more) =
                reader.read_record(input.as_bytes(), &mut text[written..], &mut ends[fields..]);
            (written, fields) = (written + more_text, fields + more);
            match result {
                csv_core::ReadRecordResult::Record => return Ok(fields),
                csv_core::ReadRecordResult::OutputEndsFull => return Err(format!("has more than {FIELDS_MAX} fields")),
                _ => {}
            }
        }
        Err("has a quotation mark that is not closed".into())
    }

    fn field(&self, index: usize) -> &str {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        std::str::from_utf8(&self.text[begin..self.ends[index]]).unwrap_or_default().trim()
    }

    pub fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        let form = self.form;
        if form.is_heading(line) {
            sink.other();
            return Ok(());
        }
        let (count, expected) = (self.split(line)?, form.heading.len());
        if count < expected || (count > expected && form.format != Format::Spc) {
            return Err(format!("has {count} fields, not {expected}: {}", form.heading.join(",")));
        }
        let named = |index: usize| (form.heading[index], self.field(index));
        let time = |index: usize| {
            let (name, text) = named(index);
            ns(text, form.unit).ok_or_else(|| match form.unit {
                SECOND => format!("{name} is {text:?}, not in seconds"),
                unit => format!("{name} is {text:?}, not a count of {unit} ns"),
            })
        };
        let at = match form.format {
            // In ns, as others count from 1970; a trace may have been moved to begin at 0.
            Format::Msr => {
                let (name, text) = named(form.time);
                let ticks: u64 = number(name, text)?;
                let ticks = ticks.checked_sub(EPOCH).unwrap_or(ticks);
                ticks.checked_mul(TICK).ok_or_else(|| format!("{name} is {text:?}, which is after 2500"))?
            }
            _ => time(form.time)?,
        };
        let (name, text) = named(form.operation);
        let op = form.operation(text).ok_or_else(|| {
            let allowed = form.reads.iter().chain(form.writes).copied().collect::<Vec<_>>().join(", ");
            format!("{name} is {text:?}; allowed: {allowed}")
        })?;
        let request = Request { op, ..Request::default() };
        let queue = match form.format {
            Format::Msr => sink.queue(&format!("{}/{}", self.field(1), self.field(2))),
            Format::Systor => sink.queue(&format!("lun {}", self.field(3))),
            Format::Spc => sink.queue(&format!("asu {}", self.field(0))),
            Format::Alibaba => sink.queue(&format!("device {}", self.field(0))),
            _ => sink.queue(&format!("volume {}", self.field(4))),
        };
        match form.response {
            // A blank type says that there was no response.
            Some(_) if op == Op::Other => sink.arrival(at, queue, request),
            Some(response) => sink.request(at, time(response)?, queue, request),
            None => sink.arrival(at, queue, request),
        }
        Ok(())
    }
}
