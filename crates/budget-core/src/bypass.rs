//! Where nobody need be asked, as the answer would be to interrupt.

use crate::constants::{BATCH, BATCHES, BYPASS, POLLS};

/// The polls of the device that speak for a bypass, and how much of one is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Bypass {
    left: u16,      // interrupts of it; 0: there is none
    completed: u16, // the commands that the polls completed
    polls: u8,      // counted so far
    is_lone: bool,  // it ends when more than one command is outstanding
}

impl Bypass {
    pub(crate) const NONE: Self = Self { left: 0, completed: 0, polls: 0, is_lone: false };

    /// A poll completed this many. After POLLS of them, and while nothing is held: whether they coalesce enough by themselves.
    pub(crate) fn note_poll(&mut self, completed: u16, is_held: bool) -> Option<bool> {
        if self.polls < POLLS {
            self.polls = self.polls.wrapping_add(1);
            self.completed = self.completed.wrapping_add(completed.min(BATCH * BATCHES));
        }
        if self.polls < POLLS || is_held {
            return None;
        }
        let coalesces = self.completed >= u16::from(POLLS).wrapping_mul(BATCH);
        (self.polls, self.completed) = (0, 0);
        Some(coalesces)
    }

    pub(crate) const fn begin(&mut self, is_lone: bool) {
        (self.left, self.is_lone) = (BYPASS, is_lone);
    }

    pub(crate) const fn end(&mut self) {
        self.left = 0;
    }

    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.left > 0
    }

    /// This many interrupts were sent, with this many commands outstanding at most.
    pub(crate) const fn pass(&mut self, interrupts: u16, outstanding: u32) {
        let has_company = self.is_lone && outstanding > 1;
        self.left = if has_company { 0 } else { self.left.saturating_sub(interrupts) };
    }
}
