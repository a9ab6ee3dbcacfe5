//! Submission and completion queues in guest memory (NVMe 1.4 §4.1), as the controller sees them.

use super::doorbell::{Posted, Register};
use super::spec::{CQE_LEN, Cqe, SQE_LEN, Sqe};
use crate::vfio_user::memory::Slice;
use std::collections::VecDeque;

/// A doorbell value that the host may not write. It was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadValue;

/// A value of a doorbell that is checked once, not each time that it is read.
#[derive(Debug)]
struct Doorbell {
    register: Register,
    bad: Option<u32>,
}

impl Doorbell {
    /// The value, if it is one that `is_valid` allows. An error is returned once for each bad value.
    fn load(&mut self, is_valid: impl FnOnce(u32) -> bool) -> Result<Option<u16>, BadValue> {
        let value = self.register.load();
        if is_valid(value) {
            self.bad = None;
            return Ok(u16::try_from(value).ok());
        }
        if self.bad.replace(value) == Some(value) { Ok(None) } else { Err(BadValue) }
    }
}

/// The memory of a queue: a slice for each region in which it lies, in order; none while it is away. No entry crosses
/// regions, which are whole pages.
#[derive(Debug)]
struct Entries(Vec<Slice>);

impl Entries {
    /// Bytes.
    fn len(&self) -> usize {
        self.0.iter().map(Slice::len).sum()
    }

    const fn is_here(&self) -> bool {
        !self.0.is_empty()
    }

    /// The slice with the byte at this offset, and where in the slice it is.
    fn find(&self, mut offset: usize) -> Option<(&Slice, usize)> {
        for slice in &self.0 {
            if offset < slice.len() {
                return Some((slice, offset));
            }
            offset -= slice.len();
        }
        None
    }
}

/// A submission queue.
#[derive(Debug)]
pub struct SubmissionQueue {
    /// Its identifier.
    pub id: u16,
    /// The completion queue of its commands.
    pub cq: u16,
    /// Commands that were fetched and whose completions are not posted.
    pub in_flight: u16,
    entries: Entries,
    size: u16,
    head: u16,
    tail: u16, // the last one seen
    doorbell: Doorbell,
}

impl SubmissionQueue {
    /// An empty queue in `entries`.
    #[must_use]
    pub fn new(id: u16, cq: u16, entries: Vec<Slice>, tail: Register) -> Self {
        let entries = Entries(entries);
        let size = u16::try_from(entries.len() / SQE_LEN).unwrap_or(u16::MAX);
        Self { id, cq, in_flight: 0, entries, size, head: 0, tail: 0, doorbell: Doorbell { register: tail, bad: None } }
    }

    /// Its doorbell.
    pub const fn register(&mut self) -> &mut Register {
        &mut self.doorbell.register
    }

    /// Its memory goes away: nothing can be fetched until it [returns](Self::resume).
    pub fn suspend(&mut self) {
        self.entries.0.clear();
    }

    /// Its memory is mapped again, maybe elsewhere.
    pub fn resume(&mut self, entries: Vec<Slice>) {
        self.entries = Entries(entries);
    }

    /// Whether its memory is mapped.
    #[must_use]
    pub const fn is_here(&self) -> bool {
        self.entries.is_here()
    }

