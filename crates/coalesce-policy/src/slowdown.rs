//! What a latency budget does not see: holding may slow the requesters down by more than it holds.
//!
//! The account of a budget ends with the interrupt. A requester that falls asleep during a hold, and is slow to wake, loses
//! more than the hold. The time in which a closed loop completes its commands shows it.

use budget_core::Config;

/// Compares holding with not holding, by the time in which the requesters complete their commands. A trial has four
/// stretches, without holding, twice with, and without. Holding loses if its stretch was longer by more than twice the
/// budget in both halves, and wins if it was longer in neither. [`EVIDENCE`] more trials lost than won cut ε to a quarter, and
/// after [`CUTS`] cuts nothing is held. As many more won than lost take a cut back: at once if nothing is held, else once
/// trials have become rare, so that little time is lost by finding out again that more costs too much.
///
/// There are trials only after a probe found an end of the submissions: without one, the load takes its time whatever is held.
#[derive(Clone, Debug)]
pub(crate) struct SlowdownGuard {
    state: State,
    completions: u32,              // in this state
    length: u32,                   // completions after which it ends
    cuts: u8,                      // ε is 4^-cuts of the budget; CUTS: nothing is held
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
/// The lead of lost over won trials, or of won over lost ones, that decides.
const EVIDENCE: i8 = 4;
const EVIDENCE_WON: i8 = -EVIDENCE;
/// The number of cuts of ε; after the last one nothing is held.
const CUTS: u8 = 3;
// Lengths in completions: a multiple of the depth, and a minimum.
const SETTLE: (u32, u32) = (2, 16);
const MEASURE: (u32, u32) = (8, 64);
const PAUSE: (u32, u32) = (64, 512); // the shortest between trials
/// How often the pause doubles, at most.
const RARE_MAX: u8 = 5;
/// Completions before it is asked again whether a probe has found an end.
const UNKNOWN: u32 = 64;
const SHIFT: u32 = 10;

impl SlowdownGuard {
    /// It has seen nothing.
    pub(crate) const NEW: Self = Self {
        state: State::Pause,
        completions: 0,
        length: UNKNOWN,
        cuts: 0,
        evidence: 0,
        rare: 0,
        last: 0,
        began: 0,
        times: [0; STRETCHES.len()],
    };

    /// The part of the budget that may be spent now, as a power of two to divide it by; `None`: nothing may be held.
    pub(crate) const fn shift(&self) -> Option<u8> {
        let may_hold = match self.state {
            State::Pause => self.cuts < CUTS,
            State::Settle(stretch) | State::Measure(stretch) => STRETCHES[stretch],
        };
        let cuts = if self.cuts < CUTS { self.cuts } else { CUTS - 1 };
        if may_hold { Some(2 * cuts) } else { None }
    }

    /// `completions` commands completed. `depth`: what a probe found; 0: no end. Whether [`shift`](Self::shift) may have
    /// changed.
    pub(crate) fn advance(&mut self, now: u64, completions: u32, depth: u32, config: &Config) -> bool {
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
                        self.enter(now, State::Settle(stretch + 1), length(SETTLE, depth));
                    } else {
                        self.judge(config.epsilon());
                        self.pause(now, depth);
                    }
                }
            }
        } else {
            return false;
        }
        true
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
        let holds = self.cuts < CUTS;
        let cuts = match self.evidence {
            EVIDENCE if holds => self.cuts + 1,
            EVIDENCE_WON if !holds || self.rare == RARE_MAX => self.cuts.saturating_sub(1),
            _ => self.cuts,
        };
        if cuts != self.cuts {
            (self.cuts, self.evidence, self.rare) = (cuts, 0, 0);
        } else if is_lost == holds {
            self.rare = self.rare.saturating_sub(1);
        } else {
            self.rare = (self.rare + 1).min(RARE_MAX);
        }
    }
}

/// A length in completions.
const fn length((factor, least): (u32, u32), depth: u32) -> u32 {
    let product = depth.saturating_mul(factor);
    if product > least { product } else { least }
}

