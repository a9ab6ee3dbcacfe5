//! A policy and its parameters, and their text form: `name`, or `name:key=value,key=value`.

use crate::baseline::{NvmeParams, SpdkVhostParams};
use crate::budget_spec::BudgetSpec;
use crate::cint_spec::CintSpec;
use crate::error::SpecError;
use crate::guarded;
use crate::hint_bits::HintBits;
use crate::hint_spec::HintSpec;
use crate::keys::{self, Family, KeyInfo};
use crate::value::Value;
use cint_core::Hint;
use coalesce_decision::ticks::NS_PER_S;
use coalesce_decision::{ConfigError, Field};
use std::fmt;
use std::str::FromStr;

/// A policy with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A latency budget, with the hints that an unmodified guest gives.
    Auto(BudgetSpec),
}

const NONE: &Family<()> = &keys::plain("none", "every completion interrupts");
const BATCH: &Family<()> =
    &keys::plain("batch", "interrupts at the first completion of a poll and at its end (crosvm, QEMU)");
const DIM: &Family<()> = &keys::plain(
    "dim",
    "dynamic interrupt moderation, after Linux rdma_dim: climbs a ladder of (time, count) while that pays",
);

/// A policy, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its keys.
    pub keys: Vec<KeyInfo>,
}

fn info<P: Clone>(family: &Family<P>) -> PolicyInfo {
    PolicyInfo { name: family.name, about: family.about, keys: family.explain() }
}

impl Spec {
    /// Every policy, in the order in which they are explained.
    #[must_use]
    pub fn policies() -> Vec<PolicyInfo> {
        vec![
            info(keys::AUTO),
            info(keys::BUDGET),
            info(keys::CINT),
            info(keys::VIC),
            info(NONE),
            info(keys::NVME),
            info(BATCH),
            info(DIM),
            info(keys::SPDK_VHOST),
        ]
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

    /// The latency budget, in basis points (1/100 %); `None`: the policy has none.
    #[must_use]
    pub const fn budget(&self) -> Option<u16> {
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

    pub(crate) fn vic_config(&self, params: &vic_core::Params, tick_hz: u64) -> Result<vic_core::Config, SpecError> {
        vic_core::Config::new(vic_core::Params { tick_hz, ..*params }).map_err(|error| self.wrong(error))
    }

    pub(crate) fn cint_config(&self, spec: &CintSpec, tick_hz: u64) -> Result<cint_core::Config, SpecError> {
        cint_core::Config::new(spec.params(tick_hz)).map_err(|error| self.wrong(error))
    }

    pub(crate) fn budget_config(&self, spec: &BudgetSpec, tick_hz: u64) -> Result<guarded::Config, SpecError> {
        let budget = budget_core::Config::new(spec.params(tick_hz)).map_err(|error| self.wrong(error))?;
        Ok(guarded::Config { budget, is_regulated: matches!(self, Self::Auto(_)) })
    }

    /// A core's error, in the words of the text form.
    pub(crate) fn wrong(&self, error: ConfigError) -> SpecError {
        let ConfigError { field, value, min, max, because } = error;
        let (key, value) = in_text(field, value);
        let (min, max) = (in_text(field, min).1, in_text(field, max).1);
        let bound = because.map_or_else(
            || "for this clock".into(),
            |(other, bound)| {
                let (other, bound) = in_text(other, bound);
                format!("with {other}={bound}")
            },
        );
        let problem = format!("is out of range {bound}; allowed: {min} to {max}");
        SpecError::Value { policy: self.name(), key: key.into(), value: value.to_string(), problem }
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => NONE.name,
            Self::Nvme(_) => keys::NVME.name,
            Self::Batch => BATCH.name,
            Self::Dim => DIM.name,
            Self::SpdkVhost(_) => keys::SPDK_VHOST.name,
            Self::Vic(_) => keys::VIC.name,
            Self::Cint(_) => keys::CINT.name,
            Self::Budget(_) => keys::BUDGET.name,
            Self::Auto(_) => keys::AUTO.name,
        }
    }

    /// Reads the text form, for a clock of `tick_hz` ticks per second.
    ///
    /// # Errors
    /// What is wrong with the text, or which parameter this clock cannot carry.
    pub fn parse(text: &str, tick_hz: u64) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let spec = match name {
            "none" => NONE.parse(rest).map(|()| Self::None),
            "nvme" => keys::NVME.parse(rest).and_then(not_both).map(Self::Nvme),
            "batch" => BATCH.parse(rest).map(|()| Self::Batch),
            "dim" => DIM.parse(rest).map(|()| Self::Dim),
            "spdk_vhost" => keys::SPDK_VHOST.parse(rest).map(Self::SpdkVhost),
            "vic" => keys::VIC.parse(rest).map(Self::Vic),
            "cint" => keys::CINT.parse(rest).map(Self::Cint),
            "budget" => keys::BUDGET.parse(rest).map(Self::Budget),
            "auto" => keys::AUTO.parse(rest).map(Self::Auto),
            _ => {
                let names: Vec<_> = Self::policies().iter().map(|policy| policy.name).collect();
                Err(SpecError::Policy { name: name.into(), allowed: names.join(", ") })
            }
        }?;
        spec.check_clock(tick_hz)?;
        match &spec {
            Self::Vic(params) => drop(spec.vic_config(params, tick_hz)?),
            Self::Cint(params) => drop(spec.cint_config(params, tick_hz)?),
            Self::Budget(params) | Self::Auto(params) => drop(spec.budget_config(params, tick_hz)?),
            _ => {}
        }
        Ok(spec)
    }

