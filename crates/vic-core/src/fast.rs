//! The fast path: answers the usual completion without the whole of [`Vic::decide`].
//!
//! It applies if `now` is not before the previous call and is before `until`, and one of these is true: `cif` is below
//! `low`; `cif` is above `high`, where the live clamp cannot act; the ratio is 1. The last full decision set `until` so
//! that no epoch ends and no deadline expires before it.
//!
//! Then the decision and the state are those of the slow path; `tests/fast_path` compares them. The fast path takes 13
//! to 17 instructions on x86-64, inlined (`scripts/cost.sh`).

use crate::algorithm::Vic;
use crate::cycle::{Bounds, Cycle};
#[cfg(doc)]
use coalesce_decision::Policy;
use coalesce_decision::{Decision, HoldReason, Reason};

impl Vic {
    /// Decides about a completed command without the fast path. `cif` is the number of commands in flight, including this one;
    /// `slice_end` is the instant at which the guest's timeslice ends, if it is known (Xen §4, Algorithm 1). An instant that
    /// is not in the future counts as unknown, and so does `u64::MAX`.
    #[inline(never)]
    pub fn on_completion_in_slice(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        let decision = self.decide(now, cif, slice_end);
        self.open_fast_path();
        decision
    }

    /// The fast path of [`Policy::on_completion`], for callers who inline only the fast path and do not know when the
    /// timeslice ends. `None`: it does not apply, and nothing has changed; call
    /// [`on_completion_in_slice`](Self::on_completion_in_slice).
    #[inline(always)]
    pub fn on_completion_fast(&mut self, now: u64, cif: u32) -> Option<Decision> {
        if now < self.last || now >= self.fast.until {
            None
        } else if cif > self.fast.high {
            self.count(now);
            Some(self.next_in_cycle())
        } else if cif < self.fast.low {
            self.count(now);
            self.cycle = Cycle::START;
            Some(Decision::Deliver(Reason::LowCif))
        } else if self.skip_up == 1 {
            self.count(now);
            self.cycle = Cycle::START;
            Some(Decision::Deliver(Reason::Always))
        } else {
            None
        }
    }

    const fn count(&mut self, now: u64) {
        self.last = now;
        self.epoch_completions = self.epoch_completions.wrapping_add(1);
    }

    /// vIC Alg. 2 l.11-19.
    #[inline(always)]
    fn next_in_cycle(&mut self) -> Decision {
        if self.cycle.counter() >= self.skip_up {
            self.cycle = Cycle::START;
            return Decision::Deliver(Reason::Ratio);
        }
        if self.cycle.held() == 0 {
            if self.cycle.counter() < self.count_up {
                self.cycle.set_counter(self.cycle.counter().wrapping_add(1));
                return Decision::Deliver(Reason::Ratio);
            }
            self.first_held = self.last;
        }
        self.cycle = self.cycle.and_one_held();
        Decision::Hold(HoldReason::Ratio)
    }

    /// Opens the fast path until the epoch ends, or until `max_hold` ends for a completion that is held or could be
    /// held from now on.
    #[inline(never)] // 16 to 58 bytes less, and not on the fast path
    fn open_fast_path(&mut self) {
        if self.has_slice_deadline || !self.running {
            self.close_fast_path();
            return;
        }
        let epoch_left = self.config.epoch.get().saturating_sub(self.since(self.epoch_start));
        let epoch_end = self.last.saturating_add(epoch_left);
        if self.cycle.held() == 0 {
            self.first_held = self.last; // at the earliest
        }
        self.fast.until = self.hold_deadline().map_or(epoch_end, |hold| hold.min(epoch_end));

        self.fast.low = u32::from(self.config.cif_threshold);
        // With at least 2T commands in flight for each completion that a cycle can hold, the live clamp does not act.
        let most = u32::from(self.skip_up).saturating_sub(u32::from(self.count_up));
        let clamps = self.config.live_clamp && most > 1;
        if self.skip_up == 1 {
            self.fast.high = u32::MAX; // the counter has nothing to decide
            return;
        }
        let enough = if clamps { self.fast.low.wrapping_mul(2).checked_mul(most) } else { Some(self.fast.low) };
        self.fast.high = enough.map_or(u32::MAX, |enough| enough.wrapping_sub(1)); // an overflow means that no CIF is enough
    }

    /// Closes the fast path until the next full decision. A slice deadline stays in `until`. That is safe: only a hold sets
    /// one, so the ratio is below 1, and the bounds of the CIF close the fast path.
    pub(crate) const fn close_fast_path(&mut self) {
        (self.fast.low, self.fast.high) = (Bounds::CLOSED.low, Bounds::CLOSED.high);
        if !self.has_slice_deadline {
            self.fast.until = Bounds::CLOSED.until;
        }
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]
#[path = "../tests/fast_path/mod.rs"]
mod tests;
