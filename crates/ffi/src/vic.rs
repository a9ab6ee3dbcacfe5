//! vIC: `vic_...`. Decisions come from commands in flight and completion rate.

use crate::error::{
    COALESCE_FIELD_CIF_THRESHOLD, COALESCE_FIELD_LIVE_CLAMP, COALESCE_FIELD_MAX_SKIP, COALESCE_FIELD_RESERVED, Refused,
    coalesce_error,
};
use crate::status::*;
use crate::tagged::{Machine, Tagged, answer, kind, put_config, read_config};
use vic_core::{Config, Field, Params, Vic};

/// A vIC machine for one interrupt vector, in the caller's memory: 104 bytes. Opaque. It has no pointers and owns
/// nothing: it may be moved and copied while nobody uses it, and needs no end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct vic_state {
    /// Do not look into it.
    pub opaque: [u64; 13],
}

type State = Tagged<Vic>;

impl Machine for Vic {
    type State = vic_state;
    const KIND: u32 = kind(b'V');
}
const _: () = assert!(size_of::<State>() == 104, "the paper's figure");

/// Parameters of vIC. Begin with `vic_config_default` or `vic_config_paper`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct vic_config {
    /// `sizeof(vic_config)`
    pub struct_size: u32,
    /// Below this many commands in flight every completion interrupts. 2 to 65535.
    pub cif_threshold: u32,
    /// Ticks of the caller's clock in a second. 1000 to 10000000000.
    pub tick_hz: u64,
    /// How often the delivery ratio is determined anew, in ns. 1 ms to 60 s.
    pub epoch_ns: u64,
    /// How long a completion may be held, in ns. 1 ns to 1 s; `COALESCE_NEVER`: until the device completes another one.
    pub max_hold_ns: u64,
    /// Scheduler awareness: by how much the two clocks may differ, in ns. 0 to 100 ms.
    pub margin_ns: u64,
    /// Below this many completions a second every completion interrupts; 0: never too few.
    pub iops_threshold: u32,
    /// The longest cycle: one interrupt in `max_skip` completions at least. 2 to 65535.
    pub max_skip: u32,
    /// 1: compare what is held with the commands in flight at each completion; 0: only at the start of an epoch.
    pub live_clamp: u32,
    /// 0
    pub reserved: u32,
}

impl vic_config {
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
        let narrow = |number: u32, value: u32, field: Field| {
            u16::try_from(value).map_err(|_| coalesce_error::new(number, value.into(), field.range()))
        };
        if self.live_clamp > 1 {
            return Err(coalesce_error::new(COALESCE_FIELD_LIVE_CLAMP, self.live_clamp.into(), (0, 1)).into());
        }
        if self.reserved != 0 {
            return Err(coalesce_error::new(COALESCE_FIELD_RESERVED, self.reserved.into(), (0, 0)).into());
        }
        Ok(Params {
            tick_hz: self.tick_hz,
            cif_threshold: narrow(COALESCE_FIELD_CIF_THRESHOLD, self.cif_threshold, Field::CifThreshold)?,
            iops_threshold: self.iops_threshold,
            epoch_ns: self.epoch_ns,
            max_skip: narrow(COALESCE_FIELD_MAX_SKIP, self.max_skip, Field::MaxSkip)?,
            max_hold_ns: (self.max_hold_ns != COALESCE_NEVER).then_some(self.max_hold_ns),
            live_clamp: self.live_clamp == 1,
            margin_ns: self.margin_ns,
        })
    }
}

/// The paper's parameters, made safe: nothing is held longer than 500 µs, nor so much that the device could run dry.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_config_default(config: *mut vic_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, vic_config::new(&Params::DEFAULT, tick_hz)) };
}

/// What the paper describes and no more (vIC §4). It has no time bound: a completion is held until the device completes
/// another one.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_config_paper(config: *mut vic_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, vic_config::new(&Params::PAPER, tick_hz)) };
}

/// Makes a machine that has seen nothing: ratio 1, nothing held.
///
/// `state_size` is `sizeof(vic_state)`; `error` may be null. On an error the memory is as it was.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes as
/// its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_init(
    state: *mut vic_state,
    state_size: usize,
    config: *const vic_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of the two.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Vic::new);
        State::make(state, state_size, machine, error)
    }
}

