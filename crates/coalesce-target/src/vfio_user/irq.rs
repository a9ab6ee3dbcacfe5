//! The device's interrupt vectors: MSI-X, signalled through eventfds of the client.

use super::wire::Refused;
use crate::call::{Call, CallRings};
use nix::errno::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The vectors of one connection, for all threads.
///
/// Each vector has a lock of its own. One queue's thread signals it, so it waits only while the client changes its eventfd.
#[derive(Clone, Debug)]
pub struct Vectors(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    vectors: Box<[Mutex<Vector>]>,
    rings: CallRings,
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
    /// `count` vectors, at most 2048, without eventfds. They take an io_uring of `rings` for each eventfd, and while a
    /// message changes eventfds, for up to [`FILES_MAX`](super::wire::FILES_MAX) more.
    #[must_use]
    pub fn new(count: u16, rings: CallRings) -> Self {
        Self(Arc::new(Inner { vectors: (0..count).map(|_| Mutex::default()).collect(), rings }))
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
        let calls = calls.collect::<Result<Vec<_>, _>>().map_err(|why| Refused { errno: Errno::EINVAL, why })?;
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

    fn lock(&self, vector: u16) -> Option<MutexGuard<'_, Vector>> {
        Some(self.0.vectors.get(usize::from(vector))?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
