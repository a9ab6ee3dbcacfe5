//! `coalesce-demo` as its users run it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use coalesce_target::control;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

const ROWS: [&str; 7] = ["depth1", "depth8", "depth32", "mixed-sync", "mixed-async", "batch4", "fsync"];
const POLICIES: [&str; 5] = ["none", "nvme", "vic", "cint", "auto"];

/// Cargo builds the programs of other packages for no test, so this asks it to.
static TARGET: LazyLock<PathBuf> = LazyLock::new(|| {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--profile", "test", "--package", "coalesce-target", "--bin", "coalesce-target"])
        .args(["--quiet", "--locked", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executables: Vec<_> = messages.filter_map(|message| Some(message["executable"].as_str()?.into())).collect();
    executables.into_iter().last().expect("cargo builds coalesce-target")
});

/// A directory that has everything a run makes.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        fs::create_dir(place.temporary()).unwrap();
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Where sockets and images are during a run.
    fn temporary(&self) -> PathBuf {
        self.file("tmp")
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-demo"));
        command.args(arguments.split_whitespace()).arg("--target").arg(&*TARGET);
        command.current_dir(self.0.path()).env("TMPDIR", self.temporary()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &str) -> (Option<i32>, String, String) {
        outcome(&self.command(arguments).output().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.file("report.json")).unwrap()).unwrap()
    }

    fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.temporary()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    /// Command lines that name this directory: every child's does.
    fn processes(&self) -> Vec<String> {
        let processes =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        let lines = processes.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.filter(|line| line.contains(self.temporary().to_str().unwrap())).collect()
    }
}

fn outcome(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Each row under each policy, in order, with something measured.
fn assert_complete(part: &Value, policies: &[&str], latency: &str) {
    let rows = part["rows"].as_array().unwrap();
    let names: Vec<_> =
        rows.iter().map(|row| (row["jobname"].as_str().unwrap(), row["policy"].as_str().unwrap())).collect();
    let expected: Vec<_> = ROWS.iter().flat_map(|&row| policies.iter().map(move |&policy| (row, policy))).collect();
    assert_eq!(names, expected);
    for row in rows {
        let percentile = |percent: &str| number(&row[latency]["percentile"][percent]);
        assert!(number(&row["iops"]) > 0.0 && number(&row["interrupts"]) > 0.0, "{row}");
        assert!(percentile("50.000000") > 0.0 && percentile("99.000000") >= percentile("50.000000"), "{row}");
        assert!(number(&row["interrupts_per_io"]) <= 1.0, "{row}");
    }
}

/// That elements are closed in the order they were opened in, and that nothing is loaded from elsewhere.
fn assert_page(html: &str) {
    for foreign in ["http:", "https:", "src=", "@import", "url(", "<link", "<script", "<iframe"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    let body = html.strip_prefix("<!DOCTYPE html>").unwrap();
    let mut open = Vec::new();
    for tag in body.split('<').skip(1).map(|piece| piece.split_once('>').unwrap().0) {
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') || ["meta", "br"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let pictures: Vec<_> = html.split("role=\"img\"").skip(1).collect();
    assert!(!pictures.is_empty());
    for picture in pictures {
        assert!(picture.starts_with("><title>") && picture.contains("</title><desc>"), "{:.200}", picture);
    }
}

#[test]
fn a_run_measures_every_job_under_every_policy() {
    let place = Place::new();
    let (status, stdout, stderr) = place.run("--no-guest --seconds 0.05 --image-size 16M");
    assert_eq!(status, Some(0), "{stderr}");
    for word in ROWS.iter().chain(&POLICIES).chain(&["IOPS", "p99 µs", "interrupts/I/O", "Left out: --no-guest"]) {
        assert!(stdout.contains(word), "{word} is missing: {stdout}");
    }
    assert!(stdout.lines().all(|line| line.chars().count() <= 120), "{stdout}");

    let json = place.json();
    assert_complete(&json["native"], &POLICIES, "clat_ns");
    assert_eq!((&json["baseline"], &json["guest"]["rows"]), (&json!("none"), &Value::Null));
    let rows = json["native"]["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["policy"] == "none") {
        assert_eq!(row["interrupts"], row["total_ios"], "every completion interrupts: {row}");
    }
    // What the client counted, the target counted too, besides warm-ups.
    for (disk, policy) in POLICIES.iter().enumerate() {
        let by_client = json["native"]["runs"].as_array().unwrap().iter().filter(|run| run["policy"] == *policy);
        let by_client: f64 = by_client.map(|run| number(&run["report"]["interrupts"])).sum();
        let by_target = number(&json["native"]["target"]["after"][disk]["queues"][0]["interrupts"]);
        assert!(by_client > 0.0 && by_client <= by_target, "{policy}: {by_client} {by_target}");
    }

    let html = fs::read_to_string(place.file("report.html")).unwrap();
    assert_page(&html);
    for word in ROWS.iter().chain(&POLICIES).chain(&["--no-guest --seconds 0.05", "coalesce-target bench"]) {
        assert!(html.contains(word), "{word}");
    }
    place.assert_clean();
}

#[test]
fn the_first_line_says_what_is_wrong() {
    let place = Place::new();
    for (arguments, expected, part) in [
        ("--policies none,vix", 2, "unknown policy \"vix\""),
        ("--policies none,none", 2, "given twice"),
        ("--seconds 0", 2, "0.01 to 3600"),
        ("--no-guest --no-native", 2, "cannot be used with"),
        ("--image-size 10M", 1, "at least 64M for the guest"),
        ("--image-size 1000", 1, "whole MiB"),
        ("--out /nonexistent/report.html", 1, "cannot write /nonexistent/report.html"),
        ("--image-dir /nonexistent", 1, "cannot make a directory in /nonexistent"),
    ] {
        let (status, stdout, stderr) = place.run(arguments);
        assert_eq!((status, stdout.as_str()), (Some(expected), ""), "{arguments}: {stderr}");
        assert!(stderr.lines().next().unwrap().contains(part), "{arguments}: {stderr}");
    }
    assert!(!place.file("report.html").exists() && !place.file("report.json").exists());
    place.assert_clean();
}

#[test]
fn a_missing_target_is_named() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-demo"));
    let output = command.args(["--target", "/nonexistent"]).current_dir(place.0.path()).output().unwrap();
    let (status, _, stderr) = outcome(&output);
    assert_eq!(status, Some(1));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("/nonexistent is missing: cargo build --release -p coalesce-target"), "{stderr}");
}

/// What does not come in a minute does not come at all.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < give_up);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A run that is measuring, natively, for as long as it is let.
fn measuring(place: &Place) -> Child {
    let mut command = place.command("--no-guest --seconds 3600 --policies none,auto --image-size 16M");
    let mut demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let completions = || {
        let sockets = fs::read_dir(place.temporary()).unwrap().map(|entry| entry.unwrap().path().join("control"));
        let stats = sockets.filter_map(|socket| control::request(&socket, "get_stats", &json!({})).ok()).next()?;
        stats[0]["queues"][0]["completions"].as_u64()
    };
    wait_until(|| demo.try_wait().unwrap().is_some() || completions().is_some_and(|count| count > 0));
    demo
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let place = Place::new();
        let mut demo = measuring(&place);
        assert_eq!(place.processes().len(), 1, "coalesce-target");
        kill(Pid::from_raw(demo.id().try_into().unwrap()), signal).unwrap();
        wait_until(|| demo.try_wait().unwrap().is_some());
        let (status, _, stderr) = outcome(&demo.wait_with_output().unwrap());
        assert_eq!((status, stderr.lines().last()), (Some(130), Some("coalesce-demo: stopped")), "{stderr}");
        assert!(!place.file("report.html").exists());
        place.assert_clean();
    }
}

/// Nothing of what a guest needs is there, in a PATH with just enough for `guest/ready.sh` to say so.
fn without_tools(place: &Place) -> Command {
    let bin = place.file("bin");
    fs::create_dir(&bin).unwrap();
    for tool in ["bash", "sed", "uname"] {
        let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool)).into_iter().find(|path| path.exists());
        symlink(found.unwrap(), bin.join(tool)).unwrap();
    }
    let mut command = place.command("--no-native --image-size 64M --policies none");
    command.env("PATH", bin);
    command
}

