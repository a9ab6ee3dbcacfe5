//! What the conformance tests of NVM Express check of queues, resets, features and logs, where no other test does: each
//! is named after theirs (tnvme).

mod nvme_host;

use nvme_host::{Cq, DATA, DNR, Host, READ, Setup, Sq, Sqe};
use std::collections::BTreeSet;

const QUEUES: u16 = 16;
const ENTRIES_MAX: u16 = 1024;
const INVALID_QUEUE: u16 = 0x101 | DNR;

fn read(lba: u64) -> Sqe {
    Sqe::io(READ).blocks(lba, 1).prps(DATA, 0)
}

fn host_with_all_queues(policy: &str) -> Host {
    Host::with(&Setup { policy, queues: QUEUES.into(), ..Setup::default() })
}

/// Submits `count` commands to a queue, with one ring. Their identifiers.
fn submit(host: &mut Host, sq: &mut Sq, count: u16) -> BTreeSet<u16> {
    let cids = (0..count).map(|i| host.put(sq, read(i.into()))).collect();
    host.ring_sq(sq);
    cids
}

/// Reaps `count` completions, which are of these commands, and succeeded.
fn reap(host: &mut Host, cq: &mut Cq, cids: &mut BTreeSet<u16>, count: usize) {
    for cqe in host.reap(cq, count) {
        assert!(cqe.status == 0 && cids.remove(&cqe.cid), "{cqe:x?}");
    }
}

/// All queues of the controller, of which each completion queue has the same vector.
#[test]
fn max_ioq_msix_many_to_1() {
    const VECTOR: usize = 5;
    let mut host = host_with_all_queues("none");
    let mut pairs: Vec<_> = (1..=QUEUES)
        .map(|id| {
            let cq = host.create_cq(id, 16, VECTOR as u16, true);
            (host.create_sq(id, 16, id), cq)
        })
        .collect();
    for (sq, cq) in &mut pairs {
        let mut cids = submit(&mut host, sq, 3);
        reap(&mut host, cq, &mut cids, 3);
    }
    let stats = host.completed(VECTOR - 1, 3 * u64::from(QUEUES));
    assert_eq!((stats.interrupts, host.interrupt(VECTOR)), (3 * u64::from(QUEUES), 3 * u64::from(QUEUES)));
    assert!((1..=usize::from(QUEUES)).all(|vector| vector == VECTOR || host.interrupts(vector) == 0));
}

/// Identifiers in no order, and submission queues whose identifiers are not those of their completion queues.
#[test]
fn q_id_variations() {
    let mut host = host_with_all_queues("none");
    let mut cqs: Vec<_> = (1..=QUEUES).rev().map(|id| host.create_cq(id, 8, id, true)).collect();
    let mut sqs: Vec<_> = (1..=QUEUES).map(|id| host.create_sq(id, 8, QUEUES + 1 - id)).collect();
    for (sq, cq) in sqs.iter_mut().zip(&mut cqs) {
        assert_eq!((sq.id, cq.id), (sq.id, QUEUES + 1 - sq.id));
        let cid = host.submit(sq, read(0));
        let cqe = host.reap(cq, 1)[0];
        assert_eq!((cqe.sq, cqe.cid, cqe.sq_head, cqe.status), (sq.id, cid, 1, 0));
        assert_eq!(host.interrupt(cq.id.into()), 1);
    }
}

/// Queues of every pairing of the smallest, an odd and the largest size: full, and rolling over several times.
#[test]
fn ioq_full_ioq_roll_and_sqcq_size_mismatch() {
    for (sq_size, cq_size) in [2, 7, ENTRIES_MAX].into_iter().flat_map(|sq| [2, 7, ENTRIES_MAX].map(|cq| (sq, cq))) {
        let mut host = Host::new("none");
        let mut cq = host.create_cq(1, cq_size, 1, true);
        let mut sq = host.create_sq(1, sq_size, 1);
        let rounds = 2 * sq_size.max(cq_size) / (sq_size - 1) + 2;
        for _ in 0..rounds {
            let mut cids = submit(&mut host, &mut sq, sq_size - 1);
            while !cids.is_empty() {
                let count = cids.len().min(usize::from(cq_size) - 1);
                reap(&mut host, &mut cq, &mut cids, count);
            }
        }
        let commands = u64::from(rounds) * u64::from(sq_size - 1);
        assert_eq!(host.completed(0, commands).interrupts, commands, "{sq_size} and {cq_size} entries");
    }
}

/// A host that reaps only some completions is not interrupted again for the others, and finds them.
#[test]
fn partial_reap_msix() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(16);
    for round in 0..10 {
        let mut cids = submit(&mut host, &mut sq, 8);
        host.completed(0, 8 * (round + 1));
        assert_eq!(host.interrupts(1), 8);
        reap(&mut host, &mut cq, &mut cids, 3);
        assert_eq!(host.interrupts(1), 0);
        reap(&mut host, &mut cq, &mut cids, 5);
        assert_eq!(host.interrupts(1), 0);
    }
}

/// A completion queue that is full, and a submission queue with commands that wait for room there.
#[test]
fn delete_full_q() {
    let mut host = Host::new("none");
    let mut cq = host.create_cq(1, 4, 1, true);
    let mut sq = host.create_sq(1, 16, 1);
    submit(&mut host, &mut sq, 15);
    host.completed(0, 3);
    host.admin_ok(Sqe::new(0).dword(10, 1));
    host.admin_ok(Sqe::new(4).dword(10, 1));
    assert_eq!((0..4).filter(|_| host.peek(&mut cq).is_some()).count(), 3, "what was fetched, and no more");
    let (mut sq, mut cq) = host.pair(8);
    assert_eq!(host.io((&mut sq, &mut cq), read(0)), 0);
}

