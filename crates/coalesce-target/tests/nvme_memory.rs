//! Guest memory that goes away and returns while an NVMe controller uses it: QEMU unmaps RAM and maps it again in pieces when
//! firmware protects a part of it, and a virtual IOMMU maps page by page. Queues, shadow doorbells and commands go on. Only
//! what is used while it is away is fatal, and the log says what it was.

mod medium;
mod nvme_host;

use coalesce_target::vfio_user::wire::DmaMap;
use medium::Medium;
use nvme_host::{Cq, DATA, DNR, Host, PATIENCE, QUIET, RAM, READ, SIZE, Setup, Sq, Sqe};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::subscriber::with_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

const DATA_TRANSFER: u16 = 0x04 | DNR;
const BOTH: u32 = DmaMap::READ | DmaMap::WRITE;

/// Where the tests' queues are: admin, I/O, and the shadow doorbells.
const ADMIN_SQ: u64 = 0x1000;
const ADMIN_CQ: u64 = 0x2000;
const CQ_1: u64 = 0x11_0000;
const SQ_1: u64 = 0x21_0000;
const SHADOW: u64 = 0x40_0000;
/// Page by page around these: each queue lies in regions of its own.
const ENDS: [u64; 14] = [
    ADMIN_SQ,
    ADMIN_SQ + 4096,
    ADMIN_CQ + 4096,
    CQ_1,
    CQ_1 + 4096,
    CQ_1 + 8192,
    SQ_1,
    SQ_1 + 4096,
    SQ_1 + 8192,
    SHADOW,
    SHADOW + 4096,
    SHADOW + 8192,
    DATA,
    RAM,
];

/// A host whose memory is mapped in pieces.
fn in_pieces(policy: &str) -> Host {
    let mut host = Host::new(policy);
    host.unmap_all();
    host.map_pieces(0, &ENDS);
    host
}

fn read(lba: u64) -> Sqe {
    Sqe::io(READ).blocks(lba, 8).prps(DATA, 0)
}

fn assert_serves(host: &mut Host, sq: &mut Sq, cq: &mut Cq, count: u64) {
    for lba in 0..count {
        assert_eq!(host.io((sq, cq), read(lba)), 0);
    }
    host.assert_alive();
}

type Return = fn(&mut Host);

