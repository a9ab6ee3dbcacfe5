//! `docs/json.md` says what programs may rely on: what is printed has these members, and no others.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(crate_root().join("../../docs").join(name)).unwrap()
}

/// What stands between grave accents in the first column of the tables of a section.
fn documented(page: &str, section: &str) -> BTreeSet<String> {
    let page = page.replace('\r', "");
    let (_, from) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let lines = from.split("\n## ").next().unwrap().lines();
    let cells = lines.filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split([',', '`', ' ']).filter(|name| !name.is_empty()).map(str::to_owned));
    names.collect()
}

fn sim(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_coalesce-sim")).current_dir(crate_root()).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Adds the members of `value` below `path`. Those of `open` have other names in each run.
fn add_members(members: &mut BTreeSet<String>, value: &Value, path: &str, open: &[&str]) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        _ if open.contains(&path) => _ = members.insert(format!("{path}.*")),
        Value::Object(object) => {
            object.iter().for_each(|(name, value)| add_members(members, value, &below(name), open))
        }
        Value::Array(array) => {
            let path = format!("{path}[]");
            if !array.iter().any(Value::is_object) || open.contains(&path.as_str()) {
                let name = if array.iter().any(Value::is_object) { format!("{path}.*") } else { path.clone() };
                members.insert(name);
                return;
            }
            array.iter().for_each(|value| add_members(members, value, &path, open));
        }
        _ => _ = members.insert(path.to_owned()),
    }
}

fn members(texts: &[String], open: &[&str]) -> BTreeSet<String> {
    let mut members = BTreeSet::new();
    for value in texts.iter().flat_map(|text| serde_json::Deserializer::from_str(text).into_iter::<Value>()) {
        add_members(&mut members, &value.unwrap(), "", open);
    }
    members
}

/// Both ways.
fn assert_same(section: &str, documented: &BTreeSet<String>, printed: &BTreeSet<String>) {
    let missing: Vec<_> = printed.difference(documented).collect();
    let gone: Vec<_> = documented.difference(printed).collect();
    assert!(missing.is_empty() && gone.is_empty(), "{section}: not documented {missing:?}, not printed {gone:?}");
}

const TRACE: &str = "tests/traces/nvme.jsonl";

#[test]
fn a_replay_has_the_members_that_are_documented() {
    let open = [
        "trace",
        "policies[].delay_ns.percentile",
        "policies[].lat_ns.percentile",
        "policies[].delivered",
        "policies[].held",
    ];
    let printed = members(&[sim(&["replay", TRACE, "--json"])], &open);
    assert_same("replay", &documented(&page("json.md"), "`replay --json`"), &printed);
}

#[test]
fn a_calibration_has_the_members_that_are_documented() {
    let of_trace = sim(&["calibrate", TRACE, "--json"]);
    let of_device = sim(&["calibrate", "--device", "optane_p4800x", "--json"]);
    let mut printed = members(&[of_trace, of_device], &["policies[]"]);
    printed.remove("deltas[]"); // a device has none
    assert_same("calibrate", &documented(&page("json.md"), "`calibrate --json`"), &printed);
}

#[test]
fn a_run_has_the_members_that_are_documented() {
    let open = ["settings", "reasons", "holds", "hints"];
    let printed = members(&[sim(&["run", "plans/sync.toml", "--json"])], &open);
    assert_same("run", &documented(&page("json.md"), "`run --json`"), &printed);
}

#[test]
fn a_decision_has_the_members_that_are_documented() {
    let page = page("traces.md");
    let printed = members(&[sim(&["explain", TRACE, "--json", "--for", "1ms"])], &[]);
    assert_same("explain", &documented(&page, "Why did it interrupt, or not?"), &printed);
}

#[test]
fn the_columns_are_the_ones_that_are_documented() {
    let file: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schema.csv");
    for arguments in [["replay", TRACE], ["run", "plans/sync.toml"]] {
        sim(&[&arguments[..], &["--csv", file.to_str().unwrap()]].concat());
        let text = std::fs::read_to_string(&file).unwrap();
        let columns = text.lines().next().unwrap().split(',').map(str::to_owned).collect();
        assert_same("--csv", &documented(&page("json.md"), "`--csv` of `replay` and `run`"), &columns);
    }
}
