//! Time and deadlines.

use crate::algorithm::Vic;
use coalesce_decision::Reason;

impl Vic {
    /// Sets the time of a call. If the clock went back, every stored instant moves back by as much, as if no time had
    /// passed.
    #[inline(always)]
    pub(crate) const fn advance(&mut self, now: u64) {
        if now < self.last {
            self.go_back(self.last.wrapping_sub(now));
        }
        self.last = now;
    }

    #[cold]
    #[inline(never)]
    const fn go_back(&mut self, by: u64) {
        self.epoch_start = self.epoch_start.wrapping_sub(by);
        self.first_held = self.first_held.wrapping_sub(by);
        if self.running {
            self.run_base = self.run_base.wrapping_sub(by);
        }
        self.fast.until = self.fast.until.saturating_sub(by);
        self.times_back = self.times_back.saturating_add(1);
    }

    /// Ticks since `instant`, which may lie before 0 in the caller's clock.
    pub(crate) const fn since(&self, instant: u64) -> u64 {
        self.last.wrapping_sub(instant)
    }

    /// The reason to deliver, if a deadline has passed.
    pub(crate) fn expired(&self) -> Option<Reason> {
        self.pending().filter(|&(deadline, _)| deadline <= self.last).map(|(_, reason)| reason)
    }

    /// The earliest deadline, and its reason to deliver. An instant before 0 is reported as 0.
    #[inline]
    pub(crate) const fn pending(&self) -> Option<(u64, Reason)> {
        if self.cycle.held() == 0 { None } else { self.earliest() }
    }

    #[inline(never)]
    const fn earliest(&self) -> Option<(u64, Reason)> {
        let slice_deadline = if self.has_slice_deadline { Some(self.fast.until) } else { None };
        match (self.hold_deadline(), slice_deadline) {
            (Some(hold), Some(slice)) if slice < hold => Some((slice, Reason::SliceEnd)),
            (Some(hold), _) => Some((hold, Reason::MaxHold)),
            (None, Some(slice)) => Some((slice, Reason::SliceEnd)),
            (None, None) => None,
        }
    }

    /// The end of `max_hold` for the completions held.
    #[inline(never)]
    pub(crate) const fn hold_deadline(&self) -> Option<u64> {
        let Some(max_hold) = self.config.max_hold() else { return None };
        let waited = self.since(self.first_held);
        Some(match max_hold.checked_sub(waited) {
            Some(left) => self.last.saturating_add(left),
            None => self.last.saturating_sub(waited.wrapping_sub(max_hold)),
        })
    }
}
