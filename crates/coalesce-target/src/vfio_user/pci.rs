//! The PCI side of the device: its configuration space, and the MSI-X table with the pending bits.
//!
//! A function of type 0 with the interrupt pin INTA, and without an expansion ROM. BAR 0 (64 bits) has the device's registers, BAR 4 (32 bits) the
//! MSI-X table. Capabilities: power management, PCI Express with function-level reset, MSI-X. The client maps the BARs and
//! masks the vectors itself; here their registers only keep what is written.

/// Bytes of the configuration space. What is not described reads as zero.
pub const CONFIG_LEN: usize = 4096;

/// What distinguishes one device from another.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class, subclass, programming interface.
    pub class: [u8; 3],
    /// Bytes of BAR 0: a power of two, at least 4096.
    pub bar0_len: u32,
}

// Registers of the configuration space.
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const CACHE_LINE: usize = 0x0C;
const BAR0: usize = 0x10;
const BAR4: usize = 0x20;
const SUBSYSTEM: usize = 0x2C;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3C;
const PM: usize = 0x40;
const EXPRESS: usize = 0x48;
const MSIX: usize = 0x84;
const END: usize = 0x90;

const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_INTERRUPT_DISABLE: u16 = 1 << 10;
/// Memory space, bus master, parity error response, SERR#, interrupt disable.
const COMMAND_WRITABLE: u16 = 1 << 1 | COMMAND_BUS_MASTER | 1 << 6 | 1 << 8 | COMMAND_INTERRUPT_DISABLE;
const STATUS_INTERRUPT: u8 = 1 << 3;
const STATUS_CAPABILITIES: u16 = 1 << 4;
const INTA: u16 = 1;
const BAR_64_BITS: u32 = 2 << 1;
/// Power management version 3; D1, D2 and PME are not supported.
const PM_CAPABILITIES: u16 = 3;
/// No soft reset: the way from D3hot to D0 keeps everything.
const PM_NO_SOFT_RESET: u16 = 1 << 3;
/// Both bits of the state. D1 and D2 are taken, and mean nothing here.
const PM_STATE: u16 = 3;
/// Version 2, an endpoint.
const EXPRESS_CAPABILITIES: u16 = 2;
/// Role-based error reporting, function-level reset.
const DEVICE_CAPABILITIES: u32 = 1 << 15 | 1 << 28;
const DEVICE_CONTROL: usize = EXPRESS + 8;
/// Relaxed ordering, no snoop, read requests of 512 bytes.
const DEVICE_CONTROL_START: u16 = 1 << 4 | 1 << 11 | 2 << 12;
const DEVICE_CONTROL_RESET: u16 = 1 << 15;
/// One lane of 2.5 GT/s, in the link's capabilities and status.
const LINK: u16 = 1 << 4 | 1;
const LINK_CAPABILITIES: usize = EXPRESS + 12;
const LINK_STATUS: usize = EXPRESS + 18;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_CONTROL_WRITABLE: u16 = MSIX_ENABLE | 1 << 14;
const MSIX_BAR: u32 = 4;

/// What a write to the configuration space has caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Bus mastering was switched on or off.
    pub bus_master: Option<bool>,
    /// A function-level reset was initiated.
    pub reset: bool,
}

/// The configuration space.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: [u8; END],
    at_reset: [u8; END],
    writable: [u8; END], // bits
}

