//! Whether holding costs throughput: `auto` finds out by trying.
//!
//! A requester that is interrupted late submits late. Where interrupts are dear, as in a guest, it gets more done
//! nevertheless; where they are cheap and the device is fast, it gets less done. No count of commands tells which. So now and
//! then completions are held for a while and then not, whatever is thought to be best, and their speed is compared. One
//! comparison says little, as machines stutter and requests come at random: their average decides.
//!
//! A requester that was made to wait submits what it has together, and then it may complete together for some hundred
//! completions, whether they are held or not. So the first window of either kind is not looked at.
//!
//! The queues of a device have one requester: while a single one of them holds, the others get the time that it leaves, and to
//! each of them holding looks cheaper than it is for all. So all of them try at the same time: the clock says when, and not what
//! the last trial showed.

use coalesce_decision::ticks::ticks_down;

/// Completions in a window, at least.
const WINDOW: u32 = 256;

/// The clock's slots, of which a window has one or more: a few interrupts more or less decide nothing. No round number, as what
/// a machine does beside it often has a period of some 10 ms.
const SLOT_NS: u64 = 10_300_000;

/// Nor so short that the clock is too coarse.
const SLOT_TICKS: u64 = 256;

/// Holding costs throughput if it makes completions slower by more than this, in 1/8192: 3 %.
const COSTS: i32 = 256;

/// What is thought of it before the first trial: that it costs a little more. One trial that shows a gain changes that, or two
/// that show no harm.
const COST_FIRST: i32 = 304;

/// What may be thought of it: a gain, or more than 6 %, is not believed in, so that no belief takes long to change.
const COST_RANGE: (i32, i32) = (0, 512);

/// Where it is thought to cost more than this, no less is held for that.
const COST_CAP: u32 = 192;

/// A comparison weighs 2^-3 in their moving average,
const SHIFT: u32 = 3;

/// and moves it by 1 % at most: a machine that stutters may show any difference.
const STEP_MAX: i32 = 80;

/// Windows from one trial's begin to the next: for the first four trials, the next four, and the others.
const EVERY: [u64; 3] = [4, 16, 64];

/// Slots of a window beyond so many do not put off the next trial.
const SLOTS_MAX: u64 = 32;

/// Completions that were or were not held.
#[derive(Clone, Copy, Debug)]
struct Window {
    completions: u32,
    ticks: u64,
    has_held: bool,
}

impl Window {
    const EMPTY: Self = Self { completions: 0, ticks: 0, has_held: false };
}

/// What a window is for.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// As it is thought to be best.
    Usual,
    /// A trial's first: completions may be held.
    HoldSettling,
    /// Its second, looked at.
    Hold,
    /// Its third: nothing is held, after that one.
    PassSettling(Window),
    /// Its last, compared with that one.
    Pass(Window),
}

/// Windows of completions, with holding and without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    slot_ticks: u64,
    slot_start: u64, // of the clock's slot,
    start: u64,      // and of the window, which is a whole number of slots
    window: Window,
    phase: Phase,
    begin: u64, // of the trial: number of a slot; if there is none, of the next
    cost: i32,  // by how much holding makes completions slower, in 1/8192
    trials: u8,
}

