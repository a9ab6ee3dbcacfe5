//! An executable reading of the documentation of a latency budget, to compare the machine with.
//!
//! Naive on purpose: its own time is an `i128` that never goes backwards, and what it remembers are instants: of every
//! completion that is held, of the last one that counts for gaps, and of every interrupt there was. Ages, deadlines, the
//! storm and the depth are derived from them at each query. The account is in whole numbers without a bound.

use coalesce_testkit::{Budget, Completion, Decision, Hint, Policy, Promises, Rate, Submission};

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
    /// In basis points (1/100 %).
    pub budget: u16,
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

impl Params {
    /// ε, in parts of `WHOLE`.
    fn epsilon(&self) -> i128 {
        i128::from(self.budget) * WHOLE / 10_000
    }
}

/// Shares are parts of this.
const WHOLE: i128 = 16_384;
/// No more time than this passes between two calls.
const LONGEST: u64 = 536_870_912;
/// What is older than two such calls is as if it were so old.
const OLDEST: i128 = 2 * LONGEST as i128;

/// An instant in the model's own time.
type Instant = i128;

/// What completions wait for.
#[derive(Clone, Copy, PartialEq)]
enum Waiting {
    Company,
    Silence,
    Guard,
}

/// What somebody says about a command.
#[derive(Clone, Copy, PartialEq)]
enum Said {
    Plain,
    Urgent,
    Barrier,
    Error,
}

/// What was learned about the requesters.
#[derive(Clone)]
struct Learned {
    /// What every probe found.
    found: Vec<i128>,
    /// How many of them no longer count, because the last of these was found to mislead.
    misled: usize,
    /// When those who come back from a probe submitted. `None`: none came back, or enough did.
    back: Option<Vec<Instant>>,
    /// Completions until the next probe is due.
    until_probe: i128,
    /// Probes in a row that found nothing to save.
    vain: u32,
    /// Holds in a row that nobody joined.
    lonely: u32,
    /// Completions with nothing else in flight that are not held, as nobody would join them.
    skip: i128,
    /// More than one was outstanding since the last probe.
    in_company: bool,
    /// There was a completion, and nobody waited for us since.
    busy: bool,
}

impl Learned {
    const NOTHING: Self = Self {
        found: vec![],
        misled: 0,
        back: None,
        until_probe: 16,
        vain: 0,
        lonely: 0,
        skip: 0,
        in_company: false,
        busy: false,
    };

    /// Moves only as far as two probes in a row agree.
    fn depth(&self) -> i128 {
        let finds = std::iter::once(&0).chain(&self.found[self.misled..]);
        finds.clone().zip(finds.skip(1)).fold(0, |depth, (&one, &two)| depth.clamp(one.min(two), one.max(two)))
    }
}

/// The model.
pub struct Reference {
    configurations: Vec<Params>,
    /// The configuration in force: an index into `configurations`.
    in_force: usize,
    /// The `now` of the previous call, and the same in own time.
    told: u64,
    now: Instant,
    /// Submitted and not reaped; of them, those that have not completed.
    outstanding: i128,
    in_flight: i128,
    /// When each held completion was posted.
    held: Vec<Instant>,
    waiting: Waiting,
    /// Urgents that went past those that are held.
    past: usize,
    /// When every interrupt was, and how many there had been when the guard began.
    interrupts: Vec<Instant>,
    guarded: usize,
    /// When the last completion was that ends a gap; eight usual gaps.
    last: Instant,
    eight_gaps: i128,
    learned: Learned,
    /// In requests * ticks / WHOLE.
    balance: i128,
    held_time: i128,
    outstanding_time: i128,
}

impl Reference {
    /// Starts with `configurations[0]`; `Policy::reconfigure(choice)` switches to `configurations[choice]`.
    pub fn new(configurations: &[budget_core::Params]) -> Self {
        Self {
            configurations: configurations.iter().map(Params::from).collect(),
            in_force: 0,
            told: 0,
            now: 0,
            outstanding: 0,
            in_flight: 0,
            held: vec![],
            waiting: Waiting::Company,
            past: 0,
            interrupts: vec![],
            guarded: 0,
            last: 0,
            eight_gaps: 0,
            learned: Learned::NOTHING,
            balance: 0,
            held_time: 0,
            outstanding_time: 0,
        }
    }

    fn rules(&self) -> Params {
        self.configurations[self.in_force]
    }

    fn held_count(&self) -> i128 {
        self.held.len() as i128
    }

    // ---- the account

