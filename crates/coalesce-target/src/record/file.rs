//! The file of a record. What is in it stays until the record begins, nothing but an older record is ever replaced, and where
//! there was no file there is none unless the record begins.

use super::START;
use crate::config::DiskConfig;
use crate::os::lock::{ALL, lock};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The file of a record, which all disks of a target share, and no other process. Dropping it before the record has begun
/// removes a file that it has created.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    is_new: bool,
    lines: Arc<Lines>,
}

/// The lines of a record, of all disks.
#[derive(Debug)]
pub struct Lines {
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
        let (file, is_new) = open(path).with_context(|| name.clone())?;
        let lines = Arc::new(Lines { name, file, turn: OnceLock::new() });
        let record = Self { path: path.to_owned(), is_new, lines };
        record.claim(disks).with_context(|| record.lines.name.clone())?;
        Ok(record)
    }

    /// Locks the file, if it is one for a record.
    fn claim(&self, disks: &[DiskConfig]) -> Result<()> {
        let file = &self.lines.file;
        let about = file.metadata()?;
        ensure!(about.is_file(), no_file());
        disks.iter().try_for_each(|disk| self.refuse_image(disk))?;
        lock(file, libc::F_WRLCK, ALL)?; // an image that is served, by this target or another, is locked, too
        ensure!(self.is_there(), "was removed or replaced by another process just now: try again");
        let mut start = String::new();
        // What is no text is no record.
        let is_text = file.take(START.len() as u64).read_to_string(&mut start).is_ok();
        ensure!(
            is_text && [START, ""].contains(&start.as_str()),
            "is neither empty nor a record, and is left alone: name another file, or remove it"
        );
        Ok(())
    }

    /// Checks that the file is not a disk's image.
    ///
    /// # Errors
    /// It is.
    pub fn refuse_image(&self, disk: &DiskConfig) -> Result<()> {
        let about = self.lines.file.metadata()?;
        let image = disk.file.as_ref().and_then(|image| image.metadata().ok());
        ensure!(
            !image.is_some_and(|image| is_same(&image, &about)),
            "is the image of disk {}: name another file",
            disk.name()
        );
        Ok(())
    }

    /// Whether the file is still at its place: another target that does not start removes its own.
    fn is_there(&self) -> bool {
        let [there, this] = [self.path.symlink_metadata(), self.lines.file.metadata()];
        there.is_ok_and(|there| this.is_ok_and(|this| is_same(&there, &this)))
    }

    /// The lines, for a disk.
    #[must_use]
    pub fn lines(&self) -> Arc<Lines> {
        self.lines.clone()
    }

    /// Empties the file, and lets the lines in that wait.
    ///
    /// # Errors
    /// The file cannot be emptied.
    pub fn begin(&self) -> Result<()> {
        let Lines { name, file, turn } = &*self.lines;
        file.set_len(0).with_context(|| name.clone())?;
        let _ = turn.set(Mutex::default()); // it has begun only if it was emptied
        Ok(())
    }
}

impl Drop for RecordFile {
    fn drop(&mut self) {
        if self.is_new && self.lines.turn.get().is_none() && self.is_there() {
            let _ = std::fs::remove_file(&self.path); // it may have been removed meanwhile
        }
    }
}

impl Lines {
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

/// Opens or creates a file, and returns whether it is new.
fn open(path: &Path) -> Result<(File, bool)> {
    let mut options = OpenOptions::new();
    // A symbolic link might lead to a file that somebody else chose. A pipe would be waited for until it has a reader.
    options.read(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let created = options.clone().create_new(true).open(path);
    let opened = match created {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            options.create(true).open(path).map(|file| (file, false))
        }
        created => created.map(|file| (file, true)),
    };
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => anyhow!("is a symbolic link: name the file itself"),
        Some(libc::EISDIR | libc::ENXIO) => no_file(),
        _ => error.into(),
    })
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn no_file() -> anyhow::Error {
    anyhow!("is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{scope, sleep};
    use std::time::Duration;

    /// Two targets with the same new record. The first does not start, while the second waits for its lock.
    #[test]
    fn nothing_is_recorded_to_a_file_that_was_removed() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("record");
        let first = RecordFile::open(&path, &[]).unwrap();
        scope(|threads| {
            let second = threads.spawn(|| RecordFile::open(&path, &[]));
            sleep(Duration::from_millis(200)); // so that it waits; if it is late it creates its own
            drop(first);
            match second.join().unwrap() {
                Ok(second) => assert!(second.is_there(), "nobody can read what is recorded"),
                Err(error) => assert!(format!("{error:#}").contains("was removed or replaced"), "{error:#}"),
            }
        });
        assert!(!path.exists());
    }
}
