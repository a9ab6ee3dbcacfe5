//! An executable reading of cinterrupts, to compare the machine with.
//!
//! Naive on purpose: it stores no number that it can derive. It keeps the list of completions since an interrupt last
//! covered everything, the list of all interrupts, the list of configurations that were in force and, for each
//! submitter group, the set of completed numbers. It derives the rest at each query. Its own time is an `i128` that
//! never goes backwards.

use cint_core::Event;
use coalesce_testkit::{
    Completion, Decision, HoldReason, Mark, Policy, Promises, Rate, Reason, Submission, Tested, Ticket, Urgent,
};
use std::collections::BTreeSet;

/// The storm guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storm {
    /// I, the shortest mean gap between interrupts: ceil(tick_hz / max rate) ticks.
    pub interval: u64,
    /// The weight of a sample is 2^-shift.
    pub shift: u8,
}

/// One configuration. Durations in ticks. Values are assumed valid (max_hold >= storm.interval where both are given).
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Ticks in a second; only compared.
    pub tick_hz: u64,
    /// Burst detection: from the last completion to the deadline; 0: no such deadline.
    pub delta: u64,
    /// The number of completions in a batch.
    pub thr: u16,
    /// Urgent completions interrupt alone.
    pub ooo: bool,
    /// From the first completion held to the deadline.
    pub max_hold: Option<u64>,
    /// The storm guard.
    pub storm: Option<Storm>,
    /// The in-flight rule's `cif_threshold`; `None`: rule off.
    pub in_flight: Option<u16>,
}

/// An instant in the model's own time.
type Instant = i128;

/// A completion since an interrupt last covered everything, or everything was consumed.
#[derive(Debug)]
struct Completed {
    at: Instant,
    /// Covered at once by an urgent interrupt: not held.
    alone: bool,
}

/// What the tracker of strict Barriers says about a finished (or aborted) command.
#[derive(Debug)]
enum Learned {
    /// No ticket.
    Untracked,
    /// Unknown, repeated, or from before a reset.
    Error,
    /// Tracked; some Barrier is due now.
    BarrierDue,
    /// Tracked; no Barrier is due.
    NothingDue,
}

/// One submitter group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// Numbers 0..issued were given out.
    issued: u64,
    /// Numbers 0..forgotten are from before the last reset.
    forgotten: u64,
    /// Numbers that completed or were aborted.
    finished: BTreeSet<u64>,
    /// Completed Barriers that were not due yet.
    waiting: BTreeSet<u64>,
}

impl Group {
    /// Everything below is finished or forgotten.
    fn low_water(&self) -> u64 {
        (self.forgotten..self.issued).find(|number| !self.finished.contains(number)).unwrap_or(self.issued)
    }

    fn submit(&mut self, capacity: u64) -> Option<u64> {
        if self.issued - self.low_water() >= capacity {
            return None;
        }
        self.issued += 1;
        Some(self.issued - 1)
    }

    fn finish(&mut self, number: u64, barrier: bool) -> Learned {
        if number >= self.issued || number < self.forgotten || self.finished.contains(&number) {
            return Learned::Error;
        }
        self.finished.insert(number);
        if barrier {
            self.waiting.insert(number);
        }
        let low_water = self.low_water();
        let before = self.waiting.len();
        self.waiting.retain(|&barrier| barrier >= low_water);
        if self.waiting.len() < before { Learned::BarrierDue } else { Learned::NothingDue }
    }

    fn reset(&mut self) {
        self.forgotten = self.issued;
        self.waiting.clear();
    }
}

/// The model.
#[derive(Debug)]
pub struct Reference {
    configurations: Vec<Params>,
    capacity: u64,
    groups: Vec<Group>,
    /// The configuration in force: an index into `configurations`.
    in_force: usize,
    /// The `now` of the previous call.
    previous: Option<u64>,
    /// Own time - external time.
    offset: i128,
    /// Completions since an interrupt last covered everything, or everything was consumed.
    completed: Vec<Completed>,
    /// The storm guard put a delivery off.
    put_off: bool,
    /// When every interrupt was, since ever.
    interrupts: Vec<Instant>,
    /// How many interrupts there had been when the storm values last changed.
    cold: usize,
}

