//! Commands of I/O queues (NVMe 1.4 §6): from a submission queue entry to an operation of the back end.

use super::prp::{Prps, Range};
use super::spec::{NSID, NSID_ALL, Sqe, Status, TRANSFER_MAX, nvm};
use crate::backend::{Buffers, Operation, Outcome};
use crate::disk::Disk;
use crate::source::Task;
use crate::vfio_user::memory::{Access, DmaMemory, Slice};
use std::sync::atomic::Ordering;

/// Bytes of a range of Dataset Management.
const RANGE_LEN: usize = 16;

/// What a command needs.
#[derive(Debug)]
pub struct Command {
    /// What to do.
    pub task: Task,
    /// Where its requester may say a hint: Command Dwords 12 and 13.
    pub hint_dwords: [u32; 2],
    /// Its status if it fails.
    pub failure: Status,
    /// What it needs until it completes.
    pub data: Data,
}

impl Command {
    /// Whether it fails because a part of its data is not in guest memory.
    #[must_use]
    pub fn misses_memory(&self) -> bool {
        matches!(self.task, Task::Answer(Outcome::Error)) && self.failure == Status::DATA_TRANSFER
    }
}

/// What a command needs until it completes.
#[derive(Debug, Default)]
pub struct Data {
    first: Option<Slice>, // keeps the buffers mapped
    others: Vec<Slice>,
    /// Operations that follow, the next one last.
    pub discards: Vec<Operation>,
}

impl Data {
    fn keep(&mut self, slice: Slice) {
        match &self.first {
            None => self.first = Some(slice),
            Some(_) => self.others.push(slice),
        }
    }
}

/// Parses commands. It reuses its buffer from command to command.
#[derive(Debug, Default)]
pub struct Parser(Vec<Range>);

impl Parser {
    /// Parses a command. The addresses of its data go to `buffers`.
    pub fn parse(&mut self, sqe: &Sqe, disk: &Disk, memory: &DmaMemory, buffers: &mut Buffers) -> Command {
        let mut data = Data::default();
        let operation = self.operation(sqe, disk, memory, buffers, &mut data);
        let (task, failure) = match operation {
            Ok(Some(operation)) => (Task::Operation(operation), failure(&operation)),
            Ok(None) => (Task::Answer(Outcome::Ok), Status::INTERNAL),
            Err(status) => (Task::Answer(Outcome::Error), status),
        };
        if matches!(task, Task::Answer(_)) {
            buffers.clear();
        }
        Command { task, hint_dwords: hint_dwords(sqe), failure, data }
    }

    /// The operation of a command; `None`: there is nothing to do.
    fn operation(
        &mut self,
        sqe: &Sqe,
        disk: &Disk,
        memory: &DmaMemory,
        buffers: &mut Buffers,
        data: &mut Data,
    ) -> Result<Option<Operation>, Status> {
        if !sqe.has_plain_flags() {
            return Err(Status::INVALID_FIELD);
        }
        let opcode = sqe.opcode();
        if !matches!(opcode, nvm::FLUSH | nvm::READ | nvm::WRITE | nvm::WRITE_ZEROES | nvm::DATASET_MANAGEMENT) {
            return Err(Status::INVALID_OPCODE);
        }
        if sqe.nsid() != NSID && (opcode, sqe.nsid()) != (nvm::FLUSH, NSID_ALL) {
            return Err(Status::INVALID_NAMESPACE);
        }
        if disk.limits.read_only && !matches!(opcode, nvm::FLUSH | nvm::READ) {
            return Err(Status::WRITE_PROTECTED);
        }
        let durable = sqe.fua() || !disk.write_back.load(Ordering::Relaxed);
        let operation = match opcode {
            nvm::FLUSH => Operation::Flush,
            nvm::READ => {
                let (offset, len) = transfer(sqe, disk)?;
                self.map(sqe, memory, len, Access::Write, buffers, data)?;
                Operation::Read { offset, durable: sqe.fua() } // what was written before the cache was switched off may be in it
            }
            nvm::WRITE => {
                let (offset, len) = transfer(sqe, disk)?;
                self.map(sqe, memory, len, Access::Read, buffers, data)?;
                Operation::Write { offset, durable }
            }
            nvm::WRITE_ZEROES => {
                let (offset, len) = range(sqe.lba(), sqe.blocks(), disk)?;
                Operation::WriteZeroes { offset, len, unmap: sqe.may_deallocate(), by_hand: false, durable }
            }
            _ => {
                discards(sqe, disk, memory, &mut data.discards)?;
                return Ok(data.discards.pop());
            }
        };
        Ok(Some(operation))
    }

