//! The completion queues of one interrupt vector with their submission queues, as the source of a queue thread.

use super::admin::{ADMIN_VECTOR, Fault, Session};
use super::command::{Data, Parser};
use super::doorbell::{Shadow, Sleep};
use super::rings::{BadValue, CompletionQueue, SubmissionQueue};
use super::spec::{Cqe, Status};
use crate::backend::{Buffers, Operation, Outcome};
use crate::disk::Disk;
use crate::source::{Request, Source, Task};
use crate::stats::HostStats;
use crate::vfio_user::memory::{DmaMemory, Slice};
use coalesce_delivery::Ring;
use coalesce_policy::{Aggregation, Hint, Spec};
use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The highest submitter group of strict Barriers. Submission queues beyond share it.
const GROUP_MAX: u16 = 15;

/// Called once, on the thread of the queue.
pub type Done = Box<dyn FnOnce() + Send>;

/// One vector: what shares an interrupt and a policy.
pub struct Vector {
    session: Arc<Session>,
    sleep: Arc<Sleep>,
    memory: DmaMemory,
    cqs: Vec<CompletionQueue>,
    sqs: Vec<SubmissionQueue>,
    next: usize, // submission queue whose turn it is
    deletions: Vec<(u16, Done)>,
    shutdown: Option<Shutdown>,
    is_exempt: bool, // Coalescing Disable
    aggregation: Aggregation,
    waits_for_room: bool,                 // a command waits, because its completion queue is full
    waits_for_memory: bool,               // a command waits, because guest memory is being changed
    returned_cqs: Vec<(u16, Vec<Slice>)>, // their memory is mapped again
    has_all_sqs: bool,                    // the memory of each submission queue is mapped
    owes_interrupt: bool,                 // for what waited until the memory of its completion queue returned
    parser: Parser,
    disk: Arc<Disk>,
    index: usize, // of its queue
}

struct Shutdown {
    is_flushing: bool,
    done: Done,
}

/// What a request carries to complete its command; `None`: it is the last flush of a shutdown, which no host asked for.
pub struct Token(Option<Issued>);

/// A command that was fetched.
struct Issued {
    sq: u16,
    cid: u16,
    hint_dwords: [u32; 2],
    failure: Status,
    transfer: Option<(Direction, u64)>, // bytes
    data: Data,
}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// The completion of a command: its submission queue, its identifier, its status. `None`: of the last flush of a shutdown.
pub struct Entry(Option<(u16, u16, Status)>);

impl Vector {
    /// A vector without queues, for queue number `index` of `disk`.
    #[must_use]
    pub fn new(
        (disk, index): (Arc<Disk>, usize),
        session: Arc<Session>,
        sleep: Arc<Sleep>,
        memory: DmaMemory,
        is_exempt: bool,
    ) -> Self {
        Self {
            session,
            sleep,
            memory,
            cqs: Vec::new(),
            sqs: Vec::new(),
            next: 0,
            deletions: Vec::new(),
            shutdown: None,
            is_exempt,
            aggregation: Aggregation::default(),
            waits_for_room: false,
            waits_for_memory: false,
            returned_cqs: Vec::new(),
            has_all_sqs: true,
            owes_interrupt: false,
            parser: Parser::default(),
            disk,
            index,
        }
    }

    /// Counts a command that has completed.
    fn count(&self, issued: &Issued, outcome: Outcome) {
        let totals = &self.disk.totals.queues[self.index];
        match (outcome, issued.transfer) {
            (Outcome::Error, _) => totals.errors.add(issued.failure.is_of_medium().into()),
            (Outcome::Ok, Some((Direction::Read, bytes))) => {
                totals.reads.add(1);
                totals.bytes_read.add(bytes);
            }
            (Outcome::Ok, Some((Direction::Write, bytes))) => {
                totals.writes.add(1);
                totals.bytes_written.add(bytes);
            }
            (Outcome::Ok, None) => {}
        }
    }

    /// Adds a completion queue.
    pub fn add_cq(&mut self, cq: CompletionQueue) {
        self.cqs.push(cq);
    }

