//! Runs a process for each disk, so that a guest can end at most its own disk's process. The supervisor starts,
//! questions, restarts and stops these processes. It maps no guest memory, opens no image, and reads from no front end.

mod disk;
mod disks;

pub use disk::{Disk, reset_stats_of, stats_of};
pub use disks::{Disks, Orders};

use crate::config::{Config, DiskConfig, Sandbox};
use crate::link::{Identity, Link, Pending, Request, Setup};
use crate::os::socket::{self, Access, BoundSocket, Door};
use crate::record::{Gatherer, Record, RecordFile, monotonic_ns};
use crate::supervision::log;
use crate::throttle::Rates;
use anyhow::{Context as _, Result, anyhow, bail};
use disks::{Answer, Order};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{User, getgrouplist};
use std::ffi::CString;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How long a process may take to start. It waits for the lock of its image.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// What is said of one that takes longer.
const LATE: &str = "its process does not start: it is killed";
/// How long a killed process may take to end. The kernel can hold it in I/O on an image that does not answer.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// How long a disk that is added may wait for its socket. The other disks wait meanwhile.
const ADD_PATIENCE: Duration = Duration::from_millis(100);
/// How often to check a process that is starting or ending.
const LOOK: Duration = Duration::from_millis(2);
/// The shortest and the longest pause before a process that failed soon after its start is restarted. It doubles each
/// time.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(10)];
/// A process that ran this long is restarted at once.
const SETTLED: Duration = Duration::from_secs(10);

/// The processes of all disks. Dropping it kills them and removes the sockets.
#[derive(Debug)]
pub struct Supervisor {
    disks: Arc<Disks>,
    orders: Orders,
    keepers: Vec<Keeper>,
    plan: Plan,
    connection: Option<UnixStream>, // inherited: the target ends with it
}

/// How each process is started.
#[derive(Debug)]
struct Plan {
    control: Option<PathBuf>,
    record: Option<RecordFile>,
    epoch_ns: u64, // of the record
    identity: Option<Identity>,
    sandbox: bool,
    log: String,
    stop_timeout: Duration,
}

/// Keeps the process of one disk running. It belongs to the main thread, because a disk's process ends with the thread
/// that started it.
#[derive(Debug)]
struct Keeper {
    disk: Arc<Disk>,
    socket: Option<BoundSocket>, // `None`: a disk that cannot be served any more
    worker: Option<Worker>,
    again_at: Option<Instant>,
    failures: u32, // consecutive ends soon after a start
    change: Option<Change>,
}

/// What is ordered about a disk, and not done yet.
#[derive(Debug)]
enum Change {
    /// It is not served yet: its process starts.
    Adding(Answer),
    /// It is not served for long: its process stops, or has said that it did (`None`).
    Removing { stopping: Option<Pending>, by: Instant, answer: Answer },
}

/// When to look after a disk again.
enum Look {
    After(Duration),
    /// When a process ends.
    AtEnd,
    /// Never: it was removed.
    Gone,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    link: Arc<Link>,
    log: JoinHandle<()>,
    record: Option<Gatherer>,
    started: Instant,
    starting: Option<Pending>,
}

