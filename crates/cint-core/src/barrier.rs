//! Strict Barriers: a batch is complete when its last command and every command submitted before it have completed
//! (cinterrupts §4.3).

use coalesce_decision::{Event, Ticket};

const GROUP_SHIFT: u32 = 56;
/// The position in the order of submissions of a group, in a ticket's number.
const SEQUENCE: u64 = !(u64::MAX << GROUP_SHIFT);

const fn ticket(group: u8, sequence: u64) -> Ticket {
    Ticket::from_number((group as u64) << GROUP_SHIFT | sequence)
}

const fn parts(ticket: Ticket) -> (usize, u64) {
    let number = ticket.to_number();
    ((number >> GROUP_SHIFT) as usize, number & SEQUENCE)
}

/// Tracks which commands have completed, for `GROUPS` groups of submitters. Each group has a window of 64 * `WORDS`
/// commands, from the oldest incomplete one to the newest submitted one. `WORDS` is a power of two, at most 64.
///
/// If the window is full, a command gets no ticket, and its Barrier is relaxed. Equal trackers answer alike; others may as well, as
/// stale bits are compared too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracker<const GROUPS: usize, const WORDS: usize> {
    groups: [(Window, [Word; WORDS]); GROUPS],
    untracked: u32,
}

impl<const GROUPS: usize, const WORDS: usize> Default for Tracker<GROUPS, WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const GROUPS: usize, const WORDS: usize> Tracker<GROUPS, WORDS> {
    /// A tracker in its initial state. Usable in a `static`.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(GROUPS >= 1 && GROUPS <= 256, "groups: 1 to 256") };
        const { assert!(WORDS.is_power_of_two() && WORDS <= Window::MAX_WORDS, "words: a power of two, 64 at most") };
        Self { groups: [(Window::NEW, [Word::EMPTY; WORDS]); GROUPS], untracked: 0 }
    }

    /// Notes a submitted command of `group`, and returns its ticket. `None`: the group does not exist, or its window is
    /// full or has used all 2^56 positions; the command is not tracked.
    pub fn on_submit(&mut self, group: u8) -> Option<Ticket> {
        let sequence = self.groups.get_mut(usize::from(group)).and_then(|(window, words)| window.on_submit(words));
        if sequence.is_none() {
            self.untracked = self.untracked.saturating_add(1);
        }
        sequence.map(|sequence| ticket(group, sequence))
    }

    /// Notes a completed or aborted command, and returns what it means for a policy. `event`: what it would mean without a
    /// tracker, and does without a ticket; a Barrier is the end of its batch whatever became of it. A ticket that was never
    /// issued, or is passed twice, gives [`Event::Error`].
    #[must_use]
    pub fn on_completion(&mut self, ticket: Option<Ticket>, event: impl Into<Event>) -> Event {
        let Some((group, sequence)) = ticket.map(parts) else { return event.into() };
        self.groups.get_mut(group).map_or(Event::Error, |(window, words)| window.on_completion(words, sequence, event))
    }

    /// Notes that the controller was reset. All tickets become invalid, and none is issued again.
    pub fn reset_tracking(&mut self) {
        for (window, _) in &mut self.groups {
            window.reset();
        }
    }

    /// The number of commands that got no ticket; saturates.
    #[must_use]
    pub const fn untracked(&self) -> u32 {
        self.untracked
    }
}

/// A [`Window`]'s state of 64 commands.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    done: u64,
    barrier: u64,
}

impl Word {
    /// The initial state.
    pub const EMPTY: Self = Self { done: 0, barrier: 0 };
}

/// One group's commands from the low-water mark `low` to `next`, for callers that keep the memory themselves; others
/// use a [`Tracker`]. The caller passes the same words with each call. Their number is rounded down to a power of two,
/// at most 64.
///
/// Command `s` has bit `s` of the words, modulo their number of bits. Bits outside the range from `low` to `next` are
/// stale. A summary with one bit per word lets the low-water mark skip complete words without a loop.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    low: u64,
    next: u64,
    done_full: u64,    // words with all bits of `done` set
    barrier_some: u64, // words with some bit of `barrier` set
}

impl Window {
    /// A window in its initial state.
    pub const NEW: Self = Self { low: 0, next: 0, done_full: 0, barrier_some: 0 };

    /// The most words that a window uses.
    pub const MAX_WORDS: usize = 64;

    /// Notes a submitted command, and returns its position in the order of submissions. `None`: the window is full, has no
    /// words, or has used all 2^56 positions; the command is not tracked.
    #[inline]
    pub fn on_submit(&mut self, words: &mut [Word]) -> Option<u64> {
        let size = 64_u64 << words_log2(words)?;
        let sequence = self.next;
        if sequence.wrapping_sub(self.low) >= size || sequence > SEQUENCE {
            return None;
        }
        self.next = sequence.wrapping_add(1);
        let (index, bit) = place(words, sequence);
        let word = words.get_mut(index)?;
        word.done &= !bit;
        self.done_full &= !(1 << index);
        word.barrier &= !bit;
        if word.barrier == 0 {
            self.barrier_some &= !(1 << index);
        }
        Some(sequence)
    }

