//! cinterrupts: `coalesce_cint_...`. It decides by the requester's hints and by burst detection.

use crate::error::{Refused, coalesce_error, narrow, switch, zero};
use crate::field::{COALESCE_FIELD_IN_FLIGHT, COALESCE_FIELD_OOO, COALESCE_FIELD_STORM_SHIFT, COALESCE_FIELD_THR};
use crate::hint::{COALESCE_HINT_PLAIN, event};
use crate::instant::{COALESCE_NEVER, instant};
use crate::reason::COALESCE_REASON_NONE;
use crate::status::*;
use crate::tagged::{Machine, Tagged, answer, kind, put_config, read_config};
use cint_core::{Cint, Config, Field, Params, Policy as _, StormParams};

/// A cinterrupts machine for one interrupt vector, in the caller's memory: 88 bytes. Opaque. It contains no pointers
/// and owns nothing. It may be moved and copied while no thread uses it, and there is no destructor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_cint_state {
    /// Private to the library.
    pub opaque: [u64; 11],
}

type State = Tagged<Cint>;

impl Machine for Cint {
    type State = coalesce_cint_state;
    const KIND: u32 = kind(b'C');
}

/// Parameters of cinterrupts. Start from `coalesce_cint_config_default`, `coalesce_cint_config_optane` or
/// `coalesce_cint_config_p3700`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_cint_config {
    /// `sizeof(coalesce_cint_config)`
    pub struct_size: u32,
    /// The number of completions that ends a burst. 1 to 65535; 1: no coalescing.
    pub thr: u32,
    /// Ticks per second of the caller's clock. 1000 to 10000000000.
    pub tick_hz: u64,
    /// Δ: the time without a completion that ends a burst, in ns. 0 to 10 ms; 0: the caller ends bursts with
    /// `coalesce_cint_on_batch_end`.
    pub delta_ns: u64,
    /// The longest time that a completion may be held, in ns. 1 ns to 1 s, and at most 500 million ticks;
    /// `COALESCE_NEVER`: no limit of its own; Δ and `thr` then limit it to (thr - 1) * Δ, if Δ is not 0. With a storm
    /// guard it must be at least 1 s / storm_max_rate. With `ooo` and in a storm, a completion may be held longer by
    /// less than 1 s / storm_max_rate.
    pub max_hold_ns: u64,
    /// The storm guard's limit: the most interrupts per second, on average. 1, or tick_hz / 125 million if that is
    /// more, to tick_hz / 5; 0: no guard.
    pub storm_max_rate: u64,
    /// The weight of one interval between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16 if
    /// there is a guard, the authors use 7; else it has no effect, 0 to 255.
    pub storm_shift: u32,
    /// The `in_flight` rule: with fewer commands in flight every completion interrupts; with more, only as many are
    /// held as keep the device busy. 2 to 32767; 0: no rule.
    pub in_flight: u32,
    /// 1: the interrupt of an urgent completion covers it alone, and held completions stay held (§3.5), unless `thr` or
    /// the `in_flight` rule ends their hold with it; 0: it covers all. 1 needs a host that reaps nothing but urgent
    /// completions at such an interrupt.
    pub ooo: u32,
    /// Must be 0.
    pub reserved: u32,
}

impl coalesce_cint_config {
    pub(crate) fn new(params: &Params, tick_hz: u64) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            thr: params.thr.into(),
            tick_hz,
            delta_ns: params.delta_ns,
            max_hold_ns: params.max_hold_ns.unwrap_or(COALESCE_NEVER),
            storm_max_rate: params.storm.map_or(0, |storm| storm.max_rate),
            storm_shift: params.storm.map_or(7, |storm| storm.shift.into()),
            in_flight: params.in_flight.map_or(0, u32::from),
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
        let in_flight = narrow(COALESCE_FIELD_IN_FLIGHT, self.in_flight, Field::InFlight.range())?;
        Ok(Params {
            tick_hz: self.tick_hz,
            delta_ns: self.delta_ns,
            thr: narrow(COALESCE_FIELD_THR, self.thr, Field::Thr.range())?,
            ooo,
            max_hold_ns: (self.max_hold_ns != COALESCE_NEVER).then_some(self.max_hold_ns),
            storm: (self.storm_max_rate != 0)
                .then_some(StormParams { max_rate: self.storm_max_rate, shift: storm_shift }),
            in_flight: (in_flight != 0).then_some(in_flight),
        })
    }
}

/// The paper's parameters for Optane with two bounds: a completion is held for at most 100 µs, and the `in_flight` rule
/// keeps the device busy. `ooo` is 1: set it to 0 for a host that reaps everything at each interrupt, or some interrupts
/// find nothing.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_config_default(
    config: *mut coalesce_cint_config,
    config_size: usize,
    tick_hz: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_cint_config::new(&Params::DEFAULT, tick_hz)) };
}

/// Exactly what the paper describes for an Intel Optane P4800X (§5.2): Δ = 6 µs, thr = 32. `ooo` is 1, as in
/// `coalesce_cint_config_default`.
///
/// # Safety
/// As `coalesce_cint_config_default`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_config_optane(
    config: *mut coalesce_cint_config,
    config_size: usize,
    tick_hz: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_cint_config::new(&Params::OPTANE, tick_hz)) };
}

/// The paper's parameters for an Intel P3700: Δ = 15 µs, thr = 32. `ooo` is 1, as in `coalesce_cint_config_default`.
///
/// # Safety
/// As `coalesce_cint_config_default`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_config_p3700(
    config: *mut coalesce_cint_config,
    config_size: usize,
    tick_hz: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_cint_config::new(&Params::P3700, tick_hz)) };
}

