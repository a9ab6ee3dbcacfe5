//! One interrupt line: a policy, the commands in flight behind it, what is held, and what was announced and not taken.
//!
//! The engine and the replay of traces both tell a line what happens, and it says when to interrupt. All times are true
//! ones, in ns; the clock that the policy sees may jump.

use crate::check::{Checker, Verdict};
use crate::contender::{Contender, Machine};
use crate::event::{Event, Timeline, What};
use coalesce_policy::{
    Class, Clues, Completion, Decision, Hint, HintCounts, HintSource, HintSources, Reason, SpecError, Stats, Ticket,
    at_completion, infer,
};
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// Delays are recorded up to this long, in ns.
const DELAY_MAX: u64 = 10_000_000_000;

/// Counts a duration in a histogram that grows as it must, as there may be thousands of them; what is longer than `max`
/// counts as that.
pub(crate) fn record(histogram: &mut Histogram<u64>, ns: u64, max: u64) {
    histogram.record(ns.min(max)).expect("it grows");
}

/// What a requester says about a command, and what else a target sees, when it is submitted.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// What the requester says; `Plain`: it says nothing, and the policy's hint sources are asked.
    pub hint: Hint,
    /// Submitter group, for strict Barriers.
    pub group: u8,
    /// It is a flush.
    pub flush: bool,
    /// It is a write that must be on the medium before it ends.
    pub durable: bool,
    /// Scheduling class and level that the guest gives it: class in bits 15:13 (Linux `ioprio`).
    pub ioprio: u16,
    /// How many commands are submitted together, counting this one.
    pub batch_len: usize,
    /// It is the last of those.
    pub last_of_batch: bool,
}

impl Default for Submission {
    fn default() -> Self {
        Self { hint: Hint::Plain, group: 0, flush: false, durable: false, ioprio: 0, batch_len: 1, last_of_batch: true }
    }
}

/// A command in flight, as the line knows it: [`Line::submit`] gives it, its completion takes it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    hint: Hint,
    source: Option<HintSource>,
    ticket: Option<Ticket>,
}

/// Interrupt now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Why.
    pub reason: Reason,
    /// Completions that it announces.
    pub covers: u32,
}

/// Takes completions of entries `T`, and interrupts.
#[derive(Clone, Debug)]
pub struct Line<T> {
    machine: Machine,
    sources: HintSources,
    posts_late: bool, // OOO: what is held is not posted
    clock: i64,       // the policy's clock is so far ahead
    in_flight: u32,
    held: VecDeque<(u64, T)>,
    announced: VecDeque<T>,
    completions: u64,
    interrupts: u64,
    consumed: u64,
    hints: HintCounts,
    delay: Histogram<u64>,
    checker: Checker,
    timeline: Option<Timeline>,
}

impl<T> Line<T> {
    /// A line with nothing in flight.
    ///
    /// # Errors
    /// A parameter that a clock in ns cannot carry.
    pub fn new(contender: &Contender) -> Result<Self, SpecError> {
        let machine = Machine::new(contender)?;
        let checker = Checker::new(machine.bound());
        Ok(Self {
            machine,
            sources: contender.hints(),
            posts_late: contender.is_ooo(),
            clock: 0,
            in_flight: 0,
            held: VecDeque::new(),
            announced: VecDeque::new(),
            completions: 0,
            interrupts: 0,
            consumed: 0,
            hints: HintCounts::default(),
            delay: Histogram::new(3).expect("three digits are allowed"),
            checker,
            timeline: None,
        })
    }

    /// From now on keeps events for a report.
    pub fn keep(&mut self, timeline: Timeline) {
        self.timeline = Some(timeline);
    }

