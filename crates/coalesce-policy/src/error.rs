//! What can be wrong with a policy's text form, and with its parameters.

use alloc::string::String;
use core::fmt;

/// What is wrong with a policy's text form, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what the messages name")]
#[non_exhaustive]
pub enum SpecError {
    /// There is no such policy.
    Policy { name: String, allowed: String },
    /// The policy has no such key.
    Key { policy: &'static str, key: String, allowed: String },
    /// A key without a value.
    NoValue { policy: &'static str, item: String },
    /// A key that comes twice.
    Repeated { policy: &'static str, key: String },
    /// A value that the key does not take.
    Value { policy: &'static str, key: String, value: String, problem: String },
    /// A clock that no policy can be built for.
    Clock { policy: &'static str, problem: String },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy { name, allowed } => write!(f, "unknown policy \"{name}\"; allowed: {allowed}"),
            Self::Key { policy, key, allowed } if allowed.is_empty() => {
                write!(f, "{policy}: unknown key \"{key}\"; it has no keys")
            }
            Self::Key { policy, key, allowed } => {
                write!(f, "{policy}: unknown key \"{key}\"; allowed: {allowed}")
            }
            Self::NoValue { policy, item } => write!(f, "{policy}: \"{item}\" is not key=value"),
            Self::Repeated { policy, key } => write!(f, "{policy}: {key} is given twice"),
            Self::Value { policy, key, value, problem } => write!(f, "{policy}: {key}={value} {problem}"),
            Self::Clock { policy, problem } => write!(f, "{policy}: {problem}"),
        }
    }
}

impl core::error::Error for SpecError {}
