//! The fast path: answers the usual completion without the whole of [`Vic::decide`].
//!
//! **Precondition**: `now` is not before the previous call and is before `until`, which the last full decision set so that
//! until then no epoch ends and no deadline comes; and `cif` is below `low`, or above `high`, where the live clamp cannot
//! act, or the ratio is 1.
//!
//! Then the decision and the state are those of the slow path, which the test below compares. Instructions on x86-64,
//! inlined: 14 to 18 here (`scripts/cost.sh`).

use crate::algorithm::{Cycle, Decision, HoldReason, Reason, Vic};

impl Vic {
    /// A command completed; `cif` commands were in flight, counting this one. The end of the timeslice is unknown.
    #[inline]
    pub fn on_completion(&mut self, now: u64, cif: u32) -> Decision {
        match self.on_completion_fast(now, cif) {
            Some(decision) => decision,
            None => self.on_completion_in_slice(now, cif, None),
        }
    }

    /// As [`on_completion`](Self::on_completion), with the instant at which the guest's timeslice ends, if it is
    /// known (Xen §4, Algorithm 1). An instant that is not in the future counts as unknown, and so does `u64::MAX`.
    #[inline(never)]
    pub fn on_completion_in_slice(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        let decision = self.decide(now, cif, slice_end);
        self.look_ahead();
        decision
    }

    /// The fast path of [`on_completion`](Self::on_completion), for callers who inline that alone. `None`: nothing has
    /// happened; call `on_completion`.
    #[inline(always)]
    pub fn on_completion_fast(&mut self, now: u64, cif: u32) -> Option<Decision> {
        if now < self.last || now >= self.until {
            None
        } else if cif > self.high {
            self.count(now);
            Some(self.next_in_cycle())
        } else if cif < self.low {
            self.count(now);
            self.cycle = Cycle::START;
            Some(Decision::Deliver(Reason::LowCif))
        } else if self.skip_up == 1 {
            self.count(now);
            self.cycle = Cycle::START;
            Some(Decision::Deliver(Reason::Always))
        } else {
            None
        }
    }

    const fn count(&mut self, now: u64) {
        self.last = now;
        self.epoch_completions = self.epoch_completions.wrapping_add(1);
    }

    /// vIC Alg. 2 l.11-19.
    #[inline(always)]
    fn next_in_cycle(&mut self) -> Decision {
        if self.cycle.counter() >= self.skip_up {
            self.cycle = Cycle::START;
            return Decision::Deliver(Reason::Ratio);
        }
        if self.held() == 0 {
            if self.cycle.counter() < self.count_up {
                self.set_counter(self.cycle.counter().wrapping_add(1));
                return Decision::Deliver(Reason::Ratio);
            }
            self.first_held = self.last;
        }
        self.cycle = self.cycle.and_one_held();
        Decision::Hold(HoldReason::Ratio)
    }

    /// Opens the fast path: until the epoch ends, or `max_hold` for what is held or may be held from now on.
    fn look_ahead(&mut self) {
        if self.slice_known || !self.running {
            self.close_fast_path();
            return;
        }
        let epoch_left = self.config.epoch.get().saturating_sub(self.since(self.epoch_start));
        let epoch_end = self.last.saturating_add(epoch_left);
        let first_held = if self.held() == 0 { self.last } else { self.first_held };
        self.until = self.hold_deadline(first_held).map_or(epoch_end, |hold| hold.min(epoch_end));

        self.low = u32::from(self.config.cif_threshold);
        // The live clamp lets a cycle hold all it may with 2T commands in flight for each.
        let most = u32::from(self.skip_up).saturating_sub(u32::from(self.count_up));
        let clamps = self.config.live_clamp && most > 1;
        if self.skip_up == 1 {
            self.high = u32::MAX; // the counter has nothing to decide
            return;
        }
        let enough = if clamps { self.low.wrapping_mul(2).checked_mul(most) } else { Some(self.low) };
        self.high = enough.map_or(u32::MAX, |enough| enough.wrapping_sub(1)); // above u32::MAX: no CIF is enough
    }

    /// Until the next full decision. With a slice deadline completions are held, so that R < 1 and the limits suffice.
    pub(crate) const fn close_fast_path(&mut self) {
        (self.low, self.high) = (0, u32::MAX);
        if !self.slice_known {
            self.until = 0;
        }
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]
mod tests {
    extern crate std;

