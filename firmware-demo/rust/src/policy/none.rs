//! No policy: every completion interrupts. What a firmware has that is compared with one that has a policy.

use crate::coalescing::Completed;
use crate::decision::Decision;
use cint_core::Ticket;

pub struct Policy;

impl Policy {
    pub const OFF: Self = Self;

    pub const fn choose(&mut self, choice: u32, _: u32) -> Result<(), ()> {
        if choice == 0 { Ok(()) } else { Err(()) }
    }

    pub const fn set(&mut self, _: u32, _: u64) {}

    pub const fn on_submit(&mut self) -> Option<Ticket> {
        None
    }

    pub const fn on_completion(&mut self, _: u64, _: &Completed, _: u32) -> Decision {
        Decision::Deliver("")
    }

    pub const fn deadline(&self) -> Option<u64> {
        None
    }

    pub const fn on_deadline(&mut self, _: u64) -> Decision {
        Decision::Hold("")
    }

    pub const fn on_consumed(&mut self, _: u64) {}

    pub const fn flush(&mut self, _: u64) -> Decision {
        Decision::Hold("")
    }
}