#[test]
fn illegal_delete_qs() {
    let mut host = Host::new("none");
    host.pair(8);
    for opcode in [0, 4] {
        for id in [0, 2, 3, u32::from(u16::MAX)] {
            assert_eq!(host.admin(Sqe::new(opcode).dword(10, id)), (INVALID_QUEUE, 0), "opcode {opcode}, queue {id}");
        }
    }
    host.admin_ok(Sqe::new(0).dword(10, 1));
    assert_eq!(host.admin(Sqe::new(0).dword(10, 1)), (INVALID_QUEUE, 0));
    host.admin_ok(Sqe::new(4).dword(10, 1));
    assert_eq!(host.admin(Sqe::new(4).dword(10, 1)), (INVALID_QUEUE, 0));
}

/// A reset deletes I/O queues: their doorbells are those of no queue, and they can be created again.
#[test]
fn ctrlr_reset_ioq_deleted() {
    let mut host = Host::new("none");
    host.pair(8);
    host.disable();
    host.enable();
    let event = host.admin_submit(Sqe::new(0x0c));
    host.doorbell(2, 1);
    let cqe = host.admin_next();
    assert_eq!((cqe.cid, cqe.result), (event, 0x0001_0000), "invalid doorbell register");
    assert_eq!(host.admin(Sqe::new(0).dword(10, 1)), (INVALID_QUEUE, 0));
    let (mut sq, mut cq) = host.pair(8);
    assert_eq!(host.io((&mut sq, &mut cq), read(0)), 0);
}

/// Every feature has its default after a reset, whatever it was before. The admin queue's registers survive.
#[test]
fn ctrlr_reset_defaults() {
    let mut host = Host::new("none");
    let features = [(1, 0), (2, 0), (4, 0), (4, 1 << 20), (6, 0), (8, 0), (9, 1), (9, 2), (0x0a, 0), (0x0b, 0)];
    let all = |host: &mut Host| features.map(|(id, selector)| host.get_feature(id, selector));
    let recovery = |host: &mut Host| host.admin(Sqe::new(10).dword(1, 1).dword(10, 5));
    let registers = |host: &mut Host| [0x24, 0x28, 0x2c, 0x30, 0x34].map(|at| host.get32(at));
    let (defaults, default_recovery, before) = (all(&mut host), recovery(&mut host), registers(&mut host));
    let changed =
        [(1, 7), (2, 1 << 5), (4, 1), (4, 1 << 20 | 9), (6, 0), (8, 0x0101), (9, 1 << 16 | 1), (9, 1 << 16 | 2)];
    for (id, value) in changed.into_iter().chain([(0x0a, 1), (0x0b, 0xff)]) {
        assert_eq!(host.set_feature(id, value).0, 0, "{id:#x}");
    }
    assert_eq!(host.admin(Sqe::new(9).dword(1, 1).dword(10, 5).dword(11, 1)).0, 0);
    assert!(all(&mut host).iter().zip(&defaults).all(|(now, default)| now != default));
    assert_ne!(recovery(&mut host), default_recovery);
    host.disable();
    assert_eq!(registers(&mut host), before);
    host.enable();
    assert_eq!((all(&mut host), recovery(&mut host)), (defaults, default_recovery));
}

/// Each bit of the features that are only read back, or that act where a policy lets them.
#[test]
fn fid_irq_coalescing_fid_async_event_cfg() {
    let mut host = Host::new("nvme:host=on");
    for (id, bits) in [(8, 16), (0x0b, 9)] {
        for value in (0..bits).map(|bit| 1 << bit).chain([0, (1 << bits) - 1]) {
            assert_eq!(host.set_feature(id, value), (0, 0));
            assert_eq!(host.get_feature(id, 0), (0, value), "{id:#x}");
        }
    }
}

/// As many dwords of a log page are written as were asked for.
#[test]
fn num_d_is_adhered() {
    let mut host = Host::new("none");
    for (page, dwords) in [(1, 1), (1, 16), (2, 1), (2, 127), (2, 128), (3, 2), (5, 1023), (5, 1024)] {
        host.write(DATA, &[0x5c; 8192]);
        host.admin_ok(Sqe::new(2).prps(DATA, DATA + 4096).dword(10, page | (dwords - 1) << 16));
        let bytes = host.bytes(DATA, 8192);
        let len = 4 * dwords as usize;
        assert!(bytes[len..].iter().all(|byte| *byte == 0x5c), "page {page}, {dwords} dwords");
        assert_ne!(bytes[len - 4..len], [0x5c; 4], "page {page}, {dwords} dwords");
    }
}

#[test]
fn invalid_log_page_and_illegal_admin_cmds() {
    let mut host = Host::new("none");
    for page in (0..=0xff).filter(|page| !(1..=5).contains(page)) {
        assert_eq!(host.admin(Sqe::new(2).prps(DATA, 0).dword(10, page)), (0x109 | DNR, 0), "{page:#x}");
    }
    let known = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x7c];
    for opcode in (0..=0xff).filter(|opcode| !known.contains(opcode)) {
        assert_eq!(host.admin(Sqe::new(opcode)), (0x01 | DNR, 0), "{opcode:#x}");
    }
}
