//! What a front end gives a queue: a place to take requests from, and a place to post completions to.
//!
//! A virtqueue is both. An NVMe front end has a completion queue with its submission queues. A queue serves either, and
//! knows neither.

use crate::backend::{Buffers, Operation, Outcome};
use crate::disk::Disk;
use coalesce_delivery::Ring;
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The back end performs it.
    Operation(Operation),
    /// The front end has performed or refused it. It completes with this outcome.
    Answer(Outcome),
    /// It is not a request. It completes with an error.
    Malformed,
}

/// A request that was taken.
#[derive(Debug)]
pub struct Request<T> {
    /// What to do.
    pub task: Task,
    /// I/O priority that the guest gives it: class in bits 15:13, as Linux has it. 0: none.
    pub ioprio: u16,
    /// Another device took it before, and ended without completing it.
    pub is_resumed: bool,
    /// Completes it.
    pub token: T,
}

/// Where a queue takes requests from and posts completions to.
///
/// All requests of a source share one interrupt. A source may fetch from several submission queues; `take` chooses the next.
/// A source whose completion queue can be full fetches a request only if there is room for its completion.
///
/// # Safety
/// The buffers that [`take`](Self::take) gives out stay mapped until the token of their request is dropped.
pub unsafe trait Source: Ring<Entry: Send, Broken: Display> + Send + 'static {
    /// Completes one request. Not given out a second time while it lives.
    type Token: Send;
    /// Where the next source continues after this one.
    type Position: Copy + Send;

    /// Takes the next request, if there is one. The addresses of its data go to `buffers`, which is empty.
    ///
    /// # Errors
    /// The guest broke the ring; more requests in flight than the ring has room for are one way to do so.
    fn take(&mut self, disk: &Disk, buffers: &mut Buffers) -> Result<Option<Request<Self::Token>>, Self::Broken>;

    /// Sets the status of a request. The result is its completion, ready to be posted.
    fn complete(&mut self, token: Self::Token, outcome: Outcome) -> Self::Entry;

    /// Requests that were submitted and can be taken now. None where completions have no room.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn backlog(&self) -> Result<u32, Self::Broken>;

    /// Completions that were posted and not reaped, as far as the guest tells.
    fn unreaped(&self) -> u32;

    /// The descriptor that becomes readable at a kick. It is polled, never read. None: nothing kicks.
    fn kick(&self) -> Option<BorrowedFd<'_>>;

    /// Asks the guest for kicks, before a sleep. True: a request came meanwhile, and no kick follows for it.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn enable_kicks(&mut self) -> Result<bool, Self::Broken>;

    /// Tells the guest that no kick is needed, after a sleep.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn disable_kicks(&mut self) -> Result<(), Self::Broken>;

    /// Whether the guest may wait for an interrupt for something that was posted. It may have been posted by a device that
    /// ended before it interrupted, or signalled through an eventfd that nobody watches any more.
    fn owes_interrupt(&self) -> bool;

    /// Tells the front end that the ring is broken.
    fn report_broken(&mut self);

    /// Where the next source continues.
    fn position(&self) -> Self::Position;
}
