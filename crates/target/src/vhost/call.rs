//! An eventfd of the front end that we signal: the guest's interrupt, or the news that a ring is broken.

use anyhow::{Context as _, Result, bail};
use io_uring::{IoUring, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use tracing::error;

/// Signals an eventfd without ever waiting for whoever should read it.
///
/// write(2) waits while the counter is full, unless the file is non-blocking; but the file is the front end's as well,
/// which may change that at any time. So the kernel signals by itself, as it does for whoever watches an io_uring: a
/// request that does nothing ends, and the eventfd counts it. That never waits.
pub struct Call(IoUring);

impl Call {
    /// # Errors
    /// It is not an eventfd, or there is no io_uring for it.
    pub fn new(eventfd: &File) -> Result<Self> {
        let ring = match IoUring::new(1) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                bail!("no descriptor is left for an io_uring: {error}")
            }
            ring => ring.context("no io_uring")?,
        };
        match ring.submitter().register_eventfd(eventfd.as_raw_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => bail!("the file is not an eventfd"),
            registered => registered.context("an eventfd for an io_uring")?, // the kernel keeps it
        }
        Ok(Self(ring))
    }

    /// Signals. False: that was not possible.
    pub fn signal(&mut self) -> bool {
        self.0.completion().for_each(drop);
        // SAFETY: it has no buffer.
        let _ = unsafe { self.0.submission().push(&opcode::Nop::new().build()) }; // full: one before it was not submitted
        loop {
            match self.0.submit() {
                Ok(submitted) => return submitted == 1,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => {
                    error!("an eventfd could not be signalled: {error}");
                    return false;
                }
            }
        }
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::eventfd::EventFd;
    use std::os::fd::AsFd as _;

    fn file(eventfd: &EventFd) -> File {
        eventfd.as_fd().try_clone_to_owned().unwrap().into()
    }

    #[test]
    fn each_signal_counts_one() {
        let eventfd = EventFd::new().unwrap();
        let mut call = Call::new(&file(&eventfd)).unwrap();
        for _ in 0..1000 {
            assert!(call.signal());
        }
        assert_eq!(eventfd.read().unwrap(), 1000);
    }

    /// A blocking eventfd that is full: write(2) would wait here for ever.
    #[test]
    fn a_full_eventfd_is_not_waited_for() {
        let eventfd = EventFd::new().unwrap();
        eventfd.write(u64::MAX - 1).unwrap();
        let mut call = Call::new(&file(&eventfd)).unwrap();
        for _ in 0..10 {
            assert!(call.signal());
        }
        assert!(eventfd.read().unwrap() >= u64::MAX - 1);
        assert!(call.signal());
        assert_eq!(eventfd.read().unwrap(), 1);
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let error = Call::new(&File::open("/dev/null").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "the file is not an eventfd");
    }
}
