//! The time of some completions.

use crate::account::product;
use crate::constants::{FREQUENT_SHIFT, MEASURE};

/// A number of completions, and the ticks that they took, without the gaps longer than `max_hold`, which are the load's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Stretch {
    pub(crate) completions: u16,
    pub(crate) paused: u16, // in longer gaps, each of which counts for 1, 4 or 16 times `max_hold`, the largest that it exceeds
    pub(crate) ticks: u32,
    pub(crate) excess: u32, // ticks of gaps beyond `longest`
}

impl Stretch {
    pub(crate) const NONE: Self = Self { completions: 0, paused: 0, ticks: 0, excess: 0 };

    /// Whether completions come often enough for interrupts to matter. Long gaps count in part.
    pub(crate) fn is_frequent(self, max_hold: u32) -> bool {
        let ticks = product(self.paused.into(), max_hold).wrapping_add(self.whole().into());
        ticks << FREQUENT_SHIFT <= product(self.completions.into(), max_hold)
    }

    /// Whether completions took longer than `part` / `whole` of the time of MEASURE others, if that is known.
    pub(crate) fn is_slower_than(self, ticks: u32, (part, whole): (u32, u32)) -> bool {
        let times = |completions: u16, times: u32| u32::from(completions).wrapping_mul(times);
        ticks > 0 && product(times(MEASURE, whole), self.ticks) > product(times(self.completions, part), ticks)
    }

    /// The ticks of all gaps up to `max_hold`.
    pub(crate) fn whole(self) -> u32 {
        self.ticks.saturating_add(self.excess)
    }

    /// A gap that counts for `longest`, or is paused.
    #[cold]
    pub(crate) fn note_long(&mut self, gap: u64, longest: u32, max_hold: u32) {
        match u32::try_from(gap) {
            Ok(gap) if gap <= max_hold => {
                self.ticks = self.ticks.saturating_add(longest);
                self.excess = self.excess.saturating_add(gap.saturating_sub(longest));
            }
            _ => {
                let times = match u64::from(max_hold) {
                    max_hold if gap > max_hold << 4 => 16,
                    max_hold if gap > max_hold << 2 => 4,
                    _ => 1,
                };
                self.paused = self.paused.wrapping_add(times);
            }
        }
    }
}
