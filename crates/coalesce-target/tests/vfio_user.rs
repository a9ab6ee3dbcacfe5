//! The vfio-user server against clients that do right, and clients that do not: these get an errno or lose their connection. It
//! never waits for ever, panics, or believes a size.

use coalesce_target::os::bus_error::{Peer, survive};
use coalesce_target::os::call::CallRings;
use coalesce_target::vfio_user::PciDevice;
use coalesce_target::vfio_user::connection::Connection;
use coalesce_target::vfio_user::irq::Vectors;
use coalesce_target::vfio_user::memory::{Access, DmaMemory, REGIONS_MAX};
use coalesce_target::vfio_user::pci::Identity;
use coalesce_target::vfio_user::wire::{FILES_MAX, MESSAGE_MAX, TRANSFER_MAX};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Commands.
const VERSION: u16 = 1;
const DMA_MAP: u16 = 2;
const DMA_UNMAP: u16 = 3;
const GET_INFO: u16 = 4;
const GET_REGION_INFO: u16 = 5;
const GET_REGION_IO_FDS: u16 = 6;
const GET_IRQ_INFO: u16 = 7;
const SET_IRQS: u16 = 8;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
const DMA_READ: u16 = 11;
const RESET: u16 = 13;
const WRITE_MULTI: u16 = 15;

// Flags of a header.
const REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

// Flags of SET_IRQS.
const NONE: u32 = 1;
const BOOL: u32 = 2;
const EVENTFD: u32 = 4;
const MASK: u32 = 8;
const UNMASK: u32 = 16;
const TRIGGER: u32 = 32;

const INTX: u32 = 0;
const MSIX: u32 = 2;
const BAR0: u32 = 0;
const BAR4: u32 = 4;
const CONFIG: u32 = 7;
const VECTORS: u16 = 40;
/// Of the vectors and the pin, and of the files of one message.
const CALLS: usize = VECTORS as usize + 1 + FILES_MAX;
const BAR0_LEN: usize = 16 << 10;
/// The register that says how the guest has accessed the device: 0 is with that by which it serves its interrupt.
const SERVES: usize = 0x200;
const MAX_MEMORY: u64 = 64 << 20;

/// Long enough for any machine: what takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the device was told.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    BusMaster(bool),
    Unmap(Range<u64>),
    Map,
    MemoryChanged,
    PinUnmasked,
    Reset,
}

/// Registers that keep what is written.
struct Toy {
    registers: Vec<u8>,
    told: Sender<Told>,
    hangs: Arc<AtomicBool>,
    asserts_pin: Arc<AtomicBool>,
    vectors: Vectors,
}

impl Toy {
    fn tell(&self, what: Told) {
        let _ = self.told.send(what); // a test that has ended does not care
    }
}

impl PciDevice for Toy {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.tell(Told::Read(offset, data.len()));
        data.copy_from_slice(&self.registers[offset as usize..][..data.len()]);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.tell(Told::Write(offset, data.to_vec()));
        self.registers[offset as usize..][..data.len()].copy_from_slice(data);
    }

    fn set_bus_master(&mut self, on: bool) -> bool {
        self.tell(Told::BusMaster(on));
        !self.hangs.load(Ordering::Relaxed)
    }

    fn unmap(&mut self, range: Range<u64>) {
        self.tell(Told::Unmap(range));
    }

    fn map(&mut self) {
        self.tell(Told::Map);
    }

    fn memory_changed(&mut self) {
        self.tell(Told::MemoryChanged);
    }

    fn asserts_pin(&self) -> bool {
        self.asserts_pin.load(Ordering::Relaxed)
    }

    /// Only what it keeps at 1.
    fn serves_pin(&self) -> bool {
        self.registers[SERVES] == 0
    }

    /// Only while it asserts the pin: that is when a device has something to do.
    fn pin_is_unmasked(&mut self) {
        if self.asserts_pin() {
            self.tell(Told::PinUnmasked);
            let _ = self.vectors.signal_pin();
        }
    }

    fn reset(&mut self) -> bool {
        self.tell(Told::Reset);
        self.registers.fill(0);
        !self.hangs.load(Ordering::Relaxed)
    }
}

/// A connection, with both of its ends.
struct Bench {
    client: Client,
    server: JoinHandle<anyhow::Result<()>>,
    told: Receiver<Told>,
    memory: DmaMemory,
    vectors: Vectors,
    rings: CallRings,
    hangs: Arc<AtomicBool>,
    asserts_pin: Arc<AtomicBool>,
}

impl Bench {
    /// The version is agreed on.
    fn new() -> Self {
        let mut bench = Self::silent();
        bench.client.negotiate();
        bench
    }

    /// Nothing was said yet.
    fn silent() -> Self {
        let (client, server) = UnixStream::pair().unwrap();
        Self::over(client, server)
    }

    fn over(client: UnixStream, server: UnixStream) -> Self {
        let memory = DmaMemory::new(Peer::new(server.try_clone().unwrap().into()).into(), MAX_MEMORY);
        let rings = CallRings::new(CALLS).unwrap();
        let vectors = Vectors::new(VECTORS, rings.clone());
        let (sender, told) = channel();
        let hangs = Arc::new(AtomicBool::new(false));
        let asserts_pin = Arc::new(AtomicBool::new(false));
        let toy = Toy {
            registers: vec![0; BAR0_LEN],
            told: sender,
            hangs: hangs.clone(),
            asserts_pin: asserts_pin.clone(),
            vectors: vectors.clone(),
        };
        let identity = Identity {
            vendor: 0x1B36,
            device: 0x0010,
            subsystem_vendor: 0x1AF4,
            subsystem: 0x1100,
            revision: 2,
            class: [1, 8, 2],
            bar0_len: BAR0_LEN as u32,
        };
        let stream = server.try_clone().unwrap();
        let mut connection = Connection::new("toy", server, &identity, toy, memory.clone(), vectors.clone());
        let server = std::thread::spawn(move || {
            loop {
                let left = connection.deadline().map(|at| at.saturating_duration_since(Instant::now()));
                let left = left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap());
                let files = [Some(stream.as_fd()), connection.wake()].into_iter().flatten();
                let mut files: Vec<_> = files.map(|file| PollFd::new(file, PollFlags::POLLIN)).collect();
                poll(&mut files, left).unwrap();
                let has_message = files[0].any().unwrap();
                connection.attend();
                if has_message && !connection.handle_message()? {
                    return Ok(());
                }
            }
        });
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { client: Client { stream: client, id: 0 }, server, told, memory, vectors, rings, hangs, asserts_pin }
    }

    fn told(&self) -> Told {
        self.told.recv_timeout(PATIENCE).unwrap()
    }

    /// The client goes. The server notices, and gives everything back.
    fn end(self) -> anyhow::Result<()> {
        drop(self.client);
        Self::ended(self.server, &self.memory, &self.rings)
    }

    /// The server has closed the connection. Returns its reason.
    fn closed(mut self) -> String {
        assert_eq!(self.client.receive(), None, "an answer came, instead of the end of the connection");
        Self::ended(self.server, &self.memory, &self.rings).expect_err("the connection ended well").to_string()
    }

    fn ended(server: JoinHandle<anyhow::Result<()>>, memory: &DmaMemory, rings: &CallRings) -> anyhow::Result<()> {
        let outcome = server.join().expect("the server has panicked");
        assert!(memory.slice(0, 1, Access::Read).is_none(), "guest memory is still mapped");
        let free = format!("CallRings({CALLS})");
        assert_eq!(format!("{rings:?}"), free, "eventfds are still assigned");
        outcome
    }

    /// Everything still works: this is what an offence must leave behind.
    fn assert_serves(&mut self) {
        self.client.write(BAR0, 0x100, &[1, 2, 3, 4]);
        assert_eq!(self.client.read(BAR0, 0x100, 4), [1, 2, 3, 4]);
    }
}

