//! Writes the documentation as web pages: coalesce-site FOLDER [SIMULATOR]. The simulator is what
//! scripts/play.sh builds, for the playground.

use anyhow::{Context as _, Result, bail};
use coalesce_site::{CONTENTS, build};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let (folder, simulator) = match arguments.as_slice() {
        [folder] => (folder, None),
        [folder, simulator] => (folder, Some(simulator)),
        _ => bail!("a folder is needed: coalesce-site FOLDER [SIMULATOR]"),
    };
    if folder.as_encoded_bytes().starts_with(b"-") {
        bail!("{} is an option, and there is none: coalesce-site FOLDER [SIMULATOR]", folder.display());
    }
    let folder = PathBuf::from(folder);
    let read = |path: &OsString| std::fs::read(path).with_context(|| Path::new(path).display().to_string());
    let simulator = simulator.map(read).transpose()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let site = build(&root, CONTENTS, simulator.as_deref())?;
    for (path, bytes) in &site {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(&folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    println!("{}: {} files", folder.join("index.html").display(), site.len());
    Ok(())
}
