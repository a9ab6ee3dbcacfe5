//! The NVMe controller, by a host that drives it directly.

mod nvme_host;

use coalesce_target::queue::Control;
use coalesce_target::stats::HostStats;
use nvme_host::{BLOCKS, Cq, Cqe, DATA, DNR, FLUSH, Host, QUIET, READ, SIZE, Setup, Sq, Sqe, WRITE};
use std::thread::sleep;

/// The two pages of Doorbell Buffer Config.
const SHADOW: u64 = DATA + 0x40_0000;
/// 8 completions, or 25.5 ms.
const EIGHT: &str = "nvme:thr=7,time=25500us";
/// Holds everything that has no hint, for 10 ms.
const HINTS: &str = "cint:ooo=off,in_flight=off,hints=none,thr=200,delta=10ms,max_hold=500ms";

/// Repeats a scenario until no deadline of the policy passes in it: `None` says that one has.
fn calmly(policy: &str, scenario: impl Fn(&mut Host) -> Option<()>) {
    calmly_with(&Setup { policy, ..Setup::default() }, scenario);
}

fn calmly_with(setup: &Setup<'_>, scenario: impl Fn(&mut Host) -> Option<()>) {
    assert!((0..200).any(|_| scenario(&mut Host::with(setup)).is_some()), "deadlines pass all the time");
}

/// `None`: a deadline has passed.
fn calm(host: &Host, queue: usize) -> Option<()> {
    let by_time = ["time", "delta", "max_hold"];
    let delivered = host.stats(queue).delivered;
    (!by_time.iter().any(|reason| delivered.contains_key(*reason))).then_some(())
}

fn read(lba: u64, blocks: u32) -> Sqe {
    Sqe::io(READ).blocks(lba, blocks).prps(DATA, 0)
}

#[test]
fn registers_say_what_the_controller_is() {
    let mut host = Host::off(&Setup::default());
    assert_eq!((host.get32(0), host.get32(4)), (0x3c01_03ff, 0x20));
    assert_eq!(host.get32(8), 0x0001_0400);
    assert_eq!((host.get32(0x1c), host.get32(0x20)), (0, 0), "not ready, no NSSR");
    host.set64(0x28, 0x1234_5678_9abc_d000);
    assert_eq!((host.get32(0x28), host.get32(0x2c)), (0x9abc_d000, 0x1234_5678));
    host.set32(0x2c, 1);
    host.set32(0x0c, 0xf0);
    host.set32(0x10, 0x30);
    assert_eq!([0x28, 0x2c, 0x0c, 0x10].map(|at| host.get32(at)), [0x9abc_d000, 1, 0xc0, 0xc0]);
    let mut bytes = [0; 5];
    host.controller.read(7, &mut bytes);
    assert_eq!(bytes, [0, 0, 4, 1, 0], "any bytes can be read");
    host.enable();
    host.set64(0x28, 0);
    assert_eq!((host.get32(0x28), host.get32(0x24)), (0x1000, 0x003f_003f), "read back while enabled, not changed");
}

#[test]
fn what_is_written_is_read_back() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    for (i, blocks) in [1_u32, 7, 8, 9, 16, 100, 2048].into_iter().enumerate() {
        let len = blocks as usize * 512;
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 256 + i) as u8).collect();
        let [from, to] = [DATA + 0x200, DATA + 0x20_0200];
        host.write(from, &data);
        let lists = [DATA - 0x10_0000, DATA - 0x8_0000];
        for (start, list) in [(from, lists[0]), (to, lists[1])] {
            let page = |n: u64| (start & !0xfff) + 4096 * n;
            let entries: Vec<u8> = (1..=256).flat_map(|n| page(n).to_le_bytes()).collect();
            host.write(list, &entries);
        }
        let pages = (0x200 + len).div_ceil(4096);
        let second = |start: u64, list| if pages > 2 { list } else { (start & !0xfff) + 4096 };
        let lba = 11 + i as u64;
        let write = Sqe::io(WRITE).blocks(lba, blocks).prps(from, second(from, lists[0]));
        assert_eq!(host.io((&mut sq, &mut cq), write), 0, "{blocks} blocks");
        let read = Sqe::io(READ).blocks(lba, blocks).prps(to, second(to, lists[1]));
        assert_eq!(host.io((&mut sq, &mut cq), read), 0);
        assert!(host.bytes(to, len) == data, "{blocks} blocks");
    }
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(FLUSH)), 0);
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::new(FLUSH).dword(1, u32::MAX)), 0, "all namespaces");
    let stats = host.stats(0);
    assert_eq!((stats.device.reads, stats.device.writes, stats.device.flushes), (7, 7, 2));
}

#[test]
fn a_list_of_prps_continues_in_the_next_page() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let data: Vec<u8> = (0..16 * 4096).map(|at| (at / 512 + at) as u8).collect();
    host.write(DATA, &data);
    // The list begins three entries before the end of its page: two pages of data, and the next list.
    let (list, next) = (DATA - 0x1_0000, DATA - 0x2_0000);
    let entry = |n: u64| (DATA + 4096 * n).to_le_bytes();
    host.write(list + 4072, &[entry(1), entry(2), next.to_le_bytes()].concat());
    host.write(next, &(3..16).flat_map(entry).collect::<Vec<_>>());
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(WRITE).blocks(0, 128).prps(DATA, list + 4072)), 0);
    let [second, third] = [DATA + 0x10_0000, DATA + 0x10_1000];
    for at in 0..8 {
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(READ).blocks(16 * at, 16).prps(second, third)), 0);
        assert!(host.bytes(second, 8192) == data[8192 * at as usize..][..8192], "part {at}");
    }
}

#[test]
fn the_phase_changes_each_time_the_queue_wraps() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(4);
    for i in 0..50 {
        let cid = host.submit(&mut sq, read(i % BLOCKS, 1));
        let cqe = host.reap(&mut cq, 1)[0];
        assert_eq!((cqe.cid, cqe.status, cqe.sq_head), (cid, 0, sq.tail), "command {i}");
    }
    assert_eq!(host.interrupt(1), 50, "one for each");
}

