//! The commands that read traces, as they are called.

use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(name)
}

fn sim(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read all: that is for its output to tell.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(arguments: &[&str], input: &str) -> String {
    let output = sim(arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(arguments: &[&str], input: &str) -> String {
    let output = sim(arguments, input);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn a_pipe_gives_what_the_file_gives() {
    for name in ["nvme.blkparse", "nvme.biosnoop", "nvme_clat.log", "nvme.jsonl"] {
        let text = std::fs::read_to_string(trace(name)).unwrap();
        let named = ["none", "nvme", "vic", "cint", "auto:budget=2%", "auto", "auto:budget=10%"];
        let more: Vec<_> = named.iter().flat_map(|policy| ["--policy", policy]).chain(["--json"]).collect();
        let of_file = stdout(&[&["replay", trace(name).to_str().unwrap()], &more[..]].concat(), "");
        assert_eq!(stdout(&[&["replay", "-"], &more[..]].concat(), &text), of_file, "{name}");
        let value: Value = serde_json::from_str(&of_file).unwrap();
        assert_eq!(value["policies"][0]["interrupts"], 392, "{name}");
        assert_eq!(value["policies"][0]["delay_ns"]["max"], 0, "{name}");
        // They are the ones that a pipe has if nothing is said: it cannot be read again, for cint.
        let mut unnamed: Value = serde_json::from_str(&stdout(&["replay", "-", "--json"], &text)).unwrap();
        assert_eq!(unnamed["policies"], value["policies"], "{name}");
        let note = unnamed["notes"].as_array_mut().unwrap().pop().unwrap();
        assert_eq!(note, "cint has its default Δ and thr, as only a file can be read several times");
        assert_eq!(unnamed["notes"], value["notes"], "{name}");
    }
}

/// A pipe that has a name is one, too.
#[test]
fn what_can_be_read_once_is_not_read_to_calibrate() {
    let arguments = ["replay", "/dev/stdin"];
    let text = stdout(&arguments, &std::fs::read_to_string(trace("nvme.jsonl")).unwrap());
    assert!(text.contains("392 completions") && text.contains("cint has its default Δ and thr"), "{text}");
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[arguments, &["--json"]].concat(), "")).unwrap()
}

/// What `replay` compares is calibrated as `calibrate` does it, and one file has one duration.
#[test]
fn calibrate_and_replay_agree() {
    for name in ["nvme.jsonl", "guest-nvme.ftrace", "guest-two-devices.blkparse"] {
        let path = trace(name);
        let path = path.to_str().unwrap();
        let (calibrated, replayed) = (json(&["calibrate", path]), json(&["replay", path]));
        assert_eq!(replayed["policies"][3]["policy"], calibrated["policy"], "{name}");
        let shared = |value: &Value| {
            let mut policy = value.clone();
            policy.as_object_mut().unwrap().remove("optimum");
            policy
        };
        for (here, there) in [(0, 0), (1, 3), (2, 5)] {
            let (here, there) = (&calibrated["policies"][here], &replayed["policies"][there]);
            assert_eq!(shared(here), shared(there), "{name}");
        }
        let heading = |command: &str| stdout(&[command, path], "").lines().next().unwrap().to_owned();
        assert_eq!(heading("calibrate"), heading("replay"));
    }
}

/// Where requests are few, a gap at the paper's percentile is as long as a request: here 80 of 140 us.
#[test]
fn no_delta_is_longer_than_what_helps() {
    let path = temporary("few.jsonl");
    let line = |at: u64, event, id| format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{id}}}\n");
    let (mut lines, mut at) = (Vec::new(), 1_000_000);
    for id in 0..4000 {
        at += [2_000, 2_000, 80_000][id % 3];
        lines.extend([(at - 140_000, line(at - 140_000, "submit", id)), (at, line(at, "complete", id))]);
    }
    lines.sort_by_key(|(at, _)| *at);
    std::fs::write(&path, lines.into_iter().map(|(_, line)| line).collect::<String>()).unwrap();
    let path = path.to_str().unwrap();
    let found = json(&["calibrate", path]);
    assert!(found["delta_ns"].as_u64().unwrap() < 50_000, "{found}");
    let tried = found["deltas"].as_array().unwrap();
    let longest = tried.last().unwrap();
    assert!(longest["delta_ns"] == 81_000 && longest["held_share"].as_f64() > Some(0.05), "{found}");
    assert!(found["policies"][1]["held_share"].as_f64().unwrap() <= 0.05, "{found}");
    let text = stdout(&["calibrate", path], "");
    assert!(text.contains("would hold requests for") && text.contains("of their time, and 5% is allowed"), "{text}");
    // Who allows more gets more.
    let more = json(&["calibrate", path, "--budget", "50%"]);
    assert!(more["delta_ns"].as_u64() > found["delta_ns"].as_u64(), "{more}");
}

