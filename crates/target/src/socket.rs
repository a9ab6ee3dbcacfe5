//! Unix sockets that are bound with care and removed when they are done with.

use anyhow::{Context as _, Result, bail};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a path that the address of a socket has room for, before the zero that ends it.
const PATH_MAX: usize = 107;

/// A listening socket and its place in the file system.
#[derive(Debug)]
pub struct BoundSocket {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl BoundSocket {
    /// Listens at `path`. A socket there that nobody listens to any more is replaced; anything else is left alone.
    ///
    /// # Errors
    /// Somebody listens there, or something else is there, or it cannot be bound.
    pub fn bind(path: &Path) -> Result<Self> {
        let named = || format!("socket {}", path.display());
        let len = path.as_os_str().len();
        if len > PATH_MAX {
            bail!("{}: the path has {len} bytes, allowed are {PATH_MAX}", named());
        }
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(named),
            Ok(metadata) if !metadata.file_type().is_socket() => {
                bail!("{} exists and is not a socket: it is left alone", named())
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).with_context(named)?;
                }
                _ => bail!("{} is in use by another process", named()),
            },
        }
        let listener = UnixListener::bind(path).with_context(named)?;
        let inode = path.symlink_metadata().with_context(named)?.ino();
        Ok(Self { listener, path: path.into(), inode })
    }

    /// The listener.
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

/// The connection that a listener accepted. None: it is gone already, or there is no descriptor for it, and after a while
/// there may be.
#[must_use]
pub fn accepted<S, A>(outcome: std::io::Result<(S, A)>) -> Option<S> {
    if outcome.is_err() {
        std::thread::sleep(Duration::from_millis(10)); // it stays ready: trying at once would only be busy
    }
    outcome.ok().map(|(stream, _)| stream)
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path); // it is ours; should it be gone meanwhile, so much the better
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abandoned_socket_is_replaced() {
        let directory = std::env::temp_dir().join(format!("coalesce-socket-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let message = |path: &Path| format!("{:#}", BoundSocket::bind(path).unwrap_err());

        let socket = BoundSocket::bind(&path).unwrap();
        assert!(message(&path).contains("is in use by another process"));
        drop(socket);
        assert!(!path.exists(), "removed");

        drop(UnixListener::bind(&path).unwrap()); // as after kill -9
        assert!(path.exists());
        drop(BoundSocket::bind(&path).unwrap());

        std::fs::write(&path, "precious").unwrap();
        assert!(message(&path).contains("is not a socket"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        assert!(message(&directory.join("no/such/place")).contains("No such file"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
