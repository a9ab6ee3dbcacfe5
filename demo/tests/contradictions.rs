//! `measurements/contradictions.jq`, which keeps runs that contradict each other out of docs/results.md.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// A run in which `auto` has this ratio, with this verdict, in this regime.
fn run(ratio: f64, verdict: &str, regime: &str, policy: &str) -> Value {
    json!({
        "machine": { "date": "2026-11-24" },
        "baseline": "none",
        "policies": [{ "label": "none", "policy": "none" }, { "label": "auto", "policy": policy }],
        "native": { "jobs": [{
            "jobname": "depth32",
            "regime": { "name": regime },
            "metrics": [{ "name": "reads/s", "policies": { "auto": { "verdict": verdict, "ratio": { "median": ratio } } } }],
        }] },
    })
}

/// What is printed of these runs; none: there is no jq.
fn contradictions(runs: &[Value]) -> Option<Vec<String>> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../measurements/contradictions.jq");
    let mut jq = Command::new("jq");
    jq.args(["--slurp", "--raw-output", "--from-file", program]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(jq) = jq.spawn() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: contradictions between runs: no jq"); // not captured
        return None;
    };
    for run in runs {
        writeln!(jq.stdin.as_ref().unwrap(), "{run}").unwrap();
    }
    let output = jq.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn opposite_verdicts_of_one_regime_are_told_from_those_of_two() {
    let (awake, sleeps) = ("CPUs free, client awake", "CPUs contended, client sleeps");
    let less = run(0.9, "differs", awake, "auto");
    for (other, expected) in [
        (run(1.1, "differs", awake, "auto"), "SAME native, depth32, reads/s of auto: -10 % ("),
        (
            run(1.1, "differs", sleeps, "auto"),
            "ACROSS native, depth32, reads/s of auto: -10 % (CPUs free, client awake",
        ),
        (run(0.5, "differs", awake, "auto"), ""),
        (run(1.1, "cannot tell", awake, "auto"), ""),
        (run(1.1, "differs", awake, "auto:budget=2%"), ""),
    ] {
        let Some(lines) = contradictions(&[less.clone(), other.clone()]) else { return };
        assert_eq!(lines.len(), usize::from(!expected.is_empty()), "{other}: {lines:?}");
        assert!(lines.iter().all(|line| line.starts_with(expected)), "{other}: {lines:?}");
    }
    let explored = |mut run: Value, is_claim: bool| {
        run["statistics"] = json!({ "claims": 10 });
        run["native"]["jobs"][0]["metrics"][0]["claim"] = json!(is_claim);
        run
    };
    for (is_claim, expected) in [(true, 1), (false, 0)] {
        let runs = [less.clone(), explored(run(1.1, "differs", awake, "auto"), is_claim)];
        assert_eq!(contradictions(&runs).unwrap().len(), expected, "a number that is explored contradicts nothing");
    }
    let timer = |ratio: f64| {
        let mut run = explored(run(ratio, "differs", awake, "nvme"), true);
        run["policies"][1]["label"] = json!("nvme");
        let policies = &mut run["native"]["jobs"][0]["metrics"][0]["policies"];
        *policies = json!({ "nvme": policies["auto"] });
        run
    };
    let lines = contradictions(&[timer(0.9), timer(1.1)]).unwrap();
    assert!(lines.len() == 1 && lines[0].starts_with("ACROSS"), "only of auto something is claimed: {lines:?}");
    let mut unknown = [less, run(1.1, "differs", awake, "auto")];
    for run in &mut unknown {
        run["native"]["jobs"][0]["regime"] = Value::Null;
    }
    let lines = contradictions(&unknown).unwrap();
    assert!(lines[0].starts_with("ACROSS"), "{lines:?}");
}
