//! The driver's side of an NVMe controller behind vfio-user: what Linux's driver does, without a guest.
//!
//! A queue pair for each queue, with an interrupt vector of its own. Doorbells are mapped where the controller offers it,
//! as SPDK does. Otherwise, with shadow doorbells (Doorbell Buffer Config), the driver sends a message only where the
//! controller asks for one.

mod client;
mod controller;
mod queue;

pub use controller::open;
pub use queue::NvmeQueue;
