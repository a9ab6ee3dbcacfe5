//! Any policy behind one handle, on hosts: `coalesce_policy_...`. For a target whose users choose a policy by its text form,
//! `auto` and the baselines among them, and whose guests were not changed to give hints.

use crate::hint::{known, number};
use crate::status::*;
use crate::strict::COALESCE_NO_TICKET;
use crate::tagged::{numbers, put, read_config};
use crate::text::{read_text, write_text};
use ::coalesce_policy::{
    AnyPolicy, Class, Clues, Completion, Decision, Hint, HintSource, Mark, MarkParts, Passed, Policy as _, Spec, Ticket,
};
use core::ffi::{c_char, c_void};
use std::boxed::Box;
use std::ffi::CString;

/// A policy for one interrupt vector. The one object that this library allocates: it is as large as its policy needs.
#[derive(Debug)]
pub struct coalesce_policy(AnyPolicy);

/// Lets a policy decide; null delivers.
///
/// # Safety
/// `policy` is null, or a policy that nobody else uses during the call.
unsafe fn decide(policy: *mut coalesce_policy, call: impl FnOnce(&mut AnyPolicy) -> Decision) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { policy.as_mut() }.map_or(COALESCE_E_NULL, |policy| numbers(call(&mut policy.0)).0)
}

/// Looks at a policy.
///
/// # Safety
/// `policy` is null, or a policy that nobody changes during the call.
unsafe fn look<T>(policy: *const coalesce_policy, absent: T, call: impl FnOnce(&AnyPolicy) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { policy.as_ref() }.map_or(absent, |policy| call(&policy.0))
}

/// Makes a policy of a text such as "auto", "vic:cif_threshold=2", "cint:delta=20us" or "none", for a clock of `tick_hz`.
/// Null: the text is refused, and a sentence in `message`, which may be null, says why.
///
/// # Safety
/// `text` is null or a text that ends with a zero; `message` is null or points to `message_size` bytes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_new(
    text: *const c_char,
    tick_hz: u64,
    message: *mut c_char,
    message_size: usize,
) -> *mut coalesce_policy {
    // SAFETY: the caller's promise.
    let spec = unsafe { read_text(text) }.and_then(|text| Ok(Spec::parse(&text, tick_hz)?));
    match spec.and_then(|spec| Ok(AnyPolicy::new(spec, tick_hz)?)) {
        Ok(policy) => Box::into_raw(Box::new(coalesce_policy(policy))),
        Err(problem) => {
            // SAFETY: the caller's promise.
            unsafe { write_text(message, message_size, &problem) };
            core::ptr::null_mut()
        }
    }
}

/// Ends a policy; null is allowed. Whatever it holds must have been announced: flush it first.
///
/// # Safety
/// `policy` is null, or a policy that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_free(policy: *mut coalesce_policy) {
    if !policy.is_null() {
        // SAFETY: it came from `coalesce_policy_new`.
        drop(unsafe { Box::from_raw(policy) });
    }
}

/// Takes another policy, or other parameters, with what is held, and decides about it. `COALESCE_E_CONFIG`: the text is
/// refused, `message` says why, and nothing has changed; do not interrupt for that.
///
/// # Safety
/// As `coalesce_policy_new`; `policy` is null or a policy that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_reconfigure(
    policy: *mut coalesce_policy,
    now: u64,
    text: *const c_char,
    message: *mut c_char,
    message_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    let Some(policy) = (unsafe { policy.as_mut() }) else { return COALESCE_E_NULL };
    // SAFETY: the caller's promise.
    let spec = unsafe { read_text(text) }.and_then(|text| Ok(text.parse::<Spec>()?));
    match spec.and_then(|spec| Ok(policy.0.reconfigure(spec, now)?)) {
        Ok(decision) => numbers(decision).0,
        Err(problem) => {
            // SAFETY: the caller's promise.
            unsafe { write_text(message, message_size, &problem) };
            COALESCE_E_CONFIG
        }
    }
}

