//! Every interrupt coalescing policy behind one enum, and one text form for all of them.
//!
//! [`AnyPolicy`] is a closed set: the three cores (`auto`, the default, is the latency budget with the hints that a
//! target can infer), and the baselines that users would pick instead. Command lines and configuration files name a
//! policy by its text form, which [`Spec`] reads and prints:
//!
//! ```
//! use coalesce_policy::{AnyPolicy, Completion, Policy as _, Spec};
//!
//! let spec: Spec = "vic:cif_threshold=2,epoch=100ms".parse()?;
//! let mut policy = AnyPolicy::new(spec, 1_000_000_000)?;
//! let decision = policy.on_completion(1_000, &Completion { cif: 1, ..Completion::default() });
//! assert_eq!(decision, coalesce_policy::Decision::Deliver(coalesce_policy::Reason::LowCif));
//! assert_eq!(policy.spec().to_string(), "vic:cif_threshold=2,epoch=100ms");
//!
//! let wrong = "vic:epoch=100".parse::<Spec>().unwrap_err();
//! assert_eq!(wrong.to_string(), "vic: epoch=100 has no unit; write 100ns, 100us, 100ms or 100s");
//! # Ok::<(), coalesce_policy::SpecError>(())
//! ```

#![forbid(unsafe_code)]

mod any;
pub mod baseline;
mod budget_spec;
mod cint_spec;
mod completion;
mod error;
mod guarded;
mod hint_bits;
mod hint_spec;
mod hinted;
mod hints;
mod keys;
mod machine;
mod mark;
mod policy;
mod spec;
mod value;
mod vic;

pub use any::AnyPolicy;
pub use baseline::Aggregation;
pub use budget_spec::BudgetSpec;
pub use cint_core::{Barriers, BothBits, Hint, Ticket};
pub use cint_spec::CintSpec;
pub use coalesce_decision::{Decision, HoldReason, Reason, Stats};
pub use completion::{Class, Completion};
pub use error::SpecError;
pub use hint_bits::HintBits;
pub use hint_spec::HintSpec;
pub use hints::{Clues, HintCounts, HintSource, HintSources};
pub use keys::KeyInfo;
pub use mark::{Mark, MarkParts};
pub use policy::{Policy, Spent, Submissions};
pub use spec::{PolicyInfo, Spec};
pub use value::parse_duration;

// The README's example compiles and does what its comments say.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
