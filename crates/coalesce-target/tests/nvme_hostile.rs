//! What a hostile guest does to the NVMe controller. It gets the status code or the state that the specification says, or
//! nothing happens. The controller never hangs, and serves on.

mod medium;
mod nvme_host;

use coalesce_delivery::Ring as _;
use coalesce_target::backend::{Buffers, Outcome};
use coalesce_target::nvme::admin::Session;
use coalesce_target::nvme::doorbell::{Doorbells, Register, Sleep};
use coalesce_target::nvme::rings::{CompletionQueue, SubmissionQueue};
use coalesce_target::nvme::vector::Vector;
use coalesce_target::os::bus_error::Peer;
use coalesce_target::os::call::CallRings;
use coalesce_target::queue::Control;
use coalesce_target::source::Source as _;
use coalesce_target::vfio_user::irq::Vectors;
use coalesce_target::vfio_user::memory::{Access, DmaMemory};
use coalesce_target::vfio_user::wire::DmaMap;
use medium::{Call, Fault, Medium};
use nvme_host::{
    BLOCKS, Cq, DATA, DNR, FLUSH, Host, NO_FILE, PAGES, PATIENCE, QUIET, RAM, READ, ROM, SIZE, Setup, Sq, Sqe, WRITE,
    memfd,
};
use proptest::prelude::*;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::sleep;
use std::time::Instant;

const INVALID_OPCODE: u16 = 0x01 | DNR;
const INVALID_FIELD: u16 = 0x02 | DNR;
const DATA_TRANSFER: u16 = 0x04 | DNR;
const PRP_OFFSET: u16 = 0x13 | DNR;
const LBA_RANGE: u16 = 0x80 | DNR;
const INVALID_CQ: u16 = 0x100 | DNR;
const INVALID_QUEUE: u16 = 0x101 | DNR;
const QUEUE_SIZE: u16 = 0x102 | DNR;
const INVALID_VECTOR: u16 = 0x108 | DNR;

/// An invalid value of a doorbell, and a doorbell of a queue that does not exist: type 0, information, log page 1.
const BAD_VALUE: u32 = 0x0001_0100;
const BAD_REGISTER: u32 = 0x0001_0000;

const UNMAPPED: u64 = RAM;

/// 8 completions, or 25.5 ms.
const EIGHT: &str = "nvme:thr=7,time=25500us";

fn read(lba: u64, blocks: u32) -> Sqe {
    Sqe::io(READ).blocks(lba, blocks).prps(DATA, 0)
}

fn put_entries(host: &Host, address: u64, entries: &[u64]) {
    host.write(address, &entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<_>>());
}

fn assert_serves(host: &mut Host, sq: &mut Sq, cq: &mut Cq) {
    assert_eq!(host.io((sq, cq), read(0, 1)), 0);
    host.assert_alive();
}

#[test]
fn a_list_of_prps_that_is_chained_to_itself_ends() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let list = DATA + 0x10_0000;
    put_entries(&host, list, &[list; 512]);
    for start in [list + 4080, list + 4088, list] {
        assert_eq!(host.io((&mut sq, &mut cq), read(0, 2048).prps(DATA + 512, start)), 0);
        put_entries(&host, list, &[list; 512]);
    }
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn prps_with_wrong_offsets_are_refused() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let list = DATA + 0x10_0000;
    put_entries(&host, list, &[DATA + 0x1000, DATA + 0x2200, DATA + 0x3000]);
    put_entries(&host, list + 4080, &[DATA + 0x1000, list + 8]);
    for (sqe, status) in [
        (read(0, 1).prps(DATA + 1, 0), PRP_OFFSET),
        (read(0, 1).prps(DATA + 2, 0), PRP_OFFSET),
        (read(0, 1).prps(DATA + 4, 1), 0),
        (read(0, 16).prps(DATA, DATA + 0x1200), PRP_OFFSET),
        (read(0, 9).prps(DATA, DATA + 0x1004), PRP_OFFSET),
        (read(0, 32).prps(DATA, list + 4), PRP_OFFSET),
        (read(0, 32).prps(DATA, list), PRP_OFFSET),
        (read(0, 40).prps(DATA, list + 4080), PRP_OFFSET),
    ] {
        assert_eq!(host.io((&mut sq, &mut cq), sqe), status, "{sqe:x?}");
    }
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn prps_outside_memory_that_permits_it_are_refused() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let list = DATA + 0x10_0000;
    put_entries(&host, list, &[DATA + 0x1000, UNMAPPED, DATA + 0x3000]);
    let write = Sqe::io(WRITE).blocks(0, 1);
    for (sqe, status) in [
        (read(0, 1).prps(u64::MAX - 511, 0), DATA_TRANSFER),
        (read(0, 8).prps(u64::MAX - 4095, 0), DATA_TRANSFER),
        (read(0, 9).prps(u64::MAX - 511, 0), DATA_TRANSFER),
        (read(0, 1).prps(UNMAPPED, 0), DATA_TRANSFER),
        (read(0, 1).prps(ROM, 0), DATA_TRANSFER),
        (write.prps(ROM, 0), 0),
        (read(0, 1).prps(NO_FILE, 0), DATA_TRANSFER),
        (write.prps(NO_FILE, 0), DATA_TRANSFER),
        (read(0, 16).prps(DATA, NO_FILE), DATA_TRANSFER),
        (read(0, 16).prps(RAM - 4096, RAM), DATA_TRANSFER),
        (read(0, 32).prps(DATA, list), DATA_TRANSFER),
        (read(0, 32).prps(DATA, NO_FILE), DATA_TRANSFER),
        (read(0, 32).prps(DATA, u64::MAX - 7), DATA_TRANSFER),
    ] {
        assert_eq!(host.io((&mut sq, &mut cq), sqe), status, "{sqe:x?}");
    }
    for to in [ROM, NO_FILE, UNMAPPED, u64::MAX - 4095] {
        for sqe in [Sqe::new(6).dword(10, 1), Sqe::new(2).dword(10, 2 | 127 << 16)] {
            assert_eq!(host.admin(sqe.prps(to, 0)), (DATA_TRANSFER, 0), "{to:#x}");
        }
    }
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn a_log_page_has_a_limit() {
    let mut host = Host::new("none");
    for (low, high) in [(0xffff, 0xffff), (0, 4)] {
        let sqe = Sqe::new(2).prps(DATA, DATA + 4096).dword(10, 2 | low << 16).dword(11, high);
        assert_eq!(host.admin(sqe), (INVALID_FIELD, 0), "{high:#x} {low:#x}");
    }
    let offset = Sqe::new(2).prps(DATA, 0).dword(10, 2).dword(12, u32::MAX - 3).dword(13, u32::MAX);
    assert_eq!(host.admin(offset), (INVALID_FIELD, 0));
    host.assert_alive();
}

