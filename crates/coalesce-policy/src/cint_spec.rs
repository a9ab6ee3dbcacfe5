//! Parameters of cinterrupts as users choose them: those of the machine, and how a target finds hints for it.

use crate::hints::HintSources;
use cint_core::{Barriers, BothBits, StormParams};

/// Parameters of cinterrupts, and how a target finds hints for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields of cint_core::Params and StormParams")]
pub struct CintSpec {
    pub delta_ns: u64,
    pub thr: u16,
    pub ooo: bool,
    pub max_hold_ns: Option<u64>,
    pub storm_max_rate: Option<u64>,
    pub storm_shift: u8,
    pub in_flight: Option<u16>,
    /// When a Barrier interrupts.
    pub barrier: Barriers,
    /// What both hint bits mean.
    pub both: BothBits,
    /// What a target may take for a hint.
    pub hints: HintSources,
}

impl CintSpec {
    /// The machine's parameters, with the defaults of all others.
    #[must_use]
    pub const fn of(params: &cint_core::Params) -> Self {
        let (storm_max_rate, storm_shift) = match params.storm {
            Some(StormParams { max_rate, shift }) => (Some(max_rate), shift),
            None => (None, 7), // the authors' 1/128
        };
        Self {
            delta_ns: params.delta_ns,
            thr: params.thr,
            ooo: params.ooo,
            max_hold_ns: params.max_hold_ns,
            storm_max_rate,
            storm_shift,
            in_flight: params.in_flight,
            barrier: Barriers::Relaxed,
            both: BothBits::Urgent,
            hints: HintSources::EXPLICIT,
        }
    }

    /// The machine's parameters, for a clock of `tick_hz` ticks per second.
    #[must_use]
    pub fn params(&self, tick_hz: u64) -> cint_core::Params {
        cint_core::Params {
            tick_hz,
            delta_ns: self.delta_ns,
            thr: self.thr,
            ooo: self.ooo,
            max_hold_ns: self.max_hold_ns,
            storm: self.storm_max_rate.map(|max_rate| StormParams { max_rate, shift: self.storm_shift }),
            in_flight: self.in_flight,
        }
    }

    /// The paper's parameters, made safe.
    pub const DEFAULT: Self = Self::of(&cint_core::Params::DEFAULT);
    /// As in the paper, for an Intel Optane P4800X.
    pub const OPTANE: Self = Self::of(&cint_core::Params::OPTANE);
    /// As in the paper, for an Intel P3700.
    pub const P3700: Self = Self::of(&cint_core::Params::P3700);
    /// Our best default.
    pub const AUTO: Self = Self {
        delta_ns: 100_000,
        max_hold_ns: Some(200_000),
        ooo: false,
        in_flight: Some(2),
        storm_max_rate: Some(2_000_000),
        hints: HintSources::AUTO,
        ..Self::DEFAULT
    };
}