/// Each way in which RAM can return.
fn returns() -> [(&'static str, Return); 4] {
    [
        ("whole", |host| host.map(0..RAM, BOTH)),
        ("in pieces", |host| host.map_pieces(0, &ENDS)),
        ("in pieces, the last one first", |host| {
            let starts = [&[0], &ENDS[..ENDS.len() - 1]].concat();
            for (start, end) in starts.into_iter().zip(ENDS).rev() {
                host.map(start..end, BOTH);
            }
        }),
        ("partly read-only", |host| {
            host.map(0..ADMIN_SQ, DmaMap::READ);
            host.map_pieces(ADMIN_SQ, &ENDS[1..6]);
            host.map(CQ_1 + 8192..SQ_1, DmaMap::READ);
            host.map(SQ_1..SQ_1 + 4096, DmaMap::READ); // the controller only reads it
            host.map_pieces(SQ_1 + 4096, &ENDS[8..]);
        }),
    ]
}

#[test]
fn queues_go_on_when_their_memory_returns() {
    for policy in ["none", "auto"] {
        for has_shadow in [false, true] {
            for (how, map) in returns() {
                let mut host = Host::new(policy);
                let (mut sq, mut cq) = host.pair(64);
                if has_shadow {
                    host.use_shadow(SHADOW, SHADOW + 4096);
                }
                for round in 0..3 {
                    println!("{policy}, shadow {has_shadow}, {how}, round {round}");
                    assert_serves(&mut host, &mut sq, &mut cq, 100);
                    host.unmap_all();
                    assert_eq!(host.get32(0x1c), 1, "not fatal");
                    map(&mut host);
                    host.controller.memory_changed();
                    assert_serves(&mut host, &mut sq, &mut cq, 100);
                }
            }
        }
    }
}

/// One piece after the other is away for a while, and all others stay.
#[test]
fn a_part_that_is_away_does_not_disturb_the_others() {
    let mut host = in_pieces("none");
    let (mut sq, mut cq) = host.pair(64);
    host.use_shadow(SHADOW, SHADOW + 4096);
    let starts = [&[0], &ENDS[..ENDS.len() - 1]].concat();
    for (start, end) in starts.into_iter().zip(ENDS) {
        assert_serves(&mut host, &mut sq, &mut cq, 20);
        host.unmap(start..end);
        host.controller.memory_changed();
        host.map(start..end, BOTH);
        assert_serves(&mut host, &mut sq, &mut cq, 20);
    }
}

/// The host fills its queue and stores its new tail while memory is away, and sends no message.
#[test]
fn a_shadow_doorbell_that_returns_is_looked_at() {
    for (what, range) in [("doorbells", SHADOW..SHADOW + 4096), ("queue", SQ_1..SQ_1 + 4096), ("all", 0..RAM)] {
        for is_shadow_used in [false, true] {
            let mut host = Host::new("none");
            host.unmap_all();
            if range.end == RAM {
                host.map(0..RAM, BOTH)
            } else {
                host.map_pieces(0, &ENDS)
            }
            let (mut sq, mut cq) = host.pair(64);
            host.use_shadow(SHADOW, SHADOW + 4096);
            if is_shadow_used {
                assert_serves(&mut host, &mut sq, &mut cq, 5);
            }
            host.unmap(range.clone());
            host.put(&mut sq, read(0));
            host.store(SHADOW + 8, sq.tail.into());
            sleep(QUIET);
            assert_eq!(host.peek(&mut cq), None, "{what}");
            host.map(range.clone(), BOTH);
            assert_eq!(host.reap(&mut cq, 1)[0].status, 0, "{what}");
            assert_serves(&mut host, &mut sq, &mut cq, 100);
        }
    }
}

/// Completions are posted and held. Their interrupt comes when it is due, and what is posted is still there.
#[test]
fn what_is_held_is_delivered_after_the_memory_was_away() {
    let mut host = Host::new("nvme:thr=7,time=25500us"); // 8 completions
    let (mut sq, mut cq) = host.pair(64);
    for round in 0..20 {
        for _ in 0..4 {
            host.submit(&mut sq, read(round));
        }
        let before = host.completed(0, 4 + 8 * round);
        host.unmap_all();
        host.map_pieces(0, &ENDS);
        host.stats(0); // its answer comes after the memory: what completes before that has an interrupt of its own
        for _ in 0..4 {
            host.submit(&mut sq, read(round));
        }
        let interrupts = host.interrupt(1);
        let by_time = host.stats(0).delivered.get("time") != before.delivered.get("time");
        assert!(interrupts == 1 || by_time, "{interrupts} interrupts");
        assert!(host.reap(&mut cq, 8).iter().all(|cqe| cqe.status == 0));
        host.completed(0, 8 + 8 * round);
        sleep(QUIET / 2);
        host.interrupts(1);
    }
}

/// A command completes while the memory of its completion queue is away. It is posted when that returns, and interrupts.
#[test]
fn what_completes_while_its_queue_is_away_waits_for_it() {
    for policy in ["none", "auto", "cint:ooo=on,barrier=strict,in_flight=off"] {
        for has_shadow in [false, true] {
            let Some(medium) = Medium::new_or_skip("memory that is away", SIZE as usize) else { return };
            let mut host = Host::with(&Setup { policy, file: Some(&medium.path()), ..Setup::default() });
            let (mut sq, mut cq) = host.pair(8);
            if has_shadow {
                host.use_shadow(SHADOW, SHADOW + 4096);
            }
            host.interrupts(1);
            let (has_begun, go_on) = medium.stall_first_zeroing();
            let cid = host.submit(&mut sq, Sqe::io(8).blocks(0, 8));
            has_begun.recv_timeout(PATIENCE).unwrap();
            host.unmap_all();
            host.controller.memory_changed();
            go_on.send(()).unwrap();
            host.completed(0, 1);
            sleep(QUIET);
            assert_eq!((host.peek(&mut cq), host.interrupts(1)), (None, 0));
            host.map_pieces(0, &ENDS);
            assert_eq!((host.interrupt(1), host.reap(&mut cq, 1)[0].cid), (1, cid));
            assert_eq!(host.stats(0).interrupts, 1);
            assert_serves(&mut host, &mut sq, &mut cq, 20);
        }
    }
}

/// Between unmap and map a command is fetched whose data is away: it is not at fault.
#[test]
fn a_command_waits_for_data_that_is_away_until_the_change_is_over() {
    for has_shadow in [false, true] {
        let mut host = Host::new("none");
        host.unmap_all();
        host.map_pieces(0, &[DATA, RAM]);
        let (mut sq, mut cq) = host.pair(8);
        if has_shadow {
            host.use_shadow(SHADOW, SHADOW + 4096);
        }
        for round in 0..30 {
            host.unmap(DATA..RAM);
            for _ in 0..3 {
                host.submit(&mut sq, read(round));
            }
            if round < 3 {
                sleep(QUIET);
                assert_eq!(host.peek(&mut cq), None);
            }
            if round % 2 == 0 {
                host.map(DATA..RAM, DmaMap::READ);
                host.unmap(DATA..RAM);
            }
            host.map(DATA..RAM, BOTH);
            assert_eq!(host.reap(&mut cq, 3).iter().map(|cqe| cqe.status).collect::<Vec<_>>(), [0; 3]);
        }
        host.controller.memory_changed();
        host.unmap(DATA..RAM);
        host.submit(&mut sq, read(0));
        sleep(QUIET);
        host.controller.memory_changed();
        assert_eq!(host.reap(&mut cq, 1)[0].status, DATA_TRANSFER, "it does not return");
        assert_eq!(host.io((&mut sq, &mut cq), read(0)), DATA_TRANSFER, "nor is it waited for again");
        host.map(DATA..RAM, BOTH);
        assert_serves(&mut host, &mut sq, &mut cq, 20);
    }
}

/// An event is reported while the admin completion queue is away.
#[test]
fn an_admin_completion_waits_for_its_queue() {
    let mut host = Host::new("none");
    let event = host.admin_submit(Sqe::new(0x0c));
    host.interrupts(0);
    host.unmap_all();
    host.doorbell(10, 1); // of no queue
    sleep(QUIET);
    assert_eq!((host.admin_peek(), host.interrupts(0)), (None, 0));
    host.map_pieces(0, &ENDS);
    assert_eq!((host.admin_next().cid, host.interrupt(0)), (event, 1));
    host.assert_alive();
}

/// Each page of a queue is a region of its own, and their order in the file is another one: a virtual IOMMU maps so.
#[test]
fn a_queue_may_lie_in_many_regions() {
    let mut host = Host::new("none");
    host.unmap_all();
    let pages = |start: u64, count: u64| (0..count).map(move |i| start + 4096 * i);
    let (sqs, cqs) = (pages(SQ_1, 16), pages(CQ_1, 4));
    let all: Vec<_> = sqs.chain(cqs).chain(pages(SHADOW, 2)).collect();
    for (page, place) in all.iter().zip(all.iter().rev()) {
        host.moved.insert(page / 4096, *place);
    }
    for page in &all {
        host.map(*page..page + 4096, BOTH);
    }
    host.map_pieces(0, &[CQ_1]);
    host.map(DATA..RAM, BOTH);
    host.controller.memory_changed();
    let (mut sq, mut cq) = host.pair(1024);
    host.use_shadow(SHADOW, SHADOW + 4096);
    for round in 0..3 {
        for lba in 0..500 {
            let sqes = [read(lba), read(lba + 1), Sqe::io(READ).blocks(lba, 8).prps(RAM, 0)];
            let cids = sqes.map(|sqe| host.put(&mut sq, sqe));
            host.ring_sq(&sq);
            let cqes = host.reap(&mut cq, 3);
            let expected = [0, 0, DATA_TRANSFER];
            assert_eq!(cqes.iter().map(|cqe| cqe.status).collect::<Vec<_>>(), expected, "round {round}, {lba}");
            assert!(cids.iter().all(|cid| cqes.iter().any(|cqe| cqe.cid == *cid)));
        }
        let page = all[7 * round];
        host.unmap(page..page + 4096);
        host.map(page..page + 4096, BOTH);
        host.controller.memory_changed();
    }
}

/// What the log says.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            writeln!(self.0.lock().unwrap(), "{value:?}").unwrap();
        }
    }
}

