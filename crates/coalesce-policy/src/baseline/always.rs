//! The policy `none`: every completion interrupts.

use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};

/// Every completion interrupts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Always;

impl Policy for Always {
    #[inline]
    fn on_completion(&mut self, _now: u64, _completion: &Completion) -> Decision {
        Decision::Deliver(Reason::Always)
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, _now: u64) -> Decision {
        Decision::Hold(HoldReason::NothingHeld)
    }

    fn flush(&mut self, _now: u64) -> Decision {
        Decision::Hold(HoldReason::NothingHeld)
    }

    fn on_consumed(&mut self, _now: u64) {}

    fn held(&self) -> u32 {
        0
    }

    fn max_hold(&self) -> Option<u64> {
        Some(0)
    }

    fn may_hold(&self) -> bool {
        false
    }
}
