//! Decodes and encodes NVMe's coalescing features: `coalesce_nvme_...` (NVM Express Base Specification, Features 08h and 09h).

use crate::error::{Refused, coalesce_error};
use crate::field::{COALESCE_FIELD_AGGREGATION_THRESHOLD, COALESCE_FIELD_AGGREGATION_TIME_NS, COALESCE_FIELD_VECTOR};
use crate::status::*;
use crate::tagged::{answer, put};

/// Feature 08h, Interrupt Coalescing: for all I/O completion queues of a controller.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct coalesce_nvme_coalescing {
    /// The number of completions that interrupts at once. 1 to 256; 1: no coalescing by count.
    pub threshold: u32,
    /// Must be 0.
    pub reserved: u32,
    /// The longest time that a completion may be held, in ns, at most 25.5 ms; 0: no coalescing. Encoded in units of
    /// 100 µs.
    pub time_ns: u64,
}

const UNIT_NS: u64 = 100_000;

/// Decodes Command Dword 11 of Set Features 08h: THR, 0's based, in bits 7:0, and TIME in bits 15:8. `out_size` is
/// `sizeof(coalesce_nvme_coalescing)`.
///
/// # Safety
/// `out` is null or points to `out_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_nvme_coalescing_decode(
    cdw11: u32,
    out: *mut coalesce_nvme_coalescing,
    out_size: usize,
) -> coalesce_status {
    let value = coalesce_nvme_coalescing {
        threshold: (cdw11 & 0xff) + 1,
        reserved: 0,
        time_ns: u64::from(cdw11 >> 8 & 0xff) * UNIT_NS,
    };
    // SAFETY: the caller's promise.
    unsafe { answer(out, out_size, value) }
}

/// Encodes Command Dword 11 of Set Features 08h. The time is rounded up to 100 µs, so that only 0 means no coalescing.
///
/// # Safety
/// `value` is null or points to a `coalesce_nvme_coalescing`; `cdw11` is null or points to a `uint32_t`; `error` is
/// null or points to a `coalesce_error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_nvme_coalescing_encode(
    value: *const coalesce_nvme_coalescing,
    cdw11: *mut u32,
    error: *mut coalesce_error,
) -> coalesce_status {
    if value.is_null() || cdw11.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { Refused::Status(COALESCE_E_NULL).report(error) };
    }
    // SAFETY: the caller's promise; any bytes are such a value.
    let coalesce_nvme_coalescing { threshold, time_ns, .. } = unsafe { value.read_unaligned() };
    let wrong = |field, value, range| Refused::Parameter(coalesce_error::new(field, value, range));
    let refused = if !(1..=256).contains(&threshold) {
        wrong(COALESCE_FIELD_AGGREGATION_THRESHOLD, threshold.into(), (1, 256))
    } else if time_ns > 255 * UNIT_NS {
        wrong(COALESCE_FIELD_AGGREGATION_TIME_NS, time_ns, (0, 255 * UNIT_NS))
    } else {
        let units = time_ns.div_ceil(UNIT_NS) as u32;
        // SAFETY: the caller's promise.
        unsafe { put(cdw11, units << 8 | (threshold - 1)) };
        return COALESCE_OK;
    };
    // SAFETY: the caller's promise.
    unsafe { refused.report(error) }
}

/// Decodes Command Dword 11 of Set Features 09h, Interrupt Vector Configuration: the vector in bits 15:0, and in bit 16
/// whether coalescing is disabled for it. Returns the vector.
///
/// # Safety
/// `is_disabled` is null or points to a `bool`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_nvme_vector_decode(cdw11: u32, is_disabled: *mut bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { put(is_disabled, cdw11 & 1 << 16 != 0) };
    cdw11 & 0xffff
}

/// Encodes Command Dword 11 of Set Features 09h.
///
/// # Safety
/// `cdw11` is null or points to a `uint32_t`; `error` is null or points to a `coalesce_error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_nvme_vector_encode(
    vector: u32,
    is_disabled: bool,
    cdw11: *mut u32,
    error: *mut coalesce_error,
) -> coalesce_status {
    if cdw11.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { Refused::Status(COALESCE_E_NULL).report(error) };
    }
    if vector > 0xffff {
        let refused = Refused::Parameter(coalesce_error::new(COALESCE_FIELD_VECTOR, vector.into(), (0, 0xffff)));
        // SAFETY: the caller's promise.
        return unsafe { refused.report(error) };
    }
    // SAFETY: the caller's promise.
    unsafe { put(cdw11, vector | u32::from(is_disabled) << 16) };
    COALESCE_OK
}
