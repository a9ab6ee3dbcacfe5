//! The scoreboard: every policy under the same workloads, and what each costs and saves over `none`.
//!
//! All workloads count alike, so no change tunes a policy to one of them. A geometric mean says what a policy is worth,
//! the worst case whom it harms.

#[cfg(feature = "cli")]
pub mod command;
pub mod frontier;
pub mod workload;

use self::workload::Workload;
use crate::contender::{Contender, own};
use crate::outcome::Outcome;
use crate::plan::Wrong;
use crate::report::text;
use crate::run::Job;
use crate::units::Time;
use coalesce_cli::counted;
use coalesce_policy::Spec;
use serde::Serialize;

/// What every other policy is compared with.
pub(crate) const BASELINE: &str = "none";

/// What is measured of a workload if nothing is said, in the tests, too.
pub const DURATION: Time = Time::ms(50);

/// Figures of a run that are compared.
const FIGURES: usize = 6;

/// A figure of a run.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    head: &'static str,
    more_is_better: bool,
}

const fn less(name: &'static str, head: &'static str) -> Figure {
    Figure { name, head, more_is_better: false }
}

const TABLE: [Figure; FIGURES] = [
    less("interrupts_per_io", "interrupts/IO"),
    Figure { name: "iops", head: "IOPS", more_is_better: true },
    less("request_time", "time"),
    less("latency_mean", "mean"),
    less("latency_p99", "p99"),
    less("cycles_per_io", "cycles/IO"),
];

/// The figures of one run, in the order of [`TABLE`].
fn figures(outcome: &Outcome, workload: &Workload) -> [f64; FIGURES] {
    let thread = |name| outcome.threads.iter().find(|thread| thread.name == name);
    let (request_time, latency) = match workload.latency_of.as_deref().and_then(thread) {
        Some(thread) => (thread.request_time, thread.latency),
        None => (outcome.request_time, outcome.latency),
    };
    // A loop that computes takes what it gets; that is no cost of I/O.
    let computing: f64 = workload.computing().filter_map(thread).map(|thread| thread.cpu).sum();
    let cycles = outcome.cycles_per_io * (1.0 - computing / outcome.cpu);
    let interrupts = outcome.interrupts_per_s / outcome.iops;
    [interrupts, outcome.iops, request_time, latency.mean, latency.p99 as f64, cycles]
}

/// Which run it was, for messages.
fn run_of(Outcome { plan, policy, seed, .. }: &Outcome) -> String {
    format!("{plan}, {policy}, seed {seed}")
}

/// There is something to compare: completions and interrupts in every run.
pub(crate) fn ensure_enough(outcomes: &[Outcome]) -> anyhow::Result<()> {
    let is_enough = |outcome: &&Outcome| outcome.iops > 0.0 && outcome.interrupts_per_s > 0.0;
    match outcomes.iter().find(|outcome| !is_enough(outcome)) {
        Some(outcome) => anyhow::bail!("{}: too short, nothing happened", run_of(outcome)),
        None => Ok(()),
    }
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Under what.
    pub workloads: Vec<Workload>,
    /// What is compared with `none`.
    pub policies: Vec<Contender>,
    /// Seeds 1 to this one.
    pub seeds: u64,
    /// What is measured of a workload of length 1, in simulated time.
    pub duration: Time,
}

/// The text forms of `none` and then these policies.
pub(crate) fn beside_baseline(policies: &[Contender]) -> Vec<String> {
    std::iter::once(BASELINE.to_owned()).chain(policies.iter().map(ToString::to_string)).collect()
}

impl Contest {
    /// Every policy that users can choose, but for `none`, and those of one's own.
    ///
    /// # Panics
    /// A policy's name is not its text form.
    #[must_use]
    pub fn policies() -> Vec<Contender> {
        let names = Spec::policies().into_iter().map(|policy| policy.name).filter(|name| *name != BASELINE);
        names.map(|name| name.parse().expect("a name alone is a text form")).chain(own()).collect()
    }

    /// Every simulation: workload by workload, seed by seed, `none` and then the policies.
    ///
    /// # Errors
    /// A workload with a value that is not allowed.
    pub fn jobs(&self) -> Result<Vec<Job>, Wrong> {
        let texts = beside_baseline(&self.policies);
        let mut jobs = Vec::new();
        for workload in &self.workloads {
            for seed in 1..=self.seeds {
                jobs.extend(crate::run::jobs(&workload.plan(&texts, seed, self.duration))?);
            }
        }
        Ok(jobs)
    }

    /// Compares what the [`jobs`](Self::jobs) gave.
    ///
    /// # Errors
    /// A run without completions or interrupts, or one that broke a rule.
    pub fn score(&self, outcomes: &[Outcome]) -> anyhow::Result<Board> {
        let broken: Vec<_> = outcomes.iter().filter(|outcome| !outcome.verdict.is_clean()).collect();
        if let Some(first) = broken.first() {
            let (found, runs) =
                (&first.verdict.violations, broken.iter().map(|outcome| run_of(outcome)).collect::<Vec<_>>());
            anyhow::bail!(
                "{} of {} runs broke a rule: {}; the first: {found:?}",
                runs.len(),
                outcomes.len(),
                runs.join("; ")
            );
        }
        ensure_enough(outcomes)?;
        let per_seed = self.policies.len() + 1;
        let mut runs = Vec::new();
        let per_workload = outcomes.chunks(per_seed * self.seeds as usize);
        for (workload, outcomes) in self.workloads.iter().zip(per_workload) {
            for (seed, outcomes) in (1..).zip(outcomes.chunks(per_seed)) {
                let baseline = figures(&outcomes[0], workload);
                for outcome in &outcomes[1..] {
                    let figures = figures(outcome, workload);
                    let ratios = std::array::from_fn(|i| figures[i] / baseline[i]);
                    let workload = workload.name.clone();
                    runs.push(Ratios { workload, seed, policy: outcome.policy.clone(), ratios });
                }
            }
        }
        Ok(Board { workloads: self.workloads.len(), seeds: self.seeds, duration: self.duration, runs })
    }
}

