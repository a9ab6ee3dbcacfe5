//! What functions answer.

use core::ffi::{CStr, c_char};

/// What a function answers: that it is done (0), a decision (more than 0), or an error (less than 0). Of a function
/// that decides, only `COALESCE_HOLD` suppresses an interrupt: on every other value, errors included, interrupt.
/// Numbers are never reused.
pub type coalesce_status = i32;

/// Done. No decision: a function that decides never returns it.
pub const COALESCE_OK: coalesce_status = 0;
/// A decision: do not interrupt now.
pub const COALESCE_HOLD: coalesce_status = 1;
/// A decision: interrupt now. The interrupt covers everything posted so far.
pub const COALESCE_DELIVER: coalesce_status = 2;
/// A decision: interrupt now, for this urgent completion alone; held completions stay held (cinterrupts §3.5).
pub const COALESCE_DELIVER_URGENT: coalesce_status = 3;
/// A pointer is null.
pub const COALESCE_E_NULL: coalesce_status = -1;
/// A state is not aligned to 8 bytes, or a queue not to 4.
pub const COALESCE_E_ALIGNMENT: coalesce_status = -2;
/// The memory is not a state of this kind that this library has initialised.
pub const COALESCE_E_STATE: coalesce_status = -3;
/// A size differs from the one in this library's header: header and library differ, or the memory is too small.
pub const COALESCE_E_SIZE: coalesce_status = -4;
/// A parameter is out of range. The `coalesce_error` has the parameter and its bounds.
pub const COALESCE_E_CONFIG: coalesce_status = -5;

/// The message for a status, in English. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_strerror(status: coalesce_status) -> *const c_char {
    let text: &CStr = match status {
        COALESCE_OK => c"done",
        COALESCE_HOLD => c"do not interrupt now",
        COALESCE_DELIVER => c"interrupt now",
        COALESCE_DELIVER_URGENT => c"interrupt now, for this urgent completion alone",
        COALESCE_E_NULL => c"a pointer is null",
        COALESCE_E_ALIGNMENT => c"a state is not aligned to 8 bytes, or a queue not to 4",
        COALESCE_E_STATE => c"the memory is not a state of this kind that this library has initialised",
        COALESCE_E_SIZE => c"a size differs from the one in this library's header",
        COALESCE_E_CONFIG => c"a parameter is out of range",
        _ => c"unknown status",
    };
    text.as_ptr()
}
