//! The NVMe controller behind a socket: the same host, over vfio-user, with a disk's server and with its process.

mod nvme_host;

use coalesce_target::config::{Device, DiskConfig, Mode, Poll, Size};
use coalesce_target::nvme::front_end::NvmeUser;
use coalesce_target::os::socket::Door;
use coalesce_target::server::{DiskParts, DiskServer};
use coalesce_target::throttle::RatesChange;
use coalesce_target::vfio_user::PciDevice;
use nix::sys::eventfd::EventFd;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use nvme_host::{DATA, DNR, Host, PATIENCE, QUIET, RAM, READ, SIZE, Sqe, WRITE, eventfds, memfd, regions};
use std::fs::{File, read_dir};
use std::io::{IoSlice, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NO_REPLY: u32 = 1 << 4;
const BAR0: u32 = 0;
const CONFIG: u32 = 7;

/// A controller at the other end of a socket. It is shared, because tests also send messages of their own.
#[derive(Clone)]
struct Remote(Arc<Mutex<UnixStream>>);

impl Remote {
    /// Connects, agrees on the version, maps the memory, and assigns the eventfds.
    fn connect(path: &Path, ram: &File, eventfds: &[EventFd]) -> Self {
        let start = Instant::now();
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let remote = Self(Arc::new(Mutex::new(stream)));
        let version = [
            &[0; 4][..],
            b"{\"capabilities\":{\"max_msg_fds\":8,\"max_data_xfer_size\":1048576,\
            \"migration\":{\"pgsize\":4096},\"pgsizes\":4096,\"max_dma_maps\":65535,\"write_multiple\":true}}\0",
        ];
        remote.ask(1, &version.concat(), &[]);
        for (address, size, file, is_writable) in regions(ram) {
            remote.map(0, address..address + size, file.as_ref(), is_writable);
        }
        for (i, eventfd) in eventfds.iter().enumerate() {
            let set = [20, 4 | 32, 2, i as u32, 1].map(u32::to_le_bytes).concat();
            remote.ask(8, &set, &[eventfd.as_raw_fd()]);
        }
        remote
    }

    fn send(stream: &UnixStream, command: u16, flags: u32, payload: &[u8], files: &[RawFd]) {
        let mut message = vec![7, 0];
        message.extend(command.to_le_bytes());
        message.extend((16 + payload.len() as u32).to_le_bytes());
        message.extend(flags.to_le_bytes());
        message.extend([0; 4]);
        message.extend(payload);
        let files = [ControlMessage::ScmRights(files)];
        let files = if matches!(files[0], ControlMessage::ScmRights([])) { &files[..0] } else { &files };
        let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&message)], files, MsgFlags::empty(), None);
        assert_eq!(sent, Ok(message.len()));
    }

    /// Sends a command. Returns the payload of its answer, or its errno.
    fn try_ask(&self, command: u16, payload: &[u8], files: &[RawFd]) -> Result<Vec<u8>, i32> {
        let mut stream = self.0.lock().unwrap();
        Self::send(&stream, command, 0, payload, files);
        let mut header = [0; 16];
        stream.read_exact(&mut header).unwrap();
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut payload = vec![0; number(4) as usize - 16];
        stream.read_exact(&mut payload).unwrap();
        if number(8) & 1 << 5 != 0 { Err(number(12) as i32) } else { Ok(payload) }
    }

    fn ask(&self, command: u16, payload: &[u8], files: &[RawFd]) -> Vec<u8> {
        self.try_ask(command, payload, files).unwrap_or_else(|errno| panic!("command {command}: errno {errno}"))
    }

    /// Maps guest memory, from this offset of a file on.
    fn map(&self, offset: u64, range: Range<u64>, file: Option<&File>, is_writable: bool) {
        let numbers = [offset, range.start, range.end - range.start].map(u64::to_le_bytes).concat();
        let map = [&32_u32.to_le_bytes()[..], &(1 | u32::from(is_writable) << 1).to_le_bytes(), &numbers].concat();
        let files: Vec<_> = file.iter().map(|file| file.as_raw_fd()).collect();
        self.ask(2, &map, &files);
    }

    /// Assigns an eventfd that the pin triggers, or that unmasks it.
    fn use_pin(&self, eventfd: &EventFd, action: u32) {
        self.ask(8, &[20, 4 | action, 0, 0, 1].map(u32::to_le_bytes).concat(), &[eventfd.as_fd().as_raw_fd()]);
    }

    /// Unmaps all guest memory.
    fn unmap_all(&self) {
        self.ask(3, &[&24_u32.to_le_bytes()[..], &2_u32.to_le_bytes(), &[0; 16]].concat(), &[]);
    }

    fn access(offset: u64, region: u32, count: usize, data: &[u8]) -> Vec<u8> {
        [&offset.to_le_bytes()[..], &region.to_le_bytes(), &(count as u32).to_le_bytes(), data].concat()
    }

    fn configure(&self, offset: u64, value: u16) {
        self.ask(10, &Self::access(offset, CONFIG, 2, &value.to_le_bytes()), &[]);
    }

    fn config(&self, offset: u64) -> u16 {
        let answer = self.ask(9, &Self::access(offset, CONFIG, 2, &[]), &[]);
        u16::from_le_bytes(answer[16..].try_into().unwrap())
    }

    /// The offset of the PCI Express capability.
    fn express(&self) -> u64 {
        let mut at = u64::from(self.config(0x34) & 0xff);
        while self.config(at) & 0xff != 0x10 {
            at = u64::from(self.config(at) >> 8);
        }
        at
    }
}

