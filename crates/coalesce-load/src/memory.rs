//! The memory that the driver shares with its target: the rings, and the data of requests.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use memmap2::MmapMut;
use nix::sys::memfd::{MFdFlags, memfd_create};
use virtio_driver::virtqueue::{Virtqueue, VirtqueueLayout};
use virtio_driver::{VirtioFeatureFlags, VirtioTransport};

use crate::Error;
use crate::protocol::{BlkRequest, Transport};

/// A queue's ring, with the connection that owns its memory.
pub struct Ring {
    virtqueue: Virtqueue<'static, BlkRequest>,
    transport: Arc<Transport>,
}

impl Ring {
    /// Allocates `count` rings of `entries` entries, and registers them with the target.
    pub fn start(mut transport: Transport, count: usize, entries: u16) -> Result<Vec<Self>, Error> {
        let features = VirtioFeatureFlags::from_bits_truncate(transport.get_features());
        let layout = VirtqueueLayout::new::<BlkRequest>(count, entries.into(), features)?;
        let translators: Vec<_> = (0..count).map(|_| transport.iova_translator()).collect();
        let memory = transport.alloc_queue_mem(&layout)?;
        debug_assert_eq!(memory.len(), count * layout.end_offset);
        let start = memory.as_mut_ptr();
        let virtqueues = translators
            .into_iter()
            .enumerate()
            .map(|(index, translator)| {
                // SAFETY: the parts lie within the allocation and do not overlap. The allocation lives as long as
                // `transport`, which each ring keeps alive.
                let part =
                    unsafe { std::slice::from_raw_parts_mut(start.add(index * layout.end_offset), layout.end_offset) };
                Virtqueue::new(translator, part, entries, features)
            })
            .collect::<Result<Vec<_>, _>>()?;
        transport.setup_queues(&virtqueues)?;
        let transport = Arc::new(transport);
        Ok(virtqueues.into_iter().map(|virtqueue| Self { virtqueue, transport: Arc::clone(&transport) }).collect())
    }

    pub fn transport(&self) -> &Transport {
        &self.transport
    }
}

impl Deref for Ring {
    type Target = Virtqueue<'static, BlkRequest>;

    fn deref(&self) -> &Self::Target {
        &self.virtqueue
    }
}

impl DerefMut for Ring {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.virtqueue
    }
}

/// The data buffers of one queue's requests.
pub struct Buffers {
    map: MmapMut,
    block_bytes: usize,
    free: Vec<usize>,
}

impl Buffers {
    /// Allocates `count` blocks, and registers them with the target.
    pub fn new(transport: &mut Transport, count: u16, block_bytes: u32) -> Result<Self, Error> {
        let (count, block_bytes) = (usize::from(count), block_bytes as usize);
        let file = File::from(memfd_create("coalesce-load", MFdFlags::MFD_CLOEXEC)?);
        file.set_len((count * block_bytes) as u64)?;
        // SAFETY: only this process has the file, and it never shrinks. The target writes only to blocks of requests in
        // flight, and those blocks are not read until the requests are complete.
        let map = unsafe { MmapMut::map_mut(&file) }?;
        transport.map_mem_region(map.as_ptr() as usize, map.len(), file.as_raw_fd(), 0)?;
        Ok(Self { map, block_bytes, free: (0..count).map(|index| index * block_bytes).collect() })
    }

    /// Takes a free block, and returns its index. `None` if no block is free.
    pub fn take(&mut self) -> Option<usize> {
        self.free.pop()
    }

    pub fn give_back(&mut self, place: usize) {
        self.free.push(place);
    }

    pub fn data(&mut self, place: usize) -> &mut [u8] {
        &mut self.map[place..place + self.block_bytes]
    }
}