    /// The entry that is fetched next.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.head
    }

    /// Looks at the tail if no entry is known to wait. Returns whether one does.
    ///
    /// # Errors
    /// The host wrote a value beyond the queue, and it is not known yet.
    pub fn look(&mut self) -> Result<bool, BadValue> {
        if self.head == self.tail {
            let size = self.size;
            if let Some(tail) = self.doorbell.load(|tail| tail < size.into())? {
                self.tail = tail;
            }
        }
        Ok(self.head != self.tail)
    }

    /// The number of entries that wait.
    #[must_use]
    pub fn waiting(&self) -> u16 {
        let value = self.doorbell.register.value();
        let tail = u16::try_from(value).ok().filter(|tail| *tail < self.size).unwrap_or(self.tail);
        distance(self.head, tail, self.size)
    }

    /// Whether [`look`](Self::look) would find something new: an entry, or a bad value.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let value = self.doorbell.register.value();
        self.head == self.tail && value != u32::from(self.tail) && self.doorbell.bad != Some(value)
    }

    /// Fetches the next entry. One must wait, and the queue must be [here](Self::is_here).
    pub fn fetch(&mut self) -> Sqe {
        let mut bytes = [0; SQE_LEN];
        if let Some((slice, at)) = self.entries.find(usize::from(self.head) * SQE_LEN) {
            let _ = slice.read(at, &mut bytes); // it is inside
        }
        self.head = next(self.head, self.size);
        self.in_flight += 1;
        if is_half_way(self.head, self.size) {
            self.doorbell.register.ask_at(before(self.head, self.size)); // see `is_half_way`
        }
        Sqe::new(bytes)
    }

    /// Puts the entry that was fetched last back: it is fetched again.
    pub const fn put_back(&mut self) {
        self.head = before(self.head, self.size);
        self.in_flight -= 1;
    }

    /// Asks for a message when another entry comes.
    pub fn ask(&self) {
        self.doorbell.register.ask_at(self.tail);
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    /// Its identifier.
    pub id: u16,
    /// Its interrupt vector.
    pub vector: u16,
    /// Whether it interrupts.
    pub interrupts: bool,
    /// Whether something was posted since the last interrupt.
    pub is_news: bool,
    entries: Entries,
    unposted: VecDeque<Cqe>, // while its memory is away
    size: u16,
    head: u16, // the last one seen
    tail: u16,
    announced: u16, // the tail of the last interrupt
    phase: bool,
    reserved: u16,
    doorbell: Doorbell,
}

impl CompletionQueue {
    /// An empty queue in `entries`.
    #[must_use]
    pub fn new(id: u16, vector: u16, interrupts: bool, entries: Vec<Slice>, head: Register) -> Self {
        let entries = Entries(entries);
        let size = u16::try_from(entries.len() / CQE_LEN).unwrap_or(u16::MAX);
        let queue = Self {
            id,
            vector,
            interrupts,
            is_news: false,
            entries,
            unposted: VecDeque::new(),
            size,
            head: 0,
            tail: 0,
            announced: 0,
            phase: true,
            reserved: 0,
            doorbell: Doorbell { register: head, bad: None },
        };
        queue.publish(0);
        queue
    }

    /// The host is interrupted for what is posted.
    pub fn announce(&mut self) {
        self.is_news = false;
        self.announced = self.tail;
        self.publish(self.tail);
    }

    /// The queue is deleted: nothing of it waits for the host.
    pub fn withdraw(&self) {
        self.doorbell.register.publish(Posted::default());
    }

    fn publish(&self, tail: u16) {
        if self.interrupts {
            self.doorbell.register.publish(Posted { announced: self.announced, tail, size: self.size });
        }
    }

    /// Its doorbell.
    pub const fn register(&mut self) -> &mut Register {
        &mut self.doorbell.register
    }

    /// Its memory goes away: what is posted waits until it [returns](Self::resume).
    pub fn suspend(&mut self) {
        self.entries.0.clear();
    }

    /// Its memory is mapped again, maybe elsewhere. Returns whether something waited to be posted.
    pub fn resume(&mut self, entries: Vec<Slice>) -> bool {
        self.entries = Entries(entries);
        let unposted = std::mem::take(&mut self.unposted);
        let has_waited = !unposted.is_empty();
        unposted.into_iter().for_each(|entry| self.post(entry));
        has_waited
    }

    /// Whether its memory is mapped.
    #[must_use]
    pub const fn is_here(&self) -> bool {
        self.entries.is_here()
    }

    /// Looks at the head.
    ///
    /// # Errors
    /// The host wrote a value that it cannot have reached, and it is not known yet.
    pub fn look(&mut self) -> Result<(), BadValue> {
        let (head, tail, size) = (self.head, self.tail, self.size);
        let is_valid = |value| is_between(head, value, tail, size);
        if let Some(head) = self.doorbell.load(is_valid)? {
            self.head = head;
        }
        Ok(())
    }