    /// A command is submitted.
    pub fn submit(&mut self, submission: &Submission) -> Command {
        self.in_flight += 1;
        let outstanding = self.outstanding();
        let Submission { hint, group, flush, durable, ioprio, batch_len, last_of_batch } = *submission;
        let ticket = self.machine.on_submit(group, outstanding);
        let (hint, source) = match hint {
            Hint::Plain if self.sources != HintSources::NONE => {
                infer(self.sources, &Clues { flush, durable, ioprio, batch_len, last_of_batch, outstanding })
            }
            hint => (hint, None),
        };
        Command { hint, source, ticket }
    }

    /// A command completed, posted as `entry`. `slice_end`: when the guest's timeslice ends, if it is known. One whose
    /// submission was not seen counts itself as in flight.
    pub fn complete(
        &mut self,
        now: u64,
        command: Command,
        class: Class,
        slice_end: Option<u64>,
        entry: T,
    ) -> Option<Interrupt> {
        let cif = self.in_flight.max(1);
        self.in_flight = cif - 1;
        let said = (command.hint, command.source);
        let (hint, source) = if said.0 == Hint::Plain || said.1.is_some() {
            at_completion(self.sources, said, cif, self.machine.expects_more())
        } else {
            said
        };
        self.hints.count(source);
        self.completions += 1;
        self.held.push_back((now, entry));
        self.see(now, What::Completion { hint, cif });
        let slice_end = slice_end.map(|end| self.policy_time(end));
        let completion = Completion { cif, hint, class, ticket: command.ticket, slice_end, before: 0 };
        let decision = self.machine.on_completion(self.policy_time(now), &completion);
        self.act(now, decision)
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.machine.deadline().map(|deadline| deadline.saturating_add_signed(-self.clock))
    }

    /// The deadline has passed.
    pub fn on_deadline(&mut self, now: u64) -> Option<Interrupt> {
        self.see(now, What::Deadline);
        let decision = self.machine.on_deadline(self.policy_time(now));
        self.act(now, decision)
    }

    /// Whether [`on_batch_end`](Self::on_batch_end) must be called after each poll of the device.
    #[must_use]
    pub fn wants_batch_end(&self) -> bool {
        self.machine.wants_batch_end()
    }

    /// The device has posted all it had.
    pub fn on_batch_end(&mut self, now: u64) -> Option<Interrupt> {
        self.see(now, What::BatchEnd);
        let decision = self.machine.on_batch_end(self.policy_time(now));
        self.act(now, decision)
    }

    /// The guest has been put on a CPU.
    pub fn on_schedule(&mut self, now: u64) -> Option<Interrupt> {
        self.other(now, Machine::on_schedule)
    }

    /// The guest is taken off its CPU.
    pub fn on_deschedule(&mut self, now: u64) -> Option<Interrupt> {
        self.other(now, Machine::on_deschedule)
    }

    /// Announces what is held: queue stop, reset, the end of a trace.
    pub fn flush(&mut self, now: u64) -> Option<Interrupt> {
        self.other(now, Machine::flush)
    }

    /// A command was aborted and will not complete.
    pub fn cancel(&mut self, now: u64, command: Command) -> Option<Interrupt> {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.other(now, |machine, now| machine.on_cancel(now, command.ticket))
    }

    /// The queue is reset: no command is in flight any more. What is held is announced.
    pub fn reset(&mut self, now: u64) -> Option<Interrupt> {
        self.in_flight = 0;
        self.machine.reset_tracking();
        self.flush(now)
    }

    /// The consumer takes the next completion it was told of.
    pub fn take(&mut self) -> Option<T> {
        self.announced.pop_front()
    }

    /// The consumer is awake and takes the next completion that is posted, announced or not.
    pub fn reap(&mut self, now: u64) -> Option<T> {
        if let Some(entry) = self.announced.pop_front() {
            return Some(entry);
        }
        if self.posts_late {
            return None;
        }
        let (since, entry) = self.held.pop_front()?;
        self.consumed += 1;
        record(&mut self.delay, now - since, DELAY_MAX);
        self.see(now, What::Consumed { count: 1 });
        if self.held.is_empty() {
            self.machine.on_consumed(self.policy_time(now));
        }
        Some(entry)
    }

