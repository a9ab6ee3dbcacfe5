//! A host that drives an NVMe controller directly: its registers, its doorbells, and memory that both share. There is no
//! socket and no guest.
#![allow(dead_code, reason = "not every test uses all of it")]

use coalesce_target::backend::{Backend, FileBackend, ImageOptions, MemoryBackend};
use coalesce_target::disk::{Disk, Limits, SERIAL_LEN, Totals};
use coalesce_target::nvme::controller::Controller;
use coalesce_target::nvme::vector::Vector;
use coalesce_target::os::bus_error::Peer;
use coalesce_target::os::call::CallRings;
use coalesce_target::queue::{Control, PreparedQueues, QueueConfig, QueueHandle};
use coalesce_target::stats::QueueStats;
use coalesce_target::throttle::Throttle;
use coalesce_target::vfio_user::PciDevice;
use coalesce_target::vfio_user::irq::Vectors;
use coalesce_target::vfio_user::memory::DmaMemory;
use coalesce_target::vfio_user::wire::{DmaMap, FILES_MAX};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};
use vm_memory::guest_memory::FileOffset;
use vm_memory::{Bytes as _, MmapRegion, VolatileMemory as _};

pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing happens where nothing should: a mistake shows much sooner.
pub const QUIET: Duration = Duration::from_millis(100);

pub const RAM: u64 = 16 << 20;
/// Memory that the device may only read.
pub const ROM: u64 = 0x1000_0000;
/// Memory without a file.
pub const NO_FILE: u64 = 0x2000_0000;
pub const SIZE: u64 = 8 << 20;
pub const BLOCKS: u64 = SIZE / 512;

const ASQ: u64 = 0x1000;
const ACQ: u64 = 0x2000;
const ADMIN_ENTRIES: u16 = 64;
/// Free for tests.
pub const DATA: u64 = 0x80_0000;

/// Pages that matter to a hostile guest: where queues, shadow doorbells and data are, what must not be written, and what is not there.
pub const PAGES: [u64; 14] = [
    0x1000,
    0x2000,
    0x11_0000,
    0x12_0000,
    0x21_0000,
    0x22_0000,
    0x30_0000,
    DATA,
    DATA + 0x1000,
    ROM,
    NO_FILE,
    RAM,
    RAM - 4096,
    u64::MAX - 4095,
];

pub const DNR: u16 = 0x4000;

/// A submission queue entry by its dwords.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sqe(pub [u32; 16]);

impl Sqe {
    pub fn new(opcode: u8) -> Self {
        let mut sqe = Self::default();
        sqe.0[0] = opcode.into();
        sqe
    }

    pub fn io(opcode: u8) -> Self {
        Self::new(opcode).dword(1, 1)
    }

    pub fn dword(mut self, at: usize, value: u32) -> Self {
        self.0[at] = value;
        self
    }

    pub fn flags(mut self, flags: u8) -> Self {
        self.0[0] |= u32::from(flags) << 8;
        self
    }

    pub fn cid(mut self, cid: u16) -> Self {
        self.0[0] = self.0[0] & 0xffff | u32::from(cid) << 16;
        self
    }

    pub fn prps(mut self, first: u64, second: u64) -> Self {
        (self.0[6], self.0[7]) = (first as u32, (first >> 32) as u32);
        (self.0[8], self.0[9]) = (second as u32, (second >> 32) as u32);
        self
    }

    /// Blocks of a read or write.
    pub fn blocks(mut self, lba: u64, count: u32) -> Self {
        (self.0[10], self.0[11]) = (lba as u32, (lba >> 32) as u32);
        self.0[12] = self.0[12] & 0xffff_0000 | (count - 1);
        self
    }
}

pub const FLUSH: u8 = 0;
pub const WRITE: u8 = 1;
pub const READ: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    pub result: u32,
    pub sq_head: u16,
    pub sq: u16,
    pub cid: u16,
    /// Code, type and DNR.
    pub status: u16,
}

/// A submission queue, as the host sees it.
#[derive(Clone, Copy, Debug)]
pub struct Sq {
    pub id: u16,
    pub base: u64,
    pub size: u16,
    pub tail: u16,
}

/// A completion queue, as the host sees it.
#[derive(Clone, Copy, Debug)]
pub struct Cq {
    pub id: u16,
    pub base: u64,
    pub size: u16,
    pub head: u16,
    pub phase: bool,
}

