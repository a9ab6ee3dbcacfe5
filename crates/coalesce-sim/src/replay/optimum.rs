//! The fewest interrupts that any policy could have raised on a queue of a trace, one that knows the future included.
//!
//! An interrupt may as well cover everything that has completed, and come with the last completion that it covers:
//! an interrupt that leaves something out, or comes later, saves none, and lengthens the waits. So only *batches* need be
//! compared: runs of successive instants of completion, each with one interrupt at its last instant. That covers
//! out-of-order Urgent too. What a consumer takes without an interrupt does not occur in a replay.
//!
//! Let `held(k)` be the shortest time that completions wait in all if there are `k` interrupts. A wait is a product of a
//! count and a time, so the cost of a batch has the Monge property, and `held` is convex where it is defined (Aggarwal,
//! Schieber, Tokuyama, *Finding a minimum-weight k-link path in graphs with the concave Monge property*, 1994). A price
//! for each interrupt then finds every corner of `held`, and between two corners it is straight. So the result is exact at
//! every length. Each step of the search for the price takes time linear in the completions.

use crate::units::scaled;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

/// The part of the time of all requests, from submission to interrupt, by which policies may delay them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(u64); // per million

const MILLION: u64 = 1_000_000;

impl Budget {
    /// As a part of 1.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0 as f64 / MILLION as f64
    }

    /// What may be held, in ns times completions, if they were in flight for `in_flight`.
    fn held(self, in_flight: u128) -> u128 {
        in_flight * u128::from(self.0) / u128::from(MILLION - self.0)
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = scaled(text, &[("%", MILLION / 100)]).filter(|&share| share < MILLION);
        share.map(Self).ok_or_else(|| format!("\"{text}\" is not a share of less than 100%, such as \"5%\""))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 as f64 * 100.0 / MILLION as f64)
    }
}

/// What an optimum is asked for beside each policy's own.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// How much it may hold.
    pub budget: Budget,
    /// How long it may hold a completion, in ns; `None`: no limit.
    pub max_hold: Option<u64>,
    /// There is none of a trace with more completions than this; `None`: of any.
    pub most: Option<u64>,
}

/// The completions of one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    instants: Vec<Instant>,
    urgent: Vec<usize>,
    in_flight: u128,
}

/// When something completed, and how many completions there were until then, its own included.
#[derive(Clone, Copy, Debug)]
struct Instant {
    at: u64,
    completions: u64,
}

/// What the interrupts of an optimum must keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    /// The sum of all waits, at most, in ns.
    pub(super) held: u128,
    /// The longest wait, in ns; `None`: no bound.
    pub(super) max_hold: Option<u64>,
    /// Instants, by index and in order, at which there must be an interrupt.
    pub(super) at_once: &'a [usize],
}

impl Load {
    /// The next completion. `latency`: since its submission, in ns, if that was seen.
    pub(super) fn complete(&mut self, at: u64, latency: Option<u64>, is_urgent: bool) {
        self.in_flight += u128::from(latency.unwrap_or(0));
        match self.instants.last_mut() {
            Some(last) if last.at == at => last.completions += 1,
            last => {
                let completions = last.map_or(0, |last| last.completions) + 1;
                self.instants.push(Instant { at, completions });
            }
        }
        let index = self.instants.len() - 1;
        if is_urgent && self.urgent.last() != Some(&index) {
            self.urgent.push(index);
        }
    }

    /// If the newest completion came at an instant of an urgent one: that instant's index.
    pub(super) fn newest_urgent(&self) -> Option<usize> {
        self.urgent.last().copied().filter(|index| index + 1 == self.instants.len())
    }

    /// The fewest interrupts within a budget. What is urgent is delivered at once.
    pub(super) fn fewest_wanted(&self, wanted: Wanted) -> u64 {
        let held = wanted.budget.held(self.in_flight);
        self.fewest(&Terms { held, max_hold: wanted.max_hold, at_once: &self.urgent })
    }