/// The first thing that is said, on a terminal, on a page and to a program.
#[test]
fn a_replay_answers_whether_it_is_worth_it() {
    let (html, long, short) = (temporary("worth.html"), temporary("long.jsonl"), trace("nvme.jsonl"));
    let line = |at: u64, event, id| format!("{{\"time_ns\":{at},\"event\":\"{event}\",\"id\":{id}}}\n");
    // 16 in flight, one each us: 0.3 s of the requests' time in all.
    let begin = (0..16).map(|id| line(id, "submit", id)).collect::<String>();
    let each = |n: u64| line(n * 1000, "complete", n % 16) + &line(n * 1000 + 10, "submit", n % 16);
    std::fs::write(&long, begin + &(16..20_000).map(each).collect::<String>()).unwrap();
    let path = long.to_str().unwrap();
    let text = stdout(&["replay", path, "--html", html.to_str().unwrap()], "");
    let answer = text.lines().find(|line| line.contains("auto, the default")).unwrap();
    assert!(answer.starts_with("Worth it on this load: auto, the default, raises 0."), "{text}");
    assert_eq!(json(&["replay", path])["answer"], answer);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains(answer) && page.find("id=\"worth\"") < page.find("<h2>Details</h2>"));
    let legend = &page[page.find("<h2>The policies</h2>").unwrap()..];
    let policies = coalesce_policy::Spec::policies();
    let promise = policies.iter().find(|policy| policy.name == "auto").unwrap().about;
    let explained =
        legend.split("<li>").find(|line| line.contains(promise)).expect("the contract of the default, in full");
    assert!(explained.contains("<b>auto</b>"), "what the default is stands at another budget: {explained}");
    let dear = json(&["replay", path, "--io-cycles", "1000000"]);
    assert!(dear["answer"].as_str().unwrap().starts_with("Nothing to gain"), "an interrupt costs hardly anything");
    let short = json(&["replay", short.to_str().unwrap()]);
    assert!(short["answer"].as_str().unwrap().starts_with("Too short a trace to tell"), "{short}");
}

#[test]
fn what_is_wrong_is_said_with_file_and_line() {
    let path = trace("nvme.jsonl");
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.insert_str(0, "{}\n");
    let error = stderr(&["replay", "-"], &text);
    assert!(error.contains("trace -") && error.contains("line 1: missing field `time_ns`"), "{error}");
    let lenient = stdout(&["replay", "-", "--lenient"], &text);
    assert!(lenient.contains("note: malformed lines, skipped: 1\n"), "{lenient}");
    for arguments in [["replay", "-"], ["explain", "-"], ["calibrate", "/dev/null"]] {
        assert!(stderr(&arguments, "").ends_with(": it is empty\n"), "{arguments:?}");
    }
    let random = "\u{1}\u{2}\n".repeat(200);
    assert!(stderr(&["replay", "-"], &random).ends_with("; --lenient skips such lines\n"));
    let error = stderr(&["replay", "-", "--lenient"], &random);
    assert!(error.contains("of no format that is known") && !error.contains("--lenient"), "{error}");
    let error = stderr(&["replay", path.to_str().unwrap(), "--at", "99999s"], "");
    assert!(error.contains("nvme.jsonl: nothing completes from 99999s on: the trace is 2236512ns long"), "{error}");
    assert!(stderr(&["replay", "/nowhere"], "").contains("/nowhere"));
    assert!(stderr(&["replay", "-", "--policy", "cint:delta=5"], "").contains("no unit"));
    assert!(stderr(&["calibrate", "-"], &text).contains("several times"));
    assert!(stderr(&["calibrate"], "").contains("--device"));
}

