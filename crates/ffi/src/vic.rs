//! vIC: `coalesce_vic_...`. It decides by the commands in flight and the completion rate.

use crate::error::{Refused, coalesce_error, narrow, switch, zero};
use crate::field::{COALESCE_FIELD_CIF_THRESHOLD, COALESCE_FIELD_LIVE_CLAMP, COALESCE_FIELD_MAX_SKIP};
use crate::instant::{COALESCE_NEVER, instant};
use crate::reason::COALESCE_REASON_NONE;
use crate::status::*;
use crate::tagged::{Machine, Tagged, answer, kind, put_config, read_config};
use vic_core::{Config, Field, Params, Policy as _, Vic};

/// A vIC machine for one interrupt vector, in the caller's memory: 104 bytes. Opaque. It contains no pointers and owns
/// nothing. It may be moved and copied while no thread uses it, and there is no destructor.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_vic_state {
    /// Private to the library.
    pub opaque: [u64; 13],
}

type State = Tagged<Vic>;

impl Machine for Vic {
    type State = coalesce_vic_state;
    const KIND: u32 = kind(b'V');
}
const _: () = assert!(size_of::<State>() == 104, "the paper's figure");

/// Parameters of vIC. Start from `coalesce_vic_config_default` or `coalesce_vic_config_paper`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_vic_config {
    /// `sizeof(coalesce_vic_config)`
    pub struct_size: u32,
    /// Below this many commands in flight every completion interrupts. 2 to 65535.
    pub cif_threshold: u32,
    /// Ticks per second of the caller's clock. 1000 to 10000000000.
    pub tick_hz: u64,
    /// The interval at which the delivery ratio is recomputed, in ns. 1 ms to 60 s.
    pub epoch_ns: u64,
    /// The longest time that a completion may be held, in ns. 1 ns to 1 s; `COALESCE_NEVER`: no limit in time; it waits
    /// for at most `max_skip` - 1 further completions.
    pub max_hold_ns: u64,
    /// Scheduler awareness: the largest difference between the clock of `slice_end` and the caller's, in ns. The window
    /// before the end of a timeslice is longer by this. 0 to 100 ms.
    pub margin_ns: u64,
    /// Below this many completions per second every completion interrupts; 0: no such limit.
    pub iops_threshold: u32,
    /// The limit of the paper's `skipUp` in the rows 1/k of its Table 1. Of every `max_skip` completions (of five, if
    /// `max_skip` is less and `live_clamp` is 0) at least one interrupts. 2 to 65535.
    pub max_skip: u32,
    /// 1: limit held completions by the commands in flight at each completion; 0: only at the start of an epoch.
    pub live_clamp: u32,
    /// Must be 0.
    pub reserved: u32,
}

impl coalesce_vic_config {
    pub(crate) fn new(params: &Params, tick_hz: u64) -> Self {
        Self {
            struct_size: size_of::<Self>() as u32,
            cif_threshold: params.cif_threshold.into(),
            tick_hz,
            epoch_ns: params.epoch_ns,
            max_hold_ns: params.max_hold_ns.unwrap_or(COALESCE_NEVER),
            margin_ns: params.margin_ns,
            iops_threshold: params.iops_threshold,
            max_skip: params.max_skip.into(),
            live_clamp: params.live_clamp.into(),
            reserved: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<Config, Refused> {
        Ok(Config::new(self.params()?)?)
    }

    pub(crate) fn params(&self) -> Result<Params, Refused> {
        let live_clamp = switch(COALESCE_FIELD_LIVE_CLAMP, self.live_clamp)?;
        zero(self.reserved)?;
        Ok(Params {
            tick_hz: self.tick_hz,
            cif_threshold: narrow(COALESCE_FIELD_CIF_THRESHOLD, self.cif_threshold, Field::CifThreshold.range())?,
            iops_threshold: self.iops_threshold,
            epoch_ns: self.epoch_ns,
            max_skip: narrow(COALESCE_FIELD_MAX_SKIP, self.max_skip, Field::MaxSkip.range())?,
            max_hold_ns: (self.max_hold_ns != COALESCE_NEVER).then_some(self.max_hold_ns),
            live_clamp,
            margin_ns: self.margin_ns,
        })
    }
}

/// The paper's parameters with bounds: a completion is held for at most 500 µs, a cycle has at most 16 completions, and
/// the live clamp keeps the device busy.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_config_default(
    config: *mut coalesce_vic_config,
    config_size: usize,
    tick_hz: u64,
) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_vic_config::new(&Params::DEFAULT, tick_hz)) };
}

/// Exactly what the paper describes (vIC §4). There is no limit in time: a held completion waits for up to `max_skip` -
/// 1 further completions.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_config_paper(config: *mut coalesce_vic_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, coalesce_vic_config::new(&Params::PAPER, tick_hz)) };
}

