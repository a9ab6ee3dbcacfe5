//! What a run's outcomes say, as a report.

use super::Job;
use crate::engine::{Wanted, simulate};
use crate::event::Event;
use crate::outcome::{Durations, Outcome};
use crate::plan::Plan;
use crate::report::{Entry, Percentiles, Report, Section};
use crate::units::Time;
use anyhow::Result;

/// After the warm-up, events are looked for in so much simulated time.
const SHOWN: Time = Time::ms(20);
/// Events of a time line.
const TIMELINE_MAX: usize = 400;

/// A section for each point of the sweep. `jobs` and `outcomes` belong together.
///
/// # Errors
/// A parameter of a policy that a clock in ns cannot carry.
pub fn report(plan: &Plan, jobs: &[Job], outcomes: &[Outcome]) -> Result<Report> {
    let per_point = plan.policies.len().max(1);
    let mut sections = Vec::new();
    for (jobs, outcomes) in jobs.chunks(per_point).zip(outcomes.chunks(per_point)) {
        let settings: Vec<_> = outcomes[0].settings.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        let entries = jobs.iter().zip(outcomes).map(|(job, outcome)| Ok(entry(outcome, timeline(job)?)));
        let entries = entries.collect::<Result<_>>()?;
        sections.push(Section { title: settings.join(", "), about: String::new(), entries });
    }
    let facts = [
        ("Plan", plan.name.clone()),
        ("Seed", plan.seed.to_string()),
        ("Measured", format!("{} of simulated time, after {}", plan.duration, plan.warmup)),
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    Ok(Report {
        title: format!("Interrupt coalescing, simulated: {}", plan.name),
        lead: plan.about.trim().to_owned(),
        facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
        notes: Vec::new(),
        summary: None,
        sections,
    })
}

fn entry(outcome: &Outcome, timeline: Vec<Event>) -> Entry {
    Entry {
        policy: outcome.policy.clone(),
        interrupts: None,
        interrupts_per_io: if outcome.iops > 0.0 { outcome.interrupts_per_s / outcome.iops } else { 0.0 },
        iops: Some(outcome.iops),
        cycles_per_io: Some(outcome.cycles_per_io),
        request_time: Some(outcome.request_time),
        held: None,
        optimum: None,
        latency: percentiles(&outcome.latency),
        delay: percentiles(&outcome.delay),
        bound: outcome.bound,
        late: outcome.verdict.late,
        wrong: outcome.verdict.wrong,
        reasons: outcome.reasons.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        timeline,
    }
}

fn percentiles(of: &Durations) -> Percentiles {
    let points = vec![(50.0, of.p50), (90.0, of.p90), (99.0, of.p99), (99.9, of.p999)];
    Percentiles { count: of.count, mean: of.mean, points, max: of.max }
}

/// What happens after the warm-up on the first line where anything does: the same for all policies.
fn timeline(job: &Job) -> Result<Vec<Event>> {
    let mut point = job.point.clone();
    point.plan.duration = Time(point.plan.duration.0.min(SHOWN.0));
    let wanted = Wanted { progress: None, timeline: Some((point.plan.warmup.0, TIMELINE_MAX)) };
    let timelines = simulate(&point, &job.contender, &wanted)?.timelines;
    Ok(timelines.into_iter().find(|events| !events.is_empty()).unwrap_or_default())
}