#[test]
fn it_writes_its_manual_and_its_completions() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    assert_eq!(stdout(&["man", directory.to_str().unwrap()], ""), "");
    assert!(std::fs::read_to_string(directory.join("coalesce-sim-replay.1")).unwrap().contains("optimum"));
    assert!(stdout(&["completions", "bash"], "").contains("complete -F"));
    assert!(stdout(&["--version"], "").starts_with(concat!("coalesce-sim ", env!("CARGO_PKG_VERSION"))));
}

/// What fio takes to submit looks like what the device takes to complete.
#[test]
fn a_log_of_submission_latencies_is_refused_by_its_name() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (name, is_right) in [("job_slat.1.log", false), ("job_clat.1.log", true)] {
        let path = directory.join(name);
        std::fs::copy(trace("nvme_clat.log"), &path).unwrap();
        let path = path.to_str().unwrap();
        if is_right {
            assert!(stdout(&["replay", path], "").contains("fio: "));
        } else {
            assert!(
                stderr(&["replay", path], "")
                    .contains("slat is the time that fio takes to submit; replay the clat log")
            );
        }
    }
}

/// Under script(1), standard error is a terminal.
#[test]
fn a_large_file_shows_how_much_of_it_is_read() {
    let large = temporary("large_clat.log");
    let line = format!("1000, 8287, 0, 4096, 0, 0, 2405{:1000}\n", "");
    std::fs::write(&large, line.repeat(18_000)).unwrap();
    let small = trace("nvme.jsonl");
    let on_terminal = |path: &Path| {
        let run = format!("{} replay {} --policy none", env!("CARGO_BIN_EXE_coalesce-sim"), path.display());
        let output = Command::new("script").args(["-qec", &run, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = on_terminal(&large);
    assert!(text.contains("MiB of 17.7"), "{}", &text[..text.len().min(1000)]);
    let table = text.rfind("fio: ").unwrap();
    assert!(!text[table..].contains("MiB of"), "it is gone before the table comes");
    assert!(!on_terminal(&small).contains("iB of "));
    assert_eq!(sim(&["replay", large.to_str().unwrap(), "--policy", "none"], "").stderr, b"");
    std::fs::remove_file(large).unwrap();
}

#[test]
fn one_of_a_kind_is_not_many() {
    let text = stdout(&["replay", "-", "--optimum"], "0, 8287, 0, 4096, 0, 0, 2405\n");
    assert!(text.starts_with("fio: 1 line, 1 completion in "), "{text}");
    assert!(text.contains(" s, 1 queue, at most 1 in flight") && text.contains(" it is 1 interrupt\n"), "{text}");
}

/// What is printed without it stays as it is.
#[test]
fn the_optimum_is_added_to_what_is_printed() {
    let path = trace("nvme.jsonl");
    let with = |more: &[&str]| stdout(&[&["replay", path.to_str().unwrap()], more].concat(), "");
    let (plain, text) = (with(&[]), with(&["--optimum", "--budget", "2.5%", "--max-hold", "20us"]));
    let added = text.strip_prefix(&plain).unwrap();
    assert!(added.contains("at 2.5%, nothing longer than 20.0 us it is "), "{added}");
    let none = added.lines().find(|line| line.starts_with("none ")).unwrap();
    assert!(none.split_ascii_whitespace().take(5).eq(["none", "392", "0.00", "392", "1.00"]), "{none}");

    let of = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let plain = of(with(&["--json"]));
    assert_eq!((&plain["optimum"]["budget"], &plain["optimum"]["max_hold_ns"]), (&"5%".into(), &Value::Null));
    for policy in plain["policies"].as_array().unwrap() {
        assert!(policy["interrupts"].as_u64() >= policy["optimum"].as_u64(), "{policy}");
    }
    assert_eq!(plain, of(with(&["--json", "--optimum"])), "a short trace has it anyway");

    let policies = ["none", "nvme", "vic:epoch=1ms,cif_threshold=2", "cint", "cint:delta=2us,in_flight=off"];
    let arguments: Vec<_> = policies.iter().flat_map(|policy| ["--policy", policy]).chain(["--optimum"]).collect();
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traces.md")).unwrap();
    let printed = with(&arguments);
    let example: Vec<_> = printed.lines().skip_while(|line| !line.starts_with("optimum")).collect();
    assert!(page.contains(&format!("    {}\n", example.join("\n    "))), "{example:#?}");

    assert!(stderr(&["replay", "-", "--budget", "1%"], "").contains("--optimum"));
    assert!(stderr(&["replay", "-", "--optimum", "--budget", "5"], "").contains("not a share of less than 100%"));
}

/// The first example of each of these sections of `docs/traces.md`.
#[test]
fn what_the_documentation_shows_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/traces.md")).unwrap();
    for section in ["Is it worth it?", "Calibration"] {
        let (_, from) = page.split_once(&format!("\n## {section}\n\n    $ coalesce-sim ")).unwrap();
        let (command, shown) = from.split_once('\n').unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_coalesce-sim")).args(command.split(' ')).current_dir(&root).output();
        let printed = String::from_utf8(output.unwrap().stdout).unwrap();
        let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") };
        assert!(shown.starts_with(&printed.lines().map(indented).collect::<String>()), "{command} prints:\n{printed}");
    }
}

/// A report opens without anything else, and shows all policies and no violation.
#[test]
fn reports_are_whole() {
    let (html, csv) = (temporary("replay.html"), temporary("replay.csv"));
    let path = trace("nvme.blkparse");
    let arguments = [
        "replay",
        path.to_str().unwrap(),
        "--html",
        html.to_str().unwrap(),
        "--csv",
        csv.to_str().unwrap(),
        "--policy",
        "none",
        "--policy",
        "vic:epoch=1ms,cif_threshold=2",
        "--policy",
        "cint",
    ];
    stdout(&arguments, "");
    let page = std::fs::read_to_string(html).unwrap();
    assert!(!page.contains("http") && !page.contains("<script") && page.contains("</html>"));
    for part in ["s0-costs", "s0-times", "s0-decisions", "vic:cif_threshold=2,epoch=1ms", "41 for 41", "class=\"held\""]
    {
        assert!(page.contains(part), "{part}");
    }
    assert_eq!(page.matches("kept").count(), 3);
    let table = std::fs::read_to_string(csv).unwrap();
    assert!(table.lines().count() == 4 && table.contains("\n,\"vic:cif_threshold=2,epoch=1ms\",392,"), "{table}");
}

/// One request has no percentiles, so there is nothing to draw of them.
#[test]
fn a_report_about_one_request_is_whole() {
    let html = temporary("one.html");
    let trace = "{\"time_ns\":1,\"event\":\"submit\",\"id\":1}\n{\"time_ns\":1000,\"event\":\"complete\",\"id\":1}\n";
    stdout(&["replay", "-", "--html", html.to_str().unwrap()], trace);
    assert!(std::fs::read_to_string(html).unwrap().contains("</html>"));
}

#[test]
fn fuzzing_checks_at_least_one_plan() {
    assert!(stderr(&["fuzz", "--seeds", "0"], "").contains("0 is not in 1.."), "no plan");
    let last = u64::MAX.to_string();
    assert!(
        stderr(&["fuzz", "--first", &last, "--seeds", "2"], "").contains("--first: the last seed"),
        "beyond 64 bits"
    );
}

/// A full disk, and a reader that left, are errors and no panics.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    for arguments in [
        &["contract", "--seeds", "1", "--loads", "seed", "--print"][..],
        &["fuzz", "--seeds", "1", "--print"],
        &["fuzz", "--seeds", "1"],
    ] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let full = std::fs::File::create("/dev/full").unwrap();
        for (output, says) in [(Stdio::from(closed), "Broken pipe"), (full.into(), "No space left on device")] {
            let output =
                Command::new(env!("CARGO_BIN_EXE_coalesce-sim")).args(arguments).stdout(output).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.starts_with(&format!("coalesce-sim: standard output: {says}")), "{arguments:?}: {said}");
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        }
    }
}

