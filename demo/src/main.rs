//! `coalesce-demo`: one disk under several policies in turn, natively and in Linux guests, and what each policy saved and cost.
//!
//! The order of things is in [`execute`]. What is run is in `jobs`, by whom in `native`, `guest` and `bare`, how it is counted in `probe`,
//! in which turns in `measure`, what is made of it in `results`, which numbers are
//! claims in `claims`, how it is shown in `summary`, `job_table` and `report`.

#![forbid(unsafe_code)]

mod bare;
mod claims;
mod compute;
mod console;
mod counts;
mod demo;
mod guest;
mod job_table;
mod jobs;
mod measure;
mod metric;
mod native;
mod options;
mod place;
mod policies;
mod probe;
mod process;
mod progress;
mod regime;
mod report;
mod results;
mod summary;
mod taken;
mod target;

use std::fmt::Display;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};

use coalesce_demo::machine::Machine;
use demo::Demo;
use options::Options;
use place::Place;
use process::Stop;
use results::Section;
use summary::COLUMNS;
use target::Target;

fn main() -> ExitCode {
    let options = Options::read();
    let stop = match Stop::install() {
        Ok(stop) => stop,
        Err(error) => return complain(&error),
    };
    match execute(&options, &stop) {
        Ok(failed) => ExitCode::from(u8::from(failed)),
        Err(_) if stop.requested() => {
            eprintln!("coalesce-demo: stopped");
            ExitCode::from(130)
        }
        Err(error) => complain(&error),
    }
}

fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("coalesce-demo: {error:#}");
    ExitCode::FAILURE
}

/// Everything, in order. Whether something failed that could be reported.
fn execute(options: &Options, stop: &Arc<Stop>) -> Result<bool> {
    let begin = Instant::now();
    options.check()?;
    // Before minutes of measuring, not after.
    for path in [&options.out, &options.json] {
        writable(path)?;
    }
    if let Some(dir) = &options.plots {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let images = options.image_dir.clone().unwrap_or_else(std::env::temp_dir);
    let machine = Machine::look(&images); // before the load average is our own
    let target = Target::start(options, stop)?;
    let run = |place: Place| match place {
        _ if !options.places.contains(&place) => Ok(Section::default()),
        Place::Native => native::run(options, &target, stop),
        Place::Guest | Place::Counted | Place::Nvme | Place::Bare => guest::run(options, place, &target, stop),
    };
    let (native, guest) = (run(Place::Native)?, run(Place::Guest)?);
    let (counted, nvme, bare) = (run(Place::Counted)?, run(Place::Nvme)?, run(Place::Bare)?);
    let demo = Demo { machine, options: options.clone(), command: command_line(), native, guest, counted, nvme, bare };

    let json = serde_json::to_string(&demo.json())? + "\n";
    for (path, text) in [(&options.out, report::page(&demo)), (&options.json, json)] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(dir) = &options.plots {
        for (name, picture) in report::figure::files(&demo) {
            let path = dir.join(name);
            fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    target.finish()?;
    for notice in demo.sections().iter().filter_map(|(_, section)| section.notice.as_ref()) {
        say(notice)?;
    }
    let styled = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let columns = terminal_size::terminal_size_of(std::io::stdout()).map_or(COLUMNS, |(width, _)| width.0.into());
    say(demo.summary().text(styled, columns).trim_end())?;
    let (out, json, seconds) = (options.out.display(), options.json.display(), begin.elapsed().as_secs());
    let more = if options.long { "" } else { "; more: make demo LONG=1, or coalesce-demo --help" };
    say(format_args!("{out} (open it in a browser) and {json}, after {seconds} s{more}"))?;
    Ok(demo.failed())
}

/// Like `println!`, which would panic when nobody reads, and leave the children behind.
fn say(what: impl Display) -> Result<()> {
    writeln!(std::io::stdout(), "{what}").context("standard output")
}

/// Tries to open a file for writing, and leaves everything as it was.
fn writable(path: &Path) -> Result<()> {
    let is_new = !path.exists();
    let file = fs::OpenOptions::new().append(true).create(true).open(path);
    file.with_context(|| format!("cannot write {}", path.display()))?;
    if is_new {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// As one would type it.
fn command_line() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+#".contains(c);
    let quoted = |word: String| {
        if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    std::env::args().map(quoted).collect::<Vec<_>>().join(" ")
}
