//! The storm guard: whoever marks everything Urgent gets no more than so many interrupts (cinterrupts §4.3).

use crate::config::Config;

/// A moving average of the gaps between interrupts: `ticks`, and so many 2^-shift of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    ticks: u32,
    parts: u32,
}

impl Average {
    /// As if interrupts had come at half the allowed rate.
    pub(crate) const fn cold(config: &Config) -> Self {
        Self { ticks: config.storm_interval.wrapping_mul(2), parts: 0 }
    }

    /// An interrupt came `gap` ticks after the one before it. Whether they come too fast now: from below the interval
    /// until above twice that.
    pub(crate) const fn sample(&mut self, gap: u32, was_storm: bool, config: &Config) -> bool {
        let (interval, shift) = (config.storm_interval, config.storm_shift as u32);
        let longest = interval.wrapping_mul(4);
        let gap = if gap < longest { gap } else { longest };
        // (gap - ticks) 2^-shift more; it may be less, hence the shift of a signed number
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
