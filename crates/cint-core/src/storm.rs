//! The storm guard: whoever marks everything Urgent gets no more than so many interrupts (cinterrupts §4.3).

use crate::config::Config;

/// A moving average of the gaps between interrupts, in 2^-shift ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average(u64);

impl Average {
    /// As if interrupts had come at half the allowed rate.
    pub(crate) const fn cold(config: &Config) -> Self {
        Self(config.storm_interval.wrapping_mul(2) << config.storm_shift)
    }

    /// An interrupt came `gap` ticks after the one before it.
    pub(crate) const fn sample(&mut self, gap: u64, config: &Config) {
        let longest = config.storm_interval.wrapping_mul(4); // at most 10^10 ticks: no product here overflows
        let gap = if gap < longest { gap } else { longest };
        self.0 = self.0.wrapping_sub(self.0 >> config.storm_shift).wrapping_add(gap);
    }

    /// Whether interrupts come too fast: from below the interval until above twice that.
    pub(crate) const fn is_storm(&self, was: bool, config: &Config) -> bool {
        let interval = config.storm_interval << config.storm_shift;
        self.0 < interval || was && self.0 <= interval.wrapping_mul(2)
    }
}
