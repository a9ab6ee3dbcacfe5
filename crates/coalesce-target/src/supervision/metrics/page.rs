//! The page of metrics: what the disks have counted, in OpenMetrics' text form. docs/operating.md lists the metrics.

use crate::link::DiskStats;
use crate::stats::QueueStats;
use crate::stats::latency::{Histogram, Kind};
use crate::supervision::supervisor::{Disk, Disks, stats_of};
use crate::throttle::Rates;
use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;

/// The page about these disks.
///
/// # Errors
/// None that is known: writing to a text does not fail.
pub fn text(disks: &Disks) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("coalesce");
    registry.register_collector(Box::new(Snapshot::new(stats_of(disks.list().iter().map(|disk| &**disk)))));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

/// The statistics of all disks at one moment.
#[derive(Debug)]
struct Snapshot {
    disks: Vec<About>,
    queues: Vec<Queue>,
}

#[derive(Debug)]
struct Queue {
    disk: String,
    number: String,
    stats: QueueStats,
}

#[derive(Debug)]
struct About {
    name: String,
    restarts: u64,
    is_recorded: Option<bool>,
    limits: Rates,
    /// `None`: it does not answer.
    answer: Option<Answer>,
}

/// What a disk's process says of the whole disk.
#[derive(Debug)]
struct Answer {
    is_connected: bool,
    latencies: [(Kind, Histogram); Kind::ALL.len()],
}

impl Answer {
    fn new(stats: &DiskStats) -> Self {
        let of_queues = |kind| stats.queues.iter().filter_map(move |queue| queue.latency_ns.get(&kind));
        let sum = |kind| {
            let mut sum = Histogram::default();
            of_queues(kind).for_each(|histogram| sum.add(histogram));
            (kind, sum)
        };
        Self { is_connected: stats.connected, latencies: Kind::ALL.map(sum) }
    }
}

/// Names and values.
type Labels<'a> = Vec<(&'static str, &'a str)>;

impl Snapshot {
    fn new(disks: Vec<(&Disk, Result<DiskStats>)>) -> Self {
        let about = |(disk, stats): &(&Disk, Result<DiskStats>)| About {
            name: disk.name(),
            restarts: disk.restarts(),
            is_recorded: disk.is_recorded(),
            limits: disk.limits(),
            answer: stats.as_ref().ok().map(Answer::new),
        };
        let about = disks.iter().map(about).collect();
        let queues = disks.into_iter().flat_map(|(disk, stats)| {
            let queue = |stats: QueueStats| Queue { disk: disk.name(), number: stats.queue.to_string(), stats };
            stats.into_iter().flat_map(|stats| stats.queues).map(queue)
        });
        Self { queues: queues.collect(), disks: about }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.of_disks(encoder)?;
        self.request_duration(encoder)?;
        self.of_queues(encoder)?;
        self.of_queues_by(encoder)?;
        self.policies(encoder)?;
        self.budgets(encoder)?;
        self.hold_seconds(encoder)
    }
}

