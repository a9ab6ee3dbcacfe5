//! virtio-blk over vhost-user, with a driver that controls every step: legal requests work, and an interrupt covers
//! every completion.

mod raw;

use nix::sys::signal::Signal;
use raw::*;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;
const SECTORS: u64 = SIZE / 512;

/// Every policy, some with parameters that make them hold as long and as much as they can.
const POLICIES: [&str; 14] = [
    "none",
    "nvme",
    "nvme:thr=255,time=10000us",
    "vic",
    "vic:cif_threshold=2,iops_threshold=0,epoch=1ms,max_hold=10ms",
    "cint",
    "cint:ooo=on,in_flight=off,thr=65535,delta=1ms,max_hold=10ms",
    "cint:ooo=off,in_flight=off,thr=65535,delta=0s,barrier=strict,hints=all",
    "auto",
    "auto:budget=50%,max_hold=10ms,hints=none",
    "auto:hints=all,barrier=strict,ooo=on",
    "batch",
    "dim",
    "spdk_vhost",
];

/// A directory with an image of [`SIZE`] bytes in it, and its path.
fn image() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("image");
    std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
    (directory, path)
}

/// A target with a memory disk `m` and a file disk `f`.
fn both(policy: &str) -> Target {
    let (directory, image) = image();
    Target::start_in(directory, &[Disk::memory("m", "1M").policy(policy), Disk::file("f", &image).policy(policy)])
}

// ---------------------------------------------------------------------------------------------------------------------
// Requests
// ---------------------------------------------------------------------------------------------------------------------

/// Writes `data` at sector 8 and reads it back, each in a framing of the test's own: from the places of header, data
/// and status to parts of a chain.
fn in_framing(queue: &mut Queue, seed: u64, chain: impl Fn(&Queue, bool, u32) -> Vec<Desc>) {
    let data = pattern(seed, 4096);
    queue.write(queue.header(0), &header(T_OUT, 0, 8));
    queue.write(queue.data(0), &data);
    queue.write(queue.status_at(0), &[0xAA]);
    let used = queue.run_chain(&chain(queue, false, 4096));
    assert_eq!((queue.status(0), used.len), (OK, 1), "a write");

    queue.write(queue.header(0), &header(T_IN, 0, 8));
    queue.write(queue.data(0), &[0; 4096]);
    queue.write(queue.status_at(0), &[0xAA]);
    let used = queue.run_chain(&chain(queue, true, 4096));
    assert_eq!((queue.status(0), used.len), (OK, 4097), "a read");
    assert_eq!(queue.read(queue.data(0), 4096), data);
}

/// A buffer in parts of these lengths, and the last part what is left.
fn split(address: u64, len: u32, flags: u16, lengths: impl IntoIterator<Item = u32>) -> Vec<(u64, u32, u16)> {
    let mut parts = Vec::new();
    let mut at = 0;
    for part in lengths {
        let part = part.min(len - at);
        parts.push((address + u64::from(at), part, flags));
        at += part;
        if at == len {
            return parts;
        }
    }
    parts.push((address + u64::from(at), len - at, flags));
    parts
}

type Framing = fn(&Queue, bool, u32) -> Vec<Desc>;

fn parts_of(queue: &Queue, reads: bool, len: u32) -> [(u64, u32, u16); 3] {
    let flags = if reads { WRITE } else { 0 };
    [(queue.header(0), 16, 0), (queue.data(0), len, flags), (queue.status_at(0), 1, WRITE)]
}

fn usual(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    chained(&parts_of(queue, reads, len))
}

fn header_in_two(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [(header, ..), data, status] = parts_of(queue, reads, len);
    chained(&[(header, 1, 0), (header + 1, 15, 0), data, status])
}

fn header_in_bytes(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [(header, ..), data, status] = parts_of(queue, reads, len);
    let mut parts = split(header, 16, 0, [1; 16]);
    parts.extend([data, status]);
    chained(&parts)
}

fn many_segments(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [header, (data, _, flags), status] = parts_of(queue, reads, len);
    let mut parts = vec![header];
    parts.extend(split(data, len, flags, (0..125).map(|i| 1 + i % 37)));
    parts.push(status);
    chained(&parts)
}

fn with_nothing_between(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [header, data, status] = parts_of(queue, reads, len);
    let (readable, writable) = ((queue.data(0), 0, 0), (queue.data(0), 0, WRITE));
    let middle = if reads { [readable, writable, data, writable] } else { [readable, data, readable, writable] };
    let mut parts = vec![readable, header];
    parts.extend(middle);
    parts.extend([status, writable]);
    chained(&parts)
}

fn indirect_table(queue: &Queue, table: &[Desc]) -> Vec<Desc> {
    let at = queue.header(1);
    for (i, desc) in table.iter().enumerate() {
        queue.write(at + 16 * i as u64, &desc.bytes());
    }
    vec![Desc(at, 16 * table.len() as u32, INDIRECT, 0)]
}

fn indirect(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    indirect_table(queue, &usual(queue, reads, len))
}

fn indirect_longer_than_the_ring(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [header, (data, _, flags), status] = parts_of(queue, reads, len);
    let mut parts = vec![header];
    parts.extend(split(data, len, flags, [8; 300]));
    parts.push(status);
    indirect_table(queue, &chained(&parts))
}

fn direct_then_indirect(queue: &Queue, reads: bool, len: u32) -> Vec<Desc> {
    let [(header, ..), data, status] = parts_of(queue, reads, len);
    let rest = indirect_table(queue, &chained(&[(header + 16, 0, 0), data, status]));
    vec![Desc(header, 16, NEXT, 1), rest[0]]
}

/// How a request is spread over descriptors is the driver's business (virtio 1.2 §2.7.4.1).
#[test]
fn a_request_may_be_spread_over_descriptors_as_the_driver_likes() {
    let framings: [(&str, Framing); 8] = [
        ("usual", usual),
        ("header in two", header_in_two),
        ("header in bytes", header_in_bytes),
        ("many segments", many_segments),
        ("with nothing between", with_nothing_between),
        ("indirect", indirect),
        ("indirect, longer than the ring", indirect_longer_than_the_ring),
        ("direct, then indirect", direct_then_indirect),
    ];
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 256));
        for (seed, (name, framing)) in framings.iter().enumerate() {
            println!("{disk}: {name}");
            in_framing(driver.queue(), seed as u64 + 1, framing);
        }
        assert_eq!(target.count(disk, 0, "device/malformed"), 0);
    }
}

#[test]
fn header_and_data_may_share_a_descriptor_and_so_may_data_and_status() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 256));
        let queue = driver.queue();
        let (at, data) = (queue.data(0), pattern(3, 512));
        queue.write(at, &header(T_OUT, 0, 3));
        queue.write(at + 16, &data);
        let used = queue.run_chain(&chained(&[(at, 16 + 512, 0), (queue.status_at(0), 1, WRITE)]));
        assert_eq!((queue.status(0), used.len), (OK, 1));

        queue.write(queue.header(0), &header(T_IN, 0, 3));
        queue.write(at, &[0xAA; 513]);
        let used = queue.run_chain(&chained(&[(queue.header(0), 16, 0), (at, 513, WRITE)]));
        let answer = queue.read(at, 513);
        assert_eq!((used.len, answer[512], &answer[..512]), (513, OK, &data[..]));
    }
}

#[test]
fn a_head_may_be_any_descriptor_and_a_chain_may_go_to_and_fro() {
    let target = both("none");
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 16));
    let queue = driver.queue();
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    queue.write_desc(15, Desc(queue.header(0), 16, NEXT, 3));
    queue.write_desc(3, Desc(queue.data(0), 512, NEXT | WRITE, 14));
    queue.write_desc(14, Desc(queue.status_at(0), 1, WRITE, 0xFFFF)); // without NEXT, next means nothing
    queue.offer(15);
    queue.publish();
    assert_eq!(queue.wait(1), [Used { id: 15, len: 513 }]);
    assert_eq!(queue.status(0), OK);
}

#[test]
fn a_request_may_cross_from_one_region_of_memory_into_the_next() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut setup = Setup::new(1, 64);
        let end = GUEST + setup.regions[0].size;
        setup.regions.push(Region::new(end, 8192));
        let mut driver = Driver::start(&target.path(disk), &setup);
        let (queue, data) = (driver.queue(), pattern(5, 4096));
        let at = end - 1000;
        for kind in [T_OUT, T_IN] {
            queue.write(queue.header(0), &header(kind, 0, 16));
            queue.write(at, if kind == T_OUT { &data } else { &[0; 4096] });
            let flags = if kind == T_OUT { 0 } else { WRITE };
            queue.run_chain(&chained(&[(queue.header(0), 16, 0), (at, 4096, flags), (queue.status_at(0), 1, WRITE)]));
            assert_eq!(queue.status(0), OK);
        }
        assert_eq!(queue.read(at, 4096), data);
    }
}

#[test]
fn the_used_length_is_what_was_written_to_guest_memory() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        for (op, len) in [
            (Op::Read(0, 512), 513),
            (Op::Read(0, 4096), 4097),
            (Op::Read(0, 0), 1),
            (Op::Write(0, &[1; 512]), 1),
            (Op::Write(0, &[]), 1),
            (Op::Flush, 1),
            (Op::GetId, 21),
            (Op::Discard(0, 8, 0), 1),
            (Op::WriteZeroes(0, 8, 0), 1),
        ] {
            let done = queue.run(op);
            assert_eq!((done.status, done.len), (OK, len), "{op:?} on {disk}");
        }
    }
}

