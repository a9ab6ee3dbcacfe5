//! A front end says anything on its connection, with any files: guest memory that is missing, sealed, cut off later or not
//! memory at all, eventfds that are pipes. The rings of its guest are as bad (`guest/mod.rs`). Each input is one
//! connection to a disk whose queues outlive it: none may panic or hang, no file may stay open, and a sound front end is
//! served after it.
#![no_main]

mod files;
mod guest;

use arbitrary::Arbitrary;
use coalesce_target::backend::{Backend, MemoryBackend};
use coalesce_target::disk::{Disk, Limits, SERIAL_LEN, Totals};
use coalesce_target::os::bus_error;
use coalesce_target::os::call::CallRings;
use coalesce_target::queue::{PreparedQueues, QueueConfig, QueueHandle};
use coalesce_target::throttle::Throttle;
use coalesce_target::vhost::channel;
use coalesce_target::vhost::vring::Vring;
use coalesce_target::vhost::{Connection, QUEUE_SIZE_MAX};
use files::{Gift, eventfd, memory, open_files};
use guest::{DISK_LEN, Place, RINGS, Rarely, Request, START};
use libfuzzer_sys::fuzz_target;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::cell::Cell;
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vhost::vhost_user::BackendReqHandler;
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

const QUEUES: usize = 2;
const MEMORY_LEN: u64 = 0x10_000;
/// Where the front end has guest address 0 in its own address space.
const FRONT_END: u64 = 0x5000_0000_0000;
/// Of this many front ends, one is sound.
const SOUND_EVERY: u32 = 32;

const GET_FEATURES: u8 = 1;
const SET_FEATURES: u8 = 2;
const SET_MEM_TABLE: u8 = 5;
const SET_VRING_NUM: u8 = 8;
const SET_VRING_ADDR: u8 = 9;
const SET_VRING_BASE: u8 = 10;
const GET_VRING_BASE: u8 = 11;
const SET_VRING_KICK: u8 = 12;
const SET_VRING_CALL: u8 = 13;
const SET_VRING_ERR: u8 = 14;
const SET_PROTOCOL_FEATURES: u8 = 16;
const SET_VRING_ENABLE: u8 = 18;
const GET_CONFIG: u8 = 24;
const SET_CONFIG: u8 = 25;
const GET_INFLIGHT_FD: u8 = 31;
const SET_INFLIGHT_FD: u8 = 32;
const ADD_MEM_REG: u8 = 37;
const REM_MEM_REG: u8 = 38;
const LAST: u8 = 45;

#[derive(Arbitrary, Clone, Debug)]
enum Step {
    /// Everything that starts a ring, with now and then one thing wrong.
    Start {
        ring: u8,
        size_bits: Rarely<u8>,
        rings: [Rarely<Place>; 3],
        base: Rarely<u16>,
        gifts: [Rarely<Gift>; 3],
    },
    Memory {
        regions: u8,
        size: Rarely<u64>,
        guest: Rarely<Place>,
        offset: Rarely<u64>,
        gift: Rarely<Gift>,
    },
    Region {
        add: bool,
        which: u8,
        size: Rarely<u64>,
        guest: Rarely<Place>,
        offset: Rarely<u64>,
        gift: Rarely<Gift>,
    },
    Features(Rarely<u64>),
    Record {
        queues: Rarely<u16>,
        size: Rarely<u16>,
        len: Rarely<u64>,
        offset: Rarely<u64>,
        gift: Gift,
    },
    Eventfd {
        message: u8,
        ring: u8,
        gift: Gift,
    },
    Enable {
        ring: u8,
        enable: bool,
    },
    Stop {
        ring: u8,
    },
    Config {
        set: bool,
        offset: u8,
        len: u8,
    },
    /// Any message with anything in it.
    Message {
        message: u8,
        flags: Rarely<u8>,
        payload: Vec<u8>,
        len: Rarely<u32>,
        gifts: [Option<Gift>; 3],
    },
    /// The guest.
    Offer {
        ring: u8,
        request: Request,
    },
    Poke(u16, [u8; 8]),
    Kick,
    /// The front end cuts off the memory that it shares.
    Cut(u16),
}

/// What there is once for all inputs.
struct Target {
    disk: Arc<Disk>,
    queues: Arc<[QueueHandle<Vring>]>,
    inputs: Cell<u32>,
    files: Cell<usize>,
}

