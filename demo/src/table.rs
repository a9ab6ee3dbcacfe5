//! Tables: the same cells on the terminal and in the report.

use coalesce_charts::html::Cell;
use coalesce_demo::paired::{Interval, Verdict};

use crate::options::Policies;
use crate::results::{Measured, Metric, What, metrics};

/// A table: the numbers of one job under every policy.
#[derive(Clone, Debug)]
pub struct Table {
    /// The heads of the columns.
    pub heads: Vec<String>,
    /// A line for each variant. Grey is what says nothing: no difference was seen, or the machine is too noisy to see one.
    pub lines: Vec<Vec<Cell>>,
}

/// The table of a job. `all`: with the columns that a terminal has no room for.
pub fn table(measured: &Measured, policies: &Policies, all: bool) -> Table {
    let is_shown =
        |metric: &Metric| all || !matches!(metric.what, What::ClientCpu | What::TargetCpu | What::ContextSwitches);
    let metrics: Vec<_> = metrics(measured.job).into_iter().filter(is_shown).collect();
    let baseline = policies.baseline();
    let mut lines = vec![vec![plain(&baseline.label)], vec![plain(&format!("{}, again", baseline.label))]];
    lines.extend(policies.others().map(|policy| vec![plain(&policy.label)]));
    for metric in &metrics {
        let comparison = measured.compare(metric.what);
        let exact =
            |ratio: &Interval| metric.is_exact(ratio).then(|| plain(&format!("{} exact", self::ratio(ratio.median))));
        let unsure = |ratio: &Interval| exact(ratio).unwrap_or_else(|| grey(&told(ratio)));
        let control = comparison.control.map_or_else(|| grey("-"), |ratio| unsure(&ratio));
        let cells = [plain(&number(measured.baseline(metric.what))), control].into_iter();
        let cells = cells.chain(comparison.verdicts.iter().map(|verdict| match verdict {
            Verdict::Differs(ratio) => exact(ratio).unwrap_or_else(|| plain(&told(ratio))),
            Verdict::CannotTell(ratio) => unsure(ratio),
            Verdict::TooNoisy => grey("too noisy to tell"),
            Verdict::TooFew => grey("too few turns"),
        }));
        lines.iter_mut().zip(cells).for_each(|(line, cell)| line.push(cell));
    }
    let heads = metrics.iter().map(|metric| metric.name.to_owned());
    Table { heads: ["policy".to_owned()].into_iter().chain(heads).collect(), lines }
}

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), is_grey: false }
}

fn grey(text: &str) -> Cell {
    Cell { text: text.to_owned(), is_grey: true }
}

/// A ratio with its interval.
pub fn told(Interval { median, low, high }: &Interval) -> String {
    format!("{} ({}–{})", ratio(*median), ratio(*low), ratio(*high))
}

fn ratio(value: f64) -> String {
    match value {
        _ if value.is_infinite() => "∞".to_owned(),
        _ if value >= 9.95 => format!("{value:.0}"),
        _ if value >= 1.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Three digits.
pub fn number(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The lines of a table for a terminal. `styled`: it is one.
pub fn text(table: &Table, styled: bool) -> String {
    let head: Vec<_> = table.heads.iter().map(|head| plain(head)).collect();
    let rows: Vec<_> = [&head].into_iter().chain(&table.lines).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].text.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |(index, row): (usize, &&Vec<Cell>)| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            let padded = if column == 0 { format!("{:<width$}", cell.text) } else { format!("{:>width$}", cell.text) };
            match (styled, index, cell.is_grey) {
                (true, 0, _) => format!("\x1b[1m{padded}\x1b[0m"),
                (true, _, true) => format!("\x1b[2m{padded}\x1b[0m"),
                _ => padded,
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Job;
    use crate::options::Policy;
    use crate::results::tests::measured;

    fn policies() -> Policies {
        Policies(["none", "auto"].map(|label| Policy { label: label.into(), text: label.into(), style: 0 }).into())
    }

    #[test]
    fn what_cannot_be_told_is_grey() {
        let table = table(&measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (1000, 250)]), &policies(), false);
        let shown = text(&table, false);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "policy       interrupts/IO  system calls/IO         CPU µs/IO           reads/s");
        assert!(lines[3].starts_with("auto            0.25 exact"), "{shown}");
        let auto = &table.lines[2];
        assert_eq!(
            auto.iter().map(|cell| cell.is_grey).collect::<Vec<_>>(),
            [false, false, true, false, true],
            "{shown}"
        );
        assert!(!shown.contains('\x1b') && text(&table, true).contains("\x1b[2m"));
    }

    #[test]
    fn a_sixth_policy_fits_a_terminal() {
        let table = table(&measured(Job::Sqlite, &[(1000, 1000); 6]), &policies(), false);
        assert!(text(&table, false).lines().all(|line| line.chars().count() <= 132));
    }

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.1234, 0.99, 1.0, 12.345, 123.4, 12_345.0].map(number);
        assert_eq!(numbers, ["0.123", "0.990", "1.00", "12.3", "123", "12345"]);
        assert_eq!([0.5, 1.25, 2.0, 12.0, f64::INFINITY].map(ratio), ["0.50", "1.25", "2.0", "12", "∞"]);
    }
}
