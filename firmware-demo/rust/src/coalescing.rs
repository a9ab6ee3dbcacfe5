//! Interrupt now, or wait for company? One vector, and its policy: which one is for the host to say. Every decision is noted
//! in the trace, and then acted upon, in one place.

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

#[allow(clippy::useless_conversion, reason = "a policy alone has its own decisions")]
impl<V: Vector> Coalescing<V> {
    pub const fn new(queue: u8, vector: V) -> Self {
        Self { queue, vector, policy: Policy::OFF, is_disabled: false }
    }

    /// As after a reset: NVMe's own coalescing, which is off.
    pub fn reset(&mut self) {
        self.policy = Policy::OFF;
        self.is_disabled = false;
    }

    /// Begins with a policy, when nothing is held. As [`Policy::choose`].
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.policy.choose(choice, storm_rate)
    }

    /// Feature 08h: so many completions, so many ticks.
    pub const fn set(&mut self, threshold: u32, time: u64) {
        self.policy.set(threshold, time);
    }

    /// Feature 09h. When it is disabled what is held is announced.
    pub fn disable(&mut self, is_disabled: bool, now: u64) {
        self.is_disabled = is_disabled;
        if is_disabled {
            self.flush(now);
        }
    }

    pub const fn is_disabled(&self) -> bool {
        self.is_disabled
    }

    /// A command is fetched. Its ticket comes back with its completion.
    pub fn on_submit(&mut self) -> Option<Ticket> {
        self.policy.on_submit()
    }

    /// A completion is posted; `cif` commands were in flight, counting it.
    pub fn on_completion(&mut self, now: u64, mut completed: Completed, cif: u32) {
        if completed.has_failed {
            completed.hint = Hint::Urgent;
        }
        let mut decision = self.policy.on_completion(now, &completed, cif);
        if self.is_disabled
            && let Decision::Hold(_) = decision
        {
            decision = self.policy.flush(now);
        }
        self.act(Call::Completion { hint: completed.hint, cif }, now, decision);
    }

    /// When to call [`on_deadline`](Self::on_deadline).
    pub fn deadline(&self) -> Option<u64> {
        self.policy.deadline()
    }

    pub fn on_deadline(&mut self, now: u64) {
        let decision = self.policy.on_deadline(now);
        self.act(Call::Deadline, now, decision);
    }

    /// The host has taken everything, without an interrupt.
    pub fn on_consumed(&mut self, now: u64) {
        self.policy.on_consumed(now);
        note(self.queue, Call::Consumed, now, None, self.deadline());
    }

    /// The controller stops.
    pub fn flush(&mut self, now: u64) {
        let decision = self.policy.flush(now);
        self.act(Call::Flush, now, decision);
    }

    /// The one place that interrupts the host for a decision.
    fn act(&mut self, call: Call, now: u64, decision: Decision) {
        note(self.queue, call, now, Some(decision), self.deadline());
        match decision {
            Decision::Deliver(_) => self.interrupt(Cause::Normal),
            Decision::DeliverUrgent => self.interrupt(Cause::Urgent),
            Decision::Hold(_) => {}
        }
    }

    /// Interrupts the host, and says why. What it is told of was written before.
    pub fn interrupt(&mut self, cause: Cause) {
        if let Some(causes) = REGISTERS.cause.get(usize::from(self.queue) - 1) {
            causes.fetch_or(cause as u32, Ordering::Release);
        }
        self.vector.raise();
    }
}
