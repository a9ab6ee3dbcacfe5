//! The part of a disk that its front end and its queues share.

use crate::backend::Backend;
use crate::call::CallRings;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
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
}

/// What a disk offers to a front end.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Size in bytes.
    pub size: u64,
    /// Size of a logical block in bytes.
    pub block_size: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Serial number, padded with zeroes.
    pub serial: [u8; SERIAL_LEN],
    /// The most guest memory that may be mapped at a time, in bytes.
    pub max_memory: u64,
}
