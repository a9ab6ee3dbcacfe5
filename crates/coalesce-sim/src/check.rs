//! Checks a line from its events alone: nothing lost, nothing covered twice, no empty interrupt, bounds kept.

use crate::event::{Event, What};
use crate::integral::Integral;
use coalesce_cli::counted;
use coalesce_policy::HoldReason;
use serde::Serialize;
use std::collections::VecDeque;

/// Violations that are kept with all details; the others are counted.
const DETAILS_MAX: usize = 8;

/// Holds with the reason `licensed` may spend this multiple of the share that a latency budget allows the others. Whether requesters gain
/// by them, no line can see: `coalesce-sim contract` compares.
const LICENSED_MAX: u128 = 10;

/// C0 of a latency budget, as its documentation has it: what trials may cost requests that have taken so much time, in ns. Its factor
/// is 1 to 4; why it is more than 1 cannot be seen from here, so it is 4.
const fn learning(max_hold: u64, requests: u128) -> u128 {
    let max_hold = max_hold as u128;
    let so_far = 4 * (4 * max_hold + requests / 128);
    if so_far < 32 * max_hold { so_far } else { 32 * max_hold }
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// When, in ns.
    pub at: u64,
    /// The rule, and what happened.
    pub what: String,
}

/// What a checker found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Interrupts that came later after a completion than the policy promises.
    pub late: u64,
    /// All other rules that did not hold: completions lost or covered twice, empty interrupts, disagreement.
    pub wrong: u64,
    /// The first of both.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// Whether every rule held.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.late == 0 && self.wrong == 0
    }

    /// Adds what another checker found.
    pub fn add(&mut self, other: &Self) {
        self.late += other.late;
        self.wrong += other.wrong;
        let room = DETAILS_MAX.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.iter().take(room).cloned());
    }

    /// A rule of the whole simulation does not hold.
    pub(crate) fn wrong(&mut self, at: u64, what: String) {
        self.wrong += 1;
        self.note(at, what);
    }

    fn note(&mut self, at: u64, what: String) {
        if self.violations.len() < DETAILS_MAX {
            self.violations.push(Violation { at, what });
        }
    }
}

/// For how long completions were held, in ns, summed over them, by what allowed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldTime {
    /// What any policy does; a latency budget: what its account paid for.
    pub plain: u128,
    /// Trials of a latency budget, by which it learns.
    pub trials: u128,
    /// A licence of a latency budget.
    pub licensed: u128,
}

impl HeldTime {
    /// All of it.
    #[must_use]
    pub const fn all(&self) -> u128 {
        self.plain + self.trials + self.licensed
    }

    /// Adds what another line held.
    pub const fn add(&mut self, other: &Self) {
        self.plain += other.plain;
        self.trials += other.trials;
        self.licensed += other.licensed;
    }

    const fn of(&mut self, reason: Option<HoldReason>) -> &mut u128 {
        match reason {
            Some(HoldReason::Licensed) => &mut self.licensed,
            Some(HoldReason::Probe) => &mut self.trials,
            _ => &mut self.plain,
        }
    }
}

/// Sees the events of one line and knows nothing else of it.
#[derive(Clone, Debug)]
pub struct Checker {
    bound: Option<u64>,
    since: VecDeque<u64>, // when each held completion was posted
    excused: usize,       // number of oldest ones that need not keep a bound, as a fault hit them
    undecided: bool,      // the newest completion awaits its decision
    completions: u64,
    covered: u64,
    consumed: u64,
    last: u64, // when the last event was
    requests: Integral,
    held_time: HeldTime,
    why: Option<HoldReason>, // for what is held now
    budget: Option<u16>,     // its share, in basis points, as long as it must be kept to
    verdict: Verdict,
}

