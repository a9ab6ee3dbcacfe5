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
//! vIC: interrupt now, or wait for company? Decided from commands in flight and completion rate, without a timer.
//!
//! After a command completes, a storage device must decide whether to interrupt the guest at once, which is good for
//! latency, or to wait until more have completed, which is good for throughput. vIC (Ahmad, Gulati and Mashtizadeh,
//! "vIC: Interrupt Coalescing for Virtual Machine Storage Device IO", USENIX ATC 2011) looks at the *commands in
//! flight*: with many, the device stays busy while a few completions wait, and the next completion is sure to come and
//! to carry them; with few, every completion interrupts. Peirce and Boos ("Interrupt Coalescing in Xen with Scheduler
//! Awareness", 2016) add that nothing is held when the guest is about to lose its CPU.
//!
//! # Terms
//!
//! - *completion*: one command finished. *Interrupt*, *delivery*: one notification of the guest; it covers everything
//!   completed before it. A completion is *held* while it is visible to the guest but not announced.
//! - *CIF*: commands in flight on this interrupt vector, counting the one that is completing now.
//! - *delivery ratio*: interrupts per completion, as the integers `count_up / skip_up`.
//! - *tick*: one unit of the caller's monotonic clock.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, of one clock, in ticks. One caller at a time: a machine is serialised by its owner.
//! 3. CIF: decrement your counter, then, *inside that serialisation*, load it again, and add one. A value read before
//!    the decrement, or returned by it, lets two last callers hold at once, and the guest hangs.
//! 4. Arm a timer, relative to now, for [`Vic::deadline`] and call [`Vic::on_deadline`]. The parameters of the paper
//!    need none: there, another completion always comes as long as CIF is true.
//! 5. On stop, reset and migration, call [`Vic::flush`]; for a failed command after its `on_completion`, if that holds it.
//!
//! ```
//! use vic_core::{Config, Params, Vic};
//!
//! const CONFIG: Config = match Config::new(Params::DEFAULT) {
//!     Ok(config) => config,
//!     Err(_) => panic!("parameter out of range"),
//! };
//! static IDLE: Vic = Vic::new(CONFIG); // const-constructible
//!
//! let mut vic = IDLE;
//! let (now, cif) = (1_000, 1); // dd: one command at a time
//! assert!(vic.on_completion(now, cif).is_deliver());
//! assert_eq!(vic.deadline(), None);
//! ```
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates nothing, cannot panic, uses no float, and divides only when an epoch
//! ends. It knows nothing of the requester's intentions: for that see `cint-core`.

mod algorithm;
mod config;
mod events;
mod fast;
#[cfg(target_has_atomic = "64")]
mod ipi;
mod ratio;
mod window;

pub use algorithm::Vic;
pub use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason, Stats};
pub use config::{Config, Params};
#[cfg(target_has_atomic = "64")]
pub use ipi::{Ipi, IpiGate};
pub use ratio::Ratio;
