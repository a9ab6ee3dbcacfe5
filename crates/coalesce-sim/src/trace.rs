//! A trace of a block device, read as a stream: lines of some format become submissions and completions in order of time,
//! matched with each other. Memory does not depend on the trace's length.

mod biosnoop;
mod blkparse;
mod csv;
mod fio;
mod flight;
mod foreign;
mod format;
mod json;
mod lost;
mod parser;
mod rwbs;
mod sink;
mod text;
mod tracepoint;
#[cfg(feature = "cli")]
mod watch;

use anyhow::{Context as _, Result, bail};
use coalesce_policy::Hint;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use flight::Flight;
pub use format::Format;
use parser::{Parser, format_of};
use sink::{Raw, RawWhat, Sink};

/// Longest line, in bytes: what is longer is no line of any format.
const LINE_MAX: u64 = 64 << 10;
/// More commands than this in flight are no device's, but lost completions.
const IN_FLIGHT_MAX: usize = 1 << 20;
/// More queues than this are no trace that somebody meant: each has a state for each policy.
const QUEUES_MAX: usize = 1024;
/// Arrivals have no state: a cloud's volumes are as many.
const ARRIVING_QUEUES_MAX: usize = 1 << 16;
/// More than this are not submitted together.
const BATCH_MAX: usize = 1 << 16;
/// How many lines a format's first line may be waited for.
const PREAMBLE_MAX: u64 = 100;

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
    /// Its number is submitted again: it has completed, and nobody saw when.
    Lost,
}

const fn is_submission(step: &Step) -> bool {
    matches!(step.what, Moment::Submit { .. })
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
    is_begun: bool,
    is_read: bool,
    line: Vec<u8>,
    takes_arrivals: bool,
    flight: Flight,
    ahead: Option<Step>,
    together: VecDeque<Step>, // submissions of one instant
    last: u64,
    completions_max: u64,
}

