//! `serve --record`: a JSON line for each request taken, each that ended, and each other interrupt (`docs/traces.md`).
//!
//! Queues note what happens in memory and hand it over when that is full, or when they have nothing else to do; a thread of
//! its own writes. A queue never waits for that: what the writer has no room for is lost, and counted. The process of a disk
//! writes to a pipe; the supervisor appends the lines of all disks to one file, which only it has open.

use crate::backend::Operation;
use anyhow::{Context as _, Result, bail};
use coalesce_policy::{Decision, Hint};
use nix::time::{ClockId, clock_gettime};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, PipeWriter, Read, Write};
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
/// Bytes that are read from a pipe at once, and of a line, at most: as many as a pipe has room for.
const LINES_MAX: usize = 64 << 10;
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

/// Appends to the file of a record what the process of one disk writes to a pipe, until that process ends.
#[derive(Debug)]
pub struct Gatherer(JoinHandle<std::io::Result<()>>);

impl Gatherer {
    /// Begins; and the end of the pipe that is for the process.
    ///
    /// # Errors
    /// There is no descriptor or no thread for it.
    pub fn spawn(file: &File) -> Result<(Self, PipeWriter)> {
        let (mut reader, writer) = std::io::pipe().context("a pipe for the record")?;
        let file = file.try_clone().context("a descriptor for the record")?;
        let gather = move || {
            let outcome = append_lines(&mut reader, &file);
            if let Err(error) = &outcome {
                error!("record: {error}: nothing more is recorded");
                let _ = std::io::copy(&mut reader, &mut std::io::sink()); // the process need not know
            }
            outcome
        };
        let thread = std::thread::Builder::new().name("record".into()).spawn(gather);
        Ok((Self(thread.context("a thread for the record")?), writer))
    }

    /// Whether all that the process wrote is in the file, or cannot be.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits until the process has ended and its lines are in the file.
    ///
    /// # Errors
    /// They could not be written: the record is not complete.
    pub fn finish(self) -> Result<()> {
        let outcome = self.0.join().unwrap_or_else(|_| Err(Error::other("its thread has panicked")));
        outcome.context("record: it is not complete")
    }
}

/// Appends whole lines only: a process that is killed may leave a part of one.
fn append_lines(from: &mut impl Read, mut file: &File) -> std::io::Result<()> {
    let mut bytes = vec![0; LINES_MAX];
    let mut len = 0;
    loop {
        match from.read(&mut bytes[len..]) {
            Ok(0) => return Ok(()),
            Ok(more) => len += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let whole = bytes[..len].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.write_all(&bytes[..whole])?; // at once, so that no other disk's line comes in between
        bytes.copy_within(whole..len, 0);
        len -= whole;
        if len == bytes.len() {
            return Err(Error::new(ErrorKind::InvalidData, "a line does not end"));
        }
    }
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
    /// Writes to a pipe what arrives from queues that have this recorder.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn spawn(pipe: PipeWriter, recorder: Recorder, arrivals: Arrivals) -> Result<Self> {
        let write = move || {
            let outcome = write_all(&arrivals.0, pipe);
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
fn write_all(receiver: &Receiver<Message>, mut pipe: PipeWriter) -> std::io::Result<()> {
    let mut lines = Vec::new();
    while let Ok(Message::Events { queue, events }) = receiver.recv() {
        lines.clear();
        for (time, what) in events {
            write_line(&mut lines, &queue, time, what)?;
        }
        pipe.write_all(&lines)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek as _, SeekFrom};

    #[test]
    fn only_whole_lines_are_appended_and_none_without_end() {
        let mut file = tempfile::tempfile().unwrap();
        let long = "x".repeat(LINES_MAX - 1) + "\n";
        append_lines(&mut format!("first\n{long}second\nkilled in mid-l").as_bytes(), &file).unwrap();
        let error = append_lines(&mut format!("third\nx{long}").as_bytes(), &file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert!(text == format!("first\n{long}second\nthird\n"));
    }
}
