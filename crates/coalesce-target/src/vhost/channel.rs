//! The channel on which a front end hears from its back end (vhost-user, "Back-end message types"). The crate `vhost` takes the
//! message that brings it, but has no message for what is announced here.

use crate::os::received::receive;
use nix::sys::socket::{MsgFlags, send};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

/// Bytes of the header of a message: its number, its flags, the length of its payload.
const HEADER_LEN: usize = 12;
/// The message that brings the channel.
const SET_BACKEND_REQ_FD: u32 = 21;
/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`: the configuration space has changed. It has no payload.
const CONFIG_CHANGE: u32 = 2;
/// The flags of a message that wants no answer: the version of the protocol.
const VERSION: u32 = 1;

/// Looks at the next message, which stays to be read. Returns a duplicate of the channel that it brings, if it brings one.
///
/// It also checks that the files of the message can be received. If the process has too few descriptors, the kernel drops
/// files; the message reader would then take the rest of this message for the next one, and block.
///
/// # Errors
/// The process has too few free descriptors, or the message has more files than the protocol allows.
pub fn look_for(stream: &UnixStream) -> io::Result<Option<UnixStream>> {
    let mut header = [0; HEADER_LEN];
    match receive(stream, &mut header, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
        Err(error) if error.raw_os_error().is_none() => Err(error), // not one of recvmsg(2): files are missing
        Ok((HEADER_LEN, mut files)) if header[..4] == SET_BACKEND_REQ_FD.to_ne_bytes() => {
            Ok(files.pop().map(UnixStream::from))
        }
        _ => Ok(None), // the reader of the message gets the same error
    }
}

/// Announces that the configuration space has changed.
///
/// # Errors
/// The front end has closed the channel, or reads nothing from it.
pub fn announce_config(channel: &UnixStream) -> io::Result<()> {
    let message = [CONFIG_CHANGE, VERSION, 0].map(u32::to_ne_bytes).concat();
    match send(channel.as_raw_fd(), &message, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)? {
        HEADER_LEN => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()), // another message would begin in the middle of this one
    }
}
