//! Threads of kind `trace`: recorded arrivals run through a simulated device.

use coalesce_sim::engine::{Wanted, simulate};
use coalesce_sim::event::{Event, What};
use coalesce_sim::outcome::Outcome;
use coalesce_sim::plan::{ARRIVALS_MAX, Plan};
use coalesce_sim::run::jobs;
use std::path::PathBuf;

/// A folder of its own for a test's files.
fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("recorded").join(test);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A plan beside a trace: the outcome, and when commands completed on each CPU.
fn run(test: &str, trace: &str, thread: &str, policy: &str) -> Result<(Outcome, Vec<Vec<u64>>), String> {
    let folder = folder(test);
    let plan = format!(
        "name = \"recorded\"\nduration = \"2s\"\npolicies = [\"{policy}\"]\n\
         [device]\nchannels = 8\nservice = {{ fixed = \"10us\" }}\n\
         [[threads]]\nname = \"disk\"\nkind = \"trace\"\ndepth = 64\ntrace = \"disk.trace\"\n{thread}\n"
    );
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    std::fs::write(folder.join("disk.trace"), trace).unwrap();
    let plan = Plan::read(&folder.join("plan.toml")).map_err(|error| error.to_string())?;
    let job = jobs(&plan).map_err(|wrong| wrong.to_string())?.remove(0);
    let run = simulate(&job.point, &job.contender, &Wanted { progress: None, timeline: Some((0, 100_000)) }).unwrap();
    let completions = |events: &Vec<Event>| {
        events
            .iter()
            .filter(|event| matches!(event.what, What::Completion { .. }))
            .map(|event| event.at)
            .collect::<Vec<_>>()
    };
    assert!(run.outcome.verdict.is_clean(), "{:?}", run.outcome.verdict);
    Ok((run.outcome, run.timelines.iter().map(completions).collect()))
}

/// µs between completions.
fn gaps(completions: &[u64]) -> Vec<u64> {
    completions.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).collect()
}

const SPC: &str = "0,8,512,r,5.000000\n1,8,512,w,5.001000\n0,16,512,r,5.003000\n2,16,512,r,5.006000\n";

#[test]
fn commands_arrive_when_they_did() {
    let (outcome, completions) = run("when", SPC, "", "none").unwrap();
    assert_eq!(gaps(&completions[0]), [1000, 2000, 3000]);
    assert!(completions[0][0] < 100_000, "the first arrives at the beginning: {}", completions[0][0]);
    assert_eq!((outcome.latency.count, outcome.threads[0].dropped), (4, 0));
}

#[test]
fn a_trace_may_be_faster_or_slower() {
    let (_, completions) = run("faster", SPC, "speed_up = \"2x\"", "none").unwrap();
    assert_eq!(gaps(&completions[0]), [500, 1000, 1500]);
    let (_, completions) = run("slower", SPC, "speed_up = \"0.5x\"", "none").unwrap();
    assert_eq!(gaps(&completions[0]), [2000, 4000, 6000]);
}

#[test]
fn a_window_is_a_part_of_the_trace() {
    let (_, completions) = run("from", SPC, "window = { from = \"1ms\" }", "none").unwrap();
    assert_eq!(gaps(&completions[0]), [2000, 3000]);
    assert!(completions[0][0] < 100_000, "the window begins at the beginning");
    let window = "window = { from = \"500us\", to = \"6ms\" }\nspeed_up = \"2x\"";
    let (_, completions) = run("from_to", SPC, window, "none").unwrap();
    assert_eq!(gaps(&completions[0]), [1000]);
    assert!((250_000..350_000).contains(&completions[0][0]), "{}", completions[0][0]);
}

/// Each of several threads takes some of the trace's disks.
#[test]
fn disks_are_shared_out_among_threads() {
    let (_, completions) = run("shared", SPC, "count = 2\nspread = true", "none").unwrap();
    assert_eq!(completions.iter().map(|of_cpu| gaps(of_cpu)).collect::<Vec<_>>(), [vec![3000, 3000], vec![]]);
    assert_eq!(completions[1].len(), 1);
}

/// Nobody knows when in its second a command of Tencent's arrived.
#[test]
fn times_in_seconds_are_spread_over_them() {
    let line = |second: u64| format!("153832320{second},12910952,128,0,1063\n");
    let text = [line(0), line(0), line(0), line(0), line(1), line(1)].concat();
    let (_, completions) = run("seconds", &text, "", "none").unwrap();
    assert_eq!(gaps(&completions[0]), [250_000, 250_000, 250_000, 250_000, 500_000]);
}

