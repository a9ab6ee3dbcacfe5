//! The contract of a latency budget, under the loads that try it: what a request takes its requester, over `none`.
//!
//! Loads that pause by themselves, come at random, follow a flood, are light, mix who waits with who floods, or lose their CPU. Each runs
//! for long, so that what learning costs is a small part.

#[cfg(feature = "cli")]
pub mod command;

use crate::contender::Contender;
use crate::engine::Random;
use crate::outcome::Outcome;
use crate::plan::{Arrivals, Device, Distribution, Kind, Lognormal, Plan, Preset, Thread, Wrong};
use crate::report::text::aligned;
use crate::run::Job;
use crate::score::{self, workload::Workload, workload::machine};
use crate::units::{Rate, Time};
use coalesce_policy::HoldReason;
use serde::Serialize;
use std::ops::Range;

/// Another stream than those of the simulation with the same seed.
const STREAM: u64 = 1 << 35;

/// Loads that are named as the worst of a policy.
const WORST_SHOWN: usize = 6;

/// Request times over `none` that are counted: a budget of 5 %, twice that, and half as much again.
const OVER: [f64; 3] = [1.06, 1.15, 1.5];

/// What a request may take its requester, over `none`: what a budget of 5 % adds, and a little for what learning takes.
pub const LIMIT: f64 = 1.06;

/// The kind of loads that nobody has chosen.
const RANDOM: &str = "random open";

/// The kind of loads that begin when a flood ends.
const AFTER_FLOOD: &str = "after a flood";

/// Loads that may take more, and how much, by name or kind. Someone who waits for each request beside a flood, on one interrupt vector:
/// waits that the flood gains by are the reader's, too, and no budget of a vector tells them apart. And random loads: one in a hundred
/// is at its own limit, where a queue multiplies what is added, or has a licence by chance for a while; and a licence takes a while to
/// end after the load that earned it (`docs/budget.md`, limits).
pub const EXCEPTIONS: [(&str, f64); 9] = [
    ("memory/guest-mixed", 3.0),
    ("memory/guest-mixed-hinted", 1.5),
    ("p3700/guest-mixed", 1.85),
    ("p3700/guest-mixed-hinted", 1.15),
    ("p3700/mixed", 1.15),
    ("optane/mixed", 1.85),
    ("optane/mixed-sync4", 1.5),
    (RANDOM, 1.15),
    (AFTER_FLOOD, 1.15),
];

/// Who holds with a licence this part of the commands of requesters that all wait must make them faster by it.
const LICENSED: f64 = 0.05;

/// What a command may then take all of them together, over `none`.
pub const LICENSED_LIMIT: f64 = 1.0;

/// A load, and whose time counts.
#[derive(Clone, Debug)]
pub struct Load {
    /// What kind of load.
    pub family: &'static str,
    /// The thread whose time counts; `None`: all threads count.
    pub of: Option<String>,
    /// A plan without policies.
    pub plan: Plan,
}

impl Load {
    /// The plan of the load, with `none` and these policies.
    #[must_use]
    pub fn under(&self, policies: &[Contender]) -> Plan {
        Plan { policies: score::beside_baseline(policies), ..self.plan.clone() }
    }
}

fn open_loop(name: &str, rate: u64, depth: u32, bursts: Option<(u64, u64)>) -> Thread {
    let (on, off) = bursts.map(|(on, off)| (Time::us(on), Time::us(off))).unzip();
    let (rate, depth) = (Some(Rate(rate)), Some(depth));
    Thread { rate, depth, on, off, arrivals: Arrivals::Poisson, ..Thread::new(name, Kind::Open) }
}

fn load(family: &'static str, name: &str, device: Device, threads: Vec<Thread>) -> Load {
    Load { family, of: None, plan: Plan { threads, ..Plan::new(name, device) } }
}

/// Arrivals for a while, and a pause: every combination.
fn on_off() -> Vec<Load> {
    let mut loads = Vec::new();
    for rate in [8, 16, 40, 100] {
        for on in [100, 200, 400, 600, 1000] {
            for off in [300, 600, 1000, 2000] {
                let thread = open_loop("arrivals", rate * 1000, 512, Some((on, off)));
                let name = format!("{rate}K/s for {on}us, {off}us of pause");
                loads.push(load("on/off", &name, Device::preset(Preset::OptaneP4800x), vec![thread]));
            }
        }
    }
    loads
}

