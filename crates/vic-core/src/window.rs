//! Scheduler awareness (Xen §4). An interrupt for a guest that is off its CPU waits until the guest runs again. So held
//! completions are delivered before the timeslice ends.

use crate::ratio::Ratio;
use coalesce_decision::ticks::divide_up;

/// The time between two interrupts under the delivery ratio, 1 / (R * IOPS), stored in ticks plus 1; 0: unknown. It is
/// the paper's nsecPerEvent (Xen §4, Alg. 1 l.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(u32);

impl Window {
    pub(crate) const NONE: Self = Self(0);
    /// Longer than any timeslice.
    const UNBOUNDED: Self = Self(u32::MAX);

    /// The window after an epoch of `elapsed` ticks with `completions`, rounded up.
    pub(crate) const fn between_interrupts(ratio: Ratio, elapsed: u64, completions: u32) -> Self {
        if completions == 0 {
            return Self::NONE; // Xen Alg. 1 l.6
        }
        // Above R = 1/2 an interrupt covers one completion or two; two is the worst case.
        let double = (ratio.count_up as u16).wrapping_mul(2);
        let io_per_event = if ratio.skip_up < double { 2 } else { ratio.skip_up }; // Xen Alg. 1 l.8-11
        // The only 64-by-32-bit division, once per epoch: Xen Alg. 1 l.7 and l.12 in one.
        let ticks = divide_up(elapsed.saturating_mul(io_per_event as u64), completions as u64);
        #[expect(clippy::cast_possible_truncation, reason = "below 2^32")]
        if ticks < Self::UNBOUNDED.0 as u64 { Self((ticks as u32).wrapping_add(1)) } else { Self::UNBOUNDED }
    }

    /// Whether the timeslice ends within this window plus `margin`, from now on (Xen Alg. 1 l.13). An unknown end is
    /// not within it.
    pub(crate) fn reaches(self, remaining: Option<u64>, margin: u32) -> bool {
        match (self, remaining) {
            (_, None) | (Self::NONE, _) => false,
            (Self::UNBOUNDED, _) => true,
            (Self(ticks), Some(remaining)) => remaining < u64::from(ticks).wrapping_add(u64::from(margin)),
        }
    }

    /// The instant at which the end of the timeslice comes within the window plus `margin`. Requires that it is not
    /// [within](Self::reaches) it yet.
    pub(crate) fn deadline(self, now: u64, remaining: Option<u64>, margin: u32) -> Option<u64> {
        let (ticks, remaining) = (self.0.checked_sub(1)?, remaining?);
        Some(now.wrapping_add(remaining).wrapping_sub(u64::from(ticks)).wrapping_sub(u64::from(margin)))
    }
}