    fn map(
        &mut self,
        sqe: &Sqe,
        memory: &DmaMemory,
        len: u64,
        access: Access,
        buffers: &mut Buffers,
        data: &mut Data,
    ) -> Result<(), Status> {
        prps(sqe).ranges(memory, len, &mut self.0)?;
        self.0.iter().try_for_each(|range| {
            range.each_slice(memory, access, |slice| {
                buffers.push(slice.as_ptr(), slice.len());
                data.keep(slice);
                true
            })
        })
    }
}

/// Where the data of a command lies.
#[must_use]
pub const fn prps(sqe: &Sqe) -> Prps {
    Prps { first: sqe.prp1(), second: sqe.prp2() }
}

/// The dwords that may carry a hint. Only reads and writes have one.
fn hint_dwords(sqe: &Sqe) -> [u32; 2] {
    let has_hint = matches!(sqe.opcode(), nvm::READ | nvm::WRITE);
    if has_hint { [sqe.dword::<12>(), sqe.dword::<13>()] } else { [0; 2] }
}

/// The status if the back end fails.
const fn failure(operation: &Operation) -> Status {
    match operation {
        Operation::Read { .. } => Status::READ_ERROR,
        Operation::Write { .. } | Operation::WriteZeroes { .. } => Status::WRITE_FAULT,
        Operation::Flush | Operation::Discard { .. } => Status::INTERNAL,
    }
}

/// Offset and length in bytes of a read or write.
fn transfer(sqe: &Sqe, disk: &Disk) -> Result<(u64, u64), Status> {
    if sqe.blocks() * u64::from(disk.limits.block_size) > TRANSFER_MAX {
        return Err(Status::INVALID_FIELD);
    }
    range(sqe.lba(), sqe.blocks(), disk)
}

/// Offset and length in bytes of blocks, if they are on the disk.
fn range(lba: u64, blocks: u64, disk: &Disk) -> Result<(u64, u64), Status> {
    let block_size = u64::from(disk.limits.block_size);
    let end = lba.checked_add(blocks).filter(|end| *end <= disk.limits.size.get() / block_size);
    end.map(|_| (lba * block_size, blocks * block_size)).ok_or(Status::LBA_RANGE)
}

/// The ranges that Dataset Management deallocates, the first one last. Other attributes are only advice. So is this one:
/// ranges that overlap could make the disk large many times over, so no more bytes are deallocated than it has.
fn discards(sqe: &Sqe, disk: &Disk, memory: &DmaMemory, discards: &mut Vec<Operation>) -> Result<(), Status> {
    const DEALLOCATE: u32 = 1 << 2;
    let count = (sqe.dword::<10>() & 0xff) as usize + 1;
    let mut bytes = vec![0; count * RANGE_LEN];
    prps(sqe).read(memory, &mut bytes)?;
    let mut left = disk.limits.size.get();
    for bytes in bytes.chunks_exact(RANGE_LEN) {
        let number = |from: usize, to: usize| bytes[from..to].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let (offset, len) = range(number(8, 16), number(4, 8), disk)?;
        let len = len.min(left);
        if sqe.dword::<11>() & DEALLOCATE != 0 && len > 0 {
            left -= len;
            discards.push(Operation::Discard { offset, len });
        }
    }
    discards.reverse();
    Ok(())
}
