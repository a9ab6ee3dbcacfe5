//! A front end may truncate the file behind the memory that it shares, and memory can fail. An access then raises
//! SIGBUS, which would end this process.
//!
//! All memory that front ends share is registered here. A fault in it replaces the *whole* mapping by zeroes. So any
//! number of faults needs only one mapping, and nothing outside is changed. The front end that shares it loses its
//! connection. A fault anywhere else ends the process, as it should.

use anyhow::{Context as _, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// The most mappings of one front end at a time: more than twice the regions of a guest, because requests in flight keep
/// earlier mappings.
pub const MAPPINGS_MAX: usize = 1024;
/// The most mappings of all front ends together.
const REGISTRY_LEN: usize = 8192;

// Global, because a signal handler has no argument.
static REGISTRY: [Entry; REGISTRY_LEN] = [const { Entry::free() }; REGISTRY_LEN];
/// Held during changes of the registry. The signal handler only reads the registry.
static CHANGES: Mutex<()> = Mutex::new(());

/// A registered mapping. The entry of a fault is consistent, because the thread that faults keeps the mapping
/// registered. Another thread may be changing another entry when the handler reads it. The handler detects that by the
/// entry's version.
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

    /// The registered mapping; `None` if there is none, or it is being changed.
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

    /// The fault of memory that it shares, if there was one. Its connection is shut down then.
    #[must_use]
    pub fn lost(&self) -> Option<&'static str> {
        match self.lost.load(Ordering::Acquire) {
            0 => None,
            libc::BUS_MCEERR_AR => Some("has a hardware error"),
            _ => Some("has no page behind it: its file was truncated, or its file system is full"),
        }
    }
}

/// Keeps a mapping registered. It must be dropped before the mapping is unmapped.
#[derive(Debug)]
pub struct Registration {
    index: usize,
    front_end: Arc<Peer>, // the registry points to it
}

impl Registration {
    /// Registers a mapping of `len` bytes, whole pages, at `start`. `None`: the front end has too many mappings.
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

/// Installs the handler: a fault in registered memory then ends its front end's connection, not the process. Must be
/// called before any front end connects.
///
/// # Errors
/// The system refuses the handler.
pub fn survive() -> Result<()> {
    let action = SigAction::new(SigHandler::SigAction(on_bus_error), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler calls only functions that a signal handler may call.
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
        // SAFETY: the failed access is repeated, and ends the process this time.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Maps zeroes over the registered mapping that contains an address, and ends its front end's connection.
fn put_zeroes(address: usize, code: libc::c_int) -> bool {
    let found = REGISTRY.iter().filter_map(Entry::load).find(|(range, _)| range.contains(&address));
    let Some((range, front_end)) = found else { return false };
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let start = range.start as *mut libc::c_void;
    // SAFETY: the range is exactly a mapping of shared memory, and contains nothing that Rust owns. The thread that has
    // faulted keeps it mapped.
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