#[test]
fn get_id_gives_as_much_of_20_bytes_as_there_is_room_for() {
    let target = Target::start(&[Disk::memory("m", "1M").line("serial = \"a serial of 20 bytes\"")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64));
    let queue = driver.queue();
    assert_eq!(queue.run(Op::GetId).data, b"a serial of 20 bytes");
    for room in [1, 19, 21, 64] {
        queue.write(queue.header(0), &header(T_GET_ID, 0, 0));
        queue.write(queue.data(0), &[0xEE; 64]);
        let [header, data, status] = parts_of(queue, true, room);
        let used = queue.run_chain(&chained(&[header, data, status]));
        let n = room.min(20);
        assert_eq!((queue.status(0), used.len), (OK, n + 1));
        let bytes = queue.read(queue.data(0), 64);
        assert_eq!(bytes[..n as usize], b"a serial of 20 bytes"[..n as usize]);
        assert!(bytes[n as usize..].iter().all(|byte| *byte == 0xEE), "nothing else is written");
    }
    let target = Target::start(&[Disk::memory("short", "1M")]);
    let mut driver = Driver::start(&target.path("short"), &Setup::new(1, 64));
    assert_eq!(driver.queue().run(Op::GetId).data, b"short\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "padded with zeroes");
}

#[test]
fn the_last_sector_is_served_and_the_one_after_it_is_not() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        let data = pattern(1, 512);
        assert_eq!(queue.run(Op::Write(SECTORS - 1, &data)).status, OK);
        assert_eq!(queue.run(Op::Read(SECTORS - 1, 512)).data, data);
        assert_eq!(queue.run(Op::Read(SECTORS - 8, 4096)).status, OK);
        assert_eq!(queue.run(Op::Discard(SECTORS - 1, 1, 0)).status, OK);
        assert_eq!(queue.run(Op::WriteZeroes(SECTORS - 8, 8, 0)).status, OK);
        for op in [
            Op::Read(SECTORS, 512),
            Op::Read(SECTORS - 1, 1024),
            Op::Read(u64::MAX / 512, 512),
            Op::Read(u64::MAX, 512),
            Op::Read(1 << 55, 512),
            Op::Write(SECTORS, &data),
            Op::Write(SECTORS - 1, &[0; 1024]),
            Op::Write(u64::MAX, &data),
            Op::Discard(SECTORS, 1, 0),
            Op::Discard(SECTORS - 1, 2, 0),
            Op::WriteZeroes(SECTORS - 1, u32::MAX, 0),
            Op::WriteZeroes(u64::MAX, 1, 0),
            Op::WriteZeroes(u64::MAX / 512, 2, 1),
        ] {
            assert_eq!(queue.run(op).status, IOERR, "{op:?} on {disk}");
        }
        assert_eq!(target.count(disk, 0, "device/failed"), 13);
    }
}

#[test]
fn data_that_is_not_whole_sectors_is_refused() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        for len in [1, 511, 513, 4095] {
            assert_eq!(queue.run(Op::Read(0, len)).status, IOERR);
            assert_eq!(queue.run(Op::Write(0, &vec![1; len as usize])).status, IOERR);
        }
        assert_eq!(queue.run(Op::Read(0, 512)).data, [0; 512], "nothing was written");
    }
}

#[test]
fn discard_and_write_zeroes_touch_their_range_and_nothing_else() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        // Unaligned to pages at both ends, at one, at none; inside one page; many pages.
        for (first, count) in [(1, 1), (3, 5), (7, 2), (8, 8), (9, 30), (0, 17), (15, 64), (40, 0)] {
            for unmap in [0, 1] {
                check_write_zeroes(queue, first, count, unmap);
            }
            check_discard(queue, first, count);
        }
    }
}

/// Fills the first 128 sectors with ones.
fn fill(queue: &mut Queue) {
    for page in 0..16 {
        assert_eq!(queue.run(Op::Write(page * 8, &[1; 4096])).status, OK);
    }
}

/// The first byte of each of the first 128 sectors; all bytes of a sector must be the same.
fn first_bytes(queue: &mut Queue) -> Vec<u8> {
    let mut bytes = Vec::new();
    for page in 0..16 {
        for sector in queue.run(Op::Read(page * 8, 4096)).data.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
            bytes.push(sector[0]);
        }
    }
    bytes
}

fn check_write_zeroes(queue: &mut Queue, first: u64, count: u32, unmap: u32) {
    fill(queue);
    assert_eq!(queue.run(Op::WriteZeroes(first, count, unmap)).status, OK);
    let expected: Vec<_> = (0..128).map(|i| u8::from(!(first..first + u64::from(count)).contains(&i))).collect();
    assert_eq!(first_bytes(queue), expected, "sectors {first} + {count}, unmap {unmap}");
}

/// What was discarded may read as anything; but nothing else may change.
fn check_discard(queue: &mut Queue, first: u64, count: u32) {
    fill(queue);
    assert_eq!(queue.run(Op::Discard(first, count, 0)).status, OK);
    let bytes = first_bytes(queue);
    let outside = (0..128).filter(|i| !(first..first + u64::from(count)).contains(i));
    assert!(outside.into_iter().all(|i| bytes[i as usize] == 1), "sectors {first} + {count}");
}

/// A disk in memory zeroes 64 MiB at a time, less where the range does not begin with a page.
#[test]
fn a_range_that_is_as_long_as_a_piece_is_zeroed_to_its_end() {
    const PIECE: u32 = (64 << 20) / 512;
    let target = Target::start(&[Disk::memory("m", "256M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64));
    let queue = driver.queue();
    for first in [0, 1, 7, 8] {
        for sectors in [PIECE - 8, PIECE - 7, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE] {
            for flags in [0, 1] {
                let end = first + u64::from(sectors);
                assert_eq!(queue.run(Op::Write(end - 8, &[7; 4096])).status, OK);
                assert_eq!(queue.run(Op::Write(end, &[7; 512])).status, OK);
                assert_eq!(queue.run(Op::WriteZeroes(first, sectors, flags)).status, OK);
                let data = queue.run(Op::Read(end - 7, 4096)).data;
                let zeroes = data.iter().take_while(|byte| **byte == 0).count();
                assert_eq!((zeroes, data[4095]), (7 * 512, 7), "{sectors} sectors from {first} on, flags {flags}");
            }
        }
    }
}

#[test]
fn unknown_types_and_flags_are_unsupported() {
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        for kind in [2, 3, 6, 7, 9, 10, 12, 14, 15, 0x7FFF_FFFF, 0x8000_0002, u32::MAX] {
            queue.write(queue.header(0), &header(kind, 0, 0));
            queue.write(queue.status_at(0), &[0xAA]);
            let used = queue.run_chain(&usual(queue, true, 512));
            assert_eq!((queue.status(0), used.len), (UNSUPP, 1), "type {kind}");
        }
        for flags in [2, 3, 0x8000_0000, u32::MAX] {
            assert_eq!(queue.run(Op::WriteZeroes(0, 8, flags)).status, UNSUPP);
            assert_eq!(queue.run(Op::Discard(0, 8, flags)).status, UNSUPP);
        }
        assert_eq!(queue.run(Op::Discard(0, 8, 1)).status, UNSUPP, "a discard has no unmap flag");
        assert_eq!(target.count(disk, 0, "device/failed"), 12 + 9);
        assert_eq!(target.count(disk, 0, "device/malformed"), 0);
    }
}

/// SLOF sets the flag in every request, whatever is offered; and legacy drivers have two names for a flush.
#[test]
fn the_flag_of_a_barrier_is_ignored_and_a_flush_has_two_names() {
    const BARRIER: u32 = 1 << 31;
    const FLUSH_OUT: u32 = 5;
    let target = both("none");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let queue = driver.queue();
        let data = pattern(31, 512);
        queue.write(queue.data(0), &data);
        for (kind, reads) in [(T_OUT, false), (T_IN, true)] {
            queue.write(queue.header(0), &header(BARRIER | kind, 0, 8));
            queue.write(queue.status_at(0), &[0xAA]);
            queue.run_chain(&usual(queue, reads, 512));
            assert_eq!(queue.status(0), OK, "type {kind} with the flag");
        }
        assert_eq!(queue.read(queue.data(0), 512), data);
        for kind in [T_FLUSH, FLUSH_OUT, BARRIER | T_FLUSH, BARRIER | FLUSH_OUT] {
            queue.write(queue.header(0), &header(kind, 0, 0));
            queue.write(queue.status_at(0), &[0xAA]);
            queue.run_chain(&chained(&[(queue.header(0), 16, 0), (queue.status_at(0), 1, WRITE)]));
            assert_eq!(queue.status(0), OK, "type {kind:#x}");
        }
        assert_eq!(target.count(disk, 0, "device/flushes"), 4);
        assert_eq!(target.count(disk, 0, "device/failed"), 0);
    }
}

#[test]
fn a_read_only_disk_is_offered_as_such_and_refuses_whatever_writes() {
    let (directory, image) = image();
    std::fs::write(&image, vec![7; SIZE as usize]).unwrap();
    let target = Target::start_in(
        directory,
        &[
            Disk::file("f", &image).line("read_only = true").policy("none"),
            Disk::memory("m", "1M").line("read_only = true").policy("none"),
        ],
    );
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        assert_eq!(driver.features & (F_RO | F_DISCARD | F_WRITE_ZEROES), F_RO);
        let queue = driver.queue();
        let before = queue.run(Op::Read(0, 512));
        assert_eq!(before.status, OK);
        assert_eq!(queue.run(Op::Write(0, &[1; 512])).status, IOERR);
        assert_ne!(queue.run(Op::Discard(0, 1, 0)).status, OK);
        assert_ne!(queue.run(Op::WriteZeroes(0, 1, 1)).status, OK);
        assert_eq!(queue.run(Op::Flush).status, OK);
        assert_eq!(queue.run(Op::Read(0, 512)), before);
    }
    assert_eq!(std::fs::read(&image).unwrap(), vec![7; SIZE as usize]);
}

