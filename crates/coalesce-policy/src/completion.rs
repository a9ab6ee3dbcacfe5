//! What a shell knows about a completion, for a policy.

use crate::mark::Mark;

/// What kind of command completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// A command of an I/O queue.
    #[default]
    Io,
    /// A command of the admin queue.
    Admin,
    /// A command that failed.
    Failed,
}

/// What a shell knows about a command that completes. A policy uses what it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// What [`Policy::on_submit`](crate::Policy::on_submit) returned for it.
    pub mark: Mark,
    /// Commands in flight on this interrupt vector, counting this one.
    pub cif: u32,
    /// Commands submitted on this interrupt vector and not reaped, counting this one; 0: not known.
    pub outstanding: u32,
    /// What kind of command it was.
    pub class: Class,
    /// When the guest's timeslice ends, in ticks, if it is known.
    pub slice_end: Option<u64>,
    /// How many plain commands of an I/O queue completed just before it and share its interrupt, if there is one: for a
    /// device that finds many at once. They have no marks.
    pub before: u16,
}

impl Completion {
    /// The `left`-th command [before](Self::before) this one.
    pub(crate) fn preceding(&self, left: u16) -> Self {
        let Self { cif, outstanding, slice_end, .. } = *self;
        Self { cif: cif.saturating_add(left.into()), outstanding, slice_end, ..Self::default() }
    }
}
