//! What every interrupt coalescing policy would do: simulated, or replayed from a trace.
//!
//! Everything here is deterministic: one seed gives the same bytes on every machine.

#![forbid(unsafe_code)]
