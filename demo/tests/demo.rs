//! `coalesce-demo` as its users run it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use coalesce_target::supervision::control_client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

const JOBS: [&str; 7] = ["depth1", "depth8", "depth32", "mixed", "batch4", "fsync", "compute"];
const POLICIES: [&str; 3] = ["none", "nvme", "auto"];

#[path = "../../crates/coalesce-target/tests/built/mod.rs"]
mod built;

static TARGET: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-target"));

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

/// The turns of each job, in order: every policy, the first one twice, and all of them did something.
fn turns<'a>(part: &'a Value, jobs: &[&str], variants: impl Fn(&str) -> usize) -> Vec<(&'a str, usize, &'a Value)> {
    let names: Vec<_> = part["jobs"].as_array().unwrap().iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, jobs);
    let mut turns = Vec::new();
    for job in part["jobs"].as_array().unwrap() {
        let blocks = job["turns"].as_array().unwrap();
        let variants = variants(job["jobname"].as_str().unwrap());
        assert_eq!(job["blocks"], blocks.len());
        assert!(!blocks.is_empty() && blocks.iter().all(|block| block.as_array().unwrap().len() == variants), "{job}");
        let of_block = |block: &'a Value| block.as_array().unwrap().iter().enumerate();
        turns.extend(blocks.iter().flat_map(of_block).map(|(nth, turn)| (job["jobname"].as_str().unwrap(), nth, turn)));
    }
    for (job, nth, turn) in &turns {
        for count in ["seconds", "completions", "interrupts", "context_switches", "client_cpu_ns", "target_cpu_ns"] {
            assert!(number(&turn[count]) > 0.0, "{job}, variant {nth}: no {count}: {turn}");
        }
        // One may be for what was held before the turn.
        assert!(number(&turn["interrupts"]) <= number(&turn["completions"]) + 1.0, "{job}, variant {nth}: {turn}");
        assert!(number(&turn["system_calls"]) >= number(&turn["interrupts"]), "{job}, variant {nth}: {turn}");
        let kinds = ["reads", "writes", "flushes"].map(|kind| number(&turn[kind])).iter().sum::<f64>();
        assert!(kinds <= number(&turn["completions"]), "{job}, variant {nth}: {turn}");
    }
    turns
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
    for picture in html.split("role=\"img\"").skip(1) {
        assert!(picture.starts_with("><title>") && picture.contains("</title><desc>"), "{:.200}", picture);
    }
}

#[test]
fn a_run_measures_every_job_under_every_policy() {
    let place = Place::new();
    let jobs = JOBS.join(",");
    let (status, stdout, stderr) =
        place.run(&format!("--places native --seconds 0.01 --turn 0.05 --image-size 16M --jobs {jobs}"));
    assert_eq!(status, Some(0), "{stderr}");
    for word in ["none", "fixed timer", "auto", "one at a time, on the host", "Where this cannot tell, ", "LONG=1"] {
        assert!(stdout.contains(word), "{word} is missing: {stdout}");
    }
    assert!(stdout.lines().count() <= 25, "{stdout}");
    let json = place.json();
    assert_eq!((&json["baseline"], &json["guest"]["jobs"]), (&json!("none"), &json!([])));
    for (job, nth, turn) in turns(&json["native"], &JOBS, |_| 4) {
        assert_eq!(number(&turn["realtime"]) > 0.0, job == "mixed", "{job}: {turn}");
        // A turn may end between a write and its flush.
        assert_eq!(
            number(&turn["flushes"]) > 0.0,
            job == "fsync" && number(&turn["completions"]) > 1.0,
            "{job}: {turn}"
        );
        // A busy machine may leave the loop no time, but it is always looked at.
        assert_eq!(turn["computed"].is_u64(), job == "compute", "{job}: {turn}");
        if nth < 2 {
            assert_eq!(turn["interrupts"], turn["completions"], "none interrupts for every completion: {job}: {turn}");
        }
    }
    // One block says nothing, and so does the page.
    for job in json["native"]["jobs"].as_array().unwrap() {
        for metric in job["metrics"].as_array().unwrap() {
            assert!(
                metric["policies"].as_object().unwrap().values().all(|told| told["verdict"] == "too few turns"),
                "{metric}"
            );
        }
    }
    let html = fs::read_to_string(place.file("report.html")).unwrap();
    assert_page(&html);
    for word in JOBS.iter().chain(&POLICIES).chain(&[
        "too few turns",
        "--places native --seconds 0.01",
        "coalesce-bench",
        "none, again",
    ]) {
        assert!(html.contains(word), "{word}");
    }
    place.assert_clean();
}

