//! A userspace block device that decides when its guest is interrupted.
//!
//! `coalesce-target serve` offers disks to virtual machines, one socket each: over vhost-user, or over vfio-user as NVMe. The
//! path of a request:
//!
//! guest kick → [`queue`] takes it from its [`source`], a [`vhost::vring`] or an [`nvme::vector`] → [`backend`] performs it, through
//! io_uring → [`coalesce_delivery`] posts its completion, asks the policy, and interrupts. A deadline of the policy
//! leads to the same delivery.
//!
//! [`server`] serves any [`front_end`]. Only [`vhost`] knows virtio, and only [`nvme`] NVMe. Only the queue knows the policy.
//!
//! [`supervision`] has the processes, and what an operator talks to. [`os`] is what Linux is asked for, and knows nothing of the rest.

pub mod backend;
pub mod config;
pub mod disk;
pub mod front_end;
pub mod link;
pub mod nvme;
pub mod os;
pub mod queue;
pub mod record;
pub mod server;
pub mod source;
pub mod stats;
pub mod supervision;
pub mod throttle;
pub mod top;
pub mod vfio_user;
pub mod vhost;

/// Prints to standard output. A part of the text may come from anywhere, so a terminal obeys none of it. A reader that has
/// closed the output is not an error.
///
/// # Errors
/// Writing fails.
pub fn print(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(coalesce_cli::printable(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// Prints a line to standard error, of which a terminal obeys nothing, either. Ignores errors.
pub fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "{}", coalesce_cli::printable(&line.to_string()));
}

/// [`say`](fn@say) with the arguments of `format!`.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::say(format_args!($($argument)*)) };
}
