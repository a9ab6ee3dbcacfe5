//! Open loop: when requests arrive, whatever the target does.
//!
//! An arrival that finds no room waits, and its latency counts from the intended time, so a slow target cannot
//! hide by slowing the load down (no "coordinated omission").

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// When arrivals come, and when they stop.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Mean distance of two arrivals.
    pub interval_ns: f64,
    /// Time of the first arrival.
    pub first_ns: f64,
    /// Exponentially distributed distances instead of equal ones.
    pub poisson: bool,
    /// Seed of the exponential distribution.
    pub seed: u64,
    /// No arrival at or after this time.
    pub end_ns: u64,
    /// At most this many arrivals.
    pub count_max: u64,
}

/// What the open loop has to offer at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An arrival is waiting since this time (and is now taken).
    Waiting(u64),
    /// The next arrival comes at this time.
    At(u64),
    /// There will be no more.
    Over,
}

/// The arrivals of one queue: how many are due and how many of those were issued.
///
/// Both sides run through the same sequence, so waiting arrivals need no memory, however many they are.
#[derive(Debug)]
pub struct OpenLoop {
    due: Arrivals,
    issued: Arrivals,
}

impl OpenLoop {
    /// The arrivals of `schedule`, none of them issued.
    pub fn new(schedule: Schedule) -> Self {
        let arrivals = Arrivals::new(schedule);
        Self { due: arrivals.clone(), issued: arrivals }
    }

    /// Take the oldest arrival that is due at `now_ns` and was not issued yet.
    pub fn take(&mut self, now_ns: u64) -> Next {
        match self.issued.peek() {
            None => Next::Over,
            Some(at) if at > now_ns => Next::At(at),
            Some(at) => {
                self.issued.advance();
                Next::Waiting(at)
            }
        }
    }

    /// Arrivals due at `now_ns` that were not issued.
    pub fn backlog(&mut self, now_ns: u64) -> u64 {
        while self.due.peek().is_some_and(|at| at <= now_ns) {
            self.due.advance();
        }
        self.due.count.saturating_sub(self.issued.count)
    }

    /// Arrivals that were due when [`backlog`](Self::backlog) was last asked for.
    pub fn arrivals(&self) -> u64 {
        self.due.count.max(self.issued.count)
    }
}

#[derive(Clone, Debug)]
struct Arrivals {
    schedule: Schedule,
    random: SmallRng,
    count: u64,
    next_ns: f64,
}

impl Arrivals {
    fn new(schedule: Schedule) -> Self {
        let random = SmallRng::seed_from_u64(schedule.seed);
        Self { schedule, random, count: 0, next_ns: schedule.first_ns }
    }

    fn peek(&self) -> Option<u64> {
        let at = self.next_ns as u64;
        (at < self.schedule.end_ns && self.count < self.schedule.count_max).then_some(at)
    }

    fn advance(&mut self) {
        self.count += 1;
        if self.schedule.poisson {
            let uniform: f64 = self.random.random();
            self.next_ns += -(1.0 - uniform).ln() * self.schedule.interval_ns;
        } else {
            // Not a running sum: its rounding errors would add up to a different rate.
            self.next_ns = self.schedule.first_ns + self.count as f64 * self.schedule.interval_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(poisson: bool) -> Schedule {
        Schedule { interval_ns: 1000.0, first_ns: 0.0, poisson, seed: 7, end_ns: 1_000_000, count_max: u64::MAX }
    }

    fn drain(open: &mut OpenLoop, now_ns: u64) -> Vec<u64> {
        std::iter::from_fn(|| match open.take(now_ns) {
            Next::Waiting(at) => Some(at),
            Next::At(_) | Next::Over => None,
        })
        .collect()
    }

    #[test]
    fn fixed_arrivals_are_exactly_rate_times_time() {
        let mut open = OpenLoop::new(schedule(false));
        assert_eq!(open.backlog(u64::MAX), 1000);
        let times = drain(&mut open, u64::MAX);
        assert_eq!(times.len(), 1000);
        assert_eq!(times[999], 999_000);
        assert_eq!((open.backlog(u64::MAX), open.arrivals()), (0, 1000));
        assert_eq!(open.take(u64::MAX), Next::Over);
    }

    #[test]
    fn third_of_a_nanosecond_does_not_drift() {
        let mut open = OpenLoop::new(Schedule { interval_ns: 1e9 / 3e6, end_ns: 1_000_000_000, ..schedule(false) });
        assert_eq!(open.backlog(u64::MAX), 3_000_000);
    }

    #[test]
    fn nothing_is_issued_before_its_time_and_waiting_keeps_the_intended_time() {
        let mut open = OpenLoop::new(schedule(false));
        assert_eq!(open.take(0), Next::Waiting(0));
        assert_eq!(open.take(999), Next::At(1000));
        assert_eq!(open.take(1000), Next::Waiting(1000));
        assert_eq!(open.backlog(4500), 3);
        assert_eq!(open.take(4500), Next::Waiting(2000));
        assert_eq!(open.backlog(4500), 2);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_repeat_with_the_seed() {
        let long = Schedule { end_ns: 1_000_000_000, ..schedule(true) };
        let times = drain(&mut OpenLoop::new(long), u64::MAX);
        // One million expected, standard deviation 1000.
        assert!((995_000..1_005_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        assert_eq!(times, drain(&mut OpenLoop::new(long), u64::MAX));
        assert_eq!(OpenLoop::new(long).backlog(u64::MAX), times.len() as u64);
    }

    #[test]
    fn count_limit_ends_the_arrivals() {
        let mut open = OpenLoop::new(Schedule { count_max: 3, ..schedule(false) });
        assert_eq!(drain(&mut open, u64::MAX), [0, 1000, 2000]);
        assert_eq!(open.take(u64::MAX), Next::Over);
    }
}
