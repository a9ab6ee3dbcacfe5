//! The guest's interrupt: an eventfd.

use io_uring::{IoUring, opcode};
use std::fs::File;
use std::io;

/// Signals an eventfd without ever waiting for whoever should read it.
///
/// write(2) waits while the counter is full, unless the file is non-blocking; but the file is the front end's as well,
/// which may change that at any time. So the kernel signals by itself, as it does for whoever watches an io_uring: a
/// request that does nothing ends, and the eventfd counts it. That never waits.
pub struct Call(IoUring);

impl Call {
    /// # Errors
    /// It is no eventfd, or there is no io_uring for it.
    pub fn new(eventfd: &File) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;
        let ring = IoUring::new(1)?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?; // the kernel keeps it
        Ok(Self(ring))
    }

    /// Interrupts. False: that was not possible.
    pub fn signal(&mut self) -> bool {
        self.0.completion().for_each(drop);
        // SAFETY: it has no buffer.
        let pushed = unsafe { self.0.submission().push(&opcode::Nop::new().build()) };
        pushed.is_ok() && self.0.submit().is_ok_and(|submitted| submitted == 1)
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
        assert!(Call::new(&File::open("/dev/null").unwrap()).is_err());
    }
}
