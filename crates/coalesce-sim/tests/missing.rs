//! Completions that a trace has lost: their commands do not stay in flight, and what cannot be known is not answered.

use coalesce_sim::contender::Contender;
use coalesce_sim::replay::{Replay, replay};
use coalesce_sim::trace::{Moment, Options, Step, Trace};
use serde_json::Value;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A requester that keeps commands in flight, `depth` of them: `line` prints an event at a time in ns about a number, a
/// completion or not, and every `lost`th completion is missing. What is submitted for it is there.
fn closed_loop(depth: usize, commands: u64, lost: u64, line: impl Fn(u64, usize, u64, bool) -> String) -> String {
    let mut random = 1u64;
    let mut service = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        15_000 + (random >> 33) % 10_000
    };
    let mut text = String::new();
    let mut ends: Vec<(u64, u64)> = Vec::new(); // by number: when it completes, and which of all commands it is
    for nth in 0..depth as u64 {
        text += &line(1000 + nth, nth as usize, nth, false);
        ends.push((1000 + nth + service(), nth));
    }
    for nth in depth as u64..commands {
        let number = (0..depth).min_by_key(|&number| ends[number]).unwrap();
        let (at, which) = ends[number];
        if lost == 0 || which % lost != lost / 2 {
            text += &line(at, number, which, true);
        }
        text += &line(at + 300, number, nth, false);
        ends[number] = (at + 300 + service(), nth);
    }
    let mut last: Vec<_> = (0..depth).map(|number| (ends[number].0, number, ends[number].1)).collect();
    last.sort_unstable();
    text + &last.iter().map(|&(at, number, nth)| line(at, number, nth, true)).collect::<String>()
}

fn json(at: u64, number: usize, is_completion: bool) -> String {
    let event = if is_completion { "complete" } else { "submit" };
    format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{number}}}\n")
}

/// A loop whose commands have the loop's numbers, so that those of lost completions are submitted again.
fn numbered(lost: u64) -> String {
    closed_loop(16, 30_000, lost, |at, number, _, is_completion| json(at, number, is_completion))
}

/// As blkparse prints it: a command is known by its sector, which is another each time.
fn of_sectors(lost: u64) -> String {
    closed_loop(16, 30_000, lost, |at, _, nth, is_completion| {
        let (action, tail) = if is_completion { ("C", "[0]") } else { ("D", "[x]") };
        let (seconds, ns) = (at / 1_000_000_000, at % 1_000_000_000);
        format!("8,0 1 1 {seconds}.{ns:09} 1 {action} R {} + 8 {tail}\n", nth * 8)
    })
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn sim(arguments: &[&str], trace: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_coalesce-sim")).args(arguments).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn replayed(name: &str, text: &str) -> Value {
    serde_json::from_str(&sim(&["replay", "--json", "--policy=none", "--policy=auto"], &file(name, text))).unwrap()
}

fn read(text: &str) -> Trace {
    Trace::new(Box::new(Cursor::new(text.to_owned().into_bytes())), Options::default())
}

fn steps(text: &str) -> Vec<Step> {
    let mut trace = read(text);
    std::iter::from_fn(|| trace.step().unwrap()).collect()
}

fn run(text: &str, policies: &[&str]) -> Replay {
    let contenders: Vec<Contender> = policies.iter().map(|text| text.parse().unwrap()).collect();
    replay(&mut read(text), &contenders, None).unwrap()
}

/// One command at a time; the completion of the first is missing.
const ALONE: &str = r#"{"time_ns":1000,"event":"submit","id":1}
{"time_ns":20000,"event":"submit","id":1}
{"time_ns":30000,"event":"complete","id":1}
{"time_ns":40000,"event":"submit","id":1}
{"time_ns":50000,"event":"complete","id":1}
{"time_ns":60000,"event":"submit","id":1}
{"time_ns":70000,"event":"complete","id":1}
"#;

#[test]
fn a_command_whose_number_is_submitted_again_is_no_longer_in_flight() {
    let explained = sim(&["explain", "--json", "--policy=none"], &file("alone.jsonl", ALONE));
    let cif: Vec<_> =
        explained.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["cif"].as_u64().unwrap()).collect();
    assert_eq!(cif, [1, 1, 1]);

    let steps = steps(ALONE);
    let lost: Vec<_> = steps.iter().filter(|step| step.what == Moment::Lost).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0].at, lost[0].slot, lost[0].queue), (20_000, steps[0].slot, 0));
    let replay = run(ALONE, &["none", "auto"]);
    assert_eq!((replay.in_flight_time, replay.missing_time), (30_000, 19_000));
}