#[test]
fn a_guest_that_cannot_run_is_skipped_loudly() {
    let place = Place::new();
    let (status, stdout, stderr) = outcome(&without_tools(&place).output().unwrap());
    assert_eq!(status, Some(0), "{stderr}");
    let notice = stdout.lines().find(|line| line.starts_with("SKIPPED: guest part: ")).expect(&stdout);
    assert!(notice.contains("qemu-system-x86_64") && notice.contains("guest/packages.sh"), "{notice}");
    assert_eq!(place.json()["guest"]["notice"], notice);
    let html = fs::read_to_string(place.file("report.html")).unwrap();
    assert!(html.contains(notice), "{html}");
    place.assert_clean();
}

#[test]
fn a_reader_that_goes_away_leaves_nothing_behind() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = without_tools(&place).stdout(writer).output().unwrap();
    assert_eq!(output.status.signal(), None);
    let (status, _, stderr) = outcome(&output);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("coalesce-demo: standard output: "), "{stderr}");
    place.assert_clean();
}

#[test]
fn a_linux_guest_runs_every_job() {
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest");
    let ready = Command::new(kit.join("ready.sh")).output().unwrap();
    if !ready.status.success() {
        assert!(std::env::var_os("REQUIRE_QEMU").is_none());
        let why = String::from_utf8_lossy(&ready.stdout);
        let _ = writeln!(std::io::stderr(), "SKIPPED: the demonstration in a Linux guest: {}", why.trim()); // not captured
        return;
    }
    let place = Place::new();
    let (status, stdout, stderr) =
        place.run("--no-native --guest-seconds 0.3 --image-size 64M --policies none,nvme:thr=7,time=20ms");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let json = place.json();
    let guest = &json["guest"];
    assert_complete(guest, &["none", "nvme"], "lat_ns");
    assert_eq!((&guest["notice"], &guest["event_idx"]), (&Value::Null, &json!(true)));
    // Whose disk is whose: a synchronous reader has to wait for the whole of nvme's time.
    let rows = guest["rows"].as_array().unwrap();
    let depth1 = |policy: &str| rows.iter().find(|row| row["jobname"] == "depth1" && row["policy"] == policy).unwrap();
    assert!(number(&depth1("nvme")["lat_ns"]["percentile"]["50.000000"]) >= 20e6, "{rows:#?}");
    // QEMU passes on as one what comes twice before the guest's CPU takes it; no interrupt is without a cause.
    for (disk, by_guest) in guest["guest_interrupts"].as_array().unwrap().iter().enumerate() {
        let by_target = number(&guest["target"]["after"][disk]["queues"][0]["interrupts"]);
        assert!(number(by_guest) > 0.0 && number(by_guest) <= by_target, "{by_guest} {by_target}");
    }
    assert_page(&fs::read_to_string(place.file("report.html")).unwrap());
    place.assert_clean();
}
