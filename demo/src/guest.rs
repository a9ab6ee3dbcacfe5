//! The guest parts: the kit in guest/ boots a Linux, which begins a load when the one before has been measured.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use crate::compute::Rounds;
use crate::jobs::Job;
use crate::measure::measure_job;
use crate::options::Options;
use crate::place::Place;
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
    match prepare(place, target, stop) {
        Ok(Ok(qemu)) => {
            if let Err(error) = measure(options, place, (target, &qemu), stop, &mut section) {
                stop.check()?;
                section.notice = Some(format!("FAILED: {}: {error:#}", place.title()));
                section.failed = true;
            }
        }
        Ok(Err(missing)) => section.notice = skipped(&missing),
        Err(error) => {
            stop.check()?;
            section.notice = Some(format!("FAILED: {}: {error:#}", place.title()));
            section.failed = true;
        }
    }
    Ok(section)
}

fn kit(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest").join(program)
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
    let _progress = Progress::begin("making the guest (the first time it downloads a kernel, fio and sqlite)")?;
    if let Err(missing) = make("make-guest.sh", &[], target, stop)? {
        return Ok(Err(missing));
    }
    match place {
        Place::Native | Place::Guest => Ok(Ok("qemu-system-x86_64".into())),
        Place::Nvme => make("make-qemu.sh", &[], target, stop),
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
    let mut guest = Guest::boot(options, place, &jobs, (target, qemu), stop)?;
    for job in jobs {
        let measured = guest.measure((job, options), (target, place), stop, &progress);
        section.about.clone_from(&guest.about);
        section.jobs.push(measured.with_context(|| job.name())?);
    }
    guest.finish()
}

/// A running guest.
struct Guest {
    group: Group,
    lines: Receiver<String>,
    /// The guest's console, where a line ends the load.
    input: File,
    log: PathBuf,
    pid_file: PathBuf,
    /// A byte for each round of the guest's loop.
    rounds: PathBuf,
    /// The socket of a serial line on which the guest counts the interrupts that it takes.
    line: PathBuf,
    taken: Option<Rc<Taken>>,
    about: String,
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
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut group = Group::spawn(&mut command, stop)?;
        let stdout = group.child.stdout.take().context("the guest's lines")?;
        let (sender, lines) = channel();
        // It ends when the guest has, and the process group ends with its value.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { group, lines, input, log, pid_file, rounds, line, taken: None, about: String::new() })
    }

    /// Waits for a line that begins so, and returns the rest of it.
    fn wait_for(&mut self, beginning: &str, stop: &Stop) -> Result<String> {
        let begin = Instant::now();
        loop {
            stop.check()?;
            match self.lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => {
                    if let Some(about) = line.strip_prefix("GUEST-READY ") {
                        self.about = describe(about);
                    }
                    if line.starts_with("GUEST-ERROR") || line.starts_with("GUEST-FIO") {
                        bail!("{line}");
                    }
                    if let Some(rest) = line.strip_prefix(beginning) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > STEP_TIMEOUT => {
                    bail!("the guest does not say {beginning}")
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.group.wait();
                    bail!("the guest has ended: {}", last_line(&self.log))
                }
            }
        }
    }

    fn measure(
        &mut self,
        (job, options): (Job, &Options),
        (target, place): (&Target, Place),
        stop: &Arc<Stop>,
        progress: &Progress,
    ) -> Result<Measured> {
        let step = self.wait_for("GUEST-STEP ", stop)?;
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
        let lines = &self.lines;
        let is_alive = || match lines.try_recv() {
            Ok(line) if line.starts_with("GUEST-INFO") => Ok(()),
            Ok(line) => bail!("the load has ended: {line}"),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => bail!("the guest has ended"),
            Err(std::sync::mpsc::TryRecvError::Empty) => Ok(()),
        };
        let measured = measure_job((job, options), served, stop, progress, is_alive)?;
        self.input.write_all(b"next\n").context("the guest's console")?;
        self.wait_for("GUEST-MEASURED", stop)?;
        Ok(measured)
    }

    fn finish(mut self) -> Result<()> {
        let status = self.group.wait()?;
        if status.success() { Ok(()) } else { bail!("{}", last_line(&self.log)) }
    }
}

/// What the kit says about the guest once it has booted: words NAME=VALUE.
fn describe(ready: &str) -> String {
    let value = |name: &str| ready.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    // The kit names what executes the guest's instructions only if that is not QEMU itself.
    let accelerator = value("accel").unwrap_or("TCG, software emulation");
    format!("Linux {} under QEMU ({accelerator})", value("kernel").unwrap_or("of unknown version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_described() {
        assert_eq!(
            describe("kernel=6.1.0 disks=vda,vdb uptime=2.4"),
            "Linux 6.1.0 under QEMU (TCG, software emulation)"
        );
        assert_eq!(describe("kernel=6.1.0 accel=KVM"), "Linux 6.1.0 under QEMU (KVM)");
    }
}
