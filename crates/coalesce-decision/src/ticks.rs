//! Durations in ticks of the caller's clock. All divisions of a configuration happen here, once.

use core::fmt;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// The longest configurable time in ticks, where a machine counts them in 32 bits.
pub const TICKS_MAX: u64 = 500_000_000;

/// Nanoseconds to ticks, rounded up: for thresholds. No overflow for `ns` up to 60 s and `tick_hz` up to 10 GHz.
#[must_use]
pub const fn ticks_up(ns: u64, tick_hz: u64) -> u64 {
    let (whole, rest) = split(ns, tick_hz);
    whole.saturating_add(divide_up(rest, NS_PER_S))
}

/// Nanoseconds to ticks, rounded down, but at least 1 unless `ns` is 0: for upper limits such as `max_hold`.
#[must_use]
pub const fn ticks_down(ns: u64, tick_hz: u64) -> u64 {
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

/// A 40-bit number in 5 bytes. No tick rate and no duration in ticks is larger: 60 s at 10 GHz are 6 * 10^11 ticks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct U40([u8; 5]);

impl fmt::Debug for U40 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl U40 {
    /// The largest one.
    pub const MAX: Self = Self([0xFF; 5]);

    /// The lower 40 bits of `number`.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        let [a, b, c, d, e, ..] = number.to_le_bytes();
        Self([a, b, c, d, e])
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        let [a, b, c, d, e] = self.0;
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }
}

/// The quotient, bit by bit, for a divisor up to 2^63; by 0 the largest number.
///
/// Small processors do not divide 64 bits, and firmware need not have a library that does.
#[must_use]
#[inline(never)]
pub const fn divide(dividend: u64, divisor: u64) -> u64 {
    let (mut quotient, mut rest) = (dividend, 0_u64);
    let mut bits = u64::BITS;
    while bits > 0 {
        bits = bits.wrapping_sub(1);
        rest = rest << 1 | quotient >> 63;
        quotient <<= 1;
        if rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// The quotient, rounded up. If dividend + divisor - 1 exceeds 64 bits, it may be 1 too small.
#[must_use]
pub const fn divide_up(dividend: u64, divisor: u64) -> u64 {
    divide(dividend.saturating_add(divisor.saturating_sub(1)), divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_thresholds_up_and_limits_down() {
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

    fn check(dividend: u64, divisor: u64) {
        let (wide, by) = (u128::from(dividend), u128::from(divisor));
        assert_eq!(Some(divide(dividend, divisor).into()), wide.checked_div(by), "{dividend} / {divisor}");
        if dividend <= u64::MAX.saturating_sub(divisor) {
            assert_eq!(u128::from(divide_up(dividend, divisor)), wide.div_ceil(by), "{dividend} / {divisor}, up");
        }
    }

    /// Everything small, and everything around every power of 2 and of 10.
    #[test]
    fn agrees_with_wider_arithmetic() {
        let ends = (0..64).map(|bit| 1_u64 << bit).chain((0..20).map(|digits| 10_u64.saturating_pow(digits)));
        let near = ends.flat_map(|end| (0..5).map(move |by| end.wrapping_add(by).wrapping_sub(2)));
        for divisor in near.clone().filter(|divisor| (1..=1 << 63).contains(divisor)) {
            near.clone().for_each(|dividend| check(dividend, divisor));
        }
        for divisor in 1..=300 {
            (0..=2_000).for_each(|dividend| check(dividend, divisor));
        }
        assert_eq!(divide(7, 0), u64::MAX);
    }
}
