//! The protocol between the supervisor and a disk's process: one JSON object per line, over a socket pair.
//!
//! The supervisor sends numbered questions. The disk's process answers each with the same number. The process can be
//! stuck in its guest's memory or its image, so each question has a time limit, and the number of unanswered questions
//! is bounded.

use crate::config::DiskConfig;
use crate::stats::QueueStats;
use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

/// The most unanswered questions. This many fit into the socket's buffer, so asking a stuck process never blocks.
const UNANSWERED_MAX: usize = 32;
/// How long a process may take to answer. In one pass of its loop a queue copies a few MiB at most.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The longest line, in bytes.
const LINE_MAX: u64 = 4 << 20;

/// A policy for one queue, or for all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyChange {
    /// The queue's index; all queues if not given.
    pub queue: Option<usize>,
    /// Its text form.
    pub policy: String,
}

/// Whether the guest's CPUs that a queue interrupts run, and until when this is known.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SliceChange {
    /// The queue's index; all queues if not given.
    pub queue: Option<usize>,
    /// Whether they run.
    pub running: bool,
    /// The end of their time slice, or of the pause, in ns of the system's monotonic clock.
    pub until_ns: u64,
}

/// The user that a disk's process switches to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// All group ids.
    pub groups: Vec<u32>,
}

/// Everything that a disk's process needs to start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The disk.
    pub disk: DiskConfig,
    /// Policy changes since the target was started, oldest first.
    pub policies: Vec<PolicyChange>,
    /// The start of the record's clock, in ns of the system's monotonic clock; `None`: nothing is recorded.
    pub record_epoch_ns: Option<u64>,
    /// The user to switch to.
    pub identity: Option<Identity>,
    /// Whether the process confines itself.
    pub sandbox: bool,
    /// The log level.
    pub log: String,
}

/// The statistics of a disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskStats {
    /// Whether a front end is connected.
    pub connected: bool,
    /// The statistics of each queue.
    pub queues: Vec<QueueStats>,
}

/// A question to a disk's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Serve this disk on the socket that was sent before. The answer is a [`DiskInfo`](crate::server::DiskInfo).
    Start(Box<Setup>),
    /// Report the statistics. The answer is a [`DiskStats`].
    Stats,
    /// Reset the statistics.
    ResetStats,
    /// Change the policy.
    SetPolicy(PolicyChange),
    /// Note whether the guest runs.
    SetRunning(SliceChange),
    /// Complete what is in flight, deliver what is held, and end.
    Stop,
}

#[derive(Serialize, Deserialize)]
struct Ask {
    id: u64,
    request: Request,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    id: u64,
    outcome: Result<Value, String>,
}

/// The supervisor's end of the socket pair.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    unanswered: Arc<Mutex<Unanswered>>,
}

/// The questions that have no answer yet.
#[derive(Debug, Default)]
struct Unanswered {
    newest: u64,
    is_over: bool,
    senders: HashMap<u64, Sender<Result<Value, String>>>,
}

/// A question that waits for its answer.
#[derive(Debug)]
#[must_use = "dropping it drops the answer"]
pub struct Pending(Receiver<Result<Value, String>>);

impl Link {
    /// Asks over this socket, and starts a thread that receives the answers.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let unanswered = Arc::<Mutex<Unanswered>>::default();
        let (reader, routes) = (stream.try_clone().context("a socket")?, unanswered.clone());
        let thread = std::thread::Builder::new().name("link".into());
        thread.spawn(move || route_answers(reader, &routes)).context("a thread")?;
        Ok(Self { stream, unanswered })
    }

    /// Sends descriptors. Must precede the first question.
    ///
    /// # Errors
    /// The process has ended.
    pub fn send_descriptors(&self, descriptors: &[RawFd]) -> Result<()> {
        self.stream.send_with_fds(&[&[0_u8][..]], descriptors).context("its process has ended")?;
        Ok(())
    }

    /// Whether the link is closed, so that no question can be asked.
    #[must_use]
    pub fn is_over(&self) -> bool {
        lock(&self.unanswered).is_over
    }

    /// Asks a question without waiting for the answer.
    ///
    /// # Errors
    /// The process has ended, or too many questions are unanswered.
    pub fn begin(&self, request: Request) -> Result<Pending> {
        let (sender, receiver) = channel();
        let mut unanswered = lock(&self.unanswered);
        if unanswered.is_over {
            bail!("its process has ended");
        }
        if unanswered.senders.len() >= UNANSWERED_MAX {
            bail!("does not answer: its process is stuck");
        }
        unanswered.newest += 1;
        let id = unanswered.newest;
        unanswered.senders.insert(id, sender);
        // Sent under the lock, so that lines do not mix. The socket is full if the process answers without reading.
        let line = line_of(&Ask { id, request })?;
        match send(self.stream.as_raw_fd(), &line, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) if sent == line.len() => return Ok(Pending(receiver)),
            _ => unanswered.is_over = true, // a part of the line may be sent, so no other line can follow
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both); // ends the process's side too
        bail!("its process has ended, or does not hear what it is asked")
    }
}

