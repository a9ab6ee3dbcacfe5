//! A userspace block device that decides when its guest is interrupted.
//!
//! `coalesce-target serve` offers disks over vhost-user to virtual machines, one socket each. The way of one request:
//!
//! guest kick → [`vhost::vring`] takes it → [`vhost::blk`] understands it → [`hint`] infers what its requester wants →
//! [`backend`] does it, through io_uring → [`delivery`] posts it, asks the policy, and interrupts. A deadline of the
//! policy leads to the same delivery.
//!
//! Requests, hints, delivery, statistics, control and back ends know nothing of virtio.

pub mod backend;
pub mod bench;
pub mod config;
pub mod control;
pub mod delivery;
pub mod hint;
pub mod metrics;
pub mod poll;
pub mod queue;
pub mod server;
pub mod socket;
pub mod stats;
pub mod vhost;

/// Says a line on standard error, to whoever still reads it.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr().lock(), format_args!("{}\n", format_args!($($argument)*)));
    };
}
