//! The version of the library.

use core::ffi::c_char;

/// The version of the header is `COALESCE_VERSION_MAJOR.COALESCE_VERSION_MINOR.COALESCE_VERSION_PATCH`.
pub const COALESCE_VERSION_MAJOR: u32 = 0;
/// The minor version of the header.
pub const COALESCE_VERSION_MINOR: u32 = 1;
/// The patch version of the header.
pub const COALESCE_VERSION_PATCH: u32 = 0;
/// The version of the layout of states.
pub const COALESCE_ABI_VERSION: u32 = 1;

/// `COALESCE_ABI_VERSION` of the library. It refuses states of a library with another one.
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
