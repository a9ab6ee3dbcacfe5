//! Random events: the rules that hold for every policy, and lockstep with a reference that keeps the whole history.

mod machine;
mod reference;

use coalesce_testkit::{Lockstep, Mix, check_any};
use machine::Machine;
use proptest::prelude::*;
use reference::Reference;
use vic_core::Params;

/// A clock of 1 µs, so that a millisecond, the shortest epoch, is a span of 1000.
const TICK_HZ: u64 = 1_000_000;

fn params() -> impl Strategy<Value = Params> {
    let tick_hz = prop_oneof![15 => Just(TICK_HZ), 1 => Just(2_000_000_u64)]; // a refused reconfiguration
    let cif_threshold = prop_oneof![Just(2_u16), Just(4), 2..10_u16, Just(u16::MAX)];
    let iops_threshold = prop_oneof![Just(0_u32), Just(2000), 1..20_000_u32, Just(u32::MAX)];
    let epoch_ns = prop_oneof![Just(1_000_000_u64), 1_000_000..2_000_000_u64];
    let max_skip = prop_oneof![Just(2_u16), Just(16), Just(u16::MAX)];
    let max_hold_ns = prop::option::of(prop_oneof![Just(40_000_u64), 1..1_500_000_u64]);
    let margin_ns = prop_oneof![Just(0_u64), Just(30_000), 0..500_000_u64];
    (tick_hz, cif_threshold, iops_threshold, epoch_ns, max_skip, max_hold_ns, any::<bool>(), margin_ns).prop_map(
        |(tick_hz, cif_threshold, iops_threshold, epoch_ns, max_skip, max_hold_ns, live_clamp, margin_ns)| Params {
            tick_hz,
            cif_threshold,
            iops_threshold,
            epoch_ns,
            max_skip,
            max_hold_ns,
            live_clamp,
            margin_ns,
        },
    )
}

/// The same parameters for the reference, by its own arithmetic.
fn in_ticks(params: &Params) -> reference::Params {
    let up = |ns: u64| u64::try_from((u128::from(ns) * u128::from(params.tick_hz)).div_ceil(1_000_000_000)).unwrap();
    let down = |ns: u64| u64::try_from(u128::from(ns) * u128::from(params.tick_hz) / 1_000_000_000).unwrap().max(1);
    reference::Params {
        tick_hz: params.tick_hz,
        cif_threshold: params.cif_threshold,
        iops_threshold: params.iops_threshold,
        epoch: up(params.epoch_ns),
        max_skip: params.max_skip,
        max_hold: params.max_hold_ns.map(down),
        live_clamp: params.live_clamp,
        margin: up(params.margin_ns),
    }
}

fn lockstep(choice: &[Params]) -> Lockstep<Machine, Reference> {
    Lockstep::new(Machine::new(choice), Reference::new(choice.iter().map(in_ticks).collect()))
}

const CONFIGURATIONS: usize = 3;

fn mix(spans: &[u64]) -> Mix {
    Mix { back: true, consumed: true, schedule: true, configurations: CONFIGURATIONS as u8 + 1, ..Mix::new(spans) }
}

#[test]
fn agrees_with_the_reference() {
    let choice = prop::collection::vec(params(), CONFIGURATIONS).boxed();
    check_any(&mix(&[1, 40, 1000]), 400_000, &choice, |choice| lockstep(choice));
}

#[test]
fn agrees_with_the_reference_at_the_end_of_time() {
    let choice = prop::collection::vec(params(), CONFIGURATIONS).boxed();
    let mix = Mix { start: u64::MAX - 5_000, ..mix(&[40, 1000, u64::from(u32::MAX), u64::MAX >> 12]) };
    check_any(&mix, 100_000, &choice, |choice| lockstep(choice));
}

/// Commands come and go fast, so that epochs are full and ratios low.
#[test]
fn agrees_with_the_reference_under_load() {
    let params = params().prop_map(|params| Params { iops_threshold: 0, tick_hz: TICK_HZ, ..params });
    let choice = prop::collection::vec(params, CONFIGURATIONS).boxed();
    let mix = Mix { configurations: 0, schedule: false, ..mix(&[0, 20, 1000]) };
    check_any(&mix, 400_000, &choice, |choice| lockstep(choice));
}
