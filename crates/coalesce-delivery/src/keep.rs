//! What a delivery keeps of completions that are held.

/// What is kept of the completions that are held: their entries, if they are not posted yet, and since when they are held.
///
/// The default is [`Kept`], which allocates. A device with a bounded queue of its own implements this.
pub trait Keep<E>: Default {
    /// Keeps the entry of a completion that is not posted yet. Returns it if there is no place for it: then it is posted at once.
    fn keep(&mut self, entry: E) -> Option<E>;

    /// Takes the oldest entry.
    fn take_oldest(&mut self) -> Option<E>;

    /// Takes the newest entry.
    fn take_newest(&mut self) -> Option<E>;

    /// The number of entries.
    fn unposted(&self) -> usize;

    /// `count` completions are held from `now` on.
    fn hold(&mut self, now: u64, count: usize);

    /// How many are held.
    fn held(&self) -> usize;

    /// Nothing is held any more. Calls `note` with the time for which each was held, as far as that is known.
    fn release(&mut self, now: u64, note: impl FnMut(u64));

    /// Forgets everything, entries included.
    fn clear(&mut self);
}

/// Only how many are held, and no entry: needs no allocator. For devices that post each completion when it comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(pub(crate) usize);

impl<E> Keep<E> for Count {
    fn keep(&mut self, entry: E) -> Option<E> {
        Some(entry)
    }

    fn take_oldest(&mut self) -> Option<E> {
        None
    }

    fn take_newest(&mut self) -> Option<E> {
        None
    }

    fn unposted(&self) -> usize {
        0
    }

    fn hold(&mut self, _: u64, count: usize) {
        self.0 = self.0.saturating_add(count);
    }

    fn held(&self) -> usize {
        self.0
    }

    fn release(&mut self, _: u64, _: impl FnMut(u64)) {
        self.0 = 0;
    }

    fn clear(&mut self) {
        self.0 = 0;
    }
}

#[cfg(feature = "std")]
pub use allocating::Kept;

#[cfg(feature = "std")]
mod allocating {
    use super::Keep;
    use std::collections::VecDeque;
    use std::iter;

    /// The entries that are not posted, and since when each completion is held.
    #[derive(Clone, Debug)]
    pub struct Kept<E> {
        unposted: VecDeque<E>,
        held_since: VecDeque<u64>,
    }

    impl<E> Default for Kept<E> {
        fn default() -> Self {
            Self { unposted: VecDeque::new(), held_since: VecDeque::new() }
        }
    }

    impl<E> Keep<E> for Kept<E> {
        fn keep(&mut self, entry: E) -> Option<E> {
            self.unposted.push_back(entry);
            None
        }

        fn take_oldest(&mut self) -> Option<E> {
            self.unposted.pop_front()
        }

        fn take_newest(&mut self) -> Option<E> {
            self.unposted.pop_back()
        }

        fn unposted(&self) -> usize {
            self.unposted.len()
        }

        fn hold(&mut self, now: u64, count: usize) {
            self.held_since.extend(iter::repeat_n(now, count));
        }

        fn held(&self) -> usize {
            self.held_since.len()
        }

        fn release(&mut self, now: u64, mut note: impl FnMut(u64)) {
            for since in self.held_since.drain(..) {
                note(now.saturating_sub(since));
            }
        }

        fn clear(&mut self) {
            self.unposted.clear();
            self.held_since.clear();
        }
    }
}

/// Not without the feature `std`.
#[cfg(not(feature = "std"))]
#[derive(Debug)]
pub struct Kept<E>(core::marker::PhantomData<E>);
