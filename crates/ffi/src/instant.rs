//! Instants: ticks of the caller's clock.

/// An instant that never comes: no deadline, no bound, or unknown. As a deadline it does not mean that nothing is held: what ends
/// a hold without a bound in time is said where the deadline is read.
pub const COALESCE_NEVER: u64 = u64::MAX;

/// A deadline as a number. A deadline at the end of the clock's range is reported one tick early, to differ from none.
pub(crate) const fn instant(deadline: u64) -> u64 {
    if deadline == COALESCE_NEVER { COALESCE_NEVER - 1 } else { deadline }
}
