//! Loop devices, where a test may have them.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file.
pub struct Loop(pub PathBuf);

impl Loop {
    pub fn new(file: &Path) -> Result<Self, String> {
        Self::with(file, 512)
    }

    /// One with blocks of this size.
    pub fn with(file: &Path, block_size: u32) -> Result<Self, String> {
        let mut command = Command::new("losetup");
        if block_size != 512 {
            command.args(["--sector-size", &block_size.to_string()]);
        }
        let output = command.args(["--find", "--show"]).arg(file).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        let said = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(Self(said(&output.stdout).into())) } else { Err(said(&output.stderr)) }
    }

    /// One over a new file of 16 MiB in this directory; none, and a line about `what`, where there are none.
    pub fn new_or_skip(what: &str, directory: &Path, block_size: u32) -> Option<Self> {
        let image = directory.join("image");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let device = Self::with(&image, block_size);
        if let Err(why) = &device {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: a loop device: {why}"); // not captured
        }
        device.ok()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
