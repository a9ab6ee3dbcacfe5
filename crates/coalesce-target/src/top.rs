//! `coalesce-target top`: what running targets do, from their control sockets.

use crate::stats::QueueStats;
use crate::{control, print};
use anyhow::{Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The options of `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Control sockets of the targets
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    control: Vec<PathBuf>,

    /// Time that a table is about, 10ms to 3600s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    interval: Duration,

    /// Print one table and exit; without it, the table is renewed until the program is interrupted
    #[arg(long)]
    once: bool,

    /// Print JSON instead, one line for each interval
    #[arg(long)]
    json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let ns = coalesce_policy::parse_duration(text).map_err(|problem| format!("interval {text} {problem}"))?;
    let interval = Duration::from_nanos(ns);
    let allowed = Duration::from_millis(10)..=Duration::from_secs(3600);
    allowed
        .contains(&interval)
        .then_some(interval)
        .ok_or(format!("interval {text} is out of range; allowed: 10ms to 3600s"))
}

/// Prints what the targets did in each interval.
///
/// # Errors
/// A target does not answer at the beginning, or with `--once` at the end; or standard output is closed.
pub fn top(options: &Top) -> Result<()> {
    let mut targets = options.control.iter().map(|path| Target::new(path)).collect::<Result<Vec<_>>>()?;
    loop {
        sleep(options.interval);
        let outcomes: Vec<_> = targets.iter_mut().map(|target| (target.path, target.interval())).collect();
        let text = if options.json { json_of(&outcomes) } else { tables(&outcomes) };
        // Erases the screen: ECMA-48, cursor to the upper left corner, then erase to the end.
        let is_renewed = stdout().is_terminal() && !options.once && !options.json;
        print(&format!("{}{text}", if is_renewed { "\x1b[H\x1b[J" } else { "" })).context("standard output")?;
        if options.once {
            return outcomes.into_iter().try_for_each(|(_, outcome)| outcome.map(drop));
        }
    }
}

/// A target and what it has counted.
struct Target<'a> {
    path: &'a Path,
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
struct Row {
    ctrlr: String,
    /// `None`: all queues.
    queue: Option<usize>,
    policy: String,
    iops: f64,
    interrupts_per_io: f64,
    /// Time for which completions were held, over all completions, in ns.
    added_ns: f64,
    /// The share of the requests' time that holding added, and the share that it may add; absent without a budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_percent: Option<[f64; 2]>,
    /// Deliveries by reason.
    delivered: BTreeMap<String, u64>,
    /// Why the disk does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> Target<'a> {
    fn new(path: &'a Path) -> Result<Self> {
        Ok(Self { path, counted: counted(path)?, at: Instant::now() })
    }

    /// What has happened since it was asked last.
    fn interval(&mut self) -> Result<Vec<Row>> {
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

fn json_of(outcomes: &[(&Path, Result<Vec<Row>>)]) -> String {
    let target = |(path, outcome): &(&Path, Result<Vec<Row>>)| match outcome {
        Ok(rows) => json!({ "control": path.display().to_string(), "rows": rows }),
        Err(error) => json!({ "control": path.display().to_string(), "error": format!("{error:#}") }),
    };
    format!("{}\n", outcomes.iter().map(target).collect::<Value>())
}

fn tables(outcomes: &[(&Path, Result<Vec<Row>>)]) -> String {
    let mut text = String::new();
    for (path, outcome) in outcomes {
        let _ = match outcome {
            Ok(rows) => write!(text, "{}\n{}\n", path.display(), table(rows)),
            Err(error) => writeln!(text, "{error:#}\n"),
        };
    }
    text
}

fn table(rows: &[Row]) -> String {
    let wide = rows.iter().map(|row| row.ctrlr.chars().count()).max().unwrap_or(0).max("disk".len());
    let head = ["queue", "IOPS", "interrupts/IO", "added us", "budget %"];
    let mut text = format!(
        "{:wide$} {:>5} {:>9} {:>13} {:>9} {:>12}  delivered because",
        "disk", head[0], head[1], head[2], head[3], head[4]
    );
    text.push('\n');
    for row in rows {
        if let Some(error) = &row.error {
            let _ = writeln!(text, "{:wide$} {error}", row.ctrlr);
            continue;
        }
        let queue = row.queue.map_or("all".to_owned(), |queue| queue.to_string());
        let budget = row.budget_percent.map_or("-".to_owned(), |[spent, limit]| format!("{spent:.2} of {limit}"));
        let name = if row.queue.is_none() { &row.ctrlr } else { "" };
        let (iops, interrupts, added) = (row.iops, row.interrupts_per_io, row.added_ns / 1e3);
        let _ = writeln!(
            text,
            "{name:wide$} {queue:>5} {iops:>9.0} {interrupts:>13.3} {added:>9.2} {budget:>12}  {}",
            reasons(&row.delivered)
        );
    }
    text
}

/// The three most frequent reasons, with their shares.
fn reasons(delivered: &BTreeMap<String, u64>) -> String {
    let total: u64 = delivered.values().sum();
    let mut counts: Vec<_> = delivered.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let share = |(reason, count): &(&String, &u64)| format!("{reason} {:.0} %", 100.0 * **count as f64 / total as f64);
    counts.iter().take(3).map(share).collect::<Vec<_>>().join(", ")
}
