//! A raw file or a block device, through io_uring.

mod changes;
mod direct;

pub(super) use direct::Detour;

use super::format::format;
use super::{Buffers, Operation, Outcome, Step};
use crate::os::lock::{ALL, lock};
use crate::os::shared_memory::is_in_memory;
use anyhow::{Context as _, Result, bail};
use changes::Changes;
use coalesce_cli::counted;
use direct::{BOUNCE_LEN, BOUNCE_PAGES, Direct, Page};
use io_uring::types::{Fd, FsyncFlags, Timespec};
use io_uring::{opcode, squeue};
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use tracing::{error, warn};

/// When an image is locked against other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// While it is open.
    Open,
    /// While it is claimed, so that two targets can have it open, one of which serves it.
    Claimed,
}

/// How an image is opened.
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Only to be read.
    pub read_only: bool,
    /// Without the page cache.
    pub direct: bool,
    /// As it is, also where it has the mark of a format that is not raw.
    pub raw: bool,
    /// When it is locked.
    pub locking: Locking,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self { read_only: false, direct: false, raw: false, locking: Locking::Open }
    }
}

/// An image that no other process uses.
#[derive(Debug)]
pub struct FileBackend {
    path: PathBuf,
    read_only: bool,
    locking: Locking,
    file: File,
    direct: Option<Direct>,
    /// Its data is in memory: nothing waits for a device, and io_uring would leave each request to one of its workers.
    is_in_memory: bool,
    /// Of a file in memory: what workers of io_uring change. That locks the file, perhaps for seconds, and a write waits for it.
    /// Of a medium of which a guest can write a part of a block: whatever is changed.
    changes: Changes,
    size: u64,
    block_size: u32,
    /// The same file, opened once for each flush that can be in flight. Linux reports lost writes once for each open
    /// file description (`errseq_t`). If two flushes in flight shared one, the second could succeed before the failure
    /// of the first is known. A durable write that fails would hide the failure from the next flush.
    flushes: Mutex<Vec<File>>,
    /// A flush failed. Linux forgets the lost writes once it has reported them, so every later flush fails here.
    has_lost_writes: AtomicBool,
}

/// The zeroes written at a time.
static ZEROES: [Page; BOUNCE_PAGES] = [const { Page([0; size_of::<Page>()]) }; BOUNCE_PAGES];

/// Requests are multiples of this, whatever the blocks of a disk are.
const PROTOCOL_BLOCK: u64 = 512;

/// The most bytes that are copied at once to or from a file in memory.
const AT_ONCE: usize = 64 << 10;

/// The most flushes in flight. A Linux guest has one for each queue.
const FLUSHES_MAX: usize = 32;
/// After this time a flush that finds as many in flight looks again, and what waits for something else.
static NEXT_LOOK: Timespec = Timespec::new().nsec(1_000_000);

