//! Confidence intervals of medians and of ratios.

use super::signed_rank;

/// A median, and where it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Of the values; of ratios, the estimate of [`Interval::of_ratios`].
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// What one turn is to another: the Hodges-Lehmann estimate of the logarithms, with the interval of the signed-rank test, which
    /// misses with a probability of at most `error`, in (0, 1).
    ///
    /// If turns do not differ, each logarithm has either sign by a fair coin, whatever its size: then the interval misses 1 with that
    /// probability, and nothing else is assumed. Of a ratio other than 1 it assumes that the logarithms are symmetric about
    /// theirs. Where they do not look so, the sign test takes over: its median, and an interval that holds both. The choice depends
    /// on the values, so it may not be one that leaves 1 out where the signed-rank interval does not. Where a ratio is 0 or
    /// infinite, which says nothing of the signs, it is [`Interval::of_median`].
    ///
    /// None: there are too few values (fewer than 6 for an error of 0.05), or one is not a number.
    pub fn of_ratios(ratios: &[f64], error: f64) -> Option<Self> {
        let by_sign = Self::of_median(ratios, error)?;
        let mut logarithms: Vec<_> = ratios.iter().map(|ratio| ratio.ln()).collect();
        if !logarithms.iter().all(|logarithm| logarithm.is_finite()) {
            return Some(by_sign);
        }
        logarithms.sort_by(f64::total_cmp);
        let (median, low, high) = signed_rank::centre(&logarithms, error)?;
        let by_rank = Self { median: median.exp(), low: low.exp(), high: high.exp() };
        Some(if signed_rank::is_symmetric(&logarithms) {
            by_rank
        } else {
            Self { low: by_sign.low.min(by_rank.low), high: by_sign.high.max(by_rank.high), ..by_sign }
        })
    }

    /// The interval between two order statistics that misses the true median with a probability of at most `error`, in
    /// (0, 1), for any continuous distribution: David and Nagaraja, Order Statistics, 3rd edition, section 7.1.
    ///
    /// None: there are too few values (fewer than 6 for an error of 0.05), or one is not a number.
    pub fn of_median(values: &[f64], error: f64) -> Option<Self> {
        if values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let left_out = left_out(values.len(), error)?;
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, last) = (sorted.len() / 2, sorted.len() - 1);
        let median = f64::midpoint(sorted[middle], sorted[last - middle]);
        Some(Self { median, low: sorted[left_out], high: sorted[last - left_out] })
    }

    /// Whether the interval has this value in it.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether the interval lies between 1 / `factor` and `factor`.
    pub fn is_within(&self, factor: f64) -> bool {
        self.low >= 1.0 / factor && self.high <= factor
    }
}

/// How many of `n` values can be left out at each end: the largest m with 2 P(X <= m) <= `error`, X of n coins.
fn left_out(n: usize, error: f64) -> Option<usize> {
    // In logarithms, because 0.5^n is 0 for n > 1074.
    let mut ln_probability = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut found = None;
    for m in 0..n.div_ceil(2) {
        below += ln_probability.exp();
        if 2.0 * below > error {
            break;
        }
        found = Some(m);
        ln_probability += ((n - m) as f64).ln() - ((m + 1) as f64).ln();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        // 2 P(X <= m): 0.0625 for (5, 0), 0.031 for (6, 0), 0.021 for (10, 1), 0.109 for (10, 2), 0.041 for (20, 5).
        for (n, error, expected) in [
            (0, 0.05, None),
            (5, 0.05, None),
            (6, 0.05, Some(0)),
            (10, 0.05, Some(1)),
            (10, 0.11, Some(2)),
            (20, 0.05, Some(5)),
            (2000, 0.05, Some(955)),
        ] {
            assert_eq!(left_out(n, error), expected, "{n} {error}");
        }
    }

    #[test]
    fn an_interval_has_its_median_inside() {
        let values: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(Interval::of_median(&values, 0.05), Some(Interval { median: 5.5, low: 2.0, high: 9.0 }));
        assert_eq!(Interval::of_median(&values[1..], 0.05), Some(Interval { median: 5.0, low: 2.0, high: 8.0 }));
        assert_eq!(Interval::of_median(&values[..5], 0.05), None);
    }

    #[test]
    fn one_odd_block_does_not_hide_a_ratio() {
        let mut ratios: Vec<_> = (0..16).map(|n| 0.65 * (1.0 + f64::from(n) / 40.0)).collect();
        ratios[7] = 1.05;
        let error = 0.0002;
        assert!(Interval::of_median(&ratios, error).unwrap().contains(1.0));
        let interval = Interval::of_ratios(&ratios, error).unwrap();
        assert!(!interval.contains(1.0) && (interval.median - 0.77).abs() < 0.02, "{interval:?}");
    }

    #[test]
    fn an_interval_of_ratios_is_the_same_upside_down() {
        let ratios = [0.5, 0.8, 0.9, 1.0, 1.0, 1.1, 1.3, 4.0];
        let upside_down: Vec<_> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
        let (one, other) =
            (Interval::of_ratios(&ratios, 0.05).unwrap(), Interval::of_ratios(&upside_down, 0.05).unwrap());
        for (one, other) in [(one.low, other.high), (one.median, other.median), (one.high, other.low)] {
            assert!((one * other - 1.0).abs() < 1e-12, "{one} {other}");
        }
        assert_eq!(Interval::of_ratios(&[1.0; 8], 0.05), Some(Interval { median: 1.0, low: 1.0, high: 1.0 }));
    }

    #[test]
    fn the_sign_test_takes_over_where_ratios_are_not_symmetric() {
        let ratios: Vec<_> = (1..40).map(|n| (-(1.0 - f64::from(n) / 40.0).ln()).exp()).collect();
        let (by_sign, interval) =
            (Interval::of_median(&ratios, 0.05).unwrap(), Interval::of_ratios(&ratios, 0.05).unwrap());
        assert_eq!(interval.median.to_bits(), by_sign.median.to_bits());
        assert!(interval.low <= by_sign.low && by_sign.high < interval.high, "{interval:?} {by_sign:?}");
        for odd in [0.0, f64::INFINITY] {
            let ratios = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, odd];
            assert_eq!(Interval::of_ratios(&ratios, 0.05), Interval::of_median(&ratios, 0.05));
        }
        assert_eq!(Interval::of_ratios(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, f64::NAN], 0.05), None);
        assert_eq!(Interval::of_ratios(&ratios[..5], 0.05), None);
    }

    #[test]
    fn a_turn_without_any_request_is_a_value_and_nothing_by_nothing_is_none() {
        let mut values = [1.0; 8];
        values[3] = f64::INFINITY;
        assert_eq!(Interval::of_median(&values, 0.05), Some(Interval { median: 1.0, low: 1.0, high: f64::INFINITY }));
        values[3] = f64::NAN;
        assert_eq!(Interval::of_median(&values, 0.05), None);
    }
}
