//! Replays a trace: what every policy would have done with the same completions at the same times.
//!
//! The requester does not react: it submits when it did, whatever the policy. So interrupts and delays are those of the
//! policy on this load, exactly; what a delay would have done to the load is for a simulation to say.

pub mod command;
pub mod trace;

use crate::check::Verdict;
use crate::contender::Contender;
use crate::event::{Event, Timeline};
use crate::line::{Command, Interrupt, Line, Submission};
use anyhow::Result;
use hdrhistogram::Histogram;
use policy::{Class, SpecError, Stats};
use trace::{Moment, Op, Step, Trace};

/// Latencies are recorded up to this long, in ns.
const LATENCY_MAX: u64 = 100_000_000_000;
/// Events of a time line.
const TIMELINE_MAX: usize = 400;
/// Completions of a time line that is long enough.
const SHOWN_MIN: u64 = 48;

/// When a completion's command was submitted, if that is known.
type Entry = Option<u64>;

/// One policy on one queue.
#[derive(Debug)]
struct Replayed {
    line: Line<Entry>,
    commands: Vec<(Command, u64)>, // by slot: with the time of submission
    last: u64,
    in_batch: bool, // the poll that found the last completion has not ended
    latency: Histogram<u64>,
}

impl Replayed {
    fn new(contender: &Contender) -> Result<Self, SpecError> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are in order");
        Ok(Self { line: Line::new(contender)?, commands: Vec::new(), last: 0, in_batch: false, latency })
    }

    fn step(&mut self, step: &Step) {
        let at = step.at;
        match step.what {
            Moment::Submit { request, batch_len, last_of_batch } => {
                self.advance(at.saturating_add(1));
                let submission = Submission {
                    hint: request.hint,
                    flush: request.op == Op::Flush,
                    durable: request.durable,
                    ioprio: request.ioprio,
                    batch_len,
                    last_of_batch,
                    ..Submission::default()
                };
                let command = (self.line.submit(&submission), at);
                let slot = step.slot.unwrap_or(0);
                if slot >= self.commands.len() {
                    self.commands.resize(slot + 1, Default::default());
                }
                self.commands[slot] = command;
            }
            Moment::Complete { failed } => {
                // A deadline at this very instant is for the policy: the completion rides on it.
                self.advance(at);
                let command = step.slot.and_then(|slot| self.commands.get(slot)).copied();
                let class = if failed { Class::Failed } else { Class::Io };
                let (known, since) = (command.unwrap_or_default().0, command.map(|(_, since)| since));
                let interrupt = self.line.complete(at, known, class, None, since);
                self.take(at, interrupt);
                self.in_batch = self.line.wants_batch_end();
            }
        }
        self.last = at;
    }

    /// All that happens before `until`.
    fn advance(&mut self, until: u64) {
        // What completes at one instant is found by one poll.
        if self.in_batch && self.last < until {
            self.in_batch = false;
            let interrupt = self.line.on_batch_end(self.last);
            self.take(self.last, interrupt);
        }
        while let Some(deadline) = self.line.deadline().filter(|&deadline| deadline < until) {
            let at = deadline.max(self.last);
            let interrupt = self.line.on_deadline(at);
            self.take(at, interrupt);
            if self.line.deadline() == Some(deadline) {
                break;
            }
        }
    }

    /// The consumer takes what is announced, at once.
    fn take(&mut self, now: u64, interrupt: Option<Interrupt>) {
        if interrupt.is_some() {
            while let Some(since) = self.line.take() {
                if let Some(since) = since {
                    self.latency.saturating_record(now - since);
                }
            }
        }
    }

    fn finish(&mut self, now: u64) {
        self.advance(u64::MAX);
        if self.line.held() > 0 {
            let interrupt = self.line.flush(now);
            self.take(now, interrupt);
        }
        self.line.finish(now);
    }
}

/// What one policy would have done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The policy.
    pub contender: Contender,
    /// Completions.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// From each completion to its announcement, in ns.
    pub delay: Histogram<u64>,
    /// From each submission to the announcement of its completion, in ns; only of commands whose submission was seen.
    pub latency: Histogram<u64>,
    /// The longest that the policy promises to hold a completion, in ns.
    pub bound: Option<u64>,
    /// Whether it kept that, and all other rules.
    pub verdict: Verdict,
    /// How often each decision was taken.
    pub stats: Stats,
    /// A part of what happened on one queue, the same part for every policy.
    pub timeline: Vec<Event>,
}

impl Outcome {
    /// Interrupts for each completion.
    #[must_use]
    pub fn interrupts_per_io(&self) -> f64 {
        self.interrupts as f64 / self.completions.max(1) as f64
    }
}

