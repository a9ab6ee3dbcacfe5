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

use crate::ticks_down;

/// Completions in a window, at least.
const WINDOW: u32 = 256;

/// A window is no shorter: a few interrupts more or less decide nothing.
const WINDOW_NS: u64 = 10_000_000;

/// Nor so short that its clock is too coarse.
const WINDOW_TICKS: u64 = 256;

/// Holding costs throughput if it makes completions slower by more than this, in 1/8192: 3 %.
const COSTS: i32 = 256;

/// What is thought of it before the first trial: that it costs a little more. One trial that shows a gain changes that, or two
/// that show no harm.
const COST_FIRST: i32 = 328;

/// More is not believed: 9 %.
const COST_MAX: i32 = 768;

/// A comparison weighs 2^-3 in their moving average,
const SHIFT: u32 = 3;

/// and moves it no further: a machine that stutters may show any difference.
const STEP_MAX: i32 = 160;

/// Windows from one trial to the next, at least: the first is not looked at, the second is compared with.
const WAIT_MIN: u16 = 2;

/// And at most.
const WAIT_MAX: u16 = 256;

/// Completions of which all might be held, or none.
#[derive(Clone, Copy, Debug)]
struct Window {
    completions: u32,
    ticks: u64,
    has_held: bool,
}

impl Window {
    const EMPTY: Self = Self { completions: 0, ticks: 0, has_held: false };
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// As it is believed to be best.
    Usual,
    /// A trial has begun.
    Settling,
    /// A trial, looked at.
    Trying,
}

/// Windows of completions, with holding and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    window_ticks: u64, // a window's, at least
    start: u64,        // of the window,
    window: Window,    // which goes on;
    before: Window,    // the one before it, or before the trial
    phase: Phase,
    cost: i32, // by how much holding makes completions slower, in 1/8192; below 0: faster
    wait: u16, // windows until the next trial
    wait_next: u16,
}

impl Trial {
    /// Nothing is held until trials have shown that it does no harm.
    pub(crate) fn new(tick_hz: u64) -> Self {
        Self {
            window_ticks: ticks_down(WINDOW_NS, tick_hz).max(WINDOW_TICKS),
            start: 0,
            window: Window::EMPTY,
            before: Window::EMPTY,
            phase: Phase::Usual,
            cost: COST_FIRST,
            wait: WAIT_MIN,
            wait_next: WAIT_MIN,
        }
    }

    #[cfg(test)]
    pub(crate) fn that_holds(tick_hz: u64) -> Self {
        Self { cost: 0, ..Self::new(tick_hz) }
    }

    /// So many commands completed until `now`, of so many outstanding. What is outstanding when a trial begins is not of it.
    pub(crate) fn on_completions(&mut self, now: u64, count: u32, outstanding: u32) {
        self.on_ride(count);
        if now < self.start {
            (self.window, self.start) = (Window::EMPTY, now); // the clock went back
        }
        let ticks = now - self.start;
        if self.window.completions >= WINDOW.max(outstanding) && ticks >= self.window_ticks {
            self.window.ticks = ticks;
            self.end_window();
            (self.window, self.start) = (Window::EMPTY, now);
        }
    }

    /// So many completions more, of which the next ones will tell the time.
    pub(crate) const fn on_ride(&mut self, count: u32) {
        self.window.completions = self.window.completions.saturating_add(count);
    }

    /// Whether completions may be held.
    pub(crate) const fn may_hold(&self) -> bool {
        self.holds() == matches!(self.phase, Phase::Usual)
    }

    /// A completion is held.
    pub(crate) fn on_hold(&mut self) {
        self.window.has_held = true;
    }

    const fn holds(&self) -> bool {
        self.cost <= COSTS
    }

    fn end_window(&mut self) {
        self.phase = match self.phase {
            Phase::Usual => {
                self.before = self.window;
                self.wait = self.wait.saturating_sub(1);
                // Where nothing was held, there is nothing to compare with.
                let is_worth_it = self.window.has_held || !self.holds();
                if self.wait == 0 && is_worth_it { Phase::Settling } else { Phase::Usual }
            }
            Phase::Settling => Phase::Trying,
            Phase::Trying => {
                self.compare();
                self.wait = self.wait_next;
                Phase::Usual
            }
        }
    }

    /// A trial's outcome.
    fn compare(&mut self) {
        let holds = self.holds();
        let (with, without) = if holds { (self.before, self.window) } else { (self.window, self.before) };
        if !with.has_held {
            return;
        }
        let cost = cost(with, without);
        let step = ((cost - self.cost) >> SHIFT).clamp(-STEP_MAX, STEP_MAX);
        self.cost = (self.cost + step).clamp(-COST_MAX, COST_MAX);
        let is_as_expected = (cost <= COSTS) == holds;
        self.wait_next =
            if is_as_expected { (self.wait_next * 3).min(WAIT_MAX) } else { (self.wait_next / 4).max(WAIT_MIN) };
    }
}

