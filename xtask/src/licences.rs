//! Every crate that this project builds on has a licence that `deny.toml` allows, also where no cargo-deny is installed.

use crate::commands::{cargo, lines};
use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Of everything but the firmware in C, the guest and the examples, which get crates of this repository alone.
const WORKSPACES: [&str; 4] = [".", "fuzz", "firmware-demo/rust", "firmware-demo/embassy"];

/// The part of `deny.toml` that is about licences.
#[derive(Deserialize)]
struct Deny {
    licenses: Allowed,
}

#[derive(Deserialize)]
struct Allowed {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

/// Looks at the crates that are built on this machine.
///
/// # Errors
/// One has no licence, or none that is allowed; or too few crates are found for this check to be of use.
pub fn check(root: &Path) -> Result<(), Box<dyn Error>> {
    let Deny { licenses: allowed } = toml::from_str(&fs::read_to_string(root.join("deny.toml"))?)?;
    let mut crates = BTreeSet::new();
    for workspace in WORKSPACES {
        let manifest = format!("{workspace}/Cargo.toml");
        let tree = ["tree", "--quiet", "--locked", "--workspace", "--prefix=none", "--no-dedupe", "--format={p}|{l}"];
        let lines = lines(cargo(root).args(tree).args(["--manifest-path", &manifest]))?;
        crates.extend(lines.into_iter().filter(|line| !line.is_empty()));
    }
    let refused = |line: &String| {
        let (package, licence) = line.split_once('|')?;
        let name = package.split(' ').next()?;
        allowed.refuses(name, licence).map(|why| format!("{package}: {why}"))
    };
    let refused: Vec<_> = crates.iter().filter_map(refused).collect();
    if !refused.is_empty() {
        return Err(format!("licences, see deny.toml:\n{}", refused.join("\n")).into());
    }
    if crates.len() < 50 {
        return Err(format!("licences of {} crates only: has cargo tree another form?", crates.len()).into());
    }
    println!("licences: of {} crates", crates.len());
    Ok(())
}

impl Allowed {
    /// Why a crate may not be used under its licence, an SPDX expression.
    fn refuses(&self, name: &str, licence: &str) -> Option<String> {
        // As crates.io does, "/" is taken for "OR".
        let expression = match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => return Some(format!("licence {licence:?}: {}", error.reason)),
        };
        let exceptions = self.exceptions.iter().filter(|exception| exception.name == name);
        let allowed: Vec<_> = self.allow.iter().chain(exceptions.flat_map(|exception| &exception.allow)).collect();
        let is_allowed = |licence: &LicenseReq| allowed.iter().any(|one| **one == licence.to_string());
        (!expression.evaluate(is_allowed)).then(|| format!("licence {licence:?} is not allowed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_licence_has_an_alternative_that_is_allowed() {
        let exceptions = vec![Exception { name: "one".into(), allow: vec!["MPL-2.0".into()] }];
        let allowed = Allowed { allow: vec!["MIT".into(), "Unicode-3.0".into()], exceptions };
        for licence in ["MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "Zlib OR MIT"] {
            assert_eq!(allowed.refuses("any", licence), None, "{licence}");
        }
        for licence in ["", "Apache-2.0", "MIT AND Apache-2.0", "MIT WITH LLVM-exception", "MPL-2.0", "no licence"] {
            assert!(allowed.refuses("any", licence).is_some(), "{licence}");
        }
        assert_eq!(allowed.refuses("one", "MPL-2.0"), None);
    }
}