/// What all of them would have done.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Time from the first event to the last, in ns.
    pub span: u64,
    /// One for each policy, in the order in which they were given.
    pub outcomes: Vec<Outcome>,
    /// The queue of the time lines: an index into the trace's.
    pub shown_queue: usize,
}

/// Replays a trace under several policies at once. `at`: where the time lines begin, in ns after the first event;
/// `None`: somewhere in the trace's second half.
///
/// # Errors
/// The trace is malformed, or the clock of a trace cannot carry a policy's parameters.
pub fn replay(trace: &mut Trace, contenders: &[Contender], at: Option<u64>) -> Result<Replay> {
    let mut queues: Vec<Vec<Replayed>> = Vec::new();
    let mut window = Window::new(at);
    let (mut first, mut last) = (None, 0);
    while let Some(step) = trace.step()? {
        let first = *first.get_or_insert(step.at);
        while queues.len() <= step.queue {
            queues.push(contenders.iter().map(Replayed::new).collect::<Result<_, _>>()?);
        }
        window.look(&step, step.at - first, &mut queues);
        queues[step.queue].iter_mut().for_each(|line| line.step(&step));
        last = step.at;
    }
    queues.iter_mut().flatten().for_each(|line| line.finish(last));
    let (shown_queue, timelines) = window.finish(&queues);
    let outcomes = contenders.iter().enumerate().map(|(nth, contender)| {
        let mut outcome = Outcome::nothing(contender)?;
        for line in queues.iter().filter_map(|lines| lines.get(nth)) {
            outcome.add(line);
        }
        outcome.timeline = timelines.get(nth).cloned().unwrap_or_default();
        Ok(outcome)
    });
    let outcomes = outcomes.collect::<Result<_, SpecError>>()?;
    Ok(Replay { span: last - first.unwrap_or(last), outcomes, shown_queue })
}

impl Outcome {
    fn nothing(contender: &Contender) -> Result<Self, SpecError> {
        let Replayed { line, latency, .. } = Replayed::new(contender)?;
        Ok(Self {
            contender: contender.clone(),
            completions: 0,
            interrupts: 0,
            delay: line.delay().clone(),
            latency,
            bound: line.bound(),
            verdict: Verdict::default(),
            stats: Stats::default(),
            timeline: Vec::new(),
        })
    }

    fn add(&mut self, Replayed { line, latency, .. }: &Replayed) {
        self.completions += line.completions();
        self.interrupts += line.interrupts();
        self.delay.add(line.delay()).expect("both have the same bounds");
        self.latency.add(latency).expect("both have the same bounds");
        self.verdict.add(line.verdict());
        self.stats.add(line.stats());
    }
}

/// Which part of a stream of unknown length is shown: from the last completion whose number is a power of two, so that it
/// lies in the second half, or from a given time.
#[derive(Debug)]
struct Window {
    from: Option<u64>,
    completions: u64,
    queue: usize,
    shown: Option<u64>,                       // completions on that queue since it begins
    before: Option<(usize, Vec<Vec<Event>>)>, // the one before, if that was long enough
}

impl Window {
    const fn new(from: Option<u64>) -> Self {
        Self { from, completions: 0, queue: 0, shown: None, before: None }
    }

    fn look(&mut self, step: &Step, since_first: u64, queues: &mut [Vec<Replayed>]) {
        if !matches!(step.what, Moment::Complete { .. }) {
            return;
        }
        self.completions += 1;
        let begins = match self.from {
            Some(from) => self.shown.is_none() && since_first >= from,
            None => self.completions.is_power_of_two(),
        };
        if begins {
            if self.shown >= Some(SHOWN_MIN) {
                self.before = Some((self.queue, events(&queues[self.queue])));
            }
            (self.queue, self.shown) = (step.queue, Some(0));
            for replayed in &mut queues[step.queue] {
                replayed.line.keep(Timeline::new(step.at, TIMELINE_MAX));
            }
        }
        if let Some(shown) = &mut self.shown {
            *shown += u64::from(step.queue == self.queue);
        }
    }

    /// The queue that is shown, and the events of every policy on it.
    fn finish(self, queues: &[Vec<Replayed>]) -> (usize, Vec<Vec<Event>>) {
        match self.before {
            Some(before) if self.shown < Some(SHOWN_MIN) => before,
            _ => (self.queue, queues.get(self.queue).map_or_else(Vec::new, |lines| events(lines))),
        }
    }
}

fn events(lines: &[Replayed]) -> Vec<Vec<Event>> {
    lines.iter().map(|replayed| replayed.line.timeline().map_or_else(Vec::new, |kept| kept.events().to_vec())).collect()
}
