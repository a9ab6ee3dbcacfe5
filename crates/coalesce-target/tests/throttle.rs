//! A disk does no more than its limits let it, what waits for them is lost to nothing that happens meanwhile, and no completion is
//! held for it.

mod raw;

use nix::sys::signal::{Signal, kill};
use raw::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long nothing happens where nothing should: a mistake shows much sooner.
const QUIET: Duration = Duration::from_millis(200);

/// After the first byte this disk does nothing in a test's time: 4096 bytes are more than an hour's.
const ONE_BYTE: &str = "bytes_per_second = \"1\"";

fn set_limits(target: &Target, limits: &Value) -> Result<Value, String> {
    let mut params = limits.clone();
    params["ctrlr"] = "disk".into();
    target.call("set_limits", &params)
}

fn start(lines: &[&str]) -> Target {
    Target::start(&[lines.iter().fold(Disk::memory("disk", "1M"), |disk, line| disk.line(line))])
}

fn image() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    (directory, image)
}

/// Offers `n` writes of 4096 bytes, of which the slot's number is the data.
fn offer(queue: &mut Queue, n: u16) {
    for slot in 0..n {
        let head = queue.prepare(slot, &Op::Write(8 * u64::from(slot), &[slot as u8 + 1; 4096]));
        queue.offer(head);
    }
    queue.publish();
}

/// All of the rest of `n` writes end, each once.
fn assert_ended(queue: &mut Queue, n: u16, already: usize) {
    let mut slots: Vec<_> = queue.wait(usize::from(n) - already).iter().map(|used| used.id as u16 / PER_SLOT).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), usize::from(n) - already, "each once");
    for slot in 0..n {
        assert_eq!(queue.status(slot), OK, "slot {slot}");
    }
    assert_eq!(queue.take_all(), [], "and no other");
}

/// The first write is done, and the others wait.
fn throttled(target: &Target, n: u16) -> Driver {
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    offer(driver.queue(), n);
    assert_eq!(driver.queue().wait(1).len(), 1);
    sleep(QUIET);
    assert_eq!(driver.queue().take_all(), [], "one byte in a second");
    driver
}

#[test]
fn a_disk_does_no_more_requests_in_a_second_than_its_limit_and_each_of_them() {
    let target = start(&["iops = 20"]); // 2 at once, and then one each 50 ms
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    let start = Instant::now();
    offer(driver.queue(), 12);
    assert_ended(driver.queue(), 12, 0);
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
    assert_eq!(target.count("disk", 0, "device/throttled"), 10);
    let ns = target.count("disk", 0, "device/throttled_ns");
    assert!(ns >= 100_000_000 && u128::from(ns) <= start.elapsed().as_nanos(), "{ns}");
    assert_eq!(target.count("disk", 0, "device/writes"), 12);
    target.call("reset_stats", &json!({})).unwrap();
    assert_eq!(target.count("disk", 0, "device/throttled"), 0);
}

#[test]
fn all_queues_of_a_disk_share_its_limits() {
    let target = Target::start(&[Disk::memory("disk", "1M").queues(4).line("bytes_per_second = \"400K\"")]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(4, 64));
    let start = Instant::now();
    driver.queues.iter_mut().for_each(|queue| offer(queue, 10));
    driver.queues.iter_mut().for_each(|queue| assert_ended(queue, 10, 0));
    // 160 KiB, of which 40 come at once and 4 may be owed.
    assert!(start.elapsed() >= Duration::from_millis(290), "{:?}", start.elapsed());
}

#[test]
fn no_queue_takes_what_the_limits_give_to_all() {
    let target = Target::start(&[Disk::memory("disk", "1M").queues(3).line("iops = 200")]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(3, 256));
    driver.queues.iter_mut().for_each(|queue| offer(queue, 60));
    driver.queues[0].wait(60); // of a queue that has no turn, nothing would be done until the others are through
    for queue in 1..3 {
        let done = target.count("disk", queue, "device/writes");
        assert!(done >= 30, "queue {queue}: {done}");
        driver.queues[queue].wait(60);
    }
}

