//! The public API of what is published, a line for each item, as committed text. Derived and automatic traits (Clone, Send) are not
//! in it.

use public_api::Builder;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The libraries that others build on, with all their features. The C ABI is `coalesce.h`.
const LIBRARIES: [&str; 8] = [
    "coalesce-decision",
    "vic-core",
    "cint-core",
    "budget-core",
    "coalesce-policy",
    "coalesce-delivery",
    "coalesce-vring",
    "coalesce-testkit",
];

/// Compares the API of each library with its text; with `update`, writes the text.
///
/// # Errors
/// They differ, or rustdoc fails.
pub fn check(root: &Path, update: bool) -> Result<(), Box<dyn Error>> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut changes = Vec::new();
    for library in LIBRARIES {
        let json = rustdoc(root, &target, library)?;
        let built = Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build();
        let api = match built {
            Ok(api) => api,
            Err(error) => {
                // Its format is a number that changes with the toolchain.
                println!("SKIPPED: public API: what this rustdoc writes cannot be read: {error}");
                break;
            }
        };
        let lines: Vec<_> = api.items().map(ToString::to_string).collect();
        let committed = root.join("xtask/api").join(library).with_extension("txt");
        if update {
            fs::write(committed, lines.join("\n") + "\n")?;
        } else {
            let before = fs::read_to_string(&committed).map_err(|error| format!("{}: {error}", committed.display()))?;
            changes.extend(differences(library, &before.lines().collect::<Vec<_>>(), &lines));
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let advice = "is it meant? Then cargo run -p xtask -- api --update, and a line in CHANGELOG.md";
    Err(format!("the public API has changed; {advice}\n{}", changes.join("\n")).into())
}

/// Lines that are gone, and lines that are new.
fn differences(library: &str, before: &[&str], now: &[String]) -> Vec<String> {
    let gone = before.iter().filter(|line| !now.iter().any(|other| other == *line)).map(|line| format!("- {line}"));
    let new = now.iter().filter(|line| !before.contains(&line.as_str())).map(|line| format!("+ {line}"));
    gone.chain(new).map(|line| format!("{library}: {line}")).collect()
}

/// What rustdoc knows of a library.
fn rustdoc(root: &Path, target: &Path, library: &str) -> Result<PathBuf, Box<dyn Error>> {
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .env("RUSTDOC", root.join("xtask/rustdoc.sh"))
        .args(["rustdoc", "--quiet", "--locked", "--lib", "--all-features", "--package", library])
        .args(["--", "-Zunstable-options", "--output-format", "json"])
        .status()?;
    if !status.success() {
        return Err(format!("rustdoc of {library}: {status}").into());
    }
    Ok(target.join("doc").join(library.replace('-', "_")).with_extension("json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line_that_is_gone_and_one_that_is_new() {
        let now = ["pub fn a(u64)", "pub fn b()"].map(String::from);
        assert_eq!(differences("l", &["pub fn a(u64)", "pub fn b()"], &now), [""; 0]);
        assert_eq!(
            differences("l", &["pub fn a(u32)", "pub fn b()"], &now),
            ["l: - pub fn a(u32)", "l: + pub fn a(u64)"]
        );
    }
}
