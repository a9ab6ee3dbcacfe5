//! Direct I/O on a block device. Its page cache and what goes around it do not see each other, so nothing may go through it.

mod loop_device;
mod raw;

use loop_device::Loop;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use raw::*;
use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_millis(700);

/// A driver with two queues of a loop device with blocks of this size.
fn start(what: &str, block_size: u32) -> Option<(Loop, Target, Driver)> {
    let directory = tempfile::TempDir::new().unwrap();
    let device = Loop::new_or_skip(what, directory.path(), block_size)?;
    let disk = Disk::file("disk", &device.0).policy("none").queues(2).line("direct = true");
    let target = Target::start_in(directory, &[disk]);
    let driver = Driver::start(&target.path("disk"), &Setup::new(2, 64));
    Some((device, target, driver))
}

/// Offers a transfer to or from any address.
fn offer(queue: &mut Queue, slot: u16, kind: u32, sector: u64, data: u64, len: u32) {
    queue.write(queue.header(slot), &header(kind, 0, sector));
    let flags = if kind == T_IN { WRITE } else { 0 };
    let parts = [(queue.header(slot), 16, 0), (data, len, flags), (queue.status_at(slot), 1, WRITE)];
    queue.write_chain(slot * PER_SLOT, &chained(&parts));
    queue.offer(slot * PER_SLOT);
}

/// How many pages of the second MiB of a device are in the page cache. The first is read by whoever looks what it is.
fn cached(device: &Path) -> usize {
    const LEN: usize = 1 << 20;
    let (file, len) = (File::open(device).unwrap(), NonZeroUsize::new(LEN).unwrap());
    let mut resident = [0_u8; LEN / 4096];
    // SAFETY: a new mapping that overlaps no other, which nobody reads, and a byte for each of its pages.
    unsafe {
        let pages = mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, LEN as i64).unwrap();
        assert_eq!(libc::mincore(pages.as_ptr(), LEN, resident.as_mut_ptr()), 0);
        munmap(pages, LEN).unwrap();
    }
    resident.iter().filter(|page| **page & 1 != 0).count()
}

/// Waits for the requests of the first slots.
fn finish(queue: &mut Queue, slots: u16) {
    queue.publish();
    assert_eq!(queue.wait(slots.into()).len(), usize::from(slots));
    assert!((0..slots).all(|slot| queue.status(slot) == OK));
}

/// One queue writes sectors 0, 2, 4, 6 of a page from memory that is not aligned, the other writes and reads those between them in
/// memory that is. No sector has two writers.
#[test]
fn sectors_of_a_page_keep_what_was_written_while_others_are_written() {
    for block_size in [512, 4096] {
        let Some((_device, _target, mut driver)) = start("neighbouring sectors", block_size) else { return };
        let [aligned, odd] = &mut driver.queues[..] else { unreachable!() };
        let end = Instant::now() + DURATION;
        let last = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut byte = 0_u8;
                while Instant::now() < end {
                    byte = byte.wrapping_add(1);
                    for slot in 0..4 {
                        let data = odd.data(slot) + 4;
                        odd.write(data, &[byte; 512]);
                        offer(odd, slot, T_OUT, u64::from(slot) * 2, data, 512);
                    }
                    finish(odd, 4);
                }
                byte
            });
            let mut wrong = Vec::new();
            let mut byte = 0_u8;
            while Instant::now() < end {
                byte = byte.wrapping_add(1);
                for slot in 0..4 {
                    let head = aligned.prepare(slot, &Op::Write(u64::from(slot) * 2 + 1, &[byte; 512]));
                    aligned.offer(head);
                }
                finish(aligned, 4);
                for sector in [1, 3, 5, 7] {
                    let read = aligned.run(Op::Read(sector, 512)).data;
                    if read != [byte; 512] {
                        wrong.push((sector, read[0], byte));
                    }
                }
            }
            assert!(wrong.is_empty(), "blocks of {block_size}: (sector, is, should be): {wrong:?}");
            other.join().unwrap()
        });
        for sector in [0, 2, 4, 6] {
            assert_eq!(aligned.run(Op::Read(sector, 512)).data, [last; 512]);
        }
    }
}

/// One queue reads in order, to memory that is not aligned: the page cache would read ahead. The other writes from memory that is,
/// and reads what it has written to memory that is not.
#[test]
fn what_was_written_is_read_wherever_the_memory_of_a_request_is() {
    const BLOCKS: u64 = 512; // of 4096 bytes
    let Some((device, _target, mut driver)) = start("reads beside writes", 512) else { return };
    let [writer, reader] = &mut driver.queues[..] else { unreachable!() };
    let end = Instant::now() + DURATION;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while Instant::now() < end {
                for slot in 0..8 {
                    let data = reader.data(slot) + 4;
                    offer(reader, slot, T_IN, at % BLOCKS * 8, data, 2048);
                    at += 1;
                }
                finish(reader, 8);
            }
        });
        let mut random = Random(12345);
        let mut wrong = Vec::new();
        let mut byte = 0_u8;
        while Instant::now() < end {
            byte = byte.wrapping_add(1);
            let blocks: [u64; 8] = std::array::from_fn(|slot| slot as u64 * BLOCKS / 8 + random.below(BLOCKS / 8));
            for (slot, block) in (0..).zip(blocks) {
                let data = writer.data(slot);
                writer.write(data, &[byte; 2048]);
                offer(writer, slot, T_OUT, block * 8, data, 2048);
            }
            finish(writer, 8);
            for (slot, block) in (0..).zip(blocks) {
                let data = writer.data(slot) + 4;
                offer(writer, slot, T_IN, block * 8, data, 2048);
            }
            finish(writer, 8);
            for (slot, block) in (0..).zip(blocks) {
                let read = writer.read(writer.data(slot) + 4, 2048);
                if read != [byte; 2048] {
                    wrong.push((block, read[0], byte));
                }
            }
        }
        assert!(wrong.is_empty(), "(block, is, should be): {wrong:?}");
    });
    assert_eq!(cached(&device.0), 0, "pages were read or written through the page cache");
}
