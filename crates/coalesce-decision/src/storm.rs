//! The storm guard limits the rate of interrupts, for example when every command is Urgent (cinterrupts §4.3).
//!
//! The paper averages the rate. This code averages the gaps, which needs no division.

use crate::ticks::{NS_PER_S, TICKS_MAX, divide, divide_up, ticks_down};
use crate::{ConfigError, Field};

/// Parameters of the storm guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct StormParams {
    /// The most interrupts per second, on average. `tick_hz` / 125 million (8 with a tick of a nanosecond) to `tick_hz`
    /// / 5.
    pub max_rate: u64,
    /// The weight of one gap between interrupts in the moving average is 2^-shift. 5 to 16; the authors use 7.
    pub shift: u8,
}

/// The longest interval of the storm guard, in ticks. Its samples are up to four times as long.
const INTERVAL_MAX: u64 = 125_000_000;
const _: () = assert!(4 * INTERVAL_MAX <= TICKS_MAX);

/// Returns, in ticks, the guard's shortest average interval between two interrupts, rounded up (0 without a guard), and the
/// longest hold, rounded down (`u32::MAX` without a limit).
///
/// For the configuration of a core, which checks these two alike: not a part of the API.
///
/// # Errors
/// One is out of its range, or the hold is shorter than the interval.
#[doc(hidden)]
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
pub const fn storm_and_hold(
    storm: Option<StormParams>,
    max_hold_ns: Option<u64>,
    tick_hz: u64,
) -> Result<(u32, u32), ConfigError> {
    let mut interval = 0;
    if let Some(StormParams { max_rate, .. }) = storm {
        let (min, max) = (divide_up(tick_hz, INTERVAL_MAX), divide(tick_hz, 5));
        if let Err(error) = Field::StormMaxRate.check_between(max_rate, min, max) {
            return Err(error);
        }
        interval = divide_up(tick_hz, max_rate);
    }
    let Some(ns) = max_hold_ns else { return Ok((interval as u32, u32::MAX)) };
    let (min, max) = Field::MaxHold.range();
    let longest = divide(TICKS_MAX.saturating_mul(NS_PER_S), tick_hz);
    let max = if longest < max { longest } else { max };
    if let Err(error) = Field::MaxHold.check_between(ns, min, max) {
        return Err(error);
    }
    let ticks = ticks_down(ns, tick_hz);
    match storm {
        Some(StormParams { max_rate, .. }) if ticks < interval => {
            let min = divide_up(interval.saturating_mul(NS_PER_S), tick_hz);
            let because = Some((Field::StormMaxRate, max_rate));
            Err(ConfigError { field: Field::MaxHold, value: ns, min, max, because })
        }
        _ => Ok((interval as u32, ticks as u32)),
    }
}

/// The state of the storm guard of one interrupt vector.
///
/// It averages the gaps between interrupts: an exponentially weighted moving average (EWMA) of `ticks` + `parts` * 2^-shift,
/// in ticks. A storm begins when the average falls below the guard's interval, and ends when it exceeds twice the interval.
/// In a storm, an interrupt waits until the interval since the last one is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct StormGuard {
    ticks: u32,
    gap: u32,
    parts: u16,
    is_storming: bool,
    has_interrupted: bool, // else `gap` is no gap
}

const _: () = assert!(size_of::<StormGuard>() == 12);

impl StormGuard {
    /// A guard that has seen no interrupt: its average is that of interrupts at half the allowed rate. `interval`: the
    /// shortest average gap between two, in ticks; 0: there is no guard.
    #[must_use]
    pub const fn new(interval: u32) -> Self {
        Self { ticks: interval.wrapping_mul(2), gap: 0, parts: 0, is_storming: false, has_interrupted: false }
    }

    /// The parameters of the guard changed: there is no storm, and the average starts anew.
    pub const fn restart(&mut self, interval: u32) {
        (self.ticks, self.parts, self.is_storming) = (interval.wrapping_mul(2), 0, false);
    }

    /// Whether there is a storm.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.is_storming
    }

    /// Ticks until the interval since the last interrupt is over; negative: it ended so long ago.
    #[must_use]
    pub const fn left(&self, interval: u32) -> i32 {
        interval.wrapping_sub(self.gap) as i32
    }

    /// Whether the guard allows no interrupt now.
    #[must_use]
    #[inline(always)]
    pub const fn is_pacing(&self, interval: u32) -> bool {
        self.is_storming && self.gap < interval
    }

    /// Ticks until the guard allows an interrupt.
    #[must_use]
    pub const fn paced(&self, interval: u32) -> u32 {
        if self.is_storming { interval.saturating_sub(self.gap) } else { 0 }
    }

    /// So many ticks passed. `longest`: at this age the gap stops.
    #[inline(always)]
    pub const fn pass(&mut self, ticks: u32, longest: u32) {
        let gap = self.gap.wrapping_add(ticks);
        self.gap = if gap < longest { gap } else { longest };
    }

    /// An interrupt. Each one but the first ends a gap, which is a sample of the average.
    #[inline(always)]
    pub const fn interrupt(&mut self, interval: u32, shift: u8) {
        if self.has_interrupted && interval > 0 {
            self.sample(interval, shift);
        }
        self.has_interrupted = true;
        self.gap = 0;
    }

    #[inline(never)]
    #[expect(clippy::cast_possible_truncation, reason = "masked to at most 16 bits")]
    const fn sample(&mut self, interval: u32, shift: u8) {
        let shift = shift as u32;
        let longest = interval.wrapping_mul(4);
        let gap = if self.gap < longest { self.gap } else { longest };
        // average += (gap - ticks) * 2^-shift; the difference may be negative, so the shift is signed
        let parts = (self.parts as u32).wrapping_add(gap).wrapping_sub(self.ticks);
        self.ticks = self.ticks.wrapping_add((parts as i32).wrapping_shr(shift) as u32);
        self.parts = (parts & !u32::MAX.wrapping_shl(shift)) as u16;
        self.is_storming = if self.is_storming {
            // ticks + parts * 2^-shift <= 2 * interval; the average is never 0, so nothing wraps
            self.ticks.wrapping_sub((self.parts == 0) as u32) < interval.wrapping_mul(2)
        } else {
            self.ticks < interval
        };
    }
}
