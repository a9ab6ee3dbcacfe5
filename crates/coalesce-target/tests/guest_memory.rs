//! Guest memory gives what its regions give.

use coalesce_target::os::bus_error::Peer;
use coalesce_target::os::shared_memory::{Protection, SharedMapping};
use coalesce_target::vhost::memory::{GuestMemory, GuestRegion, Regions, give_back};
use nix::sys::memfd::{MFdFlags, memfd_create};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread::{self, ThreadId};
use std::time::Duration;
use vm_memory::{Bytes as _, GuestAddress, GuestMemory as _, GuestMemoryBackend, Permissions};

/// Two regions side by side, a hole, the largest region, and the last page but one of all addresses.
const REGIONS: [(u64, u64); 4] = [(0, 0x1000), (0x1000, 0x2000), (0x5000, 0x4000), (u64::MAX - 0x1fff, 0x1000)];

static MEMORY: LazyLock<GuestMemory> = LazyLock::new(|| {
    let front_end = Arc::new(Peer::new(UnixStream::pair().unwrap().0.into()));
    let region = |(start, len)| {
        let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + start / 0x1000) as u8).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let mapping = SharedMapping::new(file, 0, len, Protection::ReadWrite, front_end.clone()).unwrap();
        GuestRegion::new(mapping, GuestAddress(start)).unwrap()
    };
    Regions::from_regions(REGIONS.map(region).into()).unwrap().into()
});

/// Addresses and lengths here, and whether an error ends them.
fn listed<'a>(
    slices: impl Iterator<Item = Result<vm_memory::VolatileSlice<'a>, vm_memory::GuestMemoryError>>,
) -> Vec<Option<(usize, usize)>> {
    slices.map(|slice| slice.ok().map(|slice| (slice.ptr_guard().as_ptr() as usize, slice.len()))).collect()
}

fn same(start: u64, count: usize) {
    let at = GuestAddress(start);
    let theirs = listed(GuestMemoryBackend::get_slices(MEMORY.regions(), at, count));
    assert_eq!(listed(MEMORY.get_slices(at, count, Permissions::Read).unwrap()), theirs, "{start:#x} {count}");
    assert_eq!(MEMORY.get::<u64>(at), MEMORY.regions().read_obj(at).ok(), "{start:#x}");
    let read = |memory: &dyn Fn(&mut [u8]) -> bool| {
        let mut bytes = vec![0; count];
        memory(&mut bytes).then_some(bytes)
    };
    let ours = read(&|bytes| MEMORY.read_slice(bytes, at).is_ok());
    assert_eq!(ours, read(&|bytes| MEMORY.regions().read_slice(bytes, at).is_ok()), "{start:#x} {count}");
}

proptest! {
    #[test]
    fn slices_are_those_of_the_regions(near in 0..REGIONS.len(), offset in 0_u64..0xa000, count in 0_usize..0x3000) {
        same(REGIONS[near].0.wrapping_sub(0x1000).wrapping_add(offset), count);
    }
}

#[test]
fn slices_at_the_edges_are_those_of_the_regions() {
    for (start, len) in REGIONS {
        for edge in [start, start.wrapping_add(len)] {
            for (off, count) in (0..10).flat_map(|off| [0, 1, 2, 8, 9, 0x1000, 0x5000].map(|count| (off, count))) {
                same(edge.wrapping_sub(off), count);
            }
        }
    }
}

/// To give back the pages of a guest takes tenths of a second, in which a queue would do nothing.
#[test]
fn who_takes_memory_away_gives_it_back_and_not_the_last_request() {
    struct Pages(Sender<ThreadId>);
    impl Drop for Pages {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    let (send, given_back_by) = channel();
    let pages = Arc::new(Pages(send));
    let used = pages.clone();
    let request = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        drop(used);
    });
    give_back(pages);
    assert_eq!(given_back_by.recv(), Ok(thread::current().id()));
    request.join().unwrap();
}
