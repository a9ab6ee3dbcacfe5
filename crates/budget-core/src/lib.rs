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
//! A latency budget decides whether a completion interrupts now or waits for more completions:
//!
//! Waiting for company adds at most 5 % to the time your requests take, and more only while trials show that it makes
//! them faster, taken together; a request that is marked urgent or is alone does not wait, and no wait is longer than
//! `max_hold`.
//!
//! The share, ε, is its main parameter. A storm guard, if there is one, may hold any completion until its interval ends.
//!
//! # Terms
//!
//! - *completion*: one command finished. *Interrupt*, *delivery*: one notification of the consumer; it covers everything
//!   posted before it, except with *OOO*. A completion is *held* while it is posted and no interrupt covers it.
//! - *outstanding*: submitted, and not reaped by the consumer. *CIF*: commands in flight on this interrupt vector, counting
//!   the one that is completing now.
//! - *alone*: no more than one command was outstanding at a time during the last 400 completions, and no licence is in force. When
//!   requesters turn from many commands to one, at most twelve of their next completions are held before a licence is suspended; if
//!   they pause for a silence between their commands, only one is.
//! - *company*: completions that share an interrupt with a held one.
//! - *usual gap*: the moving average (EWMA, weight 1/8) of the time between two completions, without the gaps in which the
//!   requesters waited for held completions. A *silence* is eight usual gaps without a completion; with a licence, and in its
//!   trials, at most a quarter of `max_hold`.
//! - *OOO*: an Urgent interrupts alone, out of order; held completions stay held.
//! - *storm*: interrupts faster than a limit; the *storm guard* paces them.
//! - *tick*: one unit of the caller's monotonic clock.
//! - *machine*: the state of this policy for one interrupt vector; plain data, a state machine.
//!
//! # How it works
//!
//! **A strict account.** By Little's law the time that all requests spend is the integral of *outstanding* over time, and
//! the part of it that holding adds is the integral of *held*. The machine keeps
//!
//! > integral of held ≤ ε · integral of (outstanding − held) + C0
//!
//! for any device and any load, and counts only what the device sees: it holds a completion only if
//! the account can pay until a silence. C0, [`Config::learning_of`], is what trials may cost: it begins small, grows with
//! what the requests have spent, and ends at [`Config::learning`]. A trial holds a completion only if the account and C0 can pay for
//! all that it holds until a silence; with the first one that they cannot pay for it ends. The bound does not cover holds with a
//! licence, nor two costs that the machine does not choose: the delay of a late timer, and holds while the storm guard allows no
//! interrupt. [`Policy::spent`] counts them too.
//!
//! **A licence by effect.** A device that is faster than its guest sees one command at a time, whatever the guest has
//! outstanding, so the account pays for nothing there, where interrupts cost most. But it sees the effect: holding makes the
//! completions of such a guest come faster. [`Auto`] finds out by trials, in which a few stretches of completions with less
//! holding alternate with a few with more. Where the strict account makes them slower, ε is cut down to nothing. Where two
//! completions for each interrupt, or else four or eight, make them faster, by more than chance, it gives a *licence* for as many
//! ([`Level::Licensed`]): then the account rests. From there it climbs on, to eight at most, in the same way. Until there is a
//! licence the account and C0 pay for the trials. A licence is checked again and again, and falls when the effect is gone. It
//! is suspended when a dozen more holds *starve* than fill: they end because nobody comes any more, as the requesters have
//! fewer commands than that. A check decides whether it comes back. After one such hold each completion interrupts at once, until one
//! comes within a silence of another.
//!
//! A requester that waits for each request, behind the same interrupt vector as a flood that is licensed, waits for the flood's
//! interrupts. Each of those covers at most eight completions. Mark its requests urgent.
//!
//! With OOO, an Urgent does not affect the held completions: their deadline, their cost and the usual gap stay.
//! If the commands that are left can no longer pay for the hold, the Urgent's interrupt covers the held completions as well.
//! Each Urgent that overtakes them counts towards `thr`, so that held completions do not block a queue.
//!
//! In a storm, everything that is due, even an Urgent or a Barrier, waits until the interval since the last interrupt is
//! over. Then one interrupt covers all of it. [`Event::Error`], [`Policy::flush`] and a new configuration do not wait.
//!
//! # Contract
//!
//! 1. **Only [`Decision::Hold`] suppresses an interrupt.**
//! 2. Time is an argument, in ticks of one clock. The owner of a machine serialises the calls: one caller at a time.
//! 3. Call [`Policy::on_submit`] for each command when it is submitted, or for several at once ([`Submission::before`]). One
//!    that is not reported earns nothing until the next completion, whose `cif` counts it.
//! 4. Arm a timer that fires in `deadline - now` ticks ([`Policy::deadline`]; at once if it has passed), and call
//!    [`Policy::on_deadline`] when it does.
//! 5. Say which commands failed ([`Completion::class`]: they are Urgent), or report them as [`Event::Error`] if they must not
//!    wait in a storm. Call [`Policy::flush`] on stop, reset and migration.
//!
//! ```
//! use budget_core::{Auto, Completion, Config, ConfigError, Params, Policy as _, Submission};
//!
//! let mut policy = Auto::new(Config::new(Params::DEFAULT)?); // 5 %; a tick is a nanosecond
//! let mark = policy.on_submit(1_000, &Submission::default());
//! let decision = policy.on_completion(9_000, &Completion { mark, outstanding: 1, ..Completion::with_cif(1) });
//! assert!(decision.is_deliver());
//! assert_eq!((policy.held(), policy.deadline()), (0, None));
//! # Ok::<(), ConfigError>(())
//! ```
//!
//! [`Config::new`], [`Auto::new`] and [`Budget::new`] are `const`: a machine can be a `static`.
//!
//! # What it does not do
//!
//! It reads no clock, arms no timer, allocates nothing, cannot panic, uses no float, and neither loops nor divides in a
//! decision; completions that are found together are decided in a loop. [`Auto`] divides once at the end of a trial, in 64 steps.

mod account;
mod algorithm;
mod auto;
mod bypass;
mod config;
mod constants;
mod events;
mod fast;
mod level;
mod licence;
mod policy;
mod regulator;
mod stretch;
mod sum;
mod time;
mod together;

pub use algorithm::Budget;
pub use auto::Auto;
pub use coalesce_decision::{
    Bypassed, Class, Completion, ConfigError, Decision, Event, Field, Hint, HintSource, HoldReason, Mark, Policy,
    Reason, Share, Spent, Stats, StormParams, Submission, Submissions,
};
pub use config::{Config, Params};
pub use level::{Allowance, Level};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