/// By whatever name an output is what is read, it stays.
#[test]
fn no_output_overwrites_what_is_read() {
    let folder = temporary("no_output");
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir(&folder).unwrap();
    let [input, linked, pointing] = ["input", "linked", "pointing"].map(|name| folder.join(name));
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/mixed.toml");
    for (source, arguments) in [
        (trace("nvme.jsonl"), &["replay", "--html"][..]),
        (trace("nvme.jsonl"), &["replay", "--csv"]),
        (trace("nvme.jsonl"), &["replay", "--plot"]),
        (trace("nvme.jsonl"), &["calibrate", "--delta-max", "10us", "--html"]),
        (plan.clone(), &["run", "--html"]),
        (plan, &["run", "--csv"]),
    ] {
        std::fs::copy(&source, &input).unwrap();
        std::fs::hard_link(&input, &linked).unwrap();
        std::os::unix::fs::symlink("input", &pointing).unwrap();
        for output in [input.clone(), linked.clone(), pointing.clone(), folder.join("../no_output/./input")] {
            let [name, read] = [&output, &input].map(|path| path.to_str().unwrap());
            let said = stderr(&[arguments, &[name, read]].concat(), "");
            assert_eq!(said, format!("coalesce-sim: report {name}: it is the file that is read: name another\n"));
            assert!(std::fs::read(&input).unwrap() == std::fs::read(&source).unwrap(), "{arguments:?}");
        }
        for path in [&input, &linked, &pointing] {
            std::fs::remove_file(path).unwrap();
        }
    }
    std::fs::copy(trace("nvme.jsonl"), &input).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
        .args(["replay", "-", "--html"])
        .arg(&input)
        .stdin(std::fs::File::open(&input).unwrap())
        .output()
        .unwrap();
    assert!(!output.status.success() && std::fs::read(&input).unwrap() == std::fs::read(trace("nvme.jsonl")).unwrap());
}

