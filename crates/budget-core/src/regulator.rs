//! What the account does not see: holding may slow the requesters down by more than it holds, or make them faster.
//!
//! The account ends with the interrupt. A requester that falls asleep during a hold, and is slow to wake, loses more than
//! the hold. One whose host has too much to do gains, because interrupts are work. The time in which the commands complete
//! shows both.

use crate::account::product;
use crate::config::Config;
use crate::constants::{EVIDENCE_MAX, LICENSED_MAX, LICENSED_SHARE, SHIFT, SPAN_MAX};
use crate::level::{Allowance, Level};
use coalesce_decision::ticks::divide;

/// Compares more holding with less, by the time in which the commands complete. A trial has four stretches, with less, twice
/// with more, and with less again, or the other way round, and is about one question:
///
/// - *cut*: the strict account or nothing? The account loses if its stretch was longer by more than the budget in both
///   halves, and wins if it was longer in neither. When lost minus won is [`EVIDENCE`], ε is cut to a quarter; after [`CUTS`]
///   cuts nothing is held. While more are lost than won, one that says so is followed by the next at once. When won minus lost is as
///   large, the last cut is undone, and an earlier cut only once the pause has reached its maximum. A trial with the account in debt
///   says nothing, as nothing was held. Another one is made as soon as it is not.
/// - *climb*: a licence for more completions for each interrupt, or what is in force? Trials are repeated until their
///   sum is certain ([`Sum`]) or a loss, [`TRIALS`] of them were not enough, or a [`FEW`], whose sum may be chance, while a larger
///   licence is left. What a small one does not gain a larger one may, so that is tried next. So it is where the account cannot pay
///   for a trial, and those before it lost.
/// - *check*: the licence or the account, or nothing? One of the two, by chance: a licence may have won only because the account
///   harms. The licence loses if its stretches were not shorter by a sixteenth. Two checks lost in a row halve it, or a quarter as
///   many as the trials that it took; and so does a sum of the last ones that is not worth it. Where the core has ended a licence,
///   a check brings it back, as soon as requesters come together again, or never. One that the core ends is lost, too.
///
/// Between trials is a pause, which doubles as long as trials find nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Regulator {
    state: State,
    question: Question,
    is_several: bool,   // more than one command was outstanding at a time since the last trial
    limit: u8,          // completions for each interrupt, of the licence; 1: there is none
    next: u8,           // of the licence that is tried
    cuts: u8,           // ε is 4^-cuts of the budget; CUTS: nothing is held
    evidence: i8,       // cut: trials lost less trials won, within EVIDENCE
    patience: u8,       // check: as many lost in a row halve the licence
    is_suspended: bool, // the licence, until a check has shown that it pays
    rare: u8,           // the pause after a trial of the licence is 2^rare times the shortest
    rare_cut: u8,       // after one of a cut
    windows: u16,       // that are left of the pause
    dice: u16,          // how trials begin, so that no load that repeats itself is always in the same place
    sum: Sum,           // climb: of the trials so far
    checks: Sum,        // of the last checks of this licence
    length: u16,        // completions after which the state is looked at
    bypass: u16,        // interrupts that are left of a bypass: nothing is held
    now: Stretch,
    licensed: u32,               // ticks of the last stretch with the licence that won; 0: not known
    stretches: [u32; STRETCHES], // ticks
    longest: u32,                // ticks that a gap counts for at most
    less: u32,                   // ticks of the trial's stretches with less holding, excess and all
    polls: u8,                   // counted so far,
    is_lone_bypass: bool,        // it ends when more than one command is outstanding
    completed: u16,              // the commands that those polls completed
    last: u64,                   // the time of the last completion
}

/// A number of completions, and the ticks that they took, without the gaps longer than `max_hold`, which are the load's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Stretch {
    completions: u16,
    paused: u16, // in longer gaps, each of which counts for 1, 4 or 16 times `max_hold`, the largest that it exceeds
    ticks: u32,
    excess: u32, // ticks of gaps beyond `longest`
}

/// What a number of trials found. Under noise that is as often up as down the square of a sum stays near the sum of the squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Sum {
    /// The parts of 256 of their time by which completions were faster with more holding.
    gains: i16,
    trials: u8,
    lost: u8, // in a row, the last ones: they gained less than FIRST
    squares: u32,
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
    /// A cut whose last trial said nothing, as the account was in debt.
    Open,
    Climb,
    Check,
}