#[test]
fn a_full_completion_queue_waits_and_nothing_is_lost() {
    const POLICIES: [&str; 6] = ["none", EIGHT, "cint:in_flight=off", "cint:ooo=on,in_flight=off", "auto", "batch"];
    for (policy, uses_shadow) in POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let mut host = Host::new(policy);
        let mut cq = host.create_cq(1, 4, 1, true);
        let mut sq = host.create_sq(1, 32, 1);
        if uses_shadow {
            host.use_shadow(SHADOW, SHADOW + 4096);
        }
        let cids: Vec<_> = (0..31).map(|i| host.put(&mut sq, read(i, 1))).collect();
        host.ring_sq(&sq);
        let mut seen = Vec::new();
        while seen.len() < cids.len() {
            host.interrupt(1);
            let before = seen.len();
            while let Some(cqe) = host.peek(&mut cq) {
                assert_eq!(cqe.status, 0);
                seen.push(cqe.cid);
            }
            assert!(seen.len() - before <= 31);
            host.ring(3, cq.head);
        }
        seen.sort_unstable();
        assert_eq!(seen, cids, "{policy}");
    }
}

/// A thread that sleeps after each command, one that sleeps now and then, and one that is awake most of the time.
#[test]
fn with_shadow_doorbells_no_command_is_lost() {
    for poll_ns in [0, 4_000, 10_000_000] {
        for depth in [1, 7, 30] {
            let mut host = Host::with(&Setup { poll_ns, ..Setup::default() });
            let (mut sq, mut cq) = host.pair(32);
            assert_eq!(host.io((&mut sq, &mut cq), read(0, 1)), 0, "before there are any");
            host.use_shadow(SHADOW, SHADOW + 4096);
            let mut other_cq = host.create_cq(2, 32, 1, true);
            let mut other_sq = host.create_sq(2, 32, 2);
            for round in 0..200 {
                for i in 0..depth {
                    host.put(&mut sq, read(i, 1));
                    if (round + i) % 3 == 0 {
                        host.ring_sq(&sq);
                    }
                }
                host.ring_sq(&sq);
                assert!(host.reap(&mut cq, depth as usize).iter().all(|cqe| cqe.status == 0));
                if round % 16 == 0 {
                    assert_eq!(host.io((&mut other_sq, &mut other_cq), read(1, 1)), 0);
                }
            }
            let stats = host.stats(0);
            assert_eq!(stats.completions, 200 * depth + 13 + 1);
            assert_eq!(stats.device.kicks, host.messages, "each message is counted");
        }
    }
}

/// While a thread is awake it gets no messages, however often its queues wrap. This one polls for as long as the host may be
/// away, so it sleeps a few times at first: each time that it slept too early it polls at least twice as long.
#[test]
fn at_depth_8_few_doorbells_are_messages() {
    const COMMANDS: u64 = 8000;
    const FOR_EVER: u64 = 60_000_000_000;
    let mut host = Host::with(&Setup { poll_ns: FOR_EVER, ..Setup::default() });
    let (mut sq, mut cq) = host.pair(32);
    host.use_shadow(SHADOW, SHADOW + 4096);
    for _ in 0..COMMANDS / 8 {
        for i in 0..8 {
            host.submit(&mut sq, read(i, 1));
        }
        host.reap(&mut cq, 8);
    }
    let stats = host.completed(0, COMMANDS);
    assert_eq!(stats.device.kicks, host.messages);
    let (messages, sleeps) = (host.messages, stats.poll.sleeps);
    assert!(messages * 100 < COMMANDS && messages <= 2 * sleeps + 2, "{messages} messages, {sleeps} sleeps");
}

/// Hosts may offer shadow doorbells, and ring by messages all the same.
#[test]
fn messages_ring_until_a_shadow_doorbell_is_used() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(32);
    host.use_shadow(SHADOW, SHADOW + 4096);
    host.ignore_shadow();
    for i in 0..100 {
        assert_eq!(host.io((&mut sq, &mut cq), read(i, 1)), 0);
    }
    // A message that is older than the shadow only wakes.
    host.put(&mut sq, read(0, 1));
    host.put(&mut sq, read(1, 1));
    host.store(SHADOW + 8, sq.tail.into());
    host.doorbell(2, u32::from(sq.tail) - 1);
    assert_eq!(host.reap(&mut cq, 2).len(), 2);
    host.doorbell(2, 0);
    sleep(QUIET);
    assert_eq!((host.peek(&mut cq), host.stats(0).completions), (None, 102));
}

#[test]
fn several_submission_queues_share_a_completion_queue() {
    let mut host = Host::with(&Setup { queues: 4, ..Setup::default() });
    let mut cq = host.create_cq(2, 64, 1, true);
    let mut sqs = [1, 2, 4].map(|id| host.create_sq(id, 16, 2));
    let mut expected = Vec::new();
    for round in 0..10 {
        for sq in &mut sqs {
            let id = sq.id;
            expected.push((id, host.submit(sq, read(round, 1))));
        }
    }
    let mut seen: Vec<_> = host.reap(&mut cq, 30).iter().map(|cqe| (cqe.sq, cqe.cid)).collect();
    seen.sort_unstable_by_key(|(_, cid)| *cid);
    assert_eq!(seen, expected);
    assert_eq!(host.completed(0, 30).completions, 30, "all on the thread of vector 1");
    assert_eq!((host.interrupt(1), host.interrupts(2)), (30, 0));
}

#[test]
fn completion_queues_that_share_a_vector_share_its_interrupts() {
    let setup = Setup { policy: EIGHT, queues: 3, ..Setup::default() };
    calmly_with(&setup, |host| {
        let mut cqs = [1, 2].map(|id| host.create_cq(id, 16, 2, true));
        let mut sqs = [1, 2].map(|id| host.create_sq(id, 16, id));
        for i in 0..8 {
            let sq = &mut sqs[i % 2];
            host.submit(sq, read(i as u64, 1));
        }
        let interrupts = host.interrupt(2);
        calm(host, 1)?;
        assert_eq!(interrupts, 1, "8 completions in all");
        cqs.iter_mut().for_each(|cq| drop(host.reap(cq, 4)));
        assert_eq!((host.interrupts(1), host.interrupts(2)), (0, 0));
        assert_eq!([0, 1, 2].map(|queue| host.stats(queue).completions), [0, 8, 0], "each vector has a thread");
        Some(())
    });
}