/// Nor does one report overwrite another.
#[test]
fn no_output_overwrites_another() {
    let folder = temporary("one_output");
    let _ = std::fs::remove_dir_all(&folder); // of an earlier run
    std::fs::create_dir(&folder).unwrap();
    let [one, linked] = ["one", "linked"].map(|name| folder.join(name));
    let refused = |other: &Path| {
        let [one, other] = [&one, other].map(|path| path.to_str().unwrap());
        let said = stderr(&["replay", trace("nvme.jsonl").to_str().unwrap(), "--html", one, "--csv", other], "");
        assert_eq!(said, format!("coalesce-sim: report {other}: another report goes to the same file: name another\n"));
    };
    refused(&folder.join("./one"));
    std::fs::write(&one, "").unwrap();
    std::fs::hard_link(&one, &linked).unwrap();
    refused(&linked);
    assert_eq!(std::fs::read(&one).unwrap(), b"");
    stdout(&["replay", trace("nvme.jsonl").to_str().unwrap(), "--html", "/dev/null", "--csv", "/dev/null"], "");
}

#[test]
fn arguments_that_are_not_allowed_are_told_what_is() {
    for (arguments, says) in [
        (&["run", "nowhere.toml", "--seed", "abc"][..], "it is no seed; allowed: 0 to 18446744073709551615"),
        (&["fuzz", "--first", "-"], "it is no seed; allowed: 0 to 18446744073709551615"),
        (&["contract", "--first", "1.5"], "it is no seed; allowed: 0 to 18446744073709551615"),
        (&["papers", "--only", "cint.f10", "--only", "nope"], "no row's id begins with \"nope\"; allowed: cint.f10, "),
        (&["calibrate", "nowhere", "--plateau", "1 %"], "it is no percentage; allowed: 0% to 100%"),
    ] {
        let said = stderr(arguments, "");
        assert!(said.contains(says), "{said}");
    }
}

