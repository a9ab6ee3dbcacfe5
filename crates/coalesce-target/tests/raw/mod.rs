//! A raw vhost-user-blk driver and a target to attack: every message, descriptor, index and flag is the test's own.
//!
//! Nothing here depends on speed: waits end when what they wait for is there, and [`HANG`] only finds out that it never
//! will be.
#![allow(dead_code, reason = "not every test uses all of it")]

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd as _, RawFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vm_memory::{
    Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap, GuestMemoryRegion as _,
};
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

/// What takes longer than this has hung.
pub const HANG: Duration = Duration::from_secs(10);

/// Calls `ready` until it is true; panics about `what` when it never is.
pub fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < HANG, "hung: {what}");
        sleep(Duration::from_micros(200));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The target
// ---------------------------------------------------------------------------------------------------------------------

/// A disk of a target's configuration.
#[derive(Clone, Debug)]
pub struct Disk {
    name: String,
    queues: usize,
    lines: Vec<String>,
}

impl Disk {
    /// A disk in memory, of a size such as `1M`.
    pub fn memory(name: &str, size: &str) -> Self {
        Self { name: name.into(), queues: 1, lines: vec![format!("memory = \"{size}\"")] }
    }

    /// A disk in a file.
    pub fn file(name: &str, path: &Path) -> Self {
        Self { name: name.into(), queues: 1, lines: vec![format!("file = \"{}\"", path.display())] }
    }

    /// It may be served by another target, too.
    pub fn migratable(self) -> Self {
        self.line("migratable = true")
    }

    pub fn policy(self, policy: &str) -> Self {
        self.line(&format!("policy = \"{policy}\""))
    }

    pub fn queues(self, queues: usize) -> Self {
        Self { queues, ..self }
    }

    /// Any other line of its TOML table.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.into());
        self
    }

    fn toml(&self, directory: &Path) -> String {
        let Self { name, queues, lines } = self;
        let socket = directory.join(name);
        format!(
            "[[disk]]\nname = \"{name}\"\nsocket = \"{}\"\nqueues = {queues}\n{}\n",
            socket.display(),
            lines.join("\n")
        )
    }
}

/// Writes the configuration of these disks, whose sockets are in the directory.
pub fn write_config(directory: &TempDir, disks: &[Disk]) {
    let toml: String = disks.iter().map(|disk| disk.toml(directory.path())).collect();
    std::fs::write(directory.path().join("config.toml"), toml).unwrap();
}

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_coalesce-target");

/// A program that ends with the test, also with one that fails.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running target with a directory of its own.
#[derive(Debug)]
pub struct Target {
    pub directory: TempDir,
    child: Child,
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
}

impl Target {
    /// Starts a target with these disks, and a control socket.
    pub fn start(disks: &[Disk]) -> Self {
        Self::start_in(TempDir::new().unwrap(), disks)
    }

    /// The same, in a directory that may have image files in it.
    pub fn start_in(directory: TempDir, disks: &[Disk]) -> Self {
        write_config(&directory, disks);
        Self::spawn(directory, |command| command)
    }

