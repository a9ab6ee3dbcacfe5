//! What threads do, one step after the other.

use super::random::{Random, Sampler};
use crate::plan::{Arrival, Arrivals, Distribution, Kind, Operation, Priority, Said, Thread as Spec};
use crate::trace::{Op, Request};
use crate::units::{Clock, Cost, Time};
use coalesce_policy::{Hint, Submission};
use std::collections::VecDeque;
use std::sync::Arc;

/// Arrivals of an open loop that wait, at most.
const BACKLOG_MAX: usize = 65_536;

/// A compute thread's step, in ns: the longest wait of others of its priority.
const COMPUTE_STEP: u64 = 1_000_000;

/// What a step does when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A command is given to the device.
    Submit,
    /// Every answer there was when the step began is taken.
    Reap(u32),
    /// Work is done: may be interrupted for another thread.
    Work,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Runs for this many ns.
    Run(u64, Then),
    /// Sleeps until an answer comes, or until then.
    Sleep(Option<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In its CPU's queue, or on the CPU.
    Ready,
    Asleep,
}

/// What steps cost, in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    pub(super) submit_call: u64,
    pub(super) submit: u64,
    pub(super) reap: u64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    commands: u32,
    hint: Said,
    flush: bool,
    think: u64,
}

#[derive(Clone, Debug)]
enum Program {
    /// Jobs by the sums of their weights; each is waited for.
    Closed {
        jobs: Vec<(u64, Job)>,
        current: usize,
    },
    Async {
        depth: u32,
        batch: u32,
        think: u64,
        gap: u64,
        next_batch: u64,
        reap_when_full: bool,
    },
    Open {
        depth: u32,
        source: Source,
        backlog: VecDeque<(u64, Request)>,
    },
    Compute,
}

/// Where an open loop's arrivals come from.
#[derive(Clone, Debug)]
enum Source {
    Drawn(Sampler),
    /// The next of those that are this thread's: of one in `threads` queues.
    Recorded {
        all: Arc<[Arrival]>,
        next: usize,
        nth: u32,
        threads: u32,
    },
}

impl Source {
    /// When the first command arrives.
    fn first(&mut self, random: &mut Random) -> Option<u64> {
        match self {
            Self::Drawn(gap) => Some(gap.sample(random)),
            Self::Recorded { .. } => self.find(0),
        }
    }

    /// A command arrives now: what it is, and when the next one arrives.
    fn take(&mut self, now: u64, random: &mut Random) -> (Request, Option<u64>) {
        match self {
            Self::Drawn(gap) => (Request::default(), Some(now + gap.sample(random).max(1))),
            Self::Recorded { all, next, .. } => {
                let (request, after) = (all[*next].request, *next + 1);
                (request, self.find(after))
            }
        }
    }

    /// The first arrival from an index on that is this thread's.
    fn find(&mut self, from: usize) -> Option<u64> {
        let Self::Recorded { all, next, nth, threads } = self else { return None };
        *next = from + all[from..].iter().position(|arrival| arrival.queue % *threads == *nth)?;
        Some(all[*next].at)
    }
}

/// A thread at work.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) group: u32,
    pub(super) cpu: u32,
    pub(super) is_idle_class: bool,
    pub(super) vruntime: u64,
    pub(super) state: State,
    pub(super) then: Then,
    pub(super) began: u64, // its present step
    pub(super) cost: u64,  // of that, interruptions aside
    pub(super) random: Random,
    /// When each answered command was submitted that is not taken yet.
    pub(super) answers: VecDeque<u64>,
    pub(super) outstanding: u32,
    /// Requests that were counted last.
    pub(super) noted: u64,
    program: Program,
    said: Said,
    submitter: u8,
    batch: u32,
    to_submit: u32,
    flush: bool,
    think_left: u64,
    operation: Option<u64>, // since when
    bursts: Option<(u64, u64)>,
}

