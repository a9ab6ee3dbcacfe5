//! What a measurement says about each variant.

use super::interval::Interval;

/// What may be said about a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It differs from the baseline.
    Differs(Interval),
    /// Its interval contains 1, or it differs by less than the baseline from itself may, or the baseline differs from itself.
    CannotTell(Interval),
    /// There are too few blocks for an interval.
    TooFew,
}

/// An interval of which one end is no further from the other is narrow.
const NARROW: f64 = 1.05;

impl Verdict {
    /// Whether a difference was seen.
    pub const fn differs(&self) -> bool {
        matches!(self, Self::Differs(_))
    }

    /// Whether more blocks would say little more.
    pub fn is_narrow(&self) -> bool {
        match self {
            Self::Differs(interval) | Self::CannotTell(interval) => interval.high / interval.low < NARROW,
            Self::TooFew => false,
        }
    }
}

/// One number of every variant, relative to the baseline.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The baseline relative to itself; none: too few blocks.
    pub control: Option<Interval>,
    /// Half of all blocks have two turns of the baseline that differ by more than this share: 0.07 is 7 %.
    pub noise: f64,
    /// Of the variants from 2 on, whatever may be said about them; none: too few blocks.
    pub ratios: Vec<Option<Interval>>,
    /// Of the variants from 2 on.
    pub verdicts: Vec<Verdict>,
}

impl Comparison {
    /// The smallest effect that this could see: 0.2 is a fifth more. A smaller one, of a policy as noisy as the baseline, has an
    /// interval with 1 in it, or could be the baseline's. None: too few blocks.
    pub fn smallest_effect(&self) -> Option<f64> {
        self.control.map(|control| control.high.max(1.0 / control.low).max(1.0) - 1.0)
    }
}

/// Compares the variants' values (positive: operations per second, time per operation), a row by block.
///
/// `error`: the probability that an interval misses; see [`Plan::at_each_look`](super::Plan::at_each_look).
///
/// # Panics
///
/// If a block has fewer than two values, or blocks have different numbers of them.
pub fn compare(blocks: &[Vec<f64>], error: f64) -> Comparison {
    let variants = blocks.first().map_or(2, Vec::len);
    assert!(variants >= 2 && blocks.iter().all(|block| block.len() == variants), "every block has every variant");
    // Relative to one turn of the baseline, not to the mean of both: only two turns that could be exchanged are a fair coin.
    let ratios = |variant: usize| blocks.iter().map(|block| block[variant] / block[0]).collect::<Vec<_>>();
    let control = Interval::of_ratios(&ratios(1), error);
    let mut differences: Vec<_> = ratios(1).into_iter().map(|ratio| ratio.max(1.0 / ratio) - 1.0).collect();
    differences.sort_by(f64::total_cmp);
    let noise = differences.get(differences.len() / 2).copied().unwrap_or(0.0);
    let ratios: Vec<_> = (2..variants).map(|variant| Interval::of_ratios(&ratios(variant), error)).collect();
    let verdicts = ratios.iter().map(|ratio| verdict(*ratio, control)).collect();
    Comparison { control, noise, ratios, verdicts }
}

fn verdict(ratio: Option<Interval>, control: Option<Interval>) -> Verdict {
    match (ratio, control) {
        (None, _) | (_, None) => Verdict::TooFew,
        (Some(ratio), Some(control))
            if control.contains(1.0) && !ratio.contains(1.0) && !control.contains(ratio.median) =>
        {
            Verdict::Differs(ratio)
        }
        (Some(ratio), Some(_)) => Verdict::CannotTell(ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, median: f64, high: f64) -> Option<Interval> {
        Some(Interval { median, low, high })
    }

    #[test]
    fn the_control_decides_what_may_be_said() {
        let calm = interval(0.98, 1.0, 1.03);
        let wild = interval(0.7, 1.0, 1.4);
        let wrong = interval(1.01, 1.02, 1.04);
        let less = interval(0.9, 0.95, 0.97);
        let half = interval(0.4, 0.5, 0.6);
        let same = interval(0.97, 1.01, 1.02);
        let slightly = interval(0.97, 0.985, 0.999);
        for (ratio, control, expected) in [
            (less, calm, Verdict::Differs(less.unwrap())),
            (half, wild, Verdict::Differs(half.unwrap())),
            (same, calm, Verdict::CannotTell(same.unwrap())),
            (slightly, calm, Verdict::CannotTell(slightly.unwrap())),
            (less, wild, Verdict::CannotTell(less.unwrap())),
            (same, wild, Verdict::CannotTell(same.unwrap())),
            (half, wrong, Verdict::CannotTell(half.unwrap())),
            (half, None, Verdict::TooFew),
            (None, calm, Verdict::TooFew),
        ] {
            assert_eq!(verdict(ratio, control), expected, "{ratio:?} {control:?}");
        }
    }

    #[test]
    fn ratios_are_taken_within_a_block() {
        // Each block is twice as fast as the one before it.
        let blocks: Vec<_> =
            (0..8).map(|block| [100.0, 110.0, 50.0].map(|v| v * f64::from(1 << block)).to_vec()).collect();
        let comparison = compare(&blocks, 0.05);
        assert!((comparison.control.unwrap().median - 1.1).abs() < 1e-9 && (comparison.noise - 0.1).abs() < 1e-9);
        assert!(matches!(comparison.verdicts[..], [Verdict::CannotTell(_)]), "{comparison:?}");
        assert!((comparison.smallest_effect().unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(compare(&blocks[..3], 0.05).verdicts, [Verdict::TooFew]);
        assert!(compare(&[], 0.05).verdicts.is_empty());
    }
}
