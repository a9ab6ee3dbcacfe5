//! A connected target, whatever it serves.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::Error;
use crate::options::Options;

/// The longest time of the whole set-up; for virtio-blk, of the connection and of what follows.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Smallest queue to ask for; the usual size of a virtio-blk queue.
pub const QUEUE_ENTRIES_MIN: u16 = 128;

/// A connected target that is ready for requests.
pub struct Device<Q> {
    pub queues: Vec<Q>,
    pub capacity_bytes: u64,
    /// Whether the device says at which entry it wants a kick: EVENT_IDX, or shadow doorbells.
    pub event_idx: bool,
    /// Whether kicks are stores to memory that the device polls: NVMe's doorbells, where they can be mapped.
    pub is_mapped: bool,
    /// The socket, which shows when the target closes the connection.
    pub connection: OwnedFd,
}

impl<Q> Device<Q> {
    /// The same with other queues.
    pub fn map<R>(self, queue: impl Fn(Q) -> R) -> Device<R> {
        let Self { queues, capacity_bytes, event_idx, is_mapped, connection } = self;
        Device { queues: queues.into_iter().map(queue).collect(), capacity_bytes, event_idx, is_mapped, connection }
    }
}

/// Says what the options need, if the target has not got it.
pub fn need(ok: bool, what: String) -> Result<(), Error> {
    if ok { Ok(()) } else { Err(Error::Missing(what)) }
}

/// Checks that a queue's part of the disk has blocks enough.
pub fn check_space(options: &Options, capacity_bytes: u64) -> Result<(), Error> {
    let queue_blocks = capacity_bytes / u64::from(options.block_size_bytes) / u64::from(options.queues);
    // With --verify, requests in flight go to different blocks. Without it, one block is enough.
    let blocks_min = if options.verify { u64::from(options.in_flight_max()) } else { 1 };
    need(queue_blocks >= blocks_min, format!("enough space: a queue's part of it is {queue_blocks} blocks"))
}
