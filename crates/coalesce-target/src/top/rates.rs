//! What a target's disks and queues did in an interval: differences of their statistics.

use crate::control;
use crate::stats::QueueStats;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// A target and what it has counted.
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    counted: Vec<Disk>,
    at: Instant,
}

#[derive(Deserialize)]
struct Disk {
    ctrlr: String,
    #[serde(default)]
    queues: Vec<QueueStats>,
    error: Option<String>,
}

/// What a queue did in an interval, or all queues of a disk.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) ctrlr: String,
    /// `None`: all queues.
    pub(super) queue: Option<usize>,
    pub(super) policy: String,
    pub(super) iops: f64,
    pub(super) interrupts_per_io: f64,
    /// Time for which completions were held, over all completions, in ns.
    pub(super) added_ns: f64,
    /// The share of the requests' time that holding added, and the share that it may add; absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget_percent: Option<[f64; 2]>,
    /// Deliveries by reason.
    pub(super) delivered: BTreeMap<String, u64>,
    /// Why the disk does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl<'a> Target<'a> {
    pub(super) fn new(path: &'a Path) -> Result<Self> {
        Ok(Self { path, counted: counted(path)?, at: Instant::now() })
    }

    /// What has happened since it was asked last.
    pub(super) fn interval(&mut self) -> Result<Vec<Row>> {
        let now = counted(self.path)?;
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let before = std::mem::replace(&mut self.counted, now);
        let rows = self.counted.iter().flat_map(|disk| {
            let before = before.iter().find(|before| before.ctrlr == disk.ctrlr);
            rows_of(disk, before.map_or(&[], |before| &before.queues), seconds)
        });
        Ok(rows.collect())
    }
}

fn counted(path: &Path) -> Result<Vec<Disk>> {
    let stats = control::request(path, "get_stats", &json!({}))?;
    serde_json::from_value(stats).with_context(|| format!("control socket {}", path.display()))
}

/// A row for the disk, and one for each queue that completed something.
fn rows_of(disk: &Disk, before: &[QueueStats], seconds: f64) -> Vec<Row> {
    let mut total = Sum::default();
    let mut rows = Vec::new();
    for queue in &disk.queues {
        let mut sum = Sum::of(queue);
        // Smaller counts are those of a new process, or were reset.
        let earlier = before.iter().find(|before| before.queue == queue.queue);
        if let Some(earlier) = earlier.filter(|earlier| earlier.completions <= queue.completions) {
            sum.add(&Sum::of(earlier), -1.0);
        }
        total.add(&sum, 1.0);
        if sum.completions > 0.0 {
            rows.push(Row { queue: Some(queue.queue), policy: queue.policy.clone(), ..sum.row(disk, seconds) });
        }
    }
    let mut policies: Vec<_> = disk.queues.iter().map(|queue| queue.policy.clone()).collect();
    policies.dedup();
    rows.insert(0, Row { policy: policies.join(" | "), error: disk.error.clone(), ..total.row(disk, seconds) });
    rows
}

/// Counts of an interval. All are far below 2^53, so floats add them exactly.
#[derive(Default)]
struct Sum {
    completions: f64,
    interrupts: f64,
    held_ns: f64,
    budget: Option<[f64; 3]>, // held, outstanding, limit in percent
    delivered: BTreeMap<String, f64>,
}

impl Sum {
    fn of(queue: &QueueStats) -> Self {
        let budget = queue.budget.as_ref();
        let delivered = queue.delivered.iter().map(|(reason, count)| (reason.clone(), *count as f64));
        Self {
            completions: queue.completions as f64,
            interrupts: queue.interrupts as f64,
            held_ns: queue.hold_ns.mean * queue.hold_ns.count as f64,
            budget: budget.map(|b| [b.held_ns as f64, b.outstanding_ns as f64, b.limit_percent]),
            delivered: delivered.collect(),
        }
    }

    /// Adds another one `sign` times. Of two budgets the larger limit counts; taking one away leaves the limit.
    fn add(&mut self, other: &Self, sign: f64) {
        self.completions += sign * other.completions;
        self.interrupts += sign * other.interrupts;
        self.held_ns += sign * other.held_ns;
        if let Some([more_held, more, other_limit]) = other.budget {
            let [held, outstanding, limit] = self.budget.unwrap_or_default();
            let limit = if sign > 0.0 { limit.max(other_limit) } else { limit };
            self.budget = Some([held + sign * more_held, outstanding + sign * more, limit]);
        }
        for (reason, count) in &other.delivered {
            *self.delivered.entry(reason.clone()).or_default() += sign * count;
        }
    }

    fn row(self, disk: &Disk, seconds: f64) -> Row {
        let per_io = |sum: f64| sum.max(0.0) / self.completions.max(1.0);
        Row {
            ctrlr: disk.ctrlr.clone(),
            iops: self.completions / seconds,
            interrupts_per_io: per_io(self.interrupts),
            added_ns: per_io(self.held_ns),
            budget_percent: self.budget.map(|[held, all, limit]| [100.0 * held.max(0.0) / all.max(1.0), limit]),
            delivered: self.delivered.into_iter().map(|(r, n)| (r, n as u64)).filter(|(_, n)| *n > 0).collect(),
            ..Row::default()
        }
    }
}