#[test]
fn ranges_to_discard_may_be_many_but_must_be_on_the_disk() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let range = |lba: u64, blocks: u32| [&[0xff; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
    let discard = Sqe::io(9).prps(DATA, DATA + 4096).dword(11, 4);
    host.write(DATA, &(0..256).flat_map(|i| range(i * 8, 8)).collect::<Vec<_>>());
    assert_eq!(host.io((&mut sq, &mut cq), discard.dword(10, 255)), 0);
    assert_eq!(host.io((&mut sq, &mut cq), discard.dword(10, u32::MAX)), 0, "reserved bits");
    for bad in
        [range(BLOCKS, 1), range(BLOCKS - 1, 2), range(u64::MAX, 1), range(u64::MAX, u32::MAX), range(0, u32::MAX)]
    {
        host.write(DATA, &[range(0, 1), bad].concat());
        assert_eq!(host.io((&mut sq, &mut cq), discard.dword(10, 1)), LBA_RANGE);
    }
    assert_eq!(host.io((&mut sq, &mut cq), discard.dword(10, 255).prps(NO_FILE, 0)), DATA_TRANSFER);
    assert_eq!(host.io((&mut sq, &mut cq), discard.dword(10, 255).prps(DATA + 0x800, DATA + 0x1804)), PRP_OFFSET);
    assert_serves(&mut host, &mut sq, &mut cq);
}

/// Each command asks to deallocate a large disk 256 times.
#[test]
fn ranges_to_discard_that_overlap_do_not_multiply_the_work() {
    const LARGE: u64 = 1 << 40;
    let mut host = Host::with(&Setup { size: LARGE, block_size: 4096, ..Setup::default() });
    let (mut sq, mut cq) = host.pair(64);
    let blocks = u32::try_from(LARGE / 4096).unwrap();
    host.write(DATA, &[[0; 4], blocks.to_le_bytes(), [0; 4], [0; 4]].concat().repeat(256));
    let discard = Sqe::io(9).prps(DATA, 0).dword(10, 255).dword(11, 4);
    for _ in 0..16 {
        host.put(&mut sq, discard);
    }
    host.ring_sq(&sq);
    assert!(host.reap(&mut cq, 16).iter().all(|cqe| cqe.status == 0));
}

#[test]
fn blocks_outside_the_disk_and_large_transfers_are_refused() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    for (lba, blocks, status) in [
        (BLOCKS, 1, LBA_RANGE),
        (BLOCKS - 1, 1, 0),
        (BLOCKS - 1, 2, LBA_RANGE),
        (u64::MAX, 1, LBA_RANGE),
        (u64::MAX - 1, 8, LBA_RANGE),
        (1 << 55, 8, LBA_RANGE),
        (0, 2049, INVALID_FIELD),
        (0, 65536, INVALID_FIELD),
    ] {
        let sqe = Sqe::io(READ).blocks(lba, blocks).prps(DATA, DATA + 4096);
        assert_eq!(host.io((&mut sq, &mut cq), sqe), status, "{blocks} blocks from {lba:#x} on");
    }
    let zeroes = |lba, blocks| Sqe::io(8).blocks(lba, blocks);
    assert_eq!(host.io((&mut sq, &mut cq), zeroes(0, BLOCKS as u32)), 0, "nothing is transferred");
    assert_eq!(host.io((&mut sq, &mut cq), zeroes(1, BLOCKS as u32)), LBA_RANGE);
    assert_eq!(host.io((&mut sq, &mut cq), zeroes(u64::MAX, 65536)), LBA_RANGE);
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn unknown_commands_and_flags_are_refused() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    for flags in [0x40, 0x80, 0xc0, 0x01, 0x02] {
        assert_eq!(host.io((&mut sq, &mut cq), read(0, 1).flags(flags)), INVALID_FIELD, "SGL or fused");
        assert_eq!(host.admin(Sqe::new(6).prps(DATA, 0).dword(10, 1).flags(flags)), (INVALID_FIELD, 0));
    }
    for opcode in [3, 4, 5, 0x0c, 0x0d, 0x7f, 0x80, 0xff] {
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(opcode)), INVALID_OPCODE);
    }
    for opcode in [3, 7, 0x0d, 0x10, 0x11, 0x14, 0x18, 0x80, 0x84, 0xff] {
        assert_eq!(host.admin(Sqe::new(opcode)), (INVALID_OPCODE, 0));
    }
    for nsid in [0, 2, u32::MAX] {
        assert_eq!(host.io((&mut sq, &mut cq), read(0, 1).dword(1, nsid)), 0x0b | DNR);
    }
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn values_that_a_doorbell_cannot_have_are_ignored_and_reported() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let log = Sqe::new(2).prps(DATA + 0x2000, 0).dword(10, 1 | 15 << 16);
    for (index, value, event) in [
        (2, 8, BAD_VALUE),
        (2, 0x1_0000, BAD_VALUE),
        (2, 0xffff_ffff, BAD_VALUE),
        (4, 1, BAD_REGISTER),
        (5, 1, BAD_REGISTER),
        (6, 1, BAD_REGISTER),
        (3000, 1, BAD_REGISTER),
    ] {
        let cid = host.admin_submit(Sqe::new(0x0c));
        host.doorbell(index, value);
        let event_seen = host.admin_next();
        assert_eq!((event_seen.cid, event_seen.result), (cid, event), "{value:#x} in doorbell {index}");
        host.admin_ok(log);
        assert_serves(&mut host, &mut sq, &mut cq);
    }
    // The controller looks at heads only when it needs room.
    let mut cq = host.create_cq(2, 8, 2, true);
    let mut sq = host.create_sq(2, 32, 2);
    for value in [8, 0x1_0000, 0xffff_ffff] {
        let cid = host.admin_submit(Sqe::new(0x0c));
        host.doorbell(5, value);
        for _ in 0..20 {
            host.put(&mut sq, read(0, 1));
        }
        host.ring_sq(&sq);
        let event = host.admin_next();
        assert_eq!((event.cid, event.result), (cid, BAD_VALUE), "{value:#x} as head");
        host.doorbell(5, cq.head.into()); // the bad value may have replaced a good one that was not seen
        for _ in 0..20 {
            host.reap(&mut cq, 1);
        }
        host.admin_ok(log);
        assert_serves(&mut host, &mut sq, &mut cq);
    }
    // Within the queue, but nothing is posted yet when the thread looks.
    host.admin_ok(Sqe::new(0).dword(10, 2));
    host.admin_ok(Sqe::new(4).dword(10, 2));
    host.create_cq(2, 8, 2, true);
    let mut sq = host.create_sq(2, 32, 2);
    let cid = host.admin_submit(Sqe::new(0x0c));
    host.doorbell(5, 5);
    for _ in 0..20 {
        host.put(&mut sq, read(0, 1));
    }
    host.ring_sq(&sq);
    let event = host.admin_next();
    assert_eq!((event.cid, event.result), (cid, BAD_VALUE), "a head past the tail");
    host.assert_alive();
}

