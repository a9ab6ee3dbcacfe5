//! A command of a recorded trace.

use crate::trace::Request;

/// A command that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in ns of simulated time.
    pub at: u64,
    /// The trace's queue, or disk: an index.
    pub queue: u32,
    /// What the trace says of it.
    pub request: Request,
}
