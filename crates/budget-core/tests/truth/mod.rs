//! What requests really wait: counted beside a policy, and never asked of it.
#![allow(dead_code, reason = "not every test needs all of it")]

use budget_core::{Decision, HoldReason, Params};

/// The commands of one queue by what has become of them, and the integrals of their numbers, in commands * ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Truth {
    /// The last instant that is counted.
    pub now: u64,
    pub in_flight: u32,
    /// Posted, and covered by no interrupt.
    pub held: u32,
    /// Covered by interrupts, and not reaped.
    pub covered: u32,
    /// Of `held`.
    pub held_time: u128,
    /// What of that was held with the reason `licensed`.
    pub licensed_time: u128,
    /// Of [`outstanding`](Self::outstanding): what the requesters waited.
    pub outstanding_time: u128,
    is_licensed: bool,
}

impl Truth {
    /// Nothing is submitted at `now`.
    pub fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Submitted, and not reaped.
    pub const fn outstanding(&self) -> u32 {
        self.in_flight + self.held + self.covered
    }

    /// Time passes until `at`.
    pub fn go_to(&mut self, at: u64) {
        let elapsed = u128::from(at - self.now);
        let held = u128::from(self.held) * elapsed;
        self.held_time += held;
        self.licensed_time += if self.is_licensed { held } else { 0 };
        self.outstanding_time += u128::from(self.outstanding()) * elapsed;
        self.now = at;
    }

    /// As many commands are submitted.
    pub fn submit(&mut self, count: u32) {
        self.in_flight += count;
    }

    /// A command completes, and that is decided about it.
    pub fn complete(&mut self, decision: Decision) {
        self.in_flight -= 1;
        self.held += 1;
        self.decided(decision);
    }

    /// What was decided at any other call.
    pub fn decided(&mut self, decision: Decision) {
        let covered = match decision {
            Decision::Deliver(_) => self.held,
            Decision::DeliverUrgent => 1,
            Decision::Hold(HoldReason::Early | HoldReason::Cancelled | HoldReason::Reconfigured) => 0,
            Decision::Hold(reason) => {
                self.is_licensed = reason == HoldReason::Licensed;
                0
            }
        };
        (self.covered, self.held) = (self.covered + covered, self.held - covered);
    }

    /// The requesters reap what interrupts cover.
    pub fn reap(&mut self) {
        self.covered = 0;
    }

    /// The requesters reap all that is posted.
    pub fn poll(&mut self) {
        (self.held, self.covered) = (0, 0);
    }

    /// The share that a budget pays of what requests spent without being held.
    pub fn earned(&self, params: &Params) -> u128 {
        (self.outstanding_time - self.held_time) * u128::from(params.budget.as_basis_points()) / 10_000
    }

    /// What a budget pays for of the time until now: that share, and C0 with this factor.
    pub fn allowed(&self, params: &Params, factor: u64) -> u128 {
        self.earned(params) + learning(params, self.outstanding_time, factor)
    }
}

/// C0 as the documentation has it: of requests that have spent so much, with a factor of 1 to 4; 0: of who makes no trials.
pub fn learning(params: &Params, spent: u128, factor: u64) -> u128 {
    let max_hold = (u128::from(params.max_hold_ns) * u128::from(params.tick_hz) / 1_000_000_000).max(1);
    ((4 * max_hold + spent / 128) * u128::from(factor)).min(32 * max_hold)
}
