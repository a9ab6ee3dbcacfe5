//! One policy alone, with parameters that the compiler has checked: nothing of their checks is in the firmware. Nothing of it
//! is inlined, so that all of it can be seen and counted.

use crate::decision::Completed;
#[cfg_attr(feature = "only-cint", path = "only_cint.rs")]
#[cfg_attr(feature = "only-vic", path = "only_vic.rs")]
mod machine;

use cint_core::Ticket;
use machine::{Decision, Machine};

pub struct Policy(Machine);

impl Policy {
    pub const OFF: Self = Self(machine::OFF);

    /// By the number in Feature C0h. `Err`: there is no such policy here.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.0 = machine::choose(choice, storm_rate)?;
        Ok(())
    }

    /// There is no Feature 08h.
    pub const fn set(&mut self, _: u32, _: u64) {}

    pub const fn on_submit(&mut self) -> Option<Ticket> {
        None
    }

    pub fn on_completion(&mut self, now: u64, completed: &Completed, cif: u32) -> Decision {
        machine::on_completion(&mut self.0, now, completed, cif)
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
