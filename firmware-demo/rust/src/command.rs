//! Decodes reads and writes. Every decoded value is valid.

use crate::host::{BLOCK_BYTES, BLOCKS, DATA_BYTES, Status};
use crate::queue::Entry;
use coalesce_decision::{BothBits, Hint};

const WRITE: u32 = 0x01;
const READ: u32 = 0x02;
/// Where Command Dword 12 has its hint, as in `lab/nvme.h`.
const HINT_SHIFT: u32 = 16;

pub struct ReadOrWrite {
    pub is_write: bool,
    pub block: u32,
    pub address: u32, // in the host's memory
}

impl TryFrom<&Entry> for ReadOrWrite {
    type Error = Status;

    fn try_from(entry: &Entry) -> Result<Self, Status> {
        let is_write = match entry[0] & 0xff {
            WRITE => true,
            READ => false,
            _ => return Err(Status::InvalidOpcode),
        };
        if entry[1] != 1 {
            return Err(Status::InvalidNamespace);
        }
        let (block, address, blocks) = (entry[10], entry[6], (entry[12] & 0xffff) + 1);
        if entry[0] & 0xff00 != 0 || blocks != 1 {
            return Err(Status::InvalidField); // a fused command, or one with an SGL
        }
        if !address.is_multiple_of(BLOCK_BYTES) || address >= DATA_BYTES || entry[7] != 0 {
            return Err(Status::InvalidField);
        }
        if block >= BLOCKS || entry[11] != 0 {
            return Err(Status::LbaOutOfRange);
        }
        Ok(Self { is_write, block, address })
    }
}

/// The requester's hint; of two hints the more urgent one.
pub const fn hint(entry: &Entry) -> Hint {
    Hint::from_bits((entry[12] >> HINT_SHIFT) as u8, BothBits::Urgent).merge(Hint::from_access_latency(entry[13]))
}
