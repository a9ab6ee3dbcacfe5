//! Scheduler awareness: an interrupt for a guest that is off the CPU waits until the guest runs again, so what is held
//! goes out before the timeslice ends (Xen §4).

use crate::divide::divide_up;
use crate::ratio::Ratio;
use crate::vic::{Decision, Reason, Vic};

impl Vic {
    /// The guest has been put on a CPU: announces what is held. A machine that is never told counts as running.
    pub fn on_schedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if !self.running {
            self.running = true;
            self.run_start = self.since(self.run_start);
        }
        self.deliver_held(Reason::Schedule)
    }

    /// The guest is taken off its CPU: announces what is held. Until [`on_schedule`](Self::on_schedule), neither time
    /// nor completions count for the rate (Xen, future work).
    pub fn on_deschedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.running {
            self.running = false;
            self.no_short_cut();
            self.run_start = self.since(self.run_start);
        }
        self.deliver_held(Reason::Deschedule)
    }
}

/// The time between two interrupts under the delivery ratio, 1 / (R * IOPS) (Xen §4), in ticks plus 1; 0: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(u32);

impl Window {
    pub(crate) const NONE: Self = Self(0);
    /// Longer than any timeslice.
    const UNBOUNDED: Self = Self(u32::MAX);

    /// From an epoch of `elapsed` ticks with `completions`: rounded up.
    ///
    /// A ratio above 1/2 sends interrupts singly or in pairs of completions: the worst is assumed (Xen lines 8-11).
    pub(crate) const fn between_interrupts(ratio: Ratio, elapsed: u64, completions: u32) -> Self {
        if completions == 0 {
            return Self::NONE;
        }
        let double = (ratio.count_up as u16).wrapping_mul(2);
        let cycle = if ratio.skip_up < double { 2 } else { ratio.skip_up };
        // The one 64-by-32-bit division, once an epoch.
        let ticks = divide_up(elapsed.saturating_mul(cycle as u64), completions as u64);
        #[expect(clippy::cast_possible_truncation, reason = "compared before")]
        if ticks < Self::UNBOUNDED.0 as u64 { Self((ticks as u32).wrapping_add(1)) } else { Self::UNBOUNDED }
    }

    /// Whether the slice, with `left` ticks to go, ends within this window.
    pub(crate) const fn reaches(self, left: u64, margin: u32) -> bool {
        match self {
            Self::NONE => false,
            Self::UNBOUNDED => true,
            Self(ticks) => left < (ticks as u64).wrapping_add(margin as u64),
        }
    }

    /// The last instant at which an interrupt is in time, for a slice that this window does not [reach](Self::reaches).
    pub(crate) const fn deadline(self, now: u64, left: u64, margin: u32) -> Option<u64> {
        match self.0.checked_sub(1) {
            Some(ticks) => Some(now.wrapping_add(left).wrapping_sub(ticks as u64).wrapping_sub(margin as u64)),
            None => None,
        }
    }
}
