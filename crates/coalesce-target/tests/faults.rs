//! A medium that fails: each request ends once, what is answered well is done, and nobody else is disturbed.

mod loop_device;
mod medium;
mod raw;
mod refusal;

use coalesce_target::backend::{Backend, Buffers, FileBackend, ImageOptions, Operation, Outcome, Step};
use io_uring::{IoUring, squeue};
use libc::iovec;
use loop_device::Loop;
use medium::{Call, Event, Fault, Medium};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use proptest::prelude::*;
use raw::*;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const DISK_LEN: usize = 128 << 10;

/// What each byte of a disk can be: more than one value where a write failed.
struct Model {
    bytes: Vec<Vec<u8>>,
}

impl Model {
    fn new(disk: &[u8]) -> Self {
        Self { bytes: disk.iter().map(|&byte| vec![byte]).collect() }
    }

    /// A range was to become `data`.
    fn write(&mut self, offset: usize, data: &[u8], is_sure: bool) {
        for (can_be, &byte) in self.bytes[offset..].iter_mut().zip(data) {
            if is_sure {
                can_be.clear();
            }
            if !can_be.contains(&byte) {
                can_be.push(byte);
            }
        }
    }

    /// A range is `data` now.
    fn read(&mut self, offset: usize, data: &[u8], what: &str) {
        for (at, &byte) in data.iter().enumerate() {
            let can_be = &mut self.bytes[offset + at];
            assert!(can_be.contains(&byte), "{what}: byte {} is {byte}, it can be {can_be:?}", offset + at);
            can_be.retain(|one| *one == byte);
        }
    }