#[test]
fn the_configuration_space_says_what_the_disk_is() {
    let target = Target::start(&[Disk::memory("m", "1M").queues(3).line("block_size = \"4K\"")]);
    let driver = Driver::connect(&target.path("m"), &Setup::new(1, 64));
    assert_eq!(driver.wire.ask_u64(GET_QUEUE_NUM).unwrap(), 3);
    let config = driver.config(0, 60);
    let number = |at: usize, len: usize| config[at..at + len].iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    assert_eq!(number(0, 8), SECTORS, "capacity");
    assert_eq!(number(12, 4), 126, "seg_max");
    assert_eq!(number(20, 4), 4096, "blk_size");
    assert_eq!(number(32, 1), 1, "writeback");
    assert_eq!(number(34, 2), 3, "num_queues");
    assert!(number(36, 4) > 0 && number(40, 4) == 1, "max_discard_sectors, max_discard_seg");
    assert_eq!(number(44, 4), 8, "discard_sector_alignment");
    assert!(number(48, 4) > 0 && number(52, 4) == 1, "max_write_zeroes_sectors, max_write_zeroes_seg");
    assert_eq!(driver.config(20, 4), config[20..24], "a part of it");
    assert_eq!(driver.config(32, 1), [1]);
    assert_eq!(driver.config(58, 6)[2..], [0; 4], "beyond its end there is nothing");
    assert_eq!(driver.config(0, 4000)[..60], config);
}

#[test]
fn the_write_cache_is_switched_through_the_configuration() {
    let target = both("cint"); // which takes a durable write for a hint, and counts it
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64));
        let durable = || target.stats(disk, 0)["hints"]["fua"].as_u64().unwrap_or(0);
        for (cache, expected) in [(1, 0), (0, 1), (1, 1), (0, 2)] {
            driver.set_config(32, &[cache]).unwrap();
            assert_eq!(driver.config(32, 1), [cache]);
            assert_eq!(driver.queue().run(Op::Write(0, &[1; 512])).status, OK);
            assert_eq!(durable(), expected, "with the cache at {cache}");
        }
        // QEMU keeps the configuration space, and tells the next driver that the cache is off. It does not say so here again.
        driver.wire.tell(RESET_DEVICE, &[], &[]).unwrap();
        driver.queue().reset();
        driver.negotiate_again();
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Write(0, &[1; 512])).status, OK);
        assert_eq!((durable(), driver.config(32, 1)), (3, vec![0]), "a reset does not switch it on");
    }
}

/// A driver that did not negotiate FLUSH has no other way to make its data durable (virtio 1.2 §5.2.5).
#[test]
fn without_flush_and_config_wce_every_write_is_durable() {
    let target = both("cint");
    for disk in ["m", "f"] {
        let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 64).without(F_FLUSH | F_CONFIG_WCE));
        assert_eq!(driver.queue().run(Op::Write(0, &[1; 512])).status, OK);
        assert_eq!(target.stats(disk, 0)["hints"]["fua"], 1);
    }
}

/// Firmware, and old systems on a transitional device: they know neither VERSION_1 nor a flush. U-Boot sends its features
/// twice.
#[test]
fn a_driver_without_version_1_is_served_and_without_flush_its_writes_are_durable() {
    let target = both("cint"); // which takes a durable write for a hint, and counts it
    for disk in ["m", "f"] {
        let setup = Setup { features: F_PROTOCOL, ..Setup::new(1, 64) };
        let driver = Driver::connect(&target.path(disk), &setup);
        assert_eq!(driver.features, F_PROTOCOL);
        driver.wire.tell(SET_FEATURES, &u64s(&[F_PROTOCOL]), &[]).unwrap();
        let mut driver = driver;
        driver.start_queue(0);
        let data = pattern(17, 4096);
        assert_eq!(driver.queue().run(Op::Write(8, &data)).status, OK);
        assert_eq!(driver.queue().run(Op::Read(8, 4096)), Done { status: OK, len: 4097, data });
        assert_eq!(target.stats(disk, 0)["hints"]["fua"], 1);
    }
    let with_flush = Setup { features: F_PROTOCOL | F_FLUSH, ..Setup::new(1, 64) };
    let mut driver = Driver::start(&target.path("m"), &with_flush);
    assert_eq!(driver.queue().run(Op::Write(8, &[1; 512])).status, OK);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    assert_eq!(target.stats("m", 0)["hints"]["fua"], 1, "a legacy driver that can flush has a cache");
}

/// Legacy drivers may kick before they have said what they can, and QEMU starts the ring then.
#[test]
fn features_that_come_while_a_ring_runs_are_in_force() {
    let target = both("cint");
    let mut driver = Driver::start(&target.path("m"), &Setup { features: F_PROTOCOL, ..Setup::new(1, 64) });
    let durable = || target.stats("m", 0)["hints"]["fua"].as_u64().unwrap_or(0);
    for (features, expected) in [(0, 1), (F_FLUSH | F_EVENT_IDX, 1), (F_EVENT_IDX, 2), (F_FLUSH, 2)] {
        driver.wire.tell(SET_FEATURES, &u64s(&[F_PROTOCOL | features]), &[]).unwrap();
        let queue = driver.queue();
        queue.event_idx = features & F_EVENT_IDX != 0;
        queue.set_used_event(queue.last_used);
        queue.count_interrupts();
        for _ in 0..3 {
            assert_eq!(queue.run(Op::Read(0, 512)).status, OK);
        }
        assert_eq!(queue.run(Op::Write(0, &[1; 512])).status, OK);
        assert_eq!(durable(), expected, "{features:#x}");
    }
}

/// A guest's index has 16 bits. What was posted before counts for no event.
#[test]
fn event_idx_that_comes_while_a_ring_runs_loses_no_interrupt() {
    const AT_ONCE: u16 = 255; // 257 times this is 65535
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 1024).event_idx(false));
    let features = driver.features;
    let queue = driver.queue();
    let heads: Vec<_> = (0..AT_ONCE).map(|slot| queue.prepare(slot, &Op::Read(0, 512))).collect();
    for _ in 0..257 {
        heads.iter().for_each(|&head| queue.offer(head));
        queue.publish();
        queue.spin(AT_ONCE);
        queue.take_all();
    }
    driver.wire.tell(SET_FEATURES, &u64s(&[features | F_EVENT_IDX]), &[]).unwrap();
    let queue = driver.queue();
    queue.event_idx = true;
    queue.set_used_event(queue.last_used);
    wait_until("the thread sleeps", || queue.load(queue.used + 4 + 8 * u64::from(queue.size)) == queue.next_avail);
    queue.count_interrupts();
    assert_eq!(queue.run(Op::Read(0, 512)).status, OK);
}

#[test]
fn event_idx_is_offered_unless_it_is_switched_off() {
    let target = Target::start(&[Disk::memory("a", "1M"), Disk::memory("b", "1M").line("event_idx = false")]);
    assert_ne!(Driver::connect(&target.path("a"), &Setup::new(1, 64)).features & F_EVENT_IDX, 0);
    let mut driver = Driver::start(&target.path("b"), &Setup::new(1, 64));
    assert_eq!(driver.features & F_EVENT_IDX, 0);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
}

