//! One split virtqueue of a guest, as the device sees it (virtio 1.2 §2.7).

use super::blk::{self, Malformed, Parser, Status};
use super::chain::Chain;
use super::dirty_log::{DirtyLog, Logs};
use super::inflight::{Inflight, InflightRegion};
use super::memory::GuestMemory;
use crate::backend::{Buffers, Outcome};
use crate::disk::{Disk, Limits};
use crate::os::call::Call;
use crate::source::{Request, Source, Task};
use coalesce_delivery::Ring;
use std::fmt;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

/// The ring is invalid, for this reason. Nothing in it can be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

const NO_USED_RING: Broken = Broken("the used ring is not in guest memory");
const NO_AVAILABLE_RING: Broken = Broken("the available ring is not in guest memory");
/// The guest made a descriptor available twice.
const TOO_MANY: Broken = Broken("more requests are in flight than the ring has entries");

/// QEMU 7.2 sends a memfd that its guest does not write to, if its memory backend is not shared.
const NOT_SHARED: &str = "two kicks, but the ring is empty, and guest memory seems to be all zeroes: perhaps the guest has other \
                          memory; QEMU needs share=on for its memory backend";

/// A started ring.
#[derive(Debug)]
pub struct Vring {
    queue: Queue,
    memory: Arc<GuestMemory>,
    kick: EventFd,
    call: Option<Call>,
    error: Option<Call>,
    inflight: Option<Inflight>,
    logs: Logs,
    unanswered: u16,  // requests that were fetched and not posted
    replay: Vec<u16>, // heads that an earlier process fetched and did not complete, the oldest last
    has_used: bool,   // a completion was posted, by this process or by an earlier one
    kicks_of_nothing: u8,
    is_broken: bool,
    parser: Parser,
    can_flush: bool,
}

/// A request taken from the ring.
#[derive(Debug)]
pub struct Popped {
    /// Index of its first descriptor, by which the guest knows it.
    pub head: u16,
    /// The request.
    pub request: Result<blk::Request, Malformed>,
    /// Whether an earlier process fetched it and ended without completing it.
    pub is_again: bool,
}

/// A completion on its way to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of its first descriptor.
    pub head: u16,
    /// Bytes of guest memory written.
    pub written: u32,
}

/// Completes a request that was fetched.
#[derive(Debug)]
pub struct Token {
    head: u16,
    status: Option<(GuestAddress, Status)>, // its address, and its value if nothing fails; `None`: it has no room
    written: u32,                           // bytes of guest memory that a success writes, without the status
    _memory: Arc<GuestMemory>,              // keeps the buffers mapped
}

/// Where a ring was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The index at which the device would continue in the available ring.
    pub next_avail: u16,
    /// Whether it was broken: what it had in flight has ended without an answer.
    pub is_broken: bool,
}

/// The configuration of a ring.
#[derive(Debug)]
pub struct Setup {
    /// Entries: a power of two.
    pub size: u16,
    /// Guest addresses of the descriptor table, the available and the used ring.
    pub addresses: [u64; 3],
    /// The index at which the device continues in the available ring. An in-flight record that knows the ring has precedence.
    pub next_avail: u16,
    /// Whether EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// Whether the flush command was negotiated. Without it every write must be durable (virtio 1.2 §5.2.6.2).
    pub can_flush: bool,
    /// The in-flight record, which survives a restart, and this queue's index in it.
    pub inflight: Option<(InflightRegion, usize)>,
}

impl Vring {
    /// Starts a ring.
    ///
    /// # Errors
    /// The size or an address is invalid.
    pub fn start(setup: Setup, memory: Arc<GuestMemory>, kick: EventFd) -> Result<Self, Broken> {
        let Setup { size, addresses, next_avail, event_idx, can_flush, inflight } = setup;
        let mut queue = new_queue(size, addresses)?;
        queue.set_event_idx(event_idx);
        if !queue.is_valid(&*memory) {
            return Err(Broken("the descriptor table, the available or the used ring is not in guest memory"));
        }
        let used_idx = queue.used_idx(&*memory, Ordering::Acquire).map_err(|_| NO_USED_RING)?.0;
        queue.set_next_used(used_idx);
        let has_used = used_idx != 0 || has_wrapped(&queue, &memory)?;

        let inflight = match inflight {
            Some((region, index)) => {
                let inflight = Inflight::new(region, index, size, used_idx);
                Some(inflight.ok_or(Broken("the in-flight record has no room for the ring"))?)
            }
            None => None,
        };
        let mut replay = Vec::new();
        queue.set_next_avail(next_avail);
        if let Some(inflight) = &inflight {
            replay = inflight.unanswered();
            // The record has precedence, because a front end that lost its connection sends an outdated base.
            if !inflight.is_new() {
                queue.set_next_avail(used_idx.wrapping_add(replay.len() as u16));
            }
            replay.reverse();
        }
        let parser = Parser::default();
        let unanswered = 0;
        Ok(Self {
            queue,
            memory,
            kick,
            call: None,
            error: None,
            inflight,
            logs: Logs::default(),
            unanswered,
            replay,
            has_used,
            kicks_of_nothing: 0,
            is_broken: false,
            parser,
            can_flush,
        })
    }

