//! A front end may cut off the file behind the memory that it shares with us, and memory fails. What is touched there then
//! raises SIGBUS, which would end this process.
//!
//! All memory that front ends share is registered here. A fault in it puts zeroes in the place of the *whole* mapping it
//! is in: any number of faults takes one mapping, and nothing outside of it is touched. The front end that shares
//! it loses its connection. A fault anywhere else ends the process, as it should.

use anyhow::{Context as _, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Mappings that one front end may have at a time: 8 times the regions of one guest, as requests in flight keep those of
/// before.
pub const MAPPINGS_MAX: usize = 256;
/// Mappings of all front ends together.
const REGISTRY_LEN: usize = 8192;

// A signal handler takes no argument: what it needs to know is global.
static REGISTRY: [Entry; REGISTRY_LEN] = [const { Entry::free() }; REGISTRY_LEN];
/// Held while the registry is changed. The signal handler only reads the registry.
static CHANGES: Mutex<()> = Mutex::new(());

/// A registered mapping. The handler of a fault in it sees it whole: the thread that faults keeps it registered. Another
/// entry may be half changed when the handler looks: then its version tells.
struct Entry {
    version: AtomicUsize, // odd: registered
    start: AtomicUsize,
    len: AtomicUsize,
    front_end: AtomicPtr<Peer>,
}

impl Entry {
    const fn free() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            front_end: AtomicPtr::new(null_mut()),
        }
    }

    /// What is registered, unless it changes just now.
    fn load(&self) -> Option<(Range<usize>, *mut Peer)> {
        let version = self.version.load(Ordering::Acquire);
        let [start, len] = [&self.start, &self.len].map(|field| field.load(Ordering::Relaxed));
        let front_end = self.front_end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version % 2 == 1 && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((start..start.wrapping_add(len), front_end))
    }
}

/// A front end that shares memory with us over one connection.
#[derive(Debug)]
pub struct Peer {
    connection: OwnedFd,
    mappings: AtomicUsize,
    lost: AtomicI32, // the reason of the fault in its memory; 0: there was none
}

impl Peer {
    /// The front end at the other end of a connection.
    #[must_use]
    pub const fn new(connection: OwnedFd) -> Self {
        Self { connection, mappings: AtomicUsize::new(0), lost: AtomicI32::new(0) }
    }

    /// What happened to memory that it shares, if anything did. Its connection is shut down then.
    #[must_use]
    pub fn lost(&self) -> Option<&'static str> {
        match self.lost.load(Ordering::Acquire) {
            0 => None,
            libc::BUS_MCEERR_AR => Some("has a hardware error"),
            _ => Some("has no page behind it: its file was cut off, or its file system is full"),
        }
    }
}

/// A mapping is registered as long as this lives. It must be dropped before the mapping is unmapped.
#[derive(Debug)]
pub struct Registration {
    index: usize,
    front_end: Arc<Peer>, // the registry points to it
}

impl Registration {
    /// Registers a mapping that begins at `start` and has `len` bytes, whole pages. None: the front end has as many as it
    /// may have.
    #[must_use]
    pub fn new(start: usize, len: usize, front_end: Arc<Peer>) -> Option<Self> {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        if front_end.mappings.load(Ordering::Relaxed) >= MAPPINGS_MAX {
            return None;
        }
        let is_free = |entry: &Entry| entry.version.load(Ordering::Relaxed).is_multiple_of(2);
        let index = REGISTRY.iter().position(is_free)?;
        let entry = &REGISTRY[index];
        fence(Ordering::Release); // a thread that sees the stores below also sees that the entry was free
        entry.start.store(start, Ordering::Relaxed);
        entry.len.store(len, Ordering::Relaxed);
        entry.front_end.store(Arc::as_ptr(&front_end).cast_mut(), Ordering::Relaxed);
        entry.version.fetch_add(1, Ordering::Release);
        front_end.mappings.fetch_add(1, Ordering::Relaxed);
        Some(Self { index, front_end })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        REGISTRY[self.index].version.fetch_add(1, Ordering::Release);
        self.front_end.mappings.fetch_sub(1, Ordering::Relaxed);
    }
}

/// From now on a fault in registered memory ends its front end's connection, not the process. To be called before any
/// front end connects.
///
/// # Errors
/// The system takes no handler.
pub fn survive() -> Result<()> {
    let action = SigAction::new(SigHandler::SigAction(on_bus_error), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler calls nothing but what a signal handler may call.
    unsafe { sigaction(Signal::SIGBUS, &action) }.context("a handler for SIGBUS")?;
    Ok(())
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this kind the reason of the signal, and each thread has an errno.
    let (code, address, errno) = unsafe { ((*info).si_code, (*info).si_addr() as usize, *libc::__errno_location()) };
    let is_survived = match code {
        libc::BUS_ADRERR | libc::BUS_MCEERR_AR => put_zeroes(address, code),
        libc::BUS_MCEERR_AO => true, // nothing has touched it yet: the thread that does gets its own signal
        _ => false,
    };
    if !is_survived {
        // SAFETY: what failed is tried again, and ends the process this time.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Maps zeroes over the registered mapping that an address is in, and ends the connection of the front end that shares it.
fn put_zeroes(address: usize, code: libc::c_int) -> bool {
    let found = REGISTRY.iter().filter_map(Entry::load).find(|(range, _)| range.contains(&address));
    let Some((range, front_end)) = found else { return false };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = range.start as *mut libc::c_void;
    // SAFETY: it is a mapping of shared memory from end to end, and nothing that Rust owns is in it; the thread that
    // has faulted keeps it mapped.
    let mapped = unsafe { libc::mmap(start, range.len(), libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the registration keeps it, and the thread that has faulted keeps the registration.
    let front_end = unsafe { &*front_end };
    front_end.lost.store(code, Ordering::Release);
    // SAFETY: the descriptor is open as long as the front end is here. Its thread reads the end of the connection.
    unsafe { libc::shutdown(front_end.connection.as_raw_fd(), libc::SHUT_RDWR) };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn front_end() -> Arc<Peer> {
        Arc::new(Peer::new(UnixStream::pair().unwrap().0.into()))
    }

    fn is_registered(address: usize) -> bool {
        REGISTRY.iter().filter_map(Entry::load).any(|(range, _)| range.contains(&address))
    }

    #[test]
    fn what_is_registered_is_found_until_it_is_dropped() {
        let front_end = front_end();
        let first = Registration::new(0x1000, 0x1000, front_end.clone()).unwrap();
        let second = Registration::new(0x2000, 0x1000, front_end).unwrap();
        assert_eq!([0xfff, 0x1000, 0x2fff, 0x3000].map(is_registered), [false, true, true, false]);
        drop(first);
        assert_eq!([0x1000, 0x2000].map(is_registered), [false, true]);
        drop(second);
        assert!(!is_registered(0x2000));
    }

    #[test]
    fn a_front_end_has_a_limit_of_its_own() {
        let greedy = front_end();
        let registrations: Vec<_> =
            std::iter::from_fn(|| Registration::new(1 << 50, 0x1000, greedy.clone())).take(2 * MAPPINGS_MAX).collect();
        assert_eq!(registrations.len(), MAPPINGS_MAX);
        assert!(Registration::new(1 << 51, 0x1000, front_end()).is_some());
        drop(registrations);
        assert!(Registration::new(1 << 50, 0x1000, greedy).is_some());
    }
}