#[test]
fn what_was_written_is_in_the_file() {
    let (directory, image) = image();
    let target = Target::start_in(directory, &[Disk::file("f", &image).line("direct = true")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    let (queue, data) = (driver.queue(), pattern(11, 4096));
    let block = u64::from(u32::from_le_bytes(queue_config_block(&target).try_into().unwrap()));
    let first = block.max(4096) / 512;
    assert_eq!(queue.run(Op::Write(first, &data)).status, OK); // at a page of memory
    queue.write(queue.header(0), &header(T_OUT, 0, first + 8));
    queue.write(queue.data(0) + 3, &data[..4000]);
    let [header, (at, ..), status] = parts_of(queue, false, 0);
    queue.run_chain(&chained(&[header, (at + 3, 3584, 0), status])); // at an odd address
    assert_eq!(queue.status(0), OK);
    assert_eq!(queue.run(Op::Flush).status, OK);
    let bytes = std::fs::read(&image).unwrap();
    let at = first as usize * 512;
    assert_eq!(bytes[at..at + 4096], data);
    assert_eq!(bytes[at + 4096..at + 4096 + 3584], data[..3584]);
}

fn queue_config_block(target: &Target) -> Vec<u8> {
    let list = target.call("list", &serde_json::json!({})).unwrap();
    (list[0]["block_size"].as_u64().unwrap() as u32).to_le_bytes().to_vec()
}

#[test]
fn several_queues_serve_at_the_same_time() {
    let target = Target::start(&[Disk::memory("m", "1M").queues(4)]);
    let driver = Driver::start(&target.path("m"), &Setup::new(4, 64));
    std::thread::scope(|scope| {
        for mut queue in driver.queues {
            scope.spawn(move || {
                for round in 0..200 {
                    let sector = u64::from(queue.index) * 512 + round;
                    let data = pattern(sector, 512);
                    assert_eq!(queue.run(Op::Write(sector, &data)).status, OK);
                    assert_eq!(queue.run(Op::Read(sector, 512)).data, data);
                }
            });
        }
    });
    assert_eq!((0..4).map(|queue| target.count("m", queue, "completions")).collect::<Vec<_>>(), [400; 4]);
}

#[test]
fn a_front_end_without_protocol_features_needs_no_enable() {
    let target = Target::start(&[Disk::memory("m", "1M")]);
    let setup = Setup::new(1, 64);
    let wire = Wire::connect(&target.path("m"));
    let offered = wire.ask_u64(GET_FEATURES).unwrap();
    wire.send(SET_FEATURES, VERSION, &u64s(&[offered & !F_PROTOCOL]), &[]).unwrap();
    wire.send(SET_OWNER, VERSION, &[], &[]).unwrap();
    let mut driver = Driver::on(wire, offered & !F_PROTOCOL, &setup);
    let files = [setup.regions[0].file.as_raw_fd()];
    driver.wire.send(SET_MEM_TABLE, VERSION, &memory_table(&setup.regions), &files).unwrap();
    driver.wire.send(SET_VRING_NUM, VERSION, &u32s(&[0, 64]), &[]).unwrap();
    driver.wire.send(SET_VRING_ADDR, VERSION, &driver.ring_addresses(0), &[]).unwrap();
    driver.wire.send(SET_VRING_CALL, VERSION, &u64s(&[0]), &[driver.queues[0].call.as_raw_fd()]).unwrap();
    driver.wire.send(SET_VRING_KICK, VERSION, &u64s(&[0]), &[driver.queues[0].kick.as_raw_fd()]).unwrap();
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
}

// ---------------------------------------------------------------------------------------------------------------------
// Interrupts
// ---------------------------------------------------------------------------------------------------------------------

/// Bursts of every size, each followed by silence: held completions must be delivered without another event.
fn bursts_then_silence(queue: &mut Queue, seed: u64) -> u64 {
    let mut random = Random(seed | 1);
    let mut load = Load::new(64);
    let data = [3; 512];
    for depth in [1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 63, 64] {
        for _ in 0..3 {
            let op = random.pick(&[Op::Read(0, 512), Op::Write(8, &data), Op::Flush, Op::Read(1, 0)]);
            load.submit(queue, depth, |slot| if slot % 2 == 0 { op } else { Op::Read(9, 1024) });
            load.wait(queue, depth);
        }
    }
    load.ended
}

/// Some are submitted whenever some have ended, up to 64 in flight.
fn steady(queue: &mut Queue, seed: u64) -> u64 {
    let mut random = Random(seed | 1);
    let mut load = Load::new(64);
    let (mut submitted, total) = (0, 600);
    while load.ended < total {
        let n = (1 + random.below(16)).min(total - submitted);
        let free = 64 - (submitted - load.ended);
        let n = n.min(free);
        load.submit(queue, n as usize, |slot| Op::Read(u64::from(slot), 512));
        submitted += n;
        load.wait(queue, 1);
    }
    load.ended
}

/// After a stop nothing is held, and the driver's count of interrupts equals the target's.
fn assert_counted(target: &Target, disk: &str, driver: &mut Driver, ended: u64) {
    driver.stop_queue(0);
    driver.queue().count_interrupts();
    let stats = target.stats(disk, 0);
    assert_eq!(stats["completions"], ended, "{stats}");
    assert_eq!(stats["interrupts"], driver.queues[0].interrupts, "{stats}");
    assert_eq!((&stats["held"], &stats["in_flight"]), (&0.into(), &0.into()), "{stats}");
}

#[test]
fn every_completion_is_covered_and_every_interrupt_counted_under_every_policy() {
    for (number, policy) in POLICIES.iter().enumerate() {
        for event_idx in [true, false] {
            let target = both(policy);
            for disk in ["m", "f"] {
                println!("{policy}, disk {disk}, EVENT_IDX {event_idx}");
                let mut driver = Driver::start(&target.path(disk), &Setup::new(1, 256).event_idx(event_idx));
                let mut ended = bursts_then_silence(driver.queue(), number as u64);
                ended += steady(driver.queue(), number as u64);
                assert_counted(&target, disk, &mut driver, ended);
            }
        }
    }
}

#[test]
fn nothing_is_lost_where_the_indices_wrap() {
    for policy in ["none", "nvme", "auto", "cint:ooo=on,in_flight=off,delta=100us", "batch"] {
        for event_idx in [true, false] {
            let target = Target::start(&[Disk::memory("m", "1M").policy(policy)]);
            let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 256).event_idx(event_idx));
            let queue = driver.queue();
            queue.begin_at(u16::MAX - 20);
            driver.start_queue(0);
            println!("{policy}, EVENT_IDX {event_idx}");
            // Without EVENT_IDX a ring that has been used owes an interrupt: nobody knows whether it was taken.
            let ended = bursts_then_silence(driver.queue(), 1);
            assert_counted(&target, "m", &mut driver, ended);
        }
    }
}

#[test]
fn no_interrupt_while_it_is_forbidden_and_again_when_it_is_not() {
    for policy in ["none", "batch", "nvme:thr=3,time=100us", "vic", "cint", "auto", "dim", "spdk_vhost"] {
        let target = Target::start(&[Disk::memory("m", "1M").policy(policy)]);
        let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256).event_idx(false));
        let queue = driver.queue();
        for round in 0..5 {
            queue.set_no_interrupt(true);
            queue.offer_many(8, &Op::Read(0, 512));
            queue.publish();
            queue.spin(8);
            wait_until("nothing is held any more", || target.count("m", 0, "held") == 0);
            assert_eq!(queue.count_interrupts(), 0, "{policy}, round {round}");
            assert_eq!(queue.take_used().len(), 8);
            queue.set_no_interrupt(false);
            assert!(queue.take_used().is_empty());
            assert_eq!(queue.run(Op::Flush).status, OK, "interrupts again");
        }
        assert!(target.count("m", 0, "suppressed") >= 5);
        assert_counted(&target, "m", &mut driver, 45);
    }
}

/// Completions that are held when the driver enables interrupts again are delivered, because its check before found
/// nothing.
#[test]
fn an_interrupt_is_asked_for_when_it_is_due_not_when_it_is_held() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("nvme:thr=255,time=25500us")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256).event_idx(false));
    let queue = driver.queue();
    for _ in 0..5 {
        queue.set_no_interrupt(true);
        queue.offer_many(3, &Op::Read(0, 512));
        queue.publish();
        queue.set_no_interrupt(false);
        assert_eq!(queue.wait(3).len(), 3);
    }
}

#[test]
fn with_event_idx_the_interrupt_comes_when_the_event_is_passed() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256));
    let queue = driver.queue();
    for (done, ahead) in [(0_u16, 0_u16), (1, 7), (9, 30), (40, 1)] {
        queue.set_used_event(done + ahead);
        for i in 0..=ahead {
            assert_eq!(queue.count_interrupts(), 0, "before its time");
            let head = queue.prepare(i % 64, &Op::Flush);
            queue.offer(head);
            queue.publish();
            queue.spin(i + 1);
        }
        queue.wait_interrupt();
        assert_eq!(queue.take_used().len(), usize::from(ahead) + 1);
        wait_until("counted", || target.count("m", 0, "completions") == u64::from(done + ahead + 1));
        assert_eq!(queue.count_interrupts(), 0, "only one");
    }
    assert_eq!(queue.interrupts, 4);
}

/// A driver that goes on by itself and never looks at interrupts must not be broken by what it does not take.
#[test]
fn a_driver_that_polls_makes_progress_and_is_interrupted_when_it_sleeps() {
    for policy in POLICIES {
        let target = Target::start(&[Disk::memory("m", "1M").policy(policy)]);
        let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256));
        let queue = driver.queue();
        for _ in 0..300 {
            queue.offer_many(4, &Op::Read(0, 512));
            queue.publish();
            let due = matches!(policy, "cint:ooo=on,in_flight=off,thr=65535,delta=1ms,max_hold=10ms");
            if due {
                queue.spin(1)
            } else {
                queue.spin(4)
            } // what is held out of order is not even posted
            let mut taken = queue.take_used().len();
            while taken < 4 {
                taken += queue.take_used().len();
            }
        }
        queue.take_all();
        queue.count_interrupts();
        assert_eq!(queue.run(Op::Flush).status, OK, "{policy}");
        assert_counted(&target, "m", &mut driver, 1201);
    }
}

/// Every front end between its completions changes nothing about what it is owed.
#[test]
fn depth_changes_and_pauses_under_a_changing_policy_lose_nothing() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256));
    let mut random = Random(42);
    let mut load = Load::new(64);
    for round in 0..150 {
        let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
        let n = 1 + random.below(32) as usize;
        load.submit(driver.queue(), n, |_| Op::Read(0, 512));
        if round % 2 == 0 {
            target.set_policy("m", policy);
        }
        load.wait(driver.queue(), n);
        assert_eq!(load.ended, u64::from(driver.queue().last_used));
    }
    assert_counted(&target, "m", &mut driver, load.ended);
}

