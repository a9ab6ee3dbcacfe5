//! Locks of files against other targets and against QEMU.

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long to wait for a lock. A killed target keeps that of its image until its last request in flight has completed, which
/// must not happen after requests of this process.
const PATIENCE: Duration = Duration::from_secs(5);

/// All of a file, whatever its length becomes.
pub const ALL: (i64, i64) = (0, 0);

/// Locks or unlocks (`F_WRLCK`, `F_RDLCK`, `F_UNLCK`) `len` bytes of a file from `start` on; 0: to the end. A lock lasts as long
/// as its open file.
///
/// # Errors
/// Another open file has the lock, or the file system has none.
pub fn lock(file: &File, lock_type: libc::c_int, (start, len): (i64, i64)) -> Result<()> {
    let part = libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        l_pid: 0,
    };
    let start = Instant::now();
    loop {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&part)) {
            Ok(_) => return Ok(()),
            Err(Errno::EAGAIN | Errno::EACCES) if start.elapsed() < PATIENCE => sleep(Duration::from_millis(10)),
            Err(Errno::EAGAIN | Errno::EACCES) => bail!("is locked: another process or another disk has it open"),
            Err(error) => return Err(error).context("cannot be locked"),
        }
    }
}
