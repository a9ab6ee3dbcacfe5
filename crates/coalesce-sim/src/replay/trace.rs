//! A trace of a block device, read as a stream: lines of some format become submissions and completions in order of time,
//! matched with each other. Memory does not depend on the trace's length.

mod biosnoop;
mod blkparse;
mod fio;
mod flight;
mod json;
mod lost;
mod rwbs;
mod text;
mod tracepoint;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use coalesce_policy::Hint;
use serde::Serialize;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use flight::Flight;

/// Longest line, in bytes: what is longer is no line of any format.
const LINE_MAX: u64 = 64 << 10;
/// More commands than this in flight are no device's, but lost completions.
const IN_FLIGHT_MAX: usize = 1 << 20;
/// More queues than this are no trace that somebody meant: each has a state for each policy.
const QUEUES_MAX: usize = 1024;
/// More than this are not submitted together.
const BATCH_MAX: usize = 1 << 16;
const NO_FORMAT: &str = "of no format that is known (--format names one)";
/// How many lines a format's first line may be waited for.
const PREAMBLE_MAX: u64 = 100;

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// What blkparse prints by default: D, C and R events
    Blkparse,
    /// biosnoop of bcc, its libbpf version, and bpftrace's biosnoop.bt
    Biosnoop,
    /// A log of fio's write_lat_log: clat with log_issue_time, or any with times in ms
    Fio,
    /// This project's JSON lines, as coalesce-target --record writes them
    Json,
    /// perf script, ftrace's trace_pipe, trace-cmd report, or bpftrace's printf, of nvme_setup_cmd and nvme_complete_rq, or of
    /// block_rq_issue and block_rq_complete
    Tracepoint,
}

impl Format {
    /// The format of a line, if it can only be of one.
    fn of(line: &str) -> Option<Self> {
        let is_format = |format: &Self| match format {
            Self::Blkparse => blkparse::is_event(line),
            Self::Biosnoop => biosnoop::is_header(line),
            Self::Fio => fio::is_sample(line),
            Self::Json => line.trim_start().starts_with('{'),
            Self::Tracepoint => tracepoint::is_event(line),
        };
        Self::value_variants().iter().copied().find(is_format)
    }
}

/// What a command does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    #[default]
    Read,
    /// Writes.
    Write,
    /// Makes what was written durable.
    Flush,
    /// Anything else.
    Other,
}

/// What a trace says about a command when it is submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// It is a write that must be on the medium before it ends.
    pub durable: bool,
    /// Scheduling class and level (Linux `ioprio`).
    pub ioprio: u16,
    /// What its requester said; `Plain`: nothing.
    pub hint: Hint,
}

/// What happened, in order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in ns.
    pub at: u64,
    /// On which interrupt vector: an index into [`Trace::queues`].
    pub queue: usize,
    /// The command's number while it is in flight; later ones take it again. A completion has none if its submission
    /// was not seen.
    pub slot: Option<usize>,
    /// What.
    pub what: Moment,
}

/// What can happen to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is submitted.
    Submit {
        /// What is known of it.
        request: Request,
        /// How many are submitted together, counting it.
        batch_len: usize,
        /// It is the last of those.
        last_of_batch: bool,
    },
    /// It completes.
    Complete {
        /// It failed.
        failed: bool,
    },
}

/// What was found while reading.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Lines read.
    pub lines: u64,
    /// Malformed lines that were skipped.
    pub malformed: u64,
    /// A last line without an end that could not be read, as a recorder leaves it that is killed: 0 or 1.
    pub cut: u64,
    /// Lines that say nothing about submissions and completions.
    pub other: u64,
    /// Commands submitted.
    pub submissions: u64,
    /// Commands completed.
    pub completions: u64,
    /// Completions that failed.
    pub failed: u64,
    /// Completions without a submission: in flight when the trace began, or their submission was lost.
    pub unmatched: u64,
    /// Submissions whose number was still in flight: the completion between them was lost.
    pub resubmitted: u64,
    /// Commands given back to the host's queue, to be submitted again.
    pub requeued: u64,
    /// Commands whose submission is their queueing (blkparse's Q), as their device has no requests: dm, md.
    pub queued: u64,
    /// Events that the recorder says it lost.
    pub lost: u64,
    /// Lines earlier than the one before them.
    pub out_of_order: u64,
    /// Of those, how many came too late to be put in order; they happen at the time of what came before.
    pub late: u64,
    /// Interrupts that the trace itself contains.
    pub interrupts: u64,
    /// Most commands in flight, over all queues.
    pub in_flight_max: u64,
    /// Commands in flight at the end.
    pub in_flight_end: u64,
}

