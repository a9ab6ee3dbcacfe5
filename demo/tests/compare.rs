//! `coalesce-compare` against two disks of ours.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "../../crates/coalesce-target/tests/built/mod.rs"]
mod built;

static TARGET: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-target"));
static BENCH: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-bench"));

struct Disk(Child, PathBuf);

impl Disk {
    fn serve(dir: &TempDir, policy: &str) -> Self {
        let socket = dir.path().join(policy.split(':').next().unwrap());
        let mut serve = Command::new(&*TARGET);
        serve.args(["serve", "--memory", "1M", "--policy", policy, "--socket"]).arg(&socket).stderr(Stdio::null());
        let disk = Self(serve.spawn().unwrap(), socket);
        while !disk.1.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        disk
    }

    fn named(&self, name: &str) -> String {
        format!("{name}={},{}", self.1.display(), self.0.id())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compare(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-compare"));
    command.arg("--client").arg(&*BENCH).args(["--event-idx", "off", "--turn", "0.04", "--seconds", "0.3"]);
    command.args(["--depth", "8", "--queues", "1"]).args(arguments).output().unwrap()
}

#[test]
fn servers_are_compared_by_name() {
    let dir = TempDir::new().unwrap();
    let (none, eight) = (Disk::serve(&dir, "none"), Disk::serve(&dir, "nvme:thr=7,time=25500us"));
    let json = dir.path().join("json");
    let output =
        compare(&[&none.named("each"), &eight.named("eight"), "--json", json.to_str().unwrap(), "--note", "kind=a=b"]);
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let firsts: Vec<_> = shown.lines().filter_map(|line| line.split("  ").next()).collect();
    assert!(firsts[1].starts_with("depth 8, 1 queue; "), "{shown}");
    assert_eq!(firsts[2..], ["server", "each", "each, again", "eight"], "{shown}");

    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!((&json["notes"], &json["servers"]), (&json!({ "kind": "a=b" }), &json!(["each", "eight"])));
    let row = &json["rows"][0];
    assert_eq!((row["depth"].as_u64(), row["queues"].as_u64()), (Some(8), Some(1)));
    let interrupts = &row["metrics"][5];
    assert_eq!((&interrupts["name"], interrupts["baseline"].as_f64()), (&json!("interrupts/IO"), Some(1.0)));
    assert!(interrupts["servers"]["eight"]["verdict"].is_string(), "{interrupts}");
    let turns = row["turns"].as_array().unwrap();
    assert_eq!(Some(turns.len() as u64), row["blocks"].as_u64());
    for (variant, interrupts) in [1.0, 1.0, 0.125].into_iter().enumerate() {
        let of_turns: Vec<_> = turns.iter().map(|block| block[variant][5].as_f64().unwrap()).collect();
        assert!(of_turns.iter().all(|counted| (counted - interrupts).abs() < 0.01), "{variant}: {of_turns:?}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let dir = TempDir::new().unwrap();
    let none = Disk::serve(&dir, "none");
    let gone = format!("gone={},{}", dir.path().join("nowhere").display(), none.0.id());
    let other = none.named("other");
    let noted = ["--note".into(), "kind".into()];
    for (arguments, parts) in [
        (noted, ["kind", "KEY=VALUE"]),
        ([none.named("one"), gone], ["gone", "nowhere"]),
        ([none.named("one"), "two=/socket".into()], ["two=/socket", "NAME=SOCKET,PID"]),
        ([other.clone(), "three=/socket,x".into()], ["three=/socket,x", "x is not a process number"]),
    ] {
        let output = compare(&[&arguments[0], &arguments[1]]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && parts.iter().all(|part| errors.contains(part)), "{arguments:?}: {errors}");
    }
}
