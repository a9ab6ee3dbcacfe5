//! What a completion means.

/// What a machine must know about a completion or a cancellation. With relaxed Barriers a hint of the requester converts
/// directly to an event. With strict Barriers a tracker converts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// No hint.
    Plain,
    /// A batch is complete.
    Barrier,
    /// Somebody waits for this command.
    Urgent,
    /// An invalid ticket, or a command that failed: delivers.
    Error,
}
