//! Where the data is. A back end knows nothing of virtio: it is given operations on a range of bytes and buffers in
//! this process's memory, and does them at once, or through the worker's io_uring.

mod file;
mod memory;

pub use file::FileBackend;
pub use memory::MemoryBackend;

use io_uring::squeue;
use libc::iovec;
use std::fs::File;

/// An operation on a disk. Offsets and lengths are in bytes and inside the disk: the front end has checked them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the buffers.
    Read {
        /// Where from.
        offset: u64,
    },
    /// Store the buffers.
    Write {
        /// Where to.
        offset: u64,
        /// On the medium before the operation ends, not only in a cache.
        durable: bool,
    },
    /// Everything written before is on the medium.
    Flush,
    /// The range is not needed any more; it may read as anything.
    Discard {
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// The range reads as zeroes.
    WriteZeroes {
        /// Start of the range.
        offset: u64,
        /// Its length.
        len: u64,
        /// The space may be given back.
        unmap: bool,
        /// The file system cannot do it: zeroes are written.
        by_hand: bool,
        /// On the medium before the operation ends, not only in a cache.
        durable: bool,
    },
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Ok,
    /// The medium failed.
    Error,
}

/// What becomes of an operation.
pub enum Step {
    /// It has ended.
    Ended(Outcome),
    /// It goes on when io_uring has done this.
    Submit(squeue::Entry),
    /// It goes on at the next turn: all at once would keep everything else waiting.
    Again,
}

/// Buffers that room is kept for. What a longer operation needed is given back.
const BUFFERS_KEPT: usize = 32;

/// The buffers of an operation: addresses in this process, and how much of them is dealt with.
#[derive(Debug, Default)]
pub struct Buffers {
    iovecs: Vec<iovec>,
    first: usize,        // iovecs before it are dealt with
    flush: Option<File>, // what a flush in flight goes through, and no other
}

// SAFETY: the addresses point into guest memory, which no thread owns and which the owner of the buffers keeps mapped.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Forgets everything, and gives back what a long operation needed.
    pub fn clear(&mut self) {
        self.iovecs.clear();
        self.iovecs.shrink_to(BUFFERS_KEPT);
        self.first = 0;
    }

    /// How many there are, dealt with or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.iovecs.len()
    }

    /// Adds a buffer.
    pub fn push(&mut self, base: *mut u8, len: usize) {
        self.iovecs.push(iovec { iov_base: base.cast(), iov_len: len });
    }

    /// Buffers not yet dealt with.
    #[must_use]
    pub fn rest(&self) -> &[iovec] {
        &self.iovecs[self.first..]
    }

    /// Bytes not yet dealt with.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rest().iter().map(|iovec| iovec.iov_len).sum()
    }

    /// Whether everything is dealt with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes that the next `bytes` are dealt with.
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
    /// Size in bytes: a multiple of the block size.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.size(),
            Self::Memory(memory) => memory.size(),
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

    /// Begins an operation.
    pub fn begin(&self, operation: &Operation, buffers: &mut Buffers) -> Step {
        match self {
            Self::File(file) => file.begin(operation, buffers),
            Self::Memory(memory) => memory.begin(operation, buffers),
        }
    }

    /// io_uring has done a step of the operation, with this result; or it is the next turn.
    pub fn resume(&self, operation: &mut Operation, buffers: &mut Buffers, result: i32) -> Step {
        match self {
            Self::File(file) => file.resume(operation, buffers, result),
            Self::Memory(memory) => memory.resume(operation, buffers),
        }
    }
}
