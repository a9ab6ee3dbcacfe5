//! The storm guard limits the rate of interrupts, for example when every command is Urgent (cinterrupts §4.3).
//!
//! The paper averages the rate. This code averages the gaps, which needs no division.

use crate::config::Config;

/// An exponentially weighted moving average (EWMA) of the gaps between interrupts: `ticks` + `parts` * 2^-shift, in
/// ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Average {
    ticks: u32,
    parts: u32,
}

impl Average {
    /// The initial average: that of interrupts at half the allowed rate.
    pub(crate) const fn cold(config: &Config) -> Self {
        Self { ticks: config.storm_interval.wrapping_mul(2), parts: 0 }
    }

    /// Adds the gap between two interrupts, in ticks. Returns whether there is a storm. A storm begins when the average
    /// falls below the interval, and ends when it exceeds twice the interval.
    pub(crate) const fn sample(&mut self, gap: u32, was_storm: bool, config: &Config) -> bool {
        let (interval, shift) = (config.storm_interval, config.storm_shift as u32);
        let longest = interval.wrapping_mul(4);
        let gap = if gap < longest { gap } else { longest };
        // average += (gap - average) * 2^-shift; the difference may be negative, so the shift is signed
        let parts = self.parts.wrapping_add(gap).wrapping_sub(self.ticks);
        self.ticks = self.ticks.wrapping_add(parts.cast_signed().wrapping_shr(shift).cast_unsigned());
        self.parts = parts & !u32::MAX.wrapping_shl(shift);
        let Self { ticks, parts } = *self;
        if was_storm {
            ticks.wrapping_sub((parts == 0) as u32) < interval.wrapping_mul(2) // not above it, and never 0
        } else {
            ticks < interval
        }
    }
}
