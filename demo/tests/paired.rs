//! The comparison of [`coalesce_demo::paired`], fed with synthetic noise of known size.

use coalesce_demo::paired::{CLAIMS, Comparison, ERROR, Plan, Verdict, compare, measure};
use fastrand::Rng;
use serde_json::Value;

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
/// same. It stops early if every interval is narrower than 4 %.
fn run(scale: f64, effect: f64, seed: u64) -> (Comparison, Vec<Vec<f64>>) {
    let mut machine = Machine::new(scale, seed);
    let looks = vec![16, 64, 400];
    let plan = Plan { variants: POLICIES + 2, looks, seed: seed + 1000 };
    let error = plan.at_each_look(ERROR / POLICIES as f64);
    let turn = |variant| Ok::<_, ()>((machine.speed() * if variant == POLICIES + 1 { effect } else { 1.0 }, 0.0));
    let values = |blocks: &[Vec<_>]| -> Vec<Vec<f64>> {
        blocks
            .iter()
            .map(|block| block.iter().map(|turn: &coalesce_demo::paired::Turn<f64>| turn.value).collect())
            .collect()
    };
    let narrow = |verdict: &Verdict| match verdict {
        Verdict::Differs(interval) | Verdict::CannotTell(interval) => interval.high / interval.low < 1.04,
        Verdict::TooFew => false,
    };
    let enough = |blocks: &[Vec<_>]| compare(&values(blocks), error).verdicts.iter().all(narrow);
    let blocks = values(&measure(&plan, turn, || false, enough).unwrap());
    (compare(&blocks, error), blocks)
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
        let times = count(scale, 1.0, |verdicts| !verdicts.iter().any(Verdict::differs));
        assert!(times >= RIGHT_MIN, "noise {scale}: {times} of {RUNS} runs without a false difference");
    }
}

#[test]
fn five_percent_are_found_in_a_noise_of_seven() {
    for effect in [0.95, 1.05] {
        let found = |verdicts: &[Verdict]| {
            let [others @ .., Verdict::Differs(interval)] = verdicts else { return false };
            !others.iter().any(Verdict::differs) && (interval.median > 1.0) == (effect > 1.0)
        };
        let times = count(USUAL, effect, found);
        assert!(times >= RIGHT_MIN, "{effect}: found in {times} of {RUNS}");
    }
}

#[test]
fn a_half_is_found_on_a_wild_machine() {
    let times = count(WILD, 0.5, |verdicts| verdicts[POLICIES - 1].differs());
    assert!(times >= RIGHT_MIN, "found in {times} of {RUNS}");
}

/// The jobs of a page that have claims: how many each of them has, and the blocks that its time has room for.
const PAGE: [(usize, usize); 4] = [(3, 26), (3, 17), (3, 17), (1, 16)];

/// The numbers of a page, each at this error, of policies of which the last one, the judged one, has `effect` times the baseline's
/// number, said for each of them.
fn page(scale: f64, error: f64, effect: impl Fn(usize) -> f64, seed: u64) -> Vec<Comparison> {
    let mut told = Vec::new();
    for (job, &(numbers, fit)) in PAGE.iter().enumerate() {
        let seed = (seed * PAGE.len() as u64 + job as u64) * 10;
        let mut machines: Vec<_> = (0..numbers).map(|number| Machine::new(scale, seed + number as u64)).collect();
        let plan = Plan::of_page(POLICIES + 2, fit, seed);
        let before = told.len();
        let turn = |variant| {
            let of_policy = |number| if variant == POLICIES + 1 { effect(before + number) } else { 1.0 };
            let speeds = machines.iter_mut().enumerate().map(|(number, machine)| machine.speed() * of_policy(number));
            Ok::<_, ()>((speeds.collect::<Vec<_>>(), 0.0))
        };
        let compared = |blocks: &[Vec<coalesce_demo::paired::Turn<Vec<f64>>>]| -> Vec<_> {
            let number =
                |n: usize| blocks.iter().map(|block| block.iter().map(|turn| turn.value[n]).collect()).collect();
            (0..numbers).map(|n| compare(&number(n) as &Vec<Vec<f64>>, plan.at_each_look(error))).collect()
        };
        let (mut blocks, first) = (0, plan.looks[0]);
        let late = || {
            blocks += 1;
            blocks >= fit.max(first)
        };
        let enough =
            |blocks: &[Vec<_>]| compared(blocks).iter().all(|number| number.verdicts.iter().all(Verdict::is_narrow));
        told.extend(compared(&measure(&plan, turn, late, enough).unwrap()));
    }
    told
}

