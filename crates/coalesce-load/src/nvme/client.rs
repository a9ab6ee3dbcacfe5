//! The client's side of vfio-user 0.0: messages to the server of one PCI device. Numbers have the host's byte order.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use coalesce_cli::connect_to_new;
use memmap2::{MmapOptions, MmapRaw};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::Error;
use crate::memory::PAGE;

const HEADER_BYTES: usize = 16;
/// Bytes of the largest answer that is understood.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Commands.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const GET_REGION_INFO: u16 = 5;
const GET_IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;

/// Flags of a header.
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// Regions and kinds of interrupts of a PCI device.
const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;

/// A server that is connected.
#[derive(Debug)]
pub struct Client {
    stream: Mutex<UnixStream>,
    deadline: Instant, // of every answer: only the set-up asks
}

impl Client {
    /// Connects, and agrees on the version. All answers must come until `deadline`.
    pub fn connect(path: &Path, deadline: Instant) -> Result<Self, Error> {
        let stream = connect_to_new(path, left(deadline)?).map_err(|error| Error::Connect(error.to_string()))?;
        stream.set_write_timeout(Some(left(deadline)?))?;
        let client = Self { stream: Mutex::new(stream), deadline };
        let version = [&[0; 4][..], b"{\"capabilities\":{\"max_msg_fds\":1}}\0"].concat();
        let answer = client.ask("the version", VERSION, &version, None).map_err(|error| match error {
            Error::Closed => Error::Connect("it does not speak vfio-user; is it a virtio-blk disk?".into()),
            other => other,
        })?;
        match answer.get(..2) {
            Some([0, 0]) => Ok(client),
            _ => Err(Error::Connect("it does not speak version 0 of vfio-user".into())),
        }
    }

    /// The socket, which shows when the target closes the connection.
    pub fn connection(&self) -> Result<OwnedFd, Error> {
        Ok(self.stream.lock().unwrap_or_else(PoisonError::into_inner).as_fd().try_clone_to_owned()?)
    }

    /// Shares memory: `size` bytes of a file, at an address of the device's.
    pub fn map(&self, address: u64, file: BorrowedFd<'_>, size: u64) -> Result<(), Error> {
        const READ_AND_WRITE: u32 = 3;
        let payload = [words(&[32, READ_AND_WRITE]), longs(&[0, address, size])].concat();
        self.ask("to map memory", DMA_MAP, &payload, Some(file)).map(drop)
    }

    /// The registers, and which of them can be mapped.
    pub fn registers(&self) -> Result<Registers, Error> {
        let room = (ANSWER_BYTES_MAX - HEADER_BYTES) as u32;
        let question = [words(&[room, 0, BAR0, 0]), longs(&[0, 0])].concat();
        let (answer, fd) = self.exchange("a region", GET_REGION_INFO, &question, None)?;
        Registers::parse(&answer, fd).ok_or(SHORT)
    }

    /// The number of interrupt vectors.
    pub fn vectors(&self) -> Result<u32, Error> {
        let answer = self.ask("interrupts", GET_IRQ_INFO, &words(&[16, 0, MSIX, 0]), None)?;
        answer.get(12..16).and_then(|count| count.try_into().ok()).map(u32::from_ne_bytes).ok_or(SHORT)
    }

    /// Assigns an eventfd to a vector.
    pub fn assign(&self, vector: u32, eventfd: BorrowedFd<'_>) -> Result<(), Error> {
        const TRIGGER_EVENTFD: u32 = 1 << 5 | 1 << 2;
        let payload = words(&[20, TRIGGER_EVENTFD, MSIX, vector, 1]);
        self.ask("an eventfd", SET_IRQS, &payload, Some(eventfd)).map(drop)
    }

    /// Writes 16 bits of the configuration space.
    pub fn configure(&self, offset: u64, value: u16) -> Result<(), Error> {
        let payload = [access(offset, CONFIG, 2), value.to_ne_bytes().to_vec()].concat();
        self.ask("to write its configuration", REGION_WRITE, &payload, None).map(drop)
    }

