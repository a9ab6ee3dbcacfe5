//! `coalesce-demo`: one disk under several policies in turn, natively and in Linux guests, and what each policy saved and cost.
//!
//! The order of things is in [`execute`]. What is run is in `jobs`, by whom in `native` and `guest`, how it is counted in `probe`,
//! in which turns in `measure`, what is made of it in `results`, which numbers are
//! claims in `claims`, how it is shown in `headline`, `job_table` and `report`.

#![forbid(unsafe_code)]

mod claims;
mod compute;
mod counts;
mod demo;
mod guest;
mod headline;
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
    let places = options.places();
    let target = Target::start(options, &places, stop)?;
    for policy in options.policies.0.iter().filter(|policy| policy.label != policy.text) {
        say(format_args!("{} is {}", policy.label, policy.text))?;
    }
    let run = |place: Place, option: &str| {
        let section = match place {
            _ if !places.contains(&place) => Section::left_out(option),
            Place::Native => native::run(options, &target, stop)?,
            Place::Guest | Place::Counted | Place::Nvme => guest::run(options, place, &target, stop)?,
        };
        show(place, &section)?;
        anyhow::Ok(section)
    };
    let native = run(Place::Native, "--no-native")?;
    let guest = run(Place::Guest, "--no-guest")?;
    let counted = run(Place::Counted, if options.no_guest { "--no-guest" } else { "--no-count" })?;
    let nvme = run(Place::Nvme, if options.no_guest { "--no-guest" } else { "--no-nvme" })?;
    let demo = Demo { machine, options: options.clone(), command: command_line(), native, guest, counted, nvme };
    for line in demo.headline() {
        say(format_args!("* {line}"))?;
    }
    let noise = demo.noise();
    say(format_args!(
        "Controls: {} of {} comparisons of {} with itself have 1 in their interval; {} turns were repeated.",
        noise.controls.1,
        noise.controls.0,
        options.policies.baseline().label,
        noise.repeats
    ))?;

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
    let (out, json, seconds) = (options.out.display(), options.json.display(), begin.elapsed().as_secs());
    say(format_args!("\n{out} (open it in a browser) and {json} after {seconds} s\n{NEXT}"))?;
    Ok(demo.failed())
}

const NEXT: &str = "
Next:
  --seconds 60                             narrower intervals
  --turn 1                                 policies that had time to learn
  --jobs mixed,batch4,fsync,depth8         other loads
  --policies none,vic --frontier vic:cif_threshold=8,vic:cif_threshold=2   more points for the picture
  --image-dir /mnt/nvme --direct           a real disk, without the page cache
  coalesce-sim run crates/coalesce-sim/plans/mixed.toml    devices that this machine does not have";

fn show(place: Place, section: &Section) -> Result<()> {
    let styled = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    say(format_args!("\n== {}", place.title()))?;
    for measured in &section.jobs {
        let (job, blocks) = (measured.job, measured.blocks.len());
        say(format_args!("\n{}: {}; {blocks} blocks; {}", job.name(), job.about(), measured.regime()))?;
        say(measured.smallest_effects())?;
        say(job_table::table(measured, false).text(styled).trim_end())?;
    }
    if let Some(notice) = &section.notice {
        say(notice)?;
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
