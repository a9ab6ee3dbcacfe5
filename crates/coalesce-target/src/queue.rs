//! The queues of a disk, and their threads. A queue takes requests from a source, gives them to the back end, posts their
//! completions, and interrupts when the policy says so. It knows no front end: see [`Source`].

mod aside;
mod group;
mod load;
mod mailbox;
mod pause;
mod poll;
mod reactor;
mod requests;
mod serving;
mod state;

pub use mailbox::{Change, Control, Part, RunReport};

use crate::disk::Disk;
use crate::record::Recorder;
use crate::source::Source;
use anyhow::{Context as _, Result};
use coalesce_policy::{Spec, SpecError};
use group::{Door, Group};
use load::FIRST;
use mailbox::{Mailbox, mailbox};
use reactor::Reactor;
use serving::Queue;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The configuration of a queue.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Its policy.
    pub policy: Spec,
    /// Longest poll before a sleep, in ns.
    pub poll_ns: u64,
    /// Requests that the largest source can have in flight.
    pub size_max: u16,
    /// Records the queue's events.
    pub recorder: Option<Recorder>,
}

/// The queues of a disk with their descriptors and their policies, before their threads start: only the start can still fail.
pub struct PreparedQueues<S: Source> {
    disk: Arc<Disk>,
    queues: Vec<(Box<Queue<S>>, Mailbox<S>)>,
    groups: Vec<Group<S>>,
    doors: Arc<[Door<S>]>,
}

impl<S: Source> PreparedQueues<S> {
    /// This many queues of a disk, 1 to [`QUEUES_MAX`](crate::disk::QUEUES_MAX).
    ///
    /// # Errors
    /// No descriptor is free, there is no io_uring, or a parameter of the policy is out of range for a clock in
    /// nanoseconds.
    pub fn new(count: usize, disk: &Arc<Disk>, config: &QueueConfig) -> Result<Self> {
        let queue = |number| {
            let (mailbox, inbox) = mailbox()?;
            Ok((Box::new(Queue::new(number, disk.clone(), config, inbox)?), mailbox))
        };
        let queues = (0..count).map(queue).collect::<Result<Vec<_>>>()?;
        let mut arrivals = Vec::new();
        let mut door = |place| {
            let (sender, receiver) = channel();
            arrivals.push(receiver);
            Door::new(sender, if place == FIRST { count } else { 0 })
        };
        let doors: Arc<[_]> = (0..count).map(&mut door).collect::<Result<Vec<_>>>()?.into();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let group = |(place, arrivals)| {
            let depth = u32::from(config.size_max) * if place == FIRST { count as u32 } else { 1 };
            let reactor = Reactor::new(count + 1, (config.size_max.into(), depth), disk.name.clone())?;
            Ok(Group::new(place, doors.clone(), arrivals, disk.clone(), reactor, (config.poll_ns, cpus)))
        };
        let groups = arrivals.into_iter().enumerate().map(group).collect::<Result<_>>()?;
        Ok(Self { disk: disk.clone(), queues, groups, doors })
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Sets the policy of some of them.
    ///
    /// # Errors
    /// The policy is refused.
    pub fn set_policy(&mut self, queues: Range<usize>, policy: &Spec) -> Result<(), SpecError> {
        self.queues[queues].iter_mut().try_for_each(|(queue, _)| queue.set_policy(policy.clone(), false))
    }

    /// Starts their threads.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(self) -> Result<Vec<QueueHandle<S>>> {
        let Self { disk, queues, groups, doors } = self;
        let mut threads = Threads { doors: doors.clone(), threads: Vec::new() };
        for (place, group) in groups.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("{}-{place}", disk.name)).spawn(move || group.run());
            threads.threads.push(thread.context("a thread for queues")?);
        }
        let threads = Arc::new(threads);
        let handle = |(mut queue, mailbox): (Box<Queue<S>>, _)| {
            queue.begin();
            doors[FIRST].enter(queue);
            QueueHandle { mailbox, _threads: threads.clone() }
        };
        Ok(queues.into_iter().map(handle).collect())
    }
}

/// The threads of a disk's queues. They end with the last handle.
#[derive(Debug)]
struct Threads<S: Source> {
    doors: Arc<[Door<S>]>,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Source> Drop for Threads<S> {
    fn drop(&mut self) {
        self.doors.iter().for_each(Door::close);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Another thread's handle to a queue. Dropping it completes the requests in flight, delivers everything held, and ends the queue.
#[derive(Debug)]
pub struct QueueHandle<S: Source> {
    mailbox: Mailbox<S>,
    _threads: Arc<Threads<S>>,
}

impl<S: Source> QueueHandle<S> {
    /// Sends a control message. Blocks while too many of them wait for the queue.
    pub fn send(&self, message: Control<S>) {
        self.mailbox.send(message);
    }

    /// Sends a control message, and waits for the answer. `None`: the thread has panicked, or another `Drain` replaced this one.
    pub fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Control<S>) -> Option<T> {
        self.ask_later(message).recv().ok()
    }

    /// Sends a control message, and returns the receiver of its answer.
    pub fn ask_later<T>(&self, message: impl FnOnce(Sender<T>) -> Control<S>) -> Receiver<T> {
        self.mailbox.ask_later(message)
    }

    /// Ends a wait of the queue, so that it asks its source for requests.
    pub fn wake(&self) {
        self.mailbox.wake();
    }

    /// Changes a part of the source, if there is one, and waits until it has changed.
    pub fn change(&self, part: Part, change: impl FnOnce(&mut S) + Send + 'static) {
        let _ = self.change_later(part, change).recv(); // fails only after a panic of the thread
    }

    /// The same, and returns the receiver of its answer, which nobody need wait for.
    pub fn change_later(&self, part: Part, change: impl FnOnce(&mut S) + Send + 'static) -> Receiver<()> {
        self.ask_later(|answer| Control::Change(part, Box::new(change), answer))
    }
}

impl<S: Source> Drop for QueueHandle<S> {
    fn drop(&mut self) {
        self.ask(Control::End);
    }
}
