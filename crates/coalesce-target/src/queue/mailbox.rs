//! Control messages to a queue, and its answers.

use crate::source::Source;
use crate::stats::QueueStats;
use anyhow::{Context as _, Result};
use coalesce_policy::{Spec, SpecError};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;

/// The most messages that wait in the channel, and the most that are deferred. A sender blocks while the channel is full.
const MESSAGES_MAX: usize = 16;

/// A control message. Its answer is sent when it is done.
pub enum Control<S: Source> {
    /// Serve this source. Take requests from it at once (true), or only after [`Enable`](Self::Enable) (false).
    Start(Box<S>, bool),
    /// Start or stop taking requests.
    Enable(bool, Sender<()>),
    /// Stop taking requests. The answer comes when none is in flight and their held completions are delivered.
    Drain(Sender<()>),
    /// Change this part of the source, if there is one.
    Change(Part, Change<S>, Sender<()>),
    /// Complete the requests in flight, deliver everything held, and drop the source. With a broken ring the requests end
    /// without a completion. The answer is the source's position.
    Stop(Sender<Option<S::Position>>),
    /// [`Stop`](Self::Stop), then end the queue.
    End(Sender<()>),
    /// Change the policy; whether the one before is to keep what it has learned, and this one is to go on with what it had.
    SetPolicy(Spec, bool, Sender<Result<(), SpecError>>),
    /// Note whether the guest runs.
    SetRunning(RunReport, Sender<()>),
    /// Report the number of requests in flight whose range ends beyond this byte.
    CountBeyond(u64, Sender<usize>),
    /// Report the statistics.
    GetStats(Sender<QueueStats>),
    /// Reset the statistics.
    ResetStats(Sender<()>),
}

/// Whether the guest runs, as reported by an observer of the host's scheduler. After `until` the guest counts as running,
/// with an unknown end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// Whether the guest's CPUs that take this queue's interrupts are on a host CPU.
    pub running: bool,
    /// When they lose it, or get it back.
    pub until: Instant,
}

/// Changes a source. It runs on the queue's thread.
pub type Change<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The part of a source that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The descriptor that the guest kicks.
    Kick,
    /// The way to interrupt the guest.
    Interrupt,
    /// Anything that decides whether completions may be held (queues, Features 08h and 09h, a deletion or shutdown). What
    /// is held is delivered after the change.
    Holding,
    /// A part that the queue does not use itself.
    Other,
}

impl<S: Source> Control<S> {
    /// Whether it is about the policy, or a question: it need not wait while a source stops.
    const fn is_about_policy(&self) -> bool {
        let is_question = matches!(self, Self::GetStats(_) | Self::ResetStats(_) | Self::CountBeyond(..));
        is_question || matches!(self, Self::SetPolicy(..) | Self::SetRunning(..))
    }
}

/// The senders' end of a mailbox.
#[derive(Debug)]
pub struct Mailbox<S: Source> {
    messages: SyncSender<Control<S>>,
    wake: Arc<EventFd>,
}

/// The queue thread's end of a mailbox.
pub struct Inbox<S: Source> {
    messages: Receiver<Control<S>>,
    deferred: VecDeque<Control<S>>,
    wake: Arc<EventFd>,
}

/// Creates both ends of a mailbox.
///
/// # Errors
/// The process has no free descriptor.
pub fn mailbox<S: Source>() -> Result<(Mailbox<S>, Inbox<S>)> {
    let (sender, messages) = sync_channel(MESSAGES_MAX);
    let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).context("eventfd")?);
    Ok((Mailbox { messages: sender, wake: wake.clone() }, Inbox { messages, deferred: VecDeque::new(), wake }))
}

impl<S: Source> Mailbox<S> {
    /// Sends a message.
    pub fn send(&self, message: Control<S>) {
        let _ = self.messages.send(message); // fails only after a panic of the thread
        self.wake();
    }

    /// Ends a wait of the queue.
    pub fn wake(&self) {
        let _ = self.wake.write(1); // fails only at the counter's maximum; then it is readable
    }

    /// Sends a message, and returns the receiver of its answer.
    pub fn ask_later<T>(&self, message: impl FnOnce(Sender<T>) -> Control<S>) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.send(message(sender));
        receiver
    }
}

impl<S: Source> Inbox<S> {
    /// The next message, if there is one.
    pub fn next(&mut self) -> Option<Control<S>> {
        self.deferred.pop_front().or_else(|| self.messages.try_recv().ok())
    }

    /// The next message about the policy, or with a question, if there is one and fewer than `MESSAGES_MAX` others are before
    /// it. Those keep their order.
    pub fn next_about_policy(&mut self) -> Option<Control<S>> {
        while self.deferred.len() < MESSAGES_MAX {
            let message = self.messages.try_recv().ok()?;
            if message.is_about_policy() {
                return Some(message);
            }
            self.deferred.push_back(message);
        }
        None
    }

    /// The eventfd that becomes readable with the first message, and stays readable.
    pub const fn wake(&self) -> &Arc<EventFd> {
        &self.wake
    }
}