impl PciDevice for Remote {
    fn read(&mut self, offset: u64, data: &mut [u8]) {
        let answer = self.ask(9, &Self::access(offset, BAR0, data.len(), &[]), &[]);
        data.copy_from_slice(&answer[16..]);
    }

    /// As QEMU does: without an answer.
    fn write(&mut self, offset: u64, data: &[u8]) {
        let access = Self::access(offset, BAR0, data.len(), data);
        Self::send(&self.0.lock().unwrap(), 10, NO_REPLY, &access, &[]);
    }

    fn set_bus_master(&mut self, on: bool) -> bool {
        self.configure(4, if on { 6 } else { 2 });
        true
    }

    fn unmap(&mut self, range: Range<u64>) {
        let numbers = [range.start, range.end - range.start].map(u64::to_le_bytes).concat();
        self.ask(3, &[&24_u32.to_le_bytes()[..], &[0; 4], &numbers].concat(), &[]);
    }

    fn map(&mut self) {}

    fn memory_changed(&mut self) {
        self.config(0);
    }

    fn asserts_pin(&self) -> bool {
        self.config(6) & 8 != 0
    }

    fn serves_pin(&self) -> bool {
        true
    }

    fn pin_is_unmasked(&mut self) {
        self.ask(8, &[20, 1 | 16, 0, 0, 1].map(u32::to_le_bytes).concat(), &[]);
    }

    fn reset(&mut self) -> bool {
        self.ask(13, &[], &[]);
        true
    }
}

/// Connects a host to a socket.
fn host(path: &Path, queues: usize) -> (Host, Remote) {
    let (ram, eventfds) = (memfd(RAM), eventfds(queues + 1));
    let remote = Remote::connect(path, &ram, &eventfds);
    let mut host = Host::over(Box::new(remote.clone()), ram, eventfds);
    host.enable();
    (host, remote)
}

fn served(policy: &str) -> (TempDir, DiskServer<NvmeUser>) {
    let directory = TempDir::new().unwrap();
    let config = DiskConfig {
        name: None,
        device: Device::Nvme,
        socket: directory.path().join("socket"),
        socket_mode: Mode::default(),
        socket_group: None,
        file: None,
        memory: Some(Size(SIZE)),
        latency: None,
        queues: 2,
        policy: policy.parse().unwrap(),
        read_only: false,
        raw: false,
        direct: false,
        migratable: false,
        serial: None,
        block_size: None,
        poll: Some(Poll(0)),
        event_idx: true,
        max_memory: Size(1 << 40),
        iops: 0,
        bytes_per_second: Size(0),
    };
    let listener = UnixListener::bind(&config.socket).unwrap();
    let disk = DiskServer::start(DiskParts::open(&config, None).unwrap(), Door::Listener(listener), || Ok(())).unwrap();
    (directory, disk)
}

