#![no_std]
#![cfg_attr(any(feature = "only-cint", feature = "only-vic"), allow(dead_code, reason = "what other policies need"))]
//! Firmware of a small NVMe-like controller: how interrupt coalescing sits in a device.
//!
//! Begin with `controller.rs`, the main loop; then `coalescing.rs`, which asks the policy of `policy.rs` and acts.
//! `queue.rs`, `command.rs` and `features.rs` are what NVMe asks of any device. This file has the entry points, and what
//! interrupts and main loop share.

mod aggregation;
mod board;
mod coalescing;
mod command;
mod controller;
mod decision;
mod features;
mod host;
mod owned;
#[cfg_attr(any(feature = "only-cint", feature = "only-vic"), path = "policy/only.rs")]
mod policy;
mod queue;
#[cfg(not(any(feature = "only-cint", feature = "only-vic")))]
mod replay;
mod vector;

use board::Done;
use coalescing::Coalescing;
use controller::Controller;
use core::panic::PanicInfo;
use heapless::spsc::{Producer, Queue};
use owned::Owned;
use vector::Line;

/// Room for every slot of the I/O queues, each of which is in the ring once at most: it is never full.
const RING: usize = 128;

/// The controller, and what the flash's interrupt has of it: one end of the ring of finished commands.
static DEVICE: (Owned<Producer<'static, Done>>, Owned<Controller<Line>>) = {
    static mut RING_MEMORY: Queue<Done, RING> = Queue::new();
    let memory = &raw mut RING_MEMORY;
    // SAFETY: this is evaluated once, and nothing else has a name for the memory.
    let (producer, consumer) = unsafe { (*memory).split_const() };
    let vectors = [Coalescing::new(1, Line(0)), Coalescing::new(2, Line(1))];
    (Owned::new(producer), Owned::new(Controller::new(vectors, consumer)))
};

/// Runs the controller from the instant `now` until the host disables it.
#[unsafe(no_mangle)]
extern "C" fn device_run(now: u64) {
    // SAFETY: the main loop calls this, and nobody else, and it is not called while it runs.
    unsafe { DEVICE.1.get() }.run(now);
}

/// What finished goes to the main loop. It is as much as there are slots, at most.
#[unsafe(no_mangle)]
extern "C" fn flash_interrupt() {
    // SAFETY: the flash's interrupt alone uses it, and does not interrupt itself.
    let finished = unsafe { DEVICE.0.get() };
    while let Some(done) = board::collect() {
        let room = finished.enqueue(done);
        debug_assert!(room.is_ok());
    }
}

/// It has ended the sleep: the main loop sees for itself that the deadline has passed.
#[unsafe(no_mangle)]
extern "C" fn deadline_interrupt() {}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    board::print("FAILED: panic in ");
    board::print(info.location().map_or("?", |location| location.file()));
    board::print("\n");
    board::board_exit(1)
}