#[derive(Debug, PartialEq)]
struct Answer {
    id: u16,
    command: u16,
    flags: u32,
    errno: i32,
    payload: Vec<u8>,
}

struct Client {
    stream: UnixStream,
    id: u16,
}

impl Client {
    fn header(&mut self, command: u16, flags: u32, size: u32) -> Vec<u8> {
        self.id = self.id.wrapping_add(1);
        let mut bytes = self.id.to_ne_bytes().to_vec();
        bytes.extend(command.to_ne_bytes());
        bytes.extend([size, flags, 0].map(u32::to_ne_bytes).concat());
        bytes
    }

    fn send_bytes(&self, bytes: &[u8], files: &[RawFd]) {
        let control = [ControlMessage::ScmRights(files)];
        let control = if files.is_empty() { &[][..] } else { &control };
        let sent =
            sendmsg::<()>(self.stream.as_raw_fd(), &[IoSlice::new(bytes)], control, MsgFlags::MSG_NOSIGNAL, None);
        assert!(matches!(sent, Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET)), "{sent:?}");
    }

    fn send(&mut self, command: u16, flags: u32, payload: &[u8], files: &[RawFd]) {
        let mut bytes = self.header(command, flags, 16 + payload.len() as u32);
        bytes.extend(payload);
        self.send_bytes(&bytes, files);
    }

    /// The next answer; `None` if the server has closed the connection.
    fn receive(&mut self) -> Option<Answer> {
        let mut header = [0; 16];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            Err(error) => panic!("no answer: {error}"),
        }
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_ne_bytes(header[at..at + 2].try_into().unwrap());
        let mut payload = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut payload).unwrap();
        Some(Answer { id: half(0), command: half(2), flags: word(8), errno: word(12) as i32, payload })
    }

    /// A command with its answer, or errno.
    fn call_with(&mut self, command: u16, payload: &[u8], files: &[RawFd]) -> Result<Vec<u8>, i32> {
        self.send(command, 0, payload, files);
        let answer = self.receive().expect("the server has closed the connection");
        assert_eq!((answer.id, answer.command), (self.id, command), "the answer to another message");
        match answer.flags {
            REPLY => Ok(answer.payload),
            flags => {
                assert_eq!((flags, answer.payload), (REPLY | ERROR, Vec::new()));
                assert_ne!(answer.errno, 0, "some clients take it for success");
                Err(answer.errno)
            }
        }
    }

    fn call(&mut self, command: u16, payload: &[u8]) -> Result<Vec<u8>, i32> {
        self.call_with(command, payload, &[])
    }

    fn negotiate(&mut self) -> Vec<u8> {
        self.call(VERSION, &version(&json!({ "capabilities": {} }).to_string())).unwrap()
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Vec<u8> {
        let access = access(region, offset, count);
        let answer = self.call(REGION_READ, &access).unwrap();
        assert_eq!(answer[..16], access);
        assert_eq!(answer.len(), 16 + count as usize);
        answer[16..].to_vec()
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) {
        assert_eq!(self.try_write(region, offset, data).unwrap(), access(region, offset, data.len() as u32));
    }

    fn try_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        self.call(REGION_WRITE, &[&access(region, offset, data.len() as u32), data].concat())
    }

    /// A write that is not answered.
    fn post(&mut self, region: u32, offset: u64, data: &[u8]) {
        let access = access(region, offset, data.len() as u32);
        self.send(REGION_WRITE, NO_REPLY, &[&access, data].concat(), &[]);
    }

    fn map(&mut self, address: u64, size: u64, file: Option<&File>) -> Result<(), i32> {
        self.map_as(3, 0, address, size, file)
    }

    fn map_as(&mut self, flags: u32, offset: u64, address: u64, size: u64, file: Option<&File>) -> Result<(), i32> {
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        let answer = self.call_with(DMA_MAP, &dma_map(flags, offset, address, size), &files)?;
        assert_eq!(answer, [0; 0]);
        Ok(())
    }

    fn unmap(&mut self, flags: u32, address: u64, size: u64) -> Result<(), i32> {
        let payload = dma_unmap(flags, address, size);
        assert_eq!(self.call(DMA_UNMAP, &payload)?, payload);
        Ok(())
    }

    fn set_irqs(&mut self, set: [u32; 4], data: &[u8], files: &[RawFd]) -> Result<(), i32> {
        let answer = self.call_with(SET_IRQS, &set_irqs(set, data), files)?;
        assert_eq!(answer, [0; 0]);
        Ok(())
    }
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn version(text: &str) -> Vec<u8> {
    [&[0; 4], text.as_bytes(), &[0]].concat()
}

fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
    [longs(&[offset]), words(&[region, count])].concat()
}

fn dma_map(flags: u32, offset: u64, address: u64, size: u64) -> Vec<u8> {
    [words(&[32, flags]), longs(&[offset, address, size])].concat()
}

fn dma_unmap(flags: u32, address: u64, size: u64) -> Vec<u8> {
    [words(&[24, flags]), longs(&[address, size])].concat()
}

/// Flags, index, start, count.
fn set_irqs(set: [u32; 4], data: &[u8]) -> Vec<u8> {
    [words(&[20 + data.len() as u32]), words(&set), data.to_vec()].concat()
}

fn memfd(len: u64) -> File {
    let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(len).unwrap();
    file
}

fn eventfd() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap()
}

/// How often it was signalled since the last time.
fn signals(eventfd: &EventFd) -> u64 {
    eventfd.read().unwrap_or(0)
}

// ---------------------------------------------------------------------------------------------------------------------
// A client that does right
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn the_answer_to_version_fits_into_qemus_message() {
    let mut bench = Bench::silent();
    let asked = version(
        &json!({ "capabilities": {
            "max_msg_fds": 16, "max_data_xfer_size": 1_048_576, "pgsizes": 4096, "max_dma_maps": 65_535,
            "migration": { "pgsize": 4096, "max_bitmap_size": 268_435_456 }
        }})
        .to_string(),
    );
    let answer = bench.client.call(VERSION, &asked).unwrap();
    assert!(answer.len() <= asked.len(), "{} bytes for {}", answer.len(), asked.len());
    assert_eq!((&answer[..4], answer.last()), (&[0; 4][..], Some(&0)));
    let offer: Value = serde_json::from_slice(&answer[4..answer.len() - 1]).unwrap();
    let offer = &offer["capabilities"];
    assert_eq!([&offer["max_msg_fds"], &offer["pgsizes"]], [16, 4096]);
    assert_eq!([&offer["max_data_xfer_size"], &offer["max_dma_maps"]], [TRANSFER_MAX, REGIONS_MAX]);
    assert_eq!([&offer["migration"], &offer["write_multiple"], &offer["twin_socket"]], [&Value::Null; 3]);
    bench.end().unwrap();
}

#[test]
fn device_regions_and_interrupts_are_described() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    assert_eq!(client.call(GET_INFO, &words(&[16, 0, 0, 0])).unwrap(), words(&[16, 3, 9, 5]));
    let sizes = [BAR0_LEN as u64, 0, 0, 0, 8192, 0, 0, 4096, 0];
    for (index, size) in (0..).zip(sizes) {
        let flags = if size == 0 { 0 } else { 3 };
        let expected = [words(&[32, flags, index, 0]), longs(&[size, 0])].concat();
        let asked = [words(&[32, 0, index, 0]), longs(&[0, 0])].concat();
        assert_eq!(client.call(GET_REGION_INFO, &asked).unwrap(), expected, "region {index}");
    }
    // Eventfds; the pin is maskable, and masked by each signal.
    let kinds = [Some((7, 1)), Some((0, 0)), Some((1, u32::from(VECTORS))), None, Some((0, 0))];
    for (index, expected) in (0..).zip(kinds) {
        let expected = expected.map(|(flags, count)| words(&[16, flags, index, count])).ok_or(libc::EINVAL);
        assert_eq!(client.call(GET_IRQ_INFO, &words(&[16, 0, index, 0])), expected, "interrupts {index}");
    }
    bench.end().unwrap();
}