    /// Starts a target in a directory with a configuration, with a command that is changed before it is run.
    pub fn spawn(directory: TempDir, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--config"]).arg(directory.path().join("config.toml"));
        command.arg("--control").arg(directory.path().join("control"));
        // A target heeds what its parent ignores. Whoever runs the tests may ignore these, as nohup(1) does.
        let heed = || {
            let heeded = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];
            // SAFETY: no handler runs.
            heeded.into_iter().try_for_each(|heeded| unsafe { signal(heeded, SigHandler::SigDfl) }.map(drop))?;
            Ok(())
        };
        // SAFETY: signal(2) may be called after a fork.
        unsafe { command.pre_exec(heed) };
        let mut child = change(&mut command).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let log_reader = child.stderr.take().map(|stderr| {
            let log = log.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    *log.lock().unwrap() += &(line + "\n");
                }
            })
        });
        let mut target = Self { directory, child, log, log_reader };
        target.wait_until_ready();
        target
    }

    /// The control socket is made last.
    fn wait_until_ready(&mut self) {
        let control = self.path("control");
        wait_until("the target never became ready", || {
            assert!(self.is_alive(), "the target ended: {}", self.log());
            UnixStream::connect(&control).is_ok()
        });
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Everything it said.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }

    /// Starts it again, as it was.
    pub fn restart(self) -> Self {
        let directory = self.into_directory();
        Self::spawn(directory, |command| command)
    }

    /// Its directory, when it has ended or is ended now.
    pub fn into_directory(mut self) -> TempDir {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let empty = TempDir::new().unwrap();
        std::mem::replace(&mut self.directory, empty)
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the target does not end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if let Some(reader) = self.log_reader.take() {
            reader.join().unwrap();
        }
        status.unwrap()
    }

    /// Calls a method on the control socket.
    pub fn call(&self, method: &str, params: &Value) -> Result<Value, String> {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut answer = control(&self.path("control"), format!("{request}\n").as_bytes());
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Lets every user reach its control socket.
    pub fn open_to_others(&self) {
        for (path, mode) in [(self.directory.path(), 0o755), (&self.path("control"), 0o666)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
    }

    pub fn set_policy(&self, disk: &str, policy: &str) {
        self.call("set_policy", &json!({ "ctrlr": disk, "policy": policy })).unwrap();
    }

    /// Statistics of one queue.
    pub fn stats(&self, disk: &str, queue: usize) -> Value {
        self.call("get_stats", &json!({ "ctrlr": disk, "queue": queue })).unwrap()[0]["queues"][0].take()
    }

    /// One number of [`stats`](Self::stats), at a path such as `device/malformed`.
    pub fn count(&self, disk: &str, queue: usize, path: &str) -> u64 {
        let stats = self.stats(disk, queue);
        stats.pointer(&format!("/{path}")).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {stats}"))
    }

    /// It, and the process of each disk.
    fn processes(&self) -> Vec<i32> {
        let pid = self.pid().as_raw();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        [pid].into_iter().chain(children.split_whitespace().map(|child| child.parse().unwrap())).collect()
    }

    /// The process of a disk.
    pub fn pid_of(&self, disk: &str) -> Pid {
        let list = self.call("list", &json!({})).unwrap();
        let about = list.as_array().unwrap().iter().find(|about| about["ctrlr"] == disk).unwrap();
        Pid::from_raw(about["pid"].as_i64().unwrap() as i32)
    }

    /// `VmRSS` and `VmData` in KiB, of all its processes.
    pub fn memory(&self) -> [u64; 2] {
        let of = |pid: i32, name: &str| -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        ["VmRSS:", "VmData:"].map(|name| self.processes().into_iter().map(|pid| of(pid, name)).sum())
    }

    /// How many files its processes have open.
    pub fn open_files(&self) -> usize {
        let count = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        self.processes().into_iter().map(count).sum()
    }

    /// Lets the process of a disk open only `left` more files. Returns the limit that it had.
    pub fn limit_files(&self, disk: &str, left: usize) -> libc::rlim_t {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid_of(disk))).unwrap();
        let number = |name: std::ffi::OsString| name.to_str().unwrap().parse::<usize>().unwrap();
        let mut open: Vec<_> = entries.map(|entry| number(entry.unwrap().file_name())).collect();
        open.sort_unstable();
        let mut free = (0..).filter(|number| open.binary_search(number).is_err());
        self.set_file_limit(disk, free.nth(left).unwrap() as libc::rlim_t)
    }

    /// Sets the soft limit on open files of the process of a disk. What it was.
    pub fn set_file_limit(&self, disk: &str, limit: libc::rlim_t) -> libc::rlim_t {
        let pid = self.pid_of(disk).as_raw();
        let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both limits live on this stack.
        assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut old) }, 0);
        let new = libc::rlimit { rlim_cur: limit, ..old };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const new, std::ptr::null_mut()) }, 0);
        old.rlim_cur
    }

    /// Alive, and no process of a disk has ended.
    pub fn assert_sound(&mut self) {
        assert!(self.is_alive(), "the target ended: {}", self.log());
        let log = self.log();
        assert!(!log.contains("panicked") && !log.contains("has ended"), "{log}");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the target said:\n{}---", self.log());
        }
    }
}

/// Lets files grow to `soft` bytes in a program and what it starts, and lets none but root raise that beyond `hard`.
pub fn limit_files(command: &mut Command, soft: libc::rlim_t, hard: libc::rlim_t) -> &mut Command {
    let set = move || {
        let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: the limit is there.
        Errno::result(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) })?;
        Ok(())
    };
    // SAFETY: setrlimit(2) may be called after a fork.
    unsafe { command.pre_exec(set) }
}

/// Sends `bytes` to a control socket. Its answer, a line of JSON; `Null`: it closed the connection.
pub fn control(path: &Path, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let _ = stream.write_all(bytes); // it need not read all of it
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("hung: the control socket does not answer"),
        _ if line.is_empty() => Value::Null,
        _ => serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}")),
    }
}

/// A client of the control socket, on a connection of its own.
pub struct Asked(pub UnixStream);

impl Asked {
    pub fn nothing(target: &Target) -> Self {
        let stream = UnixStream::connect(target.path("control")).unwrap();
        stream.set_read_timeout(Some(2 * HANG)).unwrap();
        Self(stream)
    }

    /// The target has read the request when this returns.
    pub fn new(target: &Target, method: &str, params: &Value) -> Self {
        let mut asked = Self::nothing(target);
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        asked.0.write_all(format!("{request}\n").as_bytes()).unwrap();
        wait_until("it is read", || unread(&asked.0) == 0);
        asked
    }

    pub fn is_answered(&self) -> bool {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    }

    /// The result, or the message of the error.
    pub fn answer(self) -> Result<Value, String> {
        let mut line = String::new();
        BufReader::new(self.0).read_line(&mut line).unwrap();
        let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line:?}"));
        match answer["error"]["message"].as_str() {
            Some(message) => Err(message.into()),
            None => Ok(answer["result"].take()),
        }
    }
}

/// What was sent and not read.
pub fn unread(stream: &UnixStream) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: the request fills in a number.
    assert_eq!(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) }, 0);
    bytes
}

/// The page of metrics at an address, with the head of the answer.
pub fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Makes this thread that of another user: the credentials of a thread are its own.
pub fn become_another_user() {
    // SAFETY: it has no pointer.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }).unwrap();
}

// ---------------------------------------------------------------------------------------------------------------------
// The vhost-user protocol
// ---------------------------------------------------------------------------------------------------------------------