impl Supervisor {
    /// Starts a process for each disk, and returns when all of them serve. `log` is their log level.
    ///
    /// # Errors
    /// A disk cannot be served, or a shared resource is missing. Then no disk is served.
    pub fn start(config: &Config, log: String) -> Result<Self> {
        nix::sys::prctl::set_no_new_privs().context("no new privileges")?;
        raise_limits(&config.disks)?;
        let identity = config.user.as_deref().map(identity).transpose()?;
        let named = |config| bind(config, socket::PATIENCE).with_context(|| format!("disk {}", config.name()));
        let sockets = config.disks.iter().map(named).collect::<Result<Vec<_>>>()?;
        let connections = sockets.iter().filter_map(connection_of);
        let connection = connections.map(UnixStream::try_clone).next().transpose().context("a socket")?;
        if connection.is_some() && sockets.len() > 1 {
            bail!(
                "a target whose socket is connected already serves one disk; allowed for several: sockets that listen"
            );
        }
        let record = config.record.as_deref().map(|path| RecordFile::open(path, &config.disks)).transpose()?;
        let plan = Plan {
            control: config.control.clone(),
            record,
            epoch_ns: monotonic_ns(),
            identity,
            sandbox: config.sandbox == Sandbox::On,
            log,
            stop_timeout: Duration::from_nanos(config.stop_timeout.0),
        };
        let keepers = config.disks.iter().zip(sockets).map(|(config, socket)| plan.keeper(config, socket)).collect();
        let (disks, orders) = Disks::new()?;
        let mut supervisor = Self { disks: Arc::new(disks), orders, keepers, plan, connection };
        supervisor.start_all()?;
        Ok(supervisor)
    }

    /// The disks, for control and metrics.
    #[must_use]
    pub const fn disks(&self) -> &Arc<Disks> {
        &self.disks
    }

    /// Starts all processes together. They open their images in the order of the disks, so that of two disks with the
    /// same image always the second is refused.
    fn start_all(&mut self) -> Result<()> {
        for Keeper { disk, worker, .. } in &mut self.keepers {
            *worker = Some(disk.named(Worker::spawn(disk))?);
        }
        for Keeper { disk, worker, socket, .. } in &mut self.keepers {
            let (Some(worker), Some(socket)) = (worker, socket) else { continue };
            let starting = disk.named(self.plan.begin(worker, disk, socket))?;
            disk.note_serving(worker.child.id(), worker.link.clone(), starting.wait()?);
            self.disks.note_added(disk.clone());
        }
        Ok(())
    }

    fn carry_out(&mut self, order: Order, answer: Answer) {
        match order {
            Order::Add(config) => match self.begin_adding(&config) {
                Ok(keeper) => self.keepers.push(Keeper { change: Some(Change::Adding(answer)), ..keeper }),
                Err(error) => {
                    let _ = answer.send(Err(error.context(format!("disk {}", config.name().escape_debug())))); // as below
                }
            },
            Order::Remove(name) => self.begin_removing(&name, answer),
        }
    }

    /// A disk whose process starts, with everything that a disk has from the start.
    fn begin_adding(&self, config: &DiskConfig) -> Result<Keeper> {
        if self.connection.is_some() {
            bail!("a target whose socket is connected serves one disk; allowed for several: sockets that listen");
        }
        let mut all: Vec<_> = self.keepers.iter().map(|keeper| keeper.disk.config.clone()).collect();
        config.check_beside(&all, self.plan.control.as_deref())?;
        all.push(config.clone());
        raise_limits(&all)?;
        if let Some(record) = &self.plan.record {
            record.refuse_image(config)?;
        }
        let socket = bind(config, ADD_PATIENCE)?;
        if connection_of(&socket).is_some() {
            bail!("its socket is connected; allowed for a disk that is added: a socket that listens");
        }
        let mut keeper = self.plan.keeper(config, socket);
        keeper.worker = keeper.socket.as_ref().map(|socket| self.plan.spawn(&keeper.disk, socket)).transpose()?;
        Ok(keeper)
    }

    /// Asks a disk's process to stop. Until it has ended, its name and its socket are its own.
    fn begin_removing(&mut self, name: &str, answer: Answer) {
        let refuse = |answer: Answer, why: &str| {
            let _ = answer.send(Err(anyhow!("disk {name}: {why}"))); // the client may have left
        };
        let timeout = self.plan.stop_timeout;
        let Some(keeper) = self.keepers.iter_mut().find(|keeper| keeper.disk.name() == name) else {
            return refuse(answer, "is not there any more");
        };
        if self.connection.is_some() {
            return refuse(answer, "its socket is connected, and the target ends with it: stop the target");
        }
        if keeper.change.is_some() {
            return refuse(answer, "is being removed already");
        }
        // A process that ends by itself is not asked, and not restarted.
        let stopping = keeper.worker.as_ref().and_then(|worker| worker.link.begin(Request::Stop, timeout).ok());
        if stopping.is_none() {
            keeper.worker = None;
        }
        keeper.change = Some(Change::Removing { stopping, by: Instant::now() + timeout, answer });
    }

