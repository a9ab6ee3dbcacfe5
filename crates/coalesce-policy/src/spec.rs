//! A policy and its parameters, and their text form: `name`, or `name:key=value,key=value`.

use crate::baseline::{NvmeParams, SpdkVhostParams};
use crate::hints::HintSources;
use crate::keys::{self, Family, KeyInfo};
use crate::value::Value;
use cint_core::{Barriers, BothBits, StormParams};
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
    /// cinterrupts with everything that an unmodified guest gives away.
    Auto(CintSpec),
}

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
            info(keys::CINT),
            info(keys::VIC),
            info(NONE),
            info(keys::NVME),
            info(BATCH),
            info(DIM),
            info(keys::SPDK_VHOST),
        ]
    }

    /// What a target may take for a hint under this policy.
    #[must_use]
    pub const fn hints(&self) -> HintSources {
        match self {
            Self::Cint(spec) | Self::Auto(spec) => spec.hints,
            _ => HintSources::NONE,
        }
    }

    /// Whether plain completions stay unposted while urgent ones are announced alone.
    #[must_use]
    pub const fn is_ooo(&self) -> bool {
        matches!(self, Self::Cint(spec) | Self::Auto(spec) if spec.ooo)
    }

    pub(crate) fn vic_config(&self, params: &vic_core::Params, tick_hz: u64) -> Result<vic_core::Config, SpecError> {
        vic_core::Config::new(vic_core::Params { tick_hz, ..*params }).map_err(|error| self.wrong_vic(error))
    }

    pub(crate) fn cint_config(&self, spec: &CintSpec, tick_hz: u64) -> Result<cint_core::Config, SpecError> {
        cint_core::Config::new(spec.params(tick_hz)).map_err(|error| self.wrong_cint(error))
    }

    pub(crate) fn wrong_vic(&self, error: vic_core::ConfigError) -> SpecError {
        SpecError::Clock { policy: self.name(), problem: error.to_string() }
    }

    pub(crate) fn wrong_cint(&self, error: cint_core::ConfigError) -> SpecError {
        match error.field {
            cint_core::Field::MaxHoldInStorm => SpecError::Value {
                policy: self.name(),
                key: "max_hold".into(),
                value: Value::Duration(error.value).to_string(),
                problem: format!(
                    "is shorter than the interval of the storm guard; allowed are {} to {}, or another storm",
                    Value::Duration(error.min),
                    Value::Duration(error.max)
                ),
            },
            _ => SpecError::Clock { policy: self.name(), problem: error.to_string() },
        }
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
            Self::Auto(_) => keys::AUTO.name,
        }
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let spec = match name {
            "none" => NONE.parse(rest).map(|()| Self::None),
            "nvme" => keys::NVME.parse(rest).map(Self::Nvme),
            "batch" => BATCH.parse(rest).map(|()| Self::Batch),
            "dim" => DIM.parse(rest).map(|()| Self::Dim),
            "spdk_vhost" => keys::SPDK_VHOST.parse(rest).map(Self::SpdkVhost),
            "vic" => keys::VIC.parse(rest).map(Self::Vic),
            "cint" => keys::CINT.parse(rest).map(Self::Cint),
            "auto" => keys::AUTO.parse(rest).map(Self::Auto),
            _ => Err(SpecError::Policy { name: name.into() }),
        }?;
        // What only the whole can tell, for the usual clock.
        crate::AnyPolicy::new(spec.clone(), 1_000_000_000)?;
        Ok(spec)
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
            Self::Auto(spec) => keys::AUTO.print(spec),
        })
    }
}

/// What is wrong with a policy's text form, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the messages name")]
pub enum SpecError {
    /// There is no such policy.
    Policy { name: String },
    /// The policy has no such key.
    Key { policy: &'static str, key: String, allowed: String },
    /// A key without a value.
    NoValue { policy: &'static str, item: String },
    /// A key that comes twice.
    Repeated { policy: &'static str, key: String },
    /// A value that the key does not take.
    Value { policy: &'static str, key: String, value: String, problem: String },
    /// A parameter that the clock it is built for cannot carry.
    Clock { policy: &'static str, problem: String },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { name } => {
                let names: Vec<_> = Spec::policies().iter().map(|policy| policy.name).collect();
                write!(f, "unknown policy \"{name}\"; allowed are {}", names.join(", "))
            }
            Self::Key { policy, key, allowed } if allowed.is_empty() => {
                write!(f, "{policy}: unknown key \"{key}\"; it has no keys")
            }
            Self::Key { policy, key, allowed } => {
                write!(f, "{policy}: unknown key \"{key}\"; allowed are {allowed}")
            }
            Self::NoValue { policy, item } => write!(f, "{policy}: \"{item}\" is not key=value"),
            Self::Repeated { policy, key } => write!(f, "{policy}: {key} is given twice"),
            Self::Value { policy, key, value, problem } => write!(f, "{policy}: {key}={value} {problem}"),
            Self::Clock { policy, problem } => write!(f, "{policy}: {problem}"),
        }
    }
}

impl std::error::Error for SpecError {}