/// What a line says; in order of time, then of lines.
#[derive(Clone, Copy, Debug)]
struct Raw {
    at: u64,
    number: u64,
    device: u64, // submissions and completions of one device match by key
    key: u64,
    what: RawWhat,
}

#[derive(Clone, Copy, Debug)]
enum RawWhat {
    Submit(usize, Request),
    Complete(usize, bool),
    Requeue,
}

impl Ord for Raw {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Raw {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Raw {}

/// What parsers write into.
#[derive(Debug, Default)]
struct Sink {
    events: BinaryHeap<Reverse<Raw>>,
    number: u64,
    indices: HashMap<String, usize>,
    queues: Vec<String>,
    newest: u64,
    counts: Counts,
}

impl Sink {
    /// The index of a queue by this name. It is shown as it is, so nothing in it may be what a terminal obeys.
    fn queue(&mut self, name: &str) -> usize {
        let name = &*coalesce_cli::printable(name);
        if let Some(&index) = self.indices.get(name) {
            return index;
        }
        self.indices.insert(name.to_owned(), self.queues.len());
        self.queues.push(name.to_owned());
        self.queues.len() - 1
    }

    fn push(&mut self, at: u64, device: u64, key: u64, what: RawWhat) {
        self.number += 1;
        self.events.push(Reverse(Raw { at, number: self.number, device, key, what }));
    }

    /// A line about something that happened at `at`.
    fn event(&mut self, at: u64, device: u64, key: u64, what: RawWhat) {
        self.note_time(at);
        self.push(at, device, key, what);
    }

    /// A line about a whole command: its completion, and for how long it had been in flight, in ns.
    fn command(&mut self, at: u64, latency: u64, queue: usize, request: Request) {
        self.note_time(at);
        let key = self.number;
        self.push(at.saturating_sub(latency), queue as u64, key, RawWhat::Submit(queue, request));
        self.push(at, queue as u64, key, RawWhat::Complete(queue, false));
    }

    /// A line that says nothing about submissions and completions.
    const fn other(&mut self) {
        self.counts.other += 1;
    }

    fn note_time(&mut self, at: u64) {
        self.counts.out_of_order += u64::from(at < self.newest);
        self.newest = self.newest.max(at);
    }
}

/// A format's parser. What it does not understand is an error that says why, without the line's number.
#[derive(Debug)]
enum Parser {
    Blkparse(blkparse::Blkparse),
    Biosnoop(biosnoop::Biosnoop),
    Fio { resolution: u64 },
    Json,
    Tracepoint(tracepoint::Tracepoint),
}

impl Parser {
    fn new(format: Format, per_cpu: bool) -> Self {
        match format {
            Format::Blkparse => Self::Blkparse(blkparse::Blkparse::new(per_cpu)),
            Format::Biosnoop => Self::Biosnoop(biosnoop::Biosnoop::default()),
            Format::Fio => Self::Fio { resolution: 1 },
            Format::Json => Self::Json,
            Format::Tracepoint => Self::Tracepoint(tracepoint::Tracepoint::new(per_cpu)),
        }
    }

    fn line(&mut self, line: &str, sink: &mut Sink) -> Result<(), String> {
        match self {
            Self::Blkparse(blkparse) => blkparse.line(line, sink),
            Self::Biosnoop(biosnoop) => biosnoop.line(line, sink),
            Self::Fio { resolution } => fio::line(line, sink).map(|of_line| *resolution = of_line),
            Self::Json => json::line(line, sink),
            Self::Tracepoint(tracepoint) => tracepoint.line(line, sink),
        }
    }

    /// How many events are looked ahead, so that they come in order. Where a line is a whole command it appears when that
    /// ends: those that began before others and end after them are among the next.
    const fn window(&self) -> usize {
        match self {
            Self::Blkparse(_) | Self::Tracepoint(_) => 1 << 12,
            Self::Json => 1 << 16, // queues of a target write in turns, a thousand lines each
            Self::Biosnoop(_) | Self::Fio { .. } => 1 << 17,
        }
    }