    /// Whether any policy can have a clock of `tick_hz` ticks per second.
    pub(crate) fn check_clock(&self, tick_hz: u64) -> Result<(), SpecError> {
        let wrong = |error: ConfigError| SpecError::Clock { policy: self.name(), problem: error.to_string() };
        Field::TickHz.check(tick_hz).map_err(wrong)
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    /// Reads the text form, for a clock in nanoseconds.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text, NS_PER_S)
    }
}

/// Parameters that either the text gives or the host, which none may have from both.
fn not_both(params: NvmeParams) -> Result<NvmeParams, SpecError> {
    let family = keys::NVME;
    let default = &family.profiles[0].1;
    let given =
        family.keys.iter().find(|key| matches!(key.name, "thr" | "time") && key.value(&params) != key.value(default));
    match given.filter(|_| params.host) {
        Some(key) => Err(SpecError::Value {
            policy: family.name,
            key: key.name.into(),
            value: key.value(&params).to_string(),
            problem: "is not for host=on: the host decides about it".into(),
        }),
        None => Ok(params),
    }
}

/// The key of a parameter in the text form, and how its value is written there.
fn in_text(field: Field, value: u64) -> (&'static str, Value) {
    match field {
        Field::Epoch => ("epoch", Value::Duration(value)),
        Field::MaxHold => ("max_hold", Value::Duration(value)),
        Field::Margin => ("margin", Value::Duration(value)),
        Field::Delta => ("delta", Value::Duration(value)),
        Field::StormMaxRate => ("storm", Value::Number(value)),
        Field::StormShift => ("storm_shift", Value::Number(value)),
        Field::Budget => ("budget", Value::Percent(value)),
        Field::TickHz | Field::CifThreshold | Field::MaxSkip | Field::IpiThreshold | Field::Thr | Field::InFlight => {
            (field.name(), Value::Number(value))
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::None => NONE.print(&()),
            Self::Nvme(params) => keys::NVME.print(params),
            Self::Batch => BATCH.print(&()),
            Self::Dim => DIM.print(&()),
            Self::SpdkVhost(params) => keys::SPDK_VHOST.print(params),
            Self::Vic(params) => keys::VIC.print(params),
            Self::Cint(spec) => keys::CINT.print(spec),
            Self::Budget(spec) => keys::BUDGET.print(spec),
            Self::Auto(spec) => keys::AUTO.print(spec),
        })
    }
}
