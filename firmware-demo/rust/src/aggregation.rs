//! NVMe's own coalescing, Feature 08h: it interrupts after a number of completions, or a time after the first.

use coalesce_decision::{Class, Completion, Decision, HoldReason, Policy, Reason};

#[derive(Debug)]
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

    fn has_waited(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    const fn deliver(&mut self, reason: Reason) -> Decision {
        self.held = 0;
        Decision::Deliver(reason)
    }
}

impl Policy for Aggregation {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        if self.has_waited(now) {
            return self.deliver(Reason::Time);
        }
        if self.threshold == 1 || self.time == 0 {
            return self.deliver(Reason::Disabled);
        }
        if completion.class != Class::Io {
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

    fn deadline(&self) -> Option<u64> {
        (self.held > 0).then_some(self.first + self.time)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        match self.held {
            0 => Decision::Hold(HoldReason::NothingHeld),
            _ if self.has_waited(now) => self.deliver(Reason::Time),
            _ => Decision::Hold(HoldReason::Early),
        }
    }

    fn flush(&mut self, _: u64) -> Decision {
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn on_consumed(&mut self, _: u64) {
        self.held = 0;
    }

    fn held(&self) -> u32 {
        self.held
    }
}
