//! vIC, for the clock of mps2-an386.

pub use vic_core::Vic as Machine;
use vic_core::{Config, Params};

const PARAMS: Params = Params { tick_hz: 25_000_000, epoch_ns: 1_000_000, ..Params::DEFAULT };

pub const OFF: Machine = match Config::new(PARAMS) {
    Ok(config) => Machine::new(config),
    Err(_) => panic!("a parameter is out of range"),
};

/// vIC has no storm guard, so the rate is ignored.
pub fn choose(choice: u32, _: u32) -> Result<Machine, ()> {
    if choice == 1 { Ok(OFF) } else { Err(()) }
}
