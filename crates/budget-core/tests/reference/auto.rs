//! An executable reading of "A licence by effect" (`docs/budget.md`) around the reference of the account, to compare the regulator with.
//!
//! Naive on purpose: it keeps the gap before each completion of a stretch, the verdict of each trial of a cut, and the gain of each trial
//! of a licence, and derives what follows from these lists at each query.

use super::{End, OLDEST, Reference, WHOLE, saw};
use budget_core::{Allowance, Bypassed, Level, Params};
use coalesce_testkit::{Completion, Decision, Mark, Policy, Spent, Submission, forward};

/// Completions of a stretch: those that settle, then those that are measured.
const SETTLE: usize = 16;
const MEASURE: usize = 64;
/// After three cuts nothing is held.
const CUTS: u32 = 3;
/// The pause between two trials, in parts of `MEASURE` completions, doubles five times at most.
const PAUSE: u64 = 16;
const RAREST: u32 = 5;
/// What the mean gain of a first licence, and of a further one, must be at least, in parts of 256.
const FIRST: i128 = 8;
const FURTHER: i128 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Question {
    Cut,
    /// A cut, after a trial with the account in debt.
    Open,
    Climb,
    Check,
}

/// What the present completions belong to: a pause, or a stretch of a trial with its number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Pause,
    Settle(usize),
    Measure(usize),
}

/// The ticks of a stretch: with long gaps cut short, and without the gaps longer than `max_hold` alone.
#[derive(Clone, Copy, Debug)]
struct Took {
    limited: i128,
    whole: i128,
}

/// A trial of a licence: what it gained, in parts of 256; `None`: it ended early.
type Gain = Option<i128>;

/// The next interrupts are sent without asking.
#[derive(Clone, Copy, Debug)]
struct Bypass {
    left: u64,
    /// Until more than one command is outstanding.
    is_for_one: bool,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Auto {
    account: Reference,
    place: Place,
    question: Question,
    /// The gaps before the present completions, after how many they end, and when the last completion was.
    gaps: Vec<i128>,
    length: usize,
    last: u64,
    /// More than one command was outstanding in the present stretch or part of a pause, and in the one before.
    several: [bool; 2],
    /// Parts of the pause to come.
    parts: u64,
    /// How often the pause after a trial of a licence, and of a cut, has doubled.
    rare: u32,
    rare_cut: u32,
    dice: u16,
    /// What the stretches of this trial took, in their order.
    stretches: Vec<Took>,
    /// No gap counts for more.
    longest: Option<i128>,
    cuts: u32,
    /// Whether the trials since the last cut were lost.
    lost: Vec<bool>,
    limit: i128,
    tried: i128,
    suspended: bool,
    /// The trials of this attempt; the checks of this licence, and how many in a row end it.
    attempt: Vec<Gain>,
    checks: Vec<Gain>,
    patience: usize,
    /// What the second stretch with the licence took in the last trial that it won.
    licensed: Option<i128>,
    /// The completions of the last polls, up to 16 each.
    polls: Vec<i128>,
    bypass: Option<Bypass>,
}

/// The gains that count of some checks: of a dozen the old ones count half, rounded down, and so does their number.
fn remembered(checks: &[Gain]) -> (i128, i128, i128) {
    checks.iter().flatten().fold((0, 0, 0), |(mut sum, mut squares, mut trials), gain| {
        if trials >= 12 {
            (sum, squares, trials) = (sum.div_euclid(2), squares / 2, trials / 2);
        }
        (sum + gain, squares + gain * gain, trials + 1)
    })
}

/// How many of the last checks gained too little, in a row.
fn lost_in_a_row(checks: &[Gain]) -> usize {
    checks.iter().rev().take_while(|gain| gain.is_none_or(|gain| gain < FIRST)).count()
}

fn rarer(rare: u32) -> u32 {
    (rare + 1).min(RAREST)
}

impl Auto {
    /// See [`Reference::new`].
    pub fn new(configurations: &[Params]) -> Self {
        Self::around(Reference::new(configurations))
    }

    /// It has learned nothing.
    fn around(account: Reference) -> Self {
        Self {
            account,
            place: Place::Pause,
            question: Question::Cut,
            gaps: vec![],
            length: SETTLE,
            last: 0,
            several: [false; 2],
            parts: 2,
            rare: 0,
            rare_cut: 0,
            dice: 1,
            stretches: vec![],
            longest: None,
            cuts: 0,
            lost: vec![],
            limit: 1,
            tried: 2,
            suspended: false,
            attempt: vec![],
            checks: vec![],
            patience: 2,
            licensed: None,
            polls: vec![],
            bypass: None,
        }
    }