    /// Time passes up to `now`; `outstanding` is the number at that time.
    fn pass(&mut self, now: u64, outstanding: i128) {
        let elapsed = if now == u64::MAX { LONGEST } else { now.saturating_sub(self.told).min(LONGEST) };
        let (start, end) = (self.now, self.now + i128::from(elapsed));
        let until = |instant: Instant| instant.clamp(start, end) - start;
        let goes_on = until(self.last + 2 * self.eight_gaps);
        let forced = self.pace().map_or(0, until);

        let seen = self.outstanding.min(outstanding);
        let request_ticks = seen * (end - start) + (self.learned.depth() - seen).max(0) * goes_on;
        let income = self.rules().epsilon() * request_ticks - WHOLE * self.held_count() * (end - start - forced);
        let earning = if goes_on > 0 { seen.max(self.learned.depth()) } else { seen };
        let savings = 4 * self.rules().epsilon() * earning * self.rules().max_hold;
        if income > 0 {
            self.balance = (self.balance + income).min(savings.max(self.balance));
        } else {
            self.balance += income;
        }
        self.held_time += self.held_count() * (end - start);
        self.outstanding_time += request_ticks;
        (self.told, self.now) = (now, end);
        self.count(outstanding);
    }

    fn count(&mut self, outstanding: i128) {
        self.outstanding = outstanding;
        self.learned.in_company |= outstanding > 1;
    }

    /// What a probe may overdraw.
    fn overdraft(&self) -> i128 {
        32 * self.rules().max_hold * WHOLE
    }

    // ---- the storm guard

    fn storming(&self) -> bool {
        let Some(Storm { interval, shift }) = self.rules().storm else { return false };
        let (mut average, mut storming) = ((2 * interval) << shift, false);
        for i in self.guarded..self.interrupts.len() {
            let gap = i.checked_sub(1).map_or(i128::MAX, |before| self.interrupts[i] - self.interrupts[before]);
            average += gap.min(4 * interval) - (average >> shift);
            storming = if storming { average <= (2 * interval) << shift } else { average < interval << shift };
        }
        storming
    }

    /// While storming: the instant before which nothing goes out.
    fn pace(&self) -> Option<Instant> {
        let interval = self.rules().storm?.interval;
        let last = *self.interrupts.last()?;
        self.storming().then_some(last + interval)
    }

    fn is_paced(&self) -> bool {
        self.pace().is_some_and(|pace| self.now < pace)
    }

    // ---- deadlines

    /// Nothing is held for longer than this without another completion.
    fn patience(&self) -> i128 {
        self.eight_gaps.max(1)
    }

    /// When what is held is due, without the guard.
    fn own_due(&self) -> Option<(Instant, &'static str)> {
        let remembered = |instant: Instant| instant.max(self.now - OLDEST);
        let silence = remembered(self.last) + self.patience();
        let max_hold = remembered(*self.held.first()?) + self.rules().max_hold;
        Some(if max_hold < silence { (max_hold, "max_hold") } else { (silence, "silence") })
    }

    fn due(&self) -> Option<(Instant, &'static str)> {
        let own = self.own_due()?;
        match self.pace() {
            Some(pace) if self.waiting == Waiting::Guard || own.0 < pace => Some((pace, "storm")),
            _ => Some(own),
        }
    }

