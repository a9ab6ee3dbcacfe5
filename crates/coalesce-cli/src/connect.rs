//! Connects to a Unix socket in bounded time.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect as begin, socket};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to the socket at `path`. A server that accepts nobody has a queue of clients, and where that is full `UnixStream`
/// waits for ever; this waits for `patience`.
///
/// # Errors
/// Nobody listens there, or the queue stays full (`TimedOut`).
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let address = UnixAddr::new(path)?;
    let stream = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?);
    let full = || io::Error::new(io::ErrorKind::TimedOut, "its queue of clients is full, and it accepts none");
    let deadline = Instant::now() + patience;
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(full());
        }
        stream.set_write_timeout(Some(rest))?; // connect(2) waits as long as a send does
        match begin(stream.as_raw_fd(), &address) {
            Ok(()) => break,
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Err(full()),
            Err(error) => return Err(error.into()),
        }
    }
    stream.set_write_timeout(None)?;
    Ok(stream)
}
