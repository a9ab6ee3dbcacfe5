//! The board and the flash: `board/board.h`, and what `lab/device.h` offers.

use core::mem::MaybeUninit;

/// A flash command that has finished.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Done {
    /// When.
    pub stamp: u64,
    pub slot: u16,
    failed: u16,
}

impl Done {
    pub const fn has_failed(&self) -> bool {
        self.failed != 0
    }
}

// SAFETY: these are the lab's, with these types; those that are safe ask nothing of their caller that could hurt us.
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

/// No instant: the timer is off.
pub const NEVER: u64 = u64::MAX;

/// Prints to the console.
pub fn print(text: &str) {
    // SAFETY: the text is there, with this length.
    unsafe { board_print(text.as_ptr(), text.len()) }
}

/// The next command that has finished. For the flash's interrupt alone.
pub fn collect() -> Option<Done> {
    let mut done = MaybeUninit::uninit();
    // SAFETY: there is room for it, and where the answer is true it was written.
    unsafe { flash_collect(done.as_mut_ptr()).then(|| done.assume_init()) }
}
