//! io_uring, in which a thread sleeps: until an operation of the back end completes, or a kick or a control message comes.
//! The policy's deadline is the timeout of that sleep, so a timer costs no system call.

use crate::os::uring::restricted;
use anyhow::{Context as _, Result};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;
use tracing::error;

/// Operations that the io_uring may perform.
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

/// The most entries of a completion queue that the kernel gives. What is more waits in the kernel.
const COMPLETIONS_MAX: u32 = 65536;

/// What a queue is woken by, beside its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The descriptor of its mailbox.
    Wake,
    /// The descriptor that its guest kicks.
    Kick,
}

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

/// The user data of an entry: the queue in bits 63:48, the kind in bits 47:32, and an operation's id or a poll's generation.
#[derive(Clone, Copy, Debug)]
struct UserData {
    queue: usize,
    kind: u16,
    number: u32,
}

const OPERATION: u16 = 0;
const POLL: [u16; 2] = [1, 2]; // by `Watched`
const CANCEL: u16 = 3;

impl UserData {
    const fn pack(self) -> u64 {
        (self.queue as u64) << 48 | (self.kind as u64) << 32 | self.number as u64
    }

    const fn unpack(bits: u64) -> Self {
        Self { queue: (bits >> 48) as usize, kind: (bits >> 32) as u16, number: bits as u32 }
    }
}

/// A poll of a descriptor that is polled, never read.
#[derive(Clone, Copy, Debug, Default)]
struct Poll {
    generation: u32, // of the descriptor, as an event of a poll can outlive it
    is_armed: bool,
}

/// The io_uring of a thread that serves queues.
pub struct Reactor {
    uring: IoUring,
    polls: Vec<[Poll; 2]>,           // by queue and `Watched`
    early: VecDeque<(usize, Event)>, // reaped while something else was waited for
    owner: String,                   // for the log
    enters: u64,
    in_flight: u32, // operations
}

impl Reactor {
    /// A reactor for queues with numbers below `queues`. It queues up to `entries` operations for one call of the kernel; `depth` of
    /// all of them are in flight. `owner` is a disk, for the log.
    ///
    /// # Errors
    /// The kernel has no io_uring, or forbids it.
    pub fn new(queues: usize, (entries, depth): (u32, u32), owner: String) -> Result<Self> {
        let completions = (2 * (depth + 4 * queues as u32)).min(COMPLETIONS_MAX);
        let uring = restricted(entries, completions, &OPERATIONS, &[]).context(
            "io_uring is not available (Linux 5.13 or newer is needed; containers and sysctl kernel.io_uring_disabled can forbid it)",
        )?;
        Ok(Self {
            uring,
            polls: vec![Default::default(); queues],
            early: VecDeque::new(),
            owner,
            enters: 0,
            in_flight: 0,
        })
    }

    /// Queues an operation of a queue for the next [`submit`](Self::submit) or [`wait`](Self::wait).
    ///
    /// # Safety
    /// What the operation points to stays mapped, and its descriptor open, until its completion has been reaped.
    pub unsafe fn push(&mut self, queue: usize, id: usize, entry: squeue::Entry) {
        let user_data = UserData { queue, kind: OPERATION, number: id as u32 };
        self.in_flight += 1;
        // SAFETY: as the caller promises.
        unsafe { self.push_entry(&entry.user_data(user_data.pack())) }
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
        if !self.early.is_empty() {
            return self.submit();
        }
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
                error!(disk = self.owner, "io_uring_enter: {error}: trying again");
                std::thread::sleep(ENTER_PAUSE);
            }
            _ => {}
        }
    }

    /// Calls of io_uring_enter since the last call of this function.
    pub const fn take_enters(&mut self) -> u64 {
        std::mem::replace(&mut self.enters, 0)
    }

    /// Whether all operations have completed and were reaped.
    pub const fn is_still(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether there is an event to reap.
    pub fn has_events(&mut self) -> bool {
        !self.early.is_empty() || !self.uring.completion().is_empty()
    }

    /// Appends the reaped events, each with its queue, to `events`.
    pub fn reap(&mut self, events: &mut Vec<(usize, Event)>) {
        events.extend(self.early.drain(..));
        let Self { uring, polls, in_flight, .. } = self;
        events.extend(uring.completion().filter_map(|entry| event(polls, in_flight, &entry)));
    }

    /// Lets a descriptor end a wait from now on, with an event of this queue. It stays open until
    /// [`unwatch`](Self::unwatch).
    pub fn watch(&mut self, queue: usize, what: Watched, fd: BorrowedFd<'_>) {
        let poll = &mut self.polls[queue][what as usize];
        if !poll.is_armed {
            poll.is_armed = true;
            let user_data = UserData { queue, kind: POLL[what as usize], number: poll.generation };
            let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
            // SAFETY: there is no buffer, and the descriptor stays open until the entry is submitted.
            unsafe { self.push_entry(&entry.user_data(user_data.pack())) };
        }
    }

    /// Ends the poll of a descriptor, and waits until it has ended. Its later events are no events.
    pub fn unwatch(&mut self, queue: usize, what: Watched) {
        let Poll { generation, is_armed } = self.polls[queue][what as usize];
        if is_armed {
            // Not PollRemove, which fails if an event arrives at the same moment.
            let user_data = UserData { queue, kind: POLL[what as usize], number: generation };
            let cancel = opcode::AsyncCancel::new(user_data.pack()).build();
            let user_data = UserData { queue, kind: CANCEL, number: 0 };
            // SAFETY: there is neither a buffer nor a descriptor.
            unsafe { self.push_entry(&cancel.user_data(user_data.pack())) };
        }
        while self.polls[queue][what as usize].is_armed {
            self.enter(|uring| uring.submit_and_wait(1));
            let Self { uring, polls, in_flight, early, .. } = self;
            early.extend(uring.completion().filter_map(|entry| event(polls, in_flight, &entry)));
        }
        self.polls[queue][what as usize].generation = generation.wrapping_add(1);
    }
}

/// The event of a completion queue entry, and the queue that it is for.
fn event(polls: &mut [[Poll; 2]], in_flight: &mut u32, entry: &cqueue::Entry) -> Option<(usize, Event)> {
    let UserData { queue, kind, number } = UserData::unpack(entry.user_data());
    let event = match kind {
        OPERATION => {
            *in_flight -= 1;
            Event::Done { id: number as usize, result: entry.result() }
        }
        CANCEL => return None,
        poll => {
            let what = usize::from(poll == POLL[Watched::Kick as usize]);
            let poll = &mut polls[queue][what];
            if poll.generation != number {
                return None;
            }
            poll.is_armed = cqueue::more(entry.flags());
            if what == Watched::Kick as usize && entry.result() > 0 { Event::Kick } else { Event::Other }
        }
    };
    Some((queue, event))
}
