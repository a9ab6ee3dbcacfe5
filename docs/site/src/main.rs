//! Writes the documentation as web pages: coalesce-site FOLDER

use anyhow::{Context as _, Result, bail};
use coalesce_site::{CONTENTS, build};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [folder] = arguments.as_slice() else { bail!("one folder is needed: coalesce-site FOLDER") };
    if folder.as_encoded_bytes().starts_with(b"-") {
        bail!("{} is an option, and there is none: coalesce-site FOLDER", folder.display());
    }
    let folder = PathBuf::from(folder);
    let site = build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), CONTENTS)?;
    for (path, bytes) in &site {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(&folder);
        std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    }
    println!("{}: {} files", folder.join("index.html").display(), site.len());
    Ok(())
}
