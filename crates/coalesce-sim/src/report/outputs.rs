//! The files that reports are written to.

use super::{Report, csv, page};
use anyhow::{Context as _, Result, bail};
use std::fs::{File, Metadata};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};

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

/// Refuses to write to the file that is read, or twice to one file, by whatever names; `-` is standard input.
///
/// # Errors
/// One of `outputs` is that file, or is another of them.
pub fn refuse_mistaken<'a>(input: &Path, outputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    let outputs: Vec<_> = outputs.into_iter().collect();
    refuse_input(input, &outputs)?;
    let is_again = |(nth, output): &(usize, &&PathBuf)| outputs[..*nth].iter().any(|before| is_same(before, output));
    match outputs.iter().enumerate().find(is_again) {
        Some((_, output)) => bail!("report {}: another report goes to the same file: name another", output.display()),
        None => Ok(()),
    }
}

/// Whether two paths are one file, there or to be made. Devices and pipes take any number of reports.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => absolute(one).is_ok_and(|one| absolute(other).is_ok_and(|other| one == other)),
        _ => false,
    }
}

fn refuse_input(input: &Path, outputs: &[&PathBuf]) -> Result<()> {
    let stdin = || File::from(std::io::stdin().as_fd().try_clone_to_owned()?).metadata();
    let about = if input == Path::new("-") { stdin() } else { input.metadata() };
    let Ok(input) = about else { return Ok(()) }; // it is not there, and reading it says so
    let is_input = |output: Metadata| (output.dev(), output.ino()) == (input.dev(), input.ino());
    match outputs.iter().find(|output| output.metadata().is_ok_and(is_input)) {
        Some(output) => bail!("report {}: it is the file that is read: name another", output.display()),
        None => Ok(()),
    }
}
