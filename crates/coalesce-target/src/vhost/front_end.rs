//! A vhost-user front end of a disk, as its server sees it.

use super::vring::Vring;
use super::{Connection, INFLIGHT_LEN_MAX, QUEUE_SIZE_MAX};
use crate::config::DiskConfig;
use crate::disk::Disk;
use crate::front_end::FrontEnd;
use crate::queue::QueueThread;
use crate::received::receive;
use anyhow::Result;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use vhost::vhost_user::{BackendReqHandler, Error};

/// QEMU 11 sends no file for guest memory that is not shared.
const INVALID: &str =
    "a message is malformed, or its guest memory is not shared: QEMU needs share=on for its memory backend";

/// A front end that drives a virtio block device over vhost-user.
pub struct VhostUserBlk {
    stream: UnixStream,
    handler: BackendReqHandler<Mutex<Connection>>,
}

impl FrontEnd for VhostUserBlk {
    type Source = Vring;

    const REQUESTS_MAX: u16 = QUEUE_SIZE_MAX;
    const FILE_LEN_MAX: u64 = INFLIGHT_LEN_MAX;

    /// An interrupt and an error for each ring, and one more while a new eventfd replaces an old one.
    fn eventfds(queues: usize) -> usize {
        2 * queues + 1
    }

    fn connect(
        stream: UnixStream,
        disk: Arc<Disk>,
        queues: Arc<[QueueThread<Vring>]>,
        config: &DiskConfig,
    ) -> Result<Self> {
        let connection = Connection::new(disk, queues, config.event_idx, stream.try_clone()?.into());
        let handler = BackendReqHandler::from_stream(stream.try_clone()?, Arc::new(Mutex::new(connection)));
        Ok(Self { stream, handler })
    }

    fn handle_message(&mut self) -> Result<bool> {
        check_files(&self.stream)?;
        match self.handler.handle_request() {
            Ok(()) => Ok(true),
            Err(Error::Disconnected) => Ok(false),
            Err(Error::InvalidParam) => Err(anyhow::Error::from(Error::InvalidParam).context(INVALID)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Checks that the files of the next message can be received. If the process has too few descriptors, the kernel drops
/// files; the message reader would then take the rest of this message for the next one, and block.
///
/// # Errors
/// The process has too few free descriptors, or the message has more files than the protocol allows.
pub fn check_files(stream: &UnixStream) -> io::Result<()> {
    match receive(stream, &mut [0], libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        Err(error) if error.raw_os_error().is_none() => Err(error), // not one of recvmsg(2): files are missing
        _ => Ok(()),                                                // the reader of the message gets the same error
    }
}
