//! `coalesce-target top`, beside targets that are loaded meanwhile.

mod built;
mod raw;

use nix::sys::signal::Signal;
use raw::*;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;

static BENCH: LazyLock<PathBuf> = LazyLock::new(|| built::program("coalesce-bench"));

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A load that lasts longer than the test, and has begun.
fn load(target: &Target, disk: &str) -> Program {
    let mut bench = Command::new(&*BENCH);
    bench.args(["--depth", "16", "--event-idx", "off", "--seconds", "600", "--socket"]).arg(target.path(disk));
    let program = Program(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the load begins", || target.count(disk, 0, "completions") > 0);
    program
}

fn top(arguments: &[&str], controls: &[&Path]) -> Output {
    Command::new(BINARY).arg("top").args(arguments).arg("--control").args(controls).output().unwrap()
}

#[test]
fn each_disk_and_queue_of_several_targets_is_shown_with_what_it_did() {
    let one = Target::start(&[Disk::memory("plain", "1M").policy("none"), Disk::memory("idle", "1M").queues(3)]);
    let other = Target::start(&[Disk::memory("held", "1M").policy("nvme:time=20ms"), Disk::memory("auto", "1M")]);
    let limited = Target::start(&[Disk::memory("limited", "1M").line("iops = 100")]);
    assert_serves(&one.path("idle")); // before the interval
    let _loads = [load(&one, "plain"), load(&other, "held"), load(&other, "auto"), load(&limited, "limited")];
    let controls = [&one, &other, &limited].map(|target| target.path("control"));
    let controls = controls.each_ref().map(PathBuf::as_path);

    let output = top(&["--once", "--json", "--interval=200ms"], &controls);
    let targets: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let row = |target: usize, index: usize| &targets[target]["rows"][index];
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    assert_eq!(targets[0]["rows"].as_array().unwrap().len(), 3, "a queue that does nothing has no row: {}", targets[0]);
    for (row, name, queue) in [
        (row(0, 0), "plain", Value::Null),
        (row(0, 1), "plain", 0.into()),
        (row(0, 2), "idle", Value::Null),
        (row(1, 0), "held", Value::Null),
        (row(1, 1), "held", 0.into()),
    ] {
        assert_eq!((&row["ctrlr"], &row["queue"]), (&name.into(), &queue));
        assert_eq!(number(row, "iops") > 0.0, name != "idle", "{row}");
    }
    for plain in [row(0, 0), row(0, 1)] {
        assert_eq!((number(plain, "interrupts_per_io"), number(plain, "added_ns")), (1.0, 0.0), "{plain}");
        assert!(plain.get("budget_percent").is_none(), "{plain}");
        assert_eq!(plain["limited_percent"], 0.0, "{plain}");
    }
    let held = row(1, 0);
    assert!(number(held, "interrupts_per_io") < 0.5 && number(held, "added_ns") > 0.0, "{held}");
    assert!(held["delivered"].as_object().unwrap().values().all(|count| count.as_u64() > Some(0)), "{held}");
    assert_eq!(row(1, 2)["budget_percent"][1], 5.0, "auto: {}", row(1, 2));
    for limited in [row(2, 0), row(2, 1)] {
        assert!((1.0..=100.0).contains(&number(limited, "limited_percent")), "{limited}");
    }

    let table = String::from_utf8(top(&["--once", "--interval=200ms"], &controls).stdout).unwrap();
    for part in ["interrupts/IO", "plain   all", " 1.000 ", " of 5 ", controls[1].to_str().unwrap()] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
}

#[test]
fn a_table_follows_the_other_and_a_target_that_ends_is_said_to() {
    let mut target = Target::start(&[Disk::memory("disk", "1M")]);
    let control = target.path("control");
    let mut command = Command::new(BINARY);
    command.args(["top", "--json", "--interval", "10ms", "--control"]).arg(&control).stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let mut next = tables(&mut program);
    assert_eq!([next(), next()].map(|line| line[0]["rows"][0]["ctrlr"].clone()), ["disk", "disk"]);
    target.kill();
    wait_until("it says so", || next()[0]["error"].as_str().is_some_and(|error| error.contains("control socket")));

    let output = top(&["--once"], &[&control]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with(&format!("coalesce-target: control socket {}", control.display())), "{said}");
    let output = top(&["--interval=1ms"], &[&control]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("interval 1ms is out of range; allowed: 10ms to 3600s"));
}

/// The tables of a program that prints one after another.
fn tables(program: &mut Program) -> impl FnMut() -> Value {
    let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
    move || serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
}

#[test]
fn it_ends_once_nobody_reads_its_tables() {
    let target = Target::start(&[Disk::memory("disk", "1M")]);
    for format in [None, Some("--json")] {
        let mut command = Command::new(BINARY);
        command.args(["top", "--interval", "10ms"]).args(format).arg("--control").arg(target.path("control"));
        let mut program = Program(command.stdout(Stdio::piped()).spawn().unwrap());
        program.0.stdout.take().unwrap().read_exact(&mut [0]).unwrap(); // and the reader is gone
        wait_until("it ends", || program.0.try_wait().unwrap().is_some());
        assert!(program.0.wait().unwrap().success(), "{format:?}");
    }
}

/// It accepts connections, as its kernel does that for it, and says nothing.
#[test]
fn a_target_that_hangs_keeps_no_other_from_being_shown() {
    let targets = [(); 3].map(|()| Target::start(&[Disk::memory("disk", "1M")]));
    let controls = targets.each_ref().map(|target| target.path("control"));
    targets[1].signal(Signal::SIGSTOP);
    let mut command = Command::new(BINARY);
    command.args(["top", "--json", "--interval", "10ms", "--control"]).args(&controls).stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let mut next = tables(&mut program);
    for _ in 0..20 {
        let table = next();
        for shown in [0, 2] {
            assert_eq!(table[shown]["rows"][0]["ctrlr"], "disk", "{table}");
        }
        let error = table[1]["error"].as_str().unwrap();
        assert!(error.contains(&format!("control socket {}: no answer", controls[1].display())), "{error}");
    }
    let output = top(&["--once", "--interval", "10ms"], &controls.each_ref().map(|path| path.as_path()));
    let [table, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!((output.status.code(), table.matches("disk   all").count()), (Some(1), 2), "{table}");
    assert!(said.contains("no answer"), "{said}");
    targets[1].signal(Signal::SIGCONT);
    wait_until("it is shown", || next()[1]["rows"][0]["ctrlr"] == "disk");
}

#[test]
fn a_row_says_that_the_policy_changed_in_its_interval() {
    let target = Target::start(&[Disk::memory("disk", "1M").policy("auto").queues(2), Disk::memory("other", "1M")]);
    let control = target.path("control");
    let mut command = Command::new(BINARY);
    command.args(["top", "--json", "--interval", "10ms", "--control"]).arg(&control).stdout(Stdio::piped());
    let mut program = Program(command.spawn().unwrap());
    let mut next = tables(&mut program);
    let mut changed = || {
        let table = next();
        [0, 1].map(|disk| table[0]["rows"][disk]["policy_changed"].as_bool().unwrap())
    };
    assert_eq!([changed(), changed()], [[false; 2]; 2]);
    for policy in ["none", "auto", "auto"] {
        target.call("set_policy", &json!({ "ctrlr": "disk", "queue": 1, "policy": policy })).unwrap();
        wait_until("it is shown", || changed() == [true, false]);
        assert_eq!(changed(), [false, false], "the next interval has one policy");
    }
    target.call("reset_stats", &json!({})).unwrap();
    for _ in 0..3 {
        assert_eq!(changed(), [false, false]);
    }
}

#[test]
fn a_terminal_shows_the_tables_until_q_is_pressed_and_is_given_back() {
    let target = Target::start(&[Disk::memory("disk", "1M")]);
    let control = target.path("control");
    for key in ["q", "\x03"] {
        // util-linux's script gives it a terminal.
        let run = format!("stty cols 90 rows 8; exec {BINARY} top --interval 10ms --control {}", control.display());
        let mut command = Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program(command.spawn().unwrap());
        let (mut keys, mut screen) = (program.0.stdin.take().unwrap(), program.0.stdout.take().unwrap());
        let mut seen = String::new();
        let mut read_until = |word: &str| {
            while !seen.contains(word) {
                let mut bytes = [0; 4096];
                let length = screen.read(&mut bytes).unwrap();
                assert!(length > 0, "{word} is missing: {seen:?}");
                seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        };
        for word in ["\x1b[?1049h", "q: quit", "interrupts/IO", " all "] {
            read_until(word);
        }
        keys.write_all(key.as_bytes()).unwrap();
        read_until("\x1b[?1049l");
        assert!(program.0.wait().unwrap().success(), "{key:?}");
    }
}
