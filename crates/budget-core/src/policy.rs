//! The machine as a policy.

use crate::account::Account;
use crate::algorithm::{Budget, Flags};
use crate::constants::AGE_MAX;
use crate::level::Level;
use crate::together::{End, Together, cover, decide_all};
use coalesce_decision::{
    Completion, Decision, Event, HoldReason, Mark, Policy, Reason, Spent, Submission, Submissions,
};

impl Together for Budget {
    fn budget(&mut self) -> &mut Budget {
        self
    }

    fn decide_some(&mut self, now: u64, left: u16, last: &Completion, end: End) -> (u16, Decision) {
        let first = last.preceding(left);
        let (done, decision) =
            self.join(now, left, &first, end).unwrap_or_else(|| (1, self.on_completion(now, &first)));
        (left.wrapping_sub(done), decision)
    }
}

impl Policy for Budget {
    /// It looks at the [event](Completion::event), `cif` and `outstanding`.
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.on_completion_fast(now, completion).unwrap_or_else(|| self.on_completion_slow(now, completion))
    }

    /// It may become earlier only in a completion, in [`on_cancel`](Policy::on_cancel),
    /// [`reset_tracking`](Policy::reset_tracking), [`reconfigure`](Budget::reconfigure) and [`allow`](Budget::allow).
    fn deadline(&self) -> Option<u64> {
        if self.account.held == 0 {
            return None;
        }
        let (left, _) = self.next_deadline();
        Some(self.last.saturating_add(left.max(0).unsigned_abs().into()))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.settle_known(now);
        match self.expired() {
            Some(reason) => self.end_hold(reason),
            None if self.account.held > 0 => Decision::Hold(HoldReason::Early),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    /// Delivers everything held, even in a storm.
    fn flush(&mut self, now: u64) -> Decision {
        self.settle_known(now);
        if self.account.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn on_consumed(&mut self, now: u64) {
        self.settle_known(now);
        self.drop_held();
    }

    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        decide_all(self, now, before, last)
    }

    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        cover(self, now, left, last);
    }

    #[inline]
    fn held(&self) -> u32 {
        self.account.held.into()
    }

    #[inline]
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.on_submits(now, submission.count());
        Mark::of(submission.hint)
    }

    /// It looks at the event: an aborted Barrier delivers, as the end of its batch would.
    fn on_cancel(&mut self, now: u64, Mark { event, .. }: Mark) -> Decision {
        self.settle_known(now);
        if !matches!(event, Event::Error) {
            self.account.in_flight = self.account.in_flight.saturating_sub(1); // an invalid ticket names no command
        }
        match (self.expired(), event) {
            _ if self.account.held == 0 => Decision::Hold(HoldReason::NothingHeld),
            (Some(reason), _) => self.end_hold(reason),
            (None, Event::Error) => self.deliver(Reason::Error),
            (None, Event::Barrier) if self.is_pacing() => {
                self.wait_for_guard();
                Decision::Hold(HoldReason::Storm)
            }
            (None, Event::Barrier) => self.deliver(Reason::Barrier),
            (None, Event::Plain | Event::Urgent) => match self.broken() {
                Some(reason) if !self.is_pacing() => self.deliver(reason),
                _ => Decision::Hold(HoldReason::Cancelled),
            },
        }
    }

    /// Forgets the commands in flight, which never complete; other requesters may come, so
    /// [`Allowance::STRICT`](crate::Allowance::STRICT) is in force again. What is held is due at once; the credit and the usual
    /// gap stay.
    fn reset_tracking(&mut self) {
        (self.level, self.epsilon) = (Level::Strict, self.config.epsilon);
        (self.limit, self.starved, self.evidence) = (1, 0, 0);
        self.limit_gap();
        self.flags.set(Flags::GAP_COUNTS | Flags::FAILED | Flags::UNPAID, false);
        self.account.in_flight = 0;
        self.quiet = AGE_MAX;
    }

    #[inline]
    fn posts_late(&self) -> bool {
        self.config.ooo
    }

    fn max_hold(&self) -> Option<u64> {
        self.config.max_hold()
    }

    fn wants_submit(&self) -> Submissions {
        Submissions::Counted
    }

    fn spent(&self) -> Option<Spent> {
        let Account { held_time: held, request_time: outstanding, .. } = self.account;
        Some(Spent { held, outstanding, learning: self.config.learning_of(outstanding) })
    }
}
