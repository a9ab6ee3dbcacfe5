//! NVMe's own coalescing, Feature 08h: so many completions, or so long after the first.

use crate::decision::Decision;

pub struct Aggregation {
    threshold: u32, // 1: no coalescing
    time: u64,      // 0: no coalescing
    held: u32,
    first: u64,
}

impl Aggregation {
    pub const OFF: Self = Self { threshold: 1, time: 0, held: 0, first: 0 };

    /// So many completions, so many ticks.
    pub const fn set(&mut self, threshold: u32, time: u64) {
        (self.threshold, self.time) = (threshold, time);
    }

    pub fn on_completion(&mut self, now: u64, has_failed: bool) -> Decision {
        if self.has_waited(now) {
            return self.deliver("time");
        }
        if self.threshold == 1 || self.time == 0 {
            return self.deliver("disabled");
        }
        if has_failed {
            return self.deliver("error");
        }
        if self.held + 1 >= self.threshold {
            return self.deliver("count");
        }
        if self.held == 0 {
            self.first = now;
        }
        self.held += 1;
        Decision::Hold("aggregate")
    }

    pub fn deadline(&self) -> Option<u64> {
        (self.held > 0).then_some(self.first + self.time)
    }

    pub fn on_deadline(&mut self, now: u64) -> Decision {
        match self.held {
            0 => Decision::Hold("nothing_held"),
            _ if self.has_waited(now) => self.deliver("time"),
            _ => Decision::Hold("early"),
        }
    }

    pub const fn on_consumed(&mut self) {
        self.held = 0;
    }

    pub const fn flush(&mut self) -> Decision {
        if self.held > 0 { self.deliver("flush") } else { Decision::Hold("nothing_held") }
    }

    fn has_waited(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    const fn deliver(&mut self, reason: &'static str) -> Decision {
        self.held = 0;
        Decision::Deliver(reason)
    }
}
