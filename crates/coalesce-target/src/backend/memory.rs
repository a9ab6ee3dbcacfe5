//! A disk in this process's memory. It needs no set-up, and its data is lost when the process ends.

use super::{Buffers, Operation, Outcome, Step};
use anyhow::{Context as _, Result, bail};
use coalesce_cli::counted;
use io_uring::{opcode, types::Timespec};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Memory that reads as zeroes until it is written, and takes space only where it was written.
#[derive(Debug)]
pub struct MemoryBackend {
    base: NonNull<libc::c_void>,
    size: u64,                // when it was made
    reserved: usize,          // bytes of address space
    reached: AtomicUsize,     // bytes of it that can be accessed: as many as the disk has ever had
    latencies: Vec<Timespec>, // taken in turn; the kernel reads one when its timeout is submitted
    next: AtomicUsize,
}

// SAFETY: the memory is only copied to and from. Overlapping requests race, as on any disk.
unsafe impl Send for MemoryBackend {}
// SAFETY: as above.
unsafe impl Sync for MemoryBackend {}

const PAGE: u64 = 4096;
/// The most bytes copied in one pass of the queue's loop.
const PIECE: usize = 4 << 20;
/// The most bytes deallocated in one pass of the queue's loop.
const RANGE_PIECE: u64 = 64 << 20;

/// How many times its first size a memory disk can have. Its address space is reserved at once, because queues have its
/// address.
const GROWTH: usize = 16;

/// Address space of which nothing can be accessed.
fn reserve(len: NonZeroUsize) -> nix::Result<NonNull<libc::c_void>> {
    // SAFETY: a new mapping that overlaps no other.
    unsafe { mmap_anonymous(None, len, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE) }
}

/// Whether this process may have as much address space as it likes.
fn has_address_space() -> bool {
    getrlimit(Resource::RLIMIT_AS).is_ok_and(|(soft, _)| soft == RLIM_INFINITY)
}

/// The bytes deallocated in this pass, such that the rest begins at a page.
const fn range_piece(offset: u64) -> u64 {
    RANGE_PIECE - offset % PAGE
}

/// [`TIMES`] times, evenly spread, in an order in which neighbours differ: operations that begin together then end one by
/// one, as on a real disk. If they ended together, their guest would begin the next ones together, too.
fn spread(ns: &RangeInclusive<u64>) -> Vec<Timespec> {
    let time = |i: u64| ns.start() + (ns.end() - ns.start()) * (i * STRIDE % TIMES) / (TIMES - 1);
    (0..TIMES).map(|i| Timespec::from(Duration::from_nanos(time(i)))).collect()
}

/// A prime.
const TIMES: u64 = 251;
const STRIDE: u64 = 97;

