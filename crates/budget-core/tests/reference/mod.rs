//! An executable reading of the documentation of a latency budget, to compare the machine with.
//!
//! Naive on purpose: its own time is an `i128` that never goes backwards, and what it remembers are instants: of every
//! submission since the account was settled, of every completion that is held, of the last one that counts for gaps, and of
//! every interrupt there was. Of the holds with a licence it remembers how each ended. Ages, deadlines, the storm and the limit
//! are derived from them at each query.
#![allow(dead_code, reason = "not everybody who compares asks all of it")]

pub mod auto;

use crate::machine::ALLOWANCES;
use budget_core::{Allowance, Event, Level, Share};
use coalesce_testkit::{
    Budget, Completion, Decision, HoldReason, Mark, Policy, Promises, Rate, Reason, Spent, Submission, Tested, Urgent,
};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The storm guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storm {
    /// I, the shortest mean gap between interrupts: ceil(tick_hz / max rate) ticks.
    pub interval: i128,
    /// The weight of a sample is 2^-shift.
    pub shift: u8,
}

/// One configuration, durations in ticks. Values are assumed valid.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Ticks in a second; only compared.
    pub tick_hz: u64,
    /// Of the requests' time.
    pub budget: Share,
    /// From the first completion held to the deadline.
    pub max_hold: i128,
    /// The most completions that one interrupt covers.
    pub thr: u16,
    /// Urgent completions interrupt alone.
    pub ooo: bool,
    /// The storm guard.
    pub storm: Option<Storm>,
}

impl From<&budget_core::Params> for Params {
    fn from(params: &budget_core::Params) -> Self {
        let budget_core::Params { tick_hz, budget, max_hold_ns, thr, ooo, storm } = *params;
        let max_hold = i128::from(max_hold_ns) * i128::from(tick_hz) / 1_000_000_000;
        let storm = storm.map(|storm| Storm { interval: tick_hz.div_ceil(storm.max_rate).into(), shift: storm.shift });
        Self { tick_hz, budget, max_hold: max_hold.max(1), thr, ooo, storm }
    }
}

/// Shares are parts of this.
const WHOLE: i128 = 16_384;
/// No more time than this passes between two calls.
const LONGEST: u64 = 536_870_912;
/// What is older than two such calls is as if it were so old.
const OLDEST: i128 = 2 * LONGEST as i128;
/// Commands are counted up to this.
const MOST: i128 = 65_535;

/// An instant in the model's own time.
type Instant = i128;

/// What somebody says about a command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Said {
    /// Nothing.
    Plain,
    /// Somebody waits for it.
    Urgent,
    /// It is the last of a batch.
    Barrier,
    /// It is unknown.
    Error,
}

impl From<&Completion> for Said {
    fn from(completion: &Completion) -> Self {
        match completion.event() {
            _ if completion.mark.ticket.is_some() => Self::Error, // nobody gave it
            Event::Plain => Self::Plain,
            Event::Urgent => Self::Urgent,
            Event::Barrier => Self::Barrier,
            Event::Error => Self::Error,
        }
    }
}

/// How a hold with a licence ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// There were as many as the limit says; or nothing was held, as its requester seemed to be alone, and somebody came.
    Filled,
    /// Nobody came any more, and nothing was in flight.
    Starved,
}

