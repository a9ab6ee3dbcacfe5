//! The waits of a queue for the limits of its disk.

use crate::stats::DeviceStats;

/// Whether a queue waits, although its source has requests.
#[derive(Debug, Default)]
pub(super) struct Pause {
    until: Option<u64>, // ns of the disk's clock
    since: u64,         // up to here its time is counted
    waiting: u32,       // requests that could not be taken, and are not yet
}

impl Pause {
    /// A pause, in which nothing is taken until then. This many requests wait.
    pub(super) const fn begin(&mut self, now: u64, until: u64, waiting: u32) {
        self.until = Some(until);
        self.since = now;
        self.waiting = waiting;
    }

    /// When the queue looks again; `None`: it does not wait.
    pub(super) const fn until(&self) -> Option<u64> {
        self.until
    }

    /// Counts the time of the pause so far.
    pub(super) const fn count(&mut self, now: u64, stats: &mut DeviceStats) {
        if self.until.is_some() {
            stats.throttled_ns += now.saturating_sub(self.since);
            self.since = now;
        }
    }

    /// Ends the pause: the queue looks again. The requests wait on.
    pub(super) const fn end(&mut self, now: u64, stats: &mut DeviceStats) {
        self.count(now, stats);
        self.until = None;
    }

    /// A request is taken. Counts it if it had to wait.
    pub(super) const fn note_taken(&mut self, stats: &mut DeviceStats) {
        if self.waiting > 0 {
            self.waiting -= 1;
            stats.throttled += 1;
        }
    }

    /// Forgets the requests that wait, because their source goes.
    pub(super) const fn forget(&mut self) {
        self.waiting = 0;
    }
}
