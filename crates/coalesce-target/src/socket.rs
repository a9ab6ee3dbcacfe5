//! Unix sockets: bound here and removed when they are no longer needed, or inherited.

use crate::config::{Mode, inherited};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike as _, SockaddrStorage, UnixAddr, getsockname, getsockopt,
    listen, socket, sockopt,
};
use nix::sys::stat::{Mode as Bits, fchmod};
use nix::unistd::{Gid, Group};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::warn;

/// The longest path that fits into a socket's address, in bytes without the terminating zero.
const PATH_MAX: usize = 107;

/// How long to wait for a killed process to release its socket or its lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// The permissions of a socket.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Its mode.
    pub mode: Mode,
    /// Its group, by name or number; that of the process if not given.
    pub group: Option<String>,
}

/// Where clients come from.
#[derive(Debug)]
pub enum Door {
    /// They connect here.
    Listener(UnixListener),
    /// One is connected already, and no other can come.
    Connected(UnixStream),
}

impl From<OwnedFd> for Door {
    /// Asks the kernel which of both the socket is.
    fn from(socket: OwnedFd) -> Self {
        match getsockopt(&socket, sockopt::AcceptConn) {
            Ok(false) => Self::Connected(socket.into()),
            _ => Self::Listener(socket.into()),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(socket) => socket.as_fd(),
            Self::Connected(socket) => socket.as_fd(),
        }
    }
}

/// A socket that is open, and its place in the file system.
#[derive(Debug)]
pub struct BoundSocket {
    door: Door,
    file: Option<(PathBuf, u64)>, // with its inode; `None`: inherited, so its owner removes it
}

impl BoundSocket {
    /// Listens at `path`. Replaces a socket on which no process listens any more, and nothing else. `/dev/fd/N` is the
    /// socket that this process has inherited as descriptor N, which may be connected already.
    ///
    /// # Errors
    /// A process listens at `path`, the path is not a socket, or binding fails.
    pub fn bind(path: &Path, access: &Access) -> Result<Self> {
        let named = || format!("socket {}", path.display());
        if let Some(fd) = inherited(path) {
            return Ok(Self { door: inherit(fd).with_context(named)?, file: None });
        }
        let len = path.as_os_str().len();
        if len > PATH_MAX {
            bail!("{}: the path has {len} bytes; allowed: at most {PATH_MAX}", named());
        }
        let group = access.group.as_deref().map(group_id).transpose().with_context(named)?;
        let _lock = lock_directory(path).with_context(named)?;
        remove_abandoned(path)?;
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).with_context(named)?;
        // The file takes its mode from the socket. So others can connect at no moment, whatever the umask is.
        fchmod(&socket, Bits::S_IRUSR | Bits::S_IWUSR).with_context(named)?;
        let address = UnixAddr::new(path).with_context(named)?;
        nix::sys::socket::bind(socket.as_raw_fd(), &address).with_context(named)?;
        let inode = path.symlink_metadata().with_context(named)?.ino();
        let bound = Self { door: Door::Listener(socket.into()), file: Some((path.into(), inode)) };
        listen(&bound.door, Backlog::MAXALLOWABLE).with_context(named)?;
        std::os::unix::fs::chown(path, None, group.map(Gid::as_raw)).with_context(named)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(access.mode.0)).with_context(named)?;
        Ok(bound)
    }

    /// Where its clients come from.
    #[must_use]
    pub const fn door(&self) -> &Door {
        &self.door
    }
}

fn inherit(fd: RawFd) -> Result<Door> {
    ensure!(fd > 2, "descriptors 0 to 2 are standard input, output and error; allowed: 3 or more");
    // SAFETY: it is borrowed only to ask whether it is open.
    let flags =
        fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, FcntlArg::F_GETFD).context("this process has not inherited it")?;
    // What this process opened itself closes with it.
    ensure!(!FdFlag::from_bits_truncate(flags).contains(FdFlag::FD_CLOEXEC), "this process has not inherited it");
    // SAFETY: it is open, and was inherited, so nothing here owns it. From now on it is marked as owned.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let is_stream = getsockopt(&socket, sockopt::SockType).context("it is not a socket")? == SockType::Stream;
    let family = getsockname::<SockaddrStorage>(fd)?.family();
    ensure!(is_stream && family == Some(AddressFamily::Unix), "it is not a Unix stream socket");
    Ok(socket.into())
}

fn group_id(name: &str) -> Result<Gid> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    let group = Group::from_name(name).with_context(|| format!("group {name}"))?;
    Ok(group.ok_or_else(|| anyhow!("group {name} is unknown"))?.gid)
}

