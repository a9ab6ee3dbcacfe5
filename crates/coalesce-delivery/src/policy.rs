//! What a delivery asks.

use coalesce_policy::{AnyPolicy, Clues, Completion, Decision, Mark};

/// A policy as [`Delivery`](crate::Delivery) uses it: the verbs of [`AnyPolicy`], for a clock in ns.
pub trait Policy {
    /// Whether held completions stay unposted, so that urgent ones overtake them (OOO).
    fn posts_late(&self) -> bool;

    /// See [`AnyPolicy::on_submit`].
    fn on_submit(&mut self, clues: &Clues) -> Mark;

    /// What to do about a completion.
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision;

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    fn deadline(&self) -> Option<u64>;

    /// The deadline has passed; before it, the call changes nothing.
    fn on_deadline(&mut self, now: u64) -> Decision;

    /// Whether [`on_batch_end`](Self::on_batch_end) must be called after each poll of the device.
    fn wants_batch_end(&self) -> bool;

    /// The device has posted all it had.
    fn on_batch_end(&mut self, now: u64) -> Decision;

    /// Queue stop, reset: delivers what is held.
    fn flush(&mut self, now: u64) -> Decision;

    /// The consumer has taken everything that was posted, without an interrupt.
    fn on_consumed(&mut self, now: u64);

    /// A command was aborted and will not complete.
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision;

    /// The guest has been put on a CPU.
    fn on_schedule(&mut self, now: u64) -> Decision;

    /// The guest is taken off its CPU.
    fn on_deschedule(&mut self, now: u64) -> Decision;

    /// The queue was reset: what was submitted and has not completed never will.
    fn reset_tracking(&mut self);

    /// Forgets what was counted.
    fn reset_stats(&mut self);
}

impl Policy for AnyPolicy {
    #[inline]
    fn posts_late(&self) -> bool {
        self.spec().is_ooo()
    }

    #[inline]
    fn on_submit(&mut self, clues: &Clues) -> Mark {
        self.on_submit(clues)
    }

    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.on_completion(now, completion)
    }

    #[inline]
    fn deadline(&self) -> Option<u64> {
        self.deadline()
    }

    #[inline]
    fn on_deadline(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    #[inline]
    fn wants_batch_end(&self) -> bool {
        self.wants_batch_end()
    }

    #[inline]
    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_batch_end(now)
    }

    #[inline]
    fn flush(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    #[inline]
    fn on_consumed(&mut self, now: u64) {
        self.on_consumed(now);
    }

    #[inline]
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.on_cancel(now, mark)
    }

    #[inline]
    fn on_schedule(&mut self, now: u64) -> Decision {
        self.on_schedule(now)
    }

    #[inline]
    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.on_deschedule(now)
    }

    #[inline]
    fn reset_tracking(&mut self) {
        self.reset_tracking();
    }

    #[inline]
    fn reset_stats(&mut self) {
        self.reset_stats();
    }
}