/// Writes a pattern, reads it back, and counts interrupts, which are one for each command.
fn exercise(host: &mut Host, byte: u8) {
    let (mut sq, mut cq) = host.pair(16);
    host.interrupts(1);
    for i in 0..10 {
        host.write(DATA, &[byte ^ i; 4096]);
        host.write(DATA + 4096, &[0; 4096]);
        let lba = 8 * u64::from(i);
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(WRITE).blocks(lba, 8).prps(DATA, 0)), 0);
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(READ).blocks(lba, 8).prps(DATA + 4096, 0)), 0);
        assert_eq!(host.bytes(DATA + 4096, 4096), [byte ^ i; 4096]);
    }
    let (start, mut interrupts) = (Instant::now(), 0);
    while interrupts < 20 && start.elapsed() < PATIENCE {
        interrupts += host.interrupts(1);
    }
    assert_eq!((interrupts, host.interrupts(1)), (20, 0));
}

/// SMART / Health Information: units of 512 000 bytes read and written, commands of each kind, power cycles, unsafe shutdowns.
fn health(host: &mut Host) -> [u64; 6] {
    host.admin_ok(Sqe::new(2).prps(DATA, 0).dword(10, 2 | 127 << 16));
    [32, 48, 64, 80, 112, 144].map(|at| u64::from_le_bytes(host.bytes(DATA + at, 8).try_into().unwrap()))
}

#[test]
fn a_disk_is_served_to_one_client_after_the_other() {
    let (directory, disk) = served("none");
    let path = directory.path().join("socket");
    for round in 0..3 {
        let (mut host, remote) = host(&path, 2);
        assert_eq!(remote.config(0xa), 0x0108, "class");
        exercise(&mut host, round << 4);
        assert_eq!(disk.stats()[0].completions, 20);
        disk.reset_stats();
        let expected = [[1, 1, 10, 10, 1, 0], [1, 1, 20, 20, 2, 1], [2, 1, 1030, 30, 3, 2]];
        assert_eq!(health(&mut host), expected[usize::from(round)]);
        if round == 1 {
            host.use_shadow(DATA + 0x40_0000, DATA + 0x40_1000);
            let mut cq = host.create_cq(2, 16, 2, true);
            let mut sq = host.create_sq(2, 16, 2);
            for _ in 0..1000 {
                assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(READ).blocks(0, 1).prps(DATA, 0)), 0);
            }
        }
        drop((host, remote)); // with everything enabled
        let start = Instant::now();
        while disk.is_connected() {
            assert!(start.elapsed() < PATIENCE, "the connection is closed");
            std::thread::yield_now();
        }
    }
}

