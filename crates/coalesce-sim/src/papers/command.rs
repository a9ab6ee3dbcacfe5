//! `coalesce-sim papers`: the command line, and what it prints.

use super::finding::table;
use super::row::Row;
use super::{experiments, findings};
use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Simulate the set-ups of the papers: each published figure beside the simulated one
///
/// Verdicts do not change the exit status. docs/papers.md explains them.
#[derive(Args, Clone, Debug)]
pub struct Command {
    /// Only rows whose id begins with ID, may be repeated: cint, cint.f10, vic.t1.cif64
    #[arg(long, value_name = "ID")]
    only: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Command {
    /// Simulates and prints.
    ///
    /// # Errors
    /// No row has such an id, or standard output is gone.
    pub fn run(&self) -> Result<()> {
        for id in &self.only {
            let is_wanted = |row: &Row| row.id.starts_with(id.as_str());
            if !experiments().flat_map(|experiment| experiment.rows).any(is_wanted) {
                bail!(
                    "--only: no row's id begins with \"{id}\"; allowed: {}, and what follows them",
                    figures().join(", ")
                );
            }
        }
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template("{wide_bar} {percent:>3} % {eta}").expect("a valid template"));
        let (progress, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        let findings = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) && !bar.is_hidden() {
                    bar.set_position(progress.load(Ordering::Relaxed));
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let findings = findings(&self.only, |all| bar.set_length(all), &progress);
            is_done.store(true, Ordering::Relaxed);
            findings
        })?;
        bar.finish_and_clear();
        let text = if self.json { serde_json::to_string_pretty(&findings)? + "\n" } else { table(&findings) };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

/// The papers and figures that ids begin with: `cint.f10`.
fn figures() -> Vec<String> {
    let ids = experiments().flat_map(|experiment| experiment.rows).map(|row| row.id);
    let mut figures: Vec<_> = ids.map(|id| id.split('.').take(2).collect::<Vec<_>>().join(".")).collect();
    figures.sort();
    figures.dedup();
    figures
}
