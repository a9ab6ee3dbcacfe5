//! A state of a size that the caller chooses: a word that says what it is, a part of fixed size, and words behind it.

use crate::error::{Refused, coalesce_error};
use crate::status::*;

/// What the caller's memory begins with.
#[repr(C)]
struct Head<T> {
    kind: u32,
    /// How many words are behind it.
    words: u32,
    fixed: T,
}

/// The part of fixed size. It and its words may be any bits.
pub(crate) trait Block: Sized {
    /// Of which there are as many as the caller wants.
    type Word: Default;
    /// The first word of such states: [`kind`](crate::tagged::kind).
    const KIND: u32;

    /// Bytes of a state with so many words.
    fn size(words: u32) -> usize {
        size_of::<Head<Self>>() + size_of::<Self::Word>() * words as usize
    }

    /// Makes one in the caller's memory of `size` bytes, with words of their default.
    ///
    /// # Safety
    /// `state` is null, or points to `size` bytes that nobody else uses; `error` is null, or an error can be written there.
    unsafe fn make(
        state: *mut u64,
        size: usize,
        block: Result<(Self, u32), coalesce_error>,
        error: *mut coalesce_error,
    ) -> coalesce_status {
        const { assert!(align_of::<Head<Self>>() <= 8 && align_of::<Self::Word>() <= 8) };
        const { assert!(size_of::<Head<Self>>().is_multiple_of(align_of::<Self::Word>())) };
        if state.is_null() {
            return COALESCE_E_NULL;
        }
        if !state.is_aligned() {
            return COALESCE_E_ALIGNMENT;
        }
        let (fixed, words) = match block {
            Ok(block) => block,
            // SAFETY: the caller's promise.
            Err(wrong) => return unsafe { Refused::Parameter(wrong).report(error) },
        };
        if size < Self::size(words) {
            return COALESCE_E_SIZE;
        }
        let head = state.cast::<Head<Self>>();
        // SAFETY: it is there, aligned, and large enough.
        unsafe {
            head.write(Head { kind: Self::KIND, words, fixed });
            for i in 0..words as usize {
                head.add(1).cast::<Self::Word>().add(i).write(Self::Word::default());
            }
        }
        COALESCE_OK
    }

    /// A state that a caller gave, if it is one of this kind.
    ///
    /// # Safety
    /// `state` is null, or points to a state that nobody else uses during the call.
    unsafe fn open<'a>(state: *mut u64) -> Result<(&'a mut Self, &'a mut [Self::Word]), coalesce_status> {
        let head = state.cast::<Head<Self>>();
        if head.is_null() {
            return Err(COALESCE_E_NULL);
        }
        if !state.is_aligned() {
            return Err(COALESCE_E_ALIGNMENT);
        }
        // SAFETY: the memory is there, and any four bytes are a number.
        if unsafe { (*head).kind } != Self::KIND {
            return Err(COALESCE_E_STATE);
        }
        // SAFETY: by its first word the memory is what `make` wrote, and so are the words behind it.
        unsafe {
            let words = core::slice::from_raw_parts_mut(head.add(1).cast(), (*head).words as usize);
            Ok((&mut (*head).fixed, words))
        }
    }
}
