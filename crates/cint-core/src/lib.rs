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
//! cinterrupts: interrupt now, or wait for company? Decided from what the requester says, over burst detection.
//!
//! After a command completes, a storage device must decide whether to interrupt at once, which is good for latency, or
//! to wait until more have completed, which is good for throughput. No heuristic in the device can know which of its
//! commands somebody waits for; but the requester knows, and two bits tell (Tai, Smolyar, Wei and Tsafrir, "Optimizing
//! Storage Performance with Calibrated Interrupts", ACM Transactions on Storage 2022): *Urgent* interrupts at once,
//! *Barrier* when a batch is complete, and everything else rides with them, or waits for a quiet time Δ or for `thr`
//! completions.
//!
//! # Terms
//!
//! - *completion*: one command finished. *Interrupt*, *delivery*: one notification of the consumer; it covers
//!   everything completed before it. A completion is *held* while it is posted and no interrupt covers it.
//! - *burst*: completions that follow each other within Δ.
//! - *OOO*: an Urgent is delivered alone, out of order; what is held stays held.
//! - *storm*: interrupts faster than allowed; the *storm guard* spaces them.
//! - *CIF*: commands in flight on this interrupt vector, counting the one that is completing now.
//! - *tick*: one unit of the caller's monotonic clock.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, of one clock, in ticks. One caller at a time: a machine is serialised by its owner.
//! 3. Arm a timer, relative to now, for [`Cint::deadline`] and call [`Cint::on_deadline`]. With Δ = 0 and no `max_hold`
//!    call [`Cint::on_batch_end`] whenever the device has posted all it had.
//! 4. CIF, if you give it: decrement your counter, then, inside the serialisation, load it again, and add one.
//! 5. A failed command is Urgent. On stop, reset and migration call [`Cint::flush`].
//!
//! ```
//! use cint_core::{Cint, Config, Decision, Hint, HoldReason, Params, Reason};
//!
//! let mut cint = Cint::new(Config::new(Params::OPTANE)?); // Δ = 6 µs, thr = 32; a tick is a nanosecond
//! assert_eq!(cint.on_completion(1_000, Hint::Plain, None), Decision::Hold(HoldReason::Burst));
//! assert_eq!(cint.on_completion(2_000, Hint::Urgent, None), Decision::DeliverUrgent);
//! assert_eq!(cint.deadline(), Some(8_000));
//! assert_eq!(cint.on_deadline(8_000), Decision::Deliver(Reason::Delta));
//! # Ok::<(), cint_core::ConfigError>(())
//! ```
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates nothing, cannot panic, uses no float, and neither loops nor divides in a
//! decision. It must be told which command is Urgent: [`Hint`] and [`SystemCall`] help to say so.

mod algorithm;
mod barrier;
mod config;
mod fast;
mod hint;
mod reaper;
mod storm;

pub use algorithm::{CIF_UNKNOWN, Cint, Event};
pub use barrier::{Ticket, Tracker, Window, Word};
pub use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason, Stats};
pub use config::{Config, Params, StormParams};
pub use hint::{Barriers, BothBits, Hint, SystemCall};
pub use reaper::{Cursor, Entry, Reaper};
