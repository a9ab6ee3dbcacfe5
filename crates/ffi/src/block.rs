//! A state whose size the caller chooses: a word that identifies its kind, a part of fixed size, and a number of words.

use crate::error::{Refused, coalesce_error};
use crate::status::*;

/// The beginning of the caller's memory.
#[repr(C)]
struct Head<T> {
    kind: u32,
    /// The number of words behind it.
    words: u32,
    fixed: T,
}

/// The part of fixed size. For it and for its words, any bits are a valid value.
pub(crate) trait Block: Sized {
    /// The type of the words, whose number the caller chooses.
    type Word: Default;
    /// The first word of such states: [`kind`](crate::tagged::kind).
    const KIND: u32;

    /// The size in bytes of a state with `words` words.
    fn size(words: u32) -> usize {
        size_of::<Head<Self>>() + size_of::<Self::Word>() * words as usize
    }

    /// Writes a state to the caller's memory of `size` bytes, with default words.
    ///
    /// # Safety
    /// `state` is null, or points to `size` bytes that nobody else uses; `error` is null, or points to room for an
    /// error.
    unsafe fn make(
        state: *mut u64,
        size: usize,
        block: Result<(Self, u32), coalesce_error>,
        error: *mut coalesce_error,
    ) -> coalesce_status {
        const { assert!(align_of::<Head<Self>>() <= 8 && align_of::<Self::Word>() <= 8) };
        const { assert!(size_of::<Head<Self>>().is_multiple_of(align_of::<Self::Word>())) };
        let refused = if state.is_null() {
            Refused::Status(COALESCE_E_NULL)
        } else if !state.is_aligned() {
            Refused::Status(COALESCE_E_ALIGNMENT)
        } else {
            match block {
                Ok((fixed, words)) if size >= Self::size(words) => {
                    let head = state.cast::<Head<Self>>();
                    // SAFETY: the memory is not null, aligned, and large enough.
                    unsafe {
                        head.write(Head { kind: Self::KIND, words, fixed });
                        for i in 0..words as usize {
                            head.add(1).cast::<Self::Word>().add(i).write(Self::Word::default());
                        }
                    }
                    return COALESCE_OK;
                }
                Ok(_) => Refused::Status(COALESCE_E_SIZE),
                Err(wrong) => Refused::Parameter(wrong),
            }
        };
        // SAFETY: the caller's promise.
        unsafe { refused.report(error) }
    }

    /// The state at the caller's pointer, if it is one of this kind.
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
        // SAFETY: the pointer is valid and aligned, and any four bytes are a number.
        if unsafe { (*head).kind } != Self::KIND {
            return Err(COALESCE_E_STATE);
        }
        // SAFETY: the first word shows that `make` wrote this memory, the words included.
        unsafe {
            let words = core::slice::from_raw_parts_mut(head.add(1).cast(), (*head).words as usize);
            Ok((&mut (*head).fixed, words))
        }
    }
}