/// A trace may come from anywhere.
#[test]
fn nothing_in_a_trace_is_obeyed_by_a_terminal() {
    let line = |event: &str, id: u32| {
        let disk = format!("\\u001b]0;{id}\\u0007\u{9b}2J");
        format!("{{\"time_ns\":{id},\"disk\":\"{disk}\",\"queue\":0,\"event\":\"{event}\",\"id\":{id}}}\n")
    };
    let good: String = (1..4).flat_map(|id| [line("submit", id), line("complete", id)]).collect();
    let nowhere = good.clone() + &line("\x1b[31mgone", 9);
    let is_shown = |text: &[u8]| !String::from_utf8_lossy(text).chars().any(|c| c.is_control() && c != '\n');
    for arguments in [&["explain", "-"][..], &["explain", "-", "--json"], &["replay", "-"], &["replay", "-", "--json"]]
    {
        let output = sim(arguments, &good);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(is_shown(&output.stdout) && is_shown(&output.stderr), "{arguments:?}: {output:?}");
        let output = sim(arguments, &nowhere);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        assert!(is_shown(&output.stdout) && is_shown(&output.stderr), "{arguments:?}: {output:?}");
    }
    let output = sim(&["explain", "-", "--queue", "none\x1b[2J"], &good);
    assert!(!output.status.success() && is_shown(&output.stderr), "{output:?}");
}

/// Nor in a plan.
#[test]
fn nothing_in_a_plan_is_obeyed_by_a_terminal() {
    let plan = temporary("evil.toml");
    let evil = "\\u001B[2J\\u0007\u{9b}31m";
    let threads = ["a", "b"].map(|name| format!("[[threads]]\nname = \"{name}{evil}\"\nkind = \"sync\"\n")).concat();
    let text = format!("name = \"{evil}\"\nduration = \"1ms\"\nwarmup = \"1ms\"\npolicies = [\"none\"]\n");
    std::fs::write(&plan, text + "[device]\npreset = \"optane_p4800x\"\n" + &threads).unwrap();
    for more in [&[][..], &["--json"]] {
        let output = sim(&[&["run", plan.to_str().unwrap()], more].concat(), "");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("31m") && !said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
    }
}

/// A unit that is wrong in a rate is seen.
#[test]
fn arrivals_that_were_dropped_are_said() {
    let plan = temporary("dropped.toml");
    let text = |rate| {
        format!(
            "name = \"x\"\nduration = \"1s\"\npolicies = [\"none\"]\n[device]\nchannels = 1\nservice = {{ fixed = \"100us\" }}\n\
             [[threads]]\nname = \"web\"\nkind = \"open\"\nrate = \"{rate}K/s\"\ndepth = 4\n"
        )
    };
    std::fs::write(&plan, text(200)).unwrap();
    let said = stdout(&["run", plan.to_str().unwrap()], "");
    assert!(said.contains("none: ") && said.contains(" arrivals of web dropped, as 65536 waited"), "{said}");
    std::fs::write(&plan, text(5)).unwrap();
    assert!(!stdout(&["run", plan.to_str().unwrap()], "").contains("dropped"));
}