// ---------------------------------------------------------------------------------------------------------------------
// What is held, when something changes
// ---------------------------------------------------------------------------------------------------------------------

/// A driver with 16 posted completions that no interrupt will cover for a minute.
fn held(target: &Target, event_idx: bool) -> Driver {
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256).event_idx(event_idx));
    hold(driver.queue(), 16);
    wait_until("held", || target.count("m", 0, "held") == 16);
    assert_eq!(driver.queue().count_interrupts(), 0);
    driver
}

fn holding() -> Target {
    Target::start(&[Disk::memory("m", "1M").policy(HOLD_FOREVER), Disk::memory("other", "1M")])
}

/// One interrupt covers them all.
fn assert_delivered(driver: &mut Driver) {
    let queue = driver.queue();
    assert_eq!(queue.wait_interrupt(), 1);
    assert_eq!(queue.take_all().len(), 16);
}

#[test]
fn a_stop_delivers_everything_held() {
    for event_idx in [true, false] {
        let target = holding();
        let mut driver = held(&target, event_idx);
        assert_eq!(driver.stop_queue(0), 16);
        assert_eq!(driver.queue().count_interrupts(), 1, "before the answer");
        assert_eq!(driver.queue().take_used().len(), 16);
    }
}

/// A queue that has stopped knows where its ring goes on, also while another one still finishes what it has in flight.
#[test]
fn a_base_that_is_asked_for_while_the_target_stops_is_right() {
    let mut target = Target::start(&[Disk::memory("m", "1G").policy(HOLD_FOREVER).queues(2)]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(2, 64));
    hold(&mut driver.queues[0], 16);
    let queue = &mut driver.queues[1];
    for slot in 0..16 {
        let head = queue.prepare(slot, &Op::WriteZeroes(0, 1 << 21, 0));
        queue.offer(head);
    }
    let (len, table) = (1 << 19, driver.setup.spare() + (1 << 19));
    queue.write(queue.header(16), &header(T_IN, 0, 0));
    let mut parts = vec![(queue.header(16), 16, 0)];
    parts.extend([(driver.setup.spare(), len, WRITE); 1000]);
    parts.push((queue.status_at(16), 1, WRITE));
    for (i, desc) in chained(&parts).iter().enumerate() {
        queue.write(table + 16 * i as u64, &desc.bytes());
    }
    queue.write_desc(63, Desc(table, 16 * parts.len() as u32, INDIRECT, 0));
    for _ in 0..16 {
        queue.offer(63);
    }
    queue.publish();
    wait_until("they are in flight", || target.count("m", 1, "in_flight") >= 16);
    assert_eq!(driver.queues[0].count_interrupts(), 0);
    target.signal(Signal::SIGTERM);
    driver.queues[0].wait_interrupt(); // it has stopped
    if let Ok(answer) = driver.wire.ask(GET_VRING_BASE, &u32s(&[0, 0])) {
        assert_eq!(answer, u32s(&[0, 16])); // or the connection is closed already
    }
    assert!(target.wait().success());
}

#[test]
fn a_disconnect_delivers_everything_held() {
    let target = holding();
    let mut driver = held(&target, true);
    driver.wire = Wire::connect(&target.path("other")); // the connection before it is closed
    assert_delivered(&mut driver);
}

#[test]
fn another_policy_delivers_everything_held() {
    for policy in POLICIES {
        let target = holding();
        let mut driver = held(&target, true);
        target.set_policy("m", policy);
        assert_delivered(&mut driver);
    }
}

#[test]
fn the_same_policy_again_loses_nothing() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("nvme:thr=255,time=25500us")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256));
    for policy in ["nvme:thr=255,time=25500us", "cint:ooo=on,in_flight=off,delta=10ms,max_hold=20ms"] {
        for _ in 0..5 {
            target.set_policy("m", policy);
            driver.queue().offer_many(5, &Op::Read(0, 512));
            driver.queue().publish();
            target.set_policy("m", policy);
            assert_eq!(driver.queue().wait(5).len(), 5, "{policy}");
        }
    }
}

/// From out of order to in order and back: what was not posted yet is posted.
#[test]
fn a_change_of_order_loses_nothing() {
    let target = Target::start(&[Disk::memory("m", "1M")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 256));
    let policy = |ooo| format!("cint:ooo={ooo},in_flight=off,thr=65535,delta=10ms,max_hold=20ms");
    let mut load = Load::new(32);
    for (before, after) in [("on", "off"), ("off", "on"), ("on", "on")] {
        for _ in 0..4 {
            target.set_policy("m", &policy(before));
            load.submit(driver.queue(), 7, |_| Op::Read(0, 512));
            target.set_policy("m", &policy(after));
            load.submit(driver.queue(), 3, |slot| if slot % 2 == 0 { Op::Flush } else { Op::Read(0, 512) });
            load.wait(driver.queue(), 10);
        }
    }
}

#[test]
fn a_call_eventfd_that_is_replaced_in_mid_hold_gets_the_interrupt_for_what_is_held() {
    for event_idx in [true, false] {
        let target = holding();
        let mut driver = held(&target, event_idx);
        driver.queue().call = eventfd();
        driver.set_call(0);
        assert_delivered(&mut driver);
    }
}

/// What QEMU does when it starts a device: rings get an eventfd that nobody reads, are kicked and enabled, and only
/// then get the one that interrupts the guest (`vhost_user_blk_start`: `vhost_dev_start`, then `vhost_virtqueue_mask`).
/// What was answered in between, or is owed from before, has told nobody.
#[test]
fn a_new_call_eventfd_repeats_the_last_interrupt_of_the_one_before() {
    for event_idx in [true, false] {
        let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
        let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 256).event_idx(event_idx));
        driver.queue().offer_many(4, &Op::Read(0, 512));
        driver.queue().publish();
        let guest = std::mem::replace(&mut driver.queue().call, eventfd());
        driver.start_queue(0);
        driver.queue().spin(4);
        wait_until("the first eventfd is signalled", || driver.queue().count_interrupts() > 0);
        driver.queue().call = guest;
        driver.set_call(0);
        assert_eq!(driver.queue().wait(4).len(), 4, "EVENT_IDX {event_idx}");
    }
}

/// The same without any eventfd before it: a ring may be started without one, to be polled.
#[test]
fn a_late_call_eventfd_is_signalled_for_what_was_missed() {
    for (policy, event_idx) in [("none", true), ("none", false), ("auto", true), ("batch", true), ("nvme", false)] {
        let target = Target::start(&[Disk::memory("m", "1M").policy(policy)]);
        let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 256).event_idx(event_idx));
        driver.set_up_queue(0);
        driver.wire.tell(SET_VRING_CALL, &u64s(&[NO_FD]), &[]).unwrap();
        driver.set_kick(0);
        driver.enable(0, true);
        driver.queue().offer_many(4, &Op::Read(0, 512));
        driver.queue().publish();
        driver.queue().spin(4);
        wait_until("nothing is held", || target.count("m", 0, "held") == 0);
        driver.set_call(0);
        assert_eq!(driver.queue().wait(4).len(), 4, "{policy}, EVENT_IDX {event_idx}");
    }
}

/// Without EVENT_IDX a used index of 0 is that of a new ring, or of one that has wrapped: only the new one is owed
/// nothing.
#[test]
fn a_late_call_eventfd_is_signalled_for_what_was_missed_where_the_used_index_wraps() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 256).event_idx(false));
    driver.start_queue(0);
    driver.queue().call = eventfd();
    driver.set_call(0);
    assert_eq!((driver.stop_queue(0), driver.queue().count_interrupts()), (0, 0), "a new ring");

    driver.queue().begin_at(0_u16.wrapping_sub(4));
    driver.start_queue(0);
    driver.queue().offer_many(4, &Op::Read(0, 512));
    driver.queue().publish();
    driver.queue().spin(4);
    assert_eq!(driver.queue().used_idx(), 0);
    driver.queue().call = eventfd(); // the one before was told, and nobody has looked
    driver.set_call(0);
    assert_eq!(driver.stop_queue(0), 0);
    assert_eq!(driver.queue().count_interrupts(), 1, "in the process that has posted them");

    driver.queue().call = eventfd();
    driver.start_queue(0);
    assert_eq!(driver.stop_queue(0), 0);
    assert_eq!(driver.queue().count_interrupts(), 1, "in a process that has not");
}

#[test]
fn another_kick_eventfd_is_listened_to() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64));
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    driver.queue().kick = eventfd();
    driver.set_kick(0);
    for _ in 0..3 {
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
    }
}

/// Also after a front end without protocol features, which has no message to enable a ring.
#[test]
fn a_ring_rests_until_it_is_enabled() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    for round in 0..100 {
        let wire = Wire::connect(&target.path("m"));
        let offered = wire.ask_u64(GET_FEATURES).unwrap();
        wire.send(SET_FEATURES, VERSION, &u64s(&[offered & !F_PROTOCOL]), &[]).unwrap();
        wire.ask_u64(GET_FEATURES).unwrap();
        drop(wire);
        wait_until("the connection is closed", || !is_connected(&target, "m"));
        let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 64));
        driver.queue().offer_many(1, &Op::Read(0, 512));
        driver.queue().publish();
        driver.set_up_queue(0);
        driver.set_kick(0);
        target.stats("m", 0); // it has heard of it, and has had time
        assert_eq!(driver.queue().used_idx(), 0, "round {round}");
        driver.enable(0, true);
        assert_eq!(driver.queue().wait(1).len(), 1);
        drop(driver);
        wait_until("the connection is closed", || !is_connected(&target, "m"));
    }
}