/// Also a trace that has completions: its own are forgotten.
#[test]
fn what_the_trace_says_of_a_command_reaches_the_policy() {
    let submit = |time: u64, id: u64, more: &str| {
        format!(
            "{{\"time_ns\":{time},\"event\":\"submit\",\"id\":{id}{more}}}\n{{\"time_ns\":{},\"event\":\"complete\",\"id\":{id}}}\n",
            time + 900_000
        )
    };
    let policy = "cint:ooo=off,in_flight=off,hints=flush+fua+ioprio";
    for (name, more, urgent) in [
        ("plain", "", 0),
        ("flush", ",\"op\":\"flush\"", 1),
        ("durable", ",\"op\":\"write\",\"durable\":true", 1),
        ("priority", ",\"ioprio\":8192", 1),
        ("hint", ",\"hint\":\"urgent\"", 1),
    ] {
        let text = submit(1_000_000, 1, "") + &submit(1_000_100, 2, more);
        let (outcome, _) = run(name, &text, "", policy).unwrap();
        assert_eq!(outcome.latency.count, 2, "{name}");
        assert_eq!(outcome.reasons.get("urgent").copied().unwrap_or(0), urgent, "{name}: {:?}", outcome.reasons);
    }
}

#[test]
fn a_trace_that_gives_nothing_is_an_error() {
    let refused = |test: &str, trace: &str, thread: &str| run(test, trace, thread, "none").unwrap_err();
    let late = refused("late", SPC, "window = { from = \"7ms\" }");
    assert!(
        late.starts_with("threads.0.trace: ") && late.contains("nothing arrives from 7ms on, in 4 lines"),
        "{late}"
    );
    let malformed = refused("malformed", &SPC.replace("1,8,512,w", "1,8,512,x"), "");
    assert!(malformed.contains("disk.trace: line 2: opcode is \"x\"; allowed: R, r, W, w"), "{malformed}");
    let nothing = refused("nothing", "hello\n", "");
    assert!(
        nothing.contains("disk.trace: line 1: of no format that is known (a plan takes it from the first line)"),
        "{nothing}"
    );
    for refused in [malformed, nothing] {
        assert!(refused.ends_with("; a plan skips no lines: remove it from the trace"), "{refused}");
        assert!(!refused.contains("--"), "run has no such option: {refused}");
    }
    let iostat = refused("iostat", "avg-cpu:  %user\n", "");
    assert!(iostat.contains("disk.trace: line 1: it is of iostat"), "{iostat}");
    let plan = "name = \"x\"\nduration = \"1s\"\npolicies = [\"none\"]\ndevice = { preset = \"p3700\" }\n\
                threads = [{ name = \"x\", kind = \"trace\", depth = 1, trace = \"/no/such.trace\" }]\n";
    let missing = jobs(&Plan::parse("plan.toml", plan).unwrap()).unwrap_err().to_string();
    assert!(missing.starts_with("threads.0.trace: trace /no/such.trace: "), "{missing}");
}

/// A file of that name is one.
#[test]
fn a_dash_is_a_file_if_its_folder_is_named() {
    let folder = folder("dash");
    std::fs::write(folder.join("-"), SPC).unwrap();
    let plan = "name = \"x\"\nduration = \"1s\"\npolicies = [\"none\"]\ndevice = { preset = \"p3700\" }\n\
                threads = [{ name = \"x\", kind = \"trace\", depth = 9, trace = \"./-\" }]\n";
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    assert!(jobs(&Plan::read(&folder.join("plan.toml")).unwrap()).is_ok());
}

/// They are kept in memory. What comes after the plan's end is not read.
#[test]
fn arrivals_are_bounded() {
    let mut text = "0,8,512,r,1.0\n".repeat(ARRIVALS_MAX);
    let (outcome, _) = run("bounded", &(text.clone() + "0,8,512,r,3.0\n"), "", "none").unwrap();
    assert_eq!(outcome.threads[0].dropped, ARRIVALS_MAX as u64 - 65_536);
    text += "0,8,512,r,2.0\n";
    let refused = run("unbounded", &text, "", "none").unwrap_err();
    assert!(refused.contains("more than 1048576 arrivals in the window"), "{refused}");
}

/// The last key varies fastest: the trace.
#[test]
fn a_sweep_may_vary_the_trace() {
    let folder = folder("sweep");
    std::fs::write(folder.join("a.spc"), SPC).unwrap();
    std::fs::write(folder.join("b.spc"), &SPC[..SPC.len() / 2]).unwrap();
    let plan = "name = \"x\"\nduration = \"1s\"\npolicies = [\"none\"]\ndevice = { preset = \"p3700\" }\n\
                threads = [{ name = \"x\", kind = \"trace\", depth = 9, trace = \"none\" }]\n\
                [sweep]\n\"threads.x.trace\" = [\"a.spc\", \"b.spc\"]\n\"threads.x.speed_up\" = [\"1x\", \"3x\"]\n";
    std::fs::write(folder.join("plan.toml"), plan).unwrap();
    let outcomes = coalesce_sim::run::run(&Plan::read(&folder.join("plan.toml")).unwrap()).unwrap();
    assert_eq!(outcomes.iter().map(|outcome| outcome.latency.count).collect::<Vec<_>>(), [4, 2, 4, 2]);
}