/// Takes a new configuration, with what is held, and decides about it. The epoch that runs, its ratio, and `tick_hz` stay.
/// On an error nothing has changed; `error` may be null.
///
/// # Safety
/// As `vic_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_reconfigure(
    state: *mut vic_state,
    config: *const vic_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |vic| Ok(vic.reconfigure(checked?, now)?), error)
    }
}

/// A command completed; `cif` commands were in flight, counting this one: decrement your counter, then, inside the
/// serialisation that protects the state, load it again, and add one.
///
/// # Safety
/// `state` is null or points to a `vic_state` that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_completion(state: *mut vic_state, now: u64, cif: u32) -> coalesce_status {
    // SAFETY: the caller's promise.
    match unsafe { State::at(state) } {
        Ok(state) => match state.machine.on_completion_fast(now, cif) {
            Some(decision) => state.note(decision),
            None => slow_path(state, now, cif),
        },
        Err(status) => status,
    }
}

/// The slow path. It takes what that takes, so that going on to it needs no stack there.
#[inline(never)]
extern "C" fn slow_path(state: &mut State, now: u64, cif: u32) -> coalesce_status {
    let decision = state.machine.on_completion_in_slice(now, cif, None);
    state.note(decision)
}

/// The same, with the instant at which the guest's timeslice ends (Xen §4). One that is not in the future says nothing.
///
/// # Safety
/// As `vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_completion_in_slice(
    state: *mut vic_state,
    now: u64,
    cif: u32,
    slice_end: u64,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_completion_in_slice(now, cif, Some(slice_end))) }
}

/// When `vic_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not bounded.
/// May change in every call.
///
/// # Safety
/// `state` is null or points to a `vic_state` that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_deadline(state: *const vic_state) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.ok().and_then(|state| state.machine.deadline()).map_or(COALESCE_NEVER, instant)
}

/// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
///
/// # Safety
/// As `vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_deadline(state: *mut vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_deadline(now)) }
}

/// Queue stop, reset, migration: announces what is held. A failed command completes as any other, by `vic_on_completion`;
/// call this after it.
///
/// # Safety
/// As `vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_flush(state: *mut vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.flush(now)) }
}

/// The guest has been put on a CPU: announces what is held.
///
/// # Safety
/// As `vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_schedule(state: *mut vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_schedule(now)) }
}

/// The guest is taken off its CPU: announces what is held. Until `vic_on_schedule` neither time nor completions count for
/// the rate.
///
/// # Safety
/// As `vic_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_deschedule(state: *mut vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |vic| vic.on_deschedule(now)) }
}

/// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation that
/// protects the state, the guest's index equals what was posted.
///
/// # Safety
/// As `vic_on_completion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_on_consumed(state: *mut vic_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::tell(state, |vic| vic.on_consumed(now)) }
}

/// What a machine says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct vic_info {
    /// Completions held: posted and not announced.
    pub held: u32,
    /// The delivery ratio: `count_up` interrupts...
    pub count_up: u32,
    /// ...in `skip_up` completions.
    pub skip_up: u32,
    /// How often a call was older than the one before it; stops at 65535.
    pub times_back: u32,
}

/// Looks at a machine. `info_size` is `sizeof(vic_info)`.
///
/// # Safety
/// `state` is null or points to a `vic_state` that nobody changes during the call; `info` is null or points to
/// `info_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_get_info(
    state: *const vic_state,
    info: *mut vic_info,
    info_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let machine = match unsafe { State::look(state) } {
        Ok(state) => &state.machine,
        Err(status) => return status,
    };
    let ratio = machine.ratio();
    let value = vic_info {
        held: machine.held().into(),
        count_up: ratio.count_up.into(),
        skip_up: ratio.skip_up.into(),
        times_back: machine.times_back().into(),
    };
    // SAFETY: the caller's promise.
    unsafe { answer(info, info_size, value) }
}

/// Why the last decision was taken: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` if there was none, or no such state.
///
/// # Safety
/// As `vic_deadline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vic_reason(state: *const vic_state) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.map_or(COALESCE_REASON_NONE, |state| state.reason)
}