impl Trial {
    /// Nothing is held until trials have shown that it does no harm.
    pub(crate) fn new(tick_hz: u64) -> Self {
        Self {
            slot_ticks: ticks_down(SLOT_NS, tick_hz).max(SLOT_TICKS),
            slot_start: 0,
            start: 0,
            window: Window::EMPTY,
            phase: Phase::Usual,
            begin: 0,
            cost: COST_FIRST,
            trials: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn that_holds(tick_hz: u64) -> Self {
        Self { cost: 0, ..Self::new(tick_hz) }
    }

    /// Within a trial.
    #[cfg(test)]
    pub(crate) fn that_costs(tick_hz: u64, cost: i32) -> Self {
        Self { cost, phase: Phase::Hold, ..Self::new(tick_hz) }
    }

    /// So many commands completed until `now`, of so many outstanding. What is outstanding when a trial begins is not of it.
    pub(crate) fn on_completions(&mut self, now: u64, count: u32, outstanding: u32) {
        self.on_ride(count);
        if now.wrapping_sub(self.slot_start) >= self.slot_ticks {
            self.end_slot(now, outstanding);
        }
    }

    /// So many completions more, of which the next ones will tell the time.
    pub(crate) const fn on_ride(&mut self, count: u32) {
        self.window.completions = self.window.completions.saturating_add(count);
    }

    /// Whether completions may be held.
    pub(crate) const fn may_hold(&self) -> bool {
        match self.phase {
            Phase::Usual => self.cost <= COSTS,
            Phase::HoldSettling | Phase::Hold => true,
            Phase::PassSettling(_) | Phase::Pass(_) => false,
        }
    }

    /// Of so many, the less the more holding costs: from all of them where it costs nothing, by a half at 1.5 %, to a quarter. So
    /// what is held settles where it costs 1 to 2 %.
    pub(crate) fn share(&self, count: u32) -> u32 {
        let cost = self.cost.unsigned_abs().min(COST_CAP);
        count - ((u64::from(count) * u64::from(cost)) >> 8) as u32
    }

    /// A completion is held.
    pub(crate) const fn on_hold(&mut self) {
        self.window.has_held = true;
    }

    fn end_slot(&mut self, now: u64, outstanding: u32) {
        let slot = now / self.slot_ticks;
        self.slot_start = slot * self.slot_ticks;
        if now < self.start {
            (self.phase, self.begin) = (Phase::Usual, 0); // the clock went back
        }
        let goes_on = match self.phase {
            Phase::Usual => slot < self.begin,
            _ => self.window.completions < WINDOW.max(outstanding),
        };
        if goes_on {
            return;
        }
        let window = Window { ticks: now.saturating_sub(self.start), ..self.window };
        self.phase = match self.phase {
            Phase::Usual => {
                self.begin = slot;
                Phase::HoldSettling
            }
            Phase::HoldSettling => Phase::Hold,
            Phase::Hold => Phase::PassSettling(window),
            Phase::PassSettling(with) => Phase::Pass(with),
            Phase::Pass(with) => {
                self.compare(with, window);
                self.begin = self.next(slot);
                Phase::Usual
            }
        };
        (self.window, self.start) = (Window::EMPTY, now);
    }

    /// When the next trial begins, after one that ends: at a multiple of many slots, as is that of the others.
    fn next(&self, slot: u64) -> u64 {
        let slots = (slot - self.begin).div_ceil(4).clamp(1, SLOTS_MAX).next_power_of_two();
        let every = EVERY[usize::from(self.trials / 4).min(EVERY.len() - 1)] * slots;
        (slot / every + 1) * every
    }

    /// A trial's outcome.
    fn compare(&mut self, with: Window, without: Window) {
        if with.has_held {
            let step = ((cost(with, without) - self.cost) >> SHIFT).clamp(-STEP_MAX, STEP_MAX);
            self.cost = (self.cost + step).clamp(COST_RANGE.0, COST_RANGE.1);
            self.trials = self.trials.saturating_add(1);
        }
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

    /// A slot is of 256 completions that take 100 ticks each.
    const TICK_HZ: u64 = 2_485_437;

    /// Four million completions that take so many ticks with holding and without, four times as long in one 256 of 13; where
    /// they are not held, so many of them ride on the interrupt of each. How many of a thousand could be held.
    fn held_of_1000(seed: u64, with: u64, without: u64, riders: u32) -> u64 {
        let (mut trial, mut now, mut held, mut completions) = (Trial::new(TICK_HZ), 0, 0, 0);
        let (mut random, mut block) = (seed, 0);
        while completions < 4_000_000 {
            if completions / u64::from(WINDOW) != block {
                block = completions / u64::from(WINDOW);
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            }
            let stutter = if (random >> 33) % 13 == 0 { 4 } else { 1 };
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
            let held_of_1000 =
                |with, without| (1..=4).map(|seed| held_of_1000(seed, with, without, riders)).sum::<u64>() / 4;
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
    fn the_more_it_costs_the_less_is_held() {
        for (cost, share) in [(0, 1000), (64, 750), (128, 500), (192, 250), (512, 250)] {
            let trial = Trial { cost, ..Trial::new(TICK_HZ) };
            assert_eq!((trial.share(1000), trial.share(0), trial.share(1)), (share, 0, 1), "{cost}");
            assert!(trial.share(u32::MAX) >= u32::MAX / 4);
        }
    }

    /// To hold all that may be costs a twentieth, and less less. Four million completions later it holds what is worth it.
    #[test]
    fn what_is_held_settles() {
        let (mut trial, mut now, mut held, mut shares) = (Trial::new(TICK_HZ), 0, 0, 0);
        for _ in 0..4_000_000 {
            let share = if trial.may_hold() { u64::from(trial.share(1000)) } else { 0 };
            if share > 0 {
                trial.on_hold();
                (held, shares) = (held + 1, shares + share);
            }
            now += 2000 + share / 10;
            trial.on_completions(now / 20, 1, 32);
        }
        let mean = shares / held;
        assert!(held > 3_500_000 && (300..=700).contains(&mean), "{held} held, {mean} of 1000 that may be");
    }

    #[test]
    fn lockstep_passes() {
        let held = held(Trial::that_holds(TICK_HZ), 1_000_000, 300, 1);
        assert!(held < 40_000, "{held}");
    }

    /// What one of four queues holds gives the others time; what all of them hold costs each. That is found out, whenever each
    /// of them began.
    #[test]
    fn queues_try_together() {
        let mut queues = [0, 50, 30_000, 200_000].map(|late| (Trial::new(TICK_HZ), late, 0));
        let mut now = 0;
        for i in 0..2_000_000 {
            now += 90 + 2 * queues.iter().filter(|(trial, ..)| trial.may_hold()).count() as u64;
            for (trial, _, held) in queues.iter_mut().filter(|(_, late, _)| i >= *late) {
                if trial.may_hold() {
                    trial.on_hold();
                    *held += 1;
                }
                trial.on_completions(now, 1, 32);
            }
        }
        let held = queues.map(|(.., held)| held);
        assert!(held.iter().all(|&held| held < 150_000), "{held:?}");
    }

    /// The first two trials show no harm, so that it is held between the later ones.
    #[test]
    fn holding_is_to_be_justified() {
        let mut trial = Trial::new(TICK_HZ);
        let windows: String = (0..48 * u64::from(WINDOW))
            .filter_map(|i| {
                trial.on_hold();
                trial.on_completions(100 * i, 1, 32);
                (i % u64::from(WINDOW) == 100).then(|| if trial.may_hold() { '#' } else { '.' })
            })
            .collect();
        assert_eq!(windows, ".##.....##..######..######..######..############");
    }

    /// A firm belief takes a while to change, and does.
    #[test]
    fn beliefs_change() {
        let (mut trial, mut now) = (Trial::new(TICK_HZ), 0);
        for (with, without, expected) in [(150, 100, false), (60, 100, true), (150, 100, false)] {
            for _ in 0..10 * EVERY[2] * u64::from(WINDOW) {
                let may_hold = trial.may_hold();
                if may_hold {
                    trial.on_hold();
                }
                now += if may_hold { with } else { without };
                trial.on_completions(now, 1, 32);
            }
            assert_eq!(trial.cost <= COSTS, expected);
            assert!((COST_RANGE.0..=COST_RANGE.1).contains(&trial.cost), "{}", trial.cost);
        }
    }

    /// 256 completions may be a matter of some interrupts, of some ticks, or not all that were outstanding.
    #[test]
    fn a_window_takes_its_time() {
        let slots_of_trial = |tick_hz, ticks, count, outstanding| {
            let (mut trial, mut now) = (Trial::new(tick_hz), 0);
            let mut complete = |is_over: fn(&Phase) -> bool| {
                while !is_over(&trial.phase) {
                    now += ticks;
                    trial.on_completions(now, count, outstanding);
                }
                now / trial.slot_ticks
            };
            let begin = complete(|phase| matches!(phase, Phase::Hold));
            complete(|phase| matches!(phase, Phase::Usual)) - begin
        };
        assert_eq!(slots_of_trial(1_000_000_000, 10_000, 4, 32), 3, "10.3 ms each");
        assert_eq!(slots_of_trial(1_000_000_000, 100_000, 1, 32), 9, "256 completions each");
        assert_eq!(slots_of_trial(1_000_000_000, 10_000, 1, 2500), 9, "all that was outstanding");
        assert_eq!(Trial::new(1000).slot_ticks, 256);
    }

    /// What is not compared is not learned from.
    #[test]
    fn nothing_held_nothing_learned() {
        let mut trial = Trial::new(TICK_HZ);
        (0..1_000_000).for_each(|now| trial.on_completions(now, 1, 32));
        assert_eq!((trial.cost, trial.trials), (COST_FIRST, 0));
    }

    /// A clock that goes back or is wrong once, a pause amid a trial, however long: soon after it is tried both ways.
    #[test]
    fn nothing_stops_it() {
        let (mut trial, mut now) = (Trial::new(1_000_000_000), 0);
        let mut complete = |at: Option<u64>| {
            now = at.unwrap_or_else(|| now + 10_000);
            trial.on_completions(now, 1, 32);
            (trial.may_hold(), matches!(trial.phase, Phase::Usual))
        };
        let far = 1_000_000_000_000_000;
        for times in [&[0][..], &[far], &[1000], &[far, 2000], &[u64::MAX - far], &[0, u64::MAX, 0]] {
            while complete(None).1 {}
            times.iter().for_each(|&at| _ = complete(Some(at)));
            let holds = (0..1_000_000).filter(|_| complete(None).0).count();
            assert!((10_000..990_000).contains(&holds), "after {times:?}: {holds} of 1000000");
        }
        (0..10).for_each(|_| trial.on_completions(u64::MAX, u32::MAX, u32::MAX));
    }
}