    /// The fewest interrupts within `terms`.
    pub(super) fn fewest(&self, terms: &Terms) -> u64 {
        let (Some(first), Some(last)) = (self.instants.first(), self.instants.last()) else { return 0 };
        // No interrupt that can be spared costs more than this.
        let dearest = u128::from(last.completions) * u128::from(last.at - first.at);
        let mut few = self.cheapest(dearest, terms);
        if few.held <= terms.held {
            return few.interrupts;
        }
        let mut many = Plan { interrupts: self.instants.len() as u64, held: 0 };
        loop {
            // What one of the interrupts between the two plans costs on average. Either a plan between them is better at this
            // price, or there is no corner, and each costs the same.
            let price = (few.held - many.held) / u128::from(many.interrupts - few.interrupts);
            let plan = self.cheapest(price, terms);
            if plan.interrupts == few.interrupts {
                return many.interrupts - ((terms.held - many.held) / price) as u64;
            }
            *if plan.held <= terms.held { &mut many } else { &mut few } = plan;
        }
    }

    /// The plan with the least sum of waits and prices, if an interrupt has the price of `price` and a half: no two numbers
    /// of interrupts are then equally good, as waits are whole.
    fn cheapest(&self, price: u128, terms: &Terms) -> Plan {
        let Some(first) = self.instants.first() else { return Plan::default() };
        let price = (2 * price + 1).cast_signed();
        let mut at_once = terms.at_once.iter().peekable();
        let mut starts: VecDeque<Start> = VecDeque::new();
        let mut start = Start { from: 0, until: 0, cost: 0, completions: 0, interrupts: 0 };
        let mut sum = 0; // of the times of all completions
        for (index, instant) in self.instants.iter().enumerate() {
            let at = instant.at - first.at;
            // A batch may start here, and end until it is too long, or has come to what is delivered at once.
            while at_once.next_if(|&&at_once| at_once < index).is_some() {}
            let must_end = at_once.peek().map_or(u64::MAX, |&&at_once| self.instants[at_once].at - first.at);
            start.until = terms.max_hold.map_or(u64::MAX, |max_hold| at.saturating_add(max_hold)).min(must_end);
            start.insert(&mut starts);
            while starts.get(1).is_some_and(|next| next.from <= at) {
                starts.pop_front();
            }
            let best = &starts[0];
            let new = i128::from(instant.completions - best.completions);
            sum += i128::from(at) * i128::from(instant.completions - start.completions);
            start = Start {
                cost: best.cost + 2 * i128::from(at) * new + price,
                completions: instant.completions,
                interrupts: best.interrupts + 1,
                ..start
            };
        }
        let held = (start.cost - price * i128::from(start.interrupts)) / 2 - sum;
        Plan { interrupts: start.interrupts, held: held.cast_unsigned() }
    }
}

/// Batches of one kind, and what they come to.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    interrupts: u64,
    held: u128,
}

/// Where a batch may start: behind the best batches up to some instant.
#[derive(Clone, Copy, Debug)]
struct Start {
    from: u64,  // it is the best one for a batch that ends at this time or later
    until: u64, // no batch that starts here may end later
    cost: i128, // of the batches before it, doubled, as if their completions had waited since time 0
    completions: u64,
    interrupts: u64,
}

impl Start {
    /// Adds the newest start. Starts before it that are never the best ones any more leave.
    ///
    /// The later a batch ends, the better are late starts: that is the Monge property, and bounds that are the tighter the
    /// earlier a batch starts leave it as it is.
    fn insert(mut self, starts: &mut VecDeque<Self>) {
        while let Some(last) = starts.back() {
            self.from = self.is_better_from(last);
            if self.from > last.from {
                break;
            }
            starts.pop_back();
        }
        starts.push_back(self);
    }

