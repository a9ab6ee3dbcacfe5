//! Whether holding costs throughput: `auto` finds out by trying.
//!
//! A requester that is interrupted late submits late. Where interrupts are dear, as in a guest, it gets more done
//! nevertheless; where they are cheap and the device is fast, it gets less done. No count of commands tells which. So every now
//! and then a window of completions goes the other way, and its time is compared with that of the window before it: ever
//! more rarely while the outcome is the same. One comparison says little, as machines stutter; several of them decide.

/// Completions in a window.
const WINDOW: u32 = 256;

/// Comparisons in a row that it takes from a firm belief to doubt.
const FIRM: i8 = 4;

/// Windows before the first trial.
const WAIT_FIRST: u16 = 16;

/// A firm belief is tried at least once in so many windows.
const WAIT_MAX: u16 = 256;

/// Windows of completions, with holding and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    completions: u32,
    start: u64,
    has_held: bool,
    is_trial: bool,
    before: u64, // ticks of the window before a trial
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

    /// A command completed. Whether completions may be held now.
    pub(crate) fn on_completion(&mut self, now: u64) -> bool {
        if self.completions == WINDOW {
            self.end_window(now.saturating_sub(self.start));
            (self.completions, self.start) = (0, now);
        }
        self.completions += 1;
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

    /// A million completions that take so many ticks with holding and without, but for one window in 7 that takes four
    /// times as long. How many of a thousand could be held.
    fn held_of_1000(with: u64, without: u64) -> u64 {
        let (mut trial, mut now, mut held) = (Trial::NEW, 0, 0);
        for completion in 0..1_000_000_u64 {
            let may_hold = trial.on_completion(now);
            if may_hold {
                trial.on_hold();
                held += 1;
            }
            let stutter = if completion / u64::from(WINDOW) % 7 == 0 { 4 } else { 1 };
            now += stutter * if may_hold { with } else { without };
        }
        held / 1000
    }

    #[test]
    fn what_pays_is_done() {
        let (dearer, cheaper, same) = (held_of_1000(150, 100), held_of_1000(60, 100), held_of_1000(100, 100));
        assert!(dearer < 30 && cheaper > 970 && same > 970, "{dearer} {cheaper} {same}");
    }

    /// A firm belief takes a while to change, and does.
    #[test]
    fn beliefs_change() {
        let (mut trial, mut now) = (Trial::NEW, 0);
        for (with, without, expected) in [(150, 100, false), (60, 100, true), (150, 100, false)] {
            let mut may_hold = false;
            for _ in 0..4 * u32::from(WAIT_MAX) * WINDOW {
                may_hold = trial.on_completion(now);
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
        assert!((0..1_000_000).all(|now| trial.on_completion(now)));
    }
}
