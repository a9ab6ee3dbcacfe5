//! `coalesce-sim score`: the command line, and what it prints.

use super::workload::Workload;
use super::{Contest, DURATION, frontier};
use crate::contender::Contender;
use crate::run::command::{JOBS_MAX, run_with_bar};
use crate::units::Time;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use coalesce_policy::{SpecError, parse_duration};
use std::io::Write as _;
use std::path::PathBuf;

/// Compare policies over all workloads: geometric means and worst cases, each figure over that of `none`
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    /// Policies to compare, between commas; a part without a name continues the keys of the one before
    /// [default: every policy of docs/policies.md]
    #[arg(long, value_name = "TEXTS", value_parser = policies)]
    policies: Option<Policies>,

    /// Only workloads whose DEVICE/NAME contains this: p3700/, guest, /depth
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    workloads: String,

    /// Seeds 1 to N
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// Simulated time that is measured of each workload; bursts and guests run longer
    #[arg(long, value_name = "TIME", default_value_t = DURATION, value_parser = time)]
    duration: Time,

    /// Also print a line for each workload and policy
    #[arg(long)]
    detail: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Also write a picture: interrupts against the mean time of a request, with a line through policies of the same name
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,

    /// Simulations to run in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX))]
    jobs: Option<u16>,
}

const EXAMPLES: &str = "\
EXAMPLES
  Every policy, as the tests compare it:
      coalesce-sim score
  Two policies over the guests, a line for each of them:
      coalesce-sim score --policies vic,cint:delta=6us,thr=16 \\
          --workloads guest --detail
  The results of docs/score.md:
      coalesce-sim score --seeds 3 --duration 500ms
  The frontier of the latency budget among the others, as a picture:
      coalesce-sim score --policies auto:budget=1%,auto,auto:budget=20%,vic,cint,nvme \\
          --plot frontier.svg

The same arguments give the same bytes on every machine, with any --jobs.";

#[derive(Clone, Debug)]
struct Policies(Vec<Contender>);

/// Text forms between commas, which also separate the keys of one.
fn policies(text: &str) -> Result<Policies, SpecError> {
    let mut texts: Vec<String> = Vec::new();
    for part in text.split(',') {
        match texts.last_mut() {
            Some(last) if part.contains('=') && !part.contains(':') => *last += &format!(",{part}"),
            _ => texts.push(part.to_owned()),
        }
    }
    texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Policies)
}

fn time(text: &str) -> Result<Time, String> {
    parse_duration(text).map(Time)
}

impl Command {
    /// Simulates and prints.
    ///
    /// # Errors
    /// No workload has such a name, a run broke a rule, or standard output is gone.
    pub fn run(self) -> Result<()> {
        let mut workloads = Workload::all();
        workloads.retain(|workload| workload.name.contains(&self.workloads));
        ensure!(!workloads.is_empty(), "no workload has \"{}\" in its name", self.workloads);
        let policies = self.policies.map_or_else(Contest::policies, |Policies(policies)| policies);
        let contest = Contest { workloads, policies, seeds: self.seeds, duration: self.duration };
        let jobs = contest.jobs()?;
        let outcomes = run_with_bar(&jobs, self.jobs, |_, _| {})?;
        let board = contest.score(&outcomes)?;
        if let Some(path) = &self.plot {
            let picture = frontier::picture(&board).context("--plot: at most 11 policies of different names fit")?;
            std::fs::write(path, picture).with_context(|| format!("--plot {}", path.display()))?;
        }
        let text = match (self.json, self.detail) {
            (true, detail) => serde_json::to_string_pretty(&board.to_json(detail))? + "\n",
            (false, true) => board.detail() + "\n" + &board.table(),
            (false, false) => board.table(),
        };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_separates_policies_and_their_keys() {
        let read = |text| policies(text).unwrap().0.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(read("nvme,vic"), ["nvme", "vic"]);
        assert_eq!(read("vic:cif_threshold=2,epoch=1ms,none"), ["vic:cif_threshold=2,epoch=1ms", "none"]);
        assert_eq!(read("cint:delta=6us,cint:delta=7us").len(), 2);
        assert!(policies("vic,nothing").is_err() && policies("epoch=1ms").is_err());
    }
}
