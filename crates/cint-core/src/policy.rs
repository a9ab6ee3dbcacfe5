//! The machine as a policy.

use crate::algorithm::Cint;
use crate::config::{NEVER, SPAN_MAX};
use coalesce_decision::{Completion, Decision, Event, HoldReason, Mark, Policy, Reason};

impl Policy for Cint {
    /// It looks at the [event](Completion::event), and at `cif` for the `in_flight` rule; 0: the rule is off for this
    /// completion.
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let (event, cif) = (completion.event(), completion.cif);
        let decision = if event == Event::Plain { self.on_completion_fast(now, cif) } else { None };
        decision.unwrap_or_else(|| self.on_event(now, event, cif))
    }

    #[inline]
    fn deadline(&self) -> Option<u64> {
        if self.coalesced == 0 {
            return None;
        }
        let (left, _) = if self.guard.is_storming() { self.next_deadline() } else { self.own_deadline() };
        if left > SPAN_MAX as i32 {
            return None;
        }
        #[expect(clippy::cast_sign_loss, reason = "compared")]
        let left = if left > 0 { left as u64 } else { 0 };
        Some(self.last.saturating_add(left))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        match self.expired() {
            Some(reason) => self.deliver(reason),
            None => self.nothing_due(HoldReason::Early),
        }
    }

    fn wants_batch_end(&self) -> bool {
        self.config.waits_for_batch_end()
    }

    /// With Δ = 0 this ends the burst.
    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.advance(now);
        if let Some(reason) = self.expired() {
            return self.deliver(reason);
        }
        if self.config.delta != NEVER {
            return self.nothing_due(HoldReason::Early);
        }
        self.deliver_held_paced(Reason::BatchEnd)
    }

    /// Delivers everything held, even in a storm.
    fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.coalesced > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.reset_coalesced();
    }

    /// An interrupt begins a new burst, and those that it covers besides are none.
    fn on_covered(&mut self, _now: u64, _left: u16, _last: &Completion) {}

    /// It looks at the event: an aborted Barrier delivers, as the end of its batch would. Without a tracker of submissions
    /// nothing is known of the others of an aborted command's batch.
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.advance(now);
        if self.coalesced == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if let Some(reason) = self.expired() {
            return self.deliver(reason);
        }
        match mark.event {
            Event::Error => self.deliver(Reason::Error),
            Event::Barrier => self.deliver_held_paced(Reason::Barrier),
            Event::Plain | Event::Urgent => Decision::Hold(HoldReason::Cancelled),
        }
    }

    #[inline]
    fn posts_late(&self) -> bool {
        self.config.ooo
    }

    #[inline]
    fn held(&self) -> u32 {
        self.coalesced
    }

    fn max_hold(&self) -> Option<u64> {
        self.config.max_hold()
    }

    #[inline]
    fn times_back(&self) -> u16 {
        self.times_back
    }
}
