//! cint.

use crate::decision::Completed;
pub use cint_core::{Cint as Machine, Config, Decision, Params, StormParams};

pub const CHOICE: u32 = 2;
pub const PARAMS: Params = Params { tick_hz: 25_000_000, delta_ns: 30_000, ..Params::DEFAULT };

/// cint ignores submissions, and what is outstanding.
pub const fn on_submit(_: &mut Machine, _: u64) {}

#[inline(never)]
pub fn on_completion(cint: &mut Machine, now: u64, completed: &Completed, cif: u32, _: u32) -> Decision {
    cint.on_completion(now, completed.hint, Some(cif))
}
