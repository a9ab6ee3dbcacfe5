//! Parameters of the latency budget as users choose them.

use crate::hint_spec::HintSpec;
use coalesce_decision::{ConfigError, HintSources, Share};

/// Parameters of the latency budget, and how a target finds hints for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[expect(missing_docs, reason = "the fields of budget_core::Params")]
pub struct BudgetSpec {
    pub budget: Share,
    pub max_hold_ns: u64,
    pub thr: u16,
    /// Where hints come from, and what they may do.
    pub hints: HintSpec,
}

impl BudgetSpec {
    /// The core's defaults, with hints from flush, FUA and I/O priority besides those of the requesters.
    pub const AUTO: Self = {
        let budget_core::Params { budget, max_hold_ns, thr, .. } = budget_core::Params::DEFAULT;
        Self { budget, max_hold_ns, thr, hints: HintSpec::DEFAULT }
    };
    /// The core's defaults, with no hints but those of the requesters.
    pub const DEFAULT: Self =
        Self { hints: HintSpec { sources: HintSources::NONE, ..HintSpec::DEFAULT }, ..Self::AUTO };

    /// The machine's parameters, with the defaults of all others.
    #[must_use]
    pub const fn of(params: &budget_core::Params) -> Self {
        let budget_core::Params { budget, max_hold_ns, thr, ooo, storm, .. } = *params;
        Self { budget, max_hold_ns, thr, hints: Self::DEFAULT.hints.of_core(ooo, storm) }
    }

    /// The machine's parameters, for a clock of `tick_hz` ticks per second.
    #[must_use]
    pub fn params(&self, tick_hz: u64) -> budget_core::Params {
        let Self { budget, max_hold_ns, thr, hints } = *self;
        budget_core::Params { tick_hz, budget, max_hold_ns, thr, ooo: hints.ooo, storm: hints.storm() }
    }

    pub(crate) fn config(&self, tick_hz: u64) -> Result<budget_core::Config, ConfigError> {
        budget_core::Config::new(self.params(tick_hz))
    }
}