impl FileBackend {
    /// Opens an image, and locks it if it is to be locked while it is open.
    ///
    /// # Errors
    /// The image is missing, not writable, locked, empty, of another format than raw, or not a multiple of 512 bytes long.
    pub fn open(path: &Path, options: &ImageOptions) -> Result<Self> {
        let ImageOptions { read_only, direct, raw, locking } = *options;
        let named = || format!("image {}", path.display());
        // Checked before opening, because opening a pipe would block until its other end is opened.
        let file_type = path.metadata().with_context(named)?.file_type();
        if !file_type.is_file() && !file_type.is_block_device() {
            bail!("{} is neither a file nor a block device", named());
        }
        let mut file = OpenOptions::new().read(true).write(!read_only).open(path).with_context(named)?;
        let mut direct = direct.then(|| Direct::open(path, read_only)).transpose().with_context(named)?;
        if locking == Locking::Open {
            lock_image(&file, direct.as_ref(), lock_type(read_only)).with_context(named)?;
        }
        let size = file.seek(SeekFrom::End(0)).with_context(named)?;
        let block_size = direct.as_ref().map_or(PROTOCOL_BLOCK, |direct| direct.offset_align.max(PROTOCOL_BLOCK));
        if size == 0 {
            bail!("{} is empty; allowed: a multiple of {block_size} bytes, not 0", named());
        }
        if !raw && let Some(format) = format(&file, size).with_context(named)? {
            bail!(
                "{} is of format {format}, and its guest would overwrite that: convert it with qemu-img convert -O raw, or \
                 serve it as it is with --raw (raw = true)",
                named()
            );
        }
        if size % block_size != 0 {
            bail!("{} is {} long, not a multiple of {block_size}", named(), counted(size, "byte"));
        }
        let block_size = u32::try_from(block_size).with_context(named)?;
        // Not opened by its path, which may lead to another file by now. Flushes write no data of this process, so they
        // need no lock.
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flushes: std::io::Result<_> = (0..FLUSHES_MAX).map(|_| File::open(&same)).collect();
        let flushes = Mutex::new(flushes.with_context(named)?);
        let has_lost_writes = AtomicBool::new(false);
        let is_in_memory = is_in_memory(&file);
        if let (true, Some(direct)) = (is_in_memory, &mut direct) {
            (direct.offset_align, direct.memory_align) = (1, 1); // its pages are all there is, and it takes any request
        }
        let has_parts = direct.as_ref().is_some_and(|direct| direct.offset_align > PROTOCOL_BLOCK);
        let path = path.into();
        Ok(Self {
            path,
            read_only,
            locking,
            file,
            direct,
            is_in_memory,
            changes: Changes::new(is_in_memory || has_parts),
            size,
            block_size,
            flushes,
            has_lost_writes,
        })
    }

    pub(super) const fn is_migratable(&self) -> bool {
        matches!(self.locking, Locking::Claimed)
    }

    pub(super) fn claim(&self) -> Result<()> {
        if !self.is_migratable() {
            return Ok(());
        }
        let named = || format!("image {}", self.path.display());
        lock_image(&self.file, self.direct.as_ref(), lock_type(self.read_only)).with_context(named)
    }

