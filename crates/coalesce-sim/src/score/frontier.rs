//! The frontier as a picture: what policies save against what they cost.

use super::{Board, Overall, TABLE};
use coalesce_charts::chart::{Head, Line, WIDTH, X_RANGE, Y_RANGE, plot, standalone};
use coalesce_charts::scale::Scale;
use coalesce_charts::series::{Series, styles};
use coalesce_cli::counted;

/// Index in [`TABLE`] of what is saved, and of its price.
const SAVED: usize = 0;
const PRICE: usize = 2;

/// A policy, over `none`.
struct Point<'a> {
    text: &'a str,
    price: f64,
    saved: f64,
}

/// An SVG file: interrupts against the mean time of a request, both over `none`, with `none` itself. Points of policies that differ in
/// their parameters alone are joined, in the order given. `None`: more policies than there are colours.
#[must_use]
pub fn picture(board: &Board) -> Option<String> {
    let mut policies = vec![("none", vec![Point { text: "none", price: 1.0, saved: 1.0 }])];
    for (text, runs) in board.by_policy() {
        let means = Board::summaries(&runs).map(|Overall { mean, .. }| mean);
        let name = text.split(':').next().unwrap_or(text);
        let point = Point { text, price: means[PRICE], saved: means[SAVED] };
        match policies.iter_mut().find(|(other, _)| *other == name) {
            Some((_, points)) => points.push(point),
            None => policies.push((name, vec![point])),
        }
    }
    let names: Vec<_> = policies.iter().map(|(name, _)| *name).collect();
    let labels = styles(&names)?;
    let lines = policies.iter().zip(&labels).map(|((_, points), (label, style))| {
        let hovers = points.iter().map(|Point { text, price, saved }| format!("{text}: {price:.3}, {saved:.3}"));
        Line {
            series: Series { label, style: *style },
            hover: hovers.collect::<Vec<_>>().join("; "),
            points: points.iter().map(|point| (point.price, point.saved)).collect(),
            markers: points.iter().map(|point| (point.price, point.saved, true)).collect(),
        }
    });
    let lines: Vec<_> = lines.collect();
    let dearest = lines.iter().flat_map(|line| &line.points).map(|point| point.0).fold(1.0, f64::max);
    let about = format!("{}, geometric means over none", counted(board.workloads as u64, "workload"));
    let head = Head { title: "What a policy saves, and its price", about: &about, axis: "mean time of a request" };
    let (x, y) = (Scale::log(1.0, dearest, X_RANGE), Scale::linear(1.0, Y_RANGE));
    Some(standalone(&plot(&head, (&x, &y), TABLE[SAVED].head, &lines, None), WIDTH))
}

#[cfg(test)]
mod tests {
    use super::super::{FIGURES, Ratios};
    use super::*;
    use crate::units::Time;

    fn board(policies: &[(&str, [f64; FIGURES])]) -> Board {
        let run =
            |&(policy, ratios): &(&str, _)| Ratios { workload: "w".into(), seed: 1, policy: policy.into(), ratios };
        Board { workloads: 1, seeds: 1, duration: Time::ms(1), runs: policies.iter().map(run).collect() }
    }

    #[test]
    fn budgets_are_joined_and_other_policies_are_points() {
        let of = |saved, price| [saved, 1.0, price, 1.0, 1.0, 1.0];
        let picture =
            picture(&board(&[("auto:budget=1%", of(0.8, 1.0)), ("vic", of(0.7, 1.0)), ("auto", of(0.5, 1.2))]));
        let picture = picture.unwrap();
        let points = |line: &str| {
            line.split_once("points=\"").map(|(_, points)| points.split('"').next().unwrap().matches(',').count())
        };
        let lines: Vec<_> = picture.split("<polyline").filter_map(points).collect();
        assert_eq!(lines, [1, 2, 1], "none, auto, vic: {picture}");
        assert!(
            picture.contains("auto:budget=1%: 1.000, 0.800; auto: 1.200, 0.500") && picture.starts_with("<svg xmlns=")
        );
    }

    #[test]
    fn as_many_policies_as_there_are_colours() {
        let of = |count: usize| {
            let names: Vec<_> = (0..count).map(|i| format!("p{i}")).collect();
            picture(&board(&names.iter().map(|name| (name.as_str(), [1.0; FIGURES])).collect::<Vec<_>>())).is_some()
        };
        assert!(of(3) && !of(4), "three colours are nobody's own");
    }
}
