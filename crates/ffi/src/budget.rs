//! A latency budget: `coalesce_budget_...`. It holds what a stated share of the requests' time pays for.

use crate::error::{Refused, coalesce_error, narrow, switch, zero};
use crate::field::{COALESCE_FIELD_BUDGET, COALESCE_FIELD_OOO, COALESCE_FIELD_STORM_SHIFT, COALESCE_FIELD_THR};
use crate::hint::{COALESCE_HINT_PLAIN, event};
use crate::instant::{COALESCE_NEVER, instant};
use crate::reason::COALESCE_REASON_NONE;
use crate::status::*;
use crate::tagged::{Machine, Tagged, answer, kind, put_config, read_config};
use budget_core::{Budget, Completion, Config, Event, Field, Params, Policy as _, Share, Spent, StormParams};

/// A latency budget for one interrupt vector, in the caller's memory: 112 bytes. Opaque. It contains no pointers and
/// owns nothing. It may be moved and copied while no thread uses it, and there is no destructor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_budget_state {
    /// Private to the library.
    pub opaque: [u64; 14],
}

type State = Tagged<Budget>;

impl Machine for Budget {
    type State = coalesce_budget_state;
    const KIND: u32 = kind(b'B');
}

/// The first word of states that have a regulator behind their budget.
pub(crate) const WITH_REGULATOR: u32 = kind(b'A');

/// A latency budget, alone or with a regulator behind it, for calls that the budget answers.
#[repr(transparent)]
pub(crate) struct Either(pub(crate) Budget);

type EitherState = Tagged<Either>;

impl Machine for Either {
    type State = coalesce_budget_state;
    const KIND: u32 = Budget::KIND;
    const LARGER: u32 = WITH_REGULATOR;
}

/// A completion, for the machine.
#[inline(always)]
pub(crate) fn completion(event: Event, cif: u32, outstanding: u32) -> Completion {
    Completion { cif, outstanding, ..Completion::of(event) }
}

/// Parameters of a latency budget. Start from `coalesce_budget_config_default`: waiting for company adds at most 5 %
/// to the time your requests take, and more only while trials show that it makes them faster, taken together; a
/// request that is marked urgent or is alone does not wait, and no wait is longer than `max_hold`. A
/// `coalesce_budget_state` makes no trials, so it never adds more; a `coalesce_auto_state` does.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_budget_config {
    /// `sizeof(coalesce_budget_config)`
    pub struct_size: u32,
    /// ε: the largest share of the requests' time that holding may add, in basis points (1/100 %). 1 to 5000.
    pub budget: u32,
    /// Ticks per second of the caller's clock. 1000 to 10000000000.
    pub tick_hz: u64,
    /// The longest time that a completion may be held, in ns. 1 ns to 1 s, and at most 500 million ticks. With a storm
    /// guard it must be at least 1 s / storm_max_rate. With `ooo` and in a storm, a completion may be held longer by
    /// less than 1 s / storm_max_rate.
    pub max_hold_ns: u64,
    /// The storm guard's limit: the most interrupts per second, on average. 1, or tick_hz / 125 million if that is
    /// more, to tick_hz / 5; 0: no guard.
    pub storm_max_rate: u64,
    /// The weight of one interval between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16 if
    /// there is a guard; else it has no effect, 0 to 255.
    pub storm_shift: u32,
    /// The most completions that one interrupt covers, if there is no storm; Urgents that interrupted alone meanwhile
    /// count too. 1 to 65535; 1: no coalescing.
    pub thr: u32,
    /// 1: the interrupt of an urgent completion covers it alone, and held completions stay held (cinterrupts §3.5),
    /// unless `thr` ends their hold with it, or the budget can no longer pay for it; 0: it covers all. 1 needs a host
    /// that reaps nothing but urgent completions at such an interrupt.
    pub ooo: u32,
    /// Must be 0.
    pub reserved: u32,
}

