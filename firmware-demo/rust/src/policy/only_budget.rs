//! A latency budget.

use crate::decision::Completed;
pub use budget_core::{Budget as Machine, Config, Decision, Params, StormParams};

pub const CHOICE: u32 = 4;
pub const PARAMS: Params = Params { tick_hz: 25_000_000, max_hold_ns: 200_000, ..Params::DEFAULT };

#[inline(never)]
pub fn on_submit(budget: &mut Machine, now: u64) {
    budget.on_submit(now);
}

#[inline(never)]
pub fn on_completion(budget: &mut Machine, now: u64, completed: &Completed, cif: u32, outstanding: u32) -> Decision {
    budget.on_completion(now, completed.hint.into(), cif, outstanding)
}