/// A polled queue on the admin queue's vector does not concern the queues of vector 1, which have the same thread.
#[test]
fn a_queue_without_interrupts_on_the_admin_vector_leaves_others_coalesced() {
    for (interrupts, expected) in [(false, 1), (true, 8)] {
        calmly_with(&Setup { policy: EIGHT, queues: 2, ..Setup::default() }, |host| {
            let _polled = host.create_cq(2, 16, 0, interrupts);
            let (mut sq, _) = host.pair(16);
            for i in 0..8 {
                host.put(&mut sq, read(i, 1));
            }
            host.ring_sq(&sq);
            let counted = host.completed(0, 8).interrupts;
            calm(host, 0)?;
            assert_eq!((counted, host.interrupts(1)), (expected, expected), "interrupts: {interrupts}");
            Some(())
        });
    }
}

/// As Linux polls: queues without interrupts on vector 0, which have the thread of vector 1.
#[test]
fn what_a_host_polls_is_posted_while_other_completions_are_held() {
    calmly(&HINTS.replace("ooo=off", "ooo=on"), |host| {
        let mut polled = host.create_cq(2, 16, 0, false);
        let mut polled_sq = host.create_sq(2, 16, 2);
        let (mut sq, mut cq) = host.pair(16);
        host.put(&mut sq, read(0, 1));
        host.put(&mut sq, read(1, 1));
        host.ring_sq(&sq);
        host.completed(0, 2);
        let cid = host.submit(&mut polled_sq, read(2, 1));
        host.completed(0, 3);
        let seen = (host.peek(&mut polled).map(|cqe| (cqe.cid, cqe.status)), host.peek(&mut cq), host.interrupts(1));
        calm(host, 0)?;
        assert_eq!(seen, (Some((cid, 0)), None, 0), "the other two are held");
        Some(())
    });
}

/// As Linux does with a single vector.
#[test]
fn the_vector_of_the_admin_queue_interrupts_for_io_and_is_never_coalesced() {
    let mut host = Host::new(EIGHT);
    let mut cq = host.create_cq(1, 16, 0, true);
    let mut sq = host.create_sq(1, 16, 1);
    host.interrupts(0);
    for i in 0..3 {
        assert_eq!(host.io((&mut sq, &mut cq), read(i, 1)), 0);
        host.interrupt(0);
    }
    assert_eq!((host.completed(0, 3).interrupts, host.interrupts(1)), (3, 0));
}

#[test]
fn a_queue_without_interrupts_has_none() {
    let mut host = Host::new(EIGHT);
    let mut cq = host.create_cq(1, 16, 1, false);
    let mut sq = host.create_sq(1, 16, 1);
    for i in 0..20 {
        assert_eq!(host.io((&mut sq, &mut cq), read(i, 1)), 0);
    }
    let stats = host.completed(0, 20);
    assert_eq!((stats.interrupts, stats.suppressed, stats.held), (0, 20, 0));
    assert_eq!(host.interrupts(1), 0);
}

#[test]
fn interrupts_are_as_many_as_the_policy_says() {
    for (policy, interrupts) in [("none", 32), (EIGHT, 4)] {
        calmly(policy, |host| {
            let (mut sq, _) = host.pair(64);
            for i in 0..32 {
                host.put(&mut sq, read(i, 1));
            }
            host.ring_sq(&sq);
            let counted = host.completed(0, 32).interrupts;
            calm(host, 0)?;
            assert_eq!((counted, host.interrupt(1)), (interrupts, interrupts), "{policy}");
            Some(())
        });
    }
    // Somebody who is alone never waits.
    for policy in ["auto", "cint"] {
        let mut host = Host::new(policy);
        let (mut sq, mut cq) = host.pair(64);
        for i in 0..20 {
            host.submit(&mut sq, read(i, 1));
            assert_eq!(host.interrupt(1), 1, "{policy}");
            host.reap(&mut cq, 1);
        }
    }
}

/// The bits that the policy names, bits 17:16 of dword 12 if it names none, and the access latency in dword 13.
#[test]
fn hints_on_the_wire_decide_about_interrupts() {
    let dword_12 = |sqe: Sqe, bits: u32| sqe.dword(12, sqe.0[12] | bits << 16);
    let plain = read(1, 1);
    for (bits, sqe, interrupts) in [
        ("", plain, 0),
        ("", dword_12(plain, 1), 1),
        ("", dword_12(plain, 2), 1),
        ("", dword_12(plain, 3), 1),
        ("", plain.dword(13, 3 << 4), 1),
        ("", plain.dword(13, 1 << 4), 0),
        ("", dword_12(Sqe::io(FLUSH), 1), 0),
        (",bits=cdw13:8", plain.dword(13, 2 << 8), 1),
        (",bits=cdw13:8", dword_12(plain, 3), 0),
        (",bits=none", dword_12(plain, 3), 0),
    ] {
        calmly(&format!("{HINTS}{bits}"), |host| {
            let (mut sq, _) = host.pair(64);
            host.put(&mut sq, read(0, 1));
            host.put(&mut sq, sqe);
            host.ring_sq(&sq);
            let stats = host.completed(0, 2);
            calm(host, 0)?;
            assert_eq!((stats.interrupts, stats.held), (interrupts, 2 * (1 - interrupts)), "{bits} {sqe:x?}");
            Some(())
        });
    }
}

