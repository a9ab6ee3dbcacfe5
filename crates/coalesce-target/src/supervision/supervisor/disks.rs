//! The disks of a target, which are added and removed while it runs. The thread that keeps their processes does both, because a
//! disk's process ends with the thread that started it; others order it here, and wait.

use super::disk::Disk;
use crate::config::DiskConfig;
use anyhow::{Context as _, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, PoisonError, RwLock};

/// What is ordered.
#[derive(Debug)]
pub(super) enum Order {
    /// Serve this disk, too.
    Add(Box<DiskConfig>),
    /// Serve the disk of this name no longer.
    Remove(String),
}

/// Tells the client that ordered it when it is done.
pub(super) type Answer = Sender<Result<()>>;

/// The disks that are served.
#[derive(Debug)]
pub struct Disks {
    served: RwLock<Vec<Arc<Disk>>>,
    orders: Sender<(Order, Answer)>,
    has_orders: Arc<EventFd>,
}

/// The orders that wait.
#[derive(Debug)]
pub struct Orders {
    waiting: Receiver<(Order, Answer)>,
    has_orders: Arc<EventFd>, // readable while there are some
}

impl Disks {
    /// No disk, and where it is ordered to serve some.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn new() -> Result<(Self, Orders)> {
        let has_orders =
            Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).context("eventfd")?);
        let (orders, waiting) = channel();
        let disks = Self { served: RwLock::default(), orders, has_orders: has_orders.clone() };
        Ok((disks, Orders { waiting, has_orders }))
    }

    /// Those that are served at the moment, in the order in which they came.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Disk>> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves one more disk, with the options that it could have had at the start. Returns when it is served.
    ///
    /// # Errors
    /// It cannot be served; then it is not. Its name or its socket belongs to another.
    pub fn add(&self, config: DiskConfig) -> Result<()> {
        self.order(Order::Add(Box::new(config)))
    }

    /// Stops one disk in order, and removes its socket. Returns when it is gone: also after an error, which says how it ended.
    ///
    /// # Errors
    /// There is no such disk, it is being removed already, or it did not stop in order, or not in time; then it was killed.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.order(Order::Remove(name.to_owned()))
    }

    fn order(&self, order: Order) -> Result<()> {
        const ENDS: &str = "the target is ending";
        let (answer, answered) = channel();
        self.orders.send((order, answer)).ok().context(ENDS)?;
        let _ = self.has_orders.write(1); // fails only at the counter's maximum; then it is readable
        answered.recv().context(ENDS)?
    }

    pub(super) fn note_added(&self, disk: Arc<Disk>) {
        self.served.write().unwrap_or_else(PoisonError::into_inner).push(disk);
    }

    pub(super) fn note_removed(&self, disk: &Arc<Disk>) {
        self.served.write().unwrap_or_else(PoisonError::into_inner).retain(|served| !Arc::ptr_eq(served, disk));
    }
}

impl Orders {
    /// The next order.
    pub(super) fn next(&self) -> Option<(Order, Answer)> {
        let _ = self.has_orders.read(); // before the look, so that none is missed
        self.waiting.try_recv().ok()
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.has_orders.as_fd()
    }
}
