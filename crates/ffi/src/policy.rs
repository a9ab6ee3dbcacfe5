//! Any policy behind one handle, on hosts: `coalesce_policy_...`. For targets whose users choose a policy by its text
//! form, `auto` and the baselines included, and whose guests give no hints.

use crate::error::Refused;
use crate::hint::{known, number};
use crate::instant::{COALESCE_NEVER, instant};
use crate::status::*;
use crate::strict::COALESCE_NO_TICKET;
use crate::tagged::{numbers, put, read_config};
use crate::text::{read_text, write_text};
use ::coalesce_policy::{
    AnyPolicy, Bypassed, Class, Completion, Decision, Event, Hint, HintSource, Mark, Policy, Spec, Spent, Submission,
    Submissions, Ticket, forward,
};
use core::ffi::{c_char, c_void};
use std::boxed::Box;
use std::ffi::CString;

/// A policy for one interrupt vector. The library allocates it, because its size depends on the policy.
#[derive(Debug)]
pub struct coalesce_policy(pub(crate) AnyPolicy);

impl Policy for coalesce_policy {
    forward!(self => self.0; all);
}

/// Asks a policy for a decision; null delivers.
///
/// # Safety
/// `policy` is null, or a policy that nobody else uses during the call.
unsafe fn decide(policy: *mut coalesce_policy, call: impl FnOnce(&mut AnyPolicy) -> Decision) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { policy.as_mut() }.map_or(COALESCE_E_NULL, |policy| numbers(call(&mut policy.0)).0)
}

/// Reads from a policy; null gives `absent`.
///
/// # Safety
/// `policy` is null, or a policy that nobody changes during the call.
unsafe fn look<T>(policy: *const coalesce_policy, absent: T, call: impl FnOnce(&AnyPolicy) -> T) -> T {
    // SAFETY: the caller's promise.
    unsafe { policy.as_ref() }.map_or(absent, |policy| call(&policy.0))
}

/// Creates a policy from its text form, such as "auto", "vic:cif_threshold=2", "cint:delta=20us" or "none", for a clock
/// of `tick_hz` ticks per second. If the text is invalid, returns null and writes the reason to `message`, which may be
/// null.
///
/// # Safety
/// `text` is null or a zero-terminated text; `message` is null or points to `message_size` bytes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_new(
    text: *const c_char,
    tick_hz: u64,
    message: *mut c_char,
    message_size: usize,
) -> *mut coalesce_policy {
    // SAFETY: the caller's promise.
    let policy = unsafe { read_policy(text, tick_hz, message, message_size) };
    policy.map_or(core::ptr::null_mut(), |policy| Box::into_raw(Box::new(policy)))
}

/// A policy from its text form. `None`: it is invalid, and `message` has the reason.
///
/// # Safety
/// As `coalesce_policy_new`.
pub(crate) unsafe fn read_policy(
    text: *const c_char,
    tick_hz: u64,
    message: *mut c_char,
    message_size: usize,
) -> Option<coalesce_policy> {
    // SAFETY: the caller's promise.
    let spec = unsafe { read_text(text) }.and_then(|text| Ok(Spec::parse(&text, tick_hz)?));
    let policy = spec.and_then(|spec| {
        let made = AnyPolicy::new(spec.clone(), tick_hz);
        Ok(made.map_err(|error| spec.explain(error))?)
    });
    // SAFETY: the caller's promise.
    let policy = policy.map_err(|problem| unsafe { write_text(message, message_size, &problem) });
    policy.ok().map(coalesce_policy)
}

/// Frees a policy; null is allowed. Flush it first, so that no held completion loses its interrupt.
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

/// Changes the policy or its parameters, and decides about the held completions. `COALESCE_E_CONFIG`: the text is
/// invalid, `message` has the reason, and nothing has changed; this error needs no interrupt.
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
    let decision = unsafe { policy.reconfigure(now, text, message, message_size) };
    decision.map_or(COALESCE_E_CONFIG, |decision| numbers(decision).0)
}

