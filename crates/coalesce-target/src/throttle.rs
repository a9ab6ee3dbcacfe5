//! The limits of a disk on requests and bytes per second: two token buckets, which all its queues share.
//!
//! A bucket gets `rate` tokens per second, and holds what it gets in 100 ms, but at least one. A request is taken while each
//! bucket has a token, and then costs what it is worth, also if that is more than there is. So until any moment `t` after `s` no
//! more is taken than `rate * (t - s)`, the bucket, and what the last request is worth beyond a token. Whatever is not taken
//! waits in its ring: no slot, no buffer and no record has it, so a stop, a reset and a front end that leaves do not wait for it,
//! and the next one finds it. Queues that wait have their turns.

mod turns;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use turns::Turns;

/// The highest limit on requests per second.
pub const IOPS_MAX: u64 = 1_000_000_000;
/// The highest limit on bytes per second: 1 TiB.
pub const BYTES_PER_SECOND_MAX: u64 = 1 << 40;

/// What a disk may do in a second; 0: there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Rates {
    /// Requests that read, write, discard or write zeroes.
    pub iops: u64,
    /// Bytes that they read, write or zero.
    pub bytes_per_second: u64,
}

impl Rates {
    /// Checks that they can be kept.
    ///
    /// # Errors
    /// One is too high.
    pub fn check(self) -> Result<()> {
        let Self { iops, bytes_per_second: bytes } = self;
        ensure!(iops <= IOPS_MAX, no_iops(iops));
        ensure!(
            bytes <= BYTES_PER_SECOND_MAX,
            "bytes_per_second is {bytes}; allowed: 1 to {BYTES_PER_SECOND_MAX}, or 0: no limit"
        );
        Ok(())
    }
}

/// What is wrong with a limit on requests per second that is no number, or too high.
pub fn no_iops(iops: impl Display) -> String {
    format!("iops is {iops}; allowed: 1 to {IOPS_MAX}, or 0: no limit")
}

/// What is to change of the limits. What is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RatesChange {
    /// As in [`Rates`].
    pub iops: Option<u64>,
    /// As in [`Rates`].
    pub bytes_per_second: Option<u64>,
}

impl RatesChange {
    /// What these limits become.
    #[must_use]
    pub fn of(self, before: Rates) -> Rates {
        Rates {
            iops: self.iops.unwrap_or(before.iops),
            bytes_per_second: self.bytes_per_second.unwrap_or(before.bytes_per_second),
        }
    }
}

impl From<Rates> for RatesChange {
    fn from(Rates { iops, bytes_per_second }: Rates) -> Self {
        Self { iops: Some(iops), bytes_per_second: Some(bytes_per_second) }
    }
}

/// Levels count billionths of a token, so what a rate gives in a nanosecond is a whole number.
const TOKEN: i128 = 1_000_000_000;
/// The time in which an empty bucket becomes full, in ns: that of QEMU's throttle groups without a burst.
const FULL_AFTER: i128 = 100_000_000;

#[derive(Debug, Default)]
struct Bucket {
    rate: u64, // tokens per second; 0: no limit
    level: i128,
    at: u64, // of the level, in ns
}

impl Bucket {
    fn full(rate: u64, now: u64) -> Self {
        Self { rate, level: Self { rate, ..Self::default() }.most(), at: now }
    }

    fn most(&self) -> i128 {
        (i128::from(self.rate) * FULL_AFTER).max(TOKEN)
    }

    /// Adds what came since the last time. Another queue may have looked at a later time.
    fn fill(&mut self, now: u64) {
        let gained = i128::from(self.rate) * i128::from(now.saturating_sub(self.at));
        self.level = (self.level + gained).min(self.most());
        self.at = self.at.max(now);
    }

