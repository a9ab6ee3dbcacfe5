//! Durations to ticks. All divisions of a configuration happen here, once.

use crate::divide::{divide, divide_up};

/// A number of 40 bits. No parameter is larger: 60 s at 10 GHz are 6 * 10^11 ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct U40([u8; 5]);

impl U40 {
    pub(crate) const MAX: Self = Self([0xFF; 5]);

    pub(crate) const fn new(number: u64) -> Self {
        let [a, b, c, d, e, ..] = number.to_le_bytes();
        Self([a, b, c, d, e])
    }

    pub(crate) const fn get(self) -> u64 {
        let [a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// Nanoseconds to ticks, rounded up: for thresholds. Exact for `ns` up to 60 s and `tick_hz` up to 10 GHz.
pub(crate) const fn ticks_up(ns: u64, tick_hz: u64) -> u64 {
    let (whole, rest) = split(ns, tick_hz);
    whole.saturating_add(divide_up(rest, NS_PER_S))
}

/// Nanoseconds to ticks, rounded down, but at least 1 unless `ns` is 0: for promises.
pub(crate) const fn ticks_down(ns: u64, tick_hz: u64) -> u64 {
    let (whole, rest) = split(ns, tick_hz);
    let ticks = whole.saturating_add(divide(rest, NS_PER_S));
    if ticks == 0 && ns > 0 { 1 } else { ticks }
}

/// Ticks of the whole seconds, and ticks times 10^9 of the rest, so that neither product overflows.
const fn split(ns: u64, tick_hz: u64) -> (u64, u64) {
    let seconds = divide(ns, NS_PER_S);
    let rest = ns.saturating_sub(seconds.saturating_mul(NS_PER_S));
    (seconds.saturating_mul(tick_hz), rest.saturating_mul(tick_hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_thresholds_up_and_promises_down() {
        for (ns, tick_hz, down, up) in [
            (0, 1_000, 0, 0),
            (1, 1_000, 1, 1), // not 0, so at least one tick
            (1_000_000, 1_000, 1, 1),
            (1_000_001, 1_000, 1, 2),
            (1_999_999, 1_000, 1, 2),
            (2_000_000, 1_000, 2, 2),
            (60_000_000_000, 10_000_000_000, 600_000_000_000, 600_000_000_000),
            (59_999_999_999, 9_999_999_999, 599_999_999_930, 599_999_999_931),
        ] {
            assert_eq!((ticks_down(ns, tick_hz), ticks_up(ns, tick_hz)), (down, up), "{ns} ns at {tick_hz} Hz");
        }
    }
}
