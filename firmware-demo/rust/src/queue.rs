//! A submission queue, its completion queue, and its commands in flight. Every value that the host writes is checked
//! here.

use crate::host::{CQ_ENTRIES, Doorbells, MEMORY, REGISTERS, SQ_ENTRIES, Status};
use coalesce_decision::{Hint, Mark};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use heapless::{Deque, Vec};

/// Commands in flight per queue. They are separate, so that no queue takes slots of another.
pub const SLOTS: usize = 32;

/// The index of a command in its queue's slots.
#[derive(Clone, Copy)]
pub struct SlotId(u8);

impl SlotId {
    pub const fn new(number: usize) -> Self {
        Self((number % SLOTS) as u8)
    }

    pub const fn index(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// A command in flight.
#[derive(Clone, Copy)]
pub struct Command {
    cid: u16,
    pub mark: Mark,
    pub status: Status,
    pub result: u32,
}

/// A copy of a submission queue entry, so that the checked values are those used.
pub type Entry = [u32; 16];

/// An index that the host moves with a doorbell.
struct Doorbell {
    seen: u32,  // the value last read
    value: u32, // the last valid value
}

impl Doorbell {
    const NEW: Self = Self { seen: 0, value: 0 };
}

/// A doorbell has an invalid value, which is ignored.
pub struct BadDoorbell;

pub struct Queue {
    id: usize,
    sq_tail: Doorbell,
    sq_head: u32, // the next entry to fetch
    cq_head: Doorbell,
    cq_tail: u32, // the next entry to post
    phase: u32,
    commands: [Command; SLOTS],
    free: Vec<SlotId, SLOTS>,
    finished: Deque<SlotId, SLOTS>, // commands to post, in the order of their completion
}

impl Queue {
    pub const fn new(id: usize) -> Self {
        const NONE: Command = Command { cid: 0, mark: Mark::of(Hint::Plain), status: Status::Success, result: 0 };
        Self {
            id,
            sq_tail: Doorbell::NEW,
            sq_head: 0,
            cq_head: Doorbell::NEW,
            cq_tail: 0,
            phase: 1,
            commands: [NONE; SLOTS],
            free: Vec::new(),
            finished: Deque::new(),
        }
    }

    /// Empties the queue, as a reset does.
    pub fn reset(&mut self) {
        (self.sq_tail, self.cq_head) = (Doorbell::NEW, Doorbell::NEW);
        (self.sq_head, self.cq_tail, self.phase) = (0, 0, 1);
        self.finished.clear();
        self.free.clear();
        self.free.extend((0..SLOTS).map(SlotId::new));
    }

    /// The number of commands in flight: fetched, and not posted.
    pub fn in_flight(&self) -> u32 {
        (SLOTS - self.free.len()) as u32
    }

    /// The number of commands that are submitted and not reaped, as far as the doorbells say: in the submission queue,
    /// in flight, and in the completion queue.
    pub fn outstanding(&self) -> u32 {
        distance(self.sq_head, self.sq_tail.value, SQ_ENTRIES)
            + self.in_flight()
            + distance(self.cq_head.value, self.cq_tail, CQ_ENTRIES)
    }

    fn doorbells(&self) -> &'static Doorbells {
        &REGISTERS.doorbells[self.id]
    }

    /// Whether the host has written to a doorbell since it was last read.
    pub fn has_rung(&self) -> bool {
        self.doorbells().sq_tail.load(Acquire) != self.sq_tail.seen
            || self.doorbells().cq_head.load(Acquire) != self.cq_head.seen
    }

    /// Reads each doorbell once, because the host may change it at any time.
    pub fn read_doorbells(&mut self) -> Result<(), BadDoorbell> {
        let mut result = Ok(());
        let tail = self.doorbells().sq_tail.load(Acquire);
        if tail != self.sq_tail.seen {
            self.sq_tail.seen = tail;
            let waiting = distance(self.sq_head, self.sq_tail.value, SQ_ENTRIES);
            if tail < SQ_ENTRIES && distance(self.sq_tail.value, tail, SQ_ENTRIES) < SQ_ENTRIES - waiting {
                self.sq_tail.value = tail;
            } else {
                result = Err(BadDoorbell);
            }
        }
        let head = self.doorbells().cq_head.load(Acquire);
        if head != self.cq_head.seen {
            self.cq_head.seen = head;
            let posted = distance(self.cq_head.value, self.cq_tail, CQ_ENTRIES);
            if head < CQ_ENTRIES && distance(self.cq_head.value, head, CQ_ENTRIES) <= posted {
                self.cq_head.value = head;
            } else {
                result = Err(BadDoorbell);
            }
        }
        result
    }

    /// Fetches a command into a slot. `None`: there is no command, or no free slot.
    pub fn fetch(&mut self) -> Option<(SlotId, Entry)> {
        if self.sq_head == self.sq_tail.value {
            return None;
        }
        let slot = self.free.pop()?;
        let place = &MEMORY.sq[self.id][self.sq_head as usize];
        let entry: Entry = core::array::from_fn(|i| place[i].load(Relaxed));
        self.sq_head = (self.sq_head + 1) % SQ_ENTRIES;
        let cid = (entry[0] >> 16) as u16;
        *self.command(slot) = Command { cid, mark: Mark::default(), status: Status::Success, result: 0 };
        Some((slot, entry))
    }

    pub const fn command(&mut self, slot: SlotId) -> &mut Command {
        &mut self.commands[slot.index()]
    }

    /// Queues a completed command for posting.
    pub fn finish(&mut self, slot: SlotId, status: Status, result: u32) {
        let command = self.command(slot);
        (command.status, command.result) = (status, result);
        let room = self.finished.push_back(slot); // each slot is in the queue at most once
        debug_assert!(room.is_ok());
    }

    /// Posts the command that completed first. `None`: there is no command, or no room for its entry.
    pub fn post(&mut self) -> Option<Command> {
        let next = if self.cq_tail + 1 == CQ_ENTRIES { 0 } else { self.cq_tail + 1 };
        if next == self.cq_head.value {
            return None;
        }
        let slot = self.finished.pop_front()?;
        let command = *self.command(slot);
        let entry = &MEMORY.cq[self.id][self.cq_tail as usize];
        entry[0].store(command.result, Relaxed);
        entry[1].store(0, Relaxed);
        entry[2].store(self.sq_head | (self.id as u32) << 16, Relaxed);
        // The phase tag is written last, because it passes the entry to the host.
        entry[3].store(u32::from(command.cid) | self.phase << 16 | (command.status as u32) << 17, Release);
        self.cq_tail = next;
        if next == 0 {
            self.phase ^= 1;
        }
        let room = self.free.push(slot);
        debug_assert!(room.is_ok());
        Some(command)
    }

    /// Whether the host has reaped everything that was posted.
    pub const fn is_reaped(&self) -> bool {
        self.cq_head.value == self.cq_tail
    }
}

/// The distance forward from one index to another, in a ring of `size` entries.
const fn distance(from: u32, to: u32, size: u32) -> u32 {
    if to >= from { to - from } else { size - from + to }
}