    /// Begins the record: nothing else can keep the target from starting any more. Then restarts processes that end, until
    /// one of `signals` arrives; returns that signal. Returns `None` when the connection ends with which the target was
    /// started. These signals and `SIGCHLD` must be blocked in every thread, so that no other thread takes them.
    ///
    /// # Errors
    /// The record cannot be written, waiting for signals fails, or that connection ends with the disk's process.
    pub fn run(&mut self, signals: &SigSet) -> Result<Option<Signal>> {
        self.plan.record.as_ref().map_or(Ok(()), RecordFile::begin)?;
        let mut waited_for = *signals;
        waited_for.add(Signal::SIGCHLD);
        let arrivals = SignalFd::with_flags(&waited_for, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        let arrivals = arrivals.context("signals")?;
        loop {
            while let Some(arrival) = arrivals.read_signal().context("signals")? {
                let signal = Signal::try_from(arrival.ssi_signo as i32).context("a signal")?;
                if signal != Signal::SIGCHLD {
                    return Ok(Some(signal));
                }
            }
            while let Some((order, answer)) = self.orders.next() {
                self.carry_out(order, answer);
            }
            let mut next_look = None::<Duration>;
            let (disks, plan) = (&self.disks, &self.plan);
            self.keepers.retain_mut(|keeper| {
                let look = keeper.look_after(disks, plan);
                if let Look::After(pause) = look {
                    next_look = next_look.into_iter().chain([pause]).min();
                }
                !matches!(look, Look::Gone)
            });
            let timeout = next_look.map_or(PollTimeout::NONE, |look| {
                PollTimeout::try_from(look.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            });
            if self.connection.is_some() && self.keepers.iter().all(|keeper| keeper.socket.is_none()) {
                bail!("the disk's process has ended, and its connection with it");
            }
            let inputs = [arrivals.as_fd(), self.orders.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            let hang_up = self.connection.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::empty()));
            let mut fds: Vec<_> = inputs.into_iter().chain(hang_up).collect();
            let _ = poll(&mut fds, timeout); // EINTR: check again
            if fds.get(2).and_then(PollFd::any) == Some(true) {
                return Ok(None);
            }
        }
    }

    /// Stops every disk after it has completed the requests in flight and delivered the held completions.
    ///
    /// # Errors
    /// A disk did not stop in order, or its record is incomplete.
    pub fn stop(mut self) -> Result<()> {
        let deadline = Instant::now() + self.plan.stop_timeout;
        let mut problem = Ok(());
        let stop = |worker: &Worker| worker.link.begin(Request::Stop, self.plan.stop_timeout);
        let ask = |keeper: &mut Keeper| match keeper.change.take() {
            Some(Change::Removing { stopping, .. }) => stopping.map(Ok), // it was asked already
            _ => keeper.worker.as_ref().map(stop),
        };
        let asked: Vec<_> = self.keepers.iter_mut().map(ask).collect(); // all at once, so that they stop in parallel
        for (Keeper { disk, worker, .. }, answer) in self.keepers.iter_mut().zip(asked) {
            let Some(worker) = worker else { continue };
            let stopped = answer.map_or(Ok(()), |answer| answer.map_err(Into::into).and_then(Pending::wait::<()>));
            let outcome = stopped.and_then(|()| worker.end_by(deadline)).and_then(|()| disk.check_record());
            if let Err(error) = disk.named(outcome) {
                error!("{error:#}");
                problem = Err(anyhow!("some disks did not stop in order: see above"));
            }
        }
        problem
    }
}

/// The socket of a disk.
fn bind(config: &DiskConfig, patience: Duration) -> Result<BoundSocket> {
    let access = Access { mode: config.socket_mode.0, group: config.socket_group.clone() };
    BoundSocket::bind(&config.socket, &access, patience)
}

/// A front end, if the socket was connected when it was inherited.
fn connection_of(socket: &BoundSocket) -> Option<&UnixStream> {
    match socket.door() {
        Door::Connected(stream) => Some(stream),
        Door::Listener(_) => None,
    }
}

impl Plan {
    /// A disk that has no process yet.
    fn keeper(&self, config: &DiskConfig, socket: BoundSocket) -> Keeper {
        let record = self.record.as_ref().map(RecordFile::lines).map(Record::new);
        let disk = Arc::new(Disk::new(config.clone(), record));
        Keeper { disk, socket: Some(socket), worker: None, again_at: None, failures: 0, change: None }
    }

