//! The native part: the built-in client, which counts every interrupt exactly.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use coalesce_load::{JobName, Queues, Report};
use serde_json::json;

use crate::jobs::{Job, ROUNDS};
use crate::options::Options;
use crate::process::Stop;
use crate::progress::Progress;
use crate::results::{Cell, Latency, Part, Place, Sample, Section};
use crate::target::Target;

/// Runs every job under every policy, in rounds.
pub fn run(options: &Options, target: &Target, stop: &Arc<Stop>) -> Result<Section> {
    let policies = &options.policies.0;
    let target_before = target.stats()?;
    let sockets: Vec<_> = target.sockets().collect();
    let runs = (Job::ALL.len() * ROUNDS * policies.len()) as u64;
    let progress = Progress::begin("native client", runs)?;
    let (mut cells, mut raw) = (Vec::new(), Vec::new());
    for job in Job::ALL {
        let empty = |row| (0..policies.len()).map(move |policy| Cell { row, policy, rounds: Vec::new() });
        let mut of_job: Vec<_> = job.rows().flat_map(empty).collect();
        for round in 0..ROUNDS {
            // All policies before the next round, each round with another one first: a slow spell, or the disk's
            // warming up, hits all alike.
            for turn in 0..policies.len() {
                let policy = (turn + round) % policies.len();
                let label = &policies[policy].label;
                progress.now(&format!("{} {label}", job.name()));
                let load = job.options(sockets[policy], options.seconds, seed(round));
                let what = || format!("native {} under {label}", job.name());
                let report = coalesce_load::run(&load, |_| ()).with_context(what)?;
                stop.check()?;
                if let Some(failure) = report.failures.first() {
                    bail!("{}: {failure}", what());
                }
                for cell in of_job.iter_mut().filter(|cell| cell.policy == policy) {
                    cell.rounds.push(sample(&report, cell.row().requester).with_context(what)?);
                }
                raw.push(json!({ "jobname": job.name(), "policy": label, "round": round, "report": report }));
                progress.step();
            }
        }
        cells.append(&mut of_job);
    }
    drop(progress);
    let part = Part {
        place: Place::Native,
        cells,
        baseline: options.policies.baseline(),
        seconds: options.seconds,
        raw,
        target_before,
        target_after: target.stats()?,
        guest_interrupts: Vec::new(),
        about: String::new(),
    };
    Ok(Section { part: Some(part), ..Section::default() })
}

/// Every policy gets the same offsets, every round others.
pub const fn seed(round: usize) -> u64 {
    round as u64 + 1
}

fn sample(report: &Report, requester: JobName) -> Result<Sample> {
    let of = |job: &&coalesce_load::JobReport| job.jobname == requester && job.queue == Queues::All;
    let job = report.jobs.iter().find(of).with_context(|| format!("the client reported nothing about {requester}"))?;
    let percentile = job.clat_ns.percentile.iter().map(|&(percent, ns)| (percent, ns as f64)).collect();
    Ok(Sample {
        iops: job.iops,
        latency: Latency { n: job.clat_ns.N, percentile },
        requests: report.total.total_ios,
        interrupts: report.total.interrupts,
    })
}
