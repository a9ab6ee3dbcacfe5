//! Random events: the rules that hold for every policy, and lockstep with a reference that keeps the whole history.

mod machine;
mod reference;

use cint_core::{Config, Params, StormParams};
use coalesce_testkit::{Lockstep, Mix, check_any};
use machine::{GROUPS, Machine};
use proptest::prelude::*;
use reference::Reference;

/// A clock of 1 µs, so that spans are small numbers.
const TICK_HZ: u64 = 1_000_000;

fn params() -> impl Strategy<Value = Params> {
    let tick_hz = prop_oneof![15 => Just(TICK_HZ), 1 => Just(2_000_000_u64)]; // a refused reconfiguration
    let delta_ns = prop_oneof![Just(0_u64), Just(6_000), 1_000..100_000_u64];
    let thr = prop_oneof![Just(1_u16), Just(32), 2..12_u16, Just(u16::MAX)];
    let max_hold_ns = prop::option::of(prop_oneof![Just(100_000_u64), 10_000..400_000_u64]);
    let storm = prop::option::of((prop_oneof![Just(100_000_u64), Just(7_001), Just(200_000)], 5..8_u8));
    let in_flight = prop::option::of(prop_oneof![Just(2_u16), Just(4), 2..60_u16, Just(u16::MAX)]);
    (tick_hz, delta_ns, thr, any::<bool>(), max_hold_ns, storm, in_flight)
        .prop_map(|(tick_hz, delta_ns, thr, ooo, max_hold_ns, storm, in_flight)| Params {
            tick_hz,
            delta_ns,
            thr,
            ooo,
            max_hold_ns,
            storm: storm.map(|(max_rate, shift)| StormParams { max_rate, shift }),
            in_flight,
        })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok())
}

/// The same parameters for the reference, by its own arithmetic.
fn in_ticks(params: &Params) -> reference::Params {
    let ticks = |ns: u64| match u64::try_from(u128::from(ns) * u128::from(params.tick_hz) / 1_000_000_000).unwrap() {
        0 => u64::from(ns > 0),
        ticks => ticks,
    };
    reference::Params {
        tick_hz: params.tick_hz,
        delta: ticks(params.delta_ns),
        thr: params.thr,
        ooo: params.ooo,
        max_hold: params.max_hold_ns.map(ticks),
        storm: params.storm.map(|StormParams { max_rate, shift }| reference::Storm {
            interval: params.tick_hz.div_ceil(max_rate),
            shift,
        }),
        in_flight: params.in_flight,
    }
}

fn lockstep<const WORDS: usize>(choice: &[Params], groups: u8) -> Lockstep<Machine<WORDS>, Reference> {
    let reference = Reference::new(choice.iter().map(in_ticks).collect(), groups, 64 * WORDS as u64);
    Lockstep::new(Machine::new(choice, groups), reference)
}

const CONFIGURATIONS: usize = 3;

fn mix(spans: &[u64]) -> Mix {
    Mix {
        hints: true,
        back: true,
        batch_end: true,
        consumed: true,
        configurations: CONFIGURATIONS as u8 + 1,
        ..Mix::new(spans)
    }
}

fn choice() -> BoxedStrategy<Vec<Params>> {
    prop::collection::vec(params(), CONFIGURATIONS).boxed()
}

#[test]
fn agrees_with_the_reference() {
    check_any(&mix(&[1, 6, 100]), 400_000, &choice(), |choice| lockstep::<1>(choice, 0));
}

/// Tickets: small windows that fill up, and large ones whose low-water mark skips whole words.
#[test]
fn agrees_with_the_reference_on_strict_barriers() {
    let mix = Mix { groups: GROUPS as u8, ..mix(&[1, 6, 100]) };
    check_any(&mix, 200_000, &choice(), |choice| lockstep::<1>(choice, mix.groups));
    check_any(&mix, 100_000, &choice(), |choice| lockstep::<4>(choice, mix.groups));
    check_any(&mix, 100_000, &choice(), |choice| lockstep::<64>(choice, mix.groups));
}

/// Everything is urgent and comes fast.
#[test]
fn agrees_with_the_reference_in_storms() {
    let storm = (prop_oneof![Just(100_000_u64), Just(7_001), Just(200_000)], 5..8_u8);
    let stormy = (params(), storm)
        .prop_map(|(params, (max_rate, shift))| Params { storm: Some(StormParams { max_rate, shift }), ..params })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok());
    let choice = prop::collection::vec(stormy, CONFIGURATIONS).boxed();
    let mix = Mix { configurations: 0, consumed: false, ..mix(&[0, 1, 5, 10]) };
    check_any(&mix, 300_000, &choice, |choice| lockstep::<1>(choice, 0));
}

/// Where the clock stops everything is due, and no rate can be kept. It does not start again, and what would have come
/// first is not asked.
#[test]
fn agrees_with_the_reference_at_the_end_of_time() {
    let params = params().prop_map(|params| Params { storm: None, ..params });
    let choice = prop::collection::vec(params, CONFIGURATIONS).boxed();
    let mix = Mix { start: u64::MAX - 500, back: false, configurations: 0, ..mix(&[6, 100, u64::MAX >> 12]) };
    check_any(&mix, 100_000, &choice, |choice| lockstep::<1>(choice, 0));
}
