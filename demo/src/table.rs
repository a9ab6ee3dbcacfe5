//! Tables of comparisons: the same cells on a terminal and in a report.

pub use coalesce_charts::html::Cell;

use crate::paired::{Comparison, Interval, Verdict};

/// A table: numbers of each variant.
#[derive(Clone, Debug)]
pub struct Table {
    /// The heads of the columns.
    pub heads: Vec<String>,
    /// A line for each variant. Grey is what tells no difference.
    pub lines: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with a first column: its head, the name of the baseline, and those of the other variants.
    #[must_use]
    pub fn new<'a>(head: &str, baseline: &str, others: impl Iterator<Item = &'a str>) -> Self {
        let mut lines = vec![vec![plain(baseline)], vec![plain(&format!("{baseline}, again"))]];
        lines.extend(others.map(|name| vec![plain(name)]));
        Self { heads: vec![head.to_owned()], lines }
    }

    /// Adds a column: the baseline's value, then ratios to it. `is_exact`: whether a ratio needs no interval.
    pub fn push(&mut self, head: &str, baseline: f64, comparison: &Comparison, is_exact: impl Fn(&Interval) -> bool) {
        let exact = |ratio: &Interval| is_exact(ratio).then(|| plain(&format!("{} exact", self::ratio(ratio.median))));
        let unsure = |ratio: &Interval| exact(ratio).unwrap_or_else(|| grey(&told(ratio)));
        let control = comparison.control.map_or_else(|| grey("-"), |ratio| unsure(&ratio));
        let cells = [plain(&number(baseline)), control].into_iter();
        let cells = cells.chain(comparison.verdicts.iter().map(|verdict| match verdict {
            Verdict::Differs(ratio) => exact(ratio).unwrap_or_else(|| plain(&told(ratio))),
            Verdict::CannotTell(ratio) => unsure(ratio),
            Verdict::TooFew => grey("too few turns"),
        }));
        self.lines.iter_mut().zip(cells).for_each(|(line, cell)| line.push(cell));
        self.heads.push(head.to_owned());
    }

    /// Its lines for a terminal. `styled`: it is one.
    #[must_use]
    pub fn text(&self, styled: bool) -> String {
        let head: Vec<_> = self.heads.iter().map(|head| plain(head)).collect();
        let rows: Vec<_> = [&head].into_iter().chain(&self.lines).collect();
        // A line with one cell is the title of those below.
        let in_columns = || rows.iter().filter(|row| row.len() > 1);
        let width = |column: usize| in_columns().map(|row| row[column].text.chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..head.len()).map(width).collect();
        let line = |(index, row): (usize, &&Vec<Cell>)| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                let padded =
                    if column == 0 { format!("{:<width$}", cell.text) } else { format!("{:>width$}", cell.text) };
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
}

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), is_grey: false }
}

fn grey(text: &str) -> Cell {
    Cell { text: text.to_owned(), is_grey: true }
}

/// A ratio with its interval.
#[must_use]
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
#[must_use]
pub fn number(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.1234, 0.99, 1.0, 12.345, 123.4, 12_345.0].map(number);
        assert_eq!(numbers, ["0.123", "0.990", "1.00", "12.3", "123", "12345"]);
        assert_eq!([0.5, 1.25, 2.0, 12.0, f64::INFINITY].map(ratio), ["0.50", "1.25", "2.0", "12", "∞"]);
    }
}
