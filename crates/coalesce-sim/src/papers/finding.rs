//! What came out of a row, for machines and for people.

use super::row::{Row, Verdict};
use serde::Serialize;
use std::fmt::Write as _;

/// A row, simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Of the row.
    pub id: &'static str,
    /// Section, and table or figure of the paper.
    pub source: &'static str,
    /// What was measured.
    pub what: &'static str,
    /// Of both figures.
    pub unit: &'static str,
    /// The published figure.
    pub published: f64,
    /// The simulated one, rounded to what the model may claim: four digits.
    pub simulated: Option<f64>,
    /// Simulated over published; none where nothing was published but "no change".
    pub ratio: Option<f64>,
    /// What the one says about the other.
    pub verdict: Verdict,
    /// Why they differ, where that is known.
    pub note: &'static str,
}

impl Finding {
    /// What `row`, from `source`, came to; `simulated: None`: the model cannot carry it.
    #[must_use]
    pub fn new(row: &Row, source: &'static str, simulated: Option<f64>) -> Self {
        let simulated = simulated.map(four_digits);
        Self {
            id: row.id,
            source,
            what: row.what,
            unit: row.unit.symbol(),
            published: row.published,
            simulated,
            ratio: simulated.filter(|_| row.published != 0.0).map(|simulated| four_digits(simulated / row.published)),
            verdict: simulated.map_or(Verdict::NotModelled, |simulated| row.judge(simulated)),
            note: row.note,
        }
    }
}

fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The findings as a table.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let cells = |finding: &Finding| {
        let figure = |value: f64| format!("{} {}", short(value), finding.unit).trim_end().to_owned();
        [
            finding.id.to_owned(),
            figure(finding.published),
            finding.simulated.map_or_else(|| "-".into(), figure),
            finding.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
            finding.verdict.name().to_owned(),
            finding.note.to_owned(),
        ]
    };
    let head = ["id", "published", "simulated", "ratio", "verdict", "note"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(head).chain(findings.iter().map(cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if (1..=3).contains(&column) {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Three digits, or all before the point.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