impl ConfigSpace {
    /// As after power-on, for a device with `vectors` vectors: 1 to [`VECTORS_MAX`].
    #[must_use]
    pub fn new(identity: &Identity, vectors: u16) -> Self {
        let mut space = Self { bytes: [0; END], at_reset: [0; END], writable: [0; END] };
        let [class, subclass, interface] = identity.class;
        space.put16(0, identity.vendor, 0);
        space.put16(2, identity.device, 0);
        space.put16(COMMAND, 0, COMMAND_WRITABLE);
        space.put16(STATUS, STATUS_CAPABILITIES, 0);
        space.put32(REVISION, u32::from_be_bytes([class, subclass, interface, identity.revision]), 0);
        space.put16(CACHE_LINE, 0, 0xFF);
        space.put32(BAR0, BAR_64_BITS, !(identity.bar0_len.wrapping_sub(1)));
        space.put32(BAR0 + 4, 0, u32::MAX);
        space.put32(BAR4, 0, !(table_bar_len(vectors).wrapping_sub(1)));
        space.put16(SUBSYSTEM, identity.subsystem_vendor, 0);
        space.put16(SUBSYSTEM + 2, identity.subsystem, 0);
        space.put16(CAPABILITIES, PM as u16, 0);
        space.put16(INTERRUPT_LINE, INTA << 8, 0xFF); // the pin is the second byte
        space.put16(PM, capability(0x01, EXPRESS), 0);
        space.put16(PM + 2, PM_CAPABILITIES, 0);
        space.put16(PM + 4, PM_NO_SOFT_RESET, PM_STATE);
        space.put16(EXPRESS, capability(0x10, MSIX), 0);
        space.put16(EXPRESS + 2, EXPRESS_CAPABILITIES, 0);
        space.put32(EXPRESS + 4, DEVICE_CAPABILITIES, 0);
        space.put16(DEVICE_CONTROL, DEVICE_CONTROL_START, !DEVICE_CONTROL_RESET);
        space.put16(LINK_CAPABILITIES, LINK, 0);
        space.put16(LINK_STATUS, LINK, 0);
        space.put16(MSIX, capability(0x11, 0), 0);
        space.put16(MSIX + 2, vectors.saturating_sub(1), MSIX_CONTROL_WRITABLE);
        space.put32(MSIX + 4, MSIX_BAR, 0); // the table is at 0
        space.put32(MSIX + 8, pending_at(vectors) as u32 | MSIX_BAR, 0);
        space.at_reset = space.bytes;
        space
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    /// Reads bytes. What is not described is zero. `is_asserted`: whether the device asserts its pin.
    pub fn read(&self, offset: usize, data: &mut [u8], is_asserted: bool) {
        for (at, byte) in (offset..).zip(data) {
            let status = if at == STATUS && is_asserted && !self.has_msix() { STATUS_INTERRUPT } else { 0 };
            *byte = self.bytes.get(at).copied().unwrap_or(0) | status;
        }
    }

    /// Whether the pin may not be asserted (Interrupt Disable).
    #[must_use]
    pub fn disables_pin(&self) -> bool {
        self.get16(COMMAND) & COMMAND_INTERRUPT_DISABLE != 0
    }

    /// Whether MSI-X is enabled.
    #[must_use]
    pub fn has_msix(&self) -> bool {
        self.get16(MSIX + 2) & MSIX_ENABLE != 0
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Writes bytes. Bits that cannot be written keep their value.
    pub fn write(&mut self, offset: usize, data: &[u8]) -> Effect {
        let was_master = self.is_bus_master();
        let reset_at = DEVICE_CONTROL + 1;
        let [_, reset_bit] = DEVICE_CONTROL_RESET.to_le_bytes();
        let mut reset = false;
        for (at, byte) in (offset..END).zip(data) {
            let (old, writable) = (self.bytes[at], self.writable[at]);
            self.bytes[at] = old & !writable | byte & writable;
            reset |= at == reset_at && byte & reset_bit != 0;
        }
        let is_master = self.is_bus_master();
        Effect { bus_master: (is_master != was_master).then_some(is_master), reset }
    }

    /// Everything becomes as after power-on.
    pub fn reset(&mut self) {
        self.bytes = self.at_reset;
    }

    fn is_bus_master(&self) -> bool {
        self.get16(COMMAND) & COMMAND_BUS_MASTER != 0
    }
}

fn capability(id: u8, next: usize) -> u16 {
    u16::from_le_bytes([id, next as u8]) // all are in the first 256 bytes
}

/// The most vectors that MSI-X allows.
pub const VECTORS_MAX: u16 = 2048;
/// Bytes of an entry: address, data, control.
const ENTRY_LEN: usize = 16;
/// The control of an entry: the vector is masked.
const ENTRY_MASKED: u8 = 1;

/// Where the pending bits begin in BAR 4: at a page of their own.
fn pending_at(vectors: u16) -> usize {
    (usize::from(vectors) * ENTRY_LEN).next_multiple_of(4096)
}

/// Bytes of BAR 4.
#[must_use]
pub fn table_bar_len(vectors: u16) -> u32 {
    (pending_at(vectors) as u32 + 4096).next_power_of_two() // at most 64 KiB
}

/// The MSI-X table.
#[derive(Debug)]
pub struct Table {
    entries: Vec<u8>,
    pending_at: usize,
}

impl Table {
    /// As after power-on: every vector is masked.
    #[must_use]
    pub fn new(vectors: u16) -> Self {
        let mut table = Self { entries: vec![0; usize::from(vectors) * ENTRY_LEN], pending_at: pending_at(vectors) };
        table.reset();
        table
    }

    /// Reads bytes of BAR 4. `is_pending` says which vectors are.
    pub fn read(&self, offset: usize, data: &mut [u8], is_pending: impl Fn(u16) -> bool) {
        for (at, byte) in (offset..).zip(data) {
            let bits = |byte: usize| {
                (0..8).filter(|bit| is_pending((byte * 8 + bit) as u16)).fold(0, |all, bit| all | 1 << bit)
            };
            *byte = match (self.entries.get(at), at.checked_sub(self.pending_at)) {
                (Some(byte), _) => *byte,
                (None, Some(byte)) if byte < usize::from(VECTORS_MAX) / 8 => bits(byte),
                _ => 0,
            };
        }
    }

    /// Writes bytes of BAR 4. Pending bits cannot be written.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        for (at, byte) in (offset..self.entries.len()).zip(data) {
            self.entries[at] = match at % ENTRY_LEN {
                0 => byte & !3, // an aligned address
                12 => byte & ENTRY_MASKED,
                13..ENTRY_LEN => 0,
                _ => *byte,
            };
        }
    }