    /// The rule in force, and for how many completions.
    pub fn rule(&self) -> (Level, u8) {
        (self.account.level(), self.account.limit())
    }

    fn forget(&mut self) {
        let account = self.account.clone();
        *self = Self::around(account);
    }

    // ---- what the account knows

    fn longest_hold(&self) -> i128 {
        self.account.rules().max_hold
    }

    /// ε without cuts, in parts of `WHOLE`.
    fn share(&self) -> i128 {
        i128::from(self.account.rules().budget.as_basis_points()) * WHOLE / 10_000
    }

    fn is_rich(&self) -> bool {
        self.account.balance > 0
    }

    /// A trial of a licence may begin.
    fn is_paid(&self) -> bool {
        let is_free = self.account.level() == Level::Licensed;
        let has_credit = 4 * self.account.balance >= -3 * self.account.overdraft() * WHOLE;
        (is_free || has_credit) && !self.account.storming()
    }

    /// The largest licence that the budget allows.
    fn most(&self) -> i128 {
        ((self.share() + 1) * 160 / WHOLE).min(8)
    }

    // ---- the present stretch

    fn pauses(&self) -> i128 {
        let max_hold = self.longest_hold();
        let weight = |gap: &i128| match gap {
            gap if *gap > 16 * max_hold => 16,
            gap if *gap > 4 * max_hold => 4,
            gap if *gap > max_hold => 1,
            _ => 0,
        };
        self.gaps.iter().map(weight).sum()
    }

    fn took(&self) -> Took {
        let max_hold = self.longest_hold();
        let longest = self.longest.unwrap_or(max_hold);
        let short = || self.gaps.iter().filter(|gap| **gap <= max_hold);
        Took { limited: short().map(|gap| (*gap).min(longest)).sum(), whole: short().sum() }
    }

    fn is_frequent(&self) -> bool {
        let ticks = self.pauses() * self.longest_hold() + self.took().whole;
        ticks * 8 <= self.gaps.len() as i128 * self.longest_hold()
    }

    /// Completions take more than this of what they took with the licence in its last trial, if that is known.
    fn is_slower(&self, part: i128, whole: i128) -> bool {
        let slower = |then| self.took().limited * MEASURE as i128 * whole > then * self.gaps.len() as i128 * part;
        self.licensed.is_some_and(slower)
    }

    fn enter(&mut self, place: Place, length: usize) {
        (self.place, self.length) = (place, length);
        self.several = [false, self.several[0]];
        self.gaps.clear();
    }

    // ---- chance

    /// A Galois shift register of 16 bits, with taps at 16, 14, 13 and 11.
    fn roll(&mut self) {
        let out = self.dice % 2;
        self.dice /= 2;
        if out == 1 {
            for tap in [16, 14, 13, 11] {
                self.dice ^= 1 << (tap - 1);
            }
        }
    }

    fn begins_with_more(&self) -> bool {
        self.dice % 2 == 1
    }

    /// A check is against nothing.
    fn is_bare(&self) -> bool {
        self.dice / 2 % 2 == 1 && !self.suspended
    }

    // ---- pauses

    fn rest_a_while(&mut self) {
        self.roll();
        self.enter(Place::Pause, SETTLE + usize::from(self.dice) % MEASURE);
    }

    fn pause(&mut self) {
        let is_cut = matches!(self.question, Question::Cut | Question::Open);
        self.parts = PAUSE << if is_cut { self.rare_cut } else { self.rare };
        self.rest_a_while();
    }

    /// A stretch has ended, or a part of a pause.
    fn look(&mut self) {
        // Those that others made up for say nothing any more, and are too many to keep.
        self.account.ends = vec![End::Starved; self.account.starved()];
        match self.place {
            _ if self.account.has_failed() => self.end_early(),
            _ if self.account.is_unpaid => self.put_off(),
            Place::Pause => self.rest(),
            Place::Settle(number) => self.enter(Place::Measure(number), MEASURE),
            Place::Measure(number) => {
                self.stretches.push(self.took());
                if number < 3 {
                    self.enter(Place::Settle(number + 1), SETTLE);
                } else {
                    self.judge();
                }
            }
        }
        self.longest = Some(self.longest.unwrap_or(self.longest_hold()).min(self.longest_hold()));
    }

