//! A policy and its parameters.

use crate::baseline::{NvmeParams, SpdkVhostParams};
use crate::budget_spec::BudgetSpec;
use crate::cint_spec::CintSpec;
use crate::hint_bits::HintBits;
use crate::hint_spec::HintSpec;
use coalesce_decision::{Barriers, ConfigError, Hint, HintSources, Share};

/// A policy with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Spec {
    /// Every completion interrupts.
    None,
    /// NVMe's own coalescing.
    Nvme(NvmeParams),
    /// One interrupt for what a poll of the device finds.
    Batch,
    /// A ladder of (time, count), climbed as long as it pays.
    Dim,
    /// SPDK's vhost coalescing.
    SpdkVhost(SpdkVhostParams),
    /// vIC. `tick_hz` is not used: the clock is given when the policy is built.
    Vic(vic_core::Params),
    /// cinterrupts.
    Cint(CintSpec),
    /// A latency budget.
    Budget(BudgetSpec),
    /// A latency budget with its regulator, and with the hints that an unmodified guest gives.
    Auto(BudgetSpec),
}

impl Spec {
    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Nvme(_) => "nvme",
            Self::Batch => "batch",
            Self::Dim => "dim",
            Self::SpdkVhost(_) => "spdk_vhost",
            Self::Vic(_) => "vic",
            Self::Cint(_) => "cint",
            Self::Budget(_) => "budget",
            Self::Auto(_) => "auto",
        }
    }

    /// Where hints come from, and what they may do. `None`: the policy does not look at hints.
    #[must_use]
    pub const fn hints(&self) -> Option<&HintSpec> {
        match self {
            Self::Cint(spec) => Some(&spec.hints),
            Self::Budget(spec) | Self::Auto(spec) => Some(&spec.hints),
            _ => None,
        }
    }

    /// The hint of an NVMe read or write, by its Command Dwords 12 and 13.
    #[must_use]
    pub fn hint(&self, dwords: [u32; 2]) -> Hint {
        self.hints().map_or(HintBits::DEFAULT, |hints| hints.bits).hint(dwords)
    }

    /// Whether plain completions stay unposted while urgent ones are delivered alone.
    #[must_use]
    pub const fn is_ooo(&self) -> bool {
        matches!(self.hints(), Some(HintSpec { ooo: true, .. }))
    }

    /// The latency budget; `None`: the policy has none.
    #[must_use]
    pub const fn budget(&self) -> Option<Share> {
        match self {
            Self::Budget(spec) | Self::Auto(spec) => Some(spec.budget),
            _ => None,
        }
    }

    /// Whether the host decides about parameters, with NVMe's Feature 08h: see
    /// [`AnyPolicy::set_by_host`](crate::AnyPolicy::set_by_host).
    #[must_use]
    pub const fn is_by_host(&self) -> bool {
        matches!(self, Self::Nvme(NvmeParams { host: true, .. }))
    }

    /// From where hints are inferred. `None`: the policy does not look at hints.
    pub(crate) fn sources(&self) -> Option<HintSources> {
        self.hints().map(|hints| hints.sources)
    }

    /// When a Barrier interrupts.
    pub(crate) fn barriers(&self) -> Barriers {
        self.hints().map_or(Barriers::Relaxed, |hints| hints.barrier)
    }

    pub(crate) fn vic_config(params: &vic_core::Params, tick_hz: u64) -> Result<vic_core::Config, ConfigError> {
        vic_core::Config::new(vic_core::Params { tick_hz, ..*params })
    }
}
