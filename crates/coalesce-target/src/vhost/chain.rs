//! A descriptor chain of a split virtqueue (virtio 1.2 §2.7.5).
//!
//! `virtio-queue` gives chains out through an available ring alone. What a device before us took has a head and no place
//! in the ring any more, so chains are followed here, from their heads.

use super::memory::GuestMemory;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address as _, Bytes as _, GuestAddress};

const DESCRIPTOR_LEN: u64 = size_of::<Descriptor>() as u64;

/// The descriptors of a chain, in order. It ends early where the guest broke the rules: the last descriptor then has a
/// next one.
#[derive(Debug)]
pub struct Chain<'a> {
    memory: &'a GuestMemory,
    table: GuestAddress,
    entries: u16, // of the table
    next: u16,
    left: u16,  // more would be a loop
    bytes: u32, // a chain has no more than 2^32
    is_indirect: bool,
}

impl<'a> Chain<'a> {
    /// The chain that begins at `head` in a descriptor table of this many entries.
    #[must_use]
    pub const fn new(memory: &'a GuestMemory, table: GuestAddress, entries: u16, head: u16) -> Self {
        Self { memory, table, entries, next: head, left: entries, bytes: 0, is_indirect: false }
    }

    /// The memory that it lies in.
    #[must_use]
    pub const fn memory(&self) -> &'a GuestMemory {
        self.memory
    }

    fn read(&self) -> Option<Descriptor> {
        if self.left == 0 || self.next >= self.entries {
            return None;
        }
        let address = self.table.checked_add(u64::from(self.next) * DESCRIPTOR_LEN)?;
        self.memory.read_obj(address).ok()
    }

    /// Goes on in the table that a descriptor leads to. None: it must not, or its length cannot be.
    fn enter(&mut self, descriptor: Descriptor) -> Option<()> {
        let len = u64::from(descriptor.len());
        if self.is_indirect || !len.is_multiple_of(DESCRIPTOR_LEN) {
            return None;
        }
        self.entries = u16::try_from(len / DESCRIPTOR_LEN).ok()?;
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
        self.bytes = self.bytes.checked_add(descriptor.len())?;
        self.next = descriptor.next();
        self.left = if descriptor.has_next() { self.left - 1 } else { 0 };
        Some(descriptor)
    }
}