/// The text form of a policy. Returns the length of the whole text, as `snprintf` does.
///
/// # Safety
/// `policy` is null or a policy that nobody changes during the call; `text` is null or points to `text_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_print(
    policy: *const coalesce_policy,
    text: *mut c_char,
    text_size: usize,
) -> usize {
    // SAFETY: the caller's promises.
    unsafe { look(policy, 0, |policy| write_text(text, text_size, policy.spec())) }
}

/// A flush.
pub const COALESCE_REQUEST_FLUSH: u32 = 1;
/// A write that must be on the medium before it ends.
pub const COALESCE_REQUEST_DURABLE: u32 = 2;
/// The last of the requests that came with one kick.
pub const COALESCE_REQUEST_LAST: u32 = 4;

/// What is known of a request when it is submitted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_request {
    /// `sizeof(coalesce_request)`
    pub struct_size: u32,
    /// `COALESCE_REQUEST_...`, added up.
    pub flags: u32,
    /// How many its guest has submitted and not taken back, counting it.
    pub outstanding: u32,
    /// How many came with one kick, counting it.
    pub batch_len: u32,
    /// Linux I/O priority: class in bits 15:13; 0: not given.
    pub ioprio: u32,
    /// What the requester said itself: `COALESCE_HINT_...`. What else is known counts where it said nothing.
    pub hint: u32,
    /// Which group of submitters it belongs to, for strict Barriers. 0 to 15.
    pub group: u32,
    /// How many others were submitted before it of which nothing was known, and which need no mark: 0 where the policy wants
    /// each of them (`coalesce_policy_wants_each_submit`).
    pub before: u32,
}

/// What a policy wants back when the request completes. `COALESCE_MARK_NONE` and `COALESCE_MARK_OF(hint)` initialise one for a
/// request that was never submitted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_mark {
    /// For strict Barriers.
    pub ticket: u64,
    /// `COALESCE_HINT_...`
    pub hint: u32,
    /// What the hint was inferred from; `COALESCE_NO_SOURCE`: the requester said it, or nobody did.
    pub source: u32,
}

/// A hint that was not inferred.
pub const COALESCE_NO_SOURCE: u32 = 0xFFFF_FFFF;

impl From<Mark> for coalesce_mark {
    fn from(mark: Mark) -> Self {
        let MarkParts { hint, source, ticket } = mark.into();
        let ticket = ticket.map_or(COALESCE_NO_TICKET, Ticket::to_number);
        Self { ticket, hint: number(hint), source: source.map_or(COALESCE_NO_SOURCE, |source| source as u32) }
    }
}

/// A hint that is unknown is urgent.
impl From<coalesce_mark> for Mark {
    fn from(mark: coalesce_mark) -> Self {
        let hint = known(mark.hint).unwrap_or(Hint::Urgent);
        let source = HintSource::ALL.get(mark.source as usize).copied();
        let ticket = (mark.ticket != COALESCE_NO_TICKET).then(|| Ticket::from_number(mark.ticket));
        MarkParts { hint, source, ticket }.into()
    }
}

/// A request is submitted, and `before` others were. Keep its `mark`, and give it back when it completes. A request that is null
/// or of another size is urgent: on an error its completion interrupts. `COALESCE_E_CONFIG`: the policy wants each of those
/// `before` it, and knows of none of them.
///
/// # Safety
/// `policy` is null or a policy that nobody else uses during the call; `request` is null or points to as many bytes as its
/// `struct_size` says; `mark` is null or points to a `coalesce_mark`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_submit(
    policy: *mut coalesce_policy,
    request: *const coalesce_request,
    mark: *mut coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { put(mark, Mark::of(Hint::Urgent).into()) };
    // SAFETY: the caller's promise.
    let Some(policy) = (unsafe { policy.as_mut() }) else { return COALESCE_E_NULL };
    // SAFETY: the caller's promise.
    let request = match unsafe { read_config(request) } {
        Ok(request) => request,
        Err(refused) => return refused.status(),
    };
    if request.before > 0 && policy.0.wants_each_submit() {
        return COALESCE_E_CONFIG;
    }
    let clues = Clues {
        hint: known(request.hint).unwrap_or(Hint::Urgent),
        group: u8::try_from(request.group).unwrap_or(u8::MAX),
        flush: request.flags & COALESCE_REQUEST_FLUSH != 0,
        durable: request.flags & COALESCE_REQUEST_DURABLE != 0,
        ioprio: request.ioprio as u16,
        batch_len: request.batch_len as usize,
        last_of_batch: request.flags & COALESCE_REQUEST_LAST != 0,
        outstanding: request.outstanding,
        before: request.before,
    };
    // SAFETY: the caller's promise.
    unsafe { put(mark, policy.0.on_submit(&clues).into()) };
    COALESCE_OK
}

