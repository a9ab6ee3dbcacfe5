//! What the supervisor and a disk's process say to each other: one JSON object a line, over a socket of their own.
//!
//! The supervisor asks, with a number; the disk's process answers, with the same one. It can be stuck in its guest's
//! memory or its image: so each question has a time limit, and the number of unanswered ones has a bound.

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

/// Questions without an answer, at most: what a process that is stuck has not heard fits into the socket.
const UNANSWERED_MAX: usize = 32;
/// How long a process may take to answer. Between two turns of a queue it copies a few MiB at most.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a line, at most.
const LINE_MAX: u64 = 4 << 20;

/// A policy for one queue, or for all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyChange {
    /// Which queue; all of them if not given.
    pub queue: Option<usize>,
    /// Its text form.
    pub policy: String,
}

/// The user that a disk's process becomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
}

/// What a disk's process is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The disk.
    pub disk: DiskConfig,
    /// Policies that were set since the target was started.
    pub policies: Vec<PolicyChange>,
    /// When the record's clock began, in ns of the system's monotonic clock; none: nothing is recorded.
    pub record_epoch_ns: Option<u64>,
    /// The user to become.
    pub identity: Option<Identity>,
    /// Whether to give up what is not needed.
    pub sandbox: bool,
    /// What is logged.
    pub log: String,
}

/// What a disk counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskStats {
    /// Whether a front end is connected.
    pub connected: bool,
    /// Each of its queues.
    pub queues: Vec<QueueStats>,
}

/// What a disk's process is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// To serve this disk, on the listener that came with it. The answer: [`DiskInfo`](crate::server::DiskInfo).
    Start(Box<Setup>),
    /// What it counted. The answer: [`DiskStats`].
    Stats,
    /// To forget what it counted.
    ResetStats,
    /// To take another policy.
    SetPolicy(PolicyChange),
    /// To finish what is in flight, deliver what is held, and end.
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

/// The supervisor's end.
#[derive(Debug)]
pub struct Link {
    stream: UnixStream,
    unanswered: Arc<Mutex<Unanswered>>,
}

/// Questions without an answer yet.
#[derive(Debug, Default)]
struct Unanswered {
    newest: u64,
    is_over: bool,
    senders: HashMap<u64, Sender<Result<Value, String>>>,
}

/// A question that was asked.
#[derive(Debug)]
#[must_use = "the answer is what it was asked for"]
pub struct Pending(Receiver<Result<Value, String>>);

impl Link {
    /// Asks and hears over this socket.
    ///
    /// # Errors
    /// There is no thread to hear answers.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let unanswered = Arc::<Mutex<Unanswered>>::default();
        let (reader, routes) = (stream.try_clone().context("a socket")?, unanswered.clone());
        let thread = std::thread::Builder::new().name("link".into());
        thread.spawn(move || route_answers(reader, &routes)).context("a thread")?;
        Ok(Self { stream, unanswered })
    }

    /// Sends descriptors, before anything is asked.
    ///
    /// # Errors
    /// The process has ended.
    pub fn send_descriptors(&self, descriptors: &[RawFd]) -> Result<()> {
        self.stream.send_with_fds(&[&[0_u8][..]], descriptors).context("its process has ended")?;
        Ok(())
    }

    /// Whether nothing can be asked any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        lock(&self.unanswered).is_over
    }

    /// Asks; the answer comes later.
    ///
    /// # Errors
    /// The process has ended, or owes too many answers.
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
        // Under the lock, so that lines are whole. Who answers without hearing what it is asked fills the socket.
        let line = line_of(&Ask { id, request })?;
        match send(self.stream.as_raw_fd(), &line, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) if sent == line.len() => return Ok(Pending(receiver)),
            _ => unanswered.is_over = true, // half a line may be sent: nothing can follow it
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both); // who answers hears no more either
        bail!("its process has ended, or does not hear what it is asked")
    }
}

impl Drop for Link {
    /// Ends the thread that hears answers.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

impl Pending {
    /// The answer, if it comes in time.
    ///
    /// # Errors
    /// It does not, or the answer is an error.
    pub fn wait<T: DeserializeOwned>(self, deadline: Instant) -> Result<T> {
        match self.0.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(outcome) => understood(outcome),
            Err(RecvTimeoutError::Timeout) => Err(anyhow!("does not answer: its process is stuck")),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("its process has ended")),
        }
    }

    /// The answer, if it is there.
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
            let _ = sender.send(outcome); // who asked may have stopped waiting
        }
    }
    {
        let mut unanswered = lock(unanswered);
        unanswered.is_over = true;
        unanswered.senders.clear();
    }
    // As when the process ends: who looks after it looks now.
    let _ = kill(Pid::this(), Signal::SIGCHLD);
}

fn lock(unanswered: &Mutex<Unanswered>) -> MutexGuard<'_, Unanswered> {
    unanswered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a disk's process.
#[derive(Debug)]
pub struct Questions(BufReader<UnixStream>);

impl Questions {
    /// Hears questions from this socket.
    #[must_use]
    pub fn new(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    /// The next question, with its number; none: nobody asks any more.
    pub fn hear(&mut self) -> Option<(u64, Request)> {
        read_line(&mut self.0).map(|Ask { id, request }| (id, request))
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, outcome: Result<Value>) {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let _ = write_line(self.0.get_ref(), &Answer { id, outcome }); // nobody may be left to hear it
    }
}

/// The next line; none: there is none, or it is nonsense.
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
    fn answers_find_the_question_they_are_for_in_any_order() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (link, mut questions) = (Link::new(ours).unwrap(), Questions::new(theirs));
        let [first, second] = [link.begin(Request::Stats).unwrap(), link.begin(Request::ResetStats).unwrap()];
        let ids: Vec<_> = (0..2).map(|_| questions.hear().unwrap().0).collect();
        questions.answer(ids[1], Ok(json!(2)));
        questions.answer(ids[0], Err(anyhow!("no")));
        assert_eq!(second.wait::<u64>(soon()).unwrap(), 2);
        assert_eq!(first.wait::<u64>(soon()).unwrap_err().to_string(), "no");
    }

    #[test]
    fn a_process_that_is_stuck_or_gone_keeps_nobody_waiting() {
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

    /// It knows the numbers of the questions without hearing them.
    #[test]
    fn a_process_that_answers_and_does_not_hear_keeps_nobody_waiting() {
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
