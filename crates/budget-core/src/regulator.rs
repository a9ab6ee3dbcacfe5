//! What the account does not see: holding may slow the requesters down by more than it holds, or make them faster.
//!
//! The account ends with the interrupt. A requester that falls asleep during a hold, and is slow to wake, loses more than
//! the hold. One whose host has too much to do gains, because interrupts are work. The time in which the commands complete
//! shows both.
//!
//! A trial compares more holding with less, by the time in which the commands complete. It has four stretches, with less, twice
//! with more, and with less again, or the other way round. Between trials is a pause, which doubles as long as trials find nothing new.
//!
//! ```text
//!            the pause is over, and more than one command was outstanding in its last part
//!   +-------+     +-------------------------------------------------------+
//!   | Pause | --> | a trial: Settle 0, Measure 0, Settle 1, ... Measure 3 | --> its question is judged
//!   +-------+     +-------------------------------------------------------+               |
//!       ^            | the core ends it: a dozen holds starved, or it is not paid for     |
//!       +------------+--------------------------------------------------------------------+
//! ```
//!
//! Which question follows which. *The other*: Cut, or Check with a licence. It also takes the place of Climb where a trial cannot be
//! paid for, completions are rare, or the budget allows no larger licence.
//!
//! ```text
//!   (new) --> Climb
//!   Climb --> Climb      not certain yet: at once
//!         --> the other  it gave a licence, or the attempt is given up: a cut at once if the account has lost more than it won
//!   Cut   --> Open       the account has lost more trials than it won, without a pause; or it was in debt, so the trial says nothing
//!         --> Climb      else
//!   Open  --> Cut        as soon as the account is not in debt
//!         --> Climb      the pause is over before that
//!   Check --> Check      it was lost, or completions are slow: at once
//!         --> Climb      else
//!
//!   no licence --(a climb is certain)--> in force --(a dozen holds starve)--> suspended
//!   in force, suspended --(checks are lost)--> half of it, or none
//!   in force --(completions are slower than with it by ANOTHER)--> none, and the next climb is for the same one
//!   suspended --(a check, as soon as others are outstanding)--> in force
//!   suspended --(nobody else comes for a pause)--> none
//! ```
//!
//! - *Cut*: the strict account or nothing? The account loses if its stretches were longer by more than the budget in both
//!   halves, and wins if they were longer in neither. When lost minus won is [`EVIDENCE`], ε is cut to a quarter; after [`CUTS`]
//!   cuts nothing is held. When won minus lost is as large, the cut to nothing is undone, and a smaller one only once the pause has
//!   reached its maximum.
//! - *Climb*: a licence for more completions for each interrupt, or what is in force? An attempt is repeated until its
//!   [`Sum`] is certain. It is given up if the sum is a loss, after [`TRIALS`] trials, after a [`FEW`] that are not promising, or, if a
//!   larger licence is left, that may be chance. What a small one does not gain a larger one may, so that is tried next. An attempt that
//!   lost is given up when the account cannot pay for its next trial; another one waits until it can.
//! - *Check*: the licence, or less? Less is the account, or by chance nothing, as a licence may have won only because the account
//!   harms. A check is lost if the stretches with the licence were not shorter by a sixteenth, or if it ends early after a suspension. A
//!   number of them in a row halves the licence, and so does a sum of the last ones that is not worth it. Where completions are slower
//!   than with the licence by [`SLOWER`], it is checked at once, and if the checks before were certain, they count no more.

use crate::account::product;
use crate::bypass::Bypass;
use crate::config::Config;
use crate::constants::{
    ANOTHER, BYPASS_WINDOWS, CERTAIN, CUT_SHIFT, CUTS, DECEIVED, EVIDENCE, EVIDENCE_MAX, FIRST, FURTHER, LICENSED_MAX,
    LICENSED_SHARE, LONG, MEASURE, PATIENCE, PATIENCE_OF_TRIALS, PAUSE, RARE_MAX, SETTLE, SHIFT, SLOWER, SPAN_MAX,
    STRETCHES,
};
#[cfg(doc)]
use crate::constants::{FEW, TRIALS};
use crate::level::{Allowance, Level};
use crate::stretch::Stretch;
use crate::sum::Sum;