/// A command of an I/O queue.
pub const COALESCE_CLASS_IO: u32 = 0;
/// A command of the admin queue.
pub const COALESCE_CLASS_ADMIN: u32 = 1;
/// A command that failed, or that was aborted and will not complete.
pub const COALESCE_CLASS_FAILED: u32 = 2;

/// What is known of a command when it completes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_completion {
    /// `sizeof(coalesce_completion)`
    pub struct_size: u32,
    /// Commands in flight on this interrupt vector, counting this one.
    pub cif: u32,
    /// What `coalesce_policy_on_submit` gave.
    pub mark: coalesce_mark,
    /// When the guest's timeslice ends; `COALESCE_NEVER`: not known.
    pub slice_end: u64,
    /// `COALESCE_CLASS_...`; one that is unknown counts as failed.
    pub class_of: u32,
    /// How many plain commands of an I/O queue completed just before it, and are announced with it, if it is; 65535 at most.
    /// They need no `mark`: for a device that finds many at once.
    pub before: u32,
}

/// A command completed, and `before` others: decides about one after the other until one delivers, whose interrupt announces
/// them all.
///
/// # Safety
/// `policy` is null or a policy that nobody else uses during the call; `completion` is null or points to as many bytes as
/// its `struct_size` says.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_completion(
    policy: *mut coalesce_policy,
    now: u64,
    completion: *const coalesce_completion,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let completion = unsafe { read_config(completion) };
    // SAFETY: the caller's promise.
    unsafe {
        match completion {
            Ok(completion) => decide(policy, |policy| {
                let coalesce_completion { cif, mark, slice_end, class_of, before, .. } = completion;
                let class = match class_of {
                    COALESCE_CLASS_IO => Class::Io,
                    COALESCE_CLASS_ADMIN => Class::Admin,
                    _ => Class::Failed,
                };
                let slice_end = (slice_end != COALESCE_NEVER).then_some(slice_end);
                let before = u16::try_from(before).unwrap_or(u16::MAX);
                policy.on_completion(now, &Completion { mark: mark.into(), cif, class, slice_end, before })
            }),
            // The caller interrupts, and the policy must know.
            Err(refused) => decide(policy, |policy| policy.flush(now)).min(refused.status()),
        }
    }
}

/// When `coalesce_policy_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not
/// bounded. May change in every call.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_deadline(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, None, AnyPolicy::deadline) }.map_or(COALESCE_NEVER, instant)
}

/// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_deadline(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_deadline(now)) }
}

/// Whether the policy may hold what completes next. If not, nothing need be known of that, nor `coalesce_policy_on_submit` be
/// called, until its next decision; or it need not be asked at all, but told by `coalesce_policy_on_passed`. So with "none", and
/// with "auto" while holding costs throughput or few commands are outstanding.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_may_hold(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::may_hold) }
}

/// While `coalesce_policy_may_hold` was false, nobody asked: so many commands completed since the last call, all of them are
/// announced, by so many interrupts, and at most so many were outstanding, submitted and not taken back. Call it after some
/// dozens of completions, as `coalesce_policy_may_hold` changes by it.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_passed(
    policy: *mut coalesce_policy,
    now: u64,
    completions: u32,
    interrupts: u32,
    outstanding: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { policy.as_mut() }.map_or(COALESCE_E_NULL, |policy| {
        let interrupts = u16::try_from(interrupts).unwrap_or(u16::MAX);
        policy.0.on_passed(now, &Passed { completions, interrupts, outstanding });
        COALESCE_OK
    })
}

