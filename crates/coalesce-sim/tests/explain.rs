//! `coalesce-sim explain`, as it is called.

use serde_json::Value;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
        .arg("explain")
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = explain(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(arguments: &[&str]) -> String {
    let output = explain(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

const TRACE: &str = "crates/coalesce-sim/tests/traces/nvme.jsonl";
const DEVICES: &str = "crates/coalesce-sim/tests/traces/guest-two-devices.blkparse";

fn json(arguments: &[&str]) -> Vec<Value> {
    stdout(&[arguments, &["--json"]].concat()).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn replayed(trace: &str, policy: &str) -> Value {
    let replay = Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
        .args(["replay", trace, "--json", "--policy", policy])
        .current_dir(root())
        .output()
        .unwrap();
    serde_json::from_slice::<Value>(&replay.stdout).unwrap()["policies"][0].take()
}

#[test]
fn the_documentation_shows_what_is_printed() {
    let page = std::fs::read_to_string(root().join("docs/traces.md")).unwrap();
    let command = page.lines().find_map(|line| line.strip_prefix("    $ coalesce-sim explain ")).unwrap();
    let arguments: Vec<_> = command.split(' ').collect();
    let capture: String = stdout(&arguments)
        .lines()
        .map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") })
        .collect();
    assert!(page.contains(&format!("    $ coalesce-sim explain {command}\n{capture}")), "{capture}");
}

#[test]
fn every_decision_is_explained_and_their_numbers_are_those_of_the_replay() {
    for policy in ["none", "nvme", "dim", "vic:cif_threshold=2,epoch=1ms", "cint:ooo=on", "batch", "auto"] {
        let decisions = json(&[TRACE, "--policy", policy]);
        let replay = replayed(TRACE, policy);
        let count = |is: &dyn Fn(&Value) -> bool| decisions.iter().filter(|decision| is(decision)).count() as u64;
        assert_eq!(count(&|one| one["event"] == "complete"), 392, "{policy}");
        assert_eq!(Some(count(&|one| one["decision"] != "hold")), replay["interrupts"].as_u64(), "{policy}");
        let covered: u64 = decisions.iter().map(|one| one["covers"].as_u64().unwrap()).sum();
        assert_eq!(covered, 392, "{policy}");
        for (reason, held) in replay["held"].as_object().unwrap() {
            let told = count(&|one| one["decision"] == "hold" && one["reason"] == *reason);
            assert_eq!(Some(told), held.as_u64(), "{policy} {reason}");
        }
        for pair in decisions.windows(2) {
            assert!(pair[0]["time_ns"].as_u64() <= pair[1]["time_ns"].as_u64(), "{policy}");
        }
    }
}

/// The longest of all is the one of the replay.
#[test]
fn the_longest_hold_of_each_interrupt_is_told() {
    for policy in ["none", "nvme", "cint:ooo=on", "batch", "auto"] {
        let decisions = json(&[TRACE, "--policy", policy]);
        let is_hold = |one: &Value| one["decision"] == "hold";
        assert!(decisions.iter().all(|one| one["held_ns"].is_null() == is_hold(one)), "{policy}");
        let longest = decisions.iter().filter_map(|one| one["held_ns"].as_u64()).max().unwrap();
        // The histogram has three digits.
        let worst = replayed(TRACE, policy)["delay_ns"]["max"].as_u64().unwrap();
        assert!((longest..=longest + longest / 500).contains(&worst), "{policy}: {longest} of {worst}");
        // A hold that began before the stretch is as long as it is.
        let late = decisions.iter().find(|one| one["held_ns"].as_u64() == Some(longest)).unwrap();
        let at = format!("{}ns", late["time_ns"].as_u64().unwrap() - 1000); // the trace begins at 1000
        assert!(json(&[TRACE, "--policy", policy, "--at", &at, "--for", "1ms"]).contains(late), "{policy}: {late}");
    }
}

/// The end of a poll has no time of the trace's clock.
#[test]
fn what_waits_for_the_end_of_a_poll_has_no_deadline() {
    let line = |at: u64, event, id: u64| format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{id}}}\n");
    let lines = [line(1, "submit", 1), line(2, "submit", 2), line(9, "complete", 1), line(9, "complete", 2)];
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("one_poll.jsonl");
    std::fs::write(&path, lines.concat()).unwrap();
    let decisions = json(&[path.to_str().unwrap(), "--policy", "batch"]);
    assert!(decisions.iter().any(|one| one["held"] == 1), "{decisions:?}");
    assert!(decisions.iter().all(|one| one["deadline_ns"].is_null()), "{decisions:?}");
    for one in json(&[TRACE, "--policy", "cint"]).iter().filter(|one| one["decision"] == "hold") {
        assert!(one["deadline_ns"].as_u64() > one["time_ns"].as_u64(), "{one}");
    }
}

/// What is submitted is decided by nobody.
#[test]
fn a_stretch_without_decisions_says_so() {
    let submitted = [TRACE, "--for", "1ns"];
    assert_eq!(stdout(&submitted), "nothing is decided on queue 0 from 0s on, for 1ns\n");
    assert_eq!(json(&submitted), [Value::Null; 0]);
}

/// A stretch is a part of the whole: the policy has seen what came before.
#[test]
fn a_stretch_is_cut_out_of_the_whole() {
    let whole = json(&[TRACE]);
    let begin = 1000; // the trace's first event
    // The third ends while something is held, and the fourth between two completions.
    for (at, length) in [(0, 3_000_000), (500_000, 400_000), (103_000, 1000), (92_000, 2000)] {
        let stretch = json(&[TRACE, "--at", &format!("{at}ns"), "--for", &format!("{length}ns")]);
        let is_inside = |one: &&Value| (begin + at..begin + at + length).contains(&one["time_ns"].as_u64().unwrap());
        let part: Vec<_> = whole.iter().filter(is_inside).cloned().collect();
        assert!(!part.is_empty());
        assert_eq!(stretch, part);
    }
}

#[test]
fn another_queue_is_named_and_chosen() {
    let text = stdout(&[DEVICES]);
    let (_, names) = text.trim_end().rsplit_once("other queues so far, for --queue: ").unwrap();
    let name = names.split(", ").next().unwrap();
    let other = stdout(&[DEVICES, "--queue", name, "--policy", "cint"]);
    assert!(other.contains(&format!("\ncint on queue {name}: interrupts ")), "{other}");
    let error = stderr(&[DEVICES, "--queue", "sda"]);
    assert!(error.contains("nothing happens on queue \"sda\"") && error.contains(name), "{error}");
}

#[test]
fn an_empty_stretch_says_how_long_the_trace_is() {
    let error = stderr(&[TRACE, "--at", "1s"]);
    assert!(error.contains(TRACE) && error.contains("the trace is 2236512ns long"), "{error}");
    assert!(stderr(&["/nowhere"]).contains("/nowhere"));
    assert!(stderr(&[TRACE, "--at", "5"]).contains("no unit"));
}

/// As `head` and a pager do.
#[test]
fn a_reader_may_leave() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
        .args(["explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    std::io::copy(&mut std::fs::File::open(root().join(TRACE)).unwrap(), &mut input).unwrap();
    drop(input);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{errors}");
}
