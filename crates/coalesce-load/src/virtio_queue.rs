//! One virtqueue as its driver sees it, in split format (virtio 1.1 §2.6). The methods are those of `Queue`.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE, VRING_USED_F_NO_NOTIFY};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::Error;
use crate::device::QUEUE_ENTRIES_MIN;
use crate::memory::{Memory, PAGE};
use crate::request::{Kind, Request};

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const NO_NOTIFY: u16 = VRING_USED_F_NO_NOTIFY as u16;

/// Descriptors of one request: header, data, status. Request `i` has those from `3 * i` on.
const DESCRIPTORS_PER_REQUEST: u16 = 3;
const DESCRIPTOR_BYTES: usize = 16;
/// A header and its status: 16 bytes, and one behind them.
const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 32;
/// A status that no device sets.
const NO_STATUS: u8 = 0xff;
const CACHE_LINE: usize = 64;

/// Where the parts of a queue's memory are, in bytes. The descriptors are at its start.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub entries: u16,
    in_flight_max: u16,
    block_bytes: usize,
    pub available: usize,
    pub used: usize,
    requests: usize,
    blocks: usize,
    len: usize,
}

impl Layout {
    /// For this number of requests in flight with this many bytes each.
    pub fn new(in_flight_max: u16, block_bytes: u32) -> Self {
        let entries = (in_flight_max * DESCRIPTORS_PER_REQUEST).next_power_of_two().max(QUEUE_ENTRIES_MIN);
        let (count, block_bytes, of_ring) = (usize::from(in_flight_max), block_bytes as usize, usize::from(entries));
        let available = DESCRIPTOR_BYTES * of_ring;
        let used = (available + 6 + 2 * of_ring).next_multiple_of(CACHE_LINE);
        let requests = (used + 6 + 8 * of_ring).next_multiple_of(CACHE_LINE);
        let blocks = (requests + count * REQUEST_BYTES).next_multiple_of(PAGE);
        let len = (blocks + count * block_bytes).next_multiple_of(PAGE);
        Self { entries, in_flight_max, block_bytes, available, used, requests, blocks, len }
    }

    /// Bytes of all.
    pub const fn len(&self) -> usize {
        self.len
    }

    fn available_index(&self) -> usize {
        self.available + 2
    }

    fn available_entry(&self, index: u16) -> usize {
        self.available + 4 + 2 * usize::from(index % self.entries)
    }

    /// Where the driver says which completion it wants an interrupt for.
    fn used_event(&self) -> usize {
        self.available + 4 + 2 * usize::from(self.entries)
    }

    fn used_index(&self) -> usize {
        self.used + 2
    }

    fn used_entry(&self, index: u16) -> usize {
        self.used + 4 + 8 * usize::from(index % self.entries)
    }

    /// Where the device says which request it wants a kick for.
    fn available_event(&self) -> usize {
        self.used + 4 + 8 * usize::from(self.entries)
    }

    fn request(&self, id: u16) -> usize {
        self.requests + usize::from(id) * REQUEST_BYTES
    }

    fn block(&self, id: u16) -> usize {
        self.blocks + usize::from(id) * self.block_bytes
    }
}

/// A virtqueue with its eventfds. A completion returns the `T` that was submitted with the request.
pub struct VirtioQueue<T> {
    memory: Memory,
    layout: Layout,
    event_idx: bool,
    call: EventFd,
    kick: EventFd,
    submitted: u16, // indices of the rings, which wrap
    kicked: u16,
    reaped: u16,
    pending: Vec<Option<(T, Kind)>>, // by request
    free: Vec<u16>,
}

impl<T> VirtioQueue<T> {
    /// The driver's side of a queue in memory that is zero. Without EVENT_IDX interrupts stay enabled. So every suppressed
    /// interrupt is the target's decision.
    pub fn new(memory: Memory, layout: Layout, event_idx: bool) -> Result<Self, Error> {
        Ok(Self {
            memory,
            layout,
            event_idx,
            call: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            kick: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            submitted: 0,
            kicked: 0,
            reaped: 0,
            pending: (0..layout.in_flight_max).map(|_| None).collect(),
            free: (0..layout.in_flight_max).rev().collect(),
        })
    }

    /// The device's address of a place in the queue's memory.
    pub fn address(&self, at: usize) -> u64 {
        self.memory.address(at)
    }

    /// The eventfds that the device needs: for interrupts, and for kicks.
    pub fn eventfds(&self) -> (&EventFd, &EventFd) {
        (&self.call, &self.kick)
    }