impl Default for Target {
    fn default() -> Self {
        bus_error::survive().unwrap();
        let backend = Backend::Memory(MemoryBackend::new(DISK_LEN, 0..=0).unwrap());
        let limits = Limits {
            size: DISK_LEN.into(),
            block_size: 512,
            read_only: false,
            serial: [b's'; SERIAL_LEN],
            max_memory: 1 << 30,
        };
        let name = "fuzz".into();
        let call_rings = CallRings::new(2 * QUEUES + 1).unwrap();
        let write_back = AtomicBool::new(true);
        let disk = Arc::new(Disk {
            name,
            place: "/".into(),
            backend,
            limits,
            call_rings,
            write_back,
            epoch: Instant::now(),
            throttle: Throttle::default(),
            totals: Totals::default(),
        });
        let config =
            QueueConfig { policy: "auto".parse().unwrap(), poll_ns: 0, size_max: QUEUE_SIZE_MAX, recorder: None };
        let queues = PreparedQueues::new(QUEUES, &disk, &config).unwrap().start().unwrap().into();
        Self { disk, queues, inputs: Cell::new(0), files: Cell::new(0) }
    }
}

impl Target {
    /// No more files are open than at the first time. A queue lets go of memory after it has said so.
    fn check_files(&self) {
        let start = Instant::now();
        loop {
            let now = open_files();
            if self.files.get() == 0 {
                self.files.set(now.len());
            }
            if now.len() <= self.files.get() {
                return;
            }
            assert!(start.elapsed().as_secs() < 5, "{} files were open, now {now:?}", self.files.get());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A front end, and the back end's side of its connection, which handles a message as soon as it is sent.
struct FrontEnd {
    stream: UnixStream,
    handler: BackendReqHandler<Mutex<Connection>>,
    back_end: UnixStream,
    /// What guest memory is shared from, and another file like it.
    memory: [File; 2],
    eventfds: [EventFd; 3],
    rings: [[u64; 3]; QUEUES],
    sizes: [u16; QUEUES],
    avail: [u16; QUEUES],
    is_open: bool,
}

fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl FrontEnd {
    fn connect(target: &Target) -> Self {
        let (stream, back_end) = UnixStream::pair().unwrap();
        let also = back_end.try_clone().unwrap().into();
        let connection = Connection::new(target.disk.clone(), target.queues.clone(), true, also);
        let stream_too = back_end.try_clone().unwrap();
        let handler = BackendReqHandler::from_stream(stream_too, Arc::new(Mutex::new(connection)));
        let usual = |_| RINGS;
        Self {
            stream,
            handler,
            back_end,
            memory: [memory(MEMORY_LEN), memory(MEMORY_LEN)],
            eventfds: std::array::from_fn(|_| eventfd(EfdFlags::EFD_NONBLOCK)),
            rings: std::array::from_fn(usual),
            sizes: [16; QUEUES],
            avail: [0; QUEUES],
            is_open: true,
        }
    }

    /// Sends a message of which `len` is said to follow, and has it handled.
    fn send(&mut self, message: u8, flags: u32, len: u32, payload: &[u8], files: &[RawFd]) {
        if !self.is_open {
            return;
        }
        let mut bytes = u32::from(message).to_le_bytes().to_vec();
        bytes.extend(flags.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(payload);
        if len as usize > payload.len() {
            self.is_open = false; // the rest never comes
        }
        self.is_open &= self.stream.send_with_fds(&[&bytes[..]], files).is_ok();
        if !self.is_open {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        self.is_open &= channel::look_for(&self.back_end).is_ok() && self.handler.handle_request().is_ok();
        self.discard_replies();
    }

    /// A message with `right` along, unless the gift is another.
    fn give(&mut self, message: u8, payload: &[u8], gift: Gift, right: RawFd) {
        let file = gift.file(right);
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        self.send(message, 1 | 8, payload.len() as u32, payload, &files);
    }

    fn say(&mut self, message: u8, payload: &[u8]) {
        self.send(message, 1 | 8, payload.len() as u32, payload, &[]);
    }

    fn discard_replies(&self) {
        let mut bytes = [0_u8; 4096];
        let mut files = [0; 8];
        self.stream.set_nonblocking(true).unwrap();
        loop {
            let mut slices = [libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }];
            // SAFETY: the one slice is ours, and any bytes may fill it.
            let Ok((len, count)) = (unsafe { self.stream.recv_with_fds(&mut slices, &mut files) }) else { return };
            for &file in &files[..count] {
                // SAFETY: the kernel has just made this descriptor for us.
                drop(unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(file) });
            }
            if len == 0 {
                return;
            }
        }
    }

    fn negotiate(&mut self, without: u64) {
        const OFFERED: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 14 | 1 << 13 | 1 << 12 | 1 << 11 | 1 << 9;
        self.say(GET_FEATURES, &[]);
        self.say(SET_PROTOCOL_FEATURES, &u64s(&[1 << 0 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 13 | 1 << 15]));
        self.say(SET_FEATURES, &u64s(&[OFFERED ^ without]));
    }

    fn region(which: u8, size: Rarely<u64>, guest: Rarely<Place>, offset: Rarely<u64>) -> [u64; 4] {
        let start = guest.get().map_or(START + u64::from(which) * MEMORY_LEN, Place::address);
        [start, size.get().unwrap_or(MEMORY_LEN), FRONT_END.wrapping_add(start), offset.get().unwrap_or(0)]
    }

    fn share(&mut self, regions: &[[u64; 4]], gift: Gift) {
        let mut payload = (regions.len() as u64).to_le_bytes().to_vec();
        regions.iter().for_each(|region| payload.extend(u64s(region)));
        let right: Vec<_> = (0..regions.len()).map(|i| self.memory[i % 2].as_raw_fd()).collect();
        let files: Vec<_> = right.iter().map_while(|&right| gift.file(right)).collect();
        let files: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
        self.send(SET_MEM_TABLE, 1 | 8, payload.len() as u32, &payload, &files);
    }

    fn start(&mut self, ring: usize, size: u16, rings: [u64; 3], base: u16, gifts: [Gift; 3]) {
        (self.rings[ring], self.sizes[ring], self.avail[ring]) = (rings, size.max(1), base);
        let index = ring as u32;
        let pair = |number: u32| [index.to_le_bytes(), number.to_le_bytes()].concat();
        self.say(SET_VRING_NUM, &pair(size.into()));
        let [descriptors, available, used] = rings.map(|at| FRONT_END.wrapping_add(at));
        let mut payload = pair(0);
        payload.extend(u64s(&[descriptors, used, available, 0]));
        self.say(SET_VRING_ADDR, &payload);
        self.say(SET_VRING_BASE, &pair(base.into()));
        for (i, message) in [SET_VRING_CALL, SET_VRING_ERR, SET_VRING_KICK].into_iter().enumerate() {
            let right = self.eventfds[i].as_raw_fd();
            self.give(message, &u64s(&[ring as u64]), gifts[i], right);
        }
        self.say(SET_VRING_ENABLE, &pair(1));
    }

    /// The guest writes into its first region.
    fn write(&self, address: u64, bytes: &[u8]) {
        let end = START + MEMORY_LEN - bytes.len() as u64;
        if (START..=end).contains(&address) {
            let _ = self.memory[0].write_all_at(bytes, address - START); // what was cut off becomes a hole
        }
    }

    fn offer(&mut self, ring: usize, request: &Request) {
        let (size, [descriptors, available, _]) = (self.sizes[ring], self.rings[ring]);
        request.lay_out(descriptors, size, &|address, bytes| self.write(address, bytes));
        let slot = u64::from(self.avail[ring] % size);
        self.write(available.wrapping_add(4 + 2 * slot), &request.head(size).to_le_bytes());
        self.avail[ring] = self.avail[ring].wrapping_add(1);
        self.write(available.wrapping_add(2), &self.avail[ring].to_le_bytes());
    }

    fn step(&mut self, step: &Step) {
        let index = |ring: u8| u32::from(ring % 4).to_le_bytes(); // there are two
        match step {
            Step::Start { ring, size_bits, rings, base, gifts } => {
                let size = size_bits.get().map_or(16, |bits| 1_u32 << (bits % 12)) as u16;
                let place = |i: usize| rings[i].get().map_or(RINGS[i], Place::address);
                let gifts = gifts.map(|gift| gift.get().unwrap_or(Gift::Right));
                self.start(usize::from(ring % 2), size, [place(0), place(1), place(2)], base.get().unwrap_or(0), gifts);
            }
            Step::Memory { regions, size, guest, offset, gift } => {
                let regions: Vec<_> = (0..regions % 4).map(|i| Self::region(i, *size, *guest, *offset)).collect();
                self.share(&regions, gift.get().unwrap_or(Gift::Right));
            }
            Step::Region { add, which, size, guest, offset, gift } => {
                let mut payload = u64s(&[0]);
                payload.extend(u64s(&Self::region(which % 4, *size, *guest, *offset)));
                let right = self.memory[usize::from(which % 2)].as_raw_fd();
                match add {
                    true => self.give(ADD_MEM_REG, &payload, gift.get().unwrap_or(Gift::Right), right),
                    false => self.say(REM_MEM_REG, &payload),
                }
            }
            Step::Features(without) => self.negotiate(without.get().unwrap_or(0)),
            Step::Record { queues, size, len, offset, gift } => {
                let mut payload = u64s(&[len.get().unwrap_or(0x1000), offset.get().unwrap_or(0)]);
                payload.extend(queues.get().unwrap_or(QUEUES as u16).to_le_bytes());
                payload.extend(size.get().unwrap_or(16).to_le_bytes());
                payload.extend([0; 4]);
                let right = self.memory[1].as_raw_fd();
                match gift {
                    Gift::None => self.say(GET_INFLIGHT_FD, &payload),
                    gift => self.give(SET_INFLIGHT_FD, &payload, *gift, right),
                }
            }
            Step::Eventfd { message, ring, gift } => {
                let which = usize::from(message % 3);
                let no_file = if matches!(gift, Gift::None) { 0x100 } else { 0 };
                let right = self.eventfds[which].as_raw_fd();
                let message = [SET_VRING_CALL, SET_VRING_ERR, SET_VRING_KICK][which];
                self.give(message, &u64s(&[u64::from(ring % 4) | no_file]), *gift, right);
            }
            Step::Enable { ring, enable } => {
                self.say(SET_VRING_ENABLE, &[index(*ring), u32::from(*enable).to_le_bytes()].concat());
            }
            Step::Stop { ring } => self.say(GET_VRING_BASE, &[index(*ring), [0; 4]].concat()),
            Step::Config { set, offset, len } => {
                let mut payload = [u32::from(*offset), u32::from(*len), 0].map(u32::to_le_bytes).concat();
                payload.resize(12 + usize::from(*len), 0);
                self.say(if *set { SET_CONFIG } else { GET_CONFIG }, &payload);
            }
            Step::Message { message, flags, payload, len, gifts } => {
                let len = len.get().unwrap_or(payload.len() as u32);
                let right = self.memory[0].as_raw_fd();
                let files: Vec<_> = gifts.iter().flatten().filter_map(|gift| gift.file(right)).collect();
                let files: Vec<_> = files.iter().map(|file| file.as_raw_fd()).collect();
                let flags = flags.get().map_or(1 | 8, u32::from);
                self.send(message % (LAST + 1), flags, len, payload, &files);
            }
            Step::Offer { ring, request } => self.offer(usize::from(ring % 2), request),
            Step::Poke(at, bytes) => self.write(START + u64::from(*at), bytes),
            Step::Kick => {
                let _ = self.eventfds[2].write(1);
            }
            Step::Cut(len) => {
                let _ = self.memory[0].set_len((*len).into());
            }
        }
    }
}

/// A front end that does everything right is served.
fn serve_sound(target: &Target) {
    let mut front_end = FrontEnd::connect(target);
    front_end.negotiate(0);
    front_end.share(&[[START, MEMORY_LEN, FRONT_END + START, 0]], Gift::Right);
    // Reads the first sector: a header, 512 bytes, a status.
    let (header, data, status) = (START + 0x5000, START + 0x6000, START + 0x5040);
    front_end.write(header, &[0; 16]);
    front_end.write(status, &[0xAA]);
    for (i, (address, len, flags)) in [(header, 16, 1), (data, 512, 3), (status, 1, 2_u16)].into_iter().enumerate() {
        let mut descriptor = u64s(&[address]);
        descriptor.extend(u32::to_le_bytes(len));
        descriptor.extend(flags.to_le_bytes());
        descriptor.extend((i as u16 + 1).to_le_bytes());
        front_end.write(RINGS[0] + 16 * i as u64, &descriptor);
    }
    front_end.write(RINGS[1], &[0, 0, 1, 0, 0, 0]);
    front_end.start(0, 16, RINGS, 0, [Gift::Right; 3]);
    front_end.eventfds[2].write(1).unwrap();
    let mut fds = [PollFd::new(front_end.eventfds[0].as_fd(), PollFlags::POLLIN)];
    let mut ready = poll(&mut fds, 10_000_u16);
    while ready == Err(Errno::EINTR) {
        ready = poll(&mut fds, 10_000_u16); // the fuzzer's own timer
    }
    assert_eq!(ready, Ok(1), "a sound front end gets no interrupt");
    let mut byte = [0xAA];
    front_end.memory[0].read_exact_at(&mut byte, status - START).unwrap();
    assert_eq!(byte, [0], "the status of a sound request");
}

fn run(target: &Target, steps: &[Step]) {
    let mut front_end = FrontEnd::connect(target);
    front_end.negotiate(0);
    front_end.share(&[[START, MEMORY_LEN, FRONT_END + START, 0]], Gift::Right);
    steps.iter().for_each(|step| front_end.step(step));
    drop(front_end);
    target.inputs.set(target.inputs.get() + 1);
    if target.inputs.get() % SOUND_EVERY == 0 {
        serve_sound(target);
        target.check_files();
    }
}

thread_local!(static TARGET: Target = Target::default());

fuzz_target!(|steps: Vec<Step>| TARGET.with(|target| run(target, &steps)));
