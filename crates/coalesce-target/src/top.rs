//! `coalesce-target top`: what running targets do, from their control sockets.

mod rates;
mod screen;
mod table;

use crate::config::parse_duration;
use anyhow::{Context as _, Result};
use clap::Args;
use coalesce_cli::print_to_reader;
use rates::{Row, Target};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The options of `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Control sockets of the targets
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    control: Vec<PathBuf>,

    /// Time that a table is about, 10ms to 3600s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// Print one table and exit; without it, a terminal shows the tables until q is pressed, and a file gets one after another
    #[arg(long)]
    once: bool,

    /// Print JSON instead, one line for each interval
    #[arg(long)]
    json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    parse_duration("interval", text, 10_000_000..=3_600_000_000_000, "10ms to 3600s").map(Duration::from_nanos)
}

/// Prints what the targets did in each interval, until nobody reads it.
///
/// # Errors
/// No target answers at the beginning, or one does not with `--once`; or standard output cannot be written.
pub fn top(options: &Top) -> Result<()> {
    let mut targets: Vec<_> = options.control.iter().map(|path| Target::new(path)).collect();
    let mut failures: Vec<_> = outcomes(&mut targets).into_iter().filter_map(|(_, outcome)| outcome.err()).collect();
    if failures.len() == targets.len() {
        return Err(failures.swap_remove(0));
    }
    if stdin().is_terminal() && stdout().is_terminal() && !options.once && !options.json {
        return screen::show(options.interval, || outcomes(&mut targets));
    }
    loop {
        sleep(options.interval);
        let outcomes = outcomes(&mut targets);
        let text = if options.json { json_of(&outcomes) } else { table::text(&outcomes) };
        if !print_to_reader(&text).context("standard output")? {
            return Ok(());
        }
        if options.once {
            return outcomes.into_iter().try_for_each(|(_, outcome)| outcome.map(drop));
        }
    }
}

/// What each target did in an interval, or why it does not answer.
type Outcomes<'a> = Vec<(&'a Path, Result<Vec<Row>>)>;

/// All targets are asked at once, so that one that does not answer delays a table once, and none after that.
fn outcomes<'a>(targets: &mut [Target<'a>]) -> Outcomes<'a> {
    targets.iter_mut().for_each(Target::ask);
    let start = Instant::now();
    targets.iter_mut().map(|target| (target.path, target.interval(start))).collect()
}

fn json_of(outcomes: &Outcomes<'_>) -> String {
    let target = |(path, outcome): &(&Path, Result<Vec<Row>>)| match outcome {
        Ok(rows) => json!({ "control": path.display().to_string(), "rows": rows }),
        Err(error) => json!({ "control": path.display().to_string(), "error": format!("{error:#}") }),
    };
    format!("{}\n", outcomes.iter().map(target).collect::<Value>())
}
