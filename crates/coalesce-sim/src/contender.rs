//! What can decide in a simulation: every policy that users can choose, and policies that have only a name.

use crate::published;
use coalesce_delivery::Delivery;
use coalesce_policy::{AnyPolicy, Counted, Policy, Share, Spec, SpecError};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Ticks per second of every clock in the simulator: times are in nanoseconds.
pub const TICK_HZ: u64 = 1_000_000_000;

/// A policy to simulate, with its parameters. Its text form is that of [`Spec`], or [`Named::name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One that users can choose.
    Policy(Spec),
    /// One that only the simulator has.
    Named(Named),
}

/// A policy without parameters that only the simulator has: [`published`], or one's own.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its text form: lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Makes one that has seen nothing. Its clock has [`TICK_HZ`].
    pub policy: fn() -> Box<dyn Policy>,
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name // which is unique
    }
}

impl Eq for Named {}

/// The baselines that only the simulator has: [`published`].
pub const PUBLISHED: [Named; 2] = [
    Named { name: "xen_as_published", policy: published::xen },
    Named { name: "cint_storm_as_published", policy: published::cint_storm },
];

static OWN: OnceLock<Vec<Named>> = OnceLock::new();

/// Makes policies of one's own known by their names, in plans, too. Once in a program, before anything reads a name.
///
/// # Errors
/// A name that is taken, or has other characters; or it was called before.
pub fn introduce(own: &[Named]) -> Result<(), String> {
    for (i, Named { name, .. }) in own.iter().enumerate() {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(is_allowed) {
            return Err(format!("policy {name:?}: a name has lower-case letters, digits and _"));
        }
        let is_taken = own[..i].iter().chain(&PUBLISHED).any(|other| other.name == *name);
        if is_taken || Spec::policies().iter().any(|policy| policy.name == *name) {
            return Err(format!("policy {name:?}: there is another one of this name"));
        }
    }
    OWN.set(own.to_vec()).map_err(|_| "policies were introduced before".to_owned())
}

/// The policies of one's own.
pub fn own() -> impl Iterator<Item = Contender> {
    OWN.get().into_iter().flatten().copied().map(Contender::Named)
}

impl FromStr for Contender {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, keys) = text.split_once(':').map_or((text, None), |(name, keys)| (name, Some(keys)));
        match (named().find(|named| named.name == name), keys) {
            (Some(&named), None) => Ok(Self::Named(named)),
            (Some(named), Some(keys)) => {
                let key = keys.split('=').next().unwrap_or_default().into();
                Err(SpecError::Key { policy: named.name, key, allowed: String::new() })
            }
            (None, _) => text.parse().map(Self::Policy).map_err(with_named),
        }
    }
}

/// Those that have only a name.
fn named() -> impl Iterator<Item = &'static Named> {
    PUBLISHED.iter().chain(OWN.get().into_iter().flatten())
}

/// An unknown policy may have been meant for one of these, too.
fn with_named(error: SpecError) -> SpecError {
    match error {
        SpecError::Policy { name, allowed } => {
            let names = std::iter::once(&*allowed).chain(named().map(|named| named.name)).collect::<Vec<_>>();
            SpecError::Policy { name, allowed: names.join(", ") }
        }
        other => other,
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(spec) => spec.fmt(f),
            Self::Named(named) => f.write_str(named.name),
        }
    }
}

/// A delivery under any contender.
pub(crate) type AnyDelivery<E> = Delivery<E, Counted<Box<dyn Policy>>>;

impl Contender {
    /// Its latency budget, in basis points (1/100 %).
    pub(crate) fn budget(&self) -> Option<u16> {
        match self {
            Self::Policy(spec) => spec.budget().map(Share::as_basis_points),
            Self::Named(_) => None,
        }
    }

    /// The same, if it keeps to it. A storm guard may exceed it.
    pub(crate) fn promised_budget(&self) -> Option<u16> {
        match self {
            Self::Policy(spec) if spec.hints().is_some_and(|hints| hints.storm_max_rate.is_none()) => self.budget(),
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
            Self::Named(named) => {
                let policy = (named.policy)();
                let bound = policy.max_hold();
                (policy, bound)
            }
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

    #[test]
    fn one_with_only_a_name_is_offered_and_says_that_it_takes_no_keys() {
        let error = |text: &str| text.parse::<Contender>().unwrap_err().to_string();
        assert_eq!(error("xen_as_published:x=1"), "xen_as_published: unknown key \"x\"; it has no keys");
        let unknown = error("xen");
        assert!(unknown.starts_with("unknown policy \"xen\"; allowed: auto, "), "{unknown}");
        assert!(unknown.ends_with(", xen_as_published, cint_storm_as_published"), "{unknown}");
        assert_eq!(error("cint:x=1"), "cint:x=1".parse::<Spec>().unwrap_err().to_string());
    }

    #[test]
    fn a_name_that_is_taken_or_could_not_be_read_is_refused() {
        let named = |name| Named { name, policy: PUBLISHED[0].policy };
        for (names, what) in [
            (vec!["auto"], "another"),
            (vec!["xen_as_published"], "another"),
            (vec!["mine", "mine"], "another"),
            (vec![""], "letters"),
            (vec!["my,own"], "letters"),
            (vec!["Mine"], "letters"),
        ] {
            let own: Vec<_> = names.iter().copied().map(named).collect();
            let error = introduce(&own).unwrap_err();
            assert!(error.contains(what), "{names:?}: {error}");
        }
    }
}
