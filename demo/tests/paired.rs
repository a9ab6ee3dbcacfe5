//! The comparison of [`coalesce_demo::paired`], fed with synthetic noise of known size.

use coalesce_demo::paired::{Comparison, Plan, Verdict, compare, measure};
use fastrand::Rng;

const RUNS: u64 = 100;
/// Of 100 runs, those that must be right.
const RIGHT_MIN: usize = 95;
/// Policies beyond the baseline and its control.
const POLICIES: usize = 4;

/// A machine whose speed drifts, jumps, has heavy tails, and is highest in the first turn of each block.
struct Machine {
    random: Rng,
    /// Scale of the noise of a turn.
    scale: f64,
    turns: usize,
    drift: f64,
    slow: bool,
}

impl Machine {
    fn new(scale: f64, seed: u64) -> Self {
        Self { random: Rng::with_seed(seed), scale, turns: 0, drift: 0.0, slow: false }
    }

    /// Laplace distribution, of the scale of this machine.
    fn noise(&mut self) -> f64 {
        let size = -(1.0 - self.random.f64()).ln() * self.scale;
        if self.random.bool() { size } else { -size }
    }

    /// Its speed in the next turn.
    fn speed(&mut self) -> f64 {
        self.drift += self.noise() / 5.0;
        // A neighbour comes or goes.
        self.slow ^= self.random.f64() < 0.05;
        // A stall now and then takes more than half of a turn: Pareto distribution, shape 1.
        let stall = if self.random.f64() < 0.04 { self.scale * 2.0 / (1.0 - self.random.f64()) } else { 0.0 };
        let first = if self.turns.is_multiple_of(POLICIES + 2) { self.scale } else { 0.0 };
        self.turns += 1;
        let slow = if self.slow { self.scale * 1.5 } else { 0.0 };
        (self.drift + self.noise() + first - slow).exp() / (1.0 + stall)
    }
}

/// Single turns of the same thing, 0.42 to 1.53.
const WILD: f64 = 0.16;
/// Half of all blocks have two turns of the same thing that differ by more than 7 %.
const USUAL: f64 = 0.048;
/// One measurement on a machine of this noise. The last policy has `effect` times the baseline's speed, the others have the
/// same. It
/// stops early if every interval is narrower than 4 %.
fn run(scale: f64, effect: f64, seed: u64) -> (Comparison, Vec<Vec<f64>>) {
    let mut machine = Machine::new(scale, seed);
    let plan =
        Plan { variants: POLICIES + 2, looks: &[16, 64, 400], error: 0.05, comparisons: POLICIES, seed: seed + 1000 };
    let turn = |variant| Ok::<_, ()>((machine.speed() * if variant == POLICIES + 1 { effect } else { 1.0 }, 0.0));
    let values = |blocks: &[Vec<_>]| -> Vec<Vec<f64>> {
        blocks
            .iter()
            .map(|block| block.iter().map(|turn: &coalesce_demo::paired::Turn<f64>| turn.value).collect())
            .collect()
    };
    let narrow = |verdict: &Verdict| match verdict {
        Verdict::Differs(interval) | Verdict::CannotTell(interval) => interval.high / interval.low < 1.04,
        Verdict::TooNoisy | Verdict::TooFew => false,
    };
    let enough = |blocks: &[Vec<_>]| compare(&values(blocks), plan.error_each()).verdicts.iter().all(narrow);
    let blocks = values(&measure(&plan, turn, || false, enough).unwrap());
    (compare(&blocks, plan.error_each()), blocks)
}

fn differs(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Differs(_))
}

/// In how many of the runs this holds.
fn count(scale: f64, effect: f64, holds: impl Fn(&[Verdict]) -> bool) -> usize {
    (0..RUNS).filter(|&seed| holds(&run(scale, effect, seed).0.verdicts)).count()
}

#[test]
fn the_machines_are_as_noisy_as_real_ones() {
    let mut noises: Vec<_> = (0..RUNS).map(|seed| run(USUAL, 1.0, seed).0.noise).collect();
    noises.sort_by(f64::total_cmp);
    assert!((0.06..0.08).contains(&noises[noises.len() / 2]), "{noises:?}");
    // In a guest of a shared machine.
    let beyond = |seed: &u64| {
        let (_, blocks) = run(WILD, 1.0, *seed);
        let ratios = || blocks.iter().map(|block| block[1] / block[0]);
        ratios().fold(f64::MAX, f64::min) <= 0.42 && ratios().fold(0.0, f64::max) >= 1.53
    };
    let times = (0..RUNS).filter(beyond).count();
    assert!(times > 50, "{times} of {RUNS}");
}

#[test]
fn without_an_effect_none_is_reported() {
    for scale in [WILD, USUAL] {
        let times = count(scale, 1.0, |verdicts| !verdicts.iter().any(differs));
        assert!(times >= RIGHT_MIN, "noise {scale}: {times} of {RUNS} runs without a false difference");
    }
}

#[test]
fn five_percent_are_found_in_a_noise_of_seven() {
    for effect in [0.95, 1.05] {
        let found = |verdicts: &[Verdict]| {
            let [others @ .., Verdict::Differs(interval)] = verdicts else { return false };
            !others.iter().any(differs) && (interval.median > 1.0) == (effect > 1.0)
        };
        let times = count(USUAL, effect, found);
        assert!(times >= RIGHT_MIN, "{effect}: found in {times} of {RUNS}");
    }
}

#[test]
fn a_half_is_found_on_a_wild_machine() {
    let times = count(WILD, 0.5, |verdicts| differs(&verdicts[POLICIES - 1]));
    assert!(times >= RIGHT_MIN, "found in {times} of {RUNS}");
}
