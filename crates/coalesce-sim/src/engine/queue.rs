//! What will happen, and when. Events of the same instant happen in the order in which they were put in.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Something that will happen. Numbers are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// What the CPU does ends, if it still does the same.
    Step { cpu: u32, turn: u32 },
    /// The device has served a command, if it was not aborted.
    Served { request: u32, turn: u32 },
    /// The device posts what it gathered.
    Post,
    /// The line's deadline, as it was when the timer was armed.
    Deadline { line: u32 },
    /// An interrupt arrives.
    Interrupt { cpu: u32 },
    /// A CPU has left the state in which it has nothing to do.
    IdleExit { cpu: u32 },
    /// A command of an open loop arrives.
    Arrival { thread: u32 },
    /// A thread has slept long enough.
    Wake { thread: u32 },
    /// The slice on the core ends.
    Slice { core: u32, turn: u32 },
    /// It is time to ask the IPI gate again.
    Gate { cpu: u32 },
    /// A driver's timeout finds a lost doorbell.
    Timeout { cpu: u32 },
    /// Something goes wrong.
    Fault(Fault),
    /// The host takes the CPU.
    Steal { cpu: u32 },
    /// The host gives it back.
    GiveBack { cpu: u32 },
    /// The warm-up is over.
    Measure,
}

/// Something that goes wrong by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Jump,
    Stall,
    Reset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    order: u64,
    event: Event,
}

impl Ord for Entry {
    /// The earliest is the greatest, as `BinaryHeap` wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Events to come.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Entry { at, order: self.order, event });
    }

    /// The next event before `end`.
    pub(super) fn pop_before(&mut self, end: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.at >= end {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }

    /// Forgets all that are not worth waiting for.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(Event) -> bool) {
        self.heap.retain(|entry| is_wanted(entry.event));
    }

    /// How many were put in so far.
    pub(super) const fn pushed(&self) -> u64 {
        self.order
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
