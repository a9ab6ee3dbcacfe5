//! The scoreboard says what it said: no change makes a policy better or worse unnoticed.

use coalesce_sim::contender::Contender;
use coalesce_sim::run::run_jobs;
use coalesce_sim::score::workload::Workload;
use coalesce_sim::score::{Board, Contest, DURATION};
use std::collections::HashSet;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::AtomicU64;

fn board(filter: &str, policies: Vec<Contender>, seeds: u64, threads: usize) -> Board {
    let mut workloads = Workload::all();
    workloads.retain(|workload| workload.name.contains(filter));
    let contest = Contest { workloads, policies, seeds, duration: DURATION };
    let outcomes = run_jobs(&contest.jobs().unwrap(), threads, &AtomicU64::new(0), |_, _| {}).unwrap();
    contest.score(&outcomes).unwrap()
}

/// To write it anew: `UPDATE=1 cargo test -p coalesce-sim --test score`.
#[test]
fn every_policy_scores_what_it_scored() {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let table = board("", Contest::policies(), 1, threads).table();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/score.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    let changed: Vec<_> = table.lines().filter(|line| !committed.lines().any(|old| old == *line)).collect();
    assert!(table == committed, "run this test with UPDATE=1 if this is meant:\n{}", changed.join("\n"));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let board = |threads| board("optane/batch", Contest::policies(), 2, threads);
    assert_eq!(board(1).to_json(true), board(4).to_json(true));
}

#[test]
fn a_policy_compared_with_itself_changes_nothing() {
    let board = board("guest", vec!["none".parse().unwrap()], 1, 2);
    let figures = board.to_json(false)["policies"][0]["figures"].clone();
    for figure in figures.as_array().unwrap() {
        assert_eq!((&figure["mean"], &figure["worst"]), (&1.0.into(), &1.0.into()), "{figure}");
    }
}

#[test]
fn workloads_have_unique_names_and_reasons() {
    let workloads = Workload::all();
    let names: HashSet<_> = workloads.iter().map(|workload| &workload.name).collect();
    assert!(names.len() == workloads.len() && names.len() >= 64, "{}", names.len());
    for Workload { name, why, .. } in &workloads {
        assert!(!why.is_empty(), "{name}");
    }
}

/// The guest of docs/results.md: 0.2 to 0.9 interrupts per I/O under `none` at depth 32, and one at depth 1.
#[test]
fn an_emulated_guest_suppresses_interrupts_by_itself() {
    let outcomes = |filter: &str| {
        let mut workloads = Workload::all();
        workloads.retain(|workload| workload.name.contains(filter));
        let contest = Contest { workloads, policies: Vec::new(), seeds: 1, duration: DURATION };
        run_jobs(&contest.jobs().unwrap(), 1, &AtomicU64::new(0), |_, _| {}).unwrap()
    };
    for outcome in outcomes("guest-depth32") {
        let interrupts = outcome.interrupts_per_s / outcome.iops;
        assert!((0.2..0.9).contains(&interrupts), "{}: {interrupts}", outcome.plan);
        assert!(outcome.cpu > 0.95, "{}: the guest is the bottleneck: {}", outcome.plan, outcome.cpu);
    }
    for outcome in outcomes("guest-depth1") {
        assert!((outcome.interrupts_per_s / outcome.iops - 1.0).abs() < 0.01, "{}", outcome.plan);
    }
}

/// A client whose CPU is slow to wake: a budget without the regulator costs it a tenth of its throughput.
#[test]
fn holding_that_costs_a_sleeper_more_than_the_budget_is_suspended() {
    let policies = ["budget", "auto"].map(|policy| policy.parse().unwrap()).into();
    let board = board("pipe1us/sleeper-depth8", policies, 1, 2);
    let worst = |policy: usize| board.to_json(false)["policies"][policy]["figures"][1]["worst"].as_f64().unwrap();
    let (budget, auto) = (worst(0), worst(1));
    assert!(budget < 0.92, "IOPS over none: {budget}");
    assert!(auto > 0.95, "IOPS over none: {auto}");
}
