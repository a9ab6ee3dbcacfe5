//! The contract of a latency budget, by what requesters really waited: also where the account counts a depth that no device
//! sees.

use coalesce_sim::contract::{Load, jobs, loads, pairs};
use coalesce_sim::plan::Plan;
use coalesce_sim::run::{run, run_jobs};
use coalesce_sim::units::Time;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// Arrivals that do not wait have no depth. Where a limit makes them queue, none may be learned either: it would pay for waits.
#[test]
fn an_open_load_with_a_limit_waits_no_longer_than_the_budget_allows() {
    let mut plan = Plan::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/limits.toml")).unwrap();
    for seed in 1..=3 {
        plan.seed = seed;
        for outcome in run(&plan).unwrap() {
            assert!(
                outcome.verdict.is_clean(),
                "{} {:?} seed {seed}: {:?}",
                outcome.policy,
                outcome.settings,
                outcome.verdict
            );
        }
    }
}

/// Every rule is kept under all loads whose names are wanted.
fn check(is_wanted: impl Fn(&Load) -> bool, duration: Time) {
    let mut loads = loads(1..9, duration);
    loads.retain(is_wanted);
    let jobs = jobs(&loads, &["auto".parse().unwrap(), "budget".parse().unwrap()]).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let outcomes = run_jobs(&jobs, threads, &AtomicU64::new(0), |_, _| {}).unwrap();
    let pairs = pairs(&loads, &outcomes).unwrap();
    assert_eq!(pairs.len(), 2 * loads.len());
    let broken: Vec<_> = pairs.iter().filter(|pair| pair.broken.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The short form of `coalesce-sim contract`: a pause of the load is no proof of a depth.
#[test]
fn a_load_that_pauses_by_itself_waits_no_longer_than_the_budget_allows() {
    let names =
        ["8K/s for 600us, 2000us of pause", "16K/s for 200us, 600us of pause", "40K/s for 400us, 2000us of pause"];
    check(|load| names.contains(&&*load.plan.name), Time::ms(10_000));
}

#[test]
fn nor_does_one_that_comes_at_random() {
    check(|load| load.family == "random open", Time::ms(4_000));
}

/// Light ones, recorded ones, who waits beside a flood, and those whose processor is taken.
#[test]
fn nor_do_the_loads_of_the_scoreboard() {
    check(|load| load.family == "scoreboard", Time::ms(1_000));
}

#[test]
fn a_seed_is_a_load_and_no_two_have_the_same_name() {
    let (all, again) = (loads(1..100, Time::ms(1)), loads(1..100, Time::ms(1)));
    let names: std::collections::HashSet<_> = all.iter().map(|load| &load.plan.name).collect();
    assert_eq!(names.len(), all.len());
    assert_eq!(all.iter().filter(|load| load.family == "on/off").count(), 80);
    for (load, same) in all.iter().zip(&again) {
        assert_eq!(load.plan, same.plan);
    }
}
