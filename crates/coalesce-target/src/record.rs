//! `serve --record`: a JSON line for each request taken, each that ended, and each other interrupt (`docs/traces.md`).
//!
//! Queues note what happens in memory and hand it over when that is full, or when they have nothing else to do; a thread of
//! its own writes. A queue never waits for that: what the writer has no room for is lost, and counted. The processes of all
//! disks append to one file, whole lines at a time.

use crate::backend::Operation;
use anyhow::{Context as _, Result, bail};
use coalesce_policy::{Decision, Hint};
use nix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;
use tracing::{error, warn};

/// Events that a queue notes before it hands them over.
const CHUNK: usize = 1024;
/// Chunks that the writer may be behind.
const CHUNKS_MAX: usize = 1024;

/// Something that happened on a queue.
#[derive(Clone, Copy, Debug)]
enum What {
    Submit { id: usize, operation: Option<Operation>, bytes: u64, ioprio: u16 },
    Complete { id: usize, failed: bool, hint: Hint, decision: Option<Decision> },
    Interrupt(Decision),
}

#[derive(Debug)]
enum Message {
    Events { queue: Arc<str>, events: Vec<(u64, What)> },
    End,
}

/// Where queues hand over what they noted.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: SyncSender<Message>,
    epoch_ns: u64,
    lost: Arc<AtomicU64>,
}

/// What queues have handed over.
#[derive(Debug)]
pub struct Arrivals(Receiver<Message>);

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    recorder: Recorder,
    thread: JoinHandle<std::io::Result<()>>,
}

/// Creates the file of a record, or empties it; and when its clock begins, in ns of the system's monotonic clock.
///
/// # Errors
/// The file cannot be created, or is a link: to follow one may empty what somebody else chose.
pub fn create(path: &Path) -> Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let create = || {
        let file = options.open(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        Ok((file, monotonic_ns()))
    };
    create()
        .map_err(|error: std::io::Error| match error.raw_os_error() {
            Some(libc::ELOOP) => anyhow::anyhow!("is a symbolic link: name the file itself"),
            _ => error.into(),
        })
        .with_context(|| format!("record {}", path.display()))
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// What queues hand over, and where it arrives. The record's clock began at `epoch_ns`.
#[must_use]
pub fn channel(epoch_ns: u64) -> (Recorder, Arrivals) {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    (Recorder { sender, epoch_ns, lost: Arc::default() }, Arrivals(receiver))
}

impl Writer {
    /// Appends to a file what arrives from queues that have this recorder.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn spawn(file: File, recorder: Recorder, arrivals: Arrivals) -> Result<Self> {
        let write = move || {
            let outcome = write_all(&arrivals.0, file);
            if let Err(error) = &outcome {
                error!("record: {error}: nothing more is recorded");
            }
            outcome
        };
        let thread = std::thread::Builder::new().name("record".into()).spawn(write);
        Ok(Self { recorder, thread: thread.context("a thread for the record")? })
    }

    /// Writes what was handed over so far, and ends.
    ///
    /// # Errors
    /// It could not be written: the record is not complete.
    pub fn finish(self) -> Result<()> {
        let _ = self.recorder.sender.send(Message::End); // the thread may have ended, with an error
        match self.thread.join() {
            Ok(outcome) => outcome.context("record: it is not complete")?,
            Err(_) => bail!("record: it is not complete"),
        }
        let lost = self.recorder.lost.load(Ordering::Relaxed);
        if lost > 0 {
            warn!("record: {lost} events are lost: they came faster than they could be written");
        }
        Ok(())
    }
}

impl Recorder {
    /// For one queue of a disk, whose clock begins at `clock`.
    #[must_use]
    pub fn queue(&self, disk: &str, index: usize, clock: Instant) -> Recording {
        let disk = serde_json::Value::from(disk);
        Recording {
            recorder: self.clone(),
            queue: format!("\"disk\":{disk},\"queue\":{index}").into(),
            ahead: monotonic_ns().saturating_sub(self.epoch_ns).saturating_sub(since(clock)),
            events: Vec::with_capacity(CHUNK),
        }
    }
}

fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What one queue has noted. Times are those of its own clock, in ns.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    queue: Arc<str>,
    ahead: u64, // of the record's clock
    events: Vec<(u64, What)>,
}

impl Recording {
    /// A request was taken; those of one `now` came together.
    pub fn submit(&mut self, now: u64, id: usize, operation: Option<Operation>, bytes: u64, ioprio: u16) {
        self.note(now, What::Submit { id, operation, bytes, ioprio });
    }

    /// A request ended, and this was decided about it.
    pub fn complete(&mut self, now: u64, id: usize, failed: bool, hint: Hint, decision: Option<Decision>) {
        self.note(now, What::Complete { id, failed, hint, decision });
    }

    /// Something else was decided.
    pub fn decide(&mut self, now: u64, decision: Option<Decision>) {
        if let Some(decision @ (Decision::Deliver(_) | Decision::DeliverUrgent)) = decision {
            self.note(now, What::Interrupt(decision));
        }
    }

    fn note(&mut self, now: u64, what: What) {
        self.events.push((now + self.ahead, what));
        if self.events.len() >= CHUNK {
            self.hand_over();
        }
    }

    /// Hands over what was noted, if there is something.
    pub fn hand_over(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let events = std::mem::replace(&mut self.events, Vec::with_capacity(CHUNK));
        let count = events.len() as u64;
        if self.recorder.sender.try_send(Message::Events { queue: self.queue.clone(), events }).is_err() {
            self.recorder.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Until the end is told.
fn write_all(receiver: &Receiver<Message>, mut file: File) -> std::io::Result<()> {
    let mut lines = Vec::new();
    while let Ok(Message::Events { queue, events }) = receiver.recv() {
        lines.clear();
        for (time, what) in events {
            write_line(&mut lines, &queue, time, what)?;
        }
        file.write_all(&lines)?; // at once, so that no other process's line comes in between
    }
    Ok(())
}

fn write_line(file: &mut impl Write, queue: &str, time: u64, what: What) -> std::io::Result<()> {
    write!(file, "{{\"time_ns\":{time},{queue},")?;
    match what {
        What::Submit { id, operation, bytes, ioprio } => {
            let (op, durable) = match operation {
                Some(Operation::Read { .. }) => ("read", false),
                Some(Operation::Write { durable, .. }) => ("write", durable),
                Some(Operation::Flush) => ("flush", false),
                Some(Operation::Discard { .. }) => ("discard", false),
                Some(Operation::WriteZeroes { .. }) => ("write_zeroes", false),
                None => ("other", false),
            };
            write!(file, "\"event\":\"submit\",\"id\":{id},\"op\":\"{op}\",\"bytes\":{bytes},\"ioprio\":{ioprio}")?;
            if durable {
                write!(file, ",\"durable\":true")?;
            }
        }
        What::Complete { id, failed, hint, decision } => {
            let hint = match hint {
                Hint::Plain => "plain",
                Hint::Urgent => "urgent",
                Hint::Barrier => "barrier",
            };
            write!(file, "\"event\":\"complete\",\"id\":{id},\"hint\":\"{hint}\"")?;
            if failed {
                write!(file, ",\"failed\":true")?;
            }
            if let Some(decision) = decision {
                let (decision, reason) = in_words(decision);
                write!(file, ",\"decision\":\"{decision}\",\"reason\":\"{reason}\"")?;
            }
        }
        What::Interrupt(decision) => {
            let (_, reason) = in_words(decision);
            write!(file, "\"event\":\"interrupt\",\"reason\":\"{reason}\"")?;
        }
    }
    writeln!(file, "}}")
}

fn in_words(decision: Decision) -> (&'static str, &'static str) {
    match decision {
        Decision::Deliver(reason) => ("deliver", reason.name()),
        Decision::DeliverUrgent => ("urgent_alone", "urgent"),
        Decision::Hold(reason) => ("hold", reason.name()),
    }
}
