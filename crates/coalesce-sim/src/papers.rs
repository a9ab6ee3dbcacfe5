//! The papers' figures: what was published, and what comes out of a simulation of the same set-up.

mod cint;
#[cfg(feature = "cli")]
pub mod command;
pub mod finding;
pub mod row;
pub mod runs;
mod vic;
mod xen;

use self::finding::Finding;
use self::row::Row;
use self::runs::{Runs, jobs_of};
use std::sync::atomic::AtomicU64;

/// Figures that one set-up gave.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Paper, section, and table or figure.
    pub source: &'static str,
    /// Device, processor, depth, block size, threads, parameters.
    pub setup: &'static str,
    /// The plans that simulate it.
    pub plans: &'static [&'static str],
    /// The figures.
    pub rows: &'static [Row],
}

/// All of them, paper by paper.
pub fn experiments() -> impl Iterator<Item = &'static Experiment> {
    [vic::EXPERIMENTS, cint::EXPERIMENTS, xen::EXPERIMENTS].into_iter().flatten()
}

/// Simulates what the rows need whose ids begin with one of `only`; none: all rows. `begin` gets how much time will be
/// simulated, in ns; `progress` how much of it has passed.
///
/// # Errors
/// A plan that is not one, or a run that lost an interrupt.
pub fn findings(only: &[String], begin: impl FnOnce(u64), progress: &AtomicU64) -> anyhow::Result<Vec<Finding>> {
    let is_wanted = |row: &Row| only.is_empty() || only.iter().any(|prefix| row.id.starts_with(prefix));
    let rows = experiments().flat_map(|experiment| experiment.rows.iter().map(move |row| (experiment, row)));
    let wanted: Vec<_> = rows.filter(|(_, row)| is_wanted(row)).collect();
    let simulated = wanted.iter().filter(|(_, row)| row.simulated.is_some());
    let plans: Vec<&str> = simulated.flat_map(|(experiment, _)| experiment.plans).copied().collect();
    let jobs = jobs_of(&plans)?;
    begin(jobs.iter().map(|job| job.point.plan.warmup.0 + job.point.plan.duration.0).sum());
    let runs = Runs::new(&jobs, progress)?;
    let find = |(experiment, row): (&Experiment, &Row)| {
        Finding::new(row, experiment.source, row.simulated.map(|simulated| simulated(&runs)))
    };
    Ok(wanted.into_iter().map(find).collect())
}
