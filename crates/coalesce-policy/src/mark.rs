//! What a request carries for its policy from submission to completion.

use crate::hints::{Clues, HintSource, HintSources, at_completion, infer};
use cint_core::{Hint, Ticket};

/// What a request carries from its submission to its completion: [`Policy::on_submit`](crate::Policy::on_submit) makes
/// it, and the completion gives it back. The default is the mark of a request that was never submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(MarkParts);

/// A [`Mark`] in parts, for the C ABI.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkParts {
    /// What the requester said, or what was inferred.
    pub hint: Hint,
    /// What the hint was inferred from; `None`: the requester said it, or nobody did.
    pub source: Option<HintSource>,
    /// Of a strict Barrier's tracker.
    pub ticket: Option<Ticket>,
}

impl Mark {
    /// A request that was never submitted, but whose requester said a hint.
    #[must_use]
    pub const fn of(hint: Hint) -> Self {
        Self(MarkParts { hint, source: None, ticket: None })
    }

    /// The hint of its submission. The completion may be decided by another:
    /// [`Policy::hint_of`](crate::Policy::hint_of).
    #[must_use]
    pub const fn hint(self) -> Hint {
        self.0.hint
    }

    pub(crate) const fn ticket(self) -> Option<Ticket> {
        self.0.ticket
    }

    /// A request is submitted. What its requester said counts; the sources are for those who said nothing.
    pub(crate) fn new(sources: HintSources, clues: &Clues, ticket: Option<Ticket>) -> Self {
        let (hint, source) = match clues.hint {
            Hint::Plain => infer(sources, clues),
            said => (said, None),
        };
        Self(MarkParts { hint, source, ticket })
    }

    /// The hint that counts when the request completes, and its source.
    pub(crate) fn at_completion(self, sources: HintSources, cif: u32) -> (Hint, Option<HintSource>) {
        at_completion(sources, (self.0.hint, self.0.source), cif)
    }
}

impl From<Mark> for MarkParts {
    fn from(mark: Mark) -> Self {
        mark.0
    }
}

impl From<MarkParts> for Mark {
    fn from(parts: MarkParts) -> Self {
        Self(parts)
    }
}
