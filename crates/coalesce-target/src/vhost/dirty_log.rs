//! The log of the guest pages that the device has written, of which a front end that migrates its guest copies each again
//! (vhost-user, "Migration").
//!
//! The bitmaps of `vm-memory` are not used: each access to guest memory would pay for them, logged or not, and they would miss
//! the data, which the kernel writes. The used ring is logged at an address of its own.

use crate::os::shared_memory::SharedMapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use vm_memory::{GuestAddress, VolatileMemory as _};

/// The largest log in bytes: that of 128 TiB.
pub const LOG_LEN_MAX: u64 = 1 << 32;

/// Bytes of guest memory for each bit.
const PAGE: u64 = 4096;

/// A bitmap that the front end shares. Page `n` of guest memory is bit `n % 8` of byte `n / 8`.
#[derive(Debug)]
pub struct DirtyLog(SharedMapping);

impl DirtyLog {
    /// The log in a mapping.
    #[must_use]
    pub const fn new(mapping: SharedMapping) -> Self {
        Self(mapping)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.size() as u64
    }

    /// The bytes that a log of all pages before the guest address `end` has.
    #[must_use]
    pub const fn needed(end: u64) -> u64 {
        end.div_ceil(8 * PAGE)
    }

    /// Marks the pages of the `len` bytes from `address` on, as far as the log has bits for them. Must be called after they
    /// were written: the front end clears a bit before it copies the page.
    pub fn mark(&self, address: GuestAddress, len: u64) {
        let Some(more) = len.checked_sub(1) else { return };
        for page in address.0 / PAGE..=address.0.saturating_add(more) / PAGE {
            let byte = usize::try_from(page / 8).unwrap_or(usize::MAX);
            let Ok(bits) = self.0.get_atomic_ref::<AtomicU8>(byte) else { return };
            bits.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }
}

/// The logs of what a ring's device writes.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    /// For data and status bytes (`VHOST_F_LOG_ALL`).
    pub data: Option<Arc<DirtyLog>>,
    /// For the used ring, and its address there (`VHOST_VRING_F_LOG`).
    pub used: Option<(Arc<DirtyLog>, GuestAddress)>,
}
