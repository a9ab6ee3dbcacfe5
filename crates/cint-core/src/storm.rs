//! The storm guard: whoever marks everything Urgent gets no more than so many interrupts (cinterrupts §4.3).

use crate::config::Config;

/// A moving average of the gaps between interrupts, and whether they come too fast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storm {
    average: u64, // in 2^-shift ticks
    storming: bool,
}

impl Storm {
    /// As if interrupts had come at half the allowed rate.
    pub(crate) const fn cold(config: &Config) -> Self {
        Self { average: config.storm_interval.wrapping_mul(2) << config.storm_shift, storming: false }
    }

    pub(crate) const fn is_storming(&self) -> bool {
        self.storming
    }

    /// An interrupt came `gap` ticks after the one before it. Storming begins when the average falls below the
    /// interval, and ends above twice that.
    pub(crate) const fn sample(&mut self, gap: u64, config: &Config) {
        let interval = config.storm_interval; // at most 10^10 ticks: no product below overflows
        let longest = interval.wrapping_mul(4);
        let gap = if gap < longest { gap } else { longest };
        self.average = self.average.wrapping_sub(self.average >> config.storm_shift).wrapping_add(gap);
        if self.average < interval << config.storm_shift {
            self.storming = true;
        } else if self.average > interval.wrapping_mul(2) << config.storm_shift {
            self.storming = false;
        }
    }
}