    fn rest(&mut self) {
        self.parts = self.parts.saturating_sub(1);
        let is_seen = self.limit > 1 && self.several[0];
        let is_slow = is_seen && !self.suspended && self.is_slower(3, 2);
        let is_another = is_seen && self.is_slower(4, 1);
        if (is_slow || is_another) && self.checks_are_certain() {
            saw("checks of another load");
            self.checks.clear();
        }
        if self.suspended {
            return self.wait_for_others();
        }
        if is_another {
            saw("a licence of another load");
            let limit = self.limit;
            self.lower(1);
            (self.tried, self.question, self.parts, self.rare) = (limit, Question::Cut, 0, 0);
        }
        let is_slow = is_slow && !is_another;
        let is_open = self.question == Question::Open && self.is_rich();
        let is_due = self.parts == 0 || is_slow || is_open;
        if !self.several[0] || !is_due {
            return self.enter(Place::Pause, MEASURE);
        }
        let goes_on = self.question == Question::Climb && !self.attempt.is_empty();
        let may_try = self.is_paid() && self.is_frequent();
        if goes_on && !may_try && !is_slow {
            saw("a climb has to wait");
            self.roll();
            if self.dice % 16 != 0 {
                return self.enter(Place::Pause, MEASURE);
            }
        }
        let other = if self.limit > 1 { Question::Check } else { Question::Cut };
        let turn = if self.question == Question::Climb && !goes_on { other } else { Question::Climb };
        if is_slow {
            saw("slow with a licence");
        }
        self.begin(if is_slow || lost_in_a_row(&self.checks) > 0 {
            Question::Check
        } else if is_open {
            Question::Cut
        } else if turn == Question::Climb && !(may_try && self.tried <= self.most()) {
            other
        } else {
            turn
        });
    }

    /// With a licence that is suspended: the check begins when others are outstanding, without a pause of the load.
    fn wait_for_others(&mut self) {
        if self.several[0] && self.pauses() == 0 {
            self.begin(Question::Check);
        } else if self.parts == 0 {
            saw("nobody came back");
            self.lower(1);
            self.pause();
        } else {
            self.enter(Place::Pause, MEASURE);
        }
    }

    // ---- trials

    fn begin(&mut self, question: Question) {
        self.question = question;
        self.stretches.clear();
        self.roll();
        self.enter(Place::Settle(0), SETTLE);
    }

    /// Whether the present stretch has more holding.
    fn has_more(&self) -> bool {
        match self.place {
            Place::Pause => false,
            Place::Settle(number) | Place::Measure(number) => {
                [false, true, true, false][number] != self.begins_with_more()
            }
        }
    }

    /// The stretches with less, and those with more, in their order.
    fn sorted(&self) -> ([Took; 2], [Took; 2]) {
        let [a, b, c, d] = self.stretches[..] else { unreachable!("a trial has four") };
        if self.begins_with_more() { ([b, c], [a, d]) } else { ([a, d], [b, c]) }
    }

    fn judge(&mut self) {
        let (less, _) = self.sorted();
        let usual = less.iter().map(|took| took.whole).sum::<i128>() / 8; // sixteen gaps of 128
        self.longest = Some(usual.max(1));
        match self.question {
            Question::Cut | Question::Open => self.judge_cut(),
            Question::Climb => self.judge_climb(),
            Question::Check => self.judge_check(),
        }
    }

    /// What a licence gained, of all that both took, rounded towards 0.
    fn gain(&self) -> i128 {
        let (less, more) = self.sorted();
        let [less, more] = [less, more].map(|[one, other]| one.limited + other.limited);
        256 * (less - more) / (less + more).max(1)
    }

    // ---- cuts

    /// Lost less won, neither more than four.
    fn evidence(&self) -> i128 {
        self.lost.iter().fold(0, |evidence, lost| (evidence + if *lost { 1 } else { -1 }).clamp(-4, 4))
    }

    fn is_accused(&self) -> bool {
        self.cuts < CUTS && self.evidence() > 0
    }

