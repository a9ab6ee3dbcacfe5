//! Strict Barriers: a batch is complete when everything submitted before its last command is (cinterrupts §4.3).

use crate::cint::Event;
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
    windows: [Window<WORDS>; GROUPS],
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
        const { assert!(WORDS.is_power_of_two() && WORDS <= 64, "words: a power of two, 64 at most") };
        Self { windows: [Window::NEW; GROUPS], untracked: 0 }
    }

    /// A command of `group` is submitted. `None`: no such group, or its window is full; the command is not tracked.
    pub fn on_submit(&mut self, group: u8) -> Option<Ticket> {
        let sequence = self.windows.get_mut(usize::from(group)).and_then(Window::submit);
        if sequence.is_none() {
            self.untracked = self.untracked.saturating_add(1);
        }
        sequence.map(|sequence| Ticket::new(group, sequence))
    }

    /// A command completed; what that means for the [machine](crate::Cint::on_completion). Without a ticket its hint
    /// stands as it is. A ticket that was never given, or is given back twice, is an [`Event::Error`].
    #[must_use]
    pub fn on_completion(&mut self, ticket: Option<Ticket>, hint: Hint) -> Event {
        match (ticket.map(|ticket| self.finish(ticket, hint == Hint::Barrier)), hint) {
            (None, hint) => hint.into(),
            (Some(Progress::Unknown), _) => Event::Error,
            (Some(Progress::BatchComplete), _) => Event::Barrier,
            (Some(Progress::None), Hint::Urgent) => Event::Urgent,
            (Some(Progress::None), Hint::Plain | Hint::Barrier) => Event::Plain,
        }
    }

    /// A command was aborted; what that means for the [machine](crate::Cint::on_cancel).
    #[must_use]
    pub fn cancel(&mut self, ticket: Option<Ticket>) -> Event {
        self.on_completion(ticket, Hint::Plain)
    }

    /// The controller was reset: every ticket is forgotten, and its number not used again.
    pub fn reset_tracking(&mut self) {
        for window in &mut self.windows {
            window.low = window.next;
        }
    }

    /// Commands that got no ticket; stops at its maximum.
    #[must_use]
    pub const fn untracked(&self) -> u32 {
        self.untracked
    }

    fn finish(&mut self, ticket: Ticket, barrier: bool) -> Progress {
        let (group, sequence) = ticket.parts();
        self.windows.get_mut(group).map_or(Progress::Unknown, |window| window.finish(sequence, barrier))
    }
}

/// What the end of a command did to its window.
enum Progress {
    None,
    /// The low-water mark passed a Barrier.
    BatchComplete,
    Unknown,
}

/// One group's commands from the low-water mark `low` to `next`: bit `s` of the maps, modulo their size, is command
/// `s`. Bits outside that range are left over and mean nothing.
///
/// Each map has a summary with one bit a word, so that the low-water mark skips finished words without a loop.
#[derive(Clone, Copy, Debug)]
struct Window<const WORDS: usize> {
    low: u64,
    next: u64,
    done: [u64; WORDS],
    done_full: u64, // words of `done` with all bits set
    barrier: [u64; WORDS],
    barrier_some: u64, // words of `barrier` with some bit set
}

impl<const WORDS: usize> Window<WORDS> {
    const NEW: Self = Self { low: 0, next: 0, done: [0; WORDS], done_full: 0, barrier: [0; WORDS], barrier_some: 0 };
    const SIZE: u64 = 64_u64.wrapping_mul(WORDS as u64);
    const ALL_WORDS: u64 = u64::MAX >> 64_usize.wrapping_sub(WORDS);

    fn submit(&mut self) -> Option<u64> {
        let sequence = self.next;
        if sequence.wrapping_sub(self.low) >= Self::SIZE || sequence > Ticket::SEQUENCE {
            return None;
        }
        self.next = sequence.wrapping_add(1);
        let (word, bit) = Self::place(sequence);
        *self.done.get_mut(word)? &= !bit;
        self.done_full &= !(1 << word);
        let barriers = self.barrier.get_mut(word)?;
        *barriers &= !bit;
        if *barriers == 0 {
            self.barrier_some &= !(1 << word);
        }
        Some(sequence)
    }

    fn finish(&mut self, sequence: u64, barrier: bool) -> Progress {
        let (word, bit) = Self::place(sequence);
        let (Some(done), Some(barriers)) = (self.done.get_mut(word), self.barrier.get_mut(word)) else {
            return Progress::Unknown;
        };
        if sequence < self.low || sequence >= self.next || *done & bit != 0 {
            return Progress::Unknown;
        }
        *done |= bit;
        if *done == u64::MAX {
            self.done_full |= 1 << word;
        }
        if barrier {
            *barriers |= bit;
            self.barrier_some |= 1 << word;
        }
        if sequence != self.low {
            return Progress::None;
        }
        let low = self.first_missing();
        let batch_complete = self.has_barrier(low);
        self.low = low;
        if batch_complete { Progress::BatchComplete } else { Progress::None }
    }

    /// The oldest command that has not completed, when `low` just has: the rest of its word, whole words by the
    /// summary, and the beginning of the word behind them.
    fn first_missing(&self) -> u64 {
        let (word, _) = Self::place(self.low);
        let in_first = (self.done_at(word) >> (self.low & 63)).trailing_ones();
        let mut missing = self.low.wrapping_add(u64::from(in_first));
        if missing & 63 == 0 {
            let whole = Self::rotate(self.done_full, word.wrapping_add(1)).trailing_ones();
            missing = missing.wrapping_add(u64::from(whole).wrapping_mul(64));
            let (word, _) = Self::place(missing);
            missing = missing.wrapping_add(u64::from(self.done_at(word).trailing_ones()));
        }
        missing.min(self.next) // left-over bits lie behind
    }

    /// Whether a Barrier is among the commands from `self.low` up to, not including, `end`.
    fn has_barrier(&self, end: u64) -> bool {
        let (first, _) = Self::place(self.low);
        let (last, _) = Self::place(end.wrapping_sub(1));
        let from = u64::MAX << (self.low & 63);
        let to = u64::MAX >> (63_u64.wrapping_sub(end.wrapping_sub(1) & 63));
        let words = (end.wrapping_sub(1) >> 6).wrapping_sub(self.low >> 6);
        if words == 0 {
            return self.barrier_at(first) & from & to != 0;
        }
        let between = !(u64::MAX << words.wrapping_sub(1));
        self.barrier_at(first) & from != 0
            || Self::rotate(self.barrier_some, first.wrapping_add(1)) & between != 0
            || self.barrier_at(last) & to != 0
    }

    /// Bits of a summary from word `by` on, the others behind them.
    const fn rotate(summary: u64, by: usize) -> u64 {
        let by = by & WORDS.wrapping_sub(1);
        if by == 0 { summary } else { (summary >> by | summary << WORDS.wrapping_sub(by)) & Self::ALL_WORDS }
    }

    const fn place(sequence: u64) -> (usize, u64) {
        ((sequence >> 6) as usize & WORDS.wrapping_sub(1), 1 << (sequence & 63))
    }

    fn done_at(&self, word: usize) -> u64 {
        self.done.get(word).copied().unwrap_or(0)
    }

    fn barrier_at(&self, word: usize) -> u64 {
        self.barrier.get(word).copied().unwrap_or(0)
    }
}
