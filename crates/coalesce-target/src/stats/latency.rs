//! How long requests take, by what they do. A request costs no search, no division and no lock: a shift, the position of the
//! highest bit, and two additions, by the thread of its queue.

use serde::{Deserialize, Serialize};

/// The lowest bound is 2 to this power, in ns; each next one is twice as large.
const FIRST: u32 = 10;
/// The number of bounds: 1.024 µs to 8.6 s.
const BOUNDS: usize = 24;

/// What a request does, as far as it is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// A discard, zeroes, or what the front end has answered by itself.
    Other,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Flush, Self::Other];

    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Other => "other",
        }
    }
}

/// How many requests took how long, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Report", into = "Report")]
pub struct Histogram {
    counts: [u64; BOUNDS + 1],
    sum: u64,
}

impl Histogram {
    /// Counts a request that took `ns`.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        self.counts[place(ns)] += 1;
        self.sum = self.sum.wrapping_add(ns);
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// The number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of their times, in ns.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Upper bounds in ns, ascending, each with the number of requests up to it and above the bound before. The last one, of what took
    /// longer, has none.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        (0..BOUNDS).map(|place| Some(1 << (FIRST as usize + place))).chain([None]).zip(self.counts)
    }
}

/// The bucket of a time: the first whose bound is not below it.
#[inline]
fn place(ns: u64) -> usize {
    let above = ns.saturating_sub(1) >> FIRST;
    ((u64::BITS - above.leading_zeros()) as usize).min(BOUNDS)
}

/// A histogram as it is written: without the buckets in which there is nothing.
#[derive(Deserialize, Serialize)]
struct Report {
    count: u64,
    sum: u64,
    buckets: Vec<(Option<u64>, u64)>,
}

impl From<Histogram> for Report {
    fn from(histogram: Histogram) -> Self {
        let buckets = histogram.buckets().filter(|(_, count)| *count > 0).collect();
        Self { count: histogram.count(), sum: histogram.sum, buckets }
    }
}

impl From<Report> for Histogram {
    fn from(report: Report) -> Self {
        let mut histogram = Self { sum: report.sum, ..Self::default() };
        for (bound, count) in report.buckets {
            histogram.counts[bound.map_or(BOUNDS, place)] += count;
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        let bounds: Vec<u64> = Histogram::default().buckets().filter_map(|(bound, _)| bound).collect();
        assert!(bounds.len() == BOUNDS && bounds.is_sorted() && bounds[0] == 1024 && bounds[1] == 2048, "{bounds:?}");
        let around = bounds.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        for ns in around.chain([0, 1, u64::MAX]) {
            let mut histogram = Histogram::default();
            histogram.note(ns);
            let expected = bounds.iter().copied().find(|bound| ns <= *bound);
            let buckets: Vec<_> = histogram.buckets().filter(|(_, count)| *count > 0).collect();
            assert_eq!(buckets, [(expected, 1)], "{ns}");
            assert_eq!((histogram.count(), histogram.sum()), (1, ns));
        }
    }

    /// A disk's process writes them, and its supervisor reads them.
    #[test]
    fn what_is_written_is_read_again() {
        let mut histogram = Histogram::default();
        [0, 1024, 1025, 5_000_000, 5_000_000, 60_000_000_000].into_iter().for_each(|ns| histogram.note(ns));
        let text = serde_json::to_string(&histogram).unwrap();
        assert!(text.ends_with(r#""buckets":[[1024,2],[2048,1],[8388608,2],[null,1]]}"#), "{text}");
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
        let mut twice = histogram.clone();
        twice.add(&histogram);
        assert_eq!((twice.count(), twice.sum()), (12, 2 * histogram.sum()));
    }
}
