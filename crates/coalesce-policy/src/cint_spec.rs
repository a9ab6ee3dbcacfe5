//! Parameters of cinterrupts as users choose them.

use crate::hint_spec::HintSpec;
use coalesce_decision::ConfigError;

/// Parameters of cinterrupts, and how a target finds hints for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[expect(missing_docs, reason = "the fields of cint_core::Params")]
pub struct CintSpec {
    pub delta_ns: u64,
    pub thr: u16,
    pub max_hold_ns: Option<u64>,
    pub in_flight: Option<u16>,
    /// Where hints come from, and what they may do.
    pub hints: HintSpec,
}

impl CintSpec {
    /// The machine's parameters, with the defaults of all others.
    #[must_use]
    pub const fn of(params: &cint_core::Params) -> Self {
        Self {
            delta_ns: params.delta_ns,
            thr: params.thr,
            max_hold_ns: params.max_hold_ns,
            in_flight: params.in_flight,
            hints: HintSpec::DEFAULT.of_core(params.ooo, params.storm),
        }
    }

    /// The machine's parameters, for a clock of `tick_hz` ticks per second.
    #[must_use]
    pub fn params(&self, tick_hz: u64) -> cint_core::Params {
        cint_core::Params {
            tick_hz,
            delta_ns: self.delta_ns,
            thr: self.thr,
            ooo: self.hints.ooo,
            max_hold_ns: self.max_hold_ns,
            storm: self.hints.storm(),
            in_flight: self.in_flight,
        }
    }

    pub(crate) fn config(&self, tick_hz: u64) -> Result<cint_core::Config, ConfigError> {
        cint_core::Config::new(self.params(tick_hz))
    }

    /// The paper's parameters, made safe.
    pub const DEFAULT: Self = Self::of(&cint_core::Params::DEFAULT);
    /// As in the paper, for an Intel Optane P4800X.
    pub const OPTANE: Self = Self::of(&cint_core::Params::OPTANE);
    /// As in the paper, for an Intel P3700.
    pub const P3700: Self = Self::of(&cint_core::Params::P3700);
}
