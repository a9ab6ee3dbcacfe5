//! The protocol between the supervisor and a disk's process: one JSON object per line, over a socket pair.
//!
//! The supervisor sends numbered questions. The disk's process answers each with the same number. The process can be
//! stuck in its guest's memory or its image, so each question has a time limit. One question of each kind is open at a
//! time, and the next ones wait in the supervisor. So no number of statistics that clients ask for delays a stop or a
//! change of policy, and asking a stuck process never blocks.

mod turns;

pub use turns::Unanswered;

use crate::config::DiskConfig;
use crate::stats::QueueStats;
use crate::throttle::RatesChange;
use anyhow::{Context as _, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::mem::discriminant;
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use turns::{Kind, Outcome, Question, Ticket, Turns};
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

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
    /// Whether what policies have learned outlasts the change.
    pub keep_learned: bool,
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
    /// The size in bytes that the disk was given since then.
    pub size: Option<u64>,
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
    /// Say which size the disk would get: this one, or that of its image. The answer is a
    /// [`Measured`](crate::server::Measured).
    Measure(Option<u64>),
    /// Limit how much the disk may do in a second.
    SetLimits(RatesChange),
    /// Give the disk this size, in bytes. The answer is a [`Resized`](crate::server::Resized).
    Resize(u64),
    /// Complete what is in flight, deliver what is held, and end.
    Stop,
}

#[derive(Serialize, Deserialize)]
struct Ask<'a> {
    id: u64,
    request: Cow<'a, Request>,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    id: u64,
    outcome: Outcome,
}

/// The supervisor's end of the socket pair.
#[derive(Debug)]
pub struct Link(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stream: UnixStream,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool, // nothing more can be asked
    is_over: bool,   // and no answer is on its way
    turns: Turns,
}

/// A question that waits for its answer, or for its turn.
#[derive(Debug)]
#[must_use = "dropping it drops the answer"]
pub struct Pending {
    link: Arc<Shared>,
    ticket: Ticket,
    answer: Receiver<Outcome>,
}

impl Link {
    /// Asks over this socket, and starts a thread that receives the answers. That thread calls `done` with each request that
    /// the process has done, before whoever asked knows, and before [`is_over`](Self::is_over).
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(stream: UnixStream, done: impl Fn(&Request) + Send + 'static) -> Result<Self> {
        let shared = Arc::new(Shared { stream, state: Mutex::default() });
        let routes = shared.clone();
        let thread = std::thread::Builder::new().name("link".into());
        thread.spawn(move || routes.route_answers(done)).context("a thread")?;
        Ok(Self(shared))
    }

    /// Sends descriptors. Must precede the first question.
    ///
    /// # Errors
    /// The process has ended.
    pub fn send_descriptors(&self, descriptors: &[RawFd]) -> Result<()> {
        self.0.stream.send_with_fds(&[&[0_u8][..]], descriptors).context("its process has ended")?;
        Ok(())
    }

    /// Whether the link is closed, so that no question can be asked, and no answer is on its way.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// Closes the link. What the process has answered before still counts.
    pub fn close(&self) {
        let _ = self.0.stream.shutdown(Shutdown::Both); // it may be closed already
    }

    /// Asks a question without waiting for the answer. Once it is sent, the answer is late after `patience`.
    ///
    /// # Errors
    /// The process has ended.
    pub fn begin(&self, request: Request, patience: Duration) -> Result<Pending, Unanswered> {
        let kind = discriminant(&request);
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(Unanswered::Ended);
        }
        let (ticket, answer) = state.turns.ask(request, patience);
        self.0.send_next(&mut state, kind);
        Ok(Pending { link: self.0.clone(), ticket, answer })
    }
}

