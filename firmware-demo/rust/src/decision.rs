//! A decision of any policy, and its record in the trace.

use crate::board::NEVER;
use coalesce_decision::{Decision, Event, Reason};

/// The call that asked for the decision.
#[derive(Clone, Copy)]
pub enum Call {
    Completion { event: Event, cif: u32 },
    Deadline,
    Consumed,
    Flush,
}

/// `struct traced` of `lab/device.h`
#[repr(C)]
struct Traced {
    now: u64,
    deadline: u64,
    reason: *const u8,
    reason_length: u32,
    cif: u32,
    queue: u8,
    call: u8,
    hint: u8,
    decision: u8,
}

unsafe extern "C" {
    fn trace(traced: *const Traced);
}

/// The number of what a completion means, in traces.
pub const fn event_number(event: Event) -> u8 {
    match event {
        Event::Plain => 0,
        Event::Barrier => 1,
        Event::Urgent | Event::Error => 2,
    }
}

/// Number and reason of a decision in traces; `None`: there was nothing to decide.
pub const fn numbers(decision: Option<Decision>) -> (u8, &'static str) {
    match decision {
        None => (0, ""),
        Some(Decision::Deliver(reason)) => (1, reason.name()),
        Some(Decision::DeliverUrgent) => (2, Reason::Urgent.name()),
        Some(Decision::Hold(reason)) => (3, reason.name()),
    }
}

/// Records a decision with the deadline after it.
pub fn note(queue: u8, call: Call, now: u64, decision: Option<Decision>, deadline: Option<u64>) {
    let (call, hint, cif) = match call {
        Call::Completion { event, cif } => (0, event_number(event), cif),
        Call::Deadline => (1, 0, 0),
        Call::Consumed => (2, 0, 0),
        Call::Flush => (3, 0, 0),
    };
    let (decision, reason) = numbers(decision);
    let traced = Traced {
        now,
        deadline: deadline.unwrap_or(NEVER),
        reason: reason.as_ptr(),
        reason_length: reason.len() as u32,
        cif,
        queue,
        call,
        hint,
        decision,
    };
    // SAFETY: `trace` copies the structure, and the reason is a static text.
    unsafe { trace(&raw const traced) }
}
