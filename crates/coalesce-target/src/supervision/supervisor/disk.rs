//! A disk as control and metrics see it: what is known about it, and its process, which answers questions.

use super::LOOK;
use crate::config::{DiskConfig, Size};
use crate::link::{DiskStats, Link, PATIENCE, Pending, PolicyChange, Request, SliceChange, Unanswered};
use crate::record::{self, Record};
use crate::server::{DiskInfo, Measured, Resized, chosen};
use crate::supervision::sandbox;
use crate::throttle::{Rates, RatesChange};
use anyhow::{Context as _, Result, anyhow, bail};
use coalesce_cli::counted;
use coalesce_policy::Spec;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk, whether its process runs or not.
#[derive(Debug)]
pub struct Disk {
    pub(super) config: DiskConfig,
    pub(super) record: Option<Record>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    about: Option<DiskInfo>,
    process: Option<Process>,
    restarts: u64,
    policies: Vec<PolicyChange>, // that a process of the disk has made, for the next one
    size: Option<u64>,           // that it was given
    resizes: u64,                // that were asked for
    limits: Rates,
}

impl State {
    /// Notes what the disk's process has done, for the process that may follow it.
    fn note_done(&mut self, request: &Request) {
        match request {
            Request::SetPolicy(change) => {
                self.policies.retain(|earlier| change.queue.is_some() && earlier.queue != change.queue);
                self.policies.push(change.clone());
            }
            Request::Resize(size) => {
                self.size = Some(*size);
                if let Some(about) = &mut self.about {
                    about.size = *size;
                }
            }
            Request::SetLimits(change) => self.limits = change.of(self.limits),
            _ => {}
        }
    }
}

/// A disk's process while it serves.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    link: Arc<Link>,
}

impl Disk {
    pub(super) fn new(config: DiskConfig, record: Option<Record>) -> Self {
        let state = State { limits: config.rates(), ..State::default() };
        Self { config, record, state: Arc::new(Mutex::new(state)) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.config.name()
    }

    /// Its description; `None` before its first start.
    #[must_use]
    pub fn about(&self) -> Option<DiskInfo> {
        self.state().about.clone()
    }

    /// Checks that it has this queue, if one is meant.
    ///
    /// # Errors
    /// It has fewer.
    pub fn check_queue(&self, queue: Option<usize>) -> Result<()> {
        self.named(chosen(queue, self.config.queues.into()).map(drop))
    }

    /// What it serves, for people: the device, its socket, its data, its queues, and the policy with which it began.
    #[must_use]
    pub fn described(&self, about: &DiskInfo) -> String {
        let DiskInfo { device, socket, size, read_only, .. } = about;
        let data = about.file.as_deref().unwrap_or("memory");
        let size = match Size(*size).to_string() {
            short if short.ends_with(char::is_alphabetic) => format!("{short} ({size} bytes)"),
            bytes => format!("{bytes} bytes"),
        };
        let (queues, policy) = (counted(about.queues as u64, "queue"), &self.config.policy);
        let rights = if *read_only { ", read-only" } else { "" };
        format!("{device} at {socket}: {data}, {size}, {queues}, policy {policy}{rights}")
    }

    /// The id of its process; `None` while the process has ended and another has not started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().process.as_ref().map(|process| process.pid)
    }