pub const GET_FEATURES: u32 = 1;
pub const SET_FEATURES: u32 = 2;
pub const SET_OWNER: u32 = 3;
pub const RESET_OWNER: u32 = 4;
pub const SET_MEM_TABLE: u32 = 5;
pub const SET_LOG_BASE: u32 = 6;
pub const SET_LOG_FD: u32 = 7;
pub const SET_VRING_NUM: u32 = 8;
pub const SET_VRING_ADDR: u32 = 9;
pub const SET_VRING_BASE: u32 = 10;
pub const GET_VRING_BASE: u32 = 11;
pub const SET_VRING_KICK: u32 = 12;
pub const SET_VRING_CALL: u32 = 13;
pub const SET_VRING_ERR: u32 = 14;
pub const GET_PROTOCOL_FEATURES: u32 = 15;
pub const SET_PROTOCOL_FEATURES: u32 = 16;
pub const GET_QUEUE_NUM: u32 = 17;
pub const SET_VRING_ENABLE: u32 = 18;
pub const GET_CONFIG: u32 = 24;
pub const SET_CONFIG: u32 = 25;
pub const GET_INFLIGHT_FD: u32 = 31;
pub const SET_INFLIGHT_FD: u32 = 32;
pub const RESET_DEVICE: u32 = 34;
pub const GET_MAX_MEM_SLOTS: u32 = 36;
pub const ADD_MEM_REG: u32 = 37;
pub const REM_MEM_REG: u32 = 38;
/// No message has this number, or a higher one.
pub const LAST_MESSAGE: u32 = 45;

pub const F_RO: u64 = 1 << 5;
pub const F_FLUSH: u64 = 1 << 9;
pub const F_CONFIG_WCE: u64 = 1 << 11;
pub const F_DISCARD: u64 = 1 << 13;
pub const F_WRITE_ZEROES: u64 = 1 << 14;
pub const F_LOG_ALL: u64 = 1 << 26;
pub const F_INDIRECT: u64 = 1 << 28;
pub const F_EVENT_IDX: u64 = 1 << 29;
pub const F_PROTOCOL: u64 = 1 << 30;
pub const F_VERSION_1: u64 = 1 << 32;

/// Version 1 of the protocol.
pub const VERSION: u32 = 1;
/// The back end must acknowledge.
pub const NEED_REPLY: u32 = 8;
/// A ring without a file descriptor: it is polled.
pub const NO_FD: u64 = 0x100;

/// Numbers as they go into a message.
pub fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The same, of 64 bits.
pub fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A connection to a vhost-user back end, with which anything can be said.
#[derive(Debug)]
pub struct Wire {
    pub stream: UnixStream,
}

impl Drop for Wire {
    /// To close it is not enough: a child of another test may have it, until it becomes another program.
    fn drop(&mut self) {
        self.hang_up();
    }
}

impl Wire {
    fn hang_up(&self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    pub fn connect(path: &Path) -> Self {
        Self::over(UnixStream::connect(path).unwrap())
    }

    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        Self { stream }
    }

    /// Any bytes, with any files.
    pub fn send_bytes(&self, bytes: &[u8], files: &[RawFd]) -> io::Result<()> {
        let sent = self.stream.send_with_fds(&[bytes], files)?;
        (&self.stream).write_all(&bytes[sent..])
    }

    /// Any message, sound or not.
    pub fn send(&self, message: u32, flags: u32, payload: &[u8], files: &[RawFd]) -> io::Result<()> {
        let mut bytes = u32s(&[message, flags, payload.len() as u32]);
        bytes.extend(payload);
        self.send_bytes(&bytes, files)
    }

