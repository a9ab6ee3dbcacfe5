#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::expect_used,
    clippy::float_arithmetic,
    clippy::indexing_slicing,
    clippy::integer_division,
    clippy::panic,
    clippy::unwrap_used
)]
//! vIC decides whether a completion interrupts now or waits for more completions, from the commands in flight and the
//! completion rate. The paper's rules need no timer; `max_hold` and a known end of the timeslice do.
//!
//! An interrupt for each completion is good for latency; one interrupt for several is good for throughput. vIC (Ahmad,
//! Gulati and Mashtizadeh, "vIC: Interrupt Coalescing for Virtual Machine Storage Device IO", USENIX ATC 2011) decides
//! by the number of *commands in flight*. With many, the device stays busy while a few completions are held, and more
//! completions are sure to come; the next one that interrupts covers the held ones. With few, every completion
//! interrupts. Peirce and Boos ("Interrupt Coalescing in Xen with Scheduler Awareness", 2016) add a rule: hold nothing
//! when the guest is about to lose its CPU.
//!
//! # Terms
//!
//! - *completion*: one command has finished. *Interrupt*, *delivery*: one notification of the guest; it covers
//!   everything posted before it. A completion is *held* while it is posted and no interrupt covers it.
//! - *CIF*: commands in flight on this interrupt vector, including the one that completes now.
//! - *delivery ratio*: interrupts per completion, as the integers `count_up / skip_up`.
//! - *tick*: one unit of the caller's monotonic clock.
//! - *machine*: the state of this policy for one interrupt vector; plain data, a state machine.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, in ticks of one clock. The owner of a machine serialises the calls: one caller at a time.
//! 3. To get the CIF, decrement your counter of commands in flight. Then, *inside that serialisation*, load the counter
//!    and add one. With a value read before the decrement, two completions could each count the other as in flight, and
//!    both would be held. With the value that the decrement returns, the completion that decides last could count one
//!    that has interrupted already, and be held. Either way the guest would hang.
//! 4. Arm a timer for [`Policy::deadline`], and call [`Policy::on_deadline`] when it fires. With the paper's parameters (no
//!    `max_hold`) and no known end of the timeslice there is no deadline: while CIF is correct, another completion always
//!    comes.
//! 5. Say which commands failed ([`Completion::class`]) or were aborted ([`Policy::on_cancel`]), and call [`Policy::flush`] on stop,
//!    reset and migration.
//!
//! ```
//! use vic_core::{Completion, Config, ConfigError, Params, Policy as _, Vic};
//!
//! let mut policy = Vic::new(Config::new(Params::DEFAULT)?); // a tick is a nanosecond
//! let decision = policy.on_completion(1_000, &Completion::with_cif(1)); // one command in flight, this one
//! assert!(decision.is_deliver());
//! assert_eq!((policy.held(), policy.deadline()), (0, None));
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! [`Config::new`] and [`Vic::new`] are `const`: a machine can be a `static`.
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates no memory, cannot panic, uses no float, and divides only when an epoch
//! ends. It takes no hints from the requester: for that see `cint-core`.

mod algorithm;
mod config;
mod cycle;
mod events;
mod fast;
#[cfg(target_has_atomic = "64")]
mod ipi;
mod policy;
mod time;

/// The atomics of the gate; those of loom in `loom/`.
#[cfg(target_has_atomic = "64")]
mod atomic {
    pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
}

pub use algorithm::{Ratio, Vic};
pub use coalesce_decision::{
    Class, Completion, ConfigError, Decision, Event, Field, HoldReason, Mark, Policy, Reason, Stats, Submission,
};
pub use config::{Config, Params};
#[cfg(target_has_atomic = "64")]
pub use ipi::{Ipi, IpiGate, IpiParams};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
