//! cint.

pub use cint_core::{Cint as Machine, Config, Params, StormParams};

pub const CHOICE: u32 = 2;
pub const PARAMS: Params = Params { tick_hz: 25_000_000, delta_ns: 30_000, ..Params::DEFAULT };
