//! A latency budget with its regulator.

pub use budget_core::{Auto as Machine, Config, Params, StormParams};

pub const CHOICE: u32 = 5;
pub const PARAMS: Params = Params { tick_hz: 25_000_000, max_hold_ns: 200_000, ..Params::DEFAULT };