#[test]
fn with_blocks_enough_interrupts_are_compared_and_shown() {
    let place = Place::new();
    let arguments =
        "--places native --seconds 2 --turn 0.02 --image-size 16M --jobs depth8 --policies none,nvme:thr=7,time=25ms";
    let plots = place.file("plots");
    let (status, _, stderr) = place.run(&format!("{arguments} --plots {}", plots.display()));
    assert_eq!(status, Some(0), "{stderr}");
    // Eight in flight, and one interrupt for eight: no speed of the machine changes that.
    let json = place.json();
    let interrupts = &json["native"]["jobs"][0]["metrics"][0];
    assert_eq!(interrupts["name"], "interrupts/IO");
    let told = &interrupts["policies"]["nvme"];
    assert_eq!(told["verdict"], "differs", "{json}");
    assert!((number(&told["ratio"]["median"]) - 0.125).abs() < 0.01, "{told}");
    let html = fs::read_to_string(place.file("report.html")).unwrap();
    assert_page(&html);
    // An eighth, rounded to either side: an interrupt at the end of a turn moves the centre a little.
    let is_shown = ["0.12", "0.13"].iter().any(|ratio| html.contains(&format!("<td class=\"n\">{ratio} exact")));
    assert!(html.contains("role=\"img\"") && is_shown, "{html}");
    for number in ["interrupts", "cpu"] {
        let picture = fs::read_to_string(plots.join(format!("native-depth8-{number}.svg"))).unwrap();
        assert!(picture.starts_with("<svg xmlns") && picture.contains("nvme"), "{picture}");
    }
    // The JSON has all of it.
    let again = place.file("again");
    let mut draw = Command::new(env!("CARGO_BIN_EXE_coalesce-figures"));
    assert!(draw.arg(place.file("report.json")).arg(&again).status().unwrap().success());
    let pictures: Vec<_> = fs::read_dir(&again).unwrap().map(|picture| picture.unwrap().file_name()).collect();
    assert_eq!(pictures.len(), 2, "{pictures:?}");
    for picture in pictures {
        assert!(fs::read(again.join(&picture)).unwrap() == fs::read(plots.join(&picture)).unwrap(), "{picture:?}");
    }
    place.assert_clean();
}

#[test]
fn a_policy_that_learns_has_learned_before_its_first_turn_and_keeps_it() {
    let place = Place::new();
    let (status, _, stderr) =
        place.run("--places native --seconds 0.5 --image-size 16M --jobs depth32 --policies none,cint,auto");
    assert_eq!(status, Some(0), "{stderr}");
    let json = place.json();
    let job = &json["native"]["jobs"][0];
    let turns = job["turn"].as_str().unwrap();
    assert!(
        turns.contains("; auto had ") && turns.contains(" turns it had a licence") && !turns.contains("cint had"),
        "{turns}"
    );
    let blocks = job["blocks"].as_u64().unwrap() as usize;
    let points = |policy: &str| job["in_force"][policy].as_array().unwrap().clone();
    let looks = points("auto").len() - blocks;
    assert!(points("cint").len() == blocks && (30..=90).contains(&looks), "{looks} looks: more until it has a licence");
    assert!(number(&points("auto")[looks][0]) >= 1.08 && number(&points("cint")[0][0]) < 1.0, "seconds in force");
    place.assert_clean();
}

