//! A single policy, with parameters that the compiler checks, so that the firmware does not contain the checks. Nothing
//! of it is inlined, so that its instructions can be counted.

use crate::decision::Completed;
#[cfg_attr(feature = "only-vic", path = "only_vic.rs")]
#[cfg_attr(not(feature = "only-vic"), path = "only_guarded.rs")]
mod machine;

use cint_core::Ticket;
use machine::{Decision, Machine};

pub struct Policy(Machine);

impl Policy {
    pub const OFF: Self = Self(machine::OFF);

    /// Sets the policy by its number in Feature C0h. `Err`: this firmware does not have the policy.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.0 = machine::choose(choice, storm_rate)?;
        Ok(())
    }

    /// Does nothing: there is no Feature 08h.
    pub const fn set(&mut self, _: u32, _: u64) {}

    pub fn on_submit(&mut self, now: u64) -> Option<Ticket> {
        machine::on_submit(&mut self.0, now);
        None
    }

    pub fn on_completion(&mut self, now: u64, completed: &Completed, cif: u32, outstanding: u32) -> Decision {
        machine::on_completion(&mut self.0, now, completed, cif, outstanding)
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
