//! What a request carries for its policy from submission to completion.

use crate::{Event, Hint, HintSource};

/// What a request carries from its submission to its completion: [`Policy::on_submit`](crate::Policy::on_submit) makes
/// it, and the completion gives it back. The default is the mark of a request whose submission was not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Mark {
    /// What the completion means, from what the requester said or what was inferred.
    pub event: Event,
    /// What it was inferred from; `None`: the requester said it, or nobody did.
    pub source: Option<HintSource>,
    /// Of a strict Barrier's tracker.
    pub ticket: Option<Ticket>,
}

impl Mark {
    /// A request whose submission was not reported, but whose requester gave a hint.
    #[inline]
    #[must_use]
    pub const fn of(hint: Hint) -> Self {
        Self { event: hint.event(), source: None, ticket: None }
    }
}

/// A command's position in the order of submissions of its group. Pass it once, with the command's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket as a number with the group in the top byte, for C or for a command's identifier.
    #[must_use]
    pub const fn to_number(self) -> u64 {
        self.0
    }

    /// The ticket of [`to_number`](Self::to_number). Any number is safe: an invalid one results in [`Event::Error`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }
}