/// The policies whose interrupts per I/O are exact in a job of a run, natively, and how many they are.
fn exact_interrupts(run: &Value, job: &str) -> BTreeMap<String, f64> {
    let job = run["native"]["jobs"].as_array().unwrap().iter().find(|about| about["jobname"] == job).unwrap();
    let interrupts = &job["metrics"][0];
    assert_eq!(interrupts["name"], "interrupts/IO");
    let baseline = number(&interrupts["baseline"]);
    let others = interrupts["policies"].as_object().unwrap().iter();
    let others = others.filter(|(_, told)| told["exact"] == true);
    let mut counts: BTreeMap<_, _> =
        others.map(|(policy, told)| (policy.clone(), baseline * number(&told["ratio"]["median"]))).collect();
    if interrupts["exact"] == true {
        counts.insert("none".into(), baseline);
    }
    counts
}

#[test]
fn exact_counts_are_those_of_the_committed_run() {
    let committed =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../measurements/runs/1-demo.json")).unwrap();
    let committed = serde_json::from_str(&committed).unwrap();
    for (job, policies, labels) in [
        ("depth1", "none,vic,cint,auto", ["none", "none", "vic", "cint", "auto"].as_slice()),
        // Eight of 32 complete before 25 ms are over on any machine.
        ("depth32", "none,nvme:thr=7,time=25ms", &["none", "none", "nvme"]),
    ] {
        let place = Place::new();
        let (status, _, stderr) = place.run(&format!(
            "--places native --seconds 1 --turn 0.1 --image-size 16M --jobs {job} --policies {policies}"
        ));
        assert_eq!(status, Some(0), "{stderr}");
        let committed = exact_interrupts(&committed, job);
        for (_, nth, turn) in turns(&place.json()["native"], &[job], |_| labels.len()) {
            let policy = labels[nth];
            let count = committed.get(policy).unwrap_or_else(|| panic!("{job}, {policy}: not exact in {committed:?}"));
            // An interrupt at either end of the turn may be outside of it.
            let missing = count * number(&turn["completions"]) - number(&turn["interrupts"]);
            assert!(
                missing.abs() <= 2.0,
                "{job}, {policy}: {missing} interrupts of {count} per I/O are missing: {turn}"
            );
        }
        place.assert_clean();
    }
}

