//! The text form of a policy: `name`, or `name:key=value,key=value`.

use crate::baseline::NvmeParams;
use crate::error::SpecError;
use crate::keys::{self, Family, KeyInfo};
use crate::spec::Spec;
use crate::value::Value;
use alloc::format;
use alloc::string::ToString as _;
use alloc::vec;
use alloc::vec::Vec;
use coalesce_decision::ticks::NS_PER_S;
use coalesce_decision::{ConfigError, Field};
use core::fmt;
use core::str::FromStr;

const NONE: &Family<()> = &keys::plain("none", "every completion interrupts");
const BATCH: &Family<()> =
    &keys::plain("batch", "interrupts at the first completion of a poll and at its end (crosvm, QEMU)");
const DIM: &Family<()> = &keys::plain(
    "dim",
    "dynamic interrupt moderation, after Linux rdma_dim: climbs a ladder of (time, count) while that pays",
);

/// A policy, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Reads the text form, for a clock of `tick_hz` ticks per second.
    ///
    /// # Errors
    /// What is wrong with the text, or which parameter this clock cannot carry.
    pub fn parse(text: &str, tick_hz: u64) -> Result<Self, SpecError> {
        let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let spec = match name {
            "none" => NONE.parse(rest).map(|()| Self::None),
            "nvme" => keys::NVME.parse(rest).and_then(|params| not_both(params, rest)).map(Self::Nvme),
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
        match spec.check(tick_hz) {
            Ok(()) => Ok(spec),
            Err(error) => Err(spec.explain(error)),
        }
    }

    /// Whether a clock can carry the parameters.
    fn check(&self, tick_hz: u64) -> Result<(), ConfigError> {
        Field::TickHz.check(tick_hz)?;
        match self {
            Self::Vic(params) => Self::vic_config(params, tick_hz).map(drop),
            Self::Cint(params) => params.config(tick_hz).map(drop),
            Self::Budget(params) | Self::Auto(params) => params.config(tick_hz).map(drop),
            _ => Ok(()),
        }
    }

    /// An error of [`AnyPolicy`](crate::AnyPolicy) with this policy, in the words of the text form.
    #[must_use]
    pub fn explain(&self, error: ConfigError) -> SpecError {
        let ConfigError { field, value, min, max, because, .. } = error;
        if field == Field::TickHz {
            return SpecError::Clock { policy: self.name(), problem: error.to_string() };
        }
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
}

impl FromStr for Spec {
    type Err = SpecError;

    /// Reads the text form, for a clock in nanoseconds.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text, NS_PER_S)
    }
}

/// Parameters that either the text gives or the host, which none may have from both.
fn not_both(params: NvmeParams, text: Option<&str>) -> Result<NvmeParams, SpecError> {
    let given = keys::items(text).filter_map(|item| item.split_once('='));
    match given.filter(|_| params.host).find(|(key, _)| matches!(*key, "thr" | "time")) {
        Some((key, value)) => Err(SpecError::Value {
            policy: keys::NVME.name,
            key: key.into(),
            value: value.into(),
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
        _ => (field.name(), Value::Number(value)),
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

#[cfg(feature = "serde")]
impl serde::Serialize for Spec {
    /// The text form.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Spec {
    /// Reads the text form, for a clock in nanoseconds.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl serde::de::Visitor<'_> for Text {
            type Value = Spec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the text form of a policy")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Spec, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::Spec;

    #[test]
    fn each_policy_has_one_name() {
        for policy in Spec::policies() {
            assert_eq!(policy.name.parse::<Spec>().map(|spec| spec.name()), Ok(policy.name));
        }
    }
}
