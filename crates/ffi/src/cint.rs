//! cinterrupts: `cint_...`. Decisions come from what the requester says, over burst detection.

use crate::error::{
    COALESCE_FIELD_IN_FLIGHT, COALESCE_FIELD_OOO, COALESCE_FIELD_RESERVED, COALESCE_FIELD_STORM_SHIFT,
    COALESCE_FIELD_THR, Refused, coalesce_error,
};
use crate::hint::{COALESCE_HINT_PLAIN, known};
use crate::status::*;
use crate::tagged::{Machine, Tagged, answer, kind, put_config, read_config};
use cint_core::{Cint, Config, Event, Field, Params, StormParams};

/// A cinterrupts machine for one interrupt vector, in the caller's memory: 88 bytes. Opaque. It has no pointers and owns
/// nothing: it may be moved and copied while nobody uses it, and needs no end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cint_state {
    /// Do not look into it.
    pub opaque: [u64; 11],
}

type State = Tagged<Cint>;

impl Machine for Cint {
    type State = cint_state;
    const KIND: u32 = kind(b'C');
}

/// Parameters of cinterrupts. Begin with `cint_config_default`, `cint_config_optane` or `cint_config_p3700`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cint_config {
    /// `sizeof(cint_config)`
    pub struct_size: u32,
    /// This many completions of a burst interrupt at once. 1 to 65535; 1: no coalescing.
    pub thr: u32,
    /// Ticks of the caller's clock in a second. 1000 to 10000000000.
    pub tick_hz: u64,
    /// Δ: so long without a completion ends a burst, in ns; 0: the caller says when, by `cint_on_batch_end`. 0 to 10 ms.
    pub delta_ns: u64,
    /// How long a completion may be held, in ns. 1 ns to 1 s, and up to 500 million ticks; `COALESCE_NEVER`: up to
    /// (thr - 1) * Δ. With a storm guard it is 1 s / storm_max_rate at least, and with `ooo` a storm may exceed it by less
    /// than that.
    pub max_hold_ns: u64,
    /// The storm guard: interrupts a second in the long run, at most. 1, or tick_hz / 125 million, to tick_hz / 5;
    /// 0: no guard.
    pub storm_max_rate: u64,
    /// The weight of one gap between interrupts in the guard's moving average is 2^-storm_shift. 5 to 16; the authors' is 7.
    pub storm_shift: u32,
    /// The `in_flight` rule: below so many commands in flight every completion interrupts, and above no more are held than
    /// keep the device busy. 2 to 32767; 0: no rule.
    pub in_flight: u32,
    /// 1: an urgent completion is announced alone, what is held stays held (§3.5); 0: it announces everything.
    pub ooo: u32,
    /// 0
    pub reserved: u32,
}

impl cint_config {
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
        let narrow = |number: u32, value: u32, range: (u64, u64)| {
            u16::try_from(value).map_err(|_| coalesce_error::new(number, value.into(), range))
        };
        if self.ooo > 1 {
            return Err(coalesce_error::new(COALESCE_FIELD_OOO, self.ooo.into(), (0, 1)).into());
        }
        if self.reserved != 0 {
            return Err(coalesce_error::new(COALESCE_FIELD_RESERVED, self.reserved.into(), (0, 0)).into());
        }
        let shift = narrow(COALESCE_FIELD_STORM_SHIFT, self.storm_shift, (5, 16))?.min(u8::MAX.into()) as u8;
        let in_flight = narrow(COALESCE_FIELD_IN_FLIGHT, self.in_flight, Field::InFlight.range())?;
        Ok(Params {
            tick_hz: self.tick_hz,
            delta_ns: self.delta_ns,
            thr: narrow(COALESCE_FIELD_THR, self.thr, Field::Thr.range())?,
            ooo: self.ooo == 1,
            max_hold_ns: (self.max_hold_ns != COALESCE_NEVER).then_some(self.max_hold_ns),
            storm: (self.storm_max_rate != 0).then_some(StormParams { max_rate: self.storm_max_rate, shift }),
            in_flight: (in_flight != 0).then_some(in_flight),
        })
    }
}

/// The paper's parameters for Optane, made safe: nothing is held longer than 100 µs, nor so much that the device could run
/// dry.
///
/// # Safety
/// `config` is null or points to `config_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_config_default(config: *mut cint_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, cint_config::new(&Params::DEFAULT, tick_hz)) };
}

/// What the paper describes for an Intel Optane P4800X and no more (§5.2): Δ = 6 µs, thr = 32.
///
/// # Safety
/// As `cint_config_default`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_config_optane(config: *mut cint_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, cint_config::new(&Params::OPTANE, tick_hz)) };
}