/// Initialises a machine: ratio 1, nothing held.
///
/// `state_size` is `sizeof(coalesce_vic_state)`; `error` may be null. On an error the memory is unchanged.
///
/// A state that holds something is forgotten with it: call `coalesce_vic_flush` first, and interrupt unless it returns hold.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
/// as its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_init(
    state: *mut coalesce_vic_state,
    state_size: usize,
    config: *const coalesce_vic_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of both calls.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Vic::new);
        State::make(state, state_size, machine, error)
    }
}

/// Changes the configuration, and decides about the held completions. The running epoch and its ratio stay. `tick_hz`
/// cannot change. On an error nothing changes. `error` may be null.
///
/// # Safety
/// As `coalesce_vic_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_reconfigure(
    state: *mut coalesce_vic_state,
    config: *const coalesce_vic_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |vic| Ok(vic.reconfigure(checked?, now)?), error)
    }
}

/// Decides about a completed command. `cif` is the number of commands in flight, including this one. To get it,
/// decrement your counter. Then load it again inside the lock that protects the state, and add one.
///
/// # Safety
/// `state` is null or points to a `coalesce_vic_state` that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_completion(
    state: *mut coalesce_vic_state,
    now: u64,
    cif: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::at(state) } {
        Ok(state) => match state.machine.on_completion_fast(now, cif) {
            Some(decision) => state.note(decision),
            None => slow_path(state, now, cif),
        },
        Err(status) => status,
    }
}

/// The slow path. It has the parameters of `coalesce_vic_on_completion`, so that the tail call needs no stack.
#[inline(never)]
extern "C" fn slow_path(state: &mut State, now: u64, cif: u32) -> coalesce_status {
    let decision = state.machine.on_completion_in_slice(now, cif, None);
    state.note(decision)
}

/// `coalesce_vic_on_completion` with the instant at which the guest's timeslice ends (Xen §4). An instant that is not
/// in the future counts as unknown.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_completion_in_slice(
    state: *mut coalesce_vic_state,
    now: u64,
    cif: u32,
    slice_end: u64,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_completion_in_slice(now, cif, Some(slice_end))) }
}

/// The instant at which to call `coalesce_vic_on_deadline`; `COALESCE_NEVER`: nothing is held, or the hold has no
/// bound in time (no `max_hold_ns`): up to `max_skip` - 1 further completions end it. Every call may change it.
///
/// # Safety
/// `state` is null or points to a `coalesce_vic_state` that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_deadline(state: *const coalesce_vic_state) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.ok().and_then(|state| state.machine.deadline()).map_or(COALESCE_NEVER, instant)
}

/// Decides at the deadline. Early, late and repeated calls are harmless.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_deadline(state: *mut coalesce_vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_deadline(now)) }
}

/// Delivers everything held: for a queue stop, a reset and a migration. For a failed command, call it after
/// `coalesce_vic_on_completion`; for an aborted one, too, as it will not complete and end a hold.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_flush(state: *mut coalesce_vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.flush(now)) }
}

/// Notes that the guest was scheduled on a CPU, and delivers everything held.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_schedule(state: *mut coalesce_vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_schedule(now)) }
}

/// Notes that the guest was descheduled from its CPU, and delivers everything held. Until `coalesce_vic_on_schedule`,
/// neither time nor completions count towards the rate.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_deschedule(state: *mut coalesce_vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_deschedule(now)) }
}

/// Notes that the guest has reaped everything without an interrupt. Call it only if the guest has reaped up to the last
/// posted completion in every queue of the vector (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's),
/// with all indices read inside the lock that protects the state.
///
/// # Safety
/// As `coalesce_vic_on_completion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_on_consumed(state: *mut coalesce_vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::apply(state, |vic| vic.on_consumed(now)) }
}

/// The state of a machine, for statistics.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct coalesce_vic_info {
    /// Held completions: posted, and not covered by an interrupt.
    pub held: u32,
    /// The delivery ratio: `count_up` interrupts...
    pub count_up: u32,
    /// ...in `skip_up` completions.
    pub skip_up: u32,
    /// How often the clock went back from one call to the next; saturates at 65535.
    pub times_back: u32,
}

/// Reads the state of a machine. `info_size` is `sizeof(coalesce_vic_info)`.
///
/// # Safety
/// `state` is null or points to a `coalesce_vic_state` that nobody changes during the call; `info` is null or points to
/// `info_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_get_info(
    state: *const coalesce_vic_state,
    info: *mut coalesce_vic_info,
    info_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let machine = match unsafe { State::look(state) } {
        Ok(state) => &state.machine,
        Err(status) => return status,
    };
    let ratio = machine.ratio();
    let value = coalesce_vic_info {
        held: machine.held(),
        count_up: ratio.count_up.into(),
        skip_up: ratio.skip_up.into(),
        times_back: machine.times_back().into(),
    };
    // SAFETY: the caller's promise.
    unsafe { answer(info, info_size, value) }
}

/// The reason of the last decision: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` before the first one, or if `state`
/// is invalid.
///
/// # Safety
/// As `coalesce_vic_deadline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_vic_reason(state: *const coalesce_vic_state) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.map_or(COALESCE_REASON_NONE, |state| state.reason)
}