#[test]
fn the_first_line_says_what_is_wrong() {
    let place = Place::new();
    for (arguments, expected, part) in [
        ("--policies none,auto --frontier auto", 2, "auto is given twice"),
        ("--policies none,vix", 2, "unknown policy \"vix\""),
        ("--policies none,none", 2, "given twice"),
        ("--seconds 0", 2, "0.01 to 3600"),
        ("--places native,elsewhere", 2, "elsewhere"),
        ("--jobs depth1,depth2", 2, "depth2"),
        ("--long --seconds 1", 2, "cannot be used with"),
        ("--image-size 100M", 1, "at least 128M for a guest"),
        ("--image-size 1000", 1, "whole MiB"),
        ("--out /nonexistent/report.html", 1, "cannot write /nonexistent/report.html"),
        ("--plots /proc/plots", 1, "cannot make /proc/plots"),
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
fn a_missing_target_or_client_is_named() {
    let place = Place::new();
    symlink(&*TARGET, place.file("alone")).unwrap();
    for (target, missing) in [
        ("/nonexistent", "/nonexistent is missing: cargo build --release -p coalesce-target"),
        ("alone", "coalesce-bench is missing: cargo build --release -p coalesce-load"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-demo"));
        command.args(["--places", "native", "--target"]).arg(place.file(target)).current_dir(place.0.path());
        let (status, _, stderr) = outcome(&command.env("TMPDIR", place.temporary()).output().unwrap());
        assert_eq!(status, Some(1));
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains(missing), "{stderr}");
        place.assert_clean();
    }
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
    let mut command = place.command("--places native --seconds 3600 --policies none,auto --image-size 16M");
    let mut demo = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let completions = || {
        let sockets = fs::read_dir(place.temporary()).unwrap().map(|entry| entry.unwrap().path().join("control"));
        let stats =
            sockets.filter_map(|socket| control_client::request(&socket, "get_stats", &json!({})).ok()).next()?;
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
        assert_eq!(place.processes().len(), 2, "coalesce-target serve, and coalesce-bench");
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
    let mut command = place.command("--places guest --policies none");
    command.env("PATH", bin);
    command
}

#[test]
fn a_guest_that_cannot_run_is_skipped_loudly() {
    let place = Place::new();
    let (status, stdout, stderr) = outcome(&without_tools(&place).output().unwrap());
    assert_eq!(status, Some(0), "{stderr}");
    let notice = stdout.lines().find(|line| line.starts_with("SKIPPED: Linux guest, virtio-blk: ")).expect(&stdout);
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
    let (status, stdout, stderr) = place
        .run("--places guest,counted --seconds 0.5 --jobs depth1,mixed,sqlite --policies none,nvme:thr=7,time=20ms");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let json = place.json();
    assert_eq!(json["guest"]["notice"], Value::Null);
    for (job, nth, turn) in turns(&json["guest"], &["depth1", "mixed", "sqlite"], |_| 3) {
        assert_eq!(number(&turn["realtime"]) > 0.0, job == "mixed", "{job}: {turn}");
        assert_eq!(number(&turn["flushes"]) > 0.0, job == "sqlite", "{job}: {turn}");
        // What is sent before a turn may be taken in it, and the guest is asked a moment later than the disk.
        let (sent, taken) = (number(&turn["interrupts"]), number(&turn["taken"]));
        assert!(taken > 0.2 * sent && taken < 1.5 * sent + 50.0, "{job}: {turn}");
        // A synchronous reader has to wait for the whole of nvme's time, and for no time under none.
        let per_second = number(&turn["completions"]) / number(&turn["seconds"]);
        assert!(job != "depth1" || nth < 2 || per_second <= 55.0, "{turn}");
    }
    // Its emulator may be neither installed nor to be had.
    if json["counted"]["notice"].is_null() {
        for (_, nth, turn) in turns(&json["counted"], &["depth1"], |_| 3) {
            let (all, of_interrupts) = (number(&turn["instructions"]), number(&turn["interrupt_instructions"]));
            let interrupts = number(&turn["interrupts"]);
            assert!(of_interrupts > 100.0 * interrupts && of_interrupts < all, "variant {nth}: {turn}");
        }
    } else {
        assert!(json["counted"]["notice"].as_str().unwrap().starts_with("SKIPPED"), "{}", json["counted"]["notice"]);
    }
    assert_page(&fs::read_to_string(place.file("report.html")).unwrap());
    place.assert_clean();
}

#[test]
fn a_bare_metal_guest_says_what_it_takes() {
    let place = Place::new();
    let (status, stdout, stderr) = place
        .run("--places bare --seconds 0.5 --jobs depth1,depth32,mixed --policies none,nvme:thr=7,time=20ms --image-size 128M");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let json = place.json();
    // Its emulator may be neither installed nor to be had.
    if let Some(notice) = json["bare"]["notice"].as_str() {
        assert!(notice.starts_with("SKIPPED: Bare-metal guest, NVMe: "), "{notice}");
        let _ = writeln!(std::io::stderr(), "{notice}"); // not captured
        return;
    }
    for (job, nth, turn) in turns(&json["bare"], &["depth1", "depth32"], |_| 3) {
        let (sent, taken) = (number(&turn["interrupts"]), number(&turn["taken"]));
        assert!(taken > 0.0 && taken < 1.5 * sent + 50.0, "{job}, variant {nth}: {turn}");
    }
    assert!(stdout.contains("one at a time, in a bare-metal guest, NVMe"), "{stdout}");
    assert!(stdout.starts_with("On this machine, its guest bare metal under QEMU ("), "{stdout}");
    assert_page(&fs::read_to_string(place.file("report.html")).unwrap());
    place.assert_clean();
}