impl Trace {
    /// Opens a file, or standard input where the path is `-`. How much of a large file is read is shown on standard error, where
    /// that is a terminal.
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
        #[cfg(feature = "cli")]
        let file = watch::watched(file);
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
            is_begun: false,
            is_read: false,
            line: Vec::new(),
            takes_arrivals: false,
            flight: Flight::default(),
            ahead: None,
            together: VecDeque::new(),
            last: 0,
            completions_max: u64::MAX,
        }
    }

    /// Ends the trace after this number of completions, whatever follows.
    pub const fn stop_after(&mut self, completions: u64) {
        self.completions_max = completions;
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
        // In our own lines, what is submitted at one instant came together. The clocks of other formats do not show that.
        if self.format() != Some(Format::Json) || !is_submission(&first) {
            return Ok(Some(first));
        }
        self.together.push_back(first);
        while self.together.len() < BATCH_MAX
            && let Some(step) = self.matched()?
        {
            // A loss ends no batch: the submission after it may.
            let is_with_it = is_submission(&step) && (step.at, step.queue) == (first.at, first.queue);
            if !is_with_it && step.what != Moment::Lost {
                self.ahead = Some(step);
                break;
            }
            self.together.push_back(step);
        }
        let len = self.together.iter().filter(|step| is_submission(step)).count();
        let submissions = self.together.iter_mut().filter(|step| is_submission(step));
        for (nth, step) in submissions.enumerate() {
            if let Moment::Submit { batch_len, last_of_batch, .. } = &mut step.what {
                (*batch_len, *last_of_batch) = (len, nth + 1 == len);
            }
        }
        Ok(self.together.pop_front())
    }

    /// The next arrival of a command, of any format: a step whose moment is a submission. Not to be mixed with [`Self::step`].
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn arrival(&mut self) -> Result<Option<Step>> {
        self.takes_arrivals = true;
        while let Some(step) = self.matched()? {
            if is_submission(&step) {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    /// The next submission, with the loss before it, or completion with the submission that it belongs to.
    fn matched(&mut self) -> Result<Option<Step>> {
        if let Some(step) = self.ahead.take() {
            return Ok(Some(step));
        }
        if self.sink.counts.completions >= self.completions_max {
            return Ok(None);
        }
        while let Some(raw) = self.raw()? {
            let counts = &mut self.sink.counts;
            let key = (raw.device, raw.key);
            match raw.what {
                RawWhat::Submit(queue, request) => {
                    let is_unique = self.parser.as_ref().is_some_and(|(_, parser)| parser.has_unique_keys());
                    let lost = if is_unique { self.flight.end(key) } else { None };
                    let Some(slot) = self.flight.begin(key, queue) else { continue };
                    counts.submissions += 1;
                    counts.in_flight_max = counts.in_flight_max.max(self.flight.len() as u64);
                    if self.flight.len() > IN_FLIGHT_MAX {
                        bail!("more than {IN_FLIGHT_MAX} commands are in flight: the trace has lost their completions");
                    }
                    let what = Moment::Submit { request, batch_len: 1, last_of_batch: true };
                    let submitted = Step { at: raw.at, queue, slot: Some(slot), what };
                    let Some((slot, queue)) = lost else { return Ok(Some(submitted)) };
                    counts.resubmitted += 1;
                    self.ahead = Some(submitted);
                    return Ok(Some(Step { at: raw.at, queue, slot: Some(slot), what: Moment::Lost }));
                }
                RawWhat::Complete(queue, failed) => {
                    counts.completions += 1;
                    counts.failed += u64::from(failed);
                    let found = self.flight.end(key);
                    counts.unmatched += u64::from(found.is_none());
                    let (slot, queue) = found.map_or((None, queue), |(slot, queue)| (Some(slot), queue));
                    return Ok(Some(Step { at: raw.at, queue, slot, what: Moment::Complete { failed } }));
                }
                RawWhat::Arrival(queue, request) if self.takes_arrivals => {
                    counts.submissions += 1;
                    let what = Moment::Submit { request, batch_len: 1, last_of_batch: true };
                    return Ok(Some(Step { at: raw.at, queue, slot: None, what }));
                }
                RawWhat::Arrival(..) if self.parser.as_ref().is_some_and(|(_, parser)| parser.has_completions()) => {
                    counts.other += 1;
                }
                RawWhat::Arrival(..) => bail!(
                    "its format, {}, says when commands arrived and not when they completed: run it through a simulated \
                     device, with a plan that has a thread of `kind = \"trace\"` (coalesce-sim run --help)",
                    self.parser.as_ref().map_or("", |(format, _)| format.name())
                ),
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
        const CANNOT: &str = "the trace cannot be read";
        if !self.is_begun {
            self.is_begun = true;
            if let Some(what) = foreign::binary(self.input.fill_buf().context(CANNOT)?) {
                bail!("it is {}", self.advised(what));
            }
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        self.input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).context(CANNOT)?;
        let outcome = self.take_line(&line);
        self.line = line;
        outcome
    }

    /// What to run instead. A plan names a file; a replay reads a pipe, too.
    fn advised(&self, what: &str) -> String {
        let to = if self.takes_arrivals { "> TRACE, for a plan" } else { "| coalesce-sim replay -" };
        what.replace("| coalesce-sim replay -", to)
    }

    fn no_format(&self) -> String {
        let how = if self.takes_arrivals { " (a plan takes it from the first line)" } else { " (--format names one)" };
        format!("of no format that is known{how}")
    }

    /// What can be done about a malformed line.
    const fn about_malformed(&self) -> &'static str {
        match (self.takes_arrivals, self.options.lenient) {
            (true, _) => "; a plan skips no lines: remove it from the trace",
            (false, false) => "; --lenient skips such lines",
            (false, true) => "",
        }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<()> {
        let len = line.len();
        if len == 0 {
            self.is_read = true;
            if self.sink.counts.lines == 0 {
                bail!("it is empty");
            }
            if self.parser.is_none() && self.sink.counts.malformed > 0 {
                bail!("{}", self.no_format());
            }
            return Ok(());
        }
        self.sink.counts.lines += 1;
        let is_cut = !line.ends_with(b"\n") && (len as u64) < LINE_MAX;
        let line = String::from_utf8_lossy(line);
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
            if let Some(what) = foreign::text(line) {
                bail!("line {}: it is of {}", self.sink.counts.lines, self.advised(what));
            }
            self.parser = format_of(line).map(|format| (format, Parser::new(format, self.options.per_cpu)));
        }
        let outcome = match &mut self.parser {
            Some((_, parser)) => parser.line(line, &mut self.sink),
            None if biosnoop::is_preamble(line) || tracepoint::is_heading(line) => Ok(()),
            None => Err(self.no_format()),
        };
        if let Err(problem) = outcome {
            let number = self.sink.counts.lines;
            if is_cut && self.parser.is_some() {
                self.sink.counts.cut += 1;
                return Ok(());
            }
            if !self.options.lenient || (self.parser.is_none() && number > PREAMBLE_MAX) {
                let shown: String = line.chars().take(80).collect();
                bail!("line {number}: {problem}: {shown:?}{}", self.about_malformed());
            }
            self.sink.counts.malformed += 1;
        }
        let most = if self.takes_arrivals { ARRIVING_QUEUES_MAX } else { QUEUES_MAX };
        if let Some(name) = self.sink.queues.get(most) {
            let (number, name): (_, String) = (self.sink.counts.lines, name.chars().take(80).collect());
            let instead = match (self.takes_arrivals, self.options.per_cpu) {
                (true, _) => "leave some of its devices out of the trace",
                (false, false) => "replay the lines of one device at a time",
                (false, true) => "replay the lines of one device at a time, or leave out --per-cpu",
            };
            bail!("line {number}: queue {name:?} is one more than the {most} that a trace may have: {instead}");
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
