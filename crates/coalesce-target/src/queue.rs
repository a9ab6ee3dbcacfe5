//! One queue of one disk, on a thread of its own: takes requests, gives them to the back end, and delivers what ends.
//!
//! Everything that waits waits in one place, io_uring: for the back end, for the guest's kick, for commands, and for the
//! policy's deadline, which costs no system call of its own.

use crate::backend::{Backend, Buffers, Operation, Outcome, Step};
use crate::poll::AdaptivePoll;
use crate::record::{Recorder, Recording};
use crate::stats::{DeviceStats, QueueStats};
use crate::uring::restricted;
use crate::vhost::blk::{Limits, Status, Task};
use crate::vhost::call::{Call, CallRings};
use crate::vhost::memory::GuestMemory;
use crate::vhost::vring::{Broken, Entry, Vring};
use anyhow::{Context as _, Result};
use coalesce_delivery::Delivery;
use coalesce_policy::{Class, Clues, Completion, Decision, Hint, HintCounts, HintSource, Spec, SpecError, Ticket};
use io_uring::{IoUring, opcode, types};
use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};
use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// A disk: its name, its data, what it allows, and whether its cache is on.
#[derive(Debug)]
pub struct Disk {
    /// What the log calls it.
    pub name: String,
    /// Where the data is.
    pub backend: Backend,
    /// What is allowed.
    pub limits: Limits,
    /// For its front end's eventfds.
    pub call_rings: CallRings,
    /// A write may end before it is on the medium; a flush tells when it must be.
    pub write_back: AtomicBool,
    /// When the clock of its queues' policies began: one clock, as `auto` tries on all queues at the same time.
    pub epoch: Instant,
}

/// What a queue is told.
pub enum Command {
    /// Serve this ring; take requests from it, or wait until that is enabled.
    Start(Box<Vring>, bool),
    /// Take requests, or do not.
    Enable(bool, Sender<()>),
    /// Be kicked through another eventfd.
    SetKick(EventFd),
    /// Interrupt through another eventfd.
    SetCall(Option<Call>, Sender<()>),
    /// Report a broken ring through another eventfd.
    SetError(Option<Call>, Sender<()>),
    /// Guest memory is mapped anew.
    SetMemory(Arc<GuestMemory>, Sender<()>),
    /// Finish what is in flight, deliver what is held, and say where the ring goes on.
    Stop(Sender<Option<u16>>),
    /// Take another policy.
    SetPolicy(Spec, Sender<Result<(), SpecError>>),
    /// Say what was counted.
    GetStats(Sender<QueueStats>),
    /// Forget what was counted.
    ResetStats(Sender<()>),
}

/// A queue's thread, from outside.
#[derive(Debug)]
pub struct QueueThread {
    commands: Option<SyncSender<Command>>,
    wake: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

/// How a queue behaves.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Its policy.
    pub policy: Spec,
    /// How long to poll before sleeping, at most, in ns.
    pub poll_ns: u64,
    /// Requests that can be in flight: the size of the largest ring.
    pub size_max: u16,
    /// Where what happens is recorded.
    pub recorder: Option<Recorder>,
}

/// A queue that has all it needs but its thread.
pub struct QueueParts {
    name: String,
    queue: Queue,
    commands: SyncSender<Command>,
    wake: Arc<EventFd>,
}

impl QueueParts {
    /// Queue number `index` of a disk.
    ///
    /// # Errors
    /// io_uring is not to be had, or the policy is not right for a clock in nanoseconds.
    pub fn new(index: usize, disk: Arc<Disk>, config: &QueueConfig) -> Result<Self> {
        let (commands, receiver) = sync_channel(COMMANDS_MAX);
        let wake = Arc::new(EventFd::new(EFD_NONBLOCK).context("eventfd")?);
        let name = format!("{}-{index}", disk.name);
        let queue = Queue::new(index, disk, config, receiver, wake.clone())?;
        Ok(Self { name, queue, commands, wake })
    }
}

