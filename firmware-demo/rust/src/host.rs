//! The memory that the host shares with the device: registers and queues, as in `lab/nvme.h`. Either side may change it
//! at any time. So all of it is atomic, and no value is trusted.

use core::sync::atomic::AtomicU32;

pub const IO_QUEUES: usize = 2;
pub const QUEUES: usize = 1 + IO_QUEUES; // queue 0 is the admin queue
pub const SQ_ENTRIES: u32 = 64;
pub const CQ_ENTRIES: u32 = 48;

pub const BLOCK_BYTES: u32 = 16;
pub const BLOCKS: u32 = 4096;
pub const DATA_BYTES: u32 = 64 * IO_QUEUES as u32 * BLOCK_BYTES;

#[repr(C)]
pub struct Registers {
    pub cc: AtomicU32,
    pub csts: AtomicU32,
    pub event: AtomicU32,
    pub cause: [AtomicU32; IO_QUEUES],
    pub doorbells: [Doorbells; QUEUES],
}

#[repr(C)]
pub struct Doorbells {
    pub sq_tail: AtomicU32,
    pub cq_head: AtomicU32,
}

#[repr(C)]
pub struct HostMemory {
    pub sq: [[[AtomicU32; 16]; SQ_ENTRIES as usize]; QUEUES],
    pub cq: [[[AtomicU32; 4]; CQ_ENTRIES as usize]; QUEUES],
    // The data follows. Only the flash accesses it.
}

// SAFETY: the lab has both, in this layout, as long as it runs. All fields are atomics.
unsafe extern "C" {
    #[link_name = "registers"]
    pub safe static REGISTERS: Registers;
    #[link_name = "host_memory"]
    pub safe static MEMORY: HostMemory;
}

pub const CC_ENABLE: u32 = 1;
pub const CSTS_READY: u32 = 1;
pub const CSTS_FATAL: u32 = 2;
pub const EVENT_DOORBELL_VALUE: u32 = 0x0100;

/// The cause of an interrupt.
#[derive(Clone, Copy)]
pub enum Cause {
    /// Reap everything.
    Normal = 1,
    /// Reap urgent and failed entries.
    Urgent = 2,
    /// Reap the admin queue.
    Admin = 4,
}

/// The status of a completion: code in bits 7:0, type in 10:8.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Success = 0x000,
    InvalidOpcode = 0x001,
    InvalidField = 0x002,
    InvalidNamespace = 0x00b,
    SequenceError = 0x00c,
    LbaOutOfRange = 0x080,
    NotSaveable = 0x10d,
    UnrecoveredRead = 0x281,
}