    /// A process of a disk that starts.
    fn spawn(&self, disk: &Disk, socket: &BoundSocket) -> Result<Worker> {
        let mut worker = Worker::spawn(disk)?;
        worker.starting = Some(self.begin(&mut worker, disk, socket)?);
        Ok(worker)
    }

    /// Sends a process its setup. The answer is the description of the disk.
    fn begin(&self, worker: &mut Worker, disk: &Disk, socket: &BoundSocket) -> Result<Pending> {
        let (record, pipe) = disk.record.clone().map(Gatherer::spawn).transpose()?.unzip();
        worker.record = record;
        let mut descriptors = vec![socket.door().as_fd().as_raw_fd()];
        descriptors.extend(pipe.iter().map(AsRawFd::as_raw_fd));
        worker.link.send_descriptors(&descriptors)?;
        let mut config = disk.config.clone();
        config.raw |= disk.about().is_some(); // its guest may have written anything since it was checked
        Rates { iops: config.iops, bytes_per_second: config.bytes_per_second.0 } = disk.limits();
        let setup = Setup {
            disk: config,
            policies: disk.policies(),
            size: disk.size(),
            record_epoch_ns: self.record.is_some().then_some(self.epoch_ns),
            identity: self.identity.clone(),
            sandbox: self.sandbox,
            log: self.log.clone(),
        };
        Ok(worker.link.begin(Request::Start(Box::new(setup)), START_PATIENCE)?)
    }
}

/// The hidden subcommand that serves one disk.
pub const WORKER: &str = "worker";

impl Keeper {
    /// Checks the process, restarts it if it has ended, and goes on with what is ordered. Returns when to look again.
    fn look_after(&mut self, disks: &Disks, plan: &Plan) -> Look {
        match self.change.take() {
            None => self.keep(plan).map_or(Look::AtEnd, Look::After),
            Some(Change::Adding(answer)) => self.go_on_adding(disks, answer),
            Some(Change::Removing { stopping, by, answer }) => self.go_on_removing(disks, (stopping, by), answer),
        }
    }

    fn go_on_adding(&mut self, disks: &Disks, answer: Answer) -> Look {
        let about = match self.worker.as_ref().and_then(|worker| worker.starting.as_ref()?.try_wait()) {
            None if self.worker.as_ref().is_some_and(Worker::is_late) => Err(anyhow!("{LATE}")),
            None => {
                self.change = Some(Change::Adding(answer));
                return Look::After(LOOK);
            }
            Some(about) => about,
        };
        match about {
            Ok(about) => {
                let described = self.disk.described(&about);
                if let Some(worker) = &mut self.worker {
                    worker.starting = None;
                    self.disk.note_serving(worker.child.id(), worker.link.clone(), about);
                }
                disks.note_added(self.disk.clone());
                info!(target: log::OF_THE_OPERATOR, disk = self.disk.name(), "was added: serves {described}");
                let _ = answer.send(Ok(())); // the client may have left, and the disk is served all the same
                Look::After(LOOK) // its process may have ended since it answered
            }
            Err(error) => {
                (self.worker, self.socket) = (None, None);
                let _ = answer.send(Err(error)); // as above
                Look::Gone
            }
        }
    }

