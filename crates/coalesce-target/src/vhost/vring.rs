//! One split virtqueue of a guest, as the device sees it (virtio 1.2 §2.7).

use super::blk::{Limits, Malformed, Parser, Request, Status};
use super::call::Call;
use super::chain::Chain;
use super::inflight::{Inflight, InflightRegion};
use super::memory::GuestMemory;
use crate::backend::Buffers;
use coalesce_delivery::Ring;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use virtio_bindings::bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress};
use vmm_sys_util::eventfd::EventFd;

/// The guest broke the ring, in this way: nothing in it can be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

const NO_USED_RING: Broken = Broken("the used ring is not in guest memory");
const NO_AVAILABLE_RING: Broken = Broken("the available ring is not in guest memory");

/// A ring that was started.
#[derive(Debug)]
pub struct Vring {
    queue: Queue,
    memory: Arc<GuestMemory>,
    kick: EventFd,
    call: Option<Call>,
    error: Option<Call>,
    inflight: Option<Inflight>,
    replay: Vec<u16>, // heads that a device before us took and did not answer, the oldest last
    has_used: bool,   // a completion was posted, by us or by a device before us
    parser: Parser,
    can_flush: bool,
}

/// A request taken from the ring.
#[derive(Debug)]
pub struct Popped {
    /// Index of its first descriptor: the guest knows it by that.
    pub head: u16,
    /// What it is.
    pub request: Result<Request, Malformed>,
    /// A device before us took it, and did not answer.
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

/// The configuration of a ring.
#[derive(Debug)]
pub struct Setup {
    /// Entries: a power of two.
    pub size: u16,
    /// Guest addresses of the descriptor table, the available and the used ring.
    pub addresses: [u64; 3],
    /// Where the device goes on in the available ring, unless there is a record of requests in flight, which knows.
    pub next_avail: u16,
    /// Whether EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// Whether flushes were negotiated: without them, what is written must be durable at once (virtio 1.2 §5.2.6.2).
    pub can_flush: bool,
    /// The region that remembers requests across restarts, and this queue's index in it.
    pub inflight: Option<(InflightRegion, usize)>,
}

impl Vring {
    /// Starts a ring.
    ///
    /// # Errors
    /// A size or an address that cannot be.
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
                Some(inflight.ok_or(Broken("the region of requests in flight has no room for the ring"))?)
            }
            None => None,
        };
        let mut replay = Vec::new();
        queue.set_next_avail(next_avail);
        if let Some(inflight) = &inflight {
            replay = inflight.unanswered();
            // The record is right where the front end is not: one that lost its connection gives a base from before.
            queue.set_next_avail(used_idx.wrapping_add(replay.len() as u16));
            replay.reverse();
        }
        let parser = Parser::default();
        Ok(Self { queue, memory, kick, call: None, error: None, inflight, replay, has_used, parser, can_flush })
    }

    /// Requests that a device before us took and did not answer, and that are not taken again yet.
    #[must_use]
    pub const fn to_take_over(&self) -> usize {
        self.replay.len()
    }

    /// Entries of the ring.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Whether the guest can ask for what was written to be durable; if not, all of it must be.
    #[must_use]
    pub const fn can_flush(&self) -> bool {
        self.can_flush
    }

    /// The eventfd that the guest kicks.
    #[must_use]
    pub const fn kick(&self) -> &EventFd {
        &self.kick
    }

    /// The guest kicks another eventfd.
    pub fn set_kick(&mut self, kick: EventFd) {
        self.kick = kick;
    }

    /// Guest memory as it is mapped now. Whoever keeps addresses in it keeps this.
    #[must_use]
    pub const fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Guest memory is mapped anew.
    pub fn set_memory(&mut self, memory: Arc<GuestMemory>) {
        self.memory = memory;
    }

    /// The eventfd that interrupts the guest.
    pub fn set_call(&mut self, call: Option<Call>) {
        self.call = call;
    }

    /// The eventfd that tells the front end that the ring is broken.
    pub fn set_error(&mut self, error: Option<Call>) {
        self.error = error;
    }

    /// Where a later start goes on.
    #[must_use]
    pub fn next_avail(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Whether a posted completion may not have reached the guest: the device that posted it ended before it interrupted,
    /// or interrupted through an eventfd that is no longer watched. Without EVENT_IDX the guest does not tell what it has
    /// taken: then this is true once anything was posted, as an interrupt too many harms less than a lost one.
    #[must_use]
    pub fn owes_interrupt(&self) -> bool {
        self.used_event().map_or(self.has_used, |used_event| used_event != self.queue.next_used())
    }

    /// Requests that are available and not taken.
    ///
    /// # Errors
    /// The guest's index jumped, or the ring is not in its memory.
    pub fn backlog(&self) -> Result<u16, Broken> {
        let available = self.queue.avail_idx(&*self.memory, Ordering::Acquire).map_err(|_| NO_AVAILABLE_RING)?;
        let backlog = available.0.wrapping_sub(self.queue.next_avail());
        if backlog > self.queue.size() {
            return Err(Broken("the available index is further than the ring is long"));
        }
        Ok(backlog)
    }

    /// Completions that were posted and that the guest has not taken, as far as it tells.
    #[must_use]
    pub fn untaken(&self) -> u16 {
        let untaken = self.used_event().map_or(0, |used_event| self.queue.next_used().wrapping_sub(used_event));
        if untaken <= self.queue.size() { untaken } else { 0 } // Linux writes 0 while it does not want interrupts
    }

    /// Takes the next request. Its data's addresses go to `buffers`.
    ///
    /// # Errors
    /// The guest's index jumped, a descriptor index is outside the table, or the ring is not in its memory.
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
        let chain = Chain::new(&self.memory, GuestAddress(self.queue.desc_table()), self.queue.size(), head);
        let request = self.parser.parse(chain, limits, durable, buffers);
        Ok(Some(Popped { head, request, is_again }))
    }

    /// Takes the next head out of the available ring.
    fn next_head(&mut self) -> Result<Option<u16>, Broken> {
        if self.backlog()? == 0 {
            return Ok(None);
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
        // It was inside guest memory when the request was taken; should it be gone since, so is who waits for it.
        let _ = self.memory.write_obj(status as u8, address);
    }

    /// How far the guest had taken what was posted when it last asked to be interrupted for more; only with EVENT_IDX.
    fn used_event(&self) -> Option<u16> {
        if !self.queue.event_idx_enabled() {
            return None;
        }
        let address = self.queue.avail_ring() + 4 + 2 * u64::from(self.queue.size());
        self.memory.load(GuestAddress(address), Ordering::Acquire).ok().map(u16::from_le)
    }

    /// Tells the front end that the ring is broken.
    pub fn report_broken(&mut self) {
        if let Some(error) = &mut self.error {
            error.signal(); // if not, the log has it
        }
    }

    /// Asks the guest for kicks. True: something came meanwhile, and no kick will tell of it.
    ///
    /// # Errors
    /// The ring is not in guest memory any more.
    pub fn enable_kicks(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&*self.memory).map_err(|_| NO_USED_RING)
    }

    /// Tells the guest that kicks are not needed.
    ///
    /// # Errors
    /// As above.
    pub fn disable_kicks(&mut self) -> Result<(), Broken> {
        self.queue.disable_notification(&*self.memory).map_err(|_| NO_USED_RING)
    }
}