    /// The whole disk may be `data`.
    fn expect(&self, data: &[u8], what: &str) {
        for (at, (can_be, byte)) in self.bytes.iter().zip(data).enumerate() {
            assert!(can_be.contains(byte), "{what}: byte {at} is {byte}, it can be {can_be:?}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// A kernel with whims, under the back end
// ---------------------------------------------------------------------------------------------------------------------

/// How a step ends that was given to io_uring.
#[derive(Clone, Copy, Debug)]
enum Whim {
    /// As Linux does it.
    None,
    /// At most this many bytes are transferred.
    Part(usize),
    /// It fails, and nothing has happened.
    Refused(Errno),
    /// All of it has happened, and yet it fails.
    Failed(Errno),
}

/// What a step was about: `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone)]
struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    rest: [u32; 9],
}

/// A medium without a page cache in front of it does whole blocks, and none has larger ones.
const BLOCK_MAX: usize = 4096;
const READV: u8 = 1;
const FSYNC: u8 = 3;
const WRITEV: u8 = 2;
const WRITE_ONE: u8 = 23;
const TRANSFERS: [u8; 3] = [READV, WRITEV, WRITE_ONE];

struct Kernel {
    uring: IoUring,
    whims: Vec<Whim>,
    file: File,
    /// What would be in the file if power was lost now, at worst.
    medium: Vec<u8>,
    /// Whether a step failed for good.
    has_failed: bool,
    /// Whether that was a flush.
    has_lost: bool,
    /// Whether something was transferred through the page cache.
    has_cached: bool,
}

impl Kernel {
    fn new(path: &Path) -> Self {
        let (file, medium) = (File::open(path).unwrap(), std::fs::read(path).unwrap());
        let uring = IoUring::new(2).unwrap();
        Self { uring, whims: Vec::new(), file, medium, has_failed: false, has_lost: false, has_cached: false }
    }

    /// An operation from start to end.
    fn run(&mut self, backend: &Backend, mut operation: Operation, mut buffers: Buffers) -> Outcome {
        self.has_failed = false;
        let mut step = backend.begin(&operation, &mut buffers);
        loop {
            match step {
                Step::Finished(outcome) => return outcome,
                Step::Again => unreachable!("the kernel takes all of it"),
                Step::Submit(entry) => {
                    let result = self.perform(&entry);
                    step = backend.resume(&mut operation, &mut buffers, result);
                }
            }
        }
    }

    fn perform(&mut self, entry: &squeue::Entry) -> i32 {
        // SAFETY: an entry is what the kernel reads, and nothing else.
        let mut sqe: Sqe = unsafe { std::mem::transmute(entry.clone()) };
        // SAFETY: it only asks; the descriptor is open.
        let is_direct = unsafe { libc::fcntl(sqe.fd, libc::F_GETFL) } & libc::O_DIRECT != 0;
        self.has_cached |= !is_direct && TRANSFERS.contains(&sqe.opcode);
        let mut part = Vec::new();
        match self.whims.pop().unwrap_or(Whim::None) {
            Whim::None => {}
            Whim::Part(bytes) => {
                self.shorten(&mut sqe, if is_direct { bytes / BLOCK_MAX * BLOCK_MAX } else { bytes }, &mut part);
            }
            Whim::Refused(errno) => return self.fail(&sqe, errno),
            Whim::Failed(errno) => {
                self.submit(&sqe);
                return self.fail(&sqe, errno);
            }
        }
        self.submit(&sqe)
    }

    fn fail(&mut self, sqe: &Sqe, errno: Errno) -> i32 {
        let is_transfer = TRANSFERS.contains(&sqe.opcode);
        let is_again = [Errno::EINTR, Errno::EAGAIN].contains(&errno);
        let is_unsupported = [Errno::EOPNOTSUPP, Errno::EINVAL].contains(&errno) && !is_transfer && sqe.opcode != FSYNC;
        self.has_failed |= !is_again && !is_unsupported;
        self.has_lost |= !is_again && sqe.opcode == FSYNC;
        -(errno as i32)
    }

    /// Makes the transfer one of at most `bytes` bytes; `part` keeps its buffers.
    fn shorten(&mut self, sqe: &mut Sqe, bytes: usize, part: &mut Vec<iovec>) {
        match sqe.opcode {
            READV | WRITEV => {
                // SAFETY: the buffers of an operation stay where they are until it ends.
                part.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(sqe.address as *const iovec, sqe.len as usize)
                });
                let mut rest = bytes;
                for iovec in part.iter_mut() {
                    iovec.iov_len = iovec.iov_len.min(rest);
                    rest -= iovec.iov_len;
                }
                sqe.address = part.as_ptr() as u64;
            }
            WRITE_ONE => sqe.len = sqe.len.min(bytes as u32),
            _ => return,
        }
        self.has_failed |= bytes == 0; // no medium gets on like this
    }

    fn submit(&mut self, sqe: &Sqe) -> i32 {
        // SAFETY: as above, the other way round.
        let entry: squeue::Entry = unsafe { std::mem::transmute(sqe.clone()) };
        // SAFETY: it has ended before this returns.
        unsafe { self.uring.submission().push(&entry) }.unwrap();
        self.uring.submit_and_wait(1).unwrap();
        let result = self.uring.completion().next().unwrap().result();
        let is_durable = sqe.opcode == WRITEV && sqe.rest[0] & libc::RWF_DSYNC as u32 != 0;
        let saved = match usize::try_from(result) {
            Ok(bytes) if is_durable => sqe.offset as usize..sqe.offset as usize + bytes,
            Ok(_) if sqe.opcode == FSYNC => 0..self.medium.len(),
            _ => 0..0,
        };
        self.file.read_exact_at(&mut self.medium[saved.clone()], saved.start as u64).unwrap();
        result
    }
}

fn whims() -> impl Strategy<Value = Vec<Whim>> {
    let errors = [
        Errno::EINTR,
        Errno::EAGAIN,
        Errno::EOPNOTSUPP,
        Errno::EINVAL,
        Errno::ENOSPC,
        Errno::EIO,
        Errno::EFBIG,
        Errno::ENOMEM,
        Errno::ECANCELED,
    ];
    let errno = move || proptest::sample::select(errors.to_vec());
    let whim = prop_oneof![
        4 => Just(Whim::None),
        6 => (0..12_000_usize).prop_map(Whim::Part),
        1 => Just(Whim::Part(4096)),
        2 => errno().prop_map(Whim::Refused),
        2 => Just(Whim::Refused(Errno::EOPNOTSUPP)),
        1 => errno().prop_map(Whim::Failed),
    ];
    proptest::collection::vec(whim, 0..40)
}

/// An operation inside the disk, and how many bytes it transfers.
fn operations() -> impl Strategy<Value = (Operation, usize)> {
    let range = |most: usize| {
        (0..DISK_LEN / 512).prop_flat_map(move |first| (Just(first), 0..=most.min(DISK_LEN / 512 - first)))
    };
    let bytes = |(first, sectors): (usize, usize)| (first as u64 * 512, sectors * 512);
    prop_oneof![
        (range(32).prop_map(bytes), any::<bool>())
            .prop_map(|((offset, len), durable)| (Operation::Read { offset, durable }, len)),
        (range(32).prop_map(bytes), any::<bool>())
            .prop_map(|((offset, len), durable)| (Operation::Write { offset, durable }, len)),
        Just((Operation::Flush, 0)),
        range(256).prop_map(bytes).prop_map(|(offset, len)| (Operation::Discard { offset, len: len as u64 }, 0)),
        (range(256).prop_map(bytes), any::<bool>(), any::<bool>()).prop_map(|((offset, len), unmap, durable)| {
            (Operation::WriteZeroes { offset, len: len as u64, unmap, by_hand: false, durable }, 0)
        }),
    ]
}

/// `memory` in pieces: often aligned, or else of any length.
fn in_pieces(memory: &mut [u8], random: &mut Random) -> Buffers {
    let mut buffers = Buffers::default();
    let unit = random.pick(&[1, 512, 4096]);
    let mut rest = memory;
    while !rest.is_empty() {
        let len = (unit * (1 + random.below(4096 / unit as u64) as usize)).min(rest.len());
        let (piece, others) = rest.split_at_mut(len);
        buffers.push(piece.as_mut_ptr(), len);
        rest = others;
    }
    buffers
}

/// What an operation that ended means for the bytes of the disk.
fn check(operation: Operation, data: &[u8], is_ok: bool, model: &mut Model) {
    match operation {
        Operation::Read { offset, .. } if is_ok => model.read(offset as usize, data, &format!("{operation:?}")),
        Operation::Write { offset, .. } => model.write(offset as usize, data, is_ok),
        Operation::Discard { offset, len } => model.write(offset as usize, &vec![0; len as usize], false),
        Operation::WriteZeroes { offset, len, .. } => model.write(offset as usize, &vec![0; len as usize], is_ok),
        Operation::Read { .. } | Operation::Flush => {}
    }
}

/// The bytes that an operation has made durable if it went well.
fn made_durable(operation: Operation, data: &[u8]) -> std::ops::Range<usize> {
    match operation {
        Operation::Flush | Operation::Read { durable: true, .. } => 0..DISK_LEN,
        Operation::Write { offset, durable: true } => offset as usize..offset as usize + data.len(),
        Operation::WriteZeroes { offset, len, durable: true, .. } => offset as usize..(offset + len) as usize,
        _ => 0..0,
    }
}

#[repr(C, align(4096))]
struct Memory([u8; 32 * 512]);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Also what survives if power is lost at any time and takes along all that no flush has saved.
    #[test]
    fn whatever_the_kernel_answers_an_operation_is_done_or_fails(
        steps in proptest::collection::vec((operations(), whims(), any::<u64>()), 1..30),
        direct in any::<bool>(),
    ) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("image");
        let disk = pattern(1, DISK_LEN);
        std::fs::write(&path, &disk).unwrap();
        let Ok(file) = FileBackend::open(&path, &ImageOptions { direct, ..Default::default() }) else { return Ok(()) }; // no direct I/O here
        let backend = Backend::File(file);
        let mut kernel = Kernel::new(&path);
        let (mut model, mut after_power_loss) = (Model::new(&disk), Model::new(&disk));
        let mut has_lost = false;
        let mut memory = Box::new(Memory([0; 32 * 512]));
        for ((operation, len), whims, seed) in steps {
            let mut random = Random(seed | 1);
            let data = &mut memory.0[..len];
            data.copy_from_slice(&pattern(seed, len));
            kernel.whims = whims;
            let is_ok = kernel.run(&backend, operation, in_pieces(data, &mut random)) == Outcome::Ok;
            prop_assert!(is_ok || kernel.has_failed || has_lost, "{operation:?} failed for nothing");
            prop_assert!(!(direct && kernel.has_cached), "{operation:?} goes through the page cache");
            let is_flush = matches!(operation, Operation::Flush | Operation::WriteZeroes { durable: true, .. });
            prop_assert!(!(is_ok && is_flush && has_lost), "{operation:?} forgets that an earlier flush failed");
            has_lost |= kernel.has_lost;
            check(operation, data, is_ok, &mut model);
            model.read(0, &std::fs::read(&path).unwrap(), "in the file");
            check(operation, data, false, &mut after_power_loss);
            if is_ok {
                let range = made_durable(operation, data);
                after_power_loss.bytes[range.clone()].clone_from_slice(&model.bytes[range]);
            }
            after_power_loss.expect(&kernel.medium, &format!("after power loss: {operation:?}"));
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// A medium that fails, under the program
// ---------------------------------------------------------------------------------------------------------------------

/// A request on a range that no other request in flight touches.
#[derive(Clone, Debug)]
enum Request {
    Read { offset: usize, len: usize },
    Write { offset: usize, data: Vec<u8> },
    Zero { kind: u32, offset: usize, len: usize, unmap: bool },
    Flush,
}

/// Descriptors of a slot; its data is in pieces.
const CHAIN: u16 = 16;
const SLOTS: u16 = 8;
const SLOT_LEN: usize = DISK_LEN / SLOTS as usize;

impl Request {
    fn random(random: &mut Random, slot: u16) -> Self {
        let sectors = 1 + random.below(8) as usize;
        let first = random.below((SLOT_LEN / 512 - 8) as u64) as usize;
        let (offset, len) = (usize::from(slot) * SLOT_LEN + first * 512, sectors * 512);
        match random.below(10) {
            0..=3 => Self::Read { offset, len },
            4..=6 => Self::Write { offset, data: pattern(random.next(), len) },
            7 => Self::Zero { kind: T_DISCARD, offset, len, unmap: false },
            8 => Self::Zero { kind: T_WRITE_ZEROES, offset, len, unmap: random.below(2) == 0 },
            _ => Self::Flush,
        }
    }

    /// Writes its chain, with its data in pieces of any length, and offers it.
    fn offer(&self, queue: &mut Queue, slot: u16, random: &mut Random) {
        let sector = |offset: &usize| (*offset / 512) as u64;
        let (kind, at, len, flags) = match self {
            Self::Read { offset, len } => (T_IN, sector(offset), *len, WRITE),
            Self::Write { offset, data } => {
                queue.write(queue.data(slot), data);
                (T_OUT, sector(offset), data.len(), 0)
            }
            Self::Zero { kind, offset, len, unmap } => {
                let mut range = sector(offset).to_le_bytes().to_vec();
                range.extend(u32s(&[(*len / 512) as u32, u32::from(*unmap)]));
                queue.write(queue.data(slot), &range);
                (*kind, 0, 16, 0)
            }
            Self::Flush => (T_FLUSH, 0, 0, 0),
        };
        queue.write(queue.header(slot), &header(kind, 0, at));
        queue.write(queue.status_at(slot), &[0xAA]);
        let mut parts = vec![(queue.header(slot), 16, 0)];
        let mut done = 0;
        while done < len {
            let is_last = parts.len() + 2 >= usize::from(CHAIN);
            let piece = if is_last { len - done } else { 1 + random.below((len - done) as u64) as usize };
            parts.push((queue.data(slot) + done as u64, piece as u32, flags));
            done += piece;
        }
        parts.push((queue.status_at(slot), 1, WRITE));
        queue.write_chain(slot * CHAIN, &chained(&parts));
        queue.offer(slot * CHAIN);
    }

    fn is_discard(&self) -> bool {
        matches!(self, Self::Zero { kind: T_DISCARD, .. })
    }

    /// What the disk gets; by a discard perhaps.
    fn writes(&self) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Write { offset, data } => Some((*offset, data.clone())),
            Self::Zero { offset, len, .. } => Some((*offset, vec![0; *len])),
            Self::Read { .. } | Self::Flush => None,
        }
    }

