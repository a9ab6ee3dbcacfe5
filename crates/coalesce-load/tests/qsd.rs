//! Runs against QEMU's storage daemon. Checks only what holds on any machine under any load.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use coalesce_load::{Cause, Error, Job, JobName, JobReport, Mismatch, Options, Queues, Report, Rw, Threads, Wait, run};

const NULL: &str = "driver=null-co,node-name=d0,size=1073741824,read-zeroes=on";

/// A running qemu-storage-daemon with two queues, and a directory of its own.
struct Qsd {
    process: Child,
    directory: PathBuf,
}

impl Qsd {
    /// `None`, with a message, if the daemon is not installed.
    fn start(blockdev: &str, writable: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("coalesce-load-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        File::create(directory.join("disk")).unwrap().set_len(8 << 20).unwrap();
        let socket = directory.join("socket");
        let export = format!("type=vhost-user-blk,id=e0,node-name=d0,addr.type=unix,addr.path={}", socket.display());
        let process = Command::new("qemu-storage-daemon")
            .args(["--blockdev", blockdev, "--export", &format!("{export},writable={writable},num-queues=2")])
            .args(["--pidfile", "pid"])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            println!("SKIPPED: no qemu-storage-daemon");
            fs::remove_dir_all(&directory).unwrap();
            return None;
        };
        let qsd = Self { process, directory };
        let deadline = Instant::now() + Duration::from_secs(20);
        // Its socket is there before it listens; this file is written after that.
        while !qsd.directory.join("pid").exists() {
            assert!(Instant::now() < deadline, "qemu-storage-daemon does not start");
            thread::sleep(Duration::from_millis(10));
        }
        Some(qsd)
    }

    fn null() -> Option<Self> {
        Self::start(NULL, "on")
    }