/// What the core knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The core has ended the licence, or its trial.
    pub(crate) has_failed: bool,
    /// The core has ended the trial of a licence, because it would cost too much.
    pub(crate) is_unpaid: bool,
    /// The account has more than nothing.
    pub(crate) is_rich: bool,
    /// A trial of a licence may begin: it is paid for, and there is no storm.
    pub(crate) may_try: bool,
}

/// Stretches of a trial: less, more, more, less; or more, less, less, more. So a load that gets slower or faster by itself shows both.
const STRETCHES: usize = 4;
/// The lead of lost over won trials, or of won over lost ones, that cuts, or takes a cut back.
const EVIDENCE: i8 = 4;
/// The number of cuts of ε; after the last one nothing is held.
const CUTS: u8 = 3;
/// The threshold of a climb: the square of the summed gains over the sum of their squares. Each doubling of the pause raises it
/// by one, as a load that often gained nothing needs more evidence. CERTAIN + 1 equal gains exceed it.
const CERTAIN: u32 = 6;
/// Doublings of the pause after a licence that was given in vain.
const DECEIVED: u8 = 3;
/// An attempt ends after this many trials, or after a FEW if their mean gain is below half of FIRST or FURTHER.
const TRIALS: u8 = 24;
const FEW: u8 = 6;
/// A threshold like CERTAIN: up to here trials may be chance. In an emulated guest at depth 32 a trial for 2, 4, 8 gained 11, 33, 52
/// parts beside builds, with a standard deviation of 37, 41, 34: to be certain takes 70, 15, 9 trials. On a faster machine, where the
/// guest merges interrupts by itself, 10, 28, 58, with 24, 21, 21: 40, 9, 7 (2026-11-30).
const DOUBT: u32 = 2;
/// Checks lost in a row that halve a licence, at least; where it took many trials single ones say little.
const PATIENCE: u8 = 2;
/// The smallest gain, in parts of 256 (of half the difference), that is worth the first licence, and a further one.
const FIRST: u16 = 8;
const FURTHER: u16 = 4;
/// Lengths in completions.
const SETTLE: u16 = 16;
const MEASURE: u16 = 64;
/// A gap counts for at most 2^-LONG of what the completions with less holding took in the last trial: for sixteen of theirs, which is
/// twice what lies between two interrupts of the largest licence. Longer ones are other programs' time. Beside one that takes a CPU half
/// of the time this saves a third to a half of the trials. A smaller limit would save more, and hide a part of what holding costs.
const LONG: u32 = 3;
/// The shortest pause between trials, in stretches of MEASURE; it doubles at most RARE_MAX times.
const PAUSE: u16 = 16;
const RARE_MAX: u8 = 5;
/// A licence is tried where completions come, pauses included, at least 2^FREQUENT_SHIFT times in `max_hold`: with fewer an interrupt
/// for each costs little.
const FREQUENT_SHIFT: u32 = 3;
/// Where POLLS polls of a device complete at least BATCH commands each on average, which is what the largest licence waits for, they
/// coalesce enough by themselves: asking the policy costs more than it could save. It is bypassed for BYPASS interrupts. With 16 SPDK
/// lost a fifth of the IOPS of a malloc bdev at depth 32, whose polls complete up to 16 (2026-11-29). The same where the requester was
/// alone in all of them, until it is not, and where the account is cut to nothing, until the next trial.
const POLLS: u8 = 64;
const BATCH: u16 = LICENSED_MAX as u16;
const BYPASS_WINDOWS: u16 = 16; // of a pause
const BYPASS: u16 = BYPASS_WINDOWS * MEASURE;
/// A licence is looked at again at once if completions take 3/2 of the time that they took in the last trial that it won.
const SLOWER: (u32, u32) = (3, 2);

impl Stretch {
    const NONE: Self = Self { completions: 0, paused: 0, ticks: 0, excess: 0 };

    /// Whether completions come often enough for interrupts to matter. Long gaps count in part.
    fn is_frequent(self, max_hold: u32) -> bool {
        let ticks = product(self.paused.into(), max_hold).wrapping_add(self.whole().into());
        ticks << FREQUENT_SHIFT <= product(self.completions.into(), max_hold)
    }

