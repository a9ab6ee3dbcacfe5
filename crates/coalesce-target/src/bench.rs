//! `coalesce-target bench`: the load generator on the command line. Nothing that serves a disk knows of it.

use clap::Args;
use coalesce_cli::{counted, print, say};
use coalesce_load::{Error, Options, Progress, run, table};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::process::ExitCode;

/// Examples, for `--help`.
pub const EXAMPLES: &str = "\
EXAMPLES
  How many interrupts does a target send for 32 requests in flight on each of two queues?
      coalesce-target bench --socket /tmp/s --queues 2 --depth 32 --seconds 5
  The same without EVENT_IDX: every interrupt saved is then the target's own decision.
      coalesce-target bench --socket /tmp/s --queues 2 --depth 32 --seconds 5 \\
          --event-idx off
  What does coalescing cost a synchronous requester beside a busy one, with and without a mark?
      coalesce-target bench --socket /tmp/s --job mixed --sync-ioprio rt
      coalesce-target bench --socket /tmp/s --job mixed --sync-ioprio none
  How many doorbells of an NVMe disk are messages?
      coalesce-target bench --device nvme --socket /tmp/n --depth 8
  Latency under an open loop: 20000 arrivals per second, Poisson.
      coalesce-target bench --socket /tmp/s --rate 20000 --poisson --depth 128
  Is the data right? (overwrites the device)
      coalesce-target bench --socket /tmp/s --rw randwrite --write-percent 50 \\
          --verify --ops 100000

The client reaps completions only after an interrupt, so the completion latency (clat) includes the time that the target
holds them. Exit status: 0; 1 if a request failed or never completed, or the target cannot be used; 2 for wrong usage.";

/// The options of `bench`.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(flatten)]
    options: Options,

    /// Print one JSON object (times in ns, fio's names) instead of tables
    #[arg(long)]
    json: bool,

    /// Hide the progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Runs a load and prints its report.
#[must_use]
pub fn bench(bench: &Bench) -> ExitCode {
    match execute(bench) {
        Ok(failed) => ExitCode::from(u8::from(failed)),
        Err(error) => {
            let socket = bench.options.socket.display();
            match &error {
                Error::Usage(_) | Error::Io(_) => say!("coalesce-target bench: {error}"),
                _ => say!("coalesce-target bench: {socket}: {error}"),
            }
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Runs a load and prints its report. Returns whether a request failed.
fn execute(bench: &Bench) -> Result<bool, Error> {
    let bar = progress_bar(bench);
    let result = run(&bench.options, |Progress { done, total_ios }| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_message(counted(total_ios, "request"));
    });
    bar.finish_and_clear();
    let report = result?;
    let text =
        if bench.json { serde_json::to_string(&report).map_err(std::io::Error::from)? + "\n" } else { table(&report) };
    print(&text).map_err(|error| std::io::Error::new(error.kind(), format!("standard output: {error}")))?;
    for failure in &report.failures {
        say!("coalesce-target bench: {failure}");
    }
    Ok(report.failed())
}

fn progress_bar(bench: &Bench) -> ProgressBar {
    let is_long = bench.options.ops.is_some() || bench.options.seconds > 1.0;
    if bench.quiet || !is_long || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {elapsed}  {msg}").expect("a constant template");
    ProgressBar::new(1000).with_style(style)
}