/// Identify, Changed Namespace List (04h) and the event that Feature 0Bh asks for.
#[test]
fn a_host_hears_once_that_its_namespace_has_another_size_until_it_reads_the_log() {
    const NOTICE: u32 = 0x0004_0002;
    let (directory, disk) = served("none");
    let (mut host, _) = host(&directory.path().join("socket"), 2);
    let changed = |host: &mut Host, retains: bool| {
        host.zero(DATA, 4096);
        host.admin_ok(Sqe::new(2).prps(DATA, 0).dword(10, 4 | 1023 << 16 | u32::from(retains) << 15));
        assert_eq!(host.bytes(DATA + 4, 4092), [0; 4092]);
        u32::from_le_bytes(host.bytes(DATA, 4).try_into().unwrap())
    };
    let blocks = |host: &mut Host| {
        host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(1, 1));
        [0, 8, 16].map(|at| u64::from_le_bytes(host.bytes(DATA + at, 8).try_into().unwrap()))
    };
    let requests: Vec<_> = (0..3).map(|_| host.admin_submit(Sqe::new(0x0c))).collect();
    let resized = disk.resize(2 * SIZE).unwrap();
    assert!(resized.why_not.unwrap().contains("Namespace Attribute Notices"));
    assert_eq!(blocks(&mut host), [2 * SIZE / 512; 3]);
    assert_eq!(host.admin_peek(), None, "nobody asked for the event");
    assert_eq!((changed(&mut host, false), changed(&mut host, false)), (1, 0), "the first has told it");

    assert_eq!(host.set_feature(0x0b, 1 << 8), (0, 0));
    let resize = |host: &mut Host, size: u64| {
        host.get32(0); // so that the server has seen what it was told
        assert!(disk.resize(size).unwrap().guest_is_told);
    };
    let event = |host: &mut Host| {
        let cqe = host.admin_next();
        (cqe.cid, cqe.result)
    };
    resize(&mut host, SIZE);
    assert_eq!(event(&mut host), (requests[0], NOTICE));
    resize(&mut host, SIZE / 2);
    sleep(QUIET);
    assert_eq!(host.admin_peek(), None, "only once, until the log is read");
    assert_eq!((changed(&mut host, true), changed(&mut host, true)), (1, 0), "the first has told it");
    resize(&mut host, SIZE / 4);
    sleep(QUIET);
    assert_eq!(host.admin_peek(), None, "the log was read, and the event retained");
    assert_eq!(changed(&mut host, false), 1);
    resize(&mut host, SIZE / 2);
    assert_eq!(event(&mut host), (requests[1], NOTICE));
    assert_eq!(changed(&mut host, false), 1);
    assert_eq!(blocks(&mut host), [SIZE / 2 / 512; 3]);

    let (mut sq, mut cq) = host.pair(16);
    let last = SIZE / 2 / 512 - 1;
    host.write(DATA, &[9; 1024]);
    for (sqe, status) in [
        (Sqe::io(WRITE).blocks(last, 1).prps(DATA, 0), 0),
        (Sqe::io(READ).blocks(last, 1).prps(DATA + 4096, 0), 0),
        (Sqe::io(READ).blocks(last, 2).prps(DATA, 0), 0x80 | DNR),
        (Sqe::io(WRITE).blocks(last + 1, 1).prps(DATA, 0), 0x80 | DNR),
        (Sqe::io(8).blocks(last + 1, 1), 0x80 | DNR),
    ] {
        assert_eq!(host.io((&mut sq, &mut cq), sqe), status, "{sqe:x?}");
    }
    assert_eq!(host.bytes(DATA + 4096, 512), [9; 512]);

    host.disable();
    disk.resize(SIZE).unwrap();
    host.enable();
    assert_eq!((changed(&mut host, false), blocks(&mut host)), (0, [SIZE / 512; 3]), "a reset begins anew");
    host.admin_submit(Sqe::new(0x0c));
    assert_eq!(host.admin_peek(), None);
}

/// What waits for a limit is not fetched, so nothing that a host does with its queues waits for it.
#[test]
fn queues_go_and_the_controller_shuts_down_while_commands_wait_for_a_limit() {
    let (directory, disk) = served("none");
    let (mut host, _) = host(&directory.path().join("socket"), 2);
    let write = Sqe::io(WRITE).blocks(0, 8).prps(DATA, 0);
    disk.set_limits(RatesChange { bytes_per_second: Some(1), ..RatesChange::default() });
    let (mut sq, mut cq) = host.pair(16);
    for _ in 0..5 {
        host.put(&mut sq, write);
    }
    host.ring_sq(&sq);
    host.reap(&mut cq, 1);
    sleep(QUIET);
    assert_eq!(host.peek(&mut cq), None, "one byte in a second");
    host.admin_ok(Sqe::new(0).dword(10, 1)); // Delete I/O Submission Queue
    let mut sq = host.create_sq(1, 16, 1);
    host.put(&mut sq, write);
    host.ring_sq(&sq);
    sleep(QUIET);
    assert_eq!(host.peek(&mut cq), None, "another queue has no other limit");
    host.set32(0x14, 0x0046_4001);
    host.wait_csts(0xc, 0x8);
    assert_eq!(disk.stats().iter().map(|queue| queue.device.flushes).sum::<u64>(), 2, "one for each vector");
    host.disable();
    host.enable();
    let (mut sq, mut cq) = host.pair(16);
    for _ in 0..5 {
        host.put(&mut sq, write);
    }
    host.ring_sq(&sq);
    sleep(QUIET);
    assert_eq!(host.peek(&mut cq), None, "nor has a controller that was reset");
    disk.set_limits(RatesChange { bytes_per_second: Some(0), ..RatesChange::default() });
    host.reap(&mut cq, 5);
}

