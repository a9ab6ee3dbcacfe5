//! A disk gets another size while its guest runs: the guest is told where its front end and its driver let it, what it then asks
//! beyond the end is refused, and nothing that was in flight is lost.

mod raw;
mod served;

use coalesce_target::config::Latency;
use nix::sys::signal::{Signal, kill};
use raw::*;
use serde_json::{Value, json};
use served::Served;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SET_BACKEND_REQ_FD: u32 = 21;

/// A disk of 1 MiB in a file.
fn start() -> (Target, PathBuf) {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(MIB).unwrap();
    let target = Target::start_in(directory, &[Disk::file("disk", &image)]);
    (target, image)
}

fn set_len(image: &PathBuf, len: u64) {
    OpenOptions::new().write(true).open(image).unwrap().set_len(len).unwrap();
}

fn resize(target: &Target, size: Option<u64>) -> Result<Value, String> {
    let size = size.map(|size| size.to_string());
    target.call("resize", &json!({ "ctrlr": "disk", "size": size }))
}

/// A driver whose front end has a channel, and the end of it on which that hears.
fn listening(target: &Target) -> (Driver, UnixStream) {
    let (heard, channel) = UnixStream::pair().unwrap();
    let driver = Driver::connect(&target.path("disk"), &Setup::new(1, 64));
    driver.wire.tell(SET_BACKEND_REQ_FD, &[], &[channel.as_raw_fd()]).unwrap();
    driver.start_queue(0);
    (driver, heard)
}

/// Waits for a message about the configuration space.
fn hear(heard: &mut UnixStream) {
    heard.set_read_timeout(Some(HANG)).unwrap();
    let mut message = [0; 12];
    heard.read_exact(&mut message).expect("hung: the front end hears nothing");
    assert_eq!(message[..], u32s(&[2, VERSION, 0]), "VHOST_USER_BACKEND_CONFIG_CHANGE_MSG, which wants no answer");
}

