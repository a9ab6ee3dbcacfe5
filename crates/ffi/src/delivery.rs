//! The interrupts of one queue, on hosts: `coalesce_delivery_...`. For devices that post and interrupt by themselves.

use crate::instant::{COALESCE_NEVER, instant};
use crate::policy::{
    bypassed_at, coalesce_bypassed, coalesce_completion, coalesce_mark, coalesce_policy, coalesce_request, read_policy,
    submit,
};
use crate::status::*;
use crate::tagged::{answer, read_config};
use ::coalesce_delivery::{Deferred, Interrupt};
use ::coalesce_policy::{Decision, HoldReason, Mark, Policy as _, Submission, Submissions};
use core::ffi::c_char;
use std::boxed::Box;

/// A policy for one interrupt vector, and what it holds. It keeps the order of decision and interrupt: what it has decided to
/// deliver stays due until `coalesce_delivery_interrupted`, whatever happens in between. That interrupt covers everything that
/// completed before it. Functions that return a decision answer `COALESCE_DELIVER` as long as an interrupt is due.
///
/// The device posts a completion, reports it, and interrupts if one is due and the guest wants it; then it says so.
#[derive(Debug)]
pub struct coalesce_delivery(Deferred<coalesce_policy>);

/// What may change with every call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_delivery_view {
    /// The instant at which to call `coalesce_delivery_on_deadline`; 1: an interrupt is due; `COALESCE_NEVER`: nothing waits for an
    /// instant, as `coalesce_policy_deadline`.
    pub deadline: u64,
    /// Completions that are held. Those for which an interrupt is due are not.
    pub held: u64,
    /// An interrupt is due.
    pub is_due: bool,
    /// As `coalesce_policy_may_hold`: if it may not, and nothing is held or due, the device may interrupt without asking.
    pub may_hold: bool,
    /// As `coalesce_policy_wants_submit`.
    pub wants_submit: bool,
    /// As `coalesce_policy_wants_each_submit`.
    pub wants_each_submit: bool,
    /// As `coalesce_policy_wants_batch_end`.
    pub wants_batch_end: bool,
}

/// What was counted since the beginning, or since `coalesce_delivery_reset_stats`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_delivery_counts {
    /// Completions.
    pub completions: u64,
    /// Interrupts that were sent.
    pub interrupts: u64,
    /// Interrupts that the guest did not want.
    pub suppressed: u64,
    /// Completions that the guest reaped while they were held.
    pub consumed: u64,
    /// Completions that were held, and are not any more. `coalesce_delivery_hold_ns` says for how long.
    pub holds: u64,
    /// The mean of the times for which they were held, in ns.
    pub hold_mean_ns: u64,
}

/// The interrupt was sent.
pub const COALESCE_INTERRUPT_SENT: u32 = 0;
/// The guest wants no interrupt, and finds the completions by itself.
pub const COALESCE_INTERRUPT_UNWANTED: u32 = 1;
/// The interrupt could not be sent now. It is due, whether the policy has decided so or not.
pub const COALESCE_INTERRUPT_FAILED: u32 = 2;

/// Tells a delivery something, and answers whether an interrupt is due; null delivers.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody else uses during the call.
unsafe fn tell(delivery: *mut coalesce_delivery, call: impl FnOnce(&mut Deferred<coalesce_policy>)) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { delivery.as_mut() }.map_or(COALESCE_E_NULL, |delivery| {
        call(&mut delivery.0);
        if delivery.0.is_due() { COALESCE_DELIVER } else { COALESCE_HOLD }
    })
}

/// [`tell`] for what needs no decision.
///
/// # Safety
/// As there.
unsafe fn note(delivery: *mut coalesce_delivery, call: impl FnOnce(&mut Deferred<coalesce_policy>)) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, call) }.min(COALESCE_OK)
}

/// Creates a delivery: a policy from its text form, as `coalesce_policy_new`.
///
/// # Safety
/// As there.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_new(
    text: *const c_char,
    tick_hz: u64,
    message: *mut c_char,
    message_size: usize,
) -> *mut coalesce_delivery {
    // SAFETY: the caller's promise.
    let policy = unsafe { read_policy(text, tick_hz, message, message_size) };
    policy.map_or(core::ptr::null_mut(), |policy| Box::into_raw(Box::new(coalesce_delivery(Deferred::new(policy)))))
}

/// Frees a delivery; null is allowed. Flush it first, and interrupt, so that no held completion loses its interrupt.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody uses any more, nor its policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_free(delivery: *mut coalesce_delivery) {
    if !delivery.is_null() {
        // SAFETY: it came from `coalesce_delivery_new`.
        drop(unsafe { Box::from_raw(delivery) });
    }
}

