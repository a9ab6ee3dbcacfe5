//! Signals an eventfd of the front end: the guest's interrupt, or the report of a broken ring.

use crate::os::uring::restricted;
use anyhow::{Context as _, Result, bail};
use io_uring::{IoUring, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use tracing::error;

/// io_urings for [`Call`]s. They are created at the start, because the sandbox forbids it later. They are reused,
/// because the kernel is slow to free one, and a front end could exhaust them by changing its eventfds.
#[derive(Clone, Default)]
pub struct CallRings(Arc<Mutex<Vec<IoUring>>>);

impl CallRings {
    /// io_urings for `count` calls at a time.
    ///
    /// # Errors
    /// The kernel has no io_uring, or not enough memory or descriptors.
    pub fn new(count: usize) -> io::Result<Self> {
        let ring = || restricted(1, 2, &[opcode::Nop::CODE], &[REGISTER_EVENTFD, UNREGISTER_EVENTFD]);
        let rings = (0..count).map(|_| ring()).collect::<io::Result<_>>()?;
        Ok(Self(Arc::new(Mutex::new(rings))))
    }

    /// Takes an io_uring for an eventfd.
    ///
    /// # Errors
    /// The file is not an eventfd, or all io_urings are in use.
    pub fn call(&self, eventfd: &File) -> Result<Call> {
        let Some(ring) = self.lock().pop() else { bail!("all io_urings for eventfds are in use") };
        let call = Call { ring: Some(ring), home: self.clone() }; // returned when it is dropped
        let registered = call.ring.as_ref().map(|ring| ring.submitter().register_eventfd(eventfd.as_raw_fd()));
        match registered {
            Some(Err(error)) if error.raw_os_error() == Some(libc::EINVAL) => bail!("the file is not an eventfd"),
            Some(Err(error)) => Err(error).context("an eventfd for an io_uring"),
            _ => Ok(call), // the kernel keeps the eventfd open
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<IoUring>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Operations of io_uring_register (linux/io_uring.h).
/// Signal an eventfd.
pub const REGISTER_EVENTFD: u8 = 4;
/// Signal it no more.
pub const UNREGISTER_EVENTFD: u8 = 5;

/// The pause before a retry of a signal that the kernel refused.
const PAUSE: Duration = Duration::from_millis(10);

/// Signals an eventfd without waiting for its reader.
///
/// write(2) blocks while the counter is full, unless the file is non-blocking. The front end shares the file, and may
/// change that mode at any time. So the eventfd is that of an io_uring: an operation that does nothing completes, and
/// the kernel adds 1 to the eventfd. That never blocks.
pub struct Call {
    ring: Option<IoUring>, // none only while it is dropped
    home: CallRings,
}

impl Call {
    /// Signals. Returns false if there is no io_uring. If the kernel refuses the operation, repeats it until the kernel
    /// accepts, because a lost signal hangs the guest.
    pub fn signal(&mut self) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        ring.completion().for_each(drop);
        // SAFETY: it has no buffer.
        let _ = unsafe { ring.submission().push(&opcode::Nop::new().build()) }; // full: one before it was not submitted
        loop {
            match ring.submit() {
                Ok(submitted) => return submitted == 1,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => {
                    error!("an eventfd could not be signalled: {error}: trying again");
                    sleep(PAUSE);
                }
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(mut ring) = self.ring.take() {
            let _ = ring.submitter().unregister_eventfd(); // one that was refused is not there
            ring.completion().for_each(drop);
            self.home.lock().push(ring);
        }
    }
}

impl std::fmt::Debug for CallRings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CallRings").field(&self.lock().len()).finish()
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
        let mut call = CallRings::new(1).unwrap().call(&file(&eventfd)).unwrap();
        for _ in 0..1000 {
            assert!(call.signal());
        }
        assert_eq!(eventfd.read().unwrap(), 1000);
    }

    /// A blocking eventfd that is full: write(2) would block for ever.
    #[test]
    fn a_full_eventfd_is_not_waited_for() {
        let eventfd = EventFd::new().unwrap();
        eventfd.write(u64::MAX - 1).unwrap();
        let mut call = CallRings::new(1).unwrap().call(&file(&eventfd)).unwrap();
        for _ in 0..10 {
            assert!(call.signal());
        }
        assert!(eventfd.read().unwrap() >= u64::MAX - 1);
        assert!(call.signal());
        assert_eq!(eventfd.read().unwrap(), 1);
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let rings = CallRings::new(1).unwrap();
        for _ in 0..3 {
            let error = rings.call(&File::open("/dev/null").unwrap()).unwrap_err();
            assert_eq!(error.to_string(), "the file is not an eventfd");
        }
    }

    #[test]
    fn an_io_uring_is_used_again_for_another_eventfd() {
        let rings = CallRings::new(1).unwrap();
        let [first, second] = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        let mut call = rings.call(&file(&first)).unwrap();
        assert!(call.signal());
        let error = rings.call(&file(&second)).unwrap_err();
        assert_eq!(error.to_string(), "all io_urings for eventfds are in use");
        drop(call);
        assert!(rings.call(&file(&second)).unwrap().signal());
        assert_eq!((first.read().unwrap(), second.read().unwrap()), (1, 1));
    }
}
