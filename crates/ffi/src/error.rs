//! Errors of parameters.

use crate::status::{COALESCE_E_CONFIG, coalesce_status};
use coalesce_decision::ConfigError;
use core::ffi::{CStr, c_char};

/// A parameter that is out of range.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_error {
    /// The parameter: `COALESCE_FIELD_...`
    pub field: u32,
    /// The other parameter that sets this bound: `COALESCE_FIELD_...`; 0: the parameter's own range, `tick_hz`, or the
    /// configuration in force sets it.
    pub because: u32,
    /// The value of the parameter.
    pub value: u64,
    /// The smallest value allowed here.
    pub min: u64,
    /// The largest value allowed here.
    pub max: u64,
    /// The value of the other parameter; 0 if `because` is 0.
    pub because_value: u64,
}

impl coalesce_error {
    pub(crate) const fn new(field: u32, value: u64, (min, max): (u64, u64)) -> Self {
        Self { field, because: 0, value, min, max, because_value: 0 }
    }
}

impl From<ConfigError> for coalesce_error {
    fn from(error: ConfigError) -> Self {
        let ConfigError { field, value, min, max, because } = error;
        let (because, because_value) = because.map_or((0, 0), |(other, value)| (other as u32, value));
        Self { field: field as u32, because, value, min, max, because_value }
    }
}

/// A parameter that has 32 bits in C and 16 in the machine.
pub(crate) fn narrow(field: u32, value: u32, range: (u64, u64)) -> Result<u16, coalesce_error> {
    u16::try_from(value).map_err(|_| coalesce_error::new(field, value.into(), range))
}

/// A parameter that is 0 or 1.
pub(crate) fn switch(field: u32, value: u32) -> Result<bool, coalesce_error> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(coalesce_error::new(field, value.into(), (0, 1))),
    }
}

/// A `reserved` that must be 0.
pub(crate) fn zero(reserved: u32) -> Result<(), coalesce_error> {
    if reserved == 0 { Ok(()) } else { Err(coalesce_error::new(COALESCE_FIELD_RESERVED, reserved.into(), (0, 0))) }
}

/// Why a call is refused.
pub(crate) enum Refused {
    /// With this status.
    Status(coalesce_status),
    /// Because of this parameter.
    Parameter(coalesce_error),
}

impl<E: Into<coalesce_error>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Parameter(error.into())
    }
}

impl Refused {
    /// The status without its details.
    #[cfg(feature = "std")]
    pub(crate) const fn status(&self) -> coalesce_status {
        match self {
            Self::Status(status) => *status,
            Self::Parameter(_) => COALESCE_E_CONFIG,
        }
    }

    /// Writes the details to `out`, and returns the status.
    ///
    /// # Safety
    /// `out` is null, or points to room for an error.
    pub(crate) unsafe fn report(self, out: *mut coalesce_error) -> coalesce_status {
        match self {
            Self::Status(status) => status,
            Self::Parameter(error) => {
                if !out.is_null() {
                    // SAFETY: the caller's promise.
                    unsafe { out.write_unaligned(error) };
                }
                COALESCE_E_CONFIG
            }
        }
    }
}

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
