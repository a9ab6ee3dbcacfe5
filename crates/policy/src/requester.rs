//! What `auto` learns about who it interrupts: how many requests they have outstanding, and whether they go on by
//! themselves.
//!
//! Commands in flight say how many completions may be held only where the device is the slower of the two. Where it
//! answers before the next request is submitted, a guest that keeps 32 outstanding looks as if it did one at a time,
//! and each interrupt stops it from submitting more. But what it has *outstanding*, submitted and not taken back, shows
//! in passing that it does not wait for each. From then on completions are held although nothing is in flight, and how
//! many is found as TCP finds its window: one more each time the requester went on regardless, half of them when it
//! fell silent.
//!
//! A requester that waits for what is held must not be made to wait: a branch predictor remembers whether this one went
//! on last time, tries less and less often while it does not, and never where at most a few are outstanding.

/// With fewer requests outstanding, every completion interrupts at once.
const FEW: u32 = 4;

/// The depth is the largest number of requests outstanding in the last one to two windows of so many submissions.
const WINDOW: u32 = 256;

/// The predictor tries at least once in so many times.
const SKIP_MAX: u16 = 1024;

/// Completions held at once, at most.
const LIMIT_MAX: u32 = 31;

/// The `in_flight` rule, with T = 2, holds one completion for each 4 commands in flight.
const IN_FLIGHT_PER_HELD: u32 = 4;

/// A model of the requesters behind one interrupt vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    depth: u32,
    next_depth: u32, // of the window that has begun
    submissions: u32,
    limit: u32,
    goes_on: bool,
    skip_next: u16, // how many times not to try after the next failure
    skip: u16,
    waits: bool, // something is held and nothing in flight: the next event tells whether that was right
}

impl Requester {
    pub(crate) const NEW: Self =
        Self { depth: 0, next_depth: 0, submissions: 0, limit: 1, goes_on: false, skip_next: 1, skip: 0, waits: false };

    /// A command is submitted: `outstanding` are submitted and not taken back, counting it.
    pub(crate) fn on_submit(&mut self, outstanding: u32) {
        if std::mem::take(&mut self.waits) {
            (self.goes_on, self.skip_next) = (true, 1);
        }
        self.depth = self.depth.max(outstanding);
        self.next_depth = self.next_depth.max(outstanding);
        self.submissions += 1;
        if self.submissions == WINDOW {
            (self.depth, self.next_depth, self.submissions) = (self.next_depth, 0, 0);
        }
    }

    /// How many commands the `in_flight` rule should believe to be in flight when one completes; 1: interrupt at once.
    pub(crate) fn in_flight(&mut self, cif: u32) -> u32 {
        let is_device_slower = cif > self.depth / 2;
        if self.depth < FEW || cif == 1 && !self.expects_more() {
            1
        } else if self.goes_on && !is_device_slower || cif == 1 {
            cif.max(self.limit * IN_FLIGHT_PER_HELD)
        } else {
            cif
        }
    }

    /// A completion is held.
    pub(crate) fn on_hold(&mut self, cif: u32) {
        self.waits = cif == 1;
    }

    /// What was held is delivered, as the rule allows no more.
    pub(crate) fn on_limit(&mut self, held: u32) {
        self.waits = false;
        if self.goes_on && held >= self.limit {
            self.limit = (self.limit + 1).min(LIMIT_MAX);
        }
    }

    /// What was held is delivered, as nothing came for a while.
    pub(crate) fn on_silence(&mut self, held: u32) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        self.limit = (held / 2).max(1);
        if held < FEW {
            self.goes_on = false;
            self.skip = self.skip_next;
            self.skip_next = self.skip_next.saturating_mul(2).min(SKIP_MAX);
            (self.depth, self.next_depth) = (held, held);
        }
    }

    fn expects_more(&mut self) -> bool {
        if !self.goes_on && self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One completion, with so many held before it. Whether it is held.
    fn complete(requester: &mut Requester, cif: u32, held: u32) -> bool {
        let in_flight = requester.in_flight(cif);
        let is_held = in_flight > 1 && (held == 0 || (held + 1) * IN_FLIGHT_PER_HELD <= in_flight);
        if is_held {
            requester.on_hold(cif)
        } else {
            requester.on_limit(held)
        }
        is_held
    }

    #[test]
    fn one_at_a_time_never_waits() {
        let mut requester = Requester::NEW;
        for _ in 0..10_000 {
            requester.on_submit(1);
            assert!(!complete(&mut requester, 1, 0));
        }
    }

    /// 32 outstanding before a device that answers at once.
    #[test]
    fn a_deep_requester_is_recognised_behind_a_fast_device() {
        let mut requester = Requester::NEW;
        let (mut held, mut interrupts) = (0, 0);
        for i in 0..3200 {
            // It is interrupted a little after the device wants it to be: the next request or two come first.
            requester.on_submit((held + 2 + i % 3).min(32));
            if complete(&mut requester, 1, held) {
                held += 1;
            } else {
                (held, interrupts) = (0, interrupts + 1);
            }
            if held == 31 {
                requester.on_silence(held);
                (held, interrupts) = (0, interrupts + 1);
            }
        }
        assert!(interrupts < 3200 / 8, "{interrupts} interrupts for 3200 requests");
    }

    /// Batches of 20 that are waited for: to hold the last ones is wrong every time, and hardly ever tried again.
    #[test]
    fn a_requester_that_waits_is_left_alone() {
        let mut requester = Requester::NEW;
        let mut wrong = 0;
        for _ in 0..10_000 {
            (1..=20).for_each(|outstanding| requester.on_submit(outstanding));
            let mut held = 0;
            for cif in (1..=20).rev() {
                held = if complete(&mut requester, cif, held) { held + 1 } else { 0 };
            }
            if held > 0 {
                requester.on_silence(held);
                wrong += 1;
            }
        }
        assert!(wrong < 25, "{wrong} of 10000 batches");
    }

    #[test]
    fn a_change_to_one_at_a_time_costs_one_hold() {
        let mut requester = Requester::NEW;
        (1..=32).for_each(|outstanding| requester.on_submit(outstanding));
        assert!(complete(&mut requester, 1, 0));
        requester.on_submit(32); // it went on
        assert!(complete(&mut requester, 1, 0));
        requester.on_silence(1);
        for _ in 0..10_000 {
            requester.on_submit(1);
            assert!(!complete(&mut requester, 1, 0));
        }
    }

    /// The device is the slower one: what is in flight decides.
    #[test]
    fn a_slow_device_is_kept_busy() {
        let mut requester = Requester::NEW;
        (1..=32).for_each(|outstanding| requester.on_submit(outstanding));
        assert_eq!(requester.in_flight(32), 32);
        assert_eq!(requester.in_flight(25), 25);
    }
}
