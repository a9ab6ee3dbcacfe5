//! The machines as policies.

use crate::algorithm::Budget;
use crate::auto::Auto;
use coalesce_decision::{Completion, Decision, Mark, Policy, Spent, Submission, Submissions};

impl Policy for Budget {
    /// It looks at the [event](Completion::event), `cif` and `outstanding`.
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        Self::on_completion(self, now, completion.event(), completion.cif, completion.outstanding)
    }

    /// It may become earlier only in a completion, in [`on_cancel`](Policy::on_cancel),
    /// [`reset_tracking`](Policy::reset_tracking) and [`reconfigure`](Budget::reconfigure), and in a submission while
    /// something is held.
    #[inline]
    fn deadline(&self) -> Option<u64> {
        Self::deadline(self)
    }

    #[inline]
    fn on_deadline(&mut self, now: u64) -> Decision {
        Self::on_deadline(self, now)
    }

    /// Delivers everything held, even in a storm.
    #[inline]
    fn flush(&mut self, now: u64) -> Decision {
        Self::flush(self, now)
    }

    #[inline]
    fn on_consumed(&mut self, now: u64) {
        Self::on_consumed(self, now);
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
    #[inline]
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        Self::on_cancel(self, now, mark.event)
    }

    /// Forgets what was learned about the requesters, as others may come, and the commands in flight, which never complete.
    /// The level is [`Level::Strict`](crate::Level::Strict) again. What is held is due at once; the credit and the usual gap
    /// stay.
    #[inline]
    fn reset_tracking(&mut self) {
        self.forget();
    }

    #[inline]
    fn posts_late(&self) -> bool {
        self.config.ooo
    }

    fn max_hold(&self) -> Option<u64> {
        Some(self.config.max_hold())
    }

    fn wants_submit(&self) -> Submissions {
        Submissions::Counted
    }

    fn spent(&self) -> Option<Spent> {
        let (held, outstanding) = Self::spent(self);
        Some(Spent { held, outstanding, learning: self.config.learning_of(outstanding) })
    }
}

impl Policy for Auto {
    #[inline(always)] // so that what is constant of a completion costs nothing
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        Self::on_completion(self, now, completion.event(), completion.cif, completion.outstanding)
    }

    /// As [`Budget`]. What the regulator has learned is forgotten, too.
    #[inline]
    fn reset_tracking(&mut self) {
        self.forget();
    }

    #[inline]
    fn on_deadline(&mut self, now: u64) -> Decision {
        Self::on_deadline(self, now)
    }

    #[inline]
    fn flush(&mut self, now: u64) -> Decision {
        Self::flush(self, now)
    }

    #[inline]
    fn on_consumed(&mut self, now: u64) {
        Self::on_consumed(self, now);
    }

    #[inline]
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.on_submits(now, submission.count());
        Mark::of(submission.hint)
    }

    #[inline]
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        Self::on_cancel(self, now, mark.event)
    }

    coalesce_decision::forward!(self => self.budget(); deadline, held, posts_late, max_hold, wants_submit);

    fn spent(&self) -> Option<Spent> {
        Policy::spent(self.budget())
    }
}
