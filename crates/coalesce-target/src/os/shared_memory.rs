//! Memory that a front end shares: guest memory, or a record for a process to come.

use crate::os::bus_error::{MAPPINGS_MAX, Peer, Registration};
use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::statfs::fstatfs;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::Arc;
use vm_memory::{MmapRegion, VolatileMemory as _, VolatileSlice};

/// The accesses that a mapping permits. Any other access ends the process: check before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Protection {
    /// Reads. The file may be open for reading only.
    ReadOnly = libc::PROT_READ,
    /// Reads and writes.
    ReadWrite = libc::PROT_READ | libc::PROT_WRITE,
}

/// A mapped part of a file that a front end shares. The file is closed: a guest may have more regions than a process files.
#[derive(Debug)]
pub struct SharedMapping {
    _registration: Registration, // dropped first
    view: MmapRegion,
    _pages: Pages,
}

/// Mapped pages.
#[derive(Debug)]
struct Pages {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the pages belong to the process, not to a thread.
unsafe impl Send for Pages {}
// SAFETY: as above; nothing is accessed through this type.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: they were mapped, and nothing refers to them any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

/// Whether a file's data is in memory: only such files have seals. This query never blocks. fstat(2) would ask the file system, and
/// fstatfs(2) tells of a block device where its node is.
pub fn is_in_memory(file: &File) -> bool {
    fcntl(file, FcntlArg::F_GET_SEALS).is_ok()
}

impl SharedMapping {
    /// Maps `len` bytes of a file from `offset` on. The file must be in memory: a file system such as FUSE could block
    /// an access for ever.
    ///
    /// # Errors
    /// The file is unsuitable, or too many mappings exist.
    pub fn new(file: File, offset: u64, len: u64, protection: Protection, front_end: Arc<Peer>) -> Result<Self> {
        if !is_in_memory(&file) {
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
        let pages = NonZeroUsize::new(usize::try_from(pages)?).context("a mapping of no bytes")?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
        let access = ProtFlags::from_bits_truncate(protection as i32);
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe { mmap(None, pages, access, flags, &file, i64::try_from(offset)?) };
        let start = start.map_err(io::Error::from).context("mmap")?;
        let pages = Pages { start, len: pages.get() };
        // SAFETY: these bytes are mapped as long as the pages live.
        let view = unsafe {
            MmapRegion::build_raw(start.as_ptr().cast(), usize::try_from(len)?, protection as i32, flags.bits())
        }
        .context("mmap")?;
        let registration = Registration::new(start.as_ptr() as usize, pages.len, front_end);
        let registration = registration
            .with_context(|| format!("requests in flight still use {MAPPINGS_MAX} mappings, which is the limit"))?;
        Ok(Self { _registration: registration, view, _pages: pages })
    }

    /// The pages of its first `len` bytes that exist: to read others would make them. All of them, if the kernel does not tell.
    pub fn present(&self, len: usize) -> impl Iterator<Item = VolatileSlice<'_>> {
        (0..len).step_by(CHUNK).flat_map(move |chunk| {
            let mut is_present = [1_u8; CHUNK / PAGE];
            let count = (len - chunk).min(CHUNK);
            // SAFETY: the range is mapped, and there is a byte for each of its pages.
            unsafe { libc::mincore(self.view.as_ptr().add(chunk).cast(), count, is_present.as_mut_ptr()) };
            let pages = (0..count).step_by(PAGE).filter(move |at| is_present[at / PAGE] & 1 != 0);
            pages.filter_map(move |at| self.view.get_slice(chunk + at, PAGE.min(count - at)).ok())
        })
    }
}

/// Bytes of a page, as mincore(2) counts them.
pub const PAGE: usize = 4096;
/// What is asked about at a time, in bytes.
const CHUNK: usize = 4 << 20;

/// The size of a file in bytes. The C library's fstat may call newfstatat(2). The sandbox refuses that call, because it
/// can inspect any path.
fn len_of(file: &File) -> io::Result<u64> {
    // SAFETY: all zeroes is a valid stat.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure has the kernel's layout.
    if unsafe { libc::syscall(libc::SYS_fstat, file.as_raw_fd(), &raw mut stat) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The largest page that is not huge, in bytes. Up to this size mmap(2) rounds lengths up to whole pages by itself.
const PAGE_MAX: u64 = 1 << 16;

impl Deref for SharedMapping {
    type Target = MmapRegion;

    fn deref(&self) -> &MmapRegion {
        &self.view
    }
}