/// One or two open loops at random, most of them with pauses, on one of five devices.
fn open(seed: u64) -> Load {
    let mut random = Random::new(seed, STREAM);
    // As many small ones as large ones.
    let mut between = |low: u64, high: u64| {
        let part = random.below(1 << 20) as f64 / (1 << 20) as f64;
        (low as f64 * libm::exp(part * libm::log(high as f64 / low as f64))) as u64
    };
    let lognormal =
        |mean, stddev| Distribution::Lognormal(Lognormal { mean: Time::us(mean), stddev: Time::us(stddev) });
    let devices = [
        Device::preset(Preset::OptaneP4800x),
        Device::preset(Preset::P3700),
        Device::new(8, Distribution::Exponential(Time::us(40))),
        Device::new(1, lognormal(4, 1)),
        Device::new(64, lognormal(300, 200)),
    ];
    let choices: Vec<_> = (0..2)
        .map(|_| {
            let (rate, on, off) = (between(1_000, 90_000), between(50, 20_000), between(50, 20_000));
            (rate, (on, off))
        })
        .collect();
    let device = devices[random.below(5) as usize].clone();
    let count = 1 + usize::from(random.below(4) == 0);
    let threads = choices.into_iter().take(count).zip(["one", "two"]).map(|((rate, bursts), name)| {
        let depth = [16, 64, 512][random.below(3) as usize];
        open_loop(name, rate, depth, (random.below(4) > 0).then_some(bursts))
    });
    let threads = threads.collect();
    let mut load = load(RANDOM, &format!("seed {seed}"), device, threads);
    load.plan.seed = seed;
    load
}

/// During the warm-up a guest for which interrupts are expensive keeps 32 commands in flight. Random arrivals follow, which gain nothing
/// by holding.
fn after_flood(length: Time) -> Vec<Load> {
    let lognormal = Distribution::Lognormal(Lognormal { mean: Time::us(10), stddev: Time::us(3) });
    let devices = [
        ("optane", Device::preset(Preset::OptaneP4800x)),
        ("p3700", Device::preset(Preset::P3700)),
        ("10us", Device::new(8, lognormal)),
    ];
    let mut loads = Vec::new();
    for of in ["virtual", "emulated"] {
        for (name, device) in &devices {
            for rate in [2, 5, 9] {
                let (on, off) = (Some(length), Some(Time::ms(1_000_000)));
                let flood =
                    Thread { depth: Some(32), reap_when_full: true, on, off, ..Thread::new("flood", Kind::Async) };
                let arrivals = open_loop("arrivals", rate * 1000, 64, None);
                let name = format!("{name} in a guest ({of}), {rate}K/s");
                let mut load = load(AFTER_FLOOD, &name, device.clone(), vec![flood, arrivals]);
                (load.of, load.plan.machine) = (Some("arrivals".into()), machine(of));
                loads.push(load);
            }
        }
    }
    loads
}

/// All loads, with random ones of these seeds; the last of `duration` is measured.
#[must_use]
pub fn loads(seeds: Range<u64>, duration: Time) -> Vec<Load> {
    let of_the_scoreboard = Workload::all().into_iter().filter(|workload| workload.is_contract).map(|workload| Load {
        family: "scoreboard",
        plan: workload.plan(&[], 1, duration),
        of: workload.latency_of,
    });
    let warmup = Time(duration.0 / 4);
    let mut loads: Vec<_> = on_off().into_iter().chain(seeds.map(open)).collect();
    loads.extend(after_flood(warmup).into_iter().chain(of_the_scoreboard));
    for Load { plan, .. } in &mut loads {
        (plan.warmup, plan.duration) = (warmup, duration);
    }
    loads
}

/// Every simulation: load by load, `none` and then the policies.
///
/// # Errors
/// A load with a value that is not allowed.
pub fn jobs(loads: &[Load], policies: &[Contender]) -> Result<Vec<Job>, Wrong> {
    let mut jobs = Vec::new();
    for load in loads {
        jobs.extend(crate::run::jobs(&load.under(policies))?);
    }
    Ok(jobs)
}

/// A policy under a load, over `none`.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The load's kind.
    pub family: &'static str,
    /// The load.
    pub load: String,
    /// The policy.
    pub policy: String,
    /// What a request takes its requester, over `none`.
    pub time: f64,
    /// What a command takes all requesters together, over `none`.
    pub time_of_all: f64,
    /// The part of the commands that were held with a licence.
    pub licensed: f64,
    /// Interrupts per command, over `none`.
    pub interrupts: f64,
    /// The first rule that it broke.
    pub broken: Option<String>,
}

