//! The calls of a device: `scripts/check-cores.sh` looks at their machine code.
#![no_std]

use budget_core::{Budget, Decision, Event};

/// On a completion.
pub fn on_completion(budget: &mut Budget, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
    budget.on_completion(now, event, cif, outstanding)
}

/// On a submission.
pub fn on_submit(budget: &mut Budget, now: u64, outstanding: u32) {
    budget.on_submit(now, outstanding);
}

/// The deadline.
pub fn deadline(budget: &Budget) -> Option<u64> {
    budget.deadline()
}