    /// Everything becomes as after power-on.
    pub fn reset(&mut self) {
        for (at, byte) in self.entries.iter_mut().enumerate() {
            *byte = if at % ENTRY_LEN == 12 { ENTRY_MASKED } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VECTORS: u16 = 17;

    fn space() -> ConfigSpace {
        let identity = Identity {
            vendor: 0x1122,
            device: 0x3344,
            subsystem_vendor: 0x5566,
            subsystem: 0x7788,
            revision: 0x99,
            class: [1, 8, 2],
            bar0_len: 16 << 10,
        };
        ConfigSpace::new(&identity, VECTORS)
    }

    fn read<const N: usize>(space: &ConfigSpace, at: usize) -> [u8; N] {
        let mut bytes = [0xAA; N];
        space.read(at, &mut bytes, false);
        bytes
    }

    fn u32_at(space: &ConfigSpace, at: usize) -> u32 {
        u32::from_le_bytes(read(space, at))
    }

    /// The place of a capability, as a driver finds it.
    fn find(space: &ConfigSpace, id: u8) -> Option<usize> {
        let [mut at] = read(space, 0x34);
        for _ in 0..48 {
            let [this, next] = read(space, at.into());
            if this == id {
                return Some(at.into());
            }
            at = next;
        }
        None
    }

    #[test]
    fn the_header_identifies_the_device() {
        let space = space();
        assert_eq!(read(&space, 0), [0x22, 0x11, 0x44, 0x33, 0, 0, 0x10, 0, 0x99, 2, 8, 1, 0, 0, 0, 0]);
        assert_eq!(read(&space, 0x2C), [0x66, 0x55, 0x88, 0x77, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(read(&space, 0xFF0), [0; 16]);
        assert_eq!(read(&space, 0x8E), [0; 400]);
        assert_eq!(read(&space, 0xFFF), [0; 8], "behind its end");
    }

    #[test]
    fn capabilities_are_found_and_are_aligned() {
        let space = space();
        let [pm, express, msix] = [0x01, 0x10, 0x11].map(|id| find(&space, id).unwrap());
        assert!([pm, express, msix].iter().all(|at| at % 4 == 0));
        assert_eq!(find(&space, 0x05), None, "no MSI");
        assert_eq!(read(&space, express + 2), [2, 0], "version 2, endpoint");
        assert_ne!(u32_at(&space, express + 4) & 1 << 28, 0, "function-level reset");
        assert_eq!(read(&space, msix + 2), [16, 0], "17 vectors");
        assert_eq!(
            [u32_at(&space, msix + 4), u32_at(&space, msix + 8)],
            [4, 4096 | 4],
            "table and pending bits in BAR 4"
        );
    }

    #[test]
    fn bars_report_their_size() {
        let mut space = space();
        assert_eq!([0x10, 0x14, 0x20].map(|at| u32_at(&space, at)), [4, 0, 0], "64 bits, 32 bits");
        for at in (0x10..0x28).step_by(4).chain([0x30]) {
            space.write(at, &[0xFF; 4]);
        }
        let sizes = [0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x30].map(|at| u32_at(&space, at));
        assert_eq!(sizes, [0xFFFF_C004, 0xFFFF_FFFF, 0, 0, 0xFFFF_E000, 0, 0]);
        space.write(0x10, &[0, 0x40, 0xAD, 0xDE, 1, 0, 0, 0]);
        assert_eq!([u32_at(&space, 0x10), u32_at(&space, 0x14)], [0xDEAD_4004, 1]);
    }

    #[test]
    fn each_bus_master_change_is_reported_once() {
        let mut space = space();
        let on = |on| Effect { bus_master: Some(on), reset: false };
        assert_eq!(space.write(4, &[0xFF, 0xFF]), on(true));
        assert_eq!(read(&space, 4), [0x46, 0x05], "what can be written");
        assert_eq!(space.write(4, &[4]), Effect::default());
        assert_eq!(space.write(5, &[0]), Effect::default());
        assert_eq!(space.write(0, &[0; 64]), on(false));
        assert_eq!(space.write(3, &[0, 4]), on(true));
        assert_eq!(space.write(4, &[]), Effect::default());
    }

    #[test]
    fn the_pin_shows_in_the_status_and_gives_way_to_msix() {
        let mut space = space();
        let status = |space: &ConfigSpace, is_asserted| {
            let mut bytes = [0; 4];
            space.read(4, &mut bytes, is_asserted);
            bytes[2]
        };
        let msix = find(&space, 0x11).unwrap();
        assert_eq!([status(&space, false), status(&space, true)], [0x10, 0x18]);
        assert_eq!((space.disables_pin(), space.has_msix()), (false, false));
        space.write(4, &[0, 4]);
        assert_eq!((space.disables_pin(), status(&space, true)), (true, 0x18), "Interrupt Disable does not hide it");
        space.write(msix + 3, &[0x80]);
        assert_eq!((space.has_msix(), status(&space, true)), (true, 0x10));
        space.reset();
        assert_eq!((space.disables_pin(), space.has_msix()), (false, false));
    }

    #[test]
    fn a_reset_is_initiated_by_one_bit_and_undoes_what_was_written() {
        let mut space = space();
        let at = find(&space, 0x10).unwrap() + 8;
        let before: [u8; 256] = read(&space, 0);
        for (offset, data) in [(at, &[0, 0x80][..]), (at + 1, &[0xFF]), (at - 3, &[0x80; 5]), (0, &[0xFF; 4096])] {
            assert!(space.write(offset, data).reset, "{} bytes at {offset:#x}", data.len());
            assert_eq!(read::<1>(&space, at + 1)[0] & 0x80, 0, "it reads as 0");
        }
        for (offset, data) in [(at, &[0xFF, 0x7F][..]), (at, &[0xFF]), (at + 2, &[0xFF; 9]), (at - 8, &[0xFF; 8])] {
            assert!(!space.write(offset, data).reset, "{} bytes at {offset:#x}", data.len());
        }
        assert_ne!(read(&space, 0), before);
        space.reset();
        assert_eq!(read(&space, 0), before);
    }

    proptest! {
        #[test]
        fn any_write_changes_what_can_be_written_and_nothing_else(
            writes in prop::collection::vec((0..CONFIG_LEN, prop::collection::vec(any::<u8>(), 0..64)), 0..64),
        ) {
            let [mut changed, mut ones, mut zeroes] = [space(), space(), space()];
            let mut expected: [u8; CONFIG_LEN] = read(&changed, 0);
            ones.write(0, &[0xFF; CONFIG_LEN]);
            zeroes.write(0, &[0; CONFIG_LEN]);
            let [ones, zeroes]: [[u8; CONFIG_LEN]; 2] = [read(&ones, 0), read(&zeroes, 0)];
            for (offset, data) in writes {
                let data = &data[..data.len().min(CONFIG_LEN - offset)];
                changed.write(offset, data);
                for (at, byte) in (offset..).zip(data) {
                    let writable = ones[at] & !zeroes[at];
                    expected[at] = expected[at] & !writable | byte & writable;
                }
            }
            prop_assert_eq!(read::<CONFIG_LEN>(&changed, 0), expected);
        }
    }

    #[test]
    fn the_table_keeps_what_is_written_and_starts_masked() {
        let mut table = Table::new(VECTORS);
        let read = |table: &Table, at| {
            let mut bytes = [0xAA; 32];
            table.read(at, &mut bytes, |_| false);
            bytes
        };
        let masked = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(read(&table, 0), [masked, masked].concat()[..]);
        table.write(16, &[0xFF; 16]);
        let written = [0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0];
        assert_eq!(read(&table, 0), [masked, written].concat()[..]);
        table.write(28, &[0]);
        assert_eq!(read(&table, 28)[0], 0);
        table.write(17 * 16 - 1, &[0xFF; 9000]);
        assert_eq!(read(&table, 17 * 16), [0; 32], "behind the table");
        assert_eq!(read(&table, 8192 - 1), [0; 32], "behind the pending bits");
        table.reset();
        assert_eq!(read(&table, 16), [masked, masked].concat()[..]);
    }

    #[test]
    fn pending_bits_are_those_of_the_vectors() {
        let table = Table::new(VECTORS);
        let mut bytes = [0xAA; 12];
        table.read(4096 - 2, &mut bytes, |vector| [0, 7, 8, 16].contains(&vector));
        assert_eq!(bytes, [0, 0, 0x81, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn the_largest_table_has_its_pending_bits_behind_it() {
        assert_eq!([1, 256, 257, VECTORS_MAX].map(table_bar_len), [8192, 8192, 16384, 65536]);
        let table = Table::new(VECTORS_MAX);
        let mut bytes = [0; 2];
        table.read(0x8000 + 255, &mut bytes, |vector| vector >= 2040);
        assert_eq!(bytes, [0xFF, 0]);
    }
}