    /// The number of requests that an earlier process did not complete and this one has not taken over yet.
    #[must_use]
    pub const fn to_take_over(&self) -> usize {
        self.replay.len()
    }

    /// Entries of the ring.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Sets the eventfd that the guest kicks.
    pub fn set_kick(&mut self, kick: EventFd) {
        self.kick = kick;
    }

    /// Sets the mapping of guest memory.
    pub fn set_memory(&mut self, memory: Arc<GuestMemory>) {
        self.memory = memory;
    }

    /// Sets the eventfd that interrupts the guest.
    pub fn set_call(&mut self, call: Option<Call>) {
        self.call = call;
    }

    /// Sets the eventfd that reports a broken ring to the front end.
    pub fn set_error(&mut self, error: Option<Call>) {
        self.error = error;
    }

    /// Sets what the driver has negotiated, as in [`Setup`]. What was posted may need an interrupt again.
    pub fn set_features(&mut self, event_idx: bool, can_flush: bool) {
        self.queue.set_event_idx(event_idx);
        // Entries posted until now do not count for an event. Without EVENT_IDX nobody resets their 16-bit count.
        let _ = self.queue.needs_notification(&*self.memory);
        self.can_flush = can_flush;
    }

    /// Sets the logs of what is written from now on. Requests in flight count: they are logged when they complete.
    pub fn set_logs(&mut self, logs: Logs) {
        self.logs = logs;
    }

    /// Fetches the next request. The addresses of its data go to `buffers`. With `durable`, a write completes only when
    /// it is on the medium.
    ///
    /// # Errors
    /// The guest's index jumped, a descriptor index is outside the table, more requests are in flight than the ring has
    /// entries, or the ring is not in guest memory.
    pub fn pop(&mut self, limits: &Limits, durable: bool, buffers: &mut Buffers) -> Result<Option<Popped>, Broken> {
        let (head, is_again) = match self.replay.pop() {
            Some(head) => (head, true),
            None => match self.next_head()? {
                Some(head) => (head, false),
                None => return Ok(None),
            },
        };
        if let Some(inflight) = self.inflight.as_mut().filter(|_| !is_again) {
            inflight.take(head);
        }
        self.unanswered += 1;
        let chain = Chain::new(&self.memory, GuestAddress(self.queue.desc_table()), self.queue.size(), head);
        let request = self.parser.parse(chain, limits, durable, buffers);
        Ok(Some(Popped { head, request, is_again }))
    }

    /// Fetches the next head from the available ring.
    fn next_head(&mut self) -> Result<Option<u16>, Broken> {
        if self.backlog()? == 0 {
            return Ok(None);
        }
        if self.unanswered >= self.queue.size() {
            return Err(TOO_MANY);
        }
        let next_avail = self.queue.next_avail();
        let address = self.queue.avail_ring() + 4 + 2 * u64::from(next_avail % self.queue.size());
        let head = self.memory.load(GuestAddress(address), Ordering::Relaxed).map_err(|_| NO_AVAILABLE_RING)?;
        let head = u16::from_le(head);
        if head >= self.queue.size() {
            return Err(Broken("descriptor index outside the table"));
        }
        self.queue.set_next_avail(next_avail.wrapping_add(1));
        Ok(Some(head))
    }

    /// Writes the status byte of a request.
    pub fn set_status(&self, address: GuestAddress, status: Status) {
        // The address was inside guest memory when the request was fetched. If the guest has removed that memory,
        // nobody waits for the status.
        let _ = self.memory.write_obj(status as u8, address);
    }

    /// Logs what a request has written: the first `written` bytes that it has for the device, and its status. Its chain is
    /// read again, as libvhost-user does, because a log may have begun after it was fetched. A guest that changes a chain in
    /// flight harms its own migration.
    #[cold]
    fn log_request(&self, log: &DirtyLog, head: u16, written: u32, status: GuestAddress) {
        let chain = Chain::new(&self.memory, GuestAddress(self.queue.desc_table()), self.queue.size(), head);
        let mut left = written;
        for descriptor in chain.filter(Descriptor::is_write_only) {
            let len = left.min(descriptor.len());
            log.mark(descriptor.addr(), len.into());
            left -= len;
            if left == 0 {
                break;
            }
        }
        log.mark(status, 1);
    }

