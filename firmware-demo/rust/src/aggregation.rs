//! NVMe's own coalescing, Feature 08h: it interrupts after a number of completions, or a time after the first.

use crate::decision::{Decision, HoldReason, Reason};

pub struct Aggregation {
    threshold: u32, // 1: no coalescing
    time: u64,      // 0: no coalescing
    held: u32,
    first: u64,
}

impl Aggregation {
    pub const OFF: Self = Self { threshold: 1, time: 0, held: 0, first: 0 };

    /// Sets the threshold, in completions, and the time, in ticks.
    pub const fn set(&mut self, threshold: u32, time: u64) {
        (self.threshold, self.time) = (threshold, time);
    }

    pub fn on_completion(&mut self, now: u64, has_failed: bool) -> Decision {
        if self.has_waited(now) {
            return self.deliver(Reason::Time);
        }
        if self.threshold == 1 || self.time == 0 {
            return self.deliver(Reason::Disabled);
        }
        if has_failed {
            return self.deliver(Reason::Error);
        }
        if self.held + 1 >= self.threshold {
            return self.deliver(Reason::Count);
        }
        if self.held == 0 {
            self.first = now;
        }
        self.held += 1;
        Decision::Hold(HoldReason::Aggregate)
    }

    pub fn deadline(&self) -> Option<u64> {
        (self.held > 0).then_some(self.first + self.time)
    }

    pub fn on_deadline(&mut self, now: u64) -> Decision {
        match self.held {
            0 => Decision::Hold(HoldReason::NothingHeld),
            _ if self.has_waited(now) => self.deliver(Reason::Time),
            _ => Decision::Hold(HoldReason::Early),
        }
    }

    pub const fn on_consumed(&mut self) {
        self.held = 0;
    }

    pub const fn flush(&mut self) -> Decision {
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn has_waited(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    const fn deliver(&mut self, reason: Reason) -> Decision {
        self.held = 0;
        Decision::Deliver(reason)
    }
}
