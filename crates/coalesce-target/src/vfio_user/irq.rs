//! The device's interrupts, signalled through eventfds of the client: MSI-X vectors, and for a guest without MSI-X the pin
//! INTA (PCI Local Bus 3.0 §2.2.6).
//!
//! A pin is level-triggered: it is asserted until the guest has served the device. An eventfd has no level, so a signal masks
//! the pin (`VFIO_IRQ_INFO_AUTOMASKED`), and the client unmasks it when its guest has looked. If the device still asserts it
//! then, the client is signalled again. Whoever signals has made the cause visible before, and looks at the mask later; whoever
//! unmasks looks for causes later: so no interrupt is lost between the two.

use super::wire::Refused;
use crate::os::call::{Call, CallRings};
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The vectors of one connection, for all threads.
///
/// Each vector has a lock of its own. One queue's thread signals it, so it waits only while the client changes its eventfd.
#[derive(Clone, Debug)]
pub struct Vectors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vectors: Box<[Mutex<Vector>]>,
    pin: Mutex<Pin>,
    uses_pin: AtomicBool, // as `Pin::is_used`
    rings: CallRings,
}

/// The pin.
#[derive(Debug, Default)]
struct Pin {
    call: Option<Call>,
    is_masked: bool, // by the client, or by a signal
    is_disabled: bool,
    has_msix: bool, // instead
}

impl Pin {
    const fn is_used(&self) -> bool {
        self.call.is_some() && !self.has_msix
    }
}

#[derive(Debug, Default)]
struct Vector {
    call: Option<Call>,
    is_pending: bool,
}

impl Vector {
    fn signal(&mut self) -> bool {
        let is_signalled = self.call.as_mut().is_some_and(Call::signal);
        self.is_pending = !is_signalled;
        is_signalled
    }
}

impl Vectors {
    /// `count` vectors, at most 2048, and a pin, without eventfds. They take an io_uring of `rings` for each eventfd, and while
    /// a message changes eventfds, for up to [`FILES_MAX`](super::wire::FILES_MAX) more.
    #[must_use]
    pub fn new(count: u16, rings: CallRings) -> Self {
        let vectors = (0..count).map(|_| Mutex::default()).collect();
        Self(Arc::new(Inner { vectors, pin: Mutex::default(), uses_pin: AtomicBool::new(false), rings }))
    }