impl Thread {
    /// `nth`: of the threads that are alike.
    pub(super) fn new(spec: &Spec, clock: Clock, group: u32, nth: u32, cpu: u32, random: Random) -> Self {
        let think = spec.think.map_or(0, |cost| cost.ns(clock));
        let job = |commands| Job { commands, hint: spec.hint, flush: false, think };
        let closed = |jobs| Program::Closed { jobs, current: 0 };
        let open = |source| Program::Open { depth: spec.depth.unwrap_or(1), source, backlog: VecDeque::new() };
        let program = match spec.kind {
            Kind::Sync => closed(vec![(1, job(1))]),
            Kind::Batch => closed(vec![(1, job(spec.batch.unwrap_or(1)))]),
            Kind::Mix => closed(jobs(&spec.operations, clock)),
            Kind::Async => {
                let batch = spec.batch.unwrap_or(1);
                let gap = spec.rate.map_or(0, |rate| u64::from(batch) * 1_000_000_000 / rate.0);
                let (depth, reap_when_full) = (spec.depth.unwrap_or(1), spec.reap_when_full);
                Program::Async { depth, batch, think, gap, next_batch: 0, reap_when_full }
            }
            Kind::Open => {
                let every = Time(1_000_000_000 / spec.rate.map_or(1, |rate| rate.0));
                let gap = match (&spec.gaps, spec.arrivals) {
                    (Some(gaps), _) => gaps.clone(),
                    (None, Arrivals::Poisson) => Distribution::Exponential(every),
                    (None, Arrivals::Fixed) => Distribution::Fixed(every),
                };
                open(Source::Drawn(Sampler::new(&gap)))
            }
            Kind::Trace => {
                let all = spec.recorded.clone().expect("Point::load has read it");
                open(Source::Recorded { all, next: 0, nth, threads: spec.count })
            }
            Kind::Compute => Program::Compute,
        };
        Self {
            group,
            cpu,
            is_idle_class: spec.priority == Priority::Idle,
            vruntime: 0,
            state: State::Ready,
            then: Then::Work,
            began: 0,
            cost: 0,
            random,
            answers: VecDeque::new(),
            outstanding: 0,
            noted: 0,
            program,
            said: spec.hint,
            submitter: u8::try_from(group % 16).unwrap_or(0),
            batch: 0,
            to_submit: 0,
            flush: false,
            think_left: 0,
            operation: None,
            bursts: spec.on.zip(spec.off).map(|(on, off)| (on.0, off.0)),
        }
    }

    /// What it does next. `ending`: it begins nothing new.
    pub(super) fn next(&mut self, now: u64, costs: &Costs, ending: bool) -> Next {
        let answers = u32::try_from(self.answers.len()).unwrap_or(u32::MAX);
        let waits_for_all = matches!(self.program, Program::Closed { .. });
        if self.to_submit > 0 {
            let call = if self.to_submit == self.batch { costs.submit_call } else { 0 };
            return Next::Run(call + costs.submit, Then::Submit);
        }
        if waits_for_all && self.outstanding > 0 {
            return Next::Sleep(None);
        }
        if answers > 0 && (ending || !self.fills_first(now, answers)) {
            let think = if let Program::Async { think, .. } = self.program { think } else { 0 };
            return Next::Run((costs.reap + think) * u64::from(answers), Then::Reap(answers));
        }
        if self.think_left > 0 {
            return Next::Run(std::mem::take(&mut self.think_left), Then::Work);
        }
        if ending {
            return Next::Sleep(None);
        }
        // An open loop submits what has arrived, also when nothing arrives any more.
        if let Some(resumes) = self.silent_until(now).filter(|_| !matches!(self.program, Program::Open { .. })) {
            return Next::Sleep(Some(resumes));
        }
        self.begin(now, costs)
    }

    /// Whether it submits up to its depth before it takes these answers.
    fn fills_first(&self, now: u64, answers: u32) -> bool {
        let Program::Async { depth, batch, next_batch, reap_when_full: true, .. } = self.program else { return false };
        self.outstanding + answers + batch <= depth && now >= next_batch && self.silent_until(now).is_none()
    }

    /// Something new.
    fn begin(&mut self, now: u64, costs: &Costs) -> Next {
        match &mut self.program {
            Program::Closed { jobs, current } => {
                if let [_, _, ..] = jobs[..] {
                    let at = self.random.below(jobs.last().map_or(1, |(sum, _)| *sum));
                    *current = jobs.iter().position(|(sum, _)| at < *sum).unwrap_or(0);
                }
                let job = jobs[*current].1;
                (self.operation, self.said, self.flush) = (Some(now), job.hint, job.flush);
                if job.commands == 0 {
                    return Next::Run(job.think, Then::Reap(0));
                }
                self.submit_batch(job.commands, costs)
            }
            Program::Async { depth, batch, gap, next_batch, .. } => {
                if self.outstanding + *batch > *depth {
                    return Next::Sleep(None);
                }
                if now < *next_batch {
                    return Next::Sleep(Some(*next_batch));
                }
                *next_batch = now.max(*next_batch + *gap);
                let batch = *batch;
                self.submit_batch(batch, costs)
            }
            Program::Open { depth, backlog, .. } => {
                let room = depth.saturating_sub(self.outstanding);
                match room.min(u32::try_from(backlog.len()).unwrap_or(u32::MAX)) {
                    0 => Next::Sleep(None),
                    commands => self.submit_batch(commands, costs),
                }
            }
            Program::Compute => Next::Run(COMPUTE_STEP, Then::Work),
        }
    }

