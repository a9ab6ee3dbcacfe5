//! The distribution of the signed-rank statistic, and the interval that it gives the centre of a symmetric distribution.
//!
//! Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, sections 3.1 to 3.3.

/// Up to this number of values the distribution is exact; beyond it is approximated by a normal one, whose tails are a little heavier.
const EXACT_MAX: usize = 100;

/// The centre of finite values, sorted, and the ends of its interval: the median of all means of two of them (of one with itself
/// as well), and two order statistics of these means (Hodges-Lehmann, Tukey).
///
/// None: there are too few values (fewer than 6 for an error of 0.05).
pub fn centre(sorted: &[f64], error: f64) -> Option<(f64, f64, f64)> {
    let left_out = left_out(sorted.len(), error)?;
    let last = means(sorted.len()) - 1;
    let middle = f64::midpoint(mean(sorted, last / 2), mean(sorted, last - last / 2));
    Some((middle, mean(sorted, left_out), mean(sorted, last - left_out)))
}

/// Whether nothing speaks against a symmetric distribution: mean and median differ by less than they would in 19 of 20 samples of a
/// normal one. Miao, Gel and Gastwirth, A new test of symmetry about an unknown median, 2006.
pub fn is_symmetric(sorted: &[f64]) -> bool {
    let n = sorted.len() as f64;
    let (middle, last) = (sorted.len() / 2, sorted.len().saturating_sub(1));
    let Some(median) = sorted.get(middle).map(|value| f64::midpoint(*value, sorted[last - middle])) else {
        return true;
    };
    let from_median = |of: fn(f64) -> f64| sorted.iter().map(|value| of(value - median)).sum::<f64>() / n;
    let scale = from_median(f64::abs) * std::f64::consts::FRAC_PI_2.sqrt();
    from_median(|value| value).abs() * n.sqrt() <= 1.96 * scale * (std::f64::consts::FRAC_PI_2 - 1.0).sqrt()
}

/// How many means of two of `n` values there are.
const fn means(n: usize) -> usize {
    n * (n + 1) / 2
}

/// How many of them can be left out at each end: the largest rank sum w with 2 P(W <= w) <= `error`.
fn left_out(n: usize, error: f64) -> Option<usize> {
    let tail = if n <= EXACT_MAX { counted(n) } else { normal(n) };
    let (mut low, mut high) = (0, means(n) / 2);
    if n == 0 || 2.0 * tail(0) > error {
        return None;
    }
    while low < high {
        let middle = (low + high).div_ceil(2);
        if 2.0 * tail(middle) <= error { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

/// P(W <= w): each of the ranks 1 to `n` is in the sum or not, by a fair coin.
fn counted(n: usize) -> Box<dyn Fn(usize) -> f64> {
    let mut of_sum = vec![0.0; means(n) + 1];
    of_sum[0] = 1.0;
    for rank in 1..=n {
        for sum in (0..=means(rank)).rev() {
            let with_it = if sum >= rank { of_sum[sum - rank] } else { 0.0 };
            of_sum[sum] = f64::midpoint(of_sum[sum], with_it);
        }
    }
    for sum in 1..of_sum.len() {
        of_sum[sum] += of_sum[sum - 1];
    }
    Box::new(move |w| of_sum[w])
}

/// The same, of a normal distribution with its mean and variance.
fn normal(n: usize) -> Box<dyn Fn(usize) -> f64> {
    let mean = means(n) as f64 / 2.0;
    let deviation = (mean * (2 * n + 1) as f64 / 6.0).sqrt();
    Box::new(move |w| libm::erfc((mean - w as f64 - 0.5) / deviation * std::f64::consts::FRAC_1_SQRT_2) / 2.0)
}

/// The mean of two values before which there are `nth` others, by bisection: there may be too many means to list.
fn mean(sorted: &[f64], nth: usize) -> f64 {
    let not_above = |limit: f64| {
        let mut end = sorted.len();
        let mut count = 0;
        for (first, value) in sorted.iter().enumerate() {
            while end > first && f64::midpoint(*value, sorted[end - 1]) > limit {
                end -= 1;
            }
            count += end.saturating_sub(first);
        }
        count
    };
    let (mut low, mut high) = (ordered(sorted[0]), ordered(sorted[sorted.len() - 1]));
    while low < high {
        let middle = (low & high) + ((low ^ high) >> 1); // rounded down, without overflow
        if not_above(from_ordered(middle)) > nth { high = middle } else { low = middle + 1 }
    }
    from_ordered(low)
}

/// Numbers in the order of the values, without a gap between them.
const fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

const fn from_ordered(number: i64) -> f64 {
    f64::from_bits((if number < 0 { number ^ i64::MAX } else { number }).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_published_table() {
        // Hollander, Wolfe and Chicken, table A.4: P(W <= w) is 0.031, 0.016 for n = 5, 6 and w = 0; 0.024 for (10, 8), 0.032 for
        // (10, 9); 0.005 for (20, 37).
        for (n, error, expected) in [
            (0, 0.05, None),
            (5, 0.05, None),
            (6, 0.05, Some(0)),
            (10, 0.05, Some(8)),
            (10, 0.066, Some(9)),
            (20, 0.01, Some(37)),
            (20, 0.05, Some(52)),
        ] {
            assert_eq!(left_out(n, error), expected, "{n} {error}");
        }
    }

    #[test]
    fn a_normal_distribution_goes_on_where_counting_ends() {
        for error in [0.05, 0.005, 0.001] {
            let ends = |tail: Box<dyn Fn(usize) -> f64>| (0..).take_while(|&w| 2.0 * tail(w) <= error).count();
            let (exact, approximate) = (ends(counted(EXACT_MAX)), ends(normal(EXACT_MAX)));
            assert!(approximate <= exact && exact - approximate <= 11, "{error}: {exact}, {approximate}");
            assert_eq!(left_out(EXACT_MAX, error), Some(exact - 1));
            let beyond = left_out(EXACT_MAX + 1, error).unwrap();
            assert!((exact..exact + 80).contains(&beyond), "{error}: {exact}, {beyond}");
        }
    }

    #[test]
    fn means_are_found_without_a_list_of_them() {
        let values = [-7.5, -1.0, -0.0, 0.0, 0.25, 0.25, 1e-300, 3.0, 1e6];
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let mut all: Vec<_> = (0..9)
            .flat_map(|i| (i..9).map(move |j| (i, j)))
            .map(|(i, j)| f64::midpoint(sorted[i], sorted[j]))
            .collect();
        all.sort_by(f64::total_cmp);
        let found: Vec<_> = (0..means(9)).map(|nth| mean(&sorted, nth)).collect();
        assert_eq!(found, all);
    }

    #[test]
    fn a_centre_is_between_the_ends_of_its_interval() {
        // R: wilcox.test(c(1:9, 20), conf.int = TRUE), exact: 2 + 9 means are 5.5 or less.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 20.0];
        assert_eq!(centre(&values, 0.05), Some((5.5, 3.0, 11.0)));
        assert_eq!(centre(&values[..5], 0.05), None);
    }

    #[test]
    fn a_long_tail_is_not_symmetric() {
        let normal: Vec<_> = (1..20).map(|n| f64::from(n - 10)).collect();
        let tail: Vec<_> = (1..40).map(|n| -(1.0 - f64::from(n) / 40.0).ln()).collect();
        assert!(is_symmetric(&normal) && is_symmetric(&[0.0; 20]) && is_symmetric(&[]));
        assert!(!is_symmetric(&tail));
    }
}