    fn judge_cut(&mut self) {
        let (less, more) = self.sorted();
        let longer = |more: Took, less: Took| more.limited * WHOLE > less.limited * (WHOLE + self.share());
        let halves = [longer(more[0], less[0]), longer(more[1], less[1])];
        if !self.is_rich() {
            saw("a cut in debt");
            (self.question, self.rare_cut) = (Question::Open, rarer(self.rare_cut));
            return self.pause();
        }
        if halves[0] != halves[1] {
            saw("halves differ");
            if self.is_accused() {
                self.rare_cut = rarer(self.rare_cut);
            }
            return self.pause();
        }
        let is_lost = halves[0];
        self.lost.push(is_lost);
        let holds = self.cuts < CUTS;
        let before = self.cuts;
        match self.evidence() {
            4 if holds => self.cuts += 1,
            -4 if !holds || self.rare_cut == RAREST => self.cuts = self.cuts.saturating_sub(1),
            _ => {}
        }
        if self.cuts != before {
            saw(if self.cuts > before { "cut" } else { "a cut is undone" });
            self.lost = if is_lost { vec![true] } else { vec![] };
            self.rare_cut = 0;
        } else if is_lost != holds {
            self.rare_cut = rarer(self.rare_cut);
        } else {
            self.rare_cut = self.rare_cut.saturating_sub(1);
        }
        self.pause();
        if self.is_accused() {
            (self.question, self.parts) = (Question::Open, 0);
        }
    }

    // ---- climbs

    fn worth(&self) -> i128 {
        if self.limit > 1 { FURTHER } else { FIRST }
    }

    /// Sum, sum of the squares, and number of the trials of this attempt.
    fn sums(&self) -> (i128, i128, i128) {
        let gains = || self.attempt.iter().flatten();
        (gains().sum(), gains().map(|gain| gain * gain).sum(), self.attempt.len() as i128)
    }

    fn judge_climb(&mut self) {
        self.attempt.push(Some(self.gain()));
        let (sum, squares, trials) = self.sums();
        let is_certain = sum >= trials * self.worth() && sum > 0 && sum * sum > (6 + i128::from(self.rare)) * squares;
        if !is_certain {
            return self.climb_on();
        }
        let (_, more) = self.sorted();
        saw(["a licence for 2", "a licence for 4", "a licence for 8"][self.tried.ilog2() as usize - 1]);
        self.patience = (self.attempt.len() / 4).max(2);
        (self.limit, self.tried, self.rare) = (self.tried, 2 * self.tried, 0);
        self.licensed = Some(more[1].limited).filter(|ticks| *ticks > 0);
        self.attempt.clear();
        self.checks.clear();
        self.pause();
    }

    fn larger(&self) -> Option<i128> {
        Some(2 * self.tried).filter(|larger| *larger <= self.most())
    }

    /// They lost, by more than chance.
    fn is_loss(&self) -> bool {
        let (sum, squares, _) = self.sums();
        sum < 0 && sum * sum > 2 * squares
    }

    /// Their gain is at least half of what is worth it.
    fn is_promising(&self, worth: i128) -> bool {
        let (sum, _, trials) = self.sums();
        2 * sum.max(0) >= trials * worth
    }

    fn climb_on(&mut self) {
        let (sum, squares, trials) = self.sums();
        let is_few = trials >= 6;
        let is_hopeless = trials >= 24 || self.is_loss() || is_few && !self.is_promising(self.worth());
        let may_be_chance = is_few && sum * sum <= 2 * squares;
        if is_hopeless || may_be_chance && self.larger().is_some() {
            self.give_up();
        } else {
            self.parts = 0;
            self.rest_a_while();
        }
    }

    fn give_up(&mut self) {
        let is_worth_a_larger = self.is_rich() || !self.is_loss();
        self.tried = self.larger().filter(|_| is_worth_a_larger).unwrap_or(2 * self.limit);
        saw(if self.tried > 2 * self.limit { "the next attempt is larger" } else { "a climb gives up" });
        self.attempt.clear();
        self.rare = rarer(self.rare);
        self.pause();
        if self.is_accused() && self.limit == 1 {
            saw("a cut after a climb in vain");
            self.parts = 0;
        }
    }

    /// The account could not pay for a trial.
    fn put_off(&mut self) {
        let (sum, _, trials) = self.sums();
        if sum < -trials * self.worth() {
            saw("a climb that lost ends unpaid");
            self.give_up();
        } else {
            self.enter(Place::Pause, MEASURE);
        }
    }

    // ---- checks

