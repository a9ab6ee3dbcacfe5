//! One queue of a device as its driver sees it: submit, kick, take interrupts, reap completions.

use std::os::fd::OwnedFd;

use crate::Error;
use crate::nvme::NvmeQueue;
use crate::request::Request;
use crate::virtio_queue::VirtioQueue;

/// A queue of any device. A completion returns the `T` that was submitted with the request.
pub enum Queue<T> {
    Virtio(Box<VirtioQueue<T>>),
    Nvme(Box<NvmeQueue<T>>),
}

impl<T> Queue<T> {
    /// Puts a request into the queue. The device may see it before [`kick`](Self::kick). `fill` writes the data of a write.
    pub fn submit(&mut self, request: Request, context: T, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        match self {
            Self::Virtio(queue) => queue.submit(request, context, fill),
            Self::Nvme(queue) => queue.submit(request, context, fill),
        }
    }

    /// Kicks the device if it wants a kick. Returns whether it was kicked.
    pub fn kick(&mut self) -> Result<bool, Error> {
        match self {
            Self::Virtio(queue) => queue.kick(),
            Self::Nvme(queue) => queue.kick(),
        }
    }

    /// The number of interrupts since the last call. The target adds 1 to the eventfd for each.
    pub fn take_interrupts(&self) -> Result<u64, Error> {
        match self {
            Self::Virtio(queue) => queue.take_interrupts(),
            Self::Nvme(queue) => queue.take_interrupts(),
        }
    }

    /// Reaps every completion, as an interrupt handler does. `f` gets the context, the status and the data. Returns whether
    /// the device was kicked, because it waits for room.
    pub fn reap(&mut self, f: impl FnMut(T, u16, &[u8])) -> Result<bool, Error> {
        match self {
            Self::Virtio(queue) => queue.reap(f).map(|()| false),
            Self::Nvme(queue) => queue.reap(f),
        }
    }

    /// The number of unreaped completions. Only for failure reports: a driver that waits for interrupts does not check.
    pub fn unreaped(&self) -> u64 {
        match self {
            Self::Virtio(queue) => queue.unreaped(),
            Self::Nvme(queue) => queue.unreaped(),
        }
    }

    /// The eventfd with the interrupts, to wait on.
    pub fn call(&self) -> Result<OwnedFd, Error> {
        match self {
            Self::Virtio(queue) => queue.call(),
            Self::Nvme(queue) => queue.call(),
        }
    }
}