    pub(super) fn release(&self) {
        if self.is_migratable()
            && let Err(problem) = lock_image(&self.file, self.direct.as_ref(), libc::F_UNLCK)
        {
            error!("{}: {problem:#}", self.path.display()); // it stays locked until this process ends
        }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// The sandbox allows lseek(2) to the end, and no other call that tells the length of a block device.
    pub(super) fn measure(&self, wanted: Option<u64>) -> Result<u64> {
        let named = || format!("image {}", self.path.display());
        let len = (&self.file).seek(SeekFrom::End(0)).with_context(named)?;
        match wanted {
            Some(size) if size > len => {
                bail!("size is {size}; allowed: up to {len}, as long as {} is: make that longer first", named())
            }
            wanted => Ok(wanted.unwrap_or(len)),
        }
    }

    pub(super) const fn block_size(&self) -> u32 {
        self.block_size
    }

    pub(super) fn begin(&self, operation: &Operation, buffers: &mut Buffers) -> Step {
        if is_flush(operation) {
            return self.begin_flush(buffers);
        }
        if self.is_in_memory && self.copy(operation, buffers) {
            return Step::Finished(Outcome::Ok);
        }
        if let Some(direct) = &self.direct
            && let Some(piece) = direct.misfit(operation, buffers)
        {
            return direct.begin(piece, operation, buffers, &self.changes);
        }
        let iovecs = buffers.rest();
        let count = u32::try_from(iovecs.len()).unwrap_or(u32::MAX); // the front end allows far less
        let fd = Fd(self.direct.as_ref().map_or(&self.file, |direct| &direct.file).as_raw_fd());
        let entry = match *operation {
            Operation::Read { .. } | Operation::Write { .. } if buffers.is_empty() => {
                return Step::Finished(Outcome::Ok);
            }
            Operation::Read { offset, .. } => opcode::Readv::new(fd, iovecs.as_ptr(), count).offset(offset).build(),
            Operation::Write { offset, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Writev::new(fd, iovecs.as_ptr(), count).offset(offset).rw_flags(flags).build()
            }
            Operation::Flush | Operation::Discard { len: 0, .. } | Operation::WriteZeroes { len: 0, .. } => {
                return Step::Finished(Outcome::Ok);
            }
            Operation::WriteZeroes { offset, len, by_hand: true, .. } => {
                let len = self.whole_blocks(len.min(BOUNCE_LEN as u64) as i32) as u32;
                opcode::Write::new(fd, ZEROES.as_ptr().cast(), len).offset(offset).build()
            }
            Operation::Discard { offset, len } | Operation::WriteZeroes { offset, len, unmap: true, .. } => {
                fallocate(fd, libc::FALLOC_FL_PUNCH_HOLE, offset, len)
            }
            Operation::WriteZeroes { offset, len, .. } => fallocate(fd, libc::FALLOC_FL_ZERO_RANGE, offset, len),
        };
        if is_change(operation) && !self.changes.begin() {
            return direct::wait(buffers);
        }
        Step::Submit(entry)
    }

    /// Performs a read or write of a file in memory, if it is small, as a large one would delay others, and waits for nobody. Returns
    /// whether that is all of it. If not, io_uring finds out why.
    fn copy(&self, operation: &Operation, buffers: &Buffers) -> bool {
        let (iovecs, len, fd) = (buffers.rest(), buffers.len(), self.file.as_raw_fd());
        let count = iovecs.len() as libc::c_int;
        let done = match *operation {
            _ if len > AT_ONCE => return false,
            // SAFETY: the buffers are memory of a guest, and mapped; the kernel checks that it is there.
            Operation::Read { offset, .. } => unsafe { libc::preadv2(fd, iovecs.as_ptr(), count, offset as i64, 0) },
            // SAFETY: as above.
            Operation::Write { offset, .. } if self.changes.is_none() => unsafe {
                libc::pwritev2(fd, iovecs.as_ptr(), count, offset as i64, 0)
            },
            _ => return false,
        };
        usize::try_from(done) == Ok(len)
    }

    pub(super) fn resume(&self, operation: &mut Operation, buffers: &mut Buffers, result: i32) -> Step {
        if is_flush(operation) {
            let step = match buffers.flush.take() {
                Some(file) => self.end_flush(file, buffers, result),
                None => self.begin_flush(buffers), // it has waited for another flush
            };
            if let (Step::Finished(Outcome::Ok), Operation::Read { durable, .. }) = (&step, &mut *operation) {
                *durable = false;
                return self.begin(operation, buffers);
            }
            return step;
        }
        let result = match (std::mem::take(&mut buffers.detour), &self.direct) {
            (Detour::Waiting, _) => return self.begin(operation, buffers),
            (Detour::Filling(bounce), Some(direct)) => {
                match direct.filled(bounce, (operation, buffers), result, &self.changes) {
                    ControlFlow::Break(step) => return step,
                    ControlFlow::Continue(result) => result,
                }
            }
            (Detour::Storing(bounce), Some(direct)) => direct.stored(bounce, result, &self.changes),
            _ => {
                if is_change(operation) {
                    self.changes.end();
                }
                self.whole_blocks(result)
            }
        };
        if result == -libc::EINTR || result == -libc::EAGAIN {
            return self.begin(operation, buffers);
        }
        let unsupported = result == -libc::EOPNOTSUPP || result == -libc::EINVAL;
        match operation {
            Operation::Read { offset, .. } | Operation::Write { offset, .. } if result > 0 => {
                let bytes = result.unsigned_abs(); // may be fewer than requested; then the rest follows
                *offset += u64::from(bytes);
                buffers.advance(bytes as usize);
            }
            Operation::Discard { .. } if result == 0 => return Step::Finished(Outcome::Ok),
            Operation::Discard { .. } if unsupported => return Step::Finished(Outcome::Ok), // undefined anyway
            Operation::WriteZeroes { by_hand: false, len, .. } if result == 0 => *len = 0,
            Operation::WriteZeroes { by_hand, .. } if unsupported && !*by_hand => *by_hand = true,
            Operation::WriteZeroes { by_hand: true, offset, len, .. } if result > 0 => {
                *offset += u64::from(result.unsigned_abs());
                *len -= u64::from(result.unsigned_abs());
            }
            _ => {
                self.log_failure(operation, buffers, result);
                return Step::Finished(Outcome::Error);
            }
        }
        self.begin(operation, buffers)
    }

    /// Logs what the medium refused for good.
    fn log_failure(&self, operation: &Operation, buffers: &Buffers, result: i32) {
        let (what, offset, len) = match *operation {
            Operation::Read { offset, .. } => ("a read", offset, buffers.len() as u64),
            Operation::Write { offset, .. } => ("a write", offset, buffers.len() as u64),
            Operation::Discard { offset, len } => ("a discard", offset, len),
            Operation::WriteZeroes { offset, len, .. } => ("a write of zeroes", offset, len),
            Operation::Flush => return, // `end_flush` says what that means
        };
        let path = self.path.display();
        match result {
            0 => warn!(
                "{path}: {what} of {len} bytes at {offset} failed: 0 bytes were done, as beyond the end of a file"
            ),
            _ => warn!("{path}: {what} of {len} bytes at {offset} failed: {}", Errno::from_raw(-result)),
        }
    }

    /// What of a result the medium has done for good.
    fn whole_blocks(&self, result: i32) -> i32 {
        self.direct.as_ref().map_or(result, |direct| direct.whole_blocks(result))
    }

    fn begin_flush(&self, buffers: &mut Buffers) -> Step {
        if self.has_lost_writes.load(Ordering::Relaxed) {
            return Step::Finished(Outcome::Error);
        }
        buffers.flush = self.flushes().pop();
        Step::Submit(match &buffers.flush {
            Some(file) => opcode::Fsync::new(Fd(file.as_raw_fd())).flags(FsyncFlags::DATASYNC).build(),
            None => opcode::Timeout::new(&NEXT_LOOK).build(),
        })
    }

    fn end_flush(&self, file: File, buffers: &mut Buffers, result: i32) -> Step {
        let is_interrupted = result == -libc::EINTR || result == -libc::EAGAIN;
        if result < 0 && !is_interrupted && !self.has_lost_writes.swap(true, Ordering::Relaxed) {
            let (path, errno) = (self.path.display(), Errno::from_raw(-result));
            error!("{path}: a flush failed ({errno}): writes may be lost, so every flush fails until a restart");
        }
        self.flushes().push(file); // after the failure is noted, because Linux reports it only once per open file
        if is_interrupted {
            return self.begin_flush(buffers);
        }
        // Checked again, because another flush may have failed meanwhile.
        let is_ok = !self.has_lost_writes.load(Ordering::Relaxed);
        Step::Finished(if is_ok { Outcome::Ok } else { Outcome::Error })
    }

    pub(super) fn flush_now(&self) -> Outcome {
        let file = loop {
            match self.flushes().pop() {
                Some(file) => break file,
                None => sleep(Duration::from_millis(1)), // as many as there can be are in flight
            }
        };
        let result = file.sync_data().map_or_else(|error| -error.raw_os_error().unwrap_or(libc::EIO), |()| 0);
        match self.end_flush(file, &mut Buffers::default(), result) {
            Step::Finished(outcome) => outcome,
            Step::Submit(_) | Step::Again => Outcome::Error, // it is not interrupted
        }
    }

    fn flushes(&self) -> MutexGuard<'_, Vec<File>> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the next step of an operation is a flush: after its durable zeroes were written, or before it reads.
const fn is_flush(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Flush | Operation::Read { durable: true, .. } | Operation::WriteZeroes { len: 0, durable: true, .. }
    )
}

/// Whether an operation that is no flush changes the disk.
const fn is_change(operation: &Operation) -> bool {
    !matches!(operation, Operation::Read { .. })
}

fn fallocate(fd: Fd, mode: i32, offset: u64, len: u64) -> squeue::Entry {
    opcode::Fallocate::new(fd, len).offset(offset).mode(mode | libc::FALLOC_FL_KEEP_SIZE).build()
}

/// A lock lasts as long as its open file, so each of the two open files has its own. The lock of the direct one begins
/// at this offset, beyond the end of any image.
const DIRECT_START: i64 = 1 << 62;

const fn lock_type(read_only: bool) -> libc::c_int {
    if read_only { libc::F_RDLCK } else { libc::F_WRLCK }
}

/// Locks or unlocks an image against other targets and against QEMU.
fn lock_image(file: &File, direct: Option<&Direct>, lock_type: libc::c_int) -> Result<()> {
    lock(file, lock_type, if direct.is_some() { (0, DIRECT_START) } else { ALL })?;
    direct.map_or(Ok(()), |direct| lock(&direct.file, lock_type, (DIRECT_START, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};

    /// A killed process releases each open file only when the file's last request has completed, so each has a lock.
    #[test]
    fn the_open_file_for_direct_io_is_locked_by_itself() {
        let path = std::env::temp_dir().join(format!("coalesce-lock-{}", std::process::id()));
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        if let Ok(FileBackend { file, direct, .. }) =
            FileBackend::open(&path, &ImageOptions { direct: true, ..ImageOptions::default() })
        {
            drop(file);
            for direct in [true, false] {
                let error = FileBackend::open(&path, &ImageOptions { direct, ..ImageOptions::default() }).unwrap_err();
                assert!(format!("{error:#}").contains("is locked"), "{error:#}");
            }
            drop(direct);
        } // else its file system has no direct I/O
        FileBackend::open(&path, &ImageOptions::default()).unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    /// The sandbox's filter and guests' faults are the integration tests'.
    #[test]
    fn small_requests_of_a_file_in_memory_are_done_at_once() {
        let memory = memfd_create("image", MFdFlags::empty()).unwrap();
        File::from(memory.try_clone().unwrap()).set_len(1 << 20).unwrap();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let options = |read_only| ImageOptions { read_only, locking: Locking::Claimed, ..ImageOptions::default() };
        let image = FileBackend::open(path.as_ref(), &options(false)).unwrap();
        let mut bytes = vec![7; AT_ONCE + 1];
        let mut step = |image: &FileBackend, operation: Operation, len: usize| {
            let mut buffers = Buffers::default();
            buffers.push(bytes.as_mut_ptr(), 512);
            buffers.push(bytes[512..].as_mut_ptr(), len - 512);
            (image.begin(&operation, &mut buffers), bytes[0])
        };
        let (read, write) =
            (|offset| Operation::Read { offset, durable: false }, |offset| Operation::Write { offset, durable: true });
        assert!(matches!(step(&image, write(4096), 4096), (Step::Finished(Outcome::Ok), 7)));
        assert!(matches!(step(&image, read(8192), AT_ONCE), (Step::Finished(Outcome::Ok), 0)), "not written");
        assert!(matches!(step(&image, read(4096), 1024), (Step::Finished(Outcome::Ok), 7)));
        assert!(matches!(step(&image, read(0), AT_ONCE + 1), (Step::Submit(_), 7)), "a large one");
        let mut discard = Operation::Discard { offset: 0, len: 4096 };
        assert!(matches!(image.begin(&discard, &mut Buffers::default()), Step::Submit(_)));
        assert!(matches!(step(&image, read(4096), 1024), (Step::Finished(Outcome::Ok), 7)));
        assert!(matches!(step(&image, write(0), 1024), (Step::Submit(_), _)), "it would wait for the discard");
        let _ = image.resume(&mut write(0), &mut Buffers::default(), 1024);
        assert!(matches!(image.resume(&mut discard, &mut Buffers::default(), 0), Step::Finished(Outcome::Ok)));
        assert!(matches!(step(&image, write(4096), 1024), (Step::Finished(Outcome::Ok), 7)));
        assert!(matches!(step(&image, read((1 << 20) - 512), 1024), (Step::Submit(_), _)), "not all of it");
        let image = FileBackend::open(path.as_ref(), &options(true)).unwrap();
        assert!(matches!(step(&image, write(0), 1024), (Step::Submit(_), _)), "io_uring finds out why");
    }
}
