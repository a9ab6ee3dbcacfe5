//! Strict Barriers: a batch is complete when everything submitted before its last command is (cinterrupts §4.3).

use crate::algorithm::Event;
use crate::hint::Hint;

/// A command's place in the order of submissions of its group. Give it back with the completion, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

const GROUP_SHIFT: u32 = 56;

impl Ticket {
    /// The ticket as a number, to travel through C or a command's identifier: the group in the top byte.
    #[must_use]
    pub const fn to_number(self) -> u64 {
        self.0
    }

    /// The ticket of [`to_number`](Self::to_number). Any number is safe: one that is not valid gives [`Event::Error`].
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    const SEQUENCE: u64 = !(u64::MAX << GROUP_SHIFT);

    const fn new(group: u8, sequence: u64) -> Self {
        Self((group as u64) << GROUP_SHIFT | sequence)
    }

    const fn parts(self) -> (usize, u64) {
        ((self.0 >> GROUP_SHIFT) as usize, self.0 & Self::SEQUENCE)
    }
}

/// Which commands have completed, in `GROUPS` groups of submitters, each with a window of 64 * `WORDS` commands between
/// the oldest that has not completed and the newest submitted. `WORDS` is a power of two, 64 at most.
///
/// A command that finds its window full gets no ticket; its Barrier is relaxed.
#[derive(Clone, Copy, Debug)]
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
    /// A tracker that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(GROUPS >= 1 && GROUPS <= 256, "groups: 1 to 256") };
        const { assert!(WORDS.is_power_of_two() && WORDS <= Window::MAX_WORDS, "words: a power of two, 64 at most") };
        Self { groups: [(Window::NEW, [Word::EMPTY; WORDS]); GROUPS], untracked: 0 }
    }

    /// A command of `group` is submitted. `None`: no such group, or its window is full; the command is not tracked.
    pub fn on_submit(&mut self, group: u8) -> Option<Ticket> {
        let sequence = self.groups.get_mut(usize::from(group)).and_then(|(window, words)| window.on_submit(words));
        if sequence.is_none() {
            self.untracked = self.untracked.saturating_add(1);
        }
        sequence.map(|sequence| Ticket::new(group, sequence))
    }

    /// A command completed; what that means for the [machine](crate::Cint::on_completion). Without a ticket its hint
    /// stands as it is. A ticket that was never given, or is given back twice, is an [`Event::Error`].
    #[must_use]
    pub fn on_completion(&mut self, ticket: Option<Ticket>, hint: Hint) -> Event {
        let Some((group, sequence)) = ticket.map(Ticket::parts) else { return hint.into() };
        self.groups.get_mut(group).map_or(Event::Error, |(window, words)| window.on_completion(words, sequence, hint))
    }

    /// A command was aborted; what that means for the [machine](crate::Cint::on_cancel).
    #[must_use]
    pub fn cancel(&mut self, ticket: Option<Ticket>) -> Event {
        self.on_completion(ticket, Hint::Plain)
    }

    /// The controller was reset: every ticket is forgotten, and its number not used again.
    pub fn reset_tracking(&mut self) {
        for (window, _) in &mut self.groups {
            window.reset();
        }
    }

    /// Commands that got no ticket; saturates.
    #[must_use]
    pub const fn untracked(&self) -> u32 {
        self.untracked
    }
}

/// What a [`Window`] remembers of 64 commands.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Word {
    done: u64,
    barrier: u64,
}

impl Word {
    /// Nothing remembered.
    pub const EMPTY: Self = Self { done: 0, barrier: 0 };
}

/// One group's commands from the low-water mark `low` to `next`, for callers that keep the memory themselves; others use a
/// [`Tracker`]. Its words, always the same and as many as a power of two, 64 at most, are given with each call; those
/// beyond are not used.
///
/// Bit `s` of the words, modulo their size, is command `s`. Bits outside the range are left over and mean nothing. A
/// summary with one bit a word makes the low-water mark skip finished words without a loop.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Window {
    low: u64,
    next: u64,
    done_full: u64,    // words with all bits of `done` set
    barrier_some: u64, // words with some bit of `barrier` set
}

impl Window {
    /// A window that has seen nothing.
    pub const NEW: Self = Self { low: 0, next: 0, done_full: 0, barrier_some: 0 };

    /// Words it can use.
    pub const MAX_WORDS: usize = 64;

    /// A command is submitted. Gives its place in the order of submissions; `None`: the window is full, the command is
    /// not tracked.
    #[inline]
    pub fn on_submit(&mut self, words: &mut [Word]) -> Option<u64> {
        let size = 64_u64 << words_log2(words)?;
        let sequence = self.next;
        if sequence.wrapping_sub(self.low) >= size || sequence > Ticket::SEQUENCE {
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

    /// A command completed; what that means for the [machine](crate::Cint::on_completion). A place that was never given,
    /// or is given back twice, is an [`Event::Error`].
    #[inline]
    #[must_use]
    pub fn on_completion(&mut self, words: &mut [Word], sequence: u64, hint: Hint) -> Event {
        match (self.finish(words, sequence, hint == Hint::Barrier), hint) {
            (Progress::Unknown, _) => Event::Error,
            (Progress::BatchComplete, _) => Event::Barrier,
            (Progress::None, Hint::Urgent) => Event::Urgent,
            (Progress::None, Hint::Plain | Hint::Barrier) => Event::Plain,
        }
    }

    /// The controller was reset: every command is forgotten, and its place not given again.
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

    /// The oldest command that has not completed, when `low` just has: the rest of its word, whole words by the
    /// summary, and the beginning of the word behind them.
    fn first_missing(&self, words: &[Word]) -> u64 {
        let done_at = |sequence| words.get(place(words, sequence).0).map_or(0, |word| word.done);
        let in_first = (done_at(self.low) >> (self.low & 63)).trailing_ones();
        let mut missing = self.low.wrapping_add(u64::from(in_first));
        if missing & 63 == 0 {
            let whole = rotate(words, self.done_full, missing).trailing_ones();
            missing = missing.wrapping_add(u64::from(whole).wrapping_mul(64));
            missing = missing.wrapping_add(u64::from(done_at(missing).trailing_ones()));
        }
        missing.min(self.next) // left-over bits lie behind
    }

    /// Whether a Barrier is among the commands from `self.low` up to, not including, `end`.
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

/// What the end of a command did to its window.
enum Progress {
    None,
    /// The low-water mark passed a Barrier.
    BatchComplete,
    Unknown,
}

/// How many words are used; `None`: there are none.
fn words_log2(words: &[Word]) -> Option<u32> {
    words.len().checked_ilog2().map(|log2| log2.min(6))
}

fn place(words: &[Word], sequence: u64) -> (usize, u64) {
    let mask = !(u64::MAX << words_log2(words).unwrap_or(0));
    ((sequence >> 6 & mask) as usize, 1 << (sequence & 63))
}

/// Bits of a summary from the word of command `sequence` on, the others behind them.
fn rotate(words: &[Word], summary: u64, sequence: u64) -> u64 {
    let count = 1_usize << words_log2(words).unwrap_or(0);
    let all = u64::MAX >> 64_usize.wrapping_sub(count);
    match place(words, sequence).0 {
        0 => summary,
        by => (summary >> by | summary << count.wrapping_sub(by)) & all,
    }
}