/// Also what is wrong with a file that it names.
#[test]
fn what_is_wrong_with_a_plan_is_said_with_file_and_line() {
    let plan = temporary("no_trace.toml");
    let text = "name = \"x\"\nduration = \"1ms\"\npolicies = [\"none\"]\ndevice = { preset = \"p3700\" }\n\
                [[threads]]\nname = \"disk\"\nkind = \"trace\"\ndepth = 1\ntrace = \"/nowhere\"\n";
    std::fs::write(&plan, text).unwrap();
    let said = stderr(&["run", plan.to_str().unwrap()], "");
    let place = format!("coalesce-sim: {}:9: threads.0.trace: trace /nowhere: ", plan.display());
    assert!(said.starts_with(&place), "{said}");
}

/// The pictures of the documentation are those that its commands draw.
#[test]
fn the_pictures_of_the_policies_are_drawn_from_their_commands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/policies.md")).unwrap();
    let commands: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("    coalesce-sim ")).collect();
    assert_eq!(commands.len(), 2);
    for command in commands {
        let (arguments, committed) = command.rsplit_once(' ').unwrap();
        let drawn = temporary("picture.svg");
        let status = Command::new(env!("CARGO_BIN_EXE_coalesce-sim"))
            .args(arguments.split(' '))
            .arg(&drawn)
            .current_dir(&root)
            .stdout(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "{command}");
        let read = |path| std::fs::read_to_string(path).unwrap();
        assert!(read(drawn) == read(root.join(committed)), "{committed} is not what is drawn: run {command}");
    }
}

#[test]
fn calibration_gives_a_policy_that_is_ready() {
    let (html, path) = (temporary("calibrate.html"), trace("nvme.jsonl"));
    let path = path.to_str().unwrap();
    let text = stdout(&["calibrate", path, "--delta-max", "10us", "--html", html.to_str().unwrap()], "");
    let policy = text.lines().last().unwrap().strip_prefix("--policy ").unwrap();
    let replayed = stdout(&["replay", path, "--policy", policy, "--json"], "");
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["policies"][0]["policy"], policy);
    assert!(replayed["policies"][0]["interrupts"].as_u64().unwrap() < 300);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains(policy) && page.contains("class=\"chosen\"") && !page.contains("http"));
}

#[test]
fn a_percentage_may_have_its_sign() {
    let of = |percentile, plateau| {
        let path = trace("nvme.jsonl");
        stdout(&["calibrate", path.to_str().unwrap(), "--percentile", percentile, "--plateau", plateau], "")
    };
    assert_eq!(of("80%", "2.5%"), of("80", "2.5"));
}

#[test]
fn a_delta_that_no_policy_takes_is_an_error() {
    let path = temporary("far.jsonl");
    let line = |i: u64, event| format!("{{\"time_ns\":{},\"event\":\"{event}\",\"id\":1}}\n", i * 9_000_000_000);
    let text: String = (0..20).map(|i| line(i, "submit") + &line(i, "complete")).collect();
    std::fs::write(&path, text).unwrap();
    let error = stderr(&["calibrate", path.to_str().unwrap(), "--delta-max", "10s"], "");
    assert!(error.contains("delta=9100000000ns is out of range; allowed: 0s to 10ms"), "{error}");
}

#[test]
fn simulations_at_the_same_time_are_limited() {
    let error = stderr(&["run", "nowhere.toml", "--jobs", "257"], "");
    assert!(error.contains("257 is not in 1..=256"), "{error}");
}

/// The paper chose 6 µs for Optane (90 % of the gaps) and 15 µs for the P3700 (99 %), and 32 for both, of 16 to 32.
#[test]
fn simulated_devices_give_about_what_the_paper_chose() {
    for (device, percentile, delta) in [("optane_p4800x", "90", 6000.0), ("p3700", "99", 15_000.0)] {
        let text = stdout(&["calibrate", "--device", device, "--percentile", percentile, "--json"], "");
        let value: Value = serde_json::from_str(&text).unwrap();
        let ratio = value["delta_ns"].as_f64().unwrap() / delta;
        assert!((0.8..1.25).contains(&ratio), "{device}: {text}");
        assert!([16, 32, 64].contains(&value["thr"].as_u64().unwrap()), "{device}: {text}");
    }
}

