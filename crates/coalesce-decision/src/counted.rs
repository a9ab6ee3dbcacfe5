//! A policy, and what it decided so far.

use crate::{Bypassed, Completion, Decision, HintCounts, Mark, Policy, Reason, Spent, Stats, forward};

/// A policy that counts what it decides.
#[derive(Clone, Debug)]
pub struct Counted<P> {
    policy: P,
    stats: Stats,
    hints: HintCounts,
    spent_before: Spent, // until the statistics were reset, or the policy took over
}

impl<P: Policy> Counted<P> {
    /// Nothing is counted yet.
    pub fn new(policy: P) -> Self {
        let spent_before = policy.spent().unwrap_or_default();
        Self { policy, stats: Stats::ZERO, hints: HintCounts::default(), spent_before }
    }

    /// The policy.
    #[must_use]
    pub const fn get(&self) -> &P {
        &self.policy
    }

    /// The policy, for what is not counted.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Another policy takes over. What was counted stays. Returns the old one.
    pub fn replace(&mut self, policy: P) -> P {
        self.spent_before = policy.spent().unwrap_or_default();
        core::mem::replace(&mut self.policy, policy)
    }

    /// How often each decision was taken.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The same, to count decisions that came from elsewhere.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// How many completions were decided by an inferred hint, by its source.
    #[must_use]
    pub const fn hints_counted(&self) -> &HintCounts {
        &self.hints
    }

    /// Forgets what was counted.
    pub fn reset_stats(&mut self) {
        (self.stats, self.hints) = (Stats::ZERO, HintCounts::default());
        self.spent_before = self.policy.spent().unwrap_or_default();
    }

    #[inline]
    fn count_hint(&mut self, completion: &Completion) {
        self.hints.count(self.policy.mark_at(completion.mark, completion.cif).source);
    }
}

impl<P: Policy> Policy for Counted<P> {
    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.count_hint(completion);
        self.stats.count(self.policy.on_completion(now, completion))
    }

    /// They count as many times as they are held, and an interrupt counts once. Those that were held until another one of them
    /// delivered never waited.
    #[inline]
    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        self.count_hint(last);
        let decision = self.policy.on_completions(now, before, last);
        let times = if decision.is_deliver() { 1 } else { u64::from(before).saturating_add(1) };
        self.stats.count_times(decision, times);
        decision
    }

    /// The interrupt that covers them was counted.
    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        self.count_hint(last);
        self.policy.on_covered(now, left, last);
    }

    fn on_bypassed(&mut self, now: u64, bypassed: &Bypassed) {
        self.policy.on_bypassed(now, bypassed);
        self.stats.count_times(Decision::Deliver(Reason::Always), bypassed.deliveries().into());
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.stats.count(self.policy.on_deadline(now))
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.stats.count(self.policy.on_batch_end(now))
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.stats.count(self.policy.flush(now))
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.stats.count(self.policy.on_cancel(now, mark))
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.stats.count(self.policy.on_schedule(now))
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.stats.count(self.policy.on_deschedule(now))
    }

    /// Since the statistics were reset or another policy took over: what one has spent says nothing of the other's budget.
    fn spent(&self) -> Option<Spent> {
        let total = self.policy.spent()?;
        Some(Spent {
            held: total.held.saturating_sub(self.spent_before.held),
            outstanding: total.outstanding.saturating_sub(self.spent_before.outstanding),
            ..total
        })
    }

    forward!(self => self.policy; all but on_completion, on_completions, on_covered, on_bypassed, on_deadline, on_batch_end, flush,
        on_cancel, on_schedule, on_deschedule, spent);
}