fn hears_nothing(heard: &mut UnixStream) {
    heard.set_nonblocking(true).unwrap();
    assert_eq!(heard.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    heard.set_nonblocking(false).unwrap();
}

/// Sectors, as the configuration space says.
fn capacity(driver: &Driver) -> u64 {
    u64::from_le_bytes(driver.config(0, 8).try_into().unwrap())
}

/// The last sector can be written and read, and the one behind it cannot be written, read, discarded or zeroed.
fn assert_ends_at(driver: &mut Driver, sectors: u64) {
    let data = pattern(sectors, 512);
    let queue = driver.queue();
    assert_eq!(queue.run(Op::Write(sectors - 1, &data)).status, OK, "the last of {sectors}");
    assert_eq!(queue.run(Op::Read(sectors - 1, 512)).data, data);
    let beyond = [
        Op::Write(sectors, &data),
        Op::Read(sectors, 512),
        Op::Read(sectors - 1, 1024),
        Op::Discard(sectors, 1, 0),
        Op::WriteZeroes(sectors - 1, 2, 0),
    ];
    for op in beyond {
        assert_eq!(queue.run(op).status, IOERR, "{op:?} of {sectors}");
    }
    assert_eq!(queue.run(Op::Read(sectors - 1, 512)).data, data, "it is as it was");
}

#[test]
fn a_guest_hears_that_its_image_was_made_longer_and_writes_to_its_new_end() {
    let (target, image) = start();
    let (mut driver, mut heard) = listening(&target);
    assert_ends_at(&mut driver, 2048);
    set_len(&image, 3 * MIB);
    assert_ends_at(&mut driver, 2048);
    hears_nothing(&mut heard);
    let answer = resize(&target, None).unwrap();
    assert_eq!(answer, json!({ "size": 3 * MIB, "in_flight_beyond": 0, "guest_is_told": true }));
    hear(&mut heard);
    assert_eq!(capacity(&driver), 6144);
    assert_ends_at(&mut driver, 6144);
    let mut sector = [0; 512];
    File::open(&image).unwrap().read_exact_at(&mut sector, 3 * MIB - 512).unwrap();
    assert_eq!(sector[..], pattern(6144, 512));
    assert_eq!(target.call("list", &json!({})).unwrap()[0]["size"], 3 * MIB);
    resize(&target, None).unwrap();
    hears_nothing(&mut heard);
}

#[test]
fn a_disk_that_was_made_smaller_refuses_what_is_beyond_its_end_also_after_a_restart() {
    let (target, image) = start();
    let (mut driver, mut heard) = listening(&target);
    assert_eq!(driver.queue().run(Op::Write(1024, &[7; 512])).status, OK);
    resize(&target, Some(MIB / 2)).unwrap();
    hear(&mut heard);
    assert_eq!(capacity(&driver), 1024);
    assert_ends_at(&mut driver, 1024);
    let mut sector = [0; 512];
    File::open(&image).unwrap().read_exact_at(&mut sector, MIB / 2).unwrap();
    assert_eq!(sector, [7; 512], "the file is as long as it was");

    let list = || target.call("list", &json!({})).unwrap();
    let restart = |driver: &mut Driver, restarts: u64| {
        kill(target.pid_of("disk"), Signal::SIGKILL).unwrap();
        driver.wire.wait_closed();
        driver.reconnect(&target.path("disk"));
        wait_until("it is said to serve", || list()[0]["restarts"] == restarts);
    };
    restart(&mut driver, 1);
    assert_ends_at(&mut driver, 1024);
    assert_eq!(list()[0]["size"], MIB / 2);
    set_len(&image, MIB / 4); // shorter than the size that was set
    restart(&mut driver, 2);
    assert_ends_at(&mut driver, 512);
    assert_eq!(File::open(&image).unwrap().metadata().unwrap().len(), MIB / 4, "the guest does not make it longer");
}

#[test]
fn an_operator_hears_that_a_guest_is_not_told() {
    let (target, image) = start();
    let why = |size| resize(&target, Some(size)).unwrap()["why_not"].as_str().unwrap_or_default().to_owned();
    assert!(why(MIB / 2).starts_with("no front end is connected"));
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    assert_ends_at(&mut driver, 1024);
    set_len(&image, 2 * MIB);
    let said = why(2 * MIB);
    assert!(said.contains("VHOST_USER_PROTOCOL_F_BACKEND_REQ"), "{said}");
    assert_ends_at(&mut driver, 4096);
    drop(driver);
    let (_driver, mut heard) = listening(&target);
    hears_nothing(&mut heard);
    assert_eq!(why(MIB), "");
    hear(&mut heard);
}

#[test]
fn a_size_that_a_disk_cannot_have_is_refused_and_changes_nothing() {
    let disks = [Disk::memory("disk", "1M").line("block_size = \"4K\""), Disk::memory("other", "1M")];
    let mut target = Target::start(&disks);
    let (mut driver, mut heard) = listening(&target);
    let refused = |size: Option<u64>| resize(&target, size).unwrap_err();
    for (size, why) in [
        (None, "a memory disk has no file that tells it; allowed: up to 16777216"),
        (Some(0), "size is 0; allowed: multiples of the block size, 4096, but not 0"),
        (Some(MIB + 512), "multiples of the block size, 4096"),
        (Some(16 * MIB + 4096), "size is 16781312; allowed: up to 16777216"),
        (Some(u64::MAX), "allowed: up to 16777216"),
    ] {
        let said = refused(size);
        assert!(said.contains(why) && said.contains("disk disk"), "{size:?}: {said}");
    }
    let unknown = target.call("resize", &json!({ "ctrlr": "disk", "size": "1M", "shrink": true })).unwrap_err();
    assert!(unknown.contains("unknown field"), "{unknown}");
    hears_nothing(&mut heard);
    assert_ends_at(&mut driver, 2048);
    resize(&target, Some(16 * MIB)).unwrap();
    hear(&mut heard);
    assert_ends_at(&mut driver, 32768);
    assert_serves(&target.path("other"));
    target.assert_sound();

    let (target, _image) = start();
    let said = resize(&target, Some(2 * MIB)).unwrap_err();
    assert!(said.contains("size is 2097152; allowed: up to 1048576, as long as image"), "{said}");
    assert_serves(&target.path("disk"));
}

/// `ulimit -f` sets both limits, and only root can raise the hard one again.
#[test]
fn an_image_longer_than_files_may_be_cannot_be_served_as_far_as_it_is() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(MIB).unwrap();
    write_config(&directory, &[Disk::file("disk", &image)]);
    let target = Target::spawn(directory, |command| limit_files(command, 4 * MIB, 4 * MIB));
    let (mut driver, _heard) = listening(&target);
    set_len(&image, 8 * MIB);
    let said = resize(&target, None).unwrap_err();
    assert!(said.contains("files may have 4194304 bytes at most"), "{said}");
    assert_ends_at(&mut driver, 2048);
    resize(&target, Some(4 * MIB)).unwrap();
    assert_ends_at(&mut driver, 8192);
}

#[test]
fn a_disk_becomes_smaller_when_nothing_is_in_flight_beyond_its_end() {
    let target = Target::start(&[Disk::memory("disk", "1M").line("latency = \"500ms\"")]);
    let (mut driver, _heard) = listening(&target);
    let queue = driver.queue();
    let heads = [(0, 2040), (1, 8)].map(|(slot, sector)| queue.prepare(slot, &Op::Write(sector, &[5; 4096])));
    heads.into_iter().for_each(|head| queue.offer(head));
    queue.publish();
    wait_until("they are in flight", || target.count("disk", 0, "in_flight") == 2);
    resize(&target, Some(MIB / 2)).unwrap();
    let statuses = [0, 1].map(|slot| driver.queue().status(slot));
    assert_eq!(statuses[0], OK, "what was beyond the end has completed, and well");
    driver.queue().wait(2);
    assert_eq!(driver.queue().status(1), OK);
    assert_eq!(driver.queue().run(Op::Read(2040, 4096)).status, IOERR);
}