/// A pair for each load and policy; loads that are too short, and a filter that leaves none, are errors.
#[test]
fn a_contract_is_tried_under_the_loads_that_are_named() {
    let arguments = ["contract", "--first", "5", "--seeds", "2", "--loads", "seed", "--duration", "300ms"];
    let pairs: Value = serde_json::from_str(&stdout(&[&arguments[..], &["--json"]].concat(), "")).unwrap();
    let loads: Vec<_> = pairs.as_array().unwrap().iter().map(|pair| (&pair["load"], &pair["policy"])).collect();
    assert_eq!(loads, [(&"seed 5".into(), &"auto".into()), (&"seed 6".into(), &"auto".into())]);
    let table = stdout(&[&arguments[..], &["--policy", "none", "--policy", "cint"]].concat(), "");
    let line = |policy: &str| table.lines().find(|line| line.starts_with(policy)).unwrap().split_whitespace().skip(3);
    assert!(line("none, random open").eq(["2", "0", "0", "0", "1.000", "1.000", "0"]), "{table}");
    assert!(
        table.starts_with("2 random open loads from seed 5 on, 300ms of each; over none\n")
            && line("cint").count() == 7
    );
    let error = |more: &[&str]| stderr(&[&["contract", "--seeds", "0"], more].concat(), "");
    assert!(error(&["--loads", "light50", "--duration", "1ms"]).contains("p3700/light50, none, seed 1: too short"));
    assert!(error(&["--loads", "nobody"]).contains("no load has \"nobody\" in its kind or name"));
    assert!(error(&["--duration", "1us"]).contains("1us is too short; allowed: 1ms or more"));
    for command in [&["contract", "--seeds", "0"][..], &["score", "--workloads", "guest"]] {
        let over = stderr(&[command, &["--duration", "9300000000s"]].concat(), "");
        assert!(over.contains("allowed: 1ns to 31536000s"), "{command:?}: {over}");
    }
    assert!(stderr(&["contract", "--seeds", "10001"], "").contains("10001 is not in 0..=10000"));
    assert!(error(&["--limit", "0.9"]).contains("it is no ratio; allowed: 1 to 1000"));
}

/// Who waits beside a flood may need more than others, and has a limit of its own.
#[test]
fn a_contract_fails_if_a_load_takes_more_than_its_limit() {
    let load = |name| ["contract", "--seeds", "0", "--duration", "200ms", "--loads", name, "--policy", "nvme"];
    let over = stderr(&load("p3700/light50"), "");
    assert!(over.contains("1 of 1 take their requesters more than --limit allows"), "{over}");
    assert!(over.contains("the worst, nvme under p3700/light50, ") && over.contains(" x instead of 1.06\n"), "{over}");
    stdout(&[&load("p3700/light50")[..], &["--limit", "9"]].concat(), "");

    let mixed = ["contract", "--seeds", "0", "--duration", "500ms", "--loads", "memory/guest-mixed"];
    let pairs: Value = serde_json::from_str(&stdout(&[&mixed[..], &["--json"]].concat(), "")).unwrap();
    let worst = pairs[0]["time"].as_f64().unwrap();
    assert!((1.5..3.0).contains(&worst), "{worst}: an exception with a limit of 3");
    let over = stderr(&[&mixed[..], &["--policy", "nvme:thr=200,time=2ms"]].concat(), "");
    assert!(over.contains("2 of 2 take") && over.contains(" x instead of 3\n"), "{over}");

    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/score.md")).unwrap();
    let help = stdout(&["contract", "--help"], "");
    for (load, limit) in coalesce_sim::contract::EXCEPTIONS {
        let of = |line: &str| line.trim().strip_prefix(load).is_some_and(|rest| rest.trim() == limit.to_string());
        assert!(help.lines().any(of), "{load} {limit}: {help}");
        let name = if load.contains(' ') { format!("{load} loads") } else { format!("`{load}`") }; // a kind, or one
        assert!(page.contains(&format!("| {name} | {limit} |")), "{load} {limit}");
    }
}