    /// Checks how it ended. Whether it failed.
    fn end(&self, queue: &Queue, slot: u16, used: Used, model: &mut Model) -> bool {
        let status = queue.status(slot);
        let is_ok = status == OK;
        assert!(is_ok || status == IOERR, "{self:?} ended with {status}");
        let written = match self {
            Self::Read { len, .. } if is_ok => 1 + *len as u32,
            _ => 1,
        };
        assert_eq!(used.len, written, "{self:?}: what the used ring says was written");
        if let (true, Self::Read { offset, len }) = (is_ok, self) {
            model.read(*offset, &queue.read(queue.data(slot), *len), &format!("{self:?}"));
        }
        if let Some((offset, data)) = self.writes() {
            model.write(offset, &data, is_ok && !self.is_discard());
        }
        !is_ok
    }
}

/// A medium that does `percent` of what it is asked in another way.
fn any_fault(seed: u64, percent: u64) -> impl FnMut(&Call) -> Fault + Send {
    let mut random = Random(seed | 1);
    let errors = [Errno::EINTR, Errno::EAGAIN, Errno::ENOSPC, Errno::EIO, Errno::ENOMEM, Errno::EINVAL, Errno::ENODEV];
    move |call| {
        let len = match call {
            Call::Read { len, .. } | Call::Write { len, .. } => *len as u64,
            Call::Allocate { len, .. } => *len,
            Call::Flush => 0,
        };
        if random.below(100) >= percent {
            return Fault::None;
        }
        match call {
            Call::Allocate { .. } if random.below(2) == 0 => Fault::Error(Errno::EOPNOTSUPP, 0),
            _ => Fault::Error(random.pick(&errors), random.below(len + 1) as usize),
        }
    }
}