impl coalesce_policy {
    /// `None`: the text is invalid, `message` has the reason, and nothing has changed.
    ///
    /// # Safety
    /// As `coalesce_policy_new`.
    pub(crate) unsafe fn reconfigure(
        &mut self,
        now: u64,
        text: *const c_char,
        message: *mut c_char,
        message_size: usize,
    ) -> Option<Decision> {
        // SAFETY: the caller's promise.
        let spec = unsafe { read_text(text) }.and_then(|text| Ok(Spec::parse(&text, self.0.tick_hz())?));
        let decision = spec.and_then(|spec| {
            let decision = self.0.reconfigure(spec.clone(), now);
            Ok(decision.map_err(|error| spec.explain(error))?)
        });
        // SAFETY: the caller's promise.
        decision.map_err(|problem| unsafe { write_text(message, message_size, &problem) }).ok()
    }
}

/// Writes the text form of a policy. Returns the length of the whole text, as `snprintf` does.
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
/// A write that must be on the medium before it completes.
pub const COALESCE_REQUEST_DURABLE: u32 = 2;
/// The last request of a kick.
pub const COALESCE_REQUEST_LAST: u32 = 4;

/// A request at its submission.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_request {
    /// `sizeof(coalesce_request)`
    pub struct_size: u32,
    /// A combination of `COALESCE_REQUEST_...`.
    pub flags: u32,
    /// The number of requests outstanding (submitted and not reaped by the guest), including this one.
    pub outstanding: u32,
    /// The number of requests that were submitted with the same kick, including this one.
    pub batch_len: u32,
    /// Linux I/O priority: class in bits 15:13; 0: not given.
    pub ioprio: u32,
    /// The requester's own hint: `COALESCE_HINT_...`. If it is Plain, the policy infers a hint from the other fields.
    pub hint: u32,
    /// The group of submitters that it belongs to, for strict Barriers. 0 to 15.
    pub group: u32,
    /// Requests that were submitted before it and not reported.
    pub before: u32,
}

/// What the caller keeps for a request from its submission to its completion. `COALESCE_MARK_NONE` and
/// `COALESCE_MARK_OF(hint)` initialise a mark for a request whose submission was not reported.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_mark {
    /// The ticket, for strict Barriers.
    pub ticket: u64,
    /// `COALESCE_HINT_...`
    pub hint: u32,
    /// What the hint was inferred from; `COALESCE_NO_SOURCE`: the requester gave it, or there is none.
    pub source: u32,
}

/// A hint that was not inferred.
pub const COALESCE_NO_SOURCE: u32 = u32::MAX;

impl From<Mark> for coalesce_mark {
    fn from(mark: Mark) -> Self {
        let Mark { event, source, ticket } = mark;
        let hint = match event {
            Event::Plain => Hint::Plain,
            Event::Barrier => Hint::Barrier,
            Event::Urgent | Event::Error => Hint::Urgent,
        };
        let ticket = ticket.map_or(COALESCE_NO_TICKET, Ticket::to_number);
        Self { ticket, hint: number(hint), source: source.map_or(COALESCE_NO_SOURCE, |source| source as u32) }
    }
}

/// An unknown hint is Urgent.
impl From<coalesce_mark> for Mark {
    fn from(mark: coalesce_mark) -> Self {
        let hint = known(mark.hint).unwrap_or(Hint::Urgent);
        let source = HintSource::ALL.get(mark.source as usize).copied();
        let ticket = (mark.ticket != COALESCE_NO_TICKET).then(|| Ticket::from_number(mark.ticket));
        Self { event: hint.event(), source, ticket }
    }
}

/// Reports a submitted request. Keep its `mark`, and pass it when the request completes. On an error the mark is
/// Urgent, so that the completion interrupts. Requests without hints and flags need no call and no mark, unless the
/// policy wants each (`coalesce_policy_wants_each_submit`): `outstanding` and `before` of a later one count them. If it
/// does, a null `mark` is an error, as nobody could say when the request completes.
///
/// # Safety
/// `policy` is null or a policy that nobody else uses during the call; `request` is null or points to as many bytes as
/// its `struct_size` says; `mark` is null or points to a `coalesce_mark`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_submit(
    policy: *mut coalesce_policy,
    now: u64,
    request: *const coalesce_request,
    mark: *mut coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let policy = unsafe { policy.as_mut() }.map(|policy| &mut policy.0);
    let tell = policy.map(|policy| (policy.wants_submit(), |submission: &_| policy.on_submit(now, submission)));
    // SAFETY: the caller's promises.
    unsafe { submit(tell, request, mark) }
}

