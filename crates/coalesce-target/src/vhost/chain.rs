//! A descriptor chain of a split virtqueue (virtio 1.2 §2.7.5).
//!
//! `virtio-queue` reads chains only through the available ring. A request that is resumed after a restart has a head
//! and no entry in the available ring any more. So this module follows chains from their heads.

use super::memory::GuestMemory;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address as _, GuestAddress};

const DESCRIPTOR_LEN: u64 = size_of::<Descriptor>() as u64;

/// The descriptors of a chain, in order: at most those of a ring and of an indirect table, and a table has 65536 that can be
/// reached. It ends early where the guest broke the rules; its last descriptor then still has a successor.
#[derive(Debug)]
pub struct Chain<'a> {
    memory: &'a GuestMemory,
    table: GuestAddress,
    entries: u32, // of the table
    next: u16,
    left: u32, // descriptors that may follow; more would be a loop
    is_indirect: bool,
}

impl<'a> Chain<'a> {
    /// The chain that begins at `head`, in a descriptor table at `table` with this many entries.
    #[must_use]
    pub const fn new(memory: &'a GuestMemory, table: GuestAddress, entries: u16, head: u16) -> Self {
        let entries = entries as u32;
        Self { memory, table, entries, next: head, left: entries, is_indirect: false }
    }

    /// The memory that holds the chain.
    #[must_use]
    pub const fn memory(&self) -> &'a GuestMemory {
        self.memory
    }

    fn read(&self) -> Option<Descriptor> {
        if self.left == 0 || u32::from(self.next) >= self.entries {
            return None;
        }
        let address = self.table.checked_add(u64::from(self.next) * DESCRIPTOR_LEN)?;
        self.memory.get(address)
    }

    /// Continues in the indirect table of a descriptor. `None` if an indirect table is not allowed here, or its length
    /// is invalid.
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let len = descriptor.len();
        if self.is_indirect || !len.is_multiple_of(DESCRIPTOR_LEN as u32) {
            return None;
        }
        // The index of a successor has 16 bits: what is behind cannot be reached.
        self.entries = (len / DESCRIPTOR_LEN as u32).min(1 << 16);
        (self.table, self.next, self.left, self.is_indirect) = (descriptor.addr(), 0, self.entries, true);
        Some(())
    }
}

impl Iterator for Chain<'_> {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        let mut descriptor = self.read()?;
        while descriptor.refers_to_indirect_table() {
            self.enter(descriptor)?;
            descriptor = self.read()?;
        }
        self.next = descriptor.next();
        self.left = if descriptor.has_next() { self.left - 1 } else { 0 };
        Some(descriptor)
    }
}