#[test]
fn what_is_in_flight_beyond_the_new_end_is_counted_and_performed() {
    let half_a_second = Latency { min_ns: 500_000_000, max_ns: 500_000_000 };
    let served = Served::new("none", |_, config| config.latency = Some(half_a_second));
    let mut driver = Driver::start(&served.socket(), &Setup::new(1, 64));
    let end = (64 * MIB / 512) - 8;
    let queue = driver.queue();
    for (slot, sector) in [(0, end), (1, 0), (2, end - 8)] {
        let head = queue.prepare(slot, &Op::Write(sector, &[u8::try_from(slot).unwrap() + 1; 4096]));
        queue.offer(head);
    }
    queue.publish();
    wait_until("they are in flight", || served.disk.stats()[0].in_flight == 3);
    let resized = served.disk.resize(MIB).unwrap();
    assert_eq!((resized.size, resized.in_flight_beyond), (MIB, 2));
    driver.queue().wait(3);
    assert_eq!([0, 1, 2].map(|slot| driver.queue().status(slot)), [OK; 3]);
    served.disk.resize(64 * MIB).unwrap();
    assert_eq!(driver.queue().run(Op::Read(end, 4096)).data, [1; 4096], "it was written");
    assert_eq!(served.disk.resize(MIB).unwrap().in_flight_beyond, 0);
    served.disk.resize(64 * MIB).unwrap();
    assert_eq!(driver.queue().run(Op::Read(end, 4096)).data, [0; 4096], "a smaller disk gives its memory back");
}

#[test]
fn a_front_end_that_reads_nothing_or_closes_its_channel_is_served_and_not_told_any_more() {
    let mut target = Target::start(&[Disk::memory("disk", "1M")]);
    let (mut driver, heard) = listening(&target);
    let told = |size| resize(&target, Some(size)).unwrap()["guest_is_told"] == true;
    let rounds = (0..5000).find(|round| !told(MIB + 4096 * (round % 2)));
    assert!(rounds.is_some(), "a channel that nobody reads has no end");
    wait_until("it is said", || target.log().contains("the front end takes no message"));
    assert_ends_at(&mut driver, capacity_of(&target));
    drop(heard);
    drop(driver);

    let (mut driver, heard) = listening(&target);
    drop(heard);
    resize(&target, Some(2 * MIB)).unwrap();
    wait_until("it is noticed", || !told(2 * MIB));
    assert_ends_at(&mut driver, 4096);
    target.assert_sound();
}

fn capacity_of(target: &Target) -> u64 {
    target.call("list", &json!({})).unwrap()[0]["size"].as_u64().unwrap() / 512
}

#[test]
fn what_is_no_channel_ends_only_its_connection() {
    let mut target = Target::start(&[Disk::memory("disk", "1M")]);
    let file = tempfile::tempfile().unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    for files in [&[][..], &[file.as_raw_fd()], &[one.as_raw_fd(), other.as_raw_fd()]] {
        let driver = Driver::connect(&target.path("disk"), &Setup::new(1, 64));
        assert!(driver.wire.tell(SET_BACKEND_REQ_FD, &[], files).is_err(), "{} files", files.len());
        drop(driver);
        resize(&target, Some(MIB)).unwrap();
        assert_serves(&target.path("disk"));
    }
    // Without the feature there is no channel.
    let wire = Wire::connect(&target.path("disk"));
    wire.ask_u64(GET_FEATURES).unwrap();
    assert!(wire.tell(SET_BACKEND_REQ_FD, &[], &[one.as_raw_fd()]).is_err());
    drop(wire);
    assert_serves(&target.path("disk"));
    target.assert_sound();
}

/// One waits for what is in flight beyond the new end, and says its size again and again. Another size that is set meanwhile must
/// stay.
#[test]
fn of_two_sizes_that_are_set_at_once_the_later_one_is_in_force() {
    let target = Target::start(&[Disk::memory("disk", "1M").line("latency = \"1s\"")]);
    let (mut driver, _heard) = listening(&target);
    let queue = driver.queue();
    let head = queue.prepare(0, &Op::Read(2040, 4096));
    queue.offer(head);
    queue.publish();
    wait_until("it is in flight", || target.count("disk", 0, "in_flight") == 1);
    let smaller = Asked::new(&target, "resize", &json!({ "ctrlr": "disk", "size": "512K" }));
    wait_until("it is smaller", || capacity(&driver) == 1024);
    let larger = Asked::new(&target, "resize", &json!({ "ctrlr": "disk", "size": "2M" }));
    assert_eq!(larger.answer().unwrap()["size"], 2 * MIB);
    let said = smaller.answer();
    assert_eq!(capacity(&driver), 4096, "the one that was asked for later; {said:?}");
    assert!(said.unwrap_err().contains("was given another size meanwhile"));
}
