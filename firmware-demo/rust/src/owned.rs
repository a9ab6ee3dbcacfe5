//! Memory that one context has for itself: the main loop, or one interrupt.

use core::cell::UnsafeCell;

pub struct Owned<T>(UnsafeCell<T>);

// SAFETY: who shares it promises, with each `get`, that it is one context's.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// All calls come from one context, and none while what an earlier one returned is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is no other")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
