//! How far it is: a bar on a terminal, one line per stage elsewhere.

use std::io::IsTerminal as _;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// One stage.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins a stage of `steps` steps.
    pub fn begin(stage: &str, steps: u64) -> Result<Self> {
        if !std::io::stderr().is_terminal() {
            eprintln!("coalesce-demo: {stage}");
            return Ok(Self(ProgressBar::hidden()));
        }
        let style = ProgressStyle::with_template("{prefix}  {bar:30} {pos}/{len}  {elapsed}  {msg}")?;
        Ok(Self(ProgressBar::new(steps).with_style(style).with_prefix(stage.to_owned())))
    }

    /// What comes now.
    pub fn now(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// A step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Says something above the bar.
    pub fn say(&self, line: &str) {
        self.0.suspend(|| eprintln!("coalesce-demo: {line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
