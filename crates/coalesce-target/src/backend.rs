//! The back ends, which store a disk's data. A back end knows nothing of virtio. It performs operations on a range of
//! bytes, with buffers in this process's memory, at once or through the queue's io_uring.

mod file;
mod format;
mod memory;

pub use file::{FileBackend, ImageOptions, Locking};
pub use memory::MemoryBackend;

use anyhow::Result;
use io_uring::squeue;
use libc::iovec;
use std::fs::File;

/// An operation on a disk. Offsets and lengths are in bytes and inside the disk: the front end has checked them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the buffers.
    Read {
        /// The start of the range.
        offset: u64,
        /// Whether what was written before must be on the medium first.
        durable: bool,
    },
    /// Store the buffers.
    Write {
        /// The start of the range.
        offset: u64,
        /// Whether the data must be on the medium before the operation ends.
        durable: bool,
    },
    /// Brings everything written before to the medium.
    Flush,
    /// Discards the range. Its content is undefined afterwards.
    Discard {
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// Writes zeroes to the range.
    WriteZeroes {
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
        /// Whether the space may be deallocated.
        unmap: bool,
        /// Whether zeroes are written from a buffer, because the file system has no operation for it.
        by_hand: bool,
        /// Whether the data must be on the medium before the operation ends.
        durable: bool,
    },
}

impl Operation {
    /// Where the rest of its range ends; `len` bytes of a read or write are not done. 0 without a range.
    #[must_use]
    pub const fn end(&self, len: u64) -> u64 {
        match *self {
            Self::Read { offset, .. } | Self::Write { offset, .. } => offset + len,
            Self::Discard { offset, len } | Self::WriteZeroes { offset, len, .. } => offset + len,
            Self::Flush => 0,
        }
    }
}

/// How an operation finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Ok,
    /// The medium failed.
    Error,
}

/// The next step of an operation.
pub enum Step {
    /// It has finished.
    Finished(Outcome),
    /// The operation continues when io_uring has completed this entry.
    Submit(squeue::Entry),
    /// The operation continues in the next pass of the queue's loop, so that a large one does not delay others.
    Again,
}

/// The most buffers whose memory is kept between operations.
const BUFFERS_KEPT: usize = 32;

/// The buffers of an operation: addresses in this process, and the progress through them.
#[derive(Debug, Default)]
pub struct Buffers {
    iovecs: Vec<iovec>,
    first: usize,        // iovecs before this index are done
    flush: Option<File>, // the open file of a flush in flight, which no other flush shares
    detour: file::Detour,
}

// SAFETY: the addresses point into guest memory. No thread owns it, and the owner of the buffers keeps it mapped.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Removes all buffers, and frees the memory of a long list.
    pub fn clear(&mut self) {
        self.iovecs.clear();
        self.iovecs.shrink_to(BUFFERS_KEPT);
        self.first = 0;
    }

    /// The number of buffers, done or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.iovecs.len()
    }

    /// Adds a buffer.
    pub fn push(&mut self, base: *mut u8, len: usize) {
        self.iovecs.push(iovec { iov_base: base.cast(), iov_len: len });
    }

    /// The buffers that are not done.
    #[must_use]
    pub fn rest(&self) -> &[iovec] {
        &self.iovecs[self.first..]
    }

    /// The number of bytes that are not done.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest().iter().map(|iovec| iovec.iov_len).sum()
    }

    /// Whether all bytes are done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `part` for each part of the next `len` bytes: with its address, where in them it begins, and its length.
    fn parts(&self, len: usize, part: impl Fn(*mut u8, usize, usize)) {
        let mut done = 0;
        for iovec in self.rest() {
            let n = iovec.iov_len.min(len - done);
            part(iovec.iov_base.cast(), done, n);
            done += n;
        }
    }

    /// Notes that the next `bytes` are done.
    pub fn advance(&mut self, mut bytes: usize) {
        while let Some(iovec) = self.iovecs.get_mut(self.first) {
            if bytes < iovec.iov_len {
                iovec.iov_base = iovec.iov_base.wrapping_byte_add(bytes);
                iovec.iov_len -= bytes;
                return;
            }
            bytes -= iovec.iov_len;
            self.first += 1;
        }
    }
}

/// A disk's data. A closed set: a new kind is a new variant.
#[derive(Debug)]
pub enum Backend {
    /// A raw file or a block device.
    File(FileBackend),
    /// Memory of this process.
    Memory(MemoryBackend),
}

impl Backend {
    /// Size in bytes when it was opened: a multiple of the block size.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Memory(memory) => memory.size(),
        }
    }

    /// The size in bytes that the disk gets: as `wanted`, or as long as its file is now.
    ///
    /// # Errors
    /// The medium cannot have that size.
    pub fn measure(&self, wanted: Option<u64>) -> Result<u64> {
        match self {
            Self::File(file) => file.measure(wanted),
            Self::Memory(memory) => memory.measure(wanted),
        }
    }

    /// Makes room for `size` bytes, which it has [measured](Self::measure).
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn reach(&self, size: u64) -> Result<()> {
        match self {
            Self::File(_) => Ok(()), // its file has them
            Self::Memory(memory) => memory.reach(size),
        }
    }

    /// Gives back what the disk had beyond `size` bytes. Nothing may be in flight there. A file is its owner's to shorten.
    pub fn forget_beyond(&self, size: u64) {
        match self {
            Self::File(_) => {}
            Self::Memory(memory) => memory.forget_beyond(size),
        }
    }

    /// The smallest block, in bytes, that the medium can write.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        match self {
            Self::File(file) => file.block_size(),
            Self::Memory(_) => 512,
        }
    }

    /// Whether another target can serve the same data to the same guest.
    #[must_use]
    pub const fn is_migratable(&self) -> bool {
        match self {
            Self::File(file) => file.is_migratable(),
            Self::Memory(_) => false,
        }
    }

    /// Must be called before the first operation, and after a [`release`](Self::release).
    ///
    /// # Errors
    /// Another process has the data.
    pub fn claim(&self) -> Result<()> {
        match self {
            Self::File(file) => file.claim(),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Leaves the data to others, if it is migratable. Nothing may be in flight.
    pub fn release(&self) {
        match self {
            Self::File(file) => file.release(),
            Self::Memory(_) => {}
        }
    }

    /// Brings everything written before to the medium, and waits for that: not for the thread of a queue.
    pub fn flush_now(&self) -> Outcome {
        match self {
            Self::File(file) => file.flush_now(),
            Self::Memory(_) => Outcome::Ok,
        }
    }

    /// Begins an operation.
    pub fn begin(&self, operation: &Operation, buffers: &mut Buffers) -> Step {
        match self {
            Self::File(file) => file.begin(operation, buffers),
            Self::Memory(memory) => memory.begin(operation, buffers),
        }
    }

    /// Continues an operation, after io_uring has completed a step with this result, or in the next pass of the queue's
    /// loop.
    pub fn resume(&self, operation: &mut Operation, buffers: &mut Buffers, result: i32) -> Step {
        match self {
            Self::File(file) => file.resume(operation, buffers, result),
            Self::Memory(memory) => memory.resume(operation, buffers, result),
        }
    }
}
