//! What `auto` learns about who it interrupts: how many requests they have outstanding, and whether they go on by
//! themselves.
//!
//! Commands in flight say how many completions may be held only where the device is the slower of the two. Where it
//! answers before the next request is submitted, a guest that keeps 32 outstanding looks as if it did one at a time,
//! and each interrupt keeps it from submitting more. But what it has *outstanding*, submitted and not taken back, shows
//! in passing that it does not wait for each. From then on completions are held although nothing is in flight: at first
//! one, and one more each time that this many came.
//!
//! Where the device is the slower of the two, what is in flight decides, and the less is held, the more throughput holding costs.
//! What it costs depends on how soon the requester wakes, which no count tells: [`trial`](crate::trial) does.
//!
//! Requests that come at random, however long others take, lose no throughput by waiting. How many of them are outstanding at
//! most is another number each time, while who keeps so many outstanding reaches that number again and again. So as many of
//! theirs are held as are in flight.
//!
//! A requester that waits for what is held must not be made to wait. Two predictors see to that, as they do for
//! branches: one remembers whether the requester went on the last times, and tries less and less often while it does
//! not; the other counts how many completions come before it falls silent, and expects the same number again. Where at
//! most a few requests are outstanding, nothing is tried at all.

use crate::trial::Trial;

/// With fewer requests outstanding, every completion interrupts at once.
const FEW: u32 = 4;

/// The depth is the largest number of requests outstanding in the last one to two windows of about so many submissions.
const WINDOW: u32 = 256;

/// Silences in a row that make a requester one that waits.
const SILENCES: u8 = 2;

/// Where it waits, it is tried again at least once in so many times.
const SKIP_MAX: u16 = 1024;

/// Completions held at once, at most.
const LIMIT_MAX: u32 = 31;

/// Requests come at random where of the windows so many more differ in depth from the one before, by an eighth, than do not.
const SWINGS: u8 = 4;

/// Whatever was before counts no more than so many windows.
const SWINGS_MAX: u8 = 8;

/// A device that has more than this share of the depth completing in a row, before it runs empty, is the slower of the two: a
/// requester that is slower submits a few at a time.
const BUSY_SHARE: u32 = 3;

/// A model of the requesters behind one interrupt vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    threshold: u32, // T of the `in_flight` rule, which holds nothing below it, and one completion for each 2 T in flight
    depth: u32,
    next_depth: u32, // of the window that has begun
    submissions: u32,
    last_depth: u32,  // of the window before
    swings: u8,       // windows whose depth was another than that of the one before, less the others
    since_empty: u32, // completions since the device had nothing in flight
    busy: u32,        // completions of the busy period before, the last of which left it empty
    limit: u32,
    waits: bool, // something is held and nothing in flight: the next event tells whether that was right
    // Does it go on?
    goes_on: bool,
    silences: u8,
    skip: u16,
    skip_next: u16,
    // After how many completions does it not?
    run: u32,
    last_run: u32,
    expected_run: Option<u32>,
    // Does it pay?
    trial: Trial,
}

impl Requester {
    /// Before the `in_flight` rule with this threshold.
    pub(crate) fn new(tick_hz: u64, threshold: u16) -> Self {
        Self::with_threshold(tick_hz, threshold.into())
    }

    fn with_threshold(tick_hz: u64, threshold: u32) -> Self {
        Self {
            threshold,
            depth: 0,
            next_depth: 0,
            submissions: 0,
            last_depth: 0,
            swings: 0,
            since_empty: 0,
            busy: 0,
            limit: 1,
            waits: false,
            goes_on: false,
            silences: 0,
            skip: 0,
            skip_next: 1,
            run: 0,
            last_run: 0,
            expected_run: None,
            trial: Trial::new(tick_hz),
        }
    }

    /// What was learned goes on with another threshold.
    pub(crate) fn after(self, before: Self) -> Self {
        Self { threshold: self.threshold, ..before }
    }

    /// What was learned is of somebody else: it is forgotten.
    pub(crate) fn forgotten(&self, tick_hz: u64) -> Self {
        Self::with_threshold(tick_hz, self.threshold)
    }

    /// Whether it is expected to submit more although what is held is not announced.
    pub(crate) const fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Commands are submitted: at most `outstanding` are submitted and not taken back, counting them.
    pub(crate) fn on_submits(&mut self, count: u32, outstanding: u32) {
        if std::mem::take(&mut self.waits) {
            (self.goes_on, self.silences, self.skip_next) = (true, 0, 1);
        }
        self.see(outstanding);
        self.submissions = self.submissions.saturating_add(count);
        if self.submissions >= WINDOW {
            self.submissions %= WINDOW;
            let is_another = self.next_depth.abs_diff(self.last_depth) > self.last_depth / 8;
            self.swings = if is_another { (self.swings + 1).min(SWINGS_MAX) } else { self.swings.saturating_sub(1) };
            self.last_depth = self.next_depth;
            (self.depth, self.next_depth) = (self.next_depth, 0);
        }
    }