    fn submit_batch(&mut self, commands: u32, costs: &Costs) -> Next {
        (self.batch, self.to_submit) = (commands, commands);
        Next::Run(costs.submit_call + costs.submit, Then::Submit)
    }

    /// The step of a submission ends: the command, and since when its requester waits.
    pub(super) fn submit(&mut self) -> (u64, Submission) {
        self.to_submit -= 1;
        self.outstanding += 1;
        let last_of_batch = self.to_submit == 0;
        let arrived = match &mut self.program {
            Program::Open { backlog, .. } => backlog.pop_front(),
            _ => None,
        };
        let (since, request) = arrived.unwrap_or((self.began, Request::default()));
        let hint = match self.said {
            Said::Urgent => Hint::Urgent,
            Said::Barrier if last_of_batch => Hint::Barrier,
            Said::Nothing | Said::Barrier => request.hint,
        };
        let flush = (self.flush && last_of_batch) || request.op == Op::Flush;
        let (batch_len, group) = (self.batch as usize, self.submitter);
        let Request { durable, ioprio, .. } = request;
        (since, Submission { hint, group, flush, durable, ioprio, batch_len, last_of_batch, ..Submission::default() })
    }

    /// All answers of a closed operation are taken: since when it ran.
    pub(super) fn end_operation(&mut self) -> Option<u64> {
        let Program::Closed { jobs, current } = &self.program else { return None };
        let job = &jobs[*current].1;
        if job.commands > 0 {
            self.think_left = job.think;
        }
        self.operation.take()
    }

    /// Its work is interrupted for another thread, with so much of it left.
    pub(super) const fn put_off(&mut self, left: u64) {
        self.think_left += left;
    }

    /// A command is answered. Whether that is what the thread sleeps for.
    pub(super) fn answer(&mut self, since: u64) -> bool {
        self.outstanding -= 1;
        self.answers.push_back(since);
        self.state == State::Asleep && (self.outstanding == 0 || !matches!(self.program, Program::Closed { .. }))
    }

    /// The requests that its application has: those that it waits with, those that it waits for, and answers that it has not
    /// taken. `ending`: it begins nothing new.
    pub(super) fn requests(&self, now: u64, ending: bool) -> u64 {
        let submitted = u64::from(self.outstanding) + self.answers.len() as u64;
        match &self.program {
            // From its first submission to the last answer; none while it thinks.
            Program::Closed { jobs, current } => self.operation.map_or(0, |_| jobs[*current].1.commands.into()),
            // While it does not pause: from one submission of a place to the next, its own work included.
            Program::Async { depth, gap: 0, .. } if !ending && self.silent_until(now).is_none() => (*depth).into(),
            Program::Async { .. } => u64::from(self.to_submit) + submitted,
            Program::Open { backlog, .. } => backlog.len() as u64 + submitted,
            Program::Compute => 0,
        }
    }

    /// A command arrives. When the next one will, and whether there was room for this one.
    pub(super) fn arrive(&mut self, now: u64) -> (Option<u64>, bool) {
        let silent_until = self.silent_until(now);
        let Program::Open { source, backlog, .. } = &mut self.program else { return (None, true) };
        if let (Some(resumes), Source::Drawn(gap)) = (silent_until, &*source) {
            return (Some(resumes + gap.sample(&mut self.random)), true);
        }
        let (request, next) = source.take(now, &mut self.random);
        let has_room = backlog.len() < BACKLOG_MAX;
        if has_room {
            backlog.push_back((now, request));
        }
        (next, has_room)
    }

    /// When the first command of an open loop arrives.
    pub(super) fn first_arrival(&mut self) -> Option<u64> {
        let Program::Open { source, .. } = &mut self.program else { return None };
        source.first(&mut self.random)
    }

    /// Bursts: until when it is silent, if it is.
    fn silent_until(&self, now: u64) -> Option<u64> {
        let (on, off) = self.bursts?;
        let into = now % (on + off);
        (into >= on).then(|| now - into + on + off)
    }
}

fn jobs(operations: &[Operation], clock: Clock) -> Vec<(u64, Job)> {
    let mut sum = 0;
    let of = |operation: &Operation| {
        let Operation { weight, commands, hint, flush, think } = *operation;
        sum += u64::from(weight);
        (sum, Job { commands, hint, flush, think: Cost::ns(think, clock) })
    };
    operations.iter().map(of).collect()
}