impl QueueThread {
    /// Starts the thread of a queue.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn spawn(parts: QueueParts) -> Result<Self> {
        let QueueParts { name, queue, commands, wake } = parts;
        let thread = std::thread::Builder::new().name(name).spawn(move || queue.run());
        Ok(Self { commands: Some(commands), wake, thread: Some(thread.context("a thread for a queue")?) })
    }

    /// Tells the queue something.
    pub fn tell(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command); // the thread ends only after this is dropped
            let _ = self.wake.write(1);
        }
    }

    /// Asks the queue something.
    pub fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        self.begin(command).recv().ok()
    }

    /// The same; the answer comes later.
    pub fn begin<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.tell(command(sender));
        receiver
    }
}

impl Drop for QueueThread {
    /// Finishes what is in flight, delivers what is held, and ends the thread.
    fn drop(&mut self) {
        self.ask(Command::Stop);
        self.commands = None;
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A request that was taken and has not ended.
#[derive(Debug, Default)]
struct Slot {
    operation: Option<Operation>, // none: it is answered without the back end
    buffers: Buffers,
    memory: Option<Arc<GuestMemory>>, // keeps the buffers mapped
    head: u16,
    status: Option<(GuestAddress, Status)>, // what is answered unless the back end fails; none: there is no room for it
    written: u32,                           // bytes of guest memory, if it succeeds
    transferred: u64,                       // bytes of the disk
    ioprio: u16,
    hint: (Hint, Option<HintSource>),
    ticket: Option<Ticket>,
}

/// So much data is taken at once, about: a disk in memory does it all before it hears of anything else, but for large
/// requests, which go on in pieces.
const BATCH_BYTES_MAX: u64 = 16 << 20;
/// Commands that wait, at most: who has more to say waits too.
const COMMANDS_MAX: usize = 16;

/// Buffers of all requests in flight on a queue, about: Linux has 128 MiB or more in flight then.
const BUFFERS_MAX: usize = 32 << 10;
/// How long to wait before io_uring is entered again where it failed and should not have.
const ENTER_PAUSE: Duration = Duration::from_millis(10);

/// The guest gave out a descriptor twice.
const TOO_MANY: Broken = Broken("more requests are in flight than the ring has entries");

// What io_uring does for a queue besides slots. Both eventfds are only polled, never read: their counters say nothing.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
const KICK: u64 = 1 << 32; // and the number of the ring, as a poll outlives the ring it was for

/// What io_uring does for a queue.
const OPERATIONS: [u8; 7] = [
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
];

struct Queue {
    index: usize,
    disk: Arc<Disk>,
    uring: IoUring,
    ended: Vec<(u64, i32, bool)>, // io_uring's completions: for whom, result, and whether more follow
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    is_wake_armed: bool,
    vring: Option<Box<Vring>>,
    next_avail: Option<u16>, // where the ring that was stopped last goes on
    ring_number: u64,
    is_kick_armed: bool,
    is_enabled: bool,
    is_broken: bool,
    is_full_said: bool,
    slots: Vec<Slot>,
    free: Vec<usize>,
    batch: Vec<usize>,      // slots just taken
    again: VecDeque<usize>, // slots that go on at the next turn
    buffers: usize,         // of all slots
    delivery: Delivery<Entry>,
    hints: HintCounts,
    stats: DeviceStats,
    poll: AdaptivePoll,
    recording: Option<Recording>,
}

impl Queue {
    fn new(
        index: usize,
        disk: Arc<Disk>,
        config: &QueueConfig,
        commands: Receiver<Command>,
        wake: Arc<EventFd>,
    ) -> Result<Self> {
        let uring = restricted(u32::from(config.size_max), &OPERATIONS, &[]).context(
            "io_uring is not available (Linux 5.13 or newer is needed; containers and sysctl kernel.io_uring_disabled can forbid it)",
        )?;
        let size = usize::from(config.size_max);
        let recording = config.recorder.as_ref().map(|recorder| recorder.queue(&disk.name, index, disk.epoch));
        Ok(Self {
            index,
            disk,
            uring,
            ended: Vec::new(),
            commands,
            wake,
            is_wake_armed: false,
            vring: None,
            next_avail: None,
            ring_number: 0,
            is_kick_armed: false,
            is_enabled: false,
            is_broken: false,
            is_full_said: false,
            slots: (0..size).map(|_| Slot::default()).collect(),
            free: (0..size).rev().collect(),
            batch: Vec::new(),
            again: VecDeque::new(),
            buffers: 0,
            delivery: Delivery::new(config.policy.clone())?,
            hints: HintCounts::default(),
            stats: DeviceStats::default(),
            poll: AdaptivePoll::new(config.poll_ns),
            recording,
        })
    }

    fn run(mut self) {
        let _ = nix::sys::prctl::set_timerslack(1); // deadlines are microseconds; the default slack is 50
        while self.obey() {
            let mut busy = self.reap();
            busy |= self.go_on_again();
            busy |= self.take_requests();
            self.end_batch();
            self.submit();
            if !busy {
                self.wait();
            }
        }
    }

    /// Time in ns, as the policy sees it.
    fn now(&self) -> u64 {
        u64::try_from(self.disk.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Does what it is told. False: nobody will tell anything any more.
    fn obey(&mut self) -> bool {
        use std::sync::mpsc::TryRecvError;
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.obey_one(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn obey_one(&mut self, command: Command) {
        match command {
            Command::Start(vring, is_enabled) => {
                self.stop();
                let to_take_over = vring.to_take_over();
                if to_take_over > 0 {
                    info!(disk = self.disk.name, queue = self.index as u64, "takes over {to_take_over} requests");
                }
                self.vring = Some(vring);
                self.announce_owed();
                (self.is_enabled, self.is_broken, self.is_full_said) = (is_enabled, false, false);
            }
            Command::SetKick(kick) => {
                self.disarm_kick();
                if let Some(vring) = &mut self.vring {
                    vring.set_kick(kick);
                }
            }
            Command::Enable(enabled, answer) => {
                self.is_enabled = enabled;
                let _ = answer.send(());
            }
            Command::SetCall(call, answer) => {
                if let Some(vring) = &mut self.vring {
                    vring.set_call(call);
                }
                self.announce_owed();
                let _ = answer.send(());
            }
            Command::SetError(error, answer) => {
                if let Some(vring) = &mut self.vring {
                    vring.set_error(error);
                }
                let _ = answer.send(());
            }
            Command::SetMemory(memory, answer) => {
                if let Some(vring) = &mut self.vring {
                    vring.set_memory(memory);
                }
                let _ = answer.send(());
            }
            Command::Stop(answer) => {
                let next_avail = self.stop();
                let _ = answer.send(next_avail);
            }
            Command::SetPolicy(spec, answer) => {
                let now = self.now();
                let outcome = self.delivery.reconfigure(self.vring.as_deref_mut(), now, spec);
                let _ = answer.send(outcome.map(|decided| self.note_decided(now, decided.map(Some))));
            }
            Command::GetStats(answer) => {
                let _ = answer.send(self.query());
            }
            Command::ResetStats(answer) => {
                self.delivery.reset_stats();
                self.hints = HintCounts::default();
                self.stats = DeviceStats::default();
                self.poll.reset_stats();
                let _ = answer.send(());
            }
        }
    }

    fn query(&self) -> QueueStats {
        let policy = self.delivery.policy();
        QueueStats::new(
            self.index,
            (policy.spec().to_string(), policy.held()),
            self.in_flight(),
            policy.stats(),
            self.delivery.stats(),
            &self.hints,
            (self.stats.clone(), self.poll.stats().clone()),
        )
    }

    /// Finishes what is in flight, delivers what is held, and lets go of the ring. Where it goes on; of a ring that is
    /// stopped already, the same again: the target stops rings by itself, and front ends ask later.
    fn stop(&mut self) -> Option<u16> {
        if self.vring.is_none() {
            return self.next_avail;
        }
        while self.in_flight() > 0 {
            if !self.go_on_again() {
                let now = self.now();
                self.submit_and_wait(self.delivery.deadline().map(|deadline| deadline.saturating_sub(now)));
            }
            self.reap();
            self.end_batch();
        }
        self.flush();
        self.disarm_kick();
        self.is_enabled = false;
        if let Some(recording) = &mut self.recording {
            recording.hand_over();
        }
        let now = self.now();
        self.delivery.forget(now);
        self.next_avail = self.vring.take().map(|vring| vring.next_avail());
        self.next_avail
    }

    fn flush(&mut self) {
        let now = self.now();
        if let Some(vring) = self.vring.as_deref_mut().filter(|_| !self.is_broken) {
            let decided = self.delivery.flush(vring, now);
            self.note_decided(now, decided.map(Some));
        }
    }

    /// Something that was decided about no completion of now.
    fn note_decided(&mut self, now: u64, decided: Result<Option<Decision>, Broken>) {
        if let (Ok(decision), Some(recording)) = (&decided, &mut self.recording) {
            recording.decide(now, *decision);
        }
        self.note(decided.map(drop));
    }

    /// Interrupts through an eventfd that may not have been told what the guest has not taken.
    fn announce_owed(&mut self) {
        if let Some(vring) = self.vring.as_deref_mut().filter(|vring| vring.owes_interrupt()) {
            self.delivery.interrupt(vring);
        }
    }

    /// Waits until io_uring looks at the kicks no more.
    fn disarm_kick(&mut self) {
        if self.is_kick_armed {
            // Not PollRemove: that gives up where a kick is just being noticed.
            self.push(opcode::AsyncCancel::new(KICK | self.ring_number).build().user_data(CANCEL));
            while self.is_kick_armed {
                self.submit_and_wait(None);
                self.reap();
            }
        }
        self.ring_number += 1;
    }

    /// The guest may break its ring at any time: then this queue rests until it is started anew.
    fn note(&mut self, ring: Result<(), Broken>) {
        if let Err(Broken(why)) = ring
            && !self.is_broken
        {
            warn!(disk = self.disk.name, queue = self.index as u64, "the ring is broken: {why}");
            self.is_broken = true;
            self.stats.broken_rings += 1;
            let now = self.now();
            if let Some(vring) = self.vring.as_deref_mut() {
                self.delivery.abandon(vring, now);
                vring.report_broken();
            }
        }
    }

    /// Takes what the guest has made available. True: there was something.
    fn take_requests(&mut self) -> bool {
        if !self.is_serving() {
            return false;
        }
        self.batch.clear();
        let mut bytes = 0;
        let is_whole = loop {
            if bytes >= BATCH_BYTES_MAX {
                break false;
            }
            if self.is_full() {
                self.say_full();
                break false;
            }
            match self.take_one() {
                Ok(Some(slot)) => {
                    bytes += self.slots[slot].transferred;
                    self.batch.push(slot);
                }
                Ok(None) => break true,
                Err(broken) => {
                    self.note(Err(broken));
                    break true;
                }
            }
        };
        let batch = std::mem::take(&mut self.batch);
        self.record_batch(&batch);
        for (i, &slot) in batch.iter().enumerate() {
            self.infer(slot, batch.len(), is_whole && i + 1 == batch.len());
        }
        for &slot in &batch {
            match self.slots[slot].operation {
                Some(operation) => {
                    let step = self.disk.backend.begin(&operation, &mut self.slots[slot].buffers);
                    self.go_on(slot, step);
                }
                None => self.end(slot, Outcome::Ok),
            }
        }
        self.batch = batch;
        !self.batch.is_empty()
    }

    /// Says once for each ring that it has to wait.
    fn say_full(&mut self) {
        if !std::mem::replace(&mut self.is_full_said, true) {
            let (disk, queue) = (&self.disk.name, self.index as u64);
            info!(disk, queue, "{BUFFERS_MAX} buffers are in flight: requests wait until some of them have ended");
        }
    }

    fn record_batch(&mut self, batch: &[usize]) {
        if self.recording.is_none() {
            return;
        }
        let now = self.now();
        for &id in batch {
            let &Slot { operation, transferred, ioprio, .. } = &self.slots[id];
            if let Some(recording) = &mut self.recording {
                recording.submit(now, id, operation, transferred, ioprio);
            }
        }
    }

    fn take_one(&mut self) -> Result<Option<usize>, Broken> {
        let unanswered = self.in_flight() + self.delivery.unposted();
        let Some(vring) = &mut self.vring else { return Ok(None) };
        let Some(&id) = self.free.last() else {
            return if vring.backlog()? > 0 { Err(TOO_MANY) } else { Ok(None) };
        };
        let durable = !vring.can_flush() || !self.disk.write_back.load(Ordering::Relaxed);
        let slot = &mut self.slots[id];
        slot.buffers.clear(); // of a request that broke the ring
        let Some(popped) = vring.pop(&self.disk.limits, durable, &mut slot.buffers)? else { return Ok(None) };
        if unanswered >= usize::from(vring.size()) {
            return Err(TOO_MANY);
        }
        slot.memory = Some(vring.memory().clone());
        slot.head = popped.head;
        slot.transferred = slot.buffers.len() as u64;
        self.buffers += slot.buffers.count();
        match popped.request {
            Ok(request) => {
                slot.written = request.written;
                (slot.operation, slot.status) = match request.task {
                    Task::Operation(operation) => (Some(operation), Some((request.status, Status::Ok))),
                    Task::Answer(status) => (None, Some((request.status, status))),
                };
                slot.hint = (Hint::Plain, None);
                slot.ioprio = request.ioprio;
            }
            Err(_) => {
                (slot.written, slot.operation, slot.status, slot.ioprio) = (0, None, None, 0);
                self.stats.malformed += 1;
            }
        }
        self.stats.taken_over += u64::from(popped.is_again);
        self.free.pop();
        Ok(Some(id))
    }

    fn infer(&mut self, id: usize, batch_len: usize, last_of_batch: bool) {
        let cif = self.cif();
        let untaken = self.vring.as_ref().map_or(0, |vring| vring.untaken());
        let outstanding = cif + u32::from(untaken) + self.delivery.unposted() as u32;
        let slot = &mut self.slots[id];
        let operation = slot.operation;
        let clues = Clues {
            flush: operation == Some(Operation::Flush),
            durable: matches!(operation, Some(Operation::Write { durable: true, .. })),
            ioprio: slot.ioprio,
            batch_len,
            last_of_batch,
            outstanding,
        };
        slot.hint = coalesce_policy::infer(self.delivery.policy().spec().hints(), &clues);
        slot.ticket = self.delivery.on_submit(0, outstanding); // a queue is one group of submitters
    }

    /// Commands in flight at this moment: taken, and available to be taken.
    fn cif(&self) -> u32 {
        let backlog = self.vring.as_ref().and_then(|vring| vring.backlog().ok()).unwrap_or(0);
        self.in_flight() as u32 + u32::from(backlog)
    }

    fn go_on(&mut self, slot: usize, step: Step) {
        match step {
            Step::Ended(outcome) => self.end(slot, outcome),
            Step::Submit(entry) => self.push(entry.user_data(slot as u64)),
            Step::Again => self.again.push_back(slot),
        }
    }

    /// Goes on with what waits for its next turn, one at a time. True: there was something.
    fn go_on_again(&mut self) -> bool {
        let Some(slot) = self.again.pop_front() else { return false };
        self.resume(slot, 0);
        true
    }

    /// A step of a request is done, with this result.
    fn resume(&mut self, id: usize, result: i32) {
        let slot = &mut self.slots[id];
        let Some(operation) = &mut slot.operation else { return };
        let step = self.disk.backend.resume(operation, &mut slot.buffers, result);
        self.go_on(id, step);
    }

    /// A request has ended: its status is written, and then it is the policy's.
    fn end(&mut self, id: usize, outcome: Outcome) {
        let slot = &mut self.slots[id];
        slot.memory = None;
        let status = match (slot.status, outcome) {
            (Some((address, status)), Outcome::Ok) => Some((address, status)),
            (Some((address, _)), Outcome::Error) => Some((address, Status::IoError)),
            (None, _) => None,
        };
        let is_ok = matches!(status, Some((_, Status::Ok)));
        let written = if is_ok { slot.written + 1 } else { u32::from(status.is_some()) };
        let entry = Entry { head: slot.head, written };
        let (hint, ticket) = (slot.hint, slot.ticket.take());
        self.buffers -= slot.buffers.count();
        slot.buffers.clear();
        self.count(id, is_ok);
        self.free.push(id);

        let cif = self.cif() + 1; // after this one has left, and with it
        let policy = self.delivery.policy();
        let (hint, source) = coalesce_policy::at_completion(policy.spec().hints(), hint, cif, policy.expects_more());
        self.hints.count(source);
        let now = self.now();
        let Some(vring) = self.vring.as_deref_mut().filter(|_| !self.is_broken) else { return };
        if let Some((address, status)) = status {
            vring.set_status(address, status);
        }
        let class = if is_ok { Class::Io } else { Class::Failed };
        let completion = Completion { cif, hint, class, ticket, ..Completion::default() };
        let decided = self.delivery.complete(vring, now, entry, &completion);
        if let Some(recording) = &mut self.recording {
            recording.complete(now, id, !is_ok, hint, decided.as_ref().ok().copied());
        }
        self.note(decided.map(drop));
    }

    fn count(&mut self, id: usize, is_ok: bool) {
        let slot = &self.slots[id];
        let stats = &mut self.stats;
        let counter = match slot.operation {
            Some(Operation::Read { .. }) => &mut stats.reads,
            Some(Operation::Write { .. }) => &mut stats.writes,
            Some(Operation::Flush) => &mut stats.flushes,
            Some(Operation::Discard { .. } | Operation::WriteZeroes { .. }) | None => &mut stats.others,
        };
        *counter += 1;
        stats.bytes += if is_ok { slot.transferred } else { 0 };
        stats.failed += u64::from(!is_ok);
    }

    /// All that had ended is posted; and the deadline is looked at.
    fn end_batch(&mut self) {
        let now = self.now();
        let Some(vring) = self.vring.as_deref_mut().filter(|_| !self.is_broken) else { return };
        let mut decided = self.delivery.on_batch_end(vring, now);
        if decided.is_ok() && self.delivery.deadline().is_some_and(|deadline| deadline <= now) {
            decided = self.delivery.on_deadline(vring, now).map(Some);
        }
        self.note_decided(now, decided);
    }

    /// Looks at what io_uring has done. True: there was something.
    fn reap(&mut self) -> bool {
        let mut ended = std::mem::take(&mut self.ended);
        let more = |flags| io_uring::cqueue::more(flags);
        ended.extend(self.uring.completion().map(|entry| (entry.user_data(), entry.result(), more(entry.flags()))));
        let busy = !ended.is_empty();
        for (user_data, result, more) in ended.drain(..) {
            match user_data {
                WAKE => self.is_wake_armed = more,
                CANCEL => {}
                kick if kick & KICK != 0 => {
                    self.stats.kicks += u64::from(result > 0);
                    if kick == KICK | self.ring_number {
                        self.is_kick_armed = more;
                    }
                }
                id => self.resume(id as usize, result),
            }
        }
        self.ended = ended;
        busy
    }

    fn push(&mut self, entry: io_uring::squeue::Entry) {
        loop {
            // SAFETY: buffers stay where they are and mapped until the slot's request ends; eventfds are ours, or the
            // ring's, which is let go of after its poll has ended.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit();
        }
    }

    fn submit(&mut self) {
        if !self.uring.submission().is_empty() {
            self.enter(|uring| uring.submit());
        }
    }

    fn submit_and_wait(&mut self, timeout_ns: Option<u64>) {
        self.enter(|uring| match timeout_ns {
            None => uring.submit_and_wait(1),
            Some(ns) => {
                let timespec = types::Timespec::from(Duration::from_nanos(ns));
                uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec))
            }
        });
    }

    /// An error means: nothing came, look again. What was to be submitted still is.
    fn enter(&self, enter: impl FnOnce(&IoUring) -> std::io::Result<usize>) {
        let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
        match enter(&self.uring) {
            Err(error) if !expected.contains(&error.raw_os_error().unwrap_or(0)) => {
                error!(disk = self.disk.name, queue = self.index as u64, "io_uring_enter: {error}: it is tried again");
                std::thread::sleep(ENTER_PAUSE);
            }
            _ => {}
        }
    }

    /// Nothing to do: polls for a while, then sleeps until something comes or the deadline passes.
    fn wait(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.hand_over();
        }
        let start = self.now();
        let Some(polled_ns) = self.poll_for_work(start) else { return self.poll.paid() };
        if self.is_serving() {
            let came = self.vring.as_mut().map_or(Ok(false), |vring| vring.enable_kicks());
            match came {
                Ok(false) => {}
                Ok(true) => return,
                Err(broken) => self.note(Err(broken)),
            }
        }
        self.arm();
        let before = self.now();
        let timeout_ns = self.delivery.deadline().map(|deadline| deadline.saturating_sub(before));
        self.submit_and_wait(timeout_ns);
        let slept_ns = self.now() - before;
        self.poll.slept(polled_ns, slept_ns);
        if self.is_serving() {
            let ring = self.vring.as_mut().map_or(Ok(()), |vring| vring.disable_kicks());
            self.note(ring);
        }
    }

    /// Whether requests are taken.
    fn is_serving(&self) -> bool {
        self.vring.is_some() && self.is_enabled && !self.is_broken && !self.is_full()
    }

    /// Whether what is in flight must end before more is taken. With nothing in flight, anything is.
    const fn is_full(&self) -> bool {
        self.buffers >= BUFFERS_MAX
    }

    /// Looks for work without sleeping. `None`: there is some; else for how long it looked, in ns. A deadline that is
    /// near enough is waited for here: a sleep would overshoot it.
    fn poll_for_work(&mut self, start: u64) -> Option<u64> {
        let mut end = start + self.poll.length_ns();
        let deadline = self.delivery.deadline();
        if let Some(deadline) = deadline.filter(|&deadline| deadline <= start + self.poll.max_ns()) {
            end = end.max(deadline);
        }
        let mut now = start;
        while now < end {
            let is_due = deadline.is_some_and(|deadline| deadline <= now);
            let has_request = self.is_serving() && self.vring.as_ref().is_some_and(|vring| vring.backlog() != Ok(0));
            if is_due || has_request || !self.uring.completion().is_empty() {
                return None;
            }
            std::hint::spin_loop();
            now = self.now();
        }
        Some(now - start)
    }

    /// Makes sure that kicks and commands end a sleep.
    fn arm(&mut self) {
        if !self.is_wake_armed {
            let poll = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).multi(true);
            self.push(poll.build().user_data(WAKE));
            self.is_wake_armed = true;
        }
        if !self.is_kick_armed
            && let Some(vring) = &self.vring
        {
            let poll = opcode::PollAdd::new(types::Fd(vring.kick().as_raw_fd()), libc::POLLIN as u32).multi(true);
            self.push(poll.build().user_data(KICK | self.ring_number));
            self.is_kick_armed = true;
        }
    }
}
