//! Replays a trace: what every policy would have done with the same completions at the same times.
//!
//! The requester does not react: it submits when it did, whatever the policy. So interrupts and delays are those of the
//! policy on this load, exactly; what a delay would have done to the load is for a simulation to say.

#[cfg(feature = "cli")]
pub mod command;
pub mod explain;
pub mod optimum;
#[cfg(feature = "cli")]
pub(crate) mod report;

use crate::check::{HeldTime, Verdict};
use crate::contender::{Contender, TICK_HZ};
use crate::event::{Event, Timeline};
use crate::line::{Interrupt, Line, record};
use crate::trace::{Moment, Op, Request, Step, Trace};
use crate::units::Time;
use anyhow::{Result, bail};
use coalesce_policy::{
    AnyPolicy, CintSpec, Class, Event as Meaning, Mark, Policy as _, Spec, SpecError, Stats, Submission,
};
use hdrhistogram::Histogram;
use optimum::{Load, Terms, Wanted};

/// Latencies are recorded up to this long, in ns.
const LATENCY_MAX: u64 = 100_000_000_000;
/// Policies that are compared at once: each has a state for each queue.
pub const POLICIES_MAX: usize = 32;
/// Events of a time line.
const TIMELINE_MAX: usize = 400;
/// Completions of a time line that is long enough.
const SHOWN_MIN: u64 = 48;

/// When a completion's command was submitted, if that is known.
type Entry = Option<u64>;

/// One policy on all queues.
#[derive(Debug)]
struct Replayed {
    contender: Contender,
    queues: Vec<OnQueue>,
    commands: Vec<(Mark, u64)>, // by slot: with the time of submission
    latency: Histogram<u64>,
}

/// One policy on one queue.
#[derive(Debug)]
struct OnQueue {
    line: Line<Entry>,
    last: u64,
    in_batch: bool,      // the poll that found the last completion has not ended
    at_once: Vec<usize>, // instants of urgent completions at which it interrupted, as the optimum's load counts them
}

impl Replayed {
    fn new(contender: &Contender) -> Self {
        let latency = Histogram::new(3).expect("three digits are allowed");
        Self { contender: contender.clone(), queues: Vec::new(), commands: Vec::new(), latency }
    }

    /// Adds queues until there are at least `queues`.
    fn grow(&mut self, queues: usize) -> Result<(), SpecError> {
        while self.queues.len() < queues {
            self.queues.push(OnQueue {
                line: Line::new(&self.contender)?,
                last: 0,
                in_batch: false,
                at_once: Vec::new(),
            });
        }
        Ok(())
    }

    /// The next event. `urgent`: the instant of its completion, if an optimum is asked for and something urgent completed then.
    fn step(&mut self, step: &Step, urgent: Option<usize>) {
        let (at, queue) = (step.at, &mut self.queues[step.queue]);
        match step.what {
            Moment::Submit { request, batch_len, last_of_batch } => {
                queue.advance(at.saturating_add(1), &mut self.latency);
                let submission = Submission { batch_len, last_of_batch, ..submission_of(&request) };
                let command = (queue.line.submit(at, &submission), at);
                queue.line.change_requests(at, 1);
                keep(&mut self.commands, step.slot, command);
            }
            Moment::Complete { failed } => {
                // A deadline at this very instant is for the policy: the completion rides on it.
                queue.advance(at, &mut self.latency);
                let command = step.slot.and_then(|slot| self.commands.get(slot)).copied();
                if command.is_none() {
                    queue.line.change_requests(at, 1); // its requester is known from now on
                }
                let class = if failed { Class::Failed } else { Class::Io };
                let (known, since) = (command.unwrap_or_default().0, command.map(|(_, since)| since));
                let interrupt = queue.line.complete(at, known, class, None, since);
                queue.at_once.extend(urgent.filter(|_| interrupt.is_some()));
                queue.take(at, interrupt, &mut self.latency);
                queue.in_batch = queue.line.wants_batch_end();
            }
            Moment::Lost => {
                queue.advance(at.saturating_add(1), &mut self.latency);
                let (mark, _) = step.slot.and_then(|slot| self.commands.get(slot)).copied().unwrap_or_default();
                let interrupt = queue.line.lose(at, mark);
                queue.take(at, interrupt, &mut self.latency);
                queue.line.change_requests(at, -1);
            }
        }
        queue.last = at;
    }

    fn finish(&mut self, now: u64) {
        for queue in &mut self.queues {
            queue.advance(u64::MAX, &mut self.latency);
            if queue.line.held() > 0 {
                let interrupt = queue.line.flush(now);
                queue.take(now, interrupt, &mut self.latency);
            }
            queue.line.finish(now);
        }
    }

