//! A state in the caller's memory: a word that identifies its kind, and the machine.

use crate::error::{Refused, coalesce_error};
use crate::reason::COALESCE_REASON_NONE;
use crate::status::{
    COALESCE_DELIVER, COALESCE_DELIVER_URGENT, COALESCE_E_ALIGNMENT, COALESCE_E_NULL, COALESCE_E_SIZE,
    COALESCE_E_STATE, COALESCE_HOLD, COALESCE_OK, coalesce_status,
};
use crate::version::COALESCE_ABI_VERSION;
use coalesce_decision::{Decision, Reason};

/// The content of a C state. `kind` differs for each type of machine and each version of the ABI.
#[repr(C)]
pub(crate) struct Tagged<T> {
    kind: u32,
    /// The reason of the last decision.
    pub(crate) reason: u32,
    pub(crate) machine: T,
}

/// The kind of the states whose type has this letter. It is not a plausible value of other memory (zeroes, ones, text).
pub(crate) const fn kind(letter: u8) -> u32 {
    u32::from_le_bytes([COALESCE_ABI_VERSION as u8, letter, 0xC0, 0xA1])
}

/// A machine with its own state type in C.
pub(crate) trait Machine: Sized {
    /// The C type.
    type State;
    /// The first word of its states: [`kind`].
    const KIND: u32;
    /// The first word of larger states that begin like these, and may be in their place.
    const LARGER: u32 = Self::KIND;
}

/// A decision as numbers: the status and the reason.
#[inline(always)]
pub(crate) const fn numbers(decision: Decision) -> (coalesce_status, u32) {
    match decision {
        Decision::Deliver(reason) => (COALESCE_DELIVER, reason as u32),
        Decision::Hold(reason) => (COALESCE_HOLD, reason as u32),
        Decision::DeliverUrgent => (COALESCE_DELIVER_URGENT, Reason::Urgent as u32),
    }
}

/// The error for a pointer that is not a valid state. Kept out of line, off the fast path.
#[cold]
#[inline(never)]
fn what_is_wrong(state: *const u64) -> coalesce_status {
    if state.is_null() {
        COALESCE_E_NULL
    } else if state.is_aligned() {
        COALESCE_E_STATE
    } else {
        COALESCE_E_ALIGNMENT
    }
}

impl<T: Machine> Tagged<T> {
    /// The state at the caller's pointer, if it is one of this kind.
    ///
    /// # Safety
    /// `state` is null, or points to a state.
    #[inline(always)]
    unsafe fn check(state: *const T::State) -> Result<*const Self, coalesce_status> {
        const { assert!(size_of::<Self>() == size_of::<T::State>() && align_of::<Self>() == align_of::<u64>()) };
        let state = state.cast::<Self>();
        // Checked separately: as one condition it costs one instruction more.
        if state.is_null() {
            return Err(what_is_wrong(state.cast()));
        }
        // SAFETY: the memory is there, and any four bytes are a number.
        let is_kind = |kind| unsafe { (*state).kind } == kind;
        if !state.is_aligned() || !(is_kind(T::KIND) || is_kind(T::LARGER)) {
            return Err(what_is_wrong(state.cast()));
        }
        Ok(state)
    }

    /// The state, for changes.
    ///
    /// # Safety
    /// `state` is null, or points to a state that nobody else uses during the call.
    #[inline(always)]
    pub(crate) unsafe fn at<'a>(state: *mut T::State) -> Result<&'a mut Self, coalesce_status> {
        // SAFETY: the caller's promise; the first word shows that `make` wrote this memory.
        unsafe { Self::check(state).map(|state| &mut *state.cast_mut()) }
    }

    /// The state, for reading.
    ///
    /// # Safety
    /// `state` is null, or points to a state that nobody changes during the call.
    #[inline(always)]
    pub(crate) unsafe fn look<'a>(state: *const T::State) -> Result<&'a Self, coalesce_status> {
        // SAFETY: as above.
        unsafe { Self::check(state).map(|state| &*state) }
    }

