//! A front end may cut off the file behind the memory that it shares with us. What is touched there then raises SIGBUS,
//! which would end this process, and with it everybody else's disks: so zeroes take its place.

use anyhow::{Context as _, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{SysconfVar, sysconf};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static PROGRAM: OnceLock<Program> = OnceLock::new();

struct Program {
    /// Where files are mapped that no front end can cut off: this program and its libraries.
    files: Vec<Range<usize>>,
    page_size: usize,
}

/// From now on memory that goes away reads as zeroes. To be called before any front end connects.
///
/// # Errors
/// The system says not what is mapped, or takes no handler.
pub fn survive() -> Result<()> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
    let files = maps.lines().filter(|line| line.contains(" /")).filter_map(range).collect();
    let page_size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().context("the size of a page")? as usize;
    PROGRAM.get_or_init(|| Program { files, page_size });
    let action = SigAction::new(SigHandler::SigAction(on_bus_error), SaFlags::SA_SIGINFO, SigSet::empty());
    // SAFETY: the handler calls nothing but what a signal handler may call.
    unsafe { sigaction(Signal::SIGBUS, &action) }.context("a handler for SIGBUS")?;
    Ok(())
}

/// Of a line such as `7f00-8000 r--p 0 8:1 42 /bin/true`.
fn range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this kind the reason of the signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let is_shared = |program: &&Program| !program.files.iter().any(|range| range.contains(&address));
    let program = PROGRAM.get().filter(is_shared).filter(|_| code == libc::BUS_ADRERR);
    if !program.is_some_and(|program| put_zeroes(address, program.page_size)) {
        // SAFETY: what failed is tried again, and ends the process this time.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    }
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        let line = b"a front end took back memory that it shares: it reads as zeroes\n";
        // SAFETY: the bytes are there; whether somebody reads them does not matter.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    }
}

/// Maps zeroes over the page of an address; where pages are huge, over a huge one.
fn put_zeroes(address: usize, page_size: usize) -> bool {
    let put = |size: usize| {
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = (address & !(size - 1)) as *mut libc::c_void;
        // SAFETY: a page of a mapping that has lost its file; nothing that Rust owns is in such a mapping.
        let mapped = unsafe { libc::mmap(start, size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        mapped != libc::MAP_FAILED
    };
    [page_size, 2 << 20, 1 << 30].into_iter().any(put)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found() {
        assert_eq!(range("7f00-8000 r--p 00000000 08:01 42 /bin/true"), Some(0x7f00..0x8000));
        assert_eq!(range("nonsense"), None);
    }
}