impl Log {
    /// The lines since this was asked last.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap()).lines().map(str::to_owned).collect()
    }
}

/// Runs a test on the thread that logs.
fn with_log(test: impl FnOnce(&Log)) {
    let log = Log::default();
    with_default(tracing_subscriber::registry().with(log.clone()), || test(&log));
}

#[test]
fn only_what_is_used_while_it_is_away_is_fatal_and_the_log_says_what() {
    with_log(|log| {
        for (start, id, what) in [
            (ADMIN_SQ, 0, "the admin submission queue at 0x1000..0x2000"),
            (ADMIN_CQ, 0, "the admin completion queue at 0x2000..0x2400"),
            (SQ_1, 1, "submission queue 1 at 0x210000..0x210200"),
            (CQ_1, 1, "completion queue 1 at 0x110000..0x110080"),
            (SHADOW, 1, "the shadow doorbells at 0x400000..0x401000"),
            (SHADOW + 4096, 1, "the shadow doorbells at 0x401000..0x402000"),
        ] {
            let mut host = in_pieces("none");
            let (mut sq, mut cq) = host.pair(8);
            host.use_shadow(SHADOW, SHADOW + 4096);
            assert_serves(&mut host, &mut sq, &mut cq, 10);
            assert_eq!(log.take(), [""; 0], "nothing while it returns in time");
            host.unmap(start..start + 4096);
            assert_eq!(log.take(), [""; 0]);
            host.controller.memory_changed();
            host.controller.memory_changed();
            let waits = format!("guest memory was unmapped while in use, and is waited for: {what}");
            assert_eq!(log.take(), [waits.as_str()], "once");
            host.map(start..start + 4096, BOTH);
            assert_eq!(log.take(), [format!("guest memory is mapped again, and goes on in use: {what}")]);
            assert_serves(&mut host, &mut sq, &mut cq, 10);
            host.unmap(start..start + 4096);
            sleep(QUIET / 10);
            assert_eq!(host.get32(0x1c), 1, "{what} is away, and not used");
            host.doorbell(3, cq.head.into());
            assert_eq!(host.get32(0x1c), 1, "a head needs no memory");
            host.doorbell(2 * id, 1);
            let fatal = format!(
                "fatal controller status (CSTS.CFS) until the host resets the controller: the doorbell of submission \
                 queue {id} was rung, but {what} has no memory"
            );
            assert_eq!(log.take(), [fatal]);
            host.wait_csts(3, 2);
            host.doorbell(2 * id, 2);
            host.map(start..start + 4096, BOTH);
            assert_eq!(host.get32(0x1c), 2, "until it is reset");
            assert_eq!(log.take(), [""; 0], "once");
            host.disable();
            host.enable();
            let (mut sq, mut cq) = host.pair(8);
            assert_serves(&mut host, &mut sq, &mut cq, 10);
        }
    });
}

