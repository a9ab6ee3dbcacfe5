//! The consumer of a completion queue whose urgent completions interrupt alone (cinterrupts §3.5).

/// One entry of an NVMe completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub [u32; 4]);

impl Entry {
    /// Command identifier.
    #[must_use]
    pub const fn cid(&self) -> u16 {
        (self.0[3] & 0xffff) as u16
    }

    /// The phase tag. The device inverts it with each pass through the queue; an entry is new if it equals the phase that
    /// the consumer expects.
    #[must_use]
    pub const fn phase(&self) -> bool {
        self.0[3] & 1 << 16 != 0
    }

    /// Status field, without the phase tag; 0 is success.
    #[must_use]
    pub const fn status(&self) -> u16 {
        (self.0[3] >> 17) as u16
    }
}

/// Reaps a completion queue of up to 64 * `WORDS` entries: urgent entries only, or all.
///
/// The driver reads the entries, and writes the returned value to the head doorbell. The head moves only over reaped
/// entries, so that the device overwrites no other.
///
/// ```
/// use cint_core::{Entry, Reaper};
///
/// // Command 7 is Plain, and command 8 after it is Urgent. Both have the phase of the first pass, 1.
/// let queue = [Entry([0, 0, 0, 7 | 1 << 16]), Entry([0, 0, 0, 8 | 1 << 16]), Entry::default(), Entry::default()];
/// let mut reaper = Reaper::<1>::new(4).ok_or("a queue of 4 entries fits")?;
/// let mut cids = Vec::new();
///
/// let doorbell = reaper.reap_urgent(|i| queue[usize::from(i)], |entry| entry.cid() == 8, |entry| cids.push(entry.cid()));
/// assert_eq!((doorbell, cids.as_slice()), (None, [8].as_slice())); // the head stays at command 7
///
/// let doorbell = reaper.reap(|i| queue[usize::from(i)], |entry| cids.push(entry.cid()));
/// assert_eq!((doorbell, cids.as_slice()), (Some(2), [8, 7].as_slice()));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reaper<const WORDS: usize> {
    cursor: Cursor,
    reaped: [u64; WORDS],
}

impl<const WORDS: usize> Reaper<WORDS> {
    /// A reaper for an empty queue of `size` entries; `None` unless `size` is 2 to 64 * `WORDS`.
    #[must_use]
    pub const fn new(size: u16) -> Option<Self> {
        if size as usize > WORDS.saturating_mul(64) {
            return None;
        }
        match Cursor::new(size) {
            Some(cursor) => Some(Self { cursor, reaped: [0; WORDS] }),
            None => None,
        }
    }

    /// The index in the head doorbell.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.cursor.head
    }

    /// Handles an urgent interrupt: passes the new entries that are urgent to `take`, and leaves the others.
    ///
    /// `read` reads an entry. It must read the phase tag before the rest, because the device writes the tag last.
    /// Returns the value for the head doorbell, if the head moves.
    pub fn reap_urgent(
        &mut self,
        read: impl Fn(u16) -> Entry,
        is_urgent: impl Fn(Entry) -> bool,
        mut take: impl FnMut(Entry),
    ) -> Option<u16> {
        self.cursor.reap(&mut self.reaped, read, |entry| {
            let urgent = is_urgent(entry);
            if urgent {
                take(entry);
            }
            urgent
        })
    }

    /// Handles a normal interrupt: passes all new entries to `take`, except those that were reaped before. The rest is
    /// as in [`reap_urgent`](Self::reap_urgent).
    pub fn reap(&mut self, read: impl Fn(u16) -> Entry, take: impl FnMut(Entry)) -> Option<u16> {
        self.reap_urgent(read, |_| true, take)
    }
}

/// A consumer's position in a completion queue, for callers that keep the memory themselves; others use a [`Reaper`].
/// The caller passes that memory with each call. It has one bit for each entry, and all bits are 0 at the start.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    size: u16,
    head: u16,
    phase: u32, // the phase tag of a new entry at the head
}

impl Cursor {
    /// A cursor for an empty queue of `size` entries; `None` if `size` is below 2.
    #[must_use]
    pub const fn new(size: u16) -> Option<Self> {
        if size < 2 { None } else { Some(Self { size, head: 0, phase: 1 }) }
    }

    /// Passes each new entry that is not reaped yet to `take`, which returns whether it reaps the entry. Returns the
    /// value for the head doorbell, if the head moves. It moves only over reaped entries.
    ///
    /// `read` reads an entry. It must read the phase tag before the rest, because the device writes the tag last.
    pub fn reap(
        &mut self,
        reaped: &mut [u64],
        read: impl Fn(u16) -> Entry,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Option<u16> {
        let before = self.head;
        let mut scan = *self; // `scan.head` is the entry examined
        let mut all_reaped = true; // from the head up to it
        for _ in 0..self.size {
            let entry = read(scan.head);
            if u32::from(entry.phase()) != scan.phase {
                break;
            }
            let Some(word) = reaped.get_mut(usize::from(scan.head >> 6)) else { break };
            let bit = 1 << (scan.head & 63);
            if *word & bit == 0 && take(entry) {
                *word |= bit;
            }
            all_reaped = all_reaped && *word & bit != 0;
            scan.advance();
            if all_reaped {
                *word &= !bit;
                *self = scan;
            }
        }
        (self.head != before).then_some(self.head)
    }

    const fn advance(&mut self) {
        self.head = self.head.wrapping_add(1);
        if self.head >= self.size {
            self.head = 0;
            self.phase ^= 1;
        }
    }
}
