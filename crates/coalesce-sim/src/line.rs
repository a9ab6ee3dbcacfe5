//! One interrupt line: runs the [`Delivery`] that targets run, over a simulated ring, and observes it.
//!
//! The engine and the replay of traces both report events to a line, and it decides when to interrupt. All times are true
//! ones, in ns; the clock that the delivery sees may jump.
//!
//! The completions that an interrupt covers are counted at the ring, and held ones at the ring and the policy. The
//! [`Checker`] thus finds a delivery that loses a completion, or asks the consumer too early.

mod ring;

use crate::check::{Checker, HeldTime, Verdict};
use crate::contender::{AnyDelivery, Contender};
use crate::event::{Event, State, Timeline, What};
use coalesce_delivery::Delivery;
use coalesce_policy::{
    Class, Completion, Decision, HintCounts, Mark, Policy as _, Reason, SpecError, Spent, Stats, Submission,
};
use hdrhistogram::Histogram;
use ring::{Completed, ConsumerRing, Delivered};
use std::convert::Infallible;

/// Delays are recorded up to this long, in ns.
const DELAY_MAX: u64 = 10_000_000_000;

/// Counts a duration in a histogram that grows as it must, as there may be thousands of them; what is longer than `max`
/// counts as that.
pub(crate) fn record(histogram: &mut Histogram<u64>, ns: u64, max: u64) {
    histogram.record(ns.min(max)).expect("it grows");
}

/// Interrupt now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Why.
    pub reason: Reason,
    /// The number of completions that it covers.
    pub covers: u32,
}

/// Takes completions of entries `T`, and interrupts.
#[derive(Debug)]
pub struct Line<T> {
    delivery: AnyDelivery<Completed<T>>,
    ring: ConsumerRing<T>,
    clock: i64, // the delivery's clock is so far ahead
    in_flight: u32,
    consumed: u64,
    delay: Histogram<u64>,
    held_time: u128,
    checker: Checker,
    spent_before: Spent, // until the statistics were reset
    budget: u16,         // in basis points; 0: none
    timeline: Option<Timeline>,
}

impl<T> Line<T> {
    /// A line with nothing in flight.
    ///
    /// # Errors
    /// A parameter that a clock in ns cannot carry.
    pub fn new(contender: &Contender) -> Result<Self, SpecError> {
        let (delivery, bound) = contender.delivery()?;
        Ok(Self {
            delivery,
            ring: ConsumerRing::default(),
            clock: 0,
            in_flight: 0,
            consumed: 0,
            delay: Histogram::new(3).expect("three digits are allowed"),
            held_time: 0,
            checker: Checker::new(bound, contender.promised_budget()),
            spent_before: Spent::default(),
            budget: contender.budget().unwrap_or(0),
            timeline: None,
        })
    }

    /// From now on the consumer suppresses interrupts while its handler runs, as with EVENT_IDX.
    pub const fn suppress_interrupts(&mut self) {
        self.ring.suppress_interrupts();
    }

    /// From now on keeps events for a report.
    pub fn keep(&mut self, timeline: Timeline) {
        self.timeline = Some(timeline);
    }

