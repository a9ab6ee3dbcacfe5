//! The controller: its registers, its admin queue and its resets (NVMe 1.4 §3, §5, §7).
//!
//! The connection's thread executes admin commands when their doorbell rings. It does not wait for I/O, except when the
//! device is reset and when bus mastering ends. (For an unmap the connection waits itself.) The deletion of a submission
//! queue and a shutdown complete on the threads of their vectors. A host sees in CSTS when nothing is in flight any more on
//! a controller that it disabled.

mod commands;
mod memory;

use super::admin::{ADMIN_VECTOR, Fault, Session};
use super::doorbell::{Doorbells, Register, Sleep};
use super::features::Features;
use super::rings::{BadValue, CompletionQueue, SubmissionQueue};
use super::spec::{CAP, CQE_LEN, Cc, SQE_LEN, VERSION, csts, register};
use super::vector::Vector;
use crate::disk::Disk;
use crate::queue::{Control, Part, QueueHandle};
use crate::vfio_user::irq::Vectors;
use crate::vfio_user::memory::{Access, DmaMemory, PAGE};
use crate::vfio_user::{PATIENCE, PciDevice};
use memory::{Place, ShadowPages};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;
use tracing::warn;

/// Bytes of BAR 0: the registers and, behind them, the doorbells.
pub const BAR_LEN: u32 = 16 << 10;

/// An NVMe controller with one namespace, which is a disk.
pub struct Controller {
    disk: Arc<Disk>,
    queues: Arc<[QueueHandle<Vector>]>,
    sleeps: Vec<Arc<Sleep>>,
    memory: DmaMemory,
    vectors: Vectors,
    features: Features,
    state: State,
    is_fatal: bool,
    is_bus_master: bool,
    owes_shutdown: bool, // a host that lets go without one loses power
    cc: Cc,
    aqa: u32,
    asq: u64,
    acq: u64,
    interrupt_mask: Arc<AtomicU32>,
    has_rung_head: bool, // by its last access
}

enum State {
    Disabled,
    Ready(Box<Ready>),
    /// What was in flight when the controller was disabled is not done yet. Each vector answers once.
    Draining(Vec<Receiver<Option<()>>>),
}

struct Ready {
    session: Arc<Session>,
    admin_sq: SubmissionQueue,
    admin: [Place; 2],
    sqs: Vec<Option<Sq>>, // by identifier
    cqs: Vec<Option<Cq>>,
    shadow: Option<ShadowPages>,
    is_whole: bool, // none of these is away
    is_shutting_down: bool,
}

struct Sq {
    cq: u16,
    thread: usize, // of its completion queue
    entries: u32,
    place: Place,
    is_deleting: bool,
}

struct Cq {
    thread: usize, // of its vector
    entries: u32,
    place: Place,
}

/// The most entries of an admin queue (AQA).
const ADMIN_ENTRIES_MAX: usize = 4096;
/// I/O queues of each kind that a host may create without asking for a number, even if the disk has fewer. EDK2 creates two,
/// and does not ask.
const QUEUES_UNASKED: u16 = 2;

impl Controller {
    /// A controller after power-on. It has one more vector than there are `queues`: the first one is that of the admin
    /// queue.
    #[must_use]
    pub fn new(disk: Arc<Disk>, queues: Arc<[QueueHandle<Vector>]>, memory: DmaMemory, vectors: Vectors) -> Self {
        let sleeps = queues.iter().map(|_| Arc::default()).collect();
        let features = Features::new(vectors.count());
        let mut controller = Self {
            disk,
            queues,
            sleeps,
            memory,
            vectors,
            features,
            state: State::Disabled,
            is_fatal: false,
            is_bus_master: false,
            owes_shutdown: false,
            cc: Cc::default(),
            aqa: 0,
            asq: 0,
            acq: 0,
            interrupt_mask: Arc::default(),
            has_rung_head: false,
        };
        controller.forget_features();
        controller.disk.totals.connections.add(1);
        controller
    }

    /// The I/O queues of each kind that a host gets if it asks (Number of Queues).
    fn queues_offered(&self) -> u16 {
        self.queues.len() as u16 // at most 16
    }

    /// The most I/O queues of each kind.
    fn queues_max(&self) -> u16 {
        let offered = self.queues_offered();
        if self.features.has_asked_for_queues() { offered } else { offered.max(QUEUES_UNASKED) }
    }

