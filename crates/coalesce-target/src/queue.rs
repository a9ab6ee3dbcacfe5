//! One queue of one disk, on a thread of its own. It takes requests from a source, gives them to the back end, posts their
//! completions, and interrupts when the policy says so. It knows no front end: see [`Source`].

mod aside;
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
use mailbox::{Mailbox, mailbox};
use serving::Queue;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
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

/// A queue with its descriptors and its policy, before its thread starts: only the start can still fail.
pub struct PreparedQueue<S: Source> {
    name: String,
    queue: Queue<S>,
    mailbox: Mailbox<S>,
}

impl<S: Source> PreparedQueue<S> {
    /// Queue number `index` of a disk.
    ///
    /// # Errors
    /// No descriptor is free, there is no io_uring, or a parameter of the policy is out of range for a clock in
    /// nanoseconds.
    pub fn new(index: usize, disk: Arc<Disk>, config: &QueueConfig) -> Result<Self> {
        let (mailbox, inbox) = mailbox()?;
        let name = format!("{}-{index}", disk.name);
        Ok(Self { name, queue: Queue::new(index, disk, config, inbox)?, mailbox })
    }

    /// Sets the policy.
    ///
    /// # Errors
    /// The policy is refused.
    pub fn set_policy(&mut self, policy: Spec) -> Result<(), SpecError> {
        self.queue.set_policy(policy, false)
    }
}

/// Another thread's handle to the thread of a queue. Dropping it completes the requests in flight, delivers everything
/// held, and ends the thread.
#[derive(Debug)]
pub struct QueueThread<S: Source> {
    mailbox: Mailbox<S>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Source> QueueThread<S> {
    /// Starts the thread of a queue.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn spawn(prepared: PreparedQueue<S>) -> Result<Self> {
        let PreparedQueue { name, queue, mailbox } = prepared;
        let thread = std::thread::Builder::new().name(name).spawn(move || queue.run());
        Ok(Self { mailbox, thread: Some(thread.context("a thread for a queue")?) })
    }

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
        self.ask(|answer| Control::Change(part, Box::new(change), answer));
    }
}

impl<S: Source> Drop for QueueThread<S> {
    fn drop(&mut self) {
        self.send(Control::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