    /// Logs `len` bytes of the used ring, from the offset `at` on.
    fn log_used(&self, at: u64, len: u64) {
        if let Some((log, used)) = &self.logs.used {
            log.mark(GuestAddress(used.0.saturating_add(at)), len);
        }
    }

    /// Whether the guest has put nothing into the ring since it was made.
    fn is_untouched(&self) -> bool {
        let is_new = self.queue.next_avail() == 0 && !self.has_used;
        is_new && self.queue.avail_idx(&*self.memory, Ordering::Acquire).is_ok_and(|available| available.0 == 0)
    }

    /// The used index at which the guest wants the next interrupt. It has reaped everything before that index. `None`
    /// without EVENT_IDX.
    fn used_event(&self) -> Option<u16> {
        if !self.queue.event_idx_enabled() {
            return None;
        }
        let address = self.queue.avail_ring() + 4 + 2 * u64::from(self.queue.size());
        self.memory.load(GuestAddress(address), Ordering::Acquire).ok().map(u16::from_le)
    }
}

impl Ring for Vring {
    type Entry = Entry;
    type Broken = Broken;

    fn post(&mut self, Entry { head, written }: Entry) -> Result<(), Broken> {
        if let Some(inflight) = &self.inflight {
            inflight.before_answer(head);
        }
        let entry = u64::from(self.queue.next_used() % self.queue.size());
        self.queue.add_used(&*self.memory, head, written).map_err(|_| NO_USED_RING)?;
        self.log_used(4 + 8 * entry, 8);
        self.log_used(2, 2); // the index
        self.has_used = true;
        self.unanswered = self.unanswered.saturating_sub(1);
        if let Some(inflight) = &self.inflight {
            inflight.after_answer(head, self.queue.next_used());
        }
        Ok(())
    }

    fn wants_interrupt(&mut self) -> bool {
        if self.queue.event_idx_enabled() {
            return self.queue.needs_notification(&*self.memory).unwrap_or(true);
        }
        fence(Ordering::SeqCst); // posted entries become visible before the flag is read
        let flags: Result<u16, _> = self.memory.load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        flags.map_or(true, |flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }

    /// Always false without EVENT_IDX, because the guest does not report what it has reaped.
    fn is_consumed(&mut self) -> bool {
        if self.used_event() != Some(self.queue.next_used()) {
            return false;
        }
        // `wants_interrupt` resets the queue's 16-bit count of entries posted since the last call. Without this call a
        // guest that polls would make the count wrap. With this used_event it returns false, unless the guest changes
        // the index at this moment.
        if self.wants_interrupt() {
            self.interrupt();
        }
        true
    }

    fn interrupt(&mut self) -> bool {
        self.call.as_mut().is_some_and(Call::signal)
    }
}

/// Whether the last entry of the used ring was written. At a used index of 0, this distinguishes a ring whose index
/// wrapped from a new ring. Drivers fill a new ring with zeroes, and a written entry has a length of at least 1, the
/// status byte.
fn has_wrapped(queue: &Queue, memory: &GuestMemory) -> Result<bool, Broken> {
    let last = queue.used_ring() + 4 + 8 * u64::from(queue.size() - 1);
    let entry: u64 = memory.read_obj(GuestAddress(last)).map_err(|_| NO_USED_RING)?;
    Ok(entry != 0)
}

// SAFETY: a request's buffers lie in the guest memory that was mapped when it was fetched, and its token keeps that
// mapped.
unsafe impl Source for Vring {
    type Token = Token;
    type Position = Position;

    fn take(&mut self, disk: &Disk, buffers: &mut Buffers) -> Result<Option<Request<Token>>, Broken> {
        // A guest that cannot flush relies on write-through (virtio 1.2 §5.2.6.2).
        let durable = !self.can_flush || !disk.write_back.load(Ordering::Relaxed);
        let Some(popped) = self.pop(&disk.limits, durable, buffers)? else { return Ok(None) };
        let (task, ioprio, status, written, descriptors) = match popped.request {
            Ok(blk::Request { task, ioprio, status, written, descriptors }) => match task {
                blk::Task::Operation(operation) => {
                    (Task::Operation(operation), ioprio, Some((status, Status::Ok)), written, descriptors)
                }
                blk::Task::Answer(answer) => {
                    let outcome = if answer == Status::Ok { Outcome::Ok } else { Outcome::Error };
                    (Task::Answer(outcome), ioprio, Some((status, answer)), written, descriptors)
                }
            },
            Err(Malformed) => (Task::Malformed, 0, None, 0, 0), // whoever takes it takes no other in this turn
        };
        let token = Token { head: popped.head, status, written, _memory: self.memory.clone() };
        Ok(Some(Request { task, ioprio, group: 0, descriptors, is_taken_over: popped.is_again, token }))
    }