#[test]
fn registers_are_read_and_written_in_order() {
    let mut bench = Bench::new();
    bench.client.post(BAR0, 0x1000, &[1, 0, 0, 0]);
    bench.client.post(BAR0, 0x1000, &[2, 0, 0, 0]);
    assert_eq!(bench.client.read(BAR0, 0x0FFC, 8), [0, 0, 0, 0, 2, 0, 0, 0]);
    let expected =
        [Told::Write(0x1000, vec![1, 0, 0, 0]), Told::Write(0x1000, vec![2, 0, 0, 0]), Told::Read(0x0FFC, 8)];
    assert_eq!([bench.told(), bench.told(), bench.told()], expected);
    assert_eq!(bench.client.read(BAR0, 0, BAR0_LEN as u32).len(), BAR0_LEN);
    bench.end().unwrap();
}

#[test]
fn bus_master_and_function_level_reset_reach_the_device() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    let space = client.read(CONFIG, 0, 4096);
    client.write(CONFIG, 4, &[6, 0]);
    client.write(CONFIG, 4, &[6, 4]);
    client.write(CONFIG, 4, &[2, 0]);
    // PCI Express, device control: the second byte has the highest bit, Initiate Function Level Reset.
    let express =
        (0..3).fold(space[0x34], |at, _| if space[usize::from(at)] == 0x10 { at } else { space[usize::from(at) + 1] });
    assert_eq!(space[usize::from(express)], 0x10);
    client.write(CONFIG, 0x10, &[0, 0, 0, 0xE0]);
    client.write(CONFIG, u64::from(express) + 8, &[0x10, 0xA8]);
    assert_eq!(client.read(CONFIG, 0, 4096), space, "as after power-on");
    let expected = [Told::BusMaster(true), Told::BusMaster(false), Told::Reset];
    assert_eq!([bench.told(), bench.told(), bench.told()], expected);
    bench.client.call(RESET, &[]).unwrap();
    assert_eq!(bench.told(), Told::Reset);
    bench.end().unwrap();
}

/// Requests in flight still use guest memory: nobody may believe that they do not.
#[test]
fn a_reset_that_does_not_end_is_told_and_ends_the_connection() {
    for way in ["reset", "function level reset", "bus mastering"] {
        let mut bench = Bench::new();
        let express = (0..3).fold(bench.client.read(CONFIG, 0x34, 1)[0], |at, _| {
            let capability = bench.client.read(CONFIG, at.into(), 2);
            if capability[0] == 0x10 { at } else { capability[1] }
        });
        bench.client.write(CONFIG, 4, &[6, 0]);
        bench.hangs.store(true, Ordering::Relaxed);
        let answer = match way {
            "reset" => bench.client.call(RESET, &[]),
            "function level reset" => bench.client.try_write(CONFIG, u64::from(express) + 9, &[0x80]),
            _ => bench.client.try_write(CONFIG, 4, &[2, 0]),
        };
        assert_eq!(answer.map(drop), Err(libc::ETIMEDOUT), "{way}");
        let reason = bench.closed();
        assert!(reason.contains("requests in flight have used guest memory for 4s"), "{way}: {reason}");
    }
}

#[test]
fn memory_is_found_as_long_as_it_is_mapped() {
    let mut bench = Bench::new();
    let file = memfd(1 << 20);
    bench.client.map_as(3, 0x4000, 0x10_0000, 0x8000, Some(&file)).unwrap();
    assert_eq!(bench.told(), Told::Map);
    let slice = bench.memory.slice(0x10_0010, 4, Access::Write).unwrap();
    assert!(slice.write(0, &[1, 2, 3, 4]));
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0x4010).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4]);
    drop(slice);
    bench.client.unmap(0, 0x10_0000, 0x8000).unwrap();
    assert_eq!(bench.told(), Told::Unmap(0x10_0000..0x10_8000));
    assert!(bench.memory.slice(0x10_0010, 4, Access::Write).is_none());
    // All: bit 1.
    for i in 0..3 {
        bench.client.map(i << 20, 1 << 20, Some(&file)).unwrap();
        assert_eq!(bench.told(), Told::Map);
    }
    bench.client.unmap(2, 0, 0).unwrap();
    assert_eq!([bench.told(), bench.told(), bench.told()], [0, 1, 2].map(|i| Told::Unmap(i << 20..(i + 1) << 20)));
    bench.client.unmap(2, 0, 0).unwrap();
    bench.client.map(0, 1 << 20, Some(&file)).unwrap();
    bench.end().unwrap();
}

/// A change is several messages. It is over when the client does something else, or nothing.
#[test]
fn the_end_of_a_change_of_memory_is_told() {
    let mut bench = Bench::new();
    let file = memfd(2 << 20);
    bench.client.map(0, 1 << 20, Some(&file)).unwrap();
    bench.assert_serves();
    for _ in 0..2 {
        bench.client.unmap(0, 0, 1 << 20).unwrap();
        bench.client.map(0, 1 << 20, Some(&file)).unwrap();
        bench.client.map(1 << 20, 1 << 20, Some(&file)).unwrap();
        bench.client.unmap(0, 1 << 20, 1 << 20).unwrap();
    }
    bench.client.read(BAR0, 0, 4);
    bench.client.read(BAR0, 0, 4);
    bench.client.unmap(2, 0, 0).unwrap();
    let change = [Told::Unmap(0..1 << 20), Told::Map, Told::Map, Told::Unmap(1 << 20..2 << 20)];
    let reads = [Told::Read(0, 4), Told::Read(0, 4), Told::Unmap(0..1 << 20)];
    let before = [Told::Map, Told::Write(0x100, vec![1, 2, 3, 4]), Told::Read(0x100, 4)];
    let expected = [&before[..], &change, &change, &[Told::MemoryChanged], &reads, &[Told::MemoryChanged]].concat();
    let told: Vec<_> = (0..expected.len()).map(|_| bench.told()).collect();
    assert_eq!(told, expected, "the last one without a message");
    bench.client.unmap(2, 0, 0).unwrap();
    bench.assert_serves();
    assert_eq!(bench.told(), Told::Write(0x100, vec![1, 2, 3, 4]), "nothing has changed");
    bench.end().unwrap();
}

/// As QEMU does it: it enables with nothing, then assigns all in chunks, later moves one, and ends with all off.
#[test]
fn eventfds_are_assigned_in_chunks_and_taken_away() {
    let mut bench = Bench::new();
    let eventfds: Vec<_> = (0..VECTORS).map(|_| eventfd()).collect();
    let files: Vec<_> = eventfds.iter().map(|eventfd| eventfd.as_fd().as_raw_fd()).collect();
    let (client, vectors) = (&mut bench.client, &bench.vectors);
    client.set_irqs([EVENTFD | TRIGGER, MSIX, 0, 1], &[], &[]).unwrap();
    assert!(!vectors.signal(39));
    for (start, chunk) in (0..).step_by(FILES_MAX).zip(files.chunks(FILES_MAX)) {
        client.set_irqs([EVENTFD | TRIGGER, MSIX, start, chunk.len() as u32], &[], chunk).unwrap();
    }
    assert_eq!(signals(&eventfds[39]), 1, "pending until now");
    assert!((0..VECTORS).all(|vector| vectors.signal(vector)));
    assert!(eventfds.iter().all(|eventfd| signals(eventfd) == 1));
    // A vector that is masked gets none; its pending bit shows.
    client.set_irqs([EVENTFD | TRIGGER, MSIX, 17, 2], &[], &[]).unwrap();
    assert!(!vectors.signal(17) && vectors.signal(16) && vectors.signal(19));
    assert_eq!(client.read(BAR4, 4096, 8), [0, 0, 2, 0, 0, 0, 0, 0]);
    client.set_irqs([EVENTFD | TRIGGER, MSIX, 17, 1], &[], &files[18..19]).unwrap();
    assert_eq!((signals(&eventfds[17]), signals(&eventfds[18])), (0, 1));
    assert_eq!(client.read(BAR4, 4096, 8), [0; 8]);
    // The client triggers some itself.
    client.set_irqs([NONE | TRIGGER, MSIX, 20, 2], &[], &[]).unwrap();
    client.set_irqs([BOOL | TRIGGER, MSIX, 20, 3], &[0, 1, 1], &[]).unwrap();
    assert_eq!([20, 21, 22, 23].map(|i: usize| signals(&eventfds[i])), [1, 2, 1, 0]);
    client.set_irqs([NONE | TRIGGER, MSIX, 0, 0], &[], &[]).unwrap();
    assert!((0..VECTORS).all(|vector| !vectors.signal(vector)));
    client.call(RESET, &[]).unwrap();
    assert!((0..VECTORS).all(|vector| !vectors.is_pending(vector)), "a reset forgets");
    // Kinds of interrupts that the device has not.
    for index in [1, 4] {
        assert_eq!(client.set_irqs([NONE | TRIGGER, index, 0, 0], &[], &[]), Ok(()));
        assert_eq!(client.set_irqs([EVENTFD | TRIGGER, index, 0, 1], &[], &files[..1]), Err(libc::EINVAL));
    }
    bench.end().unwrap();
}

