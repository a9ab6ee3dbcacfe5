//! Every crate in `crates/` can be published: it packages against the others, with what a registry shows, a README and both licences
//! inside, and its library and programs compile from what is in the package. The tests in a package read nothing else, and those of
//! a core are run there. Nothing else is ever published.
//!
//! Needs no network, and so does not run `cargo publish --dry-run`: it asks the registry even with `--offline`, for a crate without
//! dependencies too, and fails (cargo 1.95). What only a registry knows stays unchecked: whether a name is free, and whether a
//! category exists.

use crate::commands::{cargo, lines, target};
use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::{Table, Value};
use walkdir::WalkDir;

/// Who adds one of them locks two packages, for whatever target.
const CORES: [&str; 3] = ["vic-core", "cint-core", "budget-core"];

/// What all others build on.
const GROUND: &str = "coalesce-decision";

/// Checks what would be published.
///
/// # Errors
/// Something of it is not as it is said above.
pub fn check(root: &Path) -> Result<(), Box<dyn Error>> {
    let published = published(root)?;
    if !has_repository(root)? {
        println!("SKIPPED: repository of the packages: Cargo.toml has none, and the first publish needs one");
    }
    for core in CORES {
        let needed = needed(root, &["--offline", "--target=all", "--package", core])?;
        if needed != BTreeSet::from([core.to_owned(), GROUND.to_owned()]) {
            return Err(format!("{core} needs {needed:?}").into());
        }
    }
    if needed(root, &["--package=coalesce-target"])?.contains("coalesce-load") {
        return Err("what serves guests has a load generator in it: coalesce-target needs coalesce-load".into());
    }
    let version = lines(cargo(root).arg("--version"))?.concat();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    // Since 1.90 what is packaged together is resolved against each other.
    if minor.is_none_or(|minor: u32| minor < 90) {
        println!("SKIPPED: packages: {version}, this needs 1.90");
        return Ok(());
    }
    let made = target(root).join("package");
    package(root, &made, &published)?;
    for name in &published {
        unpack(root, &made, name)?;
    }
    look_for_strangers(&made)?;
    let workspace = Workspace { root, made: &made };
    workspace.write(&published)?;
    workspace.run(&["check", "--workspace"])?;
    workspace.run(&["test", "--package", GROUND, "--package", CORES[0]])?;
    println!("packages: {}, which compile; the tests of a core pass in its package", published.len());
    Ok(())
}

/// Whether it is known where the project can be found.
fn has_repository(root: &Path) -> Result<bool, Box<dyn Error>> {
    let manifest: Table = toml::from_str(&fs::read_to_string(root.join("Cargo.toml"))?)?;
    let shared = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    Ok(shared.ok_or("no workspace.package")?.get("repository").is_some())
}

/// The names of what can be published, after a look at all manifests of the project.
///
/// # Errors
/// One is published that is not in `crates/`, or the other way round, or lacks what a registry shows.
pub fn published(root: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut shown = vec!["description", "keywords", "categories", "readme"];
    if has_repository(root)? {
        shown.push("repository");
    }
    let mut published = Vec::new();
    for file in lines(Command::new("git").current_dir(root).args(["ls-files", "*Cargo.toml"]))? {
        let manifest: Table = toml::from_str(&fs::read_to_string(root.join(&file))?)?;
        let Some(package) = manifest.get("package").and_then(Value::as_table) else { continue };
        let is_published = package.get("publish") != Some(&Value::Boolean(false));
        if is_published != (Path::new(&file).parent().and_then(Path::parent) == Some(Path::new("crates"))) {
            return Err(format!("{file}: what is in crates/ can be published, and nothing else").into());
        }
        if !is_published {
            continue;
        }
        if let Some(key) = shown.iter().find(|key| !package.contains_key(**key)) {
            return Err(format!("{file} has no {key}").into());
        }
        published.push(package["name"].as_str().ok_or("a name is a text")?.to_owned());
    }
    Ok(published)
}

