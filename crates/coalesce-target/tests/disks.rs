//! Disks come and go while others are served: an added one is like one from the start, a removed one delivers what it owes, and the
//! others notice neither.

mod raw;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Uid;
use raw::*;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

fn start() -> Target {
    Target::start(&[Disk::memory("first", "1M")])
}

fn add(target: &Target, mut disk: Value) -> Result<Value, String> {
    let socket = disk["socket"].as_str().unwrap();
    disk["socket"] = target.path(socket).to_str().unwrap().into();
    target.call("add_disk", &disk)
}

fn remove(target: &Target, name: &str) -> Result<Value, String> {
    target.call("remove_disk", &json!({ "ctrlr": name }))
}

/// Orders it, and does not wait.
fn ordering(target: &Target, name: &str) -> Asked {
    Asked::new(target, "remove_disk", &json!({ "ctrlr": name }))
}

/// Orders it twice, and returns the order that is being carried out: the other one is refused. Either may be the first.
fn being_removed(target: &Target, name: &str) -> Asked {
    let mut orders = vec![ordering(target, name), ordering(target, name)];
    let mut answered = None;
    wait_until("one of two orders is refused", || {
        answered = orders.iter().position(Asked::is_answered);
        answered.is_some()
    });
    let said = orders.remove(answered.unwrap()).answer().unwrap_err();
    assert!(said.contains("is being removed already"), "{said}");
    orders.remove(0)
}

fn names(target: &Target) -> Vec<String> {
    let list = target.call("list", &json!({})).unwrap();
    list.as_array().unwrap().iter().map(|about| about["ctrlr"].as_str().unwrap().to_owned()).collect()
}

fn image(target: &Target, name: &str) -> String {
    let path = target.path(name);
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    path.to_str().unwrap().to_owned()
}

fn is_served(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

#[test]
fn an_added_disk_is_like_one_from_the_start() {
    let target = start();
    let mut driver = Driver::start(&target.path("first"), &Setup::new(1, 64));
    let file = image(&target, "image");
    let added =
        json!({ "socket": "second", "file": file, "queues": 2, "policy": "vic:cif_threshold=3", "iops": 100_000 });
    add(&target, added).unwrap();
    add(&target, json!({ "socket": "third", "name": "named", "memory": "2M", "device": "nvme" })).unwrap();
    assert_eq!(names(&target), ["first", "second", "named"]);
    assert_serves(&target.path("second"));
    let policies = target.call("get_policy", &json!({ "ctrlr": "second" })).unwrap();
    assert_eq!(policies[0]["policies"], json!(["vic:cif_threshold=3", "vic:cif_threshold=3"]));
    target.set_policy("second", "none");

    kill(target.pid_of("second"), Signal::SIGKILL).unwrap();
    wait_until("it serves again", || target.call("list", &json!({})).unwrap()[1]["restarts"] == 1);
    assert_serves(&target.path("second"));
    let policies = target.call("get_policy", &json!({ "ctrlr": "second" })).unwrap();
    assert_eq!(policies[0]["policies"], json!(["none", "none"]));
    assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK, "on the connection from before");
}

#[test]
fn a_disk_that_cannot_be_served_is_refused_and_leaves_nothing_behind() {
    let mut target = start();
    let file = image(&target, "image");
    add(&target, json!({ "socket": "second", "file": file })).unwrap();
    let control = json!({ "socket": "control", "memory": "1M" });
    for (disk, why) in [
        (json!({ "socket": "x", "memory": "1M", "name": "first" }), "another disk has the same name"),
        (json!({ "socket": "first", "memory": "1M", "name": "x" }), "belongs to disk first"),
        (control, "serves both a disk and control"),
        (json!({ "socket": "x" }), "needs either a file or memory"),
        (json!({ "socket": "x", "memory": "1M", "policy": "vix" }), "unknown policy"),
        (json!({ "socket": "x", "memory": "1M", "queue": 2 }), "unknown field"),
        (json!({ "socket": "x", "file": "/nowhere" }), "No such file"),
        (json!({ "socket": "x", "file": file }), "is locked"),
        (json!({ "socket": "image", "memory": "1M" }), "is not a socket"),
    ] {
        let said = add(&target, disk.clone()).unwrap_err();
        assert!(said.contains(why), "{disk}: {said}");
        assert!(!target.path("x").exists(), "{disk}");
        assert_eq!(names(&target), ["first", "second"], "{disk}");
    }
    add(&target, json!({ "socket": "x", "memory": "1M" })).unwrap();
    for disk in ["first", "second", "x"] {
        assert_serves(&target.path(disk));
    }
    target.assert_sound();
}

