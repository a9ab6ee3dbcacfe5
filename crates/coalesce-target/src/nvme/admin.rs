//! What the threads of a controller share: its admin completion queue, where every thread can post, and events.

use super::doorbell::Doorbells;
use super::rings::CompletionQueue;
use super::spec::{Cqe, Status, log};
use crate::vfio_user::irq::Vectors;
use crate::vfio_user::memory::Slice;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The vector of the admin queue.
pub const ADMIN_VECTOR: u16 = 0;
/// Asynchronous Event Requests that may wait.
pub const EVENT_REQUESTS_MAX: usize = 4;

/// An error that is reported to the host (§5.2, type 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It rang the doorbell of a queue that does not exist.
    Register = 0,
    /// It wrote a value to a doorbell that it may not write.
    Value = 1,
}

/// What is reported to the host (§5.2): once, until it reads the log page that describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An error of the host.
    Fault(Fault),
    /// A temperature threshold is reached.
    Temperature,
}

impl Event {
    /// The type of the event.
    const fn kind(self) -> usize {
        match self {
            Self::Fault(_) => 0,
            Self::Temperature => 1,
        }
    }

    /// The result of an Asynchronous Event Request: type, information, and log page.
    const fn result(self) -> u32 {
        let (information, page) = match self {
            Self::Fault(fault) => (fault as u32, log::ERROR),
            Self::Temperature => (1, log::HEALTH),
        };
        self.kind() as u32 | information << 8 | (page as u32) << 16
    }
}

/// Log pages with events, by the type of the event.
const LOGS: [u8; 2] = [log::ERROR, log::HEALTH];

/// An enabled controller, from its enabling to its reset.
#[derive(Debug)]
pub struct Session {
    /// The doorbells.
    pub doorbells: Arc<Doorbells>,
    vectors: Vectors,
    is_over: AtomicBool,
    is_bus_master: AtomicBool,
    is_memory_changing: AtomicBool,
    waits_for_memory: AtomicBool, // a vector does
    admin: Mutex<Admin>,
}

/// The admin completion queue, and what waits for it.
#[derive(Debug)]
pub struct Admin {
    cq: CompletionQueue,
    /// The head of the admin submission queue.
    pub sq_head: u16,
    waiting: VecDeque<Cqe>, // for room
    event_requests: VecDeque<u16>,
    events: [Option<Event>; 2], // by type: what no request has taken
    is_masked: [bool; 2],       // until the host reads the log
    faults: u64,                // in all
    last_fault: Option<(u16, Fault)>,
    deleted: Vec<u16>, // submission queues that are gone
    shutdowns: usize,  // vectors that have shut down
}

impl Session {
    /// A controller whose admin completions go to `cq`.
    #[must_use]
    pub fn new(doorbells: Arc<Doorbells>, vectors: Vectors, cq: CompletionQueue, is_bus_master: bool) -> Self {
        let admin = Admin {
            cq,
            sq_head: 0,
            waiting: VecDeque::new(),
            event_requests: VecDeque::new(),
            events: [None; 2],
            is_masked: [false; 2],
            faults: 0,
            last_fault: None,
            deleted: Vec::new(),
            shutdowns: 0,
        };
        Self {
            doorbells,
            vectors,
            is_over: AtomicBool::new(false),
            is_bus_master: AtomicBool::new(is_bus_master),
            is_memory_changing: AtomicBool::new(false),
            waits_for_memory: AtomicBool::new(false),
            admin: Mutex::new(admin),
        }
    }

    /// Whether the controller was reset. Then nothing is posted or signalled any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The controller is reset.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Bus mastering is on or off. While it is off nothing is posted or signalled: what completes meanwhile waits.
    pub fn set_bus_master(&self, on: bool) {
        self.is_bus_master.store(on, Ordering::Release);
    }

    /// Guest memory begins to change, or the change is over: what is not mapped then does not return soon.
    pub fn set_memory_changing(&self, is_changing: bool) {
        self.is_memory_changing.store(is_changing, Ordering::SeqCst);
    }

    /// A command of a vector needs memory that is not mapped. Returns whether it waits: until
    /// [`take_waiting`](Self::take_waiting). Store and load are sequentially consistent on both sides, so either this sees
    /// that the change is over, or that sees that a vector waits.
    pub fn waits_for_memory(&self) -> bool {
        if !self.is_memory_changing.load(Ordering::Relaxed) {
            return false;
        }
        self.waits_for_memory.store(true, Ordering::SeqCst);
        self.is_memory_changing.load(Ordering::SeqCst)
    }

    /// Whether a vector waits for memory, since this was asked last.
    pub fn take_waiting(&self) -> bool {
        self.waits_for_memory.swap(false, Ordering::SeqCst)
    }

