//! Memory that a front end shares: guest memory, or a record for a process to come.

use crate::bus_error::{MAPPINGS_MAX, Peer, Registration};
use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::statfs::fstatfs;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use vm_memory::MmapRegion;
use vm_memory::guest_memory::FileOffset;

/// The accesses that a mapping permits. Any other access ends the process: check before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Protection {
    /// Reads. The file may be open for reading only.
    ReadOnly = libc::PROT_READ,
    /// Reads and writes.
    ReadWrite = libc::PROT_READ | libc::PROT_WRITE,
}

/// A mapped part of a file that a front end shares.
#[derive(Debug)]
pub struct SharedMapping {
    _registration: Registration, // dropped first
    mapping: MmapRegion,
}

impl SharedMapping {
    /// Maps `len` bytes of a file from `offset` on. The file must be in memory: a file system such as FUSE could block
    /// an access for ever.
    ///
    /// # Errors
    /// The file is unsuitable, or too many mappings exist.
    pub fn new(file: File, offset: u64, len: u64, protection: Protection, front_end: Arc<Peer>) -> Result<Self> {
        // Only files in memory have seals. This query never blocks; fstat(2) would ask the file system.
        if fcntl(&file, FcntlArg::F_GET_SEALS).is_err() {
            bail!(
                "the file is not a memfd and not on tmpfs or hugetlbfs: use such memory, and share it (QEMU: share=on)"
            );
        }
        let page = fstatfs(&file).context("fstatfs")?.block_size() as u64; // a huge page on hugetlbfs
        let file_len = len_of(&file).context("fstat")?;
        ensure!(
            offset.checked_add(len).is_some_and(|end| end <= file_len),
            "{len} bytes at {offset} exceed the file, which has {file_len} bytes"
        );
        let pages = len.checked_next_multiple_of(page).context("the length exceeds the address space")?;
        ensure!(page <= PAGE_MAX || pages == len, "{len} bytes are not whole pages of {page} bytes");
        let file = FileOffset::new(file, offset);
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let mapping = MmapRegion::build(Some(file), usize::try_from(len)?, protection as i32, flags).context("mmap")?;
        let registration = Registration::new(mapping.as_ptr() as usize, usize::try_from(pages)?, front_end);
        let registration = registration
            .with_context(|| format!("requests in flight still use {MAPPINGS_MAX} mappings, which is the limit"))?;
        Ok(Self { _registration: registration, mapping })
    }
}

/// The size of a file in bytes. The C library's fstat may call newfstatat(2). The sandbox refuses that call, because it
/// can inspect any path.
fn len_of(file: &File) -> std::io::Result<u64> {
    // SAFETY: all zeroes is a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure has the kernel's layout.
    if unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), &raw mut stat) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The largest page that is not huge, in bytes. Up to this size mmap(2) rounds lengths up to whole pages by itself.
const PAGE_MAX: u64 = 1 << 16;

impl Deref for SharedMapping {
    type Target = MmapRegion;

    fn deref(&self) -> &MmapRegion {
        &self.mapping
    }
}
