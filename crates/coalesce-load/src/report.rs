//! The report of a run: JSON in fio's vocabulary.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

use crate::cpu::Cpu;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::job::JobName;
use crate::latency::{Latency, new_histogram};
use crate::options::Options;
use crate::worker::Share;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this crate.
    pub version: &'static str,
    /// Socket of the target.
    pub socket: String,
    /// The options of the run.
    pub options: Options,
    /// Whether EVENT_IDX was negotiated; over NVMe, whether shadow doorbells are used.
    pub event_idx: bool,
    /// Whether doorbells are mapped, over NVMe: then none is a message.
    pub doorbells_mapped: bool,
    /// Whether these are the numbers of the warm-up, because a request failed in it and the measurement did not run.
    pub warmup_failed: bool,
    /// Time from the start to the last completion, in seconds; at least the time that the options ask for.
    pub elapsed_s: f64,
    /// Latency and rate of each kind of requester: first all queues together, then each queue.
    pub jobs: Vec<JobReport>,
    /// All queues together.
    #[serde(flatten)]
    pub total: Counters,
    /// Each queue.
    pub queues: Vec<QueueReport>,
    /// All failures, by queue and cause.
    pub failures: Vec<Failure>,
    /// CPU time of the client threads.
    pub cpu: Cpu,
}

impl Report {
    /// Whether a request failed, returned wrong data or did not complete.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn new(
        options: &Options,
        event_idx: bool,
        doorbells_mapped: bool,
        share: Share,
        drivers: &[Driver],
    ) -> Self {
        let elapsed_s = share.elapsed_ns as f64 / 1e9;
        let queues: Vec<_> = (0..).zip(drivers).map(|(queue, driver)| QueueReport::new(queue, driver)).collect();
        let failures = (0..).zip(drivers).flat_map(|(queue, driver)| {
            driver.counts.failures.iter().map(move |(&cause, &count)| Failure { queue, cause, count })
        });
        Self {
            version: env!("CARGO_PKG_VERSION"),
            socket: options.socket.display().to_string(),
            options: options.clone(),
            event_idx,
            doorbells_mapped,
            warmup_failed: false,
            elapsed_s,
            jobs: job_reports(options, elapsed_s, drivers),
            total: queues.iter().map(|queue| &queue.counters).fold(Counters::default(), Counters::plus),
            failures: failures.collect(),
            queues,
            cpu: share.cpu,
        }
    }
}

/// Counters of completions, interrupts and failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Completions reaped, flushes included.
    pub total_ios: u64,
    /// Interrupts: the sum that the target added to the eventfds.
    pub interrupts: u64,
    /// Interrupts divided by completions; 0 if there were none.
    pub interrupts_per_io: f64,
    /// Completions divided by interrupts; 0 if there were none.
    pub ios_per_interrupt: f64,
    /// Kicks of the target; over NVMe, doorbells that were messages.
    pub kicks: u64,
    /// Kicks divided by completions; 0 if there were none.
    pub kicks_per_io: f64,
    /// Requests that failed or returned wrong data.
    pub errors: u64,
    /// Requests that were in flight when nothing had completed for five seconds.
    pub unfinished: u64,
    /// Open loop: arrivals.
    pub arrivals: u64,
    /// Open loop: arrivals that still waited for room five seconds after the end.
    pub never_issued: u64,
    /// Open loop: the most arrivals of one queue that waited for room at a time.
    pub backlog_max: u64,
    /// Reads whose data was checked.
    pub verified: u64,
}

impl Counters {
    fn with_ratios(self) -> Self {
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        Self {
            interrupts_per_io: ratio(self.interrupts, self.total_ios),
            ios_per_interrupt: ratio(self.total_ios, self.interrupts),
            kicks_per_io: ratio(self.kicks, self.total_ios),
            ..self
        }
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            total_ios: self.total_ios + other.total_ios,
            interrupts: self.interrupts + other.interrupts,
            kicks: self.kicks + other.kicks,
            errors: self.errors + other.errors,
            unfinished: self.unfinished + other.unfinished,
            arrivals: self.arrivals + other.arrivals,
            never_issued: self.never_issued + other.never_issued,
            backlog_max: self.backlog_max.max(other.backlog_max),
            verified: self.verified + other.verified,
            ..self
        }
        .with_ratios()
    }
}