/// Serves `rounds` of random requests while the medium does what it likes. How many failed.
fn run_random(medium: &Medium, driver: &mut Driver, random: &mut Random, rounds: usize, model: &mut Model) -> u64 {
    let mut failed = 0;
    let queue = driver.queue();
    for _ in 0..rounds {
        let requests: Vec<_> = (0..SLOTS).map(|slot| Request::random(random, slot)).collect();
        for (slot, request) in (0..).zip(&requests) {
            request.offer(queue, slot, random);
        }
        queue.publish();
        let mut ended = BTreeSet::new();
        for used in queue.wait(usize::from(SLOTS)) {
            let slot = (used.id / u32::from(CHAIN)) as u16;
            assert!(ended.insert(slot), "slot {slot} was answered twice");
            failed += u64::from(requests[usize::from(slot)].end(queue, slot, used, model));
        }
    }
    let data = medium.state().data.clone();
    model.read(0, &data, "on the medium");
    failed
}

#[test]
fn whatever_the_medium_does_each_request_ends_once_and_what_is_answered_well_is_done() {
    for direct in [false, true] {
        let Some(medium) = Medium::new_or_skip("requests on a medium that fails", DISK_LEN) else { return };
        let disk = Disk::file("f", &medium.path()).policy("auto").line(&format!("direct = {direct}"));
        let mut target = Target::start(&[disk.line("block_size = \"4K\""), Disk::memory("other", "1M")]);
        let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256));
        let (mut random, mut model) = (Random(0xFA17), Model::new(&[0; DISK_LEN]));
        let mut failed = 0;
        for percent in [0, 1, 10, 50, 90] {
            medium.plan(any_fault(random.next(), percent));
            let more = run_random(&medium, &mut driver, &mut random, 150, &mut model);
            assert_eq!(more == 0, percent == 0, "{more} requests failed where {percent} % of the calls do");
            failed += more;
        }
        assert_eq!(target.count("f", 0, "device/failed"), failed);
        assert_eq!(target.count("f", 0, "in_flight"), 0);
        assert_serves(&target.path("other"));
        target.assert_sound();
        medium.plan(|_| Fault::None);
        drop(driver);
        let mut target = target.restart();
        let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256));
        assert_eq!(run_random(&medium, &mut driver, &mut random, 10, &mut model), 0, "the medium works again");
        target.assert_sound();
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Power loss
// ---------------------------------------------------------------------------------------------------------------------