    fn go_on_removing(&mut self, disks: &Disks, (stopping, by): (Option<Pending>, Instant), answer: Answer) -> Look {
        let stopped = stopping.as_ref().map_or(Some(Ok(())), Pending::try_wait::<()>);
        let ended =
            stopped.map(|stopped| stopped.and_then(|()| self.worker.as_mut().map_or(Ok(true), Worker::has_ended)));
        let outcome = match ended {
            Some(Ok(true)) => self.disk.check_record(),
            Some(Err(error)) => Err(error),
            _ if Instant::now() >= by => Err(anyhow!("does not stop in time: it is killed")),
            waits => {
                let stopping = stopping.filter(|_| waits.is_none());
                self.change = Some(Change::Removing { stopping, by, answer });
                return Look::After(LOOK);
            }
        };
        (self.worker, self.socket) = (None, None);
        disks.note_removed(&self.disk);
        info!(disk = self.disk.name(), "was removed");
        let _ = answer.send(self.disk.named(outcome)); // as above
        Look::Gone
    }

    /// Checks the process, and restarts it if it has ended. Returns when to check again; `None`: when a process ends.
    fn keep(&mut self, plan: &Plan) -> Option<Duration> {
        let disk = &self.disk.clone();
        if let Some(worker) = &mut self.worker {
            let ended = worker.child.try_wait(); // before reading the answer: a process answers, then ends
            match worker.starting.as_ref().and_then(Pending::try_wait) {
                Some(Ok(about)) => {
                    worker.starting = None;
                    disk.note_serving(worker.child.id(), worker.link.clone(), about);
                    warn!(disk = disk.name(), "serves again, as process {}", worker.child.id());
                }
                Some(Err(error)) => {
                    worker.starting = None;
                    error!("{error:#}"); // the process ends by itself
                }
                None if worker.is_late() => {
                    error!(disk = disk.name(), "{LATE}");
                    let _ = worker.child.kill(); // it may have just ended
                }
                None => {}
            }
            if matches!(ended, Ok(None)) && worker.link.is_over() {
                let _ = worker.child.kill(); // it cannot be questioned any more
            }
            let how = match ended {
                Ok(None) => return worker.starting.is_some().then_some(LOOK),
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            if !worker.link.is_over() {
                worker.link.close();
                return Some(LOOK); // what it has answered must be noted before another starts
            }
            self.note_end(disk, &how);
        }
        let socket = self.socket.as_ref()?;
        let now = Instant::now();
        if self.again_at.is_none_or(|again_at| again_at <= now) {
            self.again_at = None;
            match plan.spawn(disk, socket) {
                Ok(worker) => self.worker = Some(worker),
                Err(error) => {
                    error!(disk = disk.name(), "{error:#}");
                    self.pause();
                }
            }
        }
        Some(self.again_at.map_or(LOOK, |again_at| again_at.saturating_duration_since(now)))
    }

    fn note_end(&mut self, disk: &Disk, how: &str) {
        disk.note_end();
        let Some(worker) = self.worker.take() else { return };
        if disk.config.memory.is_some() && disk.about().is_some() {
            // A restart would give the guest an empty disk, and the guest would not notice.
            let pid = worker.child.id();
            error!(
                disk = disk.name(),
                "its process {pid} has ended ({how}), and its memory with it: the disk is no longer served"
            );
            self.socket = None;
            return;
        }
        if self.socket.as_ref().and_then(connection_of).is_some() {
            error!(disk = disk.name(), "its process {} has ended ({how})", worker.child.id());
            self.socket = None; // a new process does not know what the front end has told this one
            return;
        }
        error!(disk = disk.name(), "its process {} has ended ({how}); it is restarted", worker.child.id());
        if worker.started.elapsed() >= SETTLED {
            self.failures = 0;
        }
        self.pause();
    }

    /// Sets the time of the next start. There is no pause after the first failure.
    fn pause(&mut self) {
        let [first, longest] = PAUSES;
        let pause =
            self.failures.checked_sub(1).map(|doublings| first.saturating_mul(1 << doublings.min(16)).min(longest));
        self.again_at = pause.map(|pause| Instant::now() + pause);
        self.failures += 1;
    }
}

impl Worker {
    fn spawn(disk: &Disk) -> Result<Self> {
        let (ours, theirs) = UnixStream::pair().context("a socket")?;
        let link = Arc::new(Link::new(ours, disk.notes())?);
        let disk = disk.name();
        let (reader, stderr) = std::io::pipe().context("a pipe for its log")?;
        let thread = std::thread::Builder::new().name("log".into());
        let log = thread.spawn(move || log::relay(&disk, reader)).context("a thread for its log")?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(WORKER).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().context("its process cannot be started")?;
        Ok(Self { child, link, log, record: None, started: Instant::now(), starting: None })
    }