/// A guest refuses a controller with the subsystem and the identifier of another.
#[test]
fn disks_whose_sockets_have_the_same_name_are_not_the_same_disk() {
    let ids = |path: &Path| {
        let mut host = host(path, 2).0;
        host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 1));
        let subsystem = host.bytes(DATA + 768, 256);
        host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(1, 1));
        (subsystem, host.bytes(DATA + 104, 16))
    };
    let (one, other) = (served("none"), served("none"));
    let [one, again, other] = [&one, &one, &other].map(|served| ids(&served.0.path().join("socket")));
    assert_eq!(one, again);
    assert!(one.0 != other.0 && one.1 != other.1, "{one:x?}");
}

/// A disk has one controller. Its client does not notice that others come.
#[test]
fn a_second_client_is_refused_while_one_is_connected() {
    let (directory, _disk) = served("none");
    let path = directory.path().join("socket");
    let (mut host, _remote) = host(&path, 2);
    for byte in 0..3 {
        let mut second = UnixStream::connect(&path).unwrap();
        second.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(second.read(&mut [0]).unwrap(), 0, "it is closed without an answer");
        exercise(&mut host, byte);
        host.disable();
        host.enable();
    }
}

/// It says nothing, or stops in a message: in its header, or behind that.
#[test]
fn a_client_that_is_silent_does_not_keep_its_disk_from_stopping() {
    let message = [&[0, 0, 1, 0, 64, 0, 0, 0][..], &[0; 56]].concat(); // a VERSION of 64 bytes
    for len in [0, 1, 15, 16, 17, 63] {
        let (directory, disk) = served("none");
        let mut client = UnixStream::connect(directory.path().join("socket")).unwrap();
        client.write_all(&message[..len]).unwrap();
        let start = Instant::now();
        while !disk.is_connected() {
            assert!(start.elapsed() < PATIENCE, "it is not served");
            std::thread::yield_now();
        }
        sleep(QUIET); // so that it is waited for
        let (stopped, has_stopped) = channel();
        std::thread::spawn(move || {
            disk.stop();
            let _ = stopped.send(()); // nobody listens any more if it was late
        });
        assert!(has_stopped.recv_timeout(PATIENCE).is_ok(), "after {len} bytes the disk does not stop");
    }
}

#[test]
fn every_kind_of_reset_leaves_a_controller_that_can_be_enabled() {
    let (directory, _disk) = served("auto");
    let (mut host, remote) = host(&directory.path().join("socket"), 2);
    let express = remote.express();
    for kind in 0..6 {
        let (mut sq, _) = host.pair(16);
        for _ in 0..15 {
            host.put(&mut sq, Sqe::io(READ).blocks(0, 8).prps(DATA, 0));
        }
        host.ring_sq(&sq);
        match kind % 3 {
            0 => {
                host.controller.reset();
            }
            1 => remote.configure(express + 8, 1 << 15),
            _ => host.disable(),
        }
        assert_eq!(host.get32(0x1c), 0);
        host.enable();
        host.assert_alive();
    }
}

#[test]
fn memory_is_unmapped_when_nothing_uses_it() {
    let (directory, _disk) = served("none");
    let (mut host, _) = host(&directory.path().join("socket"), 2);
    let (mut sq, _) = host.pair(16);
    for _ in 0..15 {
        host.put(&mut sq, Sqe::io(READ).blocks(0, 8).prps(DATA, 0));
    }
    host.ring_sq(&sq);
    host.controller.unmap(0..RAM);
    assert_eq!(host.get32(0x1c), 1, "it is not used");
    host.ring_sq(&sq);
    host.wait_csts(3, 2);
    host.disable();
    assert_eq!(host.get32(0x1c), 0);
}

/// As QEMU does it when firmware protects a part of the RAM: all of it goes, and returns in pieces.
#[test]
fn queues_survive_that_all_memory_goes_and_returns_in_pieces() {
    for policy in ["none", "auto"] {
        let (directory, _disk) = served(policy);
        let (mut host, remote) = host(&directory.path().join("socket"), 2);
        let file = host.ram_file.try_clone().unwrap();
        let (mut sq, mut cq) = host.pair(16);
        host.use_shadow(DATA + 0x40_0000, DATA + 0x40_1000);
        for round in 0..20 {
            for _ in 0..15 {
                host.submit(&mut sq, Sqe::io(READ).blocks(round, 8).prps(DATA, 0));
            }
            remote.unmap_all();
            for (start, end, is_writable) in
                [(0, 0xA_0000, true), (0xA_0000, 0xC_0000, false), (0xC_0000, 0x21_1000, true), (0x21_1000, RAM, true)]
            {
                remote.map(start, start..end, Some(&file), is_writable);
            }
            assert!(host.reap(&mut cq, 15).iter().all(|cqe| cqe.status == 0));
            host.assert_alive();
        }
    }
}

