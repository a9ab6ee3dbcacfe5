//! `serve --record`: a JSON line for each submission, each completion, and each interrupt that no completion caused
//! (`docs/traces.md`).
//!
//! A queue collects its events in a chunk of memory. It hands the chunk to a writer thread when the chunk is full, or
//! when the queue is idle. It never waits for the writer: events that the writer has no room for are lost, and counted.
//! A disk's process writes to a pipe. The supervisor appends the lines of all disks to one file, which no other process
//! has open.

mod file;

pub use file::{Lines, RecordFile};

use crate::backend::Operation;
use anyhow::{Context as _, Result, bail};
use coalesce_cli::counted;
use coalesce_policy::{Decision, Event as Meaning};
use nix::time::{ClockId, clock_gettime};
use std::io::{Error, ErrorKind, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tracing::{error, warn};

/// What each line begins with. A file that does not begin so is no record.
const START: &str = "{\"time_ns\":";
/// The events in a chunk.
const CHUNK: usize = 1024;
/// The most bytes read from a pipe at once, and the longest line: the capacity of a pipe.
const LINES_MAX: usize = 64 << 10;
/// The most chunks that wait for the writer.
const CHUNKS_MAX: usize = 1024;

/// Something that happened on a queue.
#[derive(Clone, Copy, Debug)]
enum Event {
    Submit { id: usize, operation: Option<Operation>, bytes: u64, ioprio: u16 },
    Complete { id: usize, failed: bool, hint: Meaning, decision: Option<Decision> },
    Interrupt(Decision),
}

#[derive(Debug)]
enum Message {
    Events { queue: Arc<str>, events: Vec<(u64, Event)> },
    End,
}

/// The end of the channel to which queues hand their events.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: SyncSender<Message>,
    epoch_ns: u64,
    lost: Arc<AtomicU64>,
}

/// The end of the channel from which the writer takes the events of queues.
#[derive(Debug)]
pub struct Arrivals(Receiver<Message>);

/// The thread that writes the record.
#[derive(Debug)]
pub struct Writer {
    recorder: Recorder,
    thread: JoinHandle<std::io::Result<()>>,
}

/// The record of one disk: its lines go to a file that it shares with other disks, until an error ends it.
#[derive(Clone, Debug)]
pub struct Record {
    lines: Arc<Lines>,
    error: Arc<OnceLock<String>>,
}

impl Record {
    /// Its lines go to these.
    #[must_use]
    pub fn new(lines: Arc<Lines>) -> Self {
        Self { lines, error: Arc::default() }
    }

    /// The error that has ended it.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// Appends whole lines only, because a process that is killed may leave a part of a line.
    fn append_lines(&self, from: &mut impl Read) -> std::io::Result<()> {
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
            self.lines.append(&bytes[..whole])?;
            bytes.copy_within(whole..len, 0);
            len -= whole;
            if len == bytes.len() {
                return Err(Error::new(ErrorKind::InvalidData, "a line does not end"));
            }
        }
    }
}

/// Copies the lines of one disk's process from a pipe to its record, until that process ends.
#[derive(Debug)]
pub struct Gatherer(JoinHandle<()>);

impl Gatherer {
    /// Starts the copying thread. Returns it with the pipe's end for the disk's process.
    ///
    /// # Errors
    /// The system gives no descriptor or no thread.
    pub fn spawn(record: Record) -> Result<(Self, PipeWriter)> {
        let (mut reader, writer) = std::io::pipe().context("a pipe for the record")?;
        let gather = move || {
            if record.error().is_none()
                && let Err(error) = record.append_lines(&mut reader)
            {
                error!("record: {error}: nothing more is recorded");
                let _ = record.error.set(error.to_string()); // the gatherer of a process before this one may have set it
            }
            let _ = std::io::copy(&mut reader, &mut std::io::sink()); // so that the process can go on writing
        };
        let thread = std::thread::Builder::new().name("record".into()).spawn(gather);
        Ok((Self(thread.context("a thread for the record")?), writer))
    }

    /// Whether the copying is over: the process has ended and its lines are in the file, or an error stopped it.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// The time of the system's monotonic clock, in ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Both ends of the channel of events. The record's clock began at `epoch_ns`.
#[must_use]
pub fn channel(epoch_ns: u64) -> (Recorder, Arrivals) {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    (Recorder { sender, epoch_ns, lost: Arc::default() }, Arrivals(receiver))
}

impl Writer {
    /// Starts a thread that writes to `pipe` the events that queues hand to `recorder`.
    ///
    /// # Errors
    /// The system gives no thread.
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