/// What was in flight when a ring broke is not waited for by the batches that come after.
#[test]
fn strict_barriers_work_after_a_broken_ring() {
    let policy = "cint:barrier=strict,hints=all,in_flight=off,thr=1000,delta=10ms,max_hold=off,ooo=off";
    let target = Target::start(&[Disk::memory("m", "1M").policy(policy)]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64));
    driver.queue().offer_many(2, &Op::Read(0, 512));
    driver.queue().offer(1000); // there is no such head
    driver.queue().publish();
    wait_until("the ring breaks", || target.count("m", 0, "device/broken_rings") == 1);
    driver.stop_queue(0);
    driver.queue().reset();
    driver.start_queue(0);
    for _ in 0..5 {
        driver.queue().offer_many(8, &Op::Read(0, 512));
        driver.queue().publish();
        assert_eq!(driver.queue().wait(8).len(), 8);
    }
    assert_eq!(target.count("m", 0, "delivered/barrier"), 5);
}

#[test]
fn what_failed_moved_no_bytes() {
    let (directory, image) = image();
    let target = Target::start_in(directory, &[Disk::file("f", &image).policy("none")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    std::fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
    assert_eq!(driver.queue().run(Op::Read(8, 4096)).status, IOERR);
    let counts = ["failed", "reads", "bytes_read"].map(|name| target.count("f", 0, &format!("device/{name}")));
    assert_eq!(counts, [1, 1, 0]);
    wait_until("it is said", || target.log().contains("a read of 4096 bytes at 4096 failed: 0 bytes were done"));
}

#[test]
fn an_image_in_memory_needs_no_worker_for_small_requests() {
    let directory = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let image = directory.path().join("image");
    std::fs::write(&image, vec![0; 1 << 20]).unwrap();
    let target = Target::start_in(directory, &[Disk::file("f", &image).policy("none")]);
    let mut driver = Driver::start(&target.path("f"), &Setup::new(1, 64));
    let workers = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", target.pid_of("f"))).unwrap();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.flatten().map(name).filter(|name| name.starts_with("iou-wrk")).count()
    };
    let data: Vec<u8> = (0..128 << 10).map(|i: u32| (i / 512 + i) as u8).collect();
    assert_eq!(driver.queue().run(Op::Write(8, &data[..64 << 10])).status, OK);
    assert_eq!(driver.queue().run(Op::Read(8, 64 << 10)).data, data[..64 << 10]);
    assert_eq!(workers(), 0);
    assert_eq!(driver.queue().run(Op::Write(512, &data)).status, OK);
    assert!(workers() > 0, "a large one is left to a worker, or this machine's workers have another name");
    assert_eq!(driver.queue().run(Op::Read(512, 128 << 10)).data, data);
    assert_eq!(&std::fs::read(&image).unwrap()[4096..][..64 << 10], &data[..64 << 10]);
    std::fs::File::options().write(true).open(&image).unwrap().set_len(8192).unwrap();
    assert_eq!(driver.queue().run(Op::Read(8, 4096)).status, OK);
    assert_eq!(driver.queue().run(Op::Read(8, 8192)).status, IOERR, "half of it is beyond the end");
}

#[test]
fn a_ring_that_is_disabled_rests_and_goes_on_when_it_is_enabled() {
    for event_idx in [true, false] {
        let target = Target::start(&[Disk::memory("m", "1M").policy("nvme")]);
        let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64).event_idx(event_idx));
        for _ in 0..10 {
            driver.enable(0, false);
            let before = target.count("m", 0, "completions"); // also: it has heard of it
            driver.queue().offer_many(3, &Op::Read(0, 512));
            driver.queue().publish();
            driver.queue().kick();
            assert_eq!(target.count("m", 0, "completions"), before);
            driver.enable(0, true);
            assert_eq!(driver.queue().wait(3).len(), 3);
        }
    }
}

#[test]
fn a_ring_goes_on_where_it_was_stopped() {
    for event_idx in [true, false] {
        let target = Target::start(&[Disk::memory("m", "1M").policy("auto")]);
        let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64).event_idx(event_idx));
        for round in 0..20 {
            driver.queue().offer_many(5, &Op::Read(0, 512));
            driver.queue().publish();
            assert_eq!(driver.queue().wait(5).len(), 5);
            assert_eq!(driver.stop_queue(0), 5 * (round + 1));
            driver.queue().count_interrupts();
            driver.start_queue(0);
        }
    }
}

#[test]
fn a_reset_device_starts_from_nothing() {
    for message in [RESET_DEVICE, RESET_OWNER] {
        let target = holding();
        let mut driver = held(&target, true);
        driver.wire.tell(message, &[], &[]).unwrap();
        assert_eq!(driver.queue().count_interrupts(), 1, "what was held is delivered");
        driver.queue().reset();
        driver.negotiate_again();
        target.set_policy("m", "none");
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
    }
}

#[test]
fn after_a_reset_device_no_feature_is_in_force_until_it_is_negotiated_again() {
    let target = both("cint");
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64).event_idx(false));
    let durable = || target.stats("m", 0)["hints"]["fua"].as_u64().unwrap_or(0);
    for (negotiates, expected) in [(true, 0), (false, 1), (true, 1)] {
        driver.wire.tell(RESET_DEVICE, &[], &[]).unwrap();
        driver.queue().reset();
        if negotiates {
            driver.negotiate_again();
        }
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Write(0, &[1; 512])).status, OK);
        assert_eq!(durable(), expected, "a guest that cannot flush has no cache");
    }
}

/// A write that is in flight when its ring breaks: it ends, and nobody is told. The ring is stopped then.
fn broken_in_flight(target: &Target, stop: impl FnOnce(&Driver)) -> Driver {
    let mut driver = Driver::start_with_inflight(&target.path("m"), &Setup::new(1, 64));
    let queue = driver.queue();
    let head = queue.prepare(1, &Op::Write(8, &[1; 512]));
    queue.offer(head);
    queue.publish();
    wait_until("it is in flight", || target.count("m", 0, "in_flight") == 1);
    queue.set_avail_idx(1000);
    queue.kick();
    wait_until("the ring is broken", || target.count("m", 0, "device/broken_rings") == 1);
    stop(&driver);
    driver
}

fn slow() -> Target {
    Target::start(&[Disk::memory("m", "1M").policy("none").line("latency = \"300ms\"")])
}

/// The guest resets its device, and has forgotten what was in flight.
#[test]
fn what_a_broken_ring_had_in_flight_is_not_repeated_in_a_fresh_ring() {
    for stop in [
        |driver: &Driver| driver.wire.tell(RESET_DEVICE, &[], &[]).unwrap(),
        |driver: &Driver| {
            driver.wire.tell(RESET_DEVICE, &[], &[]).unwrap();
            driver.set_inflight();
        },
        |driver: &Driver| assert_eq!(driver.stop_queue(0), 1),
    ] {
        let target = slow();
        let mut driver = broken_in_flight(&target, stop);
        driver.queue().reset();
        driver.negotiate_again();
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
        assert_eq!(driver.queue().used_idx(), 1, "nothing else is answered");
        assert_eq!(target.count("m", 0, "device/taken_over"), 0);
        assert_eq!(target.count("m", 0, "device/broken_rings"), 1);
    }
}

/// Without a record nothing would be repeated, either.
#[test]
fn what_a_broken_ring_had_in_flight_is_not_repeated_where_the_ring_goes_on() {
    let target = slow();
    let mut driver = broken_in_flight(&target, |_| ());
    let base = driver.stop_queue(0);
    assert_eq!(base, 1);
    driver.queue().set_avail_idx(base);
    driver.set_up_queue(0);
    driver.wire.tell(SET_VRING_BASE, &u32s(&[0, base.into()]), &[]).unwrap();
    driver.set_kick(0);
    driver.enable(0, true);
    assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK);
    assert_eq!(driver.queue().used_idx(), 1, "nothing else is answered");
    assert_eq!(target.count("m", 0, "device/taken_over"), 0);
}

/// The front end was not told that they ended. Until they are taken over it may stop the ring again.
#[test]
fn what_a_broken_ring_had_in_flight_when_the_target_was_killed_is_taken_over() {
    let mut target = Target::start(&[Disk::memory("m", "1M").policy("none").line("latency = \"300ms\"")]);
    let mut driver = broken_in_flight(&target, |_| ());
    target.kill();
    let target = target.restart();
    driver.queue().set_avail_idx(1);
    driver.reconnect_without_start(&target.path("m"));
    driver.stop_queue(0);
    driver.set_up_queue(0);
    driver.set_kick(0);
    driver.stop_queue(0);
    driver.start_queue(0);
    assert_eq!(driver.queue().wait(1).len(), 1);
    assert_eq!(driver.queue().status(1), OK);
    assert_eq!(target.count("m", 0, "device/taken_over"), 1);
}

