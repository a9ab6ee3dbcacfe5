//! The programs that tasks run.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo that runs this task, in a directory.
pub fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory);
    cargo
}

/// Where it puts what it makes for the project.
pub fn target(root: &Path) -> PathBuf {
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Runs a program; the lines of its standard output.
///
/// # Errors
/// It does not run, or ends with another status than 0; then what it said is in the text.
pub fn lines(command: &mut Command) -> Result<Vec<String>, Box<dyn Error>> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{command:?}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(said.lines().map(str::to_owned).collect())
}