/// Of each disk.
impl Snapshot {
    fn of_disks(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the disk's process answers: 1 or 0";
        self.disk_gauge(encoder, ("up", help), |disk| Some(disk.answer.is_some().into()))?;
        let help = "Whether a front end is connected: 1 or 0";
        self.disk_gauge(encoder, ("connected", help), |disk| {
            disk.answer.as_ref().map(|answer| answer.is_connected.into())
        })?;
        let help = "Whether the disk's record goes on: 1 or 0, after an error";
        self.disk_gauge(encoder, ("recording", help), |disk| disk.is_recorded.map(i64::from))?;
        let limit = |rate: u64| (rate > 0).then_some(rate as i64);
        let help = "Requests per second that the disk may do";
        self.disk_gauge(encoder, ("iops_limit", help), |disk| limit(disk.limits.iops))?;
        let help = "Bytes per second that the disk may read, write or zero";
        self.disk_gauge(encoder, ("bytes_per_second_limit", help), |disk| limit(disk.limits.bytes_per_second))?;
        let help = "Restarts of the disk's process";
        let mut family = encoder.encode_descriptor("process_restarts", help, None, MetricType::Counter)?;
        for disk in &self.disks {
            let labels: Labels<'_> = vec![("ctrlr", &disk.name)];
            ConstCounter::new(disk.restarts).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A value of each disk that has one.
    fn disk_gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: impl Fn(&About) -> Option<i64>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for disk in &self.disks {
            let labels: Labels<'_> = vec![("ctrlr", &disk.name)];
            if let Some(value) = value(disk) {
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Not of each queue: most series of a disk would be buckets.
    fn request_duration(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time from taking a request to its completion, before the policy may hold it";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("request_duration", help, unit, MetricType::Histogram)?;
        for disk in &self.disks {
            for (kind, histogram) in disk.answer.iter().flat_map(|answer| &answer.latencies) {
                let labels: Labels<'_> = vec![("ctrlr", &disk.name), ("operation", kind.name())];
                let total = (histogram.sum() as f64, histogram.count());
                encode_histogram(family.encode_family(&labels)?, total, histogram.buckets())?;
            }
        }
        Ok(())
    }
}

/// Of each queue.
impl Snapshot {
    fn of_queues(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.counter(encoder, ("completions", "Completed requests"), |queue| queue.completions)?;
        self.counter(encoder, ("interrupts", "Interrupts"), |queue| queue.interrupts)?;
        let help = "Deliveries for which the guest wanted no interrupt";
        self.counter(encoder, ("suppressed", help), |queue| queue.suppressed)?;
        let help = "Held completions that the guest reaped by itself";
        self.counter(encoder, ("consumed", help), |queue| queue.consumed)?;
        self.counter(encoder, ("failed_requests", "Requests that failed"), |queue| queue.device.failed)?;
        let help = "Descriptor chains that were not valid requests";
        self.counter(encoder, ("malformed_requests", help), |queue| queue.device.malformed)?;
        let help = "Rings that became invalid and were stopped";
        self.counter(encoder, ("broken_rings", help), |queue| queue.device.broken_rings)?;
        let help = "Requests that waited for the limits of the disk";
        self.counter(encoder, ("throttled_requests", help), |queue| queue.device.throttled)?;
        let help = "Time for which requests waited for the limits of the disk";
        self.seconds(encoder, ("throttled", help), |queue| Some(queue.device.throttled_ns))?;
        self.counter(encoder, ("kicks", "Kicks by the guest"), |queue| queue.device.kicks)?;
        self.counter(encoder, ("sleeps", "Waits that ended in sleep"), |queue| queue.poll.sleeps)?;
        let help = "Requests that are taken and not completed";
        self.gauge(encoder, ("in_flight", help), |queue| queue.in_flight)?;
        self.gauge(encoder, ("held", "Completions held at this moment"), |queue| queue.held)
    }

    /// What a label divides.
    fn of_queues_by(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Requests by operation, also those that failed";
        self.counter_by(encoder, ("requests", help, None), "operation", |queue| {
            Kind::ALL.map(|kind| (kind.name(), queue.device.requests(kind)))
        })?;
        let help = "Bytes by operation";
        self.counter_by(encoder, ("transferred", help, Some(&Unit::Bytes)), "operation", |queue| {
            [(Kind::Read.name(), queue.device.bytes_read), (Kind::Write.name(), queue.device.bytes_written)]
        })?;
        self.counter_by(encoder, ("deliveries", "Deliveries by reason", None), "reason", |queue| {
            named(&queue.delivered)
        })?;
        self.counter_by(encoder, ("holds", "Holds by reason", None), "reason", |queue| named(&queue.holds))?;
        self.counter_by(encoder, ("hints", "Hints by source", None), "source", |queue| named(&queue.hints))
    }

    fn counter(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: impl Fn(&QueueStats) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        self.each_queue(|labels, queue| ConstCounter::new(value(queue)).encode(family.encode_family(labels)?))
    }

    /// Several values for each queue, which a label distinguishes.
    fn counter_by<'a, V: IntoIterator<Item = (&'a str, u64)>>(
        &'a self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit): (&str, &str, Option<&Unit>),
        label: &'static str,
        values: impl Fn(&'a QueueStats) -> V,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        self.each_queue(|labels, queue| {
            values(queue).into_iter().try_for_each(|(key, value)| {
                let labels = [labels.as_slice(), &[(label, key)]].concat();
                ConstCounter::new(value).encode(family.encode_family(&labels)?)
            })
        })
    }

    fn gauge(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        value: impl Fn(&QueueStats) -> u64,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        self.each_queue(|labels, queue| ConstGauge::new(value(queue) as i64).encode(family.encode_family(labels)?))
    }

    fn policies(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "The policy in force";
        let mut family = encoder.encode_descriptor("policy", help, None, MetricType::Info)?;
        self.each_queue(|labels, queue| family.encode_family(labels)?.encode_info(&[("policy", queue.policy.as_str())]))
    }

    fn budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time for which completions were held, summed over them, as the latency budget counts it";
        self.seconds(encoder, ("budget_held", help), |queue| Some(queue.budget.as_ref()?.held_ns))?;
        let help = "Time that requests spent, summed over them, as the latency budget counts it";
        self.seconds(encoder, ("budget_outstanding", help), |queue| Some(queue.budget.as_ref()?.outstanding_ns))?;
        let help = "The share of the requests' time that holding may add";
        let mut family = encoder.encode_descriptor("budget_limit", help, Some(&Unit::Ratios), MetricType::Gauge)?;
        self.each_queue(|labels, queue| {
            let Some(budget) = &queue.budget else { return Ok(()) };
            ConstGauge::new(budget.limit_percent / 100.0).encode(family.encode_family(labels)?)
        })
    }

    /// A time of each queue that has one.
    fn seconds(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help): (&str, &str),
        ns: impl Fn(&QueueStats) -> Option<u64>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        self.each_queue(|labels, queue| {
            let Some(ns) = ns(queue) else { return Ok(()) };
            ConstCounter::new(ns as f64 / 1e9).encode(family.encode_family(labels)?)
        })
    }

    fn hold_seconds(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time that completions were held";
        let mut family = encoder.encode_descriptor("hold", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        self.each_queue(|labels, queue| {
            let hold = &queue.hold_ns;
            let sum = hold.mean * hold.count as f64;
            encode_histogram(family.encode_family(labels)?, (sum, hold.count), hold.buckets.iter().copied())
        })
    }

    fn each_queue<'a>(&'a self, mut encode: impl FnMut(&Labels<'a>, &'a QueueStats) -> fmt::Result) -> fmt::Result {
        self.queues.iter().try_for_each(|Queue { disk, number, stats }| {
            encode(&vec![("ctrlr", disk.as_str()), ("queue", number)], stats)
        })
    }
}

fn named(counts: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    counts.iter().map(|(name, count)| (name.as_str(), *count))
}

/// A histogram in seconds, of its sum and its buckets in ns. The last bucket has no bound; the text form requires infinity there.
fn encode_histogram(
    mut encoder: MetricEncoder<'_>,
    (sum, count): (f64, u64),
    buckets: impl Iterator<Item = (Option<u64>, u64)>,
) -> fmt::Result {
    let seconds = |ns: Option<u64>| ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
    let buckets: Vec<_> = buckets.map(|(ns, count)| (seconds(ns), count)).collect();
    encoder.encode_histogram::<NoLabelSet>(sum / 1e9, count, &buckets, None)
}
