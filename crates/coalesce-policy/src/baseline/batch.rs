//! One interrupt for what a poll of the device finds, as virtual machine monitors do it: crosvm delivers the leading
//! edge at once, QEMU defers its calls to the end of the list.

use super::Held;
use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};

/// The first completion of a batch at once, the rest at its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    in_batch: bool,
    held: Held,
}

impl Policy for Batch {
    #[inline]
    fn on_completion(&mut self, now: u64, _completion: &Completion) -> Decision {
        self.held.advance(now);
        if self.in_batch {
            return self.held.hold(HoldReason::Batch);
        }
        self.in_batch = true;
        self.held.deliver(Reason::LeadingEdge)
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.held.nothing_due()
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.held.deliver_held(Reason::Flush)
    }

    fn on_consumed(&mut self, now: u64) {
        self.held.advance(now);
        self.held.count = 0;
    }

    fn held(&self) -> u32 {
        self.held.count
    }

    fn wants_batch_end(&self) -> bool {
        true
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.held.advance(now);
        self.in_batch = false;
        self.held.deliver_held(Reason::BatchEnd)
    }
}
