//! One vector and its policy, which the host selects. Every decision is traced and then executed, in one place.

use crate::decision::{Call, note};
use crate::host::{Cause, REGISTERS};
use crate::policy::Selected;
use crate::vector::Vector;
use coalesce_decision::{Completion, Decision, Mark, Policy as _, Submission};
use core::sync::atomic::Ordering;

pub struct Coalescing<V> {
    queue: u8,
    vector: V,
    policy: Selected,
    is_disabled: bool,
}

impl<V: Vector> Coalescing<V> {
    pub const fn new(queue: u8, vector: V) -> Self {
        Self { queue, vector, policy: Selected::OFF, is_disabled: false }
    }

    /// Sets the state after a reset: NVMe's own coalescing, switched off.
    pub fn reset(&mut self) {
        self.policy = Selected::OFF;
        self.is_disabled = false;
    }

    /// Sets the policy, as [`Selected::choose`]. Requires that nothing is held.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.policy.choose(choice, storm_rate)
    }

    /// Feature 08h: sets the threshold, in completions, and the time, in ticks. What it holds is delivered.
    pub fn set(&mut self, threshold: u32, time: u64, now: u64) {
        if self.policy.is_aggregating() {
            self.flush(now);
        }
        self.policy.set(threshold, time);
    }

    /// Feature 09h. Disabling coalescing delivers everything held.
    pub fn disable(&mut self, is_disabled: bool, now: u64) {
        self.is_disabled = is_disabled;
        if is_disabled {
            self.flush(now);
        }
    }

    pub const fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// Notes a fetched command. Its mark must be passed with its completion.
    pub fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.policy.on_submit(now, submission)
    }

    /// Decides about a posted completion.
    pub fn on_completion(&mut self, now: u64, completion: &Completion) {
        let mut decision = self.policy.on_completion(now, completion);
        if self.is_disabled
            && let Decision::Hold(_) = decision
        {
            decision = self.policy.flush(now);
        }
        self.act(Call::Completion { event: completion.event(), cif: completion.cif }, now, decision);
    }

    /// The instant at which to call [`on_deadline`](Self::on_deadline).
    pub fn deadline(&self) -> Option<u64> {
        self.policy.deadline()
    }

    pub fn on_deadline(&mut self, now: u64) {
        let decision = self.policy.on_deadline(now);
        self.act(Call::Deadline, now, decision);
    }

    /// Notes that the host has reaped everything without an interrupt.
    pub fn on_consumed(&mut self, now: u64) {
        self.policy.on_consumed(now);
        note(self.queue, Call::Consumed, now, None, self.deadline());
    }

    /// Delivers everything held, when the controller stops.
    pub fn flush(&mut self, now: u64) {
        let decision = self.policy.flush(now);
        self.act(Call::Flush, now, decision);
    }

    /// The only place that interrupts the host after a decision.
    fn act(&mut self, call: Call, now: u64, decision: Decision) {
        note(self.queue, call, now, Some(decision), self.deadline());
        match decision {
            Decision::Deliver(_) => self.interrupt(Cause::Normal),
            Decision::DeliverUrgent => self.interrupt(Cause::Urgent),
            Decision::Hold(_) => {}
        }
    }

    /// Interrupts the host, with the cause. The caller has posted the entries before.
    pub fn interrupt(&mut self, cause: Cause) {
        if let Some(causes) = REGISTERS.cause.get(usize::from(self.queue) - 1) {
            causes.fetch_or(cause as u32, Ordering::Release);
        }
        self.vector.raise();
    }
}
