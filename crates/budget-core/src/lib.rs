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
//! A latency budget: interrupt now, or wait for company? As few interrupts as a stated share of the requests' time buys.
//!
//! One parameter, ε, for example 5 %: of the time your requests spend, at most 5 % is added by waiting for company; within
//! that, as few interrupts as it buys; nobody who is marked urgent, and nobody who is alone, waits; no wait is longer than
//! `max_hold`. A storm guard, if there is one, may make all of them wait for the end of its interval.
//!
//! # Terms
//!
//! - *completion*: one command finished. *Interrupt*, *delivery*: one notification of the consumer; it covers everything
//!   completed before it. A completion is *held* while it is posted and no interrupt covers it.
//! - *outstanding*: submitted, and not reaped by the consumer. *CIF*: commands in flight on this interrupt vector, counting
//!   the one that is completing now.
//! - *alone*: no more than one command was outstanding at any time since the last probe.
//! - *depth*: the commands that the requesters submit before they wait for us.
//! - *OOO*: an Urgent interrupts alone, out of order; held completions stay held.
//! - *storm*: interrupts faster than a limit; the *storm guard* paces them.
//! - *tick*: one unit of the caller's monotonic clock.
//!
//! # How it works
//!
//! By Little's law the time that all requests spend is the integral of *outstanding* over time, and the part of it that
//! holding adds is the integral of *held*. The machine keeps
//!
//! > integral of held ≤ ε · integral of outstanding + C0
//!
//! at every moment, for any device and any load: it holds a completion only if eight usual gaps between completions are
//! paid for. C0, [`Config::learning`], is what it costs to learn; it does not grow. Two things come to it: what a late timer
//! adds, and what is held while the storm guard allows no interrupt, because both are somebody else's choice.
//! [`Budget::spent`] counts them.
//!
//! A device that is faster than its guest never sees what the guest could have outstanding: it sees one command at a time.
//! So now and then the machine holds one completion after the other until the guest falls silent: a *probe*. What is held
//! then is the depth; it moves only as far as two probes in a row agree. While the load goes on, until sixteen usual gaps
//! after the last completion, the depth counts as outstanding: the requester counts its commands from its own call, also
//! those that have not reached the device. An open load never falls silent, so it has no depth. Probes that find nothing to
//! save become rare. The number of completions from one to the next is odd, so that they do not all begin at the same command
//! of a batch.
//!
//! With OOO, an Urgent leaves the others as they are: their deadline, their account, the usual gap, a probe. If they can no
//! longer be paid for, because fewer commands are outstanding without it, its interrupt covers them too. Each Urgent that
//! goes past them counts towards `thr`, so that they do not block a queue.
//!
//! In a storm, what is due waits until the interval since the last interrupt is over, also an Urgent or a Barrier. Then one
//! interrupt covers all. [`Event::Error`], [`Budget::flush`] and a new configuration do not wait.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, of one clock, in ticks. One caller at a time: a machine is serialised by its owner.
//! 3. Call [`Budget::on_submit`] for each command when it is submitted.
//! 4. Arm a timer, relative to now, for [`Budget::deadline`] and call [`Budget::on_deadline`].
//! 5. A failed command is [`Event::Error`] or [`Event::Urgent`]. On stop, reset and migration call [`Budget::flush`].
//!
//! ```
//! use budget_core::{Budget, Config, Decision, Event, HoldReason, Params, Reason};
//!
//! let mut budget = Budget::new(Config::new(Params::DEFAULT)?); // 5 %; a tick is a nanosecond
//! budget.on_submit(1_000, 1);
//! assert_eq!(budget.on_completion(9_000, Event::Plain, 1, 1), Decision::Deliver(Reason::LowCif));
//! // 64 outstanding, and a completion every 1 µs: holding earns more than it costs.
//! for at in 10..74 {
//!     budget.on_submit(at * 1_000, (at - 9).try_into()?);
//! }
//! for at in 74..84 {
//!     let _ = budget.on_completion(at * 1_000, Event::Plain, 64, 64);
//! }
//! assert_eq!(budget.on_completion(84_000, Event::Urgent, 64, 64), Decision::Deliver(Reason::Urgent));
//! assert_eq!(budget.on_completion(85_000, Event::Plain, 64, 64), Decision::Hold(HoldReason::Company));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates nothing, cannot panic, uses no float, and neither loops nor divides in a
//! decision.

mod account;
mod algorithm;
mod config;
mod credit;
mod depth;
mod events;
mod storm;

pub use algorithm::Budget;
pub use coalesce_decision::{ConfigError, Decision, Event, Field, HoldReason, Reason, Stats, StormParams};
pub use config::{Config, Params};