    fn events(&self, queue: usize) -> Vec<Event> {
        let timeline = self.queues.get(queue).and_then(|queue| queue.line.timeline());
        timeline.map_or_else(Vec::new, |kept| kept.events().to_vec())
    }

    fn outcome(self, timeline: Vec<Event>, yardstick: Option<&Yardstick>) -> Result<Outcome, SpecError> {
        let nothing: Line<Entry> = Line::new(&self.contender)?;
        let mut outcome = Outcome {
            contender: self.contender,
            completions: 0,
            interrupts: 0,
            delay: nothing.delay().clone(),
            latency: self.latency,
            bound: nothing.bound(),
            verdict: Verdict::default(),
            stats: Stats::default(),
            timeline,
            held_time: HeldTime::default(),
            optimum: yardstick.map(|yardstick| yardstick.fewest_beside(&self.queues)),
        };
        for OnQueue { line, .. } in &self.queues {
            outcome.completions += line.completions();
            outcome.interrupts += line.interrupts();
            outcome.delay.add(line.delay()).expect("it grows");
            outcome.verdict.add(line.verdict());
            outcome.stats.add(line.stats());
            outcome.held_time.add(&line.held_by());
        }
        Ok(outcome)
    }
}

fn submission_of(request: &Request) -> Submission {
    Submission {
        hint: request.hint,
        flush: request.op == Op::Flush,
        durable: request.durable,
        ioprio: request.ioprio,
        ..Submission::default()
    }
}

/// Remembers what is known of the command in a slot.
fn keep<T: Default + Clone>(commands: &mut Vec<T>, slot: Option<usize>, command: T) {
    let slot = slot.unwrap_or(0);
    if slot >= commands.len() {
        commands.resize(slot + 1, T::default());
    }
    commands[slot] = command;
}

/// For how long commands were in flight, whatever the policy.
#[derive(Debug, Default)]
struct InFlight {
    commands: Vec<Option<u64>>, // by slot: the time of submission
    time: u128,
    missing: u128, // until it was clear that the trace does not have their completions
    long: u64,     // how many were longer than latencies are recorded
}

impl InFlight {
    fn step(&mut self, step: &Step) {
        let mut ended = || {
            let since = step.slot.and_then(|slot| self.commands.get_mut(slot)).and_then(Option::take);
            since.map_or(0, |since| u128::from(step.at - since))
        };
        match step.what {
            Moment::Submit { .. } => keep(&mut self.commands, step.slot, Some(step.at)),
            Moment::Complete { .. } => {
                let time = ended();
                self.time += time;
                self.long += u64::from(time > LATENCY_MAX.into());
            }
            Moment::Lost => self.missing += ended(),
        }
    }

    /// The end of the trace.
    fn finish(&mut self, at: u64) {
        self.missing += self.commands.iter().flatten().map(|since| u128::from(at - since)).sum::<u128>();
    }
}

/// What all queues ask of any policy.
struct Yardstick {
    wanted: Wanted,
    completions: u64,
    loads: Vec<Load>,
    judge: AnyPolicy,              // what it takes for urgent is
    commands: Vec<(Meaning, u64)>, // by slot: with the time of submission
}

impl Yardstick {
    fn new(wanted: Wanted) -> Result<Self, SpecError> {
        let spec = Spec::Cint(CintSpec::DEFAULT);
        let judge = AnyPolicy::new(spec.clone(), TICK_HZ).map_err(|error| spec.explain(error))?;
        Ok(Self { wanted, completions: 0, loads: Vec::new(), judge, commands: Vec::new() })
    }

    /// The next event. Returns what [`Replayed::step`] must know of it.
    fn step(&mut self, step: &Step) -> Option<usize> {
        match step.what {
            Moment::Submit { request, .. } => {
                let event = self.judge.on_submit(step.at, &submission_of(&request)).event;
                keep(&mut self.commands, step.slot, (event, step.at));
                None
            }
            Moment::Complete { failed } => {
                self.completions += 1;
                if self.loads.len() <= step.queue {
                    self.loads.resize_with(step.queue + 1, Load::default);
                }
                let command = step.slot.and_then(|slot| self.commands.get(slot)).copied();
                let is_urgent = failed || command.is_some_and(|(event, _)| event == Meaning::Urgent);
                let load = &mut self.loads[step.queue];
                load.complete(step.at, command.map(|(_, since)| step.at - since), is_urgent);
                load.newest_urgent()
            }
            Moment::Lost => None,
        }
    }

