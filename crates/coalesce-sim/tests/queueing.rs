//! What queueing theory says about models that are simple enough.

mod free_machine;

use coalesce_sim::outcome::Outcome;
use coalesce_sim::plan::{Device, Distribution, Hypervisor, Kind, Machine, Plan, Steal, Thread};
use coalesce_sim::run::run;
use coalesce_sim::units::{Cost, Rate, Time};
use free_machine::free;

fn plan(machine: Machine, device: Device, thread: Thread) -> Plan {
    let mut plan = Plan::new("queueing", device);
    plan.machine = machine;
    plan.threads = vec![thread];
    plan.policies = vec!["none".into()];
    plan
}

fn only(plan: &Plan) -> Outcome {
    let outcome = run(plan).unwrap().remove(0);
    assert!(outcome.verdict.is_clean(), "{:?}", outcome.verdict);
    outcome
}

#[track_caller]
fn assert_near(found: f64, expected: f64, relative: f64) {
    assert!((found - expected).abs() <= expected * relative, "{found}, expected is {expected}");
}

fn open(rate: u64) -> Thread {
    Thread { rate: Some(Rate(rate)), depth: Some(65_535), ..Thread::new("open", Kind::Open) }
}

fn closed(depth: u32) -> Thread {
    Thread { depth: Some(depth), ..Thread::new("closed", Kind::Async) }
}

/// One at a time: as many per second as the sum of all steps allows, and their cycles.
#[test]
fn one_at_a_time() {
    let device = Device { transfer: Some(Time::us(2)), ..Device::new(4, Distribution::Fixed(Time::us(4))) };
    let outcome = only(&plan(Machine::default(), device, Thread::new("sync", Kind::Sync)));
    // 500 + 2400 + 1500 + 1000 + 1500 + 1300 cycles at 2 GHz, and 6 us.
    assert_near(outcome.iops, 1e9 / 10_100.0, 1e-4);
    assert_near(outcome.latency.mean, 10_100.0, 1e-3);
    assert_near(outcome.cycles_per_io, 8_200.0, 1e-3);
    assert_near(outcome.cpu, 4_100.0 / 10_100.0, 1e-3);
}

/// A CPU that never sleeps: what a command costs is all there is.
#[test]
fn a_saturated_cpu() {
    let outcome = only(&plan(Machine::default(), Device::new(64, Distribution::Fixed(Time::us(5))), closed(256)));
    assert_near(outcome.cpu, 1.0, 1e-3);
    assert_near(outcome.iops * outcome.cycles_per_io, 2e9, 1e-3);
}

/// Channels that are never idle.
#[test]
fn a_saturated_device() {
    let outcome = only(&plan(free(), Device::new(4, Distribution::Exponential(Time::us(100))), closed(64)));
    assert_near(outcome.iops, 40_000.0, 0.02);
}

/// N = X * R.
#[test]
fn littles_law() {
    for depth in [1, 3, 17, 100] {
        let outcome = only(&plan(free(), Device::new(8, Distribution::Exponential(Time::us(80))), closed(depth)));
        assert_near(outcome.iops * outcome.latency.mean / 1e9, depth.into(), 0.005);
    }
}

/// M/M/1: the mean time in the system is 1 / (mu - lambda), its distribution exponential.
#[test]
fn memoryless_arrivals_and_service() {
    let mut plan = plan(free(), Device::new(1, Distribution::Exponential(Time::us(10))), open(50_000));
    plan.duration = Time::ms(20_000);
    let outcome = only(&plan);
    assert_near(outcome.iops, 50_000.0, 0.01);
    assert_near(outcome.latency.mean, 20_000.0, 0.03);
    assert_near(outcome.latency.p50 as f64, 20_000.0 * std::f64::consts::LN_2, 0.03);
}

/// M/D/1: the mean wait is half that of M/M/1.
#[test]
fn memoryless_arrivals_and_fixed_service() {
    let mut plan = plan(free(), Device::new(1, Distribution::Fixed(Time::us(10))), open(50_000));
    plan.duration = Time::ms(20_000);
    assert_near(only(&plan).latency.mean, 15_000.0, 0.03);
}

/// A delay of the policy is a delay of the requester, to the nanosecond.
#[test]
fn a_policys_delay_is_seen() {
    let device = Device::new(1, Distribution::Fixed(Time::us(6)));
    let mut plan = plan(Machine::default(), device, Thread::new("sync", Kind::Sync));
    plan.policies = vec!["none".into(), "cint:delta=15us,max_hold=off,in_flight=off".into()];
    let outcomes = run(&plan).unwrap();
    assert_near(outcomes[1].latency.mean - outcomes[0].latency.mean, 15_000.0, 0.001);
    assert_near(outcomes[1].delay.mean, 15_000.0, 0.001);
}