/// Serializes processes that start at the same time. Without it, each might remove the socket that the other has just
/// bound. Every user who can read the directory can lock it, so the wait for the lock is bounded.
fn lock_directory(path: &Path) -> std::io::Result<Option<Flock<File>>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = File::open(directory)?;
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((again, _)) => file = again,
        }
        sleep(Duration::from_millis(5));
    }
    warn!("somebody holds a lock on {}: going on without it", directory.display());
    Ok(None)
}

fn remove_abandoned(path: &Path) -> Result<()> {
    let named = || format!("socket {}", path.display());
    let start = Instant::now();
    loop {
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(named),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                bail!("{} exists and is not a socket: it is left alone", named())
            }
            Ok(_) => {}
        }
        let rest = PATIENCE.saturating_sub(start.elapsed());
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return std::fs::remove_file(path).with_context(named);
            }
            Ok(stream) if !rest.is_zero() && hangs_up_within(&stream, rest) => sleep(Duration::from_millis(10)),
            _ => bail!("{} is in use by another process", named()),
        }
    }
}

/// Whether the peer closes `stream` within `time`. A process that ends closes the connections that it has not accepted.
fn hangs_up_within(stream: &UnixStream, time: Duration) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLHUP)];
    poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) == Ok(1)
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.file
            && path.symlink_metadata().is_ok_and(|metadata| metadata.ino() == *inode)
        {
            let _ = std::fs::remove_file(path); // it may have been removed meanwhile
        }
    }
}

/// The connection that a listener accepted. `None`: the client has gone, or the process has no free descriptor at the
/// moment.
#[must_use]
pub fn accepted<S, A>(outcome: std::io::Result<(S, A)>) -> Option<S> {
    if outcome.is_err() {
        sleep(Duration::from_millis(10)); // the listener stays ready; retrying at once would spin
    }
    outcome.ok().map(|(stream, _)| stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn bind(path: &Path) -> Result<BoundSocket> {
        BoundSocket::bind(path, &Access::default())
    }

    #[test]
    fn only_an_abandoned_socket_is_replaced() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("s");
        let message = |path: &Path| format!("{:#}", bind(path).unwrap_err());

        let socket = bind(&path).unwrap();
        assert!(message(&path).contains("is in use by another process"));
        drop(socket);
        assert!(!path.exists(), "removed");

        drop(UnixListener::bind(&path).unwrap()); // as after kill -9
        assert!(path.exists());
        drop(bind(&path).unwrap());

        std::fs::write(&path, "precious").unwrap();
        assert!(message(&path).contains("is not a socket"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert!(message(&directory.path().join("no/such/place")).contains("No such file"));
    }

    #[test]
    fn of_two_processes_that_start_together_exactly_one_gets_the_socket() {
        let directory = tempfile::TempDir::new().unwrap();
        for round in 0..2 {
            let path = directory.path().join(format!("s{round}"));
            drop(UnixListener::bind(&path).unwrap());
            let start = Barrier::new(2);
            let bound: Vec<_> = std::thread::scope(|scope| {
                let one = || {
                    start.wait();
                    bind(&path).ok()
                };
                let threads = [scope.spawn(one), scope.spawn(one)];
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(bound.len(), 1);
            UnixStream::connect(&path).expect("the winner listens");
        }
    }

    #[test]
    fn the_wait_for_a_lock_of_another_process_is_bounded() {
        let directory = tempfile::TempDir::new().unwrap();
        let theirs = File::open(directory.path()).unwrap();
        let _lock = Flock::lock(theirs, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error).unwrap();
        bind(&directory.path().join("s")).unwrap();
    }

    #[test]
    fn a_socket_has_the_configured_mode_and_group_whatever_the_umask() {
        let directory = tempfile::TempDir::new().unwrap();
        let before = nix::sys::stat::umask(Bits::empty());
        let group = nix::unistd::getgid().to_string();
        for mode in [0o600, 0o660, 0o666] {
            let path = directory.path().join(format!("{mode:o}"));
            let access = Access { mode: Mode(mode), group: Some(group.clone()) };
            let _socket = BoundSocket::bind(&path, &access).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        }
        nix::sys::stat::umask(before);
        let access = Access { group: Some("no such group".into()), ..Access::default() };
        let error = BoundSocket::bind(&directory.path().join("s"), &access).unwrap_err();
        assert!(format!("{error:#}").contains("group no such group is unknown"), "{error:#}");
        assert!(!directory.path().join("s").exists());
    }
}