pub struct Host {
    pub controller: Box<dyn PciDevice>,
    /// Of a controller in this process.
    pub queues: Arc<[QueueHandle<Vector>]>,
    /// The guest memory of a controller in this process.
    pub dma: DmaMemory,
    ram: Arc<Ram>,
    pub ram_file: File,
    /// Pages that lie elsewhere in the file than their address says.
    pub moved: HashMap<u64, u64>,
    pub eventfds: Vec<EventFd>,
    /// Of a controller in this process.
    pub vectors: Vectors,
    pub sq: Sq,
    pub cq: Cq,
    next_cid: u16,
    shadow: Option<(u64, u64)>,
    /// Messages with doorbells of I/O queues.
    pub messages: u64,
}

/// The memory of the host.
pub struct Ram(MmapRegion);

impl Ram {
    pub fn store(&self, address: u64, value: u32) {
        self.0.as_volatile_slice().store(value, address as usize, Ordering::Release).unwrap();
    }
}

pub struct Setup<'a> {
    pub policy: &'a str,
    pub queues: usize,
    pub read_only: bool,
    pub block_size: u32,
    /// Bytes of the disk.
    pub size: u64,
    /// An image of `size` bytes, instead of memory.
    pub file: Option<&'a Path>,
    pub poll_ns: u64,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { policy: "none", queues: 2, read_only: false, block_size: 512, size: SIZE, file: None, poll_ns: 0 }
    }
}

pub fn eventfds(count: usize) -> Vec<EventFd> {
    (0..count).map(|_| EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap()).collect()
}

pub fn memfd(size: u64) -> File {
    let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(size).unwrap();
    file
}

/// Guest memory as the host maps it for the device: its start, its length, its file, and whether the device may write it.
pub fn regions(ram: &File) -> [(u64, u64, Option<File>, bool); 3] {
    [
        (0, RAM, Some(ram.try_clone().unwrap()), true),
        (ROM, 1 << 20, Some(memfd(1 << 20)), false),
        (NO_FILE, 1 << 20, None, true),
    ]
}

pub fn disk(setup: &Setup<'_>) -> Arc<Disk> {
    let backend = match setup.file {
        None => Backend::Memory(MemoryBackend::new(setup.size, 0..=0).unwrap()),
        Some(path) => Backend::File(
            FileBackend::open(path, &ImageOptions { read_only: setup.read_only, ..Default::default() }).unwrap(),
        ),
    };
    let mut serial = [0; SERIAL_LEN];
    serial[..4].copy_from_slice(b"SN-1");
    let (read_only, block_size) = (setup.read_only, setup.block_size);
    let limits = Limits { size: setup.size.into(), block_size, read_only, serial, max_memory: 1 << 40 };
    Arc::new(Disk {
        name: "nvme".into(),
        place: "/nvme".into(),
        backend,
        limits,
        call_rings: CallRings::new(setup.queues + 2 + FILES_MAX).unwrap(),
        write_back: AtomicBool::new(true),
        epoch: Instant::now(),
        throttle: Throttle::default(),
        totals: Totals::default(),
    })
}

impl Host {
    /// A host with a controller that is not enabled.
    pub fn off(setup: &Setup<'_>) -> Self {
        let disk = disk(setup);
        let policy = setup.policy.parse().unwrap();
        let config = QueueConfig { policy, poll_ns: setup.poll_ns, size_max: 1024, recorder: None };
        let queues: Arc<[_]> = PreparedQueues::new(setup.queues, &disk, &config).unwrap().start().unwrap().into();
        let peer = Arc::new(Peer::new(UnixStream::pair().unwrap().0.into()));
        let dma = DmaMemory::new(peer, 1 << 40);
        let ram = memfd(RAM);
        for (address, size, file, is_writable) in regions(&ram) {
            let flags = DmaMap::READ | if is_writable { DmaMap::WRITE } else { 0 };
            dma.map(&DmaMap { flags, offset: 0, address, size }, file.map(Into::into)).unwrap();
        }
        let vectors = Vectors::new(setup.queues as u16 + 1, disk.call_rings.clone());
        let eventfds = eventfds(setup.queues + 1);
        for (i, eventfd) in eventfds.iter().enumerate() {
            vectors.assign(i as u16, vec![eventfd.as_fd().try_clone_to_owned().unwrap()]).unwrap();
        }
        let controller = Controller::new(disk, queues.clone(), dma.clone(), vectors.clone());
        Self { vectors, queues, dma, ..Self::over(Box::new(controller), ram, eventfds) }
    }

