//! Plans at random keep every rule; so do those that once did not.

use coalesce_sim::fuzz::{self, command::check};
use coalesce_sim::plan::Plan;
use coalesce_sim::run::run;
use coalesce_sim::units::Time;
use std::path::Path;

#[test]
fn plans_at_random() {
    let (_, broken) = check(0..1500);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The same plans with virtio's suppression.
#[test]
fn plans_at_random_with_event_idx() {
    for seed in 0..150 {
        let mut plan = fuzz::plan(seed);
        plan.machine.event_idx = true;
        for outcome in run(&plan).unwrap() {
            assert!(outcome.verdict.is_clean(), "seed {seed}: {:?}", outcome.verdict);
        }
    }
}

/// The examples are valid, and keep every rule. They are cut short: what they show is not tested here.
#[test]
fn examples() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut count = 0;
    for entry in plans.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let mut plan = Plan::read(&path).unwrap_or_else(|error| panic!("{error}"));
        (plan.warmup, plan.duration) = (Time(0), Time::ms(20));
        for outcome in run(&plan).unwrap() {
            assert!(outcome.verdict.is_clean(), "{}: {:?}", path.display(), outcome.verdict);
            assert!(outcome.iops > 0.0, "{}", path.display());
        }
        count += 1;
    }
    assert!(count >= 2);
}
