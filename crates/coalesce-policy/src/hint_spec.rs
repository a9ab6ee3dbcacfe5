//! Parameters of both policies that decide by hints: where hints come from, and what they may do.

use crate::hint_bits::HintBits;
use coalesce_decision::{Barriers, HintSources, StormParams};

/// Where hints come from, and what they may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HintSpec {
    /// An Urgent completion interrupts alone, out of order, and held ones stay held.
    pub ooo: bool,
    /// When a Barrier interrupts.
    pub barrier: Barriers,
    /// The storm guard's limit, in interrupts per second; `None`: no limit.
    pub storm_max_rate: Option<u64>,
    /// The storm guard: an interval between interrupts weighs 2^-shift in their moving average.
    pub storm_shift: u8,
    /// What a target may take for a hint.
    pub sources: HintSources,
    /// Where an NVMe command carries its hint.
    pub bits: HintBits,
}

impl HintSpec {
    /// What a guest says explicitly, in order, with Barriers of one command, and no limit.
    pub const DEFAULT: Self = Self {
        ooo: false,
        barrier: Barriers::Relaxed,
        storm_max_rate: None,
        storm_shift: 7, // the authors' 1/128
        sources: HintSources::EXPLICIT,
        bits: HintBits::DEFAULT,
    };

    /// These with what a core keeps of them.
    pub(crate) const fn of_core(mut self, ooo: bool, storm: Option<StormParams>) -> Self {
        self.ooo = ooo;
        if let Some(StormParams { max_rate, shift }) = storm {
            (self.storm_max_rate, self.storm_shift) = (Some(max_rate), shift);
        }
        self
    }

    pub(crate) fn storm(&self) -> Option<StormParams> {
        self.storm_max_rate.map(|max_rate| StormParams { max_rate, shift: self.storm_shift })
    }
}
