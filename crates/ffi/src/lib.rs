//! libcoalesce: the C ABI of the interrupt coalescing policies. C programs include `coalesce.h`, which is generated
//! from this crate and documents everything that a caller needs. Rust programs use the cores directly.
//!
//! Every function checks its arguments and makes one call of a core. An error never suppresses an interrupt: only
//! `COALESCE_HOLD` does, and only a valid machine returns it.
//!
//! The functions of the machines are alike, and written out all the same, each a line over what `tagged` has for all: cbindgen makes the
//! header from them and does not look into macros, and who greps for a function of the header finds it.
#![no_std]
#![expect(non_camel_case_types, reason = "types have their C names")]

#[cfg(feature = "std")]
extern crate std;

pub mod auto;
mod block;
pub mod budget;
pub mod cint;
#[cfg(feature = "std")]
pub mod delivery;
pub mod error;
pub mod field;
pub mod hint;
pub mod instant;
#[cfg(target_has_atomic = "64")]
pub mod ipi;
pub mod nvme;
#[cfg(feature = "std")]
pub mod policy;
pub mod reaper;
pub mod reason;
pub mod stats;
pub mod status;
pub mod strict;
mod tagged;
#[cfg(feature = "std")]
pub mod text;
pub mod version;
pub mod vic;

/// A program on bare metal needs a panic handler. This one refers to a function that does not exist. So a successful
/// link proves that nothing in this library panics.
#[cfg(all(feature = "no-panic", not(feature = "std"), not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        safe fn coalesce_can_panic() -> !;
    }
    coalesce_can_panic()
}
