//! What the threads of a controller share: its admin completion queue, where every thread can post, and events.

use super::doorbell::Doorbells;
use super::rings::CompletionQueue;
use super::spec::{Cqe, Status, log};
use crate::vfio_user::irq::Vectors;
use crate::vfio_user::memory::{DmaMemory, Slice};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
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
    /// The namespace has changed.
    Namespace,
}

impl Event {
    /// The type of the event.
    const fn kind(self) -> usize {
        match self {
            Self::Fault(_) => 0,
            Self::Temperature => 1,
            Self::Namespace => 2,
        }
    }

    /// The result of an Asynchronous Event Request: type, information, and log page.
    const fn result(self) -> u32 {
        let (information, page) = match self {
            Self::Fault(fault) => (fault as u32, log::ERROR),
            Self::Temperature => (1, log::HEALTH),
            Self::Namespace => (0, log::CHANGED_NAMESPACES),
        };
        self.kind() as u32 | information << 8 | (page as u32) << 16
    }
}

/// Log pages with events, by the type of the event.
const LOGS: [u8; 3] = [log::ERROR, log::HEALTH, log::CHANGED_NAMESPACES];

/// An enabled controller, from its enabling to its reset.
#[derive(Debug)]
pub struct Session {
    /// The doorbells.
    pub doorbells: Arc<Doorbells>,
    vectors: Vectors,
    is_over: AtomicBool,
    is_bus_master: AtomicBool,
    waits_for_memory: AtomicBool, // a vector does
    interrupt_mask: Arc<AtomicU32>,
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
    events: [Option<Event>; LOGS.len()], // by type: what no request has taken
    is_masked: [bool; LOGS.len()],       // until the host reads the log
    has_changed: bool,                   // the namespace, since the host read that log
    faults: u64,                         // in all
    last_fault: Option<(u16, Fault)>,
    deleted: Vec<u16>, // submission queues that are gone
    shutdowns: usize,  // vectors that have shut down
}

impl Session {
    /// A controller whose admin completions go to `cq`. `interrupt_mask` is that of INTMS and INTMC.
    #[must_use]
    pub fn new(
        doorbells: Arc<Doorbells>,
        vectors: Vectors,
        cq: CompletionQueue,
        is_bus_master: bool,
        interrupt_mask: Arc<AtomicU32>,
    ) -> Self {
        let admin = Admin {
            cq,
            sq_head: 0,
            waiting: VecDeque::new(),
            event_requests: VecDeque::new(),
            events: [None; LOGS.len()],
            is_masked: [false; LOGS.len()],
            has_changed: false,
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
            waits_for_memory: AtomicBool::new(false),
            interrupt_mask,
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

    /// A command of a vector needs memory that is not mapped. Returns whether it waits for the end of a change: until
    /// [`take_waiting`](Self::take_waiting). Store and load are sequentially consistent on both sides, so either this sees
    /// that the change is over, or that sees that a vector waits. So it is with a region that returns: `misses` says whether the
    /// memory is still not mapped.
    pub fn waits_for(&self, memory: &DmaMemory, misses: impl FnOnce() -> bool) -> bool {
        if !memory.is_changing() {
            return false;
        }
        self.waits_for_memory.store(true, Ordering::SeqCst);
        memory.is_changing() && misses()
    }

    /// Whether a vector waits for memory, since this was asked last.
    pub fn take_waiting(&self) -> bool {
        self.waits_for_memory.swap(false, Ordering::SeqCst)
    }

    /// Whether guest memory may be written, and the guest interrupted.
    pub fn may_access(&self) -> bool {
        !self.is_over() && self.is_bus_master.load(Ordering::Acquire)
    }

    /// The admin completion queue. No thread waits for another one while it has this.
    pub fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts. Returns false if nobody can be interrupted, or the pin that all queues share is masked.
    pub fn signal(&self, vector: u16) -> bool {
        if !self.may_access() {
            return false;
        }
        if !self.vectors.uses_pin() {
            if self.vectors.signal(vector) {
                return true;
            }
            fence(Ordering::SeqCst); // the client may be about to use the pin
        }
        self.asserts_pin() && self.vectors.signal_pin()
    }

    /// Whether the pin interrupts, because the guest has no MSI-X.
    #[must_use]
    pub fn uses_pin(&self) -> bool {
        self.vectors.uses_pin()
    }

    /// Whether the controller asserts its pin (NVMe 1.4 §7.5.1): the host has not consumed what was announced, and has not
    /// masked it. The barrier orders this between what was announced or unmasked before, and the masks that are loaded here
    /// or later.
    #[must_use]
    pub fn asserts_pin(&self) -> bool {
        fence(Ordering::SeqCst);
        let is_masked = self.interrupt_mask.load(Ordering::Relaxed) & 1 << ADMIN_VECTOR != 0;
        !is_masked && self.may_access() && self.doorbells.unconsumed().next().is_some()
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

    /// The namespace has changed. `is_wanted`: as an event.
    pub fn namespace_has_changed(&self, is_wanted: bool) {
        self.admin().has_changed = true;
        if is_wanted {
            self.notify(Event::Namespace);
        }
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
        if posted {
            self.cq.announce();
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

    /// Whether the namespace has changed since the host read that it had.
    #[must_use]
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// The host has read a log page. It has what changed (NVMe 1.4 §5.14.1.4), whether it retains the event or not.
    pub fn note_read(&mut self, page: u8) {
        self.has_changed &= page != log::CHANGED_NAMESPACES;
    }

    /// The host has read a log page, and does not retain its event: the next one is reported.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::doorbell::Register;
    use crate::os::bus_error::Peer;
    use crate::os::call::CallRings;
    use crate::vfio_user::wire::DmaMap;
    use std::os::unix::net::UnixStream;

    /// Memory that returns before a vector says that it waits wakes nobody, so the vector looks once more.
    #[test]
    fn who_waits_for_memory_has_looked_once_more_since_it_said_so() {
        let doorbells = Arc::new(Doorbells::new(1));
        let cq = CompletionQueue::new(0, ADMIN_VECTOR, true, Vec::new(), Register::new(1, doorbells.clone(), None));
        let session = Session::new(doorbells, Vectors::new(1, CallRings::default()), cq, true, Arc::default());
        let memory = DmaMemory::new(Peer::new(UnixStream::pair().unwrap().0.into()).into(), 1 << 20);
        assert!(!session.waits_for(&memory, || unreachable!("no change is under way")));
        memory.map(&DmaMap { flags: DmaMap::READ, offset: 0, address: 0, size: 1 << 12 }, None).unwrap();
        drop(memory.unmap_all());
        for is_still_away in [false, true] {
            let looks_again = || {
                assert!(session.take_waiting(), "who brings it back now wakes the vector");
                is_still_away
            };
            assert_eq!(session.waits_for(&memory, looks_again), is_still_away);
        }
    }
}