/// The names of what is linked into a package, with it.
fn needed(root: &Path, what: &[&str]) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let tree = ["tree", "--quiet", "--locked", "--edges=normal,build", "--prefix=none", "--format={p}"];
    let lines = lines(cargo(root).args(tree).args(what))?;
    Ok(lines.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

/// Makes the packages. A test that is kept out of its package, as it needs the repository, is a warning; no other is allowed.
fn package(root: &Path, made: &Path, names: &[String]) -> Result<(), Box<dyn Error>> {
    if made.exists() {
        fs::remove_dir_all(made)?;
    }
    let mut command = cargo(root);
    command.args(["package", "--locked", "--offline", "--allow-dirty", "--no-verify"]);
    let output = command.args(names.iter().map(|name| format!("--package={name}"))).output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    let is_bad = |line: &str| line.starts_with("warning") && !line.starts_with("warning: ignoring test ");
    if !output.status.success() || log.lines().any(is_bad) {
        return Err(format!("cargo package: {}\n{log}", output.status).into());
    }
    Ok(())
}

/// Unpacks a package. All files in it have one old date, by which Cargo would take them for those of the last run.
fn unpack(root: &Path, made: &Path, name: &str) -> Result<(), Box<dyn Error>> {
    let directory = made.join(name);
    let is_of_it = |path: &PathBuf| {
        let rest = path.file_name().and_then(OsStr::to_str).and_then(|file| file.strip_prefix(name)?.strip_prefix('-'));
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()) && rest.ends_with(".crate"))
    };
    let archive = fs::read_dir(made)?.filter_map(|entry| Some(entry.ok()?.path())).find(is_of_it);
    let archive = archive.ok_or_else(|| format!("{name}: cargo package has made none"))?;
    fs::create_dir(&directory)?;
    lines(Command::new("tar").arg("-xzmf").arg(archive).arg("-C").arg(&directory).args(["--strip-components", "1"]))?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        if fs::read(directory.join(licence)).ok() != Some(fs::read(root.join(licence))?) {
            return Err(format!("{name}: no {licence} in the package").into());
        }
    }
    if fs::metadata(directory.join("README.md")).is_ok_and(|readme| readme.len() > 0) {
        Ok(())
    } else {
        Err(format!("{name}: no README.md in the package").into())
    }
}

/// A test in a package that reads what is not in it.
fn look_for_strangers(made: &Path) -> Result<(), Box<dyn Error>> {
    for entry in WalkDir::new(made) {
        let path = entry?.into_path();
        let is_test = path.extension().is_some_and(|extension| extension == "rs")
            && path.components().any(|part| part.as_os_str() == "tests");
        if !is_test {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        if ["\"../..", "\"/../.."].iter().any(|up| text.contains(up)) {
            let advice = "reads what is not in its package; exclude in Cargo.toml";
            return Err(format!("{}: {advice}", path.display()).into());
        }
    }
    Ok(())
}

/// Of what was packaged. It shares what is built already of other crates.
struct Workspace<'a> {
    root: &'a Path,
    made: &'a Path,
}

impl Workspace<'_> {
    fn write(&self, names: &[String]) -> Result<(), Box<dyn Error>> {
        let ours: Table = toml::from_str(&fs::read_to_string(self.root.join("Cargo.toml"))?)?;
        let profile = ours.get("profile").and_then(|profile| profile.get("dev")).ok_or("no profile dev")?;
        let patch: Table = names
            .iter()
            .map(|name| (name.clone(), Table::from_iter([("path".to_owned(), name.clone().into())]).into()))
            .collect();
        let mut workspace: Table = toml::from_str(
            "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\nexclude = [\"tmp-crate\", \"tmp-registry\"]\n[profile]\n[patch]\n",
        )?;
        workspace["profile"] = Table::from_iter([("dev".to_owned(), profile.clone())]).into();
        workspace["patch"] = Table::from_iter([("crates-io".to_owned(), Value::from(patch))]).into();
        fs::write(self.made.join("Cargo.toml"), toml::to_string(&workspace)?)?;
        fs::copy(self.root.join("Cargo.lock"), self.made.join("Cargo.lock"))?;
        Ok(())
    }

    fn run(&self, what: &[&str]) -> Result<(), Box<dyn Error>> {
        let mut command = cargo(self.made);
        command.args(what).args(["--quiet", "--offline"]).arg("--target-dir").arg(target(self.root));
        lines(&mut command).map(drop)
    }
}
