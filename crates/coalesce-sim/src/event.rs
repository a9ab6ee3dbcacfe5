//! What happened on an interrupt line, one event after the other: for checkers, and for time lines in reports.

use coalesce_policy::{Event as Meaning, HoldReason, Reason, Spent};
use serde::{Serialize, Serializer};

/// Something that happened on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, in ns.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen on a line. A completion, a deadline and every other call is followed by what was decided about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A command completed.
    Completion {
        /// What it means: what its requester said, or what was inferred.
        #[serde(serialize_with = "event_name")]
        hint: Meaning,
        /// Commands in flight, counting it.
        cif: u32,
    },
    /// The deadline was met, or a call took its place.
    Deadline,
    /// The device had posted all it had.
    BatchEnd,
    /// Another call: flush, schedule, deschedule, cancel.
    Other,
    /// No interrupt.
    Hold {
        /// Why not.
        #[serde(serialize_with = "hold_name")]
        reason: HoldReason,
    },
    /// An interrupt for everything held.
    Interrupt {
        /// Why.
        #[serde(serialize_with = "reason_name")]
        reason: Reason,
        /// The number of completions that it covers.
        covers: u32,
    },
    /// A delivery without an interrupt: the consumer's handler finds everything held.
    Suppressed {
        /// Completions that it finds.
        covers: u32,
    },
    /// The urgent completion alone is delivered.
    UrgentAlone,
    /// The consumer took what was held without an interrupt.
    Consumed {
        /// How many completions, the oldest first.
        count: u32,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn event_name<S: Serializer>(event: &Meaning, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(event.name())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn reason_name<S: Serializer>(reason: &Reason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn hold_name<S: Serializer>(reason: &HoldReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(reason.name())
}

/// A line after an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Commands in flight.
    pub in_flight: u32,
    /// Completions that no interrupt has covered.
    pub held: usize,
    /// When the oldest completion that no interrupt has covered was posted, in ns.
    pub oldest: Option<u64>,
    /// When the policy wants to be woken, in ns; `None`: never, or when a poll ends.
    pub deadline: Option<u64>,
    /// What a latency budget has spent.
    pub spent: Option<Spent>,
    /// The share of the requests' time that it allows so far, in ns.
    pub allowed: u64,
}

/// The events of a part of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    from: u64,
    max: usize,
    events: Vec<Event>,
    states: Vec<State>,
}

impl Timeline {
    /// The first `max` events from the instant `from` on, in ns.
    #[must_use]
    pub const fn new(from: u64, max: usize) -> Self {
        Self { from, max, events: Vec::new(), states: Vec::new() }
    }

    /// The events, in the order in which they happened.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn see(&mut self, event: Event, state: State) {
        if event.at >= self.from && self.events.len() < self.max {
            self.events.push(event);
            self.states.push(state);
        }
    }

    /// Takes the events out, each with the line after it.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Event, State)> {
        self.events.drain(..).zip(self.states.drain(..))
    }
}