impl coalesce_budget_config {
    pub(crate) fn new(params: &Params, tick_hz: u64) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            budget: params.budget.as_basis_points().into(),
            tick_hz,
            max_hold_ns: params.max_hold_ns,
            storm_max_rate: params.storm.map_or(0, |storm| storm.max_rate),
            storm_shift: params.storm.map_or(7, |storm| storm.shift.into()),
            thr: params.thr.into(),
            ooo: params.ooo.into(),
            reserved: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<Config, Refused> {
        Ok(Config::new(self.params()?)?)
    }

    pub(crate) fn params(&self) -> Result<Params, Refused> {
        let ooo = switch(COALESCE_FIELD_OOO, self.ooo)?;
        zero(self.reserved)?;
        let storm_shift = narrow(COALESCE_FIELD_STORM_SHIFT, self.storm_shift, (5, 16))?;
        Ok(Params {
            tick_hz: self.tick_hz,
            budget: Share::basis_points(narrow(COALESCE_FIELD_BUDGET, self.budget, Field::Budget.range())?),
            max_hold_ns: self.max_hold_ns,
            thr: narrow(COALESCE_FIELD_THR, self.thr, Field::Thr.range())?,
            ooo,
            storm: (self.storm_max_rate != 0)
                .then_some(StormParams { max_rate: self.storm_max_rate, shift: storm_shift }),
        })
    }
}

/// A budget of 5 %, and no completion is held for longer than 2 ms; `ooo` is 0.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_config_default(
    config: *mut coalesce_budget_config,
    config_size: usize,
    tick_hz: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_budget_config::new(&Params::DEFAULT, tick_hz)) };
}

/// Initialises a machine: nothing learned, nothing held. `state_size` is `sizeof(coalesce_budget_state)`; `error` may
/// be null. On an error the memory is unchanged.
///
/// A state that holds something is forgotten with it: call `coalesce_budget_flush` first, and interrupt unless it returns hold.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
/// as its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_init(
    state: *mut coalesce_budget_state,
    state_size: usize,
    config: *const coalesce_budget_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of both calls.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Budget::new);
        State::make(state, state_size, machine, error)
    }
}

/// Changes the configuration, and decides about the held completions. What was learned and earned stays. `tick_hz`
/// cannot change. A storm guard with new parameters restarts. What the guard had deferred is delivered. On an error
/// nothing changes. `error` may be null.
///
/// # Safety
/// As `coalesce_budget_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_reconfigure(
    state: *mut coalesce_budget_state,
    config: *const coalesce_budget_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |budget| Ok(budget.reconfigure(checked?, now)?), error)
    }
}

/// Notes `count` submitted commands.
///
/// # Safety
/// `state` is null or points to a `coalesce_budget_state` that nobody else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_submits(
    state: *mut coalesce_budget_state,
    now: u64,
    count: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { EitherState::apply(state, |Either(budget)| budget.on_submits(now, count)) }
}

/// Decides about a completed command. `hint` is `COALESCE_HINT_...`; an unknown hint delivers. `cif` is the number of
/// commands in flight, including this one. To get it, decrement your counter. Then load it again inside the lock that
/// protects the state, and add one. `outstanding` is the number of commands that are submitted and not reaped,
/// including this one; 0: unknown. For NVMe it is what lies between the tail of the submission queue and the head of
/// the completion queue, the commands in flight included.
///
/// It needs `cif`; 0 counts as 1. If only `outstanding` is known, pass 1 and that: it then sends about twice as many
/// interrupts. With a `cif` of 1 and no `outstanding` it holds nothing, whatever was submitted.
///
/// # Safety
/// As `coalesce_budget_on_submits`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_completion(
    state: *mut coalesce_budget_state,
    now: u64,
    hint: u32,
    cif: u32,
    outstanding: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::at(state) } {
        Ok(state) => {
            if hint == COALESCE_HINT_PLAIN
                && let Some(decision) =
                    state.machine.on_completion_fast(now, &completion(Event::Plain, cif, outstanding))
            {
                return state.note(decision);
            }
            slow_path(state, now, hint, cif, outstanding)
        }
        Err(status) => status,
    }
}

/// Kept out of line, off the fast path.
#[inline(never)]
fn slow_path(state: &mut State, now: u64, hint: u32, cif: u32, outstanding: u32) -> coalesce_status {
    let decision = state.machine.on_completion_slow(now, &completion(event(hint), cif, outstanding));
    state.note(decision)
}

