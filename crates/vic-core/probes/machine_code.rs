//! What is inlined into its caller: `scripts/check-cores.sh` looks at the machine code.
#![no_std]

use vic_core::{Completion, Decision, Policy as _, Vic};

/// On a completion.
pub fn on_completion(vic: &mut Vic, now: u64, cif: u32) -> Decision {
    vic.on_completion(now, &Completion::with_cif(cif))
}

/// On a completion, scheduler-aware.
pub fn on_completion_in_slice(vic: &mut Vic, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
    vic.on_completion_in_slice(now, cif, slice_end)
}

/// The deadline.
pub fn deadline(vic: &Vic) -> Option<u64> {
    vic.deadline()
}

/// At the deadline.
pub fn on_deadline(vic: &mut Vic, now: u64) -> Decision {
    vic.on_deadline(now)
}

/// A stop or a reset.
pub fn flush(vic: &mut Vic, now: u64) -> Decision {
    vic.flush(now)
}
