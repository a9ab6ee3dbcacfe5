//! The unit of the account: requests * ticks, in parts of 2^-SHIFT.

/// So fine that a budget of 0.01 % is more than one part.
pub(crate) const SHIFT: u32 = 14;

/// The credit that `held` completions take in each tick.
pub(crate) const fn cost_of(held: u16) -> i64 {
    (held as i64) << SHIFT
}

/// The credit of a time. Rates are at most 2^30, times below 2^31.
pub(crate) const fn times(rate: i64, ticks: u32) -> i64 {
    rate.wrapping_mul(ticks as i64)
}
