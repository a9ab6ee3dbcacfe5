//! A file whose medium is this process: a FUSE file system with nothing but that file. It fails, does a part of what it is
//! asked, and remembers what it did, in order. What is below it is the kernel's own: io_uring, its workers, the file layer.
#![allow(dead_code, reason = "not every test uses all of it")]

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// What the kernel asks the medium to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read { offset: u64, len: usize },
    Write { offset: u64, len: usize, durable: bool },
    Flush,
    Allocate { mode: i32, offset: u64, len: u64 },
}

/// How the medium does it. Never only in part: after that Linux goes on at the wrong place of a file such as this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// As it should.
    None,
    /// The first bytes of it, and then fails.
    Error(Errno, usize),
}

/// What has happened to the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These bytes are in its cache, or beyond it.
    Write { offset: u64, data: Vec<u8>, durable: bool },
    /// Everything before this is on the medium.
    Flush,
    /// The test's own mark.
    Mark(u64),
}

type Plan = Box<dyn FnMut(&Call) -> Fault + Send>;

/// What the file is, and what becomes of it.
pub struct State {
    pub data: Vec<u8>,
    pub log: Vec<Event>,
    pub plan: Plan,
}

/// The file, mounted.
pub struct Medium {
    directory: TempDir,
    state: Arc<Mutex<State>>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Medium {
    /// A file of `size` bytes of zeroes; none, and a line about `what`, where it cannot be mounted.
    pub fn new_or_skip(what: &str, size: usize) -> Option<Self> {
        let medium = Self::new(size);
        if let Err(why) = &medium {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: a FUSE file system: {why}"); // not captured
        }
        medium.ok()
    }

    fn new(size: usize) -> std::io::Result<Self> {
        let directory = TempDir::new()?;
        let path = directory.path().join("image");
        File::create(&path)?; // mounted over
        let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=100600,user_id=0,group_id=0", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("medium"), &path, Some("fuse"), flags, Some(options.as_str()))?;
        let state = State { data: vec![0; size], log: Vec::new(), plan: Box::new(|_| Fault::None) };
        let (state, stop) = (Arc::new(Mutex::new(state)), Arc::new(EventFd::new()?));
        let server = Server { device, state: state.clone(), stop: stop.clone() };
        let thread = Some(std::thread::spawn(move || server.run()));
        Ok(Self { directory, state, stop, thread })
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on calls are done as `plan` says.
    pub fn plan(&self, plan: impl FnMut(&Call) -> Fault + Send + 'static) {
        self.state().plan = Box::new(plan);
    }

    /// The first Write Zeroes waits until it may go on, in a thread of the kernel's. Returns what says that it waits, and what lets
    /// it go on.
    pub fn stall_first_zeroing(&self) -> (Receiver<()>, Sender<()>) {
        let (begun, has_begun) = channel();
        let (go_on, may_go_on) = channel();
        let mut is_first = true;
        self.plan(move |call| {
            if matches!(call, Call::Allocate { .. }) && std::mem::replace(&mut is_first, false) {
                begun.send(()).unwrap();
                let _ = may_go_on.recv();
            }
            Fault::None
        });
        (has_begun, go_on)
    }

    /// Puts a mark between what has happened and what comes.
    pub fn mark(&self, mark: u64) {
        self.state().log.push(Event::Mark(mark));
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let _ = umount2(&self.path(), MntFlags::MNT_DETACH);
        self.stop.write(1).unwrap();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it closes the device, which ends what is still asked for
        }
    }
}

// <linux/fuse.h>
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FALLOCATE: u32 = 43;
const WITHOUT_REPLY: [u32; 3] = [2, 36, 42]; // FORGET, INTERRUPT, BATCH_FORGET
const MAX_WRITE: usize = 1 << 20;
const BIG_WRITES_AND_MAX_PAGES: u32 = 1 << 5 | 1 << 22;
const DIRECT_IO_IN_PARALLEL: u32 = 1 | 1 << 6;

struct Server {
    device: File,
    state: Arc<Mutex<State>>,
    stop: Arc<EventFd>,
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Server {
    fn run(self) {
        let mut buffer = vec![0; MAX_WRITE + 8192];
        loop {
            let mut fds = [self.device.as_fd(), self.stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            poll(&mut fds, PollTimeout::NONE).unwrap();
            if fds[1].any() == Some(true) {
                return;
            }
            match (&self.device).read(&mut buffer) {
                Ok(len) => self.answer(&buffer[..len]),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return, // unmounted
                Err(_) => {} // what was asked for is not wanted any more
            }
        }
    }

    fn answer(&self, request: &[u8]) {
        let (opcode, unique, body) = (le32(request, 4), le64(request, 8), &request[40..]);
        if WITHOUT_REPLY.contains(&opcode) {
            return;
        }
        let outcome = self.serve(opcode, body);
        let (error, body) = match outcome {
            Ok(body) => (0, body),
            Err(errno) => (-(errno as i32), Vec::new()),
        };
        let mut reply = (16 + body.len() as u32).to_le_bytes().to_vec();
        reply.extend(error.to_le_bytes());
        reply.extend(unique.to_le_bytes());
        reply.extend(body);
        let _ = (&self.device).write(&reply); // the process that asked may be gone
    }

    fn serve(&self, opcode: u32, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut state = self.state.lock().unwrap();
        let offset = |at| le64(body, at);
        match opcode {
            INIT => {
                let words = [7, 31, 0, BIG_WRITES_AND_MAX_PAGES, 16 | 12 << 16, MAX_WRITE as u32, 1, 256];
                let mut reply: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
                reply.resize(64, 0);
                Ok(reply)
            }
            GETATTR => {
                let size = state.data.len() as u64;
                let mut reply: Vec<u8> =
                    [3600, 0, 1, size, size.div_ceil(512), 0, 0, 0].into_iter().flat_map(u64::to_le_bytes).collect();
                let mode = libc::S_IFREG | 0o600;
                reply.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].into_iter().flat_map(u32::to_le_bytes));
                Ok(reply)
            }
            OPEN => {
                let mut reply = vec![0; 16];
                reply[8..12].copy_from_slice(&DIRECT_IO_IN_PARALLEL.to_le_bytes());
                Ok(reply)
            }
            RELEASE | FLUSH => Ok(Vec::new()),
            READ => state.read(offset(8), le32(body, 16) as usize),
            WRITE => {
                let durable = le32(body, 32) as i32 & libc::O_DSYNC != 0;
                let written = state.write(offset(8), &body[40..40 + le32(body, 16) as usize], durable)?;
                Ok((written as u64).to_le_bytes().to_vec())
            }
            FSYNC => state.flush(),
            FALLOCATE => state.allocate(le32(body, 24) as i32, offset(8), offset(16)),
            _ => Err(Errno::ENOSYS),
        }
    }
}

impl State {
    /// How many of `len` bytes are to be done, and what is said then.
    fn part(&mut self, call: &Call, len: usize) -> (usize, Option<Errno>) {
        match (self.plan)(call) {
            Fault::None => (len, None),
            Fault::Error(errno, part) => (part.min(len), Some(errno)),
        }
    }

    fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let len = len.min(self.data.len().saturating_sub(offset as usize));
        let (len, errno) = self.part(&Call::Read { offset, len }, len);
        errno.map_or_else(|| Ok(self.data[offset as usize..][..len].to_vec()), Err)
    }

    fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<usize, Errno> {
        let (len, errno) = self.part(&Call::Write { offset, len: data.len(), durable }, data.len());
        self.store(offset, &data[..len], durable && errno.is_none());
        errno.map_or(Ok(len), Err)
    }

    fn flush(&mut self) -> Result<Vec<u8>, Errno> {
        match self.part(&Call::Flush, 0) {
            (_, Some(errno)) => Err(errno),
            (_, None) => {
                self.log.push(Event::Flush);
                Ok(Vec::new())
            }
        }
    }

    /// Punches holes and zeroes ranges: either way they are zeroes in the cache.
    fn allocate(&mut self, mode: i32, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let (len, errno) = self.part(&Call::Allocate { mode, offset, len }, len as usize);
        self.store(offset, &vec![0; len], false);
        errno.map_or(Ok(Vec::new()), Err)
    }

    fn store(&mut self, offset: u64, data: &[u8], durable: bool) {
        self.data[offset as usize..][..data.len()].copy_from_slice(data);
        self.log.push(Event::Write { offset, data: data.to_vec(), durable });
    }
}
