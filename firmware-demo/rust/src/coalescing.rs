//! One vector and its policy, which the host selects. A [`Delivery`] asks it and interrupts; every decision is traced before.

use crate::decision::{Call, note};
use crate::host::{Cause, REGISTERS};
use crate::policy::Selected;
use crate::vector::Vector;
use coalesce_decision::{Completion, Decision, Mark, Policy, Submission};
use coalesce_delivery::{Count, Delivery, Ring};
use core::convert::Infallible;
use core::sync::atomic::Ordering;

pub struct Coalescing<V> {
    line: Line<V>,
    delivery: Delivery<(), Selected, Count>,
}

/// The vector, as a [`Ring`] without entries: the queue has posted them.
struct Line<V> {
    queue: u8,
    vector: V,
    is_disabled: bool,
    call: Call, // that asks for a decision at the instant `now`
    now: u64,
    cause: Cause,
}

impl<V: Vector> Coalescing<V> {
    pub const fn new(queue: u8, vector: V) -> Self {
        let line = Line { queue, vector, is_disabled: false, call: Call::Flush, now: 0, cause: Cause::Normal };
        Self { line, delivery: Delivery::counting(Selected::OFF) }
    }

    /// Sets the state after a reset: NVMe's own coalescing, switched off.
    pub fn reset(&mut self) {
        self.delivery = Delivery::counting(Selected::OFF);
        self.line.is_disabled = false;
    }

    /// Sets the policy, as [`Selected::choose`]. Requires that nothing is held.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.delivery.adjust(|selected| selected.choose(choice, storm_rate))
    }

    /// Feature 08h: sets the threshold, in completions, and the time, in ticks. What it holds is delivered.
    pub fn set(&mut self, threshold: u32, time: u64, now: u64) {
        if self.delivery.policy().is_aggregating() {
            self.flush(now);
        }
        self.delivery.adjust(|selected| selected.set(threshold, time));
    }

    /// Feature 09h. Disabling coalescing delivers everything held.
    pub fn disable(&mut self, is_disabled: bool, now: u64) {
        self.line.is_disabled = is_disabled;
        if is_disabled {
            self.flush(now);
        }
    }

    pub const fn is_disabled(&self) -> bool {
        self.line.is_disabled
    }

    /// Notes a fetched command. Its mark must be passed with its completion.
    pub fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.delivery.on_submit(now, submission)
    }

    /// Decides about a posted completion.
    pub fn on_completion(&mut self, now: u64, completion: &Completion) {
        let call = Call::Completion { event: completion.event(), cif: completion.cif };
        let Ok(_) = self.delivery.complete(self.line.at(now, call), now, (), completion);
    }

    /// The instant at which to call [`on_deadline`](Self::on_deadline).
    pub fn deadline(&self) -> Option<u64> {
        self.delivery.deadline()
    }

    pub fn on_deadline(&mut self, now: u64) {
        let Ok(_) = self.delivery.on_deadline(self.line.at(now, Call::Deadline), now);
    }

    /// Notes that the host has reaped everything without an interrupt.
    pub fn on_consumed(&mut self, now: u64) {
        self.delivery.on_consumed(self.line.at(now, Call::Consumed), now);
        note(self.line.queue, Call::Consumed, now, None, self.deadline());
    }

    /// Delivers everything held, when the controller stops.
    pub fn flush(&mut self, now: u64) {
        let Ok(_) = self.delivery.flush(self.line.at(now, Call::Flush), now);
    }

    /// Interrupts the host for another reason than a decision. The caller has posted the entries before.
    pub fn interrupt(&mut self, cause: Cause) {
        self.line.raise(cause);
    }
}

impl<V: Vector> Line<V> {
    /// The vector at a call.
    const fn at(&mut self, now: u64, call: Call) -> &mut Self {
        (self.now, self.call) = (now, call);
        self
    }

    fn raise(&mut self, cause: Cause) {
        if let Some(causes) = REGISTERS.cause.get(usize::from(self.queue) - 1) {
            causes.fetch_or(cause as u32, Ordering::Release);
        }
        self.vector.raise();
    }
}

impl<V: Vector> Ring for Line<V> {
    type Entry = ();
    type Broken = Infallible;

    fn post(&mut self, (): ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn may_hold(&self) -> bool {
        !self.is_disabled
    }

    fn wants_interrupt(&mut self) -> bool {
        true
    }

    /// The doorbells say so, which the controller has read.
    fn is_consumed(&mut self) -> bool {
        matches!(self.call, Call::Consumed)
    }

    fn decided<P: Policy>(&mut self, decision: Decision, policy: &P) {
        note(self.queue, self.call, self.now, Some(decision), policy.deadline());
        self.cause = if decision == Decision::DeliverUrgent { Cause::Urgent } else { Cause::Normal };
    }

    fn interrupt(&mut self) -> bool {
        self.raise(self.cause);
        true
    }
}