    /// The thread that serves a vector. If a host has only one vector, that of the admin queue interrupts for I/O too.
    fn thread_of(vector: u16) -> usize {
        usize::from(vector.saturating_sub(1))
    }

    fn forget_features(&mut self) {
        self.features = Features::new(self.vectors.count());
        self.disk.write_back.store(true, Ordering::Relaxed);
    }

    /// Whether a change of the namespace is an event for the host.
    #[must_use]
    pub const fn announces_namespace(&self) -> bool {
        self.features.wants_namespace_notices()
    }

    /// The namespace has changed. A controller that is not enabled announces nothing: its host identifies the namespace first.
    pub fn namespace_has_changed(&mut self) {
        self.settle();
        if let State::Ready(ready) = &self.state {
            ready.session.namespace_has_changed(self.features.wants_namespace_notices());
        }
    }

    /// Notes what other threads have done meanwhile.
    fn settle(&mut self) {
        match &mut self.state {
            State::Disabled => {}
            State::Ready(ready) => {
                for id in ready.session.admin().take_deleted() {
                    ready.sqs[usize::from(id)] = None;
                }
            }
            State::Draining(answers) => {
                answers.retain(|answer| matches!(answer.try_recv(), Err(TryRecvError::Empty)));
                if answers.is_empty() {
                    self.vectors.clear_pending(); // of what came before
                    self.state = State::Disabled;
                    if self.cc.is_enabled() && !self.is_fatal {
                        self.enable();
                    }
                }
            }
        }
    }

    fn csts(&mut self) -> u32 {
        self.settle();
        let (ready, shutdown) = match &self.state {
            State::Disabled if self.cc.wants_shutdown() => (0, csts::SHUT_DOWN),
            State::Disabled => (0, 0),
            State::Draining(_) => (csts::RDY, 0),
            State::Ready(ready) if !ready.is_shutting_down => (csts::RDY, 0),
            State::Ready(ready) if ready.session.admin().shutdowns() < self.queues.len() => {
                (csts::RDY, csts::SHUTTING_DOWN)
            }
            State::Ready(_) => (csts::RDY, csts::SHUT_DOWN),
        };
        ready | shutdown | if self.is_fatal { csts::CFS } else { 0 }
    }

    /// The four bytes at an offset that is a multiple of 4.
    fn read32(&mut self, offset: u64) -> u32 {
        let half = |value: u64, low: u64| if offset == low { value as u32 } else { (value >> 32) as u32 };
        match offset & !0b111 {
            register::CAP => half(CAP, register::CAP),
            register::ASQ => half(self.asq, register::ASQ),
            register::ACQ => half(self.acq, register::ACQ),
            _ => match offset {
                register::VS => VERSION,
                register::INTMS | register::INTMC => self.interrupt_mask.load(Ordering::Relaxed),
                register::CC => self.cc.0,
                register::CSTS => self.csts(),
                register::AQA => self.aqa,
                _ => 0,
            },
        }
    }

    fn write32(&mut self, offset: u64, value: u32) {
        self.settle();
        let set_half = |register: &mut u64, low: bool| {
            let shift = if low { 0 } else { 32 };
            *register = *register & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift;
        };
        match offset {
            register::INTMS => _ = self.interrupt_mask.fetch_or(value, Ordering::SeqCst),
            register::INTMC => {
                self.interrupt_mask.fetch_and(!value, Ordering::SeqCst);
                self.pin_is_unmasked();
            }
            register::CC => self.configure(Cc(value)),
            _ if self.cc.is_enabled() => {} // the host may not change them now
            register::AQA => self.aqa = value & 0x0fff_0fff,
            _ if offset & !0b111 == register::ASQ => set_half(&mut self.asq, offset == register::ASQ),
            _ if offset & !0b111 == register::ACQ => set_half(&mut self.acq, offset == register::ACQ),
            _ => {}
        }
    }

    fn configure(&mut self, cc: Cc) {
        let before = std::mem::replace(&mut self.cc, cc);
        match (before.is_enabled(), cc.is_enabled()) {
            (false, true) if matches!(self.state, State::Disabled) => self.enable(),
            (true, false) => self.disable(),
            _ => {}
        }
        if cc.wants_shutdown() && !before.wants_shutdown() {
            self.shut_down();
        }
    }

