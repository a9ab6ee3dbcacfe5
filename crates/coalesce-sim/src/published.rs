//! Baselines that only the simulator has: what the authors of two papers ran, flaws included.

mod cint_storm;
mod xen;

use cint_storm::CintStormAsPublished;
use coalesce_policy::{Completion, Decision};
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

    /// A machine that has seen nothing.
    pub(crate) fn machine(self) -> PublishedMachine {
        match self {
            Self::Xen => PublishedMachine::Xen(XenAsPublished::new()),
            Self::CintStorm => PublishedMachine::CintStorm(CintStormAsPublished::default()),
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

/// A baseline at work.
#[derive(Clone, Debug)]
pub(crate) enum PublishedMachine {
    Xen(XenAsPublished),
    CintStorm(CintStormAsPublished),
}

impl PublishedMachine {
    pub(crate) const fn get(&self) -> &dyn AsPublished {
        match self {
            Self::Xen(xen) => xen,
            Self::CintStorm(cint) => cint,
        }
    }

    pub(crate) const fn get_mut(&mut self) -> &mut dyn AsPublished {
        match self {
            Self::Xen(xen) => xen,
            Self::CintStorm(cint) => cint,
        }
    }
}
