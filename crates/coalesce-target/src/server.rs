//! Serves one disk on its socket, from the first connection to an orderly stop.

use crate::backend::{Backend, FileBackend, ImageOptions, Locking, MemoryBackend};
use crate::config::{Device, DiskConfig, Latency, Size};
use crate::disk::{Disk, Limits, SERIAL_LEN, Totals};
use crate::front_end::FrontEnd;
use crate::os::call::CallRings;
use crate::os::socket::{Door, accepted};
use crate::queue::{Control, PreparedQueues, QueueConfig, QueueHandle, RunReport};
use crate::record::Recorder;
use crate::stats::QueueStats;
use crate::throttle::{RatesChange, Throttle};
use anyhow::{Context as _, Result, bail};
use coalesce_policy::Spec;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::{Deserialize, Serialize};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tracing::{info, warn};

/// A disk that is being served. Dropping it stops the disk.
#[derive(Debug)]
pub struct DiskServer<F: FrontEnd> {
    about: DiskInfo,
    device: Device,
    disk: Arc<Disk>,
    queues: Arc<[QueueHandle<F::Source>]>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the disk's thread shares with other threads.
#[derive(Debug)]
struct Shared {
    stop: EventFd,
    has_other_size: EventFd,
    hears_of_size: AtomicBool,             // its front end
    connection: Mutex<Option<UnixStream>>, // to disconnect a front end that stops in the middle of a message
}

impl Shared {
    fn connection(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The description of a disk.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DiskInfo {
    /// Its name.
    pub ctrlr: String,
    /// What the guest sees.
    pub device: Device,
    /// Its socket.
    pub socket: String,
    /// Its image; `None` for a memory disk.
    pub file: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// Its block size in bytes.
    pub block_size: u32,
    /// Its number of queues.
    pub queues: usize,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// What a disk was given as its size.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// In bytes.
    pub size: u64,
    /// The largest file that serving it then writes, in bytes.
    pub file_len_max: u64,
}

/// A disk that has got another size, or was to get the one that it has.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Resized {
    /// Its size in bytes.
    pub size: u64,
    /// Requests from before that are still in flight beyond its end. Later ones are refused.
    pub in_flight_beyond: usize,
    /// Whether the guest is told.
    pub guest_is_told: bool,
    /// If not, why, and when it sees the size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A disk with everything open, before its threads start.
pub struct DiskParts<F: FrontEnd> {
    about: DiskInfo,
    config: DiskConfig,
    disk: Arc<Disk>,
    queues: PreparedQueues<F::Source>,
}

impl<F: FrontEnd> DiskParts<F> {
    /// Opens the disk's image and what its queues need. With a `recorder`, the queues record their events there.
    ///
    /// # Errors
    /// The image is unusable, or the system refuses a resource.
    pub fn open(config: &DiskConfig, recorder: Option<&Recorder>) -> Result<Self> {
        Self::try_open(config, recorder).with_context(|| format!("disk {}", config.name()))
    }

    /// The size in bytes of the largest file that serving the disk writes: the image, or one that the front end creates.
    #[must_use]
    pub fn file_len_max(&self) -> u64 {
        self.about.size.max(F::FILE_LEN_MAX)
    }

    /// Sets the size that the disk was given before, or that of its image if it is shorter by now.
    pub fn set_size(&mut self, size: u64) {
        let size = size.min(self.about.size);
        self.about.size = size;
        self.disk.limits.size.set(size);
    }

    /// Sets the policy of one queue, or of all, before they are served.
    ///
    /// # Errors
    /// There is no such queue, or the policy is refused.
    pub fn set_policy(&mut self, queue: Option<usize>, policy: &Spec) -> Result<()> {
        self.config.device.check_policy(policy)?;
        let chosen = chosen(queue, self.queues.count())?;
        Ok(self.queues.set_policy(chosen, policy)?)
    }

    fn try_open(config: &DiskConfig, recorder: Option<&Recorder>) -> Result<Self> {
        let latency = config.latency.map_or(0..=0, |Latency { min_ns, max_ns }| min_ns..=max_ns);
        let backend = match (&config.file, config.memory) {
            (Some(path), None) => {
                let locking = if config.migratable { Locking::Claimed } else { Locking::Open };
                let DiskConfig { read_only, direct, raw, .. } = *config;
                Backend::File(FileBackend::open(path, &ImageOptions { read_only, direct, raw, locking })?)
            }
            (None, Some(Size(size))) => Backend::Memory(MemoryBackend::new(size, latency)?),
            _ => bail!("needs either a file or memory"),
        };
        let block_size = config.block_size.map_or(backend.block_size(), |Size(size)| size as u32);
        if block_size < backend.block_size() || !backend.size().is_multiple_of(u64::from(block_size)) {
            let (smallest, size) = (backend.block_size(), backend.size());
            bail!("block_size is {block_size}: it must be at least {smallest} and divide {size}");
        }
        let (name, size) = (config.name(), backend.size());
        let limits = Limits {
            size: size.into(),
            block_size,
            read_only: config.read_only,
            serial: serial(config.serial.as_deref().unwrap_or(&name)),
            max_memory: config.max_memory.0,
        };
        let write_back = AtomicBool::new(true);
        let call_rings = CallRings::new(F::eventfds(config.queues.into())).context("io_uring")?;
        let place = std::path::absolute(config.file.as_ref().unwrap_or(&config.socket))?;
        let disk = Disk {
            name: name.clone(),
            place,
            backend,
            limits,
            call_rings,
            write_back,
            epoch: Instant::now(),
            throttle: Throttle::new(config.rates()),
            totals: Totals::default(),
        };
        let disk = Arc::new(disk);
        let queue = QueueConfig {
            policy: config.policy.clone(),
            poll_ns: config.poll.unwrap_or(config.device.poll()).0,
            size_max: F::REQUESTS_MAX,
            recorder: recorder.cloned(),
        };
        let queues = PreparedQueues::new(config.queues.into(), &disk, &queue)?;
        let about = DiskInfo {
            ctrlr: name,
            device: config.device,
            socket: config.socket.display().to_string(),
            file: config.file.as_ref().map(|path| path.display().to_string()),
            size,
            block_size,
            queues: queues.count(),
            read_only: config.read_only,
        };
        Ok(Self { about, config: config.clone(), disk, queues })
    }
}

impl<F: FrontEnd> DiskServer<F> {
    /// Serves a disk to front ends that come through `door`. `prepare` runs once all threads exist, and before any of
    /// them reads from a front end.
    ///
    /// # Errors
    /// The system refuses a resource, or `prepare` fails.
    pub fn start(parts: DiskParts<F>, door: Door, prepare: impl FnOnce() -> Result<()>) -> Result<Self> {
        let DiskParts { about, config, disk, queues } = parts;
        let device = config.device;
        let queues: Arc<[QueueHandle<F::Source>]> = queues.start()?.into();
        let stop = EventFd::new().context("eventfd")?;
        let shared = Arc::new(Shared {
            stop,
            has_other_size: EventFd::from_flags(EfdFlags::EFD_NONBLOCK).context("eventfd")?,
            hears_of_size: AtomicBool::new(false),
            connection: Mutex::new(None),
        });
        let name = about.ctrlr.clone();
        let front = FrontDoor::<F> {
            name: name.clone(),
            door,
            shared: shared.clone(),
            disk: disk.clone(),
            queues: queues.clone(),
            config,
        };
        let (begin, may_begin) = channel();
        let run = move || {
            if may_begin.recv().is_ok() {
                front.run();
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(run).context("a thread")?;
        prepare()?;
        let _ = begin.send(()); // the thread is waiting for it
        Ok(Self { about, device, disk, queues, shared, thread: Mutex::new(Some(thread)) })
    }

    /// The description of the disk at its start.
    #[must_use]
    pub const fn about(&self) -> &DiskInfo {
        &self.about
    }

    /// Whether a front end is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.connection().is_some()
    }

    /// The statistics of each queue.
    #[must_use]
    pub fn stats(&self) -> Vec<QueueStats> {
        self.queues.iter().filter_map(|queue| queue.ask(Control::GetStats)).collect()
    }

    /// Resets the statistics.
    pub fn reset_stats(&self) {
        for queue in self.queues.iter() {
            queue.ask(Control::ResetStats);
        }
    }

    /// Changes the policy of one queue, or of all. No request is dropped. `keep_learned`: the policy before keeps what it has learned
    /// until the front end goes, and this one goes on with what it had learned.
    ///
    /// # Errors
    /// There is no such queue, or the policy is refused.
    pub fn set_policy(&self, queue: Option<usize>, policy: &Spec, keep_learned: bool) -> Result<()> {
        self.device.check_policy(policy)?;
        for queue in self.chosen(queue)? {
            let answer = queue.ask(|answer| Control::SetPolicy(policy.clone(), keep_learned, answer));
            answer.context("the queue has ended")??;
        }
        Ok(())
    }

    /// Notes for one queue, or for all, whether the guest runs, and until when.
    ///
    /// # Errors
    /// There is no such queue.
    pub fn set_running(&self, queue: Option<usize>, report: RunReport) -> Result<()> {
        for queue in self.chosen(queue)? {
            queue.ask(|answer| Control::SetRunning(report, answer)).context("the queue has ended")?;
        }
        Ok(())
    }

    /// Changes how much the disk may do in a second. Requests that wait are not lost.
    pub fn set_limits(&self, change: RatesChange) {
        self.disk.throttle.change(change, self.disk.now());
        self.queues.iter().for_each(QueueHandle::wake); // some may wait for what was before
    }

    /// The size that the disk would get: `wanted`, or as long as its file is now.
    ///
    /// # Errors
    /// It cannot have that size.
    pub fn measure(&self, wanted: Option<u64>) -> Result<Measured> {
        let size = self.disk.backend.measure(wanted)?;
        let block_size = self.disk.limits.block_size;
        if size == 0 || !size.is_multiple_of(block_size.into()) {
            bail!("size is {size}; allowed: multiples of the block size, {block_size}, but not 0");
        }
        Ok(Measured { size, file_len_max: size.max(F::FILE_LEN_MAX) })
    }

    /// Gives the disk another size, and tells the guest. Requests that are taken later are checked against it. Those in flight
    /// complete as they would have; once none of them is beyond the new end, nothing needs what was there.
    ///
    /// # Errors
    /// It cannot have that size; then nothing has changed.
    pub fn resize(&self, size: u64) -> Result<Resized> {
        let Measured { size, .. } = self.measure(Some(size))?;
        let Disk { name, backend, limits, .. } = &*self.disk;
        backend.reach(size)?;
        let before = limits.size.get();
        limits.size.set(size);
        let answers: Vec<_> =
            self.queues.iter().map(|queue| queue.ask_later(|answer| Control::CountBeyond(size, answer))).collect();
        let in_flight_beyond = answers.iter().filter_map(|answer| answer.recv().ok()).sum();
        if in_flight_beyond == 0 {
            backend.forget_beyond(size);
        }
        let why_not = match (self.is_connected(), self.shared.hears_of_size.load(Ordering::Relaxed)) {
            (false, _) => Some("no front end is connected: the next one sees it".to_owned()),
            (true, false) => Some(format!("{}: it sees it when its driver starts anew", F::DEAF)),
            (true, true) => None,
        };
        if size != before {
            let _ = self.shared.has_other_size.write(1); // it may already be readable
            let about = why_not.as_ref().map_or_else(String::new, |why| format!("; the guest is not told: {why}"));
            info!(disk = name, "has {size} bytes now, before {before}{about}");
        }
        Ok(Resized { size, in_flight_beyond, guest_is_told: why_not.is_none(), why_not })
    }

    fn chosen(&self, queue: Option<usize>) -> Result<&[QueueHandle<F::Source>]> {
        Ok(&self.queues[chosen(queue, self.queues.len())?])
    }

    /// Completes the requests in flight, delivers the held completions, then closes the connection. The order matters:
    /// a front end that loses its connection does not ask where its rings stopped. It continues from the indices that
    /// it believes to be current.
    pub fn stop(&self) {
        let answers: Vec<_> = self.queues.iter().map(|queue| queue.ask_later(Control::Stop)).collect();
        for answer in answers {
            let _ = answer.recv(); // a queue whose thread has ended has nothing in flight
        }
        let _ = self.shared.stop.write(1);
        if let Some(connection) = &*self.shared.connection() {
            // The thread may be waiting for the rest of a message, or for room for its answer.
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl<F: FrontEnd> Drop for DiskServer<F> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The range of one queue, or of all, of a disk that has this number of them.
pub(crate) fn chosen(queue: Option<usize>, queues: usize) -> Result<Range<usize>> {
    match queue {
        None => Ok(0..queues),
        Some(queue) if queue < queues => Ok(queue..queue + 1),
        Some(queue) => bail!("queue is {queue}; allowed: 0 to {}", queues - 1),
    }
}

/// Accepts front ends, one at a time, and handles their messages.
struct FrontDoor<F: FrontEnd> {
    name: String,
    door: Door,
    shared: Arc<Shared>,
    disk: Arc<Disk>,
    queues: Arc<[QueueHandle<F::Source>]>,
    config: DiskConfig,
}

impl<F: FrontEnd> FrontDoor<F> {
    fn run(self) {
        match &self.door {
            Door::Listener(listener) => {
                while let Some(stream) = self.accept(listener) {
                    self.attend(stream);
                }
            }
            Door::Connected(stream) => {
                match stream.try_clone() {
                    Ok(stream) => self.attend(stream),
                    Err(error) => warn!(disk = self.name, "{error}"),
                }
                let _ = stream.shutdown(Shutdown::Both); // the supervisor has the socket too, and sees this
            }
        }
    }

    fn attend(&self, stream: UnixStream) {
        self.set_connection(stream.try_clone().ok());
        info!(disk = self.name, "connected");
        match self.serve(stream) {
            Ok(()) => info!(disk = self.name, "disconnected"),
            Err(error) => warn!(disk = self.name, "disconnected: {error}"),
        }
        self.set_connection(None);
    }

    fn set_connection(&self, stream: Option<UnixStream>) {
        self.shared.hears_of_size.store(false, Ordering::Relaxed);
        *self.shared.connection() = stream;
    }

    /// The next front end; `None` when the disk stops.
    fn accept(&self, listener: &UnixListener) -> Option<UnixStream> {
        loop {
            let [stop, caller] = wait([self.shared.stop.as_fd(), listener.as_fd()], None);
            if stop {
                return None;
            }
            if caller && let Some(stream) = accepted(listener.accept()) {
                return Some(stream);
            }
        }
    }

    /// Serves one front end until it disconnects, breaks the protocol, or the disk stops. Then its sources are stopped.
    fn serve(&self, stream: UnixStream) -> Result<()> {
        let watch = stream.try_clone()?;
        let _ = self.shared.has_other_size.read(); // what came before is no news for this front end
        let mut front_end = F::connect(stream, self.disk.clone(), self.queues.clone(), &self.config)?;
        loop {
            self.shared.hears_of_size.store(front_end.hears_of_size(), Ordering::Relaxed);
            let deadline = front_end.deadline();
            let wake = front_end.wake().unwrap_or_else(|| watch.as_fd());
            let has_other_size = self.shared.has_other_size.as_fd();
            let fds = [self.shared.stop.as_fd(), self.door.as_fd(), watch.as_fd(), wake, has_other_size];
            let [stop, caller, message, wake, has_other_size] = wait(fds, deadline);
            if stop {
                return Ok(());
            }
            if has_other_size {
                let _ = self.shared.has_other_size.read(); // it is not readable any more
                front_end.size_has_changed();
            }
            // A front end that hung up may already be back. Its old connection must end first.
            if caller
                && let Door::Listener(listener) = &self.door
                && !has_hung_up(&watch)
                && accepted(listener.accept()).is_some()
            {
                warn!(disk = self.name, "refused a second connection: a disk serves one front end at a time");
            }
            if wake || deadline.is_some() {
                front_end.attend();
            }
            if message && !front_end.handle_message()? {
                return Ok(());
            }
        }
    }
}

/// Waits until a descriptor is ready, or the deadline is over. Returns which ones are.
fn wait<const N: usize>(fds: [std::os::fd::BorrowedFd<'_>; N], deadline: Option<Instant>) -> [bool; N] {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_micros().div_ceil(1000));
    let left = left.map_or(PollTimeout::NONE, |ms| PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX));
    let _ = poll(&mut fds, left); // EINTR: none is ready
    fds.map(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLHUP)];
    poll(&mut fds, PollTimeout::ZERO) == Ok(1)
}

fn serial(text: &str) -> [u8; SERIAL_LEN] {
    let bytes = text.as_bytes();
    std::array::from_fn(|i| bytes.get(i).copied().unwrap_or(0))
}
