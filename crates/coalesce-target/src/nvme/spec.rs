//! What the NVM Express specification fixes: registers, opcodes, status codes, and the layout of entries
//! (NVMe 1.4, sections in parentheses). Pages have 4 KiB (CC.MPS = 0), as those of [`DmaMemory`](crate::vfio_user::memory).

use crate::vfio_user::memory::PAGE;

/// The version that the controller reports (§3.1.2): 1.4.0.
pub const VERSION: u32 = 0x0001_0400;
/// Bytes of a submission queue entry.
pub const SQE_LEN: usize = 64;
/// Bytes of a completion queue entry.
pub const CQE_LEN: usize = 16;
/// The most entries of an I/O queue.
pub const ENTRIES_MAX: u32 = 1024;
/// Maximum Data Transfer Size, as a power of two of pages: 1 MiB.
pub const MDTS: u8 = 8;
/// The most bytes that a command transfers.
pub const TRANSFER_MAX: u64 = PAGE << MDTS;
/// The only namespace.
pub const NSID: u32 = 1;
/// All namespaces.
pub const NSID_ALL: u32 = u32::MAX;

/// Offsets of the registers in BAR 0 (§3.1), in bytes.
pub mod register {
    /// Controller Capabilities.
    pub const CAP: u64 = 0x00;
    /// Version.
    pub const VS: u64 = 0x08;
    /// Interrupt Mask Set.
    pub const INTMS: u64 = 0x0c;
    /// Interrupt Mask Clear.
    pub const INTMC: u64 = 0x10;
    /// Controller Configuration.
    pub const CC: u64 = 0x14;
    /// Controller Status.
    pub const CSTS: u64 = 0x1c;
    /// Admin Queue Attributes.
    pub const AQA: u64 = 0x24;
    /// Admin Submission Queue Base Address.
    pub const ASQ: u64 = 0x28;
    /// Admin Completion Queue Base Address.
    pub const ACQ: u64 = 0x30;
    /// The first doorbell.
    pub const DOORBELLS: u64 = 0x1000;
}

/// Controller Capabilities: contiguous queues, 4 KiB pages, doorbells side by side, the NVM command set, 30 s to get ready.
pub const CAP: u64 = (ENTRIES_MAX as u64 - 1) | 1 << 16 | 60 << 24 | 1 << 37;

/// Controller Configuration (§3.1.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cc(pub u32);

impl Cc {
    /// Whether the host enables the controller.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether command set, page size and arbitration are those of [`CAP`].
    #[must_use]
    pub const fn is_supported(self) -> bool {
        self.0 >> 4 & 0x3ff == 0 // CSS: bits 6:4, MPS: bits 10:7, AMS: bits 13:11
    }

    /// Whether the host notifies of a shutdown.
    #[must_use]
    pub const fn wants_shutdown(self) -> bool {
        self.0 >> 14 & 0b11 != 0
    }

    /// Entry sizes of I/O submission and completion queues, as powers of two. Some drivers leave them at 0.
    #[must_use]
    pub const fn has_entry_sizes(self) -> bool {
        matches!(self.0 >> 16 & 0xf, 0 | 6) && matches!(self.0 >> 20 & 0xf, 0 | 4)
    }
}

/// Bits of Controller Status (§3.1.6).
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown is in process.
    pub const SHUTTING_DOWN: u32 = 1 << 2;
    /// Shutdown is complete.
    pub const SHUT_DOWN: u32 = 2 << 2;
}

/// Opcodes of admin commands (§5).
pub mod admin {
    /// Delete I/O Submission Queue.
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue.
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue.
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue.
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7c;
}

/// Opcodes of NVM commands (§6).
pub mod nvm {
    /// Flush.
    pub const FLUSH: u8 = 0x00;
    /// Write.
    pub const WRITE: u8 = 0x01;
    /// Read.
    pub const READ: u8 = 0x02;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Log pages (§5.14).
pub mod log {
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
}

/// The status of a command (§4.6.1): bits 7:0 are the code, 10:8 its type, and bit 14 asks not to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    const DNR: u16 = 1 << 14;