    /// Adds a submission queue, whose completion queue is here.
    pub fn add_sq(&mut self, sq: SubmissionQueue) {
        self.sqs.push(sq);
    }

    /// Removes a completion queue, which has no submission queue any more.
    pub fn remove_cq(&mut self, id: u16) {
        self.cqs.iter().filter(|cq| cq.id == id).for_each(CompletionQueue::withdraw);
        self.cqs.retain(|cq| cq.id != id);
        self.returned_cqs.retain(|(returned, _)| *returned != id);
    }

    /// The interrupt pin is not masked any more: interrupts again, if the host has not consumed what a queue announced.
    pub fn reassert(&mut self, id: u16) {
        let is_unconsumed = self.session.doorbells.unconsumed().any(|unconsumed| unconsumed == id);
        if let Some(cq) = self.cqs.iter_mut().find(|cq| cq.id == id && is_unconsumed) {
            cq.is_news = true;
            self.owes_interrupt = true;
        }
    }

    /// Removes a submission queue, and calls `done`, once its commands in flight have completed and are delivered. None is
    /// fetched any more.
    pub fn remove_sq(&mut self, id: u16, done: Done) {
        self.deletions.push((id, done));
    }

    /// Feature 09h: whether every completion interrupts.
    pub const fn set_exempt(&mut self, is_exempt: bool) {
        self.is_exempt = is_exempt;
    }

    /// Feature 08h: what the host asks for.
    pub const fn set_aggregation(&mut self, aggregation: Aggregation) {
        self.aggregation = aggregation;
    }

    /// Uses other shadow doorbells.
    pub fn set_shadow(&mut self, shadow: Option<&Arc<Shadow>>) {
        self.sqs.iter_mut().for_each(|sq| sq.register().set_shadow(shadow.cloned()));
        self.cqs.iter_mut().for_each(|cq| cq.register().set_shadow(shadow.cloned()));
    }

    /// The memory of a submission queue goes away.
    pub fn suspend_sq(&mut self, id: u16) {
        self.sqs.iter_mut().filter(|sq| sq.id == id).for_each(SubmissionQueue::suspend);
        self.note_sqs();
    }

    /// The memory of a submission queue is mapped again.
    pub fn resume_sq(&mut self, id: u16, entries: Vec<Slice>) {
        if let Some(sq) = self.sqs.iter_mut().find(|sq| sq.id == id) {
            sq.resume(entries);
        }
        self.note_sqs();
    }

    fn note_sqs(&mut self) {
        self.has_all_sqs = self.sqs.iter().all(SubmissionQueue::is_here);
    }

    /// The memory of a completion queue goes away.
    pub fn suspend_cq(&mut self, id: u16) {
        self.returned_cqs.retain(|(returned, _)| *returned != id);
        self.cqs.iter_mut().filter(|cq| cq.id == id).for_each(CompletionQueue::suspend);
    }

    /// The memory of a completion queue is mapped again.
    pub fn resume_cq(&mut self, id: u16, entries: Vec<Slice>) {
        self.returned_cqs.push((id, entries));
        self.resume_cqs();
    }

    /// Posts what has completed while the memory of its queue was away, and the host was not interrupted for it. If bus mastering is
    /// off, it waits for that, too.
    pub fn resume_cqs(&mut self) {
        if !self.session.may_access() {
            return;
        }
        for (id, entries) in self.returned_cqs.drain(..) {
            if let Some(cq) = self.cqs.iter_mut().find(|cq| cq.id == id) {
                self.owes_interrupt |= cq.resume(entries) && cq.interrupts;
            }
        }
    }

    /// The memory of the shadow doorbells goes away.
    pub fn suspend_shadow(&mut self) {
        self.sqs.iter_mut().for_each(|sq| sq.register().suspend());
        self.cqs.iter_mut().for_each(|cq| cq.register().suspend());
    }

    /// The memory of the shadow doorbells is mapped again.
    pub fn resume_shadow(&mut self, shadow: &Arc<Shadow>) {
        self.sqs.iter_mut().for_each(|sq| sq.register().resume(shadow.clone()));
        self.cqs.iter_mut().for_each(|cq| cq.register().resume(shadow.clone()));
    }

