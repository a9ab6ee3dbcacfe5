//! The requests in flight on a queue, from their start to their completion.

use crate::backend::{Backend, Buffers, Operation, Outcome, Step};
use crate::disk::Disk;
use crate::source::{Request, Source, Task};
use coalesce_policy::Mark;
use std::collections::VecDeque;
use std::convert::Infallible;

/// The approximate limit of the buffers of all requests in flight on a queue. With a page for each buffer this
/// is 128 MiB.
const BUFFERS_MAX: usize = 32 << 10;

/// The bytes that could be copied while a descriptor is read.
const DESCRIPTOR_WORK: u64 = 512;

/// A request in flight, or a free slot.
#[derive(Debug)]
pub struct Slot<T> {
    /// What to do.
    pub task: Task,
    /// I/O priority: class in bits 15:13.
    pub ioprio: u16,
    /// Its submitter group.
    pub group: u8,
    /// Bytes that it reads or writes.
    pub bytes: u64,
    /// What it costs its thread, at once: the bytes that could be copied meanwhile.
    pub work: u64,
    /// When it was taken, by the policy's clock, in ns.
    pub taken_at: u64,
    /// The policy's mark.
    pub mark: Mark,
    buffers: Buffers,
    token: Option<T>, // keeps the buffers mapped
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        let buffers = Buffers::default();
        let (task, mark) = (Task::Malformed, Mark::default());
        Self { task, ioprio: 0, group: 0, bytes: 0, work: 0, taken_at: 0, mark, buffers, token: None }
    }
}

impl<T> Slot<T> {
    /// The source's token of a request in flight.
    pub const fn token(&self) -> Option<&T> {
        self.token.as_ref()
    }

    /// Bytes that the thread of the queue zeroes at once: those of a memory disk, which takes as long as to copy them.
    pub const fn zeroes(&self, backend: &Backend) -> u64 {
        match (&self.task, backend) {
            (
                Task::Operation(Operation::Discard { len, .. } | Operation::WriteZeroes { len, .. }),
                Backend::Memory(_),
            ) => *len,
            _ => 0,
        }
    }

    /// What it counts against the limits of its disk: requests and bytes. A flush and what is refused move nothing. Zeroes are
    /// written, as far as the guest can tell.
    pub const fn cost(&self) -> (u64, u64) {
        match &self.task {
            Task::Operation(Operation::Read { .. } | Operation::Write { .. }) => (1, self.bytes),
            Task::Operation(Operation::WriteZeroes { len, .. }) => (1, *len),
            Task::Operation(Operation::Discard { .. }) => (1, 0),
            Task::Operation(Operation::Flush) | Task::Answer(_) | Task::Malformed => (0, 0),
        }
    }
}

/// A request that was taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Its slot.
    pub id: usize,
    /// Whether an earlier process took it before.
    pub is_taken_over: bool,
}

/// A request that has finished.
#[derive(Debug)]
pub struct Finished<T> {
    /// What it had to do.
    pub task: Task,
    /// Bytes that it read or wrote, if it succeeded.
    pub bytes: u64,
    /// When it was taken, by the policy's clock, in ns.
    pub taken_at: u64,
    /// The policy's mark.
    pub mark: Mark,
    /// The source's token, which completes it.
    pub token: T,
}

/// The requests in flight on a queue. An id is the index of a slot.
#[derive(Debug)]
pub struct Requests<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    again: VecDeque<usize>, // to be resumed, one in each pass of the queue's loop
    buffers: usize,         // the number of buffers in all slots
}

impl<T> Requests<T> {
    /// Slots for a source with up to `size_max` requests in flight, and one more. With the additional slot the queue
    /// asks the source again when `size_max` are in flight, and the source detects a guest that submits too many.
    pub fn new(size_max: usize) -> Self {
        let count = size_max + 1;
        let slots = (0..count).map(|_| Slot::default()).collect();
        Self { slots, free: (0..count).rev().collect(), again: VecDeque::with_capacity(count), buffers: 0 }
    }

    /// The number of requests in flight.
    pub const fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of requests in flight whose range ends beyond `bytes`.
    pub fn beyond(&self, bytes: u64) -> usize {
        let end = |slot: &Slot<T>| match &slot.task {
            Task::Operation(operation) => operation.end(slot.buffers.len() as u64),
            Task::Answer(_) | Task::Malformed => 0,
        };
        self.slots.iter().filter(|slot| slot.token.is_some() && end(slot) > bytes).count()
    }

