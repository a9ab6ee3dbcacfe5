//! Unix sockets: bound here and removed when they are no longer needed, or inherited.

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FcntlArg, FdFlag, OFlag, fcntl, openat};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike as _, SockaddrStorage, UnixAddr, connect, getsockname,
    getsockopt, listen, socket, sockopt,
};
use nix::sys::stat::{FileStat, Mode as Bits, SFlag, fchmod, fstat, fstatat};
use nix::unistd::{Gid, Group, UnlinkatFlags, fchownat, unlinkat};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::warn;

/// The longest path that fits into a socket's address, in bytes without the terminating zero.
const PATH_MAX: usize = 107;

/// How long a process may take to release its socket after it was killed.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// The mode of a socket to which only its owner can connect.
pub const OWNER_ONLY: u32 = 0o600;

/// The permissions of a socket.
#[derive(Clone, Debug)]
pub struct Access {
    /// Its mode, 0 to 0o777.
    pub mode: u32,
    /// Its group, by name or number; that of the process if not given.
    pub group: Option<String>,
}

impl Default for Access {
    fn default() -> Self {
        Self { mode: OWNER_ONLY, group: None }
    }
}

/// The descriptor that `/dev/fd/N` names: a socket that this process has inherited.
#[must_use]
pub fn inherited(path: &Path) -> Option<RawFd> {
    path.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
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
    // Removes it while it is open, so that nobody replaces it before. `None`: inherited, so its owner removes it.
    _place: Option<Place>,
    door: Door,
}

impl BoundSocket {
    /// Listens at `path`. Replaces a socket that no process has open any more, and nothing else. `/dev/fd/N` is the
    /// socket that this process has inherited as descriptor N, which may be connected already. Waits this long for a process that
    /// has it to release it.
    ///
    /// # Errors
    /// A process has the socket at `path`, the path is not a socket, or binding fails.
    pub fn bind(path: &Path, access: &Access, patience: Duration) -> Result<Self> {
        let bind = || match inherited(path) {
            Some(fd) => Ok(Self { _place: None, door: inherit(fd)? }),
            None => Self::bind_new(path, access, patience),
        };
        bind().with_context(|| format!("socket {}", path.display()))
    }

    fn bind_new(path: &Path, access: &Access, patience: Duration) -> Result<Self> {
        let len = path.as_os_str().len();
        ensure!(len <= PATH_MAX, "the path has {len} bytes; allowed: at most {PATH_MAX}");
        let group = access.group.as_deref().map(group_id).transpose()?;
        let mut place = Place::find(path)?;
        let start = Instant::now();
        loop {
            // Locked for a moment only: other sockets of the directory wait, too.
            place.lock(start + patience);
            if place.is_free()? {
                break;
            }
            place.unlock();
            ensure!(start.elapsed() < patience, "is in use by another process");
            sleep(LOOK);
        }
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        // The file takes its mode from the socket, so it is nobody else's at any moment, whatever the umask is.
        fchmod(&socket, Bits::S_IRUSR | Bits::S_IWUSR)?;
        nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        let file = place.take()?;
        let bound = Self { _place: Some(place), door: Door::Listener(socket.into()) };
        if let Some(group) = group {
            fchownat(&file, "", None, Some(group), AtFlags::AT_EMPTY_PATH)?;
        }
        // Not by its path, which may lead elsewhere by now. A file that is open as a place only has no fchmod(2).
        let mode = PermissionsExt::from_mode(access.mode);
        std::fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?;
        listen(&bound.door, Backlog::MAXALLOWABLE)?; // last: nobody has connected before
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
    let door = socket.into();
    if let Door::Connected(stream) = &door {
        stream.set_nonblocking(false)?; // its messages are waited for
    }
    Ok(door)
}

fn group_id(name: &str) -> Result<Gid> {
    if let Ok(number) = name.parse() {
        return Ok(Gid::from_raw(number));
    }
    let group = Group::from_name(name).with_context(|| format!("group {name}"))?;
    Ok(group.ok_or_else(|| anyhow!("group {name} is unknown"))?.gid)
}

/// The place of a socket in the file system: a name in a directory. Whoever may write to the directory can put something else
/// there at any time, and can make the path lead to another directory. So everything but bind(2), which takes no other name, is
/// done in the directory that was opened first, and to what was found there.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    directory: File,
    name: OsString,
    inode: Option<u64>, // of our own socket
}

impl Place {
    fn find(path: &Path) -> Result<Self> {
        let name = path.file_name().context("names a directory")?.to_owned();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The open of a FIFO that somebody has put in its place would wait for a writer.
        let directory = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(directory)?;
        Ok(Self { path: path.into(), directory, name, inode: None })
    }