    /// The fewest interrupts with which one could have held no more than a policy held on each queue, nothing longer than
    /// it promises, and delivered at once what is urgent and it delivered at once.
    fn fewest_beside(&self, queues: &[OnQueue]) -> u64 {
        let fewest = |(load, OnQueue { line, at_once, .. }): (&Load, &OnQueue)| {
            let max_hold = line.bound().filter(|_| line.verdict().late == 0);
            load.fewest(&Terms { held: line.held_time(), max_hold, at_once })
        };
        self.loads.iter().zip(queues).map(fewest).sum()
    }

    /// The trace has more completions than are worth it.
    fn is_too_long(&self) -> bool {
        self.wanted.most.is_some_and(|most| self.completions > most)
    }

    fn finish(&self) -> Optimum {
        Optimum { wanted: self.wanted, interrupts: self.loads.iter().map(|load| load.fewest_wanted(self.wanted)).sum() }
    }
}

impl OnQueue {
    /// All that happens before `until`.
    fn advance(&mut self, until: u64, latency: &mut Histogram<u64>) {
        // What completes at one instant is found by one poll. Until it ends, what waits for its end alone is not due (a deadline of 0).
        if self.in_batch {
            if self.last >= until {
                return;
            }
            self.in_batch = false;
            let interrupt = self.line.on_batch_end(self.last);
            self.take(self.last, interrupt, latency);
        }
        while let Some(deadline) = self.line.deadline().filter(|&deadline| deadline < until) {
            let at = deadline.max(self.last);
            let interrupt = self.line.on_deadline(at);
            self.take(at, interrupt, latency);
            if self.line.deadline() == Some(deadline) {
                break;
            }
        }
    }

    /// Lets the consumer reap everything covered, at once.
    fn take(&mut self, now: u64, interrupt: Option<Interrupt>, latency: &mut Histogram<u64>) {
        if interrupt.is_some() {
            while let Some(since) = self.line.take() {
                self.line.change_requests(now, -1);
                if let Some(since) = since {
                    record(latency, now - since, LATENCY_MAX);
                }
            }
        }
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
    /// From each completion to the interrupt that covers it, in ns.
    pub delay: Histogram<u64>,
    /// From each submission to the interrupt that covers its completion, in ns; only for commands whose submission was
    /// seen. Arrivals are given and the consumer reaps at once, so this is what requesters wait.
    pub latency: Histogram<u64>,
    /// The longest that the policy promises to hold a completion, in ns.
    pub bound: Option<u64>,
    /// Whether it kept that, and all other rules.
    pub verdict: Verdict,
    /// How often each decision was taken.
    pub stats: Stats,
    /// A part of what happened on one queue, the same part for every policy.
    pub timeline: Vec<Event>,
    /// The sum of all delays, by what allowed them.
    pub held_time: HeldTime,
    /// The fewest interrupts with which a policy that knows the future could have held no more than this one, on each
    /// queue: within the same longest hold, and with an interrupt where this one delivered at once what is urgent.
    pub optimum: Option<u64>,
}

impl Outcome {
    /// Interrupts for each completion.
    #[must_use]
    pub fn interrupts_per_io(&self) -> f64 {
        self.interrupts as f64 / self.completions.max(1) as f64
    }
}

/// The fewest interrupts within a budget.
#[derive(Clone, Copy, Debug)]
pub struct Optimum {
    /// What it had to keep to, beside delivering at once what is urgent.
    pub wanted: Wanted,
    /// The fewest interrupts.
    pub interrupts: u64,
}

/// What all of them would have done.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Time from the first event to the last, in ns.
    pub span: u64,
    /// The sum of the times from submission to completion of all commands of which both were seen, in ns.
    pub in_flight_time: u128,
    /// The sum of the times for which other commands seem to be in flight: from their submission until their numbers were
    /// submitted again, or the trace ended, in ns.
    pub missing_time: u128,
    /// Commands that were in flight for longer than 100 s, which is what is recorded of their latency.
    pub long: u64,
    /// The most completions that one queue has: each policy learns on each queue for itself.
    pub completions_max: u64,
    /// One for each policy, in the order in which they were given.
    pub outcomes: Vec<Outcome>,
    /// The queue of the time lines: an index into the trace's.
    pub shown_queue: usize,
    /// What could have been done within a budget, if that was asked for and the trace is not too long.
    pub optimum: Option<Optimum>,
}

impl Replay {
    /// The part of all commands' time in flight that is of those whose completion the trace does not have.
    #[must_use]
    pub fn missing_share(&self) -> f64 {
        self.missing_time as f64 / ((self.missing_time + self.in_flight_time) as f64).max(1.0)
    }

    /// `held`, in ns, as a part of the time of all requests, from submission to interrupt, under `outcome`.
    #[must_use]
    pub fn share(&self, outcome: &Outcome, held: u128) -> f64 {
        held as f64 / ((outcome.held_time.all() + self.in_flight_time) as f64).max(1.0)
    }

