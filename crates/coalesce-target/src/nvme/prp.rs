//! Physical Region Pages (NVMe 1.4 §4.3): where the data of a command lies in guest memory. The guest may write anything
//! into them.

use super::spec::Status;
use crate::vfio_user::memory::{Access, DmaMemory, PAGE, Slice};

/// The two PRP entries of a command.
#[derive(Clone, Copy, Debug)]
pub struct Prps {
    /// PRP entry 1.
    pub first: u64,
    /// PRP entry 2.
    pub second: u64,
}

/// A range of guest addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its start.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Bytes of an entry in a PRP list.
const ENTRY_LEN: u64 = 8;

impl Prps {
    /// The ranges of `len` bytes of data, in order. They replace what is in `ranges`. Neighbours are joined. Each list page
    /// but the first describes 511 pages of data or ends the list, so the length bounds a list that is chained to itself.
    ///
    /// # Errors
    /// An offset is invalid, or a list is not in guest memory.
    pub fn ranges(self, memory: &DmaMemory, len: u64, ranges: &mut Vec<Range>) -> Result<(), Status> {
        ranges.clear();
        if !self.first.is_multiple_of(4) {
            return Err(Status::PRP_OFFSET);
        }
        let mut rest = len;
        let mut add = |start: u64, most: u64| {
            let len = rest.min(most);
            rest -= len;
            match ranges.last_mut() {
                Some(last) if last.start.checked_add(last.len) == Some(start) => last.len += len,
                _ => ranges.push(Range { start, len }),
            }
            rest
        };
        let mut left = add(self.first, PAGE - self.first % PAGE);
        match left {
            0 => return Ok(()),
            1..=PAGE => {
                add(page(self.second)?, PAGE);
                return Ok(());
            }
            _ => {}
        }
        let mut list = self.second;
        if !list.is_multiple_of(ENTRY_LEN) {
            return Err(Status::PRP_OFFSET);
        }
        let mut bytes = [0; PAGE as usize];
        loop {
            let entries = ((PAGE - list % PAGE) / ENTRY_LEN) as usize;
            let wanted = left.div_ceil(PAGE) as usize;
            let bytes = &mut bytes[..entries.min(wanted) * ENTRY_LEN as usize];
            let entries_read = memory.slice(list, bytes.len(), Access::Read).is_some_and(|slice| slice.read(0, bytes));
            if !entries_read {
                return Err(Status::DATA_TRANSFER);
            }
            let mut numbers = bytes.chunks_exact(ENTRY_LEN as usize).map(le64);
            let data = if wanted > entries { entries - 1 } else { wanted };
            for start in numbers.by_ref().take(data) {
                left = add(page(start)?, PAGE);
            }
            match numbers.next() {
                None => return Ok(()),
                Some(next) => list = page(next)?,
            }
        }
    }

    /// Writes `bytes` to guest memory.
    ///
    /// # Errors
    /// An offset is invalid, or a part is not in writable guest memory. Some bytes may be written.
    pub fn write(self, memory: &DmaMemory, bytes: &[u8]) -> Result<(), Status> {
        let mut rest = bytes;
        self.each(memory, bytes.len() as u64, Access::Write, |slice| {
            let (now, later) = rest.split_at(slice.len().min(rest.len()));
            rest = later;
            slice.write(0, now)
        })
    }

    /// Reads `bytes` from guest memory.
    ///
    /// # Errors
    /// An offset is invalid, or a part is not in readable guest memory.
    pub fn read(self, memory: &DmaMemory, bytes: &mut [u8]) -> Result<(), Status> {
        let len = bytes.len() as u64;
        let mut at = 0;
        self.each(memory, len, Access::Read, |slice| {
            let end = bytes.len().min(at + slice.len());
            let is_read = slice.read(0, &mut bytes[at..end]);
            at = end;
            is_read
        })
    }

    fn each(
        self,
        memory: &DmaMemory,
        len: u64,
        access: Access,
        mut visit: impl FnMut(Slice) -> bool,
    ) -> Result<(), Status> {
        let mut ranges = Vec::new();
        self.ranges(memory, len, &mut ranges)?;
        ranges.into_iter().try_for_each(|range| range.each_slice(memory, access, &mut visit))
    }
}

impl Range {
    /// Visits the range as mapped memory: one slice, or several if it crosses regions.
    ///
    /// # Errors
    /// A part is not in guest memory with that permission, or `visit` returns false.
    pub fn each_slice(
        self,
        memory: &DmaMemory,
        access: Access,
        mut visit: impl FnMut(Slice) -> bool,
    ) -> Result<(), Status> {
        let mut visit = |slice| if visit(slice) { Ok(()) } else { Err(Status::DATA_TRANSFER) };
        if let Some(whole) = usize::try_from(self.len).ok().and_then(|len| memory.slice(self.start, len, access)) {
            return visit(whole);
        }
        let end = self.start.checked_add(self.len).ok_or(Status::DATA_TRANSFER)?;
        let slices = memory.slices(&(self.start..end), access).ok_or(Status::DATA_TRANSFER)?;
        slices.into_iter().try_for_each(visit)
    }
}

/// An entry behind the first, which has no offset.
const fn page(entry: u64) -> Result<u64, Status> {
    if entry.is_multiple_of(PAGE) { Ok(entry) } else { Err(Status::PRP_OFFSET) }
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
