//! The storm guard (cinterrupts §4.3): in a storm, what is due waits until the interval since the last interrupt is over.

use crate::algorithm::{Budget, Flags};
use coalesce_decision::{Decision, HoldReason};

impl Budget {
    /// Whether there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
    /// since.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.flags.has(Flags::STORM)
    }

    /// Before this instant the storm guard allows no interrupt; `None`: it allows one now.
    #[must_use]
    pub fn paced_until(&self) -> Option<u64> {
        let paced = self.paced();
        (paced > 0).then(|| self.last.saturating_add(paced.into()))
    }

    /// Ticks until the storm guard allows an interrupt.
    pub(crate) const fn paced(&self) -> u32 {
        if self.is_storming() { self.config.storm_interval.saturating_sub(self.gap) } else { 0 }
    }

    /// Holds a completion, whatever was decided: an interrupt would come too soon.
    pub(crate) fn defer(&mut self, decision: Decision) -> Decision {
        match decision {
            Decision::Hold(reason) => self.hold(reason),
            Decision::Deliver(_) | Decision::DeliverUrgent => {
                self.wait_for_guard();
                self.hold(HoldReason::Storm)
            }
        }
    }

    /// What is held is due, and waits only for the storm guard.
    pub(crate) const fn wait_for_guard(&mut self) {
        self.flags.set(Flags::PROBE, false);
        self.flags.set(Flags::DEFERRED, true);
    }

    /// Records an interrupt. It ends a gap, which is a sample of the average.
    pub(crate) const fn interrupt(&mut self) {
        let (interval, shift) = (self.config.storm_interval, self.config.storm_shift);
        if interval > 0 {
            let is_storm = self.average.sample(self.gap, self.is_storming(), interval, shift);
            self.flags.set(Flags::STORM, is_storm);
        }
        self.gap = 0;
    }
}
