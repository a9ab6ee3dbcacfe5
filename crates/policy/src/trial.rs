//! Whether holding costs throughput: `auto` finds out by trying.
//!
//! A requester that is interrupted late submits late. Where interrupts are dear, as in a guest, it gets more done
//! nevertheless; where they are cheap and the device is fast, it gets less done. No count of commands tells which. So every now
//! and then completions go the other way for a while, and their speed is compared with that of those before: ever more rarely
//! while the outcome is as expected. One comparison says little, as machines stutter and requests come at random: their average
//! decides.
//!
//! A requester that was made to wait submits what it has together, and then it may complete together for some hundred
//! completions, whether they are held or not. So the first window after each change is not looked at.

/// Completions in a window, at least.
const WINDOW: u32 = 256;

/// A window is no shorter: a few interrupts more or less decide nothing.
const WINDOW_US: u64 = 10_000;

/// Holding costs throughput if it makes completions slower by more than this, in 1/1024: 3 %.
const COSTS: i16 = 32;

/// What is thought of it before the first trial: that it costs a little more.
const COST_FIRST: i16 = 48;

/// No comparison counts for more: a machine that stutters may show any difference.
const SAMPLE_MAX: i16 = 96;

/// A comparison weighs 2^-3 in their moving average.
const SAMPLE_SHIFT: u32 = 3;

/// Windows from one trial to the next, at least: the first is not looked at, the second is compared with.
const WAIT_MIN: u16 = 2;

/// And at most.
const WAIT_MAX: u16 = 256;

/// Windows of completions, with holding and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    window_ticks: u64, // a window's, at least
    completions: u32,
    start: u64,
    has_held: bool,
    is_trial: bool,
    is_settled: bool, // the trial's first window has passed
    before: u64,      // ticks of the window before a trial, for WINDOW completions
    cost: i16,        // by how much holding makes completions slower, in 1/1024; below 0: faster
    wait: u16,
    wait_next: u16,
}

impl Trial {
    /// Nothing is held until a trial has shown that it does no harm.
    pub(crate) const fn new(tick_hz: u64) -> Self {
        Self {
            window_ticks: tick_hz / (1_000_000 / WINDOW_US),
            completions: 0,
            start: 0,
            has_held: false,
            is_trial: false,
            is_settled: false,
            before: 0,
            cost: COST_FIRST,
            wait: WAIT_MIN,
            wait_next: WAIT_MIN,
        }
    }

    #[cfg(test)]
    pub(crate) const fn that_holds(tick_hz: u64) -> Self {
        Self { cost: 0, ..Self::new(tick_hz) }
    }

    /// A command completed.
    pub(crate) fn on_completion(&mut self, now: u64) {
        let ticks = now.saturating_sub(self.start);
        if self.completions >= WINDOW && ticks >= self.window_ticks {
            self.end_window(ticks.saturating_mul(WINDOW.into()) / u64::from(self.completions));
            (self.completions, self.start) = (0, now);
        }
        self.completions += 1;
    }

    /// So many completions more, which nobody asked about.
    pub(crate) const fn on_ride(&mut self, count: u32) {
        self.completions = self.completions.saturating_add(count);
    }

    /// Whether completions may be held.
    pub(crate) const fn may_hold(&self) -> bool {
        self.holds() != self.is_trial
    }

    /// A completion is held.
    pub(crate) fn on_hold(&mut self) {
        self.has_held = true;
    }

    const fn holds(&self) -> bool {
        self.cost <= COSTS
    }

    fn end_window(&mut self, ticks: u64) {
        if !self.is_trial {
            self.before = ticks;
            self.wait = self.wait.saturating_sub(1);
            // Where nothing was held, there is nothing to compare with.
            self.is_trial = self.wait == 0 && (self.has_held || !self.holds());
            self.has_held &= self.holds();
        } else if !self.is_settled {
            self.is_settled = true;
        } else {
            if self.has_held {
                self.compare(ticks);
            }
            self.wait = self.wait_next;
            (self.is_trial, self.is_settled, self.has_held) = (false, false, false);
        }
    }