/// A target that starts waits for its socket; one that runs would keep its other disks waiting.
#[test]
fn a_socket_that_another_process_has_is_not_waited_for() {
    let target = start();
    let _listener = UnixListener::bind(target.path("theirs")).unwrap();
    let start = Instant::now();
    for _ in 0..4 {
        let said = add(&target, json!({ "socket": "theirs", "memory": "1M" })).unwrap_err();
        assert!(said.contains("is in use by another process"), "{said}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_removed_disk_completes_what_is_in_flight_and_delivers_what_is_held() {
    let target = start();
    let mut other = Driver::start(&target.path("first"), &Setup::new(1, 64));
    add(&target, json!({ "socket": "slow", "memory": "1M", "latency": "300ms", "queues": 1 })).unwrap();
    add(&target, json!({ "socket": "held", "memory": "1M", "policy": HOLD_FOREVER, "queues": 1 })).unwrap();
    let mut slow = Driver::start(&target.path("slow"), &Setup::new(1, 64));
    slow.queue().offer_many(10, &Op::Write(0, &[3; 512]));
    slow.queue().publish();
    let mut held = Driver::start(&target.path("held"), &Setup::new(1, 64));
    hold(held.queue(), 8);
    wait_until("they are in flight", || target.count("slow", 0, "in_flight") == 10);
    wait_until("they are held", || target.count("held", 0, "held") > 0);
    let orders = ["slow", "held"].map(|name| ordering(&target, name));
    for order in orders {
        assert_eq!(order.answer().unwrap(), true);
    }
    assert_eq!(names(&target), ["first"]);
    for (mut driver, count) in [(slow, 10), (held, 8)] {
        assert_eq!(driver.queue().wait(count).len(), count);
        driver.wire.wait_closed();
    }
    for name in ["slow", "held"] {
        assert!(!target.path(name).exists(), "{name}");
        assert!(remove(&target, name).unwrap_err().contains("unknown ctrlr"));
    }
    assert_eq!(other.queue().run(Op::Read(0, 512)).status, OK, "on the connection from before");
}

#[test]
fn a_disk_that_was_removed_can_come_back_and_so_can_the_last_one() {
    let mut target = start();
    for _ in 0..5 {
        remove(&target, "first").unwrap();
        assert_eq!(names(&target), [""; 0]);
        assert!(!is_served(&target.path("first")));
        add(&target, json!({ "socket": "first", "memory": "1M" })).unwrap();
        assert_serves(&target.path("first"));
    }
    remove(&target, "first").unwrap();
    target.signal(Signal::SIGTERM);
    assert!(target.wait().success(), "{}", target.log());
}

#[test]
fn a_disk_whose_process_is_stuck_is_removed_when_its_time_is_over() {
    let directory = tempfile::TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("first", "1M")]);
    let target = Target::spawn(directory, |command| command.args(["--stop-timeout", "2s"]));
    let file = image(&target, "image");
    add(&target, json!({ "socket": "stuck", "file": file })).unwrap();
    kill(target.pid_of("stuck"), Signal::SIGSTOP).unwrap();
    let order = being_removed(&target, "stuck");
    let again = add(&target, json!({ "socket": "stuck", "memory": "1M" })).unwrap_err();
    assert!(again.contains("another disk has the same name"), "{again}");
    assert_serves(&target.path("first"));
    let said = order.answer().unwrap_err();
    assert!(said.contains("disk stuck: ") && said.contains("killed"), "{said}");
    assert_eq!(names(&target), ["first"]);
    add(&target, json!({ "socket": "stuck", "file": file })).unwrap();
    assert_serves(&target.path("stuck"));
}

#[test]
fn a_disk_whose_process_ends_or_restarts_can_be_removed() {
    let target = start();
    let file = image(&target, "image");
    for round in 0..5 {
        add(&target, json!({ "socket": "second", "file": file })).unwrap();
        kill(target.pid_of("second"), Signal::SIGKILL).unwrap();
        let _ = remove(&target, "second"); // it may end while it stops
        assert_eq!(names(&target), ["first"], "round {round}");
        assert!(!target.path("second").exists(), "round {round}");
    }
    kill(target.pid_of("first"), Signal::SIGKILL).unwrap();
    wait_until("its memory is lost", || target.call("list", &json!({})).unwrap()[0]["pid"].is_null());
    remove(&target, "first").unwrap();
    add(&target, json!({ "socket": "first", "memory": "1M" })).unwrap();
    assert_serves(&target.path("first"));
}

#[test]
fn a_target_that_ends_while_it_removes_a_disk_ends_in_order() {
    let mut target = start();
    add(&target, json!({ "socket": "slow", "memory": "1M", "latency": "500ms", "queues": 1 })).unwrap();
    let mut slow = Driver::start(&target.path("slow"), &Setup::new(1, 64));
    slow.queue().offer_many(4, &Op::Write(0, &[3; 512]));
    slow.queue().publish();
    wait_until("they are in flight", || target.count("slow", 0, "in_flight") == 4);
    let _order = being_removed(&target, "slow");
    target.signal(Signal::SIGTERM);
    assert!(target.wait().success(), "{}", target.log());
    assert_eq!(slow.queue().wait(4).len(), 4);
}

/// The records of both disks.
#[test]
fn an_added_disk_is_recorded_and_the_record_is_no_disk() {
    let directory = tempfile::TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("first", "1M")]);
    let record = directory.path().join("record");
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    add(&target, json!({ "socket": "second", "memory": "1M" })).unwrap();
    let said = add(&target, json!({ "socket": "x", "file": record })).unwrap_err();
    assert!(said.contains("is the image of disk x"), "{said}");
    assert_serves(&target.path("second"));
    remove(&target, "second").unwrap();
    target.signal(Signal::SIGTERM);
    assert!(target.wait().success(), "{}", target.log());
    let lines = std::fs::read_to_string(&record).unwrap();
    assert!(lines.lines().any(|line| line.contains("second")), "{lines}");
}

/// The target opens what a disk names, so users who may ask for statistics may not name one.
#[test]
fn no_other_user_has_disks_come_and_go() {
    if !Uid::effective().is_root() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: another user: this is not root"); // not captured
        return;
    }
    let target = start();
    target.open_to_others();
    let other = || {
        become_another_user();
        for outcome in [add(&target, json!({ "socket": "x", "memory": "1M" })), remove(&target, "first")] {
            assert!(outcome.unwrap_err().contains("is for root and for the user that the target runs as"));
        }
        target.call("list", &json!({})).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(other).join().unwrap());
    assert_eq!(names(&target), ["first"]);
    assert_serves(&target.path("first"));
}
