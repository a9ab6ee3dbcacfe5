//! The public API of what is published, as committed text: a line for each item, and one for each trait that a type implements, also
//! by derive. Of automatic traits it has what a type lacks: not to be `Send` is a change, to be it is usual.

use crate::commands::{cargo, target};
use public_api::{Builder, PublicApi};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The libraries that others build on, with all their features.
const LIBRARIES: [&str; 9] = [
    "coalesce-decision",
    "vic-core",
    "cint-core",
    "budget-core",
    "coalesce-policy",
    "coalesce-delivery",
    "coalesce-vring",
    "coalesce-testkit",
    "coalesce-sim",
];

/// What else is published, and promises nothing to Rust programs: programs with what they are made of, and the C ABI, which is
/// `coalesce.h`.
#[cfg(test)]
const OTHERS: [&str; 5] = ["coalesce-target", "coalesce-load", "coalesce-cli", "coalesce-charts", "libcoalesce"];

/// Compares the API of each library with its text; with `update`, writes the text.
///
/// # Errors
/// They differ, or rustdoc fails, or what it writes cannot be read, unless `SKIP_API` is set.
pub fn check(root: &Path, update: bool) -> Result<(), Box<dyn Error>> {
    let target = target(root);
    let mut changes = Vec::new();
    for library in LIBRARIES {
        let json = rustdoc(root, &target, library)?;
        let lines = match lines(&json) {
            Ok(lines) => lines,
            // The format changes with the toolchain.
            Err(error) if env::var_os("SKIP_API").is_some() => {
                println!("SKIPPED: public API: what this rustdoc writes cannot be read: {error}");
                return Ok(());
            }
            Err(error) => {
                let advice =
                    "is the toolchain another than the crate public-api knows? SKIP_API=1 goes on without this check";
                return Err(format!("what rustdoc writes of {library} cannot be read: {error}; {advice}").into());
            }
        };
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

/// The API of a library, from what rustdoc writes.
fn lines(json: &Path) -> public_api::Result<Vec<String>> {
    let all = Builder::from_rustdoc_json(json).omit_blanket_impls(true).build()?;
    let written = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    let texts = |api: &PublicApi| api.items().map(ToString::to_string).collect::<Vec<_>>();
    let written: BTreeSet<_> = texts(&written).into_iter().collect();
    Ok(texts(&all).into_iter().filter(|line| written.contains(line) || says_what_is_implemented(line)).collect())
}

/// Of an impl that nobody has written: that it is there, or for what a thread may do with a value, that it is not.
fn says_what_is_implemented(line: &str) -> bool {
    let is_automatic = [
        "marker::Freeze",
        "marker::Send",
        "marker::Sync",
        "marker::Unpin",
        "marker::UnsafeUnpin",
        "panic::unwind_safe",
    ];
    let is_automatic = is_automatic.iter().any(|name| line.contains(&format!("core::{name}")));
    let lacks = ["!core::marker::Send", "!core::marker::Sync"].iter().any(|name| line.contains(name));
    line.starts_with("impl") && (lacks || !is_automatic) && !line.contains("core::marker::StructuralPartialEq")
}

/// Lines that are gone, and lines that are new.
fn differences(library: &str, before: &[&str], now: &[String]) -> Vec<String> {
    let gone = before.iter().filter(|line| !now.iter().any(|other| other == *line)).map(|line| format!("- {line}"));
    let new = now.iter().filter(|line| !before.contains(&line.as_str())).map(|line| format!("+ {line}"));
    gone.chain(new).map(|line| format!("{library}: {line}")).collect()
}

/// What rustdoc knows of a library.
fn rustdoc(root: &Path, target: &Path, library: &str) -> Result<PathBuf, Box<dyn Error>> {
    let status = cargo(root)
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

    #[test]
    fn every_published_crate_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in crate::packages::published(root).unwrap() {
            let name = name.as_str();
            assert!(LIBRARIES.contains(&name) != OTHERS.contains(&name), "{name} is in none of the lists, or in both");
        }
    }

    #[test]
    fn derived_traits_are_said_and_automatic_ones_if_they_are_missing() {
        for line in [
            "impl core::clone::Clone for l::A",
            "impl<P> core::fmt::Debug for l::A<P>",
            "impl !core::marker::Send for l::A",
        ] {
            assert!(says_what_is_implemented(line), "{line}");
        }
        for line in [
            "impl core::marker::Send for l::A",
            "impl core::marker::Freeze for l::A",
            "pub fn l::A::clone(&self) -> l::A",
        ] {
            assert!(!says_what_is_implemented(line), "{line}");
        }
    }
}