thread_local! {
    static SEEN: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

fn saw(what: &'static str) {
    SEEN.with_borrow_mut(|seen| *seen.entry(what).or_default() += 1);
}

/// That the references of this thread have reached what a test is for, and how often, since this was asked last.
pub fn assert_seen(expected: &[(&str, u64)]) {
    let seen = SEEN.take();
    println!("{seen:?}");
    let rare =
        expected.iter().filter(|(what, times)| seen.get(what).is_none_or(|seen| seen < times)).collect::<Vec<_>>();
    assert!(rare.is_empty(), "less often than {rare:?}: {seen:?}");
}

/// The model.
#[derive(Clone, Debug)]
pub struct Reference {
    configurations: Vec<Params>,
    /// The configuration in force: an index into `configurations`.
    in_force: usize,
    allowed: Allowance,
    /// How holds ended since the limit was given.
    ends: Vec<End>,
    /// A trial went too far into debt.
    is_unpaid: bool,
    /// The `now` of the last call that settled the account, and the same in own time.
    told: u64,
    now: Instant,
    /// Submitted, and not completed.
    in_flight: i128,
    /// Covered by interrupts, and not reaped.
    reaping: i128,
    /// Those in flight that were submitted since the account was settled: when, and how many.
    submitted: Vec<(Instant, i128)>,
    /// When each held completion was posted.
    held: Vec<Instant>,
    /// They wait for the storm guard only.
    deferred: bool,
    /// Urgents that went past those that are held.
    past: i128,
    /// When every interrupt was, and how many there had been when the guard began.
    interrupts: Vec<Instant>,
    guarded: usize,
    /// When the last completion was that ends a gap, and whether the next one does; eight usual gaps.
    last: Instant,
    gap_counts: bool,
    lonely: bool, // a hold by number ended because nobody came, and nobody has come soon after another since
    eight_gaps: i128,
    /// In requests * ticks / WHOLE.
    balance: i128,
    held_time: i128,
    request_time: i128,
}

impl Reference {
    /// Starts with `configurations[0]`; `Policy::reconfigure(choice)` switches to `configurations[choice]`, and the choices
    /// beyond them to the levels.
    pub fn new(configurations: &[budget_core::Params]) -> Self {
        Self {
            configurations: configurations.iter().map(Params::from).collect(),
            in_force: 0,
            allowed: Allowance::STRICT,
            ends: vec![],
            is_unpaid: false,
            told: 0,
            now: 0,
            in_flight: 0,
            reaping: 0,
            submitted: vec![],
            held: vec![],
            deferred: false,
            past: 0,
            interrupts: vec![],
            guarded: 0,
            last: -OLDEST,
            gap_counts: false,
            lonely: false,
            eight_gaps: 0,
            balance: 0,
            held_time: 0,
            request_time: 0,
        }
    }

    fn rules(&self) -> Params {
        self.configurations[self.in_force]
    }

    /// ε, in parts of `WHOLE`.
    fn epsilon(&self) -> i128 {
        (i128::from(self.rules().budget.as_basis_points()) * WHOLE / 10_000) >> self.allowed.shift.min(100)
    }

    fn held_count(&self) -> i128 {
        self.held.len() as i128
    }

    /// How long ago that was, as far as anybody remembers.
    fn age(&self, instant: Instant) -> i128 {
        (self.now - instant).min(OLDEST)
    }

    // ---- the account

    /// Time passes up to `now`. At its end `in_flight` have not completed, and `reaping` have not been reaped.
    fn pass(&mut self, now: u64, in_flight: i128, reaping: i128) {
        let elapsed = if now == u64::MAX { LONGEST } else { now.saturating_sub(self.told).min(LONGEST) };
        let (start, end) = (self.now, self.now + i128::from(elapsed));
        let forced = self.pace().map_or(0, |pace| pace.clamp(start, end) - start);

        let waiting = self.in_flight.min(in_flight) + self.reaping.min(reaping);
        let before: i128 = self.submitted.drain(..).map(|(since, count)| count * (since - start)).sum();
        let waited = (waiting * (end - start) - before).max(0);
        let epsilon = self.epsilon();
        let net = epsilon * waited - WHOLE * self.held_count() * (end - start - forced);
        if self.level() != Level::Licensed {
            let most =
                if net > 0 { self.balance.max(4 * self.rules().max_hold * epsilon * waiting) } else { self.balance };
            self.balance = (self.balance + net).min(most).clamp(i64::MIN.into(), i64::MAX.into());
        }
        self.held_time += self.held_count() * (end - start);
        self.request_time += waited + self.held_count() * (end - start);
        (self.told, self.now) = (now, end);
        (self.in_flight, self.reaping) = (in_flight, reaping);
    }

    /// Time passes in which nothing is known to change.
    fn pass_quietly(&mut self, now: u64) {
        self.pass(now, self.in_flight, 0);
    }

    /// What a trial may overdraw, in requests * ticks.
    fn overdraft(&self) -> i128 {
        let max_hold = self.rules().max_hold;
        let learned =
            (4 * max_hold + self.spent_time(self.request_time) / 128) * (i128::from(self.allowed.evidence.min(3)) + 1);
        learned.min(32 * max_hold)
    }

    fn spent_time(&self, time: i128) -> i128 {
        time.min(u64::MAX.into())
    }

    // ---- the storm guard

    fn storming(&self) -> bool {
        let Some(Storm { interval, shift }) = self.rules().storm else { return false };
        let (mut average, mut storming) = ((2 * interval) << shift, false);
        for i in self.guarded.max(1)..self.interrupts.len() {
            let gap = self.interrupts[i] - self.interrupts[i - 1];
            average += gap.min(4 * interval) - (average >> shift);
            storming = if storming { average <= (2 * interval) << shift } else { average < interval << shift };
        }
        storming
    }

    /// While storming: the instant before which nothing goes out.
    fn pace(&self) -> Option<Instant> {
        let interval = self.rules().storm?.interval;
        let last = self.remembered(*self.interrupts.last()?);
        self.storming().then_some(last + interval)
    }

    fn is_paced(&self) -> bool {
        self.pace().is_some_and(|pace| self.now < pace)
    }

    // ---- deadlines

    fn remembered(&self, instant: Instant) -> Instant {
        self.now - self.age(instant)
    }

    /// Without another completion for so long, none is expected.
    fn patience(&self) -> i128 {
        self.eight_gaps.max(1)
    }

    /// When it will have been silent for long enough.
    fn silence(&self) -> Instant {
        self.remembered(self.last) + self.patience()
    }

    /// When what is held is due, without the guard.
    fn own_due(&self) -> Option<(Instant, Reason)> {
        let (silence, max_hold) = (self.silence(), self.remembered(*self.held.first()?) + self.rules().max_hold);
        Some(if max_hold < silence { (max_hold, Reason::MaxHold) } else { (silence, Reason::Silence) })
    }

    fn due(&self) -> Option<(Instant, Reason)> {
        let own = self.own_due()?;
        match self.pace() {
            Some(pace) if self.deferred || own.0 < pace => Some((pace, Reason::Storm)),
            _ => Some(own),
        }
    }

    fn expired(&self) -> Option<Reason> {
        self.due().filter(|(due, _)| *due <= self.now).map(|(_, reason)| reason)
    }

    // ---- how holds end

    fn interrupt(&mut self, reason: Reason) -> Decision {
        self.release();
        self.signal();
        Decision::Deliver(reason)
    }

    fn signal(&mut self) {
        let before = self.storming();
        self.interrupts.push(self.now);
        if !before && self.storming() {
            saw("storm begins");
        }
    }

    fn release(&mut self) {
        self.held.clear();
        (self.past, self.deferred) = (0, false);
    }

    fn keep(&mut self, reason: HoldReason) -> Decision {
        self.held.push(self.now);
        Decision::Hold(reason)
    }

    /// Something is due, and the guard forbids it.
    fn defer(&mut self) {
        self.deferred = true;
    }

    /// A deadline ends a hold.
    fn end(&mut self, reason: Reason) -> Decision {
        let they_wait = self.in_flight == 0;
        let is_starved = they_wait && self.is_by_number() && reason != Reason::Storm;
        if is_starved {
            self.starve();
        }
        if is_starved || they_wait && reason == Reason::Silence {
            self.gap_counts = false;
        }
        self.interrupt(reason)
    }

    /// Why what is held is not worth it any more.
    fn broken(&self) -> Option<Reason> {
        let left = (self.remembered(self.last) + self.patience() - self.now).max(0);
        let is_too_dear = self.loss(self.held_count()) * left > self.balance;
        (!self.is_by_number() && is_too_dear).then_some(Reason::Budget)
    }

    /// What it costs to hold that many for a tick, less what those in flight pay.
    fn loss(&self, held: i128) -> i128 {
        held * WHOLE - self.epsilon() * self.in_flight
    }

    // ---- the licence

    /// How many an interrupt covers.
    pub fn limit(&self) -> u8 {
        self.allowed.limit
    }

    /// A hold ended because nobody came, or would have.
    fn starve(&mut self) {
        self.ends.push(End::Starved);
        saw("starved");
        if self.has_failed() {
            saw("failed");
        }
        self.lonely = !self.has_failed();
    }

    /// How many holds more starved than were filled.
    fn starved(&self) -> usize {
        let count = |starved: usize, end: &End| match end {
            End::Filled => starved.saturating_sub(1),
            End::Starved => starved + 1,
        };
        self.ends.iter().fold(0, count)
    }

    /// A dozen starved; after that none is counted.
    fn has_failed(&self) -> bool {
        self.starved() >= 12
    }

    /// The rule in force.
    pub fn level(&self) -> Level {
        let level = self.allowed.level;
        match level {
            Level::Trial | Level::Licensed if self.has_failed() || self.is_unpaid => Level::Strict,
            _ => level,
        }
    }

    fn is_by_number(&self) -> bool {
        matches!(self.level(), Level::Trial | Level::Licensed)
    }

    /// Commands are submitted.
    pub fn on_submits(&mut self, now: u64, count: u32) {
        let added = i128::from(count).min(MOST - self.in_flight);
        match now.checked_sub(self.told).filter(|since| *since < LONGEST) {
            Some(since) => self.submitted.push((self.now + i128::from(since), added)),
            None => self.pass_quietly(now),
        }
        self.in_flight += added;
    }

    // ---- decisions

    /// The decision about a completion, if there is no storm. `together`: with the one before.
    fn wish(&mut self, said: Said, outstanding: i128, together: bool) -> Decision {
        let Params { thr, ooo, .. } = self.rules();
        let held = self.held_count();
        let with_it = match said {
            Said::Error => unreachable!("not a wish"),
            Said::Barrier => return Decision::Deliver(Reason::Barrier),
            Said::Urgent if !ooo => return Decision::Deliver(Reason::Urgent),
            Said::Urgent if held == 0 => return Decision::DeliverUrgent,
            Said::Urgent => held,
            Said::Plain => held + 1,
        };
        let hold = |reason| match said {
            Said::Urgent => Decision::DeliverUrgent,
            _ => Decision::Hold(reason),
        };
        if held + self.past + 1 >= i128::from(thr) {
            return Decision::Deliver(Reason::Count);
        }
        let patience = self.patience();
        match self.level() {
            Level::Strict => {}
            Level::Nothing => return Decision::Deliver(Reason::Slowdown),
            Level::Trial if self.loss(with_it) * patience > self.balance + self.overdraft() * WHOLE => {
                saw("too dear a trial");
                (self.is_unpaid, self.lonely) = (true, false);
                return Decision::Deliver(Reason::Budget);
            }
            _ if self.lonely && self.in_flight == 0 => return Decision::Deliver(Reason::LowCif),
            level if with_it < self.limit().into() => {
                return hold(if level == Level::Trial { HoldReason::Probe } else { HoldReason::Licensed });
            }
            _ => {
                self.ends.push(End::Filled);
                return Decision::Deliver(Reason::Count);
            }
        }
        if outstanding <= with_it {
            return Decision::Deliver(Reason::LowCif);
        }
        let is_small = together || held * WHOLE < 2 * self.epsilon() * (self.in_flight + with_it);
        let is_paid = self.loss(with_it) * patience <= self.balance;
        if is_small && is_paid { hold(HoldReason::Company) } else { Decision::Deliver(Reason::Budget) }
    }

    /// A command completed: of `cif` in flight, and `outstanding` that are not reaped.
    pub fn complete(&mut self, now: u64, said: Said, cif: u32, outstanding: u32) -> Decision {
        counted(self.completed(now, said, cif, outstanding))
    }

    fn completed(&mut self, now: u64, said: Said, cif: u32, outstanding: u32) -> Decision {
        let cif = i128::from(cif).clamp(1, MOST);
        let known = (cif + self.held_count()).min(MOST);
        let outstanding = i128::from(outstanding).min(MOST).max(known);
        self.pass(now, cif, outstanding - known);
        let shared = self.expired().map(|reason| self.end(reason));
        let together = self.age(self.last) == 0;
        if said != Said::Urgent || !self.rules().ooo {
            let mut counts = self.gap_counts;
            if self.lonely {
                // One that was held had to wait for the interrupt.
                let since_interrupt = self.age(self.last) - if counts { 0 } else { self.patience() };
                if since_interrupt >= self.patience() && cif == 1 {
                    saw("alone");
                    self.starve();
                } else {
                    self.lonely = false;
                    if counts {
                        saw("not alone");
                        self.ends.push(End::Filled);
                    }
                }
                counts &= !self.lonely;
            }
            let parts = if self.is_by_number() { 32 } else { 8 };
            let gap = self.age(self.last).min(self.rules().max_hold / parts);
            if counts {
                let eighth = self.eight_gaps / 8;
                self.eight_gaps = if self.eight_gaps == 0 { 8 * gap } else { self.eight_gaps + gap - eighth };
            }
            (self.gap_counts, self.last) = (true, self.now);
        }
        self.in_flight = cif - 1;
        if let Some(decision) = shared {
            return decision;
        }
        if said == Said::Error {
            return self.interrupt(Reason::Error);
        }
        let wish =
            if self.deferred { Decision::Hold(HoldReason::Storm) } else { self.wish(said, outstanding, together) };
        match wish {
            Decision::Hold(reason) => self.keep(reason),
            _ if self.is_paced() => {
                self.defer();
                self.keep(HoldReason::Storm)
            }
            Decision::Deliver(reason) => self.interrupt(reason),
            Decision::DeliverUrgent => {
                self.past += i128::from(!self.held.is_empty());
                self.signal();
                wish
            }
        }
    }

    /// A command was aborted.
    pub fn abort(&mut self, now: u64, said: Said) -> Decision {
        let decision = self.aborted(now, said);
        if matches!(decision, Decision::Deliver(Reason::Budget)) {
            saw("broken by a cancel");
        }
        counted(decision)
    }

    fn aborted(&mut self, now: u64, said: Said) -> Decision {
        self.pass_quietly(now);
        if said != Said::Error {
            self.in_flight = (self.in_flight - 1).max(0);
        }
        if self.held.is_empty() {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if let Some(reason) = self.expired() {
            return self.end(reason);
        }
        match said {
            Said::Error => self.interrupt(Reason::Error),
            Said::Barrier if self.is_paced() => {
                self.defer();
                Decision::Hold(HoldReason::Storm)
            }
            Said::Barrier => self.interrupt(Reason::Barrier),
            Said::Plain | Said::Urgent => match self.broken() {
                Some(reason) if !self.is_paced() => self.interrupt(reason),
                _ => Decision::Hold(HoldReason::Cancelled),
            },
        }
    }

    /// Somebody outside decides how much may be held.
    pub fn allow(&mut self, now: u64, allowance: Allowance) {
        self.pass_quietly(now);
        if self.has_failed() || self.is_unpaid {
            self.ends.clear();
        }
        (self.allowed, self.is_unpaid) = (allowance, false);
        self.lonely &= self.is_by_number();
        if self.is_by_number() {
            self.eight_gaps = self.eight_gaps.min(self.rules().max_hold / 4);
        }
    }

    /// From its last call to this instant the clock goes round, at its end.
    pub fn goes_round(&self, now: u64) -> bool {
        now < self.told && now.wrapping_sub(self.told) < LONGEST
    }

    /// The guard is at work.
    pub fn is_storming(&self) -> bool {
        self.storming()
    }

    /// Before that the guard allows nothing.
    pub fn paced_until(&self) -> Option<u64> {
        let pace = self.pace().filter(|pace| *pace > self.now)?;
        Some(self.told.saturating_add((pace - self.now) as u64))
    }
}

/// Counts the decision, by its reason.
fn counted(decision: Decision) -> Decision {
    saw(decision.reason_name());
    decision
}

impl Policy for Reference {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, outstanding, .. } = *completion;
        self.complete(now, completion.into(), cif, outstanding)
    }

    fn deadline(&self) -> Option<u64> {
        let (due, _) = self.due()?;
        Some(self.told.saturating_add((due - self.now).max(0) as u64))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.pass_quietly(now);
        counted(match self.expired() {
            _ if self.held.is_empty() => Decision::Hold(HoldReason::NothingHeld),
            Some(reason) => self.end(reason),
            None => Decision::Hold(HoldReason::Early),
        })
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.pass_quietly(now);
        if self.held.is_empty() { Decision::Hold(HoldReason::NothingHeld) } else { self.interrupt(Reason::Flush) }
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.abort(now, if mark.ticket.is_some() { Said::Error } else { Said::Plain })
    }

    fn on_consumed(&mut self, now: u64) {
        self.pass_quietly(now);
        self.release();
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.on_submits(now, submission.count());
        Mark::default()
    }

    fn reset_tracking(&mut self) {
        if !self.held.is_empty() {
            saw("forgotten with some held");
        }
        (self.allowed, self.is_unpaid, self.lonely) = (Allowance::STRICT, false, false);
        self.ends.clear();
        (self.gap_counts, self.in_flight, self.last) = (false, 0, self.now - OLDEST);
    }

    fn held(&self) -> u32 {
        self.held.len() as u32
    }

    fn spent(&self) -> Option<Spent> {
        let [held, outstanding] = [self.spent_time(self.held_time) as u64, self.spent_time(self.request_time) as u64];
        Some(Spent { held, outstanding, learning: 0 })
    }
}

