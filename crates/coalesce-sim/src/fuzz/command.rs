//! `coalesce-sim fuzz`: the command line, and what it prints.

use super::plan;
use crate::run::command::seed;
use crate::run::{cpus, run};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use coalesce_cli::counted;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Simulate random plans with faults, and check every rule
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
EXAMPLES
  A thousand plans:
      coalesce-sim fuzz --seeds 1000
  One of them again, and the plan itself:
      coalesce-sim fuzz --first 4711 --seeds 1 --print")]
pub struct Command {
    /// Number of plans
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = seed)]
    first: u64,

    /// Print each plan as TOML
    #[arg(long)]
    print: bool,
}

impl Command {
    /// Runs the plans, and prints each that breaks a rule.
    ///
    /// # Errors
    /// A plan breaks a rule, the last seed is no number of 64 bits, or standard output is gone.
    pub fn run(self) -> Result<()> {
        let last = self.first.checked_add(self.seeds).context("--first: the last seed does not fit into 64 bits")?;
        let seeds = self.first..last;
        let say = |text: &str| writeln!(std::io::stdout(), "{text}").context("standard output");
        if self.print {
            for seed in seeds.clone() {
                say(&toml::to_string(&plan(seed)).context("a plan has a text form")?)?;
            }
        }
        let (simulations, broken) = check(seeds);
        for (seed, what) in &broken {
            say(&format!("seed {seed}: {what}"))?;
        }
        if !broken.is_empty() {
            let plans = counted(simulations, "plan");
            bail!("{} of {plans} break a rule; `--first SEED --seeds 1 --print` shows one", broken.len());
        }
        say(&format!("no rule is broken by {}", counted(simulations, "plan")))
    }
}

/// Simulates the plans of `seeds`, in parallel: how many, and those that break a rule, with the first that each does.
#[must_use]
pub fn check(seeds: Range<u64>) -> (u64, Vec<(u64, String)>) {
    let (next, count) = (AtomicU64::new(0), seeds.end - seeds.start);
    let broken = Mutex::new(Vec::new());
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= count {
                return;
            }
            let seed = seeds.start + nth;
            if let Err(what) = check_one(seed) {
                broken.lock().expect("no thread panics here").push((seed, what));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..cpus() {
            scope.spawn(work);
        }
        work();
    });
    let mut broken = broken.into_inner().expect("no thread panics here");
    broken.sort();
    (count, broken)
}

fn check_one(seed: u64) -> Result<(), String> {
    for outcome in run(&plan(seed)).map_err(|wrong| format!("the plan is not valid: {wrong}"))? {
        if let Some(violation) = outcome.verdict.violations.first() {
            return Err(format!("{}, at {} ns: {}", outcome.policy, violation.at, violation.what));
        }
    }
    Ok(())
}
