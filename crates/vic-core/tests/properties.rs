//! Random events: the rules that hold for every policy, and lockstep with a reference that keeps the whole history.

mod reference;

use policy_test::{Completion, Decision, Lockstep, Mix, Policy, Promises, check_any};
use proptest::prelude::*;
use reference::Reference;
use vic_core::{Config, Params, Vic};

/// The machine, with the configurations that it may be given.
struct Machine {
    vic: Vic,
    configs: Vec<Config>,
}

fn decision(decision: vic_core::Decision) -> Decision {
    match decision {
        vic_core::Decision::Deliver(reason) => Decision::Deliver(reason.name()),
        vic_core::Decision::Hold(reason) => Decision::Hold(reason.name()),
    }
}

impl Policy for Machine {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        decision(self.vic.on_completion_in_slice(now, completion.cif, completion.slice_end))
    }

    fn deadline(&self) -> Option<u64> {
        self.vic.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        decision(self.vic.on_deadline(now))
    }

    fn flush(&mut self, now: u64) -> Decision {
        decision(self.vic.flush(now))
    }

    fn promises(&self) -> Promises {
        let hold_max = self.vic.config().max_hold();
        Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
    }

    fn held(&self) -> Option<u64> {
        Some(u64::from(self.vic.held()))
    }

    fn on_consumed(&mut self, now: u64) {
        self.vic.on_consumed(now);
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        decision(self.vic.on_schedule(now))
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        decision(self.vic.on_deschedule(now))
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let config = *self.configs.get(usize::from(choice))?;
        self.vic.reconfigure(config, now).ok().map(decision)
    }
}

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
    let configs: Vec<_> = choice.iter().map(|&params| Config::new(params).unwrap()).collect();
    let machine = Machine { vic: Vic::new(configs[0]), configs };
    Lockstep::new(machine, Reference::new(choice.iter().map(in_ticks).collect()))
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
