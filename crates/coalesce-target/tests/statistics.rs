//! What the disk counted is what its client saw, under every policy.

mod served;

use coalesce_load::{Job, JobName, Options, Report, Rw, SyncIoprio};
use coalesce_target::config::Latency;
use coalesce_target::stats::QueueStats;
use coalesce_target::stats::latency::{Histogram, Kind};
use served::Served;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const POLICIES: [&str; 10] = [
    "none",
    "nvme:thr=8,time=100us",
    "batch",
    "dim",
    "spdk_vhost",
    "vic:cif_threshold=2",
    "cint",
    "cint:ooo=on",
    "cint:hints=none",
    "auto",
];

/// What every queue's numbers must say about one another, once nothing is in flight.
fn check_sums(report: &Report, queues: &[QueueStats], what: &str) {
    for (client, queue) in report.queues.iter().zip(queues) {
        assert_eq!(queue.completions, client.counters.total_ios, "{what}");
        assert_eq!((queue.held, queue.in_flight), (0, 0), "{what}");
        let device = &queue.device;
        assert_eq!(device.reads + device.writes + device.flushes, queue.completions, "{what}");
        assert_eq!((device.failed, device.malformed, device.broken_rings), (0, 0, 0), "{what}");
        assert_eq!((device.bytes_read, device.bytes_written), (4096 * device.reads, 4096 * device.writes), "{what}");
        for kind in Kind::ALL {
            let timed = queue.latency_ns.get(&kind).map_or(0, Histogram::count);
            assert_eq!(timed, device.requests(kind), "{what}: {kind:?}");
        }
        assert_eq!(queue.delivered.values().sum::<u64>(), queue.interrupts + queue.suppressed, "{what}");
        assert!(queue.hints.values().sum::<u64>() <= queue.completions, "{what}");
        // A sleep is a call; so is what wakes nobody.
        assert!(device.enters > 0 && device.enters >= queue.poll.sleeps, "{what}: {device:?} {:?}", queue.poll);
    }
}

/// Without EVENT_IDX the last interrupt may be late: it is for what the client has found already, and the client waits
/// for a limited time. With it, every interrupt is asked for.
fn load_and_compare(served: &Served, options: &Options, what: &str) -> (Report, Vec<QueueStats>) {
    for _ in 0..5 {
        let (report, queues) = served.load(options);
        check_sums(&report, &queues, what);
        let by_disk: Vec<_> = queues.iter().map(|queue| queue.interrupts).collect();
        let by_client: Vec<_> = report.queues.iter().map(|queue| queue.counters.interrupts).collect();
        assert!(by_client.iter().zip(&by_disk).all(|(client, disk)| client <= disk), "{what}");
        if by_client == by_disk {
            return (report, queues);
        }
        assert!(!options.event_idx, "{what}: the client counted {by_client:?} interrupts, the disk {by_disk:?}");
    }
    panic!("{what}: the client never counted as many interrupts as the disk");
}

#[test]
fn client_and_disk_count_the_same_interrupts() {
    for policy in POLICIES {
        let served = Served::new(policy, |_, disk| disk.queues = 2);
        for event_idx in [true, false] {
            for (job, depth) in [(Job::Async, 1), (Job::Async, 8), (Job::Async, 64), (Job::Mixed, 16), (Job::Batch, 1)]
            {
                let what = format!("{policy} event_idx={event_idx} {job:?} depth={depth}");
                let options = Options { queues: 2, job, depth, event_idx, ..served.options(3000) };
                load_and_compare(&served, &options, &what);
            }
        }
    }
}

#[test]
fn none_interrupts_for_every_completion_that_the_guest_lets_it() {
    let served = Served::new("none", |_, _| ());
    let (report, queues) = load_and_compare(&served, &Options { event_idx: false, ..served.options(5000) }, "none");
    assert_eq!((report.total.interrupts, queues[0].suppressed), (5000, 0));
    let (_, queues) = load_and_compare(&served, &served.options(5000), "none");
    assert_eq!(queues[0].interrupts + queues[0].suppressed, 5000);
}

