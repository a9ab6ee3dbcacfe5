//! What a latency budget does not see: holding may slow the requesters down by more than it holds.
//!
//! The account of a budget ends with the interrupt. A requester that falls asleep during a hold, and is slow to wake, loses
//! more than the hold. The time in which a closed loop completes its commands shows it.

use budget_core::Config;

/// Compares holding with not holding, by the time in which the requesters complete their commands. A trial has four
/// stretches, without holding, twice with, and without. Holding loses if its stretch was longer by more than twice the
/// budget in both halves. Two trials in a row that it loses suspend it. One that it does not lose resumes it.
///
/// Only a requester whose depth is known has trials: an open load takes its time whatever is held.
#[derive(Clone, Debug)]
pub(crate) struct SlowdownGuard {
    state: State,
    completions: u32, // in this state
    length: u32,      // completions after which it ends
    is_suspended: bool,
    evidence: i8,                  // trials lost less trials won, within EVIDENCE
    rare: u8,                      // the pause between trials is 2^rare times the shortest
    last: u64,                     // the time of the last completion
    began: u64,                    // when this state began
    times: [u64; STRETCHES.len()], // of a completion in each stretch, in ticks * 2^SHIFT
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between trials.
    Pause,
    /// The requesters get used to a stretch.
    Settle(usize),
    /// The time of a stretch is measured.
    Measure(usize),
}

/// Whether completions may be held in each stretch of a trial.
const STRETCHES: [bool; 4] = [false, true, true, false];
/// So many trials decide.
const EVIDENCE: i8 = 4;
// Lengths in completions: a multiple of the depth, and a minimum.
const SETTLE: (u32, u32) = (2, 16);
const MEASURE: (u32, u32) = (8, 64);
const PAUSE: (u32, u32) = (64, 512); // the shortest between trials
/// How often the pause doubles, at most.
const RARE_MAX: u8 = 5;
/// Completions before it is asked again whether the depth is known.
const UNKNOWN: u32 = 64;
const SHIFT: u32 = 10;

impl SlowdownGuard {
    /// It has seen nothing.
    pub(crate) const NEW: Self = Self {
        state: State::Pause,
        completions: 0,
        length: UNKNOWN,
        is_suspended: false,
        evidence: 0,
        rare: 0,
        last: 0,
        began: 0,
        times: [0; STRETCHES.len()],
    };

    /// Whether completions may be held now.
    pub(crate) const fn may_hold(&self) -> bool {
        match self.state {
            State::Pause => !self.is_suspended,
            State::Settle(stretch) | State::Measure(stretch) => STRETCHES[stretch],
        }
    }

    /// `completions` commands completed. `depth`: of the requesters; 0: not known.
    pub(crate) fn advance(&mut self, now: u64, completions: u32, depth: u32, config: &Config) {
        let silence = now.saturating_sub(core::mem::replace(&mut self.last, now));
        self.completions = self.completions.saturating_add(completions);
        if self.state != State::Pause && silence > config.max_hold() {
            self.pause(now, depth); // they did not wait for us alone
        } else if self.completions >= self.length {
            match self.state {
                State::Pause if depth <= 1 => self.enter(now, State::Pause, UNKNOWN),
                State::Pause => self.enter(now, State::Settle(0), length(SETTLE, depth)),
                State::Settle(stretch) => self.enter(now, State::Measure(stretch), length(MEASURE, depth)),
                State::Measure(stretch) => {
                    let elapsed = now.saturating_sub(self.began).saturating_mul(1 << SHIFT);
                    self.times[stretch] = elapsed / u64::from(self.completions);
                    if stretch + 1 < STRETCHES.len() {
                        return self.enter(now, State::Settle(stretch + 1), length(SETTLE, depth));
                    }
                    self.judge(config.epsilon());
                    self.pause(now, depth);
                }
            }
        }
    }

    const fn enter(&mut self, now: u64, state: State, length: u32) {
        (self.state, self.completions, self.length, self.began) = (state, 0, length, now);
    }

    const fn pause(&mut self, now: u64, depth: u32) {
        self.enter(now, State::Pause, length(PAUSE, depth).saturating_mul(1 << self.rare));
    }

    /// A trial has ended. The budget is `part` of `whole`.
    fn judge(&mut self, (part, whole): (u64, u64)) {
        let [rest, hold, hold_again, rest_again] = self.times;
        let is_slower = |hold: u64, rest: u64| hold.saturating_mul(whole) > rest.saturating_mul(whole + 2 * part);
        let is_lost = is_slower(hold, rest);
        if is_lost != is_slower(hold_again, rest_again) {
            return; // it says nothing
        }
        self.evidence = (self.evidence + if is_lost { 1 } else { -1 }).clamp(-EVIDENCE, EVIDENCE);
        if self.evidence.abs() == EVIDENCE {
            self.is_suspended = is_lost;
        }
        self.rare =
            if is_lost == self.is_suspended { (self.rare + 1).min(RARE_MAX) } else { self.rare.saturating_sub(1) };
    }
}

/// A length in completions.
const fn length((factor, least): (u32, u32), depth: u32) -> u32 {
    let product = depth.saturating_mul(factor);
    if product > least { product } else { least }
}

#[cfg(test)]
mod tests {
    use super::SlowdownGuard;
    use budget_core::{Config, Params};
    use proptest::prelude::*;

