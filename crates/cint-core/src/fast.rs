//! The fast path for the usual case: a Plain completion that begins or continues a burst.
//!
//! It takes 35 instructions instead of about 100 on x86-64, inlined; through the C ABI 38 instead of 114
//! (`scripts/cost.sh`).

use crate::algorithm::Cint;
use crate::config::{NEVER, SPAN_MAX};
#[cfg(doc)]
use coalesce_decision::Policy;
use coalesce_decision::{Decision, HoldReason};

impl Cint {
    /// The fast path of [`Policy::on_completion`] for a Plain completion. It applies only if the call before
    /// held a completion or interrupted, there is no storm, no deadline has passed, the clock has not gone back, and
    /// neither `thr` nor the `in_flight` rule requires an interrupt.
    ///
    /// `None`: it does not apply, and nothing has changed; call [`on_event`](Self::on_event).
    #[inline(always)]
    pub fn on_completion_fast(&mut self, now: u64, cif: u32) -> Option<Decision> {
        let elapsed = now.wrapping_sub(self.last); // more than `fast_for` if the clock went back
        if elapsed >= u64::from(self.fast_for) {
            return None;
        }
        let coalesced = self.coalesced.wrapping_add(1);
        if coalesced >= self.thr_left {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below fast_for")]
        let elapsed = elapsed as u32;
        let (needed, oldest) = match coalesced {
            1 => (self.cif_to_hold(1), 0),
            _ => (self.cif_to_hold(coalesced), self.oldest.wrapping_add(elapsed)),
        };
        if cif < needed {
            return None;
        }
        (self.last, self.coalesced, self.oldest) = (now, coalesced, oldest);
        self.guard.pass(elapsed, u32::MAX);
        self.fast_for = self.burst_left(); // `quiet` is 0, as always while the fast path is open
        Some(Decision::Hold(HoldReason::Burst))
    }

    /// Sets how long the fast path may answer. Requires `quiet` = 0, as after a completion or an interrupt.
    #[inline(never)]
    pub(crate) const fn open_fast_path(&mut self) {
        self.fast_for = if self.guard.is_storming() || self.last >= CLOCK_END {
            0
        } else if self.coalesced == 0 {
            SPAN_MAX
        } else {
            self.burst_left()
        };
    }

    /// Ticks until the held completions are due, just after a completion.
    #[inline(always)]
    const fn burst_left(&self) -> u32 {
        let (delta, max_hold) = (self.config.delta, self.config.max_hold_fast.wrapping_sub(self.oldest));
        if delta < max_hold { delta } else { max_hold }
    }
}

/// From this instant on the fast path stays closed. So it does not run past the end of the clock's range, and a clock
/// that goes back does not look like one that wrapped.
const CLOCK_END: u64 = 0xFFFF_FFFF << 32;
const _: () = assert!(u64::MAX - CLOCK_END > 2 * NEVER as u64);

#[cfg(test)]
#[expect(clippy::integer_division, clippy::panic, reason = "a test")]
mod tests {
    use super::*;
    use crate::{Completion, Config, Event, Params, Policy as _, StormParams};
    use core::cell::Cell;
    use proptest::prelude::*;
    use proptest::test_runner::{Config as Cases, TestRunner};

    /// Configurations for a tick of 1 µs, so that spans are small numbers.
    fn config() -> impl Strategy<Value = Config> {
        let storm = (prop_oneof![Just(100_000_u64), Just(7_001)], 5..7_u8);
        (
            prop_oneof![Just(0_u64), Just(6_000), 1_000..100_000_u64],
            prop_oneof![1..6_u16, Just(32), Just(u16::MAX)],
            any::<bool>(),
            prop::option::of(1_000..400_000_u64),
            prop::option::of(storm.prop_map(|(max_rate, shift)| StormParams { max_rate, shift })),
            prop::option::of(2..9_u16),
        )
            .prop_map(|(delta_ns, thr, ooo, max_hold_ns, storm, in_flight)| {
                Config::new(Params { tick_hz: 1_000_000, delta_ns, thr, ooo, max_hold_ns, storm, in_flight })
            })
            .prop_filter_map("max_hold is shorter than the interval", Result::ok)
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Complete(Event),
        Deadline,
        BatchEnd,
        Flush,
        Consumed,
        Reconfigure(Config),
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            12 => Just(Call::Complete(Event::Plain)),
            4 => prop_oneof![Just(Event::Urgent), Just(Event::Barrier), Just(Event::Error)].prop_map(Call::Complete),
            2 => Just(Call::Deadline),
            1 => Just(Call::BatchEnd),
            1 => Just(Call::Flush),
            1 => Just(Call::Consumed),
            1 => config().prop_map(Call::Reconfigure),
        ]
    }

    /// Removes the differences that cannot affect a later call: every slow call begins with `advance`, which closes the
    /// fast path, and an age above SPAN_MAX is past every deadline.
    fn as_later_calls_see_it(mut cint: Cint) -> Cint {
        cint.advance(cint.last);
        cint.oldest = cint.oldest.min(SPAN_MAX);
        cint.guard.pass(0, SPAN_MAX);
        cint
    }

    #[test]
    fn fast_path_answers_as_the_slow_path_and_leaves_the_same_state() {
        let ticks = prop_oneof![10 => 0..4_i64, 4 => 4..20_i64, 1 => 20..500_i64, 1 => 0..1_i64 << 30, 1 => -20..0_i64];
        let cif = prop_oneof![0..70_u32, Just(u32::MAX)];
        let start = prop_oneof![4 => Just(1_000_u64), 1 => CLOCK_END - 20..CLOCK_END, 1 => Just(u64::MAX - 100)];
        let calls = prop::collection::vec((ticks, cif, call()), 1..100);
        let (probed, answered) = (Cell::new(0_u32), Cell::new(0_u32));
        let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(4_000) });
        let result = runner.run(&(config(), start, calls), |(config, start, calls)| {
            let (mut cint, mut now) = (Cint::new(config), start);
            for (ticks, cif, call) in calls {
                now = now.saturating_add_signed(ticks);
                let (mut fast, mut slow) = (cint, cint);
                match fast.on_completion_fast(now, cif) {
                    Some(decision) => {
                        prop_assert_eq!(decision, slow.on_event(now, Event::Plain, cif));
                        prop_assert_eq!(as_later_calls_see_it(fast), as_later_calls_see_it(slow));
                        answered.set(answered.get() + 1);
                    }
                    None => prop_assert_eq!(fast, cint, "it does not answer, and so changes nothing"),
                }
                probed.set(probed.get() + 1);
                match call {
                    Call::Complete(event) => _ = cint.on_completion(now, &Completion { cif, ..Completion::of(event) }),
                    Call::Deadline => _ = cint.on_deadline(now),
                    Call::BatchEnd => _ = cint.on_batch_end(now),
                    Call::Flush => _ = cint.flush(now),
                    Call::Consumed => cint.on_consumed(now),
                    Call::Reconfigure(config) => _ = cint.reconfigure(config, now),
                }
            }
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
        let (answered, probed) = (answered.get(), probed.get());
        assert!(answered > probed / 10, "the fast path answered {answered} of {probed} times: too few to say anything");
    }
}
