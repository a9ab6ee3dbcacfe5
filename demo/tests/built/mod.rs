//! A program of another package.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// `coalesce-target`. Cargo builds the programs of other packages for no test, so this asks it to.
pub fn target() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--profile", "test", "--package", "coalesce-target", "--bin", "coalesce-target"])
        .args(["--quiet", "--locked", "--message-format", "json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executables: Vec<_> = messages.filter_map(|message| Some(message["executable"].as_str()?.into())).collect();
    executables.into_iter().last().expect("cargo builds coalesce-target")
}
