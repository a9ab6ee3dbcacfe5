//! The fast path for the usual case: a Plain completion while nothing is due, and there is no storm guard.
//!
//! `docs/budget.md` says what it takes, and what an Urgent takes, which goes the other way.

use crate::algorithm::Budget;
use crate::constants::MOST;
use crate::level::Level;
#[cfg(doc)]
use coalesce_decision::Policy;
use coalesce_decision::{Completion, Decision, HoldReason, Reason};

impl Budget {
    /// The fast path of [`Policy::on_completion`]: what it would decide, and a state that decides the same from then on. `None`: it does
    /// not apply, and nothing has changed; call [`on_completion_slow`](Self::on_completion_slow).
    #[inline(always)]
    pub fn on_completion_fast(&mut self, now: u64, completion: &Completion) -> Option<Decision> {
        let Completion { cif, outstanding, .. } = *completion;
        if !completion.is_plain() {
            return None;
        }
        let elapsed = self.short_while(now)?;
        let (held, in_flight) = (u32::from(self.account.held), cif.wrapping_sub(1));
        let are_counted = (in_flight | outstanding) < MOST; // else `cif` is 0, or they have to be limited
        if !are_counted || !self.flags.is_usual() || self.is_full() {
            return None;
        }
        let oldest = self.oldest.wrapping_add(elapsed); // of no use if nothing is held, and may be anything then
        let quiet = self.quiet.wrapping_add(elapsed);
        let is_due = oldest >= self.config.max_hold || quiet >= self.silence;
        if held > 0 && is_due {
            return None;
        }
        (self.last, self.oldest, self.quiet) = (now, oldest, quiet);
        self.guard.pass(elapsed, u32::MAX);
        let reaping = outstanding.saturating_sub(cif.wrapping_add(held));
        let settled = self.account.settle(elapsed, cif, reaping);
        self.account.set_in_flight(in_flight);
        if self.level != Level::Licensed {
            self.account.charge(&settled, self.epsilon, self.config.max_hold, 0);
        }
        self.note_gap();
        let verdict = self.weigh(held.wrapping_add(1), in_flight.wrapping_add(reaping), quiet == 0);
        Some(self.apply(verdict))
    }

