//! `coalesce-compare` against two disks of ours.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

mod built;

static TARGET: LazyLock<PathBuf> = LazyLock::new(built::target);

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
    command.arg("--client").arg(&*TARGET).args(["--event-idx", "off", "--turn", "0.04", "--seconds", "0.3"]);
    command.args(["--depth", "8", "--queues", "1"]).args(arguments).output().unwrap()
}

#[test]
fn servers_are_compared_by_name() {
    let dir = TempDir::new().unwrap();
    let (none, eight) = (Disk::serve(&dir, "none"), Disk::serve(&dir, "nvme:thr=7,time=25500us"));
    let json = dir.path().join("json");
    let output = compare(&[&none.named("each"), &eight.named("eight"), "--json", json.to_str().unwrap()]);
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let firsts: Vec<_> = shown.lines().filter_map(|line| line.split("  ").next()).collect();
    assert!(firsts[1].starts_with("depth 8, 1 queue; "), "{shown}");
    assert_eq!(firsts[2..], ["server", "each", "each, again", "eight"], "{shown}");

    let json: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let row = &json["rows"][0];
    assert_eq!((row["depth"].as_u64(), row["queues"].as_u64()), (Some(8), Some(1)));
    for (server, (name, interrupts)) in [("each", 1.0), ("each", 1.0), ("eight", 0.125)].into_iter().enumerate() {
        let server = &row["blocks"][server];
        let of_turns = server["turns"].as_array().unwrap().iter().map(|turn| turn[5].as_f64().unwrap());
        assert_eq!(server["server"], name);
        assert!(
            of_turns.clone().all(|counted| (counted - interrupts).abs() < 0.01),
            "{name}: {:?}",
            of_turns.collect::<Vec<_>>()
        );
    }
}

#[test]
fn what_is_wrong_is_named() {
    let dir = TempDir::new().unwrap();
    let none = Disk::serve(&dir, "none");
    let gone = format!("gone={},{}", dir.path().join("nowhere").display(), none.0.id());
    let other = none.named("other");
    for (arguments, parts) in [
        ([none.named("one"), gone], ["gone", "nowhere"]),
        ([none.named("one"), "two=/socket".into()], ["two=/socket", "NAME=SOCKET,PID"]),
        ([other.clone(), "three=/socket,x".into()], ["three=/socket,x", "x is not a process number"]),
    ] {
        let output = compare(&[&arguments[0], &arguments[1]]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && parts.iter().all(|part| errors.contains(part)), "{arguments:?}: {errors}");
    }
}