/// The instant at which to call `coalesce_budget_on_deadline`; `COALESCE_NEVER`: nothing is held. Ask again after each
/// completion, cancellation, new configuration and `coalesce_budget_forget`; while something is held, after each submission, too.
///
/// # Safety
/// `state` is null or points to a `coalesce_budget_state` that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_deadline(state: *const coalesce_budget_state) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { EitherState::look(state) }
        .ok()
        .and_then(|state| state.machine.0.deadline())
        .map_or(COALESCE_NEVER, instant)
}

/// Decides at the deadline. Early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_budget_on_submits`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_deadline(state: *mut coalesce_budget_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { EitherState::decide(state, |Either(budget)| budget.on_deadline(now)) }
}

/// Delivers everything held, even in a storm: for a queue stop, a reset and a migration. A failed command needs no
/// flush: report it with `COALESCE_HINT_URGENT`, or a Barrier with `COALESCE_HINT_FAILED_BARRIER`.
///
/// # Safety
/// As `coalesce_budget_on_submits`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_flush(state: *mut coalesce_budget_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { EitherState::decide(state, |Either(budget)| budget.flush(now)) }
}

/// Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to
/// the last posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the
/// ring's), with all indices read inside the lock that protects the state.
///
/// # Safety
/// As `coalesce_budget_on_submits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_on_consumed(state: *mut coalesce_budget_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { EitherState::apply(state, |Either(budget)| budget.on_consumed(now)) }
}

/// Forgets what was learned about the requesters, because others may come, and the commands in flight, which never
/// complete: for a reset and a new driver. What is held is due at once; the credit and the usual gap stay.
///
/// # Safety
/// As `coalesce_budget_on_submits`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_forget(state: *mut coalesce_budget_state) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::apply(state, Budget::reset_tracking) }
}

/// The state of a machine, for statistics. `held_time` is at most (`outstanding_time` - `held_time`) * budget / 10000 +
/// `learning`, beside what late deadlines add, and a storm guard. The budget is that of the configuration. Of a
/// `coalesce_auto_state` it is more where trials show that holding makes the requests faster.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct coalesce_budget_info {
    /// Held completions: posted, and not covered by an interrupt. An urgent completion that interrupted alone is not
    /// held.
    pub held: u32,
    /// 1: there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
    /// since.
    pub is_storming: u32,
    /// The longest time that a completion may be held, in ticks.
    pub max_hold: u64,
    /// The time that trials of a regulator may take beyond the budget so far, in ticks summed over the requests.
    pub learning: u64,
    /// The time for which completions were held, in ticks summed over them. It saturates.
    pub held_time: u64,
    /// The time for which commands were outstanding, in ticks summed over them. It saturates.
    pub outstanding_time: u64,
}

/// Reads the state of a machine, as of the last call with a time. `info_size` is `sizeof(coalesce_budget_info)`.
///
/// # Safety
/// `state` is null or points to a `coalesce_budget_state` that nobody changes during the call; `info` is null or points
/// to `info_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_get_info(
    state: *const coalesce_budget_state,
    info: *mut coalesce_budget_info,
    info_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let Either(machine) = match unsafe { EitherState::look(state) } {
        Ok(state) => &state.machine,
        Err(status) => return status,
    };
    let Spent { held: held_time, outstanding: outstanding_time, learning } = machine.spent().unwrap_or_default();
    let value = coalesce_budget_info {
        held: machine.held(),
        is_storming: machine.is_storming().into(),
        max_hold: machine.config().max_hold().unwrap_or(COALESCE_NEVER),
        learning,
        held_time,
        outstanding_time,
    };
    // SAFETY: the caller's promise.
    unsafe { answer(info, info_size, value) }
}

/// The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
/// is invalid.
///
/// # Safety
/// As `coalesce_budget_deadline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_budget_reason(state: *const coalesce_budget_state) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { EitherState::look(state) }.map_or(COALESCE_REASON_NONE, |state| state.reason)
}
