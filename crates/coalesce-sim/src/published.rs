//! Baselines that only the simulator has: what the authors of two papers ran, flaws included.

mod cint_storm;
mod xen;

use cint_storm::CintStormAsPublished;
use coalesce_delivery::Delivery;
use coalesce_policy::{Clues, Completion, Decision, HintCounts, HoldReason, Mark, Policy, Stats};
use std::fmt::Debug;
use xen::XenAsPublished;

/// One of these baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Scheduler-aware vIC on Xen.
    Xen,
    /// cinterrupts with the storm guard of Figure 17, on Optane.
    CintStorm,
}

impl Published {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Xen, Self::CintStorm];

    /// The text form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xen => "xen_as_published",
            Self::CintStorm => "cint_storm_as_published",
        }
    }

    /// A delivery under this baseline, which has seen nothing.
    pub(crate) fn delivery<E>(self) -> Box<Delivery<E, dyn Policy>> {
        match self {
            Self::Xen => Box::new(Delivery::with_policy(Counted::new(XenAsPublished::new()))),
            Self::CintStorm => Box::new(Delivery::with_policy(Counted::new(CintStormAsPublished::default()))),
        }
    }
}

/// The state machine of a baseline. All times are in ns.
pub(crate) trait AsPublished {
    /// A request is passed on to the disk.
    fn on_submit(&mut self) {}

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision;

    fn deadline(&self) -> Option<u64> {
        None
    }

    /// Delivers if the deadline has passed.
    fn on_deadline(&mut self, _now: u64) -> Option<Decision> {
        None
    }

    fn flush(&mut self, now: u64) -> Decision;

    fn on_consumed(&mut self);

    fn held(&self) -> u64;
}

/// A baseline as a policy, with its decisions counted.
#[derive(Debug)]
struct Counted<M> {
    machine: M,
    stats: Stats,
    hints: HintCounts,
}

impl<M: AsPublished> Counted<M> {
    fn new(machine: M) -> Self {
        Self { machine, stats: Stats::default(), hints: HintCounts::default() }
    }

    fn nothing_due(&self) -> Decision {
        Decision::Hold(if self.machine.held() > 0 { HoldReason::Early } else { HoldReason::NothingHeld })
    }
}

impl<M: AsPublished + Debug> Policy for Counted<M> {
    fn on_submit(&mut self, _now: u64, clues: &Clues) -> Mark {
        self.machine.on_submit();
        Mark::of(clues.hint)
    }

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.stats.count(self.machine.on_completion(now, completion))
    }

    fn deadline(&self) -> Option<u64> {
        self.machine.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        match self.machine.on_deadline(now) {
            Some(decision) => self.stats.count(decision),
            None => self.nothing_due(),
        }
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.stats.count(self.machine.flush(now))
    }

    fn on_consumed(&mut self, _now: u64) {
        self.machine.on_consumed();
    }

    fn on_cancel(&mut self, _now: u64, _mark: Mark) -> Decision {
        self.nothing_due()
    }

    fn on_schedule(&mut self, _now: u64) -> Decision {
        self.nothing_due()
    }

    fn on_deschedule(&mut self, _now: u64) -> Decision {
        self.nothing_due()
    }

    fn held(&self) -> u64 {
        self.machine.held()
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn hints_counted(&self) -> &HintCounts {
        &self.hints
    }

    fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }
}
