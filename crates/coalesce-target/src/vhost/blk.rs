//! virtio-blk (virtio 1.2 §5.2): the parser of requests in descriptor chains, and the layout of the configuration
//! space.

use super::chain::Chain;
use super::memory::GuestMemory;
use crate::backend::{Buffers, Operation};
use crate::disk::Limits;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP, VIRTIO_BLK_T_BARRIER, VIRTIO_BLK_T_DISCARD,
    VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_WRITE_ZEROES,
    VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP,
};
use vm_memory::{Address as _, Bytes as _, GuestAddress, GuestMemory as _, Permissions};

/// Sectors are 512 bytes, whatever the block size.
pub const SECTOR: u64 = 512;
/// The data segments per request that the device offers. They fit into a queue of 128 entries without indirect
/// descriptors, as Linux requires.
pub const SEG_MAX: u32 = 126;
/// The most data segments that the device accepts: as many as one system call takes.
const SEGMENTS_MAX: usize = 1024;
/// The most bytes of a chain (virtio 1.2 §2.7.5).
const CHAIN_BYTES_MAX: u64 = 1 << 32;
/// A flush, as legacy drivers may name it (virtio 0.9.5, appendix D: equivalent to the other).
const FLUSH_OUT: u32 = VIRTIO_BLK_T_FLUSH | VIRTIO_BLK_T_OUT;
/// The most sectors in one discard or write-zeroes request: 1 GiB.
pub const RANGE_SECTORS_MAX: u32 = 1 << 21;

const RANGE_LEN: u64 = 16;

/// The status byte of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It succeeded.
    Ok = VIRTIO_BLK_S_OK as u8,
    /// It failed, or it was invalid.
    IoError = VIRTIO_BLK_S_IOERR as u8,
    /// The device does not support the request.
    Unsupported = VIRTIO_BLK_S_UNSUPP as u8,
}

/// What to do for a request.
#[derive(Debug)]
pub enum Task {
    /// The back end performs it.
    Operation(Operation),
    /// The request completes at once with this status.
    Answer(Status),
}

/// A request with room for a status byte.
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub task: Task,
    /// The guest's I/O priority; the class is in bits 15:13.
    pub ioprio: u16,
    /// The address of the status byte.
    pub status: GuestAddress,
    /// Bytes of guest memory that a successful request writes, without the status.
    pub written: u32,
    /// The length of its chain.
    pub descriptors: u32,
}

/// The chain is not a request, because it has no room for a status byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Segments of guest memory, in order.
#[derive(Debug, Default)]
struct Parts {
    list: Vec<(GuestAddress, u64)>,
    first: usize, // segments before it are consumed
}

impl Parts {
    fn clear(&mut self) {
        self.list.clear();
        self.first = 0;
    }

    fn rest(&self) -> &[(GuestAddress, u64)] {
        &self.list[self.first..]
    }

    fn len(&self) -> u64 {
        self.rest().iter().map(|(_, len)| len).sum()
    }