    /// A reply: its number, its payload, and the file that came with it.
    pub fn receive(&self) -> io::Result<(u32, Vec<u8>, Option<File>)> {
        let mut header = [0_u8; 12];
        let mut files = [0; 1];
        let mut slices = [libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() }];
        // A receive with a time limit is not restarted after a signal, nor after SIGCONT (signal(7)).
        let (bytes, count) = loop {
            // SAFETY: the one slice is the header, which any bytes may fill.
            match unsafe { self.stream.recv_with_fds(&mut slices, &mut files) } {
                Err(error) if error.errno() == libc::EINTR => {}
                outcome => break outcome?,
            }
        };
        // SAFETY: the kernel has just made this descriptor for us.
        let file = (count > 0).then(|| unsafe { File::from_raw_fd(files[0]) });
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (&self.stream).read_exact(&mut header[bytes..])?;
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        let mut payload = vec![0; number(8) as usize];
        (&self.stream).read_exact(&mut payload)?;
        Ok((number(0), payload, file))
    }

    /// A question that has an answer of its own.
    pub fn ask(&self, message: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        self.send(message, VERSION, payload, &[])?;
        let (of, payload, _) = self.receive()?;
        assert_eq!(of, message, "an answer to another question");
        Ok(payload)
    }

    /// The same, for a number.
    pub fn ask_u64(&self, message: u32) -> io::Result<u64> {
        let payload = self.ask(message, &[])?;
        Ok(u64::from_le_bytes(payload.try_into().unwrap()))
    }

    /// Something that is acknowledged; an error if it is refused.
    pub fn tell(&self, message: u32, payload: &[u8], files: &[RawFd]) -> io::Result<()> {
        self.send(message, VERSION | NEED_REPLY, payload, files)?;
        let (of, payload, _) = self.receive()?;
        assert_eq!((of, payload.len()), (message, 8), "an acknowledgement");
        if payload == [0; 8] { Ok(()) } else { Err(io::Error::other("refused")) }
    }

    /// Waits until the back end has closed the connection.
    pub fn wait_closed(&self) {
        let mut rest = Vec::new();
        match (&self.stream).read_to_end(&mut rest) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("hung: the connection stays open"),
            _ => {} // also a reset: it had not read everything
        }
    }

    /// Everything before memory is shared.
    pub fn negotiate(&self, features: u64) -> io::Result<u64> {
        let offered = self.ask_u64(GET_FEATURES)?;
        let protocol = self.ask_u64(GET_PROTOCOL_FEATURES)?;
        self.send(SET_PROTOCOL_FEATURES, VERSION, &u64s(&[protocol]), &[])?;
        self.tell(SET_OWNER, &[], &[])?;
        self.tell(SET_FEATURES, &u64s(&[offered & features]), &[])?;
        Ok(offered & features)
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The memory of a guest
// ---------------------------------------------------------------------------------------------------------------------

/// Where the front end pretends to have guest address 0 in its own address space.
pub const FRONT_END: u64 = 0x5000_0000_0000;

/// A part of guest memory.
#[derive(Clone, Debug)]
pub struct Region {
    pub start: u64,
    pub size: u64,
    pub file: Arc<File>,
}

impl Region {
    pub fn new(start: u64, size: u64) -> Self {
        let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(size).unwrap();
        Self { start, size, file: Arc::new(file) }
    }

    /// As a message has it.
    pub fn payload(&self) -> Vec<u8> {
        u64s(&[self.start, self.size, FRONT_END + self.start, 0])
    }
}

/// The payload of `SET_MEM_TABLE`.
pub fn memory_table(regions: &[Region]) -> Vec<u8> {
    let mut payload = u32s(&[regions.len() as u32, 0]);
    payload.extend(regions.iter().flat_map(Region::payload));
    payload
}

fn map(regions: &[Region]) -> Arc<GuestMemoryMmap> {
    let ranges = regions.iter().map(|region| {
        let file = FileOffset::new(region.file.try_clone().unwrap(), 0);
        (GuestAddress(region.start), region.size as usize, Some(file))
    });
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_by_key(|range| range.0);
    Arc::new(GuestMemoryMmap::from_ranges_with_files(&ranges).unwrap())
}

/// A log of dirty pages.
#[derive(Debug)]
pub struct Log(pub Region);

impl Log {
    /// With bits for all pages up to a guest address.
    pub fn new(end: u64) -> Self {
        Self(Region::new(0, end.div_ceil(8 * 4096)))
    }

    /// The back end logs there once this returns. An error if it refuses.
    pub fn share(&self, wire: &Wire) -> io::Result<()> {
        share_log(wire, (self.0.size, 0), &[self.0.file.as_raw_fd()])
    }

    /// The pages that are marked.
    pub fn pages(&self) -> BTreeSet<u64> {
        let mut bytes = vec![0; self.0.size as usize];
        self.0.file.read_exact_at(&mut bytes, 0).unwrap();
        let marked = |page: &u64| bytes[(page / 8) as usize] & 1 << (page % 8) != 0;
        (0..8 * self.0.size).filter(marked).collect()
    }

    /// The same, and none is marked any more.
    pub fn take(&self) -> BTreeSet<u64> {
        let pages = self.pages();
        pages.iter().for_each(|page| self.0.file.write_all_at(&[0], page / 8).unwrap());
        pages
    }
}

/// Says where a log is: its size and its offset in a file.
pub fn share_log(wire: &Wire, (size, offset): (u64, u64), files: &[RawFd]) -> io::Result<()> {
    let payload = u64s(&[size, offset]);
    wire.send(SET_LOG_BASE, VERSION, &payload, files)?;
    let (of, answer, _) = wire.receive()?;
    assert_eq!((of, answer), (SET_LOG_BASE, payload));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------------------------
// Rings
// ---------------------------------------------------------------------------------------------------------------------

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor: address, length, flags, next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Desc(pub u64, pub u32, pub u16, pub u16);

impl Desc {
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.1.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.2.to_le_bytes());
        bytes[14..].copy_from_slice(&self.3.to_le_bytes());
        bytes
    }
}

/// What is chained one after the other from index 0: each descriptor but the last gets NEXT and the next index.
pub fn chained(parts: &[(u64, u32, u16)]) -> Vec<Desc> {
    let last = parts.len().saturating_sub(1);
    let desc = |(i, &(address, len, flags)): (usize, &(u64, u32, u16))| {
        if i < last { Desc(address, len, flags | NEXT, i as u16 + 1) } else { Desc(address, len, flags, 0) }
    };
    parts.iter().enumerate().map(desc).collect()
}

/// Where the rings are, from the start of memory; and how far those of one queue are from those of the next.
const RING_AREA: u64 = 0x1_0000;
const AVAIL_AT: u64 = 0x4000;
const USED_AT: u64 = 0x8000;
/// Space for each request: header, status, range, and from 4096 on data.
pub const SLOT: u64 = 0x2000;
const STATUS_AT: u64 = 64;
const RANGE_AT: u64 = 128;
const DATA_AT: u64 = 4096;
/// The longest data of a request in a slot.
pub const DATA_MAX: u32 = 4096;
/// Descriptors of a slot.
pub const PER_SLOT: u16 = 3;
const NOT_WRITTEN: u8 = 0xAA;

pub const T_IN: u32 = 0;
pub const T_OUT: u32 = 1;
pub const T_FLUSH: u32 = 4;
pub const T_GET_ID: u32 = 8;
pub const T_DISCARD: u32 = 11;
pub const T_WRITE_ZEROES: u32 = 13;
pub const OK: u8 = 0;
pub const IOERR: u8 = 1;
pub const UNSUPP: u8 = 2;

