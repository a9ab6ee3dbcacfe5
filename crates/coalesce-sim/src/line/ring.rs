//! The ring of a line's consumer.

use coalesce_delivery::Ring;
use std::collections::VecDeque;
use std::convert::Infallible;

/// A completion, and when it completed: the true time, in ns.
pub(super) type Completed<T> = (u64, T);

/// How a delivery reached the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivered {
    Interrupt,
    /// The consumer's handler is about to run, or runs, and finds everything posted; or it has taken all already.
    Suppressed,
}

/// The ring of a consumer that answers once for what was posted. With EVENT_IDX it suppresses interrupts from one
/// interrupt until it has emptied the ring; without, it wants every interrupt.
#[derive(Clone, Debug)]
pub(super) struct ConsumerRing<T> {
    posted: VecDeque<Completed<T>>,
    covered: usize, // the oldest of those
    unasked: bool,  // something was posted since the consumer was asked
    event_idx: bool,
    armed: bool,
    delivered: Option<Delivered>,
}

impl<T> Default for ConsumerRing<T> {
    fn default() -> Self {
        Self { posted: VecDeque::new(), covered: 0, unasked: false, event_idx: false, armed: true, delivered: None }
    }
}

impl<T> ConsumerRing<T> {
    /// From now on with EVENT_IDX.
    pub(super) const fn suppress_interrupts(&mut self) {
        self.event_idx = true;
    }

    /// The handler ends: the consumer wants the next interrupt, unless there is more to take. Whether it does.
    pub(super) fn arm(&mut self) -> bool {
        if !self.armed && self.posted.is_empty() {
            (self.armed, self.unasked) = (true, false);
        }
        self.armed
    }

    /// Posted completions that the consumer has not taken.
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    /// Those of them that no interrupt has covered.
    pub(super) fn uncovered(&self) -> usize {
        self.posted.len() - self.covered
    }

    /// How a delivery reached the consumer since this was asked last, and what it covers.
    pub(super) fn take_delivered(&mut self) -> Option<(Delivered, impl ExactSizeIterator<Item = &Completed<T>>)> {
        let delivered = self.delivered.take()?;
        let before = std::mem::replace(&mut self.covered, self.posted.len());
        Some((delivered, self.posted.range(before..)))
    }

    /// The consumer takes the oldest completion that an interrupt has covered.
    pub(super) fn take_covered(&mut self) -> Option<Completed<T>> {
        self.covered = self.covered.checked_sub(1)?;
        self.posted.pop_front()
    }

    /// The consumer takes the oldest completion, and none is covered.
    pub(super) fn take_uncovered(&mut self) -> Option<Completed<T>> {
        debug_assert_eq!(self.covered, 0, "the consumer takes them in order");
        self.posted.pop_front()
    }
}

impl<T> Ring for ConsumerRing<T> {
    type Entry = Completed<T>;
    type Broken = Infallible;

    fn post(&mut self, entry: Completed<T>) -> Result<(), Infallible> {
        self.posted.push_back(entry);
        self.unasked = true;
        Ok(())
    }

    fn wants_interrupt(&mut self) -> bool {
        let wants = std::mem::take(&mut self.unasked) && self.armed;
        if self.event_idx && !wants {
            self.delivered = Some(Delivered::Suppressed);
        }
        wants
    }

    fn is_consumed(&mut self) -> bool {
        self.posted.is_empty() && self.armed
    }

    fn interrupt(&mut self) -> bool {
        self.delivered = Some(Delivered::Interrupt);
        self.armed = !self.event_idx;
        true
    }
}