    /// See `Queue::submit`.
    pub fn submit(&mut self, request: Request, context: T, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let Request { kind, ioprio, sector } = request;
        let id = self.free.pop().ok_or(Error::Protocol("more requests than buffers"))?;
        let (header, data) = (self.layout.request(id), self.layout.block(id));
        if kind == Kind::Write {
            fill(self.memory.bytes(data, self.layout.block_bytes));
        }
        let bytes = self.memory.bytes(header, HEADER_BYTES + 1);
        bytes[..4].copy_from_slice(&(kind as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&ioprio.to_le_bytes());
        bytes[8..16].copy_from_slice(&sector.to_le_bytes());
        bytes[HEADER_BYTES] = NO_STATUS;

        let first = id * DESCRIPTORS_PER_REQUEST;
        let last = first + 2;
        if kind == Kind::Flush {
            self.describe(first, header, HEADER_BYTES, NEXT, last);
        } else {
            let to_driver = if kind == Kind::Read { WRITE } else { 0 };
            self.describe(first, header, HEADER_BYTES, NEXT, first + 1);
            self.describe(first + 1, data, self.layout.block_bytes, NEXT | to_driver, last);
        }
        self.describe(last, header + HEADER_BYTES, 1, WRITE, 0);

        self.memory.half(self.layout.available_entry(self.submitted)).store(first.to_le(), Ordering::Relaxed);
        self.submitted = self.submitted.wrapping_add(1);
        self.memory.half(self.layout.available_index()).store(self.submitted.to_le(), Ordering::Release);
        self.pending[usize::from(id)] = Some((context, kind));
        Ok(())
    }

    fn describe(&mut self, index: u16, at: usize, len: usize, flags: u16, next: u16) {
        let address = self.memory.address(at);
        let bytes = self.memory.bytes(usize::from(index) * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES);
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
    }

    /// See `Queue::kick`.
    pub fn kick(&mut self) -> Result<bool, Error> {
        let old = std::mem::replace(&mut self.kicked, self.submitted);
        fence(Ordering::SeqCst); // store the index, then load what the device asks for
        let wanted = if self.event_idx {
            let event = self.load(self.layout.available_event());
            self.submitted.wrapping_sub(event).wrapping_sub(1) < self.submitted.wrapping_sub(old)
        } else {
            self.load(self.layout.used) & NO_NOTIFY == 0
        };
        if wanted {
            self.kick.write(1)?;
        }
        Ok(wanted)
    }

    fn load(&self, at: usize) -> u16 {
        u16::from_le(self.memory.half(at).load(Ordering::Relaxed))
    }

    /// See `Queue::take_interrupts`.
    pub fn take_interrupts(&self) -> Result<u64, Error> {
        match self.call.read() {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// See `Queue::reap`.
    pub fn reap(&mut self, mut f: impl FnMut(T, u16, &[u8])) -> Result<(), Error> {
        loop {
            while self.unreaped() > 0 {
                let head = u32::from_le(self.memory.word(self.layout.used_entry(self.reaped)).load(Ordering::Relaxed));
                self.reaped = self.reaped.wrapping_add(1);
                let id = head / u32::from(DESCRIPTORS_PER_REQUEST);
                let is_head = head.is_multiple_of(DESCRIPTORS_PER_REQUEST.into());
                let pending = self.pending.get_mut(id as usize).filter(|_| is_head).and_then(Option::take);
                let (context, kind) =
                    pending.ok_or(Error::Protocol("the used ring names a request that is not in flight"))?;
                let id = id as u16;
                let status = self.memory.bytes(self.layout.request(id) + HEADER_BYTES, 1)[0];
                let len = if kind == Kind::Flush { 0 } else { self.layout.block_bytes };
                f(context, status.into(), self.memory.bytes(self.layout.block(id), len));
                self.free.push(id);
            }
            if !self.event_idx {
                return Ok(());
            }
            // Ask for the interrupt of the next completion, then check again: the device may have completed a request just
            // before it could see that. Until then it has no reason to signal, as it has passed the completion asked for.
            self.memory.half(self.layout.used_event()).store(self.reaped.to_le(), Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if self.unreaped() == 0 {
                return Ok(());
            }
        }
    }

    /// See `Queue::unreaped`.
    pub fn unreaped(&self) -> u64 {
        let used = u16::from_le(self.memory.half(self.layout.used_index()).load(Ordering::Acquire));
        used.wrapping_sub(self.reaped).into()
    }

    /// See `Queue::call`.
    pub fn call(&self) -> Result<OwnedFd, Error> {
        // SAFETY: the eventfd is open, and is borrowed only for its duplication.
        Ok(unsafe { BorrowedFd::borrow_raw(self.call.as_raw_fd()) }.try_clone_to_owned()?)
    }
}
