//! Which pictures there are of one part.

use coalesce_charts::chart::{Curve, Head, Mark, ROWS_RANGE, RowMark, curves, rows};
use coalesce_charts::html::figure;
use coalesce_charts::scale::{NINES, Scale};
use coalesce_charts::series::Series;

use crate::jobs::{self, Job, ROWS, Row};
use crate::options::Policies;
use crate::results::{Cell, Part, Place};

/// A percentile is drawn hollow if fewer requests than this were slower: another run may show something else.
const SLOWER_MIN: f64 = 10.0;

/// What the pictures of one part are drawn from.
#[derive(Debug)]
pub struct Figures<'a> {
    /// What was measured.
    pub part: &'a Part,
    /// Under which policies.
    pub policies: &'a Policies,
}

impl Figures<'_> {
    /// All pictures, in order.
    pub fn html(&self) -> String {
        [self.interrupts(), self.throughput(), self.latency(), self.mixed()].concat()
    }

    fn series(&self, policy: usize) -> Series<'_> {
        let policy = &self.policies.0[policy];
        Series { label: &policy.label, style: policy.style }
    }

    fn baseline(&self) -> &str {
        &self.policies.0[self.part.baseline].label
    }

    fn id(&self, what: &str) -> String {
        format!("{}-{what}", self.part.place.name())
    }

    /// The cells of a row.
    fn cells(&self, row: usize) -> impl Iterator<Item = &Cell> {
        (0..self.policies.0.len()).filter_map(move |policy| self.part.cell(row, policy))
    }

    fn interrupts(&self) -> String {
        // Both halves of a job share the queue and its interrupts.
        let jobs = Job::ALL.into_iter().filter_map(|job| job.rows().next());
        let panels: Vec<_> = jobs.map(|row| self.interrupts_panel(row, ROWS[row].job.name())).collect();
        let caption = match self.part.place {
            Place::Native => {
                "1 means that every completion interrupts. Without EVENT_IDX what is missing to 1 is the policy's own doing. Fsync counts writes and flushes."
            }
            Place::Guest => {
                "With EVENT_IDX Linux itself asks for fewer interrupts than 1 while it is busy: compare with the other policies, not with 1. Counted in the guest's /proc/interrupts."
            }
        };
        figure(&self.id("interrupts"), "Interrupts per I/O, by job and policy", caption, &panels)
    }

    fn interrupts_panel(&self, row: usize, title: &str) -> String {
        let job = ROWS[row].job;
        let max = self.part.cells.iter().map(Cell::interrupts_per_io).fold(0.0, f64::max);
        let about = if job == Job::Mixed { "both readers on one queue" } else { ROWS[row].about };
        let marks: Vec<_> = self
            .cells(row)
            .map(|cell| {
                let (value, series) = (cell.interrupts_per_io(), self.series(cell.policy));
                let ratio = self.part.interrupts_ratio(cell).map_or(0.0, |ratio| ratio.of_medians);
                let hover = format!(
                    "{}, {}: {value:.3} interrupts per I/O, {ratio:.2} x {}",
                    series.label,
                    job.name(),
                    self.baseline()
                );
                RowMark { series, mark: Mark::Bar(value), number: format!("{value:.3}"), hover }
            })
            .collect();
        let head = Head { title, about, axis: "interrupts per I/O" };
        rows(&head, &Scale::linear(max, ROWS_RANGE), &marks)
    }

    fn throughput(&self) -> String {
        let panels: Vec<_> = (0..ROWS.len()).map(|row| self.throughput_panel(row, ROWS[row].name)).collect();
        let caption = format!(
            "Right of the dashed line: more I/O per second than under {}. The thin line spans the single rounds: where it \
             crosses the dashed one the difference is noise.",
            self.baseline()
        );
        figure(&self.id("throughput"), &format!("Throughput relative to {}", self.baseline()), &caption, &panels)
    }

    fn throughput_panel(&self, row: usize, title: &str) -> String {
        let ratios = || self.part.cells.iter().filter_map(|cell| self.part.iops_ratio(cell));
        let (min, max) = ratios().fold((1.0, 1.0), |(min, max), r| (r.min.min(min), r.max.max(max)));
        let mark = |cell: &Cell| {
            let ratio = self.part.iops_ratio(cell)?;
            let hover = format!(
                "{}, {}: {:.0} IOPS, {:.2} x {} (single rounds {:.2} to {:.2})",
                self.series(cell.policy).label,
                ROWS[row].name,
                cell.iops(),
                ratio.of_medians,
                self.baseline(),
                ratio.min,
                ratio.max
            );
            let mark = Mark::Ratio { value: ratio.of_medians, spread: (ratio.min, ratio.max) };
            Some((cell.policy, mark, format!("{:.2}", ratio.of_medians), hover))
        };
        let marks = self.cells(row).filter_map(mark);
        let marks: Vec<_> = marks
            .map(|(policy, mark, number, hover)| RowMark { series: self.series(policy), mark, number, hover })
            .collect();
        let axis = format!("IOPS / IOPS under {} (log)", self.baseline());
        rows(&Head { title, ..head(&ROWS[row], &axis) }, &Scale::ratio(min, max, ROWS_RANGE), &marks)
    }

    fn latency(&self) -> String {
        let panels: Vec<_> = (0..ROWS.len()).map(|row| self.latency_panel(row)).collect();
        let what = match self.part.place {
            Place::Native => {
                "From submission until the client took the completion after an interrupt (clat), median of the rounds."
            }
            Place::Guest => {
                "From the start of fio's submission to the completion (lat). Emulated: for comparison between policies, not as times of this machine."
            }
        };
        let caption =
            format!("{what} Lower is better; each job has its own scale. Hollow: fewer than ten requests were slower.");
        figure(&self.id("latency"), "Latency percentiles, by job", &caption, &panels)
    }

    fn latency_panel(&self, row: usize) -> String {
        let of_cell = |cell: &Cell| {
            let points = cell.percents().filter(|percent| (50.0..=99.99).contains(percent));
            let point = |percent: f64| {
                let slower = cell.samples() as f64 * (1.0 - percent / 100.0);
                Some((percent, cell.latency_us(percent)?, slower >= SLOWER_MIN))
            };
            points.filter_map(point).collect::<Vec<_>>()
        };
        let of_policy = |cell: &Cell| (cell.policy, of_cell(cell));
        let lines: Vec<_> = self
            .cells(row)
            .map(of_policy)
            .map(|(policy, points)| Curve { series: self.series(policy), points })
            .collect();
        curves(&head(&ROWS[row], "percentile of requests"), "latency, µs (log)", &NINES, &lines)
    }

    /// The job that coalescing is most likely to hurt: someone waits for one request while many others complete.
    fn mixed(&self) -> String {
        let (Some(sync), Some(bulk)) = (jobs::row("mixed-sync"), jobs::row("mixed-async")) else {
            return String::new();
        };
        let panels = [
            self.mixed_latency(sync),
            self.interrupts_panel(sync, "mixed: interrupts"),
            self.throughput_panel(bulk, "mixed-async: throughput"),
        ];
        let caption = "Left: what the reader that somebody waits for gets. Then what that costs: interrupts of the queue, and the throughput of the bulk reader beside it.";
        figure(&self.id("mixed"), "The synchronous reader in a crowd (job mixed)", caption, &panels)
    }

    fn mixed_latency(&self, row: usize) -> String {
        let shown: Vec<f64> = match self.cells(row).next() {
            Some(cell) => {
                cell.percents().filter(|p| [50.0, 99.0, 99.9_f64].iter().any(|s| s.total_cmp(p).is_eq())).collect()
            }
            None => return String::new(),
        };
        let values = |cell: &Cell| shown.iter().filter_map(|&percent| cell.latency_us(percent)).collect::<Vec<_>>();
        let all: Vec<_> = self.cells(row).flat_map(values).collect();
        let (low, high) = all.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (v.min(low), v.max(high)));
        let marks: Vec<_> = self
            .cells(row)
            .map(|cell| {
                let series = self.series(cell.policy);
                let named = shown.iter().zip(values(cell)).map(|(percent, us)| format!("p{percent} {us:.1} µs"));
                let hover = format!("{}, {}: {}", series.label, ROWS[row].name, named.collect::<Vec<_>>().join(", "));
                let number = cell.latency_us(99.0).map_or_else(String::new, |us| format!("{us:.0}"));
                RowMark { series, mark: Mark::Percentiles(values(cell)), number, hover }
            })
            .collect();
        let about = match shown.len() {
            3 => "bar p50, filled p99 (the number), hollow p99.9",
            _ => "bar p50, filled p99 (the number)",
        };
        let head = Head { title: "mixed-sync: latency", about, axis: "latency, µs (log)" };
        rows(&head, &Scale::log(low, high, ROWS_RANGE), &marks)
    }
}

const fn head<'a>(row: &'a Row, axis: &'a str) -> Head<'a> {
    Head { title: row.name, about: row.about, axis }
}