    /// Whether a request must finish before another is taken. Always false with nothing in flight, whatever the number of
    /// buffers of one request.
    pub const fn is_full(&self) -> bool {
        self.buffers >= BUFFERS_MAX || self.free.is_empty()
    }

    /// A request in flight.
    pub fn get(&self, id: usize) -> &Slot<T> {
        &self.slots[id]
    }

    /// A request in flight, for changes.
    pub fn get_mut(&mut self, id: usize) -> &mut Slot<T> {
        &mut self.slots[id]
    }

    /// Takes the next request of a source, if there is one and room for it.
    ///
    /// # Errors
    /// The guest broke the ring.
    pub fn take<S: Source<Token = T>>(&mut self, source: &mut S, disk: &Disk) -> Result<Option<Taken>, S::Broken> {
        self.take_by(&disk.backend, |buffers| source.take(disk, buffers))
    }

    /// Takes the next request of a source that no limit of the disk delays, if there is one and room for it.
    pub fn take_exempt<S: Source<Token = T>>(&mut self, source: &mut S, disk: &Disk) -> Option<Taken> {
        let Ok(taken) = self.take_by(&disk.backend, |_| Ok::<_, Infallible>(source.take_exempt()));
        taken
    }

    fn take_by<E>(
        &mut self,
        backend: &Backend,
        take: impl FnOnce(&mut Buffers) -> Result<Option<Request<T>>, E>,
    ) -> Result<Option<Taken>, E> {
        let Some(&id) = self.free.last() else { return Ok(None) };
        let slot = &mut self.slots[id];
        slot.buffers.clear(); // a request that broke the ring may have left some
        let Some(request) = take(&mut slot.buffers)? else { return Ok(None) };
        (slot.task, slot.ioprio, slot.group) = (request.task, request.ioprio, request.group);
        slot.token = Some(request.token);
        slot.bytes = slot.buffers.len() as u64;
        slot.work = slot.bytes + slot.zeroes(backend) + u64::from(request.descriptors) * DESCRIPTOR_WORK;
        self.buffers += slot.buffers.count();
        self.free.pop();
        Ok(Some(Taken { id, is_taken_over: request.is_taken_over }))
    }

    /// Begins a request.
    pub fn begin(&mut self, id: usize, backend: &Backend) -> Step {
        let slot = &mut self.slots[id];
        match &slot.task {
            Task::Operation(operation) => backend.begin(operation, &mut slot.buffers),
            Task::Answer(outcome) => Step::Finished(*outcome),
            Task::Malformed => Step::Finished(Outcome::Error),
        }
    }

    /// Resumes a request after one of its steps, with the step's result. `None`: the request has no steps.
    pub fn resume(&mut self, id: usize, backend: &Backend, result: i32) -> Option<Step> {
        let slot = &mut self.slots[id];
        let Task::Operation(operation) = &mut slot.task else { return None };
        Some(backend.resume(operation, &mut slot.buffers, result))
    }

    /// Replaces the operation of a request by the next one, if it has one.
    pub fn advance<S: Source<Token = T>>(&mut self, id: usize, source: &mut S) -> bool {
        let slot = &mut self.slots[id];
        let next = slot.token.as_mut().and_then(|token| source.next_operation(token));
        next.map(|operation| slot.task = Task::Operation(operation)).is_some()
    }

    /// Notes a request to be resumed in a later pass of the queue's loop; one is resumed in each.
    pub fn postpone(&mut self, id: usize) {
        self.again.push_back(id);
    }

    /// The next request to resume, in the order in which they were postponed.
    pub fn next_postponed(&mut self) -> Option<usize> {
        self.again.pop_front()
    }

    /// Finishes a request, and frees its slot. `None`: it has already finished.
    pub fn finish(&mut self, id: usize) -> Option<Finished<T>> {
        let slot = &mut self.slots[id];
        let token = slot.token.take()?;
        self.buffers -= slot.buffers.count();
        slot.buffers.clear();
        self.free.push(id);
        let (task, bytes, taken_at) = (slot.task, slot.bytes, slot.taken_at);
        Some(Finished { task, bytes, taken_at, mark: std::mem::take(&mut slot.mark), token })
    }
}
