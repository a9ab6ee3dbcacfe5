//! Guest memory by the addresses that the device uses.

use super::wire::{DmaMap, Refused};
use crate::os::bus_error::{MAPPINGS_MAX, Peer};
use crate::os::shared_memory::{Protection, SharedMapping};
use anyhow::Context as _;
use nix::errno::Errno;
use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;
use vm_memory::{Bytes as _, VolatileMemory as _, VolatileSlice};

/// The most regions at a time: as many as one front end may map.
pub const REGIONS_MAX: usize = MAPPINGS_MAX;
/// Bytes of a page. Regions begin and end at its multiples.
pub const PAGE: u64 = 4096;

/// What is to be done with guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device reads it.
    Read,
    /// The device writes it.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// The guest memory of one connection, for all threads.
#[derive(Clone, Debug)]
pub struct DmaMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    regions: RwLock<Vec<Arc<Region>>>, // in the order of their addresses
    is_changing: AtomicBool,
    client: Arc<Peer>,
    max_len: u64,
}

/// Guest memory that the client has mapped in one message.
#[derive(Debug)]
struct Region {
    range: Range<u64>,
    flags: u32,
    mapping: Option<Arc<SharedMapping>>,     // none: the client has sent no file
    gone: Mutex<Option<Sender<Infallible>>>, // of the last slice
}

impl Region {
    /// A part of it. `None`: it is not inside or empty, or the region has no file, or does not permit the access.
    fn slice(self: &Arc<Self>, part: &Range<u64>, access: Access) -> Option<Slice> {
        let flag = match access {
            Access::Read => DmaMap::READ,
            Access::Write => DmaMap::WRITE,
        };
        let offset = usize::try_from(part.start.checked_sub(self.range.start)?).ok()?;
        let len = usize::try_from(part.end.checked_sub(part.start)?).ok()?;
        let is_allowed = len > 0 && part.end <= self.range.end && self.flags & flag != 0 && self.mapping.is_some();
        is_allowed.then(|| Slice { region: self.clone(), offset, len, access })
    }
}

/// Memory that is no longer found. It is unmapped when this is dropped, as it may take long to give back its pages, and requests
/// are not to wait for that; or with its last [`Slice`], if that lives longer.
#[derive(Debug)]
pub struct Unmapped {
    /// Where it was.
    pub range: Range<u64>,
    gone: Receiver<Infallible>,
    _mapping: Option<Arc<SharedMapping>>,
}

impl Unmapped {
    /// Waits until there is no [`Slice`] of it any more. False: there was, until `deadline`.
    #[must_use]
    pub fn wait(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        matches!(self.gone.recv_timeout(left), Err(RecvTimeoutError::Disconnected))
    }
}

impl DmaMemory {
    /// No memory yet. `max_len` is the most bytes that may be mapped.
    #[must_use]
    pub fn new(client: Arc<Peer>, max_len: u64) -> Self {
        Self(Arc::new(Inner { regions: RwLock::default(), is_changing: AtomicBool::new(false), client, max_len }))
    }

    /// The client that shares it.
    #[must_use]
    pub fn client(&self) -> &Peer {
        &self.0.client
    }

    /// `len` bytes at `address`, mapped as long as the slice lives. `None`: they are not inside one region, or that has no
    /// file, or does not permit the access, or `len` is 0.
    #[must_use]
    pub fn slice(&self, address: u64, len: usize, access: Access) -> Option<Slice> {
        let end = address.checked_add(u64::try_from(len).ok()?)?;
        let regions = self.read();
        let before = regions.partition_point(|region| region.range.start <= address);
        regions.get(before.checked_sub(1)?)?.slice(&(address..end), access)
    }

