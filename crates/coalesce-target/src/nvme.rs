//! An NVMe controller (NVMe 1.4) with one namespace, as a PCI device behind vfio-user.
//!
//! [`Controller`](controller::Controller) has the registers and executes admin commands, on the thread of the connection.
//! Each interrupt vector for I/O has a thread of its own, whose source is a [`Vector`](vector::Vector): the completion
//! queues with this vector, and their submission queues. Both share a [`Session`](admin::Session), from the controller's
//! enabling to its reset.
//!
//! Commands: Flush, Read, Write, Write Zeroes, Dataset Management; the mandatory admin commands, Doorbell Buffer Config. Not:
//! SGLs, fused commands, metadata, several namespaces, firmware updates, a boot partition. A guest without MSI-X is
//! interrupted by the pin INTA.

pub mod admin;
pub mod command;
pub mod controller;
pub mod doorbell;
pub mod features;
pub mod front_end;
pub mod identify;
pub mod prp;
pub mod rings;
pub mod spec;
pub mod vector;