/// A command is fetched while its data is away, and then the client says nothing. The command fails after a while.
#[test]
fn a_change_of_memory_ends_when_the_client_is_silent() {
    let (directory, _disk) = served("none");
    let (mut host, remote) = host(&directory.path().join("socket"), 2);
    let file = host.ram_file.try_clone().unwrap();
    let (mut sq, mut cq) = host.pair(16);
    host.use_shadow(0x40_0000, 0x40_1000);
    let read = Sqe::io(READ).blocks(0, 8).prps(DATA, 0);
    assert_eq!(host.io((&mut sq, &mut cq), read), 0);
    remote.unmap_all();
    let cid = host.put(&mut sq, read);
    host.store(0x40_0008, sq.tail.into());
    remote.map(0, 0..DATA, Some(&file), true);
    let cqe = host.next(&mut cq);
    assert_eq!((cqe.cid, cqe.status), (cid, 0x4004));
}

/// The client unmasks the pin while its guest has not consumed anything, and then says nothing.
#[test]
fn the_pin_is_signalled_again_without_a_message() {
    let (directory, _disk) = served("none");
    let (ram, pin) = (memfd(RAM), eventfds(1).remove(0));
    let remote = Remote::connect(&directory.path().join("socket"), &ram, &[]);
    let mut host = Host::over(Box::new(remote.clone()), ram, vec![pin]);
    remote.use_pin(&host.eventfds[0], 32);
    exercise_pin(&mut host, |host| {
        host.doorbell(10, 1); // of no queue
        host.controller.pin_is_unmasked();
    });
}

/// As KVM unmasks the pin; with the sandbox.
#[test]
fn the_pin_is_unmasked_by_an_eventfd() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("socket");
    let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-target"));
    command.args(["serve", "--device", "nvme", "--memory", "8M", "--policy", "none", "--log", "warn", "--socket"]);
    let _process = Process(command.arg(&path).stdin(Stdio::null()).spawn().unwrap());
    let (ram, pin, unmask) = (memfd(RAM), eventfds(1).remove(0), EventFd::new().unwrap());
    let remote = Remote::connect(&path, &ram, &[]);
    let mut host = Host::over(Box::new(remote.clone()), ram, vec![pin]);
    remote.use_pin(&unmask, 16);
    remote.use_pin(&host.eventfds[0], 32);
    exercise_pin(&mut host, |_| _ = unmask.write(1).unwrap());
}

/// Each of some completions interrupts again and again, until it is consumed.
fn exercise_pin(host: &mut Host, unmask: impl Fn(&mut Host)) {
    host.enable();
    let mut cq = host.create_cq(1, 16, 0, true);
    let mut sq = host.create_sq(1, 16, 1);
    host.interrupts(0);
    unmask(host);
    for _ in 0..10 {
        host.submit(&mut sq, Sqe::io(READ).blocks(0, 8).prps(DATA, 0));
        for _ in 0..3 {
            assert_eq!(host.interrupt(0), 1);
            unmask(host);
        }
        assert_eq!(host.interrupt(0), 1);
        assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
        unmask(host);
    }
}

/// The process of a disk, with its sandbox.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processes of which one has started all others.
fn family(ancestor: u32) -> Vec<u32> {
    let mut family = vec![ancestor];
    let processes: Vec<u32> =
        read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for pid in processes {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if status.lines().any(|line| line.strip_prefix("PPid:\t").is_some_and(|of| of == ancestor.to_string())) {
            family.push(pid);
        }
    }
    family
}

/// How often the threads of processes have slept or been interrupted, and for how long they have been on a CPU, in ticks of the
/// clock (utime and stime) and in ns.
fn activity(processes: &[u32]) -> [u64; 3] {
    let threads = processes.iter().flat_map(|pid| read_dir(format!("/proc/{pid}/task")).unwrap().flatten());
    threads.fold([0; 3], |[switches, ticks, ns], thread| {
        let file = |name| std::fs::read_to_string(thread.path().join(name)).unwrap();
        let (status, stat, schedstat) = (file("status"), file("stat"), file("schedstat"));
        let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:\t"));
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        let times: Vec<_> = after_name.split(' ').skip(11).take(2).map(|time| time.parse::<u64>().unwrap()).collect();
        [
            switches + counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum::<u64>(),
            ticks + times.iter().sum::<u64>(),
            ns + schedstat.split(' ').next().unwrap().parse::<u64>().unwrap(),
        ]
    })
}

