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
//! What every policy says, and how it is configured: the vocabulary that the cores share.
//!
//! A policy answers each event with a [`Decision`] and its reason. The number of a [`Reason`], a [`HoldReason`] or a
//! [`Field`] is its number in the C ABI, and never changes. No two reasons, of delivery or hold, share a number, and no two
//! fields do. [`Stats`] counts decisions. [`ticks`] converts durations to ticks of the caller's clock. [`StormParams`] and
//! [`StormGuard`] limit the rate of interrupts.
//!
//! ```
//! use coalesce_decision::{Decision, HoldReason, Reason, Stats};
//!
//! let mut stats = Stats::ZERO;
//! assert!(stats.count(Decision::Deliver(Reason::Urgent)).is_deliver());
//! assert!(!stats.count(Decision::Hold(HoldReason::Burst)).is_deliver());
//! assert_eq!(stats.of(Decision::Deliver(Reason::Urgent)), 1);
//! ```

mod decision;
mod event;
mod field;
mod stats;
mod storm;
pub mod ticks;

pub use decision::{Decision, HoldReason, Reason};
pub use event::Event;
pub use field::{ConfigError, Field};
pub use stats::Stats;
pub use storm::{StormGuard, StormParams, storm_and_hold};
