//! The workloads of the scoreboard, from `workloads.toml`.

use crate::plan::{Device, Hypervisor, Kind, Machine, Plan, Thread};
use crate::units::Time;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What comes before the measurement, in simulated time: vIC's first epoch of 200 ms is over.
const WARMUP: Time = Time::ms(220);

/// A load on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// `DEVICE/NAME`.
    pub name: String,
    /// Why it is one.
    pub why: String,
    /// The thread whose latency counts; `None`: all threads count.
    pub latency_of: Option<String>,
    /// It tries the contract of a latency budget.
    pub is_contract: bool,
    length: u64,
    device: Device,
    machine: Machine,
    hypervisor: Option<Hypervisor>,
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    on: Vec<String>,
    devices: BTreeMap<String, Device>,
    machines: BTreeMap<String, Machine>,
    workloads: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    why: String,
    on: Option<Vec<String>>,
    machine: Option<String>,
    hypervisor: Option<Hypervisor>,
    #[serde(default = "one")]
    length: u64,
    latency_of: Option<String>,
    #[serde(default)]
    contract: bool,
    threads: Vec<Thread>,
}

const fn one() -> u64 {
    1
}

impl File {
    fn read() -> Self {
        toml::from_str(include_str!("workloads.toml")).expect("a test reads it")
    }
}

/// A machine of the file.
pub(crate) fn machine(name: &str) -> Machine {
    File::read().machines[name]
}

impl Workload {
    /// All of them, in the order of the file.
    ///
    /// # Panics
    /// The file is not right.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let file = File::read();
        let mut all = Vec::new();
        for entry in file.workloads {
            for device in entry.on.as_ref().unwrap_or(&file.on) {
                all.push(Self {
                    name: format!("{device}/{}", entry.name),
                    why: entry.why.clone(),
                    latency_of: entry.latency_of.clone(),
                    is_contract: entry.contract,
                    length: entry.length,
                    device: file.devices[device].clone(),
                    machine: entry.machine.as_ref().map_or_else(Machine::default, |name| file.machines[name]),
                    hypervisor: entry.hypervisor,
                    threads: entry.threads.clone(),
                });
            }
        }
        all
    }

    /// Names of threads that use no device.
    pub(super) fn computing(&self) -> impl Iterator<Item = &str> {
        self.threads.iter().filter(|thread| thread.kind == Kind::Compute).map(|thread| thread.name.as_str())
    }

    /// The plan under these policies. `duration`: what is measured of a workload of length 1.
    #[must_use]
    pub fn plan(&self, policies: &[String], seed: u64, duration: Time) -> Plan {
        let mut plan = Plan::new(&self.name, self.device.clone());
        plan.about.clone_from(&self.why);
        plan.duration = Time(duration.0.saturating_mul(self.length)); // what is too long is refused with the plan
        plan.warmup = WARMUP;
        plan.seed = seed;
        plan.policies = policies.to_vec();
        plan.machine = self.machine;
        plan.hypervisor = self.hypervisor;
        plan.threads.clone_from(&self.threads);
        plan
    }
}