    /// Writes a state to the caller's memory of `size` bytes.
    ///
    /// # Safety
    /// `state` is null, or points to `size` bytes that nobody else uses; `error` is null, or points to room for an
    /// error.
    pub(crate) unsafe fn make(
        state: *mut T::State,
        size: usize,
        machine: Result<T, Refused>,
        error: *mut coalesce_error,
    ) -> coalesce_status {
        let place = state.cast::<Self>();
        let refused = if place.is_null() {
            Refused::Status(COALESCE_E_NULL)
        } else if size != size_of::<T::State>() {
            Refused::Status(COALESCE_E_SIZE)
        } else if !place.is_aligned() {
            Refused::Status(COALESCE_E_ALIGNMENT)
        } else {
            match machine {
                Ok(machine) => {
                    // SAFETY: the memory is not null, aligned, and large enough.
                    unsafe { place.write(Self { kind: T::KIND, reason: COALESCE_REASON_NONE, machine }) };
                    return COALESCE_OK;
                }
                Err(refused) => refused,
            }
        };
        // SAFETY: the caller's promise.
        unsafe { refused.report(error) }
    }

    /// Passes an event to the machine that needs no decision.
    ///
    /// # Safety
    /// `state` is null, or points to a state that nobody else uses during the call.
    pub(crate) unsafe fn apply(state: *mut T::State, call: impl FnOnce(&mut T)) -> coalesce_status {
        // SAFETY: the caller's promise.
        match unsafe { Self::at(state) } {
            Ok(state) => {
                call(&mut state.machine);
                COALESCE_OK
            }
            Err(status) => status,
        }
    }
}

impl<T: Machine> Tagged<T> {
    /// Asks the machine for a decision.
    ///
    /// # Safety
    /// `state` is null, or points to a state that nobody else uses during the call.
    #[inline(always)]
    pub(crate) unsafe fn decide(state: *mut T::State, call: impl FnOnce(&mut T) -> Decision) -> coalesce_status {
        // SAFETY: the caller's promise.
        match unsafe { Self::at(state) } {
            Ok(state) => {
                let decision = call(&mut state.machine);
                state.note(decision)
            }
            Err(status) => status,
        }
    }

    /// [`decide`](Self::decide) for a call that may be refused.
    ///
    /// # Safety
    /// As there; `error` is null, or points to room for an error.
    pub(crate) unsafe fn try_decide(
        state: *mut T::State,
        call: impl FnOnce(&mut T) -> Result<Decision, Refused>,
        error: *mut coalesce_error,
    ) -> coalesce_status {
        // SAFETY: the caller's promise.
        let refused = match unsafe { Self::at(state) } {
            Ok(state) => match call(&mut state.machine) {
                Ok(decision) => return state.note(decision),
                Err(refused) => refused,
            },
            Err(status) => Refused::Status(status),
        };
        // SAFETY: the caller's promise.
        unsafe { refused.report(error) }
    }

    /// Stores the reason of a decision, and returns its status.
    #[inline(always)]
    pub(crate) fn note(&mut self, decision: Decision) -> coalesce_status {
        let (status, reason) = numbers(decision);
        self.reason = reason;
        status
    }
}

/// The configuration at the caller's pointer, if it has this library's size.
///
/// # Safety
/// `config` is null, or points to as many bytes as its first word says.
pub(crate) unsafe fn read_config<C: Copy>(config: *const C) -> Result<C, Refused> {
    if config.is_null() {
        return Err(Refused::Status(COALESCE_E_NULL));
    }
    // SAFETY: a configuration begins with its size.
    let size = unsafe { config.cast::<u32>().read_unaligned() };
    if size as usize != size_of::<C>() {
        return Err(Refused::Status(COALESCE_E_SIZE));
    }
    // SAFETY: this many bytes are valid, and any bytes are a configuration.
    Ok(unsafe { config.read_unaligned() })
}

/// Writes a result, unless `out` is null.
///
/// # Safety
/// `out` is null, or points to room for a `T`.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write_unaligned(value) };
    }
}

/// Writes an initial configuration to the caller's memory of `size` bytes. If that is not this library's size, writes a
/// configuration of 0 bytes, which every function refuses.
///
/// # Safety
/// `out` is null, or points to `size` bytes.
pub(crate) unsafe fn put_config<C>(out: *mut C, size: usize, config: C) {
    if size == size_of::<C>() {
        // SAFETY: the caller's promise.
        unsafe { put(out, config) };
    } else if size >= size_of::<u32>() {
        // SAFETY: the caller's promise; a configuration begins with its size.
        unsafe { put(out.cast::<u32>(), 0) };
    }
}

/// Writes a result to the caller's memory of `size` bytes.
///
/// # Safety
/// `out` is null, or points to `size` bytes.
pub(crate) unsafe fn answer<T>(out: *mut T, size: usize, value: T) -> coalesce_status {
    if out.is_null() {
        return COALESCE_E_NULL;
    }
    if size != size_of::<T>() {
        return COALESCE_E_SIZE;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write_unaligned(value) };
    COALESCE_OK
}
