//! The ring of a line's consumer.

use coalesce_delivery::Ring;
use std::collections::VecDeque;
use std::convert::Infallible;

/// A completion, and when it completed: the true time, in ns.
pub(super) type Completed<T> = (u64, T);

/// The ring of a consumer that wants every interrupt, and answers as EVENT_IDX does: once for what was posted.
#[derive(Clone, Debug)]
pub(super) struct ConsumerRing<T> {
    posted: VecDeque<Completed<T>>,
    announced: usize, // the oldest of those
    unasked: bool,    // something was posted since the consumer was asked
    interrupted: bool,
}

impl<T> Default for ConsumerRing<T> {
    fn default() -> Self {
        Self { posted: VecDeque::new(), announced: 0, unasked: false, interrupted: false }
    }
}

impl<T> ConsumerRing<T> {
    /// Posted completions that the consumer has not taken.
    pub(super) fn len(&self) -> usize {
        self.posted.len()
    }

    /// Those of them that no interrupt has announced.
    pub(super) fn unannounced(&self) -> usize {
        self.posted.len() - self.announced
    }

    /// Whether there was an interrupt since this was asked last, and what it announces.
    pub(super) fn take_interrupt(&mut self) -> Option<impl ExactSizeIterator<Item = &Completed<T>>> {
        if !std::mem::take(&mut self.interrupted) {
            return None;
        }
        let before = std::mem::replace(&mut self.announced, self.posted.len());
        Some(self.posted.range(before..))
    }

    /// The consumer takes the oldest completion that was announced.
    pub(super) fn take_announced(&mut self) -> Option<Completed<T>> {
        self.announced = self.announced.checked_sub(1)?;
        self.posted.pop_front()
    }

    /// The consumer takes the oldest completion, and none was announced.
    pub(super) fn take_unannounced(&mut self) -> Option<Completed<T>> {
        debug_assert_eq!(self.announced, 0, "the consumer takes them in order");
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
        std::mem::take(&mut self.unasked)
    }

    fn is_consumed(&mut self) -> bool {
        self.posted.is_empty()
    }

    fn interrupt(&mut self) -> bool {
        self.interrupted = true;
        true
    }
}
