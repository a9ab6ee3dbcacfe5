//! io_uring, in which a queue sleeps: until an operation of the back end completes, or a kick or a control message comes.
//! The policy's deadline is the timeout of that sleep, so a timer costs no system call.

use crate::os::uring::restricted;
use anyhow::{Context as _, Result};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::error;
use vmm_sys_util::eventfd::EventFd;

/// Operations that the io_uring of a queue may perform.
const OPERATIONS: [u8; 8] = [
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::Timeout::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
];

/// The pause before a retry after an unexpected error of io_uring_enter.
const ENTER_PAUSE: Duration = Duration::from_millis(10);

// User data of entries that are not operations. The user data of an operation is its id, which is smaller.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
const KICK: u64 = 1 << 32; // plus the generation of the descriptor, as a poll can outlive it

/// An event of the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation has completed.
    Done {
        /// Its id.
        id: usize,
        /// Its result as in io_uring: negative for an error.
        result: i32,
    },
    /// A kick.
    Kick,
    /// A control message, or an event that the queue ignores.
    Other,
}

/// The io_uring of one queue.
pub struct Reactor {
    uring: IoUring,
    wake: Arc<EventFd>,
    is_wake_armed: bool,
    kick_generation: u64,
    is_kick_armed: bool,
    owner: (String, u64), // disk and queue, for the log
    enters: u64,
}

impl Reactor {
    /// A reactor that queues up to `entries` operations for one call of the kernel; more may be in flight. `wake` ends a
    /// wait; it is polled, never read. `owner` is a disk and its queue, for the log.
    ///
    /// # Errors
    /// The kernel has no io_uring, or forbids it.
    pub fn new(entries: u32, wake: Arc<EventFd>, owner: (String, u64)) -> Result<Self> {
        let uring = restricted(entries, &OPERATIONS, &[]).context(
            "io_uring is not available (Linux 5.13 or newer is needed; containers and sysctl kernel.io_uring_disabled can forbid it)",
        )?;
        Ok(Self { uring, wake, is_wake_armed: false, kick_generation: 0, is_kick_armed: false, owner, enters: 0 })
    }

    /// Queues an operation for the next [`submit`](Self::submit) or [`wait`](Self::wait).
    ///
    /// # Safety
    /// What the operation points to stays mapped, and its descriptor open, until its completion has been reaped.
    pub unsafe fn push(&mut self, id: usize, entry: squeue::Entry) {
        // SAFETY: as the caller promises.
        unsafe { self.push_entry(&entry.user_data(id as u64)) }
    }

    /// # Safety
    /// As for [`push`](Self::push).
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: as the caller promises.
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            self.submit();
        }
    }

    /// Submits what is queued.
    pub fn submit(&mut self) {
        if !self.uring.submission().is_empty() {
            self.enter(|uring| uring.submit());
        }
    }

    /// Submits what is queued, and waits for an event for at most `timeout_ns`.
    pub fn wait(&mut self, timeout_ns: Option<u64>) {
        self.enter(|uring| match timeout_ns {
            None => uring.submit_and_wait(1),
            Some(ns) => {
                let timespec = types::Timespec::from(Duration::from_nanos(ns));
                uring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec))
            }
        });
    }

    /// Calls io_uring_enter. After an error it returns, perhaps without an event, and the queued operations stay queued.
    fn enter(&mut self, enter: impl FnOnce(&IoUring) -> std::io::Result<usize>) {
        self.enters += 1;
        let expected = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY];
        match enter(&self.uring) {
            Err(error) if !expected.contains(&error.raw_os_error().unwrap_or(0)) => {
                let (disk, queue) = (&self.owner.0, self.owner.1);
                error!(disk, queue, "io_uring_enter: {error}: trying again");
                std::thread::sleep(ENTER_PAUSE);
            }
            _ => {}
        }
    }

    /// Calls of io_uring_enter since the last call of this function.
    pub const fn take_enters(&mut self) -> u64 {
        std::mem::replace(&mut self.enters, 0)
    }

    /// Whether there is an event to reap.
    pub fn has_events(&mut self) -> bool {
        !self.uring.completion().is_empty()
    }

    /// Appends the reaped events to `events`.
    pub fn reap(&mut self, events: &mut Vec<Event>) {
        for entry in self.uring.completion() {
            let (user_data, result, is_armed) = (entry.user_data(), entry.result(), cqueue::more(entry.flags()));
            events.push(match user_data {
                WAKE => {
                    self.is_wake_armed = is_armed;
                    Event::Other
                }
                CANCEL => Event::Other,
                kick if kick & KICK != 0 => {
                    if kick == KICK | self.kick_generation {
                        self.is_kick_armed = is_armed;
                    }
                    if result > 0 { Event::Kick } else { Event::Other }
                }
                id => Event::Done { id: id as usize, result },
            });
        }
    }

    /// Lets a control message end a wait, from now on.
    pub fn arm_wake(&mut self) {
        if !self.is_wake_armed {
            let poll = opcode::PollAdd::new(types::Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).multi(true);
            // SAFETY: there is no buffer, and the kernel keeps the file of a poll.
            unsafe { self.push_entry(&poll.build().user_data(WAKE)) };
            self.is_wake_armed = true;
        }
    }

    /// Lets a kick end a wait, from now on.
    pub fn arm_kick(&mut self, kick: BorrowedFd<'_>) {
        if !self.is_kick_armed {
            let poll = opcode::PollAdd::new(types::Fd(kick.as_raw_fd()), libc::POLLIN as u32).multi(true);
            let poll = poll.build().user_data(KICK | self.kick_generation);
            // SAFETY: there is no buffer, and the descriptor stays open until the entry is submitted, because the poll
            // is disarmed before the descriptor is closed.
            unsafe { self.push_entry(&poll) };
            self.is_kick_armed = true;
        }
    }

    /// Begins to disarm the poll for kicks. It is disarmed when [`is_kick_armed`](Self::is_kick_armed) returns false.
    pub fn disarm_kick(&mut self) {
        if self.is_kick_armed {
            // Not PollRemove, which fails if a kick arrives at the same moment.
            let cancel = opcode::AsyncCancel::new(KICK | self.kick_generation).build().user_data(CANCEL);
            // SAFETY: there is neither a buffer nor a descriptor.
            unsafe { self.push_entry(&cancel) };
        }
    }

    /// Whether io_uring polls for kicks.
    pub const fn is_kick_armed(&self) -> bool {
        self.is_kick_armed
    }

    /// Prepares for another kick descriptor: events of the earlier ones no longer change whether the poll is armed.
    pub const fn next_kick(&mut self) {
        self.kick_generation += 1;
    }
}
