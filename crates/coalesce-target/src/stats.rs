//! What is counted, per queue, and how it is shown.

use coalesce_delivery::DeliveryStats;
use coalesce_policy::{HintCounts, Stats as PolicyStats};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the device side of one queue counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DeviceStats {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and write-zeroes.
    pub others: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests that failed: the medium, or something that the disk does not do.
    pub failed: u64,
    /// Chains of descriptors that were no request.
    pub malformed: u64,
    /// Rings that the guest broke.
    pub broken_rings: u64,
    /// Requests taken over from a device that ended without answering them.
    pub taken_over: u64,
    /// Kicks.
    pub kicks: u64,
}

/// Whether polling before sleeping paid.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PollStats {
    /// Polls that found something to do.
    pub paid: u64,
    /// Polls that ended in sleep.
    pub wasted: u64,
    /// Time spent in those that found nothing.
    pub wasted_ns: u64,
    /// Sleeps.
    pub sleeps: u64,
}

/// How long completions were held.
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
    /// Bounds in ns, and how many were held longer than the bound before and up to this one. The last has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
}

/// Bounds of the buckets that Prometheus is given, in ns.
const BUCKETS: [u64; 10] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];

impl HoldTimes {
    fn new(hold: &Histogram<u64>) -> Self {
        let percentile = PERCENTILES.iter().map(|&p| (format!("{p:.6}"), hold.value_at_percentile(p))).collect();
        let mut buckets: Vec<_> = BUCKETS.into_iter().map(Some).chain([None]).map(|bound| (bound, 0)).collect();
        for values in hold.iter_recorded() {
            // A bound may lie among values that the histogram does not tell apart: they are counted once all the same.
            let bucket = BUCKETS.partition_point(|bound| *bound < values.value_iterated_to());
            buckets[bucket].1 += values.count_since_last_iteration();
        }
        Self { count: hold.len(), mean: hold.mean(), max: hold.max(), percentile, buckets }
    }
}

/// Percentiles that are shown, as fio names them.
const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Everything about one queue, for people and machines.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct QueueStats {
    /// Number of the queue.
    pub queue: usize,
    /// Its policy, in text form.
    pub policy: String,
    /// Requests that ended.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Deliveries for which the guest wanted no interrupt.
    pub suppressed: u64,
    /// Completions that the guest took by itself while they were held.
    pub consumed: u64,
    /// Completions held at this moment.
    pub held: u64,
    /// Requests in flight at this moment.
    pub in_flight: u64,
    /// Deliveries by reason.
    pub delivered: BTreeMap<String, u64>,
    /// Holds by reason.
    pub holds: BTreeMap<String, u64>,
    /// Hints by where they came from.
    pub hints: BTreeMap<String, u64>,
    /// How long completions were held.
    pub hold_ns: HoldTimes,
    /// The device side.
    pub device: DeviceStats,
    /// Polling.
    pub poll: PollStats,
}

impl QueueStats {
    /// Puts together what the parts of a queue counted.
    #[must_use]
    pub fn new(
        queue: usize,
        (policy, held): (String, u64),
        in_flight: usize,
        (decisions, hints): (&PolicyStats, &HintCounts),
        delivery: &DeliveryStats,
        (device, poll): (DeviceStats, PollStats),
    ) -> Self {
        Self {
            queue,
            policy,
            completions: delivery.completions,
            interrupts: delivery.interrupts,
            suppressed: delivery.suppressed,
            consumed: delivery.consumed,
            held,
            in_flight: in_flight as u64,
            delivered: counted(decisions.delivered()),
            holds: counted(decisions.held()),
            hints: counted(hints.by_source().into_iter()),
            hold_ns: HoldTimes::new(delivery.hold_ns()),
            device,
            poll,
        }
    }
}

/// Those that are not 0, by name.
fn counted(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hold_is_in_one_bucket() {
        let mut stats = DeliveryStats::default();
        // At the bounds, and so close to them that the histogram does not tell them apart.
        let holds = BUCKETS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1, bound + bound / 200]);
        holds.chain([1, 2_000_000_000, u64::MAX]).for_each(|ns| stats.note_held(ns));
        let hold = HoldTimes::new(stats.hold_ns());
        assert_eq!(hold.buckets.iter().map(|(_, count)| count).sum::<u64>(), hold.count);
        assert!(hold.buckets.iter().all(|(_, count)| *count > 0), "{:?}", hold.buckets);
    }
}