impl Checker {
    /// A checker of a line whose policy promises to hold nothing longer than `bound` ns, and to keep to its latency `budget`, a
    /// share in basis points (1/100 %), if it has one.
    #[must_use]
    pub fn new(bound: Option<u64>, budget: Option<u16>) -> Self {
        Self {
            budget,
            last: 0,
            requests: Integral::default(),
            held_time: HeldTime::default(),
            why: None,
            bound,
            since: VecDeque::new(),
            excused: 0,
            undecided: false,
            completions: 0,
            covered: 0,
            consumed: 0,
            verdict: Verdict::default(),
        }
    }

    /// A fault delays what is held now, and the policy cannot help it.
    pub fn excuse_held(&mut self) {
        self.excused = self.since.len();
        self.budget = None;
    }

    /// The number of the requesters' requests changes by `by` at `now`, whatever the policy knows of them.
    pub fn change_requests(&mut self, now: u64, by: i64) {
        self.requests.change(now, by);
    }

    /// The next event.
    #[inline]
    pub fn see(&mut self, Event { at, what }: Event) {
        *self.held_time.of(self.why) += u128::from(at.saturating_sub(self.last)) * self.since.len() as u128;
        self.last = at;
        match what {
            What::Completion { .. } => {
                if std::mem::replace(&mut self.undecided, true) {
                    self.wrong(at, "two completions, and no decision about the first".into());
                }
                self.completions += 1;
                self.since.push_back(at);
            }
            What::Deadline | What::BatchEnd | What::Other => {}
            What::Hold { reason } => {
                self.undecided = false;
                // With some, what was decided before goes on.
                if !matches!(reason, HoldReason::Early | HoldReason::Reconfigured | HoldReason::Cancelled) {
                    self.why = Some(reason);
                }
            }
            What::Interrupt { covers, .. } | What::Suppressed { covers } => {
                self.undecided = false;
                if covers == 0 && matches!(what, What::Interrupt { .. }) {
                    self.wrong(at, "an interrupt covers nothing".into());
                }
                if covers as usize != self.since.len() {
                    self.wrong(at, format!("an interrupt covers {covers} of {} completions", self.since.len()));
                }
                self.check_bound(at);
                self.covered += u64::from(covers);
                self.since.clear();
                self.excused = 0;
            }
            What::UrgentAlone => {
                if !std::mem::take(&mut self.undecided) || self.since.pop_back().is_none() {
                    self.wrong(at, "an interrupt for an urgent completion, and there is none".into());
                }
                self.covered += 1;
                self.excused = self.excused.min(self.since.len());
            }
            What::Consumed { count } => {
                self.check_bound(at);
                self.consumed += u64::from(count);
                for _ in 0..count {
                    if self.since.pop_front().is_none() {
                        self.wrong(at, "more was consumed than was held".into());
                    }
                    self.excused = self.excused.saturating_sub(1);
                }
            }
        }
    }

    /// The policy counts `policy` held completions, the line `held`. A consumer that reaped a part of them is
    /// seen by the line alone.
    pub fn compare(&mut self, at: u64, policy: u64, held: usize) {
        if held != self.since.len() || policy < held as u64 {
            let seen = self.since.len();
            self.wrong(at, format!("{seen} completions are held; the line has {held}, the policy {policy}"));
        }
    }

    /// Whether the latency budget is kept. What it pays for, C0 included, comes from the requesters' time and `max_hold` alone. `said`
    /// is what the policy says that it has held since the beginning, in ns: all of it must be there.
    pub fn check_budget(&mut self, at: u64, said: u64) {
        // At the end of the clock a core takes everything for due, whatever it costs.
        self.budget = self.budget.filter(|_| at < u64::MAX);
        let (Some(budget), Some(max_hold)) = (self.budget, self.bound) else { return };
        let HeldTime { plain, trials, licensed } = self.held_time;
        let (strict, all) = (plain + trials, self.held_time.all());
        let requests = self.requests.until(at);
        let share = requests.saturating_sub(all) * u128::from(budget) / 10_000;
        let (allowed, allowed_licensed) = (share + learning(max_hold, requests), LICENSED_MAX * share);
        let wrong = if u128::from(said) < all {
            format!("held for {all} ns in all; the policy says {said}")
        } else if strict > allowed {
            format!("held for {strict} ns in all; of {requests} ns that requests took, the budget allows {allowed}")
        } else if licensed > allowed_licensed {
            format!(
                "held for {licensed} ns with a licence; of {requests} ns that requests took, {allowed_licensed} are allowed"
            )
        } else {
            return;
        };
        self.wrong(at, wrong);
        self.budget = None; // once is enough
    }