    /// Whether guest memory may be written, and the guest interrupted.
    fn may_access(&self) -> bool {
        !self.is_over() && self.is_bus_master.load(Ordering::Acquire)
    }

    /// The admin completion queue. No thread waits for another one while it has this.
    pub fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts. Returns false if nobody can be interrupted.
    pub fn signal(&self, vector: u16) -> bool {
        self.may_access() && self.vectors.signal(vector)
    }

    /// Completes an admin command, with an interrupt.
    pub fn complete(&self, cid: u16, outcome: Result<u32, Status>) {
        self.admin().complete(cid, outcome);
        self.post();
    }

    /// Posts what waits and fits, and interrupts for it.
    pub fn post(&self) {
        let posted = self.may_access() && self.admin().post();
        if posted {
            self.signal(ADMIN_VECTOR);
        }
    }

    /// Reports an error of the host about a queue. It is reported once, until the host reads the log.
    pub fn report(&self, queue: u16, fault: Fault) {
        self.admin().report(queue, fault);
        self.post();
    }

    /// Reports an event to the host.
    pub fn notify(&self, event: Event) {
        self.admin().notify(event);
        self.post();
    }

    /// A submission queue is gone: the command that deletes it completes.
    pub fn deleted(&self, queue: u16, cid: u16) {
        self.admin().deleted.push(queue);
        self.complete(cid, Ok(0));
    }

    /// A vector has shut down.
    pub fn shut_down(&self) {
        self.admin().shutdowns += 1;
    }
}

impl Admin {
    /// Whether another command can be fetched: there is room for its completion, too.
    pub fn has_room(&mut self) -> bool {
        let _ = self.cq.look().map_err(|_| self.report(0, Fault::Value));
        self.cq.is_here() && usize::from(self.cq.room()) > self.waiting.len()
    }

    fn complete(&mut self, cid: u16, outcome: Result<u32, Status>) {
        let (result, status) = outcome.map_or_else(|status| (0, status), |result| (result, Status::SUCCESS));
        self.waiting.push_back(Cqe { result, sq_head: 0, sq_id: 0, cid, status });
    }

    fn post(&mut self) -> bool {
        let _ = self.cq.look().map_err(|_| self.report(0, Fault::Value));
        let mut posted = false;
        while self.cq.is_here()
            && self.cq.room() > 0
            && let Some(entry) = self.waiting.pop_front()
        {
            self.cq.post(Cqe { sq_head: self.sq_head, ..entry });
            posted = true;
        }
        posted
    }

    /// The memory of the queue goes away: what completes waits until it [returns](Self::resume).
    pub fn suspend(&mut self) {
        self.cq.suspend();
    }

    /// The memory of the queue is mapped again.
    pub fn resume(&mut self, entries: Vec<Slice>) {
        self.cq.resume(entries);
    }

    fn report(&mut self, queue: u16, fault: Fault) {
        self.faults += 1;
        self.last_fault = Some((queue, fault));
        self.notify(Event::Fault(fault));
    }

    fn notify(&mut self, event: Event) {
        if !self.is_masked[event.kind()] {
            self.events[event.kind()] = Some(event);
            self.report_events();
        }
    }

    fn report_events(&mut self) {
        for kind in 0..self.events.len() {
            if let Some(event) = self.events[kind]
                && let Some(cid) = self.event_requests.pop_front()
            {
                (self.events[kind], self.is_masked[kind]) = (None, true);
                self.complete(cid, Ok(event.result()));
            }
        }
    }

    /// Keeps an Asynchronous Event Request until there is an event.
    ///
    /// # Errors
    /// Too many wait already.
    pub fn request_event(&mut self, cid: u16) -> Result<(), Status> {
        if self.event_requests.len() == EVENT_REQUESTS_MAX {
            return Err(Status::TOO_MANY_EVENT_REQUESTS);
        }
        self.event_requests.push_back(cid);
        self.report_events();
        Ok(())
    }

    /// Aborts an Asynchronous Event Request. Returns whether there was one.
    pub fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.event_requests.iter().position(|waiting| *waiting == cid) else { return false };
        self.event_requests.remove(at);
        self.complete(cid, Err(Status::ABORTED));
        true
    }

    /// The number of errors, and the last one with its queue.
    #[must_use]
    pub const fn errors(&self) -> (u64, Option<(u16, Fault)>) {
        (self.faults, self.last_fault)
    }

    /// The host has read a log page: the next event of it is reported.
    pub fn clear_events(&mut self, page: u8) {
        if let Some(kind) = LOGS.iter().position(|log| *log == page) {
            self.is_masked[kind] = false;
        }
    }

    /// Submission queues that are gone since this was asked last.
    pub fn take_deleted(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.deleted)
    }

    /// The number of vectors that have shut down.
    #[must_use]
    pub const fn shutdowns(&self) -> usize {
        self.shutdowns
    }
}