/// The same for an Intel P3700: Δ = 15 µs.
///
/// # Safety
/// As `cint_config_default`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_config_p3700(config: *mut cint_config, config_size: usize, tick_hz: u64) {
    // SAFETY: the caller's promise.
    unsafe { put_config(config, config_size, cint_config::new(&Params::P3700, tick_hz)) };
}

/// Makes a machine that has seen nothing. `state_size` is `sizeof(cint_state)`; `error` may be null. On an error the
/// memory is as it was.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes as
/// its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_init(
    state: *mut cint_state,
    state_size: usize,
    config: *const cint_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of the two.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Cint::new);
        State::make(state, state_size, machine, error)
    }
}

/// Takes a new configuration, with what is held, and decides about it. `tick_hz` stays; a storm guard that changes starts
/// anew. On an error nothing has changed; `error` may be null.
///
/// # Safety
/// As `cint_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_reconfigure(
    state: *mut cint_state,
    config: *const cint_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |cint| Ok(cint.reconfigure(checked?, now)?), error)
    }
}

/// Commands in flight are not known: the `in_flight` rule is off for this completion. Only for
/// `cint_on_completion` and `cint_on_completion_strict`: vIC takes it for so many commands, and holds.
pub const COALESCE_CIF_UNKNOWN: u32 = 0xFFFF_FFFF_u32;

/// A command completed, with `COALESCE_HINT_...`; one that is unknown delivers. `cif` commands were in flight, counting
/// this one: decrement your counter, then, inside the serialisation that protects the state, load it again, and add one;
/// or `COALESCE_CIF_UNKNOWN`.
///
/// # Safety
/// `state` is null or points to a `cint_state` that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_completion(state: *mut cint_state, now: u64, hint: u32, cif: u32) -> coalesce_status {
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

/// Apart from the fast path, so that the fast path needs no stack.
#[inline(never)]
fn slow_path(state: &mut State, now: u64, hint: u32, cif: u32) -> coalesce_status {
    let decision = state.machine.on_event(now, known(hint).map_or(Event::Error, Event::from), cif);
    state.note(decision)
}

/// When `cint_on_deadline` must be called if nothing happens before; `COALESCE_NEVER`: nothing is held, or not bounded.
/// May change in every call.
///
/// # Safety
/// `state` is null or points to a `cint_state` that nobody changes during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_deadline(state: *const cint_state) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.ok().and_then(|state| state.machine.deadline()).map_or(COALESCE_NEVER, instant)
}

/// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
///
/// # Safety
/// As `cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_deadline(state: *mut cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.on_deadline(now)) }
}

/// The device has posted all it had. Ends a burst where Δ is 0.
///
/// # Safety
/// As `cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_batch_end(state: *mut cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.on_batch_end(now)) }
}

/// Queue stop, reset, migration: announces what is held, storm or not. A failed command is `COALESCE_HINT_URGENT`.
///
/// # Safety
/// As `cint_on_completion`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_flush(state: *mut cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |cint| cint.flush(now)) }
}

/// The consumer has taken everything that was posted, without an interrupt. Call it only if, inside the serialisation
/// that protects the state, the consumer's index equals what was posted.
///
/// # Safety
/// As `cint_on_completion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_on_consumed(state: *mut cint_state, now: u64) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::tell(state, |cint| cint.on_consumed(now)) }
}

/// What a machine says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct cint_info {
    /// Completions held: posted and not announced; those announced alone as urgent are not among them.
    pub held: u32,
    /// 1: interrupts come faster than the storm guard allows, so that it spaces them.
    pub is_storming: u32,
    /// How often a call was older than the one before it; stops at 65535.
    pub times_back: u32,
    /// 0
    pub reserved: u32,
}

/// Looks at a machine. `info_size` is `sizeof(cint_info)`.
///
/// # Safety
/// `state` is null or points to a `cint_state` that nobody changes during the call; `info` is null or points to
/// `info_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_get_info(
    state: *const cint_state,
    info: *mut cint_info,
    info_size: usize,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let machine = match unsafe { State::look(state) } {
        Ok(state) => &state.machine,
        Err(status) => return status,
    };
    let value = cint_info {
        held: machine.held(),
        is_storming: machine.is_storming().into(),
        times_back: machine.times_back().into(),
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { answer(info, info_size, value) }
}

/// Why the last decision was taken: `COALESCE_REASON_...`; `COALESCE_REASON_NONE` if there was none, or no such state.
///
/// # Safety
/// As `cint_deadline`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cint_reason(state: *const cint_state) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { State::look(state) }.map_or(COALESCE_REASON_NONE, |state| state.reason)
}
