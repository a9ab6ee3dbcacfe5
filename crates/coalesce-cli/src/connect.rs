//! Connects to a Unix socket in bounded time.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect as begin, socket};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
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

/// How long a server that has just been started may take until it listens.
const START: Duration = Duration::from_secs(2);

/// As [`connect`], to a server that was perhaps just started, as by the line before in a script.
///
/// # Errors
/// As there, after two seconds in which nobody listens.
pub fn connect_to_new(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let deadline = Instant::now() + START.min(patience);
    loop {
        match connect(path, patience) {
            Err(error) if is_not_there(&error) && Instant::now() < deadline => sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

fn is_not_there(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn a_server_that_has_just_been_started_is_waited_for() {
        let path = std::env::temp_dir().join(format!("coalesce-new-{}", std::process::id()));
        assert_eq!(connect(&path, START).map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
        let server = thread::spawn({
            let path = path.clone();
            move || {
                sleep(Duration::from_millis(100));
                let listener = UnixListener::bind(&path).expect("it binds");
                listener.accept().map(drop)
            }
        });
        let client = connect_to_new(&path, START);
        let accepted = server.join().expect("no panic");
        std::fs::remove_file(&path).expect("it was bound");
        assert!(client.is_ok() && accepted.is_ok(), "{client:?} {accepted:?}");
        let nobody = connect_to_new(&path, Duration::from_millis(50));
        assert_eq!(nobody.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    }
}
