//! The parameters that an error may name.

use core::ffi::{CStr, c_char};

/// `tick_hz`
pub const COALESCE_FIELD_TICK_HZ: u32 = 1;
/// `cif_threshold`
pub const COALESCE_FIELD_CIF_THRESHOLD: u32 = 2;
/// `epoch_ns`
pub const COALESCE_FIELD_EPOCH_NS: u32 = 3;
/// `max_skip`
pub const COALESCE_FIELD_MAX_SKIP: u32 = 4;
/// `max_hold_ns`
pub const COALESCE_FIELD_MAX_HOLD_NS: u32 = 5;
/// `margin_ns`
pub const COALESCE_FIELD_MARGIN_NS: u32 = 6;
/// `threshold_ns` of an IPI gate
pub const COALESCE_FIELD_IPI_THRESHOLD_NS: u32 = 7;
/// `live_clamp`
pub const COALESCE_FIELD_LIVE_CLAMP: u32 = 8;
/// `delta_ns`
pub const COALESCE_FIELD_DELTA_NS: u32 = 9;
/// `thr`
pub const COALESCE_FIELD_THR: u32 = 10;
/// `storm_max_rate`
pub const COALESCE_FIELD_STORM_MAX_RATE: u32 = 11;
/// `storm_shift`
pub const COALESCE_FIELD_STORM_SHIFT: u32 = 12;
/// `in_flight`
pub const COALESCE_FIELD_IN_FLIGHT: u32 = 13;
/// `ooo`
pub const COALESCE_FIELD_OOO: u32 = 14;
/// `reserved`, which must be 0
pub const COALESCE_FIELD_RESERVED: u32 = 15;
/// `threshold` of `coalesce_nvme_coalescing`
pub const COALESCE_FIELD_AGGREGATION_THRESHOLD: u32 = 16;
/// `time_ns` of `coalesce_nvme_coalescing`
pub const COALESCE_FIELD_AGGREGATION_TIME_NS: u32 = 17;
/// `vector`
pub const COALESCE_FIELD_VECTOR: u32 = 18;
/// `commands` of a window, a power of two
pub const COALESCE_FIELD_COMMANDS: u32 = 19;
/// `entries` of a reaper's queue
pub const COALESCE_FIELD_ENTRIES: u32 = 20;
/// `budget`
pub const COALESCE_FIELD_BUDGET: u32 = 21;

/// The name of a parameter, as in its configuration structure. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_field_name(field: u32) -> *const c_char {
    let text: &CStr = match field {
        COALESCE_FIELD_TICK_HZ => c"tick_hz",
        COALESCE_FIELD_CIF_THRESHOLD => c"cif_threshold",
        COALESCE_FIELD_EPOCH_NS => c"epoch_ns",
        COALESCE_FIELD_MAX_SKIP => c"max_skip",
        COALESCE_FIELD_MAX_HOLD_NS => c"max_hold_ns",
        COALESCE_FIELD_MARGIN_NS => c"margin_ns",
        COALESCE_FIELD_IPI_THRESHOLD_NS => c"threshold_ns",
        COALESCE_FIELD_LIVE_CLAMP => c"live_clamp",
        COALESCE_FIELD_DELTA_NS => c"delta_ns",
        COALESCE_FIELD_THR => c"thr",
        COALESCE_FIELD_STORM_MAX_RATE => c"storm_max_rate",
        COALESCE_FIELD_STORM_SHIFT => c"storm_shift",
        COALESCE_FIELD_IN_FLIGHT => c"in_flight",
        COALESCE_FIELD_OOO => c"ooo",
        COALESCE_FIELD_RESERVED => c"reserved",
        COALESCE_FIELD_AGGREGATION_THRESHOLD => c"threshold",
        COALESCE_FIELD_AGGREGATION_TIME_NS => c"time_ns",
        COALESCE_FIELD_VECTOR => c"vector",
        COALESCE_FIELD_COMMANDS => c"commands",
        COALESCE_FIELD_ENTRIES => c"entries",
        COALESCE_FIELD_BUDGET => c"budget",
        _ => c"unknown",
    };
    text.as_ptr()
}
