//! A vfio-user client says anything on its connection, with any files: guest memory that is missing, sealed, cut off later or
//! not memory at all, eventfds that are pipes. Its device uses what memory there is. Each input is one connection. None may
//! panic or hang, and no file may stay open. Each command gets one answer, or none if it wants none. Memory is found where
//! it was mapped, and nowhere else.
#![no_main]

mod files;
mod rarely;

use arbitrary::Arbitrary;
use coalesce_target::os::bus_error::{self, Peer};
use coalesce_target::os::call::CallRings;
use coalesce_target::vfio_user::PciDevice;
use coalesce_target::vfio_user::connection::Connection;
use coalesce_target::vfio_user::irq::Vectors;
use coalesce_target::vfio_user::memory::{Access, DmaMemory, Slice};
use coalesce_target::vfio_user::pci::Identity;
use coalesce_target::vfio_user::wire::{FILES_MAX, HEADER_LEN, Header, TRANSFER_MAX, command, flag};
use files::{Gift, eventfd, memory, open_files};
use libfuzzer_sys::fuzz_target;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rarely::Rarely;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read as _;
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

const VECTORS: u16 = 5;
const BAR0_LEN: u32 = 0x4000;
const PAGE: u64 = 0x1000;
/// Pages of guest memory, in each of two files.
const PAGES: u64 = 16;
/// The device may map so much.
const MAX_MEMORY: u64 = 24 * PAGE;
/// Inputs between two counts of the open files.
const COUNT_EVERY: u32 = 32;

#[derive(Arbitrary, Clone, Debug)]
enum Step {
    Map {
        flags: Rarely<u32>,
        offset: u8,
        page: u8,
        pages: u8,
        odd: Rarely<[u64; 3]>,
        gift: Rarely<Gift>,
    },
    /// One region that is there, or nearly.
    Unmap {
        flags: Rarely<u32>,
        which: u8,
        odd: Rarely<[u64; 2]>,
    },
    UnmapAll,
    /// The kinds are those that the device has, mostly.
    Irqs {
        kind: u8,
        flags: Rarely<u32>,
        index: Rarely<u32>,
        start: Rarely<u32>,
        count: u8,
        data: u8,
        gift: Rarely<Gift>,
    },
    Access {
        write: bool,
        post: bool,
        region: u8,
        offset: u16,
        count: u8,
        odd: Rarely<(u64, u32)>,
        byte: u8,
    },
    Describe {
        command: u8,
        argsz: Rarely<u32>,
        index: u8,
    },
    Reset,
    /// Any message with anything in it.
    Message {
        command: u8,
        flags: Rarely<u32>,
        payload: Vec<u8>,
        len: Rarely<u32>,
        gifts: [Option<Gift>; 3],
    },
    /// The device uses guest memory, and keeps hold of it.
    Use {
        at: u16,
        len: u16,
        write: bool,
    },
    Signal(u8),
    /// The client cuts off the memory that it shares.
    Cut(u16),
}

#[derive(Arbitrary, Clone, Debug)]
struct Input {
    /// Without it nothing was agreed on.
    version: Rarely<[u8; 8]>,
    steps: Vec<Step>,
}

/// A device that holds on to guest memory until it is told not to.
#[derive(Clone, Default)]
struct Device(Rc<RefCell<Vec<(u64, Slice)>>>);

impl PciDevice for Device {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        check(offset, data);
        data.fill(0xDD);
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        check(offset, data);
    }

    fn set_bus_master(&mut self, _: bool) -> bool {
        true
    }

    fn unmap(&mut self, range: Range<u64>) {
        self.0.borrow_mut().retain(|(address, _)| !range.contains(address));
    }

    fn map(&mut self) {}

    fn memory_changed(&mut self) {}

    fn asserts_pin(&self) -> bool {
        false
    }

    fn serves_pin(&self) -> bool {
        true
    }

    fn pin_is_unmasked(&mut self) {}

    fn reset(&mut self) -> bool {
        self.0.borrow_mut().clear();
        true
    }
}

fn check(offset: u64, data: &[u8]) {
    assert!(!data.is_empty() && offset + data.len() as u64 <= BAR0_LEN.into(), "{} bytes at {offset:#x}", data.len());
}