/// The held completions are not in the queue yet: a driver that takes the queue in order takes the urgent one first.
#[test]
fn an_urgent_completion_is_posted_before_plain_ones_that_are_held() {
    calmly(&HINTS.replace("ooo=off", "ooo=on"), |host| {
        let (mut sq, mut cq) = host.pair(16);
        let plain = [host.put(&mut sq, read(0, 1)), host.put(&mut sq, read(1, 1))];
        let urgent = host.put(&mut sq, read(2, 1).dword(12, 1 << 16));
        host.ring_sq(&sq);
        let held = host.completed(0, 3).held;
        let seen = [host.peek(&mut cq), host.peek(&mut cq)].map(|cqe| cqe.map(|cqe| cqe.cid));
        let interrupts = host.interrupts(1);
        calm(host, 0)?;
        assert_eq!((held, seen, interrupts), (2, [Some(urgent), None], 1));
        let rest = [host.next(&mut cq), host.next(&mut cq)].map(|cqe| cqe.cid);
        assert_eq!((rest, host.interrupt(1)), (plain, 1), "their deadline passes");
        Some(())
    });
}

/// A strict Barrier waits for the commands before it in its own submission queue, not for those of another one. The commands
/// before it each deallocate all of a large disk, in many turns of the thread.
#[test]
fn a_strict_barrier_waits_for_its_own_submission_queue() {
    const LARGE: u64 = 64 << 30;
    let policy = format!("{HINTS},barrier=strict");
    for (own, interrupts) in [(1, 1), (0, 0)] {
        calmly_with(&Setup { policy: &policy, size: LARGE, ..Setup::default() }, |host| {
            host.create_cq(1, 64, 1, true);
            let mut sqs = [1, 2].map(|id| host.create_sq(id, 32, 1));
            let blocks = (LARGE / 512 / 32) as u32;
            let range = |i: u64| [&[0; 4][..], &blocks.to_le_bytes(), &(i * u64::from(blocks)).to_le_bytes()].concat();
            host.write(DATA + 4096, &(0..32).flat_map(range).collect::<Vec<_>>());
            for _ in 0..20 {
                host.put(&mut sqs[0], Sqe::io(9).prps(DATA + 4096, 0).dword(10, 31).dword(11, 4));
            }
            host.ring_sq(&sqs[0]);
            host.put(&mut sqs[own], read(0, 1));
            host.put(&mut sqs[own], read(1, 1).dword(12, 2 << 16));
            host.ring_sq(&sqs[own]);
            let stats = std::iter::repeat_with(|| host.stats(0)).find(|stats| stats.device.reads == 2)?;
            let counted = host.interrupts(1);
            calm(host, 0)?;
            (stats.device.others == 0).then_some(())?; // else a command before it has ended already
            assert_eq!(counted, interrupts, "queue {}", own + 1);
            Some(())
        });
    }
}

/// Each clue that a host gives without knowing it, with the commands that give it. No other source may count.
#[test]
fn commands_give_clues_by_what_they_are_and_how_they_come() {
    const FUA: u32 = 1 << 30;
    let write = Sqe::io(WRITE).blocks(0, 1).prps(DATA, 0);
    let plain = read(1, 1);
    for (source, commands, count) in [
        ("flush", &[plain, Sqe::io(FLUSH), plain][..], 1),
        ("fua", &[plain, write.dword(12, FUA), write], 1),
        ("fua", &[plain, plain.dword(12, FUA)], 0),
        ("batch", &[plain, plain, plain], 1),
        ("batch", &[plain], 0),
        ("single", &[plain], 1),
        ("single", &[plain, plain], 0),
        ("idle", &[plain, plain, plain], 1),
    ] {
        let policy = HINTS.replace("hints=none", &format!("hints={source}"));
        calmly(&policy, |host| {
            let (mut sq, _) = host.pair(16);
            for sqe in commands {
                host.put(&mut sq, *sqe);
            }
            host.ring_sq(&sq);
            let stats = host.completed(0, commands.len() as u64);
            calm(host, 0)?;
            let counted: Vec<_> = stats.hints.iter().map(|(name, count)| (name.as_str(), *count)).collect();
            assert_eq!(counted, if count > 0 { vec![(source, count)] } else { vec![] }, "{source} {commands:x?}");
            Some(())
        });
    }
}

#[test]
fn discarded_and_zeroed_blocks_read_as_zeroes() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    let both = (&mut sq, &mut cq);
    let (sq, cq) = both;
    host.write(DATA, &[0xa5; 8192]);
    for lba in (0..64).step_by(16) {
        assert_eq!(host.io((sq, cq), Sqe::io(WRITE).blocks(lba, 16).prps(DATA, DATA + 4096)), 0);
    }
    // Write Zeroes, once with deallocation.
    assert_eq!(host.io((sq, cq), Sqe::io(8).blocks(0, 4)), 0);
    assert_eq!(host.io((sq, cq), Sqe::io(8).blocks(8, 8).dword(12, 7 | 1 << 25)), 0);
    // Dataset Management: three ranges, one of them empty.
    let range = |lba: u64, blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
    host.write(DATA + 0x3000, &[range(16, 8), range(32, 0), range(40, 16)].concat());
    let discard = Sqe::io(9).prps(DATA + 0x3000, 0).dword(10, 2);
    assert_eq!(host.io((sq, cq), discard), 0, "only advice");
    assert_eq!(host.io((sq, cq), discard.dword(11, 4)), 0);
    for lba in 0..64 {
        assert_eq!(host.io((sq, cq), read(lba, 1)), 0);
        let is_zero = matches!(lba, 0..4 | 8..24 | 40..56);
        assert_eq!(host.bytes(DATA, 512), [if is_zero { 0 } else { 0xa5 }; 512], "block {lba}");
    }
}

/// A command may name 256 ranges. Each is zeroed at once, and not all of them in one turn.
#[test]
fn ranges_to_discard_do_not_keep_the_next_command_waiting() {
    const RANGES: u64 = 16;
    const RANGE: u64 = (32 << 20) / 512; // in blocks
    let mut host = Host::with(&Setup { size: RANGES * RANGE * 512, ..Setup::default() });
    let (mut sq, mut cq) = host.pair(64);
    host.write(DATA, &[0xa5; 512]);
    for i in 0..RANGES {
        assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(WRITE).blocks(i * RANGE, 1).prps(DATA, 0)), 0);
    }
    let range = |i: u64| [&[0; 4][..], &(RANGE as u32).to_le_bytes(), &(i * RANGE).to_le_bytes()].concat();
    host.write(DATA + 4096, &(0..RANGES).flat_map(range).collect::<Vec<_>>());
    let discard = host.put(&mut sq, Sqe::io(9).prps(DATA + 4096, 0).dword(10, RANGES as u32 - 1).dword(11, 4));
    let next = host.put(&mut sq, Sqe::io(FLUSH));
    host.ring_sq(&sq);
    let order: Vec<_> = host.reap(&mut cq, 2).iter().map(|cqe| (cqe.cid, cqe.status)).collect();
    assert_eq!(order, [(next, 0), (discard, 0)]);
    for i in 0..RANGES {
        assert_eq!(host.io((&mut sq, &mut cq), read(i * RANGE, 1)), 0);
        assert_eq!(host.bytes(DATA, 512), [0; 512], "range {i}");
    }
}