    /// Notes a completed command, and returns what it means for a policy. `event`: what it would mean without a tracker. A
    /// position that was never returned, or is passed twice, gives [`Event::Error`].
    #[inline]
    #[must_use]
    pub fn on_completion(&mut self, words: &mut [Word], sequence: u64, event: impl Into<Event>) -> Event {
        let event = event.into();
        match (self.finish(words, sequence, event == Event::Barrier), event) {
            (Progress::Unknown, _) | (_, Event::Error) => Event::Error,
            (Progress::BatchComplete, _) => Event::Barrier,
            (Progress::None, Event::Urgent) => Event::Urgent,
            (Progress::None, Event::Plain | Event::Barrier) => Event::Plain,
        }
    }

    /// Notes that the controller was reset. All positions become invalid, and none is returned again.
    pub const fn reset(&mut self) {
        self.low = self.next;
    }

    fn finish(&mut self, words: &mut [Word], sequence: u64, barrier: bool) -> Progress {
        let (index, bit) = place(words, sequence);
        let Some(word) = words.get_mut(index) else { return Progress::Unknown };
        if sequence < self.low || sequence >= self.next || word.done & bit != 0 {
            return Progress::Unknown;
        }
        word.done |= bit;
        if word.done == u64::MAX {
            self.done_full |= 1 << index;
        }
        if barrier {
            word.barrier |= bit;
            self.barrier_some |= 1 << index;
        }
        if sequence != self.low {
            return Progress::None;
        }
        let low = self.first_missing(words);
        let batch_complete = self.has_barrier(words, low);
        self.low = low;
        if batch_complete { Progress::BatchComplete } else { Progress::None }
    }

    /// The oldest incomplete command, after the one at `low` has completed. It skips the rest of that command's word,
    /// then complete words by the summary, then the beginning of the next word.
    fn first_missing(&self, words: &[Word]) -> u64 {
        let done_at = |sequence| words.get(place(words, sequence).0).map_or(0, |word| word.done);
        let in_first = (done_at(self.low) >> (self.low & 63)).trailing_ones();
        let mut missing = self.low.wrapping_add(u64::from(in_first));
        if missing & 63 == 0 {
            let whole = rotate(words, self.done_full, missing).trailing_ones();
            missing = missing.wrapping_add(u64::from(whole).wrapping_mul(64));
            missing = missing.wrapping_add(u64::from(done_at(missing).trailing_ones()));
        }
        missing.min(self.next) // bits from `next` on are stale
    }

    /// Whether a Barrier is among the commands from `self.low` up to, but not including, `end`.
    fn has_barrier(&self, words: &[Word], end: u64) -> bool {
        let barriers_at = |sequence| words.get(place(words, sequence).0).map_or(0, |word| word.barrier);
        let last = end.wrapping_sub(1);
        let from = u64::MAX << (self.low & 63);
        let to = u64::MAX >> (63_u64.wrapping_sub(last & 63));
        match (last >> 6).wrapping_sub(self.low >> 6) {
            0 => barriers_at(self.low) & from & to != 0,
            further => {
                #[expect(clippy::cast_possible_truncation, reason = "at most 64, the words there are")]
                let between = !u64::MAX.wrapping_shl(further.wrapping_sub(1) as u32);
                barriers_at(self.low) & from != 0
                    || rotate(words, self.barrier_some, self.low.wrapping_add(64)) & between != 0
                    || barriers_at(last) & to != 0
            }
        }
    }
}

/// The effect of a completion on its window.
enum Progress {
    None,
    /// The low-water mark passed a Barrier.
    BatchComplete,
    Unknown,
}

/// The logarithm of the number of used words; `None`: there are none.
fn words_log2(words: &[Word]) -> Option<u32> {
    words.len().checked_ilog2().map(|log2| log2.min(6))
}

fn place(words: &[Word], sequence: u64) -> (usize, u64) {
    let mask = !(u64::MAX << words_log2(words).unwrap_or(0));
    ((sequence >> 6 & mask) as usize, 1 << (sequence & 63))
}

/// A summary rotated so that the word of command `sequence` has bit 0.
fn rotate(words: &[Word], summary: u64, sequence: u64) -> u64 {
    let count = 1_usize << words_log2(words).unwrap_or(0);
    let all = u64::MAX >> 64_usize.wrapping_sub(count);
    match place(words, sequence).0 {
        0 => summary,
        by => (summary >> by | summary << count.wrapping_sub(by)) & all,
    }
}
