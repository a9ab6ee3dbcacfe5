//! What a completion means.

/// What a machine, the state of a policy, must know about a completion or a cancellation. With relaxed Barriers a hint of
/// the requester converts directly to an event. With strict Barriers a tracker converts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No hint.
    Plain,
    /// A Barrier has completed; with strict Barriers, its whole batch.
    Barrier,
    /// Somebody waits for this command.
    Urgent,
    /// An invalid ticket. Delivers everything held at once, even in a storm. A caller may report a failed command so; as
    /// Urgent it may wait in a storm.
    Error,
}
