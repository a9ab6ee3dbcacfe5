//! Arbitrary text as a plan. One that is accepted has a text form that means the same and points that are all right; where it
//! is small enough it is simulated, and no rule is broken.
#![no_main]

use coalesce_sim::engine::{Wanted, simulate};
use coalesce_sim::plan::{Distribution, Plan, SIMULATIONS_MAX};
use coalesce_sim::run::jobs;
use coalesce_sim::units::{Cost, Time};
use libfuzzer_sys::fuzz_target;

/// Simulations of one input.
const JOBS_MAX: usize = 4;

/// Whether time passes fast enough: no more than some ten thousand events in all, and none that is years away.
fn is_small(plan: &Plan) -> bool {
    let machine = &plan.machine;
    let cost = |cost: Cost| (100..=100_000).contains(&cost.ns(machine.clock));
    let short = |time: Time| time.0 <= 100_000;
    let Some((_, service, transfer)) = plan.device.resolve() else { return false };
    let device = match service {
        Distribution::Fixed(time) | Distribution::Exponential(time) => (100..=100_000).contains(&time.0),
        Distribution::Lognormal(by) => (100..=100_000).contains(&by.mean.0) && by.stddev.0 <= by.mean.0,
        Distribution::Mixture(_) => false,
    };
    let guests = plan.hypervisor.unwrap_or_default();
    let faults = plan.faults.unwrap_or_default();
    let rare = |every: Option<Time>| every.is_none_or(|every| every.0 >= 100_000);
    let threads = plan.threads.iter().all(|thread| {
        let think = thread.think.map_or(0, |think| think.ns(machine.clock));
        let mix = thread
            .operations
            .iter()
            .all(|operation| operation.commands <= 16 && (operation.commands > 0 || cost(operation.think)));
        thread.count <= 4
            && thread.depth.unwrap_or(1) <= 64
            && thread.batch.unwrap_or(1) <= 64
            && thread.rate.is_none_or(|rate| rate.0 <= 10_000_000)
            && think <= 100_000
            && mix
    });
    plan.duration.0 + plan.warmup.0 <= 2_000_000
        && plan.threads.len() <= 4
        && plan.cpus() <= 4
        && threads
        && device
        && [machine.wire, transfer, plan.device.port, plan.device.gather, guests.clock_error].into_iter().all(short)
        && [machine.submit, machine.interrupt, machine.complete, machine.reap, machine.context_switch]
            .into_iter()
            .all(cost)
        && guests.hogs <= 4
        && guests.timeslice.0 >= 50_000
        && rare(faults.queue_resets_every)
        && rare(faults.clock_jumps.map(|jumps| jumps.every))
        && rare(faults.device_stalls.map(|stalls| stalls.every))
        && faults.device_stalls.is_none_or(|stalls| stalls.r#for.0 <= 10_000_000)
        && faults.clock_jumps.is_none_or(|jumps| jumps.by.0 <= 1_000_000_000)
}

fuzz_target!(|text: &str| {
    let plan = match Plan::parse("plan.toml", text) {
        Ok(plan) => plan,
        Err(error) => {
            let lines = text.split('\n').count();
            assert!(error.line.is_some_and(|line| (1..=lines).contains(&line)) && !error.message.is_empty(), "{error}");
            return;
        }
    };
    let printed = toml::to_string(&plan).expect("a plan has a text form");
    assert_eq!(Plan::parse("again.toml", &printed).as_ref(), Ok(&plan), "{printed}");
    let points = plan.points().expect("it was checked");
    if points.iter().any(|point| point.plan.threads.iter().any(|thread| thread.trace.is_some())) {
        return; // whose simulations begin with a file that arbitrary text names
    }
    let jobs = jobs(&plan).expect("it was checked");
    assert!((1..=SIMULATIONS_MAX).contains(&jobs.len()));
    for job in jobs.iter().take(JOBS_MAX).filter(|job| is_small(&job.point.plan)) {
        let outcome = simulate(&job.point, &job.contender, &Wanted::default()).expect("its clock is ours").outcome;
        assert!(outcome.verdict.is_clean(), "{}: {:?}", job.contender, outcome.verdict);
    }
});
