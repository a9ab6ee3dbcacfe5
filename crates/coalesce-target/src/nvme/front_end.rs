//! A client of vfio-user that drives the controller, as the disk's server sees it.

use super::controller::{BAR_LEN, Controller};
use super::identify::{DEVICE, VENDOR};
use super::vector::Vector;
use crate::config::DiskConfig;
use crate::disk::Disk;
use crate::front_end::FrontEnd;
use crate::os::bus_error::Peer;
use crate::queue::QueueHandle;
use crate::vfio_user::connection::Connection;
use crate::vfio_user::irq::Vectors;
use crate::vfio_user::memory::DmaMemory;
use crate::vfio_user::pci::Identity;
use crate::vfio_user::wire::FILES_MAX;
use anyhow::Result;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// Mass storage, non-volatile memory, NVMe.
const CLASS: [u8; 3] = [0x01, 0x08, 0x02];

/// A client that gives its guest the disk as an NVMe controller.
pub struct NvmeUser(Connection<Controller>);

/// One vector for each queue, and one for the admin queue.
fn vectors(queues: usize) -> usize {
    queues + 1
}

impl FrontEnd for NvmeUser {
    type Source = Vector;

    /// As many as one submission queue has entries. Submission queues with the same vector share them.
    const REQUESTS_MAX: u16 = super::spec::ENTRIES_MAX as u16;
    const FILE_LEN_MAX: u64 = 0;
    const DEAF: &'static str = "its driver has not asked for Namespace Attribute Notices (Feature 0Bh)";

    /// One for each vector and for the pin, and one more for each file of a message that changes them.
    fn eventfds(queues: usize) -> usize {
        vectors(queues) + 1 + FILES_MAX
    }

    fn connect(
        stream: UnixStream,
        disk: Arc<Disk>,
        queues: Arc<[QueueHandle<Vector>]>,
        _: &DiskConfig,
    ) -> Result<Self> {
        let memory = DmaMemory::new(Arc::new(Peer::new(stream.try_clone()?.into())), disk.limits.max_memory);
        let vectors = Vectors::new(vectors(queues.len()) as u16, disk.call_rings.clone());
        let controller = Controller::new(disk.clone(), queues, memory.clone(), vectors.clone());
        let identity = Identity {
            vendor: VENDOR,
            device: DEVICE,
            subsystem_vendor: VENDOR,
            subsystem: DEVICE,
            revision: 0,
            class: CLASS,
            bar0_len: BAR_LEN,
        };
        Ok(Self(Connection::new(&disk.name, stream, &identity, controller, memory, vectors)))
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.0.wake()
    }

    fn attend(&mut self) {
        self.0.attend();
    }

    fn hears_of_size(&self) -> bool {
        self.0.device().announces_namespace()
    }

    fn size_has_changed(&mut self) {
        self.0.device_mut().namespace_has_changed();
    }

    fn handle_message(&mut self) -> Result<bool> {
        self.0.handle_message()
    }
}
