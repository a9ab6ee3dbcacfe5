//! A memory disk that takes time: every operation takes it, and all that are in flight take it at once.

mod raw;

use nix::sys::signal::Signal;
use raw::*;
use serde_json::Value;
use std::collections::BTreeMap;
use tempfile::TempDir;

const LATENCY_NS: u64 = 5_000_000;
const REQUESTS: u16 = 32;

/// Serves a disk to `drive`, and ends. When each request was submitted and completed, by id and in order.
fn recorded(drive: impl FnOnce(&mut Queue)) -> (BTreeMap<u64, u64>, Vec<(u64, u64)>) {
    let directory = TempDir::new().unwrap();
    // Without polls the disk takes what is published at once in one turn.
    let disk = Disk::memory("disk", "64M").policy("none").line("latency = \"5ms..20ms\"").line("poll = \"0\"");
    write_config(&directory, &[disk]);
    let record = directory.path().join("record");
    let mut target = Target::spawn(directory, |command| command.arg("--record").arg(&record));
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 256));
    drive(driver.queue());
    target.signal(Signal::SIGTERM);
    assert!(target.wait().success(), "{}", target.log());
    let (mut submitted, mut completed) = (BTreeMap::new(), Vec::new());
    for line in std::fs::read_to_string(record).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (id, now) = (line["id"].as_u64(), line["time_ns"].as_u64().unwrap());
        match (line["event"].as_str().unwrap(), id) {
            ("submit", Some(id)) => {
                assert!(completed.is_empty(), "{line}: one before it was complete already");
                submitted.insert(id, now);
            }
            ("complete", Some(id)) => completed.push((id, now)),
            _ => panic!("{line}"),
        }
    }
    (submitted, completed)
}

fn assert_all_took_their_time((submitted, completed): (BTreeMap<u64, u64>, Vec<(u64, u64)>)) {
    assert_eq!((submitted.len(), completed.len()), (usize::from(REQUESTS), usize::from(REQUESTS)));
    let order: Vec<_> = completed.iter().map(|&(id, _)| id).collect();
    assert!(!order.is_sorted(), "they take different times: {order:?}");
    for (id, end) in completed {
        assert!(end - submitted[&id] >= LATENCY_NS, "{id}: {} ns", end - submitted[&id]);
    }
}

#[test]
fn requests_in_flight_take_their_time_at_once() {
    for op in [Op::Read(0, 4096), Op::Write(0, &[7; 4096]), Op::Flush] {
        assert_all_took_their_time(recorded(|queue| {
            queue.offer_many(REQUESTS, &op);
            queue.publish();
            queue.wait(usize::from(REQUESTS));
            assert!((0..REQUESTS).all(|slot| queue.status(slot) == OK), "{op:?}");
        }));
    }
}

/// One that is performed in pieces waits once, before the first.
#[test]
fn what_was_written_is_read_and_zeroed_ranges_are_zero() {
    let disk = Disk::memory("disk", "256M").policy("none").line("latency = \"1ms\"");
    let target = Target::start(&[disk]);
    let mut driver = Driver::start(&target.path("disk"), &Setup::new(1, 256));
    let queue = driver.queue();
    let data = pattern(1, 4096);
    assert_eq!(queue.run(Op::Write(8, &data)).status, OK);
    assert_eq!(queue.run(Op::Read(8, 4096)).data, data);
    assert_eq!(queue.run(Op::WriteZeroes(0, 256 << 11, 0)).status, OK);
    assert_eq!(queue.run(Op::Read(8, 4096)).data, [0; 4096]);
}
