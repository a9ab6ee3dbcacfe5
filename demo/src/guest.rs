//! The guest parts: the kit in guest/ boots a Linux, which begins a load when the one before has been measured.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::bare;
use crate::compute::Rounds;
use crate::console::Console;
use crate::jobs::Job;
use crate::measure::measure_job;
use crate::options::Options;
use crate::place::{Place, kit};
use crate::probe::Client;
use crate::process::{Group, Stop};
use crate::progress::Progress;
use crate::results::{Measured, Section};
use crate::taken::Taken;
use crate::target::{Target, last_line};

/// Booting under emulation and making a file system take no longer, even on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(150);

/// Runs the jobs in a guest, or says loudly why not: what was measured before is worth a report. An error: a signal.
pub fn run(options: &Options, place: Place, target: &Target, stop: &Arc<Stop>) -> Result<Section> {
    let mut section = Section::default();
    let instead = if place == Place::Nvme { "; --places native,guest has a virtio-blk disk instead" } else { "" };
    let skipped = |why: &str| Some(format!("SKIPPED: {}: {why}{instead}", place.title()));
    let measured = prepare(place, target, stop).and_then(|qemu| match qemu {
        Ok(qemu) => measure(options, place, (target, &qemu), stop, &mut section),
        Err(missing) => {
            section.notice = skipped(&missing);
            Ok(())
        }
    });
    if let Err(error) = measured {
        stop.check()?;
        section.notice = Some(format!("FAILED: {}: {error:#}", place.title()));
        section.failed = true;
    }
    Ok(section)
}

/// Makes what a guest needs; its QEMU. Or says what is missing for it.
fn prepare(place: Place, target: &Target, stop: &Arc<Stop>) -> Result<Result<String, String>> {
    let ready = kit("ready.sh");
    let Ok(answer) = Command::new(&ready).output() else {
        return Ok(Err(format!("{} cannot be run: build this program in its repository", ready.display())));
    };
    if !answer.status.success() {
        return Ok(Err(String::from_utf8_lossy(&answer.stdout).trim().to_owned()));
    }
    // Made beforehand, and not by run-guest.sh, to tell what is missing from what is broken.
    let (script, making) = match place {
        Place::Bare => ("make-bare.sh", "making the guest"),
        _ => ("make-guest.sh", "making the guest (the first time it downloads a kernel, fio and sqlite)"),
    };
    let _progress = Progress::begin(making)?;
    if let Err(missing) = make(script, &[], target, stop)? {
        return Ok(Err(missing));
    }
    match place {
        Place::Native | Place::Guest => Ok(Ok("qemu-system-x86_64".into())),
        Place::Nvme | Place::Bare => make("make-qemu.sh", &[], target, stop),
        Place::Counted => {
            let work = target.work_dir();
            match make("plugin/build.sh", &[work, &work.join("mark")], target, stop)? {
                Ok(_) => make("make-qemu.sh", &[], target, stop),
                missing => Ok(missing),
            }
        }
    }
}

/// What a script of the kit prints, or its last complaint.
fn make(script: &str, arguments: &[&Path], target: &Target, stop: &Arc<Stop>) -> Result<Result<String, String>> {
    let [log, out] = ["log", "out"].map(|end| target.work_dir().join(format!("{}.{end}", script.replace('/', "-"))));
    let mut command = Command::new(kit(script));
    command.args(arguments).stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&log)?);
    let status = Group::spawn(&mut command, stop)?.wait()?;
    stop.check()?;
    Ok(if status.success() { Ok(last_line(&out)) } else { Err(last_line(&log)) })
}

fn measure(
    options: &Options,
    place: Place,
    (target, qemu): (&Target, &str),
    stop: &Arc<Stop>,
    section: &mut Section,
) -> Result<()> {
    let jobs = options.jobs_at(place);
    if jobs.is_empty() {
        section.notice = Some(format!("Left out: {}: none of the jobs is for it", place.title()));
        return Ok(());
    }
    let progress = Progress::begin(place.title())?;
    progress.at(0.0, "booting");
    if place == Place::Bare {
        return bare::measure((options, &jobs), (target, qemu), stop, &progress, section);
    }
    let mut guest = Guest::boot(options, place, &jobs, (target, qemu), stop)?;
    for job in jobs {
        let measured = guest.measure((job, options), (target, place), stop, &progress);
        section.about = guest.console.about();
        section.jobs.push(measured.with_context(|| job.name())?);
    }
    guest.console.finish()
}

