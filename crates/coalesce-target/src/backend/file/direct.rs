//! A file without the page cache. A medium transfers whole blocks, and may want an alignment of memory. A guest may send other
//! requests: they go through a bounce buffer. The page cache is no way around: it and what is read and written beside it do not
//! see each other.

use super::NEXT_LOOK;
use super::changes::Changes;
use crate::backend::{Buffers, Operation, Step};
use anyhow::{Context as _, Result, bail, ensure};
use io_uring::opcode;
use io_uring::types::Fd;
use libc::iovec;
use std::fs::{File, OpenOptions};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that is open with O_DIRECT.
#[derive(Debug)]
pub struct Direct {
    pub file: File,
    /// Of offsets and of the length of each segment: a block.
    pub offset_align: u64,
    pub memory_align: usize,
    /// Those that no request has. `None`: it is not allocated yet.
    bounces: Mutex<Vec<Option<Box<Bounce>>>>,
}

/// The most bounce buffers of a disk, and thus the most requests that go through one at a time.
pub const BOUNCES_MAX: usize = 16;

/// The bytes of a bounce buffer.
pub const BOUNCE_LEN: usize = 128 << 10;
pub const BOUNCE_PAGES: usize = BOUNCE_LEN / size_of::<Page>();

#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; 4096]);

/// Memory with any alignment that a medium may want.
#[derive(Debug)]
pub struct Bounce {
    iovec: iovec, // the kernel reads it when it takes the transfer
    _pages: Box<[Page]>,
    piece: Piece,
}

// SAFETY: the address is that of its own pages.
unsafe impl Send for Bounce {}

impl Bounce {
    fn new() -> Box<Self> {
        let mut pages = vec![Page([0; size_of::<Page>()]); BOUNCE_PAGES].into_boxed_slice();
        let iovec = iovec { iov_base: pages.as_mut_ptr().cast(), iov_len: 0 };
        Box::new(Self { iovec, _pages: pages, piece: Piece::default() })
    }

    /// Where the request's bytes are.
    const fn bytes(&self) -> *mut u8 {
        self.iovec.iov_base.cast::<u8>().wrapping_add(self.piece.skip)
    }
}

/// What goes through a bounce buffer at a time: the next bytes of a request, and the blocks that they are in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    start: u64,   // of the blocks
    len: usize,   // of the blocks
    skip: usize,  // bytes of the blocks before those of the request
    bytes: usize, // of the request
}

impl Piece {
    /// Whether nothing else is in its blocks. A change of a part of a block is alone, from when it reads the block until
    /// it has stored it.
    const fn is_whole(&self) -> bool {
        self.bytes == self.len
    }
}

/// Where a request is that the medium does not take as it is, or not yet.
#[derive(Debug, Default)]
pub enum Detour {
    /// On its way.
    #[default]
    None,
    /// It looks after a while whether it can begin.
    Waiting,
    /// The medium fills the buffer.
    Filling(Box<Bounce>),
    /// The buffer is stored on the medium.
    Storing(Box<Bounce>),
}

/// Lets a request look again later.
pub fn wait(buffers: &mut Buffers) -> Step {
    buffers.detour = Detour::Waiting;
    Step::Submit(opcode::Timeout::new(&NEXT_LOOK).build())
}