/// Its policy, for the functions of a `coalesce_policy` that take a `const` one: text form, statistics, hints. Null for null.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody changes as long as the answer is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_policy(delivery: *const coalesce_delivery) -> *const coalesce_policy {
    // SAFETY: the caller's promise.
    unsafe { delivery.as_ref() }.map_or(core::ptr::null(), |delivery| core::ptr::from_ref(delivery.0.policy()))
}

/// What may change with every call. Without a delivery, an interrupt is due.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody changes during the call; `view` is null or points to `view_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_look(
    delivery: *const coalesce_delivery,
    view: *mut coalesce_delivery_view,
    view_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let delivery = unsafe { delivery.as_ref() }.map(|delivery| &delivery.0);
    let seen = delivery.map(|delivery| {
        let (policy, wanted) = (delivery.policy(), delivery.policy().wants_submit());
        coalesce_delivery_view {
            // A timerfd that is set to 0 is disarmed.
            deadline: delivery.deadline().map_or(COALESCE_NEVER, |deadline| instant(deadline.max(1))),
            held: delivery.held() as u64,
            is_due: delivery.is_due(),
            may_hold: policy.may_hold(),
            wants_submit: wanted != Submissions::None,
            wants_each_submit: wanted == Submissions::Each,
            wants_batch_end: policy.wants_batch_end(),
        }
    });
    let absent = coalesce_delivery_view {
        deadline: 1,
        held: 0,
        is_due: true,
        may_hold: false,
        wants_submit: false,
        wants_each_submit: false,
        wants_batch_end: false,
    };
    // SAFETY: the caller's promise.
    let status = unsafe { answer(view, view_size, seen.unwrap_or(absent)) };
    if delivery.is_some() { status } else { COALESCE_E_NULL }
}

/// Changes the policy or its parameters, as `coalesce_policy_reconfigure`, and decides about what is held. What is due stays due.
/// `COALESCE_E_CONFIG`: the text is invalid, `message` has the reason, and nothing has changed; this error needs no interrupt.
///
/// # Safety
/// As `coalesce_policy_new`; `delivery` is null or a delivery that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_reconfigure(
    delivery: *mut coalesce_delivery,
    now: u64,
    text: *const c_char,
    message: *mut c_char,
    message_size: usize,
) -> coalesce_status {
    let mut is_valid = true;
    let call = |delivery: &mut Deferred<coalesce_policy>| {
        delivery.change(now, |policy| {
            // SAFETY: the caller's promises.
            let decision = unsafe { policy.reconfigure(now, text, message, message_size) };
            is_valid = decision.is_some();
            decision.unwrap_or(Decision::Hold(HoldReason::Reconfigured))
        });
    };
    // SAFETY: the caller's promise.
    let status = unsafe { tell(delivery, call) };
    if is_valid { status } else { COALESCE_E_CONFIG }
}

/// Reports a submitted request, as `coalesce_policy_on_submit`.
///
/// # Safety
/// As there; `delivery` is null or a delivery that nobody else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_submit(
    delivery: *mut coalesce_delivery,
    now: u64,
    request: *const coalesce_request,
    mark: *mut coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let delivery = unsafe { delivery.as_mut() }.map(|delivery| &mut delivery.0);
    let tell = delivery.map(|delivery| {
        (delivery.policy().wants_submit(), |submission: &Submission| delivery.on_submit(now, submission))
    });
    // SAFETY: the caller's promises.
    unsafe { submit(tell, request, mark) }
}

/// Reports a completed command, and `before` others before it, of which only 65535 are decided about. The guest sees them all
/// before it is interrupted. After an error of `completion` an interrupt is due.
///
/// # Safety
/// `delivery` is null or a delivery that nobody else uses during the call; `completion` is null or points to as many bytes
/// as its `struct_size` says.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_completion(
    delivery: *mut coalesce_delivery,
    now: u64,
    completion: *const coalesce_completion,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let completion = unsafe { read_config(completion) };
    // SAFETY: the caller's promise.
    unsafe {
        match completion {
            Ok(completion) => tell(delivery, |delivery| delivery.completed(now, completion.before, &completion.into())),
            Err(refused) => tell(delivery, |delivery| delivery.completed_unknown(now)).min(refused.status()),
        }
    }
}

/// The device has posted everything that it found in one pass. From the first call on, what waits for the end of a batch is not due
/// before it: who calls this once calls it after each pass.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_batch_end(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.end_batch(now)) }
}

/// Decides at the deadline. Early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_deadline(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.on_deadline(now)) }
}

