//! Restricted io_urings. Without the restriction, a front end that controls the process could use every operation of
//! io_uring, past the filter of system calls.

use io_uring::{IoUring, register::Restriction};
use std::io;

/// An io_uring that submits up to `entries` operations in one call and holds `completions`. It accepts only these operations and
/// these later registrations.
///
/// # Errors
/// The kernel has no io_uring or no restrictions for it (before Linux 5.10), or no memory or descriptor is left.
pub fn restricted(entries: u32, completions: u32, operations: &[u8], registrations: &[u8]) -> io::Result<IoUring> {
    let uring = IoUring::builder().setup_r_disabled().setup_cqsize(completions).build(entries)?;
    let operations = operations.iter().copied().map(Restriction::sqe_op);
    let mut restrictions: Vec<_> =
        operations.chain(registrations.iter().copied().map(Restriction::register_op)).collect();
    uring.submitter().register_restrictions(&mut restrictions)?;
    uring.submitter().register_enable_rings()?;
    Ok(uring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::opcode;

    #[test]
    fn what_is_not_allowed_is_refused() {
        let mut uring = restricted(1, 2, &[opcode::Nop::CODE], &[]).unwrap();
        let mut result_of = |entry: io_uring::squeue::Entry| {
            // SAFETY: neither operation has a buffer or a file.
            unsafe { uring.submission().push(&entry) }.unwrap();
            uring.submit_and_wait(1).unwrap();
            uring.completion().next().unwrap().result()
        };
        assert_eq!(result_of(opcode::Nop::new().build()), 0);
        assert_eq!(result_of(opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build()), -libc::EACCES);
        let eventfd = nix::sys::eventfd::EventFd::new().unwrap();
        let error = uring.submitter().register_eventfd(std::os::fd::AsRawFd::as_raw_fd(&eventfd)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    }
}
