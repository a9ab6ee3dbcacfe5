//! Tells the crate which commit is built. Where the source is no checkout of its own, there is none.

use std::process::Command;

fn main() {
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let is_ours = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = if is_ours { git(&["rev-parse", "--short=12", "HEAD"]) } else { None };
    let version = commit.map_or(version.clone(), |commit| format!("{version} ({commit})"));
    println!("cargo:rustc-env=COALESCE_VERSION={version}");
    println!("cargo:rerun-if-changed=build.rs");
    // It has a new line at each commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|_| is_ours) {
        println!("cargo:rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