    /// Reads 32 bits of the registers.
    pub fn read32(&self, offset: u64) -> Result<u32, Error> {
        let answer = self.ask("to read a register", REGION_READ, &access(offset, BAR0, 4), None)?;
        answer.get(16..20).and_then(|value| value.try_into().ok()).map(u32::from_le_bytes).ok_or(SHORT)
    }

    /// Writes 32 bits of the registers, without waiting.
    pub fn write32(&self, offset: u64, value: u32) -> Result<(), Error> {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        send(&stream, REGION_WRITE, NO_REPLY, &[access(offset, BAR0, 4), value.to_le_bytes().to_vec()].concat(), None)
    }

    /// Writes 64 bits of the registers, as two halves.
    pub fn write64(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.write32(offset, value as u32)?;
        self.write32(offset + 4, (value >> 32) as u32)
    }

    /// Sends a command. Returns the payload of its answer. `what`: for messages.
    fn ask(&self, what: &str, command: u16, payload: &[u8], file: Option<BorrowedFd<'_>>) -> Result<Vec<u8>, Error> {
        self.exchange(what, command, payload, file).map(|(answer, _)| answer)
    }

    /// The same, with a file that came with the answer.
    fn exchange(
        &self,
        what: &str,
        command: u16,
        payload: &[u8],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(Vec<u8>, Option<File>), Error> {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        send(&stream, command, 0, payload, file)?;
        let mut header = [0; HEADER_BYTES];
        let received = self.receive_first(&stream, &mut header)?;
        self.receive(&mut stream, &mut header[received.0..])?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (size, flags, errno) = (word(4) as usize, word(8), word(12));
        if header[2..4] != command.to_ne_bytes() || !(HEADER_BYTES..=ANSWER_BYTES_MAX).contains(&size) {
            return Err(Error::Protocol("an answer of vfio-user belongs to no command"));
        }
        let mut answer = vec![0; size - HEADER_BYTES];
        self.receive(&mut stream, &mut answer)?;
        if flags & ERROR != 0 {
            return Err(Error::Connect(format!("it refuses {what}: {}", Errno::from_raw(errno as i32).desc())));
        }
        Ok((answer, received.1))
    }

    /// Receives the first bytes of a message, and the file that comes with them.
    fn receive_first(&self, stream: &UnixStream, buffer: &mut [u8]) -> Result<(usize, Option<File>), Error> {
        let mut control = cmsg_space!([RawFd; 1]);
        let mut parts = [IoSliceMut::new(buffer)];
        let mut file = None;
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = loop {
            stream.set_read_timeout(Some(left(self.deadline)?))?;
            match recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut control), flags) {
                Err(Errno::EINTR) => {}
                outcome => break outcome.map_err(|error| not_received(error.into()))?,
            }
        };
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = part {
                // SAFETY: the descriptors have just been received, and nobody else has them.
                file = fds.into_iter().map(|fd| unsafe { File::from_raw_fd(fd) }).next();
            }
        }
        Ok((message.bytes, file))
    }

    fn receive(&self, stream: &mut UnixStream, mut buffer: &mut [u8]) -> Result<(), Error> {
        while !buffer.is_empty() {
            stream.set_read_timeout(Some(left(self.deadline)?))?; // each time: it may send a byte at a time
            match stream.read(buffer) {
                Ok(0) => return Err(Error::Closed),
                Ok(len) => buffer = &mut buffer[len..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(not_received(error)),
            }
        }
        Ok(())
    }
}

fn not_received(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionReset => Error::Closed,
        io::ErrorKind::WouldBlock => no_answer(),
        _ => error.into(),
    }
}

/// The registers of a device.
#[derive(Debug)]
pub struct Registers {
    pub len: u64,
    file: Option<File>,
    /// Where the registers are in the file.
    offset: u64,
    /// What can be mapped: offset and size in the registers.
    areas: Vec<(u64, u64)>,
}