    /// Holds, or delivers where there is no storm guard.
    #[inline(always)]
    pub(crate) fn apply(&mut self, verdict: Result<HoldReason, Reason>) -> Decision {
        match verdict {
            Ok(reason) => self.hold(reason),
            Err(reason) => {
                self.account.release(self.config.room);
                self.guard.interrupt(0, 0);
                Decision::Deliver(reason)
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::integer_division, clippy::panic, reason = "a test")]
pub(crate) mod tests {
    use super::*;
    use crate::algorithm::Flags;
    use crate::constants::{AGE_MAX, SPAN_MAX};
    use crate::level::Allowance;
    use crate::time::LATE;
    use crate::{Config, Params, Share, StormParams};
    use coalesce_decision::{Event, Policy as _};
    use core::cell::Cell;
    use proptest::prelude::*;
    use proptest::test_runner::{Config as Cases, TestRunner};

    /// Configurations for a tick of 1 µs, so that spans are small numbers.
    pub(crate) fn config() -> impl Strategy<Value = Config> {
        let storm = (prop_oneof![Just(100_000_u64), Just(7_001)], 5..7_u8);
        (
            prop_oneof![Just(500_u16), 1..5_000_u16],
            prop_oneof![Just(2_000_000_u64), 10_000..3_000_000_u64],
            prop_oneof![1..6_u16, Just(256), Just(u16::MAX)],
            any::<bool>(),
            prop::option::weighted(0.1, storm.prop_map(|(max_rate, shift)| StormParams { max_rate, shift })),
        )
            .prop_map(|(budget, max_hold_ns, thr, ooo, storm)| {
                let budget = Share::basis_points(budget);
                Config::new(Params { tick_hz: 1_000_000, budget, max_hold_ns, thr, ooo, storm })
            })
            .prop_filter_map("max_hold is shorter than the interval", Result::ok)
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Call {
        Complete(Event),
        Submit(u32),
        Deadline,
        Consumed,
        Forget,
        Allow(Allowance),
        Reconfigure(Config),
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum When {
        After(i64),
        Deadline,
        /// The clock starts anew.
        Start,
    }

    pub(crate) fn call() -> impl Strategy<Value = Call> {
        let level = prop_oneof![
            1 => Just(Level::Nothing),
            1 => Just(Level::Strict),
            2 => Just(Level::Trial),
            3 => Just(Level::Licensed)
        ];
        let allowance = (level, 1..9_u8).prop_map(|(level, limit)| Allowance { level, limit, ..Allowance::STRICT });
        prop_oneof![
            30 => Just(Call::Complete(Event::Plain)),
            3 => prop_oneof![Just(Event::Urgent), Just(Event::Barrier), Just(Event::Error)].prop_map(Call::Complete),
            20 => (0..4_u32).prop_map(Call::Submit),
            2 => Just(Call::Deadline),
            1 => Just(Call::Consumed),
            1 => Just(Call::Forget),
            1 => allowance.prop_map(Call::Allow),
            1 => config().prop_map(Call::Reconfigure),
        ]
    }

    /// Removes the differences that cannot affect a later call: each begins with the time, and ages have limits.
    pub(crate) fn as_later_calls_see_it(mut budget: Budget) -> Budget {
        budget.oldest = if budget.account.held > 0 { budget.oldest.min(AGE_MAX) } else { 0 };
        budget.guard.pass(0, AGE_MAX);
        budget
    }

    impl When {
        pub(crate) fn after(self, now: u64, budget: &Budget) -> u64 {
            match self {
                Self::After(ticks) => now.saturating_add_signed(ticks),
                Self::Deadline => budget.deadline().unwrap_or(now),
                Self::Start => 0,
            }
        }
    }

    impl Call {
        pub(crate) fn apply(self, budget: &mut Budget, now: u64, cif: u32, outstanding: u32) {
            match self {
                Self::Complete(event) => {
                    let completion = Completion { cif, outstanding, ..Completion::of(event) };
                    let _ = budget.on_completion(now, &completion);
                }
                Self::Submit(count) => budget.on_submits(now, count),
                Self::Deadline => _ = budget.on_deadline(now),
                Self::Consumed => budget.on_consumed(now),
                Self::Forget => budget.reset_tracking(),
                Self::Allow(allowance) => budget.allow(now, allowance),
                Self::Reconfigure(config) => _ = budget.reconfigure(config, now),
            }
        }
    }

    /// A caller that never calls at a deadline, with half a second of ticks between its submissions.
    #[test]
    fn debt_has_a_limit() {
        let Ok(config) = Config::new(Params::DEFAULT) else { panic!("the default") };
        let mut budget = Budget::new(config);
        budget.account.held = u16::MAX;
        for call in 1..100 {
            budget.on_submits(call * u64::from(SPAN_MAX), 0);
            assert!(budget.account.credit < 0, "call {call}: {}", budget.account.credit);
        }
    }

    #[test]
    fn fast_path_answers_as_the_slow_path_and_leaves_the_same_state() {
        let ticks = prop_oneof![10 => 0..4_i64, 4 => 4..20_i64, 1 => 20..500_i64, 1 => 0..1_i64 << 30, 1 => -20..0_i64];
        let when = prop_oneof![40 => ticks.prop_map(When::After), 2 => Just(When::Deadline), 1 => Just(When::Start)];
        let most = prop_oneof![2 => Just(70_u32), 1 => Just(1), 1 => Just(65_600), 1 => Just(u32::MAX)];
        let start = prop_oneof![4 => Just(1_000_u64), 1 => LATE - 20..LATE + 20, 1 => u64::MAX - 100..=u64::MAX];
        let calls = prop::collection::vec((when, any::<u32>(), any::<u32>(), call()), 1..200);
        let (probed, answered) = (Cell::new(0_u32), Cell::new([0_u32; 2]));
        let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(4_000) });
        let held = prop_oneof![8 => Just(0_u16), 1 => u16::MAX - 9..=u16::MAX];
        let result = runner.run(&(config(), start, most, held, calls), |(config, start, most, held, calls)| {
            let (mut budget, mut now) = (Budget::new(config), start);
            if held > 0 {
                (budget.account.held, budget.last, budget.silence) = (held, start, 1_000);
                budget.flags.set(Flags::GAP_COUNTS, true);
                budget.flags.set(Flags::GAPLESS, false);
            }
            for (when, cif, outstanding, call) in calls {
                now = when.after(now, &budget);
                let (cif, outstanding) = (cif % most + 1, outstanding % most);
                let (mut fast, mut slow) = (budget, budget);
                let completion = Completion { cif, outstanding, ..Completion::of(Event::Plain) };
                match fast.on_completion_fast(now, &completion) {
                    Some(decision) => {
                        prop_assert_eq!(decision, slow.on_completion_slow(now, &completion));
                        prop_assert_eq!(as_later_calls_see_it(fast), as_later_calls_see_it(slow));
                        let [hold, deliver] = answered.get();
                        let is_hold = u32::from(!decision.is_deliver());
                        answered.set([hold + is_hold, deliver + 1 - is_hold]);
                    }
                    None => prop_assert_eq!(fast, budget, "it does not answer, and so changes nothing"),
                }
                probed.set(probed.get() + 1);
                call.apply(&mut budget, now, cif, outstanding);
            }
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
        let (answered, probed) = (answered.get(), probed.get());
        let is_enough = answered.iter().all(|&answers| answers > probed / 50);
        assert!(is_enough, "the fast path held and delivered {answered:?} of {probed} times: too few to say anything");
    }
}
