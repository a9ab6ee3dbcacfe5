//! How far it is: a bar on a terminal, one line per stage elsewhere.

use std::io::IsTerminal as _;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// The bar's length.
const STEPS: u64 = 1000;

/// One stage.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins a stage.
    pub fn begin(stage: &str) -> Result<Self> {
        if !std::io::stderr().is_terminal() {
            eprintln!("coalesce-demo: {stage}");
            return Ok(Self(ProgressBar::hidden()));
        }
        let style = ProgressStyle::with_template("{prefix}  {bar:30}  {elapsed}  {msg}")?;
        Ok(Self(ProgressBar::new(STEPS).with_style(style).with_prefix(stage.to_owned())))
    }

    /// The share that is done, 0 to 1, and what comes now.
    pub fn at(&self, share: f64, what: &str) {
        self.0.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        self.0.set_message(what.to_owned());
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
