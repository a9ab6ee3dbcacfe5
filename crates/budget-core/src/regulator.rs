//! What the account does not see: holding may slow the requesters down by more than it holds, or make them faster.
//!
//! The account ends with the interrupt. A requester that falls asleep during a hold, and is slow to wake, loses more than
//! the hold. One whose host has too much to do gains, because interrupts are work. The time in which the commands complete
//! shows both.

use crate::algorithm::Level;
use crate::config::Config;
use crate::constants::{SHIFT, SPAN_MAX};

/// Compares holding with not holding, by the time in which the commands complete. A trial has four stretches, without
/// holding, twice with, and without, and is about one question:
///
/// - *cut*: the strict account is compared. It loses if its stretch was longer by more than twice the budget in both
///   halves, and wins if it was longer in neither. [`EVIDENCE`] more trials lost than won cut ε to a quarter, and after
///   [`CUTS`] cuts nothing is held. As many more won than lost take a cut back.
/// - *licence*: holding with a licence is compared, where the depth is proven. It wins if its stretch was shorter by a
///   sixteenth in both halves. [`LICENSED`] more trials won than lost give the licence; the first that makes the balance
///   negative takes it back.
///
/// Between trials is a pause, which doubles as long as trials find nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Regulator {
    state: State,
    question: Question,
    is_licensed: bool,
    was_proven: bool, // at the last look
    cuts: u8,         // ε is 4^-cuts of the budget; CUTS: nothing is held
    evidence: i8,     // cut: trials lost less trials won, within EVIDENCE
    balance: i8,      // licence: trials won less trials lost
    rare: u8,         // the pause between trials is 2^rare times the shortest
    windows: u16,     // that are left of the pause
    filler: [u8; 2],
    length: u32, // completions after which the state is looked at
    now: Stretch,
    stretches: [Stretch; STRETCHES],
    last: u64, // the time of the last completion
}

/// A number of completions, and the ticks that they took, without the silences longer than `max_hold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Stretch {
    completions: u32,
    ticks: u32,
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
    Licence,
}

/// What the regulator allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) level: Level,
    /// ε is 2^-shift of the budget.
    pub(crate) shift: u8,
    pub(crate) may_probe: bool,
    /// Two trials showed that a licence has no effect: what was taken for a depth is none.
    pub(crate) is_disproved: bool,
}

/// The core's knowledge of its requesters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// What the last probe found.
    pub(crate) found: u32,
    /// The depth, if it is proven, or 0.
    pub(crate) depth: u32,
}

/// Stretches of a trial: without holding, with, with, without. So a load that gets slower or faster by itself shows both.
const STRETCHES: usize = 4;
/// The lead of lost over won trials, or of won over lost ones, that cuts, or takes a cut back.
const EVIDENCE: i8 = 4;
/// The number of cuts of ε; after the last one nothing is held.
const CUTS: u8 = 3;
/// The lead of won over lost trials that gives a licence, and the lead of lost ones that disproves the depth.
const LICENSED: i8 = 2;
// Lengths in completions: a multiple of the depth, and a minimum.
const SETTLE: (u32, u32) = (2, 16);
const MEASURE: (u32, u32) = (8, 64);
/// The shortest pause between trials, in stretches of MEASURE; it doubles at most RARE_MAX times.
const PAUSE: u16 = 8;
const RARE_MAX: u8 = 5;
/// A licence wins with completions that take less than 16/17 of the time.
const FASTER: (u64, u64) = (17, 16);
/// A licence is looked at again at once if completions take 3/2 of the time that they took in its last trial.
const SLOWER: (u64, u64) = (3, 2);

impl Stretch {
    const NONE: Self = Self { completions: 0, ticks: 0 };

    /// Whether a completion took longer than `part` / `whole` of its time in `other`.
    fn is_longer(self, (part, whole): (u64, u64), other: Self) -> bool {
        // ticks below 2^29, completions below 2^20, parts below 2^15
        let product = |a: u32, b: u32, c: u64| u64::from(a).wrapping_mul(b.into()).wrapping_mul(c);
        product(self.ticks, other.completions, whole) > product(other.ticks, self.completions, part)
    }
}

impl Regulator {
    /// It has seen nothing.
    pub(crate) const NEW: Self = Self {
        state: State::Pause,
        question: Question::Cut,
        is_licensed: false,
        was_proven: false,
        cuts: 0,
        evidence: 0,
        balance: 0,
        rare: 0,
        windows: PAUSE,
        filler: [0; 2],
        length: MEASURE.1,
        now: Stretch::NONE,
        stretches: [Stretch::NONE; STRETCHES],
        last: 0,
    };

