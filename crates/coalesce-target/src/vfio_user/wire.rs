//! The messages of vfio-user 0.0: what is read from bytes that a client chose, and what is written. Numbers have the
//! host's byte order.

use nix::errno::Errno;

/// Bytes of the header of a message.
pub const HEADER_LEN: usize = 16;
/// The most bytes of a region that one message reads or writes: the registers of the largest region, and more than the
/// configuration space, which QEMU reads as a whole.
pub const TRANSFER_MAX: usize = 16 << 10;
/// Bytes of the largest message, header included.
pub const MESSAGE_MAX: usize = HEADER_LEN + RegionAccess::LEN + TRANSFER_MAX;
/// The most files of one message. QEMU refuses a server that offers more.
pub const FILES_MAX: usize = 16;

/// Commands.
pub mod command {
    /// Agrees on a version.
    pub const VERSION: u16 = 1;
    /// Shares guest memory.
    pub const DMA_MAP: u16 = 2;
    /// Takes guest memory back.
    pub const DMA_UNMAP: u16 = 3;
    /// Asks what the device has.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Asks what a region is.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Asks how many interrupts of a kind there are.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Assigns eventfds to interrupts.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads a region.
    pub const REGION_READ: u16 = 9;
    /// Writes a region.
    pub const REGION_WRITE: u16 = 10;
    /// Resets the device.
    pub const DEVICE_RESET: u16 = 13;
}

/// Flags of a header.
pub mod flag {
    /// The type of the message: 0 is a command.
    pub const TYPE: u32 = 0xF;
    /// The type of an answer.
    pub const REPLY: u32 = 1;
    /// A command that must not be answered.
    pub const NO_REPLY: u32 = 1 << 4;
    /// An answer that says why a command failed.
    pub const ERROR: u32 = 1 << 5;
}

/// Why a command is refused.
#[derive(Debug)]
pub struct Refused {
    /// For the client. Never 0, which some clients take for success.
    pub errno: Errno,
    /// For the log.
    pub why: anyhow::Error,
}

impl Refused {
    /// Refuses with `EINVAL`.
    #[must_use]
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::with(Errno::EINVAL, why)
    }

    /// Refuses with an errno.
    #[must_use]
    pub fn with(errno: Errno, why: impl Into<String>) -> Self {
        Self { errno, why: anyhow::Error::msg(why.into()) }
    }
}

impl From<anyhow::Error> for Refused {
    fn from(why: anyhow::Error) -> Self {
        Self { errno: Errno::EINVAL, why }
    }
}

/// Takes numbers off the front of bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the client; an answer has that of its command.
    pub id: u16,
    /// The command.
    pub command: u16,
    /// Bytes of the whole message.
    pub size: u32,
    /// Type and flags.
    pub flags: u32,
    /// Of an answer with [`flag::ERROR`].
    pub errno: u32,
}

impl Header {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            id: u16::from_ne_bytes([a, b]),
            command: u16::from_ne_bytes([c, d]),
            size: u32::from_ne_bytes([e, f, g, h]),
            flags: u32::from_ne_bytes([i, j, k, l]),
            errno: u32::from_ne_bytes([m, n, o, p]),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.size.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.errno.to_ne_bytes());
        bytes
    }

    /// The bytes behind the header. `None` if the size is less than a header or more than a message may have: what
    /// follows in the stream is then unknown.
    #[must_use]
    pub fn payload_len(&self) -> Option<usize> {
        let size = usize::try_from(self.size).ok().filter(|size| *size <= MESSAGE_MAX)?;
        size.checked_sub(HEADER_LEN)
    }
}

/// Checks that `argsz` covers the fixed part of its structure.
fn covers(argsz: u32, len: usize) -> Option<()> {
    (argsz as usize >= len).then_some(())
}

/// `VERSION`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// Must be equal on both sides.
    pub major: u16,
    /// The newer side adapts.
    pub minor: u16,
    /// JSON, NUL-terminated; may be empty.
    pub data: &'a [u8],
}

impl<'a> Version<'a> {
    /// Reads it. `None`: too short.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        Some(Self { major: fields.u16()?, minor: fields.u16()?, data: fields.rest() })
    }
}