/// A region as the client knows it.
#[derive(Clone, Debug)]
struct Region {
    start: u64,
    len: u64,
    flags: u32,
    has_file: bool,
}

struct Client {
    stream: UnixStream,
    connection: Connection<Device>,
    device: Device,
    guest: DmaMemory,
    vectors: Vectors,
    regions: Vec<Region>,
    memory: [File; 2],
    eventfd: EventFd,
    next: u16,
    is_open: bool,
}

fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

impl Client {
    fn connect(rings: &CallRings) -> Self {
        let (stream, server) = UnixStream::pair().unwrap();
        let guest = DmaMemory::new(Peer::new(server.try_clone().unwrap().into()).into(), MAX_MEMORY);
        let vectors = Vectors::new(VECTORS, rings.clone());
        let device = Device::default();
        let identity = Identity {
            vendor: 1,
            device: 2,
            subsystem_vendor: 3,
            subsystem: 4,
            revision: 5,
            class: [6, 7, 8],
            bar0_len: BAR0_LEN,
        };
        let connection = Connection::new("fuzz", server, &identity, device.clone(), guest.clone(), vectors.clone());
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            connection,
            device,
            guest,
            vectors,
            regions: Vec::new(),
            memory: [memory(PAGES * PAGE), memory(PAGES * PAGE)],
            eventfd: eventfd(EfdFlags::EFD_NONBLOCK),
            next: 0,
            is_open: true,
        }
    }

    /// Sends a message of which `len` is said to follow, and has it handled. Whether it succeeded.
    fn send(&mut self, command: u16, flags: u32, len: u32, payload: &[u8], files: &[OwnedFd]) -> bool {
        if !self.is_open {
            return false;
        }
        self.next = self.next.wrapping_add(1);
        let size = len.wrapping_add(HEADER_LEN as u32);
        let header = Header { id: self.next, command, size, flags, errno: 0 };
        let bytes = [&header.bytes(), payload].concat();
        if size as usize > bytes.len() {
            self.is_open = false; // the rest never comes
        }
        let files: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
        self.is_open &= self.stream.send_with_fds(&[&bytes[..]], &files).is_ok();
        if !self.is_open || (size as usize) < bytes.len() {
            self.is_open = false; // what follows is another message, which is none
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        let is_handled = matches!(self.connection.handle_message(), Ok(true));
        self.is_open &= is_handled;
        self.receive(&header, is_handled)
    }

    /// Checks the answer, if there must be one. Whether it says that the command succeeded.
    fn receive(&mut self, command: &Header, is_handled: bool) -> bool {
        let mut bytes = [0; HEADER_LEN];
        let has_answer = self.stream.read_exact(&mut bytes).is_ok();
        assert!(
            !is_handled || has_answer == (command.flags & flag::NO_REPLY == 0),
            "{command:?}: answer: {has_answer}"
        );
        if !has_answer {
            return false;
        }
        let answer = Header::parse(&bytes);
        assert_eq!((answer.id, answer.command), (command.id, command.command));
        let is_error = answer.flags == flag::REPLY | flag::ERROR;
        assert!(is_error || answer.flags == flag::REPLY, "{answer:?}");
        assert_eq!(is_error, answer.errno != 0, "{answer:?}");
        let mut payload = vec![0; answer.size as usize - HEADER_LEN];
        self.stream.read_exact(&mut payload).unwrap();
        assert!(!is_error || payload.is_empty());
        assert!(self.stream.read(&mut [0]).map_or(true, |len| len == 0), "more than an answer");
        is_handled && !is_error
    }

    fn say(&mut self, command: u16, payload: &[u8]) -> bool {
        self.send(command, 0, payload.len() as u32, payload, &[])
    }

    /// A message with `right` along, unless the gift is another.
    fn give(&mut self, command: u16, payload: &[u8], gift: Gift, right: RawFd) -> bool {
        let file = gift.file(right);
        self.send(command, 0, payload.len() as u32, payload, file.as_slice())
    }

    fn map(&mut self, flags: u32, [offset, address, size]: [u64; 3], gift: Gift) {
        let payload = [u32s(&[32, flags]), u64s(&[offset, address, size])].concat();
        let right = self.memory[usize::from(self.next % 2 == 0)].as_raw_fd();
        if self.give(command::DMA_MAP, &payload, gift, right) {
            let has_file = !matches!(gift, Gift::None);
            self.regions.push(Region { start: address, len: size, flags, has_file });
        }
    }

    fn unmap(&mut self, flags: u32, [address, size]: [u64; 2]) {
        if self.say(command::DMA_UNMAP, &[u32s(&[24, flags]), u64s(&[address, size])].concat()) {
            let before = self.regions.len();
            self.regions.retain(|region| flags == 0 && (region.start, region.len) != (address, size));
            assert!(flags != 0 || self.regions.len() == before - 1, "{size:#x} at {address:#x} was no region");
        }
    }

    /// Uses guest memory, which must be there if the client has shared it.
    fn touch(&mut self, address: u64, len: usize, access: Access) {
        let flag = if access == Access::Read { 1 } else { 2 };
        let is_inside = |region: &&Region| {
            region.start <= address && address - region.start + len as u64 <= region.len && region.flags & flag != 0
        };
        let is_there = len > 0 && self.regions.iter().any(|region| region.has_file && is_inside(&region));
        let slice = self.guest.slice(address, len, access);
        assert_eq!(slice.is_some(), is_there, "{len:#x} bytes at {address:#x}: {:?}", self.regions);
        let Some(slice) = slice else { return };
        let mut bytes = vec![0; len];
        assert!(slice.read(0, &mut bytes));
        assert_eq!(slice.write(0, &bytes), access == Access::Write);
        let _ = slice.load_u32(len / 2);
        self.device.0.borrow_mut().push((address, slice));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Map { flags, offset, page, pages, odd, gift } => {
                let usual = [*offset, *page, *pages].map(|n| u64::from(n % 32) * PAGE);
                self.map(flags.get().unwrap_or(3), odd.get().unwrap_or(usual), gift.get().unwrap_or(Gift::Right));
            }
            Step::Unmap { flags, which, odd } => {
                let region = self.regions.get(usize::from(*which) % self.regions.len().max(1));
                let usual = region.map_or([0, PAGE], |region| [region.start, region.len]);
                self.unmap(flags.get().unwrap_or(0), odd.get().unwrap_or(usual));
            }
            Step::UnmapAll => self.unmap(2, [0, 0]),
            Step::Irqs { kind, flags, index, start, count, data, gift } => {
                const USUAL: [u32; 4] = [4 | 32, 4 | 32, 1 | 32, 2 | 32];
                let flags = flags.get().unwrap_or(USUAL[usize::from(kind % 4)]);
                let [start, count] = [start.get().unwrap_or(0), u32::from(count % 8)];
                let mut payload = u32s(&[20 + u32::from(*data), flags, index.get().unwrap_or(2), start, count]);
                payload.resize(20 + usize::from(data % 8), *data);
                let files = if flags & 4 == 0 { 0 } else { count };
                let right = self.eventfd.as_fd().as_raw_fd();
                let gift = gift.get().unwrap_or(Gift::Right);
                let files: Vec<_> = (0..files).filter_map(|_| gift.file(right)).collect();
                self.send(command::DEVICE_SET_IRQS, 0, payload.len() as u32, &payload, &files);
            }
            Step::Access { write, post, region, offset, count, odd, byte } => {
                const REGIONS: [(u32, u64); 8] = [
                    (0, BAR0_LEN as u64),
                    (0, BAR0_LEN as u64),
                    (4, 2 * PAGE),
                    (7, PAGE),
                    (7, PAGE),
                    (1, 0),
                    (8, 0),
                    (9, 0),
                ];
                let (region, len) = REGIONS[usize::from(region % 8)];
                // Half of them are near the region's end.
                let near = (len + u64::from(*offset) % 16).saturating_sub((*count).into());
                let usual = (if *offset < 1 << 15 { u64::from(*offset) } else { near }, u32::from(*count));
                let (offset, count) = odd.get().unwrap_or(usual);
                let mut payload = [u64s(&[offset]), u32s(&[region, count])].concat();
                let flags = if *post { flag::NO_REPLY } else { 0 };
                let command = if *write { command::REGION_WRITE } else { command::REGION_READ };
                payload.resize(payload.len() + if *write { (count as usize).min(300) } else { 0 }, *byte);
                let is_answered = self.send(command, flags, payload.len() as u32, &payload, &[]);
                let fits = offset.checked_add(count.into()).is_some_and(|end| end <= len) && count > 0;
                let is_whole = count <= if *write { 300 } else { TRANSFER_MAX as u32 };
                let is_expected = fits && is_whole && !post && self.is_open;
                assert_eq!(is_answered, is_expected, "{count} bytes at {offset:#x} of region {region}");
            }
            Step::Describe { command, argsz, index } => {
                const COMMANDS: [u16; 3] =
                    [command::DEVICE_GET_INFO, command::DEVICE_GET_REGION_INFO, command::DEVICE_GET_IRQ_INFO];
                let mut payload = u32s(&[argsz.get().unwrap_or(32), 0, u32::from(*index), 0]);
                payload.resize(32, 0);
                self.say(COMMANDS[usize::from(command % 3)], &payload);
            }
            Step::Reset => {
                self.say(command::DEVICE_RESET, &[]);
                let is_pending = |vector| self.vectors.is_pending(vector);
                assert!(!self.is_open || !(0..VECTORS).any(is_pending), "a reset forgets");
            }
            Step::Message { command, flags, payload, len, gifts } => {
                // What changes memory is said above, where its outcome is known.
                let command = match u16::from(command % 20) {
                    command::DMA_MAP | command::DMA_UNMAP => command::VERSION,
                    command => command,
                };
                let right = self.memory[0].as_raw_fd();
                let files: Vec<_> = gifts.iter().flatten().filter_map(|gift| gift.file(right)).collect();
                let len = len.get().unwrap_or(payload.len() as u32);
                self.send(command, flags.get().unwrap_or(0), len, payload, &files);
            }
            Step::Use { at, len, write } => {
                let access = if *write { Access::Write } else { Access::Read };
                self.touch(u64::from(*at) * 16, usize::from(*len), access);
            }
            Step::Signal(vector) => {
                let vector = u16::from(*vector) % (VECTORS + 1);
                let is_signalled = self.vectors.signal(vector);
                assert_eq!(self.vectors.is_pending(vector), !is_signalled && vector < VECTORS);
            }
            Step::Cut(len) => {
                let _ = self.memory[0].set_len((*len).into());
            }
        }
    }
}

