//! Dynamic interrupt moderation: the idea of Linux `rdma_dim`, not its code. A ladder of (time, count) pairs, climbed as
//! long as it pays.

use super::Held;
use coalesce_decision::ticks::ticks_down;
use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};

/// (µs from the first completion held, completions): the ladder that Linux documents for RDMA completion queues.
const LADDER: [(u64, u32); 9] = [(1, 1), (1, 4), (2, 4), (2, 8), (4, 8), (16, 8), (16, 16), (32, 16), (32, 32)];

/// Interrupts between two looks at the load.
const WINDOW: u64 = 64;

/// What a window of interrupts showed.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    completions_per_s: u64,
    completions_per_window: u64,
}

/// Whether a change of a tenth or more, and in which direction.
fn compare(now: u64, before: u64) -> core::cmp::Ordering {
    if now.abs_diff(before) <= before / 10 { core::cmp::Ordering::Equal } else { now.cmp(&before) }
}

/// Climbs the ladder while completions per second, or else per interrupt, rise by a tenth; turns round when they fall.
/// It oscillates: that is how it finds out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dim {
    tick_hz: u64,
    times: [u64; LADDER.len()], // of the steps, in ticks
    step: usize,
    up: bool,
    before: Load,
    interrupts: u64,
    completions: u64,
    window_start: u64,
    held: Held,
}

impl Dim {
    /// A machine that has seen nothing, on the lowest step.
    pub(crate) fn new(tick_hz: u64) -> Self {
        Self {
            tick_hz,
            times: LADDER.map(|(us, _)| ticks_down(us * 1000, tick_hz)),
            step: 0,
            up: true,
            before: Load::default(),
            interrupts: 0,
            completions: 0,
            window_start: 0,
            held: Held::default(),
        }
    }

    fn advance(&mut self, now: u64) {
        let back = self.held.advance(now);
        self.window_start = self.window_start.wrapping_sub(back);
    }

    const fn time(&self) -> u64 {
        self.times[self.step]
    }

    fn deliver(&mut self, reason: Reason) -> Decision {
        let decision = self.held.deliver(reason);
        self.interrupts += 1;
        if self.interrupts == WINDOW {
            self.look();
        }
        decision
    }

    fn look(&mut self) {
        let elapsed = u128::from(self.held.last.wrapping_sub(self.window_start)).max(1);
        let per_s = u128::from(self.completions) * u128::from(self.tick_hz) / elapsed;
        let load = Load {
            completions_per_s: u64::try_from(per_s).unwrap_or(u64::MAX),
            completions_per_window: self.completions,
        };
        let change = compare(load.completions_per_s, self.before.completions_per_s)
            .then(compare(load.completions_per_window, self.before.completions_per_window));
        if change.is_lt() {
            self.up = !self.up;
        }
        if change.is_ne() {
            match (self.up, self.step) {
                (true, step) if step + 1 < LADDER.len() => self.step += 1,
                (false, step) if step > 0 => self.step -= 1,
                _ => self.up = !self.up,
            }
        }
        self.before = load;
        (self.interrupts, self.completions, self.window_start) = (0, 0, self.held.last);
    }
}

impl Policy for Dim {
    #[inline]
    fn on_completion(&mut self, now: u64, _completion: &Completion) -> Decision {
        self.advance(now);
        self.completions += 1;
        if self.held.has_waited(self.time()) {
            self.deliver(Reason::Time)
        } else if self.held.count + 1 >= LADDER[self.step].1 {
            self.deliver(Reason::Count)
        } else {
            self.held.hold(HoldReason::Aggregate)
        }
    }

    /// The time of the present step, after the first held.
    fn deadline(&self) -> Option<u64> {
        self.held.deadline(self.time())
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.held.has_waited(self.time()) { self.deliver(Reason::Time) } else { self.held.nothing_due() }
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.held.count > 0 { self.deliver(Reason::Flush) } else { self.held.nothing_due() }
    }

    fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.held.count = 0;
    }

    fn held(&self) -> u32 {
        self.held.count
    }

    /// Of any step.
    fn max_hold(&self) -> Option<u64> {
        Some(self.times.into_iter().fold(0, u64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::compare;
    use core::cmp::Ordering;

    #[test]
    fn a_tenth_is_a_change_however_large_the_numbers_are() {
        for (now, before, expected) in [
            (110, 100, Ordering::Equal),
            (111, 100, Ordering::Greater),
            (89, 100, Ordering::Less),
            (u64::MAX, 1, Ordering::Greater),
            (1, u64::MAX, Ordering::Less),
            (u64::MAX, u64::MAX - 1, Ordering::Equal),
        ] {
            assert_eq!(compare(now, before), expected, "{now}, {before}");
        }
    }
}
