//! What was measured: samples, their medians, ratios to the baseline, and all of it as JSON.

use serde_json::{Map, Value, json};

use crate::jobs::{ROWS, Row};
use crate::options::Policies;

/// Where the jobs ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process.
    Native,
    /// In a Linux guest.
    Guest,
}

impl Place {
    /// Its name in headings and ids.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Guest => "guest",
        }
    }

    /// Whether EVENT_IDX is negotiated.
    pub const fn event_idx(self) -> bool {
        matches!(self, Self::Guest)
    }

    /// fio's name for the latency that is compared. The client's begins with the submission; the guest's includes it,
    /// because ringing the doorbell is slow under emulation and the completion can come meanwhile.
    pub const fn latency(self) -> &'static str {
        match self {
            Self::Native => "clat",
            Self::Guest => "lat",
        }
    }
}

/// A latency distribution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// Number of requests.
    pub n: u64,
    /// Percentiles in ascending order, and their values in ns.
    pub percentile: Vec<(f64, f64)>,
}

/// One requester of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Its completions per second; of writes with flushes, the writes.
    pub iops: f64,
    /// Its latency.
    pub latency: Latency,
    /// Completions of the whole queue, flushes included.
    pub requests: u64,
    /// Interrupts of the whole queue, for these.
    pub interrupts: u64,
}

impl Sample {
    fn interrupts_per_io(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.interrupts as f64 / self.requests as f64 }
    }
}

/// What one row says about one policy.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Number of its row in [`ROWS`].
    pub row: usize,
    /// Number of its policy.
    pub policy: usize,
    /// One sample per round; never empty.
    pub rounds: Vec<Sample>,
}

impl Cell {
    /// Its row.
    pub const fn row(&self) -> &'static Row {
        &ROWS[self.row]
    }

    /// Median over the rounds.
    pub fn iops(&self) -> f64 {
        median(self.rounds.iter().map(|sample| sample.iops))
    }

    /// Median over the rounds.
    pub fn interrupts_per_io(&self) -> f64 {
        median(self.rounds.iter().map(Sample::interrupts_per_io))
    }

    /// Median over the rounds of one percentile, in µs; none: it was not measured.
    pub fn latency_us(&self, percent: f64) -> Option<f64> {
        let value = |sample: &Sample| {
            let found = sample.latency.percentile.iter().find(|(p, _)| p.total_cmp(&percent).is_eq());
            found.map(|&(_, ns)| ns / 1e3)
        };
        let values: Vec<_> = self.rounds.iter().filter_map(value).collect();
        if values.is_empty() { None } else { Some(median(values)) }
    }

    /// The percentiles that were measured.
    pub fn percents(&self) -> impl Iterator<Item = f64> {
        self.rounds.first().into_iter().flat_map(|sample| sample.latency.percentile.iter().map(|&(percent, _)| percent))
    }

    /// Requests behind the latencies, of all rounds.
    pub fn samples(&self) -> u64 {
        self.rounds.iter().map(|sample| sample.latency.n).sum()
    }
}

/// Ratios of one cell to the baseline's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of the medians, which are what the tables show.
    pub of_medians: f64,
    /// Smallest of a single round.
    pub min: f64,
    /// Largest of a single round.
    pub max: f64,
}

/// All that was measured at one place.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where.
    pub place: Place,
    /// Row by row, policy by policy; a cell is missing if its run failed.
    pub cells: Vec<Cell>,
    /// Number of the policy that the others are compared to.
    pub baseline: usize,
    /// Seconds of each run.
    pub seconds: f64,
    /// Every run as it was reported.
    pub raw: Vec<Value>,
    /// What the target had counted before.
    pub target_before: Value,
    /// What the target had counted after.
    pub target_after: Value,
    /// By policy: what the guest's /proc/interrupts showed at the end; empty: there was no guest.
    pub guest_interrupts: Vec<u64>,
    /// The guest; empty: there was none.
    pub about: String,
}