impl Drop for Link {
    /// Ends the thread that receives answers.
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the next question of a kind, if none is open.
    fn send_next(&self, state: &mut State, kind: Kind) {
        if state.is_closed {
            return;
        }
        let Some((id, request)) = state.turns.open_next(kind) else { return };
        // Sent under the lock, so that lines do not mix. The socket is full if the process answers without reading.
        let line = line_of(&Ask { id, request: Cow::Borrowed(request) }).unwrap_or_default();
        let sent = send(self.stream.as_raw_fd(), &line, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        if sent != Ok(line.len()) {
            state.is_closed = true; // a part of the line may be sent, so no other line can follow
            let _ = self.stream.shutdown(Shutdown::Both); // ends the process's side too
        }
    }

    /// The question that this answer is for. The next one of its kind is sent.
    fn take(&self, id: u64) -> Option<Question> {
        let mut state = self.lock();
        let question = state.turns.close(id)?;
        self.send_next(&mut state, discriminant(&question.request));
        Some(question)
    }

    fn route_answers(&self, done: impl Fn(&Request)) {
        let mut reader = BufReader::new(&self.stream);
        while let Some(Answer { id, outcome }) = read_line(&mut reader) {
            let Some(question) = self.take(id) else { continue };
            if outcome.is_ok() {
                done(&question.request);
            }
            question.answer(&outcome);
        }
        *self.lock() = State { is_closed: true, is_over: true, turns: Turns::default() };
        // Wakes the supervisor, as the end of the process does.
        let _ = kill(Pid::this(), Signal::SIGCHLD);
    }
}

impl Pending {
    /// Waits for the answer: until it is late, or that of the question before it is.
    ///
    /// # Errors
    /// [`Unanswered`], or the answer is an error.
    pub fn wait<T: DeserializeOwned>(self) -> Result<T> {
        loop {
            let rest = self.link.lock().turns.rest(self.ticket);
            match self.answer.recv_timeout(rest) {
                Ok(outcome) => return understood(outcome),
                Err(RecvTimeoutError::Disconnected) => bail!(Unanswered::Ended),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(unanswered) = self.link.lock().turns.give_up(self.ticket) {
                        bail!(unanswered);
                    }
                }
            }
        }
    }

    /// The answer, if it has arrived.
    pub fn try_wait<T: DeserializeOwned>(&self) -> Option<Result<T>> {
        match self.answer.try_recv() {
            Ok(outcome) => Some(understood(outcome)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Unanswered::Ended.into())),
        }
    }
}

fn understood<T: DeserializeOwned>(outcome: Result<Value, String>) -> Result<T> {
    serde_json::from_value(outcome.map_err(|message| anyhow!(message))?).context("its process answers nonsense")
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
        read_line(&mut self.0).map(|Ask { id, request }| (id, request.into_owned()))
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, outcome: Result<Value>) {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        let _ = write_line(self.0.get_ref(), &Answer { id, outcome }); // the supervisor may have ended
    }
}

