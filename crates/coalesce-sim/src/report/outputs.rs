//! The files that reports are written to.

use super::{Report, csv, page};
use anyhow::{Context as _, Result, bail};
use std::fs::{File, Metadata};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where to write reports.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Outputs {
    /// Write an HTML report: one file that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the numbers as CSV, a line for each policy; times in ns
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl Outputs {
    /// Whether any report is wanted.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.html.is_some() || self.csv.is_some()
    }

    /// The files that are wanted.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.html.iter().chain(&self.csv)
    }

    /// Writes what is wanted.
    ///
    /// # Errors
    /// A file cannot be written; more policies than there are colours.
    pub fn write(&self, report: &Report) -> Result<()> {
        if let Some(path) = &self.html {
            write(path, &page::page(report)?)?;
        }
        if let Some(path) = &self.csv {
            write(path, &csv::csv(report))?;
        }
        Ok(())
    }
}

/// Writes a file whole.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("report {}", path.display()))
}

/// Refuses to write to the file that is read, by whatever name; `-` is standard input.
///
/// # Errors
/// One of `outputs` is that file.
pub fn refuse_input<'a>(input: &Path, outputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let stdin = || File::from(std::io::stdin().as_fd().try_clone_to_owned()?).metadata();
    let about = if input == Path::new("-") { stdin() } else { input.metadata() };
    let Ok(input) = about else { return Ok(()) }; // it is not there, and reading it says so
    let is_input = |output: Metadata| (output.dev(), output.ino()) == (input.dev(), input.ino());
    match outputs.into_iter().find(|output| output.metadata().is_ok_and(is_input)) {
        Some(output) => bail!("report {}: it is the file that is read: name another", output.display()),
        None => Ok(()),
    }
}