impl Tested for Reference {
    fn promises(&self) -> Promises {
        let Params { max_hold, storm, budget, .. } = self.rules();
        let interval = storm.map_or(0, |storm| storm.interval);
        let factor = i128::from(self.allowed.evidence.min(3)) + 1;
        Promises {
            hold_max: Some((max_hold + interval) as u64),
            rate: storm.map(|Storm { interval, shift }| Rate { interval: interval as u64, burst: (2 << shift) + 2 }),
            budget: (self.level() != Level::Licensed).then_some(Budget {
                share: budget,
                constant: (4 * max_hold * factor) as u64,
                growth: Share::basis_points(79 * factor as u16),
                constant_max: 32 * max_hold as u64,
                free_until: self.paced_until().unwrap_or(0),
            }),
            urgent: match storm {
                Some(_) => Urgent::InterruptsUnlessStorm,
                None => Urgent::Interrupts,
            },
            unpaced: &[Reason::Flush, Reason::Error],
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let Some(&new) = self.configurations.get(usize::from(choice)) else {
            let allowance = *ALLOWANCES.get(usize::from(choice) - self.configurations.len())?;
            self.allow(now, allowance);
            return Some(self.on_deadline(now));
        };
        let old = self.rules();
        if new.tick_hz != old.tick_hz {
            return None;
        }
        self.pass_quietly(now);
        self.in_force = usize::from(choice);
        self.allowed.shift = 0;
        if self.is_by_number() {
            self.eight_gaps = self.eight_gaps.min(new.max_hold / 4);
        }
        if new.storm != old.storm {
            self.guarded = self.interrupts.len();
        }
        let Some((due, reason)) = self.own_due() else { return Some(Decision::Hold(HoldReason::NothingHeld)) };
        Some(if self.deferred {
            self.interrupt(Reason::Storm)
        } else if due <= self.now {
            self.end(reason)
        } else if self.held_count() + self.past >= new.thr.into() {
            self.interrupt(Reason::Count)
        } else if let Some(reason) = self.broken() {
            saw("broken by a configuration");
            self.interrupt(reason)
        } else {
            Decision::Hold(HoldReason::Reconfigured)
        })
    }
}
