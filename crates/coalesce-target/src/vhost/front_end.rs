//! A vhost-user front end of a disk, as its server sees it.

use super::channel;
use super::vring::Vring;
use super::{Connection, INFLIGHT_LEN_MAX, QUEUE_SIZE_MAX};
use crate::config::DiskConfig;
use crate::disk::Disk;
use crate::front_end::FrontEnd;
use crate::queue::QueueHandle;
use anyhow::Result;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vhost::vhost_user::{BackendReqHandler, Error};

/// QEMU 11 sends no file for guest memory that is not shared.
const INVALID: &str =
    "a message is malformed, or its guest memory is not shared: QEMU needs share=on for its memory backend";

/// A front end that drives a virtio block device over vhost-user.
pub struct VhostUserBlk {
    stream: UnixStream,
    connection: Arc<Mutex<Connection>>,
    handler: BackendReqHandler<Mutex<Connection>>,
}

impl VhostUserBlk {
    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FrontEnd for VhostUserBlk {
    type Source = Vring;

    const REQUESTS_MAX: u16 = QUEUE_SIZE_MAX;
    const FILE_LEN_MAX: u64 = INFLIGHT_LEN_MAX;
    const DEAF: &'static str = "its front end has set up no channel (VHOST_USER_PROTOCOL_F_BACKEND_REQ)";

    /// An interrupt and an error for each ring, and one more while a new eventfd replaces an old one.
    fn eventfds(queues: usize) -> usize {
        2 * queues + 1
    }

    fn connect(
        stream: UnixStream,
        disk: Arc<Disk>,
        queues: Arc<[QueueHandle<Vring>]>,
        config: &DiskConfig,
    ) -> Result<Self> {
        let connection = Connection::new(disk, queues, config.event_idx, stream.try_clone()?.into());
        let connection = Arc::new(Mutex::new(connection));
        let handler = BackendReqHandler::from_stream(stream.try_clone()?, connection.clone());
        Ok(Self { stream, connection, handler })
    }

    fn hears_of_size(&self) -> bool {
        self.connection().has_channel()
    }

    fn size_has_changed(&mut self) {
        self.connection().announce_config();
    }

    fn handle_message(&mut self) -> Result<bool> {
        let channel = channel::look_for(&self.stream)?;
        self.connection().expect_channel(channel);
        match self.handler.handle_request() {
            Ok(()) => Ok(true),
            Err(Error::Disconnected) => Ok(false),
            Err(Error::InvalidParam) => Err(anyhow::Error::from(Error::InvalidParam).context(INVALID)),
            Err(error) => Err(error.into()),
        }
    }
}