    /// When it has a token; `None`: now.
    fn wait(&self) -> Option<u64> {
        let missing = TOKEN - self.level;
        if self.rate == 0 || missing <= 0 {
            return None;
        }
        let rate = i128::from(self.rate);
        let ns = (missing + rate - 1) / rate;
        Some(self.at.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// Takes tokens. Returns the time in which they come, in ns.
    fn charge(&mut self, tokens: u64) -> u64 {
        if self.rate == 0 {
            return 0;
        }
        let worth = i128::from(tokens) * TOKEN;
        self.level -= worth;
        u64::try_from(worth / i128::from(self.rate)).unwrap_or(u64::MAX)
    }

    /// Another rate forgives debts, and gives nothing.
    fn set(&mut self, rate: u64, now: u64) {
        if self.rate == 0 {
            *self = Self::full(rate, now);
            return;
        }
        self.fill(now);
        self.rate = rate;
        self.level = self.level.clamp(0, self.most());
    }
}

/// The limits of a disk, which change while it is served. Times are those of its clock, in ns.
#[derive(Debug, Default)]
pub struct Throttle {
    is_on: AtomicBool,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    requests: Bucket,
    bytes: Bucket,
    turns: Turns,
}

/// The right to take one request. No other queue takes one meanwhile, so none takes what this one is about to cost.
#[derive(Debug)]
pub struct Turn<'a> {
    buckets: MutexGuard<'a, Buckets>,
    queue: usize,
}

impl Throttle {
    /// Limits that begin with full buckets.
    #[must_use]
    pub fn new(rates: Rates) -> Self {
        let throttle = Self::default();
        throttle.change(rates.into(), 0);
        throttle
    }

    /// Changes the limits. Queues that wait must look again.
    pub fn change(&self, change: RatesChange, now: u64) {
        let mut buckets = self.buckets();
        if let Some(iops) = change.iops {
            buckets.requests.set(iops, now);
        }
        if let Some(bytes_per_second) = change.bytes_per_second {
            buckets.bytes.set(bytes_per_second, now);
        }
        buckets.turns = Turns::default();
        let is_on = buckets.requests.rate != 0 || buckets.bytes.rate != 0;
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether there is a limit. All that a disk without one pays.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The right of a queue to take a request.
    ///
    /// # Errors
    /// Not now: there is no token, or it is the turn of others. The time at which to ask again.
    pub fn turn(&self, queue: usize, now: u64) -> Result<Turn<'_>, u64> {
        let mut buckets = self.buckets();
        buckets.requests.fill(now);
        buckets.bytes.fill(now);
        let token = buckets.requests.wait().max(buckets.bytes.wait());
        if let Some(until) = token.or_else(|| buckets.turns.yields(queue, now)) {
            return Err(until);
        }
        buckets.turns.begin(queue);
        Ok(Turn { buckets, queue })
    }

