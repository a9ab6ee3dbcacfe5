//! Latency distributions, collected as histograms and written as fio writes them.

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

/// fio's list of percentiles.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// The longest latency that is recorded exactly: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A latency distribution as fio writes it, in nanoseconds.
#[derive(Clone, Debug, Serialize)]
#[allow(non_snake_case, reason = "fio's key")]
pub struct Latency {
    /// Smallest.
    pub min: u64,
    /// Largest.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Number of samples.
    pub N: u64,
    /// Percentiles: at least this share of the samples is less than or equal to the value.
    #[serde(serialize_with = "as_fio_map")]
    pub percentile: Vec<(f64, u64)>,
}

impl Latency {
    pub(crate) fn new(histogram: &Histogram<u64>) -> Self {
        Self {
            min: histogram.min(),
            max: histogram.max(),
            mean: histogram.mean(),
            stddev: histogram.stdev(),
            N: histogram.len(),
            percentile: PERCENTILES.iter().map(|&p| (p, histogram.value_at_percentile(p))).collect(),
        }
    }

    /// The value at one of fio's percentiles; 0 for any other.
    pub fn at(&self, percent: f64) -> u64 {
        self.percentile.iter().find(|(p, _)| p.total_cmp(&percent).is_eq()).map_or(0, |&(_, value)| value)
    }
}

fn as_fio_map<S: Serializer>(percentiles: &[(f64, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(percentiles.iter().map(|(percent, value)| (format!("{percent:.6}"), value)))
}

pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that it accepts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_have_the_keys_and_values_of_fio() {
        let mut histogram = new_histogram();
        (1..=1000).for_each(|value| histogram.saturating_record(value));
        let latency = Latency::new(&histogram);
        assert_eq!((latency.min, latency.max, latency.N), (1, 1000, 1000));
        assert_eq!((latency.at(1.0), latency.at(50.0), latency.at(99.5), latency.at(42.0)), (10, 500, 995, 0));
        let json = serde_json::to_string(&latency).unwrap();
        assert!(json.contains(r#""percentile":{"1.000000":10,"5.000000":50,"10.000000":100,"#), "{json}");
        assert!(json.ends_with(r#","99.900000":1000,"99.950000":1000,"99.990000":1000}}"#), "{json}");
    }

    #[test]
    fn an_empty_distribution_is_all_zeros() {
        let latency = Latency::new(&new_histogram());
        assert_eq!((latency.min, latency.max, latency.N, latency.at(50.0)), (0, 0, 0, 0));
        assert!(serde_json::to_string(&latency).unwrap().contains(r#""mean":0.0"#));
    }
}