/// The counters of one queue.
#[derive(Clone, Debug, Serialize)]
pub struct QueueReport {
    /// Index of the queue.
    pub queue: u16,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

impl QueueReport {
    fn new(queue: u16, driver: &Driver) -> Self {
        let counts = &driver.counts;
        let failures =
            |lost: bool| counts.failures.iter().filter(move |(cause, _)| cause.is_loss() == lost).map(|(_, n)| n);
        let requesters = &driver.requesters;
        let counters = Counters {
            total_ios: requesters.iter().map(|r| r.latency_ns.len()).sum::<u64>() + counts.flush_latency_ns.len(),
            interrupts: counts.interrupts,
            kicks: counts.kicks,
            errors: failures(false).sum(),
            unfinished: failures(true).sum(),
            arrivals: requesters.iter().map(|r| r.arrivals).sum(),
            never_issued: requesters.iter().map(|r| r.backlog).sum(),
            backlog_max: requesters.iter().map(|r| r.backlog_max).max().unwrap_or(0),
            verified: counts.verified,
            ..Counters::default()
        };
        Self { queue, counters: counters.with_ratios() }
    }
}

/// The queues that a line covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// All queues together.
    All,
    /// This one.
    One(u16),
}

impl Serialize for Queues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => serializer.serialize_str("all"),
            Self::One(queue) => serializer.serialize_u16(*queue),
        }
    }
}

impl fmt::Display for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::One(queue) => f.pad(&queue.to_string()),
        }
    }
}

/// Rate and latency of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct JobReport {
    /// Kind of request.
    pub jobname: JobName,
    /// The queues that it covers.
    pub queue: Queues,
    /// Completions per second.
    pub iops: f64,
    /// Bytes of data per second.
    pub bw_bytes: u64,
    /// Completions.
    pub total_ios: u64,
    /// Completion latency: from submission (open loop: from the intended arrival) until the driver reaped it.
    pub clat_ns: Latency,
}

impl JobReport {
    fn new(jobname: JobName, queue: Queues, block_bytes: u32, elapsed_s: f64, latency: &Histogram<u64>) -> Self {
        let iops = if latency.is_empty() { 0.0 } else { latency.len() as f64 / elapsed_s };
        let bytes = if jobname == JobName::Flush { 0 } else { block_bytes };
        let bw_bytes = (iops * f64::from(bytes)) as u64;
        Self { jobname, queue, iops, bw_bytes, total_ios: latency.len(), clat_ns: Latency::new(latency) }
    }
}

fn job_reports(options: &Options, elapsed_s: f64, drivers: &[Driver]) -> Vec<JobReport> {
    let mut by_name: BTreeMap<JobName, Vec<&Histogram<u64>>> = BTreeMap::new();
    for driver in drivers {
        for requester in &driver.requesters {
            by_name.entry(requester.profile.name).or_default().push(&requester.latency_ns);
        }
        if options.fsync_every.is_some() {
            by_name.entry(JobName::Flush).or_default().push(&driver.counts.flush_latency_ns);
        }
    }
    let report = |name, queue, latency: &_| JobReport::new(name, queue, options.block_size_bytes, elapsed_s, latency);
    let mut reports = Vec::new();
    for (name, latencies) in by_name {
        let mut together = new_histogram();
        latencies.iter().for_each(|latency| together += *latency);
        reports.push(report(name, Queues::All, &together));
        reports.extend((0..).zip(latencies).map(|(queue, latency)| report(name, Queues::One(queue), latency)));
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_add_up() {
        let one = Counters { total_ios: 10, interrupts: 5, backlog_max: 7, ..Counters::default() };
        let two = Counters { total_ios: 30, interrupts: 5, backlog_max: 2, ..Counters::default() };
        let sum = [&one, &two].into_iter().fold(Counters::default(), Counters::plus);
        assert_eq!((sum.total_ios, sum.interrupts, sum.backlog_max), (40, 10, 7));
        assert_eq!(
            (sum.interrupts_per_io, sum.ios_per_interrupt).partial_cmp(&(0.25, 4.0)),
            Some(std::cmp::Ordering::Equal)
        );
        assert_eq!(Counters::default().with_ratios(), Counters::default());
    }

    #[test]
    fn names_in_json() {
        let json = serde_json::json!([Queues::All, Queues::One(3), JobName::Async]).to_string();
        assert_eq!(json, r#"["all",3,"async"]"#);
    }
}