    /// Whether completions took longer than SLOWER of the time of MEASURE others, if that is known.
    fn is_slower_than(self, ticks: u32) -> bool {
        let times = |completions: u16, times: u32| u32::from(completions).wrapping_mul(times);
        ticks > 0 && product(times(MEASURE, SLOWER.1), self.ticks) > product(times(self.completions, SLOWER.0), ticks)
    }

    /// The ticks of all gaps up to `max_hold`.
    fn whole(self) -> u32 {
        self.ticks.saturating_add(self.excess)
    }

    /// A gap that counts for `longest`, or is paused.
    #[cold]
    fn note_long(&mut self, gap: u64, longest: u32, max_hold: u32) {
        match u32::try_from(gap) {
            Ok(gap) if gap <= max_hold => {
                self.ticks = self.ticks.saturating_add(longest);
                self.excess = self.excess.saturating_add(gap.saturating_sub(longest));
            }
            _ => {
                let times = match u64::from(max_hold) {
                    max_hold if gap > max_hold << 4 => 16,
                    max_hold if gap > max_hold << 2 => 4,
                    _ => 1,
                };
                self.paused = self.paused.wrapping_add(times);
            }
        }
    }
}

impl Sum {
    const NONE: Self = Self { gains: 0, trials: 0, lost: 0, squares: 0 };

    /// One trial more.
    fn add(&mut self, [less, more, more_again, less_again]: [u32; STRETCHES]) {
        let ticks = |a: u32, b: u32| u64::from(a).wrapping_add(b.into());
        let (less, more) = (ticks(less, less_again), ticks(more, more_again));
        let size = divide(less.abs_diff(more) << 8, less.wrapping_add(more).max(1)).min(256) as u16;
        let gain = if less < more { (size as i16).wrapping_neg() } else { size as i16 };
        self.trials = self.trials.saturating_add(1);
        self.gains = self.gains.wrapping_add(gain);
        self.lost = if gain < FIRST as i16 { self.lost.wrapping_add(1) } else { 0 };
        self.squares = self.squares.wrapping_add(u32::from(size).wrapping_mul(size.into()));
    }

    /// The sum of the gains; 0: it is a loss.
    fn gained(self) -> u32 {
        self.gains.max(0).unsigned_abs().into()
    }

    /// Whether the sum, of gains or losses, stands out of the noise: its square over the sum of the squares is above a threshold.
    fn is_beyond(self, threshold: u32) -> bool {
        let gains = u32::from(self.gains.unsigned_abs());
        gains.wrapping_mul(gains) > self.squares.wrapping_mul(threshold)
    }

    /// Whether the trials found a gain that is worth it, and the sum stands out.
    fn is_certain(self, worth: u16, threshold: u32) -> bool {
        self.gained() >= u32::from(self.trials).wrapping_mul(worth.into()) && self.is_beyond(threshold)
    }

    /// Of many trials the old ones count half.
    const fn forget_old(&mut self) {
        if self.trials >= TRIALS >> 1 {
            (self.gains, self.trials, self.squares) = (self.gains >> 1, self.trials >> 1, self.squares >> 1);
        }
    }

    /// Whether the mean gain is at least half of what it is worth.
    fn is_promising(self, worth: u16) -> bool {
        self.gained().wrapping_mul(2) >= u32::from(self.trials).wrapping_mul(worth.into())
    }

    /// Whether it may be chance that the trials gained.
    fn is_chance(self) -> bool {
        self.trials >= FEW && !self.is_beyond(DOUBT)
    }

    /// Whether the trials lost, and not by chance.
    fn is_loss(self) -> bool {
        self.gains < 0 && self.is_beyond(DOUBT)
    }

    /// Whether the trials lost on average what they should gain.
    fn is_worse(self, worth: u16) -> bool {
        i32::from(self.gains) < i32::from(self.trials).wrapping_mul(worth.into()).wrapping_neg()
    }

    /// Whether more trials are of no use.
    fn is_hopeless(self, worth: u16) -> bool {
        self.trials >= TRIALS || self.is_loss() || (self.trials >= FEW && !self.is_promising(worth))
    }
}