/// The noise of the committed runs: by how much two turns of the same thing differ.
fn committed_noises() -> Vec<f64> {
    let runs = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../measurements/runs")).unwrap();
    let runs = runs.map(|run| std::fs::read_to_string(run.unwrap().path()).unwrap());
    runs.map(|run| serde_json::from_str::<Value>(&run).unwrap()["noise"]["rate"].as_f64().unwrap()).collect()
}

/// The scale of the noise of a machine of which half of all pairs of turns differ by more than this share.
fn scale_of(noise: f64) -> f64 {
    // Half of the differences of two Laplace variables are beyond 1.15 times their scale, and the other noise adds to that.
    (1.0 + noise).ln() / 1.4
}

/// The error of each claim.
const OF_A_CLAIM: f64 = ERROR / CLAIMS as f64;

fn is_claimed(number: &Comparison) -> bool {
    number.verdicts.last().is_some_and(Verdict::differs)
}

#[test]
fn a_page_without_an_effect_claims_none() {
    assert_eq!(PAGE.iter().map(|(claims, _)| claims).sum::<usize>(), CLAIMS);
    for noise in committed_noises() {
        let scale = scale_of(noise);
        let (mut silent, mut noises) = (0, Vec::new());
        for seed in 0..RUNS {
            let page = page(scale, OF_A_CLAIM, |_| 1.0, seed);
            silent += usize::from(!page.iter().any(is_claimed));
            noises.extend(page.iter().map(|number| number.noise));
        }
        noises.sort_by(f64::total_cmp);
        let fitted = noises[noises.len() / 2];
        assert!((fitted / noise - 1.0).abs() < 0.15, "the machine has {fitted} instead of {noise}");
        assert!(silent >= RIGHT_MIN, "noise {noise}: {silent} of {RUNS} pages without a false claim");
    }
}

#[test]
fn of_what_is_explored_without_an_effect_one_in_twenty_seems_to_have_one() {
    for noise in committed_noises() {
        let pages = (0..RUNS / 4).flat_map(|seed| page(scale_of(noise), ERROR, |_| 1.0, seed));
        let verdicts: Vec<_> = pages.flat_map(|number| number.verdicts).collect();
        let share = verdicts.iter().filter(|verdict| verdict.differs()).count() as f64 / verdicts.len() as f64;
        assert!(share <= ERROR, "noise {noise}: {share}");
    }
}

/// What `auto` does to the interrupts, the CPU time and the reads of a guest with an NVMe disk and 32 of them in flight.
const NAMED: [f64; 3] = [0.28, 0.76, 1.39];

#[test]
fn the_named_effects_are_seen_on_a_calm_machine_and_half_of_them_on_a_quiet_one() {
    let calm = committed_noises().into_iter().filter(|noise| *noise < 0.1);
    for scale in calm.map(scale_of) {
        // Half of what is saved in CPU time and gained in reads is small beside the noise of a machine that is not quiet.
        let small = if scale < 0.02 { 0.9 } else { 0.35 };
        let halves =
            [(NAMED[0], 0.8), (NAMED[1], small), (NAMED[2], small)].map(|(effect, least)| (effect.sqrt(), least));
        for (effect, least) in NAMED.map(|effect| (effect, 0.8)).into_iter().chain(halves) {
            let pages = (0..RUNS / 4).flat_map(|seed| page(scale, OF_A_CLAIM, |_| effect, seed));
            let seen: Vec<_> = pages.map(|number| is_claimed(&number)).collect();
            let share = seen.iter().filter(|seen| **seen).count() as f64 / seen.len() as f64;
            assert!(share >= least, "scale {scale}, effect {effect}: seen in {share}");
        }
    }
}

#[test]
fn a_page_sees_what_is_well_above_the_smallest_effect_that_it_names() {
    for noise in committed_noises() {
        let scale = scale_of(noise);
        let seen = |effect: fn(f64) -> f64| {
            let of_page = |seed| {
                let without = page(scale, OF_A_CLAIM, |_| 1.0, seed);
                let named: Vec<_> = without.iter().map(|number| number.smallest_effect().unwrap()).collect();
                page(scale, OF_A_CLAIM, |number| effect(named[number]), seed)
            };
            let numbers: Vec<_> = (0..20).flat_map(of_page).collect();
            numbers.iter().filter(|number| is_claimed(number)).count() as f64 / numbers.len() as f64
        };
        let (below, above) = (seen(|named| 1.0 + named / 3.0), seen(|named| (1.0 + named).powi(2)));
        assert!(below < 0.2 && above > 0.9, "noise {noise}: seen {below}, {above}");
    }
}
