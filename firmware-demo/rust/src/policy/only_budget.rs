//! A latency budget, for the clock of mps2-an386.

use crate::decision::Completed;
pub use budget_core::{Budget as Machine, Decision};
use budget_core::{Config, Params, StormParams};

const PARAMS: Params = Params { tick_hz: 25_000_000, max_hold_ns: 200_000, ..Params::DEFAULT };
const CALM: Config = checked(PARAMS);
const STORM_RATE: u32 = 20_000;
const GUARDED: Config =
    checked(Params { storm: Some(StormParams { max_rate: STORM_RATE as u64, shift: 5 }), ..PARAMS });

const fn checked(params: Params) -> Config {
    match Config::new(params) {
        Ok(config) => config,
        Err(_) => panic!("a parameter is out of range"),
    }
}

pub const OFF: Machine = Machine::new(CALM);

/// A machine with the storm guard, or without.
pub fn choose(choice: u32, storm_rate: u32) -> Result<Machine, ()> {
    match (choice, storm_rate) {
        (4, 0) => Ok(OFF),
        (4, STORM_RATE) => Ok(Machine::new(GUARDED)),
        _ => Err(()),
    }
}

#[inline(never)]
pub fn on_submit(budget: &mut Machine, now: u64, outstanding: u32) {
    budget.on_submit(now, outstanding);
}

#[inline(never)]
pub fn on_completion(budget: &mut Machine, now: u64, completed: &Completed, cif: u32, outstanding: u32) -> Decision {
    budget.on_completion(now, completed.hint.into(), cif, outstanding)
}
