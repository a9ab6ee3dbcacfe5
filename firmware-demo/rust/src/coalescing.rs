//! Interrupt now, or wait for company? One vector, and its policy: which one is for the host to say. Every decision is noted
//! in the trace, and then acted upon, in one place.

use crate::aggregation::Aggregation;
use crate::board::TICK_HZ;
use crate::decision::{Call, Decision, note};
use crate::host::{Cause, REGISTERS};
use crate::vector::Vector;
use cint_core::{Cint, Hint, StormParams, Ticket, Tracker};
use core::sync::atomic::Ordering;
use vic_core::Vic;

const STORM_SHIFT: u8 = 5;

/// A policy, by its number in Feature C0h.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Feature 08h and no more.
    Nvme = 0,
    Vic = 1,
    Cint = 2,
    /// cint with strict Barriers, which alone end a burst.
    Strict = 3,
}

impl TryFrom<u32> for Choice {
    type Error = ();

    fn try_from(number: u32) -> Result<Self, ()> {
        [Self::Nvme, Self::Vic, Self::Cint, Self::Strict].into_iter().find(|&choice| choice as u32 == number).ok_or(())
    }
}

enum Policy {
    Nvme,
    Vic(Vic),
    Cint(Cint),
    Strict(Cint, Tracker<1, 4>), // of 256 commands between the oldest in flight and the newest
}

impl Policy {
    /// `storm_rate` is the storm guard's limit, in interrupts a second; 0: no guard. `Err`: it is no such limit.
    fn new(choice: Choice, storm_rate: u32) -> Result<Self, ()> {
        let vic = vic_core::Params { tick_hz: TICK_HZ.into(), epoch_ns: 1_000_000, ..vic_core::Params::DEFAULT };
        let vic = vic_core::Config::new(vic).map_err(|_| ())?;
        let storm = StormParams { max_rate: storm_rate.into(), shift: STORM_SHIFT };
        let mut cint = cint_core::Params {
            tick_hz: TICK_HZ.into(),
            delta_ns: 30_000,
            storm: (storm_rate > 0).then_some(storm),
            ..cint_core::Params::DEFAULT
        };
        if choice == Choice::Strict {
            (cint.delta_ns, cint.max_hold_ns, cint.in_flight) = (1_000_000, Some(1_000_000), None);
        }
        let cint = Cint::new(cint_core::Config::new(cint).map_err(|_| ())?);
        Ok(match choice {
            Choice::Nvme => Self::Nvme,
            Choice::Vic => Self::Vic(Vic::new(vic)),
            Choice::Cint => Self::Cint(cint),
            Choice::Strict => Self::Strict(cint, Tracker::new()),
        })
    }
}

/// A command whose completion is posted.
pub struct Completed {
    pub ticket: Option<Ticket>,
    pub hint: Hint,
    pub has_failed: bool,
}

pub struct Coalescing<V> {
    queue: u8,
    vector: V,
    policy: Policy,
    aggregation: Aggregation,
    is_disabled: bool,
}

impl<V: Vector> Coalescing<V> {
    pub const fn new(queue: u8, vector: V) -> Self {
        Self { queue, vector, policy: Policy::Nvme, aggregation: Aggregation::OFF, is_disabled: false }
    }

    /// As after a reset: NVMe's own coalescing, which is off.
    pub fn reset(&mut self) {
        self.policy = Policy::Nvme;
        self.aggregation = Aggregation::OFF;
        self.is_disabled = false;
    }

    /// Begins with a policy, when nothing is held. As [`Policy::new`].
    pub fn choose(&mut self, choice: Choice, storm_rate: u32) -> Result<(), ()> {
        self.policy = Policy::new(choice, storm_rate)?;
        Ok(())
    }

    /// Feature 08h: so many completions, so many ticks.
    pub const fn set(&mut self, threshold: u32, time: u64) {
        self.aggregation.set(threshold, time);
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
        match &mut self.policy {
            Policy::Strict(_, tracker) => tracker.on_submit(0),
            _ => None,
        }
    }

    /// A completion is posted; `cif` commands were in flight, counting it.
    pub fn on_completion(&mut self, now: u64, completed: Completed, cif: u32) {
        let Completed { ticket, hint, has_failed } = completed;
        let hint = if has_failed { Hint::Urgent } else { hint };
        let mut must_deliver = self.is_disabled;
        let mut decision: Decision = match &mut self.policy {
            Policy::Nvme => self.aggregation.on_completion(now, has_failed),
            Policy::Vic(vic) => {
                must_deliver |= has_failed; // it knows no hints
                vic.on_completion(now, cif).into()
            }
            Policy::Cint(cint) => cint.on_completion(now, hint, Some(cif)).into(),
            Policy::Strict(cint, tracker) => {
                let event = tracker.on_completion(ticket, hint);
                cint.on_completion(now, event, Some(cif)).into()
            }
        };
        if must_deliver && let Decision::Hold(_) = decision {
            decision = self.decide_flush(now);
        }
        self.act(Call::Completion { hint, cif }, now, decision);
    }

    /// When to call [`on_deadline`](Self::on_deadline).
    pub fn deadline(&self) -> Option<u64> {
        match &self.policy {
            Policy::Nvme => self.aggregation.deadline(),
            Policy::Vic(vic) => vic.deadline(),
            Policy::Cint(cint) | Policy::Strict(cint, _) => cint.deadline(),
        }
    }

    pub fn on_deadline(&mut self, now: u64) {
        let decision = match &mut self.policy {
            Policy::Nvme => self.aggregation.on_deadline(now),
            Policy::Vic(vic) => vic.on_deadline(now).into(),
            Policy::Cint(cint) | Policy::Strict(cint, _) => cint.on_deadline(now).into(),
        };
        self.act(Call::Deadline, now, decision);
    }

    /// The host has taken everything, without an interrupt.
    pub fn on_consumed(&mut self, now: u64) {
        match &mut self.policy {
            Policy::Nvme => self.aggregation.on_consumed(),
            Policy::Vic(vic) => vic.on_consumed(now),
            Policy::Cint(cint) | Policy::Strict(cint, _) => cint.on_consumed(now),
        }
        note(self.queue, Call::Consumed, now, None, self.deadline());
    }

    /// The controller stops.
    pub fn flush(&mut self, now: u64) {
        let decision = self.decide_flush(now);
        self.act(Call::Flush, now, decision);
    }

    fn decide_flush(&mut self, now: u64) -> Decision {
        match &mut self.policy {
            Policy::Nvme => self.aggregation.flush(),
            Policy::Vic(vic) => vic.flush(now).into(),
            Policy::Cint(cint) | Policy::Strict(cint, _) => cint.flush(now).into(),
        }
    }

    /// The one place that interrupts the host for a decision.
    fn act(&mut self, call: Call, now: u64, decision: Decision) {
        note(self.queue, call, now, Some(decision), self.deadline());
        match decision {
            Decision::Deliver(_) => self.interrupt(Cause::Normal),
            Decision::DeliverUrgent(_) => self.interrupt(Cause::Urgent),
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