    /// Entries that are posted and not reaped.
    #[must_use]
    pub fn unreaped(&self) -> u16 {
        let value = self.doorbell.register.value();
        let is_valid = is_between(self.head, value, self.tail, self.size);
        distance(if is_valid { value as u16 } else { self.head }, self.tail, self.size)
    }

    /// Entries that can be posted before the host reaps any. One entry stays free: a full queue looks as an empty one.
    #[must_use]
    pub fn room(&self) -> u16 {
        self.size - 1 - self.unreaped()
    }

    /// [`room`](Self::room) that no command in flight has reserved.
    #[must_use]
    pub fn free(&self) -> u16 {
        self.room().saturating_sub(self.reserved)
    }

    /// [`free`](Self::free), as far as it is known without looking.
    #[must_use]
    pub fn known_free(&self) -> u16 {
        (self.size - 1 - distance(self.head, self.tail, self.size)).saturating_sub(self.reserved)
    }

    /// Reserves room for the completion of a command that is fetched.
    pub const fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// Gives room back that was [reserved](Self::reserve).
    pub const fn give_back(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Posts an entry, for which room was reserved.
    pub fn post(&mut self, entry: Cqe) {
        let Some((slice, at)) = self.entries.find(usize::from(self.tail) * CQE_LEN) else {
            return self.unposted.push_back(entry); // no more than there is room reserved
        };
        let (bytes, last) = entry.encode(self.phase);
        let tail = next(self.tail, self.size);
        self.publish(tail);
        let _ = slice.write(at, &bytes); // it is inside
        let _ = slice.store_u32(at + bytes.len(), last.to_le()); // releases the rest
        self.reserved = self.reserved.saturating_sub(1);
        self.tail = tail;
        self.phase ^= self.tail == 0;
        self.is_news = true;
        if is_half_way(self.tail, self.size) {
            let reaped = distance(0, self.tail, self.size) + self.size - self.unreaped();
            self.doorbell.register.ask_at(before(reaped % self.size, self.size)); // see `is_half_way`
        }
    }

    /// Asks for a message when the host makes room.
    pub fn ask(&self) {
        self.doorbell.register.ask_at(self.head);
    }
}

const fn next(index: u16, size: u16) -> u16 {
    if index + 1 < size { index + 1 } else { 0 }
}

const fn before(index: u16, size: u16) -> u16 {
    if index > 0 { index - 1 } else { size - 1 }
}

/// Whether an index is at the start or in the middle of its queue. There the controller, which is awake and wants no message,
/// moves EventIdx to just behind the host's index: no value means *never*, so one that stays is passed in each round.
const fn is_half_way(index: u16, size: u16) -> bool {
    index == 0 || index == size / 2
}

/// Entries from `from` up to `to`. Both are below `size`.
const fn distance(from: u16, to: u16, size: u16) -> u16 {
    if from <= to { to - from } else { size - from + to }
}

/// Whether `value` is on the way from `from` to `to`.
const fn is_between(from: u16, value: u32, to: u16, size: u16) -> bool {
    value < size as u32 && distance(from, value as u16, size) <= distance(from, to, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_valid_from_the_last_one_up_to_the_tail() {
        for size in 2..9 {
            for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
                let valid: Vec<_> = (0..20).filter(|value| is_between(from, *value, to, size)).collect();
                let mut way = vec![u32::from(from)];
                let mut at = from;
                while at != to {
                    at = next(at, size);
                    way.push(at.into());
                }
                way.sort_unstable();
                assert_eq!(valid, way, "from {from} to {to} of {size}");
                assert_eq!(usize::from(distance(from, to, size)) + 1, way.len());
            }
        }
        assert!(!is_between(0, 0x1_0000, 0, 8) && !is_between(0, u32::MAX, 7, 8));
    }
}
