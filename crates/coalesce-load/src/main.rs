//! `coalesce-bench`: the load generator on the command line.

use clap::{Parser, Subcommand};
use coalesce_cli::{counted, print, say};
use coalesce_load::{Error, Options, Progress, run, table};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::process::ExitCode;

const EXAMPLES: &str = "\
EXAMPLES
  How many interrupts does a target send for 32 requests in flight on each of two queues?
      coalesce-bench --socket /tmp/s --queues 2 --depth 32 --seconds 5
  The same without EVENT_IDX: every interrupt saved is then the target's own decision.
      coalesce-bench --socket /tmp/s --queues 2 --depth 32 --seconds 5 \\
          --event-idx off
  What does coalescing cost a synchronous requester beside a busy one, with and without a mark?
      coalesce-bench --socket /tmp/s --job mixed --sync-ioprio rt
      coalesce-bench --socket /tmp/s --job mixed --sync-ioprio none
  How many doorbells of an NVMe disk are messages?
      coalesce-bench --device nvme --socket /tmp/n --depth 8
  Latency under an open loop: 20000 arrivals per second, Poisson.
      coalesce-bench --socket /tmp/s --rate 20000 --poisson --depth 128
  Is the data right? (overwrites the device)
      coalesce-bench --socket /tmp/s --rw randwrite --write-percent 50 \\
          --verify --ops 100000

The client reaps completions only after an interrupt, so the completion latency (clat) includes the time that the target \
holds them. Exit status: 0; 1 if a request failed, if none of those in flight completes for 5 s, or if the target cannot be \
used; 2 for wrong usage.";

/// Load a target as a guest would, over vhost-user-blk or NVMe, and count its interrupts
#[derive(Parser)]
#[command(name = "coalesce-bench", version = coalesce_cli::VERSION, propagate_version = true, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    options: Option<Options>,

    /// Print one JSON object (times in ns, fio's names) instead of tables
    #[arg(long)]
    json: bool,

    /// Hide the progress bar
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Subcommand)]
enum Command {
    Man(coalesce_cli::Man),
    Completions(coalesce_cli::Completions),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match execute(&cli) {
        Ok(failed) => ExitCode::from(u8::from(failed)),
        Err(error) => {
            match (&error, &cli.options) {
                (Error::Usage(_) | Error::Io(_), _) | (_, None) => say!("coalesce-bench: {error}"),
                (_, Some(options)) => say!("coalesce-bench: {}: {error}", options.socket.display()),
            }
            ExitCode::from(if matches!(error, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// Does what the command line says. Returns whether a request failed.
fn execute(cli: &Cli) -> Result<bool, Error> {
    match (&cli.command, &cli.options) {
        (Some(Command::Man(options)), _) => options.run::<Cli>()?,
        (Some(Command::Completions(options)), _) => write(&options.script::<Cli>())?,
        (None, options) => return bench(options.as_ref().expect("--socket is required"), cli),
    }
    Ok(false)
}

/// Runs a load and prints its report. Returns whether a request failed.
fn bench(options: &Options, cli: &Cli) -> Result<bool, Error> {
    let bar = progress_bar(options, cli.quiet);
    let result = run(options, |Progress { done, total_ios }| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_message(counted(total_ios, "request"));
    });
    bar.finish_and_clear();
    let report = result?;
    let text =
        if cli.json { serde_json::to_string(&report).map_err(std::io::Error::from)? + "\n" } else { table(&report) };
    write(&text)?;
    for failure in &report.failures {
        say!("coalesce-bench: {failure}");
    }
    Ok(report.failed())
}

fn write(text: &str) -> std::io::Result<()> {
    print(text).map_err(|error| std::io::Error::new(error.kind(), format!("standard output: {error}")))
}

fn progress_bar(options: &Options, is_quiet: bool) -> ProgressBar {
    let is_long = options.ops.is_some() || options.seconds > 1.0;
    if is_quiet || !is_long || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {elapsed}  {msg}").expect("a constant template");
    ProgressBar::new(1000).with_style(style)
}