/// Registers that are mapped.
#[derive(Debug)]
pub struct Mapped {
    map: MmapRaw,
    /// The offset of the first of them.
    first: u64,
}

impl Registers {
    /// From `struct vfio_region_info` with its capabilities. `None`: they do not fit.
    fn parse(answer: &[u8], file: Option<File>) -> Option<Self> {
        const MMAP: u32 = 4;
        const CAPABILITIES: u32 = 8;
        const SPARSE_MMAP: u16 = 1;
        let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_ne_bytes(answer.get(at..at.checked_add(8)?)?.try_into().ok()?));
        let (flags, len, offset) = (word(4)?, long(16)?, long(24)?);
        let mut areas = vec![(0, len)];
        let mut at = if flags & CAPABILITIES == 0 { 0 } else { word(12)? as usize };
        while at != 0 {
            // Each is behind the one before it, so the chain has an end.
            let next = word(at + 4)? as usize;
            if word(at)? as u16 == SPARSE_MMAP {
                let area = |i: usize| Some((long(at + 16 + 16 * i)?, long(at + 24 + 16 * i)?));
                areas = (0..word(at + 8)? as usize).map(area).collect::<Option<_>>()?;
            }
            if next != 0 && next <= at {
                return None;
            }
            at = next;
        }
        Some(Self { len, file: file.filter(|_| flags & MMAP != 0), offset, areas })
    }

    /// Maps the registers in this range, if they can be mapped.
    pub fn map(&self, range: Range<u64>) -> Result<Option<Mapped>, Error> {
        let covers = |(first, size): &&(u64, u64)| {
            let end = first.saturating_add(*size);
            *first <= range.start && range.end <= end && end <= self.len
        };
        let (Some(file), Some(&(first, size))) = (&self.file, self.areas.iter().find(covers)) else { return Ok(None) };
        let at = self.offset.saturating_add(first);
        if !at.is_multiple_of(PAGE as u64) || file.metadata()?.len() < at.saturating_add(size) {
            return Err(Error::Protocol("the registers are not where they can be mapped"));
        }
        let map = MmapOptions::new().offset(at).len(size as usize).map_raw(file)?;
        Ok(Some(Mapped { map, first }))
    }
}

impl Mapped {
    /// Writes 32 bits of the registers. `offset` is in the range that was mapped, and a multiple of 4.
    pub fn write32(&self, offset: u64, value: u32) {
        let at = (offset - self.first) as usize;
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len());
        // SAFETY: it is inside and aligned, and nobody here accesses it but as an atomic.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(at).cast()) }.store(value.to_le(), Ordering::Release);
    }
}

const SHORT: Error = Error::Protocol("an answer of vfio-user is too short");

/// The target did not answer in time.
pub fn no_answer() -> Error {
    Error::Connect("it does not answer; is another client connected to it, or is it a virtio-blk disk?".into())
}

/// The time that is left.
fn left(deadline: Instant) -> Result<Duration, Error> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()).ok_or_else(no_answer)
}

fn send(
    stream: &UnixStream,
    command: u16,
    flags: u32,
    payload: &[u8],
    file: Option<BorrowedFd<'_>>,
) -> Result<(), Error> {
    let size = (HEADER_BYTES + payload.len()) as u32;
    let header = [&[0; 2][..], &command.to_ne_bytes(), &words(&[size, flags, 0])].concat();
    let message = [header, payload.to_vec()].concat();
    let fds: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
    let control: Vec<_> = file.iter().map(|_| ControlMessage::ScmRights(&fds)).collect();
    loop {
        match sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&message)], &control, MsgFlags::MSG_NOSIGNAL, None) {
            Ok(sent) if sent == message.len() => return Ok(()),
            Err(Errno::EINTR) => {}
            Ok(_) | Err(Errno::EAGAIN) => return Err(Error::Protocol("the target does not read its messages")),
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Error::Closed),
            Err(error) => return Err(error.into()),
        }
    }
}

