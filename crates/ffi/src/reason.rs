//! The reasons of decisions.

use coalesce_decision::{HoldReason, Reason};
use core::ffi::c_char;

/// No decision yet.
pub const COALESCE_REASON_NONE: u32 = 0;
/// Delivered: a completion was held for `max_hold`.
pub const COALESCE_REASON_MAX_HOLD: u32 = 1;
/// Delivered: the guest's timeslice ends before the next interrupt is expected.
pub const COALESCE_REASON_SLICE_END: u32 = 2;
/// Delivered: CIF is below `cif_threshold` (vIC); latency budget: no company expected.
pub const COALESCE_REASON_LOW_CIF: u32 = 3;
/// Delivered: it is this completion's turn in a cycle of the delivery ratio.
pub const COALESCE_REASON_RATIO: u32 = 4;
/// Delivered: the delivery ratio is 1.
pub const COALESCE_REASON_ALWAYS: u32 = 5;
/// Delivered: with this completion, more than max(1, CIF / (2 * `cif_threshold`)) would be held (`live_clamp`).
pub const COALESCE_REASON_LIVE_CLAMP: u32 = 6;
/// Delivered: at queue stop, reset or migration, or when nothing may be held.
pub const COALESCE_REASON_FLUSH: u32 = 7;
/// Delivered: the guest was scheduled on a CPU.
pub const COALESCE_REASON_SCHEDULE: u32 = 8;
/// Delivered: the guest was descheduled from its CPU.
pub const COALESCE_REASON_DESCHEDULE: u32 = 9;
/// Delivered: Δ passed without a completion.
pub const COALESCE_REASON_DELTA: u32 = 10;
/// Delivered: an interrupt that the storm guard had deferred.
pub const COALESCE_REASON_STORM: u32 = 11;
/// Delivered: a ticket or a hint is invalid, or a command failed (`nvme`).
pub const COALESCE_REASON_ERROR: u32 = 12;
/// Delivered: a Barrier has completed; if Barriers are strict, its whole batch.
pub const COALESCE_REASON_BARRIER: u32 = 13;
/// Delivered: somebody waits for this command.
pub const COALESCE_REASON_URGENT: u32 = 14;
/// Delivered: the count reached its limit: `thr` (cint, latency budget) or the threshold (`nvme`, `dim`).
pub const COALESCE_REASON_COUNT: u32 = 15;
/// Delivered: the CIF is below the threshold T, or more than max(1, CIF / 2T) would be held (the `in_flight` rule).
pub const COALESCE_REASON_IN_FLIGHT: u32 = 16;
/// Delivered: the device has posted everything that it had to post.
pub const COALESCE_REASON_BATCH_END: u32 = 17;
/// Delivered: the aggregation time (NVMe Feature 08h, `dim`) or the delay (`spdk_vhost`) passed.
pub const COALESCE_REASON_TIME: u32 = 18;
/// Delivered: the first completion of a poll.
pub const COALESCE_REASON_LEADING_EDGE: u32 = 19;
/// Delivered: coalescing is disabled (NVMe Features 08h, 09h).
pub const COALESCE_REASON_DISABLED: u32 = 20;
/// Delivered: the command belongs to the admin queue.
pub const COALESCE_REASON_ADMIN: u32 = 21;
/// Delivered: the latency budget cannot pay for a hold, or 2 ε of the outstanding commands are held already.
pub const COALESCE_REASON_BUDGET: u32 = 22;
/// Delivered: no completion came for eight times the usual gap (latency budget).
pub const COALESCE_REASON_SILENCE: u32 = 23;
/// Delivered: the regulator of `auto` has found that holding slows the requesters down, or compares holding with not
/// holding.
pub const COALESCE_REASON_SLOWDOWN: u32 = 24;
/// Held: it is not this completion's turn in a cycle of the delivery ratio.
pub const COALESCE_REASON_HOLD_RATIO: u32 = 32;
/// Held: nothing is held, so an interrupt would cover nothing.
pub const COALESCE_REASON_HOLD_NOTHING_HELD: u32 = 33;
/// Held: the deadline has not passed.
pub const COALESCE_REASON_HOLD_EARLY: u32 = 34;
/// Held: the new configuration is in force, and nothing is due under it.
pub const COALESCE_REASON_HOLD_RECONFIGURED: u32 = 35;
/// Held: the burst continues.
pub const COALESCE_REASON_HOLD_BURST: u32 = 36;
/// Held: an interrupt is due, and the storm guard defers it.
pub const COALESCE_REASON_HOLD_STORM: u32 = 37;
/// Held: the command was cancelled, and nothing is due.
pub const COALESCE_REASON_HOLD_CANCELLED: u32 = 38;
/// Held: neither the threshold nor the time is reached (NVMe Feature 08h, `dim`).
pub const COALESCE_REASON_HOLD_AGGREGATE: u32 = 39;
/// Held: the poll continues (`batch`, `spdk_vhost`).
pub const COALESCE_REASON_HOLD_BATCH: u32 = 40;
/// Held: others are expected to share the interrupt, and the budget pays for the wait.
pub const COALESCE_REASON_HOLD_COMPANY: u32 = 41;
/// Held: a trial finds out whether holding makes the requests faster (latency budget).
pub const COALESCE_REASON_HOLD_PROBE: u32 = 42;
/// Held: the host has work enough, and trials have shown that holding makes the requests faster (`auto`, licensed).
pub const COALESCE_REASON_HOLD_LICENSED: u32 = 43;

/// The name of a reason, as in traces and statistics. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_reason_name(reason: u32) -> *const c_char {
    let text = match (Reason::from_number(reason), HoldReason::from_number(reason)) {
        (Some(reason), _) => reason.c_name(),
        (None, Some(reason)) => reason.c_name(),
        (None, None) if reason == COALESCE_REASON_NONE => c"none",
        (None, None) => c"unknown",
    };
    text.as_ptr()
}