#[test]
fn a_front_end_may_come_back_as_often_as_it_likes() {
    let target = both("auto");
    for disk in ["m", "f"] {
        let setup = Setup::new(1, 64);
        let mut driver = Driver::start(&target.path(disk), &setup);
        let data = pattern(9, 512);
        assert_eq!(driver.queue().run(Op::Write(1, &data)).status, OK);
        let files = target.open_files();
        for round in 0..30 {
            driver.wire = Wire::connect(&target.path(if disk == "m" { "f" } else { "m" }));
            wait_until("the connection is closed", || !is_connected(&target, disk));
            driver.queue().count_interrupts();
            driver.reconnect(&target.path(disk));
            assert_eq!(driver.queue().run(Op::Read(1, 512)).data, data, "round {round}");
        }
        wait_until("its files are closed", || target.open_files() <= files + 1);
    }
}

fn is_connected(target: &Target, disk: &str) -> bool {
    let list = target.call("list", &serde_json::json!({})).unwrap();
    list.as_array().unwrap().iter().any(|about| about["ctrlr"] == disk && about["connected"] == true)
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory that changes
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn memory_regions_need_no_order() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut setup = Setup::new(1, 64);
    setup.regions.insert(0, Region::new(GUEST + (1 << 30), 1 << 20));
    let mut driver = Driver::start(&target.path("m"), &setup);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
}

#[test]
fn memory_comes_and_goes_while_requests_are_served() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(1, 64));
    assert!(driver.wire.ask_u64(GET_MAX_MEM_SLOTS).unwrap() >= 8);
    let added = Region::new(GUEST - (1 << 20), 1 << 16);
    let mut payload = u64s(&[0]);
    payload.extend(added.payload());
    for _ in 0..10 {
        driver.wire.tell(ADD_MEM_REG, &payload, &[added.file.as_raw_fd()]).unwrap();
        assert_eq!(read_into(driver.queue(), added.start), OK);
        driver.wire.tell(REM_MEM_REG, &payload, &[]).unwrap();
        assert_eq!(read_into(driver.queue(), added.start), IOERR, "it is gone");
        assert_eq!(driver.queue().run(Op::Read(0, 512)).status, OK, "the rest is not");
        driver.share_memory();
    }
}

/// A layout changes region by region: for a while a ring may be in no memory at all.
#[test]
fn a_ring_whose_memory_leaves_and_returns_goes_on() {
    for event_idx in [true, false] {
        let target = holding();
        let mut driver = held(&target, event_idx);
        let mut region = u64s(&[0]);
        region.extend(driver.setup.regions[0].payload());
        let file = driver.setup.regions[0].file.as_raw_fd();
        driver.wire.tell(REM_MEM_REG, &region, &[]).unwrap();
        assert_eq!(driver.queue().count_interrupts(), 1, "what was held is delivered before the answer");
        assert_eq!(driver.queue().take_all().len(), 16);
        target.set_policy("m", "none");
        driver.queue().offer_many(3, &Op::Read(0, 512));
        driver.queue().publish();
        driver.queue().kick();
        for enable in [true, false, true] {
            driver.enable(0, enable); // it stays at rest
        }
        assert_eq!(target.count("m", 0, "device/broken_rings"), 0, "{}", target.log());
        driver.queue().count_interrupts();
        driver.wire.tell(ADD_MEM_REG, &region, &[file]).unwrap();
        assert_eq!(driver.queue().wait(3).len(), 3);
        driver.wire.tell(REM_MEM_REG, &region, &[]).unwrap();
        assert_eq!(driver.stop_queue(0), 19, "it can be stopped meanwhile");
    }
}

fn read_into(queue: &mut Queue, address: u64) -> u8 {
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    let parts = [(queue.header(0), 16, 0), (address, 512, WRITE), (queue.status_at(0), 1, WRITE)];
    queue.run_chain(&chained(&parts));
    queue.status(0)
}

// ---------------------------------------------------------------------------------------------------------------------
// Across a restart of the target
// ---------------------------------------------------------------------------------------------------------------------

/// The region of requests in flight, as a device before this one would have left it.
struct Left<'a> {
    driver: &'a Driver,
    offset: u64,
}

impl Left<'_> {
    fn write(&self, at: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt as _;
        self.driver.inflight.as_ref().unwrap().1.write_all_at(bytes, self.offset + at).unwrap();
    }

    /// Version 1, for a ring of `size`.
    fn begin(&self, size: u16, last_batch_head: u16, used_idx: u16) {
        self.write(8, &[1_u16, size, last_batch_head, used_idx].map(u16::to_le_bytes).concat());
    }

    fn take(&self, head: u16, counter: u64) {
        let entry = 16 + 16 * u64::from(head);
        self.write(entry + 8, &counter.to_le_bytes());
        self.write(entry, &[1]);
    }
}

/// A driver whose 6 requests a device before this one took, of which it posted those of slots 1 and 4.
fn left_behind(target: &Target, note_last: bool) -> Driver {
    let mut driver = Driver::connect(&target.path("m"), &Setup::new(1, 64));
    driver.get_inflight();
    let queue = driver.queue();
    queue.offer_many(6, &Op::Read(0, 512));
    queue.publish();
    for (i, head) in [3_u32, 12].into_iter().enumerate() {
        queue.write(queue.used + 4 + 8 * i as u64, &u32s(&[head, 513]));
    }
    queue.store(queue.used + 2, 2);
    let left = Left { driver: &driver, offset: 0 };
    left.begin(64, 12, if note_last { 2 } else { 1 });
    for (counter, head) in [9, 0, 15, 6].into_iter().enumerate() {
        left.take(head, counter as u64);
    }
    if !note_last {
        left.take(12, 7); // posted, but not noted
    }
    driver.set_inflight();
    driver.start_queue(0);
    driver
}

#[test]
fn what_was_taken_and_not_answered_is_answered_once_in_its_order() {
    for note_last in [true, false] {
        let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
        let mut driver = left_behind(&target, note_last);
        let used = driver.queue().wait(6);
        let ids: Vec<_> = used.iter().map(|used| used.id).collect();
        assert_eq!(ids, [3, 12, 9, 0, 15, 6], "the last posted was noted: {note_last}");
        assert_eq!(target.count("m", 0, "device/taken_over"), 4);
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
        assert_eq!(driver.queue().used_idx(), 7, "nothing was answered twice");
    }
}

/// The process before has paid for it, and a front end that asks for the ring's base is not told of it.
#[test]
fn no_limit_of_the_disk_delays_what_was_taken_over() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none").line("bytes_per_second = \"1\"")]);
    let mut driver = left_behind(&target, true);
    let ids: Vec<_> = driver.queue().wait(6).iter().map(|used| used.id).collect();
    assert_eq!(ids, [3, 12, 9, 0, 15, 6]);
}

/// Nothing is in flight, but the driver was never told.
#[test]
fn a_posted_completion_without_an_interrupt_before_a_crash_interrupts_after_it() {
    for event_idx in [true, false] {
        for inflight in [true, false] {
            let mut target = holding();
            let setup = Setup::new(1, 256).event_idx(event_idx);
            let start = if inflight { Driver::start_with_inflight } else { Driver::start };
            let mut driver = start(&target.path("m"), &setup);
            hold(driver.queue(), 16);
            target.kill();
            assert_eq!(driver.queue().count_interrupts(), 0);
            let target = target.restart();
            driver.reconnect(&target.path("m"));
            assert_eq!(driver.queue().wait(16).len(), 16, "EVENT_IDX {event_idx}, inflight {inflight}");
            assert_eq!(driver.queue().used_idx(), 16);
            target.set_policy("m", "none");
            assert_eq!(driver.queue().run(Op::Flush).status, OK, "and it goes on");
        }
    }
}

/// The same in QEMU's order, where the guest's eventfd comes after the ring is enabled.
#[test]
fn the_last_eventfd_is_signalled_for_what_a_crash_left_without_an_interrupt() {
    for event_idx in [true, false] {
        let mut target = holding();
        let mut driver = Driver::start_with_inflight(&target.path("m"), &Setup::new(1, 256).event_idx(event_idx));
        hold(driver.queue(), 16);
        target.kill();
        let target = target.restart();
        let guest = std::mem::replace(&mut driver.queue().call, eventfd());
        driver.reconnect(&target.path("m"));
        target.stats("m", 0); // it has heard of all that
        driver.queue().call = guest;
        driver.set_call(0);
        assert_eq!(driver.queue().wait(16).len(), 16, "EVENT_IDX {event_idx}");
    }
}

/// A front end that lost its connection may not know how far the ring was: the record of requests in flight does.
#[test]
fn a_base_that_is_stale_repeats_nothing_that_was_answered() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none")]);
    for base in [15, 21, 0, 1000] {
        let mut driver = Driver::start_with_inflight(&target.path("m"), &Setup::new(1, 64));
        driver.queue().offer_many(20, &Op::Read(0, 512));
        driver.queue().publish();
        assert_eq!(driver.queue().wait(20).len(), 20);
        driver.wire.stream.shutdown(std::net::Shutdown::Both).unwrap();
        driver.reconnect_without_start(&target.path("m"));
        driver.set_up_queue(0);
        driver.wire.tell(SET_VRING_BASE, &u32s(&[0, base]), &[]).unwrap();
        driver.set_kick(0);
        driver.enable(0, true);
        assert_eq!(driver.queue().run(Op::Flush).status, OK, "base {base}");
        assert_eq!(driver.queue().used_idx(), 21, "base {base}");
        driver.stop_queue(0);
        // A driver that resets its device begins at 0, with the same region.
        driver.queue().reset();
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Flush).status, OK, "after a reset");
        assert_eq!(driver.queue().used_idx(), 1);
        drop(driver);
        wait_until("the connection is closed", || !is_connected(&target, "m"));
    }
}