    fn enable(&mut self) {
        match self.admin_queues() {
            Ok(ready) => {
                for (at, (queue, sleep)) in self.queues.iter().zip(&self.sleeps).enumerate() {
                    let is_exempt = self.features.is_exempt(at as u16 + 1);
                    let (place, session) = ((self.disk.clone(), at), ready.session.clone());
                    let vector = Vector::new(place, session, sleep.clone(), self.memory.clone(), is_exempt);
                    queue.send(Control::Start(Box::new(vector), self.is_bus_master));
                }
                self.state = State::Ready(Box::new(ready));
                self.owes_shutdown = true;
            }
            Err(why) => self.fail(&format!("the controller cannot be enabled: {why}")),
        }
    }

    /// The admin queues as the registers describe them, or why they are not valid.
    fn admin_queues(&self) -> Result<Ready, String> {
        if !self.cc.is_supported() {
            let Cc(cc) = self.cc;
            return Err(format!("CC is {cc:#x}; allowed: CSS, MPS and AMS of 0 (NVM commands, 4 KiB, round robin)"));
        }
        let queue = |name, entries: usize, entry_len, address: u64, access| {
            if !(2..=ADMIN_ENTRIES_MAX).contains(&entries) {
                return Err(format!("AQA gives {name} {entries} entries; allowed: 2 to {ADMIN_ENTRIES_MAX}"));
            }
            if !address.is_multiple_of(PAGE) {
                return Err(format!("{name} is {address:#x}; allowed: multiples of {PAGE}"));
            }
            let len = entries * entry_len;
            let place = Place::new(&self.memory, address, len, access);
            place.ok_or_else(|| format!("{name} is {address:#x}, where there are no {len} bytes of memory to {access}"))
        };
        let [sq_entries, cq_entries] = [self.aqa & 0xfff, self.aqa >> 16].map(|entries| entries as usize + 1);
        let (sq_place, sq) = queue("ASQ", sq_entries, SQE_LEN, self.asq, Access::Read)?;
        let (cq_place, cq) = queue("ACQ", cq_entries, CQE_LEN, self.acq, Access::Write)?;
        let identifiers = usize::from(self.queues_offered().max(QUEUES_UNASKED)) + 1;
        let doorbells = Arc::new(Doorbells::new(identifiers));
        let register = |index| Register::new(index, doorbells.clone(), None);
        let admin_sq = SubmissionQueue::new(0, 0, sq, register(0));
        let cq = CompletionQueue::new(0, ADMIN_VECTOR, true, cq, register(1));
        let mask = self.interrupt_mask.clone();
        let session = Arc::new(Session::new(doorbells, self.vectors.clone(), cq, self.is_bus_master, mask));
        Ok(Ready {
            session,
            admin_sq,
            admin: [sq_place, cq_place],
            sqs: (0..identifiers).map(|_| None).collect(),
            cqs: (0..identifiers).map(|_| None).collect(),
            shadow: None,
            is_whole: true,
            is_shutting_down: false,
        })
    }

    /// Stops in a fatal state (CSTS.CFS), until the host resets the controller. The log limits a guest that does it often.
    fn fail(&mut self, why: &str) {
        warn!(disk = self.disk.name, "fatal controller status (CSTS.CFS) until the host resets the controller: {why}");
        self.is_fatal = true;
        self.stop();
    }

    /// EN becomes 0: everything but the admin queue's registers is as after power-on (NVMe 1.4 §3.1.5).
    fn disable(&mut self) {
        self.is_fatal = false;
        self.stop();
        self.forget_features();
        self.interrupt_mask.store(0, Ordering::SeqCst);
        self.settle();
    }

    /// From now on nothing is posted or signalled. What is in flight ends by itself.
    fn stop(&mut self) {
        if let State::Ready(ready) = &self.state {
            ready.session.end();
            self.state = State::Draining(self.queues.iter().map(|queue| queue.ask_later(Control::Stop)).collect());
        }
    }

    /// Waits for what was in flight when the controller was disabled, at most until `deadline`. Returns whether it has ended.
    fn wait_for_drain(&mut self, deadline: Option<Instant>) -> bool {
        let State::Draining(answers) = &mut self.state else { return true };
        answers.retain(|answer| !is_answered(answer, deadline));
        answers.is_empty()
    }