/// 64 disks, some of which have served a guest that is still there: nobody wakes up or is on a CPU in a second.
#[test]
fn idle_disks_use_no_cpu() {
    const DISKS: usize = 64;
    let directory = TempDir::new().unwrap();
    let disk = |i| format!("[[disk]]\ndevice = 'nvme'\nname = '{i}'\nsocket = '{i}'\nmemory = '8M'\nqueues = 2\n");
    let config = (0..DISKS).map(disk).collect::<String>();
    std::fs::write(directory.path().join("c.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-target"));
    command.args(["serve", "--config", "c.toml", "--log", "warn"]).current_dir(&directory).stdin(Stdio::null());
    let process = Process(command.spawn().unwrap());
    let mut hosts: Vec<_> = (0..4).map(|i| host(&directory.path().join((16 * i).to_string()), 2)).collect();
    for (host, _) in &mut hosts {
        exercise_with_shadow(host);
    }
    let start = Instant::now();
    while family(process.0.id()).len() <= DISKS {
        assert!(start.elapsed() < PATIENCE, "{} processes", family(process.0.id()).len());
    }
    let family = family(process.0.id());
    let is_quiet = || {
        let before = activity(&family);
        sleep(Duration::from_secs(1));
        activity(&family) == before
    };
    assert!((0..20).any(|_| is_quiet()));
}

fn exercise_with_shadow(host: &mut Host) {
    let (mut sq, mut cq) = host.pair(16);
    host.use_shadow(DATA + 0x40_0000, DATA + 0x40_1000);
    for _ in 0..1000 {
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(READ).blocks(0, 1).prps(DATA, 0)), 0);
    }
}

#[test]
fn the_command_line_serves_an_nvme_disk() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("socket");
    let record = directory.path().join("record");
    let image = directory.path().join("image");
    File::create(&image).unwrap().set_len(SIZE).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_coalesce-target"));
    command.args(["serve", "--device", "nvme", "--queues", "3", "--policy", "none", "--log", "warn"]);
    command.arg("--socket").arg(&path).arg("--file").arg(&image).arg("--record").arg(&record);
    let mut process = Process(command.stdin(Stdio::null()).spawn().unwrap());
    let (mut host, _) = host(&path, 3);
    exercise(&mut host, 0x5a);
    assert_eq!(std::fs::read(&image).unwrap()[..4096], [0x5a; 4096]);
    // It ends in order under a client that is connected.
    kill(Pid::from_raw(process.0.id() as i32), Signal::SIGTERM).unwrap();
    assert!(process.0.wait().unwrap().success());
    let record = std::fs::read_to_string(&record).unwrap();
    assert_eq!(record.lines().filter(|line| line.contains("\"event\":\"complete\"")).count(), 20);
}

/// A client takes back all memory before it shares any. No change of memory is under way then, so a command whose data is nowhere
/// fails at once.
#[test]
fn an_unmap_of_nothing_is_no_change_of_memory() {
    let (directory, _disk) = served("none");
    let (ram, eventfds) = (memfd(RAM), eventfds(3));
    let remote = Remote::connect(&directory.path().join("socket"), &ram, &eventfds);
    remote.unmap_all();
    remote.config(0); // the change is over
    remote.unmap_all(); // of nothing
    for (address, size, file, is_writable) in regions(&ram) {
        remote.map(0, address..address + size, file.as_ref(), is_writable);
    }
    let mut host = Host::over(Box::new(remote), ram, eventfds);
    host.enable();
    let (mut sq, mut cq) = host.pair(16);
    let read = |to| Sqe::io(READ).blocks(0, 8).prps(to, 0);
    assert_eq!(host.io((&mut sq, &mut cq), read(RAM)), 0x04 | DNR, "Data Transfer Error");
    assert_eq!(host.io((&mut sq, &mut cq), read(DATA)), 0);
}
