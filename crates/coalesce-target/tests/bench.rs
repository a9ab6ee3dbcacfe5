//! `coalesce-target bench` as its users run it.

mod served;

use served::Served;
use std::process::Command;

fn bench(served: &Served, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_coalesce-target"))
        .args(["bench", "--socket"])
        .arg(served.socket())
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn json_speaks_as_fio_does() {
    let served = Served::new("none", |_, _| ());
    let (status, stdout, stderr) = bench(&served, &["--ops", "500", "--depth", "1", "--json"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((json["interrupts"].as_u64(), json["interrupts_per_io"].as_f64()), (Some(500), Some(1.0)));
    assert_eq!(json["jobs"][0]["clat_ns"]["N"], 500);
    assert!(json["jobs"][0]["clat_ns"]["percentile"]["99.990000"].is_u64());
    assert_eq!((&json["jobs"][0]["queue"], &json["jobs"][1]["queue"]), (&"all".into(), &0.into()));
    assert_eq!(json["options"]["ops"], 500);
}

#[test]
fn table_names_its_units() {
    let served = Served::new("auto", |_, disk| disk.queues = 2);
    let (status, stdout, stderr) = bench(&served, &["--ops", "500", "--queues", "2"]);
    assert_eq!((status, stderr.as_str()), (Some(0), "")); // no progress bar: it is no terminal
    for word in ["interrupts", "IOPS", "p50 us", "kicks"] {
        assert!(stdout.contains(word), "{word} is missing: {stdout}");
    }
}

#[test]
fn exit_status_and_message_tell_what_is_wrong() {
    let served = Served::new("none", |_, disk| disk.read_only = true);
    for (arguments, expected, part) in [
        (&["--queues", "3"][..], 1, "3 queues: it has 1"),
        (&["--rw", "write"], 1, "read-only"),
        (&["--depth", "0"], 2, "--depth"),
        (&["--depth", "x"], 2, "--depth"),
        (&["--rw", "sideways"], 2, "randread"),
    ] {
        let (status, stdout, stderr) = bench(&served, arguments);
        assert_eq!((status, stdout.as_str()), (Some(expected), ""), "{arguments:?}");
        assert!(stderr.contains(part), "{arguments:?}: {stderr}");
    }
}