/// Reads and parses the next line; `None` at the end of the stream or on an invalid line.
fn read_line<T: DeserializeOwned>(reader: &mut impl BufRead) -> Option<T> {
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
    use std::sync::mpsc::channel;

    /// A link whose process is this test. `done`: the requests that were done, as the link says.
    fn pair() -> (Link, Questions, Arc<Mutex<Vec<String>>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let done = Arc::<Mutex<Vec<String>>>::default();
        let note = done.clone();
        let link = Link::new(ours, move |request| note.lock().unwrap().push(format!("{request:?}"))).unwrap();
        (link, Questions::new(theirs), done)
    }

    fn ask(link: &Link, request: Request) -> Pending {
        link.begin(request, Duration::from_secs(10)).unwrap()
    }

    fn policy(policy: &str) -> Request {
        Request::SetPolicy(PolicyChange { queue: None, policy: policy.into(), keep_learned: false })
    }

    #[test]
    fn answers_reach_their_questions_in_any_order() {
        let (link, mut questions, _) = pair();
        let [first, second] = [ask(&link, Request::Stats), ask(&link, Request::ResetStats)];
        let ids: Vec<_> = (0..2).map(|_| questions.receive().unwrap().0).collect();
        questions.answer(ids[1], Ok(json!(2)));
        questions.answer(ids[0], Err(anyhow!("no")));
        assert_eq!(second.wait::<u64>().unwrap(), 2);
        assert_eq!(first.wait::<u64>().unwrap_err().to_string(), "no");
    }

    /// The answer to a question that was sent before somebody asked may be older than what he has done meanwhile.
    #[test]
    fn whoever_asks_while_a_question_is_open_shares_the_next_one() {
        let (link, mut questions, _) = pair();
        let first = ask(&link, Request::Stats);
        let others: Vec<_> = (0..40).map(|_| ask(&link, Request::Stats)).collect();
        for answer in [1, 2] {
            let (id, request) = questions.receive().unwrap();
            assert!(matches!(request, Request::Stats));
            questions.answer(id, Ok(json!(answer)));
        }
        assert_eq!(first.wait::<u64>().unwrap(), 1);
        for other in others {
            assert_eq!(other.wait::<u64>().unwrap(), 2);
        }
        let _stop = ask(&link, Request::Stop);
        assert!(matches!(questions.receive().unwrap().1, Request::Stop), "nothing else was asked");
    }

    #[test]
    fn changes_of_policy_are_asked_in_turn_and_what_is_done_is_noted_in_that_order() {
        let (link, mut questions, done) = pair();
        let asked: Vec<_> = ["a", "b", "c"].map(|name| ask(&link, policy(name))).into();
        for (answered, asked) in asked.into_iter().enumerate() {
            let (id, request) = questions.receive().unwrap();
            assert_eq!(done.lock().unwrap().len(), answered.min(1), "{request:?} was asked before");
            let outcome = if answered == 1 { Err(anyhow!("refused")) } else { Ok(Value::Null) };
            questions.answer(id, outcome);
            assert_eq!(asked.wait::<()>().is_ok(), answered != 1);
        }
        assert_eq!(*done.lock().unwrap(), ["a", "c"].map(|name| format!("{:?}", policy(name))));
    }

    /// As when the process ends at once after its answer, and nobody waits for it any more.
    #[test]
    fn what_is_done_is_noted_before_the_link_is_over() {
        for closes in [false, true] {
            let (link, mut questions, done) = pair();
            drop(ask(&link, policy("a")));
            let (id, _) = questions.receive().unwrap();
            questions.answer(id, Ok(Value::Null));
            if closes {
                link.close()
            } else {
                drop(questions)
            }
            while !link.is_over() {
                std::thread::yield_now();
            }
            assert_eq!(done.lock().unwrap().len(), 1);
        }
    }

    /// A process that stops answers what it was asked before, and ends. Nothing more can be sent to it then.
    #[test]
    fn what_a_process_answered_before_it_ended_is_heard() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (go_on, may_go_on) = channel();
        let link = Link::new(ours, move |request| {
            if let Request::SetPolicy(_) = request {
                may_go_on.recv().unwrap();
            }
        });
        let (link, mut questions) = (link.unwrap(), Questions::new(theirs));
        let _blocks = ask(&link, policy("a"));
        let (first, second) = (ask(&link, Request::Stats), ask(&link, Request::Stats));
        let stop = ask(&link, Request::Stop);
        for _ in 0..3 {
            let (id, _) = questions.receive().unwrap();
            questions.answer(id, Ok(Value::Null));
        }
        drop(questions);
        go_on.send(()).unwrap();
        first.wait::<()>().unwrap();
        stop.wait::<()>().unwrap();
        assert_eq!(second.wait::<()>().unwrap_err().downcast::<Unanswered>().unwrap(), Unanswered::Ended);
    }

    #[test]
    fn a_process_that_is_stuck_or_gone_does_not_block_the_supervisor() {
        let (link, mut questions, _) = pair();
        let why = |pending: Pending| pending.wait::<()>().unwrap_err().downcast::<Unanswered>().unwrap();
        let late = || link.begin(policy("a"), Duration::ZERO).unwrap();
        assert_eq!(why(late()), Unanswered::Late);
        for _ in 0..1000 {
            assert_eq!(why(late()), Unanswered::NotAsked);
        }
        let stop = ask(&link, Request::Stop);
        assert!(matches!(questions.receive().unwrap().1, Request::SetPolicy(_)));
        assert!(matches!(questions.receive().unwrap().1, Request::Stop), "it is asked whatever else is open");
        drop(questions);
        assert_eq!(why(stop), Unanswered::Ended);
        while !link.is_over() {
            std::thread::yield_now();
        }
        assert_eq!(link.begin(Request::Stats, PATIENCE).unwrap_err(), Unanswered::Ended);
    }

    /// One that waits for its turn has time from when it is asked.
    #[test]
    fn a_question_is_late_only_if_its_process_had_time_to_answer_it() {
        let (link, mut questions, _) = pair();
        let first = link.begin(Request::Stats, Duration::ZERO).unwrap();
        let second = ask(&link, Request::Stats);
        let (id, _) = questions.receive().unwrap();
        questions.answer(id, Ok(Value::Null));
        let (id, _) = questions.receive().unwrap(); // so the first is answered
        first.wait::<()>().unwrap();
        questions.answer(id, Ok(Value::Null));
        second.wait::<()>().unwrap();
    }

    /// The process guesses the numbers of the questions that it does not read.
    #[test]
    fn a_process_that_answers_without_reading_does_not_block_the_supervisor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Arc::new(Link::new(ours, |_| ()).unwrap());
        let (done, is_done) = channel();
        let asking = link.clone();
        std::thread::spawn(move || {
            for asked in 1..10_000 {
                let Ok(pending) = asking.begin(Request::Stats, Duration::from_secs(10)) else { break };
                let _ = write_line(&theirs, &Answer { id: 2 * asked, outcome: Ok(Value::Null) });
                let _ = pending.wait::<()>();
            }
            let _ = done.send(());
        });
        is_done.recv_timeout(Duration::from_secs(10)).expect("a question waits for room in the socket");
        assert_eq!(link.begin(Request::Stop, PATIENCE).unwrap_err(), Unanswered::Ended);
    }
}
