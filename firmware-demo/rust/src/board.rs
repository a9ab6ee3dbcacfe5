//! Bindings of the board and the flash: `board/board.h` and `lab/device.h`.

use core::mem::MaybeUninit;

/// A completed flash command.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Done {
    /// The instant of its completion.
    pub stamp: u64,
    pub slot: u16,
    failed: u16,
}

impl Done {
    pub const fn has_failed(&self) -> bool {
        self.failed != 0
    }
}

// SAFETY: the lab defines these functions with these types. The safe ones have no precondition for memory safety.
unsafe extern "C" {
    #[link_name = "BOARD_TICK_HZ"]
    pub safe static TICK_HZ: u32;

    pub safe fn board_arm_deadline(at: u64);
    pub safe fn board_pend(line: u32);
    pub safe fn board_block() -> u32;
    pub safe fn board_restore(before: u32);
    pub safe fn board_sleep();
    pub safe fn board_exit(status: i32) -> !;
    fn board_print(text: *const u8, length: usize);

    pub safe fn flash_start(slot: u32, is_write: bool, block: u32, address: u32, now: u64);
    pub safe fn flash_is_past(instant: u64) -> bool;
    pub safe fn flash_abort();
    fn flash_collect(done: *mut Done) -> bool;
}

/// An instant that never comes: it switches a timer off.
pub const NEVER: u64 = u64::MAX;

/// Prints to the console.
pub fn print(text: &str) {
    // SAFETY: the pointer and the length are those of a text.
    unsafe { board_print(text.as_ptr(), text.len()) }
}

/// The next completed command. Only for the flash's interrupt.
pub fn collect() -> Option<Done> {
    let mut done = MaybeUninit::uninit();
    // SAFETY: the pointer has room for a `Done`, and a result of true means that it was written.
    unsafe { flash_collect(done.as_mut_ptr()).then(|| done.assume_init()) }
}
