//! The events of every policy, and what it can be asked.

use crate::completion::Completion;
use crate::hints::{Clues, HintCounts};
use crate::mark::Mark;
use crate::policy::{Spent, Submissions};
use crate::{Decision, HoldReason};
use cint_core::Hint;

/// The state machine of a policy. Times are in ticks of its clock. The verbs are those of [`Policy`](crate::Policy).
pub(crate) trait Machine {
    /// A command completed. [`Completion::before`] is not looked at. Counts the source of its hint.
    fn on_completion(&mut self, now: u64, completion: &Completion, hints: &mut HintCounts) -> Decision;

    fn deadline(&self) -> Option<u64>;

    fn on_deadline(&mut self, now: u64) -> Decision;

    fn flush(&mut self, now: u64) -> Decision;

    fn on_consumed(&mut self, now: u64);

    fn held(&self) -> u64;

    fn max_hold(&self) -> Option<u64>;

    /// An interrupt is decided upon. It delivers `left` more completions, too, the last of which is `last`.
    fn ride(&mut self, now: u64, left: u16, last: &Completion, hints: &mut HintCounts) {
        for left in (0..left).rev() {
            let _ = self.on_completion(now, &if left > 0 { last.preceding(left) } else { *last }, hints);
        }
        self.on_consumed(now);
    }

    fn may_hold(&self) -> bool {
        true
    }

    fn wants_submit(&self) -> Submissions {
        Submissions::None
    }

    fn on_submit(&mut self, _now: u64, clues: &Clues) -> Mark {
        Mark::of(clues.hint)
    }

    fn on_cancel(&mut self, now: u64, _mark: Mark) -> Decision {
        self.flush(now)
    }

    fn reset_tracking(&mut self) {}

    fn untracked(&self) -> u32 {
        0
    }

    fn times_back(&self) -> u16 {
        0
    }

    /// In all; without [`Spent::budget`].
    fn spent(&self) -> Option<Spent> {
        None
    }

    fn hint_of(&self, mark: Mark, _cif: u32) -> Hint {
        mark.hint()
    }

    fn wants_batch_end(&self) -> bool {
        false
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.flush(now)
    }
}

/// The policy `none`: every completion interrupts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Always;

impl Machine for Always {
    #[inline]
    fn on_completion(&mut self, _now: u64, _completion: &Completion, _hints: &mut HintCounts) -> Decision {
        Decision::Deliver(crate::Reason::Always)
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

    fn held(&self) -> u64 {
        0
    }

    fn max_hold(&self) -> Option<u64> {
        Some(0)
    }

    fn may_hold(&self) -> bool {
        false
    }
}
