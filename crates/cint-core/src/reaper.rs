//! The consumer of a completion queue whose device delivers urgent completions alone (cinterrupts §3.5).

/// One entry of an NVMe completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(pub [u32; 4]);

impl Entry {
    /// Command identifier.
    #[must_use]
    pub const fn cid(&self) -> u16 {
        (self.0[3] & 0xffff) as u16
    }

    /// Phase tag: whether this entry is of the queue's current round.
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

/// Reaps a completion queue of up to 64 * `WORDS` entries, urgent ones first if asked to.
///
/// The driver reads entries for it, and writes the head doorbell when it says so: only over entries that are all reaped,
/// so that the device overwrites no other.
///
/// ```
/// use cint_core::{Entry, Reaper};
///
/// // Command 7, plain, and behind it command 8, urgent. Both of the first round: phase 1.
/// let queue = [Entry([0, 0, 0, 7 | 1 << 16]), Entry([0, 0, 0, 8 | 1 << 16]), Entry::default(), Entry::default()];
/// let mut reaper = Reaper::<1>::new(4).ok_or("a queue of 4 entries fits")?;
/// let mut taken = Vec::new();
///
/// let doorbell = reaper.reap_urgent(|i| queue[usize::from(i)], |entry| entry.cid() == 8, |entry| taken.push(entry.cid()));
/// assert_eq!((doorbell, taken.as_slice()), (None, [8].as_slice())); // 7 is in the way
///
/// let doorbell = reaper.reap(|i| queue[usize::from(i)], |entry| taken.push(entry.cid()));
/// assert_eq!((doorbell, taken.as_slice()), (Some(2), [8, 7].as_slice()));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reaper<const WORDS: usize> {
    cursor: Cursor,
    taken: [u64; WORDS],
}

impl<const WORDS: usize> Reaper<WORDS> {
    /// For an empty queue of `size` entries; `None`: not 2 to 64 * `WORDS`.
    #[must_use]
    pub const fn new(size: u16) -> Option<Self> {
        if size as usize > WORDS.saturating_mul(64) {
            return None;
        }
        match Cursor::new(size) {
            Some(cursor) => Some(Self { cursor, taken: [0; WORDS] }),
            None => None,
        }
    }

    /// The entry that the head doorbell stands at.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.cursor.head
    }

    /// An urgent interrupt: takes the new entries that `is_urgent`, marks them, and leaves the others.
    ///
    /// `read` reads an entry; it must read the phase tag before the rest, as the device writes it last. Returns what to
    /// write to the head doorbell, if it moves.
    pub fn reap_urgent(
        &mut self,
        read: impl Fn(u16) -> Entry,
        is_urgent: impl Fn(Entry) -> bool,
        mut take: impl FnMut(Entry),
    ) -> Option<u16> {
        self.cursor.reap(&mut self.taken, read, |entry| {
            let urgent = is_urgent(entry);
            if urgent {
                take(entry);
            }
            urgent
        })
    }

    /// A normal interrupt: takes all new entries but those taken before. As [`reap_urgent`](Self::reap_urgent) else.
    pub fn reap(&mut self, read: impl Fn(u16) -> Entry, take: impl FnMut(Entry)) -> Option<u16> {
        self.reap_urgent(read, |_| true, take)
    }
}

/// Where a consumer stands in a completion queue, for those who keep the memory of what is taken themselves; others take
/// a [`Reaper`]. That memory, one bit an entry and all 0 at first, is given with each call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    size: u16,
    head: u16,
    phase: u32, // of a new entry at head
}

impl Cursor {
    /// For an empty queue of `size` entries; `None`: fewer than 2.
    #[must_use]
    pub const fn new(size: u16) -> Option<Self> {
        if size < 2 { None } else { Some(Self { size, head: 0, phase: 1 }) }
    }

    /// Shows each new entry that is not taken yet to `take`, which says whether it takes it. Returns what to write to the
    /// head doorbell, if it moves: it does so only over entries that are taken.
    ///
    /// `read` reads an entry; it must read the phase tag before the rest, as the device writes it last.
    pub fn reap(
        &mut self,
        taken: &mut [u64],
        read: impl Fn(u16) -> Entry,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Option<u16> {
        let before = self.head;
        let mut at = *self;
        let mut all_taken = true; // from the head up to `at`
        for _ in 0..self.size {
            let entry = read(at.head);
            if u32::from(entry.phase()) != at.phase {
                break;
            }
            let Some(word) = taken.get_mut(usize::from(at.head >> 6)) else { break };
            let bit = 1 << (at.head & 63);
            if *word & bit == 0 && take(entry) {
                *word |= bit;
            }
            all_taken = all_taken && *word & bit != 0;
            at.advance();
            if all_taken {
                *word &= !bit;
                *self = at;
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
