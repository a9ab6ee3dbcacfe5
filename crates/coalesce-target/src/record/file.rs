//! The file of a record. What is in it stays until the record begins, and nothing but an older record is ever replaced.

use super::START;
use crate::config::DiskConfig;
use crate::lock::{ALL, lock};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The file of a record, which all disks of a target share, and no other process.
#[derive(Debug)]
pub struct RecordFile {
    name: String,
    file: File,
    turn: OnceLock<Mutex<()>>, // set when the record begins; so that no other line splits a disk's
}

impl RecordFile {
    /// Opens the file for the record of `disks`, or creates it, and locks it. Changes nothing in it.
    ///
    /// # Errors
    /// It cannot be opened, is in use, or is something other than a record: above all an image, by whatever name.
    pub fn open(path: &Path, disks: &[DiskConfig]) -> Result<Self> {
        let name = format!("record {}", path.display());
        let file = open(path, disks).with_context(|| name.clone())?;
        Ok(Self { name, file, turn: OnceLock::new() })
    }

    /// Empties the file, and lets the lines in that wait.
    ///
    /// # Errors
    /// The file cannot be emptied.
    pub fn begin(&self) -> Result<()> {
        self.file.set_len(0).with_context(|| self.name.clone())?;
        let _ = self.turn.set(Mutex::default()); // it has begun only if it was emptied
        Ok(())
    }

    /// Appends whole lines, once the record has begun. If there is no room for all of them, none is left.
    pub(super) fn append(&self, lines: &[u8]) -> std::io::Result<()> {
        let _turn = self.turn.wait().lock().unwrap_or_else(PoisonError::into_inner);
        let len = self.file.metadata()?.len();
        let written = (&self.file).write_all(lines);
        if written.is_err() {
            self.file.set_len(len)?;
        }
        written
    }
}

fn open(path: &Path, disks: &[DiskConfig]) -> Result<File> {
    let mut options = OpenOptions::new();
    // A symbolic link might lead to a file that somebody else chose. A pipe would be waited for until it has a reader.
    options.read(true).append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => anyhow!("is a symbolic link: name the file itself"),
        Some(libc::EISDIR | libc::ENXIO) => no_file(),
        _ => error.into(),
    })?;
    let about = file.metadata()?;
    ensure!(about.is_file(), no_file());
    let is_same = |image: Metadata| (image.dev(), image.ino()) == (about.dev(), about.ino());
    let is_image = |disk: &&DiskConfig| disk.file.as_ref().and_then(|image| image.metadata().ok()).is_some_and(is_same);
    if let Some(disk) = disks.iter().find(is_image) {
        bail!("is the image of disk {}: name another file", disk.name());
    }
    lock(&file, libc::F_WRLCK, ALL)?; // an image that is served, by this target or another, is locked, too
    let mut start = String::new();
    // What is no text is no record.
    let is_text = (&file).take(START.len() as u64).read_to_string(&mut start).is_ok();
    ensure!(
        is_text && [START, ""].contains(&start.as_str()),
        "is neither empty nor a record, and is left alone: name another file, or remove it"
    );
    Ok(file)
}

fn no_file() -> anyhow::Error {
    anyhow!("is not a regular file")
}