    fn judge_check(&mut self) {
        let (_, more) = self.sorted();
        self.suspended = false;
        self.checks.push(Some(self.gain()));
        let (sum, squares, trials) = remembered(&self.checks);
        let is_loss = sum < 0 && sum * sum > 2 * squares;
        let is_poor = trials >= 6 && 2 * sum.max(0) < trials * FIRST;
        let lost = lost_in_a_row(&self.checks);
        if lost >= self.patience || is_loss || is_poor {
            saw("a check halves the licence");
            self.lower(self.limit / 2);
            self.rare = if self.limit > 1 { 0 } else { 3 };
        } else if lost > 0 {
            saw("a check is lost");
            self.rare = 0;
        } else if self.checks_are_certain() {
            self.licensed = Some(more[1].limited).filter(|ticks| *ticks > 0);
            self.rare = rarer(self.rare);
        }
        self.pause();
    }

    fn checks_are_certain(&self) -> bool {
        let (sum, squares, trials) = remembered(&self.checks);
        sum > 0 && sum >= trials * FIRST && sum * sum > 6 * squares
    }

    /// The licence is for no more than `limit`.
    fn lower(&mut self, limit: i128) {
        (self.limit, self.tried, self.suspended) = (limit, 2 * limit, false);
        self.attempt.clear();
        self.checks.clear();
        self.rare = self.rare.min(1);
        if limit <= 1 {
            self.question = Question::Climb;
        }
    }

    /// A dozen holds starved.
    fn end_early(&mut self) {
        if self.place != Place::Pause && self.question == Question::Climb {
            saw("a climb starves");
            self.attempt.push(None);
            if self.limit == 1 {
                return self.climb_on();
            }
        } else if self.suspended {
            saw("a check after a suspension starves");
            self.checks.push(None);
            if lost_in_a_row(&self.checks) >= self.patience {
                self.lower(self.limit / 2);
            }
        }
        self.suspended = self.limit > 1;
        if self.suspended {
            saw("a licence is suspended");
        }
        self.parts = PAUSE;
        self.rest_a_while();
    }

    // ---- what may be held

    fn evidence_for_a_licence(&self) -> u8 {
        match self.attempt.len() {
            _ if self.limit > 1 => 3,
            trials if self.is_promising(FIRST) => trials.min(3) as u8,
            _ => 0,
        }
    }

    fn allowance(&self) -> Allowance {
        let evidence = self.evidence_for_a_licence();
        let rule = |level, shift, limit: i128| Allowance { level, shift, limit: limit as u8, evidence };
        let nothing = rule(Level::Nothing, 0, self.limit);
        let account = |cuts: u32| if cuts < CUTS { rule(Level::Strict, 2 * cuts as u8, self.limit) } else { nothing };
        let licence = rule(Level::Licensed, 0, self.limit);
        let in_force = match self.bypass {
            Some(_) => nothing,
            None if self.limit > 1 && !self.suspended => licence,
            None => account(self.cuts),
        };
        let is_first = self.limit == 1;
        match (self.place, self.question, self.has_more()) {
            (Place::Pause, ..) | (_, Question::Climb, false) => in_force,
            (_, Question::Climb, true) => rule(if is_first { Level::Trial } else { Level::Licensed }, 0, self.tried),
            (_, Question::Check, true) => licence,
            (_, Question::Check, false) if self.is_bare() => nothing,
            (_, Question::Check, false) => account(self.cuts),
            (_, Question::Cut | Question::Open, true) => account(self.cuts.min(CUTS - 1)),
            (_, Question::Cut | Question::Open, false) => nothing,
        }
    }

    // ---- the bypass

    /// Nothing is held until the next trial.
    fn is_cut_off(&self) -> bool {
        self.cuts == CUTS && self.limit == 1 && self.place == Place::Pause && self.parts > 0
    }

    /// One request at a time, and nothing that could be held for a number.
    fn is_alone(&self) -> bool {
        self.several == [false; 2] && self.limit == 1 && self.place == Place::Pause
    }

    /// A poll of the device found `found` completions. The mean of the last 64 counts, once nothing is held.
    fn note_poll(&mut self, now: u64, found: i128) {
        if self.polls.len() < 64 {
            self.polls.push(found.min(16));
        }
        if self.polls.len() < 64 || self.account.held_count() > 0 {
            return;
        }
        let is_large = self.polls.drain(..).sum::<i128>() >= 64 * 8;
        if !(is_large || self.is_alone() || self.is_cut_off()) || self.account.rules().storm.is_some() {
            return;
        }
        let is_for_one = self.is_alone();
        saw(match (is_for_one, is_large) {
            (true, _) => "bypass: alone",
            (_, true) => "bypass: large polls",
            _ => "bypass: cut off",
        });
        if self.is_cut_off() {
            self.parts = self.parts.saturating_sub(16);
        }
        self.begin_again();
        self.bypass = Some(Bypass { left: 1_024, is_for_one });
        self.account.rest(now, self.allowance());
    }