/// One run, over that of `none` with the same workload and seed.
#[derive(Clone, Debug, PartialEq)]
struct Ratios {
    workload: String,
    seed: u64,
    policy: String,
    ratios: [f64; FIGURES],
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    workloads: usize,
    seeds: u64,
    duration: Time,
    runs: Vec<Ratios>,
}

/// A figure of a policy over all its runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Overall<'a> {
    figure: &'static str,
    mean: f64,
    worst: f64,
    workload: &'a str,
    seed: u64,
}

pub(crate) fn geometric_mean(ratios: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = ratios.len() as f64;
    // The standard library's logarithm differs by machine.
    libm::exp(ratios.map(libm::log).sum::<f64>() / count)
}

impl Board {
    /// Each policy with its runs, in the order in which they were given.
    fn by_policy(&self) -> Vec<(&str, Vec<&Ratios>)> {
        let mut policies: Vec<(&str, Vec<&Ratios>)> = Vec::new();
        for run in &self.runs {
            match policies.iter_mut().find(|(policy, _)| *policy == run.policy) {
                Some((_, runs)) => runs.push(run),
                None => policies.push((&run.policy, vec![run])),
            }
        }
        policies
    }

    fn summaries<'a>(runs: &[&'a Ratios]) -> [Overall<'a>; FIGURES] {
        std::array::from_fn(|i| {
            let Figure { name: figure, more_is_better, .. } = TABLE[i];
            let badness = |run: &Ratios| if more_is_better { -run.ratios[i] } else { run.ratios[i] };
            // The first of equals.
            let worst = runs.iter().rev().max_by(|a, b| badness(a).total_cmp(&badness(b))).expect("there is a run");
            Overall {
                figure,
                mean: geometric_mean(runs.iter().map(|run| run.ratios[i])),
                worst: worst.ratios[i],
                workload: &worst.workload,
                seed: worst.seed,
            }
        })
    }

    /// For people: geometric means, and then the worst cases with their workloads.
    #[must_use]
    pub fn table(&self) -> String {
        let Self { workloads, seeds, duration, .. } = self;
        let mut means = Vec::new();
        let mut worst = Vec::new();
        for (policy, runs) in self.by_policy() {
            let summaries = Self::summaries(&runs);
            means.push(line(policy, summaries.map(|summary| summary.mean)));
            for (figure, Overall { worst: ratio, workload, seed, .. }) in TABLE.iter().zip(summaries) {
                let seed = if *seeds > 1 { format!(", seed {seed}") } else { String::new() };
                worst.push([policy.into(), figure.head.into(), ratio_text(ratio), format!("{workload}{seed}")]);
            }
        }
        let seeds = if *seeds > 1 { format!("seeds 1 to {seeds}") } else { "seed 1".into() };
        let about =
            format!("{}, {seeds}, {duration} of each; all over {BASELINE}", counted(*workloads as u64, "workload"));
        format!(
            "{about}\n\ngeometric means\n{}\nworst cases\n{}",
            text::aligned(&heads(""), &means),
            text::aligned(&["", "", "", ""], &worst).trim_start_matches('\n')
        )
    }

    /// A line for each workload and policy: geometric means over the seeds.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut lines = Vec::new();
        for (policy, runs) in self.by_policy() {
            for runs in runs.chunks(self.seeds as usize) {
                let name = format!("{policy} {}", runs[0].workload);
                lines.push(line(&name, Self::summaries(runs).map(|summary| summary.mean)));
            }
        }
        text::aligned(&heads(""), &lines)
    }

    /// For machines.
    #[must_use]
    pub fn to_json(&self, detail: bool) -> serde_json::Value {
        let policies = self.by_policy().into_iter().map(|(policy, runs)| {
            let mut entry = serde_json::json!({ "policy": policy, "figures": Self::summaries(&runs) });
            if detail {
                let run = |run: &&Ratios| {
                    let ratios: serde_json::Map<_, _> = TABLE
                        .iter()
                        .zip(run.ratios)
                        .map(|(figure, ratio)| (figure.name.into(), ratio.into()))
                        .collect();
                    serde_json::json!({ "workload": run.workload, "seed": run.seed, "over_none": ratios })
                };
                entry["runs"] = runs.iter().map(run).collect();
            }
            entry
        });
        serde_json::json!({
            "workloads": self.workloads,
            "seeds": self.seeds,
            "measured_ns": self.duration.0,
            "policies": policies.collect::<Vec<_>>(),
        })
    }
}

fn heads(first: &str) -> [&str; FIGURES + 1] {
    let [a, b, c, d, e, f] = TABLE.map(|figure| figure.head);
    [first, a, b, c, d, e, f]
}

pub(crate) fn ratio_text(ratio: f64) -> String {
    format!("{ratio:.3}")
}

fn line(name: &str, ratios: [f64; FIGURES]) -> [String; FIGURES + 1] {
    let [a, b, c, d, e, f] = ratios.map(ratio_text);
    [name.to_owned(), a, b, c, d, e, f]
}
