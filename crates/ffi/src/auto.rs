//! A latency budget with its regulator, the policy `auto`: `coalesce_auto_...`, and the functions of a budget.

use crate::budget::{WITH_REGULATOR, coalesce_budget_config, coalesce_budget_state, completion};
use crate::error::coalesce_error;
use crate::hint::event;
use crate::status::*;
use crate::tagged::{Machine, Tagged, read_config};
use budget_core::{Auto, Policy as _};

/// A latency budget with its regulator, which is the policy `auto`, for one interrupt vector, in the caller's memory:
/// 200 bytes. The regulator cuts the budget where holding slows the requesters down, and lets it add more where trials
/// show that holding makes them faster.
///
/// Call the functions of its `budget` with `&state.budget`, but for those that are here: `coalesce_budget_reconfigure`,
/// `coalesce_budget_on_completion`, `coalesce_budget_on_completion_strict` and `coalesce_budget_forget` refuse it
/// (`COALESCE_E_STATE`). As a `coalesce_budget_state` it may be moved and copied, but only as a whole.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_auto_state {
    /// The latency budget.
    pub budget: coalesce_budget_state,
    /// Private to the library.
    pub opaque: [u64; 11],
}

type State = Tagged<Auto>;

impl Machine for Auto {
    type State = coalesce_auto_state;
    const KIND: u32 = WITH_REGULATOR;
}

/// Initialises a machine: nothing learned, nothing held. `state_size` is `sizeof(coalesce_auto_state)`; `error` may be
/// null. On an error the memory is unchanged.
///
/// A state that holds something is forgotten with it: call `coalesce_budget_flush` first, and interrupt unless it returns hold.
///
/// # Safety
/// `state` is null or points to `state_size` bytes that nobody else uses; `config` is null or points to as many bytes
/// as its `struct_size` says; `error` is null or points to a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_auto_init(
    state: *mut coalesce_auto_state,
    state_size: usize,
    config: *const coalesce_budget_config,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises are those of both calls.
    unsafe {
        let machine = read_config(config).and_then(|config| config.check()).map(Auto::new);
        State::make(state, state_size, machine, error)
    }
}

/// As `coalesce_budget_reconfigure`. What the regulator has learned is forgotten.
///
/// # Safety
/// As `coalesce_auto_init`, of a state that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_auto_reconfigure(
    state: *mut coalesce_auto_state,
    config: *const coalesce_budget_config,
    now: u64,
    error: *mut coalesce_error,
) -> coalesce_status {
    // SAFETY: the caller's promises.
    unsafe {
        let checked = read_config(config).and_then(|config| config.check());
        State::try_decide(state, |auto| Ok(auto.reconfigure(checked?, now)?), error)
    }
}

/// Decides about a completed command, as `coalesce_budget_on_completion`.
///
/// # Safety
/// `state` is null or points to a `coalesce_auto_state` that nobody else uses during the call.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_auto_on_completion(
    state: *mut coalesce_auto_state,
    now: u64,
    hint: u32,
    cif: u32,
    outstanding: u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::decide(state, |auto| auto.on_completion(now, &completion(event(hint), cif, outstanding))) }
}

/// As `coalesce_budget_forget`. What the regulator has learned is forgotten, too.
///
/// # Safety
/// As `coalesce_auto_on_completion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_auto_forget(state: *mut coalesce_auto_state) -> coalesce_status {
    // SAFETY: the caller's promise.
    unsafe { State::apply(state, Auto::reset_tracking) }
}
