//! Counting decisions.

use crate::{Decision, HoldReason, Reason};

/// Above every number of a reason.
const NUMBERS: usize = 64;
/// The number of an urgent completion that interrupts alone. No reason has this number.
const URGENT_ALONE: usize = 0;

/// Counters of decisions by reason. They saturate.
///
/// They are not part of a machine, so that machines stay small: pass each decision through [`count`](Self::count), or use
/// [`Counted`](crate::Counted).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Stats([u64; NUMBERS]); // by the number of the reason

impl Default for Stats {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Stats {
    /// All counters at 0. Usable in a `static`.
    pub const ZERO: Self = Self([0; NUMBERS]);

    /// Counts a decision and returns it.
    #[inline]
    pub fn count(&mut self, decision: Decision) -> Decision {
        self.count_times(decision, 1);
        decision
    }

    /// Counts a decision that was taken `times` times.
    #[inline]
    pub fn count_times(&mut self, decision: Decision, times: u64) {
        if let Some(counter) = self.0.get_mut(index(decision)) {
            *counter = counter.saturating_add(times);
        }
    }

    /// How often this decision was taken.
    #[inline]
    #[must_use]
    pub fn of(&self, decision: Decision) -> u64 {
        self.0.get(index(decision)).copied().unwrap_or(0)
    }

    /// Deliveries by reason: each name with its count. `urgent_alone` counts [`Decision::DeliverUrgent`], whether or not
    /// others were held.
    pub fn delivered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let reasons = Reason::ALL.iter().map(|&reason| (reason.name(), self.of(Decision::Deliver(reason))));
        reasons.chain([("urgent_alone", self.of(Decision::DeliverUrgent))])
    }

    /// Holds by reason: each name with its count.
    pub fn held(&self) -> impl Iterator<Item = (&'static str, u64)> {
        HoldReason::ALL.iter().map(|&reason| (reason.name(), self.of(Decision::Hold(reason))))
    }

    /// Adds the counts of another machine.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// The counter's index. The mask proves to the compiler that it is below `NUMBERS`.
#[inline]
const fn index(decision: Decision) -> usize {
    let number = match decision {
        Decision::Deliver(reason) => reason as usize,
        Decision::Hold(reason) => reason as usize,
        Decision::DeliverUrgent => URGENT_ALONE,
    };
    number & (NUMBERS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Decision> {
        let delivered = Reason::ALL.iter().copied().map(Decision::Deliver);
        delivered.chain(HoldReason::ALL.iter().copied().map(Decision::Hold)).chain([Decision::DeliverUrgent])
    }

    #[test]
    fn each_decision_has_a_counter_of_its_own() {
        for decision in all() {
            let mut stats = Stats::ZERO;
            assert_eq!(stats.count(decision), decision);
            for other in all() {
                assert_eq!(stats.of(other), u64::from(other == decision), "{decision:?} counted, {other:?} asked");
            }
            assert_eq!(stats.delivered().chain(stats.held()).map(|(_, count)| count).sum::<u64>(), 1);
        }
    }

    #[test]
    fn counters_stop_at_their_maximum() {
        let mut stats = Stats::ZERO;
        stats.count_times(Decision::DeliverUrgent, u64::MAX);
        stats.add(&stats.clone());
        assert_eq!(stats.of(Decision::DeliverUrgent), u64::MAX);
    }

    #[test]
    fn numbers_and_names_lead_back() {
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_number(reason as u32), Some(reason));
            assert_eq!(reason.c_name().to_str(), Ok(reason.name()));
        }
        for &reason in HoldReason::ALL {
            assert_eq!(HoldReason::from_number(reason as u32), Some(reason));
            assert_eq!(reason.c_name().to_str(), Ok(reason.name()));
        }
        assert_eq!((Reason::from_number(0), HoldReason::from_number(0)), (None, None));
    }
}