/// What became of an interrupt: `COALESCE_INTERRUPT_...`; any other number is as `COALESCE_INTERRUPT_FAILED`. Before this call report
/// everything that completed before the interrupt, and nothing that completed after it: it would be taken to be covered.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_interrupted(
    delivery: *mut coalesce_delivery,
    now: u64,
    outcome: u32,
) -> coalesce_status {
    let interrupt = match outcome {
        COALESCE_INTERRUPT_SENT => Interrupt::Sent,
        COALESCE_INTERRUPT_UNWANTED => Interrupt::Unwanted,
        _ => Interrupt::Failed,
    };
    // SAFETY: the caller's promise.
    unsafe { note(delivery, |delivery| delivery.interrupted(now, interrupt)) }
}

/// Reports what the device did without asking: interrupts for completions that it has not reported, while `may_hold` and `is_due` were
/// false and `held` was 0. Before the next other report, and every 256 interrupts at the latest. If something is held by now, an
/// interrupt is due.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`; `bypassed` is null or points to as many bytes as its `struct_size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_bypassed(
    delivery: *mut coalesce_delivery,
    now: u64,
    bypassed: *const coalesce_bypassed,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { bypassed_at(bypassed) } {
        // SAFETY: the caller's promise.
        Ok(bypassed) => unsafe { note(delivery, |delivery| delivery.bypassed(now, &bypassed)) },
        Err(refused) => refused.status(),
    }
}

/// Notes that the guest has reaped everything without an interrupt, as `coalesce_policy_on_consumed`. What is due stays due.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_consumed(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { note(delivery, |delivery| delivery.on_consumed(now)) }
}

/// Notes that a command was aborted and will not complete, as `coalesce_policy_on_cancel`.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`; `mark` is null or points to a `coalesce_mark`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_cancel(
    delivery: *mut coalesce_delivery,
    now: u64,
    mark: *const coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let mark = unsafe { mark.as_ref() }.map_or(Mark::default(), |mark| Mark::from(*mark));
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.cancel(now, mark)) }
}

/// Notes that the guest was scheduled on a CPU, and delivers everything held.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_schedule(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.on_schedule(now)) }
}

/// Notes that the guest was descheduled from its CPU, and delivers everything held.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_on_deschedule(
    delivery: *mut coalesce_delivery,
    now: u64,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.on_deschedule(now)) }
}

/// Delivers everything held: for a queue stop, and for a migration.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_flush(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { tell(delivery, |delivery| delivery.flush(now)) }
}

/// The queue is gone, with its completions: nothing is held and nothing is due any more. Commands in flight will not complete.
/// If the guest still waits for what was held, call `coalesce_delivery_flush` and interrupt before.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_reset(delivery: *mut coalesce_delivery, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { note(delivery, |delivery| delivery.reset(now)) }
}

/// Reads what was counted. `coalesce_policy_stats` has the decisions.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody changes during the call; `counts` is null or points to `counts_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_stats(
    delivery: *const coalesce_delivery,
    counts: *mut coalesce_delivery_counts,
    counts_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let Some(coalesce_delivery(delivery)) = (unsafe { delivery.as_ref() }) else { return COALESCE_E_NULL };
    let stats = delivery.stats();
    let value = coalesce_delivery_counts {
        completions: stats.completions,
        interrupts: stats.interrupts,
        suppressed: stats.suppressed,
        consumed: stats.consumed,
        holds: stats.hold_ns().len(),
        hold_mean_ns: to_ns(delivery, stats.hold_ns().mean() as u64),
    };
    // SAFETY: the caller's promise.
    unsafe { answer(counts, counts_size, value) }
}

/// Ticks of its clock in ns.
fn to_ns(delivery: &Deferred<coalesce_policy>, ticks: u64) -> u64 {
    let ns = u128::from(ticks) * 1_000_000_000 / u128::from(delivery.policy().0.tick_hz().max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A quantile, in millionths, of the time for which completions were held, in ns to 1 %: 500000 is the median, 1000000 the longest. 0:
/// none was held.
///
/// # Safety
/// `delivery` is null, or a delivery that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_hold_ns(delivery: *const coalesce_delivery, millionths: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { delivery.as_ref() }.map_or(0, |delivery| {
        to_ns(&delivery.0, delivery.0.stats().hold_ns().value_at_quantile(f64::from(millionths) / 1e6))
    })
}

/// Resets what was counted, and the counters of decisions.
///
/// # Safety
/// As `coalesce_delivery_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_delivery_reset_stats(delivery: *mut coalesce_delivery) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { note(delivery, |delivery| delivery.reset_stats(|policy| policy.0.reset_stats())) }
}