impl Drop for Link {
    /// Ends the thread that receives answers.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Pending {
    /// Waits for the answer until `deadline`.
    ///
    /// # Errors
    /// No answer arrived in time, or the answer is an error.
    pub fn wait<T: DeserializeOwned>(self, deadline: Instant) -> Result<T> {
        match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(outcome) => understood(outcome),
            Err(RecvTimeoutError::Timeout) => Err(anyhow!("does not answer: its process is stuck")),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("its process has ended")),
        }
    }

    /// The answer, if it has arrived.
    pub fn try_wait<T: DeserializeOwned>(&self) -> Option<Result<T>> {
        match self.0.try_recv() {
            Ok(outcome) => Some(understood(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(anyhow!("its process has ended"))),
        }
    }
}

fn understood<T: DeserializeOwned>(outcome: Result<Value, String>) -> Result<T> {
    serde_json::from_value(outcome.map_err(|message| anyhow!(message))?).context("its process answers nonsense")
}

fn route_answers(stream: UnixStream, unanswered: &Mutex<Unanswered>) {
    let mut reader = BufReader::new(stream);
    while let Some(Answer { id, outcome }) = read_line(&mut reader) {
        if let Some(sender) = lock(unanswered).senders.remove(&id) {
            let _ = sender.send(outcome); // the asker may have stopped waiting
        }
    }
    {
        let mut unanswered = lock(unanswered);
        unanswered.is_over = true;
        unanswered.senders.clear();
    }
    // Wakes the supervisor, as the end of the process does.
    let _ = kill(Pid::this(), Signal::SIGCHLD);
}

fn lock(unanswered: &Mutex<Unanswered>) -> MutexGuard<'_, Unanswered> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of the socket pair in a disk's process.
#[derive(Debug)]
pub struct Questions(BufReader<UnixStream>);

impl Questions {
    /// Receives questions from this socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// Waits for the next question and its number; `None` when the supervisor has closed the link.
    pub fn receive(&mut self) -> Option<(u64, Request)> {
        read_line(&mut self.0).map(|Ask { id, request }| (id, request))
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, outcome: Result<Value>) {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let _ = write_line(self.0.get_ref(), &Answer { id, outcome }); // the supervisor may have ended
    }
}

/// Reads and parses the next line; `None` at the end of the stream or on an invalid line.
fn read_line<T: DeserializeOwned>(reader: &mut BufReader<UnixStream>) -> Option<T> {
    let mut line = Vec::new();
    reader.take(LINE_MAX).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

fn write_line(mut stream: &UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    stream.write_all(&line_of(message)?)
}

fn line_of(message: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    Ok((serde_json::to_string(message)? + "\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn answers_reach_their_questions_in_any_order() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (link, mut questions) = (Link::new(ours).unwrap(), Questions::new(theirs));
        let [first, second] = [link.begin(Request::Stats).unwrap(), link.begin(Request::ResetStats).unwrap()];
        let ids: Vec<_> = (0..2).map(|_| questions.receive().unwrap().0).collect();
        questions.answer(ids[1], Ok(json!(2)));
        questions.answer(ids[0], Err(anyhow!("no")));
        assert_eq!(second.wait::<u64>(soon()).unwrap(), 2);
        assert_eq!(first.wait::<u64>(soon()).unwrap_err().to_string(), "no");
    }

    #[test]
    fn a_process_that_is_stuck_or_gone_does_not_block_the_supervisor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Link::new(ours).unwrap();
        for _ in 0..UNANSWERED_MAX {
            let error = link.begin(Request::Stats).unwrap().wait::<u64>(Instant::now()).unwrap_err();
            assert!(error.to_string().contains("is stuck"), "{error}");
        }
        assert!(link.begin(Request::Stats).unwrap_err().to_string().contains("is stuck"));
        drop(theirs);
        while !lock(&link.unanswered).is_over {
            std::thread::yield_now();
        }
        assert!(link.begin(Request::Stats).unwrap_err().to_string().contains("has ended"));
    }

    /// The process guesses the numbers of the questions that it does not read.
    #[test]
    fn a_process_that_answers_without_reading_does_not_block_the_supervisor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(ours).unwrap());
        let (done, is_done) = channel();
        let asking = link.clone();
        std::thread::spawn(move || {
            for id in 1..10_000 {
                let Ok(pending) = asking.begin(Request::Stats) else { break };
                let _ = write_line(&theirs, &Answer { id, outcome: Ok(Value::Null) });
                let _ = pending.wait::<()>(soon());
            }
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("a question waits for room in the socket");
        assert!(link.begin(Request::Stop).is_err());
    }
}
