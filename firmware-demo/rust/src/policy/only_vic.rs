//! vIC, for the clock of mps2-an386.

use crate::decision::Completed;
use vic_core::{Config, Params};
pub use vic_core::{Decision, Vic as Machine};

const PARAMS: Params = Params { tick_hz: 25_000_000, epoch_ns: 1_000_000, ..Params::DEFAULT };

pub const OFF: Machine = match Config::new(PARAMS) {
    Ok(config) => Machine::new(config),
    Err(_) => panic!("a parameter is out of range"),
};

/// vIC has no storm guard, so the rate is ignored.
pub fn choose(choice: u32, _: u32) -> Result<Machine, ()> {
    if choice == 1 { Ok(OFF) } else { Err(()) }
}

/// vIC ignores submissions, and what is outstanding.
pub const fn on_submit(_: &mut Machine, _: u64) {}

pub fn on_completion(vic: &mut Machine, now: u64, completed: &Completed, cif: u32, _: u32) -> Decision {
    match decide(vic, now, cif) {
        Decision::Hold(_) if completed.has_failed => vic.flush(now), // vIC has no hints
        decision => decision,
    }
}

#[inline(never)]
fn decide(vic: &mut Machine, now: u64, cif: u32) -> Decision {
    vic.on_completion(now, cif)
}
