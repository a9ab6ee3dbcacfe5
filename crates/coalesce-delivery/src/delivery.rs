//! The order of the steps.

use crate::keep::{Count, Keep, Kept};
use crate::ring::Ring;
use crate::stats::DeliveryStats;
use coalesce_policy::{
    Aggregation, AnyPolicy, Bypassed, Completion, Counted, Decision, Mark, Policy, Reason, SetAside, Submission,
};
#[cfg(feature = "std")]
use coalesce_policy::{Spec, SpecError};
use core::marker::PhantomData;

/// The policy of one queue, and what it holds. All times are in ticks of the policy's clock; statistics are in ns if that is.
#[derive(Clone, Debug)]
pub struct Delivery<E, P = AnyPolicy, K = Kept<E>> {
    pub(crate) kept: K,
    pub(crate) stats: DeliveryStats,
    posts_late: bool,       // what the policy's `posts_late` says
    is_newest_posted: bool, // whether the last completion was posted when it came
    pub(crate) policy: P,
    entry: PhantomData<fn(E)>,
}

#[cfg(feature = "std")]
impl<E> Delivery<E> {
    /// A queue with nothing in it, whose clock is in ns.
    ///
    /// # Errors
    /// A parameter is out of range for a clock in nanoseconds.
    pub fn new(spec: Spec) -> Result<Self, SpecError> {
        let policy = AnyPolicy::new(spec.clone(), 1_000_000_000).map_err(|error| spec.explain(error))?;
        Ok(Self::with_policy(policy))
    }
}

#[cfg(feature = "std")]
impl<E, K: Keep<E>> Delivery<E, AnyPolicy, K> {
    /// Changes the policy, as [`AnyPolicy::reconfigure`], which may deliver what is held. `ring`: `None` if the queue is not running.
    /// What it would deliver is due then as soon as the queue runs again.
    ///
    /// # Errors
    /// The policy is refused, and nothing has changed; or else the ring cannot be used any more.
    pub fn reconfigure<R: Ring<Entry = E>>(
        &mut self,
        ring: Option<&mut R>,
        now: u64,
        spec: Spec,
    ) -> Result<Result<Decision, R::Broken>, SpecError> {
        let decision = self.policy.reconfigure(spec.clone(), now).map_err(|error| spec.explain(error))?;
        Ok(self.change(ring, now, |_| decision))
    }
}

impl<E, K: Keep<E>> Delivery<E, AnyPolicy, K> {
    /// Changes to a policy that was [set aside](AnyPolicy::set_aside): what is held is delivered.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn resume<R>(&mut self, ring: Option<&mut R>, now: u64, aside: SetAside) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        self.change(ring, now, |policy| policy.resume(aside, now))
    }

    /// The host has set NVMe's Feature 08h. The policy `nvme:host=on` delivers what it holds, and then uses these values;
    /// every other policy ignores them.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn set_by_host<R>(&mut self, ring: &mut R, now: u64, aggregation: Aggregation) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        let decision = self.policy.set_by_host(now, aggregation);
        self.act(ring, now, decision)
    }

    /// Forgets what was counted.
    pub fn reset_stats(&mut self) {
        self.stats = DeliveryStats::ZERO;
        self.policy.reset_stats();
    }
}

impl<E, P: Policy, K: Keep<E>> Delivery<E, Counted<P>, K> {
    /// Forgets what was counted.
    pub fn reset_stats(&mut self) {
        self.stats = DeliveryStats::ZERO;
        self.policy.reset_stats();
    }
}

impl<E, P> Delivery<E, P, Count> {
    /// The same as [`with_policy`](Self::with_policy), for a static variable.
    #[must_use]
    pub const fn counting(policy: P) -> Self {
        let (kept, stats, entry) = (Count(0), DeliveryStats::ZERO, PhantomData);
        Self { kept, stats, posts_late: false, is_newest_posted: false, policy, entry } // it keeps no entry to post late
    }
}

impl<E, P: Policy, K: Keep<E>> Delivery<E, P, K> {
    /// A queue with nothing in it, under a policy that has made no decision yet.
    #[must_use]
    pub fn with_policy(policy: P) -> Self {
        let (kept, stats, posts_late) = (K::default(), DeliveryStats::ZERO, policy.posts_late());
        Self { kept, stats, posts_late, is_newest_posted: false, policy, entry: PhantomData }
    }