    fn expired(&self) -> Option<&'static str> {
        self.due().filter(|(due, _)| *due <= self.now).map(|(_, reason)| reason)
    }

    // ---- decisions

    fn interrupt(&mut self, reason: &'static str) -> Decision {
        self.release();
        self.interrupts.push(self.now);
        Decision::Deliver(reason)
    }

    fn release(&mut self) {
        self.held.clear();
        self.past = 0;
        self.waiting = Waiting::Company;
    }

    fn keep(&mut self, reason: &'static str) -> Decision {
        if let (true, Some([first, ..])) = (self.held.is_empty(), self.learned.back.as_deref_mut()) {
            *first = self.now; // the machine has one place for both instants
        }
        self.held.push(self.now);
        Decision::Hold(reason)
    }

    /// A deadline ends a hold.
    fn end(&mut self, reason: &'static str) -> Decision {
        let everybody_waits = reason == "silence" && self.in_flight == 0;
        match self.waiting {
            Waiting::Silence if reason != "storm" => {
                self.probed(if everybody_waits { self.held_count() } else { 0 });
                if everybody_waits {
                    self.learned.back = Some(vec![]);
                }
            }
            _ if everybody_waits => {
                self.learned.lonely += 1;
                self.learned.skip = (1 << self.learned.lonely.min(10)) - 1;
            }
            _ => {}
        }
        if everybody_waits {
            self.learned.busy = false;
        }
        self.interrupt(reason)
    }

    /// A probe has `found` this number of commands; 0: it found no end.
    fn probed(&mut self, found: i128) {
        let before = self.learned.depth();
        self.learned.found.push(found);
        let is_settled = found == 0 || (found == self.learned.depth() && found == before);
        if is_settled {
            self.rest(self.held_count(), !self.saves(found));
        } else {
            self.learned.until_probe = (8 * found + 1).min(65_535);
        }
        self.learned.in_company = false;
    }

    /// With that number outstanding something could be held.
    fn saves(&self, found: i128) -> bool {
        2 * self.rules().epsilon() * found > WHOLE
    }

    /// It is long until the next probe, after one of `held` commands.
    fn rest(&mut self, held: i128, in_vain: bool) {
        self.learned.vain = (self.learned.vain + u32::from(in_vain)).min(6);
        self.learned.until_probe = (((128 * held) << self.learned.vain) + 1).min(65_535);
    }

    /// The first submissions after a probe tell whether those who come back had to queue.
    fn came_back(&mut self) {
        let now = self.now;
        let Some(back) = &mut self.learned.back else { return };
        back.push(now);
        let found = self.learned.found.last().copied().unwrap_or(0);
        let gaps = back.len() as i128 - 1;
        if gaps + 1 == found.clamp(2, 6) {
            let took = now - back[0];
            self.learned.back = None;
            if 5 * took < gaps * (self.eight_gaps / 4) {
                self.rest(found, true);
                self.learned.misled = self.learned.found.len();
            } else if self.saves(found) {
                self.learned.vain = 0;
            }
        }
    }

    /// Whether a probe goes on, or begins.
    fn probing(&mut self) -> bool {
        self.learned.until_probe = (self.learned.until_probe - 1).max(0);
        let is_due = self.learned.until_probe == 0 && self.held.is_empty();
        let is_alone = !self.learned.in_company && self.learned.depth() <= 1;
        let others_to_reap = self.outstanding > self.in_flight + 1;
        let is_in_debt = self.balance * 2 < -self.overdraft();
        if is_due && !is_alone && !others_to_reap && !is_in_debt && !self.storming() {
            self.waiting = Waiting::Silence;
        }
        self.waiting == Waiting::Silence
    }

    /// The decision about a completion, if there is no storm.
    fn wish(&mut self, said: Said, cif: i128) -> Decision {
        let Params { thr, ooo, .. } = self.rules();
        match said {
            Said::Error => return Decision::Deliver("error"),
            Said::Barrier => return Decision::Deliver("barrier"),
            Said::Urgent if !ooo => return Decision::Deliver("urgent"),
            Said::Urgent if self.held.is_empty() => return Decision::DeliverUrgent("urgent"),
            Said::Urgent | Said::Plain => {}
        }
        if self.held.len() + self.past + 1 >= usize::from(thr) {
            return Decision::Deliver("count");
        }
        let (will_be_held, yes) = match said {
            Said::Urgent => (self.held_count(), Decision::DeliverUrgent("urgent")),
            _ => (self.held_count() + 1, Decision::Hold("company")),
        };
        let price = WHOLE * will_be_held * self.patience();
        if self.probing() {
            if price > self.balance + self.overdraft() {
                self.probed(0);
                return Decision::Deliver("budget");
            }
            return yes;
        }
        if self.learned.back.is_some() || self.outstanding.max(self.learned.depth()) <= will_be_held {
            return Decision::Deliver("low_cif");
        }
        if cif <= 1 && self.learned.skip > 0 {
            self.learned.skip -= 1;
            return Decision::Deliver("low_cif");
        }
        let rate = self.rules().epsilon() * (self.in_flight + will_be_held).max(self.learned.depth());
        let is_new = self.held.last() != Some(&self.now); // and not found by the same poll
        if is_new && WHOLE * self.held_count() >= 2 * rate || price - rate * self.patience() > self.balance {
            return Decision::Deliver("budget");
        }
        yes
    }
}

