//! Scheduler-aware vIC as its authors ran it on Xen, flaws included (Xen §4, Algorithm 1, and the kernel they published).
//!
//! Three of its lines are why it lives here and not in a core: a completion that is skipped puts the counter back to 1,
//! so that no ratio below 1/2 is ever reached by counting; completions that were skipped 16 times in a row are sent
//! instead; and within the clocks' margin of error the slice rule is off.

use super::nothing_due;
use coalesce_policy::{Completion, Decision, HoldReason, Mark, Policy, Reason, Submission};

/// `EPOCH_PERIOD`, in ns.
const EPOCH: u64 = 200_000_000;
/// `CIF_THRESHOLD`
const CIF_THRESHOLD: u32 = 4;
/// `IOPS_THRESHOLD`: theirs is a small machine.
const IOPS_THRESHOLD: u32 = 100;
/// Skips in a row before one is sent whatever the ratio says.
const SKIPS_MAX: u32 = 16;
/// The error of the two clocks, in ns: below it the rest of a slice says nothing.
const MARGIN: u64 = 200_000;

/// `struct coalesce_info`, for a clock in ns.
#[derive(Clone, Debug)]
pub(crate) struct XenAsPublished {
    count_up: u32,
    skip_up: u32,
    counter: u32,
    skips: u32,
    epoch_start: u64,
    curr_iops: u32,
    next_iops: u32,
    held: u32,
}

impl XenAsPublished {
    pub(crate) const fn new() -> Self {
        Self { count_up: 1, skip_up: 1, counter: 1, skips: 0, epoch_start: 0, curr_iops: 0, next_iops: 0, held: 0 }
    }

    fn deliver(&mut self, reason: Reason) -> Decision {
        (self.held, self.skips) = (0, 0);
        Decision::Deliver(reason)
    }

    /// Lines 6 to 12; `None`: no rate is known.
    fn ns_per_event(&self) -> Option<u64> {
        let ns_per_io = 1_000_000_000_u64.checked_div(self.curr_iops.into())?;
        let io_per_event = if self.skip_up < 2 * self.count_up { 2 } else { self.skip_up };
        Some(ns_per_io * u64::from(io_per_event))
    }

    /// `coalesce_recalc`
    fn recalc(&mut self, cif: u32) {
        self.curr_iops = std::mem::take(&mut self.next_iops);
        (self.count_up, self.skip_up) = if self.curr_iops < IOPS_THRESHOLD || cif < CIF_THRESHOLD {
            (1, 1)
        } else if cif < 2 * CIF_THRESHOLD {
            (4, 5)
        } else if cif < 3 * CIF_THRESHOLD {
            (3, 4)
        } else if cif < 4 * CIF_THRESHOLD {
            (2, 3)
        } else {
            (1, cif / (2 * CIF_THRESHOLD))
        };
    }
}

impl Policy for XenAsPublished {
    /// That, not its completion, is counted.
    fn on_submit(&mut self, _now: u64, submission: &Submission) -> Mark {
        self.next_iops = self.next_iops.saturating_add((1_000_000_000 / EPOCH) as u32);
        Mark::of(submission.hint)
    }

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, slice_end, .. } = *completion;
        let remaining = slice_end.and_then(|end| end.checked_sub(now)).filter(|&remaining| remaining > MARGIN);
        if remaining.is_some_and(|remaining| self.ns_per_event().is_some_and(|event| remaining < event)) {
            return self.deliver(Reason::SliceEnd);
        }
        if now.saturating_sub(self.epoch_start) > EPOCH {
            self.recalc(cif);
            self.epoch_start = now;
        }
        if cif < CIF_THRESHOLD {
            self.counter = 1;
            self.deliver(Reason::LowCif)
        } else if self.counter < self.count_up {
            self.counter += 1;
            self.deliver(Reason::Ratio)
        } else if self.counter >= self.skip_up {
            self.counter = 1;
            self.deliver(Reason::Ratio)
        } else if self.skips >= SKIPS_MAX {
            self.deliver(Reason::Count)
        } else {
            self.counter = 1; // line 26
            self.skips += 1;
            self.held += 1;
            Decision::Hold(HoldReason::Ratio)
        }
    }

    /// It has no timer.
    fn deadline(&self) -> Option<u64> {
        None
    }

    fn on_deadline(&mut self, _now: u64) -> Decision {
        nothing_due(self.held)
    }

    fn flush(&mut self, _now: u64) -> Decision {
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn on_consumed(&mut self, _now: u64) {
        self.held = 0;
    }

    fn held(&self) -> u32 {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(xen: &mut XenAsPublished, now: u64, slice_end: Option<u64>) -> Decision {
        xen.on_completion(now, &Completion { cif: 64, slice_end, ..Completion::default() })
    }

    /// At CIF 64 the ratio is 1/8; what is seen is 1 in 17.
    #[test]
    fn a_low_ratio_is_never_reached_by_counting() {
        let mut xen = XenAsPublished::new();
        for _ in 0..IOPS_THRESHOLD {
            xen.on_submit(0, &Submission::ALONE);
        }
        let mut delivered = 0;
        for i in 0..(17 * 1000) {
            delivered += u32::from(matches!(complete(&mut xen, EPOCH + 1 + i, None), Decision::Deliver(_)));
        }
        assert_eq!(delivered, 17 * 1000 / 17);
    }

    #[test]
    fn the_end_of_a_slice_counts_outside_the_margin_only() {
        let mut xen = XenAsPublished::new();
        let now = 10 * EPOCH;
        for _ in 0..200 {
            xen.on_submit(0, &Submission::ALONE); // 1000 per second: 8 ms between interrupts at 1/8
        }
        let _ = complete(&mut xen, now, None);
        assert_eq!(complete(&mut xen, now, Some(now + 7_000_000)), Decision::Deliver(Reason::SliceEnd));
        assert_eq!(complete(&mut xen, now, Some(now + 9_000_000)), Decision::Hold(HoldReason::Ratio));
        assert_eq!(complete(&mut xen, now, Some(now + MARGIN)), Decision::Hold(HoldReason::Ratio));
        assert_eq!(complete(&mut xen, now, Some(now - 1)), Decision::Hold(HoldReason::Ratio));
    }
}
