//! No let chains in a package whose `rust-version` is older than they are. Clippy finds functions that are too new, but no syntax.

use crate::commands::{cargo, lines};
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Expr, ExprBinary};
use walkdir::WalkDir;

/// Rust 1.88 is the first that has them.
const LET_CHAINS: u32 = 88;

/// Looks at all Rust files of the packages of this workspace that shall compile with an older Rust: also tests and examples.
///
/// # Errors
/// One has a let chain, or cannot be read; or there is no such package.
pub fn check(root: &Path) -> Result<(), Box<dyn Error>> {
    let mut found = Vec::new();
    let mut files = 0;
    for package in packages(root)? {
        for file in sources(&package)? {
            let lines =
                let_chains(&fs::read_to_string(&file)?).map_err(|error| format!("{}: {error}", file.display()))?;
            let name = file.strip_prefix(root).unwrap_or(&file).display();
            found.extend(lines.iter().map(|line| format!("{name}:{line}")));
            files += 1;
        }
    }
    match (files, &*found) {
        (0, _) => Err("no package compiles without let chains: this check is of no use any more".into()),
        (_, []) => Ok(()),
        (_, found) => Err(format!("let chains, which need Rust 1.{LET_CHAINS}:\n{}", found.join("\n")).into()),
    }
}

/// Directories of the packages that shall compile with a Rust that has no let chains.
fn packages(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let metadata = lines(cargo(root).args(["metadata", "--locked", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata.concat())?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let is_older = |package: &&Value| {
        let minor = package["rust_version"].as_str().and_then(|version| version.split('.').nth(1)?.parse().ok());
        minor.is_some_and(|minor: u32| minor < LET_CHAINS)
    };
    let manifests = packages.iter().filter(is_older).filter_map(|package| package["manifest_path"].as_str());
    Ok(manifests.filter_map(|manifest| Some(Path::new(manifest).parent()?.to_owned())).collect())
}

/// The Rust files of a package, without those of a package inside it.
fn sources(package: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    let is_own = |at: &Path| at == package || !at.join("Cargo.toml").exists();
    for entry in WalkDir::new(package).into_iter().filter_entry(|entry| is_own(entry.path())) {
        let path = entry?.into_path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// The lines on which a `let` is one of several conditions.
fn let_chains(text: &str) -> syn::Result<Vec<usize>> {
    struct Finder(Vec<usize>);
    impl Visit<'_> for Finder {
        fn visit_expr_binary(&mut self, binary: &ExprBinary) {
            for side in [&*binary.left, &*binary.right] {
                if let Expr::Let(condition) = side {
                    self.0.push(condition.let_token.span.start().line);
                }
            }
            visit::visit_expr_binary(self, binary);
        }
    }
    let mut finder = Finder(Vec::new());
    finder.visit_file(&syn::parse_file(text)?);
    finder.0.sort_unstable();
    Ok(finder.0)
}

#[cfg(test)]
mod tests {
    use super::let_chains;

    #[test]
    fn a_let_among_conditions_is_found_wherever_it_is() {
        let text = "fn f() {\n if a && let Some(b) = c {}\n while let Some(a) = b\n  && c {}\n if let Some(a) = b && let Some(c) = d {}\n}";
        assert_eq!(let_chains(text).unwrap(), [2, 3, 5, 5]);
    }

    #[test]
    fn a_let_that_is_alone_is_not() {
        let text = "fn f() { if let Some(a) = (b && c) {} let Some(d) = e && f else { return }; match g { h if i && j => {} } }";
        assert_eq!(let_chains(text).unwrap(), [0; 0]);
    }
}