    /// A host with a controller that is not enabled, and has its memory and its eventfds.
    pub fn over(controller: Box<dyn PciDevice>, ram: File, eventfds: Vec<EventFd>) -> Self {
        Self {
            controller,
            queues: Vec::new().into(),
            vectors: Vectors::new(0, CallRings::default()),
            dma: DmaMemory::new(Arc::new(Peer::new(UnixStream::pair().unwrap().0.into())), 0),
            ram_file: ram.try_clone().unwrap(),
            ram: Arc::new(Ram(MmapRegion::from_file(FileOffset::new(ram, 0), RAM as usize).unwrap())),
            moved: HashMap::new(),
            eventfds,
            sq: Sq { id: 0, base: ASQ, size: ADMIN_ENTRIES, tail: 0 },
            cq: Cq { id: 0, base: ACQ, size: ADMIN_ENTRIES, head: 0, phase: true },
            next_cid: 0,
            shadow: None,
            messages: 0,
        }
    }

    /// A host with an enabled controller.
    pub fn with(setup: &Setup<'_>) -> Self {
        let mut host = Self::off(setup);
        host.enable();
        host
    }

    pub fn new(policy: &str) -> Self {
        Self::with(&Setup { policy, ..Setup::default() })
    }

    pub fn enable(&mut self) {
        self.controller.set_bus_master(true);
        let entries = u32::from(ADMIN_ENTRIES) - 1;
        self.set32(0x24, entries | entries << 16);
        self.set64(0x28, ASQ);
        self.set64(0x30, ACQ);
        self.zero(ACQ, 4096);
        (self.sq.tail, self.cq.head, self.cq.phase, self.shadow) = (0, 0, true, None);
        self.set32(0x14, 0x0046_0001);
        assert_eq!(self.get32(0x1c), 1, "not ready");
    }

    /// Writes CC.EN = 0, and waits until the controller is not ready.
    pub fn disable(&mut self) {
        self.set32(0x14, 0x0046_0000);
        self.wait_csts(1, 0);
    }

    pub fn wait_csts(&mut self, mask: u32, value: u32) {
        let start = Instant::now();
        while self.get32(0x1c) & mask != value {
            assert!(start.elapsed() < PATIENCE, "CSTS stays {:#x}", self.get32(0x1c));
            std::thread::yield_now();
        }
    }

    pub fn get32(&mut self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.controller.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn set32(&mut self, offset: u64, value: u32) {
        self.controller.write(offset, &value.to_le_bytes());
    }

    pub fn set64(&mut self, offset: u64, value: u64) {
        self.controller.write(offset, &value.to_le_bytes());
    }

    pub fn doorbell(&mut self, index: u64, value: u32) {
        self.messages += u64::from(index >= 2);
        self.set32(0x1000 + 4 * index, value);
    }

    /// The offset in the file of an address.
    fn offset(&self, address: u64) -> u64 {
        self.moved.get(&(address / 4096)).map_or(address, |offset| offset + address % 4096)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        for (i, part) in (0..).zip(bytes.chunks(64)) {
            let offset = self.offset(address + 64 * i) as usize;
            self.ram.0.as_volatile_slice().write_slice(part, offset).unwrap();
        }
    }

    /// Maps the RAM from `start` on in pieces that end at `ends`.
    pub fn map_pieces(&mut self, mut start: u64, ends: &[u64]) {
        for end in ends {
            self.map(start..*end, DmaMap::READ | DmaMap::WRITE);
            start = *end;
        }
    }

    /// Maps a part of the RAM.
    pub fn map(&mut self, range: Range<u64>, flags: u32) {
        let (offset, address, size) = (self.offset(range.start), range.start, range.end - range.start);
        let map = DmaMap { flags, offset, address, size };
        self.dma.map(&map, Some(self.ram_file.try_clone().unwrap().into())).unwrap();
        self.controller.map();
    }

    /// Unmaps a region. Nothing of it may stay in use.
    pub fn unmap(&mut self, range: Range<u64>) {
        let unmapped = self.dma.unmap(range.start, range.end - range.start).unwrap();
        self.controller.unmap(range);
        assert!(unmapped.wait(Instant::now() + PATIENCE), "it is still in use");
    }

    pub fn unmap_all(&mut self) {
        for unmapped in self.dma.unmap_all() {
            self.controller.unmap(unmapped.range.clone());
            assert!(unmapped.wait(Instant::now() + PATIENCE), "it is still in use");
        }
    }

    pub fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.0.as_volatile_slice().read_slice(&mut bytes, address as usize).unwrap();
        bytes
    }