impl Reference {
    /// Starts with `configurations[0]`; `Policy::reconfigure(choice)` switches to `configurations[choice]`.
    ///
    /// `groups` = 0: no strict Barriers. Otherwise groups `0..groups` exist, each with a window of `capacity` commands
    /// between the low-water mark and the newest.
    pub fn new(configurations: Vec<Params>, groups: u8, capacity: u64) -> Self {
        Self {
            configurations,
            capacity,
            groups: vec![Group::default(); usize::from(groups)],
            in_force: 0,
            previous: None,
            offset: 0,
            completed: vec![],
            put_off: false,
            interrupts: vec![],
            cold: 0,
        }
    }

    // ---- time

    /// Own time at the external `now`: time backwards is zero elapsed.
    fn clock(&mut self, now: u64) -> Instant {
        if let Some(previous) = self.previous.filter(|previous| now < *previous) {
            self.offset += i128::from(previous - now);
        }
        self.previous = Some(now);
        i128::from(now) + self.offset
    }

    /// An instant as it is reported: not after the end of the external clock.
    fn reported(&self, instant: Instant) -> Instant {
        instant.min(i128::from(u64::MAX) + self.offset)
    }

    // ---- what is derived from the lists

    fn now_in_force(&self) -> Params {
        self.configurations[self.in_force]
    }

    fn held_list(&self) -> impl Iterator<Item = &Completed> {
        self.completed.iter().filter(|completed| !completed.alone)
    }

    fn held_count(&self) -> usize {
        self.held_list().count()
    }

    /// Urgents that went out alone count once a plain one is held.
    fn batch(&self) -> usize {
        self.completed.iter().skip_while(|completed| completed.alone).count()
    }

    /// `last_completion + delta`, of what is held.
    fn delta_deadline(&self) -> Option<Instant> {
        let delta = self.now_in_force().delta;
        self.held_list().next()?;
        let last = self.completed.last()?.at;
        (delta > 0).then(|| last + i128::from(delta))
    }

    /// `first_held + max_hold`.
    fn max_hold_deadline(&self) -> Option<Instant> {
        let max_hold = self.now_in_force().max_hold?;
        let first = self.held_list().next()?.at;
        Some(first + i128::from(max_hold))
    }

    /// Where the clock has ended, all that was is equally long ago.
    fn is_delta_first(&self, delta_deadline: Instant, max_hold_deadline: Instant) -> bool {
        let Params { delta, max_hold, .. } = self.now_in_force();
        if self.previous == Some(u64::MAX) { Some(delta) <= max_hold } else { delta_deadline <= max_hold_deadline }
    }

    /// The own deadline of what is held, and its reason.
    fn own_deadline(&self) -> Option<(Instant, Reason)> {
        match (self.delta_deadline(), self.max_hold_deadline()) {
            (None, None) => None,
            (Some(delta), None) => Some((delta, Reason::Delta)),
            (None, Some(max_hold)) => Some((max_hold, Reason::MaxHold)),
            (Some(delta), Some(max_hold)) => {
                let reason = if self.is_delta_first(delta, max_hold) { Reason::Delta } else { Reason::MaxHold };
                Some((delta.min(max_hold), reason))
            }
        }
    }

    /// The gaps that are samples of the present average.
    fn gaps(&self) -> impl Iterator<Item = i128> {
        (self.cold.max(1)..self.interrupts.len()).map(|i| self.interrupts[i] - self.interrupts[i - 1])
    }

    fn storming(&self) -> bool {
        let Some(Storm { interval, shift }) = self.now_in_force().storm else { return false };
        let interval = i128::from(interval);
        let mut average = (2 * interval) << shift;
        let mut storming = false;
        for gap in self.gaps() {
            average -= average >> shift;
            average += gap.min(4 * interval);
            if average < interval << shift {
                storming = true;
            }
            if average > (2 * interval) << shift {
                storming = false;
            }
        }
        storming
    }