#[cfg(test)]
mod tests {
    use super::{CUTS, SlowdownGuard};
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
        fn run(&mut self, completions: u64, depth: u32, mut gap: impl FnMut(u64, Option<u8>) -> u64) -> u64 {
            let mut forced = 0;
            for i in 0..completions {
                self.now += gap(i, self.guard.shift());
                self.guard.advance(self.now, 1, depth, &self.config);
                forced += u64::from(self.guard.shift().is_none());
            }
            forced
        }
    }

    fn loss(_: u64, shift: Option<u8>) -> u64 {
        if shift.is_some() { 1200 } else { 1000 }
    }

    /// The gaps of a machine whose pace changes every 256 completions.
    fn noisy(seed: u64, mut gap: impl FnMut(u64, Option<u8>) -> u64) -> impl FnMut(u64, Option<u8>) -> u64 {
        let (mut random, mut pace) = (seed | 1, 1000);
        move |i, shift| {
            if i % 256 == 0 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pace = 1000 + (random >> 33) % 1000;
            }
            gap(i, shift) * pace / 1000
        }
    }

    #[test]
    fn holding_that_costs_more_than_twice_any_budget_is_suspended() {
        let mut load = Load::new();
        load.run(60_000, DEPTH, loss);
        assert_eq!(load.guard.cuts, CUTS);
        let forced = load.run(1_000_000, DEPTH, loss);
        assert!(forced > 980_000, "{forced}: trials become rare");
    }

    #[test]
    fn holding_that_costs_less_goes_on() {
        for with in [900, 1000, 1099] {
            let mut load = Load::new();
            load.run(20_000, DEPTH, |_, shift| if shift.is_some() { with } else { 1000 });
            assert_eq!(load.guard.cuts, 0, "{with}");
            let forced = load.run(1_000_000, DEPTH, |_, shift| if shift.is_some() { with } else { 1000 });
            assert!((1..20_000).contains(&forced), "{forced} at {with}: trials become rare, and do not end");
        }
    }

    /// A fifth is lost with the whole budget, a twentieth with a quarter of it.
    #[test]
    fn the_budget_is_cut_until_it_costs_little() {
        let mut load = Load::new();
        let mut of_shift = [0; 7];
        load.run(20_000, DEPTH, |_, shift| shift.map_or(1000, |shift| 1000 + (200 >> shift)));
        load.run(4_000_000, DEPTH, |_, shift| {
            of_shift[shift.map_or(6, usize::from)] += 1;
            shift.map_or(1000, |shift| 1000 + (200 >> shift))
        });
        assert!(of_shift[2] > 3_500_000 && of_shift[0] > 0, "{of_shift:?}: a cut is undone, but rarely");
    }

    #[test]
    fn it_is_resumed_when_nothing_is_lost_any_more() {
        let mut load = Load::new();
        load.run(200_000, DEPTH, loss);
        load.run(400_000, DEPTH, |_, _| 1000);
        assert_eq!(load.guard.cuts, 0);
    }

    #[test]
    fn one_trial_lost_is_not_enough() {
        let mut load = Load::new();
        let lost = (0..20_000).find(|_| {
            load.run(1, DEPTH, loss);
            load.guard.evidence > 0
        });
        assert!(lost.is_some() && load.guard.cuts == 0);
        load.run(20_000, DEPTH, |_, _| 1000);
        assert!(load.guard.cuts == 0 && load.guard.evidence < 0);
    }

    #[test]
    fn a_load_that_slows_down_or_speeds_up_by_itself_loses_nothing() {
        for slower in [true, false] {
            let mut load = Load::new();
            let gap = |i, _: Option<u8>| if slower { 1000 + i % 3000 } else { 4000 - i % 3000 };
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
        load.run(100_000, DEPTH, |i, shift| if shift.is_some() && i % 100 == 0 { 2_000_001 } else { 1000 });
        assert_eq!(load.guard.evidence, 0);
    }

    #[test]
    fn completions_that_arrive_together_count_each() {
        let mut load = Load::new();
        for _ in 0..40_000 {
            let shift = load.guard.shift();
            let together = if shift.is_some() { 1 } else { 200 };
            load.now += loss(0, shift) * together;
            load.guard.advance(load.now, u32::try_from(together).unwrap(), DEPTH, &load.config);
        }
        assert_eq!(load.guard.cuts, CUTS);
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
            let gap = |_, shift: Option<u8>| if shift.is_some() { 1333 } else { 1000 };
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
