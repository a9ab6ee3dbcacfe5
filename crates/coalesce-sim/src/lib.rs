//! What every interrupt coalescing policy would do: simulated, or replayed from a trace.
//!
//! Everything here is deterministic: one seed gives the same bytes on every machine. Time is in nanoseconds.
//!
//! ```
//! use coalesce_sim::plan::{Device, Kind, Plan, Preset, Thread};
//!
//! let mut plan = Plan::new("one at a time", Device::preset(Preset::OptaneP4800x));
//! plan.threads = vec![Thread::new("reader", Kind::Sync)];
//! plan.policies = vec!["none".into(), "cint:delta=6us,in_flight=off".into()];
//! let outcomes = coalesce_sim::run::run(&plan)?;
//! let added = outcomes[1].latency.mean - outcomes[0].latency.mean;
//! assert!((added - 6000.0).abs() < 10.0, "a burst of one is waited for");
//! # Ok::<(), coalesce_sim::plan::Wrong>(())
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`command_line`] | `coalesce-sim`, and the same with policies of one's own |
//! | [`contender`] | names what can decide: any policy, [`published`] baselines that only the simulator has, one's own |
//! | [`mod@line`] | one interrupt line: a policy, what is in flight behind it, what it holds, what each interrupt covers |
//! | [`event`] | what happened on a line, for time lines |
//! | [`check`] | checks a line from its events alone |
//! | [`plan`] | what is simulated: machine, device, threads, policies, faults, what is varied |
//! | [`units`] | values with units, as plans write them |
//! | [`engine`] | simulates one plan under one policy |
//! | [`fuzz`] | plans at random, with faults |
//! | [`run`] | runs all that a plan asks for, in parallel; [`outcome`] is what it gives |
//! | [`replay`] | what policies would have done with a trace; [`trace`] reads one, [`replay::optimum`] finds the fewest interrupts,
//! | | [`replay::explain`] says why a policy decides as it does |
//! | [`calibrate`] | Δ and thr for a load |
//! | [`cycles`] | what an I/O and an interrupt cost a CPU, where it is stated and not simulated |
//! | [`papers`] | the papers' figures, simulated; `coalesce-sim papers` |
//! | [`score`] | every policy over many workloads, compared with `none` |
//! | [`mod@contract`] | a latency budget under the loads that try it |
//! | [`report`] | what was found, for people and for other programs |
//!
//! The feature `cli`, on by default, is the program: command lines, files, progress. Without it the library also runs in a
//! browser (`wasm32-unknown-unknown`).

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod check;
#[cfg(feature = "cli")]
pub mod command_line;
pub mod contender;
pub mod contract;
pub mod cycles;
pub mod engine;
pub mod event;
pub mod fuzz;
mod integral;
pub mod line;
pub mod outcome;
pub mod papers;
pub mod plan;
pub mod published;
pub mod replay;
pub mod report;
pub mod run;
pub mod score;
pub mod trace;
pub mod units;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