/// A running guest.
struct Guest {
    console: Console,
    /// What it reads there: a line ends the load.
    input: File,
    pid_file: PathBuf,
    /// A byte for each round of the guest's loop.
    rounds: PathBuf,
    /// The socket of a serial line on which the guest counts the interrupts that it takes.
    line: PathBuf,
    taken: Option<Rc<Taken>>,
}

impl Guest {
    fn boot(
        options: &Options,
        place: Place,
        jobs: &[Job],
        (target, qemu): (&Target, &str),
        stop: &Arc<Stop>,
    ) -> Result<Self> {
        let file = |what: &str| target.work_dir().join(format!("{}.{what}", place.name()));
        let (fifo, log, pid_file, rounds) = (file("input"), file("log"), file("pid"), file("rounds"));
        let line = file("taken");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).context("a pipe to the guest")?;
        // For reading as well: it then opens without a reader.
        let input = OpenOptions::new().read(true).write(true).open(&fifo).context("a pipe to the guest")?;
        let names: Vec<_> = jobs.iter().map(|job| job.name()).collect();
        let lengths: f64 = jobs.iter().map(|job| options.seconds * job.length() + STEP_TIMEOUT.as_secs_f64()).sum();
        let protocol = if place == Place::Nvme { "nvme:" } else { "" };
        let mut command = Command::new(kit("run-guest.sh"));
        command.arg("demo").arg(format!("{protocol}{}", target.socket(place.name()).display()));
        command.arg(format!("LOADS={}", names.join(","))).arg("TAKEN=ttyS1").arg("--").arg("-pidfile").arg(&pid_file);
        command.args(["-name", "guest,debug-threads=on"]); // for the probe to know the CPUs
        command.arg("-debugcon").arg(format!("file:{}", rounds.display()));
        command.arg("-serial").arg(format!("unix:{},server=on,wait=off", line.display()));
        if place == Place::Counted {
            let plugin = target.work_dir().join("count.so");
            command.arg("-plugin").arg(format!("{},socket={}", plugin.display(), target.counter().display()));
        }
        command.env("QEMU", qemu).env("INPUT", &fifo).env("TIMEOUT", lengths.ceil().to_string());
        command.env_remove("RUNTIME").env_remove("COUNT");
        command.stdin(Stdio::null());
        let console = Console::of(&mut command, log, stop)?;
        Ok(Self { console, input, pid_file, rounds, line, taken: None })
    }

    fn measure(
        &mut self,
        (job, options): (Job, &Options),
        (target, place): (&Target, Place),
        stop: &Arc<Stop>,
        progress: &Progress,
    ) -> Result<Measured> {
        let step = self.console.wait_for("GUEST-STEP ", STEP_TIMEOUT, stop)?;
        if step != job.name() {
            bail!("the guest begins {step}");
        }
        let pid = fs::read_to_string(&self.pid_file).context("QEMU's process")?;
        let process = Pid::from_raw(pid.trim().parse().context("QEMU's process")?);
        let computed = (job == Job::Compute).then(|| Rounds::File(self.rounds.clone()));
        let taken = match &self.taken {
            Some(taken) => taken.clone(),
            None => self.taken.insert(Rc::new(Taken::connect(&self.line)?)).clone(),
        };
        let served = (target, place, Client { process, computed, taken: Some(taken) });
        let measured = measure_job((job, options), served, stop, progress, || self.console.is_quiet())?;
        self.input.write_all(b"next\n").context("the guest's console")?;
        self.console.wait_for("GUEST-MEASURED", STEP_TIMEOUT, stop)?;
        Ok(measured)
    }
}
