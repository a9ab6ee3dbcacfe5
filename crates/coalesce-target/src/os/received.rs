//! Receives bytes and files from a Unix socket. Every file that arrives is owned at once, also one that nobody expects.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// The most files that one call receives.
pub const FILES_MAX: usize = 32;

/// Receives at most `buffer.len()` bytes with the `flags` of recvmsg(2), and the files that came with them. No byte: the
/// other end has closed the socket.
///
/// # Errors
/// Those of recvmsg(2). Files are missing: there were more than [`FILES_MAX`], or the process has too few free
/// descriptors.
pub fn receive(stream: &UnixStream, buffer: &mut [u8], flags: libc::c_int) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u64; 2 + FILES_MAX / 2]; // a cmsghdr has 16 bytes, a file 4
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut slice, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), size_of_val(&control) as _);
    // SAFETY: the message points to the buffer and the control buffer above, and has their lengths.
    let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut files = Vec::new();
    // SAFETY: the kernel has filled the message in.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    if let Some(header) =
        header.filter(|header| (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS))
    {
        let count = (header.cmsg_len - size_of::<libc::cmsghdr>()) / size_of::<RawFd>();
        for i in 0..count {
            // SAFETY: the kernel has put `count` new descriptors behind the header, and nothing else owns them.
            files
                .push(unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().add(i).read_unaligned()) });
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::other("a message has too many files, or no descriptor is left for one of them"));
    }
    Ok((received as usize, files))
}
