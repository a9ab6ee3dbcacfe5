//! `coalesce-sim run`: the command line, and what it prints.

use super::report::report;
use super::{Job, cpus, jobs, run_jobs};
use crate::outcome::{Outcome, ThreadOutcome};
use crate::plan::{Plan, PlanFile, Wrong};
use crate::report::text::{self, mean_us, us};
use crate::report::{Outputs, refuse_mistaken};
use anyhow::{Result, bail};
use clap::Args;
use coalesce_cli::{counted, printable};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Simulations at the same time: each has a thread, and the memory of its plan.
pub(crate) const JOBS_MAX: i64 = 256;

/// Simulate a plan: every point of its sweep, under every policy it names
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    /// The plan, a TOML file
    #[arg(value_name = "PLAN")]
    plan: PathBuf,

    /// Print one line of JSON per simulation, with times in ns
    #[arg(long)]
    json: bool,

    /// Seed, instead of the plan's
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,

    /// Simulations to run in parallel [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=JOBS_MAX))]
    jobs: Option<u16>,

    #[command(flatten)]
    outputs: Outputs,
}

const EXAMPLES: &str = "\
EXAMPLES
  A synchronous and an asynchronous thread, under every policy:
      coalesce-sim run crates/coalesce-sim/plans/mixed.toml
  The same as JSON, with another seed:
      coalesce-sim run crates/coalesce-sim/plans/mixed.toml --json --seed 2
  Recorded arrivals through a simulated device: a thread of `kind = \"trace\"`, as
  crates/coalesce-sim/plans/all-keys.toml explains it with all other keys.

TIMES
  `time us` is the mean that a request takes its requester: of an open loop from
  arrival, in a queue before the device too; of a closed loop from one submission
  of a place to the next, depth x time / commands; of a batch or an operation
  from its first submission to its last answer. A latency budget is a share of
  this. p50 to p99.9 are from a command's submission, or arrival, to its answer.

The same plan and seed give the same bytes on every machine. Standard error shows the speed of the simulation.";

pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it is no seed; allowed: 0 to {}", u64::MAX))
}

impl Command {
    /// Runs the plan and prints what came out.
    ///
    /// # Errors
    /// The plan is wrong, or is one of the outputs, or these are one; standard output is closed; a checker found something wrong in a run without faults.
    pub fn run(self) -> Result<()> {
        refuse_mistaken(&self.plan, self.outputs.files())?;
        let file = PlanFile::read(&self.plan)?;
        let mut plan = file.plan()?;
        plan.seed = self.seed.unwrap_or(plan.seed);
        let jobs = jobs(&plan).map_err(|wrong| file.error(&wrong))?;
        let began = Instant::now();
        let outcomes = run_with_bar(&jobs, self.jobs, |_, outcome| {
            if self.json {
                // A reader that went away is noticed at the end.
                let line = serde_json::to_string(outcome).unwrap_or_default();
                let _ = writeln!(std::io::stdout(), "{}", printable(&line));
            }
        });
        let outcomes = outcomes.map_err(|wrong| file.error(&wrong))?;
        if !self.json {
            std::io::stdout().write_all(printable(&table(&plan, &outcomes)).as_bytes())?;
        }
        std::io::stdout().flush()?;
        if self.outputs.is_any() {
            self.outputs.write(&report(&plan, &jobs, &outcomes)?)?;
        }

        let (events, seconds) = (outcomes.iter().map(|outcome| outcome.events).sum::<u64>(), began.elapsed());
        let rate = events as f64 / seconds.as_secs_f64() / 1e6;
        eprintln!("{events} events in {:.2} s, {rate:.1} million per second", seconds.as_secs_f64());
        let wrong: Vec<_> = outcomes.iter().filter(|outcome| !outcome.verdict.is_clean()).collect();
        if let Some(first) = wrong.first() {
            let violation = first.verdict.violations.first().map_or_else(String::new, |violation| {
                format!("; the first, under {}, at {} ns: {}", first.policy, violation.at, violation.what)
            });
            bail!("{} of {} simulations broke a rule{violation}", wrong.len(), outcomes.len());
        }
        Ok(())
    }
}