/// By how much completions of one window are slower than those of another, in 1/8192; at most by 1.
fn cost(with: Window, without: Window) -> i32 {
    let [with, without] =
        [(with, without), (without, with)].map(|(a, b)| i128::from(a.ticks) * i128::from(b.completions));
    ((with - without) * 8192 / without.max(1)).clamp(-8192, 8192) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four million completions that take so many ticks with holding and without, four times as long in one window of 7; where
    /// they are not held, so many of them ride on the interrupt of each. How many of a thousand could be held.
    fn held_of_1000(with: u64, without: u64, riders: u32) -> u64 {
        let (mut trial, mut now, mut held, mut completions) = (Trial::new(100), 0, 0, 0);
        while completions < 4_000_000 {
            let random = (completions / u64::from(WINDOW)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            let stutter = if random % 7 == 0 { 4 } else { 1 };
            if trial.may_hold() {
                (held, completions) = (held + 1, completions + 1);
                now += stutter * with;
                trial.on_hold();
                trial.on_completions(now, 1, 32);
            } else {
                completions += 1 + u64::from(riders);
                now += stutter * without * (1 + u64::from(riders));
                trial.on_completions(now, 1 + riders, 32);
            }
        }
        held / 4000
    }

    #[test]
    fn what_pays_is_done() {
        for riders in [0, 20, 100, 500] {
            let held_of_1000 = |with, without| held_of_1000(with, without, riders);
            let (dearer, cheaper, same) = (held_of_1000(150, 100), held_of_1000(60, 100), held_of_1000(100, 100));
            assert!(dearer < 50 && cheaper > 950 && same > 800, "{riders}: {dearer} {cheaper} {same}");
        }
    }

    /// So many completions, which take 110 ticks if held and for `lockstep` completions afterwards, and else 100; of those that
    /// may be held, every so manieth is. How many were.
    fn held(mut trial: Trial, completions: u32, lockstep: u32, every: u32) -> u32 {
        let (mut now, mut left, mut held) = (0, 0, 0);
        for i in 0..completions {
            if trial.may_hold() {
                left = lockstep;
                if i % every == 0 {
                    trial.on_hold();
                    held += 1;
                }
            }
            now += if left > 0 || trial.may_hold() { 110 } else { 100 };
            left = left.saturating_sub(1);
            trial.on_completions(now, 1, 32);
        }
        held
    }

    #[test]
    fn lockstep_passes() {
        let held = held(Trial::that_holds(100), 1_000_000, 300, 1);
        assert!(held < 30_000, "{held}");
    }

    /// Nothing is held at first, nor after one trial in which that did no harm.
    #[test]
    fn holding_is_to_be_justified() {
        let (mut trial, mut now) = (Trial::new(100), 0);
        let windows = [(); 9].map(|()| {
            let may_hold = trial.may_hold();
            for _ in 0..WINDOW {
                trial.on_hold();
                now += 1;
                trial.on_completions(now, 1, 32);
            }
            may_hold
        });
        assert_eq!(windows, [false, false, true, true, false, false, true, true, true]);
    }

    /// A firm belief takes a while to change, and does.
    #[test]
    fn beliefs_change() {
        let (mut trial, mut now) = (Trial::new(100), 0);
        for (with, without, expected) in [(150, 100, false), (60, 100, true), (150, 100, false)] {
            for _ in 0..8 * u32::from(WAIT_MAX) * WINDOW {
                let may_hold = trial.may_hold();
                if may_hold {
                    trial.on_hold();
                }
                now += if may_hold { with } else { without };
                trial.on_completions(now, 1, 32);
            }
            assert_eq!(trial.holds(), expected);
            assert!(trial.cost.abs() <= COST_MAX, "{}", trial.cost);
        }
    }

    /// 256 completions may be a matter of some interrupts, of some ticks, or not all that were outstanding.
    #[test]
    fn a_window_takes_its_time() {
        let windows = |tick_hz, ticks, outstanding, count: u64| {
            let mut trial = Trial::new(tick_hz);
            (1..=count).for_each(|i| trial.on_completions(i * ticks, 4, outstanding));
            WAIT_MIN - trial.wait
        };
        assert_eq!(
            [windows(1_000_000_000, 10_000, 32, 999), windows(1_000_000_000, 10_000, 32, 1000)],
            [0, 1],
            "10 ms"
        );
        assert_eq!([windows(1000, 1, 32, 255), windows(1000, 1, 32, 256)], [0, 1], "256 ticks");
        assert_eq!([windows(1000, 1, 2400, 599), windows(1000, 1, 2400, 600)], [0, 1], "all that was outstanding");
    }

    /// Who holds nothing anyway is never tried, and what is not compared is not learned from.
    #[test]
    fn nothing_held_nothing_tried() {
        let mut trial = Trial::that_holds(100);
        for now in 0..1_000_000 {
            assert!(trial.may_hold());
            trial.on_completions(now, 1, 32);
        }
        let mut trial = Trial::new(100);
        (0..1_000_000).for_each(|now| trial.on_completions(now, 1, 32));
        assert_eq!(trial.cost, COST_FIRST);
    }

    #[test]
    fn nothing_stops_it() {
        let mut trial = Trial::new(1_000_000_000);
        for (now, count) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX), (0, u32::MAX)] {
            trial.on_completions(now, count, 32);
        }
        let has_tried = (0..10_000_u64).any(|i| {
            trial.on_completions(i * 10_000, 1, 32);
            trial.may_hold()
        });
        assert!(has_tried, "after a clock that went back");
        trial.on_completions(u64::MAX, u32::MAX, u32::MAX);
    }
}