    /// How often its process was restarted.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.state().restarts
    }

    /// Whether its record goes on; `None`: there is none.
    #[must_use]
    pub fn is_recorded(&self) -> Option<bool> {
        self.record.as_ref().map(|record| record.error().is_none())
    }

    /// Why its record is not complete.
    #[must_use]
    pub fn record_error(&self) -> Option<&str> {
        self.record.as_ref()?.error()
    }

    /// The error of an incomplete record.
    pub(super) fn check_record(&self) -> Result<()> {
        self.record_error().map_or(Ok(()), |error| bail!("record: it is not complete: {error}"))
    }

    /// Policy changes that its processes have made, oldest first.
    pub(super) fn policies(&self) -> Vec<PolicyChange> {
        self.state().policies.clone()
    }

    /// The size in bytes that its processes were given.
    pub(super) fn size(&self) -> Option<u64> {
        self.state().size
    }

    /// How much it may do in a second.
    #[must_use]
    pub fn limits(&self) -> Rates {
        self.state().limits
    }

    /// What notes the requests that its process has done.
    pub(super) fn notes(&self) -> impl Fn(&Request) + Send + 'static {
        let state = self.state.clone();
        move |request| lock(&state).note_done(request)
    }

    /// Notes that its process serves.
    pub(super) fn note_serving(&self, pid: u32, link: Arc<Link>, about: DiskInfo) {
        let mut state = self.state();
        state.restarts += u64::from(state.about.is_some());
        state.about = Some(about);
        state.process = Some(Process { pid, link });
    }

    /// Notes that its process has ended.
    pub(super) fn note_end(&self) {
        self.state().process = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn process(&self) -> Result<Process> {
        self.process_in(&self.state())
    }

    fn process_in(&self, state: &State) -> Result<Process> {
        let process = state.process.clone();
        let why = if self.config.memory.is_some() { "its memory is lost" } else { "it is being restarted" };
        process.ok_or_else(|| anyhow!("its process has ended: {why}"))
    }

    fn begin(&self, request: Request) -> Result<Pending> {
        Ok(self.process()?.link.begin(request, PATIENCE)?)
    }

    pub(super) fn named<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.with_context(|| format!("disk {}", self.name()))
    }

    /// Changes the policy of one queue, or of all, for as long as the target runs. No request is dropped. Once the disk's
    /// process has made the change, a process that follows it makes it, too. `keep_learned`: see `DiskServer::set_policy`; what was
    /// learned ends with the process.
    ///
    /// # Errors
    /// There is no such queue, the policy is refused, or the disk's process does not answer. The error says whether the
    /// change may still be made.
    pub fn set_policy(&self, queue: Option<usize>, policy: &Spec, keep_learned: bool) -> Result<()> {
        let change = PolicyChange { queue, policy: policy.to_string(), keep_learned };
        let outcome = self.begin(Request::SetPolicy(change)).and_then(Pending::wait::<()>);
        self.named(outcome.map_err(|error| match error.downcast_ref::<Unanswered>() {
            Some(Unanswered::Late) => {
                anyhow!("{error}: the policy changes if it goes on, and stays if it is restarted")
            }
            Some(Unanswered::Ended | Unanswered::NotAsked) => anyhow!("{error}: nothing has changed"),
            None => error,
        }))
    }

    /// Changes how much the disk may do in a second, for as long as the target runs. Each change is of what those before it left, here
    /// as in the disk's process, which makes them one by one.
    ///
    /// # Errors
    /// A limit is out of range, or the disk's process does not answer.
    pub fn set_limits(&self, change: RatesChange) -> Result<()> {
        let check = change.of(Rates::default()).check();
        self.named(check.and_then(|()| self.begin(Request::SetLimits(change))?.wait()))
    }

    /// Gives the disk another size, in bytes: that of its image, if none is given. Waits until no request from before is in flight
    /// beyond its end: then the image may be shortened. A process that follows gives the disk this size, too.
    ///
    /// # Errors
    /// The disk cannot have that size, its process may write no file of that size, or it does not answer. Or requests are still in
    /// flight there after 5 s: then the disk has the size.
    pub fn resize(&self, size: Option<u64>) -> Result<Resized> {
        self.named(self.try_resize(size))
    }

    fn try_resize(&self, size: Option<u64>) -> Result<Resized> {
        let start = Instant::now();
        let measured: Measured = self.begin(Request::Measure(size))?.wait()?;
        let turn = self.begin_resizing(measured.file_len_max)?;
        loop {
            let resized: Resized = self.ask_to_resize(turn, measured.size)?.wait()?;
            if resized.in_flight_beyond == 0 {
                return Ok(resized);
            }
            if start.elapsed() > PATIENCE {
                let (size, requests) = (resized.size, counted(resized.in_flight_beyond as u64, "request"));
                bail!(
                    "has {size} bytes now; beyond, {requests} from before in flight: call again before its image is shortened"
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Nobody else raises the limit between a look at it and the change.
    fn begin_resizing(&self, file_len_max: u64) -> Result<u64> {
        let mut state = self.state();
        sandbox::raise_file_size(self.process_in(&state)?.pid, file_len_max)?;
        state.resizes += 1;
        Ok(state.resizes)
    }

    /// Asked again by who waits for what is in flight: that must not undo a size that was given later.
    fn ask_to_resize(&self, turn: u64, size: u64) -> Result<Pending> {
        let state = self.state(); // nobody else begins meanwhile
        if state.resizes != turn {
            bail!("was given another size meanwhile");
        }
        Ok(self.process_in(&state)?.link.begin(Request::Resize(size), PATIENCE)?)
    }

    /// Notes for one queue, or for all, that the guest runs, or does not, for this time. Lost if the disk's process ends.
    ///
    /// # Errors
    /// There is no such queue, or the disk's process does not answer.
    pub fn set_running(&self, queue: Option<usize>, running: bool, time: Duration) -> Result<()> {
        let until_ns = record::monotonic_ns() + u64::try_from(time.as_nanos())?;
        let change = Request::SetRunning(SliceChange { queue, running, until_ns });
        self.named(self.begin(change).and_then(Pending::wait))
    }
}

/// The statistics of several disks.
pub fn stats_of<'a>(disks: impl Iterator<Item = &'a Disk>) -> Vec<(&'a Disk, Result<DiskStats>)> {
    ask_each(disks, &Request::Stats)
}

/// Resets the statistics of several disks.
///
/// # Errors
/// One of them does not answer.
pub fn reset_stats_of<'a>(disks: impl Iterator<Item = &'a Disk>) -> Result<()> {
    ask_each(disks, &Request::ResetStats).into_iter().try_for_each(|(_, outcome)| outcome)
}

/// Asks several disks at once, so that several stuck processes delay the caller no longer than one.
fn ask_each<'a, T: DeserializeOwned>(
    disks: impl Iterator<Item = &'a Disk>,
    request: &Request,
) -> Vec<(&'a Disk, Result<T>)> {
    let asked: Vec<_> = disks.map(|disk| (disk, disk.begin(request.clone()))).collect();
    asked.into_iter().map(|(disk, pending)| (disk, disk.named(pending.and_then(Pending::wait)))).collect()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
