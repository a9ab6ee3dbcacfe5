//! A vhost-user front end of a disk, as its server sees it.

use super::vring::Vring;
use super::{Connection, INFLIGHT_LEN_MAX, QUEUE_SIZE_MAX};
use crate::config::DiskConfig;
use crate::disk::Disk;
use crate::front_end::FrontEnd;
use crate::queue::QueueThread;
use anyhow::Result;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use vhost::vhost_user::{BackendReqHandler, Error};

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
    let mut byte = 0_u8;
    let mut slice = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 2 + FILES_MAX / 2]; // a cmsghdr has 16 bytes, a file 4
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut slice, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), size_of_val(&control) as _);
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message points to the byte and the control buffer above, and has their lengths.
    if unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, flags) } < 0 {
        return Ok(()); // the reader of the message gets the same error
    }
    // SAFETY: the kernel has filled the message in.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    if let Some(header) =
        header.filter(|header| (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
    {
        let files = (header.cmsg_len - size_of::<libc::cmsghdr>()) / size_of::<RawFd>();
        for i in 0..files {
            // SAFETY: the kernel has put `files` new descriptors behind the header, and nothing else owns them.
            drop(unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().add(i).read_unaligned()) });
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("a message has too many files, or no descriptor is left for one of them"));
    }
    Ok(())
}

/// The most files in one message.
const FILES_MAX: usize = 32;