    fn see(&mut self, outstanding: u32) {
        self.depth = self.depth.max(outstanding);
        self.next_depth = self.next_depth.max(outstanding);
    }

    /// Whether the next completion may be held.
    pub(crate) const fn may_hold(&self) -> bool {
        self.trial.may_hold() && self.depth >= FEW
    }

    /// How many commands the `in_flight` rule should believe to be in flight when one completes; 1: interrupt at once.
    pub(crate) fn in_flight(&mut self, now: u64, cif: u32) -> u32 {
        let is_empty = cif == 1;
        let may_hold = self.may_hold();
        self.see(cif);
        self.trial.on_completions(now, 1, self.depth);
        self.complete(1, cif);
        let is_fast = self.busy.max(self.since_empty) <= self.depth / BUSY_SHARE;
        if !may_hold || is_empty && !(is_fast && self.expects_more()) {
            1
        } else if is_empty || self.goes_on && is_fast {
            cif.max(self.limit * 2 * self.threshold)
        } else if self.swings >= SWINGS {
            cif.saturating_mul(2 * self.threshold)
        } else {
            self.trial.share(cif).max(cif.min(self.threshold)) // else a trial would show nothing
        }
    }

    /// So many completions more, after the last of which `cif` less one are in flight, are announced by an interrupt that is
    /// decided upon.
    pub(crate) fn on_ride(&mut self, count: u32, cif: u32) {
        self.trial.on_ride(count);
        self.complete(count, cif);
        if let Some(expected) = self.expected_run {
            self.run = self.run.checked_rem(expected).unwrap_or(0); // it fell silent after some of them, and was told
        }
    }

    /// Nothing may be held, so many completions were announced, and at most so many commands were outstanding.
    pub(crate) fn on_passed(&mut self, now: u64, completions: u32, outstanding: u32) {
        self.see(outstanding);
        self.trial.on_completions(now, completions, self.depth);
        (self.waits, self.run, self.expected_run) = (false, 0, None);
    }

    /// A completion is held.
    pub(crate) fn on_hold(&mut self, cif: u32) {
        self.waits = cif == 1;
        self.trial.on_hold();
    }

    /// What was held is delivered, as the rule allows no more.
    pub(crate) fn on_limit(&mut self, held: u32) {
        self.waits = false;
        if self.goes_on && held >= self.limit {
            self.limit = (self.limit + 1).min(LIMIT_MAX);
        }
    }

