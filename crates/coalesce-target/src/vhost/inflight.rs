//! The in-flight record: the requests that were fetched from a ring and not completed. The front end keeps this memory
//! while the back end restarts (vhost-user, "Inflight I/O tracking": the split virtqueue region).

use crate::os::shared_memory::SharedMapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use vm_memory::{AtomicInteger, VolatileMemory as _};

const HEADER_LEN: usize = 16;
const ENTRY_LEN: usize = 16;
const ALIGN: usize = 64;
const VERSION: u16 = 1;

// Offsets in a queue's region.
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_BATCH_HEAD_AT: usize = 12;
const USED_IDX_AT: usize = 14;

// Offsets in a descriptor's entry.
const TAKEN_AT: usize = 0;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// The bytes that one queue of `size` entries needs.
#[must_use]
pub const fn region_len(size: u16) -> usize {
    (HEADER_LEN + ENTRY_LEN * size as usize).next_multiple_of(ALIGN)
}

/// The region of all queues, as the front end described it.
#[derive(Clone, Debug)]
pub struct InflightRegion {
    /// Its mapping.
    pub region: Arc<SharedMapping>,
    /// Its entries for each queue. A ring may have fewer.
    pub entries: u16,
}

impl InflightRegion {
    /// Where the part of a queue begins.
    fn offset(&self, index: usize) -> Option<usize> {
        let len = region_len(self.entries);
        index.checked_mul(len).filter(|offset| offset.checked_add(len).is_some_and(|end| end <= self.region.size()))
    }

    /// Forgets the requests of a queue that nobody serves, if there are any: its next start finds a new record.
    pub fn forget(&self, index: usize) {
        let Some(offset) = self.offset(index) else { return };
        let this = Inflight { region: self.region.clone(), offset, size: self.entries, counter: 0, is_new: false };
        if this.taken().next().is_some() {
            this.store::<AtomicU16>(VERSION_AT, 0);
        }
    }
}

/// One queue's part of the record.
#[derive(Debug)]
pub struct Inflight {
    region: Arc<SharedMapping>,
    offset: usize,
    size: u16,
    counter: u64,
    is_new: bool,
}

impl Inflight {
    /// The part of queue `index`, whose ring has `size` entries and the used index `used_idx`. `None` if the region is
    /// too small, or `size` is not a power of two.
    #[must_use]
    pub fn new(all: InflightRegion, index: usize, size: u16, used_idx: u16) -> Option<Self> {
        let offset = all.offset(index)?;
        if !size.is_power_of_two() || size > all.entries {
            return None;
        }
        let this = Self { region: all.region, offset, size, counter: 0, is_new: false };
        let is_new = this.load::<AtomicU16>(VERSION_AT) != VERSION || this.load::<AtomicU16>(SIZE_AT) != size;
        if !is_new {
            if this.load::<AtomicU16>(USED_IDX_AT) != used_idx {
                // The process before this one ended after it completed this request, and before it recorded that.
                let head = this.load::<AtomicU16>(LAST_BATCH_HEAD_AT);
                if head < size {
                    this.store::<AtomicU8>(this.entry(head) + TAKEN_AT, 0);
                }
            }
        } else {
            (0..size).for_each(|head| this.store::<AtomicU8>(this.entry(head) + TAKEN_AT, 0));
            this.store::<AtomicU16>(SIZE_AT, size);
            this.store::<AtomicU16>(VERSION_AT, VERSION);
        }
        this.store::<AtomicU16>(USED_IDX_AT, used_idx);
        let newest = this.taken().map(|(counter, _)| counter).max();
        Some(Self { counter: newest.map_or(0, |newest| newest.wrapping_add(1)), is_new, ..this })
    }

