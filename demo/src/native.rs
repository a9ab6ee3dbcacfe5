//! The native part: the built-in client, in a process of its own so that its CPU time is its own.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;

use crate::compute::Computation;
use crate::jobs::Job;
use crate::measure::measure_job;
use crate::options::Options;
use crate::place::Place;
use crate::probe::Client;
use crate::process::{Group, Stop};
use crate::progress::Progress;
use crate::results::Section;
use crate::target::{Target, last_line};

/// Runs every job that the client has.
pub fn run(options: &Options, target: &Target, stop: &Arc<Stop>) -> Result<Section> {
    let progress = Progress::begin("native client")?;
    let jobs = options.jobs_at(Place::Native).into_iter().filter_map(|job| Some((job, job.bench_arguments()?)));
    let measured = jobs.map(|(job, arguments)| {
        let log = target.work_dir().join("bench.log");
        let mut command = Command::new(options.client_path()?);
        command.arg("--socket").arg(target.socket(Place::Native.name())).args(["--quiet", "--seconds", "100000"]);
        command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut client = Group::spawn(&mut command, stop)?;
        let pid = Pid::from_raw(client.child.id().try_into()?);
        let is_alive = || match client.try_wait()? {
            Some(status) => bail!("coalesce-bench: {status}: {}", last_line(&log)),
            None => Ok(()),
        };
        let loop_beside = (job == Job::Compute).then(|| Computation::beside(pid)).transpose()?;
        let computed = loop_beside.as_ref().map(Computation::rounds);
        let served = (target, Place::Native, Client { process: pid, computed, taken: None });
        measure_job((job, options), served, stop, &progress, is_alive).with_context(|| format!("native {}", job.name()))
    });
    Ok(Section { jobs: measured.collect::<Result<_>>()?, ..Section::default() })
}