/// A completion queue that returns read-only has not returned.
#[test]
fn a_queue_that_returns_without_its_permission_stays_away() {
    let mut host = in_pieces("none");
    let (mut sq, mut cq) = host.pair(8);
    host.unmap(CQ_1..CQ_1 + 4096);
    host.map(CQ_1..CQ_1 + 4096, DmaMap::READ);
    host.put(&mut sq, read(0));
    assert_eq!(host.get32(0x1c), 1);
    host.unmap(CQ_1..CQ_1 + 4096);
    host.map(CQ_1..CQ_1 + 4096, BOTH);
    host.ring_sq(&sq);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    host.unmap(CQ_1..CQ_1 + 4096);
    host.map(CQ_1..CQ_1 + 4096, DmaMap::READ);
    host.submit(&mut sq, read(0));
    host.wait_csts(3, 2);
}

#[test]
fn each_reason_why_a_controller_cannot_be_enabled_is_logged() {
    with_log(|log| {
        for (cc, aqa, asq, acq, why) in [
            (
                0x0046_0081,
                0x003f_003f,
                0x1000,
                0x2000,
                "CC is 0x460081; allowed: CSS, MPS and AMS of 0 (NVM commands, 4 KiB, round robin)",
            ),
            (0x0046_0001, 0x003f_0000, 0x1000, 0x2000, "AQA gives ASQ 1 entries; allowed: 2 to 4096"),
            (0x0046_0001, 0x0000_003f, 0x1000, 0x2000, "AQA gives ACQ 1 entries; allowed: 2 to 4096"),
            (0x0046_0001, 0x003f_003f, 0x1008, 0x2000, "ASQ is 0x1008; allowed: multiples of 4096"),
            (0x0046_0001, 0x003f_003f, 0x1000, 0x2010, "ACQ is 0x2010; allowed: multiples of 4096"),
            (
                0x0046_0001,
                0x003f_003f,
                RAM,
                0x2000,
                "ASQ is 0x1000000, where there are no 4096 bytes of memory to read",
            ),
            (
                0x0046_0001,
                0x003f_003f,
                0x1000,
                nvme_host::ROM,
                "ACQ is 0x10000000, where there are no 1024 bytes of memory to write",
            ),
        ] {
            let mut host = Host::off(&Setup::default());
            for _ in 0..2 {
                host.set32(0x24, aqa);
                host.set64(0x28, asq);
                host.set64(0x30, acq);
                host.set32(0x14, cc);
                assert_eq!(host.get32(0x1c), 2);
                let fatal = "fatal controller status (CSTS.CFS) until the host resets the controller";
                assert_eq!(log.take(), [format!("{fatal}: the controller cannot be enabled: {why}")]);
                host.disable();
            }
        }
    });
}

