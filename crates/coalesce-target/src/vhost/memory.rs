//! Memory that a front end shares with us: guest memory, and the region of requests in flight.

use crate::bus_error::{MAPPINGS_MAX, Peer, Registration};
use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::statfs::fstatfs;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use vm_memory::bitmap::BS;
use vm_memory::guest_memory::{FileOffset, Result as MemoryResult};
use vm_memory::{
    Address as _, GuestAddress, GuestMemoryRegion, GuestMemoryRegionBytes, GuestRegionCollection, MemoryRegionAddress,
    MmapRegion, VolatileMemory as _, VolatileSlice,
};

/// Guest memory, as it is mapped at one time.
pub type GuestMemory = GuestRegionCollection<GuestRegion>;

/// A part of a file that a front end shares, mapped here.
#[derive(Debug)]
pub struct SharedMapping {
    _registration: Registration, // dropped first
    mapping: MmapRegion,
}

impl SharedMapping {
    /// Maps a part of a file. Only memory is taken: a file system, such as FUSE, could keep who touches it waiting.
    ///
    /// # Errors
    /// What is wrong with the file, or that too much is mapped already.
    pub fn new(file: File, offset: u64, len: u64, front_end: Arc<Peer>) -> Result<Self> {
        // Only files in memory can be sealed. To ask that waits for nobody, where fstat(2) would ask the file system.
        if fcntl(&file, FcntlArg::F_GET_SEALS).is_err() {
            bail!(
                "the file is neither a memfd nor on tmpfs or hugetlbfs: memory must be, and shared (share=on in QEMU)"
            );
        }
        let page = fstatfs(&file).context("fstatfs")?.block_size() as u64; // a huge one on hugetlbfs
        let file_len = len_of(&file).context("fstat")?;
        ensure!(
            offset.checked_add(len).is_some_and(|end| end <= file_len),
            "{len} bytes from {offset} on are not in the file, which has {file_len}"
        );
        let pages = len.checked_next_multiple_of(page).context("no address space has room for it")?;
        ensure!(page <= PAGE_MAX || pages == len, "{len} bytes are not whole pages of {page} bytes");
        let mapping = MmapRegion::from_file(FileOffset::new(file, offset), usize::try_from(len)?).context("mmap")?;
        let registration = Registration::new(mapping.as_ptr() as usize, usize::try_from(pages)?, front_end);
        let registration = registration
            .with_context(|| format!("requests in flight still use {MAPPINGS_MAX} mappings, more are not allowed"))?;
        Ok(Self { _registration: registration, mapping })
    }
}

/// Bytes of a file. The C library's fstat may be newfstatat(2), which the sandbox refuses as it looks at any path.
fn len_of(file: &File) -> std::io::Result<u64> {
    // SAFETY: all zeroes is a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure is the kernel's.
    if unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), &raw mut stat) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Where the kernel maps whole pages by itself: they are not huge.
const PAGE_MAX: u64 = 1 << 16;

impl Deref for SharedMapping {
    type Target = MmapRegion;

    fn deref(&self) -> &MmapRegion {
        &self.mapping
    }
}

/// A part of guest memory.
#[derive(Debug)]
pub struct GuestRegion {
    mapping: SharedMapping,
    start: GuestAddress,
}

impl GuestRegion {
    /// Memory that the guest has at `start`. None: it does not end there.
    #[must_use]
    pub fn new(mapping: SharedMapping, start: GuestAddress) -> Option<Self> {
        start.checked_add(mapping.size() as u64)?;
        Some(Self { mapping, start })
    }
}

impl GuestMemoryRegion for GuestRegion {
    type B = ();

    fn len(&self) -> u64 {
        self.mapping.size() as u64
    }

    fn start_addr(&self) -> GuestAddress {
        self.start
    }

    fn bitmap(&self) -> BS<'_, ()> {}

    fn get_slice(&self, offset: MemoryRegionAddress, count: usize) -> MemoryResult<VolatileSlice<'_>> {
        Ok(self.mapping.get_slice(offset.raw_value() as usize, count)?)
    }
}

impl GuestMemoryRegionBytes for GuestRegion {}
