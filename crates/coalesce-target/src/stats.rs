//! The statistics of a queue, as the control socket and the metrics report them.

pub mod latency;

use coalesce_delivery::DeliveryStats;
use coalesce_policy::{HintCounts, Share, Spent, Stats as PolicyStats};
use hdrhistogram::Histogram;
use latency::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Counters of a queue's device side.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DeviceStats {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards, zeroes, and what the front end has answered by itself.
    pub others: u64,
    /// Bytes that reads brought.
    pub bytes_read: u64,
    /// Bytes that writes stored.
    pub bytes_written: u64,
    /// Requests that failed, because of the medium or because the disk does not support them.
    pub failed: u64,
    /// Descriptor chains that were not valid requests.
    pub malformed: u64,
    /// Rings that became invalid and were stopped.
    pub broken_rings: u64,
    /// Requests taken over from a process that ended without completing them.
    pub taken_over: u64,
    /// Kicks; of an NVMe disk, doorbells that came as messages.
    pub kicks: u64,
    /// Requests with an I/O priority of the real-time class, which NVMe does not carry.
    pub realtime: u64,
    /// Requests that waited in their ring for the limits of the disk, and were then taken.
    #[serde(default)] // a target that is older than `top` has none
    pub throttled: u64,
    /// The time for which some of them waited, in ns.
    #[serde(default)]
    pub throttled_ns: u64,
    /// Calls of io_uring_enter. With one more for each interrupt, these are the system calls of a busy queue.
    pub enters: u64,
}

impl DeviceStats {
    /// Requests of a kind.
    #[must_use]
    pub const fn requests(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.reads,
            Kind::Write => self.writes,
            Kind::Flush => self.flushes,
            Kind::Other => self.others,
        }
    }
}

/// Counters that show whether polling before sleeping pays. What a thread that serves several queues has polled and slept is counted
/// for the queue that it visits next.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PollStats {
    /// Polls that found an event.
    pub paid: u64,
    /// Polls that found no event and ended in sleep.
    pub wasted: u64,
    /// Time spent in wasted polls, in ns.
    pub wasted_ns: u64,
    /// Sleeps.
    pub sleeps: u64,
}

impl PollStats {
    /// Adds other counts.
    pub const fn add(&mut self, other: &Self) {
        self.paid += other.paid;
        self.wasted += other.wasted;
        self.wasted_ns += other.wasted_ns;
        self.sleeps += other.sleeps;
    }
}

/// The times that completions were held.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HoldTimes {
    /// Completions that were held.
    pub count: u64,
    /// Mean, in ns.
    pub mean: f64,
    /// Longest, in ns.
    pub max: u64,
    /// Percentiles, in ns.
    pub percentile: BTreeMap<String, u64>,
    /// Upper bounds in ns, each with the number of holds up to it and above the bound before. The last bucket has no
    /// bound.
    pub buckets: Vec<(Option<u64>, u64)>,
}

/// Upper bounds of the buckets for Prometheus, in ns.
const BUCKETS: [u64; 10] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

impl HoldTimes {
    fn new(hold: &Histogram<u64>) -> Self {
        let percentile = PERCENTILES.iter().map(|&p| (format!("{p:.6}"), hold.value_at_percentile(p))).collect();
        let mut buckets: Vec<_> = BUCKETS.into_iter().map(Some).chain([None]).map(|bound| (bound, 0)).collect();
        for values in hold.iter_recorded() {
            // A bound may lie among values that the histogram stores as one. They are counted in one bucket all the
            // same.
            let bucket = BUCKETS.partition_point(|bound| *bound < values.value_iterated_to());
            buckets[bucket].1 += values.count_since_last_iteration();
        }
        Self { count: hold.len(), mean: hold.mean(), max: hold.max(), percentile, buckets }
    }
}

/// The percentiles to report. fio reports the same ones under these names.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// What the latency budget of a queue has spent.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BudgetStats {
    /// The share of the requests' time that holding added, in percent: above the limit by what trials may cost, and with a licence.
    pub spent_percent: f64,
    /// The share that it may add, in percent.
    pub limit_percent: f64,
    /// The time for which completions were held, summed over them.
    pub held_ns: u64,
    /// The time that requests spent, summed over them, as far as the device sees it.
    pub outstanding_ns: u64,
}

impl BudgetStats {
    /// `budget`: the share that it may spend.
    #[must_use]
    pub fn new(budget: Share, Spent { held, outstanding, .. }: Spent) -> Self {
        Self {
            spent_percent: 100.0 * held as f64 / outstanding.max(1) as f64,
            limit_percent: f64::from(budget.as_basis_points()) / 100.0,
            held_ns: held,
            outstanding_ns: outstanding,
        }
    }
}

/// What the host has set about the interrupts of a queue, where its protocol lets it: NVMe's does. The policy `nvme:host=on` coalesces
/// where threshold and time are both above 0.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct HostStats {
    /// Feature 08h: Aggregation Threshold, 0's based.
    pub threshold: u8,
    /// Feature 08h: Aggregation Time, in µs.
    pub time_us: u32,
    /// Feature 09h: Coalescing Disable.
    pub coalescing_disable: bool,
    /// The guest has no MSI-X: its interrupts are those of the pin (INTx).
    pub intx: bool,
}

