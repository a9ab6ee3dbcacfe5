//! vIC alone, as `only_cint.rs` has cint.

use crate::coalescing::Completed;
use cint_core::Ticket;
use vic_core::{Config, Decision, Params, Vic};

/// For the clock of mps2-an386.
const PARAMS: Params = Params { tick_hz: 25_000_000, epoch_ns: 1_000_000, ..Params::DEFAULT };
const CONFIG: Config = match Config::new(PARAMS) {
    Ok(config) => config,
    Err(_) => panic!("a parameter is out of its range"),
};

pub struct Policy(Vic);

impl Policy {
    pub const OFF: Self = Self(Vic::new(CONFIG));

    /// It has no storm guard. `Err`: there is no such policy here.
    pub fn choose(&mut self, choice: u32, _: u32) -> Result<(), ()> {
        if choice != 1 {
            return Err(());
        }
        *self = Self::OFF;
        Ok(())
    }

    /// There is no Feature 08h.
    pub const fn set(&mut self, _: u32, _: u64) {}

    pub const fn on_submit(&mut self) -> Option<Ticket> {
        None
    }

    pub fn on_completion(&mut self, now: u64, completed: &Completed, cif: u32) -> Decision {
        match self.decide(now, cif) {
            Decision::Hold(_) if completed.has_failed => self.flush(now), // it knows no hints
            decision => decision,
        }
    }

    #[inline(never)]
    fn decide(&mut self, now: u64, cif: u32) -> Decision {
        self.0.on_completion(now, cif)
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