impl Direct {
    pub fn open(path: &Path, read_only: bool) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .context("cannot be opened for direct I/O")?;
        // SAFETY: all zeroes is a valid statx.
        let mut statx: libc::statx = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open, the path is empty and ends with a zero byte, and statx is large enough.
        let result = unsafe {
            libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut statx)
        };
        let known = result == 0 && statx.stx_mask & libc::STATX_DIOALIGN != 0;
        match (known, statx.stx_dio_offset_align, statx.stx_dio_mem_align) {
            (false, ..) => Self::new(file, 4096, 4096), // not reported before Linux 6.1
            (true, 0, _) | (true, _, 0) => bail!("its file system has no direct I/O"),
            (true, offset, memory) => Self::new(file, offset, memory),
        }
    }

    fn new(file: File, offset_align: u32, memory_align: u32) -> Result<Self> {
        let (block, page) = (BOUNCE_LEN as u32, size_of::<Page>() as u32);
        ensure!(
            block.is_multiple_of(offset_align) && page.is_multiple_of(memory_align),
            "direct I/O with it needs blocks of {offset_align} bytes at multiples of {memory_align} in memory; allowed: powers of \
             two up to {block} and {page}"
        );
        let bounces = Mutex::new(std::iter::repeat_with(|| None).take(BOUNCES_MAX).collect());
        Ok(Self { file, offset_align: offset_align.into(), memory_align: memory_align as usize, bounces })
    }

    /// The next piece of an operation that the medium does not take as it is.
    pub fn misfit(&self, operation: &Operation, buffers: &Buffers) -> Option<Piece> {
        let block = self.offset_align as usize;
        let is_aligned = |iovec: &iovec| {
            (iovec.iov_base as usize).is_multiple_of(self.memory_align) && iovec.iov_len.is_multiple_of(block)
        };
        let (offset, left, is_aligned) = match *operation {
            Operation::Read { offset, .. } | Operation::Write { offset, .. } => {
                (offset, buffers.len() as u64, buffers.rest().iter().all(is_aligned))
            }
            Operation::WriteZeroes { offset, len, by_hand: true, .. } => (offset, len, len >= self.offset_align),
            _ => return None,
        };
        let skip = (offset % self.offset_align) as usize;
        if (is_aligned && skip == 0) || left == 0 {
            return None;
        }
        let left = left.min(BOUNCE_LEN as u64) as usize;
        let len = match operation {
            Operation::Read { .. } => (skip + left).next_multiple_of(block).min(BOUNCE_LEN),
            _ if skip == 0 && left >= block => left / block * block,
            _ => block,
        };
        Some(Piece { start: offset - skip as u64, len, skip, bytes: left.min(len - skip) })
    }

    /// Begins a piece of an operation.
    pub fn begin(&self, piece: Piece, operation: &Operation, buffers: &mut Buffers, changes: &Changes) -> Step {
        let Some(bounce) = self.bounces().pop() else { return wait(buffers) };
        let is_read = is_read(operation);
        if !is_read && !(if piece.is_whole() { changes.begin() } else { changes.begin_alone() }) {
            self.bounces().push(bounce);
            return wait(buffers);
        }
        let mut bounce = bounce.unwrap_or_else(Bounce::new);
        (bounce.piece, bounce.iovec.iov_len) = (piece, piece.len);
        if !is_read && piece.is_whole() {
            return self.store(bounce, operation, buffers);
        }
        let entry = opcode::Readv::new(self.fd(), &raw const bounce.iovec, 1).offset(piece.start).build();
        buffers.detour = Detour::Filling(bounce);
        Step::Submit(entry)
    }

    /// Goes on when the medium has filled the buffer: by storing it, or with the result for the request's next bytes.
    pub fn filled(
        &self,
        bounce: Box<Bounce>,
        (operation, buffers): (&Operation, &mut Buffers),
        result: i32,
        changes: &Changes,
    ) -> ControlFlow<Step, i32> {
        let done = self.progress(&bounce.piece, result);
        let (is_read, from) = (is_read(operation), bounce.bytes());
        if !is_read && done > 0 {
            return ControlFlow::Break(self.store(bounce, operation, buffers));
        }
        if !is_read {
            changes.end_alone();
        }
        buffers.parts(usize::try_from(done).unwrap_or(0), |guest, at, len| {
            // SAFETY: the bytes are in the bounce buffer and in guest memory, which never overlap.
            unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(at), guest, len) }
        });
        self.give_back(bounce);
        ControlFlow::Continue(done)
    }

    /// The result for the request's next bytes, when the buffer is stored.
    pub fn stored(&self, bounce: Box<Bounce>, result: i32, changes: &Changes) -> i32 {
        let done = self.progress(&bounce.piece, result);
        if bounce.piece.is_whole() {
            changes.end();
        } else {
            changes.end_alone();
        }
        self.give_back(bounce);
        done
    }

    /// What of a result is whole blocks. A medium does no part of a block, and the rest of one could not follow.
    pub const fn whole_blocks(&self, result: i32) -> i32 {
        if result > 0 { result - result % self.offset_align as i32 } else { result }
    }

    /// Puts the request's bytes into the buffer, and stores it.
    fn store(&self, bounce: Box<Bounce>, operation: &Operation, buffers: &mut Buffers) -> Step {
        let (Piece { start, bytes, .. }, to) = (bounce.piece, bounce.bytes());
        if matches!(operation, Operation::WriteZeroes { .. }) {
            // SAFETY: the bytes are in the bounce buffer, which nobody else uses.
            unsafe { std::ptr::write_bytes(to, 0, bytes) };
        } else {
            buffers.parts(bytes, |guest, at, len| {
                // SAFETY: as when it was filled.
                unsafe { std::ptr::copy_nonoverlapping(guest, to.wrapping_add(at), len) }
            });
        }
        let flags = if matches!(operation, Operation::Write { durable: true, .. }) { libc::RWF_DSYNC } else { 0 };
        let entry = opcode::Writev::new(self.fd(), &raw const bounce.iovec, 1).offset(start).rw_flags(flags).build();
        buffers.detour = Detour::Storing(bounce);
        Step::Submit(entry)
    }

    /// How many bytes of the request a result is, or its error.
    fn progress(&self, piece: &Piece, result: i32) -> i32 {
        match usize::try_from(self.whole_blocks(result)) {
            Ok(bytes) => bytes.saturating_sub(piece.skip).min(piece.bytes) as i32,
            Err(_) => result,
        }
    }

    fn give_back(&self, bounce: Box<Bounce>) {
        self.bounces().push(Some(bounce));
    }

    fn bounces(&self) -> MutexGuard<'_, Vec<Option<Box<Bounce>>>> {
        self.bounces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fd(&self) -> Fd {
        Fd(self.file.as_raw_fd())
    }
}