    const fn generic(code: u16) -> Self {
        Self(code | Self::DNR)
    }

    const fn specific(code: u16) -> Self {
        Self(code | 1 << 8 | Self::DNR)
    }

    /// Whether its type is Media and Data Integrity Errors.
    #[must_use]
    pub const fn is_of_medium(self) -> bool {
        self.0 >> 8 & 0b111 == 2
    }

    /// It succeeded.
    pub const SUCCESS: Self = Self(0);
    /// Invalid Command Opcode.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// Data Transfer Error.
    pub const DATA_TRANSFER: Self = Self::generic(0x04);
    /// Internal Error.
    pub const INTERNAL: Self = Self(0x06);
    /// Command Abort Requested.
    pub const ABORTED: Self = Self(0x07);
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// Command Sequence Error.
    pub const SEQUENCE: Self = Self::generic(0x0c);
    /// PRP Offset Invalid.
    pub const PRP_OFFSET: Self = Self::generic(0x13);
    /// Namespace is Write Protected.
    pub const WRITE_PROTECTED: Self = Self::generic(0x20);
    /// LBA Out of Range.
    pub const LBA_RANGE: Self = Self::generic(0x80);
    /// Completion Queue Invalid.
    pub const INVALID_CQ: Self = Self::specific(0x00);
    /// Invalid Queue Identifier.
    pub const INVALID_QUEUE: Self = Self::specific(0x01);
    /// Invalid Queue Size.
    pub const INVALID_QUEUE_SIZE: Self = Self::specific(0x02);
    /// Asynchronous Event Request Limit Exceeded.
    pub const TOO_MANY_EVENT_REQUESTS: Self = Self::specific(0x05);
    /// Invalid Interrupt Vector.
    pub const INVALID_VECTOR: Self = Self::specific(0x08);
    /// Invalid Log Page.
    pub const INVALID_LOG_PAGE: Self = Self::specific(0x09);
    /// Invalid Queue Deletion.
    pub const INVALID_DELETION: Self = Self::specific(0x0c);
    /// Feature Identifier Not Saveable.
    pub const NOT_SAVEABLE: Self = Self::specific(0x0d);
    /// Write Fault.
    pub const WRITE_FAULT: Self = Self(0x80 | 2 << 8);
    /// Unrecovered Read Error.
    pub const READ_ERROR: Self = Self(0x81 | 2 << 8);
}

/// A submission queue entry (§4.2): a copy, because the guest can change the original at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe([u8; SQE_LEN]);

impl Sqe {
    /// The entry in these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; SQE_LEN]) -> Self {
        Self(bytes)
    }

    /// Command Dword `N`. `N` is at most 15.
    #[must_use]
    pub const fn dword<const N: usize>(&self) -> u32 {
        const { assert!(N < 16) };
        u32::from_le_bytes([self.0[4 * N], self.0[4 * N + 1], self.0[4 * N + 2], self.0[4 * N + 3]])
    }

    /// The opcode.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Whether the command is not fused with another, and its data is described by PRPs.
    #[must_use]
    pub const fn has_plain_flags(&self) -> bool {
        self.0[1] & 0b1100_0011 == 0
    }

    /// The command identifier.
    #[must_use]
    pub const fn cid(&self) -> u16 {
        (self.dword::<0>() >> 16) as u16
    }

    /// The namespace.
    #[must_use]
    pub const fn nsid(&self) -> u32 {
        self.dword::<1>()
    }

    /// PRP entry 1.
    #[must_use]
    pub const fn prp1(&self) -> u64 {
        self.dword::<6>() as u64 | (self.dword::<7>() as u64) << 32
    }

    /// PRP entry 2.
    #[must_use]
    pub const fn prp2(&self) -> u64 {
        self.dword::<8>() as u64 | (self.dword::<9>() as u64) << 32
    }

    /// The first block (dwords 10 and 11).
    #[must_use]
    pub const fn lba(&self) -> u64 {
        self.dword::<10>() as u64 | (self.dword::<11>() as u64) << 32
    }

    /// The number of blocks (dword 12): 1 to 65536.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        (self.dword::<12>() & 0xffff) as u64 + 1
    }

    /// Force Unit Access (dword 12).
    #[must_use]
    pub const fn fua(&self) -> bool {
        self.dword::<12>() & 1 << 30 != 0
    }

    /// Write Zeroes: whether the blocks may be deallocated (dword 12, DEAC).
    #[must_use]
    pub const fn may_deallocate(&self) -> bool {
        self.dword::<12>() & 1 << 25 != 0
    }
}

