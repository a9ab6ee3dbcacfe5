//! Commands to the thread of a queue, and its answers.

use crate::source::Source;
use crate::stats::QueueStats;
use anyhow::{Context as _, Result};
use coalesce_policy::{Spec, SpecError};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Instant;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// The most waiting commands. A sender blocks while this many wait.
const COMMANDS_MAX: usize = 16;

/// A command. Its answer is sent when it is done.
pub enum Command<S: Source> {
    /// Serve this source. Take requests from it at once, or only after [`Enable`](Self::Enable).
    Start(Box<S>, bool),
    /// Start or stop taking requests.
    Enable(bool, Sender<()>),
    /// Stop taking requests. The answer comes when none is in flight and their held completions are delivered.
    Drain(Sender<()>),
    /// Change this part of the source, if there is one.
    Change(Part, Change<S>, Sender<()>),
    /// Complete the requests in flight, deliver everything held, and drop the source. The answer is its position.
    Stop(Sender<Option<S::Position>>),
    /// [`Stop`](Self::Stop), then end the thread.
    End,
    /// Change the policy.
    SetPolicy(Spec, Sender<Result<(), SpecError>>),
    /// Note whether the guest runs.
    SetRunning(Slice, Sender<()>),
    /// Report the statistics.
    GetStats(Sender<QueueStats>),
    /// Reset the statistics.
    ResetStats(Sender<()>),
}

/// Whether the guest runs, as reported by an observer of the host's scheduler. After `until` nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Whether the CPUs that the queue interrupts run.
    pub running: bool,
    /// When they stop, or run again.
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
    /// What may be held. Everything held is delivered.
    Holding,
    /// A part that the queue does not use itself.
    Other,
}

impl<S: Source> Command<S> {
    /// Whether it concerns only the policy or the statistics, so that it need not wait while a source stops.
    const fn is_about_policy(&self) -> bool {
        matches!(self, Self::SetPolicy(..) | Self::SetRunning(..) | Self::GetStats(_) | Self::ResetStats(_))
    }
}

/// The senders' end of a mailbox.
#[derive(Debug)]
pub struct Mailbox<S: Source> {
    commands: SyncSender<Command<S>>,
    wake: Arc<EventFd>,
}

/// The queue thread's end of a mailbox.
pub struct Inbox<S: Source> {
    commands: Receiver<Command<S>>,
    deferred: VecDeque<Command<S>>,
    wake: Arc<EventFd>,
}

/// Creates both ends of a mailbox.
///
/// # Errors
/// The process has no free descriptor.
pub fn mailbox<S: Source>() -> Result<(Mailbox<S>, Inbox<S>)> {
    let (sender, commands) = sync_channel(COMMANDS_MAX);
    let wake = Arc::new(EventFd::new(EFD_NONBLOCK).context("eventfd")?);
    Ok((Mailbox { commands: sender, wake: wake.clone() }, Inbox { commands, deferred: VecDeque::new(), wake }))
}

impl<S: Source> Mailbox<S> {
    /// Sends a command.
    pub fn send(&self, command: Command<S>) {
        let _ = self.commands.send(command); // fails only after a panic of the thread
        self.wake();
    }

    /// Ends a wait of the queue.
    pub fn wake(&self) {
        let _ = self.wake.write(1); // fails only at the counter's maximum; then it is readable
    }

    /// Sends a command, without waiting for the answer.
    pub fn begin<T>(&self, command: impl FnOnce(Sender<T>) -> Command<S>) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.send(command(sender));
        receiver
    }
}

impl<S: Source> Inbox<S> {
    /// The next command, if there is one.
    pub fn next(&mut self) -> Option<Command<S>> {
        self.deferred.pop_front().or_else(|| self.commands.try_recv().ok())
    }

    /// The next command about the policy or the statistics, if there is one. The commands before it keep their order.
    pub fn next_about_policy(&mut self) -> Option<Command<S>> {
        while self.deferred.len() < COMMANDS_MAX {
            let command = self.commands.try_recv().ok()?;
            if command.is_about_policy() {
                return Some(command);
            }
            self.deferred.push_back(command);
        }
        None
    }

    /// The eventfd that becomes readable with the first command, and stays readable.
    pub const fn wake(&self) -> &Arc<EventFd> {
        &self.wake
    }
}
