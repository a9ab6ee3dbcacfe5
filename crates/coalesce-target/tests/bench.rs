//! `coalesce-bench` as its users run it, and the disks that it loads.

mod built;
mod served;

use coalesce_load::{Bursts, Job, JobName, Options, Queues, Rw, SyncIoprio, Threads, Wait};
use coalesce_target::config::Size;
use coalesce_target::front_end::FrontEnd;
use served::Served;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

static BENCH: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-bench"));

fn bench(served: &Served<impl FrontEnd>, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(&*BENCH).arg("--socket").arg(served.socket()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn json_speaks_as_fio_does() {
    let served = Served::new("none", |_, _| ());
    let (status, stdout, stderr) = bench(&served, &["--ops", "500", "--depth", "1", "--json"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((json["interrupts"].as_u64(), json["interrupts_per_io"].as_f64()), (Some(500), Some(1.0)));
    assert_eq!(json["jobs"][0]["clat_ns"]["N"], 500);
    assert!(json["jobs"][0]["clat_ns"]["percentile"]["99.990000"].is_u64());
    assert_eq!((&json["jobs"][0]["queue"], &json["jobs"][1]["queue"]), (&"all".into(), &0.into()));
    assert_eq!(json["options"]["ops"], 500);
}

#[test]
fn table_names_its_units() {
    let served = Served::new("auto", |_, disk| disk.queues = 2);
    let (status, stdout, stderr) = bench(&served, &["--ops", "500", "--queues", "2"]);
    assert_eq!((status, stderr.as_str()), (Some(0), "")); // no progress bar: it is no terminal
    for word in ["interrupts", "IOPS", "p50 us", "kicks"] {
        assert!(stdout.contains(word), "{word} is missing: {stdout}");
    }
}

#[test]
fn exit_status_and_message_name_what_is_wrong() {
    let served = Served::new("none", |_, disk| disk.read_only = true);
    for (arguments, expected, part) in [
        (&["--queues", "3"][..], 1, "3 queues: it has 1"),
        (&["--rw", "write"], 1, "read-only"),
        (&["--depth", "0"], 2, "--depth"),
        (&["--depth", "x"], 2, "--depth"),
        (&["--rw", "sideways"], 2, "randread"),
    ] {
        let (status, stdout, stderr) = bench(&served, arguments);
        assert_eq!((status, stdout.as_str()), (Some(expected), ""), "{arguments:?}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}

/// Every kind of load, each request of which is checked: what the client counts is what the disk counts.
#[test]
fn nvme_runs_every_job_and_both_sides_count_the_same() {
    let served = Served::nvme("none", |_, disk| disk.queues = 2);
    let base = Options { queues: 2, ..served.options(2000) };
    let bursts = Some(Bursts { requests: 16, gap_us: 50 });
    for options in [
        Options { depth: 1, event_idx: false, ..base.clone() },
        Options { depth: 340, threads: Threads::PerQueue, ..base.clone() },
        Options { job: Job::Sync, wait: Wait::Spin, ..base.clone() },
        Options { job: Job::Mixed, depth: 8, ..base.clone() },
        Options { job: Job::Batch, batch: 48, ..base.clone() },
        Options { bursts, ..base.clone() },
        Options { rate_per_second: Some(50_000.0), poisson: true, ..base.clone() },
        Options { rw: Rw::Randwrite, write_percent: Some(50), fsync_every: Some(8), verify: true, ..base.clone() },
        Options { block_size_bytes: 512, rw: Rw::Write, ..base.clone() },
        Options { block_size_bytes: 8192, verify: true, write_percent: Some(50), ..base.clone() },
        Options { block_size_bytes: 1 << 20, depth: 8, verify: true, write_percent: Some(50), ops: Some(100), ..base },
    ] {
        let (report, disk) = served.load(&options);
        let sum = |count: fn(&coalesce_target::stats::QueueStats) -> u64| disk.iter().map(count).sum::<u64>();
        assert_eq!(report.event_idx, options.event_idx);
        assert_eq!(report.total.total_ios, sum(|queue| queue.completions), "{options:?}");
        assert_eq!(report.total.interrupts, sum(|queue| queue.interrupts), "{options:?}");
        assert_eq!(report.total.interrupts, report.total.total_ios, "policy none");
        // Queues are created after the counts were reset, and both doorbells are then 0.
        assert_eq!(report.total.kicks, sum(|queue| queue.device.kicks), "{options:?}");
        if !options.event_idx {
            assert!(report.total.kicks >= report.total.total_ios + report.total.interrupts, "each is a message");
        }
        assert!(!options.verify || report.total.verified > 0);
    }
}

/// The same of virtio-blk: every kind of load, with the most queues and requests in flight that there are.
#[test]
fn virtio_blk_runs_every_job_and_loses_nothing() {
    let served = Served::new("none", |_, disk| disk.queues = 16);
    let base = Options { queues: 16, ..served.options(1000) };
    let bursts = Some(Bursts { requests: 16, gap_us: 50 });
    for options in [
        Options { depth: 1, event_idx: false, ..base.clone() },
        Options { depth: 340, threads: Threads::PerQueue, ..base.clone() },
        Options { job: Job::Sync, wait: Wait::Spin, ops: Some(100), ..base.clone() },
        Options { job: Job::Mixed, depth: 8, ..base.clone() },
        Options { job: Job::Batch, batch: 48, event_idx: false, ..base.clone() },
        Options { bursts, ..base.clone() },
        Options { rate_per_second: Some(5_000.0), poisson: true, ..base.clone() },
        Options { rw: Rw::Randwrite, write_percent: Some(50), fsync_every: Some(8), verify: true, ..base.clone() },
        Options { block_size_bytes: 512, rw: Rw::Write, ..base.clone() },
        Options { queues: 1, depth: 32, ops: Some(70_000), ..base.clone() }, // the indices of the rings wrap
        Options {
            queues: 2,
            block_size_bytes: 1 << 20,
            depth: 8,
            verify: true,
            write_percent: Some(50),
            ops: Some(50),
            ..base
        },
    ] {
        let (report, disk) = served.load(&options);
        assert_eq!(report.event_idx, options.event_idx);
        assert_eq!(report.total.total_ios, disk.iter().map(|queue| queue.completions).sum::<u64>(), "{options:?}");
        assert!((1..=report.total.total_ios).contains(&report.total.interrupts), "{options:?}");
        assert!((1..=report.total.total_ios).contains(&report.total.kicks), "{options:?}");
        assert!(disk.iter().all(|queue| queue.device.malformed == 0 && queue.device.broken_rings == 0), "{options:?}");
        assert!(!options.verify || report.total.verified > 0);
    }
}

/// The mark of the synchronous requester is a hint on the wire, where requester and policy have agreed on its bits.
#[test]
fn an_nvme_request_that_is_marked_is_urgent() {
    for (bits, here, elsewhere) in [("cdw12:16", "cdw12:16", "cdw12:18"), ("cdw13:8", "cdw13:8", "cdw12:16")] {
        let policy = format!("cint:ooo=off,in_flight=off,hints=none,thr=200,delta=10ms,max_hold=500ms,bits={bits}");
        let served = Served::nvme(&policy, |_, _| ());
        for (sync_ioprio, hint_bits, hinted) in
            [(SyncIoprio::Rt, here, 20), (SyncIoprio::Rt, elsewhere, 0), (SyncIoprio::None, here, 0)]
        {
            let hint_bits = hint_bits.parse().unwrap();
            let (report, disk) = served.load(&Options { job: Job::Sync, sync_ioprio, hint_bits, ..served.options(20) });
            assert_eq!(report.jobs[0].jobname, JobName::Sync);
            assert_eq!(report.jobs[0].queue, Queues::All);
            assert_eq!(disk[0].delivered.get("urgent").copied().unwrap_or(0), hinted, "{:?}", disk[0].delivered);
        }
    }
}

#[test]
fn bench_of_an_nvme_disk_says_what_is_wrong() {
    let served = Served::nvme("none", |_, disk| {
        disk.read_only = true;
        disk.block_size = Some(Size(4096));
    });
    for (arguments, expected, part) in [
        (&["--device", "nvme", "--ops", "100"][..], 0, ""),
        (&["--device", "nvme", "--queues", "3"], 1, "3 queues: it has 1"),
        (&["--device", "nvme", "--rw", "write"], 1, "read-only"),
        (&["--device", "nvme", "--block-size", "512"], 1, "blocks of 512 bytes: its own have 4096"),
        (&["--device", "scsi"], 2, "virtio-blk, nvme"),
        (&[], 1, "--device nvme"),
    ] {
        let (status, _, stderr) = bench(&served, arguments);
        assert_eq!(status, Some(expected), "{arguments:?}: {stderr}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
    let served = Served::new("none", |_, _| ());
    let (status, _, stderr) = bench(&served, &["--device", "nvme"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("virtio-blk disk?"), "{stderr}");
}
