//! What the threads of a controller share: its admin completion queue, where every thread can post, and events.

use super::doorbell::Doorbells;
use super::rings::CompletionQueue;
use super::spec::{Cqe, Status};
use crate::vfio_user::irq::Vectors;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The vector of the admin queue.
pub const ADMIN_VECTOR: u16 = 0;
/// Asynchronous Event Requests that may wait.
pub const EVENT_REQUESTS_MAX: usize = 4;

/// An error that the host is told of (§5.2, type 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It rang the doorbell of a queue that does not exist.
    Register = 0,
    /// It wrote a value to a doorbell that it may not write.
    Value = 1,
}

/// The log page that describes errors.
const ERROR_LOG: u32 = 1;

/// An enabled controller, from its enabling to its reset.
#[derive(Debug)]
pub struct Session {
    /// The doorbells.
    pub doorbells: Arc<Doorbells>,
    vectors: Vectors,
    is_over: AtomicBool,
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
    fault: Option<Fault>, // that no request has taken
    is_masked: bool,      // until the host reads the log
    faults: u64,          // in all
    last_fault: Option<(u16, Fault)>,
    deleted: Vec<u16>, // submission queues that are gone
    shutdowns: usize,  // vectors that have shut down
}

impl Session {
    /// A controller whose admin completions go to `cq`.
    #[must_use]
    pub fn new(doorbells: Arc<Doorbells>, vectors: Vectors, cq: CompletionQueue) -> Self {
        let admin = Admin {
            cq,
            sq_head: 0,
            waiting: VecDeque::new(),
            event_requests: VecDeque::new(),
            fault: None,
            is_masked: false,
            faults: 0,
            last_fault: None,
            deleted: Vec::new(),
            shutdowns: 0,
        };
        Self { doorbells, vectors, is_over: AtomicBool::new(false), admin: Mutex::new(admin) }
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

    /// The admin completion queue. No thread waits for another one while it has this.
    pub fn admin(&self) -> MutexGuard<'_, Admin> {
        self.admin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Interrupts. Returns false if nobody can be interrupted.
    pub fn signal(&self, vector: u16) -> bool {
        !self.is_over() && self.vectors.signal(vector)
    }

    /// Completes an admin command, with an interrupt.
    pub fn complete(&self, cid: u16, outcome: Result<u32, Status>) {
        self.admin().complete(cid, outcome);
        self.post();
    }

    /// Posts what waits and fits, and interrupts for it.
    pub fn post(&self) {
        let posted = !self.is_over() && self.admin().post();
        if posted {
            self.signal(ADMIN_VECTOR);
        }
    }

    /// Reports an error of the host about a queue. The host is told once, until it reads the log.
    pub fn report(&self, queue: u16, fault: Fault) {
        self.admin().report(queue, fault);
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
        usize::from(self.cq.room()) > self.waiting.len()
    }

    fn complete(&mut self, cid: u16, outcome: Result<u32, Status>) {
        let (result, status) = outcome.map_or_else(|status| (0, status), |result| (result, Status::SUCCESS));
        self.waiting.push_back(Cqe { result, sq_head: 0, sq_id: 0, cid, status });
    }

    fn post(&mut self) -> bool {
        let _ = self.cq.look().map_err(|_| self.report(0, Fault::Value));
        let mut posted = false;
        while self.cq.room() > 0
            && let Some(entry) = self.waiting.pop_front()
        {
            self.cq.post(Cqe { sq_head: self.sq_head, ..entry });
            posted = true;
        }
        posted
    }

    fn report(&mut self, queue: u16, fault: Fault) {
        self.faults += 1;
        self.last_fault = Some((queue, fault));
        if !self.is_masked {
            self.fault = Some(fault);
            self.tell();
        }
    }

    fn tell(&mut self) {
        if let Some(fault) = self.fault
            && let Some(cid) = self.event_requests.pop_front()
        {
            (self.fault, self.is_masked) = (None, true);
            self.complete(cid, Ok((fault as u32) << 8 | ERROR_LOG << 16));
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
        self.tell();
        Ok(())
    }

    /// Aborts an Asynchronous Event Request. Returns whether there was one.
    pub fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.event_requests.iter().position(|waiting| *waiting == cid) else { return false };
        self.event_requests.remove(at);
        self.complete(cid, Err(Status::ABORTED));
        true
    }

    /// The number of errors, and the last one with its queue. With `clear`, the host is told of the next one.
    pub const fn errors(&mut self, clear: bool) -> (u64, Option<(u16, Fault)>) {
        self.is_masked &= !clear;
        (self.faults, self.last_fault)
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
