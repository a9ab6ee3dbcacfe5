//! cint, a latency budget or auto, for the clock of mps2-an386: with its storm guard, or without.

#[cfg_attr(feature = "only-auto", path = "only_auto.rs")]
#[cfg_attr(feature = "only-budget", path = "only_budget.rs")]
#[cfg_attr(feature = "only-cint", path = "only_cint.rs")]
mod hinted;

pub use hinted::Machine;
use hinted::{CHOICE, Config, PARAMS, Params, StormParams};

const STORM_RATE: u32 = 20_000;
const STORM: StormParams = StormParams { max_rate: STORM_RATE as u64, shift: 5 };
const GUARDED: Config = checked(Params { storm: Some(STORM), ..PARAMS });

const fn checked(params: Params) -> Config {
    match Config::new(params) {
        Ok(config) => config,
        Err(_) => panic!("a parameter is out of range"),
    }
}

pub const OFF: Machine = Machine::new(checked(PARAMS));

pub fn choose(choice: u32, storm_rate: u32) -> Result<Machine, ()> {
    match (choice, storm_rate) {
        (CHOICE, 0) => Ok(OFF),
        (CHOICE, STORM_RATE) => Ok(Machine::new(GUARDED)),
        _ => Err(()),
    }
}
