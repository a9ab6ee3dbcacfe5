//! Reads and writes, decoded: after this every value is one that can be.

use crate::host::{BLOCK_BYTES, BLOCKS, DATA_BYTES, Status};
use crate::queue::Entry;
use cint_core::{BothBits, Hint};

pub struct ReadOrWrite {
    pub is_write: bool,
    pub block: u32,
    pub address: u32, // in the host's memory
}

impl TryFrom<&Entry> for ReadOrWrite {
    type Error = Status;

    fn try_from(entry: &Entry) -> Result<Self, Status> {
        let is_write = match entry[0] & 0xff {
            0x01 => true,
            0x02 => false,
            _ => return Err(Status::InvalidOpcode),
        };
        if entry[1] != 1 {
            return Err(Status::InvalidNamespace);
        }
        let is_plain = entry[0] & 0xff00 == 0 && entry[12] & 0xffff == 0; // not fused, PRP; one block
        let address = entry[6];
        if !is_plain || !address.is_multiple_of(BLOCK_BYTES) || address >= DATA_BYTES || entry[7] != 0 {
            return Err(Status::InvalidField);
        }
        if entry[10] >= BLOCKS || entry[11] != 0 {
            return Err(Status::LbaOutOfRange);
        }
        Ok(Self { is_write, block: entry[10], address })
    }
}

/// What the requester says about the command; of two things the more urgent one.
pub const fn hint(entry: &Entry) -> Hint {
    Hint::from_cdw12(entry[12], BothBits::Urgent).merge(Hint::from_access_latency(entry[13]))
}