    /// Guest memory has changed: commands that waited for it are fetched again.
    pub const fn retry(&mut self) {
        self.waits_for_memory = false;
    }

    /// Fetches no more, completes what is in flight, flushes the disk, and calls `done`.
    pub fn shut_down(&mut self, done: Done) {
        self.shutdown = Some(Shutdown { is_flushing: false, done });
    }

    fn is_fetching(&self, sq: &SubmissionQueue) -> bool {
        let is_held_up = self.shutdown.is_some() || self.waits_for_memory || !sq.is_here();
        !is_held_up && !self.deletions.iter().any(|(id, _)| *id == sq.id)
    }

    fn cq_of(&self, sq: &SubmissionQueue) -> Option<usize> {
        self.cqs.iter().position(|cq| cq.id == sq.cq)
    }

    /// Ends the deletions of submission queues with nothing in flight.
    fn end_deletions(&mut self) {
        let is_over = |sqs: &[SubmissionQueue], id| !sqs.iter().any(|sq| sq.id == id && sq.in_flight > 0);
        while let Some(at) = self.deletions.iter().position(|(id, _)| is_over(&self.sqs, *id)) {
            let (id, done) = self.deletions.swap_remove(at);
            self.sqs.retain(|sq| sq.id != id);
            self.note_sqs();
            done();
        }
    }

    /// The flush at the end of a shutdown, once nothing else is in flight.
    fn last_flush(&mut self) -> Option<Request<Token>> {
        let is_idle = self.sqs.iter().all(|sq| sq.in_flight == 0);
        let shutdown = self.shutdown.as_mut().filter(|shutdown| is_idle && !shutdown.is_flushing)?;
        shutdown.is_flushing = true;
        let task = Task::Operation(Operation::Flush);
        Some(Request { task, ioprio: 0, group: 0, descriptors: 0, is_taken_over: false, token: Token(None) })
    }

    /// The index of the next submission queue that has a command, and room for its completion.
    fn next_queue(&mut self) -> Option<(usize, usize)> {
        self.waits_for_room = false;
        for turn in 0..self.sqs.len() {
            let at = (self.next + turn) % self.sqs.len();
            if !self.is_fetching(&self.sqs[at]) {
                continue;
            }
            let Some(cq_at) = self.cq_of(&self.sqs[at]) else { continue };
            let id = self.sqs[at].id;
            let is_waiting = self.sqs[at].look();
            if !self.checked(id, is_waiting).unwrap_or(false) {
                continue;
            }
            let cq = &mut self.cqs[cq_at];
            if cq.known_free() == 0 {
                let (id, looked) = (cq.id, cq.look());
                let _ = self.checked(id, looked);
            }
            if self.cqs[cq_at].known_free() > 0 {
                self.next = at + 1;
                return Some((at, cq_at));
            }
            self.waits_for_room = true;
        }
        None
    }

    fn checked<T>(&self, queue: u16, looked: Result<T, BadValue>) -> Option<T> {
        looked.map_err(|BadValue| self.session.report(queue, Fault::Value)).ok()
    }

    /// Whether [`next_queue`](Self::next_queue) would find something new. A command without room is new, because it decides
    /// which doorbells to ask for before a sleep. A bad value is new, because it must be reported.
    fn has_news(&self) -> bool {
        self.fetching().any(SubmissionQueue::has_news)
    }

    /// The submission queues from which commands are fetched.
    fn fetching(&self) -> impl Iterator<Item = &SubmissionQueue> {
        self.sqs.iter().filter(|sq| self.is_fetching(sq) && self.cq_of(sq).is_some())
    }

    /// Commands that wait to be fetched, and have room for their completions.
    fn fetchable(&self) -> u32 {
        let of = |cq: &CompletionQueue| {
            let sqs = self.sqs.iter().filter(|sq| sq.cq == cq.id && self.is_fetching(sq));
            let waiting = sqs.map(|sq| u32::from(sq.waiting())).sum::<u32>();
            if waiting == 0 { 0 } else { waiting.min(cq.free().into()) }
        };
        self.cqs.iter().map(of).sum()
    }
}

impl Ring for Vector {
    type Entry = Entry;
    type Broken = Infallible;

