//! Guest memory.

use crate::os::shared_memory::{PAGE, SharedMapping};
use std::iter::FusedIterator;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vm_memory::bitmap::BS;
use vm_memory::guest_memory::{Error, GuestMemorySliceIterator, Result as MemoryResult};
use vm_memory::{
    Address as _, ByteValued, Bytes as _, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestMemoryRegionBytes,
    GuestRegionCollection, MemoryRegionAddress, Permissions, VolatileMemory as _, VolatileSlice,
};

/// The parts of guest memory.
pub type Regions = GuestRegionCollection<GuestRegion>;

/// The guest memory that is mapped at one time.
///
/// [`Regions`] alone would do. But with their slices, which are found by a search and checked several times, a request of 4
/// KiB took 4600 instructions, and takes 3000 with these.
#[derive(Debug, Default)]
pub struct GuestMemory {
    regions: Regions,
    largest: Option<Arc<GuestRegion>>, // where nearly everything is
    is_doubted: AtomicBool,
}

/// How long requests that use old memory are waited for, and how often they are looked at.
const GIVE_BACK_WITHIN: Duration = Duration::from_millis(100);
const GIVE_BACK_LOOK: Duration = Duration::from_millis(1);

/// Drops memory when nobody else uses it any more: to give back its pages may take tenths of a second, for which no queue is to wait.
/// A request that takes long does it itself.
pub fn give_back<T>(old: Arc<T>) {
    let deadline = Instant::now() + GIVE_BACK_WITHIN;
    while Arc::strong_count(&old) > 1 && Instant::now() < deadline {
        sleep(GIVE_BACK_LOOK);
    }
}

/// How much of guest memory is looked at to find out whether a guest has written to it, in bytes: firmware writes below 4 GiB,
/// or to the start of memory.
const LOOKED_AT: usize = 4 << 30;
/// The most pages of it that are read.
const PAGES_READ: usize = 4096;

impl GuestMemory {
    /// Its parts.
    #[must_use]
    pub const fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Whether it looks as if no guest had ever written to it, because its pages are all zeroes. True once at most.
    pub fn is_blank_and_news(&self) -> bool {
        let mut left = LOOKED_AT;
        let present = self.regions.iter().flat_map(|region| {
            let look = left.min(region.mapping.size());
            left -= look;
            region.mapping.present(look)
        });
        let mut bytes = [0; PAGE];
        let mut is_blank = |page: VolatileSlice<'_>| {
            let count = page.copy_to(&mut bytes[..]);
            bytes[..count].iter().all(|byte| *byte == 0)
        };
        present.take(PAGES_READ).all(&mut is_blank) && !self.is_doubted.swap(true, Ordering::Relaxed)
    }

    /// Reads an object. Faster than `read_obj`, which it uses for one that is in several regions.
    #[inline]
    #[must_use]
    pub fn get<T: ByteValued>(&self, at: GuestAddress) -> Option<T> {
        match self.slice_at(at, size_of::<T>()) {
            Ok(slice) if slice.len() == size_of::<T>() => slice.get_ref(0).ok().map(|object| object.load()),
            _ => self.read_obj(at).ok(),
        }
    }

    /// The bytes from `at` on that are in one region, `count` at most.
    #[inline]
    fn slice_at(&self, at: GuestAddress, count: usize) -> MemoryResult<VolatileSlice<'_>> {
        let largest = self.largest.as_deref().filter(|region| region.contains(at));
        let region = largest.or_else(|| self.regions.find_region(at)).ok_or(Error::InvalidGuestAddress(at))?;
        let offset = at.0.wrapping_sub(region.start.0) as usize;
        Ok(region.mapping.get_slice(offset, count.min(region.mapping.size() - offset))?)
    }
}

impl From<Regions> for GuestMemory {
    fn from(regions: Regions) -> Self {
        let largest = regions.iter().max_by_key(|region| region.len());
        // The one function of a collection that returns an `Arc` of it.
        let largest = largest.and_then(|region| regions.remove_region(region.start, region.len()).ok());
        let largest = largest.map(|(_, region)| region);
        Self { regions, largest, is_doubted: AtomicBool::new(false) }
    }
}

impl vm_memory::GuestMemory for GuestMemory {
    type PhysicalMemory = Regions;
    type Bitmap = ();

    fn check_range(&self, start: GuestAddress, count: usize, _: Permissions) -> bool {
        GuestMemoryBackend::check_range(&self.regions, start, count)
    }

    #[inline]
    fn get_slices<'a>(
        &'a self,
        start: GuestAddress,
        count: usize,
        _: Permissions,
    ) -> MemoryResult<impl GuestMemorySliceIterator<'a, BS<'a, ()>>> {
        Ok(Slices { memory: self, next: start, left: count })
    }

    fn physical_memory(&self) -> Option<&Regions> {
        Some(&self.regions)
    }
}

/// The slices of a range of guest memory, one in each region; a part outside guest memory is an error, and the last item.
#[derive(Debug)]
pub struct Slices<'a> {
    memory: &'a GuestMemory,
    next: GuestAddress,
    left: usize, // bytes
}

impl<'a> Iterator for Slices<'a> {
    type Item = MemoryResult<VolatileSlice<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let slice = self.memory.slice_at(self.next, self.left);
        match &slice {
            Ok(slice) => {
                self.left -= slice.len();
                self.next = self.next.unchecked_add(slice.len() as u64); // a region ends inside the address space
            }
            Err(_) => self.left = 0,
        }
        Some(slice)
    }
}

impl FusedIterator for Slices<'_> {}

impl<'a> GuestMemorySliceIterator<'a, BS<'a, ()>> for Slices<'a> {
    #[inline]
    fn stop_on_error(mut self) -> MemoryResult<impl Iterator<Item = VolatileSlice<'a>>> {
        let first = self.next().transpose()?;
        Ok(first.into_iter().chain(self.map_while(Result::ok)))
    }
}

/// A part of guest memory.
#[derive(Debug)]
pub struct GuestRegion {
    mapping: SharedMapping,
    start: GuestAddress,
}

impl GuestRegion {
    /// Memory at the guest address `start`. `None` if it exceeds the address space.
    #[must_use]
    pub fn new(mapping: SharedMapping, start: GuestAddress) -> Option<Self> {
        start.checked_add(mapping.size() as u64)?;
        Some(Self { mapping, start })
    }

    #[inline]
    fn contains(&self, at: GuestAddress) -> bool {
        at.0.wrapping_sub(self.start.0) < self.mapping.size() as u64
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