/// Initialises a machine. `state_size` is `sizeof(coalesce_cint_state)`; `error` may be null. On an error the memory is
/// unchanged.
///
/// A state that holds something is forgotten with it: call `coalesce_cint_flush` first, and interrupt unless it returns hold.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
/// as its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_init(
    state: *mut coalesce_cint_state,
    state_size: usize,
    config: *const coalesce_cint_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of both calls.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Cint::new);
        State::make(state, state_size, machine, error)
    }
}

/// Changes the configuration, and decides about the held completions. `tick_hz` cannot change. A storm guard with new
/// parameters restarts. What the guard had deferred is delivered. On an error nothing changes. `error` may be null.
///
/// # Safety
/// As `coalesce_cint_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_reconfigure(
    state: *mut coalesce_cint_state,
    config: *const coalesce_cint_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |cint| Ok(cint.reconfigure(checked?, now)?), error)
    }
}

/// The number of commands in flight is unknown: the `in_flight` rule is off for this completion. Only for
/// `coalesce_cint_on_completion` and `coalesce_cint_on_completion_strict`. vIC, a latency budget, `auto` and a
/// `coalesce_policy` would take it as a number of commands, and hold.
pub const COALESCE_CIF_UNKNOWN: u32 = u32::MAX;

/// Decides about a completed command. `hint` is `COALESCE_HINT_...`; an unknown hint delivers. `cif` is the number of
/// commands in flight, including this one, or `COALESCE_CIF_UNKNOWN`. To get it, decrement your counter. Then load it
/// again inside the lock that protects the state, and add one.
///
/// # Safety
/// `state` is null or points to a `coalesce_cint_state` that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_completion(
    state: *mut coalesce_cint_state,
    now: u64,
    hint: u32,
    cif: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::at(state) } {
        Ok(state) => {
            if hint == COALESCE_HINT_PLAIN
                && let Some(decision) = state.machine.on_completion_fast(now, cif)
            {
                return state.note(decision);
            }
            slow_path(state, now, hint, cif)
        }
        Err(status) => status,
    }
}

/// Kept out of line, so that the fast path needs no stack.
#[inline(never)]
fn slow_path(state: &mut State, now: u64, hint: u32, cif: u32) -> coalesce_status {
    let cif = cif.max(1); // 0 is wrong, and must not count as unknown
    let decision = state.machine.on_event(now, event(hint), cif);
    state.note(decision)
}

/// The instant at which to call `coalesce_cint_on_deadline`; `COALESCE_NEVER`: nothing is held, or the hold has no
/// bound in time (Δ = 0, and no `max_hold_ns`): an Urgent, a Barrier, `thr` completions, `coalesce_cint_on_batch_end` or
/// `coalesce_cint_flush` ends it. Every call may change it.
///
/// # Safety
/// `state` is null or points to a `coalesce_cint_state` that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_deadline(state: *const coalesce_cint_state) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.ok().and_then(|state| state.machine.deadline()).map_or(COALESCE_NEVER, instant)
}

/// Decides at the deadline. Early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_deadline(state: *mut coalesce_cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.on_deadline(now)) }
}

/// Notes that the device has posted everything that it had to post. With Δ = 0 this ends the burst. This batch is the
/// device's, what it posts in one pass, not the requester's batch of a Barrier.
///
/// # Safety
/// As `coalesce_cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_batch_end(state: *mut coalesce_cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.on_batch_end(now)) }
}

/// Delivers everything held, even in a storm: for a queue stop, a reset and a migration. A failed command needs no
/// flush: report it with `COALESCE_HINT_URGENT`, or a Barrier with `COALESCE_HINT_FAILED_BARRIER`.
///
/// # Safety
/// As `coalesce_cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_flush(state: *mut coalesce_cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.flush(now)) }
}

/// Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to
/// the last posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the
/// ring's), with all indices read inside the lock that protects the state.
///
/// # Safety
/// As `coalesce_cint_on_completion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_on_consumed(state: *mut coalesce_cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::apply(state, |cint| cint.on_consumed(now)) }
}

/// The state of a machine, for statistics.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct coalesce_cint_info {
    /// Held completions: posted, and not covered by an interrupt. An urgent completion that interrupted alone is not
    /// held.
    pub held: u32,
    /// 1: there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
    /// since.
    pub is_storming: u32,
    /// How often the clock went back from one call to the next; saturates at 65535.
    pub times_back: u32,
    /// Reserved: 0.
    pub reserved: u32,
}

/// Reads the state of a machine. `info_size` is `sizeof(coalesce_cint_info)`.
///
/// # Safety
/// `state` is null or points to a `coalesce_cint_state` that nobody changes during the call; `info` is null or points
/// to `info_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_get_info(
    state: *const coalesce_cint_state,
    info: *mut coalesce_cint_info,
    info_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let machine = match unsafe { State::look(state) } {
        Ok(state) => &state.machine,
        Err(status) => return status,
    };
    let value = coalesce_cint_info {
        held: machine.held(),
        is_storming: machine.is_storming().into(),
        times_back: machine.times_back().into(),
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { answer(info, info_size, value) }
}

/// The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
/// is invalid.
///
/// # Safety
/// As `coalesce_cint_deadline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_cint_reason(state: *const coalesce_cint_state) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.map_or(COALESCE_REASON_NONE, |state| state.reason)
}