    fn file() -> Option<Self> {
        Self::start("driver=file,node-name=d0,filename=disk", "on")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// A run of `ops` requests per queue.
    fn options(&self, ops: u64) -> Options {
        Options { socket: self.socket(), ops: Some(ops), warmup_seconds: 0.05, ..Options::default() }
    }
}

impl Drop for Qsd {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn run_well(options: &Options) -> Report {
    let report = run(options, |_| ()).unwrap();
    assert!(!report.failed() && !report.warmup_failed, "{:?}", report.failures);
    assert_eq!((report.total.errors, report.total.unfinished), (0, 0));
    report
}

fn job(report: &Report, name: JobName, queue: Queues) -> &JobReport {
    report.jobs.iter().find(|job| job.jobname == name && job.queue == queue).unwrap()
}

#[test]
fn depth_1_has_one_interrupt_per_request() {
    let Some(qsd) = Qsd::null() else { return };
    for event_idx in [true, false] {
        for wait in [Wait::Sleep, Wait::Spin] {
            let report = run_well(&Options { depth: 1, event_idx, wait, ..qsd.options(3000) });
            assert_eq!(report.event_idx, event_idx);
            assert_eq!((report.total.total_ios, report.total.interrupts), (3000, 3000), "{event_idx} {wait:?}");
            assert!((1..=3000).contains(&report.total.kicks));
        }
    }
}

#[test]
fn every_request_of_every_queue_is_counted_once() {
    let Some(qsd) = Qsd::null() else { return };
    for threads in [Threads::One, Threads::PerQueue] {
        for event_idx in [true, false] {
            let report = run_well(&Options { queues: 2, threads, event_idx, ..qsd.options(20_000) });
            assert_eq!(report.total.total_ios, 40_000);
            let per_queue: Vec<u64> = report.queues.iter().map(|queue| queue.counters.total_ios).collect();
            assert_eq!(per_queue, [20_000, 20_000]);
            assert_eq!(job(&report, JobName::Async, Queues::All).clat_ns.N, 40_000);
            assert_eq!(job(&report, JobName::Async, Queues::One(1)).clat_ns.N, 20_000);
            let interrupts: u64 = report.queues.iter().map(|queue| queue.counters.interrupts).sum();
            assert_eq!(report.total.interrupts, interrupts);
            assert!((1..=40_000).contains(&interrupts), "{interrupts} interrupts for 40000 requests");
        }
    }
}

#[test]
fn mixed_job_reports_both_requesters() {
    let Some(qsd) = Qsd::null() else { return };
    let report = run_well(&Options { job: Job::Mixed, depth: 8, ..qsd.options(20_000) });
    let (asynchronous, sync) = (job(&report, JobName::Async, Queues::All), job(&report, JobName::Sync, Queues::All));
    assert_eq!(asynchronous.total_ios, 20_000);
    assert!(sync.total_ios > 0);
    assert_eq!(report.total.total_ios, 20_000 + sync.total_ios);
}

#[test]
fn batches_and_bursts_lose_nothing() {
    let Some(qsd) = Qsd::null() else { return };
    let report = run_well(&Options { job: Job::Batch, batch: 48, ..qsd.options(4800) });
    assert_eq!(job(&report, JobName::Batch, Queues::All).total_ios, 4800);
    // Each of the 100 batches needs at most one kick; the device may suppress kicks.
    assert!(report.total.kicks <= 100, "{} kicks", report.total.kicks);
    let report = run_well(&Options { bursts: Some("64:100us".parse().unwrap()), ..qsd.options(1000) });
    assert_eq!(report.total.total_ios, 1000);
}

#[test]
fn open_loop_completes_every_arrival() {
    let Some(qsd) = Qsd::null() else { return };
    let fixed = Options { rate_per_second: Some(2000.0), seconds: 0.5, queues: 2, ops: None, ..qsd.options(1) };
    let report = run_well(&fixed);
    assert_eq!((report.total.arrivals, report.total.total_ios, report.total.never_issued), (2000, 2000, 0));
    let report = run_well(&Options { poisson: true, ..fixed });
    assert_eq!((report.total.arrivals, report.total.never_issued), (report.total.total_ios, 0));
}

#[test]
fn flushes_follow_the_writes() {
    let Some(qsd) = Qsd::file() else { return };
    let report = run_well(&Options { rw: Rw::Write, fsync_every: Some(10), depth: 4, ..qsd.options(100) });
    assert_eq!(job(&report, JobName::Async, Queues::All).total_ios, 100);
    assert_eq!(job(&report, JobName::Flush, Queues::All).total_ios, 10);
    assert_eq!(report.total.total_ios, 110);
}

#[test]
fn verify_accepts_a_disk_and_refuses_a_device_that_forgets() {
    let mixed = |qsd: &Qsd| Options {
        queues: 2,
        rw: Rw::Randwrite,
        write_percent: Some(50),
        verify: true,
        ..qsd.options(2000)
    };
    let Some(disk) = Qsd::file() else { return };
    let report = run_well(&mixed(&disk));
    assert!(report.total.verified > 0);

    let Some(null) = Qsd::null() else { return };
    let report = run(&mixed(&null), |_| ()).unwrap();
    assert!(report.failed() && report.total.errors == report.total.verified && report.total.errors > 0);
    assert!(report.failures.iter().all(|failure| failure.cause == Cause::Data(Mismatch::Foreign)));
}

#[test]
fn a_target_without_the_needed_features_is_refused() {
    let Some(qsd) = Qsd::start(NULL, "off") else { return };
    let too_many = Options { queues: 3, ..qsd.options(1) };
    assert!(matches!(run(&too_many, |_| ()), Err(Error::Missing(_))));
    let write = Options { rw: Rw::Write, ..qsd.options(1) };
    assert!(matches!(run(&write, |_| ()), Err(Error::Missing(_))));
    let nowhere = Options { socket: qsd.directory.join("nothing"), ..qsd.options(1) };
    assert!(matches!(run(&nowhere, |_| ()), Err(Error::Connect(_))));
    run_well(&qsd.options(1));
}

#[test]
fn a_closed_connection_ends_the_run() {
    let Some(mut qsd) = Qsd::null() else { return };
    let options = Options { seconds: 600.0, ops: None, ..qsd.options(1) };
    let (running, is_running) = channel();
    let client = thread::spawn(move || run(&options, |progress| _ = running.send(progress.done > 0.0)));
    assert!(is_running.iter().any(|measuring| measuring));
    qsd.process.kill().unwrap();
    assert!(matches!(client.join().unwrap(), Err(Error::Closed)));
}