/// Goes through what has happened to a medium, and asks at each point: if power was lost here, what could each byte be,
/// and is that what the guest was promised? Whatever was not flushed may be there or not, each byte by itself.
struct PowerLoss<'a> {
    requests: &'a [Request],
    /// A write is durable when it is answered, not only when a flush after it is.
    is_durable: bool,
    can_be: Model,
    promised: Model,
    /// What a read would find.
    now: Model,
    /// When what a byte is now was answered.
    settled: Vec<usize>,
    began: Vec<usize>,
}

const BEGINS: u64 = 0;
const ENDS: u64 = 1;

impl<'a> PowerLoss<'a> {
    fn check(requests: &'a [Request], is_durable: bool, log: &[Event]) {
        let zeroes = || Model::new(&[0; DISK_LEN]);
        let mut this = Self {
            requests,
            is_durable,
            can_be: zeroes(),
            promised: zeroes(),
            now: zeroes(),
            settled: vec![0; DISK_LEN],
            began: vec![0; requests.len()],
        };
        for (at, event) in (1..).zip(log) {
            match event {
                Event::Write { offset, data, durable } => this.write(*offset as usize, data, *durable),
                Event::Flush => this.can_be.bytes.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1))),
                Event::Mark(mark) if mark % 2 == BEGINS => this.begin((mark / 2) as usize, at),
                Event::Mark(mark) => this.end((mark / 2) as usize, at),
            }
        }
    }

    /// The medium is written to. The newest value of a byte is its last one.
    fn write(&mut self, offset: usize, data: &[u8], is_durable: bool) {
        for (values, &byte) in self.can_be.bytes[offset..].iter_mut().zip(data) {
            values.retain(|value| !is_durable && *value != byte);
            values.push(byte);
        }
        self.check_range(offset, data.len());
    }

    fn check_range(&self, offset: usize, len: usize) {
        for at in offset..offset + len {
            let (can_be, promised) = (&self.can_be.bytes[at], &self.promised.bytes[at]);
            let is_promised = can_be.iter().all(|value| promised.contains(value));
            assert!(is_promised, "byte {at} can be {can_be:?} after power is lost, and must be of {promised:?}");
        }
    }

    fn begin(&mut self, id: usize, at: usize) {
        self.began[id] = at;
        if let Some((offset, data)) = self.requests[id].writes() {
            self.promised.write(offset, &data, false);
            self.settled[offset..offset + data.len()].fill(usize::MAX);
        }
    }

    fn end(&mut self, id: usize, at: usize) {
        let request = &self.requests[id];
        if let Some((offset, data)) = request.writes() {
            let is_sure = !request.is_discard();
            self.now.write(offset, &data, is_sure);
            self.settled[offset..offset + data.len()].fill(at);
            if self.is_durable {
                self.promised.write(offset, &data, is_sure);
            }
            self.check_range(offset, data.len());
        } else if matches!(request, Request::Flush) {
            for byte in (0..DISK_LEN).filter(|&byte| self.settled[byte] < self.began[id]) {
                self.promised.bytes[byte].clone_from(&self.now.bytes[byte]);
            }
            self.check_range(0, DISK_LEN);
        }
    }
}

/// How a guest makes sure that what it writes stays.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    Flushed,
    /// The guest has switched it off.
    Off,
    /// The guest knows no flush.
    Unknown,
}

#[test]
fn what_was_promised_is_there_after_power_is_lost() {
    for (cache, direct, by_hand) in [
        (Cache::Flushed, false, false),
        (Cache::Flushed, true, true),
        (Cache::Off, false, true),
        (Cache::Off, true, false),
        (Cache::Unknown, false, false),
        (Cache::Unknown, true, true),
    ] {
        let Some(medium) = Medium::new_or_skip("power loss", DISK_LEN) else { return };
        medium.plan(refuse_some(by_hand));
        let disk = Disk::file("f", &medium.path()).policy("auto").line(&format!("direct = {direct}"));
        let target = Target::start(&[disk.line("block_size = \"4K\"")]);
        let without = if cache == Cache::Unknown { F_FLUSH | F_CONFIG_WCE } else { 0 };
        let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256).without(without));
        if cache == Cache::Off {
            driver.set_config(32, &[0]).unwrap();
        }
        let (mut random, mut requests) = (Random(0x9019), Vec::new());
        for _ in 0..100 {
            let first = requests.len();
            for slot in 0..SLOTS {
                let request = Request::random(&mut random, slot);
                medium.mark(2 * requests.len() as u64 + BEGINS);
                request.offer(driver.queue(), slot, &mut random);
                requests.push(request);
            }
            let queue = driver.queue();
            queue.publish();
            for _ in 0..SLOTS {
                queue.spin(1);
                let used = queue.used_at(queue.last_used);
                queue.last_used = queue.last_used.wrapping_add(1);
                let slot = (used.id / u32::from(CHAIN)) as u16;
                assert_eq!(queue.status(slot), OK, "{:?}", requests[first + usize::from(slot)]);
                medium.mark(2 * (first as u64 + u64::from(slot)) + ENDS);
            }
        }
        let log = std::mem::take(&mut medium.state().log);
        PowerLoss::check(&requests, cache != Cache::Flushed, &log);
    }
}

