//! What a target's disks and queues did in an interval: differences of their statistics.

use crate::stats::QueueStats;
use crate::supervision::control_client::request;
use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A target, what it has counted, and the answer that it owes.
pub(super) struct Target<'a> {
    pub(super) path: &'a Path,
    counted: Option<Counted>,
    owed: Option<Owed>,
    late_since: Option<Instant>,
}

struct Counted {
    disks: Vec<Disk>,
    at: Instant,
}

struct Owed {
    asked_at: Instant,
    answer: Receiver<Result<Counted>>,
}

/// How long a table waits for the answer of a target. The target may wait 5 s for one of its disks.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long, after a table was shown without it.
const PATIENCE_IF_LATE: Duration = Duration::from_millis(50);

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
    /// Whether another policy was in force at the beginning.
    pub(super) policy_changed: bool,
    pub(super) iops: f64,
    pub(super) interrupts_per_io: f64,
    /// Time for which completions were held, over all completions, in ns.
    pub(super) added_ns: f64,
    /// The share of the requests' time that holding added, and the share that it may add; absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget_percent: Option<[f64; 2]>,
    /// The share of the interval in which requests waited in their rings for the limits of the disk; of a disk that of its queue with
    /// the largest.
    pub(super) limited_percent: f64,
    /// Deliveries by reason.
    pub(super) delivered: BTreeMap<String, u64>,
    /// Why the disk does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl<'a> Target<'a> {
    pub(super) const fn new(path: &'a Path) -> Self {
        Self { path, counted: None, owed: None, late_since: None }
    }

    /// Asks it, unless it owes an answer already.
    pub(super) fn ask(&mut self) {
        let path = self.path.to_owned();
        self.owed.get_or_insert_with(|| {
            let (sender, answer) = channel();
            let ask = move || drop(sender.send(counted(&path)));
            let _ = std::thread::Builder::new().spawn(ask); // without a thread there is no answer
            Owed { asked_at: Instant::now(), answer }
        });
    }

    /// What has happened since its last answer; nothing if this is the first. Waits for a limited time from `start` on.
    pub(super) fn interval(&mut self, start: Instant) -> Result<Vec<Row>> {
        let Some(owed) = &self.owed else { return Ok(Vec::new()) };
        let patience = if self.late_since.is_some() { PATIENCE_IF_LATE } else { PATIENCE };
        let answer = owed.answer.recv_timeout((start + patience).saturating_duration_since(Instant::now()));
        if matches!(answer, Err(RecvTimeoutError::Timeout)) {
            let since = *self.late_since.get_or_insert(owed.asked_at);
            bail!("control socket {}: no answer for {} s", self.path.display(), since.elapsed().as_secs());
        }
        self.owed = None;
        let now = answer.with_context(|| format!("control socket {}: not asked", self.path.display()))??;
        self.late_since = None;
        let rows = self.counted.as_ref().map_or_else(Vec::new, |before| now.since(before));
        self.counted = Some(now);
        Ok(rows)
    }
}

impl Counted {
    fn since(&self, before: &Self) -> Vec<Row> {
        let seconds = (self.at - before.at).as_secs_f64();
        let rows = self.disks.iter().flat_map(|disk| {
            let before = before.disks.iter().find(|before| before.ctrlr == disk.ctrlr);
            rows_of(disk, before.map_or(&[], |before| &before.queues), seconds)
        });
        rows.collect()
    }
}

fn counted(path: &Path) -> Result<Counted> {
    let stats = request(path, "get_stats", &json!({ "idle": true }))?;
    let disks = serde_json::from_value(stats).with_context(|| format!("control socket {}", path.display()))?;
    Ok(Counted { disks, at: Instant::now() })
}

