//! Completions that a device finds together: decided one after the other, but their tick is settled once.

use crate::algorithm::Budget;
use crate::constants::MOST;
use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};

/// A policy with a latency budget.
pub(crate) trait Together: Policy {
    fn budget(&mut self) -> &mut Budget;

    /// Decides about the plain completion that is the `left`-th before `last`, and perhaps about some behind it; it stops at an
    /// `end`. Returns how many before `last` are left, and the last decision.
    fn decide_some(&mut self, now: u64, left: u16, last: &Completion, end: End) -> (u16, Decision);
}

/// What decisions end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The first one that delivers.
    Delivery,
    /// The last one: an interrupt that was decided upon covers them all.
    Last,
}

/// [`on_completions`](Policy::on_completions).
pub(crate) fn decide_all<P: Together>(policy: &mut P, now: u64, before: u16, last: &Completion) -> Decision {
    let mut left = before;
    while left > 0 {
        let (after, decision) = policy.decide_some(now, left, last, End::Delivery);
        if decision.is_deliver() {
            policy.on_covered(now, after.wrapping_add(1), last);
            return decision;
        }
        left = after;
    }
    policy.on_completion(now, last)
}

/// [`on_covered`](Policy::on_covered). The storm guard has seen the interrupt: what it covers is no interrupt of its own.
pub(crate) fn cover<P: Together>(policy: &mut P, now: u64, left: u16, last: &Completion) {
    policy.budget().settle_known(now);
    let guard = policy.budget().guard;
    if let Some(mut plain) = left.checked_sub(1) {
        while plain > 0 {
            (plain, _) = policy.decide_some(now, plain, last, End::Last);
            if !policy.budget().is_licensed() {
                policy.budget().drop_held(); // with a licence it matters how many are found together
            }
        }
        let _ = policy.on_completion(now, last);
    }
    let budget = policy.budget();
    budget.drop_held();
    budget.guard = guard;
}