/// What was taken is executed again and answered once, however far the target had come.
fn kill_in_flight(queues: usize, policy: &str, kind: impl Fn(&Target) -> PathBuf) {
    let disk = |directory: &TempDir| Disk::file("f", &directory.path().join("image")).policy(policy);
    let (directory, _) = image();
    let disk = disk(&directory).queues(queues);
    let memory = Disk::memory("m", "64M").policy(policy).queues(queues);
    let mut target = Target::start_in(directory, &[memory, disk]);
    let mut taken_over = 0;
    for round in 0..60 {
        let setup = Setup::new(queues, 256); // with rings that nothing was in yet
        let mut driver = Driver::start_with_inflight(&kind(&target), &setup);
        let spare = setup.spare();
        for queue in &mut driver.queues {
            offer_large(queue, spare);
        }
        driver.queues.iter_mut().for_each(Queue::publish);
        let first = &driver.queues[0];
        // Also before the first is answered: from then on it may be a matter of microseconds.
        wait_until("something is taken", || first.used_idx() > round % 4 || round % 2 == 0 && is_any_taken(&driver));
        target.kill();
        target = target.restart();
        driver.reconnect(&kind(&target));
        for queue in &mut driver.queues {
            assert_answered_once(queue);
        }
        let name = kind(&target).file_name().unwrap().to_string_lossy().into_owned();
        taken_over += (0..queues).map(|i| target.count(&name, i, "device/taken_over")).sum::<u64>();
        if taken_over > 0 && round >= 5 {
            return;
        }
        drop(driver);
        wait_until("the connection is closed", || !is_connected(&target, &name));
    }
    panic!("60 times nothing was in flight when the target was killed");
}

/// Whether a request of the first queue, of 256 entries, is taken and not answered.
fn is_any_taken(driver: &Driver) -> bool {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = [0; 16 + 16 * 256];
    driver.inflight.as_ref().unwrap().1.read_exact_at(&mut bytes, 0).unwrap();
    (0..256).any(|head| bytes[16 + 16 * head] == 1)
}

/// Requests that take a while: reads of 1 MiB, all of them to the same place.
fn offer_large(queue: &mut Queue, to: u64) {
    for slot in 0..queue.size / 4 {
        queue.write(queue.header(slot), &header(T_IN, 0, 0));
        queue.write(queue.status_at(slot), &[0xAA]);
        let parts = [(queue.header(slot), 16, 0), (to, 1 << 20, WRITE), (queue.status_at(slot), 1, WRITE)];
        queue.write_chain(slot * 4, &chained(&parts));
        queue.offer(slot * 4);
    }
}

fn assert_answered_once(queue: &mut Queue) {
    let n = queue.size / 4;
    let mut answers = BTreeMap::<u32, usize>::new();
    for used in queue.wait(n.into()) {
        *answers.entry(used.id).or_default() += 1;
    }
    assert_eq!(answers, (0..n).map(|slot| (u32::from(slot) * 4, 1)).collect(), "queue {}", queue.index);
    assert!((0..n).all(|slot| queue.status(slot) == OK));
    assert_eq!(queue.run(Op::Flush).status, OK);
    assert_eq!(queue.used_idx(), n + 1, "nothing is answered again");
}

#[test]
fn a_crash_with_requests_in_flight_loses_none_and_repeats_none() {
    kill_in_flight(1, "none", |target| target.path("m"));
    kill_in_flight(1, "none", |target| target.path("f"));
}

#[test]
fn a_crash_with_completions_that_are_not_posted_loses_none_and_repeats_none() {
    let policy = "cint:ooo=on,in_flight=off,thr=8,delta=10ms";
    kill_in_flight(1, policy, |target| target.path("m"));
}

/// A guest may choose a smaller ring than the front end had in mind: where a queue's part of the region begins follows
/// from the size that the front end gave with the region.
#[test]
fn queues_of_different_sizes_do_not_share_what_they_have_in_flight() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("none").queues(2)]);
    let setup = Setup { sizes: vec![64, 16], ..Setup::new(2, 64) };
    let mut driver = Driver::connect(&target.path("m"), &setup);
    driver.get_inflight();
    for queue in &mut driver.queues {
        queue.offer_many(4, &Op::Read(0, 512));
        queue.publish();
    }
    let region_len = |size: u64| (16 + 16 * size).next_multiple_of(64);
    for (index, size) in [64, 16].into_iter().enumerate() {
        let left = Left { driver: &driver, offset: index as u64 * region_len(64) };
        left.begin(size, 0, 0);
        left.take(9, 0);
        left.take(3, 1);
    }
    driver.set_inflight();
    for index in 0..2 {
        driver.start_queue(index);
        let ids: Vec<_> = driver.queues[index].wait(4).iter().map(|used| used.id).collect();
        assert_eq!(ids[..2], [9, 3], "queue {index}: first what was taken before");
        assert_eq!(driver.queues[index].used_idx(), 4, "queue {index}");
    }
}

/// The region is shared, not copied: what a device notes there is what the next one finds.
#[test]
fn an_orderly_stop_leaves_nothing_in_flight() {
    let target = Target::start(&[Disk::memory("m", "1M").policy("auto")]);
    let mut driver = Driver::start_with_inflight(&target.path("m"), &Setup::new(1, 64));
    for _ in 0..10 {
        driver.queue().offer_many(7, &Op::Read(0, 512));
        driver.queue().publish();
        assert_eq!(driver.queue().wait(7).len(), 7);
        driver.stop_queue(0);
        driver.queue().count_interrupts();
        driver.set_inflight();
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
    }
    assert_eq!(target.count("m", 0, "device/taken_over"), 0);
    let file = Arc::clone(&driver.inflight.as_ref().unwrap().1);
    let bytes = std::fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert!((0..64).all(|head| bytes[16 + 16 * head] == 0), "no request is marked as taken");
}

const WARNING: &str = "two kicks, but the ring is empty";

/// Kicks a queue so often, and waits until that is seen.
fn kick(target: &Target, driver: &mut Driver, queue: usize, kicks: u64) {
    let before = target.count("m", queue, "device/kicks");
    for kicks in 1..=kicks {
        driver.queues[queue].kick();
        wait_until("the kick is seen", || target.count("m", queue, "device/kicks") == before + kicks);
    }
}

/// Firmware and QEMU kick rings that are empty. Memory that has something in it is the guest's.
#[test]
fn empty_rings_that_are_kicked_are_no_warning_where_the_guest_has_written_to_its_memory() {
    let target = Target::start(&[Disk::memory("m", "1M").queues(2)]);
    let mut setup = Setup::new(2, 16);
    setup.regions.push(Region::new(0, 0xA0000));
    setup.regions.push(Region::new(2 << 30, 1 << 30));
    let mut driver = Driver::start(&target.path("m"), &setup);
    driver.queues[0].write((3 << 30) - 4000, &[1]); // OVMF has nothing below 1 MiB
    for queue in 0..2 {
        kick(&target, &mut driver, queue, 5);
    }
    assert_eq!(driver.queues[1].run(Op::Flush).status, OK);
    assert!(!target.log().contains(WARNING), "{}", target.log());
}

/// QEMU 7.2 sends a memfd that it does not share (`share=off`): the target sees kicks, an empty ring, and nothing else.
#[test]
fn a_ring_that_is_kicked_twice_and_stays_empty_in_empty_memory_is_a_warning() {
    [true, false].into_iter().for_each(warns_of_an_empty_ring);
}

fn warns_of_an_empty_ring(event_idx: bool) {
    let target = Target::start(&[Disk::memory("m", "1M").queues(2)]);
    let mut driver = Driver::start(&target.path("m"), &Setup::new(2, 16).event_idx(event_idx));
    kick(&target, &mut driver, 0, 1);
    assert!(!target.log().contains(WARNING), "QEMU kicks a ring when it starts it");
    kick(&target, &mut driver, 0, 3);
    wait_until("it says so", || target.log().contains(WARNING));
    kick(&target, &mut driver, 1, 3);
    assert_eq!(driver.queues[1].run(Op::Flush).status, OK);
    kick(&target, &mut driver, 1, 3);
    assert_eq!(target.log().matches(WARNING).count(), 1, "{}", target.log());
}

/// A guest that has switched its write cache off sends no flushes. QEMU says that once (SET_CONFIG), and not again when it connects to
/// the next process.
#[test]
fn a_write_cache_that_is_off_stays_off_after_a_restart() {
    let (directory, image) = image();
    let mut target = Target::start_in(directory, &[Disk::file("f", &image)]);
    let mut driver = Driver::start_with_inflight(&target.path("f"), &Setup::new(1, 64));
    assert_eq!(driver.config(32, 1), [1]);
    driver.set_config(32, &[0]).unwrap();
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        target.signal(signal);
        target.wait();
        target = target.restart();
        driver.reconnect(&target.path("f"));
        assert_eq!(driver.config(32, 1), [0], "{signal}");
        assert_eq!(driver.queue().run(Op::Write(0, &[7; 4096])).status, OK);
    }
    driver.set_config(32, &[1]).unwrap();
    let target = target.restart();
    driver.reconnect(&target.path("f"));
    assert_eq!(driver.config(32, 1), [1]);
    drop(driver);
    // Another guest has a record of its own.
    let driver = Driver::start_with_inflight(&target.path("f"), &Setup::new(1, 64));
    assert_eq!(driver.config(32, 1), [1]);
}
