//! Blocks of turns of one job at one place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use coalesce_demo::paired::{Block, Plan, measure};
use coalesce_policy::Spec;

use crate::counts::Counts;
use crate::jobs::Job;
use crate::options::Options;
use crate::place::Place;
use crate::policies::{Policy, SETTLE};
use crate::probe::{Client, Probe};
use crate::process::Stop;
use crate::progress::Progress;
use crate::results::{self, Learned, Measured};
use crate::target::Target;

/// The time in which a policy learns is looked at so often.
const LOOKS: u32 = 30;
/// It learns by completions: under noise a first licence takes tens of thousands (docs/budget.md). Where fewer come in that time, or it
/// has no licence yet, it has more, but not more than three times as much.
const LEARNED: u64 = 50_000;
const LOOKS_MAX: u32 = 3 * LOOKS;
/// A load that does nothing for so long has failed.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Where the machine is too slow for the blocks of the first look, a job ends after this multiple of its length.
const LATE_MAX: f64 = 2.0;

/// Measures a job under every policy while `client` loads the disk with it. `is_alive`: an error if the load has ended.
pub fn measure_job(
    (job, options): (Job, &Options),
    (target, place, client): (&Target, Place, Client),
    stop: &Arc<Stop>,
    progress: &Progress,
    mut is_alive: impl FnMut() -> Result<()>,
) -> Result<Measured> {
    let disk = place.name();
    let probe = Probe::new(target, place, client)?;
    begun(&probe, stop, &mut is_alive)?;
    let compared = options.policies_at(place, job);
    let policies = compared.with_control();
    let turn_length = Duration::from_secs_f64(options.turn * job.turn_length() * place.turn_length());
    target.set_policy(disk, policies[0], false)?; // what was learned under another load is forgotten
    let mut learned = Vec::new();
    for policy in &compared.0 {
        if learns(policy)? {
            progress.at(0.0, &format!("{} {} learns", job.name(), policy.label));
            target.set_policy(disk, policies[0], true)?; // or it would go on with the account of another budget
            target.set_policy(disk, policy, true)?;
            let completions = (job != Job::Depth1).then_some(LEARNED); // who is alone teaches nothing
            learned.push(learn(policy, (place.learning(), completions), &probe, stop, &mut is_alive)?);
        }
    }
    let (begin, length) = (Instant::now(), options.seconds * job.length() * place.length());
    let of_block: Duration = policies.iter().map(|policy| Ok(settle(policy)? + turn_length)).sum::<Result<_>>()?;
    let fit = (length / of_block.as_secs_f64()) as usize;
    let plan = Plan::of_page(policies.len(), fit, options.seed);
    let mut blocks = 0;
    let turn = |variant: usize| -> Result<(Counts, f64)> {
        stop.check()?;
        is_alive()?;
        let policy = policies[variant];
        target.set_policy(disk, policy, true)?;
        std::thread::sleep(settle(policy)?);
        probe.turn(turn_length)
    };
    let late = || {
        blocks += 1;
        progress.at(begin.elapsed().as_secs_f64() / length, &format!("{} block {blocks}", job.name()));
        let times = begin.elapsed().as_secs_f64() / length;
        times >= 1.0 && blocks >= plan.looks[0] || times >= LATE_MAX
    };
    let enough = |blocks: &[Block<Counts>]| results::are_narrow(job, place, blocks, &plan);
    let blocks = measure(&plan, turn, late, enough)?;
    Ok(Measured { place, job, policies: compared, learned, blocks, plan })
}

/// Waits until the load has begun.
fn begun(probe: &Probe, stop: &Stop, is_alive: &mut impl FnMut() -> Result<()>) -> Result<()> {
    let (begin, before) = (Instant::now(), probe.completions()?);
    while probe.completions()? < before + 100 {
        stop.check()?;
        is_alive()?;
        if begin.elapsed() > BEGIN_TIMEOUT {
            bail!("the load does not begin");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A policy begins, and has some time before it is measured; and if it is to learn from a number of completions, until it has seen them and
/// has a licence.
fn learn(
    policy: &Policy,
    (length, completions): (Duration, Option<u64>),
    probe: &Probe,
    stop: &Stop,
    is_alive: &mut impl FnMut() -> Result<()>,
) -> Result<Learned> {
    let mut stretches: Vec<Counts> = Vec::new();
    let is_enough = |stretches: &[Counts]| {
        let seen = stretches.iter().map(|stretch| stretch.completions).sum::<u64>();
        let has_licence = stretches.last().is_some_and(|last| last.licensed > 0);
        completions.is_none_or(|completions| seen >= completions && has_licence)
    };
    for look in 0..LOOKS_MAX {
        if look >= LOOKS && is_enough(&stretches) {
            break;
        }
        stop.check()?;
        is_alive()?;
        stretches.push(probe.counts_in(length / LOOKS)?);
    }
    Ok(Learned { label: policy.label.clone(), stretches })
}

fn spec(policy: &Policy) -> Result<Spec> {
    policy.text.parse().with_context(|| policy.text.clone())
}

/// Whether it finds out in seconds what pays, and keeps that between its turns.
fn learns(policy: &Policy) -> Result<bool> {
    Ok(matches!(spec(policy)?, Spec::Auto(_)))
}

/// vIC has no rate to go by before the end of its first epoch.
fn settle(policy: &Policy) -> Result<Duration> {
    Ok(match spec(policy)? {
        Spec::Vic(params) => SETTLE + Duration::from_nanos(params.epoch_ns),
        _ => SETTLE,
    })
}