/// As QEMU does it: it unmasks the pin when its guest has accessed a register.
#[test]
fn the_pin_is_signalled_again_when_it_is_unmasked_and_still_asserted() {
    let mut bench = Bench::new();
    let (pin, client, vectors) = (eventfd(), &mut bench.client, &bench.vectors);
    let file = [pin.as_fd().as_raw_fd()];
    let asserts = |on| bench.asserts_pin.store(on, Ordering::Relaxed);
    let status = |client: &mut Client| client.read(CONFIG, 6, 1)[0];
    assert_eq!(client.read(CONFIG, 0x3D, 1), [1], "INTA");
    asserts(true);
    assert_eq!((status(client), vectors.signal_pin()), (0x18, false));
    client.set_irqs([EVENTFD | TRIGGER, INTX, 0, 1], &[], &file).unwrap();
    assert_eq!(signals(&pin), 1, "it was asserted before");
    assert_eq!((vectors.signal_pin(), signals(&pin)), (false, 0), "its signal masks it");
    for (kind, data) in [(NONE, &[][..]), (BOOL, &[1][..])] {
        client.set_irqs([kind | UNMASK, INTX, 0, 1], data, &[]).unwrap();
        assert_eq!(signals(&pin), 1);
        asserts(false);
        client.set_irqs([kind | UNMASK, INTX, 0, 1], data, &[]).unwrap();
        assert_eq!((signals(&pin), status(client)), (0, 0x10), "it is served");
        client.set_irqs([kind | MASK, INTX, 0, 1], data, &[]).unwrap();
        assert!(!vectors.signal_pin());
        asserts(true);
        client.set_irqs([BOOL | UNMASK, INTX, 0, 1], &[0], &[]).unwrap();
        assert_eq!(signals(&pin), 0, "it is not meant");
    }
    // Interrupt Disable and MSI-X keep it silent, and it is not lost.
    client.write(CONFIG, 4, &[6, 4]);
    client.set_irqs([NONE | UNMASK, INTX, 0, 1], &[], &[]).unwrap();
    assert_eq!((signals(&pin), status(client)), (0, 0x18));
    client.write(CONFIG, 4, &[6, 0]);
    assert_eq!(signals(&pin), 1);
    client.write(CONFIG, 0x87, &[0x80]);
    client.set_irqs([NONE | UNMASK, INTX, 0, 1], &[], &[]).unwrap();
    assert_eq!((signals(&pin), status(client), vectors.uses_pin()), (0, 0x10, false));
    client.write(CONFIG, 0x87, &[0]);
    assert_eq!((signals(&pin), vectors.uses_pin()), (1, true));
    // A reset disables MSI-X and allows the pin.
    client.write(CONFIG, 4, &[6, 4]);
    client.write(CONFIG, 0x87, &[0x80]);
    client.call(RESET, &[]).unwrap();
    client.set_irqs([NONE | UNMASK, INTX, 0, 1], &[], &[]).unwrap();
    assert_eq!((signals(&pin), vectors.uses_pin()), (1, true), "after a reset");
    // The client triggers it itself.
    asserts(false);
    client.set_irqs([NONE | UNMASK, INTX, 0, 1], &[], &[]).unwrap();
    client.set_irqs([NONE | TRIGGER, INTX, 0, 1], &[], &[]).unwrap();
    assert_eq!(signals(&pin), 1);
    client.set_irqs([NONE | TRIGGER, INTX, 0, 0], &[], &[]).unwrap();
    asserts(true);
    client.set_irqs([NONE | UNMASK, INTX, 0, 1], &[], &[]).unwrap();
    assert_eq!((signals(&pin), vectors.uses_pin()), (0, false));
    bench.end().unwrap();
}