    const DEPTH: u32 = 32;

    /// Completions, the time between which `gap` says: of the completion, and whether it may have been held.
    struct Load {
        guard: SlowdownGuard,
        config: Config,
        now: u64,
    }

    impl Load {
        fn new() -> Self {
            Self { guard: SlowdownGuard::NEW, config: Config::new(Params::DEFAULT).unwrap(), now: 0 }
        }

        /// How many of `completions` were not allowed to be held.
        fn run(&mut self, completions: u64, depth: u32, mut gap: impl FnMut(u64, bool) -> u64) -> u64 {
            let mut forced = 0;
            for i in 0..completions {
                self.now += gap(i, self.guard.may_hold());
                self.guard.advance(self.now, 1, depth, &self.config);
                forced += u64::from(!self.guard.may_hold());
            }
            forced
        }
    }

    fn loss(_: u64, may_hold: bool) -> u64 {
        if may_hold { 1200 } else { 1000 }
    }

    /// The gaps of a machine whose pace changes every 256 completions.
    fn noisy(seed: u64, mut gap: impl FnMut(u64, bool) -> u64) -> impl FnMut(u64, bool) -> u64 {
        let (mut random, mut pace) = (seed | 1, 1000);
        move |i, may_hold| {
            if i % 256 == 0 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pace = 1000 + (random >> 33) % 1000;
            }
            gap(i, may_hold) * pace / 1000
        }
    }

    #[test]
    fn holding_that_costs_more_than_twice_the_budget_is_suspended() {
        let mut load = Load::new();
        load.run(20_000, DEPTH, loss);
        assert!(load.guard.is_suspended);
        let forced = load.run(1_000_000, DEPTH, loss);
        assert!(forced > 980_000, "{forced}: trials become rare");
    }

    #[test]
    fn holding_that_costs_less_goes_on() {
        for with in [900, 1000, 1099] {
            let mut load = Load::new();
            load.run(20_000, DEPTH, |_, may_hold| if may_hold { with } else { 1000 });
            assert!(!load.guard.is_suspended, "{with}");
            let forced = load.run(1_000_000, DEPTH, |_, may_hold| if may_hold { with } else { 1000 });
            assert!((1..20_000).contains(&forced), "{forced} at {with}: trials become rare, and do not end");
        }
    }

    #[test]
    fn it_is_resumed_when_nothing_is_lost_any_more() {
        let mut load = Load::new();
        load.run(200_000, DEPTH, loss);
        load.run(400_000, DEPTH, |_, _| 1000);
        assert!(!load.guard.is_suspended);
    }

    #[test]
    fn one_trial_lost_is_not_enough() {
        let mut load = Load::new();
        let lost = (0..20_000).find(|_| {
            load.run(1, DEPTH, loss);
            load.guard.evidence > 0
        });
        assert!(lost.is_some() && !load.guard.is_suspended);
        load.run(20_000, DEPTH, |_, _| 1000);
        assert!(!load.guard.is_suspended && load.guard.evidence < 0);
    }

    #[test]
    fn a_load_that_slows_down_or_speeds_up_by_itself_loses_nothing() {
        for slower in [true, false] {
            let mut load = Load::new();
            let gap = |i, _: bool| if slower { 1000 + i % 3000 } else { 4000 - i % 3000 };
            let forced = load.run(1_000_000, DEPTH, gap);
            assert!(forced < 50_000, "{forced}");
        }
    }

    #[test]
    fn a_load_without_a_depth_has_no_trials() {
        for depth in [0, 1] {
            assert_eq!(Load::new().run(100_000, depth, loss), 0);
        }
    }

    #[test]
    fn a_trial_that_a_pause_interrupts_says_nothing() {
        let mut load = Load::new();
        load.run(100_000, DEPTH, |i, may_hold| if may_hold && i % 100 == 0 { 2_000_001 } else { 1000 });
        assert_eq!(load.guard.evidence, 0);
    }

    #[test]
    fn completions_that_arrive_together_count_each() {
        let mut load = Load::new();
        for _ in 0..40_000 {
            let may_hold = load.guard.may_hold();
            let together = if may_hold { 1 } else { 200 };
            load.now += loss(0, may_hold) * together;
            load.guard.advance(load.now, u32::try_from(together).unwrap(), DEPTH, &load.config);
        }
        assert!(load.guard.is_suspended);
    }

    proptest! {
        /// A machine on which a stretch takes up to twice as long as the same stretch before.
        #[test]
        fn noise_alone_seldom_suspends(seed in any::<u64>()) {
            let mut load = Load::new();
            let forced = load.run(2_000_000, DEPTH, noisy(seed, |_, _| 1000));
            prop_assert!(forced < 400_000, "{forced}");
        }

        /// The same machine, where holding costs a third.
        #[test]
        fn noise_hides_no_loss(seed in any::<u64>()) {
            let mut load = Load::new();
            let gap = |_, may_hold| if may_hold { 1333 } else { 1000 };
            let forced = load.run(2_000_000, DEPTH, noisy(seed, gap));
            prop_assert!(forced > 1_600_000, "{forced}");
        }

        /// Whatever the clock says and however many complete.
        #[test]
        fn nothing_overflows(calls in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 0..500)) {
            let mut load = Load::new();
            for (now, completions, depth) in calls {
                load.guard.advance(now, completions, depth, &load.config);
            }
        }
    }
}