/// Tells a policy about a request, if there is one: for which it must be told, and how.
///
/// # Safety
/// As `coalesce_policy_on_submit`.
pub(crate) unsafe fn submit(
    tell: Option<(Submissions, impl FnOnce(&Submission) -> Mark)>,
    request: *const coalesce_request,
    mark: *mut coalesce_mark,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { put(mark, Mark::of(Hint::Urgent).into()) };
    let Some((wanted, tell)) = tell else { return COALESCE_E_NULL };
    // SAFETY: the caller's promise.
    let request = match unsafe { read_config(request) } {
        Ok(request) => request,
        Err(refused) => return refused.status(),
    };
    // Its ticket would be lost, and no Barrier behind it would ever be complete.
    if mark.is_null() && wanted == Submissions::Each {
        return COALESCE_E_NULL;
    }
    let submission = Submission {
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
    unsafe { put(mark, tell(&submission).into()) };
    COALESCE_OK
}

/// The hint of an NVMe read or write, from its Command Dwords 12 and 13: in the bits that the policy's key `bits`
/// names, `cdw12:16` if it names none; else in the access latency. For `hint` of a `coalesce_request`. Without a policy
/// it is Urgent.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_hint(policy: *const coalesce_policy, cdw12: u32, cdw13: u32) -> u32 {
    // SAFETY: the caller's promise.
    number(unsafe { look(policy, Hint::Urgent, |policy| policy.spec().hint([cdw12, cdw13])) })
}

/// A command of an I/O queue.
pub const COALESCE_CLASS_IO: u32 = 0;
/// A command of the admin queue.
pub const COALESCE_CLASS_ADMIN: u32 = 1;
/// A command that failed, or that was aborted and will not complete. It is not held, but by "batch", "spdk_vhost" and "dim", which do
/// not look at it, as what they are modelled on does not, and by a storm guard in a storm.
pub const COALESCE_CLASS_FAILED: u32 = 2;

/// A command at its completion.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_completion {
    /// `sizeof(coalesce_completion)`
    pub struct_size: u32,
    /// Commands in flight on this interrupt vector, including this one; 0 counts as 1. Needed: with 1 vIC holds
    /// nothing, and a latency budget nothing either, whatever submissions say, unless `outstanding` says more.
    pub cif: u32,
    /// Commands outstanding (submitted and not reaped) on this interrupt vector, including this one; 0: unknown.
    pub outstanding: u32,
    /// `COALESCE_CLASS_...`; an unknown class counts as failed.
    pub class_of: u32,
    /// The mark from `coalesce_policy_on_submit`.
    pub mark: coalesce_mark,
    /// The end of the guest's timeslice; `COALESCE_NEVER`: unknown.
    pub slice_end: u64,
    /// The number of Plain commands of an I/O queue, without a ticket, that completed just before it; at most 65535. They
    /// need no `mark`. For a device that reports the completions of a poll together.
    pub before: u32,
}

/// Decides about a completed command, and `before` others before it. It decides about one after the other until one
/// delivers. That interrupt covers them all.
///
/// # Safety
/// `policy` is null or a policy that nobody else uses during the call; `completion` is null or points to as many bytes
/// as its `struct_size` says.
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
                let before = u16::try_from(completion.before).unwrap_or(u16::MAX);
                policy.on_completions(now, before, &completion.into())
            }),
            // The caller interrupts on this error, so the policy must drop what it holds.
            Err(refused) => decide(policy, |policy| policy.flush(now)).min(refused.status()),
        }
    }
}

/// The last one.
impl From<coalesce_completion> for Completion {
    fn from(completion: coalesce_completion) -> Self {
        let coalesce_completion { cif, outstanding, class_of, mark, slice_end, .. } = completion;
        let class = match class_of {
            COALESCE_CLASS_IO => Class::Io,
            COALESCE_CLASS_ADMIN => Class::Admin,
            _ => Class::Failed,
        };
        let slice_end = (slice_end != COALESCE_NEVER).then_some(slice_end);
        // None in flight is as one: it is wrong, and must not count as unknown.
        let (mark, cif) = (mark.into(), cif.max(1));
        Self { mark, cif, outstanding, class, slice_end }
    }
}

