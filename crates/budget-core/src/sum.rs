//! What trials of a licence gained, and whether that is more than chance.

use crate::constants::{DOUBT, FEW, FIRST, OLD_CHECKS, STRETCHES, TRIALS};
use coalesce_decision::ticks::divide;

/// What a number of trials found. Under noise that is as often up as down the square of a sum stays near the sum of the squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Sum {
    /// The sum, over the trials, of 256 * (less - more) / (less + more): their ticks with less holding and with more.
    pub(crate) gains: i16,
    pub(crate) trials: u8,
    /// Of checks: those in a row, the last ones, that gained less than FIRST, or that ended early.
    pub(crate) lost: u8,
    pub(crate) squares: u32,
}

impl Sum {
    pub(crate) const NONE: Self = Self { gains: 0, trials: 0, lost: 0, squares: 0 };

    /// One trial more.
    pub(crate) fn add(&mut self, [less, more, more_again, less_again]: [u32; STRETCHES]) {
        let ticks = |a: u32, b: u32| u64::from(a).wrapping_add(b.into());
        let (less, more) = (ticks(less, less_again), ticks(more, more_again));
        let size = divide(less.abs_diff(more) << 8, less.wrapping_add(more).max(1)).min(256) as u16;
        let gain = if less < more { (size as i16).wrapping_neg() } else { size as i16 };
        self.trials = self.trials.saturating_add(1);
        self.gains = self.gains.wrapping_add(gain);
        self.lost = if gain < FIRST as i16 { self.lost.wrapping_add(1) } else { 0 };
        self.squares = self.squares.wrapping_add(u32::from(size).wrapping_mul(size.into()));
    }

    /// The sum of the gains; 0: it is a loss.
    pub(crate) fn gained(self) -> u32 {
        self.gains.max(0).unsigned_abs().into()
    }

    /// Whether the sum, of gains or losses, stands out of the noise: its square over the sum of the squares is above a threshold.
    pub(crate) fn is_beyond(self, threshold: u32) -> bool {
        let gains = u32::from(self.gains.unsigned_abs());
        gains.wrapping_mul(gains) > self.squares.wrapping_mul(threshold)
    }

    /// Whether the trials found a gain that is worth it, and the sum stands out.
    pub(crate) fn is_certain(self, worth: u16, threshold: u32) -> bool {
        self.gained() >= u32::from(self.trials).wrapping_mul(worth.into()) && self.is_beyond(threshold)
    }

    /// Of many trials the old ones count half.
    pub(crate) const fn forget_old(&mut self) {
        if self.trials >= OLD_CHECKS {
            (self.gains, self.trials, self.squares) = (self.gains >> 1, self.trials >> 1, self.squares >> 1);
        }
    }

    /// Whether the mean gain is at least half of what it is worth.
    pub(crate) fn is_promising(self, worth: u16) -> bool {
        self.gained().wrapping_mul(2) >= u32::from(self.trials).wrapping_mul(worth.into())
    }

    /// Whether it may be chance that the trials gained.
    pub(crate) fn is_chance(self) -> bool {
        self.trials >= FEW && !self.is_beyond(DOUBT)
    }

    /// Whether the trials lost, and not by chance.
    pub(crate) fn is_loss(self) -> bool {
        self.gains < 0 && self.is_beyond(DOUBT)
    }

    /// Whether the trials lost on average what they should gain.
    pub(crate) fn is_worse(self, worth: u16) -> bool {
        i32::from(self.gains) < i32::from(self.trials).wrapping_mul(worth.into()).wrapping_neg()
    }

    /// Whether more trials are of no use.
    pub(crate) fn is_hopeless(self, worth: u16) -> bool {
        self.trials >= TRIALS || self.is_loss() || (self.trials >= FEW && !self.is_promising(worth))
    }
}