/// The trials, what they have found, and what may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // in an order without a byte between them
pub(crate) struct Regulator {
    state: State,
    question: Question,
    several: u8, // bit 0: more than one command was outstanding at a time in this stretch; bit 1: in the last one
    cut: Cut,
    rare: u8,                    // the pause after a trial of a licence is 2^rare times the shortest
    windows: u16,                // that are left of the pause
    dice: u16,                   // how trials begin, so that no load that repeats itself is always in the same place
    licence: Licence,            // in force, or suspended
    climb: Sum,                  // the trials of this attempt
    length: u16,                 // completions after which the state is looked at
    bypass: Bypass,              // where nobody need be asked
    now: Stretch,                // the present one, or a part of a pause
    stretches: [u32; STRETCHES], // ticks of those of the trial
    longest: u32,                // ticks that a gap counts for at most
    less: u32,                   // ticks of the trial's stretches with less holding, excess and all
    last: u64,                   // the time of the last completion
}

/// What trials have found of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Cut {
    cuts: u8,     // ε is 4^-cuts of the budget; CUTS: nothing is held
    evidence: i8, // trials lost less trials won, within EVIDENCE
    rare: u8,     // the pause after one is 2^rare times the shortest
}

/// What trials have found of more holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Licence {
    limit: u8,          // completions for each interrupt; 1: there is none
    next: u8,           // of the licence that is tried
    patience: u8,       // as many checks lost in a row halve it
    is_suspended: bool, // until a check has shown that it pays
    ticks: u32,         // of its last stretch in a trial that was certain; 0: not known
    checks: Sum,        // the last ones
}

impl Cut {
    const NONE: Self = Self { cuts: 0, evidence: 0, rare: 0 };

    /// Whether nothing is held.
    const fn is_total(&self) -> bool {
        self.cuts >= CUTS
    }

    /// Whether the account holds, and has lost more trials than it won.
    const fn is_accused(&self) -> bool {
        !self.is_total() && self.evidence > 0
    }
}

impl Licence {
    const NONE: Self = Self { limit: 1, next: 2, patience: PATIENCE, is_suspended: false, ticks: 0, checks: Sum::NONE };

    const fn is_given(&self) -> bool {
        self.limit > 1
    }

