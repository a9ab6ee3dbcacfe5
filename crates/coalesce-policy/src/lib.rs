//! Every interrupt coalescing policy behind one type, and one text form for all of them.
//!
//! [`AnyPolicy`] is a closed set: the three cores (`auto`, the default, is the latency budget with its regulator and the hints
//! that a target can infer), and the baselines that users would pick instead. Command lines and configuration files name a
//! policy by its text form, which [`Spec`] reads and prints:
//!
//! ```
//! use coalesce_policy::{AnyPolicy, Completion, Decision, Policy as _, Reason, Spec};
//!
//! let spec: Spec = "vic:cif_threshold=2,epoch=100ms".parse()?;
//! let mut policy = AnyPolicy::new(spec, 1_000_000_000)?;
//! assert_eq!(policy.on_completion(1_000, &Completion::with_cif(1)), Decision::Deliver(Reason::LowCif));
//! assert_eq!(policy.spec().to_string(), "vic:cif_threshold=2,epoch=100ms");
//!
//! let wrong = "vic:epoch=100".parse::<Spec>().unwrap_err();
//! assert_eq!(wrong.to_string(), "vic: epoch=100 has no unit; write 100ms");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without the features `text` and `alloc` it needs no allocator: firmware writes its [`Spec`] as a value, and its Barriers are
//! relaxed.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod any;
pub mod baseline;
mod budget_spec;
mod cint_spec;
#[cfg(feature = "text")]
mod error;
mod hint_bits;
mod hint_spec;
mod hinted;
#[cfg(feature = "text")]
mod keys;
mod spec;
mod sum;
#[cfg(feature = "text")]
mod text;
#[cfg(feature = "text")]
mod value;

pub use any::{AnyPolicy, SetAside};
pub use baseline::Aggregation;
pub use budget_spec::BudgetSpec;
pub use cint_spec::CintSpec;
pub use coalesce_decision::{
    Barriers, BothBits, Bypassed, Class, Completion, ConfigError, Counted, Decision, Event, Hint, HintCounts,
    HintSource, HintSources, HoldReason, Mark, Policy, Reason, Share, Spent, Stats, Submission, Submissions, Ticket,
    forward,
};
#[cfg(feature = "text")]
pub use error::SpecError;
pub use hint_bits::HintBits;
pub use hint_spec::HintSpec;
pub use hinted::Hinted;
#[cfg(feature = "text")]
pub use keys::KeyInfo;
pub use spec::Spec;
#[cfg(feature = "text")]
pub use text::PolicyInfo;
#[cfg(feature = "text")]
pub use value::parse_duration;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
