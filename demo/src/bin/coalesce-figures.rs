//! `coalesce-figures`: the pictures of `--plots` again, from the JSON of a run.

use anyhow::{Context as _, Result};
use clap::Parser;
use coalesce_demo::redraw::{of_comparison, of_demo};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Draws what --plots of coalesce-demo and coalesce-compare draws, from what --json has written
#[derive(Parser)]
#[command(version)]
struct Options {
    /// What --json of a run has written
    json: PathBuf,

    /// Directory for the pictures
    dir: PathBuf,
}

fn main() -> Result<()> {
    let Options { json, dir } = Options::parse();
    let name = json.display().to_string();
    let run: Value = serde_json::from_str(&fs::read_to_string(&json).context(name.clone())?).context(name.clone())?;
    let pictures = if run["servers"].is_array() { of_comparison(&run) } else { of_demo(&run) };
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    for (file, picture) in pictures.context(name)? {
        if let Some(picture) = picture {
            let path = dir.join(file);
            fs::write(&path, picture).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}
