//! The interface between a front end and a queue: the queue takes requests from a source, and posts completions to it.
//!
//! A virtqueue is a source. In NVMe the completion queues of a vector with their submission queues are one. The queue
//! knows neither.

use crate::backend::{Buffers, Operation, Outcome};
use crate::disk::Disk;
use crate::stats::HostStats;
use coalesce_delivery::Ring;
use coalesce_policy::{Aggregation, Hint, Spec};
use std::fmt::Display;
use std::os::fd::BorrowedFd;

/// What a request needs.
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
    /// The guest's I/O priority as in Linux: class in bits 15:13; 0: none.
    pub ioprio: u16,
    /// Its submitter group, for strict Barriers: 0 to 15.
    pub group: u8,
    /// Descriptors that were read to find its buffers. A request of no bytes may have many.
    pub descriptors: u32,
    /// Whether an earlier process took it, and ended without completing it.
    pub is_taken_over: bool,
    /// Completes it.
    pub token: T,
}

/// A place where a queue takes requests and posts completions.
///
/// All requests of a source share one interrupt. A source may fetch from several submission queues; `take` chooses the
/// next. A source whose completion queue can be full fetches a request only if there is room for its completion, and says
/// how much is left ([`Ring::room`]).
///
/// # Safety
/// The buffers of [`take`](Self::take) stay mapped until the token of their request is dropped.
pub unsafe trait Source: Ring<Entry: Send, Broken: Display> + Send + 'static {
    /// Completes one request. Unique while it lives.
    type Token: Send;
    /// The position at which the next source continues.
    type Position: Copy + Send;

    /// Takes the next request, if there is one. The addresses of its data go to `buffers`, which is empty.
    ///
    /// # Errors
    /// The guest broke the ring, for example with more requests in flight than the ring has entries.
    fn take(&mut self, disk: &Disk, buffers: &mut Buffers) -> Result<Option<Request<Self::Token>>, Self::Broken>;

    /// The next request that no limit of the disk delays: one that no guest asked for. While a limit lets the queue take nothing,
    /// it asks for this.
    fn take_exempt(&mut self) -> Option<Request<Self::Token>> {
        None
    }

    /// The next operation of a request that has several, after one of them succeeded. It has no buffers.
    fn next_operation(&mut self, _token: &mut Self::Token) -> Option<Operation> {
        None
    }

    /// Sets the status of a request, and returns its completion, ready to be posted.
    fn complete(&mut self, token: Self::Token, outcome: Outcome) -> Self::Entry;

    /// The number of submitted requests that can be taken now. 0 while there is no room for completions.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn backlog(&self) -> Result<u32, Self::Broken>;

    /// Whether requests are submitted and not taken, also where there is no room for their completions.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn is_waiting(&self) -> Result<bool, Self::Broken> {
        Ok(self.backlog()? > 0)
    }

    /// Whether the next request is one that an earlier process had taken: no limit of the disk delays it.
    fn takes_over(&self) -> bool {
        false
    }

    /// The number of completions that are posted and not reaped, as far as the guest reports it.
    fn unreaped(&self) -> u32;

    /// The descriptor that becomes readable at a kick. It is polled, never read. `None`: the front end
    /// [wakes](crate::queue::QueueHandle::wake) the queue itself.
    fn kick(&self) -> Option<BorrowedFd<'_>>;

    /// Is called after each kick of the descriptor. What is to be logged: that the guest seems to write to other memory.
    fn after_kick(&mut self) -> Option<&'static str> {
        None
    }

    /// Kicks without the descriptor since this was asked last.
    fn count_kicks(&mut self) -> u64 {
        0
    }

    /// Asks the guest for kicks, before a sleep. Returns true if a request came meanwhile, for which no kick follows.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn enable_kicks(&mut self) -> Result<bool, Self::Broken>;

    /// Shows the guest that no kick is needed, after a sleep.
    ///
    /// # Errors
    /// The guest broke the ring.
    fn disable_kicks(&mut self) -> Result<(), Self::Broken>;

    /// The hint that the requester gave with a request, where the policy `spec` looks for one. The default is none.
    fn hint(_token: &Self::Token, _spec: &Spec) -> Hint {
        Hint::Plain
    }

    /// What the host asks of a policy that obeys it ([`Spec::is_by_host`]), if its protocol lets it ask.
    fn aggregation(&self) -> Option<Aggregation> {
        None
    }

    /// What the host has set about interrupts, for the statistics, if its protocol lets it.
    fn host_stats(&self) -> Option<HostStats> {
        None
    }

    /// Whether the guest may wait for an interrupt for a posted completion. An earlier process may have ended between
    /// post and interrupt, or it signalled an eventfd that nobody watches any more.
    fn owes_interrupt(&self) -> bool;

    /// Reports to the front end that the ring is broken.
    fn report_broken(&mut self);

    /// The position at which the next source continues.
    fn position(&self) -> Self::Position;
}