/// `DMA_MAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// What the device may do.
    pub flags: u32,
    /// Where in the file the memory begins, in bytes.
    pub offset: u64,
    /// Where in the device's address space it begins.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaMap {
    /// Bytes of the structure.
    pub const LEN: usize = 32;
    /// The device may read.
    pub const READ: u32 = 1;
    /// The device may write.
    pub const WRITE: u32 = 2;

    /// Reads it. `None`: too short.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        covers(fields.u32()?, Self::LEN)?;
        Some(Self { flags: fields.u32()?, offset: fields.u64()?, address: fields.u64()?, size: fields.u64()? })
    }
}

/// `DMA_UNMAP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaUnmap {
    /// [`ALL`](Self::ALL) or none.
    pub flags: u32,
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl DmaUnmap {
    /// Bytes of the structure. The answer repeats it.
    pub const LEN: usize = 24;
    /// Everything goes away.
    pub const ALL: u32 = 1 << 1;

    /// Reads it. `None`: too short.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        covers(fields.u32()?, Self::LEN)?;
        Some(Self { flags: fields.u32()?, address: fields.u64()?, size: fields.u64()? })
    }
}

/// The answer to `DEVICE_GET_INFO`.
pub mod device_info {
    /// Bytes of the structure.
    pub const LEN: usize = 16;
    /// The device can be reset.
    pub const RESET: u32 = 1;
    /// It is a PCI device.
    pub const PCI: u32 = 2;
}

/// Checks a `DEVICE_GET_INFO`. `None`: too short.
#[must_use]
pub fn parse_device_info(payload: &[u8]) -> Option<()> {
    covers(Fields(payload).u32()?, device_info::LEN)?;
    (payload.len() >= device_info::LEN).then_some(())
}

/// The answer to `DEVICE_GET_REGION_INFO`.
pub mod region_info {
    /// Bytes of the structure.
    pub const LEN: usize = 32;
    /// The region can be read.
    pub const READ: u32 = 1;
    /// The region can be written.
    pub const WRITE: u32 = 2;
}

/// The index in a `DEVICE_GET_REGION_INFO`. `None`: too short.
#[must_use]
pub fn parse_region_info(payload: &[u8]) -> Option<u32> {
    let mut fields = Fields(payload);
    covers(fields.u32()?, region_info::LEN)?;
    fields.u32()?;
    fields.u32().filter(|_| payload.len() >= region_info::LEN)
}

/// The answer to `DEVICE_GET_IRQ_INFO`.
pub mod irq_info {
    /// Bytes of the structure.
    pub const LEN: usize = 16;
    /// Eventfds can be assigned.
    pub const EVENTFD: u32 = 1;
    /// The interrupt can be masked.
    pub const MASKABLE: u32 = 1 << 1;
    /// Each signal masks it.
    pub const AUTOMASKED: u32 = 1 << 2;
}

/// The index in a `DEVICE_GET_IRQ_INFO`. `None`: too short.
#[must_use]
pub fn parse_irq_info(payload: &[u8]) -> Option<u32> {
    let mut fields = Fields(payload);
    covers(fields.u32()?, irq_info::LEN)?;
    fields.u32()?;
    fields.u32().filter(|_| payload.len() >= irq_info::LEN)
}

/// `DEVICE_SET_IRQS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetIrqs<'a> {
    /// One kind of data, and one action.
    pub flags: u32,
    /// The kind of interrupt.
    pub index: u32,
    /// The first interrupt.
    pub start: u32,
    /// The number of interrupts.
    pub count: u32,
    /// A bool for each interrupt, if the data are bools.
    pub data: &'a [u8],
}

impl<'a> SetIrqs<'a> {
    /// Bytes of the structure without data.
    pub const LEN: usize = 20;
    /// No data.
    pub const DATA_NONE: u32 = 1;
    /// A bool for each interrupt.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// An eventfd for each interrupt.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// All kinds of data.
    pub const DATA: u32 = 7;
    /// Masks interrupts.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmasks interrupts, or assigns what unmasks them.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Triggers interrupts, or assigns what they trigger.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
    /// All actions.
    pub const ACTION: u32 = 7 << 3;

