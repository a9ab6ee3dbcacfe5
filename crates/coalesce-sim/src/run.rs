//! Runs all that a plan asks for, in parallel on the cores there are.

#[cfg(feature = "cli")]
pub mod command;
#[cfg(feature = "cli")]
mod report;

use crate::contender::Contender;
use crate::engine::{Wanted, simulate};
use crate::outcome::Outcome;
use crate::plan::{Plan, Point, Wrong};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One simulation: a point of the plan's sweep, under one policy.
#[derive(Clone, Debug)]
pub struct Job {
    /// The point.
    pub point: Point,
    /// The policy.
    pub contender: Contender,
}

/// All simulations of a plan: the points of its sweep in order, and for each the policies in order.
///
/// # Errors
/// A value that is not allowed, or a trace of a thread that cannot be read.
pub fn jobs(plan: &Plan) -> Result<Vec<Job>, Wrong> {
    let mut jobs = Vec::new();
    let mut points = plan.points()?;
    for i in 0..points.len() {
        let (loaded, rest) = points.split_at_mut(i);
        rest[0].load(loaded)?;
    }
    for point in points {
        for contender in point.plan.contenders()? {
            jobs.push(Job { point: point.clone(), contender });
        }
    }
    Ok(jobs)
}

/// The number of CPUs, as far as the system says.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs a plan with as many threads as there are CPUs. The outcomes are in the order of [`jobs`].
///
/// # Errors
/// A value that is not allowed.
pub fn run(plan: &Plan) -> Result<Vec<Outcome>, Wrong> {
    run_jobs(&jobs(plan)?, cpus(), &AtomicU64::new(0), |_, _| {})
}

/// Runs `jobs` on `threads` threads and gives each outcome to `done`, in order, as soon as those before it are there.
/// `progress`: simulated time that has passed in all of them, in ns.
///
/// # Errors
/// A parameter of a policy that a clock in ns cannot carry.
pub fn run_jobs(
    jobs: &[Job],
    threads: usize,
    progress: &AtomicU64,
    done: impl FnMut(usize, &Outcome) + Send,
) -> Result<Vec<Outcome>, Wrong> {
    struct Done<F> {
        waiting: Vec<Option<Result<Outcome, Wrong>>>,
        outcomes: Vec<Outcome>,
        error: Option<Wrong>,
        done: F,
    }
    let next = AtomicUsize::new(0);
    let state = Mutex::new(Done { waiting: vec![None; jobs.len()], outcomes: Vec::new(), error: None, done });
    let work = || {
        while let Some((i, job)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, jobs.get(i)?))) {
            let wanted = Wanted { progress: Some(progress), timeline: None };
            let result = simulate(&job.point, &job.contender, &wanted)
                .map(|run| run.outcome)
                .map_err(|error| Wrong::at(["policies"], error.to_string()));
            let mut state = state.lock().expect("no thread panics here");
            let state = &mut *state;
            state.waiting[i] = Some(result);
            while let Some(result) = state.waiting.get_mut(state.outcomes.len()).and_then(Option::take) {
                match result {
                    Ok(outcome) => {
                        (state.done)(state.outcomes.len(), &outcome);
                        state.outcomes.push(outcome);
                    }
                    Err(wrong) => {
                        state.error = state.error.take().or(Some(wrong));
                        break;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let state = state.into_inner().expect("no thread panics here");
    state.error.map_or(Ok(state.outcomes), Err)
}