    /// The part of the time of all requests, from submission to interrupt, that a policy held them.
    #[must_use]
    pub fn held_share(&self, outcome: &Outcome) -> f64 {
        self.share(outcome, outcome.held_time.all())
    }
}

/// Replays a trace under several policies at once. `at`: where the time lines begin, in ns after the first event;
/// `None`: somewhere in the trace's second half.
///
/// # Errors
/// The trace is malformed, the clock of a trace cannot carry a policy's parameters, there are more than
/// [`POLICIES_MAX`] of them, or nothing completes from `at` on.
pub fn replay(trace: &mut Trace, contenders: &[Contender], at: Option<u64>) -> Result<Replay> {
    replay_all(trace, contenders, at, None)
}

/// Replays a trace as [`replay`] does, and finds the fewest interrupts that could have been raised: beside each policy, and
/// within a budget. Needs memory for each completion, up to [`Wanted::most`].
///
/// # Errors
/// As [`replay`].
pub fn replay_beside_optimum(
    trace: &mut Trace,
    contenders: &[Contender],
    at: Option<u64>,
    wanted: Wanted,
) -> Result<Replay> {
    replay_all(trace, contenders, at, Some(Yardstick::new(wanted)?))
}

fn replay_all(
    trace: &mut Trace,
    contenders: &[Contender],
    at: Option<u64>,
    mut yardstick: Option<Yardstick>,
) -> Result<Replay> {
    if contenders.len() > POLICIES_MAX {
        bail!("{} policies at once; allowed: at most {POLICIES_MAX}", contenders.len());
    }
    let mut replayed: Vec<_> = contenders.iter().map(Replayed::new).collect();
    let mut window = Window::new(at);
    let mut in_flight = InFlight::default();
    let (mut first, mut last) = (None, 0);
    while let Some(step) = trace.step()? {
        let first = *first.get_or_insert(step.at);
        replayed.iter_mut().try_for_each(|replayed| replayed.grow(step.queue + 1))?;
        window.look(&step, step.at - first, &mut replayed);
        in_flight.step(&step);
        let urgent = yardstick.as_mut().and_then(|yardstick| yardstick.step(&step));
        replayed.iter_mut().for_each(|replayed| replayed.step(&step, urgent));
        if yardstick.as_ref().is_some_and(Yardstick::is_too_long) {
            yardstick = None;
            replayed.iter_mut().flat_map(|replayed| &mut replayed.queues).for_each(|queue| queue.at_once = Vec::new());
        }
        last = step.at;
    }
    let span = last - first.unwrap_or(last);
    if let Some(at) = at.filter(|_| window.shown.is_none()) {
        bail!("nothing completes from {} on: the trace is {} long", Time(at), Time(span));
    }
    in_flight.finish(last);
    replayed.iter_mut().for_each(|replayed| replayed.finish(last));
    let queues = replayed.first().map_or(&[][..], |replayed| &replayed.queues);
    let completions_max = queues.iter().map(|queue| queue.line.completions()).max().unwrap_or_default();
    let (shown_queue, timelines) = window.finish(&replayed);
    let outcome = |(replayed, timeline): (Replayed, _)| replayed.outcome(timeline, yardstick.as_ref());
    let outcomes = replayed.into_iter().zip(timelines).map(outcome).collect::<Result<_, SpecError>>()?;
    let optimum = yardstick.as_ref().map(Yardstick::finish);
    let InFlight { time: in_flight_time, missing: missing_time, long, .. } = in_flight;
    Ok(Replay { span, in_flight_time, missing_time, long, completions_max, outcomes, shown_queue, optimum })
}

/// Which part of a stream of unknown length is shown: from the last completion whose number is a power of two, so that
/// it lies in the second half, or from a given time.
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

    fn look(&mut self, step: &Step, since_first: u64, replayed: &mut [Replayed]) {
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
                self.before = Some((self.queue, events(replayed, self.queue)));
            }
            (self.queue, self.shown) = (step.queue, Some(0));
            for replayed in replayed {
                replayed.queues[step.queue].line.keep(Timeline::new(step.at, TIMELINE_MAX));
            }
        }
        if let Some(shown) = &mut self.shown {
            *shown += u64::from(step.queue == self.queue);
        }
    }

    /// The queue that is shown, and the events of every policy on it.
    fn finish(self, replayed: &[Replayed]) -> (usize, Vec<Vec<Event>>) {
        match self.before {
            Some(before) if self.shown < Some(SHOWN_MIN) => before,
            _ => (self.queue, events(replayed, self.queue)),
        }
    }
}

/// The events of every policy on one queue.
fn events(replayed: &[Replayed], queue: usize) -> Vec<Vec<Event>> {
    replayed.iter().map(|replayed| replayed.events(queue)).collect()
}