/// QEMU unmasks at any access to registers, while the guest may be about to serve the device.
#[test]
fn an_unmask_waits_a_little_until_the_guest_has_served_the_device() {
    let mut bench = Bench::new();
    let (pin, client) = (eventfd(), &mut bench.client);
    client.set_irqs([EVENTFD | TRIGGER, INTX, 0, 1], &[], &[pin.as_fd().as_raw_fd()]).unwrap();
    let asserts = |on| bench.asserts_pin.store(on, Ordering::Relaxed);
    let unmask = [NONE | UNMASK, INTX, 0, 1];
    // It is not served: the pin is signalled again, but later.
    let is_early = |client: &mut Client| {
        asserts(true);
        client.write(BAR0, SERVES as u64, &[1]);
        client.set_irqs(unmask, &[], &[]).unwrap();
        let is_early = signals(&pin) == 0;
        let start = Instant::now();
        while is_early && signals(&pin) == 0 {
            assert!(start.elapsed() < PATIENCE, "the interrupt is lost");
        }
        is_early
    };
    assert!((0..50).any(|_| is_early(client)), "an unmask does not wait");
    // It is served meanwhile: nothing is signalled, and the pin is not masked.
    let is_silent = |client: &mut Client| {
        asserts(true);
        client.set_irqs(unmask, &[], &[]).unwrap();
        asserts(false);
        client.write(BAR0, SERVES as u64, &[0]);
        std::thread::sleep(Duration::from_millis(20));
        let is_silent = signals(&pin) == 0;
        asserts(true);
        assert!(!is_silent || bench.vectors.signal_pin());
        assert_eq!(signals(&pin), u64::from(is_silent));
        client.write(BAR0, SERVES as u64, &[1]);
        is_silent
    };
    assert!((0..50).any(|_| is_silent(client)), "what is served is signalled");
    // It is masked meanwhile: nothing comes until it is unmasked.
    let is_masked = |client: &mut Client| {
        asserts(true);
        client.write(BAR0, SERVES as u64, &[1]);
        client.set_irqs(unmask, &[], &[]).unwrap();
        client.set_irqs([NONE | MASK, INTX, 0, 1], &[], &[]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        signals(&pin) == 0
    };
    assert!((0..50).any(|_| is_masked(client)), "what is masked is signalled");
    // It is served meanwhile, and asserts the pin again: the pause is over.
    client.set_irqs(unmask, &[], &[]).unwrap();
    client.write(BAR0, SERVES as u64, &[0]);
    assert_eq!(signals(&pin), 1);
    // It is served, and asserts the pin again.
    client.set_irqs(unmask, &[], &[]).unwrap();
    assert_eq!(signals(&pin), 1);
    bench.end().unwrap();
}

/// As KVM does it: an eventfd says that the guest has looked.
#[test]
fn the_pin_is_unmasked_by_an_eventfd() {
    let mut bench = Bench::new();
    let [pin, unmask] = [eventfd(), EventFd::new().unwrap()];
    let file = |eventfd: &EventFd| [eventfd.as_fd().as_raw_fd()];
    bench.client.set_irqs([EVENTFD | UNMASK, INTX, 0, 1], &[], &file(&unmask)).unwrap();
    bench.client.set_irqs([EVENTFD | TRIGGER, INTX, 0, 1], &[], &file(&pin)).unwrap();
    bench.asserts_pin.store(true, Ordering::Relaxed);
    assert!(bench.vectors.signal_pin());
    for round in 0..100 {
        let start = Instant::now();
        while signals(&pin) == 0 {
            assert!(start.elapsed() < PATIENCE, "round {round}");
        }
        if round % 10 == 0 {
            bench.client.write(BAR0, 0, &[1]);
            assert_eq!(bench.told(), Told::Write(0, vec![1]));
        }
        unmask.write(1).unwrap();
        assert_eq!(bench.told(), Told::PinUnmasked);
    }
    let memory = memfd(4096);
    let no_eventfd = bench.client.set_irqs([EVENTFD | UNMASK, INTX, 0, 1], &[], &[memory.as_raw_fd()]);
    assert_eq!(no_eventfd, Err(libc::EINVAL));
    // It is not looked at any more, if it is taken away, or the pin.
    for (number, flags) in [(2, EVENTFD | UNMASK), (3, NONE | TRIGGER)] {
        bench.client.set_irqs([EVENTFD | UNMASK, INTX, 0, 1], &[], &file(&unmask)).unwrap();
        bench.client.set_irqs([flags, INTX, 0, u32::from(flags & EVENTFD != 0)], &[], &[]).unwrap();
        unmask.write(1).unwrap();
        bench.client.write(BAR0, 0, &[number]);
        assert_eq!(bench.told(), Told::Write(0, vec![number]));
        assert_eq!(unmask.read().unwrap(), 1);
    }
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn what_cannot_be_done_to_the_pin_is_refused() {
    let mut bench = Bench::new();
    let (one, memory) = (eventfd(), memfd(4096));
    let (good, bad) = (one.as_fd().as_raw_fd(), memory.as_raw_fd());
    for (flags, start, count, data, files) in [
        (EVENTFD | MASK, 0, 1, 0, vec![good]),
        (EVENTFD | TRIGGER, 0, 1, 0, vec![bad]),
        (EVENTFD | TRIGGER, 0, 1, 0, vec![good, good]),
        (EVENTFD | TRIGGER, 1, 1, 0, vec![good]),
        (EVENTFD | TRIGGER, 0, 2, 0, vec![good, good]),
        (EVENTFD | UNMASK, 0, 0, 0, vec![good]),
        (EVENTFD | UNMASK, 0, 1, 0, vec![bad]),
        (NONE | TRIGGER, 0, 1, 0, vec![good]),
        (NONE | MASK, 0, 0, 0, vec![]),
        (NONE | UNMASK, 0, 0, 0, vec![]),
        (BOOL | TRIGGER, 0, 1, 0, vec![]),
        (BOOL | UNMASK, 0, 1, 2, vec![]),
        (NONE | BOOL | TRIGGER, 0, 1, 1, vec![]),
        (NONE | MASK | UNMASK, 0, 1, 0, vec![]),
        (NONE | TRIGGER | 64, 0, 1, 0, vec![]),
        (NONE, 0, 1, 0, vec![]),
        (TRIGGER, 0, 1, 0, vec![]),
    ] {
        let set = [flags, INTX, start, count];
        let outcome = bench.client.set_irqs(set, &vec![1; data], &files);
        assert_eq!(outcome, Err(libc::EINVAL), "{set:?}, {data} bytes, {} files", files.len());
    }
    assert_eq!((signals(&one), bench.vectors.uses_pin()), (0, false));
    bench.assert_serves();
    bench.end().unwrap();
}

/// The client of the crate `vfio_user`.
#[test]
fn a_client_that_others_wrote_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let theirs = std::thread::spawn(move || vfio_user::Client::new(&path).map(|client| (client, path)));
    let (server, _) = listener.accept().unwrap();
    let bench = Bench::over(UnixStream::pair().unwrap().0, server);
    let (mut client, _) = theirs.join().unwrap().unwrap();
    assert_eq!(client.region(0).unwrap().size, BAR0_LEN as u64);
    assert!(client.region(7).unwrap().file_offset.is_none());
    client.region_write(0, 8, &[1, 2, 3, 4]).unwrap();
    let mut data = [0; 4];
    client.region_read(0, 8, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3, 4]);
    let file = memfd(1 << 20);
    client.dma_map(0, 0x10_0000, 1 << 20, file.as_raw_fd()).unwrap();
    let irq = client.get_irq_info(MSIX).unwrap();
    assert_eq!((irq.index, irq.count), (MSIX, VECTORS.into()));
    let eventfd = eventfd();
    client.set_irqs(MSIX, EVENTFD | TRIGGER, 3, 1, &[eventfd.as_fd().as_raw_fd()]).unwrap();
    assert!(bench.memory.slice(0x10_0000, 1 << 20, Access::Write).is_some());
    assert!(bench.vectors.signal(3));
    assert_eq!(signals(&eventfd), 1);
    client.dma_unmap(0x10_0000, 1 << 20).unwrap();
    assert!(bench.memory.slice(0x10_0000, 1, Access::Write).is_none());
    client.reset().unwrap();
    client.shutdown().unwrap();
    bench.end().unwrap();
}

// ---------------------------------------------------------------------------------------------------------------------
// Guest memory
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn unmap_is_answered_when_requests_in_flight_have_completed() {
    let mut bench = Bench::new();
    bench.client.map(0, 1 << 20, Some(&memfd(1 << 20))).unwrap();
    assert_eq!(bench.told(), Told::Map);
    let in_flight = [0, 0x1000].map(|at| bench.memory.slice(at, 512, Access::Write).unwrap());
    bench.client.send(DMA_UNMAP, 0, &dma_unmap(0, 0, 1 << 20), &[]);
    assert_eq!(bench.told(), Told::Unmap(0..1 << 20));
    assert!(bench.memory.slice(0, 512, Access::Read).is_none(), "it is found no more");
    bench.client.stream.set_nonblocking(true).unwrap();
    for slice in in_flight {
        let error = bench.client.stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "it is in use");
        assert!(slice.write(0, &[1; 512]), "it is mapped");
    }
    bench.client.stream.set_nonblocking(false).unwrap();
    assert_eq!(bench.client.receive().unwrap().flags, REPLY);
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_request_that_never_ends_costs_the_connection_and_keeps_its_memory() {
    let mut bench = Bench::new();
    bench.client.map(0, 1 << 20, Some(&memfd(1 << 20))).unwrap();
    bench.client.map(1 << 20, 1 << 20, Some(&memfd(1 << 20))).unwrap();
    let in_flight = bench.memory.slice(0, 512, Access::Write).unwrap();
    assert_eq!(bench.client.unmap(2, 0, 0), Err(libc::ETIMEDOUT));
    assert!(bench.closed().contains("requests in flight"), "the reason is named");
    assert!(in_flight.write(0, &[1; 512]), "it is mapped");
}

