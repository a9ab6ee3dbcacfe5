//! Polling before sleeping. For a short wait, polling costs less than a wake-up.

use crate::stats::PollStats;

/// The shortest poll, in ns.
const SHORTEST_NS: u64 = 4_000;

/// Adapts the length of polls: twice the wait that a poll could have spared, and half as long after each longer wait, down
/// to 0.
#[derive(Debug)]
pub struct AdaptivePoll {
    max_ns: u64,
    now_ns: u64,
    stats: Option<PollStats>, // since they were taken last
}

impl AdaptivePoll {
    /// Polls up to `max_ns`; 0: never.
    #[must_use]
    pub fn new(max_ns: u64) -> Self {
        Self { max_ns, now_ns: 0, stats: None }
    }

    /// The length of the poll before the next sleep, in ns.
    #[must_use]
    pub const fn length_ns(&self) -> u64 {
        self.now_ns
    }

    /// The longest poll, in ns.
    #[must_use]
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Notes that a poll found work.
    pub fn paid(&mut self) {
        self.stats.get_or_insert_default().paid += 1;
    }

    /// Notes that a poll of `polled_ns` found no work, and that the sleep after it took `slept_ns`.
    pub fn slept(&mut self, polled_ns: u64, slept_ns: u64) {
        let stats = self.stats.get_or_insert_default();
        stats.sleeps += 1;
        if polled_ns > 0 {
            stats.wasted += 1;
            stats.wasted_ns += polled_ns;
        }
        let waited_ns = polled_ns + slept_ns;
        self.now_ns = if waited_ns <= self.max_ns {
            (2 * waited_ns).clamp(SHORTEST_NS.min(self.max_ns), self.max_ns)
        } else {
            Some(self.now_ns / 2).filter(|half| *half >= SHORTEST_NS).unwrap_or(0)
        };
    }

    /// What was counted since this was asked last, if anything.
    pub const fn take_stats(&mut self) -> Option<PollStats> {
        self.stats.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_twice_a_short_wait_and_ends_after_long_ones() {
        let mut poll = AdaptivePoll::new(32_000);
        assert_eq!(poll.length_ns(), 0);
        let mut after = |slept_ns| {
            poll.slept(poll.length_ns(), slept_ns);
            poll.length_ns()
        };
        assert_eq!([1_000, 1_000, 6_000].map(&mut after), [4_000, 10_000, 32_000]);
        assert_eq!([1, 1_000_000, 1_000_000].map(&mut after), [16_000, 8_000, 4_000], "more than the longest");
        assert_eq!([1_000_000, 32_001, 32_000].map(&mut after), [0, 0, 32_000]);
    }

    #[test]
    fn never_polls_with_a_limit_of_zero() {
        let mut poll = AdaptivePoll::new(0);
        poll.slept(0, 0);
        assert_eq!(poll.length_ns(), 0);
    }
}
