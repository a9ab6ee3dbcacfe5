//! The consumer of a completion queue when the device announces urgent completions alone (cinterrupts §3.5).

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

/// Takes entries out of a completion queue of up to 64 * `WORDS` entries, urgent ones first if asked to.
///
/// The driver reads entries for it, and writes the head doorbell when it says so: only over entries that are all taken,
/// so that the device does not overwrite one that is not.
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
    size: u16,
    head: u16,
    phase: bool,         // of a new entry at head
    taken: [u64; WORDS], // entries at or behind head that are taken already
}

impl<const WORDS: usize> Reaper<WORDS> {
    /// For an empty queue of `size` entries; `None`: not 2 to 64 * `WORDS`.
    #[must_use]
    pub const fn new(size: u16) -> Option<Self> {
        if size < 2 || size as usize > WORDS.saturating_mul(64) {
            return None;
        }
        Some(Self { size, head: 0, phase: true, taken: [0; WORDS] })
    }

    /// The entry that the head doorbell stands at.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.head
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
        let (mut index, mut phase) = (self.head, self.phase);
        for _ in 0..self.size {
            let entry = read(index);
            if entry.phase() != phase {
                break;
            }
            if !self.is_taken(index) && is_urgent(entry) {
                self.mark(index, true);
                take(entry);
            }
            (index, phase) = self.after(index, phase);
        }
        self.move_head()
    }

    /// A normal interrupt: takes all new entries but those taken before. As [`reap_urgent`](Self::reap_urgent) else.
    pub fn reap(&mut self, read: impl Fn(u16) -> Entry, take: impl FnMut(Entry)) -> Option<u16> {
        self.reap_urgent(read, |_| true, take)
    }

    /// Moves the head over what is taken.
    fn move_head(&mut self) -> Option<u16> {
        let before = self.head;
        for _ in 0..self.size {
            if !self.is_taken(self.head) {
                break;
            }
            self.mark(self.head, false);
            (self.head, self.phase) = self.after(self.head, self.phase);
        }
        (self.head != before).then_some(self.head)
    }

    const fn after(&self, index: u16, phase: bool) -> (u16, bool) {
        let next = index.wrapping_add(1);
        if next == self.size { (0, !phase) } else { (next, phase) }
    }

    fn is_taken(&self, index: u16) -> bool {
        self.taken.get(usize::from(index >> 6)).is_some_and(|word| word & 1 << (index & 63) != 0)
    }

    fn mark(&mut self, index: u16, taken: bool) {
        if let Some(word) = self.taken.get_mut(usize::from(index >> 6)) {
            let bit = 1 << (index & 63);
            if taken { *word |= bit } else { *word &= !bit }
        }
    }
}