    fn resolution(&self) -> u64 {
        match self {
            Self::Blkparse(_) | Self::Json => 1,
            Self::Biosnoop(biosnoop) => biosnoop.resolution(),
            Self::Fio { resolution } => *resolution,
            Self::Tracepoint(tracepoint) => tracepoint.resolution(),
        }
    }

    /// Whether a key belongs to one command in flight at most.
    fn has_unique_keys(&self) -> bool {
        match self {
            Self::Blkparse(_) => false,
            Self::Tracepoint(tracepoint) => tracepoint.has_unique_keys(),
            Self::Biosnoop(_) | Self::Fio { .. } | Self::Json => true,
        }
    }
}

/// How a trace is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Its format; `None`: found out.
    pub format: Option<Format>,
    /// Malformed lines are skipped, and counted.
    pub lenient: bool,
    /// blkparse, events of the block layer: a vector for each CPU that submits, instead of one for each device.
    pub per_cpu: bool,
}

/// A trace being read.
pub struct Trace {
    input: Box<dyn BufRead>,
    options: Options,
    parser: Option<(Format, Parser)>,
    sink: Sink,
    is_read: bool,
    flight: Flight,
    ahead: Option<Step>,
    together: VecDeque<Step>, // submissions of one instant
    last: u64,
}

impl Trace {
    /// Opens a file, or standard input where the path is `-`.
    ///
    /// # Errors
    /// The file cannot be opened, or its name is that of a log of fio's whose lines look like those of a clat log.
    pub fn open(path: &Path, options: Options) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(Box::new(BufReader::new(std::io::stdin())), options));
        }
        if let Some(why) = path.file_name().and_then(|name| fio::refusal(&name.to_string_lossy())) {
            bail!("trace {}: {why}; replay the clat log", path.display());
        }
        let file = File::open(path).with_context(|| format!("trace {}", path.display()))?;
        Ok(Self::new(Box::new(BufReader::with_capacity(1 << 18, file)), options))
    }

    /// Reads from anything.
    #[must_use]
    pub fn new(input: Box<dyn BufRead>, options: Options) -> Self {
        let parser = options.format.map(|format| (format, Parser::new(format, options.per_cpu)));
        Self {
            input,
            options,
            parser,
            sink: Sink::default(),
            is_read: false,
            flight: Flight::default(),
            ahead: None,
            together: VecDeque::new(),
            last: 0,
        }
    }

    /// The format, once a line of it was seen.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.parser.as_ref().map(|(format, _)| *format)
    }

    /// How fine the times of its lines are, in ns.
    #[must_use]
    pub fn resolution(&self) -> u64 {
        self.parser.as_ref().map_or(1, |(_, parser)| parser.resolution())
    }

    /// The names of the queues seen so far.
    #[must_use]
    pub fn queues(&self) -> &[String] {
        &self.sink.queues
    }

    /// What was found so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { in_flight_end: self.flight.len() as u64, ..self.sink.counts.clone() }
    }

    /// What happens next; `None`: the end.
    ///
    /// # Errors
    /// A malformed line, with its number, unless lenient; the input cannot be read.
    pub fn step(&mut self) -> Result<Option<Step>> {
        if let Some(step) = self.together.pop_front() {
            return Ok(Some(step));
        }
        let Some(first) = self.matched()? else { return Ok(None) };
        let is_submission = |step: &Step| matches!(step.what, Moment::Submit { .. });
        // In our own lines, what is submitted at one instant came together. The clocks of other formats do not show that.
        if self.format() != Some(Format::Json) || !is_submission(&first) {
            return Ok(Some(first));
        }
        self.together.push_back(first);
        while self.together.len() < BATCH_MAX
            && let Some(step) = self.matched()?
        {
            if !is_submission(&step) || (step.at, step.queue) != (first.at, first.queue) {
                self.ahead = Some(step);
                break;
            }
            self.together.push_back(step);
        }
        let len = self.together.len();
        for (nth, step) in self.together.iter_mut().enumerate() {
            if let Moment::Submit { batch_len, last_of_batch, .. } = &mut step.what {
                (*batch_len, *last_of_batch) = (len, nth + 1 == len);
            }
        }
        Ok(self.together.pop_front())
    }

    /// The next submission, or completion with the submission that it belongs to.
    fn matched(&mut self) -> Result<Option<Step>> {
        if let Some(step) = self.ahead.take() {
            return Ok(Some(step));
        }
        while let Some(raw) = self.raw()? {
            let counts = &mut self.sink.counts;
            let key = (raw.device, raw.key);
            match raw.what {
                RawWhat::Submit(queue, request) => {
                    let is_unique = self.parser.as_ref().is_some_and(|(_, parser)| parser.has_unique_keys());
                    if is_unique && self.flight.end(key).is_some() {
                        counts.resubmitted += 1;
                    }
                    let Some(slot) = self.flight.begin(key, queue) else { continue };
                    counts.submissions += 1;
                    counts.in_flight_max = counts.in_flight_max.max(self.flight.len() as u64);
                    if self.flight.len() > IN_FLIGHT_MAX {
                        bail!("more than {IN_FLIGHT_MAX} commands are in flight: the trace has lost their completions");
                    }
                    let what = Moment::Submit { request, batch_len: 1, last_of_batch: true };
                    return Ok(Some(Step { at: raw.at, queue, slot: Some(slot), what }));
                }
                RawWhat::Complete(queue, failed) => {
                    counts.completions += 1;
                    counts.failed += u64::from(failed);
                    let found = self.flight.end(key);
                    counts.unmatched += u64::from(found.is_none());
                    let (slot, queue) = found.map_or((None, queue), |(slot, queue)| (Some(slot), queue));
                    return Ok(Some(Step { at: raw.at, queue, slot, what: Moment::Complete { failed } }));
                }
                RawWhat::Requeue => {
                    counts.requeued += u64::from(self.flight.requeue(key));
                }
            }
        }
        Ok(None)
    }

    /// The next event in order of time.
    fn raw(&mut self) -> Result<Option<Raw>> {
        while !self.is_read && self.sink.events.len() < self.parser.as_ref().map_or(1, |(_, parser)| parser.window()) {
            self.read_line()?;
        }
        let Some(Reverse(mut raw)) = self.sink.events.pop() else { return Ok(None) };
        if raw.at < self.last {
            self.sink.counts.late += 1;
            raw.at = self.last;
        }
        self.last = raw.at;
        Ok(Some(raw))
    }

    fn read_line(&mut self) -> Result<()> {
        let mut line = Vec::new();
        let len =
            self.input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).context("the trace cannot be read")?;
        if len == 0 {
            self.is_read = true;
            if self.parser.is_none() && self.sink.counts.malformed > 0 {
                bail!("{NO_FORMAT}");
            }
            return Ok(());
        }
        self.sink.counts.lines += 1;
        let is_cut = !line.ends_with(b"\n") && (len as u64) < LINE_MAX;
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_start_matches('\u{feff}').trim_end(); // Windows begins a text with a byte order mark
        if line.is_empty() {
            return Ok(());
        }
        if let Some(lost) = lost::events(line) {
            self.sink.counts.lost = self.sink.counts.lost.saturating_add(lost);
            self.sink.other();
            return Ok(());
        }
        if self.parser.is_none() {
            self.parser = Format::of(line).map(|format| (format, Parser::new(format, self.options.per_cpu)));
        }
        let outcome = match &mut self.parser {
            Some((_, parser)) => parser.line(line, &mut self.sink),
            None if biosnoop::is_preamble(line) || tracepoint::is_heading(line) => Ok(()),
            None => Err(NO_FORMAT.into()),
        };
        if let Err(problem) = outcome {
            let number = self.sink.counts.lines;
            if is_cut && self.parser.is_some() {
                self.sink.counts.cut += 1;
                return Ok(());
            }
            if !self.options.lenient || (self.parser.is_none() && number > PREAMBLE_MAX) {
                let shown: String = line.chars().take(80).collect();
                bail!("line {number}: {problem}: {shown:?}; --lenient skips such lines");
            }
            self.sink.counts.malformed += 1;
        }
        if let Some(name) = self.sink.queues.get(QUEUES_MAX) {
            let (number, name): (_, String) = (self.sink.counts.lines, name.chars().take(80).collect());
            bail!(
                "line {number}: queue {name:?} is one more than the {QUEUES_MAX} that a trace may have: \
                 replay the lines of one device at a time, or leave out --per-cpu"
            );
        }
        Ok(())
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("format", &self.format())
            .field("counts", &self.sink.counts)
            .finish_non_exhaustive()
    }
}
