//! The arrivals of an open loop, which do not depend on the target.
//!
//! An arrival that finds no room waits. Its latency counts from the intended time, so a slow target cannot hide its
//! latency by slowing the load down (no "coordinated omission").

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::Pauses;

/// The times of the arrivals, and their end.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Mean interval between two arrivals, not counting pauses.
    pub interval_ns: f64,
    /// Time of the first arrival, not counting pauses.
    pub first_ns: f64,
    /// Whether intervals are exponentially distributed instead of equal.
    pub poisson: bool,
    /// Times with arrivals and without, in turn. The interval is that of the times with arrivals.
    pub pauses: Option<Pauses>,
    /// Seed of the exponential distribution.
    pub seed: u64,
    /// No arrival at or after this time.
    pub end_ns: u64,
    /// At most this many arrivals.
    pub count_max: u64,
}

/// The open loop's answer to the question for the next arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// An arrival, due since this time. It is taken now.
    Waiting(u64),
    /// The next arrival comes at this time.
    At(u64),
    /// No arrival is left.
    Over,
}

/// The arrivals of one queue: those that are due, and those of them that were issued.
///
/// Both counts step through the same sequence of times, so waiting arrivals need no memory.
#[derive(Debug)]
pub struct OpenLoop {
    due: Arrivals,
    issued: Arrivals,
}

impl OpenLoop {
    /// The arrivals of `schedule`. None is issued yet.
    pub fn new(schedule: Schedule) -> Self {
        let arrivals = Arrivals::new(schedule);
        Self { due: arrivals.clone(), issued: arrivals }
    }

    /// Takes the oldest arrival that is due at `now_ns` and not issued.
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

    /// The number of arrivals that are due at `now_ns` and not issued.
    pub fn backlog(&mut self, now_ns: u64) -> u64 {
        while self.due.peek().is_some_and(|at| at <= now_ns) {
            self.due.advance();
        }
        self.due.count.saturating_sub(self.issued.count)
    }

    /// The number of arrivals that were due at the last call of [`backlog`](Self::backlog).
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
        let at = match self.schedule.pauses {
            Some(Pauses { on_us, off_us }) => {
                let on_ns = (on_us * 1000) as f64;
                (self.next_ns + (self.next_ns / on_ns).floor() * (off_us * 1000) as f64) as u64
            }
            None => self.next_ns as u64,
        };
        (at < self.schedule.end_ns && self.count < self.schedule.count_max).then_some(at)
    }

    fn advance(&mut self) {
        self.count += 1;
        if self.schedule.poisson {
            let uniform: f64 = self.random.random();
            self.next_ns += -(1.0 - uniform).ln() * self.schedule.interval_ns;
        } else {
            // Computed from the index. The rounding errors of a running sum would change the rate.
            self.next_ns = self.schedule.first_ns + self.count as f64 * self.schedule.interval_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(poisson: bool) -> Schedule {
        Schedule {
            interval_ns: 1000.0,
            first_ns: 0.0,
            poisson,
            pauses: None,
            seed: 7,
            end_ns: 1_000_000,
            count_max: u64::MAX,
        }
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
    fn an_interval_with_a_fraction_of_a_nanosecond_does_not_drift() {
        let mut open = OpenLoop::new(Schedule { interval_ns: 1e9 / 3e6, end_ns: 1_000_000_000, ..schedule(false) });
        assert_eq!(open.backlog(u64::MAX), 3_000_000);
    }

    #[test]
    fn no_arrival_is_early_and_a_waiting_one_keeps_its_intended_time() {
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
        // One million arrivals are expected, with a standard deviation of 1000.
        assert!((995_000..1_005_000).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
        assert_eq!(times, drain(&mut OpenLoop::new(long), u64::MAX));
        assert_eq!(OpenLoop::new(long).backlog(u64::MAX), times.len() as u64);
    }

    #[test]
    fn nothing_arrives_in_a_pause() {
        let pauses = Some(Pauses { on_us: 3, off_us: 10 });
        let mut open = OpenLoop::new(Schedule { pauses, end_ns: 28_000, ..schedule(false) });
        assert_eq!(drain(&mut open, u64::MAX), [0, 1000, 2000, 13_000, 14_000, 15_000, 26_000, 27_000]);
        let times = drain(&mut OpenLoop::new(Schedule { pauses, ..schedule(true) }), u64::MAX);
        assert!(times.iter().all(|at| at % 13_000 < 3000));
        // 231 are expected, with a standard deviation of 15.
        assert!((170..290).contains(&times.len()), "{}", times.len());
    }

    #[test]
    fn a_count_limit_ends_the_arrivals() {
        let mut open = OpenLoop::new(Schedule { count_max: 3, ..schedule(false) });
        assert_eq!(drain(&mut open, u64::MAX), [0, 1000, 2000]);
        assert_eq!(open.take(u64::MAX), Next::Over);
    }
}