#[test]
fn unmap_takes_a_whole_region_or_all() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    client.map(0x10_0000, 1 << 20, Some(&memfd(1 << 20))).unwrap();
    assert_eq!(bench.told.recv_timeout(PATIENCE), Ok(Told::Map));
    let inexact =
        [(0x10_0000, 1 << 19), (0x10_0000, 1 << 21), (0x18_0000, 1 << 19), (0, 1 << 20), (0x10_0000, 0), (0, 0)];
    for (address, size) in inexact.into_iter().chain([(0x10_0000, u64::MAX), (u64::MAX, u64::MAX)]) {
        assert_eq!(client.unmap(0, address, size), Err(libc::ENOENT), "{size:#x} at {address:#x}");
    }
    for (flags, address, size) in
        [(2, 0x10_0000, 0), (2, 0, 1 << 20), (2, 0x10_0000, 1 << 20), (1, 0, 0), (3, 0, 0), (4, 0, 0)]
    {
        assert_eq!(client.unmap(flags, address, size), Err(libc::EINVAL), "flags {flags}");
    }
    assert!(bench.memory.slice(0x10_0000, 1 << 20, Access::Write).is_some());
    assert!(bench.told.try_recv().is_err(), "the device was told nothing");
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_map_that_overlaps_wraps_or_is_no_page_is_refused() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    let file = memfd(1 << 20);
    client.map(0x10_0000, 0x4000, Some(&file)).unwrap();
    client.map(0x10_5000, 0x1000, None).unwrap();
    let overlapping =
        [(0x10_0000, 0x4000), (0x0F_F000, 0x2000), (0x10_3000, 0x1000), (0x0F_F000, 0x8000), (0x10_5000, 0x1000)];
    for (address, size) in overlapping {
        for file in [Some(&file), None] {
            assert_eq!(client.map(address, size, file), Err(libc::EEXIST), "{size:#x} at {address:#x}");
        }
    }
    let top = 0_u64.wrapping_sub(4096);
    let bad = [
        (0, 0, 0),
        (0, 0x1800, 0x1000),
        (0, 0x1000, 0x1800),
        (0x800, 0x1000, 0x1000),
        (0, top, 0x2000),
        (0, top, 0x1000),
    ];
    for (offset, address, size) in bad.into_iter().chain([(0, 0x1000, top), (0, 0, u64::MAX)]) {
        for file in [Some(&file), None] {
            assert_eq!(client.map_as(3, offset, address, size, file), Err(libc::EINVAL), "{size:#x} at {address:#x}");
        }
    }
    assert_eq!(client.map_as(7, 0, 0, 0x1000, Some(&file)), Err(libc::EINVAL), "an unknown flag");
    let two = [file.as_raw_fd(), file.as_raw_fd()];
    assert_eq!(client.call_with(DMA_MAP, &dma_map(3, 0, 0, 0x1000), &two), Err(libc::EINVAL), "two files");
    client.map(0x10_4000, 0x1000, Some(&file)).unwrap();
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_file_that_is_short_or_no_memory_is_refused() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    let (reader, writer) = std::io::pipe().unwrap();
    let disk = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    disk.as_file().set_len(1 << 20).unwrap();
    let no_memory = eventfd();
    let unsuitable = [
        reader.as_raw_fd(),
        writer.as_raw_fd(),
        no_memory.as_fd().as_raw_fd(),
        disk.as_raw_fd(),
        client.stream.as_raw_fd(),
    ];
    for file in unsuitable {
        assert_eq!(client.call_with(DMA_MAP, &dma_map(3, 0, 0, 0x1000), &[file]), Err(libc::EINVAL));
    }
    let file = memfd(0x1800);
    for (offset, size) in [(0, 0x2000), (0x1000, 0x1000), (1 << 62, 0x1000), (0_u64.wrapping_sub(0x1000), 0x1000)] {
        assert_eq!(client.map_as(3, offset, 0, size, Some(&file)), Err(libc::EINVAL), "{size:#x} at {offset:#x}");
    }
    // One that can only be read: for reading it is suitable.
    let memory = memfd(0x1000);
    let read_only = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd())).unwrap();
    assert_eq!(client.map_as(3, 0, 0, 0x1000, Some(&read_only)), Err(libc::EINVAL));
    client.map_as(1, 0, 0, 0x1000, Some(&read_only)).unwrap();
    assert!(bench.memory.slice(0, 1, Access::Read).is_some());
    assert!(bench.memory.slice(0, 1, Access::Write).is_none());
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_file_that_is_truncated_later_costs_the_connection() {
    survive().unwrap();
    let mut bench = Bench::new();
    let file = memfd(1 << 20);
    bench.client.map_as(1, 0, 0, 1 << 20, Some(&file)).unwrap();
    let slice = bench.memory.slice(0x8000, 8, Access::Read).unwrap();
    file.set_len(0).unwrap();
    let mut bytes = [1; 8];
    assert!(slice.read(0, &mut bytes));
    assert_eq!(bytes, [0; 8]);
    assert_eq!(bench.client.receive(), None);
    bench.end().unwrap();
}

#[test]
fn regions_and_bytes_are_limited() {
    let mut bench = Bench::new();
    let file = memfd(MAX_MEMORY + 4096);
    let client = &mut bench.client;
    assert_eq!(client.map(0, MAX_MEMORY + 4096, Some(&file)), Err(libc::ENOMEM));
    client.map(0, MAX_MEMORY, Some(&file)).unwrap();
    assert_eq!(client.map(MAX_MEMORY, 4096, Some(&file)), Err(libc::ENOMEM));
    client.map(MAX_MEMORY, 1 << 50, None).unwrap();
    client.unmap(2, 0, 0).unwrap();
    for i in 0..65_536 {
        let expected = if i < REGIONS_MAX as u64 { Ok(()) } else { Err(libc::ENOSPC) };
        let file = (i % 2 == 0).then_some(&file);
        assert_eq!(client.map(i * 8192, 4096, file), expected, "region {i}");
    }
    client.unmap(0, 8192, 4096).unwrap();
    client.map(1 << 40, 4096, Some(&file)).unwrap();
    bench.assert_serves();
    bench.end().unwrap();
}