/// It may be in the middle of a batch, which it does not end.
#[test]
fn what_is_submitted_together_stays_together() {
    let at = |time: u64, id| json(time, id, false);
    let text = at(1000, 2) + &at(5000, 1) + &at(5000, 2) + &at(5000, 3) + &at(6000, 3) + &at(6000, 4);
    let batches: Vec<_> = steps(&text)
        .iter()
        .map(|step| match step.what {
            Moment::Submit { batch_len, last_of_batch, .. } => (batch_len, last_of_batch),
            _ => (0, false),
        })
        .collect();
    let expected = [(1, true), (3, false), (0, false), (3, false), (3, true), (0, false), (2, false), (2, true)];
    assert_eq!(batches, expected);
}

/// No rule is broken by it, whatever a policy tracks, and no interrupt is made of it.
#[test]
fn few_lost_completions_change_little() {
    let (clean, lossy) = (replayed("clean.jsonl", &numbered(0)), replayed("lost1.jsonl", &numbered(100)));
    let verdict = |replay: &Value| replay["answer"].as_str().unwrap().split(':').next().unwrap().to_owned();
    assert_eq!(verdict(&lossy), verdict(&clean));
    let [clean, lossy] = [&clean, &lossy].map(|replay| {
        let auto = &replay["policies"][1];
        assert_eq!((auto["late"].as_u64(), auto["wrong"].as_u64()), (Some(0), Some(0)));
        ["interrupts_per_io", "held_share"].map(|member| auto[member].as_f64().unwrap())
    });
    assert!((lossy[0] - clean[0]).abs() < 0.03 && (lossy[1] - clean[1]).abs() < 0.01, "{clean:?} {lossy:?}");

    let policies = ["none", "nvme", "vic", "cint", "cint:barrier=strict,hints=all", "auto:barrier=strict", "budget"];
    let [clean, lossy] = [numbered(0), numbered(100)].map(|text| run(&text, &policies).outcomes);
    for (clean, lossy) in clean.iter().zip(&lossy) {
        assert!(lossy.verdict.is_clean(), "{}: {:?}", lossy.contender, lossy.verdict);
        let over = lossy.interrupts_per_io() / clean.interrupts_per_io();
        assert!((0.95..1.05).contains(&over), "{}: {over}", lossy.contender);
    }
}

/// Where nothing shows that a command has completed, it is in flight until the end.
#[test]
fn where_most_of_what_is_in_flight_never_completes_there_is_no_answer() {
    let clean = replayed("clean.blkparse", &of_sectors(0));
    assert_eq!(clean["missing_time_ns"], 0);
    assert!(!clean["answer"].as_str().unwrap().starts_with("No answer"));

    let lossy = replayed("lost1.blkparse", &of_sectors(100));
    let answer = lossy["answer"].as_str().unwrap();
    assert!(answer.starts_with("No answer: the completions of 300 commands are missing"), "{answer}");
    assert!(!answer.contains("Worth it"));

    let one = replayed("one.blkparse", &of_sectors(30_001));
    assert_eq!(one["trace"]["in_flight_end"], 1);
    assert!(!one["answer"].as_str().unwrap().starts_with("No answer"), "one of 16 for half of the time");
}
