//! A submission queue and its completion queue.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;

use super::client::{Client, Mapped};
use crate::Error;
use crate::memory::{Memory, PAGE};
use crate::options::HintBits;
use crate::request::{Kind, Request};

pub const SQE_BYTES: usize = 64;
pub const CQE_BYTES: usize = 16;
/// The only namespace that is used.
pub const NSID: u32 = 1;
pub const DOORBELLS: u64 = 0x1000;
/// The register Controller Configuration.
pub const CC: u64 = 0x14;
/// Real-time class, as Linux's I/O priority has it.
const CLASS_RT: u32 = 1;

/// What all queues of a controller have in common.
pub struct Shared {
    pub client: Client,
    /// The doorbells, where they need no message. `None`: they cannot be mapped.
    pub mapped: Option<Mapped>,
    /// The pages of Doorbell Buffer Config: values, and behind them what the controller asks for. `None`: not used.
    pub shadow: Option<Memory>,
    /// Bytes from a doorbell to the next.
    pub stride: u64,
    /// Units of 512 bytes in a block.
    pub sectors_per_block: u64,
    pub hint_bits: HintBits,
}

impl Drop for Shared {
    /// Disables the controller, as a driver does at the end. SPDK (25.09-pre) crashes if a client with shadow doorbells just
    /// goes away and its memory is not aligned to 2 MiB.
    fn drop(&mut self) {
        // It fails if the target is gone, and then there is nothing to do.
        let _ = self.client.write32(CC, 0);
    }
}

impl Shared {
    /// Rings the doorbell at `index`, as Linux does in a guest: with shadow doorbells only where the controller asks for it.
    /// Returns whether a message was sent.
    pub fn ring(&self, index: u16, value: u16) -> Result<bool, Error> {
        let offset = u64::from(index) * self.stride;
        if let Some(shadow) = self.shadow.as_ref().filter(|_| index > 1) {
            let old = shadow.word(offset as usize).load(Ordering::Relaxed) as u16;
            shadow.word(offset as usize).store(value.into(), Ordering::Release);
            fence(Ordering::SeqCst); // store the value, then load what the controller asks for
            let event = shadow.word(PAGE + offset as usize).load(Ordering::Relaxed) as u16;
            if value.wrapping_sub(event).wrapping_sub(1) >= value.wrapping_sub(old) {
                return Ok(false);
            }
        }
        match &self.mapped {
            Some(mapped) => mapped.write32(DOORBELLS + offset, value.into()),
            None => self.client.write32(DOORBELLS + offset, value.into())?,
        }
        Ok(self.mapped.is_none())
    }
}

/// Where the parts of a queue's memory are, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub entries: u16,
    in_flight_max: u16,
    block_bytes: usize,
    lists: usize,
    blocks: usize,
    len: usize,
}

impl Layout {
    /// For this number of commands in flight with this many bytes each.
    pub fn new(entries: u16, in_flight_max: u16, block_bytes: u32) -> Self {
        let (count, block_bytes) = (usize::from(in_flight_max), block_bytes as usize);
        let lists = Self::completions(entries) + (usize::from(entries) * CQE_BYTES).next_multiple_of(PAGE);
        let blocks = lists + if block_bytes > 2 * PAGE { count * PAGE } else { 0 };
        let len = blocks + count * block_bytes.next_multiple_of(PAGE);
        Self { entries, in_flight_max, block_bytes, lists, blocks, len }
    }

    const fn completions(entries: u16) -> usize {
        (entries as usize * SQE_BYTES).next_multiple_of(PAGE)
    }

    /// Bytes of all.
    pub const fn len(&self) -> usize {
        self.len
    }

    fn list(&self, id: usize) -> usize {
        self.lists + id * PAGE
    }

    fn block(&self, id: usize) -> usize {
        self.blocks + id * self.block_bytes.next_multiple_of(PAGE)
    }
}

/// A queue pair with an interrupt vector. A completion returns the `T` that was submitted with the command.
pub struct NvmeQueue<T> {
    shared: Arc<Shared>,
    memory: Memory,
    layout: Layout,
    id: u16,
    interrupts: EventFd,
    tail: u16,
    head: u16,
    phase: bool,
    pending: Vec<Option<(T, Kind)>>, // by command identifier
    free: Vec<u16>,
}

impl<T> NvmeQueue<T> {
    /// The driver's side of queue pair `id`, which is empty.
    pub fn new(shared: Arc<Shared>, mut memory: Memory, layout: Layout, id: u16, interrupts: EventFd) -> Self {
        if layout.block_bytes > 2 * PAGE {
            for at in 0..usize::from(layout.in_flight_max) {
                let pages = (1..layout.block_bytes / PAGE).map(|page| memory.address(layout.block(at) + page * PAGE));
                let list: Vec<u8> = pages.flat_map(u64::to_le_bytes).collect();
                memory.bytes(layout.list(at), list.len()).copy_from_slice(&list);
            }
        }
        Self {
            shared,
            memory,
            layout,
            id,
            interrupts,
            tail: 0,
            head: 0,
            phase: true,
            pending: (0..layout.in_flight_max).map(|_| None).collect(),
            free: (0..layout.in_flight_max).rev().collect(),
        }
    }