    /// A trial's outcome.
    fn compare(&mut self, ticks: u64) {
        let holds = self.holds();
        let (with, without) = if holds { (self.before, ticks) } else { (ticks, self.before) };
        let sample = sample(with, without);
        self.cost += (sample - self.cost) >> SAMPLE_SHIFT;
        self.wait_next = if (sample <= COSTS) == holds {
            (self.wait_next * 4).min(WAIT_MAX)
        } else {
            (self.wait_next / 4).max(WAIT_MIN)
        };
    }
}

/// By how much `with` is more than `without`, in 1/1024 of it.
fn sample(with: u64, without: u64) -> i16 {
    let difference = (i128::from(with) - i128::from(without)) * 1024 / i128::from(without.max(1));
    difference.clamp((-SAMPLE_MAX).into(), SAMPLE_MAX.into()) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four million completions that take so many ticks with holding and without, four times as long in one window of 7; where
    /// they are not held, so many of them ride on the interrupt of each. How many of a thousand could be held.
    fn held_of_1000(with: u64, without: u64, riders: u32) -> u64 {
        let (mut trial, mut now, mut held, mut completions) = (Trial::new(100), 0, 0, 0);
        while completions < 4_000_000 {
            let may_hold = trial.may_hold();
            trial.on_completion(now);
            let random = (completions / u64::from(WINDOW)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let stutter = if random % 7 == 0 { 4 } else { 1 };
            if may_hold {
                trial.on_hold();
                (held, completions) = (held + 1, completions + 1);
                now += stutter * with;
            } else {
                trial.on_ride(riders);
                completions += 1 + u64::from(riders);
                now += stutter * without * (1 + u64::from(riders));
            }
        }
        held / 4000
    }

    #[test]
    fn what_pays_is_done() {
        for riders in [0, 20, 100] {
            let held_of_1000 = |with, without| held_of_1000(with, without, riders);
            let (dearer, cheaper, same) = (held_of_1000(150, 100), held_of_1000(60, 100), held_of_1000(100, 100));
            assert!(dearer < 100 && cheaper > 980 && same > 970, "{riders}: {dearer} {cheaper} {same}");
        }
        let several_lengths = held_of_1000(150, 100, 500);
        assert!(several_lengths < 100, "{several_lengths}");
    }

    /// Who was held is as slow for 300 completions more.
    #[test]
    fn lockstep_passes() {
        let (mut trial, mut lockstep, mut held) = (Trial::that_holds(100), 0, 0);
        let mut now = 0;
        for _ in 0..1_000_000 {
            if trial.may_hold() {
                trial.on_hold();
                (held, lockstep) = (held + 1, 300);
            }
            trial.on_completion(now);
            now += if lockstep > 0 { 110 } else { 100 };
            lockstep -= i32::from(lockstep > 0);
        }
        assert!(held < 20_000, "{held}");
    }

    /// A firm belief takes a while to change, and does.
    #[test]
    fn beliefs_change() {
        let (mut trial, mut now) = (Trial::new(100), 0);
        for (with, without, expected) in [(150, 100, false), (60, 100, true), (150, 100, false)] {
            let mut may_hold = false;
            for _ in 0..4 * u32::from(WAIT_MAX) * WINDOW {
                may_hold = trial.may_hold();
                trial.on_completion(now);
                if may_hold {
                    trial.on_hold();
                }
                now += if may_hold { with } else { without };
            }
            assert_eq!((trial.holds(), may_hold != trial.is_trial), (expected, expected));
        }
    }

    /// 256 completions may be a matter of some interrupts.
    #[test]
    fn a_window_takes_its_time() {
        let mut trial = Trial::new(1_000_000_000);
        let windows = |trial: &Trial| WAIT_MIN - trial.wait;
        (0..1000).for_each(|now| trial.on_completion(now * 9990));
        assert_eq!(windows(&trial), 0);
        (1000..1100).for_each(|now| trial.on_completion(now * 10_010));
        assert_eq!(windows(&trial), 1);
    }

    /// Who holds nothing anyway is never tried.
    #[test]
    fn nothing_held_nothing_tried() {
        let mut trial = Trial::that_holds(100);
        for now in 0..4_000_000 {
            assert!(trial.may_hold());
            trial.on_completion(now);
        }
    }
}