    /// As [`reset`](PciDevice::reset).
    fn reset_by(&mut self, deadline: Option<Instant>) -> bool {
        self.stop();
        if !self.wait_for_drain(deadline) {
            return false;
        }
        self.state = State::Disabled;
        self.forget_features();
        self.is_fatal = false;
        self.is_bus_master = false;
        self.cc = Cc::default();
        (self.aqa, self.asq, self.acq) = (0, 0, 0);
        self.interrupt_mask.store(0, Ordering::SeqCst);
        true
    }

    fn shut_down(&mut self) {
        let State::Ready(ready) = &mut self.state else { return };
        if std::mem::replace(&mut ready.is_shutting_down, true) {
            return;
        }
        self.owes_shutdown = false;
        for queue in self.queues.iter() {
            let session = ready.session.clone();
            let shut_down = move |vector: &mut Vector| vector.shut_down(Box::new(move || session.shut_down()));
            drop(queue.change_later(Part::Holding, shut_down));
        }
        self.end_shutdown_without_bus_master();
    }

    /// A vector that shuts down fetches nothing: its last flush needs no bus mastering.
    fn end_shutdown_without_bus_master(&self) {
        if let State::Ready(ready) = &self.state
            && ready.is_shutting_down
            && !self.is_bus_master
        {
            self.queues.iter().for_each(|queue| drop(queue.ask_later(|answer| Control::Enable(true, answer))));
        }
    }

    fn ring(&mut self, index: usize, value: u32) {
        self.settle();
        let (id, is_head) = (index / 2, !index.is_multiple_of(2));
        self.has_rung_head = is_head;
        if matches!(&self.state, State::Ready(ready) if !ready.is_whole && !is_head)
            && let Some(why) = self.why_not_ring(id)
        {
            return self.fail(&why);
        }
        let State::Ready(ready) = &self.state else { return };
        let queue = match (id, is_head) {
            (0, _) => None,
            (_, true) => ready.cqs.get(id).and_then(Option::as_ref).map(|cq| (cq.thread, cq.entries)),
            (_, false) => ready.sq(id).map(|(sq, thread)| (thread, sq.entries)),
        };
        match (id, ready.session.doorbells.get(index), queue) {
            (0, Some(register), _) => {
                register.store(value, Ordering::Release);
                self.run_admin();
            }
            // Not stored: it would replace a valid value at which the thread may not have looked yet.
            (_, _, Some((_, entries))) if value >= entries => {
                ready.session.report(id as u16, Fault::Value); // one of at most 16 queues
            }
            (_, Some(register), Some((thread, _))) => {
                if self.sleeps[thread].ring(register, value, is_head) {
                    self.queues[thread].wake();
                }
            }
            _ => ready.session.report(u16::try_from(id).unwrap_or(u16::MAX), Fault::Register),
        }
    }

    /// Executes admin commands while there are any, and room for their completions.
    fn run_admin(&mut self) {
        while let State::Ready(ready) = &mut self.state
            && self.is_bus_master
        {
            let session = ready.session.clone();
            session.post();
            if !ready.admin_sq.is_here() || !session.admin().has_room() {
                return;
            }
            match ready.admin_sq.look() {
                Ok(true) => {}
                Ok(false) => return,
                Err(BadValue) => return session.report(0, Fault::Value),
            }
            let sqe = ready.admin_sq.fetch();
            session.admin().sq_head = ready.admin_sq.head();
            if let Some(outcome) = self.execute(&sqe).transpose() {
                session.complete(sqe.cid(), outcome);
            }
        }
    }
}

impl Ready {
    /// A submission queue that exists and is not being deleted, and its thread.
    fn sq(&self, id: usize) -> Option<(&Sq, usize)> {
        let sq = self.sqs.get(id)?.as_ref().filter(|sq| !sq.is_deleting)?;
        self.cqs.get(usize::from(sq.cq))?.as_ref().map(|cq| (sq, cq.thread))
    }

    /// The doorbell at `index` for a new queue.
    fn register(&self, index: usize) -> Register {
        let shadow = self.shadow.as_ref().and_then(ShadowPages::shadow).cloned();
        Register::new(index, self.session.doorbells.clone(), shadow)
    }
}