// ---------------------------------------------------------------------------------------------------------------------
// Interrupts
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn interrupts_that_are_not_there_are_refused() {
    let mut bench = Bench::new();
    let (one, n) = (eventfd(), u32::from(VECTORS));
    let file = [one.as_fd().as_raw_fd()];
    let outside =
        [[0, n + 1], [n, 1], [1, n], [u32::MAX, 1], [1, u32::MAX], [u32::MAX, u32::MAX], [1 << 16, 1], [0, 1 << 16]];
    for [start, count] in outside {
        for (flags, files) in [(EVENTFD, &file[..]), (EVENTFD, &[]), (NONE, &[]), (BOOL, &[])] {
            let set = [flags | TRIGGER, MSIX, start, count];
            assert_eq!(bench.client.set_irqs(set, &[1], files), Err(libc::EINVAL), "{set:?}");
        }
    }
    for index in [5, 6, u32::MAX, 3] {
        assert_eq!(bench.client.set_irqs([NONE | TRIGGER, index, 0, 0], &[], &[]), Err(libc::EINVAL), "kind {index}");
        assert_eq!(bench.client.call(GET_IRQ_INFO, &words(&[16, 0, index, 0])), Err(libc::EINVAL), "kind {index}");
    }
    assert_eq!(bench.client.set_irqs([NONE | TRIGGER, MSIX, 1, 0], &[], &[]), Err(libc::EINVAL), "all, but from 1 on");
    assert_eq!(signals(&one), 0);
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn contradictory_actions_and_wrong_numbers_of_files_are_refused() {
    let mut bench = Bench::new();
    let one = eventfd();
    let file = one.as_fd().as_raw_fd();
    let unsupported =
        [0, NONE, TRIGGER, EVENTFD, NONE | MASK, BOOL | MASK, EVENTFD | MASK, NONE | 16, NONE | TRIGGER | 64];
    let contradictory =
        [NONE | TRIGGER | MASK, EVENTFD | TRIGGER | MASK, NONE | BOOL | TRIGGER, EVENTFD | NONE | TRIGGER, u32::MAX];
    for flags in unsupported.into_iter().chain(contradictory) {
        for files in [&[][..], &[file]] {
            assert_eq!(bench.client.set_irqs([flags, MSIX, 0, 1], &[1], files), Err(libc::EINVAL), "flags {flags:#x}");
        }
    }
    for (flags, count, data, files) in [
        (EVENTFD, 2, 0, 1),
        (EVENTFD, 1, 0, 2),
        (EVENTFD, 0, 0, 1),
        (EVENTFD, 0, 0, 0),
        (NONE, 1, 0, 1),
        (NONE, 0, 0, 1),
        (BOOL, 2, 2, 1),
        (BOOL, 2, 1, 0),
        (BOOL, 2, 3, 0),
        (BOOL, 0, 0, 0),
    ] {
        let set = [flags | TRIGGER, MSIX, 0, count];
        let outcome = bench.client.set_irqs(set, &vec![1; data], &vec![file; files]);
        assert_eq!(outcome, Err(libc::EINVAL), "{set:?}, {data} bytes, {files} files");
    }
    assert_eq!(signals(&one), 0);
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn what_is_no_eventfd_is_refused_with_all_that_came_with_it() {
    let mut bench = Bench::new();
    let (good, memory) = (eventfd(), memfd(4096));
    let (good, bad) = (good.as_fd().as_raw_fd(), memory.as_raw_fd());
    for files in [vec![bad], vec![good, bad], vec![good, good, bad, good]] {
        let set = [EVENTFD | TRIGGER, MSIX, 0, files.len() as u32];
        assert_eq!(bench.client.set_irqs(set, &[], &files), Err(libc::EINVAL));
    }
    assert!(!bench.vectors.signal(0), "none was assigned");
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn an_eventfd_that_is_full_and_blocks_is_not_waited_for() {
    let mut bench = Bench::new();
    let full = EventFd::new().unwrap();
    full.write(u64::MAX - 1).unwrap();
    let files = [full.as_fd().as_raw_fd(); 2];
    assert!(!bench.vectors.signal(1));
    bench.client.set_irqs([EVENTFD | TRIGGER, MSIX, 0, 2], &[], &files).unwrap();
    for _ in 0..10 {
        assert!(bench.vectors.signal(0));
        bench.client.set_irqs([NONE | TRIGGER, MSIX, 0, 2], &[], &[]).unwrap();
    }
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn more_files_than_offered_cost_the_connection() {
    for count in [FILES_MAX + 1, 32, 33, 253] {
        let mut bench = Bench::new();
        let one = eventfd();
        let files = vec![one.as_fd().as_raw_fd(); count];
        bench.client.send(SET_IRQS, 0, &set_irqs([EVENTFD | TRIGGER, MSIX, 0, count as u32], &[]), &files);
        assert!(bench.closed().contains("files"), "{count} files");
    }
}

#[test]
fn files_that_nobody_asked_for_are_refused_and_closed() {
    let mut bench = Bench::new();
    for command in [VERSION, DMA_UNMAP, GET_INFO, GET_REGION_INFO, GET_IRQ_INFO, REGION_READ, REGION_WRITE, RESET, 99] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        assert_eq!(bench.client.call_with(command, &[0; 64], &[writer.as_raw_fd()]), Err(libc::EINVAL), "{command}");
        drop(writer);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "command {command}: the server has kept the file");
    }
    bench.assert_serves();
    bench.end().unwrap();
}

// ---------------------------------------------------------------------------------------------------------------------
// Messages
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn an_access_outside_its_region_is_refused() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    let lens = [(BAR0, BAR0_LEN as u64), (BAR4, 8192), (CONFIG, 4096), (1, 0), (6, 0), (8, 0), (9, 0), (u32::MAX, 0)];
    for (region, len) in lens {
        for (offset, count) in
            [(len, 1), (0, len as u32 + 1), (u64::MAX, 1), (u64::MAX, u32::MAX), (0, u32::MAX), (0, 0), (1 << 63, 4)]
        {
            let access = access(region, offset, count);
            let described = format!("{count} at {offset:#x} of region {region}");
            assert_eq!(client.call(REGION_READ, &access), Err(libc::EINVAL), "{described}");
            assert_eq!(client.call(REGION_WRITE, &access), Err(libc::EINVAL), "{described}");
            let data = vec![0; (count as usize).min(TRANSFER_MAX)];
            assert_eq!(client.call(REGION_WRITE, &[access, data].concat()), Err(libc::EINVAL), "{described}");
        }
    }
    assert!(bench.told.try_recv().is_err(), "the device was told nothing");
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn an_access_whose_count_is_not_its_size_is_refused() {
    let mut bench = Bench::new();
    for (count, bytes) in [(4, 3), (4, 5), (4, 0), (1, TRANSFER_MAX), (u32::MAX, 4), (0, 4)] {
        let payload = [access(BAR0, 0, count), vec![1; bytes]].concat();
        assert_eq!(bench.client.call(REGION_WRITE, &payload), Err(libc::EINVAL), "{count}, {bytes}");
        if bytes > 0 {
            assert_eq!(bench.client.call(REGION_READ, &payload), Err(libc::EINVAL), "{count}, {bytes}");
        }
    }
    assert!(bench.told.try_recv().is_err(), "the device was told nothing");
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_size_that_cannot_be_costs_the_connection() {
    for size in [0, 15, MESSAGE_MAX as u32 + 1, 1 << 31, u32::MAX] {
        let mut bench = Bench::new();
        let header = bench.client.header(REGION_READ, 0, size);
        bench.client.send_bytes(&header, &[]);
        assert!(bench.closed().contains(&format!("{size} bytes")));
    }
    let mut bench = Bench::new();
    let largest = [access(BAR0, 0, TRANSFER_MAX as u32), vec![7; TRANSFER_MAX]].concat();
    assert_eq!(largest.len() + 16, MESSAGE_MAX);
    assert!(bench.client.call(REGION_WRITE, &largest).is_ok());
    bench.end().unwrap();
}

/// Every message is cut everywhere, and comes in pieces of one byte.
#[test]
fn half_a_message_is_waited_for_and_its_end_noticed() {
    let file = memfd(4096);
    let mut whole = Bench::new();
    let mut message = whole.client.header(DMA_MAP, 0, 48);
    message.extend(dma_map(3, 0, 0, 4096));
    for (i, byte) in message.iter().enumerate() {
        let files = [file.as_raw_fd()];
        whole.client.send_bytes(&[*byte], if i == 20 { &files } else { &[] });
    }
    assert_eq!(whole.client.receive().unwrap().flags, REPLY);
    assert!(whole.memory.slice(0, 4096, Access::Write).is_some(), "a file may come with any byte");
    whole.end().unwrap();
    for len in 0..message.len() {
        let bench = Bench::new();
        let files = [file.as_raw_fd()];
        bench.client.send_bytes(&message[..len], &files[..len.min(1)]);
        assert_eq!(bench.end().is_ok(), len == 0, "{len} bytes");
    }
}

#[test]
fn an_answer_from_the_client_costs_the_connection() {
    for flags in [1, 2, 15, 1 | NO_REPLY] {
        let mut bench = Bench::new();
        bench.client.send(DMA_READ, flags, &[0; 16], &[]);
        assert!(bench.closed().contains("not a command"));
    }
}

#[test]
fn unknown_commands_are_refused_and_the_stream_goes_on() {
    let mut bench = Bench::new();
    let unasked = [0, GET_REGION_IO_FDS, DMA_READ, 12, 14, WRITE_MULTI, 16, 17, 18, 19, u16::MAX];
    for command in unasked {
        for len in [0, 1, 24, MESSAGE_MAX - 16] {
            assert_eq!(bench.client.call(command, &vec![1; len]), Err(libc::ENOTSUP), "command {command}");
        }
    }
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn write_multi_writes_nothing() {
    let mut bench = Bench::new();
    let payload = [longs(&[1, 0x1000]), words(&[BAR0, 4]), longs(&[7])].concat();
    assert_eq!(bench.client.call(WRITE_MULTI, &payload), Err(libc::ENOTSUP));
    bench.client.send(WRITE_MULTI, NO_REPLY, &payload, &[]);
    assert_eq!(bench.client.read(BAR0, 0x1000, 4), [0; 4]);
    assert_eq!(bench.told(), Told::Read(0x1000, 4), "the first that the device hears");
    bench.end().unwrap();
}

/// Whatever comes with NO_REPLY, good or bad: the next answer is that of the next message.
#[test]
fn no_reply_is_never_answered() {
    let mut bench = Bench::new();
    let file = memfd(4096);
    for command in (1..=19).chain([u16::MAX]) {
        for len in [0, 16, 20, 32] {
            bench.client.send(command, NO_REPLY, &vec![0; len], &[]);
        }
        bench.client.send(command, NO_REPLY, &dma_map(3, 0, 0, 4096), &[file.as_raw_fd()]);
    }
    bench.client.send(REGION_READ, NO_REPLY, &access(BAR0, 0x10, 4), &[]);
    bench.client.send(GET_INFO, NO_REPLY, &words(&[16, 0, 0, 0]), &[]);
    bench.assert_serves();
    let told: Vec<_> = bench.told.try_iter().collect();
    assert!(!told.contains(&Told::Read(0x10, 4)), "a read without an answer: {told:?}");
    assert!(bench.memory.slice(0, 4096, Access::Write).is_some(), "a map without an answer");
    bench.end().unwrap();
}

#[test]
fn the_first_message_must_be_version() {
    for command in (0..=19).filter(|command| *command != VERSION) {
        let mut bench = Bench::silent();
        bench.client.send(command, 0, &[0; 64], &[]);
        assert!(bench.closed().contains("VERSION"), "command {command}");
    }
    let mut bench = Bench::silent();
    bench.client.send(VERSION, NO_REPLY, &version("{}"), &[]);
    assert!(bench.closed().contains("VERSION"));
}

#[test]
fn a_second_version_is_refused() {
    let mut bench = Bench::new();
    assert_eq!(bench.client.call(VERSION, &version("{}")), Err(libc::EINVAL));
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_version_that_cannot_be_read_costs_the_connection() {
    let deep = "[".repeat(8000);
    let texts = ["{", "[]", "1", "null", "\"\"", "{\"capabilities\": 1}", "{\"capabilities\": [", "\u{0}", &deep];
    let mut bad: Vec<_> = texts.iter().map(|text| version(text)).collect();
    bad.push([&[0; 4], &b"{}"[..]].concat()); // no NUL
    bad.push([&[0; 4], &b"\xFF\xFE{}\0"[..]].concat()); // not UTF-8
    bad.push([&[1, 0, 0, 0], &b"{}\0"[..]].concat()); // another major version
    bad.push(vec![0; 3]);
    bad.push(Vec::new());
    for payload in bad {
        let mut bench = Bench::silent();
        assert_eq!(bench.client.call(VERSION, &payload), Err(libc::EINVAL), "{payload:?}");
        bench.closed();
    }
}

#[test]
fn a_version_without_capabilities_is_enough() {
    for payload in [
        vec![0; 4],
        version("{}"),
        version("{\"capabilities\": {\"max_msg_fds\": \"many\", \"new\": []}}"),
        vec![0, 0, 9, 0],
    ] {
        let mut bench = Bench::silent();
        assert_eq!(bench.client.call(VERSION, &payload).unwrap()[..4], [0; 4]);
        bench.assert_serves();
        bench.end().unwrap();
    }
}

#[test]
fn argsz_that_is_short_is_refused_and_one_that_is_huge_ignored() {
    let mut bench = Bench::new();
    let client = &mut bench.client;
    let structures = [
        (GET_INFO, words(&[16, 0, 0, 0])),
        (GET_REGION_INFO, [words(&[32, 0, 0, 0]), longs(&[0, 0])].concat()),
        (GET_IRQ_INFO, words(&[16, 0, MSIX, 0])),
        (DMA_MAP, dma_map(3, 0, 0, 4096)),
        (DMA_UNMAP, dma_unmap(0, 0, 4096)),
        (SET_IRQS, set_irqs([NONE | TRIGGER, MSIX, 0, 1], &[])),
    ];
    for (command, payload) in structures {
        let len = payload.len();
        for argsz in [0, 1, len as u32 - 1] {
            let payload = [&words(&[argsz]), &payload[4..]].concat();
            assert_eq!(client.call(command, &payload), Err(libc::EINVAL), "command {command}, argsz {argsz}");
        }
        for len in 0..len {
            assert_eq!(client.call(command, &payload[..len]), Err(libc::EINVAL), "command {command}, {len} bytes");
        }
        let huge = [&words(&[u32::MAX]), &payload[4..], &[9; 100]].concat();
        let answer = client.call(command, &huge).unwrap_or_else(|errno| panic!("command {command}: {errno}"));
        assert!(answer.len() <= len, "command {command}: {} bytes", answer.len());
    }
    bench.assert_serves();
    bench.end().unwrap();
}

#[test]
fn a_flood_of_doorbells_arrives_whole_and_in_order() {
    let mut bench = Bench::new();
    for i in 0..100_000_u32 {
        bench.client.post(BAR0, 0x1000, &i.to_le_bytes());
    }
    assert_eq!(bench.client.read(BAR0, 0x1000, 4), 99_999_u32.to_le_bytes());
    for i in 0..100_000_u32 {
        assert_eq!(bench.told(), Told::Write(0x1000, i.to_le_bytes().to_vec()));
    }
    bench.end().unwrap();
}

/// A client that sends, and reads no answer: it waits for itself, and can always be cut off.
#[test]
fn a_client_that_reads_no_answers_can_be_cut_off() {
    let mut bench = Bench::new();
    let cut = bench.client.stream.try_clone().unwrap();
    bench.client.stream.set_nonblocking(true).unwrap();
    let access = access(BAR0, 0, TRANSFER_MAX as u32);
    let message = [bench.client.header(REGION_READ, 0, 32), access].concat();
    let mut refused = 0;
    while refused < 100 {
        match bench.client.stream.write(&message) {
            Ok(sent) => assert_eq!(sent, message.len()),
            Err(_) => {
                refused += 1;
                std::thread::yield_now();
            }
        }
    }
    cut.shutdown(Shutdown::Both).unwrap();
    let _ = bench.end(); // it ends, whatever it was doing
}

/// The client goes after each message of a session, and with its last answer unread.
#[test]
fn a_client_may_go_at_each_step() {
    let (file, one) = (memfd(1 << 20), eventfd());
    let (memory, vector) = (file.as_raw_fd(), one.as_fd().as_raw_fd());
    let session: Vec<(u16, u32, Vec<u8>, Vec<RawFd>)> = vec![
        (VERSION, 0, version("{}"), vec![]),
        (GET_INFO, 0, words(&[16, 0, 0, 0]), vec![]),
        (DMA_MAP, 0, dma_map(3, 0, 0, 1 << 20), vec![memory]),
        (DMA_MAP, 0, dma_map(3, 0, 1 << 20, 1 << 20), vec![]),
        (SET_IRQS, 0, set_irqs([EVENTFD | TRIGGER, MSIX, 0, 2], &[]), vec![vector, vector]),
        (REGION_WRITE, 0, [access(CONFIG, 4, 2), vec![6, 0]].concat(), vec![]),
        (REGION_WRITE, NO_REPLY, [access(BAR0, 0x1000, 4), vec![1; 4]].concat(), vec![]),
        (REGION_READ, 0, access(BAR0, 0, 4096), vec![]),
        (DMA_UNMAP, 0, dma_unmap(0, 0, 1 << 20), vec![]),
        (RESET, 0, vec![], vec![]),
    ];
    for steps in 0..=session.len() {
        let mut bench = Bench::silent();
        for (command, flags, payload, files) in &session[..steps] {
            bench.client.send(*command, *flags, payload, files);
        }
        let (client, told) = (bench.client, bench.told);
        drop(client);
        let _ = Bench::ended(bench.server, &bench.memory, &bench.rings); // an answer may have nobody to go to
        assert_eq!(told.iter().last(), Some(Told::Reset), "{steps} steps: a disconnect resets the device");
    }
}