    /// The guest addresses `range` as slices, in order: one for each region in which they lie. `None`: a part of them is not in
    /// a region, or that has no file, or does not permit the access.
    #[must_use]
    pub fn slices(&self, range: &Range<u64>, access: Access) -> Option<Vec<Slice>> {
        let regions = self.read();
        let first = regions.partition_point(|region| region.range.end <= range.start);
        let mut at = range.start;
        let mut slices = Vec::new();
        for region in regions.get(first..)?.iter().take_while(|region| region.range.start < range.end) {
            let end = region.range.end.min(range.end);
            slices.push(region.slice(&(at..end), access)?);
            at = end;
        }
        (at == range.end).then_some(slices)
    }

    /// Adds a region. Without a file it is known, but cannot be accessed.
    ///
    /// # Errors
    /// It is not aligned, overlaps another, or exceeds a limit; or the file is unsuitable.
    pub fn map(&self, map: &DmaMap, file: Option<OwnedFd>) -> Result<(), Refused> {
        let DmaMap { flags, offset, address, size } = *map;
        let described = || format!("{size:#x} bytes at {address:#x}, file offset {offset:#x}, flags {flags:#x}");
        let end = address.checked_add(size).filter(|end| *end > address);
        let is_valid = [offset, address, size].iter().all(|n| n.is_multiple_of(PAGE))
            && flags & !(DmaMap::READ | DmaMap::WRITE) == 0;
        let Some(end) = end.filter(|_| is_valid) else {
            return Err(Refused::invalid(format!("{}: not whole pages of guest memory", described())));
        };
        let range = address..end;
        let mut regions = self.write();
        if regions.iter().any(|other| other.range.start < range.end && range.start < other.range.end) {
            return Err(Refused::with(Errno::EEXIST, format!("{}: is mapped already", described())));
        }
        if regions.len() >= REGIONS_MAX {
            let why = format!("guest memory already has {REGIONS_MAX} regions, which is the limit");
            return Err(Refused::with(Errno::ENOSPC, why));
        }
        let mapped = regions.iter().filter_map(|region| region.mapping.as_ref()).map(|mapping| mapping.size() as u64);
        let (mapped, max) = (mapped.sum::<u64>(), self.0.max_len);
        if file.is_some() && mapped.checked_add(size).is_none_or(|all| all > max) {
            let why = format!("guest memory has {mapped} + {size} bytes: max_memory allows {max}");
            return Err(Refused::with(Errno::ENOMEM, why));
        }
        let protection = if flags & DmaMap::WRITE == 0 { Protection::ReadOnly } else { Protection::ReadWrite };
        let client = self.0.client.clone();
        let mapping = file.map(|file| SharedMapping::new(File::from(file), offset, size, protection, client));
        let mapping = mapping.transpose().with_context(described)?.map(Arc::new);
        let at = regions.partition_point(|other| other.range.start < range.start);
        regions.insert(at, Arc::new(Region { range, flags, mapping, gone: Mutex::default() }));
        Ok(())
    }

    /// Removes the region that is exactly this one.
    ///
    /// # Errors
    /// There is none.
    pub fn unmap(&self, address: u64, size: u64) -> Result<Unmapped, Refused> {
        let mut regions = self.write();
        let is_meant =
            |region: &Arc<Region>| region.range.start == address && region.range.end.checked_sub(address) == Some(size);
        let Some(at) = regions.iter().position(is_meant) else {
            let why = format!("no region of guest memory is {size:#x} bytes at {address:#x}");
            return Err(Refused::with(Errno::ENOENT, why));
        };
        self.0.is_changing.store(true, Ordering::SeqCst);
        Ok(unmapped(&regions.remove(at)))
    }

    /// Removes all regions.
    #[must_use]
    pub fn unmap_all(&self) -> Vec<Unmapped> {
        let mut regions = self.write();
        if !regions.is_empty() {
            self.0.is_changing.store(true, Ordering::SeqCst);
        }
        regions.drain(..).map(|region| unmapped(&region)).collect()
    }