/// A request in its usual framing.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// Sector, bytes.
    Read(u64, u32),
    /// Sector, data.
    Write(u64, &'a [u8]),
    Flush,
    /// Sector, sectors, flags.
    Discard(u64, u32, u32),
    /// Sector, sectors, flags.
    WriteZeroes(u64, u32, u32),
    GetId,
}

/// A request that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub status: u8,
    /// What the used ring says was written.
    pub len: u32,
    /// What was read.
    pub data: Vec<u8>,
}

/// An element of the used ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub id: u32,
    pub len: u32,
}

/// A request header.
pub fn header(kind: u32, ioprio: u32, sector: u64) -> Vec<u8> {
    let mut bytes = u32s(&[kind, ioprio]);
    bytes.extend(sector.to_le_bytes());
    bytes
}

/// A queue, as its driver sees it.
#[derive(Debug)]
pub struct Queue {
    pub index: u32,
    pub size: u16,
    pub memory: Arc<GuestMemoryMmap>,
    pub desc: u64,
    pub avail: u64,
    pub used: u64,
    /// Where the slots are.
    pub slots: u64,
    pub event_idx: bool,
    pub kick: EventFd,
    pub call: EventFd,
    pub error: EventFd,
    /// What will be published as the available index.
    pub next_avail: u16,
    published: u16,
    /// Up to where the used ring was taken.
    pub last_used: u16,
    /// Interrupts counted so far.
    pub interrupts: u64,
    pub kicks: u64,
}

/// An eventfd that never blocks.
pub fn eventfd() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).unwrap()
}

