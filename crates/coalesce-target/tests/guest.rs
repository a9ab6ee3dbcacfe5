//! A real Linux guest on a disk that the real program serves: its data, its interrupts, and what it gives away.

use coalesce_target::control::request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program, serving one disk.
struct Target {
    directory: TempDir,
    policy: &'static str,
    queues: usize,
    process: Child,
}

impl Target {
    /// None, and a word about it, where no guest can run.
    fn start(policy: &'static str) -> Option<Self> {
        Self::start_with(policy, 1)
    }

    fn start_with(policy: &'static str, queues: usize) -> Option<Self> {
        let ready = Command::new(kit("ready.sh")).output().unwrap();
        if !ready.status.success() {
            assert!(std::env::var_os("REQUIRE_QEMU").is_none());
            let why = String::from_utf8_lossy(&ready.stdout);
            let _ = writeln!(std::io::stderr(), "SKIPPED: a Linux guest: {}", why.trim()); // not captured
            return None;
        }
        let directory = TempDir::new().unwrap();
        File::create(directory.path().join("disk")).unwrap().set_len(256 << 20).unwrap();
        let process = serve(directory.path(), policy, queues);
        Some(Self { directory, policy, queues, process })
    }

    fn end_and_start_again(&mut self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.code(), (signal == Signal::SIGTERM).then_some(0), "{}", self.log());
        self.process = serve(self.directory.path(), self.policy, self.queues);
    }

    /// Everything that it and those before it said.
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    fn control(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    /// What its only queue counted.
    fn stats(&self) -> Value {
        request(&self.control(), "get_stats", &json!({})).unwrap()[0]["queues"][0].take()
    }

    /// Runs a job in a guest on the disk; `on_step` is told its steps. What it measured.
    fn run(&mut self, job: &str, parameters: &[&str], mut on_step: impl FnMut(&mut Self, &str)) -> Vec<Value> {
        let mut guest = Command::new(kit("run-guest.sh"))
            .arg(job)
            .arg(self.directory.path().join("socket"))
            .args(parameters)
            .env("QUEUES", self.queues.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut results = Vec::new();
        for line in BufReader::new(guest.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if let Some(step) = line.strip_prefix("GUEST-STEP ") {
                on_step(self, step);
            } else if let Some(result) = line.strip_prefix("RESULT ") {
                results.push(serde_json::from_str(result).unwrap());
            }
        }
        assert!(guest.wait().unwrap().success(), "{job}: {results:#?}");
        results
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kit(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest").join(program)
}

fn serve(directory: &Path, policy: &str, queues: usize) -> Child {
    let control = directory.join("control");
    let log = File::options().append(true).create(true).open(directory.join("log")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_coalesce-target"))
        .args(["serve", "--socket", "socket", "--file", "disk", "--control", "control", "--policy", policy])
        .args(["--queues", &queues.to_string()])
        .args(has_direct_io(&directory.join("disk")).then_some("--direct"))
        .current_dir(directory)
        .stderr(log)
        .spawn()
        .unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    while request(&control, "list", &json!({})).is_err() {
        let is_starting = Instant::now() < give_up && process.try_wait().unwrap().is_none();
        let log = || std::fs::read_to_string(directory.join("log")).unwrap();
        assert!(is_starting, "the target does not start: {}", log());
        thread::sleep(Duration::from_millis(10));
    }
    process
}

/// A medium that takes its time has requests in flight when the target dies.
fn has_direct_io(path: &Path) -> bool {
    File::options().read(true).custom_flags(libc::O_DIRECT).open(path).is_ok()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn interrupts_are_the_guests() {
    for policy in ["none", "auto"] {
        let Some(mut target) = Target::start(policy) else { return };
        let mut interrupts = Vec::new();
        let note = |target: &mut Target, _: &str| interrupts.push(number(&target.stats()["interrupts"]));
        let results = target.run("irqs", &["COUNT=2000", "PAUSE=0.5"], note);
        let by_target: Vec<_> = interrupts.chunks(2).map(|pair| pair[1] - pair[0]).collect();
        let by_guest: Vec<_> = results.iter().map(|result| number(&result["irqs"])).collect();
        assert_eq!((by_guest[0], by_target[0]), (2000, 2000), "{policy}, depth 1");
        // QEMU passes on as one what comes twice before the guest's CPU takes it. No interrupt is without a cause.
        assert!(by_guest[1] <= by_target[1], "{policy}, depth 32: {by_guest:?} {by_target:?}");
        assert!(by_guest[1] * 50 >= by_target[1] * 49, "{policy}, depth 32: {by_guest:?} {by_target:?}");
    }
}

#[test]
fn priorities_of_processes_arrive_as_hints() {
    let Some(mut target) = Target::start("auto") else { return };
    let results = target.run("ioprio", &[], |_, _| ());
    let requests: Vec<_> = results.iter().map(|result| number(&result["requests"])).collect();
    assert_eq!(requests, [1000, 1100, 1200, 1300, 1400, 1500]);
    // Real time: 1100, 1300, about half of 1400. Idle: 1200.
    let hinted = number(&target.stats()["hints"]["ioprio"]);
    assert!((3600 + 500..3600 + 900).contains(&hinted), "{hinted}");
}

#[test]
fn data_is_what_was_written() {
    let Some(mut target) = Target::start("auto") else { return };
    let results = target.run("verify", &[], |_, _| ());
    let states: Vec<_> = results.iter().map(|result| (result["job"].as_str().unwrap(), &result["rc"])).collect();
    let expected = [("write-verify", 0), ("reread-verify", 0), ("write-fsync", 0), ("control-corrupt", 1)];
    assert!(states.iter().zip(expected).all(|(state, (job, rc))| state.0 == job && *state.1 == rc), "{states:?}");
    let stats = target.stats();
    assert!(number(&stats["device"]["flushes"]) >= 16 && number(&stats["hints"]["flush"]) >= 16, "{stats:#}");
    assert_eq!((&stats["device"]["failed"], &stats["device"]["malformed"]), (&json!(0), &json!(0)));
}

/// Raises a flag when it is dropped.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The policy changes every 100 ms, and at half time the target dies and another takes its place.
#[test]
fn nothing_is_lost_when_policies_change_and_the_target_dies() {
    let Some(mut target) = Target::start("auto") else { return };
    let (control, is_over, changes) = (target.control(), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let end = Raise(&is_over); // also when an assertion fails
        scope.spawn(|| {
            let policies =
                ["none", "nvme:thr=8,time=100us", "vic:cif_threshold=2", "cint:ooo=on", "cint", "dim", "auto"];
            for policy in policies.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // While the target is away there is nobody to listen.
                let change = json!({ "ctrlr": "socket", "policy": policy });
                let changed = request(&control, "set_policy", &change).is_ok();
                changes.fetch_add(u64::from(changed), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let seconds = std::env::var("COALESCE_SOAK_SECONDS").unwrap_or("10".into());
        let mut reconnects = 0;
        let results = target.run("soak", &[&format!("SECONDS={seconds}")], |target, step| {
            if step == "reconnect" {
                target.end_and_start_again(Signal::SIGKILL);
                reconnects += 1;
            }
        });
        drop(end);
        let soak = results.last().unwrap();
        assert_eq!((soak["job"].as_str(), &soak["errors"], reconnects), (Some("soak"), &json!(0), 1));
        assert!(number(&soak["passes"]) > 0 && number(&soak["flushes"]) > 0, "{soak}");
        println!("{soak}, policy changes: {}", changes.load(Ordering::Relaxed));
    });
    assert!(changes.load(Ordering::Relaxed) >= 50);
    assert_eq!(target.stats()["in_flight"], 0);
}

/// The target ends, in order and not, again and again under verified writes. `COALESCE_RESTARTS` says how often.
#[test]
fn no_restart_loses_or_repeats_a_request() {
    let restarts = std::env::var("COALESCE_RESTARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(4_u64);
    thread::scope(|scope| {
        for queues in [1, 4] {
            scope.spawn(move || restart_under_load(queues, restarts));
        }
    });
}

fn restart_under_load(queues: usize, restarts: u64) {
    let Some(mut target) = Target::start_with("auto", queues) else { return };
    let mut done = [0_u64; 2];
    // A tick for each, and a tenth more: one that comes while the target is started again waits, and the next with it.
    let parameters = [format!("SECONDS={}", restarts * 2 * 3 / 2 * 11 / 10 + 6), "TICK=1.5".into()];
    let parameters: Vec<_> = parameters.iter().map(String::as_str).collect();
    let results = target.run("soak", &parameters, |target, step| {
        if step.starts_with("tick-") && done[1] < restarts {
            let signal = if done[0] == done[1] { Signal::SIGTERM } else { Signal::SIGKILL };
            target.end_and_start_again(signal);
            done[usize::from(signal == Signal::SIGKILL)] += 1;
        }
    });
    let soak = results.last().unwrap();
    assert_eq!((soak["job"].as_str(), &soak["errors"]), (Some("soak"), &json!(0)), "{}", target.log());
    assert_eq!(done, [restarts; 2], "SIGTERM and SIGKILL");
    assert_eq!(target.stats()["in_flight"], 0);
    let log = target.log();
    let taken_over = log.matches("takes over").count();
    println!("{queues} queues: {done:?} restarts, {taken_over} rings taken over, {soak}");
    for bad in ["broken", "has ended", "refused"] {
        assert!(!log.contains(bad), "{bad}: {log}");
    }
}