/// Whether `coalesce_policy_on_submit` must be called. May change with the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_submit(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::wants_submit) }
}

/// Whether it must be called for each request, as strict Barriers need. If not, those of which nothing is known, neither a flag
/// nor a hint nor a priority class of real time or idle, and that are not the only ones outstanding, may be told of with a later
/// one, before the next decision or configuration. May change with the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_each_submit(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::wants_each_submit) }
}

/// Whether `coalesce_policy_on_batch_end` must be called after each poll of the device.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_batch_end(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::wants_batch_end) }
}

/// The device has posted all it had.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_batch_end(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_batch_end(now)) }
}

/// Queue stop, reset, migration: announces what is held.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_flush(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.flush(now)) }
}

/// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation that
/// protects the policy, the guest's index equals what was posted.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_consumed(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { policy.as_mut() }.map_or(COALESCE_E_NULL, |policy| {
        policy.0.on_consumed(now);
        COALESCE_OK
    })
}

/// The queue was reset: what was submitted and has not completed never will. Announces what is held, and forgets what
/// `auto` has learned.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_reset(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe {
        decide(policy, |policy| {
            policy.reset_tracking();
            policy.flush(now)
        })
    }
}

/// A command was aborted and will not complete; `mark` is what `coalesce_policy_on_submit` gave. With strict Barriers it
/// decides as `cint_on_cancel` does: what the Barrier of a batch waited for may be delivered, and the rest stays held. Every other
/// policy delivers what is held, where `cint_on_cancel` without a ticket holds.
///
/// # Safety
/// As `coalesce_policy_reconfigure`; `mark` is null or points to a `coalesce_mark`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_cancel(
    policy: *mut coalesce_policy,
    now: u64,
    mark: *const coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let mark = unsafe { mark.as_ref() }.map_or(Mark::default(), |mark| Mark::from(*mark));
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_cancel(now, mark)) }
}

/// The guest has been put on a CPU: announces what is held.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_schedule(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_schedule(now)) }
}

/// The guest is taken off its CPU: announces what is held.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_deschedule(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_deschedule(now)) }
}

/// Completions held: posted and not announced.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_held(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, 0, AnyPolicy::held) }
}

/// The longest time, in ticks, that a completion is held if deadlines are met on time; `COALESCE_NEVER`: not bounded. May
/// change with the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_max_hold(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, None, AnyPolicy::max_hold) }.unwrap_or(COALESCE_NEVER)
}

/// Submissions that strict Barriers could not track, as their group is unknown or has too many in flight: their marks have
/// no ticket. Saturates; 0 without strict Barriers.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_untracked(policy: *const coalesce_policy) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, 0, AnyPolicy::untracked) }
}

/// Called for each counter.
pub type coalesce_counter =
    Option<unsafe extern "C" fn(context: *mut c_void, reason: *const c_char, is_hold: bool, count: u64)>;

/// How often each decision was taken, by its reason.
///
/// # Safety
/// As `coalesce_policy_print`; `counter` returns, by no exception and no `longjmp`, and does not use the policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_stats(
    policy: *const coalesce_policy,
    counter: coalesce_counter,
    context: *mut c_void,
) -> coalesce_status {
    let Some(counter) = counter else { return COALESCE_E_NULL };
    let tell = |(name, count): (&str, u64), is_hold| {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the caller's function, called as it expects.
        unsafe { counter(context, name.as_ptr(), is_hold, count) };
    };
    let each = |policy: &AnyPolicy| {
        policy.stats().delivered().for_each(|delivered| tell(delivered, false));
        policy.stats().held().for_each(|held| tell(held, true));
        COALESCE_OK
    };
    // SAFETY: the caller's promise.
    unsafe { look(policy, COALESCE_E_NULL, each) }
}

/// Forgets how often each decision was taken.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_reset_stats(policy: *mut coalesce_policy) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { policy.as_mut() }.map_or(COALESCE_E_NULL, |policy| {
        policy.0.reset_stats();
        COALESCE_OK
    })
}