/// The instant at which to call `coalesce_policy_on_deadline`; `COALESCE_NEVER`: nothing is held, or, under a "vic" without
/// `max_hold` such as "vic:profile=paper", up to `max_skip` - 1 further completions end the hold. Every call may change it. What waits for `coalesce_policy_on_batch_end` alone is due at once: 1; so who reports the
/// end of a poll looks at deadlines between polls, not between the completions of one.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_deadline(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    let deadline = unsafe { look(policy, None, AnyPolicy::deadline) };
    deadline.map_or(COALESCE_NEVER, |deadline| instant(deadline.max(1))) // a timerfd that is set to 0 is disarmed
}

/// Decides at the deadline. Early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_deadline(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_deadline(now)) }
}

/// Whether the policy may hold the next completion. If not, the decision needs no mark and no commands in flight, and
/// the caller may leave out `coalesce_policy_on_submit` until that decision. The caller can also interrupt without
/// asking, and report with `coalesce_policy_on_bypassed`, every 256 interrupts at the latest. False with "none", and with
/// "auto" during a bypass, which begins where 64 calls of `coalesce_policy_on_completion` reported 8 completions each, or one,
/// of the only command outstanding. The answer may change with each decision and each report.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_may_hold(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::may_hold) }
}

/// What a device did without asking.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_bypassed {
    /// `sizeof(coalesce_bypassed)`
    pub struct_size: u32,
    /// Interrupts that were sent; at most 65535.
    pub interrupts: u32,
    /// Interrupts that the guest did not want; at most 65535.
    pub suppressed: u32,
    /// The most commands outstanding at one of these completions, as far as the caller knows, counting it.
    pub outstanding: u32,
    /// Completions, all of which these interrupts cover.
    pub completions: u64,
}

/// # Safety
/// `bypassed` is null, or points to as many bytes as its `struct_size` says.
pub(crate) unsafe fn bypassed_at(bypassed: *const coalesce_bypassed) -> Result<Bypassed, Refused> {
    // SAFETY: the caller's promise.
    let coalesce_bypassed { interrupts, suppressed, outstanding, completions, .. } = unsafe { read_config(bypassed) }?;
    let [interrupts, suppressed] = [interrupts, suppressed].map(|count| u16::try_from(count).unwrap_or(u16::MAX));
    Ok(Bypassed { completions, interrupts, suppressed, outstanding })
}

/// Reports what was delivered without a decision since the last call, while `coalesce_policy_may_hold` was false: nothing is held any
/// more.
///
/// # Safety
/// As `coalesce_policy_reconfigure`; `bypassed` is null or points to as many bytes as its `struct_size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_bypassed(
    policy: *mut coalesce_policy,
    now: u64,
    bypassed: *const coalesce_bypassed,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    match unsafe { (policy.as_mut(), bypassed_at(bypassed)) } {
        (None, _) => COALESCE_E_NULL,
        (_, Err(refused)) => refused.status(),
        (Some(policy), Ok(bypassed)) => {
            policy.0.on_bypassed(now, &bypassed);
            COALESCE_OK
        }
    }
}

/// Whether the policy wants `coalesce_policy_on_submit`. May change with the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_submit(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, |policy| policy.wants_submit() != Submissions::None) }
}

/// Whether the policy wants `coalesce_policy_on_submit` for each request, as strict Barriers do. If not, of several
/// requests before the next decision or reconfiguration only the last need be reported. A request that is left out has
/// no flag, no hint and no priority class real time or idle, and it is not the only one outstanding. May change with
/// the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_each_submit(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, |policy| policy.wants_submit() == Submissions::Each) }
}

/// Whether the policy wants `coalesce_policy_on_batch_end` after each poll of the device.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_wants_batch_end(policy: *const coalesce_policy) -> bool {
    // SAFETY: the caller's promise.
    unsafe { look(policy, false, AnyPolicy::wants_batch_end) }
}