/// A row for the disk, and one for each queue that completed something, or has something to do and may not.
fn rows_of(disk: &Disk, before: &[QueueStats], seconds: f64) -> Vec<Row> {
    let mut total = Sum::default();
    let mut rows = Vec::new();
    let mut any_changed = false;
    for queue in &disk.queues {
        let mut sum = Sum::of(queue);
        let earlier = before.iter().find(|before| before.queue == queue.queue);
        // Otherwise the counts are those of a new process, or were reset.
        let earlier = earlier.filter(|earlier| earlier.counted_since_us == queue.counted_since_us);
        let policy_changed = match earlier {
            Some(earlier) => earlier.policy_since_us != queue.policy_since_us,
            None => queue.policy_since_us > queue.counted_since_us,
        };
        any_changed |= policy_changed;
        if let Some(earlier) = earlier {
            sum.subtract(&Sum::of(earlier));
        }
        if policy_changed {
            sum.budget = None; // each policy has an account of its own
        }
        total.add(&sum);
        if sum.completions > 0.0 || sum.limited_ns > 0.0 {
            let policy = queue.policy.clone();
            rows.push(Row { queue: Some(queue.queue), policy, policy_changed, ..sum.row(disk, seconds) });
        }
    }
    let mut policies: Vec<_> = disk.queues.iter().map(|queue| queue.policy.clone()).collect();
    policies.dedup();
    let all = Row { policy: policies.join(" | "), policy_changed: any_changed, ..total.row(disk, seconds) };
    rows.insert(0, Row { error: disk.error.clone(), ..all });
    rows
}

/// Counts of an interval. All are far below 2^53, so floats add them exactly.
#[derive(Default)]
struct Sum {
    completions: f64,
    interrupts: f64,
    held_ns: f64,
    limited_ns: f64,
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
            limited_ns: queue.device.throttled_ns as f64,
            budget: budget.map(|b| [b.held_ns as f64, b.outstanding_ns as f64, b.limit_percent]),
            delivered: delivered.collect(),
        }
    }

    /// What another queue counted meanwhile. Of two budgets the larger limit counts. Queues that wait for the limits of their disk do so
    /// at the same time, so the longer wait counts.
    fn add(&mut self, other: &Self) {
        self.completions += other.completions;
        self.interrupts += other.interrupts;
        self.held_ns += other.held_ns;
        self.limited_ns = self.limited_ns.max(other.limited_ns);
        if let Some([more_held, more, other_limit]) = other.budget {
            let [held, outstanding, limit] = self.budget.unwrap_or_default();
            self.budget = Some([held + more_held, outstanding + more, limit.max(other_limit)]);
        }
        for (reason, count) in &other.delivered {
            *self.delivered.entry(reason.clone()).or_default() += count;
        }
    }

    /// What the queue had counted before.
    fn subtract(&mut self, before: &Self) {
        self.completions -= before.completions;
        self.interrupts -= before.interrupts;
        self.held_ns -= before.held_ns;
        self.limited_ns -= before.limited_ns;
        if let (Some([held, outstanding, _]), Some([held_before, before, _])) = (&mut self.budget, before.budget) {
            *held -= held_before;
            *outstanding -= before;
        }
        for (reason, count) in &before.delivered {
            *self.delivered.entry(reason.clone()).or_default() -= count;
        }
    }

    fn row(self, disk: &Disk, seconds: f64) -> Row {
        let per_io = |sum: f64| sum.max(0.0) / self.completions.max(1.0);
        Row {
            ctrlr: disk.ctrlr.clone(),
            iops: self.completions / seconds,
            interrupts_per_io: per_io(self.interrupts),
            added_ns: per_io(self.held_ns),
            limited_percent: (self.limited_ns / seconds / 1e7).clamp(0.0, 100.0),
            budget_percent: self.budget.map(|[held, all, limit]| [100.0 * held.max(0.0) / all.max(1.0), limit]),
            delivered: self.delivered.into_iter().map(|(r, n)| (r, n as u64)).filter(|(_, n)| *n > 0).collect(),
            ..Row::default()
        }
    }
}