/// Three guests that always compute share a core in equal parts.
#[test]
fn guests_share_a_core() {
    let mut plan =
        plan(Machine { cores: 1, ..Machine::default() }, Device::new(1, Distribution::Fixed(Time::us(1))), {
            Thread { count: 2, spread: true, ..Thread::new("compute", Kind::Compute) }
        });
    plan.hypervisor = Some(Hypervisor { hogs: 1, switch: Cost::Time(0), ..Hypervisor::default() });
    plan.duration = Time::ms(90 * 10);
    let outcome = only(&plan);
    assert_near(outcome.cpu, 2.0 / 3.0, 0.005);
    assert_near(outcome.steal, 2.0 * 2.0 / 3.0, 0.05);
}

/// A completion for a guest that is off its core waits for the guest's turn.
#[test]
fn a_guest_that_is_off_its_core_waits() {
    let device = Device::new(1, Distribution::Fixed(Time::us(100)));
    let mut plan = plan(Machine { cores: 1, ..free() }, device, Thread::new("sync", Kind::Sync));
    plan.threads.push(Thread::new("compute", Kind::Compute));
    let timeslice = Time::ms(10);
    plan.hypervisor = Some(Hypervisor { hogs: 1, switch: Cost::Time(0), timeslice, ..Hypervisor::default() });
    let outcome = only(&plan);
    let sync = &outcome.threads[0];
    assert_near(sync.iops, 5_000.0, 0.02); // half the time
    assert_near(sync.latency.max as f64, 10_000_000.0, 0.02);
}

/// A host that takes the CPU for 2 ms after 8 ms on average: a fifth is stolen, and what completes meanwhile waits for 2 ms at
/// most. A loop of depth 1 loses that fifth.
#[test]
fn stolen_time_is_nobodys() {
    let steal = Steal { every: Time::ms(8), from: Time::ms(2), to: Time::ms(2) };
    let device = Device::new(1, Distribution::Fixed(Time::us(100)));
    let mut plan = plan(Machine { steal: Some(steal), ..free() }, device, closed(1));
    plan.duration = Time::ms(20_000);
    let outcome = only(&plan);
    assert_near(outcome.steal, 0.2, 0.05);
    assert_near(outcome.iops, 8_000.0, 0.02);
    assert!((1_990_000..2_200_000).contains(&outcome.latency.max), "{:?}", outcome.latency);
    assert_near(outcome.latency.p50 as f64, 100_000.0, 0.001);

    // A thread that computes has the other four fifths.
    plan.threads.push(Thread::new("compute", Kind::Compute));
    assert_near(only(&plan).cpu, 0.8, 0.02);
}

/// vIC §3.3: the threshold trades inter-processor interrupts for latency, and a halted guest does not feel it.
#[test]
fn the_ipi_gate() {
    let run_with = |threshold: u64, computes: bool| {
        let device = Device::new(4, Distribution::Exponential(Time::us(100)));
        let mut plan = plan(Machine::default(), device, closed(8));
        if computes {
            plan.threads.push(Thread::new("compute", Kind::Compute));
        }
        plan.hypervisor = Some(Hypervisor { ipi_threshold: Some(Time::us(threshold)), ..Hypervisor::default() });
        only(&plan)
    };
    let (eager, lazy) = (run_with(0, true), run_with(500, true));
    assert!(lazy.ipis_per_s < eager.ipis_per_s / 4.0, "{} and {}", lazy.ipis_per_s, eager.ipis_per_s);
    assert!(lazy.threads[0].latency.mean > eager.threads[0].latency.mean * 1.2);
    assert!(lazy.threads[1].cpu > eager.threads[1].cpu);
    assert_near(lazy.threads[0].iops * lazy.threads[0].latency.mean / 1e9, 8.0, 0.02); // none is forgotten
    // Never much longer than the threshold and the longest service, of itself and of one before it.
    assert!(lazy.threads[0].latency.max < 500_000 + 2 * 1_000_000, "{:?}", lazy.threads[0].latency);
    let (eager, lazy) = (run_with(0, false), run_with(500, false));
    assert_near(lazy.iops, eager.iops, 0.03);
}

/// By Little's law: a requester that is slower than its device has few outstanding, unless it fills its depth first.
#[test]
fn reaping_when_full_keeps_answers_waiting() {
    let outstanding = |reap_when_full| {
        let device = Device::new(64, Distribution::Fixed(Time::us(1)));
        let outcome = only(&plan(Machine::default(), device, Thread { reap_when_full, ..closed(32) }));
        outcome.iops * outcome.latency.mean / 1e9
    };
    assert!(outstanding(false) < 4.0, "{}", outstanding(false));
    assert!((16.0..32.0).contains(&outstanding(true)), "{}", outstanding(true));
}
