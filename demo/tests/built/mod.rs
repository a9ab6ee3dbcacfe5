//! A program of another package.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// `coalesce-target`. Cargo builds the programs of other packages for no test, so this asks it to: for a test of that package, and of
/// the whole workspace, as a build of less would compile what they share with other features once more.
pub fn target() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["test", "--no-run", "--workspace", "--test", "disks", "--quiet", "--locked", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == "coalesce-target");
    programs.find_map(|message| Some(message["executable"].as_str()?.into())).expect("cargo builds coalesce-target")
}
