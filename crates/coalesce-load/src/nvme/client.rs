//! The client's side of vfio-user 0.0: messages to the server of one PCI device. Numbers have the host's byte order.

use std::io::{self, IoSlice, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use crate::Error;

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
        let stream = UnixStream::connect(path).map_err(|error| Error::Connect(error.to_string()))?;
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

    /// Bytes of the registers.
    pub fn registers_len(&self) -> Result<u64, Error> {
        let answer =
            self.ask("a region", GET_REGION_INFO, &[words(&[32, 0, BAR0, 0]), longs(&[0, 0])].concat(), None)?;
        answer.get(16..24).and_then(|size| size.try_into().ok()).map(u64::from_ne_bytes).ok_or(SHORT)
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
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        send(&stream, command, 0, payload, file)?;
        let mut header = [0; HEADER_BYTES];
        self.receive(&mut stream, &mut header)?;
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
        Ok(answer)
    }

    fn receive(&self, stream: &mut UnixStream, buffer: &mut [u8]) -> Result<(), Error> {
        stream.set_read_timeout(Some(left(self.deadline)?))?;
        stream.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Error::Closed,
            io::ErrorKind::WouldBlock => no_answer(),
            _ => error.into(),
        })
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
    match sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&message)], &control, MsgFlags::MSG_NOSIGNAL, None) {
        Ok(sent) if sent == message.len() => Ok(()),
        Ok(_) | Err(Errno::EAGAIN) => Err(Error::Protocol("the target does not read its messages")),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::Closed),
        Err(error) => Err(error.into()),
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
