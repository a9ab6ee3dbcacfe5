//! A flush reaches the disk: shown by a block device of the kernel's that counts them.

mod raw;
mod served;

use coalesce_load::{Options, Rw};
use raw::{Disk, Driver, OK, Op, Setup, Target};
use served::Served;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file of 16 MiB.
struct Loop {
    device: PathBuf,
}

impl Loop {
    fn new(directory: &Path) -> Result<Self, String> {
        let image = directory.join("image");
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&image).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().into());
        }
        Ok(Self { device: String::from_utf8(output.stdout).unwrap().trim().into() })
    }

    fn new_or_skip(directory: &Path) -> Option<Self> {
        let device = Self::new(directory);
        if let Err(why) = &device {
            let _ = writeln!(std::io::stderr(), "SKIPPED: flushes of a loop device: {why}"); // not captured
        }
        device.ok()
    }

    /// Flushes and writes that the kernel has sent to it.
    fn counts(&self) -> (u64, u64) {
        let path = Path::new("/sys/block").join(self.device.file_name().unwrap()).join("stat");
        let numbers: Vec<u64> =
            fs::read_to_string(path).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
        (numbers[15], numbers[4]) // Documentation/block/stat.rst
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").arg("--detach").arg(&self.device).status().unwrap();
    }
}

#[test]
fn a_flush_reaches_the_disk_and_what_was_written_before_it_too() {
    for direct in [false, true] {
        let directory = tempfile::TempDir::new().unwrap();
        let Some(device) = Loop::new_or_skip(directory.path()) else { return };
        let served = Served::new("auto", |_, disk| {
            (disk.memory, disk.file, disk.direct) = (None, Some(device.device.clone()), direct);
        });
        let (flushes, writes) = device.counts();
        let options = Options { depth: 4, rw: Rw::Randwrite, fsync_every: Some(8), ..served.options(400) };
        let (_, queues) = served.load(&options);
        assert_eq!(queues[0].device.flushes, 50);
        let (flushes, writes) = (device.counts().0 - flushes, device.counts().1 - writes);
        // One at a time: none of them can be answered together with another.
        assert!(flushes >= 50, "{flushes} of 50 flushes reached the disk (direct: {direct})");
        assert!(writes >= 50, "only {writes} writes reached the disk (direct: {direct})");
        drop(served);
    }
}

/// With its cache off a disk answers only what is on the medium, zeroes too.
#[test]
fn without_a_cache_every_write_is_durable() {
    let directory = tempfile::TempDir::new().unwrap();
    let Some(device) = Loop::new_or_skip(directory.path()) else { return };
    let target = Target::start(&[Disk::file("f", &device.device).policy("none")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    driver.set_config(32, &[0]).unwrap();
    let data = [7; 4096];
    for op in [Op::Write(0, &data), Op::WriteZeroes(0, 8, 0), Op::WriteZeroes(0, 8, 1)] {
        let (before, _) = device.counts();
        for _ in 0..10 {
            assert_eq!(driver.queue().run(op).status, OK);
        }
        let flushes = device.counts().0 - before;
        assert!(flushes >= 10, "{flushes} flushes reached the disk for 10 of {op:?}");
    }
    drop(target);
}
