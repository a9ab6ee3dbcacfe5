//! `coalesce-sim contract`: the command line, and what it prints.

use super::{LIMIT, Pair, jobs, loads, pairs, table};
use crate::contender::Contender;
use crate::run::command::{JOBS_MAX, run_with_bar, seed};
use crate::units::Time;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use coalesce_cli::counted;
use coalesce_policy::parse_duration;
use std::io::Write as _;

/// Loads with random seeds, at most.
const SEEDS_MAX: u64 = 10_000;

/// Try the contract of a latency budget: loads that pause, come at random, are light, or lose their CPU
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    /// Policy to compare with none, may be repeated [default: auto]
    #[arg(long = "policy", value_name = "TEXT")]
    policies: Vec<Contender>,

    /// Number of random open loads
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u64).range(0..=SEEDS_MAX))]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1, value_parser = seed)]
    first: u64,

    /// Simulated time that is measured of each load, after a quarter of it
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = time)]
    duration: Time,

    /// What a request may take its requester, over none, but for the exceptions below
    #[arg(long, value_name = "RATIO", default_value_t = LIMIT, value_parser = limit)]
    limit: f64,

    /// Only loads whose kind or name contains this: on/off, "seed 17", light
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    loads: String,

    /// Print the loads as plans, and simulate nothing
    #[arg(long)]
    print: bool,

    /// Print JSON, an object for each load and policy
    #[arg(long)]
    json: bool,

    /// Simulations to run in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX))]
    jobs: Option<u16>,
}

const EXAMPLES: &str = "\
EXAMPLES
  Everything, minutes, with random loads that nobody has seen:
      coalesce-sim contract --first $RANDOM
  The load of seed 17 alone, under two budgets, and then as a plan:
      coalesce-sim contract --first 17 --seeds 1 --loads seed \\
          --policy auto --policy auto:budget=1%
      coalesce-sim contract --first 17 --seeds 1 --loads seed --print

EXCEPTIONS
  Someone who waits for each request beside a flood, on one interrupt vector, may need
  more than --limit, and so may random loads, of which one in a hundred is at its own
  limit or has a licence by chance, and what arrives when a flood with a licence ends:
    memory/guest-mixed          3
    memory/guest-mixed-hinted   1.5
    p3700/guest-mixed           1.85
    p3700/guest-mixed-hinted    1.15
    p3700/mixed                 1.15
    optane/mixed                1.85
    optane/mixed-sync4          1.5
    random open                 1.15
    after a flood               1.15

`time` is what a request takes its requester, over none: see `coalesce-sim run --help`. A policy's budget is judged by it, on \
every line and from the beginning. The command fails if a policy breaks that rule, or any other; if it holds more than a twentieth of \
the commands with a licence where all requesters wait, and does not make them faster; and if a request takes its requester more than \
the limit, which is for a budget of 5 %: where a load runs for a second, learning alone may take more.";

fn limit(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(limit) if (1.0..=1000.0).contains(&limit) => Ok(limit),
        _ => Err("it is no ratio; allowed: 1 to 1000".into()),
    }
}

fn time(text: &str) -> Result<Time, String> {
    match parse_duration(text).map(Time)? {
        time if time >= Time::ms(1) => Ok(time),
        time => Err(format!("{time} is too short; allowed: 1ms or more")),
    }
}

impl Command {
    /// Simulates and prints.
    ///
    /// # Errors
    /// No load has such a name, nothing happened under one, a policy broke a rule or takes more than the limit, or standard output is
    /// gone.
    pub fn run(self) -> Result<()> {
        let last = self.first.checked_add(self.seeds).context("--first: the last seed does not fit into 64 bits")?;
        let mut loads = loads(self.first..last, self.duration);
        loads.retain(|load| [load.family, &load.plan.name].iter().any(|name| name.contains(&self.loads)));
        if loads.is_empty() {
            bail!("no load has \"{}\" in its kind or name", self.loads);
        }
        let policies = if self.policies.is_empty() { vec!["auto".parse()?] } else { self.policies };
        let jobs = jobs(&loads, &policies)?;
        if self.print {
            for load in &loads {
                let plan = toml::to_string(&load.under(&policies)).context("a plan has a text form")?;
                writeln!(std::io::stdout(), "{plan}").context("standard output")?;
            }
            return Ok(());
        }
        let outcomes = run_with_bar(&jobs, self.jobs, |_, _| {})?;
        let pairs = pairs(&loads, &outcomes).context("--duration")?;
        let text = if self.json {
            serde_json::to_string_pretty(&pairs)? + "\n"
        } else {
            let (seeds, first) = (counted(self.seeds, "random open load"), self.first);
            format!("{seeds} from seed {first} on, {} of each; over none\n\n{}", self.duration, table(&pairs))
        };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")?;
        let broken: Vec<_> = pairs.iter().filter(|pair| pair.broken.is_some()).collect();
        if let Some(Pair { policy, load, broken: Some(what), .. }) = broken.first() {
            bail!("{} of {} broke a rule; the first, {policy} under {load}, {what}", broken.len(), pairs.len());
        }
        let mut over: Vec<_> = pairs.iter().filter(|pair| pair.time > pair.limit(self.limit)).collect();
        over.sort_by(|a, b| b.time.total_cmp(&a.time));
        if let Some(worst) = over.first() {
            let (Pair { policy, load, time, .. }, limit) = (worst, worst.limit(self.limit));
            bail!(
                "{} of {} take their requesters more than --limit allows; the worst, {policy} under {load}, {time:.3} x instead of \
                 {limit}",
                over.len(),
                pairs.len()
            );
        }
        Ok(())
    }
}