impl Ring for Vring {
    type Entry = Entry;
    type Broken = Broken;

    fn post(&mut self, Entry { head, written }: Entry) -> Result<(), Broken> {
        if let Some(inflight) = &self.inflight {
            inflight.before_answer(head);
        }
        self.queue.add_used(&*self.memory, head, written).map_err(|_| NO_USED_RING)?;
        self.has_used = true;
        if let Some(inflight) = &self.inflight {
            inflight.after_answer(head, self.queue.next_used());
        }
        Ok(())
    }

    fn wants_interrupt(&mut self) -> bool {
        if self.queue.event_idx_enabled() {
            return self.queue.needs_notification(&*self.memory).unwrap_or(true);
        }
        fence(Ordering::SeqCst); // what was posted is visible before the flag is read
        let flags: Result<u16, _> = self.memory.load(GuestAddress(self.queue.avail_ring()), Ordering::Relaxed);
        flags.map_or(true, |flags| u32::from(u16::from_le(flags)) & VRING_AVAIL_F_NO_INTERRUPT == 0)
    }

    /// Only with EVENT_IDX does the guest tell.
    fn is_consumed(&mut self) -> bool {
        if self.used_event() != Some(self.queue.next_used()) {
            return false;
        }
        // The queue counts in 16 bits what was posted since it was asked: a guest that takes everything by itself must
        // not make that wrap. With this used_event the answer is no, unless the guest plays tricks with it.
        if self.wants_interrupt() {
            self.interrupt();
        }
        true
    }

    fn interrupt(&mut self) -> bool {
        self.call.as_mut().is_some_and(Call::signal)
    }
}

/// Whether the last entry of the used ring was written. With a used index of 0 this tells a ring whose index wrapped from
/// a new one, which drivers fill with zeroes: an entry counts at least the status byte.
fn has_wrapped(queue: &Queue, memory: &GuestMemory) -> Result<bool, Broken> {
    let last = queue.used_ring() + 4 + 8 * u64::from(queue.size() - 1);
    let entry: u64 = memory.read_obj(GuestAddress(last)).map_err(|_| NO_USED_RING)?;
    Ok(entry != 0)
}

fn new_queue(size: u16, [table, available, used]: [u64; 3]) -> Result<Queue, Broken> {
    let misaligned =
        |_| Broken("the descriptor table, the available or the used ring is not aligned to 16, 2 or 4 bytes");
    let mut queue = Queue::new(size).map_err(|_| Broken("no size, or none that is a power of two"))?;
    queue.try_set_desc_table_address(GuestAddress(table)).map_err(misaligned)?;
    queue.try_set_avail_ring_address(GuestAddress(available)).map_err(misaligned)?;
    queue.try_set_used_ring_address(GuestAddress(used)).map_err(misaligned)?;
    queue.set_ready(true);
    Ok(queue)
}