    use super::*;
    use crate::{Config, Params};
    use coalesce_testkit::{Completion, Mix, Policy, Promises, check_any};
    use core::cell::RefCell;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn named(decision: Decision) -> coalesce_testkit::Decision {
        match decision {
            Decision::Deliver(reason) => coalesce_testkit::Decision::Deliver(reason.name()),
            Decision::Hold(reason) => coalesce_testkit::Decision::Hold(reason.name()),
        }
    }

    /// A machine; wherever its fast path answers, a copy of it takes the slow path.
    struct Twin<'a> {
        vic: Vic,
        configs: Vec<Config>,
        answers: &'a RefCell<BTreeMap<&'static str, u32>>,
        fault: Option<String>,
    }

    impl Policy for Twin<'_> {
        fn on_completion(
            &mut self,
            now: u64,
            Completion { cif, slice_end, .. }: Completion,
        ) -> coalesce_testkit::Decision {
            let mut slow = self.vic;
            let mut fast = self.vic;
            if let Some(decision) = fast.on_completion_fast(now, cif) {
                let expected = slow.decide(now, cif, None);
                // `slow` has not looked ahead.
                if (decision, fast) != (expected, slow) {
                    let difference = format!("fast {decision:?} {fast:?}, slow {expected:?} {slow:?}");
                    self.fault.get_or_insert(difference);
                }
                let name = match decision {
                    Decision::Deliver(reason) => reason.name(),
                    Decision::Hold(_) => "hold",
                };
                *self.answers.borrow_mut().entry(name).or_default() += 1;
            }
            named(match slice_end {
                None => self.vic.on_completion(now, cif),
                Some(_) => self.vic.on_completion_in_slice(now, cif, slice_end),
            })
        }

        fn deadline(&self) -> Option<u64> {
            self.vic.deadline()
        }

        fn on_deadline(&mut self, now: u64) -> coalesce_testkit::Decision {
            named(self.vic.on_deadline(now))
        }

        fn flush(&mut self, now: u64) -> coalesce_testkit::Decision {
            named(self.vic.flush(now))
        }

        fn promises(&self) -> Promises {
            let hold_max = self.vic.config().max_hold();
            Promises { hold_max, needs_next_completion: hold_max.is_none(), ..Promises::default() }
        }

        fn on_consumed(&mut self, now: u64) {
            self.vic.on_consumed(now);
        }

        fn on_schedule(&mut self, now: u64) -> coalesce_testkit::Decision {
            named(self.vic.on_schedule(now))
        }

        fn on_deschedule(&mut self, now: u64) -> coalesce_testkit::Decision {
            named(self.vic.on_deschedule(now))
        }

        fn reconfigure(&mut self, choice: u8, now: u64) -> Option<coalesce_testkit::Decision> {
            self.vic.reconfigure(*self.configs.get(usize::from(choice))?, now).ok().map(named)
        }

        fn fault(&self) -> Option<String> {
            self.fault.clone()
        }
    }

    /// Epochs of 1000 ticks, and ratios of every kind.
    fn config() -> impl Strategy<Value = Config> {
        let cif_threshold = prop_oneof![Just(2_u16), Just(4), Just(u16::MAX)];
        let max_skip = prop_oneof![Just(2_u16), Just(16), Just(u16::MAX)];
        let max_hold_ns = prop::option::of(1_000..1_500_000_u64);
        (cif_threshold, max_skip, max_hold_ns, any::<bool>()).prop_map(
            |(cif_threshold, max_skip, max_hold_ns, live_clamp)| {
                let epoch_ns = 1_000_000;
                let (tick_hz, iops_threshold, margin_ns) = (1_000_000, 0, 30_000);
                Config::new(Params {
                    tick_hz,
                    cif_threshold,
                    iops_threshold,
                    epoch_ns,
                    max_skip,
                    max_hold_ns,
                    live_clamp,
                    margin_ns,
                })
                .expect("in range")
            },
        )
    }

    #[test]
    fn the_fast_path_decides_and_leaves_the_state_as_the_slow_path() {
        let answers = RefCell::default();
        let mix = Mix { back: true, consumed: true, schedule: true, configurations: 2, ..Mix::new([0, 20, 1000]) };
        let choice = prop::collection::vec(config(), 2).boxed();
        check_any(&mix, 400_000, &choice, |configs: &Vec<Config>| Twin {
            vic: Vic::new(configs[0]),
            configs: configs.clone(),
            answers: &answers,
            fault: None,
        });
        let answers = answers.into_inner();
        for reason in ["hold", "ratio", "always", "low_cif"] {
            assert!(answers.get(reason).is_some_and(|&times| times > 100), "too seldom for a test: {answers:?}");
        }
    }
}