/// All statistics of one queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct QueueStats {
    /// Index of the queue.
    pub queue: usize,
    /// Index of the thread that serves it: 0 for queues that share one.
    pub thread: usize,
    /// Its policy, in text form.
    pub policy: String,
    /// When this policy was set, in µs since 1970. If that is after `counted_since_us`, the counts are of others, too.
    pub policy_since_us: u64,
    /// When counting began, in µs since 1970: at the start of the disk's process, or at the last reset.
    pub counted_since_us: u64,
    /// Completed requests.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Deliveries for which the guest wanted no interrupt.
    pub suppressed: u64,
    /// Held completions that the guest reaped by itself.
    pub consumed: u64,
    /// Completions held at this moment.
    pub held: u64,
    /// Requests in flight at this moment.
    pub in_flight: u64,
    /// Deliveries by reason.
    pub delivered: BTreeMap<String, u64>,
    /// Holds by reason.
    pub holds: BTreeMap<String, u64>,
    /// Hints by source.
    pub hints: BTreeMap<String, u64>,
    /// The latency budget; absent if the policy has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStats>,
    /// What the guest has set; absent if its protocol does not let it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStats>,
    /// The times that completions were held.
    pub hold_ns: HoldTimes,
    /// The time from taking a request from its ring to its completion, before the policy may hold it: that of kinds of which there was
    /// one.
    pub latency_ns: BTreeMap<Kind, latency::Histogram>,
    /// The device side.
    pub device: DeviceStats,
    /// Polling.
    pub poll: PollStats,
}

/// How long the requests of each kind took, in the order of [`Kind::ALL`].
pub type Latencies = [latency::Histogram; Kind::ALL.len()];

impl QueueStats {
    /// Combines the counters of a queue's parts.
    #[must_use]
    pub fn new(
        (queue, thread): (usize, usize),
        host: Option<HostStats>,
        (policy, policy_since, counted_since): (String, SystemTime, SystemTime),
        (held, in_flight): (u64, usize),
        (decisions, hints, budget): (&PolicyStats, &HintCounts, Option<BudgetStats>),
        delivery: &DeliveryStats,
        (device, latencies, poll): (DeviceStats, &Latencies, PollStats),
    ) -> Self {
        let latency_ns = Kind::ALL.into_iter().zip(latencies.clone()).filter(|(_, histogram)| histogram.count() > 0);
        Self {
            queue,
            thread,
            policy,
            policy_since_us: unix_us(policy_since),
            counted_since_us: unix_us(counted_since),
            completions: delivery.completions,
            interrupts: delivery.interrupts,
            suppressed: delivery.suppressed,
            consumed: delivery.consumed,
            held,
            in_flight: in_flight as u64,
            delivered: counted(decisions.delivered()),
            holds: counted(decisions.held()),
            hints: counted(hints.by_source()),
            budget,
            host,
            hold_ns: HoldTimes::new(delivery.hold_ns()),
            latency_ns: latency_ns.collect(),
            device,
            poll,
        }
    }

    /// Whether it has done nothing since counting began, and has nothing to do. A driver that only sets the queue up, and kicks it, is
    /// nothing.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        let DeviceStats { broken_rings, throttled_ns, .. } = self.device;
        self.completions == 0 && self.interrupts == 0 && self.in_flight == 0 && broken_rings == 0 && throttled_ns == 0
    }
}

fn unix_us(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// The counts that are not 0, by name.
fn counted(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its requests wait in their ring, so that nothing is in flight.
    #[test]
    fn a_queue_that_waits_for_a_limit_of_its_disk_is_not_idle() {
        let is_idle = |device: DeviceStats| {
            let about = (String::new(), SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
            let decisions = (&PolicyStats::default(), &HintCounts::default(), None);
            let device = (device, &Latencies::default(), PollStats::default());
            QueueStats::new((0, 0), None, about, (0, 0), decisions, &DeliveryStats::default(), device).is_idle()
        };
        assert!(is_idle(DeviceStats { kicks: 1, enters: 3, ..DeviceStats::default() }), "a driver has set it up");
        assert!(!is_idle(DeviceStats { throttled_ns: 1, ..DeviceStats::default() }));
        assert!(!is_idle(DeviceStats { broken_rings: 1, ..DeviceStats::default() }));
    }

    #[test]
    fn every_hold_is_in_one_bucket() {
        let mut stats = DeliveryStats::default();
        // Values at the bounds, and values so close to them that the histogram stores them as one.
        let holds = BUCKETS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1, bound + bound / 200]);
        holds.chain([1, 2_000_000_000, u64::MAX]).for_each(|ns| stats.note_held(ns));
        let hold = HoldTimes::new(stats.hold_ns());
        assert_eq!(hold.buckets.iter().map(|(_, count)| count).sum::<u64>(), hold.count);
        assert!(hold.buckets.iter().all(|(_, count)| *count > 0), "{:?}", hold.buckets);
    }
}
