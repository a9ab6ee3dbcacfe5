#![no_std]
#![cfg_attr(
    any(feature = "only-auto", feature = "only-budget", feature = "only-cint", feature = "only-vic"),
    allow(dead_code, reason = "only other policies need some code")
)]
//! Firmware of a small NVMe-like controller. It shows where interrupt coalescing belongs in a device.
//!
//! Begin with `controller.rs`, the main loop. Then read `coalescing.rs`, where `coalesce-delivery` asks the policy in `policy.rs` and
//! executes its decisions. `queue.rs`, `command.rs` and `features.rs` are what any NVMe device needs. This file has the
//! entry points, and the state that interrupts and main loop share.

mod aggregation;
mod board;
mod coalescing;
mod command;
mod controller;
mod decision;
mod features;
mod host;
mod owned;
#[cfg_attr(
    any(feature = "only-auto", feature = "only-budget", feature = "only-cint", feature = "only-vic"),
    path = "policy/only.rs"
)]
mod policy;
mod queue;
#[cfg(not(any(feature = "only-auto", feature = "only-budget", feature = "only-cint", feature = "only-vic")))]
mod replay;
mod vector;

use board::Done;
use coalescing::Coalescing;
use controller::Controller;
use core::panic::PanicInfo;
use heapless::spsc::{Producer, Queue};
use owned::Owned;
use vector::Line;

/// The size of the ring: it has room for every slot of the I/O queues. Each slot is in the ring at most once, so the
/// ring is never full.
const RING: usize = 128;

/// The controller, and the flash interrupt's end of the ring of completed commands.
static DEVICE: (Owned<Producer<'static, Done>>, Owned<Controller<Line>>) = {
    static mut RING_MEMORY: Queue<Done, RING> = Queue::new();
    let memory = &raw mut RING_MEMORY;
    // SAFETY: this is evaluated once, and no other code can name the memory.
    let (producer, consumer) = unsafe { (*memory).split_const() };
    let vectors = [Coalescing::new(1, Line(0)), Coalescing::new(2, Line(1))];
    (Owned::new(producer), Owned::new(Controller::new(vectors, consumer)))
};

/// Runs the controller from the instant `now` until the host disables it.
#[unsafe(no_mangle)]
extern "C" fn device_run(now: u64) {
    // SAFETY: only the main loop calls this, and never while it runs.
    unsafe { DEVICE.1.get() }.run(now);
}

/// Passes completed flash commands to the main loop. There are at most as many as slots.
#[unsafe(no_mangle)]
extern "C" fn flash_interrupt() {
    // SAFETY: only the flash's interrupt uses it, and it does not interrupt itself.
    let finished = unsafe { DEVICE.0.get() };
    while let Some(done) = board::collect() {
        let room = finished.enqueue(done);
        debug_assert!(room.is_ok());
    }
}

/// The interrupt only ends the sleep. The main loop then sees that the deadline has passed.
#[unsafe(no_mangle)]
extern "C" fn deadline_interrupt() {}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    board::print("FAILED: panic in ");
    board::print(info.location().map_or("?", |location| location.file()));
    board::print("\n");
    board::board_exit(1)
}