impl Regulator {
    /// It has seen nothing.
    pub(crate) const NEW: Self = Self {
        state: State::Pause,
        question: Question::Cut,
        is_several: false,
        limit: 1,
        next: 2,
        cuts: 0,
        evidence: 0,
        patience: PATIENCE,
        is_suspended: false,
        rare: 0,
        rare_cut: 0,
        windows: 2, // in the first one the clock's start looks like a long gap
        dice: 1,
        sum: Sum::NONE,
        checks: Sum::NONE,
        length: SETTLE,
        bypass: 0,
        now: Stretch::NONE,
        licensed: 0,
        stretches: [0; STRETCHES],
        longest: u32::MAX,
        less: 0,
        polls: 0,
        is_lone_bypass: false,
        completed: 0,
        last: 0,
    };

    /// A command completed. Whether [`look`](Self::look) must be called.
    #[inline(always)]
    pub(crate) fn advance(&mut self, now: u64, outstanding: u32, max_hold: u32) -> bool {
        let gap = now.saturating_sub(core::mem::replace(&mut self.last, now));
        self.is_several |= outstanding > 1;
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
        if self.polls < POLLS {
            self.polls = self.polls.wrapping_add(1);
            self.completed = self.completed.wrapping_add(completed.min(BATCH << 1)); // so that a few large batches do not decide
        }
        if self.polls < POLLS || is_held {
            return false;
        }
        let coalesces = self.completed >= u16::from(POLLS).wrapping_mul(BATCH);
        (self.polls, self.completed) = (0, 0);
        coalesces || self.is_alone() || self.is_cut_off()
    }

    /// Whether nothing is held until the next trial, which is not due yet.
    fn is_cut_off(&self) -> bool {
        self.cuts >= CUTS && self.limit == 1 && self.state == State::Pause && self.windows > 0
    }

    /// Whether there is nothing to decide and nothing to try.
    fn is_alone(&self) -> bool {
        !self.is_several && self.limit == 1 && self.state == State::Pause
    }

    /// Begins a bypass. A trial that has begun is made again.
    pub(crate) fn begin_bypass(&mut self, known: Known, config: &Config) {
        self.is_lone_bypass = self.is_alone();
        if self.is_cut_off() {
            self.windows = self.windows.saturating_sub(BYPASS_WINDOWS); // it is a part of the pause
        }
        self.set_aside(known, config);
        self.bypass = BYPASS;
    }

    /// Whether the policy is bypassed.
    #[inline]
    pub(crate) const fn is_bypassed(&self) -> bool {
        self.bypass > 0
    }

    /// This many interrupts of a bypass were sent, with this many commands outstanding at most. Completions may be held again from the
    /// first [`look`](Self::look) after the last one.
    pub(crate) fn pass(&mut self, now: u64, interrupts: u16, outstanding: u32) {
        self.last = now; // the bypass is no gap
        self.is_several |= outstanding > 1;
        let has_company = self.is_lone_bypass && outstanding > 1;
        self.bypass = if has_company { 0 } else { self.bypass.saturating_sub(interrupts) };
    }