const fn is_read(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Outcome;
    use crate::backend::file::{FileBackend, ImageOptions};
    use io_uring::IoUring;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::ops::Range;
    use std::time::{Duration, Instant};

    const BLOCK: usize = 4096;
    const DISK_LEN: usize = 512 << 10;
    const SECTORS: usize = DISK_LEN / 512;
    const DEPTH: usize = 40;
    const HANG: Duration = Duration::from_secs(30);

    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 16) as usize % bound
        }
    }

    /// An operation in flight, and memory of a guest.
    struct Request {
        operation: Operation,
        buffers: Buffers,
        range: Range<usize>, // of the disk
        memory: Vec<u8>,
        skip: usize, // bytes of the memory before its data
    }

    impl Request {
        /// In pieces of any length, at any address.
        fn new(operation: Operation, range: Range<usize>, data: &[u8], random: &mut Random) -> Self {
            let skip = random.below(BLOCK);
            let mut memory = vec![0; skip];
            memory.extend(data);
            let (mut buffers, mut rest) = (Buffers::default(), &mut memory[skip..]);
            while !rest.is_empty() {
                let (piece, others) = rest.split_at_mut(1 + random.below(rest.len()));
                buffers.push(piece.as_mut_ptr(), piece.len());
                rest = others;
            }
            Self { operation, buffers, range, memory, skip }
        }

        fn data(&self) -> &[u8] {
            &self.memory[self.skip..]
        }
    }

    /// An image whose medium has large blocks, as far as its back end knows, and the file that takes the place of the page cache.
    fn image(bytes: &[u8]) -> Option<(tempfile::NamedTempFile, FileBackend, File)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file.as_file().sync_all().unwrap();
        let options = ImageOptions { direct: true, ..ImageOptions::default() };
        let mut backend = match FileBackend::open(file.path(), &options) {
            Ok(backend) => backend,
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: direct I/O: {why:#}"); // not captured
                return None;
            }
        };
        let direct = backend.direct.as_mut().unwrap();
        (direct.offset_align, direct.memory_align) = (BLOCK as u64, BLOCK);
        (backend.changes, backend.is_in_memory) = (Changes::new(true), false);
        let cache = tempfile::tempfile().unwrap();
        backend.file = cache.try_clone().unwrap();
        Some((file, backend, cache))
    }

    /// Requests in flight together, none of which has a sector of another.
    struct Run {
        uring: IoUring,
        random: Random,
        is_faulty: bool,
        in_flight: BTreeMap<u64, Request>,
        waited: usize,
        start: Instant,
        /// The bytes of the disk; `None` where a change failed.
        disk: Vec<Option<u8>>,
    }

    impl Run {
        fn new(disk: &[u8], seed: u64, is_faulty: bool) -> Self {
            let disk = disk.iter().map(|byte| Some(*byte)).collect();
            let (uring, random) = (IoUring::new(256).unwrap(), Random(seed | 1));
            let (in_flight, start) = (BTreeMap::new(), Instant::now());
            Self { uring, random, is_faulty, in_flight, waited: 0, start, disk }
        }

        /// Begins a random request, if the sectors that it wants are free.
        fn begin(&mut self, id: u64, backend: &FileBackend) {
            let first = self.random.below(SECTORS);
            let most = if self.random.below(16) == 0 { SECTORS } else { 20 };
            let range = first * 512..(first + 1 + self.random.below(most.min(SECTORS - first))) * 512;
            let is_free = |other: &Request| range.start >= other.range.end || other.range.start >= range.end;
            if !self.in_flight.values().all(is_free) {
                return;
            }
            let (offset, len, durable) = (range.start as u64, range.len() as u64, self.random.below(16) == 0);
            let mut data = vec![0; range.len()];
            let operation = match self.random.below(4) {
                0 => Operation::Read { offset, durable },
                1 => {
                    data.clear();
                    let (unmap, by_hand) = (self.random.below(2) == 0, self.random.below(2) == 0);
                    Operation::WriteZeroes { offset, len, unmap, by_hand, durable }
                }
                _ => {
                    let byte = self.random.below(256);
                    data.iter_mut().enumerate().for_each(|(at, one)| *one = (byte + at * 7 + at / 512) as u8);
                    Operation::Write { offset, durable }
                }
            };
            let mut request = Request::new(operation, range, &data, &mut self.random);
            let step = backend.begin(&request.operation, &mut request.buffers);
            self.in_flight.insert(id, request);
            self.go_on(id, step);
        }

        fn go_on(&mut self, id: u64, step: Step) {
            match step {
                Step::Submit(entry) => {
                    self.waited += usize::from(matches!(self.in_flight[&id].buffers.detour, Detour::Waiting));
                    // SAFETY: its memory and its buffers stay where they are until it has ended.
                    unsafe { self.uring.submission().push(&entry.user_data(id)) }.unwrap();
                }
                Step::Finished(outcome) => self.end(id, outcome == Outcome::Ok),
                Step::Again => unreachable!("the kernel takes all of it"),
            }
        }

        fn end(&mut self, id: u64, is_ok: bool) {
            let request = self.in_flight.remove(&id).unwrap();
            assert!(is_ok || self.is_faulty, "{:?} failed", request.operation);
            let what = request.operation;
            for (at, byte) in self.disk[request.range.clone()].iter_mut().enumerate() {
                match what {
                    _ if !is_ok && !is_read(&what) => *byte = None,
                    Operation::Read { .. } if is_ok => {
                        let read = request.data()[at];
                        assert_eq!(byte.unwrap_or(read), read, "byte {at} of {what:?}");
                    }
                    Operation::Write { .. } => *byte = Some(request.data()[at]),
                    Operation::WriteZeroes { .. } => *byte = Some(0),
                    _ => {}
                }
            }
        }

        /// Waits for a completion, and goes on with what has completed.
        fn reap(&mut self, backend: &FileBackend) {
            assert!(self.start.elapsed() < HANG, "hung: {} in flight", self.in_flight.len());
            self.uring.submit_and_wait(1).unwrap();
            let completed: Vec<_> = self.uring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (id, mut result) in completed {
                if self.is_faulty {
                    result = match self.random.below(16) {
                        0 => -libc::EINTR,
                        1 => -libc::EAGAIN,
                        2 => -libc::EIO,
                        3 if result == 0 => -libc::EOPNOTSUPP,
                        3..6 if result > 0 => self.random.below(result as usize) as i32,
                        _ => result,
                    };
                }
                let request = self.in_flight.get_mut(&id).unwrap();
                let step = backend.resume(&mut request.operation, &mut request.buffers, result);
                self.go_on(id, step);
            }
        }

        /// Nothing is in flight, and nothing was kept or went astray.
        fn check(&mut self, backend: &FileBackend, file: &tempfile::NamedTempFile, cache: &File) {
            while !self.in_flight.is_empty() {
                self.reap(backend);
            }
            assert!(backend.changes.is_none());
            assert_eq!(backend.direct.as_ref().unwrap().bounces().len(), BOUNCES_MAX);
            assert_eq!(cache.metadata().unwrap().len(), 0, "something went through the page cache");
            for (at, (byte, expected)) in std::fs::read(file.path()).unwrap().iter().zip(&self.disk).enumerate() {
                assert_eq!(expected.unwrap_or(*byte), *byte, "byte {at} of the file");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8) })]

        /// Most of them share their blocks with others, and none is aligned in memory.
        #[test]
        fn requests_of_any_alignment_are_done_beside_each_other_without_the_page_cache(
            seed in any::<u64>(),
            is_faulty in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..DISK_LEN).map(|at| (at / 7) as u8).collect();
            let Some((file, backend, cache)) = image(&bytes) else { return Ok(()) };
            let mut run = Run::new(&bytes, seed, is_faulty);
            for id in 0..250 {
                while run.in_flight.len() >= DEPTH {
                    run.reap(&backend);
                }
                run.begin(id, &backend);
                if run.random.below(8) == 0 && !run.in_flight.is_empty() {
                    run.reap(&backend);
                }
            }
            run.check(&backend, &file, &cache);
            assert!(run.waited > 0);
        }
    }

    /// More than there are bounce buffers, then as many writes that each want to be alone in the same few blocks.
    #[test]
    fn more_requests_than_bounce_buffers_all_end() {
        let bytes: Vec<u8> = (0..DISK_LEN).map(|at| (at / 512) as u8).collect();
        let Some((file, backend, cache)) = image(&bytes) else { return };
        let mut run = Run::new(&bytes, 1, false);
        for (id, is_write) in (0..6 * BOUNCES_MAX as u64).map(|id| (id, id >= 3 * BOUNCES_MAX as u64)) {
            let offset = id * 512;
            let operation = match is_write {
                true => Operation::Write { offset, durable: false },
                false => Operation::Read { offset, durable: false },
            };
            let range = offset as usize..offset as usize + 512;
            let mut request = Request::new(operation, range, &[id as u8 ^ 0xff; 512], &mut run.random);
            let step = backend.begin(&request.operation, &mut request.buffers);
            let waits = matches!(request.buffers.detour, Detour::Waiting);
            assert_eq!(waits, id >= BOUNCES_MAX as u64, "request {id}");
            run.in_flight.insert(id, request);
            run.go_on(id, step);
        }
        run.check(&backend, &file, &cache);
    }

    /// statx(2): the alignment of offsets is that of the lengths of segments, too. Linux 6.1 refuses others.
    #[test]
    fn segments_that_are_no_whole_blocks_are_put_together() {
        let Some((_file, mut backend, _)) = image(&[0; DISK_LEN]) else { return };
        let direct = backend.direct.as_mut().unwrap();
        direct.memory_align = 4;
        let mut page = Page([0; BLOCK]);
        let mut misfit = |lens: &[usize], offset| {
            let (mut buffers, mut at) = (Buffers::default(), 0);
            for &len in lens {
                buffers.push(page.0[at..].as_mut_ptr(), len);
                at = (at + len) % BLOCK;
            }
            direct.misfit(&Operation::Read { offset, durable: false }, &buffers).is_some()
        };
        assert!(!misfit(&[BLOCK], 0) && !misfit(&[BLOCK, BLOCK], BLOCK as u64) && !misfit(&[], 512));
        assert!(misfit(&[BLOCK - 512, 512], 0), "two parts of a block");
        assert!(misfit(&[BLOCK], 512) && misfit(&[512], 0));
    }

    #[test]
    fn a_medium_for_which_no_bounce_buffer_is_right_is_refused() {
        let new = |offset_align, memory_align| Direct::new(tempfile::tempfile().unwrap(), offset_align, memory_align);
        for (offset_align, memory_align) in [(512, 4), (512, 512), (4096, 4096), (BOUNCE_LEN as u32, 1)] {
            assert!(new(offset_align, memory_align).is_ok());
        }
        for (offset_align, memory_align) in [(2 * BOUNCE_LEN as u32, 512), (512, 8192), (520, 4), (512, 12)] {
            let error = new(offset_align, memory_align).unwrap_err().to_string();
            assert!(error.contains(&format!("blocks of {offset_align} bytes")), "{error}");
        }
    }
}
