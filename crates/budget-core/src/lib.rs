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
//! A latency budget.

mod algorithm;
mod config;

pub use algorithm::{Budget, Event};
pub use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason, Stats};
pub use config::{Config, Params};
