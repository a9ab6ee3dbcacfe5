//! Optional counters of decisions.

use crate::algorithm::{Decision, HoldReason, Reason};

/// How often each decision was taken. Counters saturate.
///
/// It is not part of the machine, which stays small: pass each decision through [`count`](Self::count).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each counts the decision it is named after")]
#[non_exhaustive]
pub struct Stats {
    pub delta: u64,
    pub max_hold: u64,
    pub storm: u64,
    pub error: u64,
    pub barrier: u64,
    pub urgent: u64,
    pub count_reached: u64,
    pub in_flight: u64,
    pub batch_end: u64,
    pub flush: u64,
    pub urgent_alone: u64,
    pub hold_burst: u64,
    pub hold_storm: u64,
    pub hold_nothing_held: u64,
    pub hold_early: u64,
    pub hold_reconfigured: u64,
    pub hold_cancelled: u64,
}

impl Stats {
    /// Nothing counted yet.
    pub const ZERO: Self = Self {
        delta: 0,
        max_hold: 0,
        storm: 0,
        error: 0,
        barrier: 0,
        urgent: 0,
        count_reached: 0,
        in_flight: 0,
        batch_end: 0,
        flush: 0,
        urgent_alone: 0,
        hold_burst: 0,
        hold_storm: 0,
        hold_nothing_held: 0,
        hold_early: 0,
        hold_reconfigured: 0,
        hold_cancelled: 0,
    };

    /// Counts a decision and returns it.
    pub const fn count(&mut self, decision: Decision) -> Decision {
        let counter = match decision {
            Decision::Deliver(Reason::Delta) => &mut self.delta,
            Decision::Deliver(Reason::MaxHold) => &mut self.max_hold,
            Decision::Deliver(Reason::Storm) => &mut self.storm,
            Decision::Deliver(Reason::Error) => &mut self.error,
            Decision::Deliver(Reason::Barrier) => &mut self.barrier,
            Decision::Deliver(Reason::Urgent) => &mut self.urgent,
            Decision::Deliver(Reason::Count) => &mut self.count_reached,
            Decision::Deliver(Reason::InFlight) => &mut self.in_flight,
            Decision::Deliver(Reason::BatchEnd) => &mut self.batch_end,
            Decision::Deliver(Reason::Flush) => &mut self.flush,
            Decision::DeliverUrgent => &mut self.urgent_alone,
            Decision::Hold(HoldReason::Burst) => &mut self.hold_burst,
            Decision::Hold(HoldReason::Storm) => &mut self.hold_storm,
            Decision::Hold(HoldReason::NothingHeld) => &mut self.hold_nothing_held,
            Decision::Hold(HoldReason::Early) => &mut self.hold_early,
            Decision::Hold(HoldReason::Reconfigured) => &mut self.hold_reconfigured,
            Decision::Hold(HoldReason::Cancelled) => &mut self.hold_cancelled,
        };
        *counter = counter.saturating_add(1);
        decision
    }
}