/// Notes that the device has posted everything that it had to post in one pass. This batch is the device's, not the
/// requester's batch of a Barrier.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_batch_end(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_batch_end(now)) }
}

/// Delivers everything held: for a queue stop, a reset and a migration.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_flush(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.flush(now)) }
}

/// Notes that the guest has reaped everything without an interrupt. Call it only if the guest has reaped up to the last
/// posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's),
/// with all indices read inside the lock that protects the policy.
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

/// Notes that the queue was reset: commands in flight will not complete. Delivers everything held, and forgets what
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

/// Notes that a command was aborted and will not complete. `mark` is its mark from `coalesce_policy_on_submit`. With
/// strict Barriers it decides as `coalesce_cint_on_cancel` does: it delivers if the abort completes a batch. Every
/// other policy delivers everything held, whereas `coalesce_cint_on_cancel` without a ticket holds.
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

/// Notes that the guest was scheduled on a CPU, and delivers everything held.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_schedule(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_schedule(now)) }
}

/// Notes that the guest was descheduled from its CPU, and delivers everything held.
///
/// # Safety
/// As `coalesce_policy_reconfigure`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_on_deschedule(policy: *mut coalesce_policy, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { decide(policy, |policy| policy.on_deschedule(now)) }
}

/// The number of held completions: posted, and not covered by an interrupt.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_held(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, 0, AnyPolicy::held) }.into()
}

/// The longest time, in ticks, that a completion is held if deadlines are met; `COALESCE_NEVER`: no bound. May change
/// with the configuration.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_max_hold(policy: *const coalesce_policy) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, None, AnyPolicy::max_hold) }.unwrap_or(COALESCE_NEVER)
}

/// The number of submissions that strict Barriers could not track, because their group is unknown or has too many
/// commands in flight. Their marks have no ticket. Saturates; 0 without strict Barriers.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_untracked(policy: *const coalesce_policy) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, 0, AnyPolicy::untracked) }
}

/// The number of calls whose time was before that of the previous call. Saturates at 65535. "vic" and "cint" count
/// them, from 0 again after a change between the two, or between relaxed and strict Barriers. 0 under every other
/// policy.
///
/// # Safety
/// As `coalesce_policy_print`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_times_back(policy: *const coalesce_policy) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { look(policy, 0, AnyPolicy::times_back) }.into()
}

/// The latency budget of a policy, and what it has spent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct coalesce_spent {
    /// The time for which completions were held, in ticks summed over them. It saturates.
    pub held_time: u64,
    /// The time that requests spent, in ticks summed over them. It saturates.
    pub outstanding_time: u64,
    /// The time that trials may have cost beyond the budget so far, in ticks summed over the requests.
    pub learning: u64,
    /// The share of `outstanding_time` that holding may add, in basis points (1/100 %); 0: the policy has no budget.
    pub budget: u32,
}

/// Reads what the latency budget has spent.
///
/// # Safety
/// As `coalesce_policy_print`; `spent` is null or points to a `coalesce_spent`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_policy_spent(
    policy: *const coalesce_policy,
    spent: *mut coalesce_spent,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let (status, value) = unsafe {
        look(policy, (COALESCE_E_NULL, None), |policy| {
            let status = if spent.is_null() { COALESCE_E_NULL } else { COALESCE_OK };
            (status, policy.spec().budget().zip(policy.spent()))
        })
    };
    let (budget, Spent { held: held_time, outstanding: outstanding_time, learning }) = value.unwrap_or_default();
    let budget = budget.as_basis_points().into();
    // SAFETY: the caller's promise.
    unsafe { put(spent, coalesce_spent { held_time, outstanding_time, learning, budget }) };
    status
}

/// A function that receives one counter.
pub type coalesce_counter =
    Option<unsafe extern "C" fn(context: *mut c_void, reason: *const c_char, is_hold: bool, count: u64)>;

/// Calls `counter` for each reason, with the number of decisions.
///
/// # Safety
/// As `coalesce_policy_print`; `counter` returns normally (no exception, no `longjmp`) and does not use the policy.
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

/// Resets the counters of decisions.
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