    /// While storming: the instant before which nothing paced goes out.
    fn pace(&self) -> Option<Instant> {
        if !self.storming() {
            return None;
        }
        let interval = self.now_in_force().storm?.interval;
        Some(*self.interrupts.last()? + i128::from(interval))
    }

    /// Something paced that is due now has to wait.
    fn must_wait(&self, now: Instant) -> bool {
        self.pace().is_some_and(|pace| now < pace)
    }

    /// The deadline and the reason of the interrupt it will give.
    fn due(&self) -> Option<(Instant, Reason)> {
        if self.held_count() == 0 {
            return None;
        }
        let pace = self.pace();
        if self.put_off {
            return Some((pace.expect("put off: storming"), Reason::Storm));
        }
        let (own, reason) = self.own_deadline()?;
        match pace {
            Some(pace) if own < pace => Some((pace, Reason::Storm)),
            _ => Some((own, reason)),
        }
    }

    fn expired(&self, now: Instant) -> Option<Reason> {
        self.due().filter(|(deadline, _)| self.reported(*deadline) <= now).map(|(_, reason)| reason)
    }

    // ---- what changes the lists

    /// One interrupt for everything posted.
    fn deliver(&mut self, now: Instant, reason: Reason) -> Decision {
        self.interrupts.push(now);
        self.forget_held();
        Decision::Deliver(reason)
    }

    fn forget_held(&mut self) {
        self.completed.clear();
        self.put_off = false;
    }

    fn complete(&mut self, now: Instant, alone: bool) {
        self.completed.push(Completed { at: now, alone });
    }

    fn learn(&mut self, ticket: Option<Ticket>, barrier: bool) -> Learned {
        let Some(ticket) = ticket else { return Learned::Untracked };
        let ticket = ticket.to_number();
        let (group, number) = (ticket >> 56, ticket & ((1 << 56) - 1));
        match self.groups.get_mut(group as usize) {
            Some(group) => group.finish(number, barrier),
            None => Learned::Error,
        }
    }

    /// What the completion would get if there were no storm guard; it is not in the list yet.
    fn wish(&self, completion: &Completion, learned: &Learned) -> Decision {
        let Params { thr, ooo, in_flight, .. } = self.now_in_force();
        match (completion.event(), learned) {
            (_, Learned::BarrierDue) | (Event::Barrier, Learned::Untracked) => {
                return Decision::Deliver(Reason::Barrier);
            }
            (Event::Urgent, _) if !ooo => return Decision::Deliver(Reason::Urgent),
            _ => {}
        }
        let alone = completion.event() == Event::Urgent;
        let held = self.held_count();
        if alone && held == 0 {
            return Decision::DeliverUrgent;
        }
        if self.batch() + 1 >= usize::from(thr) {
            return Decision::Deliver(Reason::Count);
        }
        if let Some(threshold) = in_flight {
            let (cif, threshold) = (u128::from(completion.cif), u128::from(threshold));
            let would_be_held = if alone { held as u128 } else { held as u128 + 1 };
            if cif < threshold || (would_be_held > 1 && would_be_held * 2 * threshold > cif) {
                return Decision::Deliver(Reason::InFlight);
            }
        }
        if alone { Decision::DeliverUrgent } else { Decision::Hold(HoldReason::Burst) }
    }
}