    /// The end of the run: no command is in flight, every deadline was met, every poll of the device has ended.
    pub fn finish(&mut self, at: u64) {
        if let Some(since) = self.since.front() {
            let held = self.since.len();
            self.wrong(
                at,
                format!("lost: {}, held since {since}, and all is quiet", counted(held as u64, "completion")),
            );
        }
        let gone = self.covered + self.consumed + self.since.len() as u64;
        if gone != self.completions {
            let completions = self.completions;
            self.wrong(at, format!("{completions} completions, but {gone} covered, consumed or held"));
        }
    }

    /// When the oldest of what is held was posted, in ns.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.since.front().copied()
    }

    /// The longest that the policy promises to hold a completion, in ns.
    #[must_use]
    pub const fn bound(&self) -> Option<u64> {
        self.bound
    }

    /// For how long completions were held so far.
    #[must_use]
    pub const fn held_time(&self) -> HeldTime {
        self.held_time
    }

    /// What was found so far.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    fn check_bound(&mut self, at: u64) {
        let (Some(bound), Some(&since)) = (self.bound, self.since.get(self.excused)) else { return };
        let waited = at.saturating_sub(since);
        if waited > bound {
            self.verdict.late += 1;
            self.verdict.note(at, format!("held for {waited} ns; allowed: {bound} ns"));
        }
    }

    /// A rule does not hold.
    #[cold]
    pub(crate) fn wrong(&mut self, at: u64, what: String) {
        self.verdict.wrong(at, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_policy::{Event as Meaning, HoldReason, Reason};

    const COMPLETION: What = What::Completion { hint: Meaning::Plain, cif: 1 };
    const HOLD: What = What::Hold { reason: HoldReason::Burst };

    const fn interrupt(covers: u32) -> What {
        What::Interrupt { reason: Reason::Delta, covers }
    }

    /// What is said of these events, one every 10 ns, under a policy that holds nothing for more than 40 ns.
    fn verdict(events: &[What]) -> Verdict {
        let mut checker = Checker::new(Some(40), None);
        for (at, what) in (0..).step_by(10).zip(events) {
            checker.see(Event { at, what: *what });
        }
        checker.finish(1000);
        checker.verdict().clone()
    }

    #[test]
    fn what_is_right() {
        for events in [
            &[][..],
            &[COMPLETION, HOLD, What::Deadline, HOLD, What::Consumed { count: 1 }],
            &[COMPLETION, HOLD, interrupt(1)],
            &[COMPLETION, HOLD, COMPLETION, What::UrgentAlone, What::Consumed { count: 1 }],
        ] {
            assert_eq!(verdict(events), Verdict::default(), "{events:?}");
        }
    }

    #[test]
    fn what_is_wrong() {
        for (events, expected) in [
            (&[COMPLETION, HOLD][..], "lost: 1 completion, held since 0"),
            (&[COMPLETION, COMPLETION, interrupt(2)], "no decision about the first"),
            (&[interrupt(0)], "covers nothing"),
            (&[COMPLETION, HOLD, interrupt(2)], "covers 2 of 1 completions"),
            (&[COMPLETION, HOLD, HOLD, HOLD, HOLD, interrupt(1)], "held for 50 ns; allowed: 40 ns"),
            (&[COMPLETION, HOLD, What::UrgentAlone], "and there is none"),
            (&[COMPLETION, HOLD, What::Consumed { count: 2 }], "more was consumed than was held"),
        ] {
            let verdict = verdict(events);
            assert!(!verdict.is_clean() && verdict.violations[0].what.contains(expected), "{verdict:?}");
        }
    }

    #[test]
    fn the_line_and_the_policy_must_agree() {
        for (policy, held, is_clean) in [(1, 1, true), (2, 1, true), (0, 1, false), (1, 0, false)] {
            let mut checker = Checker::new(None, None);
            checker.see(Event { at: 0, what: COMPLETION });
            checker.compare(0, policy, held);
            assert_eq!(checker.verdict().is_clean(), is_clean, "policy {policy}, line {held}");
        }
    }

    /// A hold of 100 ns for this reason, while requesters have `requests` requests from 0 to 107, under a policy that holds nothing for
    /// longer than 1 ns, so that C0 is 16 ns at first, and 32 ns at most.
    fn held_100_ns(reason: HoldReason, requests: i64) -> Checker {
        let mut checker = Checker { bound: Some(1), ..Checker::new(None, Some(500)) };
        checker.change_requests(0, requests);
        checker.see(Event { at: 7, what: COMPLETION });
        checker.see(Event { at: 7, what: What::Hold { reason } });
        checker.see(Event { at: 50, what: What::Deadline });
        checker.see(Event { at: 50, what: What::Hold { reason: HoldReason::Early } });
        checker.see(Event { at: 107, what: What::Interrupt { reason: Reason::Silence, covers: 1 } });
        checker.verdict = Verdict::default(); // it is late, of course
        checker
    }

    /// The requesters' time decides: 14 requests take 1498 ns, of which 5 % are 69 without the 100 ns that were held, and C0 would be 60,
    /// but is 32 at most. What the policy says does not decide.
    #[test]
    fn a_budget_that_is_exceeded_or_not_reported_is_found() {
        for (requests, said, is_excused, wrong) in
            [(14, 100, false, 0), (13, 100, false, 1), (13, u64::MAX, false, 1), (14, 99, false, 1), (14, 99, true, 0)]
        {
            let mut checker = held_100_ns(HoldReason::Company, requests);
            if is_excused {
                checker.excuse_held();
            }
            checker.check_budget(107, said);
            checker.check_budget(108, said);
            assert_eq!(checker.verdict().wrong, wrong, "{requests} requests, {said}");
        }
        let mut checker = held_100_ns(HoldReason::Company, 13);
        checker.check_budget(u64::MAX, 100);
        assert_eq!(checker.verdict().wrong, 0, "the end of the clock");
    }

    /// What trials may cost begins small, grows with what requests have taken, and ends.
    #[test]
    fn what_learning_may_cost_is_in_proportion() {
        for (requests, expected) in
            [(0, 16_000), (128_000, 20_000), (511_999, 31_996), (512_000, 32_000), (1 << 90, 32_000)]
        {
            assert_eq!(learning(1_000, requests), expected, "{requests} ns");
        }
    }

    /// 3 requests took 321 ns, of which ten times 5 % are 110 without what was held; with 2 there are 50.
    #[test]
    fn a_licence_is_for_ten_times_the_budget() {
        for (requests, reason, wrong) in
            [(3, HoldReason::Licensed, 0), (2, HoldReason::Licensed, 1), (3, HoldReason::Probe, 1)]
        {
            let mut checker = held_100_ns(reason, requests);
            checker.check_budget(107, 100);
            assert_eq!(checker.verdict().wrong, wrong, "{requests} requests, {reason:?}");
        }
    }

    #[test]
    fn held_time_is_divided_by_what_allowed_it() {
        for (reason, [plain, trials, licensed]) in
            [(HoldReason::Company, [100, 0, 0]), (HoldReason::Probe, [0, 100, 0]), (HoldReason::Licensed, [0, 0, 100])]
        {
            assert_eq!(held_100_ns(reason, 1).held_time(), HeldTime { plain, trials, licensed }, "{reason:?}");
        }
    }
}
