//! Baselines that only the simulator has: what the authors of two papers ran, flaws included.

mod cint_storm;
mod xen;

use cint_storm::CintStormAsPublished;
use coalesce_policy::{Decision, HoldReason, Mark, Policy, forward};
use xen::XenAsPublished;

/// Scheduler-aware vIC on Xen.
#[must_use]
pub fn xen() -> Box<dyn Policy> {
    Box::new(Prototype(XenAsPublished::new()))
}

/// cinterrupts with the storm guard of Figure 17, on Optane.
#[must_use]
pub fn cint_storm() -> Box<dyn Policy> {
    Box::new(Prototype(CintStormAsPublished::default()))
}

/// A prototype of a paper: it hears nothing of aborts, and nothing of its guest's CPU.
#[derive(Debug)]
struct Prototype<P>(P);

impl<P: Policy> Policy for Prototype<P> {
    fn on_cancel(&mut self, _now: u64, _mark: Mark) -> Decision {
        nothing_due(self.held())
    }

    fn on_schedule(&mut self, _now: u64) -> Decision {
        nothing_due(self.held())
    }

    fn on_deschedule(&mut self, _now: u64) -> Decision {
        nothing_due(self.held())
    }

    forward!(self => self.0; all but on_cancel, on_schedule, on_deschedule);
}

/// Nothing is due with `held` completions held.
const fn nothing_due(held: u32) -> Decision {
    Decision::Hold(if held > 0 { HoldReason::Early } else { HoldReason::NothingHeld })
}
