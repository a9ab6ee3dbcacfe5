//! Memory that only one context uses: the main loop, or one interrupt.

use core::cell::UnsafeCell;

pub struct Owned<T>(UnsafeCell<T>);

// SAFETY: each caller of `get` promises that only one context uses it.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// All calls come from one context, and no earlier reference is in use.
    #[expect(clippy::mut_from_ref, reason = "the caller promises that there is no other reference")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