    /// Whether it says nothing about the ring, because no process has served that with it.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// The heads of the requests that were fetched and not completed, oldest first.
    #[must_use]
    pub fn unanswered(&self) -> Vec<u16> {
        let mut taken: Vec<_> = self.taken().collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, head)| head).collect()
    }

    /// Records that a request was fetched.
    pub fn take(&mut self, head: u16) {
        self.store::<AtomicU64>(self.entry(head) + COUNTER_AT, self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.store::<AtomicU8>(self.entry(head) + TAKEN_AT, 1);
    }

    /// Records that a request is about to be posted.
    pub fn before_answer(&self, head: u16) {
        self.store::<AtomicU16>(self.entry(head) + NEXT_AT, self.load::<AtomicU16>(LAST_BATCH_HEAD_AT));
        self.store::<AtomicU16>(LAST_BATCH_HEAD_AT, head);
    }

    /// Records that a request was posted, which moved the ring's used index to `used_idx`.
    pub fn after_answer(&self, head: u16, used_idx: u16) {
        self.store::<AtomicU8>(self.entry(head) + TAKEN_AT, 0);
        self.store::<AtomicU16>(USED_IDX_AT, used_idx);
    }

    fn taken(&self) -> impl Iterator<Item = (u64, u16)> {
        let taken = (0..self.size).filter(|&head| self.load::<AtomicU8>(self.entry(head) + TAKEN_AT) == 1);
        taken.map(|head| (self.load::<AtomicU64>(self.entry(head) + COUNTER_AT), head))
    }

    /// The offset of a head's entry. Heads are checked when they are fetched; the mask keeps every head inside the
    /// region.
    fn entry(&self, head: u16) -> usize {
        HEADER_LEN + ENTRY_LEN * usize::from(head & (self.size - 1))
    }

    fn load<A: AtomicInteger>(&self, at: usize) -> A::V {
        self.region.get_atomic_ref::<A>(self.offset + at).expect("checked by `new`").load(Ordering::Acquire)
    }

    fn store<A: AtomicInteger>(&self, at: usize, value: A::V) {
        let field = self.region.get_atomic_ref::<A>(self.offset + at).expect("checked by `new`");
        field.store(value, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::bus_error::Peer;
    use crate::os::shared_memory::Protection;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    fn shared(len: usize) -> Arc<SharedMapping> {
        let front_end = Arc::new(Peer::new(UnixStream::pair().unwrap().0.into()));
        let file = File::from(memfd_create(c"inflight", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(len as u64).unwrap();
        Arc::new(SharedMapping::new(file, 0, len as u64, Protection::ReadWrite, front_end).unwrap())
    }

    fn all(region: &Arc<SharedMapping>) -> InflightRegion {
        InflightRegion { region: region.clone(), entries: 8 }
    }

    fn start(region: &Arc<SharedMapping>, used_idx: u16) -> Inflight {
        Inflight::new(all(region), 1, 8, used_idx).expect("it fits")
    }

    #[test]
    fn incomplete_requests_are_listed_oldest_first() {
        let region = shared(2 * region_len(8));
        let mut inflight = start(&region, 0);
        for head in [5, 2, 7] {
            inflight.take(head);
        }
        inflight.before_answer(2);
        inflight.after_answer(2, 1);
        let mut again = start(&region, 1);
        assert_eq!(again.unanswered(), [5, 7]);
        again.take(2); // newer than all before
        assert_eq!(start(&region, 1).unanswered(), [5, 7, 2]);
    }

    /// The process ended after it moved the used index, and before it recorded that.
    #[test]
    fn a_posted_request_that_was_not_recorded_is_not_repeated() {
        let region = shared(2 * region_len(8));
        let mut inflight = start(&region, 65535);
        inflight.take(3);
        inflight.take(4);
        inflight.before_answer(4);
        assert_eq!(start(&region, 0).unanswered(), [3]);
        // The used index did not move, so the request was not posted.
        let region = shared(2 * region_len(8));
        let mut inflight = start(&region, 65535);
        inflight.take(4);
        inflight.before_answer(4);
        assert_eq!(start(&region, 65535).unanswered(), [4]);
    }

    #[test]
    fn a_small_region_is_refused_and_one_of_another_version_is_reset() {
        let region = shared(region_len(8));
        assert!(Inflight::new(all(&region), 0, 8, 0).is_some());
        assert!(Inflight::new(all(&region), 1, 8, 0).is_none());
        assert!(Inflight::new(all(&region), usize::MAX, 8, 0).is_none());
        let region = shared(2 * region_len(8));
        region.get_slice(0, region.size()).expect("all").copy_from(&[1_u8; 2 * region_len(8)]);
        assert!(start(&region, 0).unanswered().is_empty(), "entries of another version are ignored");
    }
}