/// What there is once for all inputs.
struct Target {
    rings: CallRings,
    inputs: Cell<u32>,
    files: Cell<usize>,
}

impl Default for Target {
    fn default() -> Self {
        bus_error::survive().unwrap();
        let rings = CallRings::new(usize::from(VECTORS) + FILES_MAX).unwrap();
        Self { rings, inputs: Cell::new(0), files: Cell::new(0) }
    }
}

fn run(target: &Target, input: &Input) {
    let mut client = Client::connect(&target.rings);
    match input.version.get() {
        Some(bytes) => client.say(command::VERSION, &bytes),
        None => client.say(command::VERSION, b"\0\0\0\0{}\0"),
    };
    input.steps.iter().for_each(|step| client.step(step));
    let (guest, vectors) = (client.guest.clone(), client.vectors.clone());
    drop(client);
    assert!((0..64).all(|page| guest.slice(page * PAGE, 1, Access::Read).is_none()), "memory is left");
    assert!((0..VECTORS).all(|vector| !vectors.signal(vector)), "an eventfd is left");
    drop((guest, vectors));
    target.inputs.set(target.inputs.get() + 1);
    if target.inputs.get() % COUNT_EVERY == 0 {
        let now = open_files();
        let before = target.files.replace(target.files.get().max(now.len()));
        assert!(before == 0 || now.len() <= before, "{before} files were open, now {now:?}");
    }
}

thread_local!(static TARGET: Target = Target::default());

fuzz_target!(|input: Input| TARGET.with(|target| run(target, &input)));