#[test]
fn a_disk_of_large_blocks_counts_in_them() {
    let mut host = Host::with(&Setup { block_size: 4096, ..Setup::default() });
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(1, 1));
    let page = host.bytes(DATA, 4096);
    assert_eq!((&page[..8], page[130]), (&(SIZE / 4096).to_le_bytes()[..], 12));
    let (mut sq, mut cq) = host.pair(8);
    host.write(DATA, &[7; 4096]);
    let last = SIZE / 4096 - 1;
    assert_eq!(host.io((&mut sq, &mut cq), Sqe::io(WRITE).blocks(last, 1).prps(DATA, 0)), 0);
    assert_eq!(host.io((&mut sq, &mut cq), read(last + 1, 1)), 0x80 | DNR);
    assert_eq!(host.io((&mut sq, &mut cq), read(last, 1)), 0);
    let device = host.stats(0).device;
    assert_eq!((device.bytes_read, device.bytes_written), (4096, 4096));
}

#[test]
fn a_read_only_disk_refuses_to_be_changed() {
    let mut host = Host::with(&Setup { read_only: true, ..Setup::default() });
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(1, 1));
    assert_eq!(host.bytes(DATA + 99, 1), [1], "NSATTR");
    let (mut sq, mut cq) = host.pair(8);
    for sqe in [Sqe::io(WRITE).blocks(0, 1).prps(DATA, 0), Sqe::io(8).blocks(0, 1), Sqe::io(9).prps(DATA, 0)] {
        assert_eq!(host.io((&mut sq, &mut cq), sqe), 0x20 | DNR);
    }
    assert_eq!(host.io((&mut sq, &mut cq), read(0, 1)), 0);
}

#[test]
fn identify_describes_controller_and_namespace() {
    let mut host = Host::new("none");
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 1));
    let page = host.bytes(DATA, 4096);
    assert_eq!(&page[4..24], b"SN-1                ");
    assert_eq!((page[77], page[111], &page[80..84]), (8, 1, &[0, 4, 1, 0][..]));
    assert_eq!(page[92..96], [0, 1, 0, 0], "OAES: Namespace Attribute Notices");
    assert_eq!((&page[256..262], page[525]), (&[0, 1, 3, 3, 3, 6][..], 7));
    assert_eq!((page[512], page[513], &page[516..522]), (0x66, 0x44, &[1, 0, 0, 0, 0x0c, 0][..]));
    assert!(page[768..].starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"));
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(1, 1));
    let page = host.bytes(DATA, 4096);
    assert_eq!((&page[..8], page[130], page[99]), (&BLOCKS.to_le_bytes()[..], 9, 0));
    let nguid = page[104..120].to_vec();
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 2));
    assert_eq!(host.bytes(DATA, 8), [1, 0, 0, 0, 0, 0, 0, 0]);
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 2).dword(1, 1));
    assert_eq!(host.bytes(DATA, 8), [0; 8]);
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 3).dword(1, 1));
    assert_eq!(host.bytes(DATA, 20), [&[2, 16, 0, 0][..], &nguid].concat());
    host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 6));
    assert_eq!(host.bytes(DATA, 4096), [0; 4096]);
    for (sqe, status) in [
        (Sqe::new(6).dword(1, 2), 0x0b),
        (Sqe::new(6).dword(1, u32::MAX), 0x0b),
        (Sqe::new(6).dword(10, 2).dword(1, u32::MAX), 0x0b),
        (Sqe::new(6).dword(10, 3), 0x0b),
        (Sqe::new(6).dword(10, 6).dword(11, 1 << 24), 0x02),
        (Sqe::new(6).dword(10, 0x10), 0x02),
    ] {
        assert_eq!(host.admin(sqe.prps(DATA, 0)), (status | DNR, 0), "{sqe:x?}");
    }
}

#[test]
fn log_pages_are_read_in_parts() {
    let mut host = Host::new("none");
    let log =
        |page: u32, dwords: u32| Sqe::new(2).prps(DATA, 0).dword(1, u32::MAX).dword(10, page | (dwords - 1) << 16);
    host.admin_ok(log(2, 128));
    assert_eq!(host.bytes(DATA + 1, 4), [44, 1, 100, 10], "300 K; spare");
    host.admin_ok(log(3, 128));
    assert_eq!(host.bytes(DATA, 1), [1]);
    host.admin_ok(log(5, 1024));
    let effects = host.bytes(DATA, 4096);
    let supported: Vec<_> = (0..512).filter(|i| effects[4 * i] & 1 != 0).collect();
    assert_eq!(supported, [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 0x7c, 256, 257, 258, 264, 265]);
    host.admin_ok(log(5, 2).dword(12, 1024));
    assert_eq!(host.bytes(DATA, 8), [1, 0, 0, 0, 3, 0, 0, 0], "from an offset on");
    host.admin_ok(log(1, 16));
    assert_eq!(host.bytes(DATA, 64), [0; 64], "no error yet");
    host.admin_ok(log(4, 1024));
    assert_eq!(host.bytes(DATA, 4096), [0; 4096], "no namespace has changed");
    for (sqe, status) in [
        (log(0xc1, 1), 0x109),
        (log(2, 1).dword(12, 513), 0x02),
        (log(2, 1).dword(12, 2), 0x02),
        (log(2, 1).dword(13, 1), 0x02),
    ] {
        assert_eq!(host.admin(sqe), (status | DNR, 0), "{sqe:x?}");
    }
}

