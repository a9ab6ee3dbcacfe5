//! The part of a disk that its front end and its queues share.

use crate::backend::Backend;
use crate::os::call::CallRings;
use crate::throttle::Throttle;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The most queues of a disk.
pub const QUEUES_MAX: usize = 16;
/// Bytes of a serial number: virtio-blk and NVMe have the same.
pub const SERIAL_LEN: usize = 20;

/// A disk: its name, its data, its limits, and the mode of its write cache.
#[derive(Debug)]
pub struct Disk {
    /// The name in the log.
    pub name: String,
    /// The absolute path of its image or, of a memory disk, of its socket. Links stay: the name of a block device behind one
    /// can change.
    pub place: PathBuf,
    /// The data.
    pub backend: Backend,
    /// The limits for a front end.
    pub limits: Limits,
    /// The io_urings for the eventfds of its front end.
    pub call_rings: CallRings,
    /// Write-back: a write may complete before it is on the medium. Otherwise write-through.
    pub write_back: AtomicBool,
    /// Start of the clock of all its queues.
    pub epoch: Instant,
    /// How much it may do in a second.
    pub throttle: Throttle,
    /// What it has done, for a front end whose guest may ask for it.
    pub totals: Totals,
}

impl Disk {
    /// The time of the clock of all its queues, in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What a disk has done since its process started. Unlike statistics nobody resets it.
#[derive(Debug, Default)]
pub struct Totals {
    /// Of each queue.
    pub queues: [QueueTotals; QUEUES_MAX],
    /// Front ends that have connected.
    pub connections: Counter,
    /// Front ends that went without a shutdown by their guests.
    pub lost: Counter,
}

/// What a queue has done.
#[derive(Debug, Default)]
pub struct QueueTotals {
    /// Reads that succeeded.
    pub reads: Counter,
    /// Their bytes.
    pub bytes_read: Counter,
    /// Writes that succeeded.
    pub writes: Counter,
    /// Their bytes.
    pub bytes_written: Counter,
    /// Errors of the medium.
    pub errors: Counter,
}

/// A counter that one thread at a time increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A size in bytes that changes while requests are checked against it. A check of a request loads it once.
#[derive(Debug)]
pub struct Capacity(AtomicU64);

impl Capacity {
    /// Its value. What the back end did before [`set`](Self::set) has happened.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Sets it: requests that are taken later are checked against it.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Release);
    }
}

impl From<u64> for Capacity {
    fn from(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }
}

/// What a disk offers to a front end.
#[derive(Debug)]
pub struct Limits {
    /// Size in bytes: a multiple of the block size.
    pub size: Capacity,
    /// Size of a logical block in bytes.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Serial number, padded with zeroes.
    pub serial: [u8; SERIAL_LEN],
    /// The most guest memory that may be mapped at a time, in bytes.
    pub max_memory: u64,
}