    /// Whether it has not started in time.
    fn is_late(&self) -> bool {
        self.starting.is_some() && self.started.elapsed() > START_PATIENCE
    }

    /// Waits until the process has ended and its log and record are written.
    fn end_by(&mut self, deadline: Instant) -> Result<()> {
        while !self.has_ended()? {
            if Instant::now() >= deadline {
                match self.child.try_wait().context("its process")? {
                    None => bail!("its process does not end: it is killed"),
                    Some(_) => bail!("its record or its log was not written in time"),
                }
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether the process has ended in order, and its log and record are written.
    fn has_ended(&mut self) -> Result<bool> {
        let ended = self.child.try_wait().context("its process")?;
        let is_written = self.log.is_finished() && self.record.as_ref().is_none_or(Gatherer::is_finished);
        match ended.filter(|_| is_written) {
            Some(status) if !status.success() => bail!("its process has ended: {status}"),
            ended => Ok(ended.is_some()),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.end_by(Instant::now() + END_PATIENCE); // a process that the kernel holds must not delay the others
    }
}

/// Descriptors that a disk's process needs: its own, one set for flushes, those of its queues, and those that a front
/// end may send (memory, eventfds, and one message with as many as the protocol allows).
fn files_of(disk: &DiskConfig) -> u64 {
    192 + 8 * u64::from(disk.queues)
}

/// Descriptors that the supervisor needs: a few for each disk, its log and record included, and one for each client.
fn own_files(disks: &[DiskConfig]) -> u64 {
    128 + 8 * disks.len() as u64
}

/// Raises the limit of open files, and checks that it is enough: a descriptor that a guest needs later cannot be
/// refused without harm. Raises the limit of pinned memory too, because the kernel pins memory for each io_uring.
fn raise_limits(disks: &[DiskConfig]) -> Result<()> {
    let limit = raise(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    let needed = disks.iter().map(files_of).chain([own_files(disks)]).max().unwrap_or(0);
    if needed > limit {
        bail!("{needed} open files are needed; allowed: {limit}; raise the limit (ulimit -Hn, LimitNOFILE=)");
    }
    raise(Resource::RLIMIT_MEMLOCK).context("the limit of pinned memory")?;
    Ok(())
}

/// Raises a limit as far as this process may. Returns the new limit.
fn raise(resource: Resource) -> nix::Result<u64> {
    let (_, hard) = getrlimit(resource)?;
    if resource == Resource::RLIMIT_MEMLOCK && setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).is_ok() {
        return Ok(RLIM_INFINITY); // root may
    }
    setrlimit(resource, hard, hard)?;
    Ok(hard)
}

fn identity(name: &str) -> Result<Identity> {
    let named = || format!("user {name}");
    let user = User::from_name(name).with_context(named)?.ok_or_else(|| anyhow!("user {name} is unknown"))?;
    if !nix::unistd::geteuid().is_root() {
        bail!("user {name}: only root can become another user");
    }
    let groups = getgrouplist(&CString::new(name)?, user.gid).with_context(named)?;
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    Ok(Identity { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups })
}