#[test]
fn features_are_read_back_as_they_were_set() {
    let mut host = Host::new("none");
    for (id, value) in [(1, 0x0102_0304), (4, 0x0000_0150), (0x0a, 1), (0x0b, 0x1ff), (2, 1 << 5)] {
        assert_eq!(host.set_feature(id, value), (0, 0), "{id}");
        let selector = if id == 4 { value & 0x003f_0000 } else { 0 };
        assert_eq!(host.get_feature(id, selector), (0, if id == 4 { value & 0xffff } else { value }), "{id}");
    }
    assert_eq!(host.get_feature(4, 1 << 20), (0, 0), "the threshold below");
    assert_eq!(host.admin(Sqe::new(9).dword(1, 1).dword(10, 5).dword(11, 0x77)).0, 0);
    assert_eq!(host.admin(Sqe::new(10).dword(1, 1).dword(10, 5)), (0, 0x77));
    for value in [0x0000, 0x00ff, 0xff00, 0xffff, 0x5aa5] {
        assert_eq!(host.set_feature(8, value), (0, 0));
        assert_eq!(host.get_feature(8, 0), (0, value));
    }
    assert_eq!(host.get_feature(9, 0), (0, 1 << 16), "the admin queue's vector");
    for vector in [1, 2] {
        for value in [vector | 1 << 16, vector] {
            assert_eq!(host.set_feature(9, value), (0, 0));
            assert_eq!(host.get_feature(9, vector), (0, value));
        }
    }
    assert_eq!(host.get_feature(6, 0), (0, 1));
    assert_eq!(host.set_feature(6, 0), (0, 0));
    assert_eq!(host.get_feature(6, 0), (0, 0));
    assert_eq!(host.set_feature(7, 0x0007_0007), (0, 0x0001_0001));
    assert_eq!(host.get_feature(7, 0), (0, 0x0001_0001));

    for (id, value, status) in [
        (7, 0xffff, 0x02),
        (7, 0xffff_0000, 0x02),
        (9, 3, 0x02),
        (9, 0, 0x02),
        (2, 1, 0x02),
        (4, 2 << 20, 0x02),
        (4, 9 << 16, 0x02),
        (3, 0, 0x02),
        (0x0c, 0, 0x02),
        (0x0f, 0, 0x02),
        (0, 0, 0x02),
        (5, 0, 0x0b),
    ] {
        assert_eq!(host.set_feature(id, value), (status | DNR, 0), "{id}, {value:#x}");
    }
    assert_eq!(host.admin(Sqe::new(9).dword(10, 8 | 1 << 31)), (0x10d | DNR, 0), "not saveable");
    assert_eq!(host.admin(Sqe::new(10).dword(10, 8 | 1 << 8)), (0x02 | DNR, 0), "no default values");
    assert_eq!(host.get_feature(9, 3), (0x02 | DNR, 0));

    host.create_cq(1, 4, 1, true);
    assert_eq!(host.set_feature(7, 0), (0x0c | DNR, 0), "a queue exists");
    assert_eq!(host.get_feature(8, 0), (0, 0x5aa5));
    host.disable();
    host.enable();
    assert_eq!(
        [host.get_feature(1, 0), host.get_feature(8, 0), host.get_feature(9, 1), host.get_feature(6, 0)],
        [(0, 0), (0, 0), (0, 1), (0, 1)]
    );
}

/// EDK2 creates two I/O queues, and does not ask how many there are.
#[test]
fn a_host_that_does_not_ask_has_two_queues() {
    let mut host = Host::with(&Setup { queues: 1, ..Setup::default() });
    assert_eq!(host.get_feature(7, 0), (0, 0x0001_0001));
    for round in 0..2 {
        let mut queues =
            [1, 2].map(|id| (host.create_cq(id, 8, u16::from(round == 1), true), host.create_sq(id, 8, id)));
        for (cq, sq) in &mut queues {
            for i in 0..20 {
                assert_eq!(host.io((sq, cq), read(i, 1)), 0);
            }
        }
        let third = Sqe::new(5).prps(0x30_0000, 0).dword(10, 3 | 7 << 16).dword(11, 1);
        assert_eq!(host.admin(third), (0x101 | DNR, 0), "there is no third");
        host.doorbell(6, 1);
        host.assert_alive();
        host.disable();
        host.enable();
    }
    // One that asks has as many as the disk.
    assert_eq!(host.set_feature(7, 0x0001_0001), (0, 0));
    assert_eq!(host.get_feature(7, 0), (0, 0));
    host.create_cq(1, 8, 1, true);
    let second = Sqe::new(5).prps(0x30_0000, 0).dword(10, 2 | 7 << 16).dword(11, 1);
    assert_eq!(host.admin(second), (0x101 | DNR, 0));
    host.assert_alive();
}

/// Feature 09h under a policy that would hold everything.
#[test]
fn coalescing_disable_delivers_what_is_held_and_exempts_the_vector() {
    for policy in [EIGHT, HINTS] {
        calmly(policy, |host| {
            let (mut sq, mut cq) = host.pair(64);
            for i in 0..3 {
                host.put(&mut sq, read(i, 1));
            }
            host.ring_sq(&sq);
            let held = host.completed(0, 3).held;
            assert_eq!(host.set_feature(9, 1 | 1 << 16).0, 0);
            let (still_held, interrupts) = (host.stats(0).held, host.interrupts(1));
            calm(host, 0)?;
            assert_eq!((held, still_held, interrupts), (3, 0, 1), "{policy}");
            for i in 0..4 {
                host.submit(&mut sq, read(i, 1));
                assert_eq!(host.interrupt(1), 1, "{policy}");
            }
            host.reap(&mut cq, 7);
            assert_eq!(host.set_feature(9, 1).0, 0);
            host.submit(&mut sq, read(0, 1));
            let (held, interrupts) = (host.completed(0, 8).held, host.interrupts(1));
            calm(host, 0)?;
            assert_eq!((held, interrupts), (1, 0), "{policy}");
            host.disable();
            host.enable();
            assert_eq!(host.get_feature(9, 1), (0, 1));
            Some(())
        });
    }
}