    fn post(&mut self, Entry(entry): Entry) -> Result<(), Infallible> {
        let Some((id, cid, status)) = entry.filter(|_| !self.session.is_over()) else { return Ok(()) };
        let Some(sq) = self.sqs.iter_mut().find(|sq| sq.id == id) else { return Ok(()) };
        sq.in_flight = sq.in_flight.saturating_sub(1);
        if let Some(cq) = self.cqs.iter_mut().find(|cq| cq.id == sq.cq) {
            cq.post(Cqe { result: 0, sq_head: sq.head(), sq_id: id, cid, status });
        }
        Ok(())
    }

    /// The room of the fullest completion queue.
    fn room(&self) -> usize {
        let room = |cq: &CompletionQueue| if cq.known_free() > 0 { usize::MAX } else { cq.room().into() };
        self.cqs.iter().map(room).min().unwrap_or(usize::MAX)
    }

    /// No, while the host waits for more than completions (room, memory, a deletion, a shutdown), or has disabled the interrupts of
    /// all queues. The MSI-X vector of the admin queue is never coalesced. All queues share the interrupt pin.
    fn may_hold(&self) -> bool {
        let waits_for_memory = self.waits_for_memory || !self.has_all_sqs;
        let is_held_up =
            self.waits_for_room || waits_for_memory || !self.deletions.is_empty() || self.shutdown.is_some();
        let can_interrupt = self.cqs.iter().any(|cq| cq.interrupts);
        let has_admin = self.cqs.iter().any(|cq| cq.vector == ADMIN_VECTOR && cq.interrupts);
        let has_admin = has_admin && !self.session.uses_pin();
        !(self.is_exempt || is_held_up || has_admin) && can_interrupt
    }

    /// The host polls a queue without interrupts. A queue with interrupts may share this thread.
    fn is_polled(&self, Entry(entry): &Entry) -> bool {
        let sq = entry.as_ref().and_then(|(id, ..)| self.sqs.iter().find(|sq| sq.id == *id));
        sq.is_some_and(|sq| self.cqs.iter().any(|cq| cq.id == sq.cq && !cq.interrupts))
    }

    fn wants_interrupt(&mut self) -> bool {
        self.cqs.iter_mut().filter(|cq| !cq.interrupts).for_each(|cq| cq.is_news = false);
        self.cqs.iter().any(|cq| cq.is_news)
    }

    fn is_consumed(&mut self) -> bool {
        let is_consumed = self.cqs.iter().all(|cq| cq.unreaped() == 0);
        if is_consumed {
            self.cqs.iter_mut().for_each(|cq| cq.is_news = false);
        }
        is_consumed
    }

    fn interrupt(&mut self) -> bool {
        let mut interrupted = false;
        self.owes_interrupt = false;
        for at in 0..self.cqs.len() {
            if self.cqs[at].is_news && self.cqs[at].interrupts {
                let vector = self.cqs[at].vector;
                let of_vector = self.cqs.iter_mut().filter(|cq| cq.is_news && cq.vector == vector);
                of_vector.for_each(CompletionQueue::announce);
                interrupted |= self.session.signal(vector);
            }
        }
        interrupted
    }
}

// SAFETY: a request's buffers lie in slices of guest memory, which its token keeps, and which keep it mapped.
unsafe impl Source for Vector {
    type Token = Token;
    type Position = ();

