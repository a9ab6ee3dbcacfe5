//! A userspace block device that decides when its guest is interrupted.
//!
//! `coalesce-target serve` offers disks to virtual machines, one socket each: over vhost-user, or over vfio-user as NVMe. The
//! path of a request:
//!
//! guest kick → [`queue`] takes it from its [`source`], a [`vhost::vring`] or an [`nvme::vector`] → [`backend`] performs it, through
//! io_uring → [`coalesce_delivery`] posts its completion, asks the policy, and interrupts. A deadline of the policy
//! leads to the same delivery.
//!
//! [`server`] serves any [`front_end`]. Only [`vhost`] knows virtio, and only [`nvme`] NVMe, but for what a host may set about its
//! interrupts (Features 08h and 09h): a [`source`] hands that to the queue, for a policy that obeys it and for the [`stats`]. Only the
//! queue asks a policy; elsewhere it is a name and its parameters.
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
#[cfg(feature = "cli")]
pub mod top;
pub mod vfio_user;
pub mod vhost;
