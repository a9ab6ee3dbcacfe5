//! Optional counters of decisions.

use crate::status::{COALESCE_E_NULL, COALESCE_E_SIZE, COALESCE_OK, coalesce_status};

/// Counters of decisions by reason. Initialise them with zeroes, and index them with `COALESCE_REASON_...`.
///
/// They are not part of a state, so that states stay small. To count a decision, pass the state's reason.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct coalesce_stats {
    /// The number of decisions by reason. Counters saturate.
    pub decisions: [u64; 64],
}

/// Counts a decision by its reason. A number that has no counter, from 64 on, counts as `COALESCE_REASON_NONE`.
/// `stats_size` is `sizeof(coalesce_stats)`.
///
/// # Safety
/// `stats` is null or points to `stats_size` bytes that nobody else uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_stats_count(
    stats: *mut coalesce_stats,
    stats_size: usize,
    reason: u32,
) -> coalesce_status {
    if stats.is_null() {
        return COALESCE_E_NULL;
    }
    if stats_size != size_of::<coalesce_stats>() {
        return COALESCE_E_SIZE;
    }
    let counters = stats.cast::<u64>();
    let index = if reason < 64 { reason as usize } else { 0 };
    // SAFETY: the caller's promise, and the index is below 64.
    unsafe {
        let counter = counters.add(index);
        counter.write_unaligned(counter.read_unaligned().saturating_add(1));
    }
    COALESCE_OK
}
