//! What is counted while a run is measured, and what comes out of it.

use super::World;
use crate::check::Verdict;
use crate::integral::Integral;
use crate::outcome::{Durations, Outcome, ThreadOutcome};
use crate::plan::Point;
use coalesce_policy::Stats;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Latencies are recorded up to this long, in ns.
const LATENCY_MAX: u64 = 100_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("the bounds are in order")
}

/// What all threads of one name did.
#[derive(Debug)]
pub(super) struct Group {
    latency: Histogram<u64>,
    operations: Histogram<u64>,
    pub(super) requests: Integral,
    pub(super) cpu_ns: u64,
    pub(super) dropped: u64,
}

/// What is counted.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) groups: Vec<Group>,
    pub(super) interrupt_ns: u64,
    pub(super) handlers: u64,
    pub(super) spurious: u64,
    pub(super) steal_ns: u64,
    pub(super) ipis: u64,
}

impl Measure {
    pub(super) fn new(groups: usize) -> Self {
        Self::since(0, std::iter::repeat_n(Integral::default(), groups))
    }

    /// Nothing is counted yet. `requests`: of each group, until now.
    fn since(now: u64, requests: impl Iterator<Item = Integral>) -> Self {
        let group = |requests: Integral| Group {
            latency: histogram(),
            operations: histogram(),
            requests: requests.restarted(now),
            cpu_ns: 0,
            dropped: 0,
        };
        let groups = requests.map(group).collect();
        Self { groups, interrupt_ns: 0, handlers: 0, spurious: 0, steal_ns: 0, ipis: 0 }
    }
}

impl World {
    /// A thread takes its answers: the step of that ends.
    pub(super) fn reap(&mut self, id: u32, answers: u32) {
        let thread = &mut self.threads[id as usize];
        let group = &mut self.measure.groups[thread.group as usize];
        for since in thread.answers.drain(..answers as usize) {
            group.latency.saturating_record(self.now - since);
        }
        if let Some(since) = thread.end_operation() {
            group.operations.saturating_record(self.now - since);
        }
    }

    /// The warm-up is over: what was counted is forgotten.
    pub(super) fn start_measuring(&mut self) {
        self.measure = Measure::since(self.now, self.measure.groups.iter().map(|group| group.requests));
        for state in &mut self.lines {
            state.line.reset_counts();
        }
        for cpu in &mut self.cpus {
            cpu.ready_since = cpu.ready_since.max(self.now);
        }
    }

    /// How long CPUs have been waiting for a core that still do.
    fn waiting_ns(&self) -> u64 {
        let waiting = self.cpus.iter().filter(|cpu| !cpu.is_running && !cpu.is_halted);
        waiting.map(|cpu| self.now - cpu.ready_since).sum()
    }

    /// What was counted, over `measured` ns. The checker's verdict is not among it: the run has not ended.
    pub(super) fn outcome(&self, point: &Point, policy: &str, measured: u64) -> Outcome {
        let per_s = |count: u64| count as f64 * 1e9 / measured as f64;
        let share = |ns: u64| ns as f64 / measured as f64;
        let ratio = |a: f64, b: u64| if b == 0 { 0.0 } else { a / b as f64 };

        let (mut latency, mut delay, mut stats, mut hints) =
            (histogram(), histogram(), Stats::default(), BTreeMap::new());
        let (mut completions, mut interrupts, mut consumed) = (0, 0, 0);
        for state in &self.lines {
            let line = &state.line;
            delay.add(line.delay()).expect("delays are within these bounds");
            stats.add(line.stats());
            completions += line.completions();
            interrupts += line.interrupts();
            consumed += line.consumed();
            for (source, count) in line.hints().by_source() {
                *hints.entry(source).or_default() += count;
            }
        }
        let (mut threads, mut request_time) = (Vec::new(), 0);
        for (group, spec) in self.measure.groups.iter().zip(&point.plan.threads) {
            latency.add(&group.latency).expect("the bounds are the same");
            let requests = group.requests.until(self.now);
            request_time += requests;
            threads.push(ThreadOutcome {
                name: spec.name.clone(),
                iops: per_s(group.latency.len()),
                request_time: ratio(requests as f64, group.latency.len()),
                latency: Durations::of(&group.latency),
                operations_per_s: per_s(group.operations.len()),
                operation_latency: Durations::of(&group.operations),
                cpu: share(group.cpu_ns),
                dropped: group.dropped,
            });
        }
        let thread_ns: u64 = self.measure.groups.iter().map(|group| group.cpu_ns).sum();
        let busy = thread_ns + self.measure.interrupt_ns;
        let clock = point.plan.machine.clock.0 as f64;
        let settings = point.settings.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect();
        let seen = |counts: Vec<(&'static str, u64)>| counts.into_iter().filter(|(_, count)| *count > 0).collect();
        Outcome {
            plan: point.plan.name.clone(),
            settings,
            policy: policy.to_owned(),
            seed: point.plan.seed,
            measured,
            events: 0,
            iops: per_s(latency.len()),
            request_time: ratio(request_time as f64, latency.len()),
            latency: Durations::of(&latency),
            interrupts_per_s: per_s(interrupts),
            handlers_per_s: per_s(self.measure.handlers),
            spurious_per_s: per_s(self.measure.spurious),
            requests_per_interrupt: ratio(completions as f64, interrupts),
            cycles_per_io: ratio(busy as f64 * clock / 1e9, latency.len()),
            cpu: share(busy),
            cpu_interrupts: share(self.measure.interrupt_ns),
            steal: share(self.measure.steal_ns + self.waiting_ns()),
            ipis_per_s: per_s(self.measure.ipis),
            delay: Durations::of(&delay),
            bound: self.lines.first().and_then(|state| state.line.bound()),
            consumed,
            verdict: Verdict::default(),
            reasons: seen(stats.delivered().collect()),
            holds: seen(stats.held().collect()),
            hints,
            threads,
        }
    }
}