    /// The factor of C0, less 1: the trials so far while they are promising, the maximum with a licence.
    fn speaks_for(&self) -> u8 {
        match self.sum {
            _ if self.limit > 1 => EVIDENCE_MAX,
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

    /// Another policy is in force for a while: a trial that has begun is made again, and what comes after is no slower than what was
    /// before.
    pub(crate) fn set_aside(&mut self, known: Known, config: &Config) {
        (self.licensed, self.bypass) = (0, 0);
        if known.has_failed {
            self.fail(known, config);
        } else {
            self.enter(State::Pause, MEASURE);
        }
    }

    #[inline(never)] // 192 bytes less on a Cortex-M4
    fn enter(&mut self, state: State, length: u16) {
        (self.state, self.length, self.now) = (state, length, Stretch::NONE);
    }

    /// A part of a pause, of a length that differs.
    fn rest_a_while(&mut self) {
        self.roll();
        self.enter(State::Pause, SETTLE.wrapping_add(self.dice & (MEASURE - 1)));
    }

    /// The pause after a question is answered.
    fn pause(&mut self) {
        let rare = match self.question {
            Question::Cut | Question::Open => self.rare_cut,
            Question::Climb | Question::Check => self.rare,
        };
        self.windows = PAUSE.wrapping_shl(rare.into());
        self.rest_a_while();
    }

    /// The core has ended a licence, or its trial, because nobody came any more.
    fn fail(&mut self, known: Known, config: &Config) {
        self.is_several = false; // or the next trial would begin with requesters who may be alone
        if self.state != State::Pause && self.question == Question::Climb {
            self.sum.trials = self.sum.trials.saturating_add(1); // one that gained nothing
            if self.limit == 1 {
                return self.climb_on(known, config);
            }
        } else if self.is_suspended {
            self.checks.lost = self.checks.lost.saturating_add(1);
            if self.checks.lost >= self.patience {
                self.lower_to(self.limit >> 1);
            }
        }
        self.is_suspended = self.limit > 1;
        self.windows = PAUSE;
        self.rest_a_while();
    }

    /// The account cannot pay for a trial of a licence. It is made again when it can, unless those before it lost.
    fn put_off(&mut self, known: Known, config: &Config) {
        if self.sum.is_worse(self.worth()) {
            self.give_up(known, config);
        } else {
            self.enter(State::Pause, MEASURE);
        }
    }

    /// A part of the pause is over, and the licence is suspended.
    fn wait_for_company(&mut self, now: Stretch) {
        if self.is_several && now.paused == 0 {
            self.begin(Question::Check);
        } else if self.windows > 0 {
            self.is_several = false;
            self.enter(State::Pause, MEASURE);
        } else {
            self.lower_to(1);
            self.pause();
        }
    }

    /// The licence did not pay.
    fn lower_to(&mut self, limit: u8) {
        (self.limit, self.next) = (limit, limit.wrapping_mul(2));
        self.is_suspended = false;
        (self.sum, self.checks, self.rare) = (Sum::NONE, Sum::NONE, self.rare.min(1));
        if limit <= 1 {
            self.question = Question::Climb; // so the cut has the next turn: it may have won only because the account harms
        }
    }

    /// A part of the pause is over. A trial begins after the last one; at once if a licence no longer pays.
    fn rest(&mut self, now: Stretch, known: Known, config: &Config) {
        self.windows = self.windows.saturating_sub(1);
        if self.is_suspended {
            return self.wait_for_company(now);
        }
        let is_licensed = self.limit > 1;
        let is_slower = is_licensed && now.is_slower_than(self.licensed);
        let is_open = self.question == Question::Open && known.is_rich;
        if !self.is_several || (self.windows > 0 && !is_slower && !is_open) {
            return self.enter(State::Pause, MEASURE);
        }
        let is_climbing = self.question == Question::Climb && self.sum.trials > 0;
        let may_try = known.may_try && self.now.is_frequent(config.max_hold); // the ticks of `now` are cut off
        if is_climbing && !may_try && !is_slower {
            // It goes on when it may. Meanwhile another question has its turn about once in PAUSE stretches.
            self.roll();
            if self.dice & (PAUSE - 1) != 0 {
                return self.enter(State::Pause, MEASURE);
            }
        }
        let may_climb = may_try && self.next <= most(config);
        let otherwise = if is_licensed { Question::Check } else { Question::Cut };
        self.begin(match self.question {
            _ if is_slower || self.checks.lost > 0 => Question::Check,
            _ if self.is_accused() || is_open => Question::Cut,
            Question::Climb if !is_climbing => otherwise, // they take turns
            _ if may_climb => Question::Climb,
            _ => otherwise,
        });
    }

    /// A trial begins.
    fn begin(&mut self, question: Question) {
        (self.question, self.is_several, self.less) = (question, false, 0);
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
        !self.is_suspended && self.dice & 2 != 0
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

    /// Whether the last trial was a cut's, and the account has lost more of them than it won.
    fn is_accused(&self) -> bool {
        self.question == Question::Cut && self.cuts < CUTS && self.evidence > 0
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
        self.evidence =
            self.evidence.saturating_add(if is_lost { 1 } else { -1 }).clamp(EVIDENCE.wrapping_neg(), EVIDENCE);
        let holds = self.cuts < CUTS;
        let is_lead = self.evidence == EVIDENCE;
        let is_won = self.evidence == EVIDENCE.wrapping_neg();
        let cuts = match holds {
            true if is_lead => self.cuts.wrapping_add(1),
            false if is_won => self.cuts.wrapping_sub(1),
            true if is_won && self.rare_cut == RARE_MAX => self.cuts.saturating_sub(1),
            _ => self.cuts,
        };
        if cuts != self.cuts {
            (self.cuts, self.evidence, self.rare_cut) = (cuts, is_lost.into(), 0);
        } else {
            self.rare_cut = if is_lost != holds { longer(self.rare_cut) } else { self.rare_cut.saturating_sub(1) };
        }
        self.pause();
        if self.is_accused() {
            self.windows = 0; // the next one follows at once
        }
    }

    /// A cut's trial says nothing: its halves differ, or the account is in debt and has held nothing.
    fn leave_open(&mut self, known: Known) {
        if !known.is_rich {
            (self.question, self.rare_cut) = (Question::Open, longer(self.rare_cut));
        } else if self.is_accused() {
            self.rare_cut = longer(self.rare_cut);
        }
        self.pause();
    }

    fn judge_climb(&mut self, known: Known, config: &Config) {
        let stretches = self.sorted();
        self.sum.add(stretches);
        if self.sum.is_certain(self.worth(), CERTAIN.wrapping_add(self.rare.into())) {
            (self.limit, self.patience, self.rare) = (self.next, PATIENCE.max(self.sum.trials >> 2), 0);
            (self.next, self.sum, self.checks) = (self.limit.wrapping_mul(2), Sum::NONE, Sum::NONE);
            [_, _, self.licensed, _] = stretches;
            self.pause();
        } else {
            self.climb_on(known, config);
        }
    }

    /// The smallest mean gain that is worth the licence that is tried.
    fn worth(&self) -> u16 {
        if self.limit > 1 { FURTHER } else { FIRST }
    }

    /// The licence that is tried after the present one gained nothing, if the budget allows one.
    fn larger(&self, config: &Config) -> Option<u8> {
        let larger = self.next.wrapping_mul(2);
        (larger <= most(config)).then_some(larger)
    }

    /// What trials of a licence have found is not certain: another one, unless more are of no use.
    fn climb_on(&mut self, known: Known, config: &Config) {
        let has_larger = self.larger(config).is_some();
        if self.sum.is_hopeless(self.worth()) || (has_larger && self.sum.is_chance()) {
            self.give_up(known, config);
        } else {
            self.windows = 0;
            self.rest_a_while();
        }
    }

    /// An attempt has found no licence.
    fn give_up(&mut self, known: Known, config: &Config) {
        // The account alone may hold as many, where it sees the requests.
        let may_pay = known.is_rich || !self.sum.is_loss();
        self.next = match self.larger(config) {
            Some(larger) if may_pay => larger,
            _ => self.limit.wrapping_mul(2),
        };
        (self.sum, self.rare) = (Sum::NONE, longer(self.rare));
        self.pause();
    }

    fn judge_check(&mut self) {
        let stretches = self.sorted();
        self.is_suspended = false;
        self.checks.forget_old();
        self.checks.add(stretches);
        if self.checks.lost >= self.patience || self.checks.is_hopeless(FIRST) {
            self.lower_to(self.limit >> 1);
            self.rare = if self.limit > 1 { 0 } else { DECEIVED };
            return;
        }
        if self.checks.lost > 0 {
            self.rare = 0;
        } else {
            [_, _, self.licensed, _] = stretches;
            if self.checks.is_certain(FIRST, CERTAIN) {
                self.rare = longer(self.rare);
            }
        }
    }

    pub(crate) fn allowance(&self) -> Allowance {
        let is_cut = self.cuts >= CUTS;
        let strict = Allowance { limit: self.limit, evidence: self.speaks_for(), ..Allowance::STRICT };
        let nothing = Allowance { level: Level::Nothing, ..strict };
        let licensed = Allowance { level: Level::Licensed, ..strict };
        let account = if is_cut { nothing } else { Allowance { shift: self.cuts << 1, ..strict } };
        let in_force = match self.limit > 1 && !self.is_suspended {
            _ if self.is_bypassed() => nothing,
            true => licensed,
            false => account,
        };
        let has_more = self.has_more();
        match (self.state, self.question) {
            (State::Pause, _) => in_force,
            (_, Question::Climb) if has_more => {
                let level = if self.limit > 1 { Level::Licensed } else { Level::Trial };
                Allowance { level, limit: self.next, ..strict }
            }
            (_, Question::Climb) => in_force,
            (_, Question::Check) if has_more => licensed,
            (_, Question::Check) if self.is_bare() => nothing,
            (_, Question::Check) => account,
            (_, Question::Cut | Question::Open) if has_more => {
                Allowance { shift: if is_cut { CUTS.wrapping_sub(1) << 1 } else { self.cuts << 1 }, ..strict }
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