    /// The number of vectors.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.0.vectors.len() as u16 // made from a u16
    }

    /// Signals a vector. Does not wait for the client. False: it has no eventfd. It is then pending, and is signalled when it
    /// gets one.
    #[must_use]
    pub fn signal(&self, vector: u16) -> bool {
        self.lock(vector).is_some_and(|mut vector| vector.signal())
    }

    /// Whether the vector waits for an eventfd.
    #[must_use]
    pub fn is_pending(&self, vector: u16) -> bool {
        self.lock(vector).is_some_and(|vector| vector.is_pending)
    }

    /// Forgets what is pending: the device was reset.
    pub fn clear_pending(&self) {
        for vector in 0..self.count() {
            if let Some(mut vector) = self.lock(vector) {
                vector.is_pending = false;
            }
        }
    }

    /// Assigns eventfds to the vectors from `start` on, all or none of them.
    ///
    /// # Errors
    /// There are no such vectors, or a file is not an eventfd.
    pub fn assign(&self, start: u16, files: Vec<OwnedFd>) -> Result<(), Refused> {
        let vectors = usize::from(start)..usize::from(start) + files.len();
        let vectors = self
            .0
            .vectors
            .get(vectors.clone())
            .ok_or_else(|| Refused::invalid(format!("vectors are {vectors:?}; there are {}", self.count())))?;
        let calls = files.into_iter().map(|file| self.0.rings.call(&File::from(file)));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        for (vector, call) in vectors.iter().zip(calls) {
            let mut vector = vector.lock().unwrap_or_else(PoisonError::into_inner);
            vector.call = Some(call);
            if vector.is_pending {
                vector.signal();
            }
        }
        Ok(())
    }

    /// Takes the eventfds of vectors away.
    pub fn deassign(&self, vectors: Range<u16>) {
        for vector in vectors {
            if let Some(mut vector) = self.lock(vector) {
                vector.call = None;
            }
        }
    }

    /// Whether the pin interrupts instead of the vectors: it has an eventfd, and MSI-X is not enabled.
    #[must_use]
    pub fn uses_pin(&self) -> bool {
        self.0.uses_pin.load(Ordering::Relaxed)
    }

    /// The device asserts the pin: signals, and masks it. False: it is masked or not used.
    #[must_use]
    pub fn signal_pin(&self) -> bool {
        let mut pin = self.pin();
        if pin.is_masked || pin.is_disabled || !pin.is_used() {
            return false;
        }
        pin.is_masked = true;
        pin.call.as_mut().is_some_and(Call::signal)
    }

    /// The client masks the pin, or unmasks it. Then look whether the device asserts it.
    pub fn mask_pin(&self, is_masked: bool) {
        self.pin().is_masked = is_masked;
    }

    /// The guest has enabled or disabled the pin (Interrupt Disable) and MSI-X. Then look whether the device asserts the pin.
    pub fn allow_pin(&self, is_disabled: bool, has_msix: bool) {
        self.change_pin(|pin| (pin.is_disabled, pin.has_msix) = (is_disabled, has_msix));
    }

    /// Assigns an eventfd to the pin, which is not masked then. Then look whether the device asserts it.
    ///
    /// # Errors
    /// The file is not an eventfd.
    pub fn assign_pin(&self, file: OwnedFd) -> Result<(), Refused> {
        let call = self.0.rings.call(&File::from(file))?;
        self.change_pin(|pin| (pin.call, pin.is_masked) = (Some(call), false));
        Ok(())
    }

    /// Checks that a file is an eventfd.
    ///
    /// # Errors
    /// It is not.
    pub fn check_eventfd(&self, file: &File) -> Result<(), Refused> {
        self.0.rings.call(file)?;
        Ok(())
    }

    /// Takes the eventfd of the pin away.
    pub fn deassign_pin(&self) {
        self.change_pin(|pin| pin.call = None);
    }

    fn change_pin(&self, change: impl FnOnce(&mut Pin)) {
        let mut pin = self.pin();
        change(&mut pin);
        self.0.uses_pin.store(pin.is_used(), Ordering::SeqCst);
    }

    fn pin(&self) -> MutexGuard<'_, Pin> {
        self.0.pin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self, vector: u16) -> Option<MutexGuard<'_, Vector>> {
        Some(self.0.vectors.get(usize::from(vector))?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use std::os::fd::AsFd as _;

    fn vectors(count: u16) -> Vectors {
        Vectors::new(count, CallRings::new(4).unwrap())
    }

    fn eventfd() -> EventFd {
        EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap()
    }

    fn assign(vectors: &Vectors, start: u16, eventfds: &[&EventFd]) -> Result<(), Refused> {
        let files = eventfds.iter().map(|eventfd| eventfd.as_fd().try_clone_to_owned().unwrap());
        vectors.assign(start, files.collect())
    }

    fn signals(eventfd: &EventFd) -> u64 {
        eventfd.read().unwrap_or(0)
    }

    #[test]
    fn a_signal_waits_for_an_eventfd() {
        let vectors = vectors(2);
        let first = eventfd();
        assert!(!vectors.signal(0) && !vectors.signal(0));
        assert_eq!([0, 1].map(|vector| vectors.is_pending(vector)), [true, false]);
        assign(&vectors, 0, &[&first]).unwrap();
        assert_eq!((signals(&first), vectors.is_pending(0)), (1, false));
        assert!(vectors.signal(0));
        assert_eq!((signals(&first), vectors.is_pending(0)), (1, false));
    }

    #[test]
    fn what_is_pending_goes_with_a_reset_alone() {
        let vectors = vectors(1);
        let [first, second] = [eventfd(), eventfd()];
        assert!(!vectors.signal(0));
        vectors.deassign(0..1);
        assert!(vectors.is_pending(0));
        vectors.clear_pending();
        assign(&vectors, 0, &[&first]).unwrap();
        assign(&vectors, 0, &[&second]).unwrap();
        assert_eq!([signals(&first), signals(&second)], [0, 0]);
        assert!(vectors.signal(0));
        assert_eq!([signals(&first), signals(&second)], [0, 1]);
        vectors.deassign(0..1);
        assert!(!vectors.signal(0) && vectors.is_pending(0));
    }

    #[test]
    fn all_eventfds_are_assigned_or_none() {
        let vectors = vectors(3);
        let one = eventfd();
        assert_eq!(assign(&vectors, 2, &[&one, &one]).unwrap_err().errno, Errno::EINVAL, "there is no vector 3");
        assert_eq!(assign(&vectors, u16::MAX, &[&one, &one]).unwrap_err().errno, Errno::EINVAL);
        let no_eventfd = File::open("/dev/null").unwrap().into();
        let files = vec![one.as_fd().try_clone_to_owned().unwrap(), no_eventfd];
        assert_eq!(vectors.assign(0, files).unwrap_err().errno, Errno::EINVAL);
        assert_eq!([0, 1, 2].map(|vector| vectors.signal(vector)), [false; 3]);
        assert_eq!(signals(&one), 0);
        assign(&vectors, 0, &[&one, &one, &one]).unwrap();
        assert_eq!(signals(&one), 3);
    }

    #[test]
    fn the_pin_is_signalled_once_until_it_is_unmasked() {
        let vectors = vectors(1);
        let (first, second) = (eventfd(), eventfd());
        let assign = |eventfd: &EventFd| vectors.assign_pin(eventfd.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(!vectors.uses_pin() && !vectors.signal_pin(), "it has no eventfd");
        assign(&first);
        assert!(vectors.uses_pin() && vectors.signal_pin() && !vectors.signal_pin());
        assert_eq!(signals(&first), 1);
        vectors.mask_pin(true);
        assert!(!vectors.signal_pin());
        vectors.mask_pin(false);
        vectors.allow_pin(true, false);
        assert!(vectors.uses_pin() && !vectors.signal_pin(), "Interrupt Disable");
        vectors.allow_pin(false, true);
        assert!(!vectors.uses_pin() && !vectors.signal_pin(), "MSI-X");
        vectors.allow_pin(false, false);
        assert!(vectors.signal_pin());
        assign(&second);
        assert!(vectors.signal_pin(), "another eventfd is not masked");
        assert_eq!([signals(&first), signals(&second)], [1, 1]);
        vectors.deassign_pin();
        vectors.mask_pin(false);
        assert!(!vectors.uses_pin() && !vectors.signal_pin());
        let no_eventfd = File::open("/dev/null").unwrap().into();
        assert_eq!(vectors.assign_pin(no_eventfd).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn vectors_that_do_not_exist_are_nobody() {
        let vectors = vectors(3);
        assert_eq!(vectors.count(), 3);
        assert!(!vectors.signal(3) && !vectors.is_pending(3));
        vectors.deassign(0..u16::MAX);
    }
}