    /// Whether enough checks speak against it to halve it.
    fn is_refuted(&self) -> bool {
        self.checks.lost >= self.patience || self.checks.is_hopeless(FIRST)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum State {
    /// Between trials.
    Pause,
    /// The requesters get used to the stretch with this number.
    Settle(u8),
    /// The time of the stretch is measured.
    Measure(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Question {
    Cut,
    /// A cut whose next trial is due as soon as the account is not in debt.
    Open,
    Climb,
    Check,
}

/// What the core knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The core has ended the licence, or its trial, because too many holds starved.
    pub(crate) has_failed: bool,
    /// The core has ended the trial of a licence, because it would cost too much.
    pub(crate) is_unpaid: bool,
    /// The account has more than nothing.
    pub(crate) is_rich: bool,
    /// A trial of a licence may begin: it is paid for, and there is no storm.
    pub(crate) may_try: bool,
}

impl Regulator {
    /// It has seen nothing.
    pub(crate) const NEW: Self = Self {
        state: State::Pause,
        question: Question::Cut,
        several: 0,
        cut: Cut::NONE,
        rare: 0,
        windows: 2, // in the first one the clock's start looks like a long gap
        dice: 1,
        licence: Licence::NONE,
        climb: Sum::NONE,
        length: SETTLE,
        bypass: Bypass::NONE,
        now: Stretch::NONE,
        stretches: [0; STRETCHES],
        longest: u32::MAX,
        less: 0,
        last: 0,
    };

    /// A command completed. Whether [`look`](Self::look) must be called.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: u64, outstanding: u32, max_hold: u32) -> bool {
        let gap = now.saturating_sub(core::mem::replace(&mut self.last, now));
        self.several |= u8::from(outstanding > 1);
        self.now.completions = self.now.completions.wrapping_add(1); // at most `length`
        if gap <= self.longest.into() {
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            let ticks = self.now.ticks.saturating_add(gap as u32);
            self.now.ticks = ticks;
        } else {
            self.now.note_long(gap, self.longest, max_hold);
        }
        self.now.completions >= self.length
    }

    /// Completions before the one at which it looks.
    pub(crate) const fn unseen(&self) -> u16 {
        self.length.saturating_sub(self.now.completions).saturating_sub(1)
    }

    /// [`advance`](Self::advance) for `count` completions of the same tick, fewer than it takes to [`look`](Self::look).
    pub(crate) fn advance_by(&mut self, count: u16, now: u64, outstanding: u32, max_hold: u32) {
        self.now.completions = self.now.completions.wrapping_add(count.wrapping_sub(1));
        self.advance(now, outstanding, max_hold);
    }

    /// A poll of the device completed this many commands. Whether a bypass may begin: not while completions are held.
    pub(crate) fn note_poll(&mut self, completed: u16, is_held: bool) -> bool {
        self.bypass
            .note_poll(completed, is_held)
            .is_some_and(|coalesces| coalesces || self.is_alone() || self.is_cut_off())
    }

    /// Whether nothing is held until the next trial, which is not due yet.
    fn is_cut_off(&self) -> bool {
        self.cut.is_total() && !self.licence.is_given() && self.state == State::Pause && self.windows > 0
    }

    /// Whether more than one command was outstanding at a time in this stretch, or this part of a pause.
    const fn has_company(&self) -> bool {
        self.several & 1 != 0
    }

    /// Whether there is nothing to decide and nothing to try.
    fn is_alone(&self) -> bool {
        self.several == 0 && !self.licence.is_given() && self.state == State::Pause
    }

    /// Begins a bypass. A trial that has begun is made again.
    pub(crate) fn begin_bypass(&mut self, known: Known, config: &Config) {
        let is_lone = self.is_alone();
        if self.is_cut_off() {
            self.windows = self.windows.saturating_sub(BYPASS_WINDOWS); // it is a part of the pause
        }
        self.set_aside(known, config);
        self.bypass.begin(is_lone);
    }

    /// Whether the policy is bypassed.
    #[inline]
    pub(crate) const fn is_bypassed(&self) -> bool {
        self.bypass.is_on()
    }

    /// This many interrupts of a bypass were sent, with this many commands outstanding at most. Completions may be held again from the
    /// first [`look`](Self::look) after the last one.
    pub(crate) fn pass(&mut self, now: u64, interrupts: u16, outstanding: u32) {
        self.last = now; // the bypass is no gap
        self.several |= u8::from(outstanding > 1);
        self.bypass.pass(interrupts, outstanding);
    }

    /// The factor of C0, less 1: the trials so far while they are promising, the maximum with a licence.
    fn speaks_for(&self) -> u8 {
        match self.climb {
            _ if self.licence.is_given() => EVIDENCE_MAX,
            sum if sum.is_promising(FIRST) => sum.trials,
            _ => 0,
        }
    }

    /// A stretch, or a part of a pause, is over.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, known: Known, config: &Config) -> Allowance {
        let now = Stretch { ticks: self.now.ticks.min(SPAN_MAX), ..self.now };
        match self.state {
            _ if self.is_bypassed() => {
                self.enter(State::Pause, MEASURE);
                let allowed = self.allowance(); // of this poll, too, if the bypass ends here
                self.pass(self.last, 1, 0); // a shell that asks anyway
                return allowed;
            }
            _ if known.has_failed => self.fail(known, config),
            _ if known.is_unpaid => self.put_off(known, config),
            State::Pause => self.rest(now, known, config),
            State::Settle(stretch) => self.enter(State::Measure(stretch), MEASURE),
            State::Measure(stretch) => {
                if let Some(place) = self.stretches.get_mut(usize::from(stretch)) {
                    *place = now.ticks;
                }
                if !self.has_more() {
                    self.less = self.less.saturating_add(now.whole());
                }
                let next = stretch.wrapping_add(1);
                if usize::from(next) < STRETCHES {
                    self.enter(State::Settle(next), SETTLE);
                } else {
                    self.judge(known, config);
                }
            }
        }
        self.longest = self.longest.min(config.max_hold); // what is longer is paused
        self.allowance()
    }

    /// Another policy is in force for a while, or a bypass: a trial that has begun is made again, and what comes after is not
    /// compared with the time that completions took with the licence before.
    pub(crate) fn set_aside(&mut self, known: Known, config: &Config) {
        self.licence.ticks = 0;
        self.bypass.end();
        if known.has_failed {
            self.fail(known, config);
        } else {
            self.enter(State::Pause, MEASURE);
        }
    }

    #[inline(never)] // 192 bytes less on a Cortex-M4
    fn enter(&mut self, state: State, length: u16) {
        (self.state, self.length, self.now) = (state, length, Stretch::NONE);
        self.several = self.several << 1 & 2;
    }

    /// A part of a pause, of a length that differs.
    fn rest_a_while(&mut self) {
        self.roll();
        self.enter(State::Pause, SETTLE.wrapping_add(self.dice & (MEASURE - 1)));
    }

    /// The pause after a question is answered.
    fn pause(&mut self) {
        let rare = match self.question {
            Question::Cut | Question::Open => self.cut.rare,
            Question::Climb | Question::Check => self.rare,
        };
        self.windows = PAUSE.wrapping_shl(rare.into());
        self.rest_a_while();
    }

    /// The core has ended a licence, or its trial, because nobody came any more.
    fn fail(&mut self, known: Known, config: &Config) {
        if self.state != State::Pause && self.question == Question::Climb {
            self.climb.trials = self.climb.trials.saturating_add(1); // one that gained nothing
            if !self.licence.is_given() {
                return self.climb_on(known, config);
            }
        } else if self.licence.is_suspended {
            self.licence.checks.lost = self.licence.checks.lost.saturating_add(1);
            self.halve_if_refuted();
        }
        self.licence.is_suspended = self.licence.is_given();
        self.windows = PAUSE;
        self.rest_a_while();
    }

    /// The account cannot pay for a trial of a licence. It is made again when it can, unless those before it lost.
    fn put_off(&mut self, known: Known, config: &Config) {
        if self.climb.is_worse(self.worth()) {
            self.give_up(known, config);
        } else {
            self.enter(State::Pause, MEASURE);
        }
    }

    /// A part of the pause is over, and the licence is suspended.
    fn wait_for_company(&mut self, now: Stretch) {
        if self.has_company() && now.paused == 0 {
            self.begin(Question::Check);
        } else if self.windows > 0 {
            self.enter(State::Pause, MEASURE);
        } else {
            self.lower_to(1);
            self.pause();
        }
    }

    /// Halves the licence, or ends it, if enough checks speak against it.
    fn halve_if_refuted(&mut self) -> bool {
        let is_refuted = self.licence.is_refuted();
        if is_refuted {
            self.lower_to(self.licence.limit >> 1);
        }
        is_refuted
    }

    /// The licence did not pay.
    fn lower_to(&mut self, limit: u8) {
        (self.licence.limit, self.licence.next) = (limit, limit.wrapping_mul(2));
        self.licence.is_suspended = false;
        (self.climb, self.licence.checks, self.rare) = (Sum::NONE, Sum::NONE, self.rare.min(1));
        if limit <= 1 {
            self.question = Question::Climb; // so the cut has the next turn: it may have won only because the account harms
        }
    }

    /// Completions are slower than with the licence before: the load is another one, for which trials have shown nothing. It climbs
    /// anew, to the same licence first, paid for as any other.
    fn withdraw(&mut self) {
        let limit = self.licence.limit;
        self.lower_to(1);
        (self.licence.next, self.question, self.windows, self.rare) = (limit, Question::Cut, 0, 0);
    }

    /// A part of the pause is over. A trial begins after the last one.
    fn rest(&mut self, now: Stretch, known: Known, config: &Config) {
        self.windows = self.windows.saturating_sub(1);
        let factor = if self.licence.is_suspended { ANOTHER } else { SLOWER };
        let is_slower = self.licence.is_given() && self.has_company() && now.is_slower_than(self.licence.ticks, factor);
        if is_slower && self.licence.checks.is_certain(FIRST, CERTAIN) {
            self.licence.checks = Sum::NONE; // they were of another load
        }
        if self.licence.is_suspended {
            return self.wait_for_company(now);
        }
        if is_slower && now.is_slower_than(self.licence.ticks, ANOTHER) {
            self.withdraw();
        }
        let is_licensed = self.licence.is_given();
        let is_slower = is_slower && is_licensed;
        let is_open = self.question == Question::Open && known.is_rich;
        if !self.has_company() || (self.windows > 0 && !is_slower && !is_open) {
            return self.enter(State::Pause, MEASURE);
        }
        let is_climbing = self.question == Question::Climb && self.climb.trials > 0;
        let may_try = known.may_try && self.now.is_frequent(config.max_hold); // the ticks of `now` have a limit
        if is_climbing && !may_try && !is_slower {
            // It goes on when it may. Meanwhile another question has its turn about once in PAUSE stretches.
            self.roll();
            if self.dice & (PAUSE - 1) != 0 {
                return self.enter(State::Pause, MEASURE);
            }
        }
        let may_climb = may_try && self.licence.next <= most(config);
        let otherwise = if is_licensed { Question::Check } else { Question::Cut };
        self.begin(match self.question {
            _ if is_slower || self.licence.checks.lost > 0 => Question::Check,
            _ if is_open => Question::Cut,
            Question::Climb if !is_climbing => otherwise, // they take turns
            _ if may_climb => Question::Climb,
            _ => otherwise,
        });
    }

    /// A trial begins.
    fn begin(&mut self, question: Question) {
        (self.question, self.less) = (question, 0);
        self.roll();
        self.enter(State::Settle(0), SETTLE);
    }

    /// The next of a sequence of 65 535 numbers that looks like chance (a linear feedback shift register).
    fn roll(&mut self) {
        let feedback = if self.dice & 1 != 0 { 0xB400 } else { 0 };
        self.dice = self.dice >> 1 ^ feedback;
    }

    /// Whether the trial begins and ends with more holding. The dice rest while it lasts.
    const fn more_first(&self) -> bool {
        self.dice & 1 != 0
    }

    /// Whether the stretch of a trial has more holding.
    fn has_more(&self) -> bool {
        matches!(self.state, State::Settle(1 | 2) | State::Measure(1 | 2)) != self.more_first()
    }

    /// Whether a check is against nothing, and not against the account.
    const fn is_bare(&self) -> bool {
        !self.licence.is_suspended && self.dice & 2 != 0
    }

    /// A trial has ended.
    fn judge(&mut self, known: Known, config: &Config) {
        self.longest = (self.less >> LONG).max(1);
        match self.question {
            Question::Cut | Question::Open => self.judge_cut(known, config),
            Question::Climb => self.judge_climb(known, config),
            Question::Check => {
                self.judge_check();
                self.pause();
            }
        }
    }

    /// The stretches, with those in the middle that had more holding.
    fn sorted(&self) -> [u32; STRETCHES] {
        let [a, b, c, d] = self.stretches;
        if self.more_first() { [b, a, d, c] } else { self.stretches }
    }

    /// Whether the stretches with more holding were longer than `part` / `whole` of those with less, in each half.
    fn is_longer(&self, (part, whole): (u32, u32)) -> (bool, bool) {
        let [less, more, more_again, less_again] = self.sorted();
        let is_longer = |more, less| product(whole, more) > product(part, less);
        (is_longer(more, less), is_longer(more_again, less_again))
    }

    fn judge_cut(&mut self, known: Known, config: &Config) {
        let whole = 1_u32 << SHIFT;
        let is_lost = match self.is_longer((whole.wrapping_add(config.epsilon.into()), whole)) {
            (first, second) if first == second && known.is_rich => first,
            _ => return self.leave_open(known),
        };
        self.cut.evidence =
            self.cut.evidence.saturating_add(if is_lost { 1 } else { -1 }).clamp(EVIDENCE.wrapping_neg(), EVIDENCE);
        let holds = !self.cut.is_total();
        let is_lead = self.cut.evidence == EVIDENCE;
        let is_won = self.cut.evidence == EVIDENCE.wrapping_neg();
        let cuts = match holds {
            true if is_lead => self.cut.cuts.wrapping_add(1),
            false if is_won => self.cut.cuts.wrapping_sub(1),
            true if is_won && self.cut.rare == RARE_MAX => self.cut.cuts.saturating_sub(1),
            _ => self.cut.cuts,
        };
        if cuts != self.cut.cuts {
            (self.cut.cuts, self.cut.evidence, self.cut.rare) = (cuts, is_lost.into(), 0);
        } else {
            self.cut.rare = if is_lost != holds { longer(self.cut.rare) } else { self.cut.rare.saturating_sub(1) };
        }
        self.pause();
        if self.cut.is_accused() {
            (self.question, self.windows) = (Question::Open, 0); // the next one follows at once
        }
    }

    /// A cut's trial says nothing: its halves differ, or the account is in debt and has held nothing.
    fn leave_open(&mut self, known: Known) {
        if !known.is_rich {
            (self.question, self.cut.rare) = (Question::Open, longer(self.cut.rare));
        } else if self.cut.is_accused() {
            self.cut.rare = longer(self.cut.rare);
        }
        self.pause();
    }

    fn judge_climb(&mut self, known: Known, config: &Config) {
        let stretches = self.sorted();
        self.climb.add(stretches);
        if self.climb.is_certain(self.worth(), CERTAIN.wrapping_add(self.rare.into())) {
            (self.licence.limit, self.licence.patience, self.rare) =
                (self.licence.next, PATIENCE.max(self.climb.trials >> PATIENCE_OF_TRIALS), 0);
            (self.licence.next, self.climb, self.licence.checks) =
                (self.licence.limit.wrapping_mul(2), Sum::NONE, Sum::NONE);
            [_, _, self.licence.ticks, _] = stretches;
            self.pause();
        } else {
            self.climb_on(known, config);
        }
    }

    /// The smallest mean gain that is worth the licence that is tried.
    fn worth(&self) -> u16 {
        if self.licence.is_given() { FURTHER } else { FIRST }
    }

    /// The licence that is tried after the present one gained nothing, if the budget allows one.
    fn larger(&self, config: &Config) -> Option<u8> {
        let larger = self.licence.next.wrapping_mul(2);
        (larger <= most(config)).then_some(larger)
    }

    /// What trials of a licence have found is not certain: another one, unless more are of no use.
    fn climb_on(&mut self, known: Known, config: &Config) {
        let has_larger = self.larger(config).is_some();
        if self.climb.is_hopeless(self.worth()) || (has_larger && self.climb.is_chance()) {
            self.give_up(known, config);
        } else {
            self.windows = 0;
            self.rest_a_while();
        }
    }

    /// An attempt has found no licence.
    fn give_up(&mut self, known: Known, config: &Config) {
        // After a loss a larger one is tried only if the account has credit, and so may hold as many by itself.
        let may_pay = known.is_rich || !self.climb.is_loss();
        self.licence.next = match self.larger(config) {
            Some(larger) if may_pay => larger,
            _ => self.licence.limit.wrapping_mul(2),
        };
        (self.climb, self.rare) = (Sum::NONE, longer(self.rare));
        self.pause();
        if self.cut.is_accused() && !self.licence.is_given() {
            self.windows = 0; // a cut has waited for this
        }
    }

    fn judge_check(&mut self) {
        let stretches = self.sorted();
        self.licence.is_suspended = false;
        self.licence.checks.forget_old();
        self.licence.checks.add(stretches);
        if self.halve_if_refuted() {
            self.rare = if self.licence.is_given() { 0 } else { DECEIVED };
            return;
        }
        if self.licence.checks.lost > 0 {
            self.rare = 0;
        } else if self.licence.checks.is_certain(FIRST, CERTAIN) {
            [_, _, self.licence.ticks, _] = stretches;
            self.rare = longer(self.rare);
        }
    }

    pub(crate) fn allowance(&self) -> Allowance {
        let strict = Allowance { limit: self.licence.limit, evidence: self.speaks_for(), ..Allowance::STRICT };
        let nothing = Allowance { level: Level::Nothing, ..strict };
        let licensed = Allowance { level: Level::Licensed, ..strict };
        let account = if self.cut.is_total() {
            nothing
        } else {
            Allowance { shift: self.cut.cuts.wrapping_mul(CUT_SHIFT), ..strict }
        };
        let in_force = match self.licence.is_given() && !self.licence.is_suspended {
            _ if self.is_bypassed() => nothing,
            true => licensed,
            false => account,
        };
        let has_more = self.has_more();
        match (self.state, self.question) {
            (State::Pause, _) => in_force,
            (_, Question::Climb) if has_more => {
                let level = if self.licence.is_given() { Level::Licensed } else { Level::Trial };
                Allowance { level, limit: self.licence.next, ..strict }
            }
            (_, Question::Climb) => in_force,
            (_, Question::Check) if has_more => licensed,
            (_, Question::Check) if self.is_bare() => nothing,
            (_, Question::Check) => account,
            (_, Question::Cut | Question::Open) if has_more => {
                Allowance { shift: self.cut.cuts.min(CUTS - 1).wrapping_mul(CUT_SHIFT), ..strict }
            }
            (_, Question::Cut | Question::Open) => nothing,
        }
    }
}

/// The pause becomes longer if a trial confirmed what was known.
const fn longer(rare: u8) -> u8 {
    if rare < RARE_MAX { rare.wrapping_add(1) } else { RARE_MAX }
}

/// The most completions for each interrupt that a licence may have.
fn most(config: &Config) -> u8 {
    let share = u32::from(config.epsilon).wrapping_add(1).wrapping_mul(LICENSED_SHARE) >> SHIFT; // ε is rounded down
    u8::try_from(share).unwrap_or(u8::MAX).min(LICENSED_MAX)
}