impl Policy for Reference {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        let said = match completion {
            Completion { ticket: Some(_), .. } => Said::Error,
            Completion { hint: Hint::Plain, .. } => Said::Plain,
            Completion { hint: Hint::Urgent, .. } => Said::Urgent,
            Completion { hint: Hint::Barrier, .. } => Said::Barrier,
        };
        let (cif, outstanding) = (i128::from(completion.cif), i128::from(completion.outstanding));
        self.pass(now, outstanding.max(cif + self.held_count()));
        let shared = self.expired().map(|reason| self.end(reason));
        if said != Said::Urgent || !self.rules().ooo {
            let gap = (self.now - self.last).min(self.rules().max_hold / 8);
            if self.learned.busy {
                let eighth = self.eight_gaps / 8;
                self.eight_gaps = if self.eight_gaps == 0 { 8 * gap } else { self.eight_gaps + gap - eighth };
            }
            (self.learned.busy, self.last) = (true, self.now);
        }
        self.in_flight = cif - 1;
        if let Some(decision) = shared {
            return decision;
        }
        let waits_for_the_guard = self.waiting == Waiting::Guard && said != Said::Error;
        let wish = if waits_for_the_guard { Decision::Hold("storm") } else { self.wish(said, cif) };
        if self.is_paced() && said != Said::Error {
            return match wish {
                Decision::Hold(reason) => self.keep(reason),
                _ => {
                    self.waiting = Waiting::Guard;
                    self.keep("storm")
                }
            };
        }
        match wish {
            Decision::Hold(reason) => self.keep(reason),
            Decision::Deliver(reason) => self.interrupt(reason),
            Decision::DeliverUrgent(_) => {
                self.past += usize::from(!self.held.is_empty());
                self.interrupts.push(self.now);
                wish
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        let (due, _) = self.due()?;
        Some(self.told.saturating_add((due - self.now).max(0) as u64))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.pass(now, self.in_flight + self.held_count());
        match self.expired() {
            _ if self.held.is_empty() => Decision::Hold("nothing_held"),
            Some(reason) => self.end(reason),
            None => Decision::Hold("early"),
        }
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.pass(now, self.in_flight + self.held_count());
        if self.held.is_empty() { Decision::Hold("nothing_held") } else { self.interrupt("flush") }
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> Decision {
        self.pass(now, self.in_flight + self.held_count());
        if ticket.is_none() {
            self.in_flight = (self.in_flight - 1).max(0);
            self.outstanding = self.in_flight + self.held_count();
        }
        match self.expired() {
            _ if self.held.is_empty() => Decision::Hold("nothing_held"),
            Some(reason) => self.end(reason),
            None if ticket.is_some() => self.interrupt("error"),
            None => Decision::Hold("cancelled"),
        }
    }

    fn on_consumed(&mut self, now: u64) {
        self.pass(now, self.in_flight + self.held_count());
        self.release();
        self.outstanding = self.in_flight;
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let (old, new) = (self.rules(), *self.configurations.get(usize::from(choice))?);
        if new.tick_hz != old.tick_hz {
            return None;
        }
        self.pass(now, self.in_flight + self.held_count());
        self.in_force = usize::from(choice);
        if new.storm != old.storm {
            self.guarded = self.interrupts.len();
        }
        let Some((due, reason)) = self.own_due() else { return Some(Decision::Hold("nothing_held")) };
        Some(if self.waiting == Waiting::Guard {
            self.interrupt("storm")
        } else if due <= self.now {
            self.end(reason)
        } else if self.held.len() + self.past >= usize::from(new.thr) {
            self.interrupt("count")
        } else {
            Decision::Hold("reconfigured")
        })
    }

    fn on_submit(&mut self, now: u64, submission: Submission) -> Option<u64> {
        let before = (i128::from(submission.outstanding) - 1).max(self.in_flight + self.held_count());
        self.pass(now, before);
        if before > 0 && before == self.held_count() {
            self.learned.lonely = 0;
        }
        self.came_back();
        self.in_flight += 1;
        self.count(before + 1);
        None
    }

    fn reset_tracking(&mut self) {
        self.learned = Learned::NOTHING;
        if self.waiting == Waiting::Silence {
            self.waiting = Waiting::Company;
        }
        (self.in_flight, self.outstanding) = (0, self.held_count());
    }

    fn held(&self) -> Option<u64> {
        Some(self.held.len() as u64)
    }

    fn spent(&self) -> Option<(u64, u64)> {
        Some((self.held_time as u64, self.outstanding_time as u64))
    }

    fn promises(&self) -> Promises {
        let Params { max_hold, storm, budget, .. } = self.rules();
        let interval = storm.map_or(0, |storm| storm.interval);
        let pace = self.pace().filter(|pace| *pace > self.now);
        Promises {
            hold_max: Some((max_hold + interval) as u64),
            rate: storm.map(|Storm { interval, shift }| Rate { interval: interval as u64, burst: (2 << shift) + 2 }),
            budget: Some(Budget {
                share: budget,
                constant: 32 * max_hold as u64,
                depth: self.learned.depth() as u32,
                free_until: pace.map_or(0, |pace| self.told.saturating_add((pace - self.now) as u64)),
            }),
            unpaced: &["flush", "error"],
            ..Promises::default()
        }
    }
}
