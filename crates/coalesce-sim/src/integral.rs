//! A number of requests, and its integral over time.

/// A number that changes, and its integral since the beginning, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Integral {
    value: u64,
    since: u64,
    sum: u128,
}

impl Integral {
    /// The number changes by `by` at `now`.
    pub(crate) fn change(&mut self, now: u64, by: i64) {
        self.sum = self.until(now);
        self.since = now;
        self.value = self.value.checked_add_signed(by).expect("no more go than came");
    }

    /// The integral until `now`.
    pub(crate) fn until(&self, now: u64) -> u128 {
        self.sum + u128::from(now.saturating_sub(self.since)) * u128::from(self.value)
    }

    /// The same number, whose integral begins now.
    pub(crate) const fn restarted(&self, now: u64) -> Self {
        Self { value: self.value, since: now, sum: 0 }
    }
}