    /// The controller's address of the submission queue.
    pub fn submissions_address(memory: &Memory) -> u64 {
        memory.address(0)
    }

    /// The controller's address of the completion queue.
    pub fn completions_address(memory: &Memory, entries: u16) -> u64 {
        memory.address(Layout::completions(entries))
    }

    /// See `Queue::submit`. A real-time priority becomes the hint Urgent.
    pub fn submit(&mut self, request: Request, context: T, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let cid = self.free.pop().ok_or(Error::Protocol("more requests than buffers"))?;
        let (layout, at) = (self.layout, usize::from(cid));
        if request.kind == Kind::Write {
            fill(self.memory.bytes(layout.block(at), layout.block_bytes));
        }
        let opcode = match request.kind {
            Kind::Flush => 0x00,
            Kind::Write => 0x01,
            Kind::Read => 0x02,
        };
        let mut dwords = [0; SQE_BYTES / 4];
        (dwords[0], dwords[1]) = (opcode | u32::from(cid) << 16, NSID);
        if request.kind != Kind::Flush {
            let first = self.memory.address(layout.block(at));
            let second = match layout.block_bytes.div_ceil(PAGE) {
                0 | 1 => 0,
                2 => first + PAGE as u64,
                _ => self.memory.address(layout.list(at)),
            };
            let block = request.sector / self.shared.sectors_per_block;
            let blocks = layout.block_bytes as u64 / 512 / self.shared.sectors_per_block;
            (dwords[6], dwords[7]) = (first as u32, (first >> 32) as u32);
            (dwords[8], dwords[9]) = (second as u32, (second >> 32) as u32);
            (dwords[10], dwords[11]) = (block as u32, (block >> 32) as u32);
            dwords[12] = (blocks - 1) as u32;
            if request.ioprio >> 13 == CLASS_RT {
                let HintBits { dword, bit } = self.shared.hint_bits;
                dwords[usize::from(dword)] |= 1 << bit;
            }
        }
        let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.memory.bytes(usize::from(self.tail) * SQE_BYTES, SQE_BYTES).copy_from_slice(&bytes);
        self.tail = (self.tail + 1) % layout.entries;
        self.pending[at] = Some((context, request.kind));
        Ok(())
    }

    /// See `Queue::kick`.
    pub fn kick(&self) -> Result<bool, Error> {
        self.shared.ring(2 * self.id, self.tail)
    }

    /// See `Queue::take_interrupts`.
    pub fn take_interrupts(&self) -> Result<u64, Error> {
        match self.interrupts.read() {
            Ok(count) => Ok(count),
            Err(Errno::EAGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The identifier and the status of the completion at `head`, if it is posted.
    fn posted(&self, head: u16, phase: bool) -> Option<(u16, u16)> {
        let last = Layout::completions(self.layout.entries) + usize::from(head) * CQE_BYTES + 12;
        let last = u32::from_le(self.memory.word(last).load(Ordering::Acquire));
        ((last >> 16 & 1 != 0) == phase).then_some((last as u16, (last >> 17) as u16))
    }

    fn after(&self, head: u16, phase: bool) -> (u16, bool) {
        let next = (head + 1) % self.layout.entries;
        (next, phase ^ (next == 0))
    }

    /// See `Queue::reap`.
    pub fn reap(&mut self, mut f: impl FnMut(T, u16, &[u8])) -> Result<bool, Error> {
        let before = self.head;
        while let Some((cid, status)) = self.posted(self.head, self.phase) {
            (self.head, self.phase) = self.after(self.head, self.phase);
            let pending = self.pending.get_mut(usize::from(cid)).and_then(Option::take);
            let (context, kind) =
                pending.ok_or(Error::Protocol("a completion names a command that is not in flight"))?;
            let len = if kind == Kind::Flush { 0 } else { self.layout.block_bytes };
            f(context, status, self.memory.bytes(self.layout.block(usize::from(cid)), len));
            self.free.push(cid);
        }
        if self.head == before { Ok(false) } else { self.shared.ring(2 * self.id + 1, self.head) }
    }

    /// See `Queue::unreaped`.
    pub fn unreaped(&self) -> u64 {
        let (mut at, mut count) = ((self.head, self.phase), 0);
        while count < self.pending.len() as u64 && self.posted(at.0, at.1).is_some() {
            at = self.after(at.0, at.1);
            count += 1;
        }
        count
    }

    /// See `Queue::call`.
    pub fn call(&self) -> Result<OwnedFd, Error> {
        Ok(self.interrupts.as_fd().try_clone_to_owned()?)
    }
}
