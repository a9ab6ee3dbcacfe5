//! Random events: the rules that hold for every policy, and lockstep with a reference that remembers instants.

mod machine;
mod reference;

use budget_core::{Config, Params, StormParams};
use coalesce_testkit::{Hint, Lockstep, Mix, Op, Shell, check_any, run};
use machine::Machine;
use proptest::prelude::*;
use reference::Reference;

/// A clock of 1 µs, so that spans are small numbers.
const TICK_HZ: u64 = 1_000_000;

fn params(storm: impl Strategy<Value = Option<StormParams>>) -> impl Strategy<Value = Params> {
    let tick_hz = prop_oneof![15 => Just(TICK_HZ), 1 => Just(2_000_000_u64)]; // a refused reconfiguration
    let budget = prop_oneof![Just(500_u16), Just(1), Just(5_000), 1..5_000_u16];
    let max_hold_ns = prop_oneof![Just(2_000_000_u64), 1..3_000_000_u64];
    let thr = prop_oneof![Just(1_u16), Just(256), 2..40_u16, Just(u16::MAX)];
    (tick_hz, budget, max_hold_ns, thr, any::<bool>(), storm)
        .prop_map(|(tick_hz, budget, max_hold_ns, thr, ooo, storm)| Params {
            tick_hz,
            budget,
            max_hold_ns,
            thr,
            ooo,
            storm,
        })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok())
}

fn storm() -> impl Strategy<Value = StormParams> {
    (prop_oneof![Just(10_000_u64), Just(7_001), Just(1_000)], 5..8_u8)
        .prop_map(|(max_rate, shift)| StormParams { max_rate, shift })
}

fn lockstep(choice: &[Params]) -> Lockstep<Machine, Reference> {
    Lockstep::new(Machine::new(choice), Reference::new(choice))
}

const CONFIGURATIONS: usize = 3;

/// With a group, tickets come that nobody gave, and resets.
fn mix(spans: &[u64]) -> Mix {
    Mix {
        hints: true,
        back: true,
        consumed: true,
        reaping: true,
        groups: 1,
        configurations: CONFIGURATIONS as u8 + 1,
        ..Mix::new(spans)
    }
}

fn choice(params: impl Strategy<Value = Params> + 'static) -> BoxedStrategy<Vec<Params>> {
    prop::collection::vec(params, CONFIGURATIONS).boxed()
}

#[test]
fn agrees_with_the_reference() {
    let choice = choice(params(prop::option::of(storm())));
    check_any(&mix(&[1, 10, 2_000]), 400_000, &choice, |choice| lockstep(choice));
}

/// A guest and a device that nothing disturbs for long enough that there are probes, and a depth.
#[test]
fn agrees_with_the_reference_where_nobody_disturbs() {
    let params = params(Just(None)).prop_map(|params| Params { ooo: false, thr: 256, ..params });
    let mix = Mix { reaping: true, ..Mix::new([1, 10, 100]) };
    check_any(&mix, 400_000, &choice(params), |choice| lockstep(choice));
}

/// Everything is urgent and comes fast.
#[test]
fn agrees_with_the_reference_in_storms() {
    let mix = Mix { configurations: 0, consumed: false, ..mix(&[0, 1, 5, 100]) };
    check_any(&mix, 300_000, &choice(params(storm().prop_map(Some))), |choice| lockstep(choice));
}

/// Where the clock stops everything is due, and no rate can be kept.
#[test]
fn agrees_with_the_reference_at_the_end_of_time() {
    let mix = Mix { start: u64::MAX - 500, back: false, configurations: 0, ..mix(&[6, 100, u64::MAX >> 12]) };
    check_any(&mix, 100_000, &choice(params(Just(None))), |choice| lockstep(choice));
}

/// Two calls at the end of the clock, and everything is as old as an age can say: which deadline was first is forgotten.
#[test]
fn agrees_with_the_reference_about_the_oldest_holds() {
    let params = Params { tick_hz: TICK_HZ, max_hold_ns: 16_000, budget: 5_000, storm: None, ..Params::DEFAULT };
    let complete = Op::Complete { which: 0, hint: Hint::Plain, count: 1 };
    let submit = |count| Op::Submit { group: 0, count };
    let mut ops = vec![submit(1), complete, Op::Advance(2), submit(4), complete, Op::Advance(2), complete];
    ops.extend([Op::Advance(496), submit(1), complete]);
    run(lockstep(&[params]), Shell::Careless, u64::MAX - 500, &ops).unwrap();
}
