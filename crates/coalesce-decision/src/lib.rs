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
//! The interface of every policy: what it is told, what it decides, and how it is configured.
//!
//! A [`Policy`] is told of each [`Submission`] and each [`Completion`], and answers each event with a [`Decision`] and its
//! reason. What a requester says about a command is a [`Hint`]; its [`Mark`] carries it from submission to completion, where
//! it is an [`Event`].
//!
//! The number of a [`Reason`], a [`HoldReason`] or a [`Field`] is its number in the C ABI, and never changes. No two
//! reasons, of delivery or hold, share a number, and no two fields do. [`Stats`] counts decisions, and [`Counted`] those of
//! a policy. [`ticks`] converts durations to ticks of the caller's clock. [`StormParams`] and [`StormGuard`] limit the rate
//! of interrupts.
//!
//! ```
//! use coalesce_decision::{Decision, HoldReason, Reason, Stats};
//!
//! let mut stats = Stats::ZERO;
//! assert!(stats.count(Decision::Deliver(Reason::Urgent)).is_deliver());
//! assert!(!stats.count(Decision::Hold(HoldReason::Burst)).is_deliver());
//! assert_eq!(stats.of(Decision::Deliver(Reason::Urgent)), 1);
//! ```

#[cfg(feature = "alloc")]
extern crate alloc;

#[macro_use]
mod numbered;

mod completion;
mod counted;
mod decision;
mod event;
mod field;
mod hint;
mod mark;
mod policy;
mod share;
mod source;
mod stats;
mod storm;
mod submission;
pub mod ticks;

pub use completion::{Class, Completion};
pub use counted::Counted;
pub use decision::{Decision, HoldReason, Reason};
pub use event::Event;
pub use field::{ConfigError, Field};
pub use hint::{Barriers, BothBits, Hint};
pub use mark::{Mark, Ticket};
pub use policy::{Bypassed, Policy, Spent};
pub use share::Share;
pub use source::{HintCounts, HintSource, HintSources};
pub use stats::Stats;
pub use storm::{StormGuard, StormParams, storm_and_hold};
pub use submission::{Submission, Submissions};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
