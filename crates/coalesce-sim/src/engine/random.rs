//! Random numbers and durations that are the same on every machine: PCG32, and tables of quantiles in integers.
//!
//! Transcendental functions come from the `libm` crate alone; what the standard library calls differs by machine.

use crate::plan::{Distribution, Lognormal};
use rand_core::Rng as _;
use rand_pcg::Pcg32;

/// A stream of random numbers of its own, for each seed and each purpose.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg32);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let state = split_mix(seed ^ split_mix(stream));
        Self(Pcg32::new(state, split_mix(state ^ stream)))
    }

    pub(crate) fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 0 to `below` - 1, as evenly as 64 bits allow.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        let bits = u64::from(self.bits()) << 32 | u64::from(self.bits());
        ((u128::from(bits) * u128::from(below)) >> 64) as u64
    }

    /// True in `n` of 1000 cases.
    pub(crate) fn per_1000(&mut self, n: u32) -> bool {
        n > 0 && self.below(1000) < u64::from(n)
    }
}

/// Sebastiano Vigna's `SplitMix64`: neighbouring seeds become far apart.
const fn split_mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Steps of a table of quantiles. Its ends are the quantiles half a step from 0 and 1: tails are cut there.
const STEPS: usize = 4096;

/// Gives durations of one distribution.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    Fixed(u64),
    /// Quantiles, in ns; between them it is linear.
    Table(Box<[u64]>),
    /// Sums of weights, each with what it leads to.
    Mixture(Vec<(u64, Self)>),
}

impl Sampler {
    pub(crate) fn new(distribution: &Distribution) -> Self {
        match distribution {
            Distribution::Fixed(time) => Self::Fixed(time.0),
            Distribution::Exponential(mean) => Self::table(mean.0, |p| -libm::log(1.0 - p)),
            Distribution::Lognormal(Lognormal { mean, stddev }) => {
                let relative = stddev.0 as f64 / mean.0 as f64;
                let sigma = libm::sqrt(libm::log(1.0 + relative * relative));
                Self::table(mean.0, |p| libm::exp(sigma * normal_quantile(p)))
            }
            Distribution::Mixture(parts) => {
                let mut sum = 0;
                let sums = parts.iter().map(|part| {
                    sum += u64::from(part.weight);
                    (sum, Self::new(&part.of))
                });
                Self::Mixture(sums.collect())
            }
        }
    }

    /// A table of `quantile` in any unit, scaled to this mean.
    fn table(mean: u64, quantile: impl Fn(f64) -> f64) -> Self {
        let half = 0.5 / STEPS as f64;
        let knots: Vec<f64> =
            (0..=STEPS).map(|i| quantile((i as f64 / STEPS as f64).clamp(half, 1.0 - half))).collect();
        let inner: f64 = knots[1..STEPS].iter().sum();
        let scale = mean as f64 * STEPS as f64 / (inner + (knots[0] + knots[STEPS]) / 2.0);
        let table = knots.into_iter().map(|knot| (knot * scale + 0.5) as u64).collect();
        Self::Table(table)
    }

    pub(crate) fn sample(&self, random: &mut Random) -> u64 {
        match self {
            Self::Fixed(ns) => *ns,
            Self::Table(table) => {
                let bits = random.bits();
                let (i, fraction) = ((bits >> 20) as usize, u64::from(bits & 0xf_ffff));
                let (low, high) = (table[i], table[i + 1]);
                low + (high.saturating_sub(low).saturating_mul(fraction) >> 20)
            }
            Self::Mixture(parts) => {
                let total = parts.last().map_or(1, |(sum, _)| *sum);
                let at = random.below(total);
                let (_, part) = parts.iter().find(|(sum, _)| at < *sum).expect("the last sum is the total");
                part.sample(random)
            }
        }
    }
}

/// The normal distribution's quantile function, after Peter Acklam: relative error below 1.2e-9.
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
        1.0,
    ];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] =
        [0.007_784_695_709_041_462, 0.322_467_129_070_039_8, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    const LOW: f64 = 0.024_25;

    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |p: f64| {
        let q = libm::sqrt(-2.0 * libm::log(p));
        polynomial(&C, q) / polynomial(&D, q)
    };
    if p < LOW {
        tail(p)
    } else if p > 1.0 - LOW {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        polynomial(&A, q * q) * q / polynomial(&B, q * q)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    fn mean_and_deviation(distribution: &Distribution) -> (f64, f64) {
        let (sampler, mut random, n) = (Sampler::new(distribution), Random::new(1, 1), 1_000_000);
        let samples: Vec<f64> = (0..n).map(|_| sampler.sample(&mut random) as f64).collect();
        let mean = samples.iter().sum::<f64>() / f64::from(n);
        let variance = samples.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n);
        (mean, variance.sqrt())
    }

    #[test]
    fn distributions_have_the_moments_they_are_given_by() {
        for (distribution, mean, deviation) in [
            (Distribution::Fixed(Time(500)), 500.0, 0.0),
            (Distribution::Exponential(Time(100_000)), 100_000.0, 100_000.0),
            (Distribution::Lognormal(Lognormal { mean: Time(70_000), stddev: Time(28_000) }), 70_000.0, 28_000.0),
        ] {
            let (m, d) = mean_and_deviation(&distribution);
            assert!((m - mean).abs() < mean * 0.005, "{distribution:?}: mean {m}");
            assert!((d - deviation).abs() <= deviation * 0.02, "{distribution:?}: deviation {d}");
        }
    }

    /// The generator and the tables, on this machine as on all others.
    #[test]
    fn the_numbers_are_pinned() {
        let mut random = Random::new(42, 7);
        let sampler = Sampler::new(&Distribution::Lognormal(Lognormal { mean: Time(3600), stddev: Time(1300) }));
        assert_eq!([random.bits(), random.bits()], [46_431_419, 3_727_534_181]);
        assert_eq!([0; 4].map(|_: u64| sampler.sample(&mut random)), [3570, 3843, 4461, 7299]);
    }
}
