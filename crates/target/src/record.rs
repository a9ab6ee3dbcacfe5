//! `serve --record`: a JSON line for each request taken, each that ended, and each other interrupt (`docs/traces.md`).
//!
//! Queues note what happens in memory and hand it over when that is full, or when they have nothing else to do; a thread of
//! its own writes. A queue never waits for that: what the writer has no room for is lost, and counted.

use crate::backend::Operation;
use anyhow::{Context as _, Result};
use policy::{Decision, Hint};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
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
    epoch: Instant,
    lost: Arc<AtomicU64>,
}

/// The thread that writes.
#[derive(Debug)]
pub struct Writer {
    recorder: Recorder,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Writer {
    /// Creates the file, and begins.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("record {}", path.display()))?;
        let (sender, receiver) = sync_channel(CHUNKS_MAX);
        let recorder = Recorder { sender, epoch: Instant::now(), lost: Arc::default() };
        let thread = std::thread::Builder::new().name("record".into()).spawn(move || write_all(&receiver, file));
        Ok(Self { recorder, thread: thread.context("a thread for the record")? })
    }

    /// For queues.
    #[must_use]
    pub const fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Writes what was handed over so far, and ends.
    pub fn finish(self) {
        let _ = self.recorder.sender.send(Message::End);
        match self.thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => error!("record: {error}: it is not complete"),
            Err(_) => error!("record: not complete"),
        }
        let lost = self.recorder.lost.load(Ordering::Relaxed);
        if lost > 0 {
            warn!("record: {lost} events are lost: they came faster than they could be written");
        }
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
            ahead: u64::try_from(clock.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX),
            events: Vec::with_capacity(CHUNK),
        }
    }
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

/// Until the end is told. Whenever there is nothing more to write, the file has all of it.
fn write_all(receiver: &Receiver<Message>, file: File) -> std::io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 16, file);
    loop {
        let message = match receiver.try_recv() {
            Err(TryRecvError::Empty) => {
                file.flush()?;
                receiver.recv().ok()
            }
            message => message.ok(),
        };
        let Some(Message::Events { queue, events }) = message else { return file.flush() };
        for (time, what) in events {
            write_line(&mut file, &queue, time, what)?;
        }
    }
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