/// Runs simulations, `at_once` of them at the same time, usually one per CPU. Shows on a terminal how far all of them are, if
/// they take more than a second.
pub(crate) fn run_with_bar(
    jobs: &[Job],
    at_once: Option<u16>,
    done: impl FnMut(usize, &Outcome) + Send,
) -> Result<Vec<Outcome>, Wrong> {
    let (threads, progress) = (at_once.map_or_else(cpus, usize::from), AtomicU64::new(0));
    if !std::io::stderr().is_terminal() {
        return run_jobs(jobs, threads, &progress, done);
    }
    let total = jobs.iter().map(|job| job.point.plan.warmup.0 + job.point.plan.duration.0).sum();
    let bar = ProgressBar::new(total);
    bar.set_style(ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left").expect("a valid template"));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let painter = scope.spawn(|| {
            std::thread::park_timeout(Duration::from_secs(1));
            while !is_done.load(Ordering::Relaxed) {
                bar.set_position(progress.load(Ordering::Relaxed));
                std::thread::park_timeout(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let outcomes = run_jobs(jobs, threads, &progress, done);
        is_done.store(true, Ordering::Relaxed);
        painter.thread().unpark();
        outcomes
    })
}

/// Which of the two times of a request a column shows.
const ABOUT_TIMES: &str = "time: what a request takes its requester, mean; p50 to p99.9: from submission, or arrival";

/// A table for each point of the sweep, and one of the threads where there are several. Where only one policy is named,
/// the points are the lines of one table.
fn table(plan: &Plan, outcomes: &[Outcome]) -> String {
    let mut print = format!("{}: seed {}, {} measured; {ABOUT_TIMES}\n", plan.name, plan.seed, plan.duration);
    let is_one_table = plan.policies.len() == 1;
    let settings = |outcome: &Outcome| -> String {
        let settings = outcome.settings.iter().map(|(key, value)| format!("{key} = {value}"));
        settings.collect::<Vec<_>>().join(", ")
    };
    let name = |outcome: &Outcome| {
        if is_one_table && !outcome.settings.is_empty() { settings(outcome) } else { outcome.policy.clone() }
    };
    let per_table = if is_one_table { outcomes.len() } else { plan.policies.len() };
    for outcomes in outcomes.chunks(per_table) {
        print += "\n";
        if !is_one_table && !outcomes[0].settings.is_empty() {
            print += &format!("{}\n", settings(&outcomes[0]));
        }
        let lines: Vec<_> = outcomes.iter().map(|outcome| line(name(outcome), outcome)).collect();
        print += &text::aligned(&HEADS, &lines);
        if outcomes[0].threads.len() > 1 {
            let lines: Vec<_> = outcomes.iter().flat_map(|outcome| thread_lines(&name(outcome), outcome)).collect();
            print += &format!("\n{}", text::aligned(&THREAD_HEADS, &lines));
        }
        print.extend(outcomes.iter().map(|outcome| dropped(&name(outcome), outcome)));
    }
    print
}

/// What an open loop did not do, as more came than the device can do.
fn dropped(name: &str, outcome: &Outcome) -> String {
    let of = |thread: &ThreadOutcome| {
        let arrivals = counted(thread.dropped, "arrival");
        (thread.dropped > 0).then(|| format!("{name}: {arrivals} of {} dropped, as 65536 waited\n", thread.name))
    };
    outcome.threads.iter().filter_map(of).collect()
}

const HEADS: [&str; 14] = [
    "",
    "IOPS",
    "time us",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "irq/s",
    "req/irq",
    "cycles/IO",
    "CPU",
    "held p50 us",
    "held p99 us",
    "held max us",
    "rules",
];

fn line(name: String, outcome: &Outcome) -> [String; 14] {
    let Outcome { latency, delay, verdict, .. } = outcome;
    let rules = match (verdict.wrong, verdict.late) {
        (0, 0) => "kept".to_owned(),
        (wrong, late) => format!("{wrong} wrong, {late} late"),
    };
    [
        name,
        format!("{:.0}", outcome.iops),
        mean_us(outcome.request_time),
        us(latency.p50),
        us(latency.p99),
        us(latency.p999),
        format!("{:.0}", outcome.interrupts_per_s),
        format!("{:.2}", outcome.requests_per_interrupt),
        format!("{:.0}", outcome.cycles_per_io),
        format!("{:.2}", outcome.cpu),
        us(delay.p50),
        us(delay.p99),
        us(delay.max),
        rules,
    ]
}

const THREAD_HEADS: [&str; 7] = ["", "thread", "IOPS", "time us", "p50 us", "p99 us", "CPU"];

fn thread_lines(name: &str, outcome: &Outcome) -> Vec<[String; 7]> {
    let line = |thread: &ThreadOutcome| {
        [
            name.to_owned(),
            thread.name.clone(),
            format!("{:.0}", thread.iops),
            mean_us(thread.request_time),
            us(thread.latency.p50),
            us(thread.latency.p99),
            format!("{:.2}", thread.cpu),
        ]
    };
    outcome.threads.iter().map(line).collect()
}