/// Feature 08h under the policy that leaves the decision to the host.
#[test]
fn the_host_decides_about_aggregation_where_the_policy_lets_it() {
    const FOUR: u32 = 3 | 255 << 8; // 4 completions, or 25.5 ms
    calmly("nvme:host=on", |host| {
        let mut pairs = [1, 2].map(|id| {
            let cq = host.create_cq(id, 64, id, true);
            (host.create_sq(id, 64, id), cq)
        });
        let mut done = 0;
        // Submits to both vectors at once. The interrupts of each, and what each holds.
        let mut submit = |host: &mut Host, count: u64| {
            done += count;
            [0, 1].map(|queue: usize| {
                let (sq, cq) = &mut pairs[queue];
                for i in 0..count {
                    host.put(sq, read(i, 1));
                }
                host.ring_sq(sq);
                let held = host.completed(queue, done).held;
                let interrupts = host.interrupts(queue + 1);
                host.reap(cq, count as usize);
                (interrupts, held)
            })
        };
        let each = |outcome| [outcome, outcome];
        let calm = |host: &Host| [0, 1].iter().all(|queue| calm(host, *queue).is_some()).then_some(());
        assert_eq!(submit(host, 4), each((4, 0)), "off at first");
        for (value, outcome) in [(FOUR, (1, 0)), (FOUR & 0xff, (4, 0)), (FOUR & 0xff00, (4, 0)), (FOUR, (1, 0))] {
            assert_eq!(host.set_feature(8, value), (0, 0));
            let counted = submit(host, 4);
            calm(host)?;
            assert_eq!(counted, each(outcome), "{value:#x}");
        }
        // Held completions are delivered when it changes.
        let mut sq = pairs[0].0;
        host.put(&mut sq, read(0, 1));
        host.ring_sq(&sq);
        let held = host.completed(0, done + 1).held;
        assert_eq!(host.set_feature(8, 5 | 255 << 8), (0, 0));
        let (still_held, interrupts) = (host.stats(0).held, host.interrupts(1));
        calm(host)?;
        assert_eq!((held, still_held, interrupts), (1, 0, 1));
        Some(())
    });
}

#[test]
fn what_the_host_asks_for_outlives_a_change_of_policy_and_ends_with_a_reset() {
    const FOUR: u32 = 3 | 255 << 8;
    calmly("none", |host| {
        let mut done = 0;
        let mut round = |host: &mut Host, (sq, cq): &mut (Sq, Cq)| {
            done += 4;
            for i in 0..4 {
                host.put(sq, read(i, 1));
            }
            host.ring_sq(sq);
            host.completed(0, done);
            host.reap(cq, 4);
            host.interrupts(1)
        };
        let mut pair = host.pair(64);
        assert_eq!(host.set_feature(8, FOUR), (0, 0));
        let mut counted = vec![round(host, &mut pair)];
        for policy in ["nvme:host=on", "nvme:thr=1,time=25500us", "nvme:host=on"] {
            let set = |answer| Control::SetPolicy(policy.parse().unwrap(), false, answer);
            host.queues[0].ask(set).unwrap().unwrap();
            counted.push(round(host, &mut pair));
        }
        assert_eq!(host.set_feature(9, 1 | 1 << 16), (0, 0));
        counted.push(round(host, &mut pair));
        let said = host.stats(0).host;
        assert_eq!(said, Some(HostStats { threshold: 3, time_us: 25_500, coalescing_disable: true, intx: false }));
        host.disable();
        host.enable();
        assert_eq!(host.get_feature(8, 0), (0, 0));
        pair = host.pair(64);
        let said = host.stats(0).host;
        assert_eq!(said, Some(HostStats { threshold: 0, time_us: 0, coalescing_disable: false, intx: false }));
        counted.push(round(host, &mut pair));
        calm(host, 0)?;
        assert_eq!(counted, [4, 1, 2, 1, 4, 4], "none, host, operator, host, an exempt vector, after a reset");
        Some(())
    });
}

#[test]
fn a_policy_changes_for_one_vector() {
    calmly(EIGHT, |host| {
        let (mut sq, _) = host.pair(64);
        host.submit(&mut sq, read(0, 1));
        let held = host.completed(0, 1).held;
        let set = |answer| Control::SetPolicy("none".parse().unwrap(), false, answer);
        host.queues[0].ask(set).unwrap().unwrap();
        calm(host, 0)?;
        assert_eq!((held, host.interrupt(1), host.stats(0).policy.as_str()), (1, 1, "none"));
        assert_eq!(host.stats(1).policy.split(':').next(), Some("nvme"));
        Some(())
    });
}

#[test]
fn what_the_host_has_reaped_is_known() {
    calmly(EIGHT, |host| {
        let (mut sq, mut cq) = host.pair(64);
        for i in 0..100 {
            assert_eq!(host.io((&mut sq, &mut cq), read(i, 1)), 0);
        }
        let stats = host.completed(0, 100);
        calm(host, 0)?;
        assert_eq!((stats.interrupts, stats.consumed + stats.held), (0, 100), "a host that polls needs no interrupt");
        Some(())
    });
}

#[test]
fn a_queue_is_deleted_after_the_interrupt_for_its_last_command() {
    calmly(EIGHT, |host| {
        let (mut sq, mut cq) = host.pair(64);
        for i in 0..5 {
            host.put(&mut sq, read(i, 1));
        }
        host.ring_sq(&sq);
        let held = host.completed(0, 5).held;
        assert_eq!(host.admin(Sqe::new(4).dword(10, 1)), (0x10c | DNR, 0), "the completion queue is in use");
        host.admin_ok(Sqe::new(0).dword(10, 1));
        let interrupts = host.interrupts(1);
        calm(host, 0)?;
        assert_eq!((held, interrupts), (5, 1));
        host.reap(&mut cq, 5);
        assert_eq!(host.admin(Sqe::new(0).dword(10, 1)), (0x101 | DNR, 0), "it is gone");
        host.admin_ok(Sqe::new(4).dword(10, 1));
        assert_eq!(host.admin(Sqe::new(4).dword(10, 1)), (0x101 | DNR, 0));
        let (mut sq, mut cq) = host.pair(64);
        assert_eq!(host.io((&mut sq, &mut cq), read(0, 1)), 0, "new queues work");
        Some(())
    });
}