    /// Reads and consumes the first `N` bytes.
    fn read_front<const N: usize>(&mut self, memory: &GuestMemory) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let mut at = 0;
        while at < N {
            let (address, available) = self.list.get_mut(self.first)?;
            let n = usize::try_from(*available).unwrap_or(usize::MAX).min(N - at);
            memory.read_slice(&mut bytes[at..at + n], *address).ok()?;
            *address = address.checked_add(n as u64)?;
            *available -= n as u64;
            self.first += usize::from(*available == 0);
            at += n;
        }
        Some(bytes)
    }

    /// Consumes the last byte and returns its address.
    fn take_last(&mut self) -> Option<GuestAddress> {
        while let Some((address, len)) = self.list.last_mut() {
            match len.checked_sub(1) {
                None => drop(self.list.pop()),
                Some(rest) => {
                    *len = rest;
                    return address.checked_add(rest);
                }
            }
        }
        None
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Parses descriptor chains. It reuses its buffers from chain to chain.
#[derive(Debug, Default)]
pub struct Parser {
    readable: Parts,
    writable: Parts,
}

impl Parser {
    /// Parses a chain. The addresses of its data go to `buffers`. With `durable`, a write completes only when it is on
    /// the medium. A driver may split a request into descriptors anywhere (virtio 1.2 §2.7.4). A chain that is too long, or
    /// out of order, is an error of its request as long as it has a status byte.
    ///
    /// # Errors
    /// The chain has no status byte in guest memory, or it loops or is cut off.
    pub fn parse(
        &mut self,
        chain: Chain<'_>,
        limits: &Limits,
        durable: bool,
        buffers: &mut Buffers,
    ) -> Result<Request, Malformed> {
        let Self { readable, writable } = self;
        let memory = chain.memory();
        readable.clear();
        writable.clear();
        let (mut ends, mut is_request, mut bytes, mut descriptors) = (false, true, 0, 0);
        for descriptor in chain {
            descriptors += 1;
            let (device_writes, len) = (descriptor.is_write_only(), u64::from(descriptor.len()));
            bytes += len;
            is_request &= bytes <= CHAIN_BYTES_MAX
                && (device_writes || writable.list.is_empty())
                && readable.list.len() + writable.list.len() <= SEGMENTS_MAX + 2;
            let parts = if device_writes { &mut *writable } else { &mut *readable };
            if !is_request && len > 0 {
                parts.clear(); // of a chain that is no request only its last part counts, which has the status
            }
            if is_request || len > 0 {
                parts.list.push((descriptor.addr(), len));
            }
            ends = !descriptor.has_next();
        }
        if !ends {
            return Err(Malformed); // it loops or leaves its table
        }
        let status = writable
            .take_last()
            .filter(|status| memory.check_range(*status, 1, Permissions::Write))
            .ok_or(Malformed)?;
        let header = if is_request { readable.read_front::<16>(memory) } else { None };
        let Some(header) = header else {
            return Ok(Request { task: Task::Answer(Status::IoError), ioprio: 0, status, written: 0, descriptors });
        };
        let (kind, ioprio, sector) = (le32(&header, 0), le32(&header, 4) as u16, le64(&header, 8));
        // Barriers are not offered, and drivers set the flag all the same: SLOF does in every request.
        let (task, written) = match kind & !VIRTIO_BLK_T_BARRIER {
            VIRTIO_BLK_T_GET_ID => match write_all(memory, writable, &limits.serial) {
                Some(written) => (Ok(Task::Answer(Status::Ok)), written),
                None => (Err(Status::IoError), 0),
            },
            VIRTIO_BLK_T_IN => {
                let operation = read_task(sector, readable, writable, limits);
                let task = operation.and_then(|operation| map(memory, writable, buffers).map(|()| operation));
                (task, buffers.len() as u32)
            }
            VIRTIO_BLK_T_OUT => {
                let operation = write_task(sector, readable, writable, limits, durable);
                (operation.and_then(|operation| map(memory, readable, buffers).map(|()| operation)), 0)
            }
            VIRTIO_BLK_T_FLUSH | FLUSH_OUT => (Ok(Task::Operation(Operation::Flush)), 0),
            kind @ (VIRTIO_BLK_T_DISCARD | VIRTIO_BLK_T_WRITE_ZEROES) => {
                (range_task(kind, memory, readable, limits, durable), 0)
            }
            _ => (Err(Status::Unsupported), 0),
        };
        Ok(match task {
            Ok(task) => Request { task, ioprio, status, written, descriptors },
            Err(error) => Request { task: Task::Answer(error), ioprio, status, written: 0, descriptors },
        })
    }
}

fn read_task(sector: u64, readable: &Parts, writable: &Parts, limits: &Limits) -> Result<Task, Status> {
    let offset = transfer(sector, writable.len(), limits)?;
    if readable.len() > 0 {
        Err(Status::IoError)
    } else {
        Ok(Task::Operation(Operation::Read { offset, durable: false }))
    }
}

fn write_task(sector: u64, readable: &Parts, writable: &Parts, limits: &Limits, durable: bool) -> Result<Task, Status> {
    let offset = transfer(sector, readable.len(), limits)?;
    if writable.len() > 0 || limits.read_only {
        return Err(Status::IoError);
    }
    Ok(Task::Operation(Operation::Write { offset, durable }))
}

/// Discard and write-zeroes: one range, and only the flags that the request type has.
fn range_task(
    kind: u32,
    memory: &GuestMemory,
    readable: &mut Parts,
    limits: &Limits,
    durable: bool,
) -> Result<Task, Status> {
    if limits.read_only || readable.len() != RANGE_LEN {
        return Err(Status::IoError);
    }
    let bytes = readable.read_front::<16>(memory).ok_or(Status::IoError)?;
    let (sector, sectors, flags) = (le64(&bytes, 0), le32(&bytes, 8), le32(&bytes, 12));
    let len = u64::from(sectors) * SECTOR;
    let offset = transfer(sector, len, limits)?;
    match (kind, flags) {
        _ if sectors > RANGE_SECTORS_MAX => Err(Status::IoError),
        (VIRTIO_BLK_T_DISCARD, 0) => Ok(Task::Operation(Operation::Discard { offset, len })),
        (VIRTIO_BLK_T_WRITE_ZEROES, 0 | VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP) => {
            Ok(Task::Operation(Operation::WriteZeroes { offset, len, unmap: flags != 0, by_hand: false, durable }))
        }
        _ => Err(Status::Unsupported),
    }
}

/// The offset in bytes of a range, if it is whole sectors inside the disk.
fn transfer(sector: u64, len: u64, limits: &Limits) -> Result<u64, Status> {
    let offset = sector.checked_mul(SECTOR).ok_or(Status::IoError)?;
    let inside = offset.checked_add(len).is_some_and(|end| end <= limits.size.get());
    if len.is_multiple_of(SECTOR) && inside { Ok(offset) } else { Err(Status::IoError) }
}

/// The most buffers in one request: Linux takes this many in one system call. A segment that crosses from one memory
/// region into the next has two buffers.
const PARTS_MAX: usize = libc::UIO_MAXIOV as usize;

/// Puts the addresses of `data` in this process into `buffers`. Fails if a part of it is outside guest memory.
fn map(memory: &GuestMemory, data: &Parts, buffers: &mut Buffers) -> Result<(), Status> {
    for &(address, len) in data.rest() {
        let len = usize::try_from(len).map_err(|_| Status::IoError)?;
        for slice in memory.get_slices(address, len, Permissions::ReadWrite).map_err(|_| Status::IoError)? {
            let slice = slice.map_err(|_| Status::IoError)?;
            if buffers.rest().len() == PARTS_MAX {
                return Err(Status::IoError);
            }
            buffers.push(slice.ptr_guard_mut().as_ptr(), slice.len());
        }
    }
    Ok(())
}

/// Writes as much of `bytes` as fits. Returns the number of bytes written.
fn write_all(memory: &GuestMemory, room: &Parts, bytes: &[u8]) -> Option<u32> {
    let mut rest = bytes;
    for &(address, len) in room.rest() {
        let (now, later) = rest.split_at(rest.len().min(usize::try_from(len).unwrap_or(usize::MAX)));
        memory.write_slice(now, address).ok()?;
        rest = later;
    }
    Some((bytes.len() - rest.len()) as u32)
}

/// `struct virtio_blk_config`, little endian.
#[must_use]
pub fn config_space(limits: &Limits, queues: u16, write_back: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CONFIG_LEN);
    bytes.extend((limits.size.get() / SECTOR).to_le_bytes()); // capacity
    bytes.extend(0_u32.to_le_bytes()); // size_max: not offered
    bytes.extend(SEG_MAX.to_le_bytes());
    bytes.extend([0; 4]); // geometry: not offered
    bytes.extend(limits.block_size.to_le_bytes());
    bytes.extend([0, 0]); // physical_block_exp, alignment_offset: physical and logical blocks are the same
    bytes.extend(1_u16.to_le_bytes()); // min_io_size, in blocks
    bytes.extend(1_u32.to_le_bytes()); // opt_io_size, in blocks
    bytes.extend([u8::from(write_back), 0]);
    bytes.extend(queues.to_le_bytes());
    let align = limits.block_size / SECTOR as u32;
    for number in [RANGE_SECTORS_MAX, 1, align, RANGE_SECTORS_MAX, 1] {
        bytes.extend(number.to_le_bytes()); // max_discard_sectors, _seg, discard_sector_alignment, max_write_zeroes_*
    }
    bytes.extend([1, 0, 0, 0]); // write_zeroes_may_unmap
    debug_assert_eq!(bytes.len(), CONFIG_LEN);
    bytes
}

const CONFIG_LEN: usize = 60;
/// Offset in bytes of the field in which the guest sets the cache to write-back (1) or write-through (0).
pub const CONFIG_WRITEBACK: u32 = 32;