/// A completion queue entry (§4.6) without its phase tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// Dword 0: the result of the command.
    pub result: u32,
    /// The head of the submission queue.
    pub sq_head: u16,
    /// The submission queue.
    pub sq_id: u16,
    /// The command.
    pub cid: u16,
    /// Its status.
    pub status: Status,
}

impl Cqe {
    /// Dwords 0 to 2, and dword 3, which is written last because it has the phase tag.
    #[must_use]
    pub fn encode(self, phase: bool) -> ([u8; 12], u32) {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.result.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        bytes[10..].copy_from_slice(&self.sq_id.to_le_bytes());
        let last = u32::from(self.cid) | u32::from(phase) << 16 | u32::from(self.status.0) << 17;
        (bytes, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_queue_entry_is_read_from_its_bytes() {
        let mut bytes = [0; SQE_LEN];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = i as u8;
        }
        bytes[1] = 0; // flags
        let sqe = Sqe::new(bytes);
        assert_eq!((sqe.opcode(), sqe.cid(), sqe.nsid()), (0, 0x0302, 0x0706_0504));
        assert_eq!((sqe.prp1(), sqe.prp2()), (0x1f1e_1d1c_1b1a_1918, 0x2726_2524_2322_2120));
        assert_eq!((sqe.lba(), sqe.blocks()), (0x2f2e_2d2c_2b2a_2928, 0x3131));
        assert_eq!((sqe.fua(), sqe.may_deallocate(), sqe.dword::<15>()), (false, true, 0x3f3e_3d3c));
        assert!(sqe.has_plain_flags());
        for flags in [0x01, 0x02, 0x40, 0x80] {
            bytes[1] = flags;
            assert!(!Sqe::new(bytes).has_plain_flags());
        }
    }

    #[test]
    fn a_completion_queue_entry_is_written_as_the_specification_says() {
        let entry =
            Cqe { result: 0x0403_0201, sq_head: 0x0a09, sq_id: 0x0c0b, cid: 0x0e0d, status: Status::READ_ERROR };
        let (bytes, last) = entry.encode(true);
        assert_eq!(bytes, [1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11, 12]);
        assert_eq!(last, 0x0e0d | 1 << 16 | 0x281 << 17);
        assert_eq!(entry.encode(false).1, last & !(1 << 16));
        assert_eq!(Status::INVALID_LOG_PAGE.0, 0x4109);
    }

    #[test]
    fn a_configuration_that_is_not_offered_is_seen() {
        assert!(Cc(0x0046_0001).is_supported() && Cc(0x0046_0001).has_entry_sizes() && Cc(1).has_entry_sizes());
        for bad in [1 << 4, 1 << 7, 1 << 11] {
            assert!(!Cc(0x0046_0001 | bad).is_supported());
        }
        assert!(!Cc(0x0045_0001).has_entry_sizes() && !Cc(0x0056_0001).has_entry_sizes());
        assert!(Cc(1 << 14).wants_shutdown() && Cc(2 << 14).wants_shutdown() && !Cc(1).wants_shutdown());
    }
}
