//! One interrupt for what a poll of the device finds, as virtual machine monitors do it: crosvm delivers the leading
//! edge at once, QEMU defers its calls to the end of the list.

use super::Held;
use crate::{Decision, HoldReason, Reason};

/// The first completion of a batch at once, the rest at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    in_batch: bool,
    held: Held,
}

impl Batch {
    /// A command completed.
    pub fn on_completion(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        if self.in_batch {
            return self.held.hold(HoldReason::Batch);
        }
        self.in_batch = true;
        self.held.deliver(Reason::LeadingEdge)
    }

    /// The device has posted all it had: the shell must say so after each poll.
    pub fn on_batch_end(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.in_batch = false;
        self.held.deliver_held(Reason::BatchEnd)
    }

    pub(crate) fn on_deadline(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.held.nothing_due()
    }

    pub(crate) fn flush(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.held.deliver_held(Reason::Flush)
    }

    pub(crate) fn on_consumed(&mut self, now: u64) {
        self.held.advance(now);
        self.held.count = 0;
    }

    pub(crate) const fn held(&self) -> u64 {
        self.held.count
    }
}