    pub fn zero(&self, address: u64, len: usize) {
        self.write(address, &vec![0; len]);
    }

    pub fn load(&self, address: u64) -> u32 {
        self.ram.0.as_volatile_slice().load(self.offset(address) as usize, Ordering::Acquire).unwrap()
    }

    pub fn store(&self, address: u64, value: u32) {
        self.ram.store(self.offset(address), value);
    }

    /// The memory, for another thread.
    pub fn share(&self) -> Arc<Ram> {
        self.ram.clone()
    }

    /// Rings by messages only.
    pub const fn ignore_shadow(&mut self) {
        self.shadow = None;
    }

    /// Rings a doorbell as Linux does: with shadow doorbells only where the controller asks for a message.
    pub fn ring(&mut self, index: u64, value: u16) {
        let Some((values, events)) = self.shadow.filter(|_| index >= 2) else {
            return self.doorbell(index, value.into());
        };
        let old = self.load(values + 4 * index) as u16;
        self.store(values + 4 * index, value.into());
        fence(Ordering::SeqCst);
        let event = self.load(events + 4 * index) as u16;
        if value.wrapping_sub(event).wrapping_sub(1) < value.wrapping_sub(old) {
            self.doorbell(index, value.into());
        }
    }

    /// Writes an entry, without ringing. Returns its command identifier.
    pub fn put(&mut self, sq: &mut Sq, sqe: Sqe) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        self.put_as(sq, sqe.cid(cid));
        cid
    }

    pub fn put_as(&self, sq: &mut Sq, sqe: Sqe) {
        let bytes: Vec<_> = sqe.0.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.write(sq.base + 64 * u64::from(sq.tail), &bytes);
        sq.tail = (sq.tail + 1) % sq.size;
    }

    pub fn ring_sq(&mut self, sq: &Sq) {
        self.ring(2 * u64::from(sq.id), sq.tail);
    }

    pub fn submit(&mut self, sq: &mut Sq, sqe: Sqe) -> u16 {
        let cid = self.put(sq, sqe);
        self.ring_sq(sq);
        cid
    }

    /// The next entry, if it is posted. Its place is not given back.
    pub fn peek(&self, cq: &mut Cq) -> Option<Cqe> {
        let at = cq.base + 16 * u64::from(cq.head);
        let last = self.load(at + 12);
        if (last >> 16 & 1 != 0) != cq.phase {
            return None;
        }
        cq.head = (cq.head + 1) % cq.size;
        cq.phase ^= cq.head == 0;
        let (result, third) = (self.load(at), self.load(at + 8));
        Some(Cqe {
            result,
            sq_head: third as u16,
            sq: (third >> 16) as u16,
            cid: last as u16,
            status: (last >> 17) as u16,
        })
    }

    /// Waits for the next entry.
    pub fn next(&self, cq: &mut Cq) -> Cqe {
        let start = Instant::now();
        loop {
            if let Some(cqe) = self.peek(cq) {
                return cqe;
            }
            assert!(start.elapsed() < PATIENCE, "no completion");
            std::thread::yield_now();
        }
    }

    /// Waits for `count` entries, and gives their places back.
    pub fn reap(&mut self, cq: &mut Cq, count: usize) -> Vec<Cqe> {
        let cqes = (0..count).map(|_| self.next(cq)).collect();
        self.ring(2 * u64::from(cq.id) + 1, cq.head);
        cqes
    }

    /// Submits an admin command.
    pub fn admin_submit(&mut self, sqe: Sqe) -> u16 {
        let mut sq = self.sq;
        let cid = self.submit(&mut sq, sqe);
        self.sq = sq;
        cid
    }

    /// The next admin completion.
    pub fn admin_next(&mut self) -> Cqe {
        let mut cq = self.cq;
        let cqe = self.reap(&mut cq, 1)[0];
        self.cq = cq;
        cqe
    }

    pub fn admin_peek(&mut self) -> Option<Cqe> {
        let mut cq = self.cq;
        let cqe = self.peek(&mut cq);
        if cqe.is_some() {
            self.cq = cq;
            self.ring(1, cq.head);
        }
        cqe
    }

    /// Executes an admin command: its status and result.
    pub fn admin(&mut self, sqe: Sqe) -> (u16, u32) {
        let cid = self.admin_submit(sqe);
        let cqe = self.admin_next();
        assert_eq!((cqe.cid, cqe.sq, cqe.sq_head), (cid, 0, self.sq.tail));
        (cqe.status, cqe.result)
    }

    pub fn admin_ok(&mut self, sqe: Sqe) -> u32 {
        let (status, result) = self.admin(sqe);
        assert_eq!(status, 0, "{sqe:x?}");
        result
    }

    pub fn create_cq(&mut self, id: u16, size: u16, vector: u16, interrupts: bool) -> Cq {
        let base = 0x10_0000 + 0x1_0000 * u64::from(id);
        self.zero(base, 16 * usize::from(size));
        let flags = 1 | u32::from(interrupts) << 1 | u32::from(vector) << 16;
        let sqe = Sqe::new(5).prps(base, 0).dword(10, u32::from(id) | (u32::from(size) - 1) << 16).dword(11, flags);
        self.admin_ok(sqe);
        Cq { id, base, size, head: 0, phase: true }
    }

    pub fn create_sq(&mut self, id: u16, size: u16, cq: u16) -> Sq {
        let base = 0x20_0000 + 0x1_0000 * u64::from(id);
        let sqe = Sqe::new(1)
            .prps(base, 0)
            .dword(10, u32::from(id) | (u32::from(size) - 1) << 16)
            .dword(11, 1 | u32::from(cq) << 16);
        self.admin_ok(sqe);
        Sq { id, base, size, tail: 0 }
    }

    /// A completion queue on vector 1, and its submission queue.
    pub fn pair(&mut self, size: u16) -> (Sq, Cq) {
        let cq = self.create_cq(1, size, 1, true);
        (self.create_sq(1, size, 1), cq)
    }

    /// Executes a command of an I/O queue: its status.
    pub fn io(&mut self, (sq, cq): (&mut Sq, &mut Cq), sqe: Sqe) -> u16 {
        let cid = self.submit(sq, sqe);
        let cqe = self.reap(cq, 1)[0];
        assert_eq!((cqe.cid, cqe.sq), (cid, sq.id));
        cqe.status
    }

    /// Doorbell Buffer Config.
    pub fn use_shadow(&mut self, values: u64, events: u64) {
        self.admin_ok(Sqe::new(0x7c).prps(values, events));
        self.shadow = Some((values, events));
    }

    pub fn set_feature(&mut self, id: u8, value: u32) -> (u16, u32) {
        self.admin(Sqe::new(9).dword(10, id.into()).dword(11, value))
    }

    pub fn get_feature(&mut self, id: u8, value: u32) -> (u16, u32) {
        self.admin(Sqe::new(10).dword(10, id.into()).dword(11, value))
    }

    /// Has no MSI-X, but the interrupt pin. Returns its eventfd.
    pub fn use_pin(&mut self) -> EventFd {
        self.vectors.deassign(0..self.vectors.count());
        let pin = eventfds(1).remove(0);
        self.vectors.assign_pin(pin.as_fd().try_clone_to_owned().unwrap()).unwrap();
        self.controller.pin_is_unmasked();
        pin
    }

    /// Interrupts of a vector since this was asked last.
    pub fn interrupts(&self, vector: usize) -> u64 {
        self.eventfds[vector].read().unwrap_or(0)
    }

    /// Waits for an interrupt of a vector. The number since it was asked last.
    pub fn interrupt(&self, vector: usize) -> u64 {
        let start = Instant::now();
        loop {
            match self.interrupts(vector) {
                0 => assert!(start.elapsed() < PATIENCE, "no interrupt of vector {vector}"),
                count => return count,
            }
            std::thread::yield_now();
        }
    }

    pub fn stats(&self, queue: usize) -> QueueStats {
        self.queues[queue].ask(Control::GetStats).unwrap()
    }

    /// Waits until a queue has completed this many commands in all.
    pub fn completed(&self, queue: usize, count: u64) -> QueueStats {
        let start = Instant::now();
        loop {
            let stats = self.stats(queue);
            if stats.completions >= count {
                return stats;
            }
            assert!(start.elapsed() < PATIENCE, "{} of {count} commands have completed", stats.completions);
        }
    }

    pub fn assert_alive(&mut self) {
        assert_eq!(self.get32(0x1c), 1);
        let identify = Sqe::new(6).prps(DATA + 0x4000, 0).dword(10, 1);
        assert_eq!(self.admin(identify).0, 0);
    }
}
