//! What a run gave.

use crate::check::Verdict;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// Many durations, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Durations {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half are not longer.
    pub p50: u64,
    /// 90 % are not longer.
    pub p90: u64,
    /// 99 % are not longer.
    pub p99: u64,
    /// 99.9 % are not longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Durations {
    /// Of what was recorded: exact to three digits.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// What all threads of one name did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadOutcome {
    /// Their name.
    pub name: String,
    /// Commands per second.
    pub iops: f64,
    /// The mean time that a command takes its requester, in ns: the integral of the requests that the application has, over
    /// the commands answered. Of an open loop from arrival; of a closed one from one submission of a place to the next, depth
    /// times time; of an operation from its first submission until all its commands are answered.
    pub request_time: f64,
    /// From submission, or arrival in an open loop, until the thread has the answer.
    pub latency: Durations,
    /// Operations per second: batches, and operations of a mix.
    pub operations_per_s: f64,
    /// From an operation's first submission until all its commands are answered.
    pub operation_latency: Durations,
    /// CPUs that they used, interrupts aside; 1: one CPU all the time.
    pub cpu: f64,
    /// Arrivals of an open loop that found a backlog of 65536 and were dropped.
    pub dropped: u64,
}

/// What a run gave: one policy at one point of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The plan.
    pub plan: String,
    /// What the sweep set.
    pub settings: BTreeMap<String, String>,
    /// The policy, in its text form.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Simulated time that was measured, in ns.
    pub measured: u64,
    /// Events of the simulation, with the warm-up.
    pub events: u64,
    /// Commands answered per second.
    pub iops: f64,
    /// The mean time that a command takes its requester, in ns: see [`ThreadOutcome::request_time`].
    pub request_time: f64,
    /// From submission, or arrival in an open loop, until the thread has the answer.
    pub latency: Durations,
    /// Interrupts per second, as the policies asked for them.
    pub interrupts_per_s: f64,
    /// Interrupts that a CPU took, per second: some arrive while another is pending.
    pub handlers_per_s: f64,
    /// Interrupts that a CPU took and found nothing, per second.
    pub spurious_per_s: f64,
    /// Completions per interrupt.
    pub requests_per_interrupt: f64,
    /// CPU cycles, interrupts and threads, per command.
    pub cycles_per_io: f64,
    /// CPUs that were busy; 1: one CPU all the time.
    pub cpu: f64,
    /// What of that interrupts took.
    pub cpu_interrupts: f64,
    /// Virtual CPUs that waited for a core, and CPUs that the host had taken.
    pub steal: f64,
    /// Inter-processor interrupts per second.
    pub ipis_per_s: f64,
    /// From a completion to the interrupt that covers it.
    pub delay: Durations,
    /// The longest that the policy promises to hold a completion, in ns.
    pub bound: Option<u64>,
    /// Completions that the consumer took while they were held.
    pub consumed: u64,
    /// What the checker found.
    pub verdict: Verdict,
    /// Interrupts by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Holds by reason.
    pub holds: BTreeMap<&'static str, u64>,
    /// Hints by what they were inferred from.
    pub hints: BTreeMap<&'static str, u64>,
    /// By name.
    pub threads: Vec<ThreadOutcome>,
}