    /// Reads it. `None`: too short.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        covers(fields.u32()?, Self::LEN)?;
        Some(Self {
            flags: fields.u32()?,
            index: fields.u32()?,
            start: fields.u32()?,
            count: fields.u32()?,
            data: fields.rest(),
        })
    }
}

/// `REGION_READ` and `REGION_WRITE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess<'a> {
    /// Where in the region, in bytes.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
    /// What is to be written.
    pub data: &'a [u8],
}

impl<'a> RegionAccess<'a> {
    /// Bytes of the structure without data.
    pub const LEN: usize = 16;

    /// Reads it. `None`: too short.
    #[must_use]
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        Some(Self { offset: fields.u64()?, region: fields.u32()?, count: fields.u32()?, data: fields.rest() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: u8) -> Vec<u8> {
        (0..len).collect()
    }

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let bytes: [u8; HEADER_LEN] = numbers(16).try_into().unwrap();
        let header = Header::parse(&bytes);
        let fields = [header.size, header.flags, header.errno].map(u32::to_le_bytes).concat();
        assert_eq!((header.id.to_le_bytes(), header.command.to_le_bytes()), ([0, 1], [2, 3]));
        assert_eq!(fields, bytes[4..]);
        assert_eq!(header.bytes(), bytes);
    }

    #[test]
    fn a_message_has_a_header_and_a_limit() {
        let len = |size| Header { id: 0, command: 0, size, flags: 0, errno: 0 }.payload_len();
        assert_eq!([0, 15, 16, 17].map(len), [None, None, Some(0), Some(1)]);
        let max = MESSAGE_MAX as u32;
        assert_eq!([max, max + 1, u32::MAX].map(len), [Some(MESSAGE_MAX - HEADER_LEN), None, None]);
    }

    #[test]
    fn fields_are_read_in_their_order() {
        let bytes = numbers(40);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let map = DmaMap { flags: u32_at(4), offset: u64_at(8), address: u64_at(16), size: u64_at(24) };
        assert_eq!(DmaMap::parse(&bytes), Some(map));
        let unmap = DmaUnmap { flags: u32_at(4), address: u64_at(8), size: u64_at(16) };
        assert_eq!(DmaUnmap::parse(&bytes), Some(unmap));
        let [flags, index, start, count] = [4, 8, 12, 16].map(u32_at);
        assert_eq!(SetIrqs::parse(&bytes), Some(SetIrqs { flags, index, start, count, data: &bytes[20..] }));
        let access = RegionAccess { offset: u64_at(0), region: u32_at(8), count: u32_at(12), data: &bytes[16..] };
        assert_eq!(RegionAccess::parse(&bytes), Some(access));
        assert_eq!(Version::parse(&bytes), Some(Version { major: 0x100, minor: 0x302, data: &bytes[4..] }));
        assert_eq!((parse_region_info(&bytes), parse_irq_info(&bytes)), (Some(u32_at(8)), Some(u32_at(8))));
    }

    #[test]
    fn what_is_too_short_is_not_read() {
        let bytes = [0xFF; 40]; // argsz is huge
        let shortest = |parses: &dyn Fn(&[u8]) -> bool| (0..=40).find(|len| parses(&bytes[..*len]));
        assert_eq!(shortest(&|bytes| Version::parse(bytes).is_some()), Some(4));
        assert_eq!(shortest(&|bytes| DmaMap::parse(bytes).is_some()), Some(32));
        assert_eq!(shortest(&|bytes| DmaUnmap::parse(bytes).is_some()), Some(24));
        assert_eq!(shortest(&|bytes| parse_device_info(bytes).is_some()), Some(16));
        assert_eq!(shortest(&|bytes| parse_region_info(bytes).is_some()), Some(32));
        assert_eq!(shortest(&|bytes| parse_irq_info(bytes).is_some()), Some(16));
        assert_eq!(shortest(&|bytes| SetIrqs::parse(bytes).is_some()), Some(20));
        assert_eq!(shortest(&|bytes| RegionAccess::parse(bytes).is_some()), Some(16));
    }
}