    /// A command is submitted. How many are outstanding is known here.
    pub fn submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.in_flight += 1;
        let there = self.delivery_time(now);
        self.delivery.on_submit(there, &Submission { outstanding: self.outstanding(), ..*submission })
    }

    /// A command completed, posted as `entry`. `slice_end`: when the guest's timeslice ends, if it is known. One whose
    /// submission was not seen counts itself as in flight.
    pub fn complete(
        &mut self,
        now: u64,
        mark: Mark,
        class: Class,
        slice_end: Option<u64>,
        entry: T,
    ) -> Option<Interrupt> {
        let cif = self.in_flight.max(1);
        self.in_flight = cif;
        let outstanding = self.outstanding();
        self.in_flight = cif - 1;
        self.see(now, What::Completion { hint: self.delivery.policy().mark_at(mark, cif).event, cif });
        let slice_end = slice_end.map(|end| self.delivery_time(end));
        let completion = Completion { mark, cif, outstanding, class, slice_end };
        let there = self.delivery_time(now);
        let decision = self.delivery.complete(&mut self.ring, there, (now, entry), &completion);
        self.observe(now, decision)
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.delivery.deadline().map(|deadline| deadline.saturating_add_signed(-self.clock))
    }

    /// The deadline has passed. A policy that holds on all the same, and names no later one, breaks a rule.
    pub fn on_deadline(&mut self, now: u64) -> Option<Interrupt> {
        self.see(now, What::Deadline);
        let (there, before) = (self.delivery_time(now), self.delivery.deadline());
        let decision = self.delivery.on_deadline(&mut self.ring, there);
        if let (Some(deadline), Ok(Decision::Hold(reason))) = (before, decision)
            && deadline <= there
            && self.is_due(now)
        {
            let answer = format!("on_deadline({there}) answered Hold({})", reason.name());
            self.checker.wrong(now, format!("the deadline was {deadline}, {answer}"));
        }
        self.observe(now, decision)
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether [`on_batch_end`](Self::on_batch_end) must be called after each poll of the device.
    #[must_use]
    pub fn wants_batch_end(&self) -> bool {
        self.delivery.policy().wants_batch_end()
    }

    /// The device has posted all it had.
    pub fn on_batch_end(&mut self, now: u64) -> Option<Interrupt> {
        self.see(now, What::BatchEnd);
        let there = self.delivery_time(now);
        let decision = self.delivery.on_batch_end(&mut self.ring, there).transpose()?;
        self.observe(now, decision)
    }

    /// The guest has been put on a CPU.
    pub fn on_schedule(&mut self, now: u64) -> Option<Interrupt> {
        self.call(now, What::Other, Delivery::on_schedule)
    }

    /// The guest is taken off its CPU.
    pub fn on_deschedule(&mut self, now: u64) -> Option<Interrupt> {
        self.call(now, What::Other, Delivery::on_deschedule)
    }

    /// Delivers everything held: for a queue stop, a reset, or the end of a trace.
    pub fn flush(&mut self, now: u64) -> Option<Interrupt> {
        self.call(now, What::Other, Delivery::flush)
    }

    /// A command was aborted and will not complete.
    pub fn cancel(&mut self, now: u64, mark: Mark) -> Option<Interrupt> {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.call(now, What::Other, |delivery, ring, now| delivery.cancel(ring, now, mark))
    }

    /// A command has completed, and nobody saw when. That is no abort, for which a policy delivers what it holds: it learns
    /// from the next completion how many are in flight. One that tracks each command waits for this one until it is told.
    pub fn lose(&mut self, now: u64, mark: Mark) -> Option<Interrupt> {
        if mark.ticket.is_some() {
            return self.cancel(now, mark);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        None
    }

    /// Resets the queue: no command is in flight any more. Delivers everything held.
    pub fn reset(&mut self, now: u64) -> Option<Interrupt> {
        self.in_flight = 0;
        self.call(now, What::Other, Delivery::reset)
    }

    /// The consumer reaps the next completion that an interrupt covered.
    pub fn take(&mut self) -> Option<T> {
        self.ring.take_covered().map(|(_, entry)| entry)
    }

    /// Lets a consumer that is awake reap the next posted completion, covered by an interrupt or not.
    pub fn reap(&mut self, now: u64) -> Option<T> {
        if let Some(entry) = self.take() {
            return Some(entry);
        }
        let (since, entry) = self.ring.take_uncovered()?;
        self.consumed += 1;
        record(&mut self.delay, now - since, DELAY_MAX);
        self.held_time += u128::from(now - since);
        self.see(now, What::Consumed { count: 1 });
        let there = self.delivery_time(now);
        self.delivery.on_consumed(&mut self.ring, there);
        Some(entry)
    }

    /// The consumer's handler has taken all it found. Whether it may end: with EVENT_IDX it goes on as long as there is
    /// more, and nobody interrupts it.
    pub fn end_handler(&mut self) -> bool {
        self.ring.arm()
    }

    /// The policy's clock is so far ahead from the beginning on.
    pub const fn start_clock(&mut self, ahead: i64) {
        self.clock = ahead;
    }

    /// The policy's clock jumps. A timer that is armed does not notice.
    pub fn jump_clock(&mut self, by: i64) {
        self.clock = self.clock.saturating_add(by).max(-i64::MAX); // it can be subtracted again
        self.checker.excuse_held();
    }

    /// From `now` on the requesters of this line have so many requests more, or less: what a latency budget is a share of.
    pub fn change_requests(&mut self, now: u64, by: i64) {
        self.checker.change_requests(now, by);
    }

    /// A deadline will be missed: no bound is asked of what is held now.
    pub fn excuse_held(&mut self) {
        self.checker.excuse_held();
    }

    /// Resets the statistics. Held and covered completions stay, and the checker continues.
    pub fn reset_counts(&mut self) {
        self.consumed = 0;
        self.delay.reset();
        self.held_time = 0;
        self.spent_before = self.spent();
        self.delivery.reset_stats();
    }

    /// The end of the run: no command is in flight, every deadline was met, every poll has ended.
    pub fn finish(&mut self, now: u64) {
        self.checker.finish(now);
    }

    /// Commands that were submitted and not reaped.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.in_flight + u32::try_from(self.ring.len() + self.delivery.unposted()).unwrap_or(u32::MAX)
    }

    /// Commands in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Completions that no interrupt has covered.
    #[must_use]
    pub fn held(&self) -> usize {
        self.ring.uncovered() + self.delivery.unposted()
    }

    /// Commands that completed.
    #[must_use]
    pub fn completions(&self) -> u64 {
        self.delivery.stats().completions
    }

    /// Interrupts.
    #[must_use]
    pub fn interrupts(&self) -> u64 {
        self.delivery.stats().interrupts
    }

    /// Completions that the consumer took without an interrupt while they were held.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Completions that caused no interrupt of their own.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        (self.completions() - self.held() as u64).saturating_sub(self.interrupts())
    }

    /// From each completion to the interrupt that covers it, or until a consumer that is awake reaps it before, in ns.
    #[must_use]
    pub const fn delay(&self) -> &Histogram<u64> {
        &self.delay
    }

    /// The sum of those, exactly.
    #[must_use]
    pub const fn held_time(&self) -> u128 {
        self.held_time
    }

    /// The same by what allowed it, since the beginning, as the checker saw it.
    #[must_use]
    pub const fn held_by(&self) -> HeldTime {
        self.checker.held_time()
    }

    /// How often each decision was taken.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.delivery.policy().stats()
    }

    /// How many hints were inferred, and from what.
    #[must_use]
    pub fn hints(&self) -> &HintCounts {
        self.delivery.policy().hints_counted()
    }

    /// The longest that the policy promises to hold a completion, in ns.
    #[must_use]
    pub const fn bound(&self) -> Option<u64> {
        self.checker.bound()
    }

    /// Whether every rule held so far.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        self.checker.verdict()
    }

    /// The events that were kept.
    #[must_use]
    pub const fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Takes out the events that were kept, each with the line after it.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Event, State)> {
        self.timeline.iter_mut().flat_map(Timeline::drain)
    }

    /// A call that is about no completion.
    fn call<C>(&mut self, now: u64, what: What, call: C) -> Option<Interrupt>
    where
        C: FnOnce(&mut AnyDelivery<Completed<T>>, &mut ConsumerRing<T>, u64) -> Result<Decision, Infallible>,
    {
        self.see(now, what);
        let there = self.delivery_time(now);
        let decision = call(&mut self.delivery, &mut self.ring, there);
        self.observe(now, decision)
    }

    /// What the delivery decided, and what came of it at the ring.
    fn observe(&mut self, now: u64, Ok(decision): Result<Decision, Infallible>) -> Option<Interrupt> {
        let delivered = self.ring.take_delivered().map(|(delivered, covered)| {
            let covers = u32::try_from(covered.len()).unwrap_or(u32::MAX);
            covered.for_each(|(since, _)| {
                record(&mut self.delay, now - since, DELAY_MAX);
                self.held_time += u128::from(now - since);
            });
            (delivered, covers)
        });
        let (delivered, covers) = delivered.unzip();
        let covers = covers.unwrap_or(0);
        let (what, reason) = match decision {
            Decision::Hold(reason) => (What::Hold { reason }, None),
            Decision::DeliverUrgent if covers == 1 => (What::UrgentAlone, Some(Reason::Urgent)),
            _ if delivered == Some(Delivered::Suppressed) => (What::Suppressed { covers }, None),
            Decision::Deliver(reason) => (What::Interrupt { reason, covers }, Some(reason)),
            Decision::DeliverUrgent => (What::Interrupt { reason: Reason::Urgent, covers }, Some(Reason::Urgent)),
        };
        self.see(now, what);
        self.checker.compare(now, self.delivery.policy().held().into(), self.held());
        self.checker.check_budget(now, self.spent().held);
        let reason = reason.filter(|_| delivered == Some(Delivered::Interrupt));
        reason.map(|reason| Interrupt { reason, covers })
    }

    fn see(&mut self, at: u64, what: What) {
        let event = Event { at, what };
        self.checker.see(event);
        if self.timeline.is_some() {
            let spent = self.spent();
            let allowed = u128::from(spent.outstanding) * u128::from(self.budget) / 10_000;
            let state = State {
                in_flight: self.in_flight,
                held: self.held(),
                oldest: self.checker.oldest(),
                deadline: self.deadline().filter(|&at| at > 0), // 0 is no time, but the end of a poll
                spent: self.delivery.policy().spent().map(|_| spent),
                allowed: u64::try_from(allowed).unwrap_or(u64::MAX),
            };
            self.timeline.iter_mut().for_each(|timeline| timeline.see(event, state));
        }
    }

    /// What a latency budget has spent since the beginning.
    fn spent(&self) -> Spent {
        let Spent { held, outstanding, .. } = self.spent_before;
        let since = self.delivery.policy().spent().unwrap_or_default();
        Spent { held: held + since.held, outstanding: outstanding + since.outstanding, ..since }
    }

    const fn delivery_time(&self, time: u64) -> u64 {
        time.saturating_add_signed(self.clock)
    }
}

#[cfg(test)]
mod tests;
