//! What is simulated: machine, device, threads, policies, faults, and what is varied.
//!
//! A plan is a TOML file ([`Plan::read`]), or built in Rust from [`Plan::new`]. Every value has a unit, and every model
//! parameter a default with its source.

mod arrival;
mod device;
mod faults;
mod host;
mod read;
mod recorded;
mod sweep;
mod threads;
mod validate;

pub use arrival::Arrival;
pub use device::{Component, Device, Distribution, Lognormal, Preset};
pub use faults::{Faults, Jumps, Late, Stalls};
pub use host::{Hypervisor, Machine, Steal};
pub use read::{PLAN_BYTES_MAX, PlanError, PlanFile};
pub use recorded::ARRIVALS_MAX;
pub use sweep::{Point, SIMULATIONS_MAX, Setting};
pub use threads::{Arrivals, Kind, Operation, Priority, Said, Thread, Window};
pub use validate::Wrong;

use crate::contender::Contender;
use crate::units::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A simulation, or with a sweep a family of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name, in results.
    pub name: String,
    /// What it shows.
    #[serde(default)]
    pub about: String,
    /// How long is measured, in simulated time.
    pub duration: Time,
    /// What comes before that and is not measured.
    #[serde(default)]
    pub warmup: Time,
    /// Everything random follows from it.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Text forms of the policies that are compared. `{key}` stands for the value of a sweep of that name.
    pub policies: Vec<String>,
    /// The computer.
    #[serde(default)]
    pub machine: Machine,
    /// Guests and their scheduler; none: threads run on the machine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<Hypervisor>,
    /// The storage device.
    pub device: Device,
    /// Who uses it.
    pub threads: Vec<Thread>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    /// Values to vary: every combination is simulated. A key with dots is the path of a plan's value
    /// (`threads.0.depth`, or by name `threads.async.depth`), one without stands for `{key}` in `policies`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sweep: BTreeMap<String, Vec<toml::Value>>,
    /// Where the traces of threads are, unless their paths are absolute: the folder of its file. Empty: the working directory.
    #[serde(skip)]
    pub directory: PathBuf,
}

const fn default_seed() -> u64 {
    1
}

impl Plan {
    /// A plan of one second, without threads and policies.
    #[must_use]
    pub fn new(name: &str, device: Device) -> Self {
        Self {
            name: name.into(),
            about: String::new(),
            duration: Time::ms(1000),
            warmup: Time(0),
            seed: default_seed(),
            policies: Vec::new(),
            machine: Machine::default(),
            hypervisor: None,
            device,
            threads: Vec::new(),
            faults: None,
            sweep: BTreeMap::new(),
            directory: PathBuf::new(),
        }
    }

    /// The policies, read.
    ///
    /// # Errors
    /// The first that is not one.
    pub fn contenders(&self) -> Result<Vec<Contender>, Wrong> {
        let read = |(i, text): (usize, &String)| {
            text.parse()
                .map_err(|error: coalesce_policy::SpecError| Wrong::at(["policies", &i.to_string()], error.to_string()))
        };
        self.policies.iter().enumerate().map(read).collect()
    }

    /// CPUs that threads use.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.threads.iter().flat_map(Thread::cpus).max().map_or(0, |last| last + 1)
    }
}