#[test]
fn the_admin_queue_ignores_bad_doorbells_too() {
    let mut host = Host::new("none");
    let cid = host.admin_submit(Sqe::new(0x0c));
    host.doorbell(0, 64);
    let event = host.admin_next();
    assert_eq!((event.cid, event.result), (cid, BAD_VALUE));
    host.doorbell(1, 63);
    host.assert_alive();
}

#[test]
fn accesses_of_odd_sizes_and_places_have_no_effect() {
    let mut host = Host::off(&Setup::default());
    host.doorbell(0, 1);
    host.doorbell(2, 1);
    host.enable();
    let (mut sq, mut cq) = host.pair(8);
    host.put(&mut sq, read(0, 1));
    for (offset, len) in [(0x1008, 8), (0x1009, 4), (0x100a, 2), (0x1008, 1), (0x1008, 16), (0x1006, 4), (0x3ffc, 8)] {
        host.controller.write(offset, &[1; 16][..len]);
    }
    for (offset, len) in
        [(0x14, 1), (0x15, 4), (0x16, 2), (0x14, 2), (0x13, 4), (0x0, 4), (0x8, 4), (0x1c, 4), (0x38, 8)]
    {
        host.controller.write(offset, &[0; 16][..len]);
    }
    let mut bytes = [0; 64];
    host.controller.read(0x3ff0, &mut bytes[..16]);
    host.controller.read(0x0ff8, &mut bytes);
    assert_eq!(bytes, [0; 64]);
    sleep(QUIET);
    assert_eq!(host.peek(&mut cq), None);
    host.ring_sq(&sq);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    host.assert_alive();
}

#[test]
fn shadow_doorbells_must_be_two_pages_of_writable_memory() {
    let mut host = Host::new("none");
    let page = DATA + 0x10_0000;
    for (values, events, status) in [
        (page, page, INVALID_FIELD),
        (page, ROM, INVALID_FIELD),
        (ROM, page, INVALID_FIELD),
        (UNMAPPED, page, INVALID_FIELD),
        (page, NO_FILE, INVALID_FIELD),
        (page + 8, page + 4096, PRP_OFFSET),
        (page, page + 4, PRP_OFFSET),
        (u64::MAX - 4095, page, INVALID_FIELD),
    ] {
        assert_eq!(host.admin(Sqe::new(0x7c).prps(values, events)), (status, 0), "{values:#x} {events:#x}");
    }
    // They may lie where queues do: that harms the guest alone.
    let (mut sq, _) = host.pair(64);
    host.admin_ok(Sqe::new(0x7c).prps(sq.base, sq.base + 4096));
    host.put(&mut sq, read(0, 1));
    host.ring_sq(&sq);
    sleep(QUIET);
    host.assert_alive();
    host.disable();
    host.enable();
    let (mut sq, mut cq) = host.pair(8);
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn high_bits_in_a_shadow_doorbell_are_ignored_and_reported() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let page = DATA + 0x10_0000;
    host.use_shadow(page, page + 4096);
    let cid = host.admin_submit(Sqe::new(0x0c));
    host.put(&mut sq, read(0, 1));
    host.store(page + 8, 0x1_0001);
    host.doorbell(2, 1);
    let event = host.admin_next();
    assert_eq!((event.cid, event.result), (cid, BAD_VALUE));
    assert_eq!(host.peek(&mut cq), None);
    host.store(page + 8, 1);
    host.doorbell(2, 1);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn other_shadow_doorbells_replace_the_first() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let pages = [0, 1].map(|i| DATA + 0x10_0000 + 0x2000 * i);
    for round in 0..4 {
        host.write(pages[round % 2], &[0xee; 8192]); // not cleared, as older Linux
        host.use_shadow(pages[round % 2], pages[round % 2] + 4096);
        let other = pages[(round + 1) % 2];
        host.write(other, &[0xdd; 8192]);
        for _ in 0..5 {
            assert_serves(&mut host, &mut sq, &mut cq);
        }
        assert_eq!(host.bytes(other, 8192), [0xdd; 8192], "it is not written any more");
    }
}