    /// Changes the policy, and does what `change` decides about what is held. `ring`: `None` if the queue is not running. What the
    /// policy does not know of any more is due at once then, as soon as the queue runs again.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn change<R>(
        &mut self,
        ring: Option<&mut R>,
        now: u64,
        change: impl FnOnce(&mut P) -> Decision,
    ) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        let decision = self.adjust(change);
        let Some(ring) = ring else { return Ok(decision) };
        if !self.posts_late {
            self.post_all(ring)?;
        }
        self.act(ring, now, decision)
    }

    /// Changes something about the policy and nothing about what is held, which it must still know of: a parameter, what it has counted.
    pub fn adjust<T>(&mut self, adjust: impl FnOnce(&mut P) -> T) -> T {
        let answer = adjust(&mut self.policy);
        self.posts_late = self.policy.posts_late();
        answer
    }

    /// The policy, read-only.
    #[must_use]
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &DeliveryStats {
        &self.stats
    }

    /// Completions that are done and not posted.
    #[must_use]
    pub fn unposted(&self) -> usize {
        self.kept.unposted()
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.kept.held() == 0 {
            return None;
        }
        if self.is_forgotten() { Some(0) } else { self.policy.deadline() }
    }

    /// Whether completions are held of which the policy does not know, as it was changed while there was no ring.
    fn is_forgotten(&self) -> bool {
        (self.policy.held() as usize) < self.kept.held()
    }

    /// A request is submitted. Returns its mark, which the caller passes when the request completes or is cancelled.
    pub fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.policy.on_submit(now, submission)
    }

    /// Interrupts without a decision, for completions that were posted earlier, for example by an earlier process.
    pub fn interrupt<R: Ring<Entry = E>>(&mut self, ring: &mut R) {
        self.stats.interrupts += u64::from(ring.interrupt());
    }

    /// A request completed. If the ring forbids holds, or has no room for more unposted completions, all are delivered.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn complete<R>(
        &mut self,
        ring: &mut R,
        now: u64,
        entry: E,
        completion: &Completion,
    ) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        self.stats.completions += 1;
        self.on_consumed(ring, now);
        let is_posted_late = self.posts_late && !ring.is_polled(&entry);
        let entry = if is_posted_late { self.kept.keep(entry) } else { Some(entry) };
        self.is_newest_posted = entry.is_some();
        if let Some(entry) = entry {
            ring.post(entry)?;
        }
        let decision = self.policy.on_completion(now, completion);
        self.act_on_completions(ring, now, 1, decision)
    }

    /// `before` requests completed, and then this one. The caller has posted them all, as a device does that owns its ring. So each
    /// interrupt covers all that is held, one for an urgent completion, too; but for what [`complete`](Self::complete) has not posted.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn posted<R>(&mut self, ring: &mut R, now: u64, before: u16, last: &Completion) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        let count = usize::from(before) + 1;
        self.stats.completions += count as u64;
        self.is_newest_posted = true;
        let decision = self.policy.on_completions(now, before, last);
        if let (Decision::DeliverUrgent, true) = (decision, self.kept.unposted() == 0) {
            self.policy.on_consumed(now);
            self.end_holds(now);
        }
        self.act_on_completions(ring, now, count, decision)
    }

    /// While the policy [may not hold](Policy::may_hold) anything, and nothing is held, the caller need not ask. It posts, asks its
    /// consumer and interrupts by itself, and reports here what it did: before the policy is asked again, and every now and then.
    /// Without an interrupt nothing is covered.
    pub fn bypassed(&mut self, now: u64, bypassed: &Bypassed) {
        self.stats.completions += bypassed.completions;
        self.stats.interrupts += u64::from(bypassed.interrupts);
        self.stats.suppressed += u64::from(bypassed.suppressed);
        if bypassed.deliveries() == 0 {
            return;
        }
        self.policy.on_bypassed(now, bypassed);
        if self.kept.unposted() == 0 {
            self.end_holds(now); // of another thread, since it was allowed again: these interrupts cover it
        }
    }

    /// The decision about the last `count` completions.
    fn act_on_completions<R>(
        &mut self,
        ring: &mut R,
        now: u64,
        count: usize,
        decision: Decision,
    ) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        if let Decision::Hold(_) = decision {
            self.kept.hold(now, count);
            return if self.may_hold(ring) { self.act(ring, now, decision) } else { self.flush(ring, now) };
        }
        if decision == Decision::DeliverUrgent && self.is_forgotten() {
            // One interrupt for the urgent one and for all before it.
            let _ = self.policy.flush(now);
            return self.act(ring, now, Decision::Deliver(Reason::Flush));
        }
        let decision = self.act(ring, now, decision)?;
        if self.kept.held() == 0 || self.may_hold(ring) { Ok(decision) } else { self.flush(ring, now) }
    }

    /// Whether what is held may stay held, whatever the policy decides. A consumer makes room only when it knows of completions.
    fn may_hold<R: Ring<Entry = E>>(&self, ring: &R) -> bool {
        ring.may_hold() && self.kept.unposted() < ring.room() && !self.is_forgotten()
    }

    /// The deadline has passed.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn on_deadline<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Decision, R::Broken> {
        if self.is_forgotten() {
            return self.flush(ring, now);
        }
        self.decide(ring, now, |policy| policy.on_deadline(now))
    }

    /// A batch of completions has ended. Returns `None` if the policy has no rule for the end of a batch.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn on_batch_end<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Option<Decision>, R::Broken> {
        if !self.policy.wants_batch_end() {
            return Ok(None);
        }
        self.decide(ring, now, |policy| policy.on_batch_end(now)).map(Some)
    }

    /// Drops what is held if the consumer has reaped it: then no interrupt is needed. A front end that sees the consumer
    /// reap calls this at once. One that cannot see it need not: `complete`, deadlines, the end of a batch, cancellations and
    /// the guest's schedule check this, too; `posted`, a change of the policy, `flush` and `reset` do not.
    pub fn on_consumed<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) {
        if self.kept.held() > 0 && self.kept.unposted() == 0 && ring.is_consumed() {
            self.policy.on_consumed(now);
            self.stats.consumed += self.kept.held() as u64;
            self.end_holds(now);
        }
    }

    /// A request was aborted and will not complete. `mark`: what [`on_submit`](Self::on_submit) returned.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn cancel<R>(&mut self, ring: &mut R, now: u64, mark: Mark) -> Result<Decision, R::Broken>
    where
        R: Ring<Entry = E>,
    {
        self.decide(ring, now, |policy| policy.on_cancel(now, mark))
    }

    /// The consumer's guest has been put on a CPU.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn on_schedule<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Decision, R::Broken> {
        self.decide(ring, now, |policy| policy.on_schedule(now))
    }

    /// The consumer's guest is taken off its CPU.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn on_deschedule<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Decision, R::Broken> {
        self.decide(ring, now, |policy| policy.on_deschedule(now))
    }

    /// The queue stops, or its ring has no room: delivers what is held, including that whose policy was changed while there was no
    /// ring.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn flush<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Decision, R::Broken> {
        let is_forgotten = self.is_forgotten();
        let decision = self.policy.flush(now);
        self.act(ring, now, if is_forgotten { Decision::Deliver(Reason::Flush) } else { decision })
    }

    /// The queue is reset: no request in flight will complete, and no ticket is valid. Delivers what is held.
    ///
    /// # Errors
    /// The ring cannot be used any more.
    pub fn reset<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) -> Result<Decision, R::Broken> {
        self.policy.reset_tracking();
        self.flush(ring, now)
    }

    /// Handles a broken ring: interrupts for what is posted, whether the guest wants it or not, and drops the rest.
    pub fn abandon<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64) {
        if self.kept.held() > self.kept.unposted() {
            self.interrupt(ring);
        }
        self.forget(now);
    }

    /// Forgets what is held: the ring is gone.
    pub fn forget(&mut self, now: u64) {
        self.policy.on_consumed(now);
        self.policy.reset_tracking();
        self.kept.clear();
    }

    /// What the policy decides at an event, about nothing that the consumer has reaped.
    fn decide<R: Ring<Entry = E>>(
        &mut self,
        ring: &mut R,
        now: u64,
        decide: impl FnOnce(&mut P) -> Decision,
    ) -> Result<Decision, R::Broken> {
        self.on_consumed(ring, now);
        let decision = decide(&mut self.policy);
        self.act(ring, now, decision)
    }

    fn act<R: Ring<Entry = E>>(&mut self, ring: &mut R, now: u64, decision: Decision) -> Result<Decision, R::Broken> {
        ring.decided(decision, &self.policy);
        match decision {
            Decision::Hold(_) => return Ok(decision),
            Decision::Deliver(_) => {
                self.post_all(ring)?;
                self.end_holds(now);
            }
            Decision::DeliverUrgent => {
                // The urgent one is the newest. Those before it stay held.
                if !self.is_newest_posted
                    && let Some(urgent) = self.kept.take_newest()
                {
                    ring.post(urgent)?;
                }
            }
        }
        if !ring.wants_interrupt() {
            self.stats.suppressed += 1;
        } else if ring.interrupt() {
            self.stats.interrupts += 1;
        }
        Ok(decision)
    }

    fn post_all<R: Ring<Entry = E>>(&mut self, ring: &mut R) -> Result<(), R::Broken> {
        while let Some(entry) = self.kept.take_oldest() {
            ring.post(entry)?;
        }
        Ok(())
    }

    pub(crate) fn end_holds(&mut self, now: u64) {
        self.kept.release(now, |ns| self.stats.note_held(ns));
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
