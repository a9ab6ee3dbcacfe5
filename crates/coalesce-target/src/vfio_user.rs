//! The server of the vfio-user protocol: a client (a virtual machine monitor) gives its guest a PCI device that this
//! process implements. The client shares the guest's memory, forwards accesses to the device's registers, and takes its
//! interrupts from eventfds.
//!
//! [`Connection`](connection::Connection) serves any [`PciDevice`]. It knows nothing of what the device does.
//!
//! The server sends no requests of its own: it reads and writes only memory that the client shares as a file. It offers
//! neither registers that the client can map, because QEMU then waits for every write, nor migration.

pub mod connection;
pub mod irq;
pub mod memory;
pub mod pci;
pub mod wire;

use std::ops::Range;
use std::time::Duration;

/// How long an answer may wait for requests in flight. QEMU waits 5 s for it.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// A client changes guest memory in several messages. The change is over with the first message about anything else, or when
/// none has come for this time.
pub const CHANGE_ENDS_AFTER: Duration = Duration::from_secs(1);

/// A PCI device with its registers in BAR 0. All calls come from the connection's thread, in the order of the messages.
///
/// The client waits for each call except `write`, at most 5 s if it is QEMU. Two of them return false if requests in flight
/// still use guest memory after [`PATIENCE`]. Then the connection ends: the client must not be told that they do not.
pub trait PciDevice {
    /// Reads registers. `data` is not empty, and inside BAR 0.
    fn read(&mut self, offset: u64, data: &mut [u8]);

    /// Writes registers. `data` is not empty, and inside BAR 0.
    fn write(&mut self, offset: u64, data: &[u8]);

    /// Allows or forbids access to guest memory and interrupts: *Bus Master Enable* has changed. It is off at first.
    fn set_bus_master(&mut self, on: bool) -> bool;

    /// The guest memory `range` goes away. It is no longer found ([`memory::DmaMemory::slice`]). The device stops using it,
    /// and drops its slices of it soon. The client gets its answer when all are dropped.
    fn unmap(&mut self, range: Range<u64>);

    /// Guest memory was mapped.
    fn map(&mut self);

    /// A change of guest memory is over, in which some was unmapped. What is not mapped now does not return soon.
    fn memory_changed(&mut self);

    /// Everything becomes as after power-on, bus mastering off included. Guest memory and eventfds stay. After this call
    /// the device signals no vector for anything that came before it.
    fn reset(&mut self) -> bool;
}
