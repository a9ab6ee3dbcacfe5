//! A real Linux guest, booted by the kit in `guest/`, on a disk that the real program serves.
#![allow(dead_code, reason = "not every test uses all of it")]

use coalesce_target::supervision::control_client::request;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::ffi::OsString;
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
pub struct Target {
    directory: TempDir,
    image: PathBuf,
    options: Options,
    process: Child,
}

/// What the disk is.
#[derive(Clone, Copy)]
pub struct Options {
    /// `virtio-blk` or `nvme`.
    pub device: &'static str,
    pub policy: &'static str,
    pub queues: usize,
    pub migratable: bool,
    /// The guest's driver is one for devices before virtio 1.0.
    pub legacy: bool,
    /// A small disk whose blocks say which they are, as the bare-metal guest expects.
    pub stamped: bool,
    /// More of the kernel's command line.
    pub append: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: "virtio-blk",
            policy: "auto",
            queues: 1,
            migratable: false,
            legacy: false,
            stamped: false,
            append: "",
        }
    }
}

impl Target {
    /// A virtio-blk disk with one queue. None, and a word about it, where no guest can run.
    pub fn start(policy: &'static str) -> Option<Self> {
        Self::start_with(Options { policy, ..Options::default() })
    }

    /// A disk of this kind. None, and a word about it, where no guest can run, or none with such a disk.
    pub fn start_with(options: Options) -> Option<Self> {
        let skip = |what: &str, why: &[u8]| {
            let why = String::from_utf8_lossy(why);
            let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {}", why.trim()); // not captured
        };
        let ready = Command::new(kit("ready.sh")).output().unwrap();
        if !ready.status.success() {
            assert!(std::env::var_os("REQUIRE_QEMU").is_none());
            skip("a Linux guest", &ready.stdout);
            return None;
        }
        if options.device == "nvme" {
            let qemu = Command::new(kit("make-qemu.sh")).output().unwrap();
            if !qemu.status.success() {
                skip("an NVMe disk in a Linux guest", &qemu.stderr);
                return None;
            }
        }
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("disk");
        if options.stamped {
            std::fs::write(&image, stamped_blocks(4096)).unwrap();
        } else {
            File::create(&image).unwrap().set_len(256 << 20).unwrap();
        }
        Some(Self::serve(directory, image, options))
    }

    /// Another target on the same image.
    pub fn beside(&self) -> Self {
        Self::serve(TempDir::new().unwrap(), self.image.clone(), self.options)
    }

    fn serve(directory: TempDir, image: PathBuf, options: Options) -> Self {
        let process = serve(directory.path(), &image, options);
        Self { directory, image, options, process }
    }

    /// Ends the process once the guest drives it, and starts another in its place. QEMU 7.2 never comes back from a handshake that is
    /// broken off: see `docs/install.md`.
    pub fn end_and_start_again(&mut self, signal: Signal) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while self.queues().iter().all(|queue| queue["device"]["kicks"] == 0) {
            assert!(Instant::now() < give_up, "the guest does not come back: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.code(), (signal == Signal::SIGTERM).then_some(0), "{}", self.log());
        self.process = serve(self.directory.path(), &self.image, self.options);
    }

    /// Everything that it and those before it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    pub fn control(&self) -> PathBuf {
        self.directory.path().join("control")
    }

    /// Runs the job `resize`, makes the disk longer and shorter at its steps, and expects that the guest hears of both.
    pub fn resize_under_guest(&mut self) {
        let results = self.run("resize", &[], |target, step| {
            let size = if step == "longer" { 384_u64 } else { 128 } << 20;
            if step == "longer" {
                File::options().write(true).open(&target.image).unwrap().set_len(size).unwrap();
            }
            let resized = request(&target.control(), "resize", &json!({ "ctrlr": "socket", "size": size.to_string() }));
            assert_eq!(resized.unwrap(), json!({ "size": size, "in_flight_beyond": 0, "guest_is_told": true }));
        });
        let sectors: Vec<_> = results.iter().filter_map(|result| result["sectors"].as_u64()).collect();
        assert_eq!(sectors, [384 << 11, 128 << 11], "{results:#?}");
        let ends: Vec<_> =
            results.iter().filter(|result| result["sectors"].is_null()).map(|end| &end["errors"]).collect();
        assert_eq!(ends, [&json!(0); 2], "{results:#?}");
    }

