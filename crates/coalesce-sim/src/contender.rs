//! What can decide in a simulation: every policy that users can choose, and baselines that only the simulator has.

use crate::published::Published;
use coalesce_delivery::Delivery;
use coalesce_policy::{AnyPolicy, Counted, Policy, Spec, SpecError};
use std::fmt;
use std::str::FromStr;

/// Ticks per second of every clock in the simulator: times are in nanoseconds.
pub const TICK_HZ: u64 = 1_000_000_000;

/// A policy to simulate, with its parameters. Its text form is that of [`Spec`], or [`Published::name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One that users can choose.
    Policy(Spec),
    /// What the authors of a paper ran, flaws included.
    Published(Published),
}

impl FromStr for Contender {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match Published::ALL.into_iter().find(|published| published.name() == text) {
            Some(published) => Ok(Self::Published(published)),
            None => text.parse().map(Self::Policy),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(spec) => spec.fmt(f),
            Self::Published(published) => f.write_str(published.name()),
        }
    }
}

/// A delivery under any contender.
pub(crate) type AnyDelivery<E> = Delivery<E, Counted<Box<dyn Policy>>>;

impl Contender {
    /// Its latency budget, in basis points (1/100 %).
    pub(crate) const fn budget(&self) -> Option<u16> {
        match self {
            Self::Policy(spec) => spec.budget(),
            Self::Published(_) => None,
        }
    }

    /// The same, if it keeps to it. A storm guard may exceed it.
    pub(crate) fn promised_budget(&self) -> Option<u16> {
        match self {
            Self::Policy(spec) if spec.hints().is_some_and(|hints| hints.storm_max_rate.is_none()) => spec.budget(),
            _ => None,
        }
    }

    /// A delivery under this policy, and the longest time, in ns, that it holds a completion if deadlines are met on
    /// time; `None`: no such bound.
    ///
    /// # Errors
    /// A parameter that a clock in ns cannot carry.
    pub(crate) fn delivery<E>(&self) -> Result<(AnyDelivery<E>, Option<u64>), SpecError> {
        let (policy, bound): (Box<dyn Policy>, _) = match self {
            Self::Policy(spec) => {
                let policy = AnyPolicy::new(spec.clone(), TICK_HZ).map_err(|error| spec.explain(error))?;
                let bound = bound(&policy);
                (Box::new(policy), bound)
            }
            Self::Published(published) => (published.policy(), None),
        };
        Ok((Delivery::with_policy(Counted::new(policy)), bound))
    }
}

/// The storm guard of cinterrupts may exceed `max_hold` by less than its interval while urgent completions interrupt alone. A
/// latency budget counts that into its `max_hold`.
fn bound(policy: &AnyPolicy) -> Option<u64> {
    let over = match policy.spec() {
        Spec::Cint(cint) if cint.hints.ooo => cint.hints.storm_max_rate.map_or(0, |rate| TICK_HZ.div_ceil(rate)),
        _ => 0,
    };
    policy.max_hold().map(|hold| hold + over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_read_and_printed() {
        for text in ["none", "vic:cif_threshold=2", "xen_as_published", "cint_storm_as_published"] {
            assert_eq!(text.parse::<Contender>().unwrap().to_string(), text);
        }
        assert!("xen".parse::<Contender>().is_err());
    }
}