/// Some calls are to be repeated, after a part of them was done; and zeroes are perhaps to be written by hand.
fn refuse_some(by_hand: bool) -> impl FnMut(&Call) -> Fault + Send {
    let mut random = Random(3);
    move |call| match call {
        Call::Allocate { .. } if by_hand => Fault::Error(Errno::EOPNOTSUPP, 0),
        Call::Write { len, .. } if random.below(8) == 0 => Fault::Error(Errno::EINTR, *len / 2),
        Call::Flush if random.below(8) == 0 => Fault::Error(Errno::EINTR, 0),
        _ => Fault::None,
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Media that run out of room, and block devices that lose what they were given
// ---------------------------------------------------------------------------------------------------------------------

/// Says that a test is left out.
fn skip(what: &str, why: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}"); // not captured
}

/// A directory with a file system of its own.
struct Mounted(TempDir);

impl Mounted {
    fn tmpfs(size: &str) -> nix::Result<Self> {
        let directory = TempDir::new().unwrap();
        let options = format!("size={size}");
        mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))?;
        Ok(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of `size` bytes, all of them holes.
    fn sparse(&self, name: &str, size: u64) -> PathBuf {
        File::create(self.path(name)).unwrap().set_len(size).unwrap();
        self.path(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

/// A target with the file as disk `f`, and a disk that must not notice anything.
fn serve(file: &Path, direct: bool) -> Target {
    let disk = Disk::file("f", file).policy("none").line(&format!("direct = {direct}"));
    Target::start(&[disk, Disk::memory("other", "1M")])
}

fn driver(target: &Target) -> Driver {
    Driver::start(&target.path("f"), &Setup::new(1, 16))
}

/// One transfer of `len` bytes, up to 1 MiB, in one piece. Its status.
fn transfer(driver: &mut Driver, kind: u32, sector: u64, len: u32) -> u8 {
    let data = driver.setup.spare();
    let queue = driver.queue();
    queue.write(queue.header(0), &header(kind, 0, sector));
    let flags = if kind == T_IN { WRITE } else { 0 };
    queue.run_chain(&chained(&[(queue.header(0), 16, 0), (data, len, flags), (queue.status_at(0), 1, WRITE)]));
    queue.status(0)
}

/// Nobody else has noticed, and what failed was counted.
fn assert_alone(target: &mut Target, failed: u64) {
    assert_serves(&target.path("other"));
    assert_eq!(target.count("f", 0, "device/failed"), failed);
    assert_eq!(target.count("f", 0, "in_flight"), 0);
    target.assert_sound();
}

/// The middle of a write is beyond what the process may write: Linux does the first half, and signals at the second.
#[test]
fn a_limit_on_file_size_fails_requests_beyond_it_and_ends_no_process() {
    const LIMIT: u64 = 1 << 20;
    for direct in [false, true] {
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("image");
        std::fs::write(&image, vec![0; 2 << 20]).unwrap();
        let mut target = serve(&image, direct);
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        // SAFETY: the limit is there, and the old one is not asked for.
        let result = unsafe {
            libc::prlimit(target.pid_of("f").as_raw(), libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
        };
        assert_eq!(result, 0);
        let mut driver = driver(&target);
        let sector = LIMIT / 512;
        assert_eq!(transfer(&mut driver, T_OUT, sector - 8, 4096), OK, "below the limit");
        assert_eq!(transfer(&mut driver, T_OUT, sector - 64, 64 << 10), IOERR, "across the limit");
        assert_eq!(transfer(&mut driver, T_OUT, sector, 4096), IOERR, "beyond the limit");
        assert_eq!(transfer(&mut driver, T_IN, sector, 4096), OK, "reads have no limit");
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
        let said = format!("a write of 4096 bytes at {LIMIT} failed: EFBIG");
        wait_until("it is said", || target.log().contains(&said));
        assert_alone(&mut target, 2);
    }
}

/// There is room for 512 KiB of an image of 4 MiB.
#[test]
fn a_full_file_system_fails_what_it_has_no_room_for_and_goes_on_when_there_is_room() {
    let mounted = match Mounted::tmpfs("1M") {
        Ok(mounted) => mounted,
        Err(why) => return skip("a full file system: a tmpfs", why),
    };
    let image = mounted.sparse("image", 4 << 20);
    std::fs::write(mounted.path("ballast"), vec![1; 512 << 10]).unwrap();
    let mut target = serve(&image, false);
    let mut driver = driver(&target);
    assert_eq!(transfer(&mut driver, T_OUT, 0, 256 << 10), OK);
    assert_eq!(transfer(&mut driver, T_OUT, 1024, 1 << 20), IOERR, "a part of it has room");
    assert_eq!(transfer(&mut driver, T_OUT, 4096, 4096), IOERR);
    std::fs::remove_file(mounted.path("ballast")).unwrap();
    assert_eq!(transfer(&mut driver, T_OUT, 4096, 4096), OK, "there is room again");
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    assert_alone(&mut target, 2);
}

/// The medium of the block device is full, so what the device is given is lost: where that goes through the page cache,
/// only a flush finds out.
#[test]
fn a_block_device_that_loses_writes_fails_the_flush_after_them() {
    for direct in [false, true] {
        let mounted = match Mounted::tmpfs("1M") {
            Ok(mounted) => mounted,
            Err(why) => return skip("a block device that fails: a tmpfs", why),
        };
        let device = match Loop::new(&mounted.sparse("image", 4 << 20)) {
            Ok(device) => device,
            Err(why) => return skip("a block device that fails: a loop device", why),
        };
        // No room at all: for the loop driver a write that is done in part is done.
        std::fs::write(mounted.path("ballast"), vec![1; 2 << 20]).unwrap_err();
        let mut target = serve(&device.0, direct);
        let mut driver = driver(&target);
        if direct {
            assert_eq!(transfer(&mut driver, T_OUT, 0, 512 << 10), IOERR);
            assert_eq!(driver.queue().run(Op::Flush).status, OK, "nothing was lost that was said to be written");
        } else {
            assert_eq!(transfer(&mut driver, T_OUT, 0, 512 << 10), OK, "it is in the page cache");
            assert_eq!(driver.queue().run(Op::Flush).status, IOERR);
        }
        assert_alone(&mut target, 1);
        drop((driver, target));
    }
}

/// Linux reports lost writes once for each open file. A second flush, in flight at the same time, and a flush after a
/// durable write that has failed, must hear of them as well.
#[test]
fn flushes_in_flight_together_and_after_a_failed_durable_write_all_fail() {
    for after_durable_write in [false, true] {
        let mounted = match Mounted::tmpfs("1M") {
            Ok(mounted) => mounted,
            Err(why) => return skip("flushes on a device that loses writes: a tmpfs", why),
        };
        let device = match Loop::new(&mounted.sparse("image", 4 << 20)) {
            Ok(device) => device,
            Err(why) => return skip("flushes on a device that loses writes: a loop device", why),
        };
        std::fs::write(mounted.path("ballast"), vec![1; 2 << 20]).unwrap_err(); // no room at all
        let backend = Backend::File(FileBackend::open(&device.0, &ImageOptions::default()).unwrap());
        let mut kernel = Kernel::new(&device.0);
        let mut memory = Memory([7; 32 * 512]);
        let write = |kernel: &mut Kernel, memory: &mut Memory, durable: bool| {
            let mut buffers = Buffers::default();
            buffers.push(memory.0.as_mut_ptr(), memory.0.len());
            kernel.run(&backend, Operation::Write { offset: 0, durable }, buffers)
        };
        assert_eq!(write(&mut kernel, &mut memory, false), Outcome::Ok, "it is in the page cache");
        if after_durable_write {
            assert_eq!(write(&mut kernel, &mut memory, true), Outcome::Error);
        }
        let mut buffers = [Buffers::default(), Buffers::default()];
        let entries = buffers.each_mut().map(|buffers| match backend.begin(&Operation::Flush, buffers) {
            Step::Submit(entry) => entry,
            _ => unreachable!("nothing is known to have failed"),
        });
        let results = entries.map(|entry| kernel.perform(&entry));
        for (result, buffers) in results.into_iter().zip(&mut buffers).rev() {
            let step = backend.resume(&mut Operation::Flush, buffers, result);
            assert!(matches!(step, Step::Finished(Outcome::Error)), "a flush of {results:?}");
        }
        drop(backend);
    }
}

/// A flush that must wait for others costs its queue's thread a look now and then, and not all of its time.
#[test]
fn a_flush_beyond_those_in_flight_sleeps() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let backend = Backend::File(FileBackend::open(file.path(), &ImageOptions::default()).unwrap());
    let mut kernel = Kernel::new(file.path());
    let entry = |step| match step {
        Step::Submit(entry) => entry,
        Step::Finished(_) | Step::Again => unreachable!("it has something to wait for"),
    };
    let mut begun: Vec<_> = std::iter::repeat_with(Buffers::default).take(32).collect();
    let flushes: Vec<_> = begun.iter_mut().map(|buffers| entry(backend.begin(&Operation::Flush, buffers))).collect();
    let mut waiting = Buffers::default();
    let mut step = backend.begin(&Operation::Flush, &mut waiting);
    for _ in 0..3 {
        let result = kernel.perform(&entry(step));
        assert_eq!(result, -libc::ETIME);
        step = backend.resume(&mut Operation::Flush, &mut waiting, result);
    }
    let result = kernel.perform(&flushes[0]);
    assert!(matches!(backend.resume(&mut Operation::Flush, &mut begun[0], result), Step::Finished(Outcome::Ok)));
    let result = kernel.perform(&entry(step));
    step = backend.resume(&mut Operation::Flush, &mut waiting, result);
    let result = kernel.perform(&entry(step));
    assert_eq!(result, 0, "a flush");
    assert!(matches!(backend.resume(&mut Operation::Flush, &mut waiting, result), Step::Finished(Outcome::Ok)));
}

/// More flushes than open files for them: some wait for their turn, and all end.
#[test]
fn more_flushes_than_are_done_at_a_time_all_end() {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let mut target = serve(&image, false);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 256));
    let queue = driver.queue();
    let depth = 256 / PER_SLOT;
    for _ in 0..10 {
        queue.offer_many(depth, &Op::Flush);
        queue.publish();
        assert_eq!(queue.wait(depth.into()).len(), usize::from(depth));
        assert!((0..depth).all(|slot| queue.status(slot) == OK));
    }
    assert_alone(&mut target, 0);
}

/// What one queue is told about lost writes concerns every other one.
#[test]
fn a_failed_flush_fails_the_next_flush_of_every_queue() {
    let Some(medium) = Medium::new_or_skip("a flush that fails once", DISK_LEN) else { return };
    let mut target = Target::start(&[Disk::file("f", &medium.path()).queues(2), Disk::memory("other", "1M")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(2, 16));
    let mut has_failed = false;
    medium.plan(move |call| match call {
        Call::Flush if !std::mem::replace(&mut has_failed, true) => Fault::Error(Errno::EIO, 0),
        _ => Fault::None,
    });
    let [first, second] = &mut driver.queues[..] else { unreachable!() };
    assert_eq!(first.run(Op::Write(0, &[1; 512])).status, OK);
    assert_eq!(second.run(Op::Write(8, &[2; 512])).status, OK);
    assert_eq!(first.run(Op::Flush).status, IOERR);
    assert_eq!(second.run(Op::Flush).status, IOERR, "what this queue wrote may be lost as well");
    assert_eq!(first.run(Op::Flush).status, IOERR, "nothing has brought it back");
    assert_eq!(second.run(Op::Read(8, 512)).status, OK);
    wait_until("it is said", || target.log().contains("a flush failed"));
    drop(driver);
    target.assert_sound();
    let target = target.restart();
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 16));
    assert_eq!(driver.queue().run(Op::Flush).status, OK, "an operator who starts the target anew knows");
}

// ---------------------------------------------------------------------------------------------------------------------
// A kernel that refuses what it should not
// ---------------------------------------------------------------------------------------------------------------------

/// A target with a disk in a file, one in memory and another, and the kernel of the thread of the first queue of `disk`.
fn under(disk: &str, options: &[&str]) -> (Target, refusal::Kernel) {
    let directory = TempDir::new().unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let disks = [Disk::file("f", &image), Disk::memory("m", "1M"), Disk::memory("other", "1M")];
    write_config(&directory, &disks.map(|disk| disk.policy("none")));
    let target = Target::spawn(directory, |command| refusal::ask(command).args(options));
    let kernel = refusal::Kernel::new(target.pid(), &format!("{disk}-0"));
    (target, kernel)
}

/// Offers a read, and waits until the kernel has refused what it takes, several times.
fn offer_and_be_refused(driver: &mut Driver, kernel: &refusal::Kernel) {
    kernel.refuse(true);
    let (start, before) = (std::time::Instant::now(), kernel.refused());
    driver.queue().offer_many(1, &Op::Read(0, 512));
    driver.queue().publish();
    wait_until("it is tried again", || kernel.refused() >= before + 10);
    let most = start.elapsed().as_millis() / 10 + 2; // there is a pause of 10 ms before each but the first
    assert!(u128::from(kernel.refused() - before) <= most, "it spins: {} times", kernel.refused() - before);
}

/// A disk in memory needs io_uring only to interrupt its guest.
#[test]
fn a_queue_goes_on_when_the_kernel_no_longer_refuses_io_uring_enter() {
    for (disk, said) in [("f", "io_uring_enter: "), ("m", "an eventfd could not be signalled: ")] {
        let (mut target, kernel) = under(disk, &[]);
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        for _ in 0..3 {
            assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
            offer_and_be_refused(&mut driver, &kernel);
            assert_eq!(driver.queue().count_interrupts(), 0);
            assert_serves(&target.path("other"));
            kernel.refuse(false);
            assert_eq!(driver.queue().wait(1).len(), 1, "disk {disk}");
            assert_eq!(driver.queue().status(0), OK);
        }
        wait_until("it is said", || target.log().contains(&format!("{said}Operation not permitted")));
        target.assert_sound();
        target.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(target.wait().code(), Some(0), "{}", target.log());
    }
}

#[test]
fn a_queue_that_is_refused_io_uring_enter_does_not_block_the_stop() {
    let (mut target, kernel) = under("f", &["--stop-timeout", "1s"]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    offer_and_be_refused(&mut driver, &kernel);
    target.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(target.wait().code(), Some(1), "{}", target.log());
    assert!(target.log().contains("error: disk f: does not answer"), "{}", target.log());
    for disk in ["disk m", "disk other"] {
        assert!(!target.log().contains(disk), "it stopped in order: {}", target.log());
    }
}
