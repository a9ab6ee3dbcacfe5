//! `coalesce-demo`: serve one disk per policy, load all of them alike, natively and from a Linux guest, and show what
//! each policy saved and cost.
//!
//! The order of things is in [`execute`]. What is run is in `jobs`, how it is counted in `native` and `guest`, what is
//! made of it in `results`, how it is shown in `table` and `report`.

#![forbid(unsafe_code)]

mod demo;
mod guest;
mod jobs;
mod machine;
mod native;
mod options;
mod process;
mod progress;
mod report;
mod results;
mod table;
mod target;

use std::fmt::Display;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::Parser as _;

use demo::Demo;
use machine::Machine;
use options::{Options, Policies};
use process::Stop;
use results::Section;
use target::Target;

fn main() -> ExitCode {
    let options = Options::parse();
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
    for policy in options.policies.0.iter().filter(|policy| policy.label != policy.text) {
        say(format_args!("{} is {}", policy.label, policy.text))?;
    }
    let images = options.image_dir.clone().unwrap_or_else(std::env::temp_dir);
    let machine = Machine::look(&images); // before the load average is our own
    let target = Target::start(options, stop)?;
    let native = if options.no_native { left_out("--no-native") } else { native::run(options, &target, stop)? };
    show(&native, &options.policies)?;
    let guest = if options.no_guest { left_out("--no-guest") } else { guest::run(options, &target, stop)? };
    show(&guest, &options.policies)?;

    let demo = Demo {
        machine,
        policies: options.policies.clone(),
        image_bytes: options.image_size.0,
        direct: options.direct,
        command: command_line(),
        native,
        guest,
    };
    let json = serde_json::to_string(&demo.json())? + "\n";
    for (path, text) in [(&options.out, report::page(&demo)), (&options.json, json)] {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    target.finish()?;
    let (out, json, seconds) = (options.out.display(), options.json.display(), begin.elapsed().as_secs());
    say(format_args!("{out} (open it in a browser) and {json} after {seconds} s"))?;
    Ok(demo.failed())
}

fn left_out(option: &str) -> Section {
    Section { notice: Some(format!("Left out: {option}")), ..Section::default() }
}

fn show(section: &Section, policies: &Policies) -> Result<()> {
    let bold = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if let Some(part) = &section.part {
        say(table::table(part, policies, bold))?;
    }
    if let Some(notice) = &section.notice {
        say(format_args!("{notice}\n"))?;
    }
    Ok(())
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
