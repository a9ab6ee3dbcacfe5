//! A latency budget.

pub use budget_core::{Budget as Machine, Config, Params, StormParams};

pub const CHOICE: u32 = 4;
pub const PARAMS: Params = Params { tick_hz: 25_000_000, max_hold_ns: 200_000, ..Params::DEFAULT };