impl MemoryBackend {
    /// A disk of `size` bytes, each of whose operations takes a time in this range, or longer. Any number of them wait at once.
    ///
    /// # Errors
    /// The size is 0, is not a multiple of 512, or is more than the system can map.
    pub fn new(size: u64, latency_ns: RangeInclusive<u64>) -> Result<Self> {
        let Some(len) = usize::try_from(size).ok().and_then(NonZeroUsize::new).filter(|_| size.is_multiple_of(512))
        else {
            bail!("a memory disk of {}: the size must be a multiple of 512 and not 0", counted(size, "byte"));
        };
        let most = len.checked_mul(const { NonZeroUsize::new(GROWTH).unwrap() }).filter(|_| has_address_space());
        let reserved = most.and_then(|most| Some((reserve(most).ok()?, most)));
        let reserved = reserved.map_or_else(|| reserve(len).map(|base| (base, len)), Ok);
        let (base, reserved) = reserved.with_context(|| {
            format!(
                "a memory disk of {size} bytes needs as many addresses in one piece, of which a process has some 80 TiB, and less under ulimit -v"
            )
        })?;
        let latencies = if *latency_ns.end() > 0 { spread(&latency_ns) } else { Vec::new() };
        let (reserved, reached, next) = (reserved.get(), AtomicUsize::new(0), AtomicUsize::new(0));
        let disk = Self { base, size, reserved, reached, latencies, next };
        disk.reach(size)?;
        Ok(disk)
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn measure(&self, wanted: Option<u64>) -> Result<u64> {
        let most = self.reserved;
        match wanted {
            None => bail!("size is missing: a memory disk has no file that tells it; allowed: up to {most}"),
            Some(size) if size > most as u64 => {
                bail!("size is {size}; allowed: up to {most}, for which this memory disk has addresses")
            }
            Some(size) => Ok(size),
        }
    }

    pub(super) fn reach(&self, size: u64) -> Result<()> {
        if size <= self.reached() {
            return Ok(());
        }
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the range is reserved, and what of it was accessible stays so.
        unsafe { mprotect(self.base, size as usize, protection) }.with_context(|| {
            format!("a memory disk of {size} bytes is more than the system promises (vm.overcommit_memory, ulimit -v)")
        })?;
        self.reached.store(size as usize, Ordering::Release);
        Ok(())
    }

    pub(super) fn forget_beyond(&self, size: u64) {
        if let Some(len) = self.reached().checked_sub(size) {
            self.zero(size, len);
        }
    }

    /// In bytes. Requests that were taken before the disk became smaller may be beyond its end.
    fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire) as u64
    }

    pub(super) fn begin(&self, operation: &Operation, buffers: &Buffers) -> Step {
        if self.latencies.is_empty() {
            return self.start(operation, buffers);
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.latencies.len();
        Step::Submit(opcode::Timeout::new(&self.latencies[next]).build())
    }

    fn start(&self, operation: &Operation, buffers: &Buffers) -> Step {
        let is_large = match *operation {
            Operation::Read { .. } | Operation::Write { .. } => buffers.len() > PIECE,
            Operation::Flush => false,
            Operation::Discard { offset, len } | Operation::WriteZeroes { offset, len, .. } => {
                len > range_piece(offset)
            }
        };
        if is_large {
            Step::Again
        } else {
            Step::Finished(self.perform(operation, buffers).map_or(Outcome::Error, |_| Outcome::Ok))
        }
    }

    /// Performs an operation after its wait, whose result is never 0, or the next piece of a large one.
    pub(super) fn resume(&self, operation: &mut Operation, buffers: &mut Buffers, result: i32) -> Step {
        if result != 0 {
            return self.start(operation, buffers);
        }
        let Some(done) = self.perform(operation, buffers) else { return Step::Finished(Outcome::Error) };
        let is_done = match operation {
            Operation::Read { offset, .. } | Operation::Write { offset, .. } => {
                *offset += done;
                buffers.advance(done as usize);
                buffers.is_empty()
            }
            Operation::Flush => true,
            Operation::Discard { offset, len } | Operation::WriteZeroes { offset, len, .. } => {
                *offset += done;
                *len -= done;
                *len == 0
            }
        };
        if is_done { Step::Finished(Outcome::Ok) } else { Step::Again }
    }

    /// Performs a piece from the start of the rest. Returns its number of bytes; `None` if it failed.
    fn perform(&self, operation: &Operation, buffers: &Buffers) -> Option<u64> {
        match *operation {
            Operation::Read { offset, .. } => self.copy(offset, buffers, |disk, guest, len| {
                // SAFETY: `copy` passes ranges inside the disk and inside guest memory, which never overlap.
                unsafe { std::ptr::copy_nonoverlapping(disk, guest, len) }
            }),
            Operation::Write { offset, .. } => self.copy(offset, buffers, |disk, guest, len| {
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(guest, disk, len) }
            }),
            Operation::Flush => Some(0),
            Operation::Discard { offset, len } | Operation::WriteZeroes { offset, len, .. } => {
                let len = len.min(range_piece(offset));
                self.zero(offset, len).then_some(len)
            }
        }
    }

    fn copy(&self, offset: u64, buffers: &Buffers, copy: impl Fn(*mut u8, *mut u8, usize)) -> Option<u64> {
        let len = buffers.len().min(PIECE);
        let disk = self.range(offset, len as u64)?;
        buffers.parts(len, |guest, at, n| copy(disk.wrapping_add(at), guest, n));
        Some(len as u64)
    }

    /// Deallocates whole pages, and writes the edges.
    fn zero(&self, offset: u64, len: u64) -> bool {
        let Some(start) = self.range(offset, len) else { return false };
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(PAGE).min(end), (end / PAGE * PAGE).max(offset));
        if first >= last {
            // SAFETY: `range` has checked it.
            unsafe { std::ptr::write_bytes(start, 0, len as usize) };
            return true;
        }
        let pages = self.base.as_ptr().wrapping_byte_add(first as usize);
        // SAFETY: whole pages of the mapping, which read as zeroes afterwards; and the edges around them, as checked.
        unsafe {
            std::ptr::write_bytes(start, 0, (first - offset) as usize);
            std::ptr::write_bytes(start.wrapping_add((last - offset) as usize), 0, (end - last) as usize);
            let pages = NonNull::new_unchecked(pages);
            madvise(pages, (last - first) as usize, MmapAdvise::MADV_DONTNEED).is_ok()
        }
    }

    /// The address of a range, if it is inside the disk.
    fn range(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= self.reached()).then(|| self.base.as_ptr().cast::<u8>().wrapping_add(offset as usize))
    }
}

impl Drop for MemoryBackend {
    fn drop(&mut self) {
        // SAFETY: this process owns the mapping, and nothing uses it any more.
        let _ = unsafe { munmap(self.base, self.reserved) };
    }
}