impl PciDevice for Controller {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.has_rung_head = false;
        for (at, byte) in (offset..).zip(data) {
            let aligned = at & !0b11;
            let value = if aligned < register::DOORBELLS { self.read32(aligned) } else { 0 };
            *byte = value.to_le_bytes()[(at - aligned) as usize];
        }
    }

    /// Registers are written in 4 or 8 aligned bytes, doorbells in 4. Other accesses have no effect.
    fn write(&mut self, offset: u64, data: &[u8]) {
        self.has_rung_head = false;
        if !offset.is_multiple_of(4) {
            return;
        }
        let dword = |at: usize| data[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        match (data.len(), offset.checked_sub(register::DOORBELLS)) {
            (4, Some(at)) => self.ring((at / 4) as usize, dword(0)),
            (4, None) => self.write32(offset, dword(0)),
            (8, None) => {
                self.write32(offset, dword(0));
                self.write32(offset + 4, dword(4));
            }
            _ => {}
        }
    }

    /// Without bus mastering there is no DMA and no interrupt: waits for what is in flight, which completes.
    fn set_bus_master(&mut self, on: bool) -> bool {
        let deadline = Some(Instant::now() + PATIENCE);
        self.is_bus_master = on;
        match &self.state {
            State::Ready(ready) if on => {
                ready.session.set_bus_master(true);
                for queue in self.queues.iter() {
                    queue.ask(|answer| Control::Enable(true, answer));
                    queue.change(Part::Interrupt, Vector::resume_cqs);
                }
                self.run_admin();
                true
            }
            State::Ready(ready) => {
                let drains: Vec<_> = self.queues.iter().map(|queue| queue.ask_later(Control::Drain)).collect();
                let are_drained = drains.iter().all(|answer| is_answered(answer, deadline));
                ready.session.set_bus_master(false);
                self.end_shutdown_without_bus_master();
                are_drained
            }
            State::Draining(_) if !on => {
                let is_drained = self.wait_for_drain(deadline);
                self.settle();
                is_drained
            }
            State::Draining(_) | State::Disabled => true,
        }
    }

    fn unmap(&mut self, range: Range<u64>) {
        self.settle();
        self.suspend(&range);
    }

    fn map(&mut self) {
        self.settle();
        self.resume();
    }

    fn memory_changed(&mut self) {
        self.settle();
        self.end_change();
    }

    fn asserts_pin(&self) -> bool {
        matches!(&self.state, State::Ready(ready) if ready.session.asserts_pin())
    }

    /// A handler that has consumed completions says so.
    fn serves_pin(&self) -> bool {
        self.has_rung_head
    }

    /// The thread of a queue interrupts for it, and counts that.
    fn pin_is_unmasked(&mut self) {
        let State::Ready(ready) = &self.state else { return };
        if !self.vectors.uses_pin() || !ready.session.asserts_pin() {
            return;
        }
        for id in ready.session.doorbells.unconsumed() {
            match ready.cqs.get(usize::from(id)).and_then(Option::as_ref) {
                None => _ = ready.session.signal(ADMIN_VECTOR),
                Some(cq) => {
                    let reassert = move |vector: &mut Vector| vector.reassert(id);
                    drop(self.queues[cq.thread].change_later(Part::Interrupt, reassert));
                }
            }
        }
    }

    /// Resets the device, as after power-on. Waits for what is in flight.
    fn reset(&mut self) -> bool {
        self.reset_by(Some(Instant::now() + PATIENCE))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.reset_by(None); // the queues belong to the next client then
        self.disk.totals.lost.add(self.owes_shutdown.into());
    }
}

/// Waits for an answer, at most until `deadline`. A thread that has ended has nothing to do.
fn is_answered<T>(answer: &Receiver<T>, deadline: Option<Instant>) -> bool {
    let Some(deadline) = deadline else {
        let _ = answer.recv();
        return true;
    };
    let left = deadline.saturating_duration_since(Instant::now());
    !matches!(answer.recv_timeout(left), Err(RecvTimeoutError::Timeout))
}

fn wait_for(answers: Vec<Receiver<()>>) {
    for answer in answers {
        is_answered(&answer, None);
    }
}
