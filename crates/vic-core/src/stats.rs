//! Counting decisions, by those who want to.

use crate::algorithm::{Decision, HoldReason, Reason};

/// How often each decision was taken. Counters stop at their maximum.
///
/// It is not part of the machine, which stays small: pass each decision through [`count`](Self::count).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each counts the decision it is named after")]
#[non_exhaustive]
pub struct Stats {
    pub max_hold: u64,
    pub slice_end: u64,
    pub low_cif: u64,
    pub ratio: u64,
    pub always: u64,
    pub live_clamp: u64,
    pub flush: u64,
    pub schedule: u64,
    pub deschedule: u64,
    pub hold_ratio: u64,
    pub hold_nothing_held: u64,
    pub hold_early: u64,
    pub hold_reconfigured: u64,
}

impl Stats {
    /// Nothing counted yet.
    pub const ZERO: Self = Self {
        max_hold: 0,
        slice_end: 0,
        low_cif: 0,
        ratio: 0,
        always: 0,
        live_clamp: 0,
        flush: 0,
        schedule: 0,
        deschedule: 0,
        hold_ratio: 0,
        hold_nothing_held: 0,
        hold_early: 0,
        hold_reconfigured: 0,
    };

    /// Counts a decision and hands it on.
    pub const fn count(&mut self, decision: Decision) -> Decision {
        let counter = match decision {
            Decision::Deliver(Reason::MaxHold) => &mut self.max_hold,
            Decision::Deliver(Reason::SliceEnd) => &mut self.slice_end,
            Decision::Deliver(Reason::LowCif) => &mut self.low_cif,
            Decision::Deliver(Reason::Ratio) => &mut self.ratio,
            Decision::Deliver(Reason::Always) => &mut self.always,
            Decision::Deliver(Reason::LiveClamp) => &mut self.live_clamp,
            Decision::Deliver(Reason::Flush) => &mut self.flush,
            Decision::Deliver(Reason::Schedule) => &mut self.schedule,
            Decision::Deliver(Reason::Deschedule) => &mut self.deschedule,
            Decision::Hold(HoldReason::Ratio) => &mut self.hold_ratio,
            Decision::Hold(HoldReason::NothingHeld) => &mut self.hold_nothing_held,
            Decision::Hold(HoldReason::Early) => &mut self.hold_early,
            Decision::Hold(HoldReason::Reconfigured) => &mut self.hold_reconfigured,
        };
        *counter = counter.saturating_add(1);
        decision
    }
}
