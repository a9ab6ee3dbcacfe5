//! What is asked of Linux: files, sockets, signals, memory that is shared. It knows nothing of disks, queues and protocols.

pub mod bus_error;
pub mod call;
pub mod lock;
pub mod received;
pub mod shared_memory;
pub mod signals;
pub mod socket;
pub mod uring;
