//! Baselines that only the simulator has: what the authors of two papers ran, flaws included.

mod cint_storm;
mod xen;

use cint_storm::CintStormAsPublished;
use coalesce_policy::{Decision, HoldReason, Policy};
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

    /// This baseline, which has seen nothing.
    pub(crate) fn policy(self) -> Box<dyn Policy> {
        match self {
            Self::Xen => Box::new(XenAsPublished::new()),
            Self::CintStorm => Box::new(CintStormAsPublished::default()),
        }
    }
}

/// Nothing is due with `held` completions held.
const fn nothing_due(held: u32) -> Decision {
    Decision::Hold(if held > 0 { HoldReason::Early } else { HoldReason::NothingHeld })
}