impl Policy for Reference {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let now = self.clock(now);
        let learned = self.learn(completion.mark.ticket, completion.event() == Event::Barrier);
        if let Some(reason) = self.expired(now) {
            return self.deliver(now, reason);
        }
        if let Learned::Error = learned {
            return self.deliver(now, Reason::Error);
        }
        let wish = self.wish(completion, &learned);
        if self.must_wait(now) {
            let is_due = !matches!(wish, Decision::Hold(_));
            let was_due = !self.put_off && self.own_deadline().is_some_and(|(own, _)| own <= now);
            self.complete(now, false);
            if is_due || was_due {
                self.put_off = true;
                return Decision::Hold(HoldReason::Storm);
            }
            return Decision::Hold(HoldReason::Burst);
        }
        match wish {
            Decision::Deliver(reason) => self.deliver(now, reason),
            Decision::DeliverUrgent => {
                self.interrupts.push(now);
                self.complete(now, true);
                wish
            }
            Decision::Hold(_) => {
                self.complete(now, false);
                wish
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        let (deadline, _) = self.due()?;
        Some((deadline - self.offset).clamp(0, i128::from(u64::MAX)) as u64)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        let now = self.clock(now);
        if self.held_count() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        match self.expired(now) {
            Some(reason) => self.deliver(now, reason),
            None => Decision::Hold(HoldReason::Early),
        }
    }

    fn flush(&mut self, now: u64) -> Decision {
        let now = self.clock(now);
        if self.held_count() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        self.deliver(now, Reason::Flush)
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        let now = self.clock(now);
        if self.held_count() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if let Some(reason) = self.expired(now) {
            return self.deliver(now, reason);
        }
        if self.now_in_force().delta > 0 {
            return Decision::Hold(HoldReason::Early);
        }
        if self.must_wait(now) {
            self.put_off = true;
            return Decision::Hold(HoldReason::Storm);
        }
        self.deliver(now, Reason::BatchEnd)
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        let now = self.clock(now);
        let learned = self.learn(mark.ticket, false);
        if self.held_count() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if let Some(reason) = self.expired(now) {
            return self.deliver(now, reason);
        }
        match learned {
            Learned::Error => self.deliver(now, Reason::Error),
            Learned::BarrierDue if self.must_wait(now) => {
                self.put_off = true;
                Decision::Hold(HoldReason::Storm)
            }
            Learned::BarrierDue => self.deliver(now, Reason::Barrier),
            Learned::Untracked | Learned::NothingDue => Decision::Hold(HoldReason::Cancelled),
        }
    }

    fn on_consumed(&mut self, now: u64) {
        self.clock(now);
        self.forget_held();
    }

    fn on_submit(&mut self, _: u64, &Submission { group, .. }: &Submission) -> Mark {
        let number = self.groups.get_mut(usize::from(group)).and_then(|group| group.submit(self.capacity));
        let ticket = number.map(|number| Ticket::from_number(u64::from(group) << 56 | number));
        Mark { ticket, ..Mark::default() }
    }

    fn reset_tracking(&mut self) {
        for group in &mut self.groups {
            group.reset();
        }
    }

    fn held(&self) -> u32 {
        self.held_count() as u32
    }
}

impl Tested for Reference {
    fn promises(&self) -> Promises {
        let Params { delta, thr, max_hold, storm, .. } = self.now_in_force();
        let by_delta = (delta > 0).then(|| u64::from(thr - 1).saturating_mul(delta));
        let interval = storm.map_or(0, |storm| storm.interval);
        let hold_max = max_hold.or(by_delta).map(|hold| hold.saturating_add(interval));
        Promises {
            hold_max,
            rate: storm.map(|Storm { interval, shift }| Rate { interval, burst: (2 << shift) + 2 }),
            urgent: if storm.is_some() { Urgent::InterruptsUnlessStorm } else { Urgent::Interrupts },
            unpaced: &[Reason::Flush, Reason::Error],
            needs_batch_end: delta == 0 && max_hold.is_none(),
            ..Promises::default()
        }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let old = self.now_in_force();
        let new = *self.configurations.get(usize::from(choice))?;
        if new.tick_hz != old.tick_hz {
            return None;
        }
        let now = self.clock(now);
        self.in_force = usize::from(choice);
        if new.storm != old.storm {
            self.cold = self.interrupts.len();
        }
        if self.held_count() == 0 {
            return Some(Decision::Hold(HoldReason::NothingHeld));
        }
        if self.put_off {
            return Some(self.deliver(now, Reason::Storm));
        }
        if let Some((_, reason)) = self.own_deadline().filter(|(own, _)| self.reported(*own) <= now) {
            return Some(self.deliver(now, reason));
        }
        if self.batch() >= usize::from(new.thr) {
            return Some(self.deliver(now, Reason::Count));
        }
        if self.own_deadline().is_none() {
            return Some(self.deliver(now, Reason::BatchEnd));
        }
        Some(Decision::Hold(HoldReason::Reconfigured))
    }
}
