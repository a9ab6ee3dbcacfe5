//! The bare-metal part: the kit in guest/ boots a driver without an operating system, which begins and ends a load when it is told to.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;
use serde_json::Value;

use crate::console::Console;
use crate::jobs::Job;
use crate::measure::measure_job;
use crate::options::Options;
use crate::place::{Place, kit};
use crate::probe::Client;
use crate::process::Stop;
use crate::progress::Progress;
use crate::results::{Measured, Section};
use crate::taken::Taken;
use crate::target::Target;

/// It boots in a second, but the first time it is tried under KVM; and a load ends when what is in flight has completed.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// What a driver and the program above it do for each read.
const WORK_NS: u64 = 2000;

/// Runs these jobs.
pub fn measure(
    (options, jobs): (&Options, &[Job]),
    (target, qemu): (&Target, &str),
    stop: &Arc<Stop>,
    progress: &Progress,
    section: &mut Section,
) -> Result<()> {
    let place = Place::Bare;
    let file = |what: &str| target.work_dir().join(format!("{}.{what}", place.name()));
    let line = file("taken");
    let mut command = Command::new(kit("run-bare.sh"));
    command.arg(format!("nvme:{}", target.socket(place.name()).display())).arg("--");
    command.args(["-name", "guest,debug-threads=on"]); // for the probe to know the CPU
    command.arg("-serial").arg(format!("unix:{},server=on,wait=off", line.display()));
    command.env("QEMU", qemu).stdin(Stdio::piped());
    let mut console = Console::of(&mut command, file("log"), stop)?;
    let mut commands = console.group.child.stdin.take().context("the guest's console")?;
    console.wait_for("GUEST-READY ", STEP_TIMEOUT, stop)?;
    section.about = console.about();
    let taken = Rc::new(Taken::connect(&line)?);
    // The script has become QEMU.
    let process = Pid::from_raw(console.group.child.id().try_into()?);
    for &job in jobs {
        let mut run = || -> Result<Measured> {
            let depth = depth(job).context("not a job for it")?;
            writeln!(commands, "run 0 0:{depth}:{WORK_NS}")?;
            let client = Client { process, computed: None, taken: Some(taken.clone()) };
            let served = (target, place, client);
            let measured = measure_job((job, options), served, stop, progress, || console.is_quiet())?;
            writeln!(commands, "stop")?;
            let result: Value = serde_json::from_str(&console.wait_for("RESULT ", STEP_TIMEOUT, stop)?)?;
            let stream = &result["streams"][0];
            if stream["failed"] != 0 || stream["bad"] != 0 || result["strays"] != 0 {
                bail!("reads failed, or had other data than was written: {result}");
            }
            Ok(measured)
        };
        section.jobs.push(run().with_context(|| job.name())?);
    }
    writeln!(commands, "off")?;
    console.finish()
}

/// Reads in flight.
const fn depth(job: Job) -> Option<u32> {
    match job {
        Job::Depth1 => Some(1),
        Job::Depth8 => Some(8),
        Job::Depth32 => Some(32),
        _ => None,
    }
}
