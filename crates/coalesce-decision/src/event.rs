//! What a completion means.

/// What a policy must know about a completion or a cancellation. With relaxed Barriers a [`Hint`](crate::Hint) of the
/// requester converts directly to an event. With strict Barriers a tracker converts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Event {
    /// No hint.
    #[default]
    Plain,
    /// A Barrier has completed; with strict Barriers, its whole batch.
    Barrier,
    /// Somebody waits for this command.
    Urgent,
    /// An invalid ticket. Delivers everything held at once, even in a storm. A caller may report a failed command so; as
    /// Urgent it may wait in a storm.
    Error,
}

impl Event {
    /// The name in traces and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Barrier => "barrier",
            Self::Urgent => "urgent",
            Self::Error => "error",
        }
    }
}
