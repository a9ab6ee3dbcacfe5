//! Replay: every format is read right, what is wrong with a trace is said, and policies do what they must with it.

mod reading;

use coalesce_sim::contender::Contender;
use coalesce_sim::replay::{Replay, replay};
use coalesce_sim::trace::{Counts, Format, Moment, Options, Trace};
use reading::{counts, error, of_text, path, steps};

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap()
}

const LENIENT: Options = Options { format: None, lenient: true, per_cpu: false };

fn contenders(texts: &[&str]) -> Vec<Contender> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn run(text: &str, policies: &[&str]) -> Replay {
    replay(&mut of_text(text, Options::default()), &contenders(policies), None).unwrap()
}

/// What `coalesce-sim replay` says of a file with this text.
fn replayed(name: &str, text: &str) -> serde_json::Value {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_coalesce-sim"));
    let output = command.args(["replay", "--json", "--policy=none", "--policy=auto"]).arg(path).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

const ALL: [&str; 8] = ["none", "nvme", "batch", "spdk_vhost", "dim", "vic", "cint", "auto"];

/// The same commands in three formats that have all of it: every policy does the same.
#[test]
fn formats_with_exact_times_agree() {
    let summary = |name: &str| {
        let replay = run(&text(name), &ALL);
        let of = |outcome: &coalesce_sim::replay::Outcome| {
            (
                outcome.interrupts,
                outcome.completions,
                outcome.delay.max(),
                outcome.latency.max(),
                outcome.delay.mean().to_bits(),
            )
        };
        (replay.span, replay.outcomes.iter().map(of).collect::<Vec<_>>())
    };
    let expected = summary("nvme.jsonl");
    assert_eq!(expected.1[0].0, 392);
    for name in ["nvme.blkparse", "nvme_clat.log"] {
        assert_eq!(summary(name), expected, "{name}");
    }
}

#[test]
fn each_format_is_recognised_and_counted() {
    for (name, format, lines, completions, other, in_flight_max) in [
        ("nvme.blkparse", Format::Blkparse, 1181, 392, 395, 16),
        ("nvme.biosnoop", Format::Biosnoop, 393, 392, 1, 16),
        ("libbpf.biosnoop", Format::Biosnoop, 81, 80, 1, 14),
        ("bpftrace.biosnoop", Format::Biosnoop, 43, 40, 2, 1),
        ("nvme_clat.log", Format::Fio, 392, 392, 0, 16),
        ("fio-3.33_clat.log", Format::Fio, 40, 40, 0, 32),
        ("nvme.jsonl", Format::Json, 784, 392, 0, 16),
    ] {
        let mut trace = Trace::open(&path(name), Options::default()).unwrap();
        let steps = steps(&mut trace);
        assert!(steps.is_sorted_by_key(|step| step.at), "{name}");
        assert_eq!(trace.format(), Some(format), "{name}");
        let expected =
            Counts { lines, other, submissions: completions, completions, in_flight_max, ..Counts::default() };
        assert_eq!(trace.counts(), expected, "{name}");
    }
}

/// What the tools wrote in a Linux guest that ran fio on virtio-blk disks, one of them beside an NVMe disk.
#[test]
fn captures_of_a_guest_are_read_whole() {
    let field = |line: &str, index: usize| line.split_whitespace().nth(index).unwrap_or_default().to_owned();
    let is_issued = |line: &&str| field(line, 5) == "D";
    let is_completed = |line: &&str| field(line, 5) == "C";
    for (name, format, queues) in [
        ("guest-virtio.blkparse", Format::Blkparse, 1),
        ("guest-two-devices.blkparse", Format::Blkparse, 2),
        ("guest-libbpf.biosnoop", Format::Biosnoop, 1),
        ("guest-libbpf-queued.biosnoop", Format::Biosnoop, 1),
        ("guest-bpftrace.biosnoop", Format::Biosnoop, 2),
        ("guest_clat.1.log", Format::Fio, 1),
        ("host_clat.1.log", Format::Fio, 1),
    ] {
        let text = text(name);
        let begins_with_number = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let data = text.lines().filter(begins_with_number);
        let [submissions, completions] = match format {
            Format::Blkparse => [data.clone().filter(is_issued).count(), data.filter(is_completed).count()],
            _ => [data.count(); 2],
        };
        let mut trace = of_text(&text, Options::default());
        let found: std::collections::BTreeSet<_> = steps(&mut trace).iter().map(|step| step.queue).collect();
        let counts = trace.counts();
        assert_eq!((trace.format(), found.len()), (Some(format), queues), "{name}");
        assert_eq!([counts.submissions, counts.completions], [submissions as u64, completions as u64], "{name}");
        assert_eq!((counts.lines, counts.malformed, counts.cut), (text.lines().count() as u64, 0, 0), "{name}");
        assert_eq!([counts.unmatched, counts.late, counts.resubmitted], [0; 3], "{name}");
    }
    let refused = error(&text("guest_slat.1.log"));
    assert!(refused.contains("it is of a slat or lat log; replay the clat log"), "under another name: {refused}");
    let refused = Trace::open(&path("guest_slat.1.log"), Options::default()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("slat is the time that fio takes to submit; replay the clat log"), "{refused}");
}

#[test]
fn coarse_times_are_known() {
    for (name, resolution) in [
        ("nvme.blkparse", 1),
        ("nvme.biosnoop", 1000),
        ("bpftrace.biosnoop", 1_000_000),
        ("fio-3.33_clat.log", 1_000_000),
        ("nvme_clat.log", 1),
    ] {
        let mut trace = Trace::open(&path(name), Options::default()).unwrap();
        steps(&mut trace);
        assert_eq!(trace.resolution(), resolution, "{name}");
    }
}

/// What completes in one ms looks simultaneous, and one interrupt for all of it is worth nothing that could be had.
#[test]
fn times_in_ms_are_no_reason_for_an_answer() {
    let answer = |name: &str, text: &str| {
        let said = replayed(name, text);
        assert!(said["notes"].to_string().contains("too coarse"), "{said}");
        said["answer"].as_str().unwrap().to_owned()
    };
    let lines = |nth: u64| format!("{}, {}, 0, 4096, {}, 0\n", nth / 4, 500_000 + nth, nth * 4096);
    let fio = answer("coarse_clat.log", &(0..2000).map(lines).collect::<String>());
    assert!(fio.starts_with("No answer: times are in ms") && fio.contains("log_issue_time=1"), "{fio}");
    let bpftrace = answer("coarse.biosnoop", &text("bpftrace.biosnoop"));
    assert!(bpftrace.starts_with("No answer: times are in ms") && bpftrace.contains("perf script --ns"), "{bpftrace}");
}

/// Two recordings in one file: each is in order, and what comes of both is no load that there was.
#[test]
fn a_clock_that_begins_again_is_no_reason_for_an_answer() {
    let line = |nth: u64, at: u64, what: &str| {
        let (s, ns, sector) = (at / 1_000_000_000, at % 1_000_000_000, nth / 2 * 8);
        let (what, by) = what.split_at(1);
        format!("259,0 1 {nth} {s}.{ns:09} 100 {what} R {sector} + 8 [{by}]\n")
    };
    let half = |nth: u64| [line(2 * nth, 1_000 * nth, "Dfio"), line(2 * nth + 1, 1_000 * nth + 500, "C0")].concat();
    let once: String = (0..20_000).map(half).collect();
    assert!(!replayed("once.blkparse", &once)["answer"].as_str().unwrap().starts_with("No answer"));
    let twice = replayed("twice.blkparse", &[&*once, &once].concat());
    let answer = twice["answer"].as_str().unwrap();
    assert!(answer.starts_with("No answer: ") && answer.contains("replay each by itself"), "{answer}");
}

/// fio's clock begins with its job, and the time of a line is cut to ms.
#[test]
fn the_first_commands_of_a_log_in_ms_have_their_latency() {
    let text: String = (0..2000).map(|nth| format!("{}, {}, 0, 4096, 0, 0\n", nth / 40, 500_000 + nth)).collect();
    let replay = run(&text, &["none"]);
    assert_eq!(replay.in_flight_time, 2000 * 500_000 + 1999 * 1000);
}

#[test]
fn what_is_cut_or_requeued_is_said() {
    let line = |time: u64, event: &str| format!("{{\"time_ns\":{time},\"event\":\"{event}\",\"id\":1}}\n");
    let notes = |name: &str, text: &str| replayed(name, text)["notes"].to_string();
    let [short, long] = [100_000_000_000, 100_000_000_001].map(|ns| line(0, "submit") + &line(ns, "complete"));
    assert_eq!(notes("short.jsonl", &short), "[]");
    let expected = "commands in flight for more than 100 s, which count as 100 s in latencies: 1";
    assert_eq!(notes("long.jsonl", &long), format!("[\"{expected}\"]"));
    let requeued = ["0.1 1 D R 8 + 8 [x]", "0.2 1 R R 8 + 8 [0]", "0.3 1 D R 8 + 8 [x]", "0.4 1 C R 8 + 8 [0]"];
    let requeued: String = requeued.iter().map(|line| format!("8,0 0 1 {line}\n")).collect();
    assert_eq!(notes("requeued.blkparse", &requeued), "[\"commands requeued, in flight until they complete: 1\"]");
}

/// What `coalesce-target --record` wrote. It was cut off.
#[test]
fn a_record_of_the_target_is_read() {
    let expected = Counts {
        lines: 160,
        other: 0,
        submissions: 84,
        completions: 76,
        interrupts: 45,
        in_flight_max: 8,
        in_flight_end: 8,
        ..Counts::default()
    };
    assert_eq!(counts(&text("recorded.jsonl")), expected);
    let batches = steps(&mut Trace::open(&path("recorded.jsonl"), Options::default()).unwrap());
    assert!(batches.iter().any(|step| matches!(step.what, Moment::Submit { batch_len: 8, last_of_batch: true, .. })));
}

/// With neither hints nor limits, cint interrupts once for each gap that is longer than Δ, and at the end.
#[test]
fn bursts_are_those_between_long_gaps() {
    let mut trace = Trace::open(&path("nvme.jsonl"), Options::default()).unwrap();
    let ends: Vec<_> = steps(&mut trace)
        .iter()
        .filter(|step| matches!(step.what, Moment::Complete { .. }))
        .map(|step| step.at)
        .collect();
    for delta in [1003, 2503, 6003, 15_003, 100_003] {
        assert!(ends.windows(2).all(|pair| pair[1] - pair[0] != delta), "there both are right");
        let bursts = 1 + ends.windows(2).filter(|pair| pair[1] - pair[0] > delta).count() as u64;
        let policy = format!("cint:delta={delta}ns,thr=65535,max_hold=off,in_flight=off,hints=none");
        let outcome = &run(&text("nvme.jsonl"), &[&policy]).outcomes[0];
        assert_eq!(outcome.interrupts, bursts, "{delta}");
    }
}

/// A completion at the very instant of the deadline rides on it.
#[test]
fn a_completion_at_the_deadline_shares_its_interrupt() {
    let policy = "cint:delta=1us,ooo=off,in_flight=off,hints=none";
    for (second, interrupts) in [(1000, 1), (1001, 2)] {
        let event =
            |time: u64, event: &str, id: u64| format!("{{\"time_ns\":{time},\"event\":\"{event}\",\"id\":{id}}}\n");
        let text = [
            event(0, "submit", 1),
            event(1, "submit", 2),
            event(5000, "complete", 1),
            event(5000 + second, "complete", 2),
        ];
        assert_eq!(run(&text.concat(), &[policy]).outcomes[0].interrupts, interrupts, "{second}");
    }
}

#[test]
fn rules_hold_and_what_is_reported_adds_up() {
    let replay = run(&text("nvme.blkparse"), &ALL);
    for outcome in &replay.outcomes {
        assert!(outcome.verdict.is_clean(), "{}: {:?}", outcome.contender, outcome.verdict);
        assert_eq!((outcome.completions, outcome.delay.len(), outcome.latency.len()), (392, 392, 392));
        if let Some(bound) = outcome.bound {
            // The histogram has three digits.
            assert!(outcome.delay.max() <= bound + bound / 500, "{}", outcome.contender);
        }
    }
    let none = &replay.outcomes[0];
    assert_eq!((none.interrupts, none.delay.max()), (392, 0));
}

/// The policy is told what the trace says: durable writes and flushes, I/O priorities, batches, hints.
#[test]
fn what_a_trace_says_reaches_the_policy() {
    let submit =
        |time: u64, id: u64, more: &str| format!(r#"{{"time_ns":{time},"event":"submit","id":{id}{more}}}"#) + "\n";
    let complete =
        |time: u64, id: u64, more: &str| format!(r#"{{"time_ns":{time},"event":"complete","id":{id}{more}}}"#) + "\n";
    let reason = |policy: &str, more: &str, end: &str| {
        let lines = submit(1000, 1, "") + &submit(1001, 2, more) + &complete(9000, 2, end) + &complete(500_000, 1, "");
        let replay = run(&lines, &[policy]);
        let delivered: Vec<_> =
            replay.outcomes[0].stats.delivered().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
        delivered.join(" ")
    };
    let policy = "cint:ooo=off,in_flight=off,hints=flush+fua+ioprio";
    assert_eq!(reason(policy, "", ""), "delta");
    assert_eq!(reason(policy, r#","op":"flush""#, ""), "urgent delta");
    assert_eq!(reason(policy, r#","op":"write","durable":true"#, ""), "urgent delta");
    assert_eq!(reason(policy, r#","op":"write""#, ""), "delta");
    assert_eq!(reason(policy, r#","ioprio":8192"#, ""), "urgent delta");
    assert_eq!(reason(policy, r#","hint":"barrier""#, ""), "barrier delta");
    assert_eq!(reason(policy, r#","hint":"urgent""#, ""), "urgent delta");
    assert_eq!(reason(policy, "", r#","failed":true"#), "urgent delta");

    let batch = submit(1000, 1, "") + &submit(1000, 2, "") + &complete(9000, 1, "") + &complete(9001, 2, "");
    let policy = "cint:ooo=off,in_flight=off,hints=batch";
    assert_eq!(run(&batch, &[policy]).outcomes[0].interrupts, 1);
    let stats = &run(&batch, &[policy]).outcomes[0].stats;
    assert!(stats.delivered().any(|(name, count)| name == "barrier" && count == 1), "{stats:?}");
    let one_by_one = batch.replacen("1000", "999", 1);
    let stats = &run(&one_by_one, &[policy]).outcomes[0].stats;
    assert!(stats.delivered().all(|(name, count)| name != "barrier" || count == 0), "{stats:?}");
}

/// What completes at one instant is found by one poll: a policy that waits for its end interrupts once for it.
#[test]
fn a_poll_is_not_cut_short_by_what_is_due_without_its_end() {
    let line = |time: u64, event: &str, id: u64| format!(r#"{{"time_ns":{time},"event":"{event}","id":{id}}}"#) + "\n";
    let text: String =
        (0..10).map(|id| line(1000, "submit", id)).chain((0..10).map(|id| line(9000, "complete", id))).collect();
    let policies = ["batch", "cint:delta=0,max_hold=off,in_flight=off", "spdk_vhost"];
    let interrupts: Vec<_> = run(&text, &policies).outcomes.iter().map(|outcome| outcome.interrupts).collect();
    assert_eq!(interrupts, [2, 1, 1]); // batch: the first at once
}

#[test]
fn a_malformed_line_is_named() {
    for (name, wrong, says) in [
        ("nvme.blkparse", "259,0 0 zwei 0.1 0 D R 8 + 8 [x]", "sequence number is \"zwei\""),
        ("nvme.blkparse", "259,0 0 3 1 0 C R 8 + 8 x", "ends before the error"),
        ("nvme.blkparse", "8.0 0 3 1.5 0 C R 8 + 8 [0]", "device is \"8.0\""),
        ("nvme.biosnoop", "0.000123 fio 12 nvme0n1 R", "has 5 fields"),
        ("nvme.biosnoop", "0.0o0123 fio 12 nvme0n1 R 8 4096 0.01", "time is \"0.0o0123\""),
        ("nvme.biosnoop", "0.000123 fio 12 nvme0n1 R 8 4096 -1", "latency is \"-1\""),
        ("nvme_clat.log", "0, 1000, 0, 4096, 0, 0, 7x", "issue time is \"7x\""),
        ("nvme_clat.log", "0, 1000, 0, 4096, 0, 0, 0", "issue time is 0"),
        ("nvme_clat.log", "0, 1000, 9, 4096, 0, 0, 5", "direction is 9"),
        ("nvme_clat.log", "4, 5000, 0, 4096, 0, 0, 4996001", "was logged at 4 ms, before its issue time and its value"),
        ("nvme_clat.log", "0, 1000, 1000, 0, 4096, 0, 0, 5", "has 8 fields"),
        ("nvme.jsonl", r#"{"time_ns":-5,"event":"submit","id":1}"#, "invalid value"),
        ("nvme.jsonl", r#"{"time_ns":5,"event":"submits","id":1}"#, "unknown variant `submits`"),
        ("nvme.jsonl", r#"{"time_ns":5,"event":"submit"}"#, "has no id"),
        ("nvme.jsonl", r#"{"time_ns":5,"event":"submit","id":1,"durible":true}"#, "unknown field `durible`"),
        ("nvme.jsonl", r#"{"time_ns":5,"#, "EOF"),
    ] {
        let good = text(name);
        let mut lines: Vec<_> = good.lines().collect();
        lines.insert(20, wrong);
        let text = lines.join("\n");
        let error = error(&text);
        assert!(error.starts_with("line 21: ") && error.contains(says), "{wrong}: {error}");

        let mut trace = of_text(&text, LENIENT);
        steps(&mut trace);
        let (counts, expected) = (trace.counts(), self::counts(&good));
        assert_eq!((counts.malformed, counts.completions), (1, expected.completions), "{wrong}");
    }
}

/// As a recorder leaves it that is killed. (The front of a line of fio's can be a line.)
#[test]
fn a_trace_that_ends_within_a_line_is_read_up_to_it() {
    for name in ["nvme.blkparse", "nvme.biosnoop", "nvme.jsonl"] {
        let text = text(name);
        let ends: Vec<_> = text.match_indices('\n').map(|(at, _)| at).collect();
        let (last, end) = (ends[20] + 1, ends[21]);
        let counts = counts(&text[..usize::midpoint(last, end)]);
        assert_eq!((counts.cut, counts.malformed), (1, 0), "{name}");
        assert_eq!(Counts { cut: 0, lines: counts.lines - 1, ..counts }, self::counts(&text[..last]), "{name}");
    }
    assert!(error("{\"time_ns\":5,\n").starts_with("line 1: "), "a line with an end");
}

#[test]
fn what_is_no_trace_is_refused() {
    assert!(error("hello\n").contains("line 1: of no format that is known"));
    assert!(error(&"x".repeat(200_000)).contains("line 1: "));
    let mut trace = of_text("hello\nworld\n", LENIENT);
    assert!(trace.step().unwrap_err().to_string().contains("no format"));
    let mut trace = of_text("\u{0}\u{1}\n", Options { format: Some(Format::Json), ..Options::default() });
    assert!(trace.step().is_err());
    assert!(error("TIME(h) COMM PID LAT(ms)\n").contains("no TIME in s, ms or us"));
    assert_eq!(error(""), "it is empty");
}

const SUBMIT_1: &str = "{\"time_ns\":10,\"event\":\"submit\",\"id\":1}\n";
const COMPLETE_1: &str = "{\"time_ns\":20,\"event\":\"complete\",\"id\":1}\n";

/// Commands in flight are those submitted and not completed, whatever the trace has lost.
#[test]
fn what_does_not_fit_is_counted() {
    let lines = |lines: &[&str]| counts(&lines.concat());
    assert_eq!(lines(&[COMPLETE_1, SUBMIT_1]).out_of_order, 1);
    let unmatched = lines(&[COMPLETE_1]);
    assert_eq!((unmatched.unmatched, unmatched.completions, unmatched.in_flight_end), (1, 1, 0));
    let twice = lines(&[SUBMIT_1, SUBMIT_1, COMPLETE_1]);
    assert_eq!((twice.resubmitted, twice.submissions, twice.in_flight_max, twice.in_flight_end), (1, 2, 1, 0));
    let unfinished = lines(&[SUBMIT_1]);
    assert_eq!((unfinished.in_flight_max, unfinished.in_flight_end), (1, 1));
}

/// A completion whose submission was not seen is in flight itself; nothing becomes negative.
#[test]
fn lost_submissions_do_not_make_cif_negative() {
    let complete = |time: u64, id: u64| format!("{{\"time_ns\":{time},\"event\":\"complete\",\"id\":{id}}}\n");
    let text: String = (0..100).map(|i| complete(i * 1000, i)).collect();
    let replay = run(&text, &["vic", "auto"]);
    assert!(replay.outcomes.iter().all(|outcome| outcome.interrupts == 100), "each is alone");
    assert_eq!(replay.outcomes[0].latency.len(), 0, "nobody knows when they were submitted");
}

/// To three digits, whether they are short or long; what is longer than 100 s counts as that.
#[test]
fn latencies_and_delays_of_any_length_are_recorded() {
    let line = |time: u64, event: &str| format!("{{\"time_ns\":{time},\"event\":\"{event}\",\"id\":1}}\n");
    for (ns, latency) in [(1_000, 101_000), (5_000_000, 5_100_000), (200_000_000_000, 100_000_000_000)] {
        let replay = run(&(line(0, "submit") + &line(ns, "complete")), &["nvme:thr=4,time=100us"]);
        let outcome = &replay.outcomes[0];
        let is_close = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 500;
        assert!(is_close(outcome.delay.max(), 100_000), "{ns} ns: delay {}", outcome.delay.max());
        assert!(is_close(outcome.latency.max(), latency), "{ns} ns: latency {}", outcome.latency.max());
    }
}

#[test]
fn what_is_out_of_order_is_put_in_order() {
    let good = text("nvme.jsonl");
    let mut lines: Vec<_> = good.lines().collect();
    for pair in lines.chunks_mut(7) {
        pair.reverse();
    }
    let shuffled = lines.join("\n");
    let mut trace = of_text(&shuffled, Options::default());
    let sorted = steps(&mut trace);
    assert_eq!(sorted, steps(&mut of_text(&good, Options::default())));
    assert!(trace.counts().out_of_order > 300 && trace.counts().late == 0, "{:?}", trace.counts());
}

/// What is earlier than the window reaches back happens late; time never goes back.
#[test]
fn what_is_far_out_of_order_is_late() {
    let line = |time: u64, id: u64, event: &str| format!("{{\"time_ns\":{time},\"event\":\"{event}\",\"id\":{id}}}\n");
    let mut text: String = (0..100_000).map(|i| line(1_000_000 + i, i, "submit")).collect();
    text += &line(5, 0, "complete");
    let mut trace = of_text(&text, Options::default());
    let steps = steps(&mut trace);
    assert!(steps.is_sorted_by_key(|step| step.at));
    assert_eq!((trace.counts().out_of_order, trace.counts().late), (1, 1));
}

#[test]
fn two_equal_commands_and_a_requeued_one_are_distinguished() {
    let line = |time: u32, action: &str| {
        let tail = if action == "C" { "[0]" } else { "[x]" };
        format!("8,0 0 1 0.{time:09} 1 {action} R 8 + 8 {tail}\n")
    };
    let alike = counts(&[line(1, "D"), line(2, "D"), line(3, "C"), line(4, "C")].concat());
    assert_eq!((alike.in_flight_max, alike.in_flight_end, alike.unmatched), (2, 0, 0));
    let requeued = counts(&[line(1, "D"), line(2, "R"), line(3, "D"), line(4, "C")].concat());
    assert_eq!((requeued.in_flight_max, requeued.in_flight_end, requeued.requeued, requeued.submissions), (1, 0, 1, 1));
    let failed = counts(&[line(1, "D"), line(4, "C").replace("[0]", "[-5]")].concat());
    assert_eq!((failed.failed, failed.completions), (1, 1));
}

#[test]
fn a_vector_for_each_cpu() {
    let mut trace = of_text(&text("nvme.blkparse"), Options { per_cpu: true, ..Options::default() });
    let steps = steps(&mut trace);
    assert_eq!(trace.queues(), ["259,0 cpu 0", "259,0 cpu 1"]);
    let on = |queue| steps.iter().filter(|step| step.queue == queue).count();
    assert!(on(0) > 400 && on(1) > 200 && on(0) + on(1) == steps.len());
    // A completion belongs to the queue of its submission.
    let text = "8,0 0 1 0.1 1 D R 8 + 8 [x]\n8,0 1 1 0.2 0 C R 8 + 8 [0]\n";
    let mut trace = of_text(text, Options { per_cpu: true, ..Options::default() });
    assert_eq!(self::steps(&mut trace).iter().map(|step| step.queue).collect::<Vec<_>>(), [0, 0]);
}

/// Time lines are of the same stretch for every policy.
#[test]
fn time_lines_begin_together() {
    let replay = run(&text("nvme.jsonl"), &["none", "cint"]);
    let first: Vec<_> = replay.outcomes.iter().map(|outcome| outcome.timeline.first().unwrap().at).collect();
    assert_eq!(first[0], first[1]);
    assert!(replay.outcomes.iter().all(|outcome| outcome.timeline.len() > 96));
    let mut trace = Trace::open(&path("nvme.jsonl"), Options::default()).unwrap();
    let at = coalesce_sim::replay::replay(&mut trace, &contenders(&["none"]), Some(1_000_000)).unwrap();
    assert!((1_000_000..1_050_000).contains(&(at.outcomes[0].timeline[0].at - 1000)));
}
