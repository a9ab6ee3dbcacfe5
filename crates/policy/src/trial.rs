//! Whether holding costs throughput: `auto` finds out by trying.
//!
//! A requester that is interrupted late submits late. Where interrupts are dear, as in a guest, it gets more done
//! nevertheless; where they are cheap and the device is fast, it gets less done. No count of commands tells which. So every now
//! and then a window of completions goes the other way, and its time is compared with that of the window before it: ever
//! more rarely while the outcome is the same. One comparison says little, as machines stutter; several of them decide.

/// Completions in a window, at least.
const WINDOW: u32 = 1024;

/// Comparisons in a row that it takes from a firm belief to doubt.
const FIRM: i8 = 4;

/// Windows before the first trial.
const WAIT_FIRST: u16 = 4;

/// A firm belief is tried at least once in so many windows.
const WAIT_MAX: u16 = 256;

/// Windows of completions, with holding and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    completions: u32,
    start: u64,
    has_held: bool,
    is_trial: bool,
    before: u64, // ticks of the window before a trial, for WINDOW completions
    belief: i8,  // above 0: holding costs throughput
    wait: u16,
    wait_next: u16,
}

impl Trial {
    pub(crate) const NEW: Self = Self {
        completions: 0,
        start: 0,
        has_held: false,
        is_trial: false,
        before: 0,
        belief: -FIRM / 2,
        wait: WAIT_FIRST,
        wait_next: 1,
    };

    /// A command completed.
    pub(crate) fn on_completion(&mut self, now: u64) {
        if self.completions >= WINDOW {
            let ticks = now.saturating_sub(self.start);
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
        (self.belief <= 0) != self.is_trial
    }

    /// A completion is held.
    pub(crate) fn on_hold(&mut self) {
        self.has_held = true;
    }

    fn end_window(&mut self, ticks: u64) {
        let holds = self.belief <= 0;
        if !self.is_trial {
            self.before = ticks;
            self.wait = self.wait.saturating_sub(1);
            // Where nothing was held, there is nothing to compare with.
            self.is_trial = self.wait == 0 && (self.has_held || !holds);
            self.has_held &= holds;
            return;
        }
        let (with, without) = if holds { (self.before, ticks) } else { (ticks, self.before) };
        let costs = with > without.saturating_add(without / 32);
        if self.has_held {
            self.belief = (self.belief + if costs { 1 } else { -1 }).clamp(-FIRM, FIRM);
        }
        self.wait_next = if self.belief.abs() == FIRM { (self.wait_next * 2).min(WAIT_MAX) } else { 1 };
        (self.wait, self.is_trial, self.has_held) = (self.wait_next, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four million completions that take so many ticks with holding and without, but for one window in 7 that takes four
    /// times as long; where they are not held, so many of them ride on the interrupt of each. How many of a thousand could
    /// be held.
    fn held_of_1000(with: u64, without: u64, riders: u32) -> u64 {
        let (mut trial, mut now, mut held, mut completions) = (Trial::NEW, 0, 0, 0);
        while completions < 4_000_000 {
            let may_hold = trial.may_hold();
            trial.on_completion(now);
            let stutter = if completions / u64::from(WINDOW) % 7 == 0 { 4 } else { 1 };
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
            assert!(dearer < 30 && cheaper > 900 && same > 900, "{riders}: {dearer} {cheaper} {same}");
        }
        assert!(held_of_1000(150, 100, 500) < 100, "windows of several lengths are compared");
    }

    /// A firm belief takes a while to change, and does.
    #[test]
    fn beliefs_change() {
        let (mut trial, mut now) = (Trial::NEW, 0);
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
            assert_eq!((trial.belief <= 0, may_hold != trial.is_trial), (expected, expected));
        }
    }

    /// Who holds nothing anyway is never tried.
    #[test]
    fn nothing_held_nothing_tried() {
        let mut trial = Trial::NEW;
        for now in 0..4_000_000 {
            assert!(trial.may_hold());
            trial.on_completion(now);
        }
    }
}