#[test]
fn events_and_aborts() {
    let mut host = Host::new("none");
    let cids: Vec<_> = (0..4).map(|_| host.admin_submit(Sqe::new(0x0c))).collect();
    assert_eq!(host.admin(Sqe::new(0x0c)), (0x105 | DNR, 0), "one more than the limit");
    let abort = |sq: u16, cid: u16| Sqe::new(8).dword(10, u32::from(sq) | u32::from(cid) << 16);
    assert_eq!(host.admin_ok(abort(0, 999)), 1, "not aborted");
    assert_eq!(host.admin_ok(abort(1, cids[1])), 1);
    let abort = host.admin_submit(abort(0, cids[1]));
    let (first, second) = (host.admin_next(), host.admin_next());
    assert_eq!((first.cid, first.status), (cids[1], 0x07));
    assert_eq!((second.cid, second.result), (abort, 0));
    // The doorbell of a queue that does not exist.
    host.doorbell(4, 1);
    let event = host.admin_next();
    assert_eq!((event.cid, event.result), (cids[0], 0x0001_0000));
    host.doorbell(4, 1);
    assert_eq!(host.admin_peek(), None, "only once, until the log is read");
    let log = Sqe::new(2).prps(DATA, 0).dword(10, 1 | 15 << 16);
    host.admin_ok(log.dword(10, log.0[10] | 1 << 15));
    assert_eq!(host.bytes(DATA, 16), [2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    host.doorbell(4, 1);
    assert_eq!(host.admin_peek(), None, "the log was read, and the event retained");
    host.admin_ok(log);
    host.doorbell(5, 1);
    assert_eq!(host.admin_next().cid, cids[2]);
    host.disable();
    host.enable();
    assert_eq!(host.admin_peek(), None, "a reset forgets requests");
}

/// Feature 04h against 300 K, SMART / Health Information, and the event that Feature 0Bh asks for.
#[test]
fn a_temperature_threshold_that_is_reached_is_a_warning_and_an_event() {
    const TEMPERATURE: u8 = 4;
    const HEALTH: u32 = 2 | 127 << 16;
    let mut host = Host::new("none");
    let warning = |host: &mut Host, dword_10| {
        host.admin_ok(Sqe::new(2).prps(DATA, 0).dword(10, dword_10));
        host.bytes(DATA, 1)[0]
    };
    let set = |host: &mut Host, feature: u8, value: u32| {
        host.admin_submit(Sqe::new(9).dword(10, feature.into()).dword(11, value));
        host.admin_next()
    };
    let requests: Vec<_> = (0..3).map(|_| host.admin_submit(Sqe::new(0x0c))).collect();
    assert_eq!(warning(&mut host, HEALTH), 0);
    for (value, is_hot) in [(300, true), (301, false), (1 << 20 | 300, true), (1 << 20 | 299, false), (299, true)] {
        set(&mut host, TEMPERATURE, value);
        assert_eq!(warning(&mut host, HEALTH), if is_hot { 2 } else { 0 }, "{value:#x}");
        assert_eq!(host.admin_peek(), None, "nobody asked for the event");
    }
    let event = |cqe: Cqe| (cqe.cid, cqe.result);
    assert_eq!(event(set(&mut host, 0x0b, 2)), (requests[0], 0x0002_0101), "it is hot already");
    host.admin_next();
    set(&mut host, TEMPERATURE, 200);
    assert_eq!(host.admin_peek(), None, "only once, until the log is read");
    assert_eq!(warning(&mut host, HEALTH | 1 << 15), 2);
    set(&mut host, TEMPERATURE, 201);
    assert_eq!(host.admin_peek(), None, "the log was read, and the event retained");
    assert_eq!(warning(&mut host, HEALTH), 2);
    assert_eq!(event(set(&mut host, TEMPERATURE, 202)), (requests[1], 0x0002_0101));
    host.admin_next();
    host.doorbell(4, 1);
    assert_eq!(event(host.admin_next()), (requests[2], 0x0001_0000), "an event of another type is not held up");
    host.disable();
    host.enable();
    assert_eq!((host.get_feature(TEMPERATURE, 0), warning(&mut host, HEALTH)), ((0, 343), 0));
}

#[test]
fn a_shutdown_completes_what_is_in_flight_and_interrupts_for_it() {
    calmly(EIGHT, shut_down);
}

fn shut_down(host: &mut Host) -> Option<()> {
    let (mut sq, mut cq) = host.pair(64);
    for i in 0..5 {
        host.put(&mut sq, read(i, 1));
    }
    host.ring_sq(&sq);
    let held = host.completed(0, 5).held;
    host.set32(0x14, 0x0046_4001);
    host.wait_csts(0xc, 0x8);
    let interrupts = host.interrupts(1);
    calm(host, 0)?;
    assert_eq!((held, interrupts), (5, 1));
    host.reap(&mut cq, 5);
    assert_eq!(host.stats(0).device.flushes, 1);
    host.submit(&mut sq, read(0, 1));
    sleep(QUIET);
    assert_eq!(host.peek(&mut cq), None, "nothing is fetched any more");
    host.disable();
    assert_eq!(host.get32(0x1c), 0);
    host.enable();
    let (mut sq, mut cq) = host.pair(64);
    assert_eq!(host.io((&mut sq, &mut cq), read(0, 1)), 0);
    Some(())
}

#[test]
fn without_bus_mastering_nothing_is_fetched() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    host.controller.set_bus_master(false);
    host.submit(&mut sq, read(0, 1));
    host.admin_submit(Sqe::new(6).prps(DATA, 0).dword(10, 1));
    sleep(QUIET);
    assert_eq!((host.peek(&mut cq), host.admin_peek()), (None, None));
    host.controller.set_bus_master(true);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    assert_eq!(host.admin_next().status, 0);
}
