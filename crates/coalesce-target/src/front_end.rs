//! What a disk's server needs of a front end, whichever protocol it speaks.

use crate::config::DiskConfig;
use crate::disk::Disk;
use crate::queue::QueueHandle;
use crate::source::Source;
use anyhow::Result;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// A front end that is connected: a virtual machine monitor, or a client that does what one does. It starts, changes and
/// stops the sources of the disk's queues, as its messages say. Dropping it stops them all.
pub trait FrontEnd: Sized + 'static {
    /// What its queues serve.
    type Source: Source;

    /// Requests that a source can have in flight, at most.
    const REQUESTS_MAX: u16;
    /// Bytes of the largest file that it creates.
    const FILE_LEN_MAX: u64;
    /// Why a guest that does not hear of another size does not: see [`hears_of_size`](Self::hears_of_size).
    const DEAF: &'static str;

    /// Eventfds that a disk with this number of queues signals at a time, at most.
    fn eventfds(queues: usize) -> usize;

    /// The front end at the other end of `stream`.
    ///
    /// # Errors
    /// No descriptor is left.
    fn connect(
        stream: UnixStream,
        disk: Arc<Disk>,
        queues: Arc<[QueueHandle<Self::Source>]>,
        config: &DiskConfig,
    ) -> Result<Self>;

    /// When [`attend`](Self::attend) is due, even if no message comes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// A descriptor that becomes readable when [`attend`](Self::attend) is due.
    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does what is due without a message. Harmless at any time.
    fn attend(&mut self) {}

    /// Tells the guest that the disk has another size, if it [hears](Self::hears_of_size) of it.
    fn size_has_changed(&mut self);

    /// Whether the guest is told of another size while it runs. If not, it sees the size when its driver starts anew.
    fn hears_of_size(&self) -> bool;

    /// Handles its next message, which it waits for. False: it has disconnected.
    ///
    /// # Errors
    /// It broke the protocol, or wants what it may not have. This ends the connection.
    fn handle_message(&mut self) -> Result<bool>;
}
