//! Errors of parameters.

use crate::field::COALESCE_FIELD_RESERVED;
use crate::status::{COALESCE_E_CONFIG, coalesce_status};
use coalesce_decision::ConfigError;

/// A parameter that is out of range. A function that takes one writes it on every error; if the status is not
/// `COALESCE_E_CONFIG`, all of it is 0, and `coalesce_error_print` has nothing to say.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct coalesce_error {
    /// The parameter: `COALESCE_FIELD_...`; 0: none, the status says what is wrong.
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
        let ConfigError { field, value, min, max, because, .. } = error;
        let (because, because_value) = because.map_or((0, 0), |(other, value)| (other as u32, value));
        Self { field: field as u32, because, value, min, max, because_value }
    }
}

/// A parameter that has 32 bits in C and fewer in the machine.
pub(crate) fn narrow<T: TryFrom<u32>>(field: u32, value: u32, range: (u64, u64)) -> Result<T, coalesce_error> {
    T::try_from(value).map_err(|_| coalesce_error::new(field, value.into(), range))
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

    /// Writes the details to `out`, or an error without a parameter if there are none, so that a caller who prints it prints nothing
    /// of before. Returns the status.
    ///
    /// # Safety
    /// `out` is null, or points to room for an error.
    pub(crate) unsafe fn report(self, out: *mut coalesce_error) -> coalesce_status {
        let (status, error) = match self {
            Self::Status(status) => (status, coalesce_error::new(0, 0, (0, 0))),
            Self::Parameter(error) => (COALESCE_E_CONFIG, error),
        };
        if !out.is_null() {
            // SAFETY: the caller's promise.
            unsafe { out.write_unaligned(error) };
        }
        status
    }
}