    /// Whether some was unmapped, and the client's change is not over ([`end_change`](Self::end_change)). Whoever does not find
    /// memory that was unmapped sees this, too.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.0.is_changing.load(Ordering::SeqCst)
    }

    /// The client's change of guest memory is over: what is not mapped now does not return soon.
    pub fn end_change(&self) {
        self.0.is_changing.store(false, Ordering::SeqCst);
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Region>>> {
        self.0.regions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Region>>> {
        self.0.regions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unmapped(region: &Region) -> Unmapped {
    let (alive, gone) = channel();
    *region.gone.lock().unwrap_or_else(PoisonError::into_inner) = Some(alive);
    Unmapped { range: region.range.clone(), gone, _mapping: region.mapping.clone() }
}

/// Guest memory inside one region. It stays mapped as long as this lives. The guest may change it at any time.
#[derive(Clone, Debug)]
pub struct Slice {
    region: Arc<Region>,
    offset: usize,
    len: usize,
    access: Access,
}

impl Slice {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Its first byte. Valid for [`len`](Self::len) bytes while the slice lives; written only if it is for writing.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.volatile().map_or(std::ptr::null_mut(), |slice| slice.ptr_guard_mut().as_ptr())
    }

    /// Copies bytes out of it. False: they are not inside it.
    #[must_use]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        self.volatile().is_some_and(|memory| memory.read_slice(bytes, offset).is_ok())
    }

    /// Copies bytes into it. False: they are not inside it, or it is for reading.
    #[must_use]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        self.writable().is_some_and(|memory| memory.write_slice(bytes, offset).is_ok())
    }

    /// Loads an aligned `u32`, as it lies in memory, with acquire semantics. `None`: it is not inside, or not aligned.
    #[must_use]
    pub fn load_u32(&self, offset: usize) -> Option<u32> {
        self.volatile()?.load(offset, Ordering::Acquire).ok()
    }

    /// Stores an aligned `u32` with release semantics. False: it is not inside, not aligned, or the slice is for reading.
    #[must_use]
    pub fn store_u32(&self, offset: usize, value: u32) -> bool {
        self.writable().is_some_and(|memory| memory.store(value, offset, Ordering::Release).is_ok())
    }

    fn volatile(&self) -> Option<VolatileSlice<'_>> {
        self.region.mapping.as_ref()?.get_slice(self.offset, self.len).ok()
    }

    fn writable(&self) -> Option<VolatileSlice<'_>> {
        self.volatile().filter(|_| self.access == Access::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::ffi::CStr;
    use std::os::unix::net::UnixStream;
    use std::thread::scope;
    use std::time::Duration;

    const LEN: u64 = 0x4000;

    fn no_memory() -> DmaMemory {
        DmaMemory::new(Peer::new(UnixStream::pair().unwrap().0.into()).into(), 1 << 30)
    }

    fn memfd() -> OwnedFd {
        memfd_named(c"guest")
    }

    fn memfd_named(name: &CStr) -> OwnedFd {
        let file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(LEN).unwrap();
        file.into()
    }

    fn map(memory: &DmaMemory, flags: u32, address: u64) {
        memory.map(&DmaMap { flags, offset: 0, address, size: LEN }, Some(memfd())).unwrap();
    }

    const BOTH: u32 = DmaMap::READ | DmaMap::WRITE;

    #[test]
    fn a_slice_lies_in_one_region() {
        let memory = no_memory();
        for address in [3, 1, 2, 7].map(|i| i * LEN) {
            map(&memory, BOTH, address);
        }
        let found = |address, len| memory.slice(address, len, Access::Write).map(|slice| slice.len());
        let len = LEN as usize;
        for start in [1, 2, 3, 7].map(|i| i * LEN) {
            assert_eq!(found(start, len), Some(len), "all of it");
            assert_eq!(found(start + 1, len), None, "one byte too far");
            assert_eq!(found(start + LEN - 1, 1), Some(1), "its last byte");
            assert_eq!(found(start + LEN - 1, 2), None, "across its end");
        }
        assert_eq!([0, LEN - 1, 4 * LEN, 7 * LEN - 1, 8 * LEN, u64::MAX].map(|address| found(address, 1)), [None; 6]);
        assert_eq!([found(LEN, 0), found(u64::MAX, usize::MAX), found(LEN, usize::MAX)], [None; 3]);
    }

    #[test]
    fn a_range_has_a_slice_in_each_of_its_regions() {
        let memory = no_memory();
        for (flags, address) in [(BOTH, 1), (BOTH, 2), (DmaMap::READ, 3), (BOTH, 5)].map(|(f, i)| (f, i * LEN)) {
            map(&memory, flags, address);
        }
        let found = |start: u64, end: u64, access| {
            let slices = memory.slices(&(start..end), access)?;
            Some(slices.iter().map(Slice::len).collect::<Vec<_>>())
        };
        let len = LEN as usize;
        assert_eq!(found(LEN, 2 * LEN, Access::Write), Some(vec![len]));
        assert_eq!(found(LEN + 16, 2 * LEN - 16, Access::Write), Some(vec![len - 32]));
        assert_eq!(found(LEN + 16, 2 * LEN + 8, Access::Write), Some(vec![len - 16, 8]));
        assert_eq!(found(LEN, 4 * LEN, Access::Read), Some(vec![len; 3]));
        assert_eq!(found(LEN, 4 * LEN, Access::Write), None, "the last part is read-only");
        let outside =
            [(0, LEN + 1), (3 * LEN, 4 * LEN + 1), (3 * LEN, 6 * LEN), (4 * LEN, 6 * LEN), (5 * LEN, u64::MAX)];
        assert_eq!(outside.map(|(start, end)| found(start, end, Access::Read)), [const { None }; 5]);
        let [first, second] = &memory.slices(&(2 * LEN - 4..2 * LEN + 4), Access::Write).unwrap()[..] else { panic!() };
        assert!(first.write(0, &[1, 2, 3, 4]) && second.write(0, &[5, 6, 7, 8]));
        let read = |address| memory.slice(address, 4, Access::Read).unwrap().load_u32(0);
        assert_eq!([read(2 * LEN - 4), read(2 * LEN)], [Some(0x0403_0201), Some(0x0807_0605)]);
    }

    #[test]
    fn a_slice_is_what_the_client_shares() {
        let memory = no_memory();
        let file = memfd();
        let size = LEN - PAGE;
        let dma_map = DmaMap { flags: BOTH, offset: PAGE, address: 1 << 40, size };
        memory.map(&dma_map, Some(file.try_clone().unwrap())).unwrap();
        let slice = memory.slice((1 << 40) + 4, 12, Access::Write).unwrap();
        assert!(slice.write(0, &[1, 2, 3, 4]) && slice.store_u32(4, 0x0807_0605));
        let mut bytes = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&File::from(file), &mut bytes, PAGE).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]);
        assert_eq!((slice.load_u32(0), slice.load_u32(8)), (Some(0x0403_0201), Some(0)));
        let mut read = [0; 3];
        assert!(slice.read(3, &mut read));
        assert_eq!(read, [4, 5, 6]);
        // SAFETY: the slice has 12 bytes, and nobody writes.
        assert_eq!(unsafe { slice.as_ptr().add(5).read_volatile() }, 6);
    }

    #[test]
    fn a_slice_ends_and_is_aligned() {
        let memory = no_memory();
        map(&memory, BOTH, 0);
        let slice = memory.slice(0, 10, Access::Write).unwrap();
        assert_eq!([6, 8, 10, 2, 1, usize::MAX].map(|at| slice.load_u32(at)), [None; 6]);
        assert_eq!([6, 8, 10, 2, 1, usize::MAX].map(|at| slice.store_u32(at, 1)), [false; 6]);
        assert_eq!([7, 10, usize::MAX].map(|at| slice.read(at, &mut [0; 4])), [false; 3]);
        assert_eq!([7, 10, usize::MAX].map(|at| slice.write(at, &[0; 4])), [false; 3]);
    }

    #[test]
    fn access_needs_permission() {
        let memory = no_memory();
        for (flags, address) in [(DmaMap::READ, 0), (DmaMap::WRITE, LEN), (0, 2 * LEN)] {
            map(&memory, flags, address);
        }
        memory.map(&DmaMap { flags: BOTH, offset: 0, address: 3 * LEN, size: LEN }, None).unwrap();
        let found = |access| [0, 1, 2, 3].map(|i| memory.slice(i * LEN, 8, access).is_some());
        assert_eq!(found(Access::Read), [true, false, false, false]);
        assert_eq!(found(Access::Write), [false, true, false, false]);
        let slice = memory.slice(0, 8, Access::Read).unwrap();
        assert!(!slice.write(0, &[1]) && !slice.store_u32(0, 1), "it would be a fault");
        assert_eq!(slice.load_u32(0), Some(0));
    }

    #[test]
    fn unmapped_memory_is_gone_when_its_last_slice_is() {
        let memory = no_memory();
        map(&memory, BOTH, 0);
        let slice = memory.slice(0, 8, Access::Write).unwrap();
        let other = slice.clone();
        let unmapped = memory.unmap(0, LEN).unwrap();
        assert!(memory.slice(0, 8, Access::Write).is_none());
        assert!(!unmapped.wait(Instant::now()));
        drop(slice);
        assert!(!unmapped.wait(Instant::now()));
        assert!(other.write(0, &[1; 8]));
        drop(other);
        assert!(unmapped.wait(Instant::now()));
        let again = memory.unmap(0, LEN).unwrap_err();
        assert_eq!(again.errno, Errno::ENOENT);
    }

    /// To give back the pages of a large region takes tenths of a second.
    #[test]
    fn who_takes_memory_away_unmaps_it_and_no_request_waits_for_that() {
        let memory = no_memory();
        let dma_map = DmaMap { flags: BOTH, offset: 0, address: 0, size: LEN };
        let is_mapped = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("memfd:taken-away");
        for is_used in [false, true] {
            memory.map(&dma_map, Some(memfd_named(c"taken-away"))).unwrap();
            let slice = is_used.then(|| memory.slice(0, 8, Access::Write).unwrap());
            let unmapped = memory.unmap(0, LEN).unwrap();
            drop(slice);
            assert!(unmapped.wait(Instant::now()) && is_mapped(), "nobody has it any more, and nobody has unmapped it");
            drop(unmapped);
            assert!(!is_mapped());
        }
    }

    #[test]
    fn a_change_begins_with_memory_that_goes_away() {
        let memory = no_memory();
        assert!(memory.unmap_all().is_empty() && !memory.is_changing(), "nothing went away");
        map(&memory, BOTH, 0);
        assert!(memory.unmap_all().len() == 1 && memory.is_changing());
    }

    #[test]
    fn threads_find_memory_while_other_memory_comes_and_goes() {
        let memory = no_memory();
        map(&memory, BOTH, 2 * LEN);
        let end = AtomicBool::new(false);
        scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while !end.load(Ordering::Relaxed) {
                        assert!(memory.slice(2 * LEN, 8, Access::Write).is_some_and(|slice| slice.write(0, &[1; 8])));
                        if let Some(slice) = memory.slice(0, 8, Access::Write) {
                            assert!(slice.write(0, &[1; 8]));
                        }
                    }
                });
            }
            for _ in 0..500 {
                map(&memory, BOTH, 0);
                let unmapped = memory.unmap(0, LEN).unwrap();
                assert!(unmapped.wait(Instant::now() + Duration::from_secs(60)));
            }
            end.store(true, Ordering::Relaxed);
        });
    }
}