fn access(offset: u64, region: u32, count: u32) -> Vec<u8> {
    [longs(&[offset]), words(&[region, count])].concat()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    const READ_WRITE_MMAP: u32 = 7;
    const CAPABILITIES: u32 = 8;
    const OTHER: u32 = 2 | 1 << 16; // id and version
    const SPARSE: u32 = 1 | 1 << 16;

    /// Registers of three pages, with these flags and capabilities. The file has as many pages as `file`.
    fn registers(flags: u32, capabilities: &[u8], file: usize) -> Option<Registers> {
        let head = [words(&[32 + capabilities.len() as u32, flags, BAR0, 32]), longs(&[3 << 12, 0])].concat();
        Registers::parse(&[&head, capabilities].concat(), Some(crate::memory::file(file * PAGE).unwrap()))
    }

    fn sparse(next: u32, first: u64, size: u64) -> Vec<u8> {
        [words(&[SPARSE, next, 1, 0]), longs(&[first, size])].concat()
    }

    #[test]
    fn a_doorbell_that_is_mapped_is_in_the_file_of_the_server() {
        let other = words(&[OTHER, 40]);
        for (flags, capabilities) in [
            (READ_WRITE_MMAP, vec![]),
            (READ_WRITE_MMAP | CAPABILITIES, sparse(0, 0x1000, 0x1000)),
            (READ_WRITE_MMAP | CAPABILITIES, [other, sparse(0, 0x1000, 0x2000)].concat()),
        ] {
            let registers = registers(flags, &capabilities, 3).unwrap();
            assert_eq!(registers.len, 3 << 12);
            let mapped = registers.map(0x1000..0x1010).unwrap().unwrap();
            mapped.write32(0x100c, 0x0403_0201);
            let mut file = registers.file.as_ref().unwrap();
            file.seek(io::SeekFrom::Start(0x100c)).unwrap();
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [1, 2, 3, 4]);
        }
    }

    #[test]
    fn registers_that_cannot_be_mapped_are_not() {
        let doorbells = 0x1000..0x1010;
        let mappable = READ_WRITE_MMAP | CAPABILITIES;
        for (what, flags, capabilities) in [
            ("not offered", 3, vec![]),
            ("another page", mappable, sparse(0, 0x2000, 0x1000)),
            ("too short", mappable, sparse(0, 0x1000, 8)),
            ("beyond the registers", mappable, sparse(0, 0x1000, 0x3000)),
            ("beyond all numbers", mappable, sparse(0, 0x1000, u64::MAX)),
            ("none", mappable, words(&[SPARSE, 0, 0, 0])),
        ] {
            assert!(registers(flags, &capabilities, 3).unwrap().map(doorbells.clone()).unwrap().is_none(), "{what}");
        }
        let no_file = Registers { file: None, ..registers(READ_WRITE_MMAP, &[], 3).unwrap() };
        assert!(no_file.map(doorbells.clone()).unwrap().is_none());
        assert!(registers(READ_WRITE_MMAP, &[], 1).unwrap().map(doorbells.clone()).is_err(), "a short file");
        assert!(registers(mappable, &sparse(0, 0x1, 0x2000), 3).unwrap().map(doorbells).is_err(), "not aligned");
    }

    #[test]
    fn capabilities_that_do_not_fit_are_refused() {
        for (what, capabilities) in [
            ("none", vec![]),
            ("a circle", words(&[OTHER, 32])),
            ("backwards", words(&[OTHER, 8])),
            ("beyond the answer", words(&[OTHER, 4096])),
            ("too many areas", words(&[SPARSE, 0, u32::MAX, 0])),
        ] {
            assert!(registers(READ_WRITE_MMAP | CAPABILITIES, &capabilities, 3).is_none(), "{what}");
        }
        assert!(Registers::parse(&[0; 31], None).is_none(), "too short");
    }
}
