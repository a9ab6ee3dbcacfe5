//! cint alone, with parameters that the compiler has checked: nothing of their checks is in the firmware. Nothing here is
//! inlined, so that all of the policy can be seen and counted.

use crate::coalescing::Completed;
use cint_core::{Cint, Config, Decision, Params, StormParams, Ticket};

/// For the clock of mps2-an386.
const PARAMS: Params = Params { tick_hz: 25_000_000, delta_ns: 30_000, ..Params::DEFAULT };
const CALM: Config = checked(PARAMS);
const STORM_RATE: u32 = 20_000;
const GUARDED: Config =
    checked(Params { storm: Some(StormParams { max_rate: STORM_RATE as u64, shift: 5 }), ..PARAMS });

const fn checked(params: Params) -> Config {
    match Config::new(params) {
        Ok(config) => config,
        Err(_) => panic!("a parameter is out of its range"),
    }
}

pub struct Policy(Cint);

impl Policy {
    pub const OFF: Self = Self(Cint::new(CALM));

    /// With the storm guard, or without. `Err`: there is no such policy here.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.0 = match (choice, storm_rate) {
            (2, 0) => Cint::new(CALM),
            (2, STORM_RATE) => Cint::new(GUARDED),
            _ => return Err(()),
        };
        Ok(())
    }

    /// There is no Feature 08h.
    pub const fn set(&mut self, _: u32, _: u64) {}

    pub const fn on_submit(&mut self) -> Option<Ticket> {
        None
    }

    #[inline(never)]
    pub fn on_completion(&mut self, now: u64, completed: &Completed, cif: u32) -> Decision {
        self.0.on_completion(now, completed.hint, Some(cif))
    }

    #[inline(never)]
    pub fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    #[inline(never)]
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.0.on_deadline(now)
    }

    #[inline(never)]
    pub fn on_consumed(&mut self, now: u64) {
        self.0.on_consumed(now);
    }

    #[inline(never)]
    pub fn flush(&mut self, now: u64) -> Decision {
        self.0.flush(now)
    }
}
