//! The order of turns: random within each block, repeated where too much time was stolen, until it is enough.

use fastrand::Rng;

/// A turn that lost a larger share of its CPU time to the hypervisor is repeated.
const LOST_MAX: f64 = 0.05;
/// So often at most; then the one that lost least counts.
const REPEATS_MAX: u32 = 2;

/// The probability that a page claims a difference that does not exist, in any of its claims at any look; and the same of each
/// number that is explored.
pub const ERROR: f64 = 0.05;
/// So many numbers are decided beforehand, and share this error equally (Bonferroni): the claims of a page.
pub const CLAIMS: usize = 10;
/// The blocks of the first look: 11 have an interval at the error of a claim, and fewer than 14 would rarely tell anything.
const FIRST_LOOK: usize = 14;
/// The most looks at the blocks, the end included.
const LOOKS_MAX: usize = 4;
/// More blocks than any time allows.
const END: usize = 100_000;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of variants, with the baseline's two.
    pub variants: usize,
    /// The numbers of blocks after which the intervals are looked at, ascending; the last one ends the measurement.
    pub looks: Vec<usize>,
    /// Another seed, other orders.
    pub seed: u64,
}

impl Plan {
    /// A plan for one workload of a page, about as many blocks of which `fit` its time.
    ///
    /// It looks first when there are enough blocks for an interval, again when there are twice as many, and so on, and at the end.
    pub fn of_page(variants: usize, fit: usize, seed: u64) -> Self {
        let doubled = (0..LOOKS_MAX - 1).map(|nth| FIRST_LOOK << nth);
        let looks = doubled.filter(|&look| look == FIRST_LOOK || look < fit).chain([END]).collect();
        Self { variants, looks, seed }
    }

    /// What an interval may err at each look to err at `error` in all: stopping when the intervals please would otherwise make them
    /// too narrow.
    pub fn at_each_look(&self, error: f64) -> f64 {
        error / self.looks.len() as f64
    }
}

/// What one turn gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn<T> {
    /// The measurement.
    pub value: T,
    /// The share of CPU time that was stolen meanwhile.
    pub lost: f64,
    /// How many more turns were made because too much was stolen.
    pub repeats: u32,
}

/// A turn of each variant, in the order of the variants.
pub type Block<T> = Vec<Turn<T>>;

/// Measures block by block, until `enough` of them at a look, or `late` after a block, or the last look.
///
/// `turn` runs a variant, and says which share of CPU time was stolen. Its first error ends the measurement.
pub fn measure<T, E>(
    plan: &Plan,
    mut turn: impl FnMut(usize) -> Result<(T, f64), E>,
    mut late: impl FnMut() -> bool,
    mut enough: impl FnMut(&[Block<T>]) -> bool,
) -> Result<Vec<Block<T>>, E> {
    let mut random = Rng::with_seed(plan.seed);
    let mut order: Vec<_> = (0..plan.variants).collect();
    let mut blocks = Vec::new();
    let last = plan.looks.last().copied().unwrap_or(0);
    while blocks.len() < last {
        random.shuffle(&mut order);
        let turns: Result<Vec<_>, E> =
            order.iter().map(|&variant| Ok((variant, undisturbed(|| turn(variant))?))).collect();
        let mut turns = turns?;
        turns.sort_by_key(|&(variant, _)| variant);
        blocks.push(turns.into_iter().map(|(_, turn)| turn).collect());
        if late() || plan.looks.contains(&blocks.len()) && enough(&blocks) {
            break;
        }
    }
    Ok(blocks)
}

/// Repeats a turn that lost too much.
fn undisturbed<T, E>(mut run: impl FnMut() -> Result<(T, f64), E>) -> Result<Turn<T>, E> {
    let (mut value, mut lost) = run()?;
    let mut repeats = 0;
    while lost > LOST_MAX && repeats < REPEATS_MAX {
        repeats += 1;
        let again = run()?;
        if again.1 < lost {
            (value, lost) = again;
        }
    }
    Ok(Turn { value, lost, repeats })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { variants: 4, looks: vec![8, 16, 400], seed: 1 }
    }

    #[test]
    fn it_looks_as_soon_as_there_is_an_interval_and_each_time_there_are_twice_as_many() {
        let looks = |fit| Plan::of_page(6, fit, 1).looks;
        assert_eq!(looks(10), [14, END]);
        assert_eq!(looks(28), [14, END]);
        assert_eq!(looks(29), [14, 28, END]);
        assert_eq!(looks(5000), [14, 28, 56, END]);
        let of_a_claim = Plan::of_page(6, 5000, 1).at_each_look(ERROR / CLAIMS as f64);
        let has_interval = |n| crate::paired::Interval::of_ratios(&vec![1.0; n], of_a_claim).is_some();
        assert!(!has_interval(10) && has_interval(11) && has_interval(FIRST_LOOK));
    }

    #[test]
    fn every_variant_has_every_place_equally_often() {
        let mut order = Vec::new();
        let run = |variant| {
            order.push(variant);
            Ok::<_, ()>((variant, 0.0))
        };
        let blocks = measure(&plan(), run, || false, |_| false).unwrap();
        assert_eq!(blocks.len(), 400);
        assert!(blocks.iter().all(|block| block.iter().map(|turn| turn.value).eq(0..4)));
        for (place, variant) in (0..4).flat_map(|place| (0..4).map(move |variant| (place, variant))) {
            let times = order.iter().skip(place).step_by(4).filter(|&&v| v == variant).count();
            assert!((70..130).contains(&times), "variant {variant} was {times} of 400 times at place {place}");
        }
    }

    #[test]
    fn it_ends_when_enough_or_late_or_wrong() {
        let run = |_| Ok::<_, ()>(((), 0.0));
        let mut asked = Vec::new();
        let mut enough = |blocks: &[Block<()>]| {
            asked.push(blocks.len());
            blocks.len() > 8
        };
        assert_eq!(measure(&plan(), run, || false, &mut enough).unwrap().len(), 16);
        assert_eq!(asked, [8, 16]);
        let mut left = 3;
        let late = || {
            left -= 1;
            left == 0
        };
        assert_eq!(measure(&plan(), run, late, |_| false).unwrap().len(), 3);
        assert_eq!(
            measure(&plan(), |variant| if variant == 2 { Err(7) } else { Ok(((), 0.0)) }, || false, |_| true),
            Err(7)
        );
        assert!((plan().at_each_look(0.06) - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_turn_that_lost_too_much_is_repeated() {
        let turn = |lost: &[f64]| {
            let mut runs = lost.iter().copied().enumerate();
            undisturbed(|| runs.next().ok_or("asked too often")).unwrap()
        };
        assert_eq!(turn(&[0.05]), Turn { value: 0, lost: 0.05, repeats: 0 });
        assert_eq!(turn(&[0.2, 0.01]), Turn { value: 1, lost: 0.01, repeats: 1 });
        assert_eq!(turn(&[0.2, 0.1, 0.3]), Turn { value: 1, lost: 0.1, repeats: 2 });
    }
}