    /// Serializes processes that start at the same time. Without it, each might remove the socket that the other has just
    /// bound. Every user who can read the directory can lock it, so the wait for the lock is bounded.
    fn lock(&self, deadline: Instant) {
        while self.directory.try_lock().is_err() {
            if Instant::now() >= deadline {
                warn!("somebody holds a lock on the directory of {}: going on without it", self.path.display());
                return;
            }
            sleep(LOOK);
        }
    }

    fn unlock(&self) {
        let _ = self.directory.unlock(); // it may not be locked
    }

    /// Whether nothing is there any more, once a socket is removed that no process has open.
    fn is_free(&self) -> Result<bool> {
        match fstatat(&self.directory, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(true),
            Err(error) => return Err(error.into()),
            Ok(about) if !is_socket(&about) => bail!("exists and is not a socket: it is left alone"),
            Ok(_) => {}
        }
        if !self.is_abandoned()? {
            return Ok(false);
        }
        unlinkat(&self.directory, &*self.name, UnlinkatFlags::NoRemoveDir)?;
        Ok(true)
    }

    /// Whether no process has the socket open. Connecting would tell, too, but then a disk would have a front end, and no
    /// place for another. The kernel looks for the socket before it finds that this one is of another type
    /// (`unix_find_bsd`).
    fn is_abandoned(&self) -> Result<bool> {
        let probe = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let outcome = connect(probe.as_raw_fd(), &UnixAddr::new(&self.path)?);
        Ok(outcome == Err(Errno::ECONNREFUSED)) // otherwise EPROTOTYPE, or what does not tell
    }

    /// Notes that our own socket is there. Returns its file.
    fn take(&mut self) -> Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&self.directory, &*self.name, flags, Bits::empty())?;
        let about = fstat(&file)?;
        // A socket of several names may be one that somebody else serves.
        ensure!(is_socket(&about) && about.st_nlink == 1, "somebody has put something else there");
        self.inode = Some(about.st_ino);
        self.unlock();
        Ok(file)
    }
}

fn is_socket(about: &FileStat) -> bool {
    SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == SFlag::S_IFSOCK
}

impl Drop for Place {
    fn drop(&mut self) {
        let about = fstatat(&self.directory, &*self.name, AtFlags::AT_SYMLINK_NOFOLLOW);
        if about.is_ok_and(|about| Some(about.st_ino) == self.inode) {
            let _ = unlinkat(&self.directory, &*self.name, UnlinkatFlags::NoRemoveDir); // it may have been removed meanwhile
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
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn bind(path: &Path) -> Result<BoundSocket> {
        BoundSocket::bind(path, &Access::default(), PATIENCE)
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
        theirs.try_lock().unwrap();
        bind(&directory.path().join("s")).unwrap();
    }

    #[test]
    fn a_socket_has_the_configured_mode_and_group_whatever_the_umask() {
        let directory = tempfile::TempDir::new().unwrap();
        let before = nix::sys::stat::umask(Bits::empty());
        let group = nix::unistd::getgid().to_string();
        for mode in [0o600, 0o660, 0o666] {
            let path = directory.path().join(format!("{mode:o}"));
            let access = Access { mode, group: Some(group.clone()) };
            let _socket = BoundSocket::bind(&path, &access, PATIENCE).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        }
        nix::sys::stat::umask(before);
        let access = Access { group: Some("no such group".into()), ..Access::default() };
        let error = BoundSocket::bind(&directory.path().join("s"), &access, PATIENCE).unwrap_err();
        assert!(format!("{error:#}").contains("group no such group is unknown"), "{error:#}");
        assert!(!directory.path().join("s").exists());
    }

    /// Whoever may write to the directory has as many tries as there are starts.
    #[test]
    fn what_is_put_in_the_place_of_a_socket_keeps_its_mode_and_its_group() {
        let directory = tempfile::TempDir::new().unwrap();
        let [path, aside, link, precious] = ["s", "aside", "link", "precious"].map(|name| directory.path().join(name));
        std::fs::write(&precious, "precious").unwrap();
        std::fs::set_permissions(&precious, PermissionsExt::from_mode(0o600)).unwrap();
        let group = if nix::unistd::geteuid().is_root() { "1".to_owned() } else { nix::unistd::getegid().to_string() };
        let access = Access { mode: 0o666, group: Some(group) };
        let about = || precious.metadata().map(|about| (about.mode(), about.gid())).unwrap();
        let before = about();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    symlink(&precious, &link).unwrap();
                    while std::fs::rename(&path, &aside).is_err() && !is_over.load(Ordering::Relaxed) {}
                    std::fs::rename(&link, &path).unwrap();
                    while path.is_symlink() && !is_over.load(Ordering::Relaxed) {}
                }
            });
            let mut replaced = 0;
            for _ in 0..1000 {
                replaced += u64::from(BoundSocket::bind(&path, &access, PATIENCE).is_err());
                let _ = std::fs::remove_file(&path);
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(about() == before, "of {replaced} that were replaced");
        });
        assert_eq!(about(), before);
    }
}