#[test]
fn queues_must_lie_in_memory_that_permits_it() {
    let mut host = Host::new("none");
    let create = |opcode: u8, base: u64| Sqe::new(opcode).prps(base, 0).dword(10, 1 | 255 << 16).dword(11, 1 | 1 << 16);
    host.create_cq(1, 4, 1, true);
    for (sqe, status) in [
        (create(5, 0x30_0010).dword(10, 2 | 255 << 16), PRP_OFFSET),
        (create(1, 0x30_0010), PRP_OFFSET),
        (create(1, UNMAPPED), INVALID_FIELD),
        (create(1, RAM - 4096), INVALID_FIELD),
        (create(1, NO_FILE), INVALID_FIELD),
        (create(1, u64::MAX - 4095), INVALID_FIELD),
        (create(5, ROM).dword(10, 2 | 255 << 16), INVALID_FIELD),
        (create(5, NO_FILE).dword(10, 2 | 255 << 16), INVALID_FIELD),
        (create(1, ROM), 0),
    ] {
        assert_eq!(host.admin(sqe), (status, 0), "{sqe:x?}");
    }
    // A completion queue over its own submission queue, which harms the guest alone.
    host.admin_ok(Sqe::new(5).prps(0x30_0000, 0).dword(10, 2 | 63 << 16).dword(11, 3 | 2 << 16));
    host.admin_ok(Sqe::new(1).prps(0x30_0000, 0).dword(10, 2 | 63 << 16).dword(11, 1 | 2 << 16));
    host.doorbell(4, 63);
    host.completed(1, 63);
    host.assert_alive();
}

#[test]
fn queues_with_impossible_parameters_are_refused() {
    let mut host = Host::new("none");
    let cq =
        |id: u32, size: u32, flags: u32| Sqe::new(5).prps(0x30_0000, 0).dword(10, id | size << 16).dword(11, flags);
    let sq =
        |id: u32, size: u32, flags: u32| Sqe::new(1).prps(0x40_0000, 0).dword(10, id | size << 16).dword(11, flags);
    host.create_cq(1, 4, 1, true);
    host.create_sq(1, 4, 1);
    for (sqe, status) in [
        (cq(2, 0, 1 | 1 << 16), QUEUE_SIZE),
        (cq(2, 1024, 1 | 1 << 16), QUEUE_SIZE),
        (cq(2, 0xffff, 1 | 1 << 16), QUEUE_SIZE),
        (cq(0, 3, 1 | 1 << 16), INVALID_QUEUE),
        (cq(1, 3, 1 | 1 << 16), INVALID_QUEUE),
        (cq(3, 3, 1 | 1 << 16), INVALID_QUEUE),
        (cq(0xffff, 3, 1 | 1 << 16), INVALID_QUEUE),
        (cq(2, 3, 1 | 3 << 16), INVALID_VECTOR),
        (cq(2, 3, 1 | 0xffff << 16), INVALID_VECTOR),
        (cq(2, 3, 1 << 16), INVALID_FIELD),
        (sq(2, 0, 1 | 1 << 16), QUEUE_SIZE),
        (sq(2, 1024, 1 | 1 << 16), QUEUE_SIZE),
        (sq(0, 3, 1 | 1 << 16), INVALID_QUEUE),
        (sq(1, 3, 1 | 1 << 16), INVALID_QUEUE),
        (sq(3, 3, 1 | 1 << 16), INVALID_QUEUE),
        (sq(2, 3, 1 << 16), INVALID_FIELD),
        (sq(2, 3, 1), INVALID_QUEUE),
        (sq(2, 3, 1 | 3 << 16), INVALID_QUEUE),
        (sq(2, 3, 1 | 0xffff << 16), INVALID_QUEUE),
        (sq(2, 3, 1 | 2 << 16), INVALID_CQ),
    ] {
        assert_eq!(host.admin(sqe), (status, 0), "{sqe:x?}");
    }
    host.assert_alive();
    host.disable();
    host.set32(0x14, 0x0057_0001);
    assert_eq!(host.get32(0x1c), 1, "entry sizes are judged when a queue is created");
    (host.sq.tail, host.cq.head, host.cq.phase) = (0, 0, true);
    host.zero(host.cq.base, 4096);
    assert_eq!(host.admin(cq(1, 3, 1 | 1 << 16)), (INVALID_FIELD, 0));
}

#[test]
fn a_busy_queue_is_deleted_once() {
    let mut host = Host::new(EIGHT);
    let mut cq = host.create_cq(1, 4, 1, true);
    let mut sq = host.create_sq(1, 32, 1);
    for _ in 0..31 {
        host.put(&mut sq, read(0, 2048).prps(DATA, DATA + 0x1000));
    }
    put_entries(&host, DATA + 0x1000, &[DATA + 0x2000; 512]);
    host.ring_sq(&sq);
    let cids = [0; 3].map(|_| host.admin_submit(Sqe::new(0).dword(10, 1)));
    let mut seen = [0; 3].map(|_| host.admin_next()).map(|cqe| (cqe.cid, cqe.status));
    seen.sort_unstable();
    assert_eq!(seen, [(cids[0], 0), (cids[1], INVALID_QUEUE), (cids[2], INVALID_QUEUE)]);
    let mut posted = 0;
    while host.peek(&mut cq).is_some() {
        posted += 1;
    }
    assert!(posted <= 3, "{posted}");
    assert_eq!(host.stats(0).in_flight, 0);
    host.admin_ok(Sqe::new(4).dword(10, 1));
    let (mut sq, mut cq) = host.pair(8);
    assert_serves(&mut host, &mut sq, &mut cq);
}

