//! States that decisions are to be timed and counted on: of libcoalesce, of the cores, of the paper's algorithm in C, and of
//! the baselines. All have the same parameters, and an epoch behind them in which there was much to do.

use budget_core::Budget;
use cint_core::Cint;
use coalesce::auto::{coalesce_auto_init, coalesce_auto_state};
use coalesce::budget::{coalesce_budget_config_default, coalesce_budget_init, coalesce_budget_state};
use coalesce::cint::{coalesce_cint_config, coalesce_cint_config_default, coalesce_cint_init, coalesce_cint_state};
use coalesce::error::coalesce_error;
use coalesce::instant::COALESCE_NEVER;
use coalesce::status::{COALESCE_OK, coalesce_status};
use coalesce::vic::{
    coalesce_vic_config_default, coalesce_vic_init, coalesce_vic_on_completion_in_slice, coalesce_vic_state,
};
use coalesce_policy::AnyPolicy;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use vic_core::Vic;

/// Ticks in a second.
pub const HZ: u64 = 1_000_000_000;
/// Commands in flight, where they are many.
pub const MANY: u32 = 128;
/// A state that was made here has seen no later instant. An epoch of vIC began here.
pub const START: u64 = 200_020_000;

/// `struct algorithm2` in C.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Algorithm2 {
    epoch_start: u64,
    epoch: u64,
    tick_hz: u64,
    completions: u32,
    iops_threshold: u32,
    cif_threshold: u32,
    counter: u32,
    count_up: u32,
    skip_up: u32,
}

unsafe extern "C" {
    /// A command completed, the paper's way. 1: hold; 0: deliver.
    ///
    /// # Safety
    /// `state` points to a state that nobody else uses.
    pub fn algorithm2_on_completion(state: *mut Algorithm2, now: u64, cif: u32) -> i32;
}

/// The paper's algorithm, with the ratio that [`MANY`] gives: 1 / 16.
#[must_use]
pub const fn algorithm2() -> Algorithm2 {
    Algorithm2 {
        epoch_start: START,
        epoch: 200_000_000,
        tick_hz: HZ,
        completions: 0,
        iops_threshold: 2000,
        cif_threshold: 4,
        counter: 1,
        count_up: 1,
        skip_up: 16,
    }
}

/// An epoch of vIC at 100 000 completions a second.
fn epoch(on_completion: impl FnMut(u64)) {
    (10_000..=START).step_by(10_000).for_each(on_completion);
}

/// vIC, for Rust.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn vic() -> Vic {
    let mut vic = Vic::new(vic_core::Config::new(vic_core::Params::DEFAULT).expect("the defaults"));
    epoch(|now| _ = vic.on_completion_in_slice(now, MANY, None));
    vic
}

/// The same, for C.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn vic_for_c() -> coalesce_vic_state {
    // SAFETY: both functions are vIC's, and the pointer is to a state of vIC.
    unsafe {
        let mut vic = for_c(coalesce_vic_config_default, |_| {}, coalesce_vic_init);
        epoch(|now| {
            assert!(coalesce_vic_on_completion_in_slice(&raw mut vic, now, MANY, COALESCE_NEVER) >= COALESCE_OK)
        });
        vic
    }
}

/// A state of libcoalesce, of the default configuration and what `set` changes of it.
///
/// # Safety
/// `default` and `init` belong to one machine, whose configuration and state are integers alone.
unsafe fn for_c<C, S>(
    default: unsafe extern "C" fn(*mut C, usize, u64),
    set: impl FnOnce(&mut C),
    init: unsafe extern "C" fn(*mut S, usize, *const C, *mut coalesce_error) -> coalesce_status,
) -> S {
    let (mut config, mut state) = (MaybeUninit::<C>::zeroed(), MaybeUninit::<S>::zeroed());
    // SAFETY: zeroes are integers, and all pointers are to what is here.
    unsafe {
        default(config.as_mut_ptr(), size_of::<C>(), HZ);
        set(config.assume_init_mut());
        let status = init(state.as_mut_ptr(), size_of::<S>(), config.as_ptr(), null_mut());
        assert_eq!(status, COALESCE_OK, "the parameters are right");
        state.assume_init()
    }
}

// Long bursts: a plain completion is held.
const DELTA_NS: u64 = 1_000_000;
const THR: u16 = u16::MAX;
const MAX_HOLD_NS: u64 = 500_000_000;

/// cint, for Rust.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn cint() -> Cint {
    let params = cint_core::Params {
        delta_ns: DELTA_NS,
        thr: THR,
        max_hold_ns: Some(MAX_HOLD_NS),
        in_flight: None,
        ..cint_core::Params::DEFAULT
    };
    Cint::new(cint_core::Config::new(params).expect("in range"))
}

/// The same, for C.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn cint_for_c() -> coalesce_cint_state {
    let set = |config: &mut coalesce_cint_config| {
        (config.delta_ns, config.thr, config.max_hold_ns, config.in_flight) = (DELTA_NS, THR.into(), MAX_HOLD_NS, 0);
    };
    // SAFETY: both functions are cint's.
    unsafe { for_c(coalesce_cint_config_default, set, coalesce_cint_init) }
}

/// A latency budget, for Rust.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn budget() -> Budget {
    Budget::new(budget_core::Config::new(budget_core::Params::DEFAULT).expect("the defaults"))
}

/// The same, for C.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn budget_for_c() -> coalesce_budget_state {
    // SAFETY: both functions are a latency budget's.
    unsafe { for_c(coalesce_budget_config_default, |_| {}, coalesce_budget_init) }
}

/// The same with its regulator.
///
/// # Panics
/// Never: the parameters are right.
#[must_use]
pub fn auto_for_c() -> coalesce_auto_state {
    // SAFETY: both functions are those of auto, whose configuration is a latency budget's.
    unsafe { for_c(coalesce_budget_config_default, |_| {}, coalesce_auto_init) }
}

/// Any policy, by its text form.
///
/// # Panics
/// There is no such policy.
#[must_use]
pub fn policy(text: &str) -> AnyPolicy {
    AnyPolicy::new(text.parse().expect("a policy"), HZ).expect("a clock that suits it")
}
