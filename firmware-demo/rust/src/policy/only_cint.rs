//! cint, for the clock of mps2-an386.

use crate::decision::Completed;
pub use cint_core::{Cint as Machine, Decision};
use cint_core::{Config, Params, StormParams};

const PARAMS: Params = Params { tick_hz: 25_000_000, delta_ns: 30_000, ..Params::DEFAULT };
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
        (2, 0) => Ok(OFF),
        (2, STORM_RATE) => Ok(Machine::new(GUARDED)),
        _ => Err(()),
    }
}

/// cint ignores submissions, and what is outstanding.
pub const fn on_submit(_: &mut Machine, _: u64, _: u32) {}

#[inline(never)]
pub fn on_completion(cint: &mut Machine, now: u64, completed: &Completed, cif: u32, _: u32) -> Decision {
    cint.on_completion(now, completed.hint, Some(cif))
}
