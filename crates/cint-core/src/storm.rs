//! The storm guard: whoever marks everything Urgent gets no more than so many interrupts (cinterrupts §4.3).

use crate::config::Config;

/// A moving average of the gaps between interrupts, in 2^-shift ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average(u64);

impl Average {
    /// As if interrupts had come at half the allowed rate.
    pub(crate) const fn cold(config: &Config) -> Self {
        Self((config.storm_interval as u64).wrapping_mul(2) << config.storm_shift)
    }

    /// An interrupt came `gap` ticks after the one before it. Whether they come too fast now: from below the interval
    /// until above twice that.
    pub(crate) fn sample(&mut self, gap: u32, was_storm: bool, config: &Config) -> bool {
        let Config { storm_interval: interval, storm_shift: shift, .. } = *config;
        let gap = gap.min(interval.wrapping_mul(4));
        self.0 = self.0.wrapping_sub(self.ticks(shift).into()).wrapping_add(gap.into());
        if was_storm {
            Self(self.0.wrapping_sub(1)).ticks(shift) < interval.wrapping_mul(2)
        } else {
            self.ticks(shift) < interval
        }
    }

    /// At most four intervals, which are 32 bits. Shifts below 32 are cheap on small processors.
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    const fn ticks(self, shift: u8) -> u32 {
        (self.0 >> (shift & 31)) as u32
    }
}