impl Queue {
    fn new(index: usize, setup: &Setup, memory: Arc<GuestMemoryMmap>) -> Self {
        let rings = setup.rings + index as u64 * RING_AREA;
        Self {
            index: index as u32,
            size: setup.sizes.get(index).copied().unwrap_or(setup.size),
            memory,
            desc: rings,
            avail: rings + AVAIL_AT,
            used: rings + USED_AT,
            slots: setup.rings + setup.queues as u64 * RING_AREA + index as u64 * u64::from(setup.size) * SLOT,
            event_idx: setup.features & F_EVENT_IDX != 0,
            kick: eventfd(),
            call: eventfd(),
            error: eventfd(),
            next_avail: 0,
            published: 0,
            last_used: 0,
            interrupts: 0,
            kicks: 0,
        }
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    pub fn load(&self, address: u64) -> u16 {
        u16::from_le(self.memory.load(GuestAddress(address), Ordering::Acquire).unwrap())
    }

    pub fn store(&self, address: u64, value: u16) {
        self.memory.store(value.to_le(), GuestAddress(address), Ordering::Release).unwrap();
    }

    /// Writes descriptors, from `first` on. Their `next` is relative to it.
    pub fn write_chain(&self, first: u16, chain: &[Desc]) {
        for (i, &Desc(address, len, flags, next)) in chain.iter().enumerate() {
            self.write_desc(first + i as u16, Desc(address, len, flags, first + next));
        }
    }

    pub fn write_desc(&self, index: u16, desc: Desc) {
        self.write(self.desc + 16 * u64::from(index), &desc.bytes());
    }

    /// Puts a head into the available ring, without publishing it.
    pub fn offer(&mut self, head: u16) {
        self.store(self.avail + 4 + 2 * u64::from(self.next_avail % self.size), head);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Publishes what was offered; kicks if the device asks for kicks, as a driver does.
    pub fn publish(&mut self) {
        let before = std::mem::replace(&mut self.published, self.next_avail);
        self.set_avail_idx(self.next_avail);
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            let event = self.load(self.used + 4 + 8 * u64::from(self.size));
            self.next_avail.wrapping_sub(event).wrapping_sub(1) < self.next_avail.wrapping_sub(before)
        } else {
            self.load(self.used) & 1 == 0
        };
        if wanted {
            self.kick();
        }
    }

    pub fn kick(&mut self) {
        self.kick.write(1).unwrap();
        self.kicks += 1;
    }

    pub fn set_avail_idx(&self, index: u16) {
        self.store(self.avail + 2, index);
    }

    /// Sets or clears `VRING_AVAIL_F_NO_INTERRUPT`.
    pub fn set_no_interrupt(&self, no_interrupt: bool) {
        self.store(self.avail, u16::from(no_interrupt));
        fence(Ordering::SeqCst);
    }

    pub fn set_used_event(&self, index: u16) {
        self.store(self.avail + 4 + 2 * u64::from(self.size), index);
        fence(Ordering::SeqCst);
    }

    pub fn used_idx(&self) -> u16 {
        self.load(self.used + 2)
    }

    /// What an index of the used ring stands for.
    pub fn used_at(&self, index: u16) -> Used {
        let bytes = self.read(self.used + 4 + 8 * u64::from(index % self.size), 8);
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Used { id: number(0), len: number(4) }
    }

    /// Takes what is in the used ring.
    pub fn take_used(&mut self) -> Vec<Used> {
        let until = self.used_idx();
        let mut taken = Vec::new();
        while self.last_used != until {
            taken.push(self.used_at(self.last_used));
            self.last_used = self.last_used.wrapping_add(1);
        }
        taken
    }

    /// Counts the interrupts that came since the last time.
    pub fn count_interrupts(&mut self) -> u64 {
        let new = self.call.read().unwrap_or(0);
        self.interrupts += new;
        new
    }

    /// Waits for an interrupt, and counts all that there are.
    pub fn wait_interrupt(&mut self) -> u64 {
        let mut fds = [PollFd::new(self.call.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::try_from(HANG).unwrap()).unwrap();
        assert_ne!(ready, 0, "hung: no interrupt came; {}", self.describe());
        self.count_interrupts()
    }

    fn describe(&self) -> String {
        format!("queue {}: offered {}, used {}, taken {}", self.index, self.next_avail, self.used_idx(), self.last_used)
    }

    /// Takes `n` completions as a driver does that sleeps: only an interrupt makes it look at the used ring.
    pub fn wait(&mut self, n: usize) -> Vec<Used> {
        let mut taken = Vec::new();
        while taken.len() < n {
            self.wait_interrupt();
            taken.extend(self.take_all());
        }
        taken
    }

    /// Takes everything, and asks to be interrupted for what comes then.
    pub fn take_all(&mut self) -> Vec<Used> {
        let mut taken = Vec::new();
        loop {
            taken.extend(self.take_used());
            if self.event_idx {
                self.set_used_event(self.last_used);
            }
            if self.used_idx() == self.last_used {
                return taken;
            }
        }
    }

    /// Waits, without a wish for interrupts, until `n` more are in the used ring. Takes nothing.
    pub fn spin(&self, n: u16) {
        let from = self.last_used;
        wait_until(&format!("{n} completions; {}", self.describe()), || self.used_idx().wrapping_sub(from) >= n);
    }

    /// Address of the data of a slot.
    pub fn data(&self, slot: u16) -> u64 {
        self.slots + u64::from(slot) * SLOT + DATA_AT
    }

    pub fn header(&self, slot: u16) -> u64 {
        self.slots + u64::from(slot) * SLOT
    }

    /// The first address behind all memory.
    pub fn end_of_memory(&self) -> u64 {
        let ends = self.memory.iter().map(|region| region.start_addr().0 + region.len());
        ends.max().unwrap_or(0)
    }

    pub fn status_at(&self, slot: u16) -> u64 {
        self.slots + u64::from(slot) * SLOT + STATUS_AT
    }

    pub fn status(&self, slot: u16) -> u8 {
        self.read(self.status_at(slot), 1)[0]
    }

    /// Writes a request in its usual framing. Its head.
    pub fn prepare(&self, slot: u16, op: &Op<'_>) -> u16 {
        let data = self.data(slot);
        let range = |kind, sector: u64, sectors: u32, flags: u32| {
            let mut bytes = sector.to_le_bytes().to_vec();
            bytes.extend(u32s(&[sectors, flags]));
            self.write(self.slots + u64::from(slot) * SLOT + RANGE_AT, &bytes);
            (kind, 0, Some((self.slots + u64::from(slot) * SLOT + RANGE_AT, 16, 0)))
        };
        let (kind, sector, part) = match *op {
            Op::Read(sector, len) => (T_IN, sector, Some((data, len, WRITE))),
            Op::Write(sector, bytes) => {
                self.write(data, bytes);
                (T_OUT, sector, Some((data, bytes.len() as u32, 0)))
            }
            Op::Flush => (T_FLUSH, 0, None),
            Op::Discard(sector, sectors, flags) => range(T_DISCARD, sector, sectors, flags),
            Op::WriteZeroes(sector, sectors, flags) => range(T_WRITE_ZEROES, sector, sectors, flags),
            Op::GetId => (T_GET_ID, 0, Some((data, 20, WRITE))),
        };
        self.write(self.header(slot), &header(kind, 0, sector));
        self.write(self.status_at(slot), &[NOT_WRITTEN]);
        let mut parts = vec![(self.header(slot), 16, 0)];
        parts.extend(part);
        parts.push((self.status_at(slot), 1, WRITE));
        self.write_chain(slot * PER_SLOT, &chained(&parts));
        slot * PER_SLOT
    }

    /// Prepares and offers the same request in slots 0 to `n`.
    pub fn offer_many(&mut self, n: u16, op: &Op<'_>) {
        for slot in 0..n {
            let head = self.prepare(slot, op);
            self.offer(head);
        }
    }

    /// One request in its usual framing, from start to end.
    pub fn run(&mut self, op: Op<'_>) -> Done {
        let head = self.prepare(0, &op);
        self.offer(head);
        self.publish();
        let used = self.wait(1);
        assert_eq!((used.len(), used[0].id), (1, u32::from(head)), "{op:?}");
        let len = match op {
            Op::Read(_, len) => len as usize,
            Op::GetId => 20,
            _ => 0,
        };
        Done { status: self.status(0), len: used[0].len, data: self.read(self.data(0), len) }
    }

    /// A chain of the test's own at head 0, from start to end.
    pub fn run_chain(&mut self, chain: &[Desc]) -> Used {
        self.write_chain(0, chain);
        self.offer(0);
        self.publish();
        let used = self.wait(1);
        assert_eq!(used.len(), 1);
        used[0]
    }

    /// Begins at an index, as if that many requests had been done before.
    pub fn begin_at(&mut self, index: u16) {
        (self.next_avail, self.published, self.last_used) = (index, index, index);
        self.set_avail_idx(index);
        self.store(self.used + 2, index);
        self.set_used_event(index);
    }

    /// Forgets everything, as a driver that resets its device.
    pub fn reset(&mut self) {
        self.write(self.avail, &vec![0; 6 + 2 * usize::from(self.size)]);
        self.write(self.used, &vec![0; 6 + 8 * usize::from(self.size)]);
        (self.next_avail, self.published, self.last_used) = (0, 0, 0);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// A driver
// ---------------------------------------------------------------------------------------------------------------------

/// How a driver sets its device up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub queues: usize,
    pub size: u16,
    /// Sizes of the queues, where they are not all the same.
    pub sizes: Vec<u16>,
    /// Features to acknowledge if they are offered.
    pub features: u64,
    pub regions: Vec<Region>,
    /// Where the rings are.
    pub rings: u64,
}

/// Where guest memory starts: not at 0, so that the two address spaces differ by more than [`FRONT_END`].
pub const GUEST: u64 = 0x4000_0000;

impl Setup {
    /// Every feature that the device has.
    pub fn new(queues: usize, size: u16) -> Self {
        let memory = queues as u64 * (RING_AREA + u64::from(size) * SLOT) + (1 << 20);
        let regions = vec![Region::new(GUEST, memory)];
        Self { queues, size, sizes: Vec::new(), features: !0, regions, rings: GUEST }
    }

    /// Without these features.
    pub fn without(mut self, features: u64) -> Self {
        self.features &= !features;
        self
    }

    pub fn event_idx(self, event_idx: bool) -> Self {
        if event_idx { self } else { self.without(F_EVENT_IDX) }
    }

    /// An address that no slot and no ring uses, with 1 MiB behind it.
    pub fn spare(&self) -> u64 {
        self.rings + self.queues as u64 * (RING_AREA + u64::from(self.size) * SLOT)
    }
}

/// A driver with its queues.
#[derive(Debug)]
pub struct Driver {
    pub wire: Wire,
    pub setup: Setup,
    pub features: u64,
    pub queues: Vec<Queue>,
    /// The region of requests in flight, as the back end gave it.
    pub inflight: Option<(Vec<u8>, Arc<File>)>,
}

impl Driver {
    /// Negotiates and shares memory; queues are not started.
    pub fn connect(path: &Path, setup: &Setup) -> Self {
        Self::over(Wire::connect(path), setup)
    }

    pub fn over(wire: Wire, setup: &Setup) -> Self {
        let features = wire.negotiate(setup.features).unwrap();
        let driver = Self::on(wire, features, setup);
        driver.share_memory();
        driver
    }

    /// A driver on a connection where the test itself has said what there was to say.
    pub fn on(wire: Wire, features: u64, setup: &Setup) -> Self {
        let memory = map(&setup.regions);
        let setup = Setup { features, ..setup.clone() };
        let queues = (0..setup.queues).map(|index| Queue::new(index, &setup, memory.clone())).collect();
        Self { wire, setup, features, queues, inflight: None }
    }

    /// The same, and starts every queue.
    pub fn start(path: &Path, setup: &Setup) -> Self {
        let driver = Self::connect(path, setup);
        (0..setup.queues).for_each(|index| driver.start_queue(index));
        driver
    }

    /// The same, with a region of requests in flight.
    pub fn start_with_inflight(path: &Path, setup: &Setup) -> Self {
        let mut driver = Self::connect(path, setup);
        driver.get_inflight();
        (0..setup.queues).for_each(|index| driver.start_queue(index));
        driver
    }

    pub fn get_inflight(&mut self) {
        let mut payload = u64s(&[0, 0]);
        payload.extend((self.setup.queues as u16).to_le_bytes());
        payload.extend(self.setup.size.to_le_bytes());
        payload.extend([0; 4]);
        self.wire.send(GET_INFLIGHT_FD, VERSION, &payload, &[]).unwrap();
        let (_, payload, file) = self.wire.receive().unwrap();
        self.inflight = Some((payload, Arc::new(file.expect("a file"))));
        self.set_inflight();
    }

    pub fn set_inflight(&self) {
        let (payload, file) = self.inflight.as_ref().unwrap();
        self.wire.tell(SET_INFLIGHT_FD, payload, &[file.as_raw_fd()]).unwrap();
    }

    pub fn share_memory(&self) {
        let files: Vec<_> = self.setup.regions.iter().map(|region| region.file.as_raw_fd()).collect();
        self.wire.tell(SET_MEM_TABLE, &memory_table(&self.setup.regions), &files).unwrap();
    }

    /// Says again what was negotiated, as after a reset of the device.
    pub fn negotiate_again(&self) {
        self.wire.tell(SET_FEATURES, &u64s(&[self.features]), &[]).unwrap();
    }

    /// Everything of a ring but its kick.
    pub fn set_up_queue(&self, index: usize) {
        let queue = &self.queues[index];
        let number = queue.index;
        self.wire.tell(SET_VRING_NUM, &u32s(&[number, queue.size.into()]), &[]).unwrap();
        self.wire.tell(SET_VRING_BASE, &u32s(&[number, queue.used_idx().into()]), &[]).unwrap();
        self.wire.tell(SET_VRING_ADDR, &self.ring_addresses(index), &[]).unwrap();
        self.wire.tell(SET_VRING_CALL, &u64s(&[number.into()]), &[queue.call.as_raw_fd()]).unwrap();
        self.wire.tell(SET_VRING_ERR, &u64s(&[number.into()]), &[queue.error.as_raw_fd()]).unwrap();
    }

    pub fn ring_addresses(&self, index: usize) -> Vec<u8> {
        let queue = &self.queues[index];
        let mut payload = u32s(&[queue.index, 0]);
        payload.extend(u64s(&[FRONT_END + queue.desc, FRONT_END + queue.used, FRONT_END + queue.avail, 0]));
        payload
    }

    /// Has the used ring logged as if it were at a guest address, or not logged.
    pub fn log_used(&self, index: usize, at: Option<u64>) -> io::Result<()> {
        let mut payload = self.ring_addresses(index);
        payload[4] = u8::from(at.is_some()); // VHOST_VRING_F_LOG
        payload[32..].copy_from_slice(&at.unwrap_or(0).to_le_bytes());
        self.wire.tell(SET_VRING_ADDR, &payload, &[])
    }

    /// Has data and status bytes logged, or not.
    pub fn log_data(&self, is_logged: bool) -> io::Result<()> {
        let features = self.features & !F_LOG_ALL | if is_logged { F_LOG_ALL } else { 0 };
        self.wire.tell(SET_FEATURES, &u64s(&[features]), &[])
    }

    pub fn set_kick(&self, index: usize) {
        let queue = &self.queues[index];
        self.wire.tell(SET_VRING_KICK, &u64s(&[queue.index.into()]), &[queue.kick.as_raw_fd()]).unwrap();
    }

    pub fn set_call(&self, index: usize) {
        let queue = &self.queues[index];
        self.wire.tell(SET_VRING_CALL, &u64s(&[queue.index.into()]), &[queue.call.as_raw_fd()]).unwrap();
    }

    pub fn enable(&self, index: usize, enable: bool) {
        self.wire.tell(SET_VRING_ENABLE, &u32s(&[index as u32, u32::from(enable)]), &[]).unwrap();
    }

    pub fn start_queue(&self, index: usize) {
        self.set_up_queue(index);
        self.set_kick(index);
        self.enable(index, true);
    }

    /// Stops a ring. Where it would go on.
    pub fn stop_queue(&self, index: usize) -> u16 {
        let answer = self.wire.ask(GET_VRING_BASE, &u32s(&[index as u32, 0])).unwrap();
        u16::from_le_bytes([answer[4], answer[5]])
    }

    /// Hangs up, or the back end has ended, and connects again, as QEMU does: with the rings as they are in memory, new eventfds,
    /// and the region of requests in flight.
    pub fn reconnect(&mut self, path: &Path) {
        self.reconnect_without_start(path);
        (0..self.queues.len()).for_each(|index| self.start_queue(index));
    }

    pub fn reconnect_without_start(&mut self, path: &Path) {
        self.wire.hang_up(); // a second connection would be refused
        self.wire = Wire::connect(path);
        self.wire.negotiate(self.setup.features).unwrap();
        self.share_memory();
        if self.inflight.is_some() {
            self.set_inflight();
        }
    }

    pub fn config(&self, offset: u32, len: u32) -> Vec<u8> {
        let mut payload = u32s(&[offset, len, 0]);
        payload.resize(12 + len as usize, 0);
        let answer = self.wire.ask(GET_CONFIG, &payload).unwrap();
        assert_eq!(answer[..12], payload[..12], "offset, size and flags of the configuration");
        answer[12..].to_vec()
    }

    pub fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        let mut payload = u32s(&[offset, bytes.len() as u32, 0]);
        payload.extend(bytes);
        self.wire.tell(SET_CONFIG, &payload, &[])
    }

    /// The queue that a driver of one queue has.
    pub fn queue(&mut self) -> &mut Queue {
        &mut self.queues[0]
    }
}

/// Bytes that say where they are.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..len).map(|_| random.next() as u8).collect()
}

/// Numbers that are the same in each run (xorshift64*).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A disk works: what is written reads back, and the interrupts come.
pub fn assert_serves(path: &Path) {
    assert_drives(&mut Driver::connect(path, &Setup::new(1, 64)));
}

/// The same, with a driver of one queue that is not started.
pub fn assert_drives(driver: &mut Driver) {
    driver.start_queue(0);
    let data = pattern(7, 4096);
    let queue = driver.queue();
    assert_eq!(queue.run(Op::Write(8, &data)).status, OK);
    assert_eq!(queue.run(Op::Flush).status, OK);
    assert_eq!(queue.run(Op::Read(8, 4096)), Done { status: OK, len: 4097, data });
    driver.stop_queue(0);
}

/// Completions that are held longer than any test takes: this policy delays by a minute, after a first load.
pub const HOLD_FOREVER: &str = "spdk_vhost:delay_base_us=60000000,iops_threshold=100";

/// Makes `n` completions (2 to 40) that are posted and held under [`HOLD_FOREVER`], by reads of sector 0.
pub fn hold(queue: &mut Queue, n: u16) {
    sleep(Duration::from_millis(20)); // its load is that of 10 ms
    queue.offer_many(n, &Op::Read(0, 512));
    queue.publish();
    queue.spin(n);
}

/// The requests of a queue that waits for its completions through nothing but interrupts, some at a time.
#[derive(Debug, Default)]
pub struct Load {
    free: VecDeque<u16>,
    pub ended: u64,
}

impl Load {
    pub fn new(depth: u16) -> Self {
        Self { free: (0..depth).collect(), ended: 0 }
    }

    /// Submits up to `n`, chosen by `op`.
    pub fn submit<'a>(&mut self, queue: &mut Queue, n: usize, mut op: impl FnMut(u16) -> Op<'a>) {
        for slot in self.free.drain(..n.min(self.free.len())) {
            let head = queue.prepare(slot, &op(slot));
            queue.offer(head);
        }
        queue.publish();
    }

    /// Waits for `n`, which all must be good.
    pub fn wait(&mut self, queue: &mut Queue, n: usize) {
        for used in queue.wait(n) {
            let slot = (used.id / u32::from(PER_SLOT)) as u16;
            assert_eq!(queue.status(slot), OK, "slot {slot}");
            self.free.push_back(slot);
            self.ended += 1;
        }
    }
}