#[test]
fn a_disk_without_limits_counts_nothing() {
    let target = start(&[]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    offer(driver.queue(), 20);
    assert_ended(driver.queue(), 20, 0);
    assert_eq!(target.count("disk", 0, "device/throttled"), 0);
    assert_eq!(target.count("disk", 0, "device/throttled_ns"), 0);
    assert_eq!(target.call("list", &json!({})).unwrap()[0]["limits"], json!({ "iops": 0, "bytes_per_second": 0 }));
}

#[test]
fn limits_change_while_requests_wait_for_them() {
    let target = start(&[ONE_BYTE]);
    let mut driver = throttled(&target, 20);
    for wrong in [json!({ "iops": 1_000_000_001 }), json!({ "bytes_per_second": "2T" }), json!({ "iops": -1 })] {
        assert!(set_limits(&target, &wrong).is_err(), "{wrong}");
    }
    let limits = || target.call("list", &json!({})).unwrap()[0]["limits"].clone();
    assert_eq!(limits(), json!({ "iops": 0, "bytes_per_second": 1 }));
    set_limits(&target, &json!({ "iops": 1000 })).unwrap();
    assert_eq!(limits(), json!({ "iops": 1000, "bytes_per_second": 1 }), "what is not named stays");
    set_limits(&target, &json!({ "bytes_per_second": "0" })).unwrap();
    assert_ended(driver.queue(), 20, 1);
    set_limits(&target, &json!({ "iops": 0 })).unwrap();
    offer(driver.queue(), 20);
    assert_ended(driver.queue(), 20, 0);
    assert_eq!(target.count("disk", 0, "device/throttled"), 19);
}

#[test]
fn what_waits_stays_in_its_ring_when_the_ring_or_the_connection_stops() {
    let target = start(&[ONE_BYTE]);
    let mut driver = throttled(&target, 20);
    let start = Instant::now();
    let next = driver.stop_queue(0);
    assert_eq!(next, 1, "only one was taken");
    driver.start_queue(0);
    driver.reconnect(&target.path("disk"));
    assert!(start.elapsed() < HANG);
    sleep(QUIET);
    assert_eq!(driver.queue().take_all(), [], "another connection has no other limits");
    driver.wire.tell(RESET_DEVICE, &[], &[]).unwrap();
    driver.start_queue(0);
    sleep(QUIET);
    assert_eq!(driver.queue().take_all(), [], "nor has a device that was reset");
    set_limits(&target, &json!({ "bytes_per_second": "0" })).unwrap();
    assert_ended(driver.queue(), 20, 1);
}

#[test]
fn a_target_that_stops_waits_for_no_limit_and_the_next_one_does_what_waited() {
    let (directory, image) = image();
    let mut target = Target::start_in(directory, &[Disk::file("disk", &image).line(ONE_BYTE)]);
    let mut driver = throttled(&target, 20);
    target.signal(Signal::SIGTERM);
    assert!(target.wait().success(), "{}", target.log());
    let directory = target.into_directory();
    let target = Target::start_in(directory, &[Disk::file("disk", &image)]);
    driver.reconnect(&target.path("disk"));
    assert_ended(driver.queue(), 20, 1);
}

#[test]
fn limits_outlast_a_process_that_ends() {
    let (directory, image) = image();
    let target = Target::start_in(directory, &[Disk::file("disk", &image)]);
    set_limits(&target, &json!({ "bytes_per_second": "1" })).unwrap();
    kill(target.pid_of("disk"), Signal::SIGKILL).unwrap();
    wait_until("it serves again", || target.call("list", &json!({})).unwrap()[0]["restarts"] == 1);
    let mut driver = throttled(&target, 5);
    set_limits(&target, &json!({ "bytes_per_second": "0" })).unwrap();
    assert_ended(driver.queue(), 5, 1);
}

/// The policy holds for a minute, whatever is in flight.
#[test]
fn nothing_is_held_for_what_waits() {
    let target = Target::start(&[Disk::memory("disk", "1M").policy(HOLD_FOREVER)]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    hold(driver.queue(), 4);
    wait_until("they are held", || target.count("disk", 0, "held") > 0);
    set_limits(&target, &json!({ "bytes_per_second": "1" })).unwrap();
    driver.queue().take_all();
    driver.queue().count_interrupts();
    offer(driver.queue(), 10);
    assert_eq!(driver.queue().wait(1).len(), 1, "of the first, whose interrupt waits for nothing");
    assert_eq!(target.count("disk", 0, "held"), 0);
    target.set_policy("disk", "none");
    target.set_policy("disk", "vic");
    set_limits(&target, &json!({ "bytes_per_second": "0" })).unwrap();
    assert_ended(driver.queue(), 10, 1);
}

/// Under vIC two in flight are a reason to hold. This limit lets one request pass at a time.
#[test]
fn what_waits_is_not_in_flight_for_the_policy() {
    let target = start(&["iops = 19", "policy = \"vic:cif_threshold=2,iops_threshold=1,epoch=1ms\""]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    offer(driver.queue(), 12);
    assert_ended(driver.queue(), 12, 0);
    assert_eq!(target.stats("disk", 0)["holds"], json!({}));
    set_limits(&target, &json!({ "iops": 0 })).unwrap();
    let mut load = Load::new(20);
    wait_until("it holds without the limit", || {
        load.submit(driver.queue(), 20, |_| Op::Read(0, 512));
        load.wait(driver.queue(), 20);
        target.stats("disk", 0)["holds"] != json!({})
    });
}

#[test]
fn what_costs_nothing_waits_for_its_turn_and_costs_nothing() {
    let target = start(&["iops = 1"]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    let queue = driver.queue();
    for _ in 0..50 {
        assert_eq!(queue.run(Op::Flush).status, OK);
        assert_eq!(queue.run(Op::GetId).status, OK);
        assert_eq!(queue.run(Op::Read(1 << 40, 512)).status, IOERR);
    }
    assert_eq!(target.count("disk", 0, "device/throttled"), 0);
}

#[test]
fn zeroes_count_as_bytes_and_discards_as_requests() {
    let target = start(&["bytes_per_second = \"10K\""]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    let queue = driver.queue();
    assert_eq!(queue.run(Op::Discard(0, 2048, 0)).status, OK);
    assert_eq!(queue.run(Op::Discard(0, 2048, 0)).status, OK);
    assert_eq!(target.count("disk", 0, "device/throttled"), 0);
    let start = Instant::now();
    assert_eq!(queue.run(Op::WriteZeroes(0, 20, 0)).status, OK); // 10 KiB, of which 1 is there
    assert_eq!(queue.run(Op::Write(0, &[1; 512])).status, OK);
    assert!(start.elapsed() >= Duration::from_millis(850), "{:?}", start.elapsed());
}

#[test]
fn limits_and_waits_are_metrics() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("disk", "1M").line("iops = 20")]);
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let target = Target::spawn(directory, |command| command.args(["--metrics", &address]));
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 64));
    offer(driver.queue(), 5);
    assert_ended(driver.queue(), 5, 0);
    let page = metrics(&address);
    for line in [
        "coalesce_throttled_requests_total{ctrlr=\"disk\",queue=\"0\"} 3\n",
        "coalesce_throttled_seconds_total{ctrlr=\"disk\",queue=\"0\"} 0.",
        "coalesce_iops_limit{ctrlr=\"disk\"} 20\n",
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
    assert!(!page.contains("coalesce_bytes_per_second_limit{"), "{page}");
}
