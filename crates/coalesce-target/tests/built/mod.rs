//! A program of another package.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `coalesce-target` or `coalesce-bench`, which are beside each other. Cargo builds the programs of other packages for no test, so this
/// asks it to: for a test of each package, and of the whole workspace, as a build of less would compile what they share with other
/// features once more.
pub fn program(name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--workspace", "--test", "disks", "--test", "qsd"])
        .args(["--quiet", "--locked", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    let program = programs.find_map(|message| Some(message["executable"].as_str()?.into()));
    program.unwrap_or_else(|| panic!("cargo builds no {name}"))
}
