//! The consumer of a completion queue whose urgent completions interrupt alone: `coalesce_reaper_...` (cinterrupts §3.5).

use crate::block::Block;
use crate::error::coalesce_error;
use crate::field::COALESCE_FIELD_ENTRIES;
use crate::status::*;
use crate::tagged::{kind, put};
use cint_core::{Cursor, Entry};
use core::ffi::c_void;
use core::sync::atomic::{Ordering, fence};

impl Block for Cursor {
    type Word = u64;
    const KIND: u32 = kind(b'R');
}

/// An entry of an NVMe completion queue, in the byte order of the CPU. Dword 3 has the command identifier in bits 15:0,
/// the phase tag in bit 16, and the status in bits 31:17.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_reaper_entry {
    /// Dwords 0 to 3.
    pub dword: [u32; 4],
}

/// A function that gets a new entry, and returns whether it reaps the entry. At an urgent interrupt it reaps urgent
/// entries only, at a normal interrupt all.
pub type coalesce_reaper_take =
    Option<unsafe extern "C" fn(context: *mut c_void, entry: *const coalesce_reaper_entry) -> bool>;

/// The head doorbell does not change.
pub const COALESCE_NO_DOORBELL: u32 = u32::MAX;

/// The number of words of 64 entries; `None` if `entries` is not a valid size of a queue.
fn words(entries: u32) -> Option<u32> {
    (2..=65535).contains(&entries).then(|| entries.div_ceil(64))
}

/// The size in bytes of a reaper for a queue of `entries` entries, 2 to 65535; 0 for other numbers. For a constant, use
/// `uint64_t reaper[COALESCE_REAPER_WORDS(entries)]`.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_reaper_size(entries: u32) -> usize {
    words(entries).map_or(0, Cursor::size)
}

/// Initialises a reaper for an empty queue of `entries` entries, whose first pass has phase tag 1. `reaper_size` is in
/// bytes and at least `coalesce_reaper_size(entries)`; `error` may be null. On an error the memory is unchanged.
///
/// # Safety
/// `reaper` is null or points to `reaper_size` bytes, aligned to 8, that nobody else uses; `error` is null or points to
/// a `coalesce_error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_reaper_init(
    reaper: *mut u64,
    reaper_size: usize,
    entries: u32,
    error: *mut coalesce_error,
) -> coalesce_status {
    let cursor = u16::try_from(entries).ok().and_then(Cursor::new);
    let block = cursor.zip(words(entries)).ok_or(coalesce_error::new(
        COALESCE_FIELD_ENTRIES,
        entries.into(),
        (2, u16::MAX.into()),
    ));
    // SAFETY: the caller's promises.
    unsafe { Cursor::make(reaper, reaper_size, block, error) }
}

/// Passes each new entry that is not reaped yet to `take`, with `context`. Sets `*doorbell` to the value for the head
/// doorbell, or to `COALESCE_NO_DOORBELL`. The head moves only over reaped entries, so that the device overwrites no
/// other.
///
/// # Safety
/// `reaper` is null or points to a reaper that nobody else uses during the call; `queue` is null or points to the
/// entries of its queue, which the device may write at any time; `take` returns normally (no exception, no `longjmp`)
/// and does not use the reaper; `doorbell` is null or points to a `uint32_t`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_reaper_reap(
    reaper: *mut u64,
    queue: *const coalesce_reaper_entry,
    take: coalesce_reaper_take,
    context: *mut c_void,
    doorbell: *mut u32,
) -> coalesce_status {
    // SAFETY: the caller's promise.
    let (cursor, taken) = match unsafe { Cursor::open(reaper) } {
        Ok(reaper) => reaper,
        Err(status) => return status,
    };
    let Some(take) = take.filter(|_| !queue.is_null() && !doorbell.is_null()) else { return COALESCE_E_NULL };
    if !queue.is_aligned() {
        return COALESCE_E_ALIGNMENT;
    }
    let read = |index: u16| {
        let dword = queue.wrapping_add(usize::from(index)).cast::<u32>();
        // SAFETY: the index is below the queue's size. The phase tag comes first, as the device writes it last.
        unsafe {
            let last = dword.add(3).read_volatile();
            fence(Ordering::Acquire);
            Entry([dword.read_volatile(), dword.add(1).read_volatile(), dword.add(2).read_volatile(), last])
        }
    };
    let head = cursor.reap(taken, read, |Entry(dword)| {
        let entry = coalesce_reaper_entry { dword };
        // SAFETY: the caller's function, called as it expects.
        unsafe { take(context, &raw const entry) }
    });
    // SAFETY: the caller's promise.
    unsafe { put(doorbell, head.map_or(COALESCE_NO_DOORBELL, u32::from)) };
    COALESCE_OK
}
