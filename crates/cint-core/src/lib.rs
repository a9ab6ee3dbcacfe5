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
//! cinterrupts decides whether a completion interrupts now or waits for more completions, from the requester's hints
//! and from burst detection.
//!
//! An interrupt for each completion is good for latency; one interrupt for several is good for throughput. A device
//! cannot know which command somebody waits for, but the requester can. So the requester sends two bits with a command
//! (Tai, Smolyar, Wei and Tsafrir, "Optimizing Storage Performance with Calibrated Interrupts", ACM Transactions on
//! Storage 2022). An *Urgent* command interrupts at once. A *Barrier* is the last command of a batch: it interrupts when
//! it completes, or with a [`Tracker`] when the whole batch has completed. Every other completion is held until one of
//! these interrupts covers it, or until its burst ends: after a time Δ without a completion, or after `thr` completions.
//!
//! # Terms
//!
//! - *completion*: one command has finished. *Interrupt*, *delivery*: one notification of the consumer; it covers
//!   everything posted before it, except with *OOO*. A completion is *held* while it is posted and no interrupt covers it.
//! - *burst*: completions that follow each other within Δ.
//! - *OOO*: an Urgent interrupts alone, out of order; held completions stay held.
//! - *storm*: interrupts faster than a limit; the *storm guard* paces them.
//! - *CIF*: commands in flight on this interrupt vector, including the one that completes now.
//! - *tick*: one unit of the caller's monotonic clock.
//! - *machine*: the state of this policy for one interrupt vector; plain data, a state machine.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, in ticks of one clock. The owner of a machine serialises the calls: one caller at a time.
//! 3. Arm a timer for [`Policy::deadline`], and call [`Policy::on_deadline`] when it fires. With Δ = 0, call
//!    [`Policy::on_batch_end`] whenever the device has posted every completion that is ready; without `max_hold` no deadline
//!    bounds a hold then.
//! 4. CIF is optional. To get it, decrement your counter of commands in flight. Then, inside that serialisation, load
//!    the counter and add one.
//! 5. Say which commands failed ([`Completion::class`]: they are Urgent), or report them as [`Event::Error`] if they must not
//!    wait in a storm. Call [`Policy::flush`] on stop, reset and migration.
//!
//! ```
//! use cint_core::{Cint, Completion, Config, ConfigError, Hint, Params, Policy as _};
//!
//! let mut policy = Cint::new(Config::new(Params::DEFAULT)?); // a tick is a nanosecond
//! let decision = policy.on_completion(1_000, &Completion { cif: 1, ..Completion::of(Hint::Urgent) });
//! assert!(decision.is_deliver());
//! assert_eq!((policy.held(), policy.deadline()), (0, None));
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! [`Config::new`] and [`Cint::new`] are `const`: a machine can be a `static`. [`Strict`] puts a [`Tracker`] in front of any
//! policy.
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates no memory, cannot panic, uses no float, and neither loops nor divides in
//! a decision. It does not infer hints: the caller gives them, with the help of [`Hint`] and [`SystemCall`].

mod algorithm;
mod barrier;
mod config;
mod events;
mod fast;
mod hint;
mod policy;
mod reaper;
mod strict;

pub use algorithm::Cint;
pub use barrier::{Tracker, Window, Word};
pub use coalesce_decision::{
    Barriers, BothBits, Class, Completion, ConfigError, Decision, Event, Field, Hint, HoldReason, Mark, Policy, Reason,
    Stats, StormParams, Submission, Ticket,
};
pub use config::{Config, Params};
pub use hint::SystemCall;
pub use reaper::{Cursor, Entry, Reaper};
pub use strict::Strict;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