    fn complete(&mut self, token: Token, outcome: Outcome) -> Entry {
        let Token { head, status, written, .. } = token;
        let Some((address, status)) = status else { return Entry { head, written: 0 } };
        let status = match (outcome, status) {
            (Outcome::Error, Status::Ok) => Status::IoError,
            (_, status) => status,
        };
        self.set_status(address, status);
        if let Some(log) = &self.logs.data {
            self.log_request(log, head, written, address);
        }
        Entry { head, written: if status == Status::Ok { written + 1 } else { 1 } }
    }

    fn backlog(&self) -> Result<u32, Broken> {
        let available = self.queue.avail_idx(&*self.memory, Ordering::Acquire).map_err(|_| NO_AVAILABLE_RING)?;
        let backlog = available.0.wrapping_sub(self.queue.next_avail());
        if backlog > self.queue.size() {
            return Err(Broken("the available index is ahead by more than the size of the ring"));
        }
        Ok(backlog.into())
    }

    fn takes_over(&self) -> bool {
        !self.replay.is_empty()
    }

    /// Always 0 without EVENT_IDX, because the guest does not report what it has reaped.
    fn unreaped(&self) -> u32 {
        let unreaped = self.used_event().map_or(0, |used_event| self.queue.next_used().wrapping_sub(used_event));
        let is_sound = unreaped <= self.queue.size(); // Linux writes 0 while it does not want interrupts
        if is_sound { unreaped.into() } else { 0 }
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the eventfd is open as long as the ring is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(self.kick.as_raw_fd()) })
    }

    /// Firmware and QEMU kick rings that are still empty. So an empty ring is a reason to doubt only if the guest seems to have
    /// written nothing at all.
    fn after_kick(&mut self) -> Option<&'static str> {
        if self.kicks_of_nothing == 2 || !self.is_untouched() {
            return None;
        }
        self.kicks_of_nothing += 1;
        if self.kicks_of_nothing < 2 {
            return None;
        }
        self.memory.is_blank_and_news().then_some(NOT_SHARED)
    }

    fn enable_kicks(&mut self) -> Result<bool, Broken> {
        let has_more = self.queue.enable_notification(&*self.memory).map_err(|_| NO_USED_RING)?;
        // With EVENT_IDX the index of the next kick is behind the entries; else a flag is at the start.
        let at = if self.queue.event_idx_enabled() { 4 + 8 * u64::from(self.queue.size()) } else { 0 };
        self.log_used(at, 2);
        Ok(has_more)
    }

    /// Not in an untouched ring: its flag would make memory that no guest has written to look written to, see `after_kick`.
    fn disable_kicks(&mut self) -> Result<(), Broken> {
        if self.is_untouched() {
            return Ok(());
        }
        self.queue.disable_notification(&*self.memory).map_err(|_| NO_USED_RING)?;
        if !self.queue.event_idx_enabled() {
            self.log_used(0, 2); // the flag
        }
        Ok(())
    }

    fn owes_interrupt(&self) -> bool {
        // Without EVENT_IDX it is unknown what the guest has reaped. A spurious interrupt harms less than a lost one.
        self.used_event().map_or(self.has_used, |used_event| used_event != self.queue.next_used())
    }

    fn report_broken(&mut self) {
        self.is_broken = true;
        if let Some(error) = &mut self.error {
            error.signal(); // a failure does not matter: the event is logged too
        }
    }

    fn position(&self) -> Position {
        Position { next_avail: self.queue.next_avail(), is_broken: self.is_broken }
    }
}

fn new_queue(size: u16, [table, available, used]: [u64; 3]) -> Result<Queue, Broken> {
    let misaligned =
        |_| Broken("the descriptor table, the available or the used ring is not aligned to 16, 2 or 4 bytes");
    let mut queue = Queue::new(size).map_err(|_| Broken("the size of the ring is not a power of two"))?;
    queue.try_set_desc_table_address(GuestAddress(table)).map_err(misaligned)?;
    queue.try_set_avail_ring_address(GuestAddress(available)).map_err(misaligned)?;
    queue.try_set_used_ring_address(GuestAddress(used)).map_err(misaligned)?;
    queue.set_ready(true);
    Ok(queue)
}
