//! Who uses the device.

use super::{Arrival, Distribution};
use crate::units::{Cost, Factor, Rate, Time};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One command, waits for it, and so on.
    Sync,
    /// `batch` commands, waits for all of them, and so on.
    Batch,
    /// Keeps up to `depth` commands outstanding, submits `batch` at a time: libaio under fio.
    Async,
    /// Commands arrive at `rate` whatever the device does.
    Open,
    /// Commands arrive when they did in a recorded trace, whatever the device does.
    Trace,
    /// Operations by weight, one after the other: a YCSB-like mix.
    Mix,
    /// Computes and uses no device.
    Compute,
}

/// What a thread says about its commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Nothing.
    #[default]
    Nothing,
    /// Each is Urgent.
    Urgent,
    /// The last of each batch is a Barrier.
    Barrier,
}

/// When commands of an open loop arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// With exponential gaps.
    #[default]
    Poisson,
    /// With gaps of the same length.
    Fixed,
}

/// A part of a trace, in its own time since its first arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Where it begins: at the beginning of the simulation.
    #[serde(default)]
    pub from: Time,
    /// Where it ends, at the latest; none: with the simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
}

/// Who runs first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// A fair share.
    #[default]
    Normal,
    /// Only what nobody else wants, and gives way at once.
    Idle,
}

/// A thread, or several alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Its name, in results.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// How many of them. 1 to 4096.
    #[serde(default = "one")]
    pub count: u32,
    /// The CPU that it runs on.
    #[serde(default)]
    pub cpu: u32,
    /// Each on a CPU of its own, from `cpu` on.
    #[serde(default)]
    pub spread: bool,
    /// What it says about its commands.
    #[serde(default)]
    pub hint: Said,
    /// Work of its own after each command, batch or operation that it waited for; for `async` after each command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Cost>,
    /// `async`, `open`, `trace`: commands outstanding, at most. 1 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `batch`, `async`: commands submitted together. 1 to `depth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// `async`: takes answers only when `depth` are outstanding, as fio does; otherwise as soon as there are any.
    #[serde(default)]
    pub reap_when_full: bool,
    /// `open`: arrivals. `async`: commands that it submits, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// `open`: the gaps between arrivals, instead of `rate` and `arrivals`: those of a record, pauses included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Distribution>,
    /// `trace`: the file, in any format that `coalesce-sim replay` reads or that has arrivals alone; where it is not absolute,
    /// beside the plan. Of `count` threads, each takes the arrivals of some of its queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<PathBuf>,
    /// `trace`: the part of it; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// `trace`: how many times as fast as they did, commands arrive; none: as fast. 0.001x to 1000000x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_up: Option<Factor>,
    /// What arrives: read from `trace` by [`Point::load`](super::Point::load).
    #[serde(skip)]
    pub recorded: Option<Arc<[Arrival]>>,
    /// `open`: when they arrive.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Bursts: submits for so long, and then not for `off`; `open`: commands arrive for so long. Both or neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Time>,
    /// See `on`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<Time>,
    /// `mix`: the operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<Operation>,
    /// Who runs first.
    #[serde(default)]
    pub priority: Priority,
}

const fn one() -> u32 {
    1
}

/// An operation of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// How often it is chosen, relative to the others.
    pub weight: u32,
    /// Commands, submitted together; all are waited for. 0: it only works.
    pub commands: u32,
    /// What is said about them.
    #[serde(default)]
    pub hint: Said,
    /// The last of them is a flush.
    #[serde(default)]
    pub flush: bool,
    /// Work after it.
    #[serde(default = "no_work")]
    pub think: Cost,
}

const fn no_work() -> Cost {
    Cost::Time(0)
}

impl Thread {
    /// One thread on CPU 0.
    #[must_use]
    pub fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            count: 1,
            cpu: 0,
            spread: false,
            hint: Said::Nothing,
            think: None,
            depth: None,
            batch: None,
            reap_when_full: false,
            rate: None,
            gaps: None,
            trace: None,
            window: None,
            speed_up: None,
            recorded: None,
            arrivals: Arrivals::Poisson,
            on: None,
            off: None,
            operations: Vec::new(),
            priority: Priority::Normal,
        }
    }

    /// The CPU of each of them.
    pub fn cpus(&self) -> impl Iterator<Item = usize> {
        let (first, step) = (self.cpu as usize, usize::from(self.spread));
        (0..self.count as usize).map(move |i| first + i * step)
    }
}