    /// What its first queue counted.
    pub fn stats(&self) -> Value {
        self.queues().swap_remove(0)
    }

    /// What each queue counted.
    pub fn queues(&self) -> Vec<Value> {
        let mut stats = request(&self.control(), "get_stats", &json!({ "idle": true })).unwrap();
        serde_json::from_value(stats[0]["queues"].take()).unwrap()
    }

    /// The disk, as the kit names it.
    fn disk(&self) -> OsString {
        let mut disk = OsString::from(if self.options.device == "nvme" { "nvme:" } else { "" });
        disk.push(self.directory.path().join("socket"));
        disk
    }

    /// The command that boots the bare-metal guest on the disk: see `guest/run-bare.sh`.
    pub fn bare_guest(&self) -> Command {
        let mut guest = Command::new(kit("run-bare.sh"));
        guest.arg(self.disk()).env("QUEUES", self.options.queues.to_string());
        guest
    }

    /// The command that runs a job in a guest on the disk.
    pub fn guest(&self, job: &str, parameters: &[&str]) -> Command {
        let mut guest = Command::new(kit("run-guest.sh"));
        guest.arg(job).arg(self.disk()).args(parameters).env("QUEUES", self.options.queues.to_string());
        guest.env("APPEND", self.options.append);
        if self.options.legacy {
            guest.args(["--", "-global", "vhost-user-blk-pci.disable-modern=on"]);
        }
        guest
    }

    /// Runs a job in a guest on the disk; `on_step` is told its steps. What it measured.
    pub fn run(&mut self, job: &str, parameters: &[&str], mut on_step: impl FnMut(&mut Self, &str)) -> Vec<Value> {
        let mut guest = self.guest(job, parameters).stdout(Stdio::piped()).spawn().unwrap();
        let mut results = Vec::new();
        for line in BufReader::new(guest.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if let Some(step) = line.strip_prefix("GUEST-STEP ") {
                on_step(self, step);
            } else if let Some(result) = line.strip_prefix("RESULT ") {
                results.push(serde_json::from_str(result).unwrap());
            }
        }
        let (status, log) = (guest.wait().unwrap(), self.log());
        assert!(status.success(), "{job}: {status}, {results:#?}\n{:#?}\n{log}", self.queues());
        results
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// 4 KiB each: its number plus one first, its complement last.
fn stamped_blocks(count: u64) -> Vec<u8> {
    let block = |number: u64| {
        let mut block = [0; 4096];
        block[..8].copy_from_slice(&(number + 1).to_le_bytes());
        block[4088..].copy_from_slice(&(!(number + 1)).to_le_bytes());
        block
    };
    (0..count).flat_map(block).collect()
}

fn kit(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest").join(program)
}

fn serve(directory: &Path, image: &Path, Options { device, policy, queues, migratable, .. }: Options) -> Child {
    let control = directory.join("control");
    let log = File::options().append(true).create(true).open(directory.join("log")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_coalesce-target"))
        .args(["serve", "--socket", "socket", "--control", "control", "--policy", policy, "--file"])
        .arg(image)
        .args(["--device", device, "--queues", &queues.to_string()])
        .args(has_direct_io(image).then_some("--direct"))
        .args(migratable.then_some("--migratable"))
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

pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Raises a flag when it is dropped.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs something while the disk's policy changes every 100 ms. How often it changed.
pub fn while_policies_change(control: &Path, run: impl FnOnce()) -> u64 {
    const POLICIES: [&str; 7] =
        ["none", "nvme:thr=8,time=100us", "vic:cif_threshold=2", "cint:ooo=on", "cint", "dim", "auto"];
    let (is_over, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _end = Raise(&is_over); // also when an assertion fails
        scope.spawn(|| {
            for policy in POLICIES.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // While the target is away there is nobody to listen.
                let change = json!({ "ctrlr": "socket", "policy": policy });
                let changed = request(control, "set_policy", &change).is_ok();
                changes.fetch_add(u64::from(changed), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(100));
            }
        });
        run();
    });
    changes.into_inner()
}