impl Pair {
    /// What a request may take its requester here where `limit` is what it may take elsewhere.
    #[must_use]
    pub fn limit(&self, limit: f64) -> f64 {
        let own = EXCEPTIONS.iter().find(|(load, _)| *load == self.load || *load == self.family);
        own.map_or(limit, |&(_, own)| own.max(limit))
    }
}

/// Compares what the [`jobs`] gave.
///
/// # Errors
/// A run without completions or interrupts.
pub fn pairs(loads: &[Load], outcomes: &[Outcome]) -> anyhow::Result<Vec<Pair>> {
    score::ensure_enough(outcomes)?;
    let time = |outcome: &Outcome, load: &Load| {
        let of = |name: &String| outcome.threads.iter().find(|thread| thread.name == *name);
        load.of.as_ref().and_then(of).map_or(outcome.request_time, |thread| thread.request_time)
    };
    let interrupts = |outcome: &Outcome| outcome.interrupts_per_s / outcome.iops;
    let licensed = |outcome: &Outcome| {
        let holds = outcome.holds.get(HoldReason::Licensed.name()).copied().unwrap_or(0);
        holds as f64 / (outcome.iops * outcome.measured as f64 / 1e9)
    };
    let mut pairs = Vec::new();
    for (load, outcomes) in loads.iter().zip(outcomes.chunks(outcomes.len() / loads.len().max(1))) {
        let Some((none, others)) = outcomes.split_first() else { continue };
        let all_wait = load.plan.threads.iter().all(|thread| thread.kind != Kind::Open);
        pairs.extend(others.iter().map(|outcome| {
            let (time_of_all, licensed) = (outcome.request_time / none.request_time, licensed(outcome));
            let in_vain = (all_wait && licensed > LICENSED && time_of_all > LICENSED_LIMIT).then(|| {
                format!("held {licensed:.3} of the commands with a licence, and they take {time_of_all:.3} x the time")
            });
            let found = outcome.verdict.violations.first();
            Pair {
                family: load.family,
                load: load.plan.name.clone(),
                policy: outcome.policy.clone(),
                time: time(outcome, load) / time(none, load),
                time_of_all,
                licensed,
                interrupts: interrupts(outcome) / interrupts(none),
                broken: found.map(|found| format!("at {} ns: {}", found.at, found.what)).or(in_vain),
            }
        }));
    }
    Ok(pairs)
}

/// A line for each policy and kind of load, and then the worst loads.
#[must_use]
pub fn table(pairs: &[Pair]) -> String {
    let mut groups: Vec<(&str, &str, Vec<&Pair>)> = Vec::new();
    for pair in pairs {
        match groups.iter_mut().find(|(policy, family, _)| (*policy, *family) == (&pair.policy, pair.family)) {
            Some((_, _, group)) => group.push(pair),
            None => groups.push((&pair.policy, pair.family, vec![pair])),
        }
    }
    let (mut lines, mut worst) = (Vec::new(), Vec::new());
    for (policy, family, group) in &mut groups {
        group.sort_by(|a, b| b.time.total_cmp(&a.time));
        let [a, b, c] = OVER.map(|over| group.iter().filter(|pair| pair.time > over).count().to_string());
        let interrupts = score::geometric_mean(group.iter().map(|pair| pair.interrupts));
        let broken = group.iter().filter(|pair| pair.broken.is_some()).count();
        let name = format!("{policy}, {family}");
        let (count, times) = (group.len().to_string(), score::ratio_text(group[0].time));
        lines.push([name, count, a, b, c, times, score::ratio_text(interrupts), broken.to_string()]);
        let bad = group.iter().filter(|pair| pair.time > OVER[0]).take(WORST_SHOWN);
        worst.extend(bad.map(|pair| {
            [
                format!("{policy}, {family}: {}", pair.load),
                score::ratio_text(pair.time),
                score::ratio_text(pair.interrupts),
            ]
        }));
    }
    let [a, b, c] = OVER.map(|over| format!("over {over}"));
    let heads = ["", "loads", &a, &b, &c, "worst", "interrupts", "rules broken"];
    let worst = if worst.is_empty() {
        String::new()
    } else {
        format!("\nthe worst of those over {}\n{}", OVER[0], aligned(&["load", "time", "interrupts"], &worst))
    };
    aligned(&heads, &lines) + &worst
}