    /// Notes that a queue has requests, and asks again then.
    pub fn note_waiting(&self, queue: usize, until: u64) {
        self.buckets().turns.waits(queue, until);
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Pays for the request that was taken.
    pub fn charge(mut self, requests: u64, bytes: u64) {
        let Buckets { requests: of_requests, bytes: of_bytes, turns } = &mut *self.buckets;
        let cost = of_requests.charge(requests).max(of_bytes.charge(bytes));
        turns.take(self.queue, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn throttle(iops: u64, bytes_per_second: u64) -> Throttle {
        Throttle::new(Rates { iops, bytes_per_second })
    }

    fn set(throttle: &Throttle, iops: u64, bytes_per_second: u64, now: u64) {
        throttle.change(Rates { iops, bytes_per_second }.into(), now);
    }

    /// Takes as many requests of `bytes` as it may at `now`, at most `most`.
    fn take_all(throttle: &Throttle, now: u64, bytes: u64, most: usize) -> usize {
        (0..most).take_while(|_| throttle.turn(0, now).map(|turn| turn.charge(1, bytes)).is_ok()).count()
    }

    #[test]
    fn a_full_bucket_is_100_ms_and_then_a_token_comes_exactly_when_it_is_due() {
        for (iops, burst) in [(1, 1), (3, 1), (10, 1), (15, 1), (1000, 100), (1_000_000, 100_000)] {
            let throttle = throttle(iops, 0);
            assert_eq!(take_all(&throttle, 5, 1 << 30, 1_000_000), burst, "{iops}");
            let most = u64::max(iops * 100_000_000, SECOND); // in billionths of a token, as what is left of it
            let (mut rest, mut now) = (most - burst as u64 * SECOND, 5);
            for token in 1..=1000 {
                let due = now + (SECOND - rest).div_ceil(iops);
                assert_eq!(throttle.turn(0, now).unwrap_err(), due, "{iops}: token {token}");
                assert!(throttle.turn(0, due - 1).is_err(), "{iops}: a nanosecond too early");
                assert_eq!(take_all(&throttle, due, 1 << 30, 10), 1, "{iops}: token {token}");
                rest = u64::min(rest + iops * (due - now), most) - SECOND;
                now = due;
            }
            let ideal = 1000 * SECOND / iops;
            assert!(
                (ideal.saturating_sub(100_000_000)..=5 + ideal + 1000).contains(&now),
                "{iops}: 1000 tokens in {now} ns"
            );
        }
    }

    #[test]
    fn a_request_of_more_bytes_than_there_are_is_taken_and_paid_for_afterwards() {
        let throttle = throttle(0, 1000);
        throttle.turn(0, 0).unwrap().charge(1, 5000); // 100 are there
        assert_eq!(throttle.turn(0, 0).unwrap_err(), 4_901 * SECOND / 1000);
        assert!(throttle.turn(0, 4_901 * SECOND / 1000 - 1).is_err());
        throttle.turn(0, 4_901 * SECOND / 1000).unwrap().charge(1, 1);
        assert!(throttle.turn(0, 4_901 * SECOND / 1000).is_err());
    }

    #[test]
    fn both_limits_hold_and_what_costs_nothing_waits_only_for_its_turn() {
        let throttle = throttle(10, 1000);
        throttle.turn(0, 0).unwrap().charge(1, 10);
        assert_eq!(throttle.turn(0, 0).unwrap_err(), SECOND / 10, "for a request");
        throttle.turn(0, SECOND / 10).unwrap().charge(1, 1100);
        assert_eq!(throttle.turn(0, SECOND / 5).unwrap_err(), SECOND / 10 + 1001 * SECOND / 1000, "for bytes");
        throttle.turn(0, 2 * SECOND).unwrap().charge(0, 0);
        throttle.turn(0, 2 * SECOND).unwrap().charge(0, 0);
    }

    #[test]
    fn other_limits_forgive_debts_and_give_nothing() {
        let throttle = throttle(0, 10);
        assert!(throttle.is_on());
        throttle.turn(0, 0).unwrap().charge(1, 1 << 40);
        assert!(throttle.turn(0, 0).unwrap_err() > SECOND << 30);
        set(&throttle, 0, 1000, SECOND);
        assert_eq!(throttle.turn(0, SECOND).unwrap_err(), SECOND + SECOND / 1000);
        throttle.turn(0, SECOND + SECOND / 1000).unwrap().charge(1, 1);
        set(&throttle, 0, 1000, 2 * SECOND);
        assert_eq!(take_all(&throttle, 2 * SECOND, 1, 1000), 100, "not more than it had");
        set(&throttle, 0, 0, 2 * SECOND);
        assert!(!throttle.is_on() && take_all(&throttle, 2 * SECOND, 1 << 40, 100) == 100);
    }

    #[test]
    fn a_queue_whose_clock_was_read_earlier_neither_gains_nor_loses() {
        let throttle = throttle(1000, 0);
        assert_eq!(take_all(&throttle, SECOND, 0, 1000), 100);
        for now in [SECOND / 2, 0, SECOND] {
            assert_eq!(throttle.turn(0, now).unwrap_err(), SECOND + SECOND / 1000);
        }
        assert_eq!(take_all(&throttle, SECOND + 2 * SECOND / 1000, 0, 1000), 2);
    }

    #[test]
    fn the_highest_limits_and_the_longest_times_do_not_overflow() {
        let throttle = throttle(IOPS_MAX, BYTES_PER_SECOND_MAX);
        throttle.turn(0, u64::MAX).unwrap().charge(u64::MAX, u64::MAX);
        assert!(throttle.turn(0, u64::MAX).is_err());
        let slow = super::Throttle::new(Rates { iops: 1, bytes_per_second: 1 });
        slow.turn(0, u64::MAX).unwrap().charge(u64::MAX, u64::MAX);
        assert_eq!(slow.turn(0, u64::MAX).unwrap_err(), u64::MAX);
        assert!(Rates { iops: IOPS_MAX + 1, bytes_per_second: 0 }.check().is_err());
        assert!(Rates { iops: 0, bytes_per_second: BYTES_PER_SECOND_MAX + 1 }.check().is_err());
        Rates { iops: IOPS_MAX, bytes_per_second: BYTES_PER_SECOND_MAX }.check().unwrap();
    }

    /// Queues that always have requests, each with its own size, ask again when they were told to, or later by what a sleep
    /// overshoots. None is ahead of another by more than the slack, and what two of them take at once.
    #[test]
    fn queues_that_wait_are_served_alike() {
        for (iops, bytes, sizes) in
            [(1000, 0, [4096; 3]), (100_000, 0, [512; 3]), (20, 0, [0; 3]), (0, 50_000_000, [4096, 65_536, 131_072])]
        {
            let throttle = throttle(iops, bytes);
            let mut asks = [0, 1, 2]; // when each asks again
            let mut costs = [0; 3]; // ns of the limit that each has had
            let cost = |len: u64| SECOND.checked_div(iops).unwrap_or_else(|| len * SECOND / bytes);
            let (end, mut sleeps) = (20 * SECOND, (1..).map(|i: u64| i * 7919 % 60_000));
            let mut since = [0; 3];
            loop {
                let queue = (0..3).min_by_key(|&queue| asks[queue]).unwrap();
                let now = asks[queue];
                if now > end {
                    break;
                }
                if since == [0; 3] && now > SECOND {
                    since = costs; // the bucket was full when the first came
                }
                asks[queue] = loop {
                    match throttle.turn(queue, now) {
                        Ok(turn) => turn.charge(1, sizes[queue]),
                        Err(until) => {
                            throttle.note_waiting(queue, until);
                            break until + sleeps.next().unwrap();
                        }
                    }
                    costs[queue] += cost(sizes[queue]);
                };
            }
            let had = [0, 1, 2].map(|queue| costs[queue] - since[queue]);
            let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
            let allowed = 1_000_000 + 2 * cost(*sizes.iter().max().unwrap()) + 1000;
            assert!(most - least <= allowed, "{iops} {bytes}: {had:?}, allowed {allowed}");
            let total: u64 = had.iter().sum();
            assert!(total.abs_diff(19 * SECOND) < SECOND / 20, "{iops} {bytes}: all of the limit is used: {had:?}");
        }
    }

    #[test]
    fn a_queue_that_does_not_come_is_not_waited_for_and_one_that_was_idle_saved_nothing_up() {
        let throttle = throttle(1000, 0);
        assert_eq!(take_all(&throttle, 0, 0, 1000), 100, "all that there was");
        throttle.note_waiting(1, SECOND / 1000);
        // Queue 0 has had more than queue 1, which asked to come at 1 ms.
        assert_eq!(throttle.turn(0, SECOND / 1000).unwrap_err(), 2 * SECOND / 1000, "it lets the other go first");
        assert_eq!(throttle.turn(0, 11 * SECOND / 1000).unwrap_err(), 12 * SECOND / 1000);
        assert!(throttle.turn(0, 11 * SECOND / 1000 + 1).is_ok(), "the other does not come");
        // For an hour only queue 0 comes. Then both do.
        for second in 1..3600 {
            take_all(&throttle, second * SECOND, 0, 1000);
        }
        let mut taken = [0_u32; 2];
        for now in (3600 * SECOND..3601 * SECOND).step_by(1_000_000) {
            for (queue, taken) in taken.iter_mut().enumerate() {
                match throttle.turn(queue, now) {
                    Ok(turn) => {
                        turn.charge(1, 0);
                        *taken += 1;
                    }
                    Err(until) => throttle.note_waiting(queue, until),
                }
            }
        }
        assert!(taken[0] + taken[1] >= 1000 && taken[0].abs_diff(taken[1]) <= 110, "{taken:?}");
    }

    proptest! {
        /// Several queues that ask whenever they like, for requests of any size.
        #[test]
        fn in_no_interval_is_more_taken_than_its_rate_the_bucket_and_one_request(
            (iops, bytes) in (1_u64..5_000, 1_u64..2_000_000),
            steps in prop::collection::vec((0_u64..50_000_000, 0_u64..300_000), 1..200),
        ) {
            let throttle = throttle(iops, bytes);
            let (mut now, mut taken) = (0, Vec::new());
            for (pause, len) in steps {
                now += pause;
                if let Ok(turn) = throttle.turn(0, now) {
                    turn.charge(1, len);
                    taken.push((now, len));
                }
            }
            for first in 0..taken.len() {
                let mut sum = 0;
                for (at, len) in &taken[first..] {
                    let ns = u128::from(at - taken[first].0);
                    let allowed = |rate: u64| {
                        (u128::from(rate) * (ns + FULL_AFTER as u128)).max(u128::from(rate) * ns + TOKEN as u128)
                    };
                    // Before the last request there was a token.
                    prop_assert!((u128::from(sum) + 1) * TOKEN as u128 <= allowed(bytes), "{sum} bytes in {ns} ns");
                    sum += len;
                }
                for (count, (at, _)) in taken[first..].iter().enumerate() {
                    let ns = u128::from(at - taken[first].0);
                    let allowed = (u128::from(iops) * (ns + FULL_AFTER as u128)).max(u128::from(iops) * ns + TOKEN as u128);
                    prop_assert!((count as u128 + 1) * TOKEN as u128 <= allowed, "{} requests in {ns} ns", count + 1);
                }
            }
        }
    }
}
