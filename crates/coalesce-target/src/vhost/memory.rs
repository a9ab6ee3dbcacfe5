//! Guest memory.

use crate::shared_memory::SharedMapping;
use vm_memory::bitmap::BS;
use vm_memory::guest_memory::Result as MemoryResult;
use vm_memory::{
    Address as _, GuestAddress, GuestMemoryRegion, GuestMemoryRegionBytes, GuestRegionCollection, MemoryRegionAddress,
    VolatileMemory as _, VolatileSlice,
};

/// The guest memory that is mapped at one time.
pub type GuestMemory = GuestRegionCollection<GuestRegion>;

/// A part of guest memory.
#[derive(Debug)]
pub struct GuestRegion {
    mapping: SharedMapping,
    start: GuestAddress,
}

impl GuestRegion {
    /// Memory at the guest address `start`. `None` if it exceeds the address space.
    #[must_use]
    pub fn new(mapping: SharedMapping, start: GuestAddress) -> Option<Self> {
        start.checked_add(mapping.size() as u64)?;
        Some(Self { mapping, start })
    }
}

impl GuestMemoryRegion for GuestRegion {
    type B = ();

    fn len(&self) -> u64 {
        self.mapping.size() as u64
    }

    fn start_addr(&self) -> GuestAddress {
        self.start
    }

    fn bitmap(&self) -> BS<'_, ()> {}

    fn get_slice(&self, offset: MemoryRegionAddress, count: usize) -> MemoryResult<VolatileSlice<'_>> {
        Ok(self.mapping.get_slice(offset.raw_value() as usize, count)?)
    }
}

impl GuestMemoryRegionBytes for GuestRegion {}