/// Flushes of a file are in flight for a while.
#[test]
fn a_queue_that_is_deleted_posts_what_it_had_fetched() {
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(SIZE).unwrap();
    let mut host = Host::with(&Setup { file: Some(image.path()), ..Setup::default() });
    let mut completions = 0;
    for _ in 0..50 {
        let (mut sq, mut cq) = host.pair(32);
        for _ in 0..20 {
            host.put(&mut sq, Sqe::io(FLUSH));
        }
        host.ring_sq(&sq);
        host.admin_ok(Sqe::new(0).dword(10, 1));
        let stats = host.stats(0);
        while host.peek(&mut cq).is_some() {
            completions += 1;
        }
        assert_eq!((stats.in_flight, stats.completions), (0, completions));
        host.admin_ok(Sqe::new(4).dword(10, 1));
    }
}

#[test]
fn an_entry_that_changes_while_it_is_read_is_one_or_the_other() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let stop = Arc::new(AtomicBool::new(false));
    let end = u64::from(u32::MAX);
    std::thread::scope(|scope| {
        let (is_over, base) = (stop.clone(), sq.base);
        let ram = host.share();
        scope.spawn(move || {
            let mut number = 1_u64;
            while !is_over.load(Ordering::Relaxed) {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ram.store(base + 64 * (number >> 40 & 7) + 4 * (number >> 33 & 15), number as u32);
            }
        });
        for i in 0..20_000_u64 {
            host.put(&mut sq, read(i * 97 % end, 1 + (i % 4000) as u32));
            host.ring_sq(&sq);
            host.reap(&mut cq, 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_serves(&mut host, &mut sq, &mut cq);
}

#[test]
fn an_identifier_that_is_used_twice_completes_twice() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(16);
    for _ in 0..8 {
        host.put_as(&mut sq, read(0, 1).cid(7));
    }
    host.ring_sq(&sq);
    assert!(host.reap(&mut cq, 8).iter().all(|cqe| (cqe.cid, cqe.status) == (7, 0)));
    let cids = [5, 5, 5, 5].map(|cid| {
        let mut sq = host.sq;
        host.put_as(&mut sq, Sqe::new(0x0c).cid(cid));
        host.ring_sq(&sq);
        host.sq = sq;
        cid
    });
    host.admin_submit(Sqe::new(8).dword(10, u32::from(cids[0]) << 16));
    assert_eq!([host.admin_next().status, host.admin_next().status], [7, 0], "one of them is aborted");
    host.assert_alive();
}

#[test]
fn a_controller_that_cannot_be_enabled_is_fatal_until_it_is_reset() {
    for (cc, aqa, asq, acq) in [
        (0x0046_0011, 0x003f_003f, 0x1000, 0x2000),
        (0x0046_0081, 0x003f_003f, 0x1000, 0x2000),
        (0x0046_0801, 0x003f_003f, 0x1000, 0x2000),
        (0x0046_0001, 0x003f_0000, 0x1000, 0x2000),
        (0x0046_0001, 0x0000_003f, 0x1000, 0x2000),
        (0x0046_0001, 0x003f_003f, 0x1008, 0x2000),
        (0x0046_0001, 0x003f_003f, 0x1000, 0x2010),
        (0x0046_0001, 0x003f_003f, UNMAPPED, 0x2000),
        (0x0046_0001, 0x003f_003f, 0x1000, UNMAPPED),
        (0x0046_0001, 0x003f_003f, NO_FILE, 0x2000),
        (0x0046_0001, 0x003f_003f, 0x1000, ROM),
        (0x0046_0001, 0x0fff_0fff, u64::MAX - 4095, 0x2000),
    ] {
        let mut host = Host::off(&Setup::default());
        host.controller.set_bus_master(true);
        host.set32(0x24, aqa);
        host.set64(0x28, asq);
        host.set64(0x30, acq);
        host.set32(0x14, cc);
        assert_eq!(host.get32(0x1c), 2, "{cc:#x} {aqa:#x} {asq:#x} {acq:#x}: CFS");
        host.doorbell(0, 1);
        host.doorbell(2, 1);
        assert_eq!(host.get32(0x1c), 2);
        host.disable();
        assert_eq!(host.get32(0x1c), 0);
        host.enable();
        host.assert_alive();
    }
}

#[test]
fn a_controller_that_is_switched_on_and_off_serves_in_the_end() {
    let mut host = Host::new(EIGHT);
    for _ in 0..200 {
        let (mut sq, _) = host.pair(8);
        host.put(&mut sq, read(0, 8));
        host.put(&mut sq, read(8, 8));
        host.ring_sq(&sq);
        for value in [0x0046_0000, 0x0046_0001, 0x0046_0000, 0x0046_4001, 0x0046_0000] {
            host.set32(0x14, value);
        }
        host.wait_csts(1, 0);
        host.enable();
    }
    let (mut sq, mut cq) = host.pair(8);
    assert_serves(&mut host, &mut sq, &mut cq);
}

/// With commands in flight, and completions held.
#[test]
fn after_a_reset_nothing_is_posted_or_signalled() {
    let resets: [fn(&mut Host); 3] = [
        Host::disable,
        |host| {
            host.controller.reset();
        },
        |host| {
            host.set32(0x14, 0x0046_0000);
            host.controller.reset();
        },
    ];
    for reset in resets {
        for large in [false, true] {
            let mut host = Host::new(EIGHT);
            let (mut sq, cq) = host.pair(64);
            put_entries(&host, DATA + 0x1000, &[DATA + 0x2000; 512]);
            for _ in 0..if large { 60 } else { 5 } {
                host.put(&mut sq, if large { read(0, 2048).prps(DATA, DATA + 0x1000) } else { read(0, 1) });
            }
            host.ring_sq(&sq);
            if !large {
                host.completed(0, 5);
            }
            reset(&mut host);
            assert_eq!(host.get32(0x1c), 0);
            let (interrupts, by_time) = (host.interrupts(1), host.stats(0).delivered.contains_key("time"));
            assert!(large || by_time || interrupts == 0, "what was held was delivered");
            host.write(cq.base, &[0x5c; 1024]);
            host.write(DATA, &[0x5c; 0x3000]);
            host.doorbell(2, 1);
            sleep(QUIET);
            assert_eq!(host.interrupts(1), 0);
            assert!(host.bytes(cq.base, 1024) == [0x5c; 1024] && host.bytes(DATA, 0x3000) == [0x5c; 0x3000]);
            host.enable();
            let (mut sq, mut cq) = host.pair(8);
            assert_serves(&mut host, &mut sq, &mut cq);
        }
    }
}

/// Memory, a session whose admin completion queue has `admin_entries`, and its doorbells.
fn session(admin_entries: usize) -> (DmaMemory, Arc<Session>, Arc<Doorbells>) {
    let dma = DmaMemory::new(Arc::new(Peer::new(UnixStream::pair().unwrap().0.into())), 1 << 20);
    let both = DmaMap::READ | DmaMap::WRITE;
    dma.map(&DmaMap { flags: both, offset: 0, address: 0, size: 0x4000 }, Some(memfd(0x4000).into())).unwrap();
    let doorbells = Arc::new(Doorbells::new(2));
    let entries = vec![dma.slice(0, admin_entries * 16, Access::Write).unwrap()];
    let cq = CompletionQueue::new(0, 0, true, entries, Register::new(1, doorbells.clone(), None));
    let session =
        Session::new(doorbells.clone(), Vectors::new(2, CallRings::new(0).unwrap()), cq, true, Arc::default());
    (dma, Arc::new(session), doorbells)
}

/// The thread of a vector completes a command, and has not posted it yet.
#[test]
fn an_admin_command_is_fetched_while_there_is_room_for_all_that_waits() {
    let (_, session, _) = session(3);
    for (cid, has_room) in [(1, true), (2, false)] {
        session.admin().request_event(cid).unwrap();
        assert!(session.admin().abort(cid)); // it waits to be posted
        assert_eq!(session.admin().has_room(), has_room, "{cid} of 2");
    }
}

/// The thread has looked for commands, and is about to sleep. Then one comes that has no room for its completion: the
/// thread must sleep until there is room, not until another one comes.
#[test]
fn a_command_without_room_that_comes_before_a_sleep_is_not_forgotten() {
    let (dma, session, doorbells) = session(2);
    let (disk, sleep, mut buffers) =
        (nvme_host::disk(&Setup::default()), Arc::new(Sleep::default()), Buffers::default());
    let register = |index| Register::new(index, doorbells.clone(), None);
    let mut vector = Vector::new((disk.clone(), 0), session, sleep.clone(), dma.clone(), false);
    let slices = |at, len| vec![dma.slice(at, len, Access::Write).unwrap()];
    let [sqes, cqes] = [slices(0x1000, 4 * 64), slices(0x2000, 2 * 16)];
    vector.add_cq(CompletionQueue::new(1, 1, true, cqes, register(3)));
    vector.add_sq(SubmissionQueue::new(1, 1, sqes, register(2)));
    let ring = |index, value| sleep.ring(doorbells.get(index).unwrap(), value, index == 3);
    assert!(!ring(2, 1), "it is awake");
    let request = vector.take(&disk, &mut buffers).unwrap().unwrap();
    let entry = vector.complete(request.token, Outcome::Ok);
    vector.post(entry).unwrap();
    assert!(vector.take(&disk, &mut buffers).unwrap().is_none());
    assert!(!ring(2, 2), "it is awake");
    assert!(vector.enable_kicks().unwrap(), "it must look again");
    assert!(vector.take(&disk, &mut buffers).unwrap().is_none(), "there is no room");
    assert!(!vector.enable_kicks().unwrap(), "it sleeps");
    assert!(ring(3, 1), "it is woken when there is room");
    assert!(vector.take(&disk, &mut buffers).unwrap().is_some());
}

/// The first of 256 ranges is being deallocated when the controller is disabled.
#[test]
fn a_reset_does_not_wait_for_ranges_to_discard_that_have_not_begun() {
    let Some(medium) = Medium::new_or_skip("a reset while ranges are discarded", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let calls_too = calls.clone();
    medium.plan(move |call| {
        if matches!(call, Call::Allocate { .. }) && calls_too.fetch_add(1, Ordering::Relaxed) == 0 {
            begun.send(()).unwrap();
            let _ = may_go_on.recv();
        }
        Fault::None
    });
    let (mut sq, _) = host.pair(8);
    let range = |lba: u64| [&[0; 4][..], &8_u32.to_le_bytes(), &lba.to_le_bytes()].concat();
    host.write(DATA, &(0..256).flat_map(|i| range(i * 8)).collect::<Vec<_>>());
    host.submit(&mut sq, Sqe::io(9).prps(DATA, 0).dword(10, 255).dword(11, 4));
    has_begun.recv_timeout(PATIENCE).unwrap();
    host.set32(0x14, 0x0046_0000);
    assert_eq!(host.get32(0x1c) & 1, 1, "it waits for the first");
    go_on.send(()).unwrap();
    host.wait_csts(1, 0);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Lets it go on after a while.
fn release(go_on: Sender<()>) {
    std::thread::spawn(move || {
        sleep(QUIET);
        let _ = go_on.send(());
    });
}

/// A command is in flight when bus mastering ends. Its interrupt comes before the answer to that. Then nothing reaches the host,
/// until bus mastering is on again.
#[test]
fn without_bus_mastering_nothing_is_posted_or_signalled() {
    let Some(medium) = Medium::new_or_skip("bus mastering ends", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { policy: EIGHT, file: Some(&medium.path()), ..Setup::default() });
    let (mut sq, mut cq) = host.pair(64);
    let event = host.admin_submit(Sqe::new(0x0c));
    host.interrupts(0);
    let (has_begun, go_on) = medium.stall_first_zeroing();
    host.submit(&mut sq, Sqe::io(8).blocks(0, 8));
    has_begun.recv_timeout(PATIENCE).unwrap();
    release(go_on);
    host.controller.set_bus_master(false);
    assert_eq!((host.peek(&mut cq).map(|cqe| cqe.status), host.interrupts(1)), (Some(0), 1));
    host.doorbell(4, 1); // of no queue
    host.submit(&mut sq, read(0, 8));
    sleep(QUIET);
    assert_eq!((host.admin_peek(), host.peek(&mut cq), host.interrupts(0), host.interrupts(1)), (None, None, 0, 0));
    host.controller.set_bus_master(true);
    assert_eq!((host.admin_next().cid, host.interrupt(0)), (event, 1));
    assert_eq!(host.next(&mut cq).status, 0);
}

/// The controller is disabled, and bus mastering ends while a command is still in flight.
#[test]
fn bus_mastering_ends_after_what_a_reset_left_in_flight() {
    let Some(medium) = Medium::new_or_skip("bus mastering ends after a reset", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
    let (mut sq, _) = host.pair(64);
    let (has_begun, go_on) = medium.stall_first_zeroing();
    host.submit(&mut sq, Sqe::io(8).blocks(0, 8));
    has_begun.recv_timeout(PATIENCE).unwrap();
    host.set32(0x14, 0x0046_0000);
    assert_eq!(host.get32(0x1c) & 1, 1);
    release(go_on);
    host.controller.set_bus_master(false);
    assert_eq!(host.get32(0x1c) & 1, 0, "nothing is in flight");
}

/// A vector that waits for its eventfd does not interrupt for what was before the controller was disabled.
#[test]
fn a_reset_of_the_controller_clears_pending_interrupts() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    host.vectors.deassign(0..3);
    assert_eq!(host.io((&mut sq, &mut cq), read(0, 1)), 0);
    let is_pending = |host: &Host| [0, 1, 2].map(|vector| host.vectors.is_pending(vector));
    let start = Instant::now();
    while is_pending(&host) != [false, true, false] {
        assert!(start.elapsed() < PATIENCE);
    }
    host.disable();
    assert_eq!(is_pending(&host), [false; 3]);
    assert_serves_after_reset(&mut host);
}

fn assert_serves_after_reset(host: &mut Host) {
    host.enable();
    let (mut sq, mut cq) = host.pair(8);
    assert_serves(host, &mut sq, &mut cq);
}

/// Statistics are read and policies changed while a queue waits for its medium, as it does when the controller is reset.
#[test]
fn a_queue_that_drains_answers_questions() {
    let Some(medium) = Medium::new_or_skip("questions while a queue drains", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
    let (mut sq, _) = host.pair(64);
    let (has_begun, go_on) = medium.stall_first_zeroing();
    host.submit(&mut sq, Sqe::io(8).blocks(0, 8));
    has_begun.recv_timeout(PATIENCE).unwrap();
    host.set32(0x14, 0x0046_0000);
    let answer = host.queues[0].ask_later(Control::GetStats);
    assert_eq!(answer.recv_timeout(PATIENCE).unwrap().in_flight, 1);
    let set = |answer| Control::SetPolicy("dim".parse().unwrap(), false, answer);
    host.queues[0].ask_later(set).recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(host.queues[0].ask_later(Control::GetStats).recv_timeout(PATIENCE).unwrap().policy, "dim");
    assert_eq!(host.get32(0x1c) & 1, 1, "it still waits");
    go_on.send(()).unwrap();
    host.wait_csts(1, 0);
    assert_serves_after_reset(&mut host);
}

/// Meanwhile another queue serves, and questions are answered. The host may be too slow to see it: one run is enough.
#[test]
fn a_flood_of_discards_keeps_only_its_own_queue_busy() {
    assert!((0..50).any(|_| is_served_during_a_flood_of_discards()));
}

/// 511 commands each discard all of a large disk.
fn is_served_during_a_flood_of_discards() -> bool {
    const LARGE: u64 = 64 << 30;
    let mut host = Host::with(&Setup { size: LARGE, ..Setup::default() });
    let (mut sq, mut cq) = host.pair(512);
    let mut other_cq = host.create_cq(2, 8, 2, true);
    let mut other_sq = host.create_sq(2, 8, 2);
    let blocks = (LARGE / 512 / 32) as u32;
    let range = |i: u64| [&[0; 4][..], &blocks.to_le_bytes(), &(i * u64::from(blocks)).to_le_bytes()].concat();
    host.write(DATA, &(0..32).flat_map(range).collect::<Vec<_>>());
    for _ in 0..511 {
        host.put(&mut sq, Sqe::io(9).prps(DATA, 0).dword(10, 31).dword(11, 4));
    }
    host.ring_sq(&sq);
    let mut seen = Vec::new();
    while seen.last() != Some(&511) {
        assert_eq!(host.io((&mut other_sq, &mut other_cq), read(0, 1)), 0);
        seen.push(host.stats(0).completions);
    }
    assert_eq!(host.reap(&mut cq, 511).iter().filter(|cqe| cqe.status == 0).count(), 511);
    seen.iter().any(|completions| *completions < 511)
}

#[test]
fn a_reset_drops_shadow_doorbells() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let page = DATA + 0x10_0000;
    host.use_shadow(page, page + 4096);
    assert_serves(&mut host, &mut sq, &mut cq);
    host.disable();
    host.write(page, &[0x5c; 8192]);
    host.enable();
    let (mut sq, mut cq) = host.pair(8);
    for _ in 0..20 {
        assert_serves(&mut host, &mut sq, &mut cq);
    }
    assert!(host.bytes(page, 8192) == [0x5c; 8192]);
}

#[test]
fn a_completion_queue_that_is_never_reaped_stops_only_itself() {
    let mut host = Host::new("auto");
    let mut cq = host.create_cq(1, 8, 1, true);
    let mut sq = host.create_sq(1, 64, 1);
    let mut other_cq = host.create_cq(2, 8, 1, true);
    let mut other_sq = host.create_sq(2, 8, 2);
    for _ in 0..60 {
        host.submit(&mut sq, read(0, 1));
    }
    for i in 0..100 {
        assert_eq!(host.io((&mut other_sq, &mut other_cq), read(i, 1)), 0, "the same vector");
    }
    assert_eq!((0..7).filter_map(|_| host.peek(&mut cq)).count(), 7);
    assert_eq!(host.load(cq.base + 16 * 7), 0, "the last entry stays free");
    assert_eq!(host.stats(0).in_flight, 0);
    host.admin_ok(Sqe::new(0).dword(10, 1));
    host.admin_ok(Sqe::new(4).dword(10, 1));
    host.assert_alive();
}

#[derive(Clone, Debug)]
enum Step {
    Register(u64, u32),
    Doorbell(u64, u32),
    Store(u64, u32),
    Admin(Sqe),
    Io(Sqe),
    BusMaster(bool),
    Unmap,
    Map(bool),
    MemoryChanged,
    Enable,
    Reset,
    Wait,
}

/// Addresses in [`PAGES`].
fn addresses() -> impl Strategy<Value = u64> {
    let offset = prop_oneof![6 => Just(0), 1 => 0..4096_u64, 1 => Just(4088)];
    (prop::sample::select(&PAGES[..]), offset).prop_map(|(page, offset)| page + offset)
}

fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![0..8_u32, (0..8_u32, 0..8_u32).prop_map(|(low, high)| low | high << 16), any::<u32>(), Just(u32::MAX)]
}

fn commands(opcodes: &'static [u8]) -> impl Strategy<Value = Sqe> {
    let opcode = prop_oneof![9 => prop::sample::select(opcodes), 1 => any::<u8>()];
    let nsid = prop_oneof![6 => Just(1), 1 => Just(0), 1 => Just(u32::MAX), 1 => any::<u32>()];
    (opcode, nsid, addresses(), addresses(), [numbers(), numbers(), numbers(), numbers()]).prop_map(
        |(opcode, nsid, first, second, dwords)| {
            let sqe = Sqe::new(opcode).dword(1, nsid).prps(first, second);
            dwords.into_iter().enumerate().fold(sqe, |sqe, (i, value)| sqe.dword(10 + i, value))
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..0x40_u64, numbers()).prop_map(|(at, value)| Step::Register(at, value)),
        1 => (0..8_u32).prop_map(|bits| Step::Register(0x14, 0x0046_0000 | bits & 1 | (bits >> 1) << 14)),
        4 => (0..8_u64, numbers()).prop_map(|(index, value)| Step::Doorbell(index, value)),
        4 => (addresses(), numbers()).prop_map(|(address, value)| Step::Store(address & !3, value)),
        8 => commands(&[0, 1, 1, 2, 4, 5, 5, 6, 8, 9, 10, 12, 0x7c]).prop_map(Step::Admin),
        8 => commands(&[0, 1, 2, 2, 8, 9]).prop_map(Step::Io),
        1 => any::<bool>().prop_map(Step::BusMaster),
        1 => Just(Step::Unmap),
        2 => any::<bool>().prop_map(Step::Map),
        1 => Just(Step::MemoryChanged),
        2 => Just(Step::Enable),
        1 => Just(Step::Reset),
        1 => Just(Step::Wait),
    ]
}

const POLICIES: [&str; 4] = ["none", EIGHT, "cint:ooo=on,barrier=strict,in_flight=off", "auto"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn whatever_a_guest_does_the_controller_serves_after_a_reset(
        policy in prop::sample::select(&POLICIES[..]),
        steps in prop::collection::vec(steps(), 0..120),
    ) {
        let mut host = Host::new(policy);
        let (mut sq, _) = host.pair(16);
        for step in steps {
            match step {
                Step::Register(at, value) => host.set32(at, value),
                Step::Doorbell(index, value) => host.doorbell(index, value),
                Step::Store(address, value) if address <= RAM - 4 => host.store(address, value),
                Step::Store(..) => {}
                Step::Admin(sqe) => {
                    host.admin_submit(sqe);
                }
                Step::Io(sqe) => {
                    host.put(&mut sq, sqe);
                    host.ring_sq(&sq);
                }
                Step::BusMaster(on) => {
                    host.controller.set_bus_master(on);
                }
                Step::Unmap => host.unmap_all(),
                Step::Map(in_pieces) => map_ram(&mut host, in_pieces),
                Step::MemoryChanged => host.controller.memory_changed(),
                Step::Enable => host.set32(0x14, 0x0046_0001),
                Step::Reset => {
                    host.controller.reset();
                }
                Step::Wait => std::thread::yield_now(),
            }
        }
        host.controller.reset();
        map_ram(&mut host, false);
        host.enable();
        let (mut sq, mut cq) = host.pair(8);
        assert_serves(&mut host, &mut sq, &mut cq);
    }
}

/// Maps the RAM, unless it is.
fn map_ram(host: &mut Host, in_pieces: bool) {
    if host.dma.slice(0, 1, Access::Read).is_none() {
        host.map_pieces(0, if in_pieces { &[0x1000, 0x2000, 0x11_0000, 0x21_1000, DATA, RAM] } else { &[RAM] });
    }
}
