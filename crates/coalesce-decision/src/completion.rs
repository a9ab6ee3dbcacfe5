//! What a shell knows about a command that completes.

use crate::{Event, Mark};

/// What kind of command completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
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
///
/// ```
/// use coalesce_decision::{Completion, Event};
///
/// let plain = Completion::with_cif(5);
/// let urgent = Completion { cif: 5, outstanding: 8, ..Completion::of(Event::Urgent) };
/// assert_eq!((plain.event(), urgent.event()), (Event::Plain, Event::Urgent));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Completion {
    /// What [`Policy::on_submit`](crate::Policy::on_submit) returned for it.
    pub mark: Mark,
    /// Commands in flight on this interrupt vector, counting this one; 0: not known.
    pub cif: u32,
    /// Commands submitted on this interrupt vector and not reaped, counting this one; 0: not known.
    pub outstanding: u32,
    /// What kind of command it was.
    pub class: Class,
    /// When the guest's timeslice ends, in ticks, if it is known.
    pub slice_end: Option<u64>,
}

impl Completion {
    /// A plain command of an I/O queue, with `cif` commands in flight, counting it.
    #[inline]
    #[must_use]
    pub const fn with_cif(cif: u32) -> Self {
        let mark = Mark { event: Event::Plain, source: None, ticket: None };
        Self { mark, cif, outstanding: 0, class: Class::Io, slice_end: None }
    }

    /// A command of an I/O queue of which only this is known: an [`Event`], or what its requester said.
    #[inline]
    #[must_use]
    pub fn of(event: impl Into<Event>) -> Self {
        Self { mark: Mark { event: event.into(), ..Mark::default() }, ..Self::with_cif(0) }
    }

    /// Whether its [event](Self::event) is [`Event::Plain`]: in fewer instructions.
    #[inline]
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        matches!((self.class, self.mark.event), (Class::Io, Event::Plain))
    }

    /// What it means: somebody waits for a command of the admin queue, and for one that failed. A Barrier is the end of its batch all
    /// the same.
    #[inline]
    #[must_use]
    pub const fn event(&self) -> Event {
        match (self.class, self.mark.event) {
            (Class::Io, event) => event,
            (Class::Admin | Class::Failed, event @ (Event::Error | Event::Barrier)) => event,
            (Class::Admin | Class::Failed, Event::Plain | Event::Urgent) => Event::Urgent,
        }
    }

    /// The `left`-th plain command before this one, of those that a device found together; 0: this one.
    #[inline]
    #[must_use]
    pub const fn preceding(&self, left: u16) -> Self {
        if left == 0 {
            return *self;
        }
        let cif = if self.cif == 0 { 0 } else { self.cif.saturating_add(left as u32) };
        Self { outstanding: self.outstanding, slice_end: self.slice_end, ..Self::with_cif(cif) }
    }
}
