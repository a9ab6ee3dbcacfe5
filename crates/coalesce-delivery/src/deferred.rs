//! Delivery for a device that posts and interrupts by itself.

use crate::delivery::Delivery;
use crate::keep::{Keep, Kept};
use crate::ring::Ring;
use crate::stats::DeliveryStats;
use coalesce_policy::{AnyPolicy, Bypassed, Completion, Decision, Mark, Policy, Submission};
use core::convert::Infallible;

/// A [`Delivery`] for a device that posts by itself, interrupts by itself, and can do so only at times of its own: it asks
/// whether an interrupt [is due](Self::is_due), and says [when it has sent one](Self::interrupted).
///
/// **What is due stays due until an interrupt is sent**, whatever happens meanwhile. The interrupt covers everything that has
/// completed by then, what came after the decision, too.
#[derive(Clone, Debug)]
pub struct Deferred<P = AnyPolicy, K = Kept<Infallible>> {
    delivery: Delivery<Infallible, P, K>,
    line: Line,
    is_batch_open: bool, // something completed since the last end of a batch
    ends_batches: bool,  // the caller has ended one: it ends each
}

/// What became of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It was sent.
    Sent,
    /// The consumer wants none, and finds everything by itself.
    Unwanted,
    /// It could not be sent now. It is due, whether the policy has decided so or not.
    Failed,
}

/// The ring of a device whose interrupts only become due.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    is_due: bool,
    is_consumed: bool,
}

impl Ring for Line {
    type Entry = Infallible; // the device posts them
    type Broken = Infallible;

    fn post(&mut self, entry: Infallible) -> Result<(), Infallible> {
        match entry {}
    }

    fn wants_interrupt(&mut self) -> bool {
        true // the device asks
    }

    fn is_consumed(&mut self) -> bool {
        self.is_consumed
    }

    fn interrupt(&mut self) -> bool {
        self.is_due = true;
        false // not yet
    }
}

impl<P: Policy, K: Keep<Infallible>> Deferred<P, K> {
    /// A queue with nothing in it, under a policy that has made no decision yet.
    #[must_use]
    pub fn new(policy: P) -> Self {
        let (delivery, line) = (Delivery::with_policy(policy), Line::default());
        Self { delivery, line, is_batch_open: false, ends_batches: false }
    }

    /// The policy, read-only.
    #[must_use]
    pub const fn policy(&self) -> &P {
        self.delivery.policy()
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &DeliveryStats {
        self.delivery.stats()
    }

    /// Forgets what was counted here. The policy counts for itself: `of_policy` lets it forget that.
    pub fn reset_stats(&mut self, of_policy: impl FnOnce(&mut P)) {
        self.delivery.stats = DeliveryStats::ZERO;
        self.delivery.adjust(of_policy);
    }

    /// Whether an interrupt is due.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.line.is_due
    }

    /// Completions that are held: no interrupt is due for them.
    #[must_use]
    pub fn held(&self) -> usize {
        self.delivery.kept.held()
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before; 0 if an interrupt is due.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.line.is_due { Some(0) } else { self.delivery.deadline() }
    }

    /// A request is submitted. Returns its mark, which the caller passes when the request completes or is cancelled.
    pub fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.delivery.on_submit(now, submission)
    }

    /// `before` requests completed, and then this one, as for [`Delivery::posted`]. The consumer sees them before it is interrupted.
    pub fn completed(&mut self, now: u64, before: u32, last: &Completion) {
        let told = u16::try_from(before).unwrap_or(u16::MAX); // the policy need not count that many
        self.delivery.stats.completions += u64::from(before - u32::from(told));
        self.is_batch_open = true;
        let Ok(_) = self.delivery.posted(&mut self.line, now, told, last);
    }

    /// Something completed of which nothing is known: an interrupt is due.
    pub fn completed_unknown(&mut self, now: u64) {
        self.delivery.stats.completions += 1;
        self.flush(now);
        self.line.is_due = true;
    }

    /// The device has posted everything that it found. From the first call on, what waits for the end of a batch is not due before it:
    /// who calls this once calls it after each poll.
    pub fn end_batch(&mut self, now: u64) {
        if self.is_batch_open && !self.line.is_due {
            let Ok(_) = self.delivery.on_batch_end(&mut self.line, now);
        }
        (self.is_batch_open, self.ends_batches) = (false, true);
    }

    /// If the deadline has passed, an interrupt is due. Early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) {
        let waits_for_end = self.is_batch_open && self.ends_batches && self.delivery.policy.wants_batch_end();
        if !self.line.is_due && !waits_for_end && self.delivery.deadline().is_some_and(|deadline| deadline <= now) {
            let Ok(_) = self.delivery.on_deadline(&mut self.line, now);
        }
    }

    /// What became of an interrupt. The caller has reported everything that completed before it, and nothing else: what completed after
    /// it would be taken to be covered.
    pub fn interrupted(&mut self, now: u64, interrupt: Interrupt) {
        match interrupt {
            Interrupt::Sent => self.delivery.stats.interrupts += 1,
            Interrupt::Unwanted => self.delivery.stats.suppressed += 1,
            Interrupt::Failed => {
                self.line.is_due = true;
                return;
            }
        }
        self.line.is_due = false;
        self.cover(now);
    }

    /// Nothing is held any more.
    fn cover(&mut self, now: u64) {
        if self.delivery.policy.held() > 0 {
            self.delivery.policy.on_consumed(now);
        }
        self.delivery.end_holds(now);
    }

    /// As [`Delivery::bypassed`]: for a caller that does not ask while the policy may hold nothing, nothing is held and nothing is due.
    /// It must report before it reports the next completion or deadline: if something is held already, nobody knows whether these
    /// interrupts cover it, and one more is due.
    pub fn bypassed(&mut self, now: u64, bypassed: &Bypassed) {
        self.line.is_due |= self.held() > 0;
        self.delivery.bypassed(now, bypassed);
    }

    /// The consumer has reaped everything that was posted. What is due stays due.
    pub fn on_consumed(&mut self, now: u64) {
        self.line.is_consumed = true;
        self.delivery.on_consumed(&mut self.line, now);
        self.line.is_consumed = false;
    }

    /// A request was aborted and will not complete.
    pub fn cancel(&mut self, now: u64, mark: Mark) {
        let Ok(_) = self.delivery.cancel(&mut self.line, now, mark);
    }

    /// The consumer's guest has been put on a CPU.
    pub fn on_schedule(&mut self, now: u64) {
        let Ok(_) = self.delivery.on_schedule(&mut self.line, now);
    }

    /// The consumer's guest is taken off its CPU.
    pub fn on_deschedule(&mut self, now: u64) {
        let Ok(_) = self.delivery.on_deschedule(&mut self.line, now);
    }

    /// The queue stops: what is held is due.
    pub fn flush(&mut self, now: u64) {
        let Ok(_) = self.delivery.flush(&mut self.line, now);
    }

    /// Changes the policy, as [`Delivery::change`]. What is due stays due.
    pub fn change(&mut self, now: u64, change: impl FnOnce(&mut P) -> Decision) {
        self.is_batch_open = false; // its end may not have been told to the policy before
        let Ok(_) = self.delivery.change(Some(&mut self.line), now, change);
    }

    /// The queue is gone, with its completions and what is in flight: nothing is held, and nothing is due.
    pub fn reset(&mut self, now: u64) {
        self.cover(now);
        let Ok(_) = self.delivery.reset(&mut self.line, now);
        self.line.is_due = false;
        self.is_batch_open = false;
    }
}
