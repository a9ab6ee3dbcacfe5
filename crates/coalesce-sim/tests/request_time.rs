//! The requesters' time of loads that are simple enough to compute it by hand, on a machine on which only what is said costs
//! anything.

mod free_machine;

use coalesce_sim::outcome::Outcome;
use coalesce_sim::plan::{Arrivals, Device, Distribution, Kind, Machine, Operation, Plan, Said, Thread};
use coalesce_sim::run::run;
use coalesce_sim::units::{Cost, Rate, Time};
use free_machine::free;

/// 100 ms of these threads, under `none`, on a device that serves one command after the other.
fn outcome_on(machine: Machine, service: u64, threads: Vec<Thread>) -> Outcome {
    let mut plan = Plan::new("by hand", Device::new(1, Distribution::Fixed(Time(service))));
    plan.duration = Time::ms(100);
    plan.machine = machine;
    plan.threads = threads;
    plan.policies = vec!["none".into()];
    run(&plan).unwrap().remove(0)
}

fn outcome(service: u64, thread: Thread) -> Outcome {
    outcome_on(free(), service, vec![thread])
}

#[track_caller]
fn assert_times(outcome: &Outcome, request_time: f64, latency: f64) {
    let near = |found: f64, expected: f64| (found - expected).abs() <= expected * 2e-3;
    let Outcome { request_time: found, latency: found_latency, threads, .. } = outcome;
    assert!(near(*found, request_time) && near(found_latency.mean, latency), "{found}, {}", found_latency.mean);
    if let [thread] = &threads[..] {
        assert!(near(thread.request_time, request_time), "{thread:?}");
    }
}

fn open(rate: u64, depth: u32) -> Thread {
    let (rate, depth) = (Some(Rate(rate)), Some(depth));
    Thread { rate, depth, arrivals: Arrivals::Fixed, ..Thread::new("open", Kind::Open) }
}

fn asynchronous(depth: u32) -> Thread {
    Thread { depth: Some(depth), ..Thread::new("async", Kind::Async) }
}

fn bursts(on_us: u64, off_us: u64, thread: Thread) -> Thread {
    Thread { on: Some(Time::us(on_us)), off: Some(Time::us(off_us)), ..thread }
}

/// Every 10 us one arrives, and takes 4 us; the pause is nobody's.
#[test]
fn of_an_open_load_in_bursts() {
    let outcome = outcome(4_000, bursts(500, 500, open(100_000, 64)));
    assert_times(&outcome, 4_000.0, 4_000.0);
}

/// One every 25 us, and nothing else says when.
#[test]
fn of_an_open_load_with_the_gaps_of_a_record() {
    let gaps = Distribution::Fixed(Time::us(25));
    let outcome = outcome(4_000, Thread { gaps: Some(gaps), rate: None, ..open(1, 64) });
    assert_times(&outcome, 4_000.0, 4_000.0);
    assert!((outcome.iops - 40_000.0).abs() < 20.0, "{}", outcome.iops);
}

/// Nine arrive at 1 to 9 us of each ms, and are served one after the other: the i-th until 1 + 10 i us.
#[test]
fn of_what_waits_before_the_device_too() {
    let outcome = outcome(10_000, bursts(10, 990, open(1_000_000, 1)));
    assert_times(&outcome, 46_000.0, 46_000.0);
    assert_eq!(outcome.latency.count, 900);
}

/// The thread works for 20 us with each answer: with the first of four, then with three that came meanwhile. Then it submits
/// four, and waits 1 us for the first: a place is used again after 81 us.
#[test]
fn of_a_closed_loop_that_is_its_own_bottleneck() {
    let outcome = outcome(1_000, Thread { think: Some(Cost::Time(20_000)), ..asynchronous(4) });
    assert_times(&outcome, 81_000.0, outcome.latency.mean);
    assert!(outcome.latency.mean < 70_000.0, "from submission on it is less: {}", outcome.latency.mean);
}

/// One at a time is served, whatever waits.
#[test]
fn of_a_closed_loop_whose_device_is_the_bottleneck() {
    assert_times(&outcome(10_000, asynchronous(8)), 80_000.0, 80_000.0);
}

/// A loop that pauses by itself has what it submitted.
#[test]
fn of_a_loop_with_pauses_of_its_own() {
    assert_times(&outcome(10_000, Thread { rate: Some(Rate(10_000)), ..asynchronous(8) }), 10_000.0, 10_000.0);
    // Two for 500 us, and the last for 10 us more: 51 in each burst.
    let mean = 1_010_000.0 / 51.0;
    assert_times(&outcome(10_000, bursts(500, 500, asynchronous(2))), mean, mean);
}

/// Submitted at 1, 2, 3, 4 us, served until 11, 21, 31, 41 us: four requests for 41 us, and none for the 59 us of work.
#[test]
fn of_a_batch() {
    let machine = Machine { submit: Cost::Time(1_000), ..free() };
    let batch = Thread { batch: Some(4), think: Some(Cost::Time(59_000)), ..Thread::new("batch", Kind::Batch) };
    assert_times(&outcome_on(machine, 10_000, vec![batch]), 41_000.0, 39_500.0);
}

#[test]
fn of_one_who_waits_and_thinks() {
    let sync = Thread { think: Some(Cost::Time(30_000)), ..Thread::new("sync", Kind::Sync) };
    assert_times(&outcome(10_000, sync), 10_000.0, 10_000.0);
}

/// Operations that only work have no requests, and neither have threads that only compute.
#[test]
fn of_a_mix() {
    let operation = |commands, think| Operation {
        weight: 1,
        commands,
        hint: Said::Nothing,
        flush: false,
        think: Cost::Time(think),
    };
    let mix = Thread { operations: vec![operation(0, 7_000), operation(2, 3_000)], ..Thread::new("mix", Kind::Mix) };
    let outcome = outcome_on(free(), 10_000, vec![mix, Thread { cpu: 1, ..Thread::new("compute", Kind::Compute) }]);
    let [mix, compute] = &outcome.threads[..] else { panic!("two threads") };
    assert!((mix.request_time - 20_000.0).abs() < 100.0, "two for 20 us each time: {}", mix.request_time);
    assert!(compute.request_time.abs() < f64::EPSILON);
}

/// What the warm-up began goes on.
#[test]
fn is_counted_from_the_end_of_the_warm_up() {
    let mut plan = Plan::new("by hand", Device::new(1, Distribution::Fixed(Time::us(10))));
    (plan.warmup, plan.duration, plan.machine) = (Time(1_234_567), Time::ms(100), free());
    plan.threads = vec![asynchronous(8)];
    plan.policies = vec!["none".into()];
    assert_times(&run(&plan).unwrap()[0], 80_000.0, 80_000.0);
}
