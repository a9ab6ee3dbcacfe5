//! Comparisons as JSON.

use serde_json::{Map, Value, json};

use crate::paired::{Comparison, Interval, Verdict};

/// A number of the baseline and of its control. `is_exact`: whether a ratio needs no interval.
#[must_use]
pub fn of_baseline(name: &str, baseline: f64, comparison: &Comparison, is_exact: impl Fn(&Interval) -> bool) -> Value {
    json!({
        "name": name,
        "baseline": baseline,
        "noise": comparison.noise,
        "control": comparison.control.map(interval),
        "exact": comparison.control.is_some_and(|ratio| is_exact(&ratio)),
    })
}

/// The ratios of the others to it.
#[must_use]
pub fn of_others<'a>(
    names: impl Iterator<Item = &'a str>,
    comparison: &Comparison,
    is_exact: impl Fn(&Interval) -> bool,
) -> Map<String, Value> {
    let told = comparison.verdicts.iter().zip(&comparison.ratios).map(|(verdict, &ratio)| {
        let verdict = match verdict {
            Verdict::Differs(_) => "differs",
            Verdict::CannotTell(_) => "cannot tell",
            Verdict::TooFew => "too few turns",
        };
        let exact = ratio.is_some_and(|ratio| is_exact(&ratio));
        json!({ "verdict": verdict, "ratio": ratio.map(interval), "exact": exact })
    });
    names.map(str::to_owned).zip(told).collect()
}

fn interval(Interval { median, low, high }: Interval) -> Value {
    json!({ "median": median, "low": low, "high": high })
}
