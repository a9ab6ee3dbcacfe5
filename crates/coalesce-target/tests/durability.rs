//! A flush reaches the disk: shown by a block device of the kernel's that counts them.

mod loop_device;
mod nvme_host;
mod raw;
mod served;

use coalesce_load::{Options, Rw};
use loop_device::Loop;
use raw::{Disk, Driver, OK, Op, Setup, Target};
use served::Served;
use std::fs;
use std::path::Path;

/// A loop device for one of these tests.
fn device(directory: &Path) -> Option<Loop> {
    Loop::new_or_skip("flushes of a loop device", directory, 512)
}

/// Flushes and writes that the kernel has sent to it.
fn counts(device: &Loop) -> (u64, u64) {
    let path = Path::new("/sys/block").join(device.0.file_name().unwrap()).join("stat");
    let numbers: Vec<u64> =
        fs::read_to_string(path).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    (numbers[15], numbers[4]) // Documentation/block/stat.rst
}

#[test]
fn a_flush_reaches_the_disk_and_what_was_written_before_it_too() {
    for direct in [false, true] {
        let directory = tempfile::TempDir::new().unwrap();
        let Some(device) = device(directory.path()) else { return };
        let served = Served::new("auto", |_, disk| {
            (disk.memory, disk.file, disk.direct) = (None, Some(device.0.clone()), direct);
        });
        let (flushes, writes) = counts(&device);
        let options = Options { depth: 4, rw: Rw::Randwrite, fsync_every: Some(8), ..served.options(400) };
        let (_, queues) = served.load(&options);
        assert_eq!(queues[0].device.flushes, 50);
        let (flushes, writes) = (counts(&device).0 - flushes, counts(&device).1 - writes);
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
    let Some(device) = device(directory.path()) else { return };
    let target = Target::start(&[Disk::file("f", &device.0).policy("none")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    driver.set_config(32, &[0]).unwrap();
    let data = [7; 4096];
    for op in [Op::Write(0, &data), Op::WriteZeroes(0, 8, 0), Op::WriteZeroes(0, 8, 1)] {
        let (before, _) = counts(&device);
        for _ in 0..10 {
            assert_eq!(driver.queue().run(op).status, OK);
        }
        let flushes = counts(&device).0 - before;
        assert!(flushes >= 10, "{flushes} flushes reached the disk for 10 of {op:?}");
    }
    drop(target);
}

/// NVMe 1.4 §6.9: a read with FUA commits what it reads first. A cache that is off may still have what was written while it was on.
#[test]
fn a_read_with_fua_commits_what_was_written_before_the_cache_was_switched_off() {
    use nvme_host::{DATA, Host, READ, Sqe, WRITE};
    let directory = tempfile::TempDir::new().unwrap();
    let Some(device) = device(directory.path()) else { return };
    let mut host =
        Host::with(&nvme_host::Setup { file: Some(&device.0), size: 16 << 20, ..nvme_host::Setup::default() });
    let (mut sq, mut cq) = host.pair(16);
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(WRITE).prps(DATA, 0).blocks(0, 8)), 0);
    assert_eq!(host.set_feature(6, 0).0, 0);
    let before = counts(&device);
    let fua = Sqe::io(READ).dword(12, 1 << 30).prps(DATA, 0).blocks(0, 8);
    assert_eq!(host.io((&mut sq, &mut cq), fua), 0);
    let after = counts(&device);
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}: nothing reached the disk");
}

/// Linux sends no flushes to a disk whose cache it has switched off: what was written before must not stay in the cache.
#[test]
fn a_cache_that_is_switched_off_is_emptied() {
    let directory = tempfile::TempDir::new().unwrap();
    let Some(device) = device(directory.path()) else { return };
    let target = Target::start(&[Disk::file("f", &device.0).policy("none")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    assert_eq!(driver.queue().run(Op::Write(0, &[7; 4096])).status, OK);
    let before = counts(&device);
    driver.set_config(32, &[0]).unwrap();
    let after = counts(&device);
    assert!(after.0 > before.0 && after.1 > before.1, "{before:?} {after:?}: nothing reached the disk");
    assert_eq!(driver.queue().run(Op::Read(0, 4096)).data, [7; 4096]);
}