    fn take(&mut self, disk: &Disk, buffers: &mut Buffers) -> Result<Option<Request<Token>>, Infallible> {
        if self.session.is_over() || self.shutdown.is_some() {
            return Ok(self.take_exempt());
        }
        self.end_deletions();
        let Some((sq, cq)) = self.next_queue() else { return Ok(None) };
        self.cqs[cq].reserve();
        let (sqe, id) = (self.sqs[sq].fetch(), self.sqs[sq].id);
        let mut parse = || self.parser.parse(&sqe, disk, &self.memory, buffers);
        let mut command = parse();
        if command.misses_memory()
            && self.session.waits_for(&self.memory, || {
                command = parse();
                command.misses_memory()
            })
        {
            self.waits_for_memory = true;
            self.sqs[sq].put_back();
            self.cqs[cq].give_back();
            return Ok(None);
        }
        let bytes = sqe.blocks() * u64::from(disk.limits.block_size);
        let transfer = match command.task {
            Task::Operation(Operation::Read { .. }) => Some((Direction::Read, bytes)),
            Task::Operation(Operation::Write { .. }) => Some((Direction::Write, bytes)),
            _ => None,
        };
        let issued = Issued {
            sq: id,
            cid: sqe.cid(),
            hint_dwords: command.hint_dwords,
            failure: command.failure,
            transfer,
            data: command.data,
        };
        Ok(Some(Request {
            task: command.task,
            ioprio: 0,
            group: id.saturating_sub(1).min(GROUP_MAX) as u8,
            descriptors: 0, // none without bytes
            is_taken_over: false,
            token: Token(Some(issued)),
        }))
    }

    /// The flush of a shutdown. A queue whose deletion is due goes, too.
    fn take_exempt(&mut self) -> Option<Request<Token>> {
        if self.session.is_over() {
            return None;
        }
        self.end_deletions();
        self.shutdown.as_ref()?;
        self.last_flush()
    }

    /// After a reset the rest of a command is of no use to anybody, and the host waits for its end.
    fn next_operation(&mut self, Token(issued): &mut Token) -> Option<Operation> {
        let discards = &mut issued.as_mut().filter(|_| !self.session.is_over())?.data.discards;
        // The namespace may have become smaller since the command was checked. Deallocation is advice.
        std::iter::from_fn(|| discards.pop()).find(|discard| discard.end(0) <= self.disk.limits.size.get())
    }

    fn complete(&mut self, Token(issued): Token, outcome: Outcome) -> Entry {
        let Some(issued) = issued else {
            if let Some(shutdown) = self.shutdown.take() {
                (shutdown.done)();
                self.shutdown = Some(Shutdown { is_flushing: true, done: Box::new(|| ()) });
            }
            return Entry(None);
        };
        self.count(&issued, outcome);
        let Issued { sq, cid, failure, .. } = issued;
        Entry(Some((sq, cid, if outcome == Outcome::Ok { Status::SUCCESS } else { failure })))
    }

    fn backlog(&self) -> Result<u32, Infallible> {
        Ok(if self.session.is_over() { 0 } else { self.fetchable() })
    }

    fn is_waiting(&self) -> Result<bool, Infallible> {
        Ok(!self.session.is_over() && self.fetching().any(|sq| sq.waiting() > 0 || sq.has_news()))
    }

    fn unreaped(&self) -> u32 {
        self.cqs.iter().map(|cq| u32::from(cq.unreaped())).sum()
    }

    /// The controller wakes the thread.
    fn kick(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn count_kicks(&mut self) -> u64 {
        self.sleep.count_messages()
    }

    fn enable_kicks(&mut self) -> Result<bool, Infallible> {
        let ask = || {
            self.sqs.iter().for_each(SubmissionQueue::ask);
            if self.waits_for_room {
                self.cqs.iter().for_each(CompletionQueue::ask);
            }
        };
        let has_work = || !self.session.is_over() && (self.fetchable() > 0 || self.has_news());
        Ok(self.sleep.fall_asleep(ask, self.waits_for_room, has_work))
    }

    fn disable_kicks(&mut self) -> Result<(), Infallible> {
        self.sleep.wake_up();
        Ok(())
    }

    fn hint(Token(issued): &Token, spec: &Spec) -> Hint {
        issued.as_ref().map_or(Hint::Plain, |issued| spec.hint(issued.hint_dwords))
    }

    /// Feature 08h.
    fn aggregation(&self) -> Option<Aggregation> {
        Some(self.aggregation)
    }

    fn host_stats(&self) -> Option<HostStats> {
        Some(HostStats {
            threshold: self.aggregation.thr,
            time_us: u32::from(self.aggregation.time) * 100,
            coalescing_disable: self.is_exempt,
            intx: self.session.uses_pin(),
        })
    }

    fn owes_interrupt(&self) -> bool {
        self.owes_interrupt
    }

    fn report_broken(&mut self) {}

    fn position(&self) {}
}