    /// The policy's clock jumps. A timer that is armed does not notice.
    pub fn jump_clock(&mut self, by: i64) {
        self.clock = self.clock.saturating_add(by).max(-i64::MAX); // it can be subtracted again
        self.checker.excuse_held();
    }

    /// A deadline will be missed: no bound is asked of what is held now.
    pub fn excuse_held(&mut self) {
        self.checker.excuse_held();
    }

    /// Forgets what was counted. What is held and announced stays, and the checker goes on.
    pub fn reset_counts(&mut self) {
        (self.completions, self.interrupts, self.consumed) = (0, 0, 0);
        self.hints = HintCounts::default();
        self.delay.reset();
        self.machine.reset_stats();
    }

    /// The end of the run: no command is in flight, every deadline was met, every poll has ended.
    pub fn finish(&mut self, now: u64) {
        self.checker.finish(now);
    }

    /// Commands submitted and not taken back by the consumer.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.in_flight + u32::try_from(self.held.len() + self.announced.len()).unwrap_or(u32::MAX)
    }

    /// Commands in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Completions posted and not announced.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Commands that completed.
    #[must_use]
    pub const fn completions(&self) -> u64 {
        self.completions
    }

    /// Interrupts.
    #[must_use]
    pub const fn interrupts(&self) -> u64 {
        self.interrupts
    }

    /// Completions that the consumer took without an interrupt while they were held.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Completions that no interrupt of their own announced.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        (self.completions - self.held.len() as u64).saturating_sub(self.interrupts)
    }

    /// From each completion to its announcement, in ns.
    #[must_use]
    pub const fn delay(&self) -> &Histogram<u64> {
        &self.delay
    }

    /// How often each decision was taken.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.machine.stats()
    }

    /// How many hints were inferred, and from what.
    #[must_use]
    pub const fn hints(&self) -> &HintCounts {
        &self.hints
    }

    /// The longest that the policy promises to hold a completion, in ns.
    #[must_use]
    pub fn bound(&self) -> Option<u64> {
        self.machine.bound()
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

    fn other(&mut self, now: u64, call: impl FnOnce(&mut Machine, u64) -> Decision) -> Option<Interrupt> {
        self.see(now, What::Other);
        let now_there = self.policy_time(now);
        let decision = call(&mut self.machine, now_there);
        self.act(now, decision)
    }

    fn act(&mut self, now: u64, decision: Decision) -> Option<Interrupt> {
        let interrupt = match decision {
            Decision::Hold(reason) => {
                self.see(now, What::Hold { reason });
                None
            }
            Decision::Deliver(reason) => {
                let covers = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
                for (since, entry) in self.held.drain(..) {
                    record(&mut self.delay, now - since, DELAY_MAX);
                    self.announced.push_back(entry);
                }
                self.see(now, What::Interrupt { reason, covers });
                Some(Interrupt { reason, covers })
            }
            Decision::DeliverUrgent => {
                if let Some((since, entry)) = self.held.pop_back() {
                    record(&mut self.delay, now - since, DELAY_MAX);
                    self.announced.push_back(entry);
                }
                self.see(now, What::UrgentAlone);
                Some(Interrupt { reason: Reason::Urgent, covers: 1 })
            }
        };
        self.interrupts += u64::from(interrupt.is_some());
        self.checker.compare(now, self.machine.held(), self.held.len());
        interrupt
    }

    fn see(&mut self, at: u64, what: What) {
        let event = Event { at, what };
        self.checker.see(event);
        if let Some(timeline) = &mut self.timeline {
            timeline.see(event);
        }
    }

    const fn policy_time(&self, time: u64) -> u64 {
        time.saturating_add_signed(self.clock)
    }
}

#[cfg(test)]
mod tests;
