//! One vector and its policy, which the host selects. Every decision is traced and then executed, in one place.

use crate::decision::{Call, Completed, Decision, note};
use crate::host::{Cause, REGISTERS};
use crate::policy::Policy;
use crate::vector::Vector;
use cint_core::{Hint, Ticket};
use core::sync::atomic::Ordering;

pub struct Coalescing<V> {
    queue: u8,
    vector: V,
    policy: Policy,
    is_disabled: bool,
}

#[allow(clippy::useless_conversion, reason = "a single policy has its own type of decision")]
impl<V: Vector> Coalescing<V> {
    pub const fn new(queue: u8, vector: V) -> Self {
        Self { queue, vector, policy: Policy::OFF, is_disabled: false }
    }

    /// Sets the state after a reset: NVMe's own coalescing, switched off.
    pub fn reset(&mut self) {
        self.policy = Policy::OFF;
        self.is_disabled = false;
    }

    /// Sets the policy, as [`Policy::choose`]. Requires that nothing is held.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.policy.choose(choice, storm_rate)
    }

    /// Feature 08h: sets the threshold, in completions, and the time, in ticks.
    pub const fn set(&mut self, threshold: u32, time: u64) {
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

    /// Notes a fetched command. `outstanding` is the number of commands that are submitted and not reaped, including
    /// this one. Its ticket must be passed with its completion.
    pub fn on_submit(&mut self, now: u64) -> Option<Ticket> {
        self.policy.on_submit(now)
    }

    /// Decides about a posted completion. `cif` is the number of commands in flight, including this one.
    pub fn on_completion(&mut self, now: u64, mut completed: Completed, cif: u32, outstanding: u32) {
        if completed.has_failed {
            completed.hint = Hint::Urgent;
        }
        let mut decision = self.policy.on_completion(now, &completed, cif, outstanding);
        if self.is_disabled
            && let Decision::Hold(_) = decision
        {
            decision = self.policy.flush(now);
        }
        self.act(Call::Completion { hint: completed.hint, cif }, now, decision);
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