    fn pass(&mut self, now: u64, interrupts: u64, outstanding: u32) {
        self.last = now;
        self.several[0] |= outstanding > 1;
        self.bypass = self.bypass.and_then(|Bypass { left, is_for_one }| {
            let left = if is_for_one && outstanding > 1 { 0 } else { left.saturating_sub(interrupts) };
            Some(Bypass { left, is_for_one }).filter(|_| left > 0)
        });
    }

    /// A trial that has begun is made again.
    fn begin_again(&mut self) {
        (self.licensed, self.bypass) = (None, None);
        if self.account.has_failed() {
            self.end_early();
        } else {
            self.enter(Place::Pause, MEASURE);
        }
    }

    /// See [`budget_core::Auto::set_aside`].
    pub fn set_aside(&self, now: u64) -> Self {
        let mut aside = self.clone();
        aside.on_consumed(now);
        aside.begin_again();
        aside.account.rest(now, aside.allowance());
        aside
    }

    /// See [`budget_core::Auto::reconfigure`].
    pub fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let decision = coalesce_testkit::Tested::reconfigure(&mut self.account, choice, now)?;
        self.forget();
        self.account.allow(now, Allowance::STRICT);
        Some(decision)
    }

    // ---- calls

    fn outstanding(&self, completion: &Completion) -> u32 {
        completion.outstanding.max(completion.cif.saturating_add(self.account.held()))
    }

    fn observe(&mut self, now: u64, completion: &Completion) {
        self.several[0] |= self.outstanding(completion) > 1;
        self.gaps.push(now.saturating_sub(self.last).into());
        self.last = now;
        if self.gaps.len() < self.length {
            return;
        }
        let allowance = if self.bypass.is_some() {
            // A shell that asks all the same. What it has found now is of the bypass.
            self.enter(Place::Pause, MEASURE);
            let allowance = self.allowance();
            self.pass(now, 1, 0);
            allowance
        } else {
            self.look();
            self.allowance()
        };
        self.account.allow(now, allowance);
    }
}

impl Reference {
    /// Another policy is in force for a while.
    fn rest(&mut self, now: u64, allowance: Allowance) {
        self.allow(now, allowance);
        self.pass(now, 0, 0);
        (self.gap_counts, self.last) = (false, self.now - OLDEST);
    }
}

impl Policy for Auto {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.observe(now, completion);
        self.account.on_completion(now, completion)
    }

    /// One after the other, until one is delivered: its interrupt covers the rest.
    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        let mut decision = Decision::DeliverUrgent;
        for left in (0..=before).rev() {
            decision = self.on_completion(now, &last.preceding(left));
            if decision.is_deliver() && left > 0 {
                self.on_covered(now, left, last);
                break;
            }
        }
        if self.bypass.is_some() {
            self.pass(now, 1, self.outstanding(last));
        } else {
            self.note_poll(now, i128::from(before) + 1);
        }
        decision
    }

    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        self.account.pass_quietly(now);
        let interrupts = self.account.interrupts.len();
        for left in (0..left).rev() {
            let _ = self.on_completion(now, &last.preceding(left));
            if !self.account.is_by_number() {
                self.account.release();
            }
        }
        self.account.release();
        self.account.interrupts.truncate(interrupts);
    }

    fn on_bypassed(&mut self, now: u64, bypassed: &Bypassed) {
        self.account.pass(now, 0, 0);
        self.account.release();
        self.pass(now, (bypassed.interrupts + bypassed.suppressed).into(), bypassed.outstanding);
    }

    fn may_hold(&self) -> bool {
        self.bypass.is_none()
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.account.on_submit(now, submission)
    }

    fn reset_tracking(&mut self) {
        self.forget();
        self.account.reset_tracking();
    }

    fn spent(&self) -> Option<Spent> {
        self.account.spent()
    }

    forward!(self => self.account; deadline, on_deadline, flush, on_consumed, held, on_cancel);
}