#[test]
fn one_request_at_a_time_is_never_held() {
    for policy in ["none", "vic", "vic:cif_threshold=2", "auto"] {
        for event_idx in [true, false] {
            let served = Served::new(policy, |_, _| ());
            let options = Options { depth: 1, event_idx, ..served.options(3000) };
            let (report, queues) = load_and_compare(&served, &options, policy);
            assert_eq!((report.total.interrupts, queues[0].hold_ns.count), (3000, 0), "{policy} {event_idx}");
        }
    }
}

#[test]
fn hold_times_are_those_of_held_completions_and_within_the_bound() {
    let served = Served::new("nvme:thr=8,time=100us", |_, _| ());
    let options = Options { depth: 4, event_idx: false, ..served.options(400) };
    let (_, queues) = load_and_compare(&served, &options, "nvme");
    // Four in flight never are eight: the timer delivers each time, after 100 us.
    let hold = &queues[0].hold_ns;
    assert!(hold.count >= 100 && hold.max >= 99_000 && hold.percentile["99.990000"] <= hold.max, "{hold:?}");
    let holds = hold.buckets.iter().map(|(_, count)| count).sum::<u64>();
    assert_eq!(holds, hold.count);
    let delivered = &queues[0].delivered;
    assert!(delivered.keys().all(|reason| reason == "time"), "{delivered:?}");
}

#[test]
fn requests_take_the_time_of_the_medium() {
    let latency = Latency { min_ns: 3_000_000, max_ns: 3_000_000 };
    let served = Served::new("none", |_, disk| disk.latency = Some(latency));
    let start = Instant::now();
    let (_, queues) = load_and_compare(&served, &Options { depth: 4, ..served.options(100) }, "3 ms");
    let most = 4 * start.elapsed().as_nanos() as u64; // as many are in flight
    let reads = &queues[0].latency_ns[&Kind::Read];
    assert!((100 * 3_000_000..=most).contains(&reads.sum()), "{reads:?}");
    for (bound, count) in reads.buckets() {
        let is_too_soon = bound.is_some_and(|ns| ns < 3_000_000);
        assert!(count == 0 || !is_too_soon, "{count} took {bound:?} ns at most");
    }
    served.disk.reset_stats();
    assert!(served.disk.stats()[0].latency_ns.is_empty());
}

#[test]
fn marked_requests_are_counted_as_urgent() {
    let served = Served::new("cint", |_, _| ());
    let mixed = Options { job: Job::Mixed, depth: 16, ..served.options(4000) };
    for (sync_ioprio, is_marked) in [(SyncIoprio::Rt, true), (SyncIoprio::None, false)] {
        let (report, queues) = load_and_compare(&served, &Options { sync_ioprio, ..mixed.clone() }, "cint");
        let sync = report.jobs.iter().find(|job| job.jobname == JobName::Sync).unwrap().total_ios;
        let ioprio = queues[0].hints.get("ioprio").copied().unwrap_or(0);
        let marked = if is_marked { sync } else { 0 };
        assert_eq!((ioprio, queues[0].device.realtime), (marked, marked));
    }
    let options = Options { rw: Rw::Write, fsync_every: Some(10), depth: 4, ..served.options(1000) };
    let (_, queues) = load_and_compare(&served, &options, "cint");
    assert_eq!((queues[0].hints["flush"], queues[0].device.flushes), (100, 100));
}

/// Ends a thread, also where a test fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn policy_changes_while_requests_are_in_flight_lose_nothing() {
    let served = Served::new("none", |_, disk| disk.queues = 2);
    let stop = AtomicBool::new(false);
    let changes = thread::scope(|scope| {
        let changer = scope.spawn(|| {
            let mut changes = 0;
            for policy in POLICIES.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let queue = [None, Some(0), Some(1)][changes % 3];
                served.disk.set_policy(queue, &policy.parse().unwrap(), changes % 2 == 1).unwrap();
                changes += 1;
                thread::sleep(Duration::from_micros(200));
            }
            changes
        });
        let stops = Stops(&stop);
        for event_idx in [true, false] {
            let options = Options {
                queues: 2,
                depth: 16,
                event_idx,
                rw: Rw::Randwrite,
                write_percent: Some(50),
                verify: true,
                ..served.options(40_000)
            };
            let (report, queues) = load_and_compare(&served, &options, "changing");
            assert!(report.total.verified > 0 && queues.len() == 2);
        }
        drop(stops);
        changer.join().unwrap()
    });
    assert!(changes > 30, "only {changes} changes");
}
