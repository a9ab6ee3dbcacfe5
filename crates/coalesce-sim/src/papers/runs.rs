//! The plans of the papers' set-ups, and what they came to.

use crate::contender::Contender;
use crate::engine::{Wanted, simulate};
use crate::event::Event;
use crate::outcome::{Outcome, ThreadOutcome};
use crate::plan::Plan;
use crate::run::{Job, cpus, jobs, run_jobs};
use anyhow::Context as _;
use std::sync::atomic::AtomicU64;

macro_rules! plans {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../plans/papers/", $name, ".toml")))),+]
    };
}

/// Names and texts of all plans.
const PLANS: &[(&str, &str)] = plans![
    "cint-figure-8a",
    "cint-figure-8b",
    "cint-figure-10",
    "cint-figure-11",
    "cint-figure-12",
    "cint-figure-15",
    "cint-figure-17",
    "cint-figure-19",
    "cint-figure-20a",
    "cint-figure-20b",
    "cint-table-3",
    "vic-delay",
    "vic-figure-4",
    "vic-figure-5",
    "vic-figure-5-io",
    "vic-figure-5-pi",
    "vic-table-1",
    "vic-table-2",
    "vic-table-4",
    "vic-table-8",
    "xen-figure-5",
    "xen-figure-6",
    "xen-figure-7",
];

/// Everything that the plans called `names` ask for.
///
/// # Errors
/// A plan that is not one.
pub fn jobs_of(names: &[&str]) -> anyhow::Result<Vec<Job>> {
    let mut all = Vec::new();
    for (name, text) in PLANS.iter().filter(|(name, _)| names.contains(name)) {
        let plan = Plan::parse(&format!("plans/papers/{name}.toml"), text)?;
        all.extend(jobs(&plan)?);
    }
    Ok(all)
}

/// What simulations gave.
#[derive(Clone, Debug)]
pub struct Runs(Vec<Outcome>);

impl Runs {
    /// Simulates. `progress`: simulated time that has passed, in ns.
    ///
    /// # Errors
    /// A policy that a clock in ns cannot carry, or a run in which an interrupt was lost.
    pub fn new(jobs: &[Job], progress: &AtomicU64) -> anyhow::Result<Self> {
        let outcomes = run_jobs(jobs, cpus(), progress, |_, _| {})?;
        for outcome in &outcomes {
            let Outcome { plan, policy, settings, verdict, .. } = outcome;
            anyhow::ensure!(verdict.is_clean(), "{plan}, {policy}, {settings:?}: {:?}", verdict.violations);
        }
        Ok(Self(outcomes))
    }

    /// What `policy` did in a plan, at a point of its sweep: values in the order of the sweep's sorted keys.
    ///
    /// # Panics
    /// There is no such run.
    #[must_use]
    pub fn of(&self, plan: &str, policy: &str, values: &[&str]) -> &Outcome {
        let find = || {
            let policy = policy.parse::<Contender>().context("no policy")?.to_string();
            let is_it = |run: &&Outcome| {
                run.plan == plan
                    && run.policy == policy
                    && run.settings.values().map(String::as_str).eq(values.iter().copied())
            };
            self.0.iter().find(is_it).context("no such run")
        };
        find().unwrap_or_else(|error: anyhow::Error| panic!("{plan}, {policy}, {values:?}: {error}"))
    }

    /// Every event of the first simulation of a plan, on its first line.
    ///
    /// # Panics
    /// There is no such plan.
    #[must_use]
    pub fn timeline(plan: &str) -> Vec<Event> {
        let run = || {
            let jobs = jobs_of(&[plan])?;
            let job = jobs.first().context("no such plan")?;
            let wanted = Wanted { progress: None, timeline: Some((0, usize::MAX)) };
            simulate(&job.point, &job.contender, &wanted)?.timelines.into_iter().next().context("no line")
        };
        run().unwrap_or_else(|error: anyhow::Error| panic!("{plan}: {error}"))
    }
}

/// What the threads called `name` did.
///
/// # Panics
/// There are none.
#[must_use]
pub fn thread<'a>(outcome: &'a Outcome, name: &str) -> &'a ThreadOutcome {
    let found = outcome.threads.iter().find(|thread| thread.name == name);
    found.unwrap_or_else(|| panic!("{}: no thread \"{name}\"", outcome.plan))
}