impl Budget {
    /// Decides about up to `count` plain completions, of which this is the `first`, or until the `end`. Returns how many it decided
    /// about, and the last decision. `None`: none completed before them in this tick, or this way does not apply to them, and
    /// nothing has changed.
    ///
    /// It answers as [`on_completion_slow`](Self::on_completion_slow) would: in the same tick nothing is earned, nothing is paid, and nothing falls due.
    /// What is outstanding is noted by the completion that comes last.
    #[inline(never)]
    pub(crate) fn join(&mut self, now: u64, count: u16, first: &Completion, end: End) -> Option<(u16, Decision)> {
        let held = u32::from(self.account.held);
        let is_joined = now == self.last && self.quiet == 0 && now < u64::MAX;
        let outstanding = first.outstanding.max(first.cif.saturating_add(held));
        let is_counted = first.cif > 0 && outstanding <= MOST;
        if count == 0 || !is_joined || !is_counted || self.config.storm_interval > 0 {
            return None;
        }
        if end == End::Last && !self.is_licensed() {
            // No decision depends on another, and all that is learned is how often completions come.
            self.account.set_in_flight(first.cif.wrapping_sub(count.into()));
            (0..count).for_each(|_| self.note_gap());
            return Some((count, Decision::Hold(HoldReason::NothingHeld)));
        }
        let (mut cif, mut done) = (first.cif, 0_u16);
        loop {
            let held = u32::from(self.account.held);
            let outstanding = first.outstanding.max(cif.wrapping_add(held));
            let with_it = held.wrapping_add(1);
            cif = cif.wrapping_sub(1);
            self.account.set_in_flight(cif);
            self.note_gap();
            done = done.wrapping_add(1);
            let verdict = if self.is_full() {
                Err(Reason::Count)
            } else {
                self.weigh(with_it, outstanding.saturating_sub(with_it), true)
            };
            let decision = self.apply(verdict);
            if done >= count || (end == End::Delivery && decision.is_deliver()) {
                return Some((done, decision));
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::integer_division, clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::fast::tests::{When, as_later_calls_see_it, call, config};
    use crate::{Auto, Config, Params};
    use coalesce_decision::{Hint, Mark, Submission};
    use proptest::prelude::*;

    /// What [`decide_all`] shortens.
    fn decide_apart<P: Together>(policy: &mut P, now: u64, before: u16, last: &Completion) -> Decision {
        for left in (1..=before).rev() {
            let decision = policy.on_completion(now, &last.preceding(left));
            if decision.is_deliver() {
                cover_apart(policy, now, left, last);
                return decision;
            }
        }
        policy.on_completion(now, last)
    }

    /// What [`cover`] shortens. Without a licence nothing that is covered counts as held.
    fn cover_apart<P: Together>(policy: &mut P, now: u64, left: u16, last: &Completion) {
        policy.budget().settle_known(now);
        let guard = policy.budget().guard;
        for left in (0..left).rev() {
            let _ = policy.on_completion(now, &last.preceding(left));
            if !policy.budget().is_licensed() {
                policy.budget().drop_held();
            }
        }
        policy.budget().drop_held();
        policy.budget().guard = guard;
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]
        #[test]
        fn together_is_as_one_after_the_other(
            config in config(),
            most in prop_oneof![2 => Just(70_u32), 1 => Just(3), 1 => Just(65_600), 1 => Just(u32::MAX)],
            start in prop_oneof![4 => Just(1_000_u64), 1 => u64::MAX - 20..=u64::MAX, 1 => Just(u64::MAX - 100)],
            calls in prop::collection::vec((0..20_i64, any::<u32>(), any::<u32>(), 0..40_u16, call()), 1..200),
        ) {
            let (mut budget, mut now) = (Budget::new(config), start);
            for (ticks, cif, outstanding, before, call) in calls {
                now = When::After(ticks.pow(2) / 8).after(now, &budget);
                let (cif, outstanding) = (cif % most, outstanding % most);
                let last = Completion { outstanding, ..Completion::with_cif(cif) };
                let mut apart = budget;
                let decision = budget.on_completions(now, before, &last);
                prop_assert_eq!(decision, decide_apart(&mut apart, now, before, &last));
                prop_assert_eq!(as_later_calls_see_it(budget), as_later_calls_see_it(apart));
                call.apply(&mut budget, now, cif, outstanding);
            }
        }
    }

    /// Over some thousand trials, with a licence and without.
    #[test]
    fn together_teaches_the_regulator_the_same() {
        let mut auto = Auto::new(Config::new(Params::DEFAULT).unwrap());
        let (mut now, mut dice, mut delivered, mut licensed) = (0_u64, 1_u32, 0_u32, 0_u32);
        for step in 0..200_000_u32 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (before, chance) = ((dice >> 30) as u16, dice >> 8 & 0xff);
            let hint = if chance == 0 { Hint::Urgent } else { Hint::Plain };
            let last = Completion { mark: Mark::of(hint), ..Completion::with_cif(1 + (chance & 31)) };
            // In every other part of the time an interrupt slows down what follows.
            let burden = if step >> 14 & 1 == 0 { u64::from(delivered) * 40_000 } else { 0 };
            now += 2_000 + burden + u64::from(chance) * 8;
            let _ = auto.on_submit(now, &Submission { before: before.into(), ..Submission::default() });
            let mut apart = auto;
            let decision = decide_all(&mut auto, now, before, &last);
            assert_eq!(decision, decide_apart(&mut apart, now, before, &last), "step {step}");
            let seen = as_later_calls_see_it(*auto.budget());
            assert_eq!(seen, as_later_calls_see_it(*apart.budget()), "step {step}");
            (*Together::budget(&mut auto), *Together::budget(&mut apart)) = (seen, seen);
            assert_eq!(auto, apart, "step {step}"); // the regulators
            delivered = decision.is_deliver().into();
            licensed += u32::from(auto.budget().is_licensed());
            if let Some(due) = auto.deadline().filter(|due| *due <= now + 1_000) {
                delivered |= u32::from(auto.on_deadline(due).is_deliver());
            }
        }
        assert!((20_000..180_000).contains(&licensed), "{licensed}: it says nothing of licences, or of nothing else");
    }
}