    /// Writes what was handed over so far, then ends the thread.
    ///
    /// # Errors
    /// The events could not be written: the record is incomplete.
    pub fn finish(self) -> Result<()> {
        let _ = self.recorder.sender.send(Message::End); // the thread may have ended with an error
        match self.thread.join() {
            Ok(outcome) => outcome.context("record: it is not complete")?,
            Err(_) => bail!("record: it is not complete"),
        }
        let lost = self.recorder.lost.load(Ordering::Relaxed);
        if lost > 0 {
            warn!("record: {} lost: they came faster than they could be written", counted(lost, "event"));
        }
        Ok(())
    }
}

impl Recorder {
    /// The recording of one queue of a disk, whose clock shows `now`, in ns.
    #[must_use]
    pub fn queue(&self, disk: &str, index: usize, now: u64) -> Recording {
        let disk = serde_json::Value::from(disk);
        Recording {
            recorder: self.clone(),
            queue: format!("\"disk\":{disk},\"queue\":{index}").into(),
            ahead: monotonic_ns().saturating_sub(self.epoch_ns).saturating_sub(now),
            events: Vec::with_capacity(CHUNK),
        }
    }
}

/// The events of one queue that are not handed over yet. Methods take times of the queue's own clock, in ns.
#[derive(Debug)]
pub struct Recording {
    recorder: Recorder,
    queue: Arc<str>,
    ahead: u64, // the record's time minus the queue's, in ns
    events: Vec<(u64, Event)>,
}

impl Recording {
    /// Records a submission. Requests with the same `now` were submitted as one batch.
    pub fn submit(&mut self, now: u64, id: usize, operation: Option<Operation>, bytes: u64, ioprio: u16) {
        self.note(now, Event::Submit { id, operation, bytes, ioprio });
    }

    /// Records a completion with the decision about it.
    pub fn complete(&mut self, now: u64, id: usize, failed: bool, hint: Meaning, decision: Option<Decision>) {
        self.note(now, Event::Complete { id, failed, hint, decision });
    }

    /// Records a decision that no completion caused. Only an interrupt is written.
    pub fn decide(&mut self, now: u64, decision: Option<Decision>) {
        if let Some(decision @ (Decision::Deliver(_) | Decision::DeliverUrgent)) = decision {
            self.note(now, Event::Interrupt(decision));
        }
    }

    fn note(&mut self, now: u64, what: Event) {
        self.events.push((now + self.ahead, what));
        if self.events.len() >= CHUNK {
            self.hand_over();
        }
    }

    /// Hands the collected events to the writer.
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

/// Writes events until [`Message::End`] arrives.
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

fn write_line(file: &mut impl Write, queue: &str, time: u64, what: Event) -> std::io::Result<()> {
    write!(file, "{START}{time},{queue},")?;
    match what {
        Event::Submit { id, operation, bytes, ioprio } => {
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
        Event::Complete { id, failed, hint, decision } => {
            write!(file, "\"event\":\"complete\",\"id\":{id},\"hint\":\"{}\"", hint.name())?;
            if failed {
                write!(file, ",\"failed\":true")?;
            }
            if let Some(decision) = decision {
                let reason = decision.reason_name();
                let decision = match decision {
                    Decision::Deliver(_) => "deliver",
                    Decision::DeliverUrgent => "urgent_alone",
                    Decision::Hold(_) => "hold",
                };
                write!(file, ",\"decision\":\"{decision}\",\"reason\":\"{reason}\"")?;
            }
        }
        Event::Interrupt(decision) => {
            write!(file, "\"event\":\"interrupt\",\"reason\":\"{}\"", decision.reason_name())?;
        }
    }
    writeln!(file, "}}")
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn only_whole_lines_are_appended_and_an_endless_line_is_refused() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("record");
        let file = RecordFile::open(&path, &[]).unwrap();
        file.begin().unwrap();
        let record = Record::new(file.lines());
        let append = |text: String| record.append_lines(&mut text.as_bytes());
        let long = "x".repeat(LINES_MAX - 1) + "\n";
        append(format!("first\n{long}second\nkilled in mid-l")).unwrap();
        let error = append(format!("third\nx{long}")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text == format!("first\n{long}second\nthird\n"));
    }
}