    /// A command completed. Whether [`look`](Self::look) must be called.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: u64, max_hold: u32) -> bool {
        let silence = now.saturating_sub(core::mem::replace(&mut self.last, now));
        self.now.completions = self.now.completions.saturating_add(1);
        if silence <= max_hold.into() {
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            let ticks = self.now.ticks.saturating_add(silence as u32); // longer silences are their own
            self.now.ticks = ticks;
        }
        self.now.completions >= self.length
    }

    /// A stretch, or a part of a pause, is over.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, known: Known, config: &Config) -> Allowance {
        let Stretch { completions, ticks } = self.now;
        let now = Stretch { completions: completions.min(1 << 20), ticks: ticks.min(SPAN_MAX) };
        let mut is_disproved = false;
        match self.state {
            State::Pause => self.rest(now, known),
            State::Settle(stretch) => self.enter(State::Measure(stretch), MEASURE, known),
            State::Measure(stretch) => {
                if let Some(place) = self.stretches.get_mut(usize::from(stretch)) {
                    *place = now;
                }
                let next = stretch.wrapping_add(1);
                if usize::from(next) < STRETCHES {
                    self.enter(State::Settle(next), SETTLE, known);
                } else {
                    is_disproved = self.judge(config, known);
                    self.enter(State::Pause, MEASURE, known);
                }
            }
        }
        Allowance { is_disproved, ..self.allowance() }
    }

    fn enter(&mut self, state: State, (factor, least): (u32, u32), known: Known) {
        let depth = known.depth.max(known.found);
        (self.state, self.length, self.now) = (state, depth.saturating_mul(factor).max(least), Stretch::NONE);
    }

    /// A part of the pause is over. A trial begins after the last one; at once if a depth was proven meanwhile, or if a
    /// licence no longer pays.
    fn rest(&mut self, now: Stretch, known: Known) {
        self.windows = self.windows.saturating_sub(1);
        let is_proven = known.depth > 0;
        let is_new = is_proven && !self.was_proven;
        self.was_proven = is_proven;
        let [_, licensed, _, _] = self.stretches;
        let is_slower = self.is_licensed && now.is_longer(SLOWER, licensed);
        let is_due = self.windows == 0 || is_new || is_slower;
        if !is_due || known.found.max(known.depth) <= 1 {
            return self.enter(State::Pause, MEASURE, known);
        }
        self.question = match self.question {
            _ if !is_proven => Question::Cut,
            _ if self.is_licensed || is_new || self.balance > 0 => Question::Licence,
            Question::Cut => Question::Licence,
            Question::Licence => Question::Cut,
        };
        self.enter(State::Settle(0), SETTLE, known);
    }

    /// A trial has ended. Whether it disproves the depth.
    fn judge(&mut self, config: &Config, known: Known) -> bool {
        let is_disproved = match self.question {
            Question::Cut => {
                self.judge_cut(config);
                false
            }
            Question::Licence => self.judge_licence(known),
        };
        let is_soon = self.question == Question::Licence && self.balance > 0 && !self.is_licensed;
        self.windows = if is_soon { 1 } else { PAUSE.wrapping_shl(self.rare.into()) };
        is_disproved
    }

    /// Whether the stretches with holding were longer than `part` / `whole` of those without, in each half.
    fn is_longer(&self, ratio: (u64, u64)) -> (bool, bool) {
        let [rest, hold, hold_again, rest_again] = self.stretches;
        (hold.is_longer(ratio, rest), hold_again.is_longer(ratio, rest_again))
    }

    fn judge_cut(&mut self, config: &Config) {
        let whole = 1_u64 << SHIFT;
        let is_lost = match self.is_longer((whole.wrapping_add(u64::from(config.epsilon) << 1), whole)) {
            (first, second) if first == second => first,
            _ => return, // it says nothing
        };
        self.evidence =
            self.evidence.saturating_add(if is_lost { 1 } else { -1 }).clamp(EVIDENCE.wrapping_neg(), EVIDENCE);
        let holds = self.cuts < CUTS;
        let is_lead = self.evidence == EVIDENCE;
        let is_won = self.evidence == EVIDENCE.wrapping_neg();
        let cuts = match holds {
            true if is_lead => self.cuts.wrapping_add(1),
            false if is_won => self.cuts.wrapping_sub(1),
            true if is_won && self.rare == RARE_MAX => self.cuts.saturating_sub(1),
            _ => self.cuts,
        };
        if cuts != self.cuts {
            (self.cuts, self.evidence, self.rare) = (cuts, 0, 0);
        } else {
            self.wait(is_lost != holds);
        }
    }

    fn judge_licence(&mut self, known: Known) -> bool {
        let [rest, hold, hold_again, rest_again] = self.stretches;
        let is_won = known.depth > 0 && rest.is_longer(FASTER, hold) && rest_again.is_longer(FASTER, hold_again);
        let was_licensed = self.is_licensed;
        self.balance =
            if is_won { self.balance.max(0).wrapping_add(1).min(LICENSED) } else { self.balance.wrapping_sub(1) };
        self.is_licensed = self.balance >= LICENSED || (was_licensed && self.balance >= 0);
        self.wait(is_won == was_licensed);
        let is_disproved = self.balance <= LICENSED.wrapping_neg();
        if is_disproved {
            (self.balance, self.was_proven) = (0, false);
        }
        is_disproved
    }

    /// The pause becomes longer if a trial confirmed what was known.
    fn wait(&mut self, is_confirmed: bool) {
        self.rare = if is_confirmed { self.rare.wrapping_add(1).min(RARE_MAX) } else { self.rare.saturating_sub(1) };
    }

    const fn allowance(&self) -> Allowance {
        let is_cut = self.cuts >= CUTS;
        let strict = Allowance {
            level: Level::Strict,
            shift: if is_cut { CUTS.wrapping_sub(1) << 1 } else { self.cuts << 1 },
            may_probe: false,
            is_disproved: false,
        };
        let licensed = Allowance { level: Level::Licensed, shift: 0, ..strict };
        let nothing = Allowance { level: Level::Nothing, ..strict };
        match (self.state, self.question) {
            (State::Pause, _) if self.is_licensed => Allowance { may_probe: true, ..licensed },
            (State::Pause, _) if is_cut => nothing,
            (State::Pause, _) => Allowance { may_probe: true, ..strict },
            (State::Settle(1 | 2) | State::Measure(1 | 2), Question::Licence) => licensed,
            (State::Settle(1 | 2) | State::Measure(1 | 2), Question::Cut) => strict,
            _ => nothing,
        }
    }
}