    /// The end from which on a batch that starts here is no worse than one that starts at `earlier`.
    fn is_better_from(&self, earlier: &Self) -> u64 {
        let (cost, per_time) = (self.cost - earlier.cost, 2 * i128::from(self.completions - earlier.completions));
        let equal = (cost + per_time - 1).div_euclid(per_time); // rounded up
        let never = earlier.until.saturating_add(1);
        u64::try_from(equal.max(0)).map_or(never, |equal| equal.min(never))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Random;

    /// A small load, and terms that may bite.
    struct Case {
        load: Load,
        max_hold: Option<u64>,
        at_once: Vec<usize>,
    }

    impl Case {
        fn new(seed: u64) -> Self {
            let mut random = Random::new(seed, 0);
            let (mut load, mut at) = (Load::default(), random.below(1000));
            for _ in 0..=random.below(12) {
                at += [0, 1, random.below(10), random.below(1000)][random.below(4) as usize];
                load.complete(at, Some(random.below(1000)), random.per_1000(150));
            }
            let max_hold = [None, Some(random.below(1500))][random.below(2) as usize];
            let at_once = if random.per_1000(500) { load.urgent.clone() } else { Vec::new() };
            Self { load, max_hold, at_once }
        }

        /// The shortest wait of all together for each number of interrupts from 0 on, by looking at every way to divide the
        /// instants into batches; `None`: there is no way.
        fn held_by_interrupts(&self) -> Vec<Option<u128>> {
            let instants = &self.load.instants;
            let mut shortest = vec![None; instants.len() + 1];
            for ends in 0..1_u32 << (instants.len() - 1) {
                let ends = ends | 1 << (instants.len() - 1); // the last instant always ends a batch
                if let Some(held) = self.held(ends) {
                    let shortest: &mut Option<u128> = &mut shortest[ends.count_ones() as usize];
                    *shortest = Some(shortest.map_or(held, |shortest| shortest.min(held)));
                }
            }
            shortest
        }

        /// How long all wait if there are interrupts at these instants; `None`: the terms forbid it.
        fn held(&self, ends: u32) -> Option<u128> {
            let is_end = |index: usize| ends >> index & 1 == 1;
            if !self.at_once.iter().all(|&index| is_end(index)) {
                return None;
            }
            let (mut held, mut before) = (0, 0);
            for (index, instant) in self.load.instants.iter().enumerate() {
                let end = self.load.instants[index..].iter().enumerate().find(|(later, _)| is_end(index + later))?.1.at;
                if self.max_hold.is_some_and(|max_hold| end - instant.at > max_hold) {
                    return None;
                }
                held += u128::from(instant.completions - before) * u128::from(end - instant.at);
                before = instant.completions;
            }
            Some(held)
        }

        fn fewest(&self, held: u128) -> u64 {
            self.load.fewest(&Terms { held, max_hold: self.max_hold, at_once: &self.at_once })
        }
    }

    /// For every sum of waits at which something changes, and one less.
    #[test]
    fn no_division_into_batches_has_fewer_interrupts() {
        for seed in 0..2000 {
            let case = Case::new(seed);
            let shortest = case.held_by_interrupts();
            for held in shortest.iter().flatten().flat_map(|&held| [held.saturating_sub(1), held, held + 1]) {
                let fewest = shortest.iter().position(|shortest| shortest.is_some_and(|shortest| shortest <= held));
                assert_eq!(Some(case.fewest(held) as usize), fewest, "seed {seed}, held {held}");
            }
        }
    }

    /// What a price for each interrupt rests on: the next interrupt that is spared costs at least as much as the last one.
    #[test]
    fn waits_are_convex_in_the_number_of_interrupts() {
        for seed in 0..2000 {
            let shortest = Case::new(seed).held_by_interrupts();
            let known: Vec<_> = shortest.iter().skip_while(|held| held.is_none()).collect();
            assert!(known.iter().all(|held| held.is_some()), "seed {seed}: a number of interrupts is missing");
            let held: Vec<_> = known.iter().map(|held| held.unwrap_or_default()).collect();
            let saved: Vec<_> = held.windows(2).map(|pair| pair[0] - pair[1]).collect();
            assert!(saved.is_sorted_by(|a, b| a >= b) && saved.last() != Some(&0), "seed {seed}: {held:?}");
        }
    }

    #[test]
    fn a_budget_is_a_share_of_the_time_with_the_waits() {
        let budget: Budget = "5%".parse().unwrap();
        assert_eq!(budget.held(950), 50);
        assert_eq!(
            ("0.5%".parse::<Budget>().unwrap().held(199_000), "0%".parse::<Budget>().unwrap().held(9)),
            (1000, 0)
        );
        assert_eq!(("2.5%".parse::<Budget>().unwrap().to_string(), budget.to_string()), ("2.5%".into(), "5%".into()));
        for wrong in ["5", "100%", "-1%", "5 %", "0.00001%", "%"] {
            assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_urgent_is_delivered_at_once_within_any_budget() {
        let mut load = Load::default();
        for at in 0..100 {
            load.complete(at, Some(1_000_000), at % 10 == 3);
        }
        let wanted = |budget: &str, max_hold| Wanted { budget: budget.parse().unwrap(), max_hold, most: None };
        assert_eq!(load.fewest_wanted(wanted("99%", None)), 11, "ten, and the last completions");
        assert_eq!(load.fewest_wanted(wanted("99%", Some(4))), 21);
        assert_eq!(load.fewest_wanted(wanted("0%", None)), 100);
        assert_eq!(load.fewest(&Terms { held: u128::MAX, max_hold: None, at_once: &[] }), 1);
    }
}
