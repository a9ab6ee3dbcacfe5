//! Which library this is.

use core::ffi::c_char;

/// Changes when states change inside.
pub const COALESCE_ABI_VERSION: u32 = 1;
/// Version of the header: `COALESCE_VERSION_MAJOR.COALESCE_VERSION_MINOR.COALESCE_VERSION_PATCH`.
pub const COALESCE_VERSION_MAJOR: u32 = 0;
/// Of the header.
pub const COALESCE_VERSION_MINOR: u32 = 1;
/// Of the header.
pub const COALESCE_VERSION_PATCH: u32 = 0;

/// `COALESCE_ABI_VERSION` of the library: it refuses states that one with another made.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_abi_version() -> u32 {
    COALESCE_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_version() -> *const c_char {
    const TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    TEXT.as_ptr().cast()
}
