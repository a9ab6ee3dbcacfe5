//! What is known about a request when it is submitted.

use crate::Hint;

/// What is known about a request when it is submitted. The default is a request of which nothing is known and that came
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Submission {
    /// What its requester said. `Plain`: nothing, and the policy's hint sources are asked.
    pub hint: Hint,
    /// Submitter group, for strict Barriers.
    pub group: u8,
    /// It is a flush.
    pub flush: bool,
    /// It is a write that must be on the medium before it ends.
    pub durable: bool,
    /// Scheduling class and level that the guest gives it: class in bits 15:13 (Linux `ioprio`).
    pub ioprio: u16,
    /// How many requests came with it, counting it.
    pub batch_len: usize,
    /// It is the last of those.
    pub last_of_batch: bool,
    /// Requests that the guest has submitted and not reaped, counting it; 0: not known.
    pub outstanding: u32,
    /// Plain requests that were submitted before it and not reported.
    pub before: u32,
}

impl Submission {
    /// A request that came alone, while no other was outstanding, and of which nothing else is known.
    pub const ALONE: Self = Self {
        hint: Hint::Plain,
        group: 0,
        flush: false,
        durable: false,
        ioprio: 0,
        batch_len: 1,
        last_of_batch: true,
        outstanding: 1,
        before: 0,
    };

    /// The requests that it reports: itself, and those before it that were not reported.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.before.saturating_add(1)
    }
}

impl Default for Submission {
    /// A request of which nothing is known.
    fn default() -> Self {
        Self { outstanding: 0, ..Self::ALONE }
    }
}

/// The submissions that a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Submissions {
    /// None.
    None,
    /// Those of which something is known. Others need no call: [`Submission::outstanding`] of a later one counts them.
    Counted,
    /// Each, as a strict Barrier needs.
    Each,
}
