//! One virtqueue as its driver sees it. The methods are those of `Queue`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use virtio_driver::{EventFd, QueueNotifier, VirtioTransport, iovec};

use crate::Error;
use crate::memory::{Buffers, Ring};
use crate::protocol::{BlkRequest, HEADER_BYTES};
use crate::request::{Kind, Request};

struct Pending<T> {
    context: T,
    block: Option<usize>,
}

/// A virtqueue with its eventfds. A completion returns the `T` that was submitted with the request.
pub struct VirtioQueue<T> {
    ring: Ring,
    buffers: Buffers,
    pending: Vec<Option<Pending<T>>>,
    call: Arc<EventFd>,
    kick: Box<dyn QueueNotifier>,
    event_idx: bool,
}

impl<T> VirtioQueue<T> {
    /// Creates the driver's side of queue `index`.
    pub fn new(index: usize, mut ring: Ring, buffers: Buffers, event_idx: bool) -> Result<Self, Error> {
        let call = ring.transport().get_completion_fd(index);
        let flags = OFlag::from_bits_retain(fcntl(call.as_fd(), FcntlArg::F_GETFL)?);
        fcntl(call.as_fd(), FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        // Without EVENT_IDX interrupts stay enabled. So every suppressed interrupt is the target's decision.
        ring.set_used_notif_enabled(true);
        Ok(Self {
            pending: (0..ring.queue_size()).map(|_| None).collect(),
            buffers,
            call,
            kick: ring.transport().get_submission_notifier(index),
            event_idx,
            ring,
        })
    }

    /// Puts a request into the ring. The device may see it before [`kick`](Self::kick). `fill` writes the data of a
    /// write.
    pub fn submit(&mut self, request: Request, context: T, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let block = match request.kind {
            Kind::Flush => None,
            _ => Some(self.buffers.take().ok_or(Error::Protocol("more requests than buffers"))?),
        };
        let data = block.map(|start| {
            let data = self.buffers.data(start);
            if request.kind == Kind::Write {
                fill(data);
            }
            iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() }
        });
        let id = self.ring.add_request(|shared, add| {
            let Request { kind, ioprio, sector } = request;
            *shared = BlkRequest { kind: kind as u32, ioprio, sector, status: 0xff };
            add(iovec { iov_base: (&raw mut *shared).cast(), iov_len: HEADER_BYTES }, false)?;
            if let Some(data) = data {
                add(data, request.kind == Kind::Read)?;
            }
            add(iovec { iov_base: (&raw mut shared.status).cast(), iov_len: 1 }, true)
        })?;
        self.pending[usize::from(id)] = Some(Pending { context, block });
        Ok(())
    }

    /// Kicks the device if it wants a kick. Returns whether it was kicked.
    pub fn kick(&mut self) -> Result<bool, Error> {
        // The driver crate has this fence for EVENT_IDX only. Without it the flags could be read before the device sees
        // the new index, and a kick that the device waits for would be lost.
        fence(Ordering::SeqCst);
        let wanted = self.ring.avail_notif_needed();
        if wanted {
            self.kick.notify()?;
        }
        Ok(wanted)
    }

    /// The number of interrupts since the last call. The target adds 1 to the call eventfd for each.
    pub fn take_interrupts(&self) -> Result<u64, Error> {
        match self.call.read() {
            Ok(count) => Ok(count),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Reaps every completion, as an interrupt handler does. `f` gets the context, the status and the data.
    pub fn reap(&mut self, mut f: impl FnMut(T, u16, &[u8])) -> Result<(), Error> {
        loop {
            if self.event_idx {
                self.ring.set_used_notif_enabled(false);
            }
            while let Some(done) = self.ring.completions().next() {
                let pending = self.pending[usize::from(done.id)].take();
                let pending = pending.ok_or(Error::Protocol("the used ring names a request that is not in flight"))?;
                match pending.block {
                    Some(start) => {
                        f(pending.context, done.req.status.into(), self.buffers.data(start));
                        self.buffers.give_back(start);
                    }
                    None => f(pending.context, done.req.status.into(), &[]),
                }
            }
            if !self.event_idx {
                return Ok(());
            }
            // Enable the interrupt for the next completion, then check again: the device may have completed a request
            // just before it could see that. (The driver crate puts the fence between the two.)
            self.ring.set_used_notif_enabled(true);
            if !self.ring.completions().has_next() {
                return Ok(());
            }
        }
    }

    /// The number of unreaped completions in the used ring. Only for failure reports: a driver that waits for
    /// interrupts does not check.
    pub fn unreaped(&mut self) -> u64 {
        self.ring.completions().size_hint().0 as u64
    }

    /// The call eventfd, to wait on.
    pub fn call(&self) -> Result<OwnedFd, Error> {
        Ok(self.call.as_fd().try_clone_to_owned()?)
    }
}