    /// A deadline ends a hold of so many.
    pub(crate) fn on_deadline(&mut self, held: u32) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        self.expected_run = (self.run == self.last_run).then_some(self.run);
        (self.last_run, self.run) = (self.run, 0);
        if held > 1 {
            return; // others came after the first: it did not wait for that one
        }
        self.limit = (self.limit / 2).max(1);
        self.silences = self.silences.saturating_add(1);
        if self.silences >= SILENCES {
            self.goes_on = false;
            self.skip = self.skip_next;
            self.skip_next = self.skip_next.saturating_mul(2).min(SKIP_MAX);
            (self.depth, self.next_depth) = (held, held);
        }
    }

    fn complete(&mut self, count: u32, cif: u32) {
        self.run = self.run.saturating_add(count);
        self.since_empty = self.since_empty.saturating_add(count);
        if cif == 1 {
            self.busy = std::mem::take(&mut self.since_empty);
        }
    }

    fn expects_more(&mut self) -> bool {
        match self.expected_run {
            Some(expected) if self.run == expected => {
                self.run = 0;
                return false;
            }
            Some(expected) if self.run > expected => self.expected_run = None,
            _ => {}
        }
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

    const TICK_HZ: u64 = 1_000_000_000;

    /// Of somebody who loses no throughput when completions are held.
    fn patient() -> Requester {
        Requester { trial: Trial::that_holds(TICK_HZ), ..Requester::new(TICK_HZ, 2) }
    }

    /// One completion, with so many held before it. How many are held after it.
    fn complete(requester: &mut Requester, cif: u32, held: u32) -> u32 {
        let in_flight = requester.in_flight(0, cif);
        if in_flight > 1 && (held == 0 || (held + 1) * 4 <= in_flight) {
            requester.on_hold(cif);
            return held + 1;
        }
        requester.on_limit(held);
        0
    }

    #[test]
    fn one_at_a_time_never_waits() {
        let mut requester = patient();
        for _ in 0..10_000 {
            requester.on_submits(1, 1);
            assert_eq!(complete(&mut requester, 1, 0), 0);
        }
    }

    /// Where nothing is held nobody need look: what passes says how many are outstanding.
    #[test]
    fn who_has_a_few_outstanding_is_left_alone_until_there_are_more() {
        let mut requester = patient();
        assert!(!requester.may_hold());
        (0..1000).for_each(|now| requester.on_passed(now, 64, 3));
        assert!(!requester.may_hold());
        requester.on_passed(1000, 64, 4);
        assert!(requester.may_hold());
        (0..2 * WINDOW).for_each(|_| requester.on_submits(1, 1));
        assert!(!requester.may_hold(), "one at a time now");
        assert_eq!(requester.in_flight(1001, 20), 1, "as it was said");
        assert!(requester.may_hold());
    }

    /// 32 outstanding before a device that answers at once; an interrupt takes as long as two or three submissions.
    #[test]
    fn a_deep_requester_is_recognised_behind_a_fast_device() {
        let mut requester = patient();
        let (mut held, mut interrupts) = (0, 0);
        for i in 0..3200 {
            requester.on_submits(1, (held + 2 + i % 3).min(32));
            held = complete(&mut requester, 1, held);
            if held == 31 {
                requester.on_deadline(held);
                held = 0;
            }
            interrupts += u32::from(held == 0);
        }
        assert!(interrupts < 3200 / 8, "{interrupts} interrupts for 3200 requests");
    }

    /// Batches that are waited for: to hold the last ones is wrong every time, and hardly ever tried again.
    #[test]
    fn a_requester_that_waits_is_left_alone() {
        for size in [4, 5, 20, 64] {
            for is_fast in [false, true] {
                let mut requester = patient();
                let mut wrong = 0;
                for _ in 0..10_000 {
                    let mut held = 0;
                    if !is_fast {
                        (1..=size).for_each(|outstanding| requester.on_submits(1, outstanding));
                    }
                    for left in (1..=size).rev() {
                        if is_fast {
                            requester.on_submits(1, held + 2);
                        }
                        held = complete(&mut requester, if is_fast { 1 } else { left }, held);
                    }
                    if held > 0 {
                        requester.on_deadline(held);
                        wrong += 1;
                    }
                }
                assert!(wrong < 25, "{wrong} of 10000 batches of {size}, device fast: {is_fast}");
            }
        }
    }

    #[test]
    fn a_change_to_one_at_a_time_costs_two_holds() {
        let mut requester = patient();
        (1..=32).for_each(|outstanding| requester.on_submits(1, outstanding));
        assert_eq!(complete(&mut requester, 1, 0), 1);
        requester.on_submits(1, 32); // it went on
        for _ in 0..2 {
            assert_eq!(complete(&mut requester, 1, 0), 1);
            requester.on_deadline(1);
            requester.on_submits(1, 1);
        }
        for _ in 0..10_000 {
            assert_eq!(complete(&mut requester, 1, 0), 0);
            requester.on_submits(1, 1);
        }
    }

    /// Each window's depth.
    fn submit_windows(requester: &mut Requester, depths: &[u32]) {
        for &depth in depths {
            (0..WINDOW).for_each(|i| requester.on_submits(1, depth - i % 8));
        }
    }

    #[test]
    fn requests_that_come_at_random_wait_for_as_many_as_are_in_flight() {
        let mut requester = patient();
        submit_windows(&mut requester, &[32; 100]);
        (0..16).for_each(|_| assert_eq!(requester.in_flight(0, 25), 25));
        submit_windows(&mut requester, &[33, 60, 32, 34, 31, 32]);
        assert_eq!(requester.in_flight(0, 25), 25, "a client that stutters");
        submit_windows(&mut requester, &[24, 31, 22, 40, 28, 35, 19, 23, 33, 25, 26, 27]);
        assert_eq!(requester.in_flight(0, 25), 100);
        submit_windows(&mut requester, &[33, 32, 32, 33, 32, 32]);
        assert_eq!(requester.in_flight(0, 25), 25);
    }

    /// All that is outstanding completes at the same time, again and again: after the last one nobody else comes for long.
    #[test]
    fn a_wave_is_announced_at_its_end() {
        for goes_on in [false, true] {
            let mut requester = Requester { goes_on, limit: LIMIT_MAX, ..patient() };
            for wave in 0..100 {
                (1..=32).for_each(|outstanding| requester.on_submits(1, outstanding));
                for cif in (1..=32).rev() {
                    let in_flight = requester.in_flight(0, cif);
                    assert!(wave == 0 || in_flight == cif, "{in_flight} for {cif} in wave {wave}");
                }
            }
        }
    }

    /// Else nothing could be learned from a trial.
    #[test]
    fn whatever_holding_is_thought_to_cost_a_trial_holds_something() {
        for threshold in [2, 8, u16::MAX] {
            for cost in [0, 304, 384, 512] {
                let trial = Trial::that_costs(TICK_HZ, cost);
                let mut requester = Requester { depth: 100_000, trial, ..Requester::new(TICK_HZ, threshold) };
                let threshold = u32::from(threshold);
                for cif in [threshold, 2 * threshold, 4 * threshold] {
                    (0..100).for_each(|_| _ = requester.in_flight(0, 5));
                    assert!(requester.in_flight(0, cif) >= threshold, "T = {threshold}, {cost}: {cif} in flight");
                }
            }
        }
    }

    /// The device is the slower one: what is in flight decides.
    #[test]
    fn a_slow_device_is_kept_busy() {
        let mut requester = patient();
        (1..=32).for_each(|outstanding| requester.on_submits(1, outstanding));
        for _ in 0..100 {
            assert_eq!(requester.in_flight(0, 25), 25);
        }
    }
}