/// A guest does all this at random while it reads: no command is lost, and none fails.
#[test]
fn nothing_is_lost_while_memory_comes_and_goes() {
    for policy in ["none", "auto"] {
        let mut host = Host::new(policy);
        let (mut sq, mut cq) = host.pair(64);
        host.use_shadow(SHADOW, SHADOW + 4096);
        let (start, mut number) = (Instant::now(), 1_u64);
        for round in 0..300 {
            assert!(start.elapsed() < 20 * PATIENCE);
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = 1 + (number >> 60);
            for _ in 0..count {
                host.submit(&mut sq, read(round));
            }
            if number >> 50 & 1 == 0 {
                host.unmap_all();
                returns()[(number >> 40 & 3) as usize].1(&mut host);
            }
            assert!(host.reap(&mut cq, count as usize).iter().all(|cqe| cqe.status == 0), "round {round}");
        }
    }
}

/// A completion waits for the memory of its queue, which returns while bus mastering is off: it is posted, and interrupts, when that
/// is on again.
#[test]
fn what_waited_for_memory_waits_for_bus_mastering_too() {
    let mut host = in_pieces("none");
    let (mut sq, mut cq) = host.pair(8);
    host.use_shadow(SHADOW, SHADOW + 4096);
    assert_serves(&mut host, &mut sq, &mut cq, 3);
    host.unmap(CQ_1..CQ_1 + 4096);
    host.controller.memory_changed();
    sleep(QUIET);
    host.interrupts(1);
    let cid = host.put(&mut sq, read(0));
    host.store(SHADOW + 8, sq.tail.into()); // without a message
    host.completed(0, 4); // the question wakes the thread
    assert!(host.controller.set_bus_master(false));
    host.map(CQ_1..CQ_1 + 4096, BOTH);
    host.completed(0, 4); // its thread knows
    assert_eq!((host.peek(&mut cq.clone()), host.interrupts(1)), (None, 0));
    assert!(host.controller.set_bus_master(true));
    assert_eq!(host.next(&mut cq).cid, cid);
    sleep(QUIET);
    assert_eq!(host.interrupts(1), 1);
}

/// A policy without a limit in time holds completions while commands wait behind them. When the memory of those goes away, none
/// follows. It goes away at another moment each time, some of which are between a completion and the next command.
#[test]
fn nothing_is_held_for_commands_whose_memory_is_away() {
    let mut host = in_pieces("vic:epoch=1ms,cif_threshold=2,iops_threshold=0,max_hold=off,live_clamp=off");
    let (mut sq, mut cq) = host.pair(64);
    let list = DATA + 0x10_0000;
    let pages: Vec<_> = (1..256).flat_map(|page| (DATA + 4096 * page).to_le_bytes()).collect();
    host.write(list, &pages);
    let large = Sqe::io(READ).blocks(0, 2048).prps(DATA, list);
    for moment in 0..30 {
        let count = 60;
        for _ in 0..count {
            host.put(&mut sq, large);
        }
        host.ring_sq(&sq);
        sleep(Duration::from_micros(100 * moment));
        host.unmap(SQ_1..SQ_1 + 4096);
        host.controller.memory_changed();
        sleep(QUIET);
        let stats = host.stats(0);
        assert_eq!((stats.held, stats.in_flight), (0, 0), "{} completions", stats.completions);
        host.map(SQ_1..SQ_1 + 4096, BOTH);
        host.reap(&mut cq, count);
    }
}