impl Part {
    /// The cell of a row and a policy.
    pub fn cell(&self, row: usize, policy: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.row == row && cell.policy == policy)
    }

    /// Number of rounds.
    pub fn rounds(&self) -> usize {
        self.cells.iter().map(|cell| cell.rounds.len()).max().unwrap_or(0)
    }

    /// Throughput relative to the baseline.
    pub fn iops_ratio(&self, cell: &Cell) -> Option<Ratio> {
        self.ratio(cell, Cell::iops, |sample| sample.iops)
    }

    /// Interrupts per I/O relative to the baseline.
    pub fn interrupts_ratio(&self, cell: &Cell) -> Option<Ratio> {
        self.ratio(cell, Cell::interrupts_per_io, Sample::interrupts_per_io)
    }

    fn ratio(&self, cell: &Cell, of: impl Fn(&Cell) -> f64, each: impl Fn(&Sample) -> f64) -> Option<Ratio> {
        let base = self.cell(cell.row, self.baseline)?;
        let divide = |value: f64, base: f64| (base > 0.0).then(|| value / base);
        // Both ran next to each other in each round: the spread of these shows what a slow spell can do.
        let ratios = cell.rounds.iter().zip(&base.rounds).filter_map(|(mine, base)| divide(each(mine), each(base)));
        let (min, max) = ratios.fold((f64::MAX, f64::MIN), |(min, max), r| (r.min(min), r.max(max)));
        divide(of(cell), of(base)).map(|of_medians| Ratio { of_medians, min, max })
    }

    /// As JSON, in fio's vocabulary.
    pub fn json(&self, policies: &Policies) -> Value {
        let rows = self.cells.iter().map(|cell| {
            let at = |percent| Some((format!("{percent:.6}"), json!(round(cell.latency_us(percent)? * 1e3))));
            let percentile: Map<_, _> = cell.percents().filter_map(at).collect();
            let latency = format!("{}_ns", self.place.latency());
            let sum = |of: fn(&Sample) -> u64| cell.rounds.iter().map(of).sum::<u64>();
            json!({
                "jobname": cell.row().name,
                "policy": policies.0[cell.policy].label,
                "iops": round(cell.iops()),
                "iops_ratio": self.iops_ratio(cell).map(|ratio| round(ratio.of_medians)),
                latency: { "N": cell.samples(), "percentile": percentile },
                "total_ios": sum(|sample| sample.requests),
                "interrupts": sum(|sample| sample.interrupts),
                "interrupts_per_io": round(cell.interrupts_per_io()),
                "interrupts_ratio": self.interrupts_ratio(cell).map(|ratio| round(ratio.of_medians)),
            })
        });
        json!({
            "event_idx": self.place.event_idx(),
            "rounds": self.rounds(),
            "seconds": self.seconds,
            "about": self.about,
            "rows": rows.collect::<Vec<_>>(),
            "guest_interrupts": self.guest_interrupts,
            "target": { "before": self.target_before, "after": self.target_after },
            "runs": self.raw,
        })
    }
}

/// One of the two parts of a demonstration, or why it is not there.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// What was measured.
    pub part: Option<Part>,
    /// What the reader must know about it: SKIPPED, FAILED, and why.
    pub notice: Option<String>,
    /// Whether something failed, as opposed to being left out.
    pub failed: bool,
}

impl Section {
    /// As JSON.
    pub fn json(&self, policies: &Policies) -> Value {
        let mut value = self.part.as_ref().map_or_else(|| json!({}), |part| part.json(policies));
        value["notice"] = json!(self.notice);
        value
    }
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// Six digits are more than any of this is good for.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A cell whose rounds have these (iops, interrupts) for 100 requests each.
    pub fn cell(row: usize, policy: usize, rounds: &[(f64, u64)]) -> Cell {
        let sample = |&(iops, interrupts): &(f64, u64)| Sample {
            iops,
            latency: Latency { n: 100, percentile: vec![(50.0, 1e9 / iops), (99.0, 2e9 / iops)] },
            requests: 100,
            interrupts,
        };
        Cell { row, policy, rounds: rounds.iter().map(sample).collect() }
    }

    /// A part with these cells.
    pub fn part(place: Place, cells: Vec<Cell>) -> Part {
        Part {
            place,
            cells,
            baseline: 0,
            seconds: 1.0,
            raw: vec![],
            target_before: json!(null),
            target_after: json!(null),
            guest_interrupts: vec![],
            about: String::new(),
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn medians() {
        for (values, expected) in
            [(&[][..], 0.0), (&[3.0], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0], 2.5), (&[1.0, 9.0, 3.0, 5.0], 4.0)]
        {
            assert!(close(median(values.iter().copied()), expected), "{values:?}");
        }
    }

    #[test]
    fn ratios_are_of_what_the_tables_show_and_lie_within_the_rounds() {
        let part = part(
            Place::Native,
            vec![
                cell(0, 0, &[(100.0, 100), (200.0, 100), (400.0, 100)]),
                cell(0, 1, &[(110.0, 20), (180.0, 50), (500.0, 30)]),
            ],
        );
        let cell = part.cell(0, 1).unwrap();
        assert!(close(cell.iops(), 180.0) && close(cell.interrupts_per_io(), 0.3));
        let iops = part.iops_ratio(cell).unwrap();
        assert!(close(iops.of_medians, 0.9) && close(iops.min, 0.9) && close(iops.max, 1.25), "{iops:?}");
        assert!(close(part.interrupts_ratio(cell).unwrap().of_medians, 0.3));
        assert_eq!(cell.latency_us(42.0), None);
        assert!(close(cell.latency_us(99.0).unwrap(), 2e6 / 180.0));
        assert_eq!(cell.samples(), 300);
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio() {
        let part = part(Place::Guest, vec![cell(0, 1, &[(1.0, 1)]), cell(1, 0, &[(0.0, 0)]), cell(1, 1, &[(1.0, 1)])]);
        assert_eq!(part.iops_ratio(&part.cells[0]), None);
        assert_eq!(part.iops_ratio(&part.cells[2]), None);
        assert_eq!(part.interrupts_ratio(&part.cells[2]), None);
    }

    #[test]
    fn json_speaks_fio() {
        let policies = Policies(vec![crate::options::Policy { label: "none".into(), text: "none".into(), style: 0 }]);
        let json = part(Place::Guest, vec![cell(3, 0, &[(1000.0, 25)])]).json(&policies);
        let row = &json["rows"][0];
        assert_eq!((row["jobname"].as_str(), row["policy"].as_str()), (Some("mixed-sync"), Some("none")));
        assert_eq!(row["lat_ns"]["percentile"]["99.000000"], json!(2e6));
        assert_eq!((&row["interrupts_per_io"], &json["event_idx"]), (&json!(0.25), &json!(true)));
    }
}
