//! Hostile guests, front ends and local users: whatever they do, only their own disk or connection fails. The process and the
//! other disks go on, memory is bounded, and what a guest does is counted.

mod raw;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use raw::*;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// Memory that an attack may leave behind, in KiB: what allocators keep, not what attackers choose.
const GROWTH_MAX: [u64; 2] = [48 << 10, 160 << 10];

/// A test for each row of a table, in a module of the name of what it runs: its name, and what `run` is given.
macro_rules! rows {
    ($run:ident, $(($name:ident, $($part:expr),+ $(,)?)),+ $(,)?) => {
        mod $run {
            #[allow(unused_imports)] // of which a table of numbers needs none
            use super::*;

            $(
                #[test]
                fn $name() {
                    super::$run($($part),+);
                }
            )+
        }
    };
}

/// A target with a disk to attack, `victim`, and one that must not notice, `other`. At its end it checks that all is well.
struct Arena {
    target: Target,
    memory: [u64; 2],
    files: usize,
    is_over: bool,
}

impl Arena {
    fn new(policy: &str) -> Self {
        let arena = Self::with(Disk::memory("victim", "1M").policy("none"));
        arena.target.set_policy("victim", policy); // one that holds for a minute must not hold what a slow machine begins with
        arena
    }

    fn with(victim: Disk) -> Self {
        Self::on(Target::start(&[victim, Disk::memory("other", "1M")]))
    }

    /// The victim is an image of `mib` MiB, with what `change` adds to its configuration.
    fn with_image(mib: u64, change: fn(Disk) -> Disk) -> (Self, PathBuf) {
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let victim = change(Disk::file("victim", &image).policy("none"));
        (Self::on(Target::start_in(directory, &[victim, Disk::memory("other", "1M")])), image)
    }

    fn of_image() -> Self {
        Self::with_image(1, |victim| victim).0
    }

    /// Another target may take over the guest of the victim.
    fn migratable() -> Self {
        Self::with_image(1, Disk::migratable).0
    }

    fn on(target: Target) -> Self {
        assert_serves(&target.path("victim"));
        assert_serves(&target.path("other"));
        wait_until("nobody is connected", || connected(&target).is_empty());
        let (memory, files) = (target.memory(), target.open_files());
        Self { target, memory, files, is_over: false }
    }

    fn driver(&self, size: u16) -> Driver {
        Driver::start(&self.target.path("victim"), &Setup::new(1, size))
    }

    fn wire(&self) -> Wire {
        Wire::connect(&self.target.path("victim"))
    }

    fn counted(&self, what: &str) -> u64 {
        self.target.count("victim", 0, what)
    }

    /// SIGTERM ends the target, whatever is done to it.
    fn stop(mut self) {
        self.is_over = true;
        self.target.signal(Signal::SIGTERM);
        assert!(self.target.wait().success());
    }

    /// After an attack, when the attacker has gone: all is well. Also the victim's own disk serves the next front end.
    fn assert_unharmed(&mut self) {
        self.target.assert_sound();
        assert_serves(&self.target.path("other"));
        wait_until("the attacker's connection is closed", || connected(&self.target).is_empty());
        assert_serves(&self.target.path("victim"));
        wait_until("nobody is connected", || connected(&self.target).is_empty());
        self.target.assert_sound();
        let memory = self.target.memory();
        for ((now, before), most) in memory.into_iter().zip(self.memory).zip(GROWTH_MAX) {
            assert!(now < before + most, "VmRSS, VmData in KiB: {:?}, then {memory:?}", self.memory);
        }
        wait_until("its files are closed", || self.target.open_files() <= self.files + 1);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if !self.is_over && !std::thread::panicking() {
            self.assert_unharmed();
        }
    }
}

fn connected(target: &Target) -> Vec<Value> {
    let list = target.call("list", &json!({})).unwrap();
    list.as_array().unwrap().iter().filter(|disk| disk["connected"] == true).cloned().collect()
}

// ---------------------------------------------------------------------------------------------------------------------
// Chains
// ---------------------------------------------------------------------------------------------------------------------

/// How a request must fail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    /// There is no place for a status.
    Malformed,
    /// With this status.
    With(u8),
}

/// The table of an indirect descriptor is put at `at`. The descriptor.
fn table(queue: &Queue, at: u64, entries: &[Desc]) -> Desc {
    queue.write(at, &entries.iter().flat_map(|entry| entry.bytes()).collect::<Vec<_>>());
    Desc(at, 16 * entries.len() as u32, INDIRECT, 0)
}

/// Offers the same descriptor at `n` heads.
fn offer_heads(queue: &mut Queue, n: u16, desc: Desc) {
    for head in 0..n {
        queue.write_desc(head, desc);
        queue.offer(head);
    }
    queue.publish();
}

/// Chains that are no request, or a request that cannot be done. Ring size is 16; the header reads 512 bytes of sector 0.
fn bad_chains(queue: &Queue) -> Vec<(&'static str, Vec<Desc>, Fails)> {
    use Fails::{Malformed, With};
    let (head, data, status) = ((queue.header(0), 16, 0), (queue.data(0), 512, WRITE), (queue.status_at(0), 1, WRITE));
    let end = queue.end_of_memory();
    let usual = chained(&[head, data, status]);
    let at = queue.data(8);
    table(queue, at, &usual);
    let indirect = |at, len| vec![Desc(at, len, INDIRECT, 0)];
    let looping = queue.data(9);
    queue.write(looping, &Desc(queue.header(0), 16, NEXT, 0).bytes());
    let nested = queue.data(10);
    queue.write(nested, &Desc(at, 48, INDIRECT, 0).bytes());
    let leading_out = queue.data(11);
    queue.write(leading_out, &Desc(queue.header(0), 16, NEXT, 3).bytes());
    let half_out = end - 16;
    queue.write(half_out, &Desc(queue.header(0), 16, NEXT, 1).bytes());
    vec![
        ("loops to itself", vec![Desc(head.0, 16, NEXT, 0)], Malformed),
        ("loops over two", vec![Desc(head.0, 16, NEXT, 1), Desc(head.0, 16, NEXT, 0)], Malformed),
        ("loops, writable", vec![Desc(head.0, 16, NEXT, 1), Desc(data.0, 8, NEXT | WRITE, 1)], Malformed),
        ("next is just outside the table", vec![Desc(head.0, 16, NEXT, 16)], Malformed),
        ("next is far outside the table", vec![Desc(head.0, 16, NEXT, u16::MAX)], Malformed),
        ("nothing but a header", chained(&[head]), Malformed),
        ("no status byte", chained(&[head, (data.0, 512, 0)]), Malformed),
        ("a status of no bytes", chained(&[head, (status.0, 0, WRITE)]), Malformed),
        ("nothing at all", chained(&[(head.0, 0, 0)]), Malformed),
        ("the status is outside memory", chained(&[head, data, (end, 1, WRITE)]), Malformed),
        ("the status is at the end of the address space", chained(&[head, data, (u64::MAX, 1, WRITE)]), Malformed),
        ("the status wraps", chained(&[head, (u64::MAX - 3, 8, WRITE)]), Malformed),
        ("an empty indirect table", indirect(at, 0), Malformed),
        ("half an indirect descriptor", indirect(at, 8), Malformed),
        ("an indirect table of one and a half", indirect(at, 24), Malformed),
        ("an indirect table outside memory", indirect(end, 48), Malformed),
        ("an indirect table that leaves memory", indirect(half_out, 48), Malformed),
        ("an indirect table at the end of the address space", indirect(u64::MAX - 15, 48), Malformed),
        ("an indirect table that loops", indirect(looping, 16 * 65535), Malformed),
        ("an indirect table that leads out of itself", indirect(leading_out, 48), Malformed),
        ("a nested indirect table", indirect(nested, 16), Malformed),
        ("readable after writable", chained(&[head, data, (head.0, 16, 0), status]), With(IOERR)),
        ("header after status", chained(&[status, head]), With(IOERR)),
        ("8 GiB", chained(&[head, (data.0, u32::MAX, WRITE), (data.0, u32::MAX, WRITE), status]), With(IOERR)),
        ("the header is outside memory", chained(&[(end, 16, 0), data, status]), With(IOERR)),
        ("the header leaves memory", chained(&[(end - 8, 16, 0), data, status]), With(IOERR)),
        ("the header wraps", chained(&[(u64::MAX - 7, 16, 0), data, status]), With(IOERR)),
        ("the header is too short", chained(&[(head.0, 15, 0), data, status]), With(IOERR)),
        ("no header", chained(&[(head.0, 0, 0), data, status]), With(IOERR)),
        ("no readable part", chained(&[data, status]), With(IOERR)),
        ("data outside memory", chained(&[head, (end, 512, WRITE), status]), With(IOERR)),
        ("data below memory", chained(&[head, (0, 512, WRITE), status]), With(IOERR)),
        ("data that leaves memory", chained(&[head, (end - 511, 512, WRITE), status]), With(IOERR)),
        ("data that wraps", chained(&[head, (u64::MAX - 255, 512, WRITE), status]), With(IOERR)),
        ("4 GiB of data", chained(&[head, (data.0, u32::MAX - 1023, WRITE), status]), With(IOERR)),
        ("data outside memory between good data", chained(&[head, data, (end, 512, WRITE), data, status]), With(IOERR)),
        ("data to be read in a read", chained(&[head, (data.0, 512, 0), data, status]), With(IOERR)),
    ]
}

rows!(
    a_bad_chain_fails_alone_and_is_counted,
    (none, "none"),
    (cint, "cint:ooo=on"),
    (auto, "auto"),
    (nvme, "nvme"),
    (vic, "vic"),
    (batch, "batch"),
);

fn a_bad_chain_fails_alone_and_is_counted(policy: &str) {
    let arena = Arena::new(policy);
    let mut driver = arena.driver(16);
    let queue = driver.queue();
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    for (name, chain, fails) in bad_chains(queue) {
        let before = [arena.counted("device/failed"), arena.counted("device/malformed")];
        queue.write(queue.status_at(0), &[0xAA]);
        let used = queue.run_chain(&chain);
        let expected = if fails == Fails::Malformed { (0, 0xAA) } else { (1, IOERR) };
        assert_eq!((used.len, queue.status(0)), expected, "{name}");
        let after = [arena.counted("device/failed"), arena.counted("device/malformed")];
        let counted = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(counted, [1, u64::from(fails == Fails::Malformed)], "{name}: failed, malformed");
        queue.write(queue.header(0), &header(T_IN, 0, 0));
    }
    assert_eq!(queue.run(Op::Flush).status, OK, "the queue goes on");
    assert_eq!(arena.counted("device/broken_rings"), 0);
}

#[test]
fn a_bad_chain_between_good_ones_does_not_delay_them() {
    let arena = Arena::new("auto");
    let mut driver = arena.driver(256);
    let queue = driver.queue();
    for _ in 0..20 {
        queue.offer_many(20, &Op::Read(0, 512));
        queue.write_desc(100, Desc(queue.header(40), 16, NEXT, 100));
        queue.offer(100);
        for slot in 20..33 {
            let head = queue.prepare(slot, &Op::Flush);
            queue.offer(head);
        }
        queue.publish();
        assert_eq!(queue.wait(34).len(), 34);
        assert!((0..33).all(|slot| queue.status(slot) == OK));
    }
    assert_eq!(arena.counted("device/malformed"), 20);
}

/// An indirect table at an address, of a write with so many descriptors.
fn long_table(queue: &Queue, at: u64, descriptors: u64) {
    queue.write(queue.header(0), &header(T_OUT, 0, 0));
    let last = descriptors - 1;
    let mut entries = vec![Desc(queue.header(0), 16, NEXT, 1)];
    entries.extend((1..last).map(|i| Desc(queue.data(0), 512, NEXT, i as u16 + 1)));
    entries.push(Desc(queue.status_at(0), 1, WRITE, 0));
    table(queue, at, &entries);
}

/// A driver looks at the status, which is written whatever the length of a chain.
#[test]
fn a_chain_of_any_length_ends_with_a_status() {
    let arena = Arena::new("none");
    let setup = Setup::new(1, 1024);
    let at = setup.spare();
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    let queue = driver.queue();
    let check = |queue: &mut Queue, first: &[Desc], len: u64| {
        queue.write(queue.status_at(0), &[0xAA]);
        let used = queue.run_chain(first);
        let status = if len <= 1026 { OK } else { IOERR };
        assert_eq!((used.len, queue.status(0)), (1, status), "{len} descriptors");
    };
    for len in [3, 1024, 1025, 1026, 1027, 1028, 1100, 4096, 65534, 65535, 65536] {
        long_table(queue, at, len);
        check(queue, &[Desc(at, 16 * len as u32, INDIRECT, 0)], len);
    }
    long_table(queue, at, 3);
    check(queue, &[Desc(at, !15, INDIRECT, 0)], 3); // a table may be longer than its chain
    for len in [2, 3, 4, 5, 65535] {
        long_table(queue, at, len);
        let mut direct = vec![Desc(queue.header(0), 16, NEXT, 1)];
        direct.extend((1..1023).map(|i| Desc(queue.data(0), 512, NEXT, i + 1)));
        queue.write(at, &Desc(queue.data(0), 512, NEXT, 1).bytes());
        direct.push(Desc(at, 16 * len as u32, INDIRECT, 0));
        check(queue, &direct, 1023 + len);
    }
    assert_eq!(arena.counted("device/malformed"), 0);
}

/// To find the end of a chain takes time. Others are not kept waiting for many such chains.
#[test]
fn chains_that_are_too_long_are_walked_one_in_a_turn() {
    let arena = Arena::new("none");
    let setup = Setup::new(1, 64);
    let at = setup.spare();
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    let queue = driver.queue();
    long_table(queue, at, 65536);
    offer_heads(queue, 64, Desc(at, 65536 * 16, INDIRECT, 0));
    let mut seen = std::collections::BTreeSet::new();
    wait_until("they end", || {
        let turn = std::time::Instant::now(); // shorter than a walk, which is what the wait between two looks is not
        while turn.elapsed() < Duration::from_millis(50) {
            seen.insert(queue.used_idx());
        }
        seen.contains(&64)
    });
    assert!(seen.len() > 8, "completed so far, at each look: {seen:?}");
    assert_eq!((queue.wait(64).len(), queue.status(0)), (64, IOERR));
}

/// A ring full of what takes long for each byte that it moves, and one request of another queue of the same thread, which comes behind:
/// it waits for few of them. How many is counted later, when more may have completed, so there are many tries.
fn check_overtakes(driver: &mut Driver, heads: &[u16]) {
    let (flood, one) = driver.queues.split_at_mut(1);
    let (flood, one) = (&mut flood[0], &mut one[0]);
    let tries = (0..100).map(|_| {
        let start = flood.used_idx();
        heads.iter().for_each(|&head| flood.offer(head));
        flood.publish();
        assert_eq!(one.run(Op::Read(0, 512)).status, OK);
        let completed = usize::from(flood.used_idx().wrapping_sub(start));
        wait_until("the others end", || usize::from(flood.used_idx().wrapping_sub(start)) == heads.len());
        flood.take_all();
        completed
    });
    assert_eq!(tries.filter(|&completed| completed < 64).take(6).count(), 6, "of 100");
}

/// A request of no bytes may have as many descriptors as any.
#[test]
fn many_descriptors_without_bytes_keep_no_other_queue_waiting() {
    let arena = Arena::with(Disk::memory("victim", "1M").policy("none").queues(2));
    let setup = Setup::new(2, 1024);
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    let queue = &driver.queues[0];
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    let mut parts = vec![(queue.header(0), 16, 0)];
    parts.extend([(queue.data(0), 0, WRITE); 1024]);
    parts.push((queue.status_at(0), 1, WRITE));
    let chain = table(queue, setup.spare(), &chained(&parts));
    (0..1024).for_each(|head| queue.write_desc(head, chain));
    let heads: Vec<_> = (0..1024).collect();
    check_overtakes(&mut driver, &heads);
    assert_eq!(driver.queues[0].status(0), OK);
}

#[test]
fn large_ranges_of_zeroes_keep_no_other_queue_waiting() {
    let arena = Arena::with(Disk::memory("victim", "64M").policy("none").queues(2));
    let mut driver = Driver::start(&arena.target.path("victim"), &Setup::new(2, 1024));
    for op in [Op::WriteZeroes(1, (64 << 11) - 2, 0), Op::Discard(0, 64 << 11, 0)] {
        let heads: Vec<_> = (0..340).map(|slot| driver.queues[0].prepare(slot, &op)).collect();
        check_overtakes(&mut driver, &heads);
        assert_eq!(driver.queues[0].status(339), OK);
    }
}

#[test]
fn ranges_of_discard_and_write_zeroes_are_checked() {
    let arena = Arena::new("none");
    let mut driver = arena.driver(64);
    let queue = driver.queue();
    queue.write(queue.data(0), &[0; 64]);
    for kind in [T_DISCARD, T_WRITE_ZEROES] {
        for len in [0, 1, 15, 17, 32, 4096] {
            queue.write(queue.header(0), &header(kind, 0, 0));
            let parts = [(queue.header(0), 16, 0), (queue.data(0), len, 0), (queue.status_at(0), 1, WRITE)];
            queue.run_chain(&chained(&parts));
            assert_eq!(queue.status(0), IOERR, "type {kind}, a range of {len} bytes");
        }
        let outside = (queue.end_of_memory() - 8, 16, 0);
        queue.run_chain(&chained(&[(queue.header(0), 16, 0), outside, (queue.status_at(0), 1, WRITE)]));
        assert_eq!(queue.status(0), IOERR);
    }
    for (sector, sectors) in [(0, u32::MAX), (0, 2049), (2048, 1), (u64::MAX, u32::MAX), (1 << 55, 1), (2047, 2)] {
        assert_eq!(queue.run(Op::Discard(sector, sectors, 0)).status, IOERR);
        assert_eq!(queue.run(Op::WriteZeroes(sector, sectors, 1)).status, IOERR);
        assert_ne!(queue.run(Op::WriteZeroes(sector, sectors, u32::MAX)).status, OK);
    }
}

/// What lies behind the disk is not to be seen, in whatever framing.
#[test]
fn nothing_outside_the_disk_is_read_or_written() {
    let arena = Arena::new("none");
    let mut driver = arena.driver(64);
    let queue = driver.queue();
    for sector in [2048, 2047, u64::MAX / 512 + 1, u64::MAX - 1, 1 << 54, (1 << 55) + 1] {
        for kind in [T_IN, T_OUT] {
            queue.write(queue.header(0), &header(kind, 0, sector));
            queue.write(queue.data(0), &[0xEE; 1024]);
            let flags = if kind == T_IN { WRITE } else { 0 };
            let (first, second) = ((queue.data(0), 512, flags), (queue.data(0) + 512, 512, flags));
            queue.run_chain(&chained(&[(queue.header(0), 16, 0), first, second, (queue.status_at(0), 1, WRITE)]));
            assert_eq!(queue.status(0), IOERR, "sector {sector}");
            assert_eq!(queue.read(queue.data(0), 1024), [0xEE; 1024], "sector {sector}: nothing comes back");
        }
    }
}

rows!(
    long_chains_on_all_queues_leave_no_memory_behind,
    (of_a_byte_each, Arena::with_image(1, |victim| victim.queues(16)).0, 16, OK, |setup, _| {
        let data = setup.spare() + (1 << 19);
        [vec![(data, 1, WRITE); 1019], vec![(data, 5, WRITE)]].concat()
    }),
    (more_than_the_disk_has_which_is_found_out_late, Arena::new("none"), 1, IOERR, over_32_regions),
    (on_a_disk_that_has_as_much, Arena::with_image(256, |victim| victim).0, 1, IOERR, over_32_regions),
    (that_succeed, Arena::with(Disk::memory("victim", "64M").policy("none")), 1, OK, |_, end| {
        (0..512).map(|i| (end + (i % 30 + 1) * 4096 - 512, 1024, WRITE)).collect() // each over two regions
    }),
);

/// A part of a chain: address, length, flags.
type Part = (u64, u32, u16);

/// 1022 buffers that lie in 32 regions each, 124 KiB in all.
fn over_32_regions(_: &Setup, end: u64) -> Vec<Part> {
    vec![(end - 512, 31 * 4096 + 512, WRITE); 1022]
}

/// Every queue is full of reads into `data`, for which there are 31 regions of a page behind the `end` of the usual memory. What a
/// request keeps of its chain is bounded by what is in flight, not by what the guest makes of it, and is given back.
fn long_chains_on_all_queues_leave_no_memory_behind(
    arena: Arena,
    queues: usize,
    status: u8,
    data: fn(&Setup, u64) -> Vec<Part>,
) {
    let mut setup = Setup::new(queues, 1024);
    let end = GUEST + setup.regions[0].size;
    setup.regions.extend((0..31).map(|i| Region::new(end + i * 4096, 4096)));
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    let queue = driver.queue();
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    let parts = [vec![(queue.header(0), 16, 0)], data(&setup, end), vec![(queue.status_at(0), 1, WRITE)]].concat();
    let chain = table(queue, setup.spare(), &chained(&parts));
    driver.queues.iter_mut().for_each(|queue| offer_heads(queue, 1024, chain));
    for queue in &mut driver.queues {
        assert_eq!(queue.wait(1024).len(), 1024);
    }
    assert_eq!(driver.queue().status(0), status);
}

// ---------------------------------------------------------------------------------------------------------------------
// Rings
// ---------------------------------------------------------------------------------------------------------------------

rows!(
    a_broken_ring_delivers_rests_is_reported_and_can_be_started_again,
    (the_index_jumps_by_one_too_much, |queue| queue.set_avail_idx(16 + 65), "the available index"),
    (the_index_jumps_far, |queue| queue.set_avail_idx(16 + 0x8000), "the available index"),
    (the_index_goes_back, |queue| queue.set_avail_idx(15), "the available index"),
    (the_index_goes_back_to_the_start, |queue| queue.set_avail_idx(0), "the available index"),
    (a_head_just_outside_the_table, |queue| offer_one(queue, 64), "descriptor"),
    (a_head_far_outside_the_table, |queue| offer_one(queue, u16::MAX), "descriptor"),
);

fn offer_one(queue: &mut Queue, head: u16) {
    queue.offer(head);
    queue.set_avail_idx(queue.next_avail);
}

/// Breaks a ring of 64 entries of which 16 are used. Every error path delivers: what was posted before is good, and its requesters
/// wait.
fn a_broken_ring_delivers_rests_is_reported_and_can_be_started_again(break_ring: fn(&mut Queue), why: &str) {
    for (policy, held) in [("none", 0), (HOLD_FOREVER, 16)] {
        let arena = Arena::new(policy);
        let mut driver = arena.driver(64);
        let queue = driver.queue();
        if held > 0 {
            hold(queue, 16);
        } else {
            queue.offer_many(16, &Op::Read(0, 512));
            queue.publish();
            queue.wait(16);
        }
        wait_until("they are done", || (arena.counted("held"), queue.used_idx()) == (held, 16));
        let early = queue.count_interrupts();
        assert!(held == 0 || early == 0, "they are held");
        break_ring(queue);
        queue.kick();
        wait_until("it breaks", || arena.counted("device/broken_rings") == 1);
        assert_eq!(queue.count_interrupts(), held / 16, "one for all that was held");
        assert_eq!(queue.error.read(), Ok(1), "the front end is told");
        for _ in 0..100 {
            queue.kick();
        }
        assert_eq!(arena.counted("device/broken_rings"), 1, "once");
        assert_eq!(queue.used_idx(), 16, "nothing more is answered");
        let line = format!("victim: queue 0: the ring is broken: {why}");
        wait_until(&line, || arena.target.log().contains(&line));
        arena.target.set_policy("victim", "none");
        driver.stop_queue(0);
        driver.queue().reset();
        driver.start_queue(0);
        assert_eq!(driver.queue().run(Op::Flush).status, OK, "started again");
    }
}

#[test]
fn a_head_that_is_given_out_twice_is_answered_twice_at_most() {
    let arena = Arena::new("auto");
    let mut driver = arena.driver(64);
    let queue = driver.queue();
    let head = queue.prepare(0, &Op::Read(0, 512));
    for _ in 0..64 {
        queue.offer(head);
    }
    queue.publish();
    assert_eq!(queue.wait(64).len(), 64);
    assert_eq!(queue.run(Op::Flush).status, OK);
}

rows!(
    a_ring_of_another_layout_harms_no_other_disk,
    (used_over_available, |queue| queue.used = queue.avail),
    (used_over_descriptors, |queue| queue.used = queue.desc),
    (available_over_descriptors, |queue| queue.avail = queue.desc),
    (used_one_element_before_available, |queue| queue.used = queue.avail - 4),
    (all_at_one_place, |queue| (queue.avail, queue.used) = (queue.desc, queue.desc)),
);

fn a_ring_of_another_layout_harms_no_other_disk(lay: fn(&mut Queue)) {
    let arena = Arena::new("none");
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    lay(driver.queue());
    driver.start_queue(0);
    let queue = driver.queue();
    queue.prepare(0, &Op::Read(0, 512));
    for head in 0..8 {
        queue.offer(head);
    }
    queue.set_avail_idx(queue.next_avail);
    queue.kick();
    arena.target.stats("victim", 0); // it answers
    assert_serves(&arena.target.path("other"));
}

/// The available index is the used index, and always one ahead of the device: an endless supply of requests.
#[test]
fn a_ring_that_feeds_itself_can_be_stopped() {
    let arena = Arena::new("auto");
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    let queue = driver.queue();
    queue.used = queue.avail;
    queue.prepare(0, &Op::Read(0, 512));
    queue.set_avail_idx(1);
    driver.set_up_queue(0);
    driver.wire.tell(SET_VRING_BASE, &u32s(&[0, 0]), &[]).unwrap();
    driver.set_kick(0);
    driver.enable(0, true);
    wait_until("it runs", || arena.counted("completions") > 1000 || arena.counted("device/broken_rings") > 0);
    assert_serves(&arena.target.path("other"));
    driver.stop_queue(0);
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let mut arena = Arena::new("none");
    let end = GUEST + Setup::new(1, 64).regions[0].size;
    for (name, change) in [
        ("descriptors that leave memory", (|queue, end| queue.desc = end - 16) as fn(&mut Queue, u64)),
        ("available ring that leaves memory", |queue, end| queue.avail = end - 16),
        ("used ring that leaves memory", |queue, end| queue.used = end - 16),
        ("descriptors outside memory", |queue, end| queue.desc = end),
        ("descriptors misaligned", |queue, _| queue.desc += 8),
        ("available ring misaligned", |queue, _| queue.avail += 1),
        ("used ring misaligned", |queue, _| queue.used += 2),
        ("at the end of the address space", |queue, _| queue.desc = 0u64.wrapping_sub(FRONT_END).wrapping_sub(16)),
    ] {
        let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        change(driver.queue(), end);
        let queue = driver.queue();
        let addresses = [queue.desc, queue.used, queue.avail].map(|at| FRONT_END.wrapping_add(at));
        let mut payload = u32s(&[0, 0]);
        payload.extend(u64s(&addresses));
        payload.extend(u64s(&[0]));
        let _ = driver.wire.send(SET_VRING_NUM, VERSION, &u32s(&[0, 64]), &[]);
        let _ = driver.wire.send(SET_VRING_ADDR, VERSION, &payload, &[]);
        let _ = driver.wire.send(SET_VRING_KICK, VERSION, &u64s(&[0]), &[driver.queues[0].kick.as_raw_fd()]);
        assert!(driver.wire.ask(GET_FEATURES, &[]).is_err(), "{name}");
        arena.assert_unharmed();
    }
    for size in [0, 3, 63, 2048, 32768, 65535, 65536, u32::MAX] {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        assert!(driver.wire.tell(SET_VRING_NUM, &u32s(&[0, size]), &[]).is_err(), "size {size}");
    }
    for base in [65536, u32::MAX] {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        assert!(driver.wire.tell(SET_VRING_BASE, &u32s(&[0, base]), &[]).is_err(), "base {base}");
    }
    for index in [1, 2, 255, 65536, u32::MAX] {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        assert!(driver.wire.tell(SET_VRING_NUM, &u32s(&[index, 64]), &[]).is_err(), "queue {index}");
    }
}

#[test]
fn a_ring_is_not_started_with_parts_missing() {
    let arena = Arena::new("none");
    for missing in [SET_MEM_TABLE, SET_VRING_NUM, SET_VRING_ADDR] {
        let wire = arena.wire();
        let setup = Setup::new(1, 64);
        let features = wire.negotiate(!0).unwrap();
        let driver = Driver::on(wire, features, &setup);
        let files = [setup.regions[0].file.as_raw_fd()];
        for (message, payload, files) in [
            (SET_MEM_TABLE, memory_table(&setup.regions), &files[..]),
            (SET_VRING_NUM, u32s(&[0, 64]), &[]),
            (SET_VRING_ADDR, driver.ring_addresses(0), &[]),
        ] {
            if message != missing {
                let _ = driver.wire.send(message, VERSION, &payload, files);
            }
        }
        let _ = driver.wire.send(SET_VRING_KICK, VERSION, &u64s(&[0]), &[driver.queues[0].kick.as_raw_fd()]);
        let _ = driver.wire.send(SET_VRING_ENABLE, VERSION, &u32s(&[0, 1]), &[]);
        driver.queues[0].kick.write(1).unwrap();
    }
}

/// Also when a check fails: a thread that never ends would hide that.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_flood_of_kicks_disturbs_no_other_disk() {
    let arena = Arena::new("none");
    let mut driver = arena.driver(64);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let kick = &driver.queues[0].kick;
        let until_the_end = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = kick.write(1);
            }
        });
        for _ in 0..20 {
            assert_serves(&arena.target.path("other"));
        }
        driver.wire.ask(GET_FEATURES, &[]).unwrap();
        drop(until_the_end);
    });
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
}

/// A kick may be just being noticed when nobody wants to hear of it any more.
#[test]
fn a_flood_of_kicks_does_not_keep_a_ring_from_being_stopped() {
    let arena = Arena::new("none");
    let mut driver = arena.driver(64);
    let stop = AtomicBool::new(false);
    let kick = driver.queue().kick.as_fd().try_clone_to_owned().unwrap();
    std::thread::scope(|scope| {
        let until_the_end = SetOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = nix::unistd::write(&kick, &1_u64.to_ne_bytes());
            }
        });
        for _ in 0..3000 {
            driver.stop_queue(0);
            driver.start_queue(0);
        }
        drop(until_the_end);
    });
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
}

// ---------------------------------------------------------------------------------------------------------------------
// A guest that changes everything all the time
// ---------------------------------------------------------------------------------------------------------------------

/// A descriptor that is more or less wrong.
fn random_desc(random: &mut Random, queue: &Queue) -> Desc {
    let near = queue.desc + random.below(0x2_0000);
    let address = random.pick(&[near, queue.header(1), queue.data(2), queue.avail, queue.used, queue.end_of_memory()]);
    let address = if random.below(16) == 0 { random.next() << 16 | random.next() } else { address };
    let len = random.pick(&[0, 1, 15, 16, 17, 512, 513, 4096, 1 << 20, u32::MAX, 16 * 8]);
    let flags = random.pick(&[0, NEXT, NEXT, NEXT, WRITE, NEXT | WRITE, NEXT | WRITE, INDIRECT, 7, 0xFFFF]);
    Desc(address, len, flags, random.below(20) as u16)
}

/// One step of a guest that does not care: descriptors, headers, heads, indices, events.
fn random_step(random: &mut Random, queue: &mut Queue) {
    for _ in 0..random.below(12) {
        let desc = random_desc(random, queue);
        queue.write_desc(random.below(16) as u16, desc);
    }
    let kind = random.pick(&[T_IN, T_OUT, T_FLUSH, T_GET_ID, T_DISCARD, T_WRITE_ZEROES, 99]);
    let sector = random.pick(&[0, 1, 2047, 2048, u64::MAX]);
    queue.write(queue.header(1), &header(kind, random.next() as u32, sector));
    for _ in 0..random.below(16) {
        let head = random.below(17) as u16;
        queue.offer(head);
    }
    let index = if random.below(40) == 0 { random.next() as u16 } else { queue.next_avail };
    queue.set_avail_idx(index);
    queue.set_used_event(random.next() as u16);
    queue.set_no_interrupt(random.below(2) == 0);
    queue.kick();
}

rows!(
    a_guest_that_writes_at_random_harms_only_itself,
    (none, 0, "none"),
    (cint, 1, "cint:ooo=on"),
    (auto, 2, "auto"),
    (strict, 3, "auto:hints=all,barrier=strict"),
    (vic, 4, "vic"),
    (dim, 5, "dim"),
    (batch, 6, "batch"),
    (spdk_vhost, 7, "spdk_vhost"),
    (nvme, 8, "nvme"),
);

/// After each step the device has nothing left to do, or has broken the ring; then the driver begins again.
fn a_guest_that_writes_at_random_harms_only_itself(seed: u64, policy: &str) {
    let mut arena = Arena::new(policy);
    let mut random = Random(0xBAD_5EED + seed);
    for event_idx in [true, false] {
        let setup = Setup::new(1, 16).event_idx(event_idx);
        let mut driver = Driver::start(&arena.target.path("victim"), &setup);
        for _ in 0..60 {
            random_step(&mut random, driver.queue());
            if random.below(3) == 0 {
                driver.stop_queue(0);
                driver.queue().reset();
                driver.start_queue(0);
            }
        }
        drop(driver);
        arena.target.assert_sound();
    }
}

rows!(
    a_guest_that_changes_descriptors_in_flight_harms_only_itself,
    (of_a_memory_disk, Arena::new("auto"), false),
    (of_an_image, Arena::of_image(), false),
    (while_they_are_logged, Arena::migratable(), true), // they leave marks where they will, and nothing else
);

fn a_guest_that_changes_descriptors_in_flight_harms_only_itself(arena: Arena, is_logged: bool) {
    let mut driver = arena.driver(16);
    if is_logged {
        let log = Log::new(driver.queues[0].end_of_memory());
        log.share(&driver.wire).unwrap();
        assert_eq!(driver.queue().run(Op::Read(0, 4096)).status, OK);
        assert_eq!(log.take().len(), 2, "it is logged");
    }
    let stop = AtomicBool::new(false);
    let scribbler = Scribbler { desc: driver.queues[0].desc, memory: driver.queues[0].memory.clone() };
    std::thread::scope(|scope| {
        scope.spawn(|| scribbler.run(&stop));
        let queue = driver.queue();
        for _ in 0..2000 {
            queue.offer_many(5, &Op::Read(0, 4096));
            queue.set_avail_idx(queue.next_avail);
            queue.kick();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Writes into descriptors while a device reads them.
struct Scribbler {
    desc: u64,
    memory: std::sync::Arc<vm_memory::GuestMemoryMmap>,
}

impl Scribbler {
    fn run(&self, stop: &AtomicBool) {
        use vm_memory::Bytes as _;
        let mut random = Random(77);
        while !stop.load(Ordering::Relaxed) {
            let at = self.desc + 16 * random.below(16) + random.pick(&[0, 4, 8, 12, 14]);
            let value = random.pick(&[0, 1, 2, 3, 4, 16, 512, 4096, 0xFFFF, u32::MAX]);
            self.memory.write_obj(value, vm_memory::GuestAddress(at)).unwrap();
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Memory that goes away
// ---------------------------------------------------------------------------------------------------------------------

/// Reads of 1 MiB into `to`, as many as the ring has room for.
fn offer_large(queue: &mut Queue, to: u64) {
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    for slot in 0..queue.size / 4 {
        let parts = [(queue.header(0), 16, 0), (to, 1 << 20, WRITE), (queue.status_at(slot), 1, WRITE)];
        queue.write_chain(slot * 4, &chained(&parts));
        queue.offer(slot * 4);
    }
    queue.publish();
}

rows!(
    memory_that_is_removed_while_requests_are_in_flight_stays_until_they_end,
    (of_a_memory_disk, Arena::new("none")),
    (of_an_image, Arena::of_image()),
);

fn memory_that_is_removed_while_requests_are_in_flight_stays_until_they_end(arena: Arena) {
    for _ in 0..10 {
        let mut driver = arena.driver(64);
        let data = Region::new(GUEST - (4 << 20), 2 << 20);
        let mut payload = u64s(&[0]);
        payload.extend(data.payload());
        driver.wire.tell(ADD_MEM_REG, &payload, &[data.file.as_raw_fd()]).unwrap();
        offer_large(driver.queue(), data.start);
        driver.wire.tell(REM_MEM_REG, &payload, &[]).unwrap();
        assert_eq!(driver.queue().wait(16).len(), 16, "each is answered, well or not");
        assert!((0..16).all(|slot| [OK, IOERR].contains(&driver.queues[0].status(slot))));
        let spare = driver.setup.spare();
        offer_large(driver.queue(), spare);
        driver.share_memory(); // the same again, mapped anew
        assert_eq!(driver.queue().wait(16).len(), 16);
    }
}

rows!(
    a_ring_whose_memory_is_removed_delivers_and_rests,
    (one_region, |driver| {
        driver.wire.tell(REM_MEM_REG, &[u64s(&[0]), driver.setup.regions[0].payload()].concat(), &[])
    }),
    (the_whole_table, |driver| {
        let other = [Region::new(1 << 40, 4096)];
        driver.wire.tell(SET_MEM_TABLE, &memory_table(&other), &[other[0].file.as_raw_fd()])
    }),
);

fn a_ring_whose_memory_is_removed_delivers_and_rests(remove: fn(&Driver) -> std::io::Result<()>) {
    let arena = Arena::new(HOLD_FOREVER);
    let mut driver = arena.driver(64);
    hold(driver.queue(), 8);
    wait_until("held", || arena.counted("held") == 8);
    remove(&driver).unwrap();
    assert_eq!(driver.queue().count_interrupts(), 1, "what was posted before has its interrupt");
    let kicks = arena.counted("device/kicks");
    driver.queue().offer_many(4, &Op::Read(0, 512));
    driver.queue().publish();
    driver.queue().kick();
    wait_until("the kick is seen", || arena.counted("device/kicks") > kicks);
    assert_eq!(arena.counted("device/broken_rings"), 0);
    assert_eq!(driver.stop_queue(0), 8);
    arena.target.set_policy("victim", "none");
}

/// A region of requests in flight that lies, and memory that is mapped anew before what it says is taken over.
#[test]
fn requests_that_are_taken_over_use_the_memory_of_now() {
    use std::os::unix::fs::FileExt as _;
    let arena = Arena::new("none");
    let setup = Setup::new(1, 64);
    let mut driver = Driver::connect(&arena.target.path("victim"), &setup);
    driver.get_inflight();
    driver.queue().offer_many(8, &Op::Read(0, 4096));
    driver.queue().set_avail_idx(8);
    let file = driver.inflight.as_ref().unwrap().1.clone();
    file.write_all_at(&[1_u16, 64, 0, 0].map(u16::to_le_bytes).concat(), 8).unwrap();
    for slot in 0..8 {
        file.write_all_at(&[1], 16 + 16 * 3 * slot).unwrap();
    }
    driver.set_inflight();
    driver.set_up_queue(0);
    driver.set_kick(0);
    for _ in 0..3 {
        driver.share_memory();
    }
    driver.enable(0, true);
    assert_eq!(driver.queue().wait(8).len(), 8);
    assert_eq!(driver.queue().status(7), OK);
}

/// What says which requests are taken over is not where a request can write.
#[test]
fn requests_that_are_taken_over_cannot_overwrite_what_says_which_they_are() {
    use std::os::unix::fs::FileExt as _;
    let arena = Arena::new("none");
    for address in [(1 << 62) + 6, 1 << 62] {
        let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        driver.get_inflight();
        let queue = driver.queue();
        queue.offer_many(8, &Op::Read(0, 512));
        queue.write(queue.header(0), &header(T_GET_ID, 0, 0)); // its answer is written while the others are taken
        queue.write_chain(
            0,
            &chained(&[(queue.header(0), 16, 0), (address, 20, WRITE), (queue.status_at(0), 1, WRITE)]),
        );
        queue.set_avail_idx(8);
        let file = driver.inflight.as_ref().unwrap().1.clone();
        file.write_all_at(&[1_u16, 64, 0, 0].map(u16::to_le_bytes).concat(), 8).unwrap();
        for slot in 0..8 {
            file.write_all_at(&[1], 16 + 16 * 3 * slot).unwrap();
        }
        driver.start_queue(0);
        assert_eq!(driver.queue().wait(8).len(), 8);
        assert_eq!(driver.queue().status(0), IOERR, "there is no such memory");
        assert!((1..8).all(|slot| driver.queues[0].status(slot) == OK));
        drop(driver);
        wait_until("the connection is closed", || connected(&arena.target).is_empty());
    }
}

#[test]
fn a_region_of_requests_in_flight_with_anything_in_it_is_survived() {
    use std::os::unix::fs::FileExt as _;
    let mut arena = Arena::new("none");
    let mut random = Random(99);
    for round in 0..40 {
        let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        driver.get_inflight();
        let file = driver.inflight.as_ref().unwrap().1.clone();
        let mut bytes = pattern(random.next(), 1088);
        if round % 2 == 0 {
            bytes[8..12].copy_from_slice(&[1, 0, 64, 0]); // what follows is believed
            (0..64).for_each(|head| bytes[16 + 16 * head] = u8::from(random.below(2) == 0));
        }
        file.write_all_at(&bytes, 0).unwrap();
        driver.set_inflight();
        driver.start_queue(0);
        arena.target.stats("victim", 0);
        drop(driver);
        arena.target.assert_sound();
    }
}

#[test]
fn a_region_of_requests_in_flight_of_a_wrong_size_is_refused() {
    let arena = Arena::new("none");
    let describe = |size: u64, offset: u64, queues: u16, entries: u16| {
        let mut payload = u64s(&[size, offset]);
        payload.extend([queues, entries].map(u16::to_le_bytes).concat());
        payload.extend([0; 4]);
        payload
    };
    for (size, offset, queues, entries) in [
        (1088, 0, 1, 65),
        (0, 0, 1, 1),
        (64, 0, 1, 64),
        (4096, 4096, 1, 64),
        (4096, 1, 1, 64),
        (4096, u64::MAX, 1, 64),
        (u64::MAX, 0, 1, 64),
        (u64::MAX, 1, 1, 64),
        (1 << 62, 0, 1, 64),
        (4096, 0, 0, 64),
        (4096, 0, 1, 0),
        (4096, 0, u16::MAX, u16::MAX),
    ] {
        let wire = arena.wire();
        wire.negotiate(!0).unwrap();
        let region = Region::new(0, 4096);
        let payload = describe(size, offset, queues, entries);
        let outcome = wire.tell(SET_INFLIGHT_FD, &payload, &[region.file.as_raw_fd()]);
        assert!(outcome.is_err(), "size {size}, offset {offset}, {queues} queues of {entries}");
    }
    for (queues, entries) in [(2, 64), (0, 64), (1, 0), (1, 2048), (u16::MAX, u16::MAX)] {
        let wire = arena.wire();
        wire.negotiate(!0).unwrap();
        assert!(wire.ask(GET_INFLIGHT_FD, &describe(0, 0, queues, entries)).is_err(), "{queues} queues of {entries}");
    }
    // Too small for the ring that is started with it.
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 256));
    driver.setup.size = 16;
    driver.get_inflight();
    driver.set_up_queue(0);
    assert!(driver.wire.tell(SET_VRING_KICK, &u64s(&[0]), &[driver.queues[0].kick.as_raw_fd()]).is_err());
}

rows!(
    only_the_front_end_whose_memory_is_cut_off_loses_its_connection,
    (all_of_it, Arena::new("none"), cut_memory, true),
    (all_of_it_with_an_image, Arena::of_image(), cut_memory, true),
    (data_of_a_memory_disk, Arena::new("none"), cut_data, true),
    (data_of_an_image, Arena::of_image(), cut_data, false), // the kernel reads into it, and has an error for each request
    (requests_in_flight_in_its_own_file, Arena::new("none"), cut_own_inflight, true),
    (requests_in_flight_in_the_file_of_the_target, Arena::new("none"), cut_inflight, true),
    (a_log, Arena::migratable(), cut_log, true),
);

/// A front end takes back memory that it shares, and uses it. If the target finds no page there, it says whose it was; others keep
/// their connections.
fn only_the_front_end_whose_memory_is_cut_off_loses_its_connection(
    arena: Arena,
    cut: fn(&Arena) -> Driver,
    is_lost: bool,
) {
    let mut other = Driver::start(&arena.target.path("other"), &Setup::new(1, 64));
    let driver = cut(&arena);
    if is_lost {
        driver.wire.wait_closed();
        let line = "victim: memory that the front end shares has no page behind it: its file was truncated";
        wait_until("it is logged", || arena.target.log().contains(line));
    } else {
        arena.target.stats("victim", 0);
        driver.wire.ask(GET_FEATURES, &[]).unwrap();
    }
    assert_eq!(other.queue().run(Op::Flush).status, OK);
}

fn cut_memory(arena: &Arena) -> Driver {
    let mut driver = arena.driver(64);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    driver.setup.regions[0].file.set_len(0).unwrap();
    driver.queue().kick(); // no more: our own memory is gone as well
    driver
}

fn cut_data(arena: &Arena) -> Driver {
    let mut setup = Setup::new(1, 64);
    let data = Region::new(GUEST - (1 << 20), 1 << 20);
    setup.regions.insert(0, data.clone());
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    data.file.set_len(0).unwrap();
    offer_large(driver.queue(), data.start);
    driver
}

fn cut_own_inflight(arena: &Arena) -> Driver {
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    let region = Region::new(0, 8192);
    let payload = [u64s(&[8192, 0]), u32s(&[64 << 16 | 1, 0])].concat();
    driver.inflight = Some((payload, region.file.clone()));
    driver.set_inflight();
    driver.start_queue(0);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    region.file.set_len(0).unwrap();
    driver.queue().offer_many(4, &Op::Read(0, 512));
    driver.queue().publish();
    driver
}

fn cut_inflight(arena: &Arena) -> Driver {
    let mut driver = Driver::start_with_inflight(&arena.target.path("victim"), &Setup::new(1, 64));
    driver.inflight.as_ref().unwrap().1.set_len(0).unwrap();
    driver.queue().offer_many(4, &Op::Read(0, 512));
    driver.queue().publish();
    driver
}

fn cut_log(arena: &Arena) -> Driver {
    let mut driver = arena.driver(64);
    let log = Log::new(driver.queues[0].end_of_memory());
    log.share(&driver.wire).unwrap();
    log.0.file.set_len(0).unwrap();
    let head = driver.queue().prepare(0, &Op::Read(0, 4096));
    driver.queue().offer(head);
    driver.queue().publish();
    driver
}

/// A page that is touched where memory was cut off must not cost a mapping: their number has a limit, and with none left
/// this process could do nothing about the next page.
#[test]
fn a_lot_of_memory_that_is_cut_off_harms_no_other_disk() {
    const SEGMENTS: u64 = 1000;
    let disks = [Disk::memory("victim", "64M").policy("none"), Disk::memory("other", "8M")];
    let mut arena = Arena::on(Target::start(&disks));
    let mut other = Driver::start(&arena.target.path("other"), &Setup::new(1, 64));
    let sectors = || (0..8 << 11).step_by(8);
    for sector in sectors() {
        assert_eq!(other.queue().run(Op::Write(sector, &[0x5A; 4096])).status, OK);
    }
    let maps_max: u64 = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    let requests = maps_max.min(100_000) / SEGMENTS + 2;
    let mut setup = Setup::new(1, 256);
    let (tables, data) = (1 << 39, 1 << 40);
    setup.regions.push(Region::new(tables, requests << 14));
    setup.regions.push(Region::new(data, requests * SEGMENTS * 8192));
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    setup.regions[2].file.set_len(0).unwrap();
    let queue = driver.queue();
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    for request in 0..requests {
        // Every second page.
        let pages = (0..SEGMENTS).map(|i| (data + (request * SEGMENTS + i) * 8192, 512, WRITE));
        let mut parts = vec![(queue.header(0), 16, 0)];
        parts.extend(pages);
        parts.push((queue.status_at(0), 1, WRITE));
        queue.write_desc(request as u16, table(queue, tables + (request << 14), &chained(&parts)));
        queue.offer(request as u16);
    }
    queue.publish();
    driver.wire.wait_closed();
    arena.target.assert_sound();
    for sector in sectors() {
        assert_eq!(other.queue().run(Op::Read(sector, 4096)).data, [0x5A; 4096], "sector {sector}");
    }
}

#[test]
fn an_image_that_is_cut_off_fails_requests_and_nothing_else() {
    let (arena, image) = Arena::with_image(1, |victim| victim);
    let mut driver = arena.driver(64);
    File::options().write(true).open(&image).unwrap().set_len(8192).unwrap();
    assert_eq!(driver.queue().run(Op::Read(0, 4096)).status, OK);
    assert_eq!(driver.queue().run(Op::Read(100, 4096)).status, IOERR);
    assert_eq!(arena.counted("device/failed"), 1);
    drop(driver);
    File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
}

#[test]
fn memory_that_cannot_be_mapped_is_refused() {
    let arena = Arena::new("none");
    let good = || Region::new(GUEST, 1 << 20);
    let directory = File::open("/").unwrap();
    let read_only = File::open("/proc/self/exe").unwrap();
    let overlapping = [good(), Region::new(GUEST + 4096, 1 << 20)];
    let region = good();
    for (name, payload, files) in [
        ("longer than its file", regions(&[[GUEST, 2 << 20, FRONT_END, 0]]), vec![region.file.as_raw_fd()]),
        ("behind its file", regions(&[[GUEST, 4096, FRONT_END, 1 << 20]]), vec![region.file.as_raw_fd()]),
        ("no size", regions(&[[GUEST, 0, FRONT_END, 0]]), vec![region.file.as_raw_fd()]),
        ("wraps", regions(&[[u64::MAX - 4095, 8192, FRONT_END, 0]]), vec![region.file.as_raw_fd()]),
        ("wraps in the front end", regions(&[[GUEST, 8192, u64::MAX - 4095, 0]]), vec![region.file.as_raw_fd()]),
        ("offset wraps", regions(&[[GUEST, 8192, FRONT_END, u64::MAX - 4095]]), vec![region.file.as_raw_fd()]),
        ("offset unaligned", regions(&[[GUEST, 4096, FRONT_END, 5]]), vec![region.file.as_raw_fd()]),
        ("a directory", regions(&[[GUEST, 4096, FRONT_END, 0]]), vec![directory.as_raw_fd()]),
        ("a read-only file", regions(&[[GUEST, 4096, FRONT_END, 0]]), vec![read_only.as_raw_fd()]),
        ("no file", regions(&[[GUEST, 4096, FRONT_END, 0]]), vec![]),
        ("two files", regions(&[[GUEST, 4096, FRONT_END, 0]]), vec![region.file.as_raw_fd(); 2]),
        ("overlapping", memory_table(&overlapping), overlapping.iter().map(|r| r.file.as_raw_fd()).collect()),
        ("none", u32s(&[0, 0]), vec![]),
        ("more than it says", [u32s(&[1, 0]), u64s(&[0; 8])].concat(), vec![region.file.as_raw_fd()]),
        ("2^32 - 1", [u32s(&[u32::MAX, 0]), u64s(&[0; 8])].concat(), vec![region.file.as_raw_fd()]),
    ] {
        let wire = arena.wire();
        wire.negotiate(!0).unwrap();
        assert!(wire.tell(SET_MEM_TABLE, &payload, &files).is_err(), "{name}");
        let single = [u64s(&[0]), payload.get(8..40).unwrap_or_default().to_vec()].concat();
        if !["two files", "overlapping", "none"].contains(&name) {
            let wire = arena.wire();
            wire.negotiate(!0).unwrap();
            assert!(wire.tell(ADD_MEM_REG, &single, &files).is_err(), "{name}, added");
        }
    }
}

#[test]
fn a_log_of_dirty_pages_that_cannot_be_used_is_refused() {
    let end = Setup::new(1, 64).regions[0].size + GUEST;
    let good = Log::new(end);
    let size = good.0.size;
    let huge = Region::new(0, 1 << 40);
    let directory = File::open("/").unwrap();
    let program = File::open("/proc/self/exe").unwrap();
    let read_only = File::open(format!("/proc/self/fd/{}", good.0.file.as_raw_fd())).unwrap();
    let (pipe, _other_end) = nix::unistd::pipe().unwrap();
    let eventfd = eventfd();
    let cases = [
        ("too small", (size - 4096, 0), vec![good.0.file.as_raw_fd()], "the log of dirty pages has"),
        ("of one byte", (1, 0), vec![good.0.file.as_raw_fd()], "the log of dirty pages has 1 bytes"),
        ("larger than its file", (size + 1, 0), vec![good.0.file.as_raw_fd()], "exceed the file"),
        ("behind its file", (size, 1 << 30), vec![good.0.file.as_raw_fd()], "exceed the file"),
        ("partly behind its file", (size, 4096), vec![good.0.file.as_raw_fd()], "exceed the file"),
        ("unaligned", (size, 5), vec![huge.file.as_raw_fd()], "SET_LOG_BASE: mmap"),
        ("of 2^32 + 1 bytes", ((1 << 32) + 1, 0), vec![huge.file.as_raw_fd()], "allowed: 1 to 4294967296"),
        ("of 2^64 - 1 bytes", (u64::MAX, 0), vec![huge.file.as_raw_fd()], "allowed: 1 to 4294967296"),
        ("of no bytes", (0, 0), vec![good.0.file.as_raw_fd()], "invalid"),
        ("that wraps", (size, u64::MAX - 4095), vec![good.0.file.as_raw_fd()], "invalid"),
        ("in a directory", (size, 0), vec![directory.as_raw_fd()], "not a memfd"),
        ("on a disk", (4096, 0), vec![program.as_raw_fd()], "SET_LOG_BASE"),
        ("that is read-only", (size, 0), vec![read_only.as_raw_fd()], "SET_LOG_BASE: mmap"),
        ("in a pipe", (size, 0), vec![pipe.as_raw_fd()], "not a memfd"),
        ("in an eventfd", (size, 0), vec![eventfd.as_fd().as_raw_fd()], "not a memfd"),
        ("without a file", (size, 0), vec![], "wrong number of attached fds"),
        ("with two files", (size, 0), vec![good.0.file.as_raw_fd(); 2], "wrong number of attached fds"),
    ];
    // The log of the target is limited in rate.
    for cases in cases.chunks(6) {
        let mut arena = Arena::migratable();
        for (name, place, files, said) in cases {
            let before = arena.target.log().len();
            let driver = arena.driver(64);
            driver.log_used(0, Some(driver.queues[0].used)).unwrap();
            assert!(share_log(&driver.wire, *place, files).is_err(), "a log {name}");
            wait_until(&format!("a log {name}: {said}"), || arena.target.log()[before..].contains(said));
            drop(driver);
            arena.target.assert_sound();
        }
    }
}

/// A log is checked again when what it must have bits for changes.
#[test]
fn memory_and_used_rings_without_bits_in_the_log_are_refused() {
    let arena = Arena::migratable();
    type Attack = (&'static str, fn(&Driver) -> std::io::Result<()>);
    let attacks: [Attack; 5] = [
        ("a used ring just behind the log", |driver| {
            driver.log_used(0, Some(driver.queues[0].end_of_memory().next_multiple_of(8 * 4096) - 500))
        }),
        ("a used ring at the end of the address space", |driver| driver.log_used(0, Some(u64::MAX - 100))),
        ("memory behind the log, added", |driver| {
            let region = Region::new(1 << 40, 4096);
            let payload = [u64s(&[0]), region.payload()].concat();
            driver.wire.tell(ADD_MEM_REG, &payload, &[region.file.as_raw_fd()])
        }),
        ("memory behind the log, shared anew", |driver| {
            let region = [Region::new(1 << 40, 4096)];
            driver.wire.tell(SET_MEM_TABLE, &memory_table(&region), &[region[0].file.as_raw_fd()])
        }),
        ("a log that was too small before it was needed", |driver| {
            driver.log_data(false).unwrap();
            Log::new(4096).share(&driver.wire).unwrap();
            driver.log_data(true)
        }),
    ];
    for (name, attack) in attacks {
        let before = arena.target.log().len();
        let driver = arena.driver(64);
        Log::new(driver.queues[0].end_of_memory()).share(&driver.wire).unwrap();
        assert!(attack(&driver).is_err(), "{name}");
        wait_until(name, || arena.target.log()[before..].contains("log"));
        drop(driver);
    }
    // A log before there is memory has bits for all of it; the rest is refused when it comes.
    let wire = arena.wire();
    wire.negotiate(!0).unwrap();
    Log::new(GUEST).share(&wire).unwrap();
    let region = |start| [Region::new(start, 4096)];
    let share = |region: &[Region]| wire.tell(SET_MEM_TABLE, &memory_table(region), &[region[0].file.as_raw_fd()]);
    share(&region(GUEST - 4096)).unwrap();
    assert!(share(&region(GUEST)).is_err());
}

/// Each log is given up for the next one, and only the last is written.
#[test]
fn a_log_may_be_replaced_again_and_again() {
    let arena = Arena::migratable();
    let mut driver = arena.driver(64);
    driver.log_used(0, Some(driver.queues[0].used)).unwrap();
    let [first, last] = [(); 2].map(|()| Log::new(driver.queues[0].end_of_memory()));
    for _ in 0..300 {
        first.share(&driver.wire).unwrap();
        assert_eq!(driver.queue().run(Op::Read(0, 4096)).status, OK);
    }
    last.share(&driver.wire).unwrap();
    first.take();
    assert_eq!(driver.queue().run(Op::Read(0, 4096)).status, OK);
    assert_eq!((first.pages().len(), last.pages().len()), (0, 3));
}

/// Memory of a file system that can keep a page fault waiting, or that nobody shares, is not taken.
#[test]
fn only_memory_files_are_taken_as_guest_memory() {
    let arena = Arena::new("none");
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let on_disk = File::options().read(true).write(true).open(&path).unwrap();
    let device = File::options().read(true).write(true).open("/dev/zero").unwrap(); // on a tmpfs
    for file in [on_disk, device] {
        let region = Region { start: GUEST, size: 4096, file: file.into() };
        let file = region.file.as_raw_fd();
        for (message, payload) in [
            (SET_MEM_TABLE, memory_table(std::slice::from_ref(&region))),
            (ADD_MEM_REG, [u64s(&[0]), region.payload()].concat()),
            (SET_INFLIGHT_FD, [u64s(&[4096, 0]), u32s(&[64 << 16 | 1, 0])].concat()),
        ] {
            let wire = arena.wire();
            wire.negotiate(!0).unwrap();
            assert!(wire.tell(message, &payload, &[file]).is_err(), "message {message}");
            drop(wire);
            wait_until("the connection is closed", || connected(&arena.target).is_empty());
        }
    }
    for said in ["SET_MEM_TABLE", "ADD_MEM_REG", "SET_INFLIGHT_FD", "memfd"] {
        wait_until(said, || arena.target.log().contains(said));
    }
}

/// What QEMU does without share=on, release by release; and what an administrator reads.
#[test]
fn guest_memory_that_is_not_shared_is_named() {
    let target = Target::start(&[Disk::memory("a", "1M"), Disk::memory("b", "1M")]);
    let hint = "needs share=on for its memory backend";
    let says = |disk: &str, what: &str| {
        wait_until(what, || {
            let log = target.log();
            log.lines().any(|line| line.contains(&format!("{disk}: ")) && line.contains(what) && line.contains(hint))
        });
    };
    let connect = |disk: &str| {
        let wire = Wire::connect(&target.path(disk));
        wire.negotiate(!0).unwrap();
        wire
    };
    let region = Region::new(GUEST, 1 << 20);

    let wire = connect("a"); // QEMU 11, whose memory has no file
    let _ = wire.tell(ADD_MEM_REG, &[u64s(&[0]), region.payload()].concat(), &[]);
    says("a", "its guest memory is not shared");

    let at = |offset: u64| FRONT_END + GUEST + offset;
    let addresses = [u32s(&[0, 0]), u64s(&[at(0), at(0x2000), at(0x1000), 0])].concat();
    let wire = connect("b"); // QEMU 7.2, the same
    assert!(wire.tell(SET_VRING_ADDR, &addresses, &[]).is_err());
    says("b", "is outside the memory that the front end shares");
}

#[test]
fn why_a_second_front_end_is_refused_is_said() {
    let arena = Arena::new("none");
    let first = arena.driver(16);
    Wire::connect(&arena.target.path("victim")).wait_closed();
    wait_until("it is said", || {
        arena.target.log().contains("victim: refused a second connection: a disk serves one front end at a time")
    });
    drop(first);
}

/// A sparse file takes no space where it is, but address space and page tables here.
#[test]
fn more_guest_memory_than_a_disk_allows_is_refused() {
    let arena = Arena::with(Disk::memory("victim", "1M").policy("none").line("max_memory = \"8M\""));
    let parts = |sizes: &[u64]| -> Vec<Region> {
        sizes.iter().enumerate().map(|(i, size)| Region::new((i as u64 + 1) << 40, size << 20)).collect()
    };
    let files = |regions: &[Region]| regions.iter().map(|region| region.file.as_raw_fd()).collect::<Vec<_>>();
    for (sizes, fits) in [(&[8][..], true), (&[9], false), (&[4, 4], true), (&[4, 4, 1], false)] {
        let wire = arena.wire();
        wire.negotiate(!0).unwrap();
        let regions = parts(sizes);
        for _ in 0..3 {
            let outcome = wire.tell(SET_MEM_TABLE, &memory_table(&regions), &files(&regions));
            assert_eq!(outcome.is_ok(), fits, "{sizes:?}");
            if !fits {
                break;
            }
        }
    }
    let wire = arena.wire();
    wire.negotiate(!0).unwrap();
    let regions = parts(&[4, 4, 1]);
    for (i, region) in regions.iter().enumerate() {
        let payload = [u64s(&[0]), region.payload()].concat();
        assert_eq!(wire.tell(ADD_MEM_REG, &payload, &[region.file.as_raw_fd()]).is_ok(), i < 2, "region {i}");
    }
    wait_until("it is logged", || arena.target.log().contains("max_memory"));
}

fn regions(numbers: &[[u64; 4]]) -> Vec<u8> {
    let mut payload = u32s(&[numbers.len() as u32, 0]);
    payload.extend(numbers.iter().flat_map(|numbers| u64s(numbers)));
    payload
}

/// QEMU has a region for each DIMM, 256 at most on a PC and more elsewhere. Each comes with a file.
#[test]
fn the_number_of_memory_regions_is_limited_and_none_keeps_a_file_open() {
    let arena = Arena::new("none");
    let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    let slots = driver.wire.ask_u64(GET_MAX_MEM_SLOTS).unwrap();
    assert_eq!(slots, 509);
    driver.start_queue(0);
    arena.target.limit_files("victim", 4);
    let mut added = 1;
    loop {
        let region = Region::new((added + 1) << 40, 4096);
        let payload = [u64s(&[0]), region.payload()].concat();
        if driver.wire.tell(ADD_MEM_REG, &payload, &[region.file.as_raw_fd()]).is_err() {
            break;
        }
        added += 1;
        assert!(added <= slots);
    }
    assert_eq!(added, slots);
    wait_until("it is said", || arena.target.log().contains("already has 509 regions, which is the limit"));
    drop(driver);
    let mut driver = arena.driver(64);
    for i in 1..slots {
        let region = Region::new((i + 1) << 40, 4096);
        let payload = [u64s(&[0]), region.payload()].concat();
        driver.wire.tell(ADD_MEM_REG, &payload, &[region.file.as_raw_fd()]).unwrap();
    }
    let queue = driver.queue();
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    for i in [1, slots / 2, slots - 1] {
        let parts = [(queue.header(0), 16, 0), ((i + 1) << 40, 4096, WRITE), (queue.status_at(0), 1, WRITE)];
        queue.write(queue.status_at(0), &[0xAA]);
        assert_eq!((queue.run_chain(&chained(&parts)).len, queue.status(0)), (4097, OK), "region {i}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Front ends
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn a_second_front_end_is_refused_and_the_first_goes_on() {
    let arena = Arena::new("auto");
    let mut driver = arena.driver(64);
    for _ in 0..20 {
        let second = arena.wire();
        second.wait_closed();
        assert_eq!(driver.queue().run(Op::Flush).status, OK);
    }
}

/// A front end that closes a connection and then opens another has only one.
#[test]
fn a_front_end_that_comes_back_at_once_is_not_refused() {
    let arena = Arena::new("none");
    for round in 0..300 {
        let wire = arena.wire();
        assert!(wire.ask_u64(GET_FEATURES).is_ok(), "connection {round}");
    }
}

#[test]
fn a_front_end_may_go_at_every_step() {
    let arena = Arena::new("auto");
    for step in 0..14 {
        go_at(&arena, step);
    }
}

/// Does `steps` of what a front end does, and then is gone.
fn go_at(arena: &Arena, steps: usize) {
    let wire = arena.wire();
    let setup = Setup::new(1, 64);
    let mut driver = Driver::on(wire, F_EVENT_IDX, &setup);
    let index = u32s(&[0, 64]);
    let zero = u64s(&[0]);
    driver.queue().offer_many(8, &Op::Read(0, 4096));
    driver.queue().set_avail_idx(8);
    let memory = driver.setup.regions[0].file.as_raw_fd();
    let queue = &driver.queues[0];
    let (kick, call) = (queue.kick.as_raw_fd(), queue.call.as_raw_fd());
    let [table, addresses] = [memory_table(&driver.setup.regions), driver.ring_addresses(0)];
    let features = u64s(&[F_PROTOCOL | F_VERSION_1 | F_EVENT_IDX]);
    let messages: [(u32, &[u8], &[RawFd]); 13] = [
        (GET_FEATURES, &[], &[]),
        (GET_PROTOCOL_FEATURES, &[], &[]),
        (SET_PROTOCOL_FEATURES, &u64s(&[0x9209]), &[]),
        (SET_OWNER, &[], &[]),
        (SET_FEATURES, &features, &[]),
        (SET_MEM_TABLE, &table, &[memory]),
        (SET_VRING_NUM, &index, &[]),
        (SET_VRING_BASE, &zero, &[]),
        (SET_VRING_ADDR, &addresses, &[]),
        (SET_VRING_CALL, &zero, &[call]),
        (SET_VRING_KICK, &zero, &[kick]),
        (SET_VRING_ENABLE, &u32s(&[0, 1]), &[]),
        (GET_VRING_BASE, &zero, &[]),
    ];
    for (message, payload, files) in messages.into_iter().take(steps) {
        driver.wire.send(message, VERSION, payload, files).unwrap();
    }
    drop(driver);
    wait_until("the connection is closed", || connected(&arena.target).is_empty());
}

/// Files of every kind.
fn odd_files() -> Vec<OwnedFd> {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let (a, b) = UnixStream::pair().unwrap();
    let memory = Region::new(0, 1 << 16).file.try_clone().unwrap();
    let open = |path| OwnedFd::from(File::open(path).unwrap());
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    vec![reader, writer, a.into(), b.into(), memory.into(), open("/"), open("/proc/self/exe"), null.into()]
}

#[test]
fn random_bytes_end_a_connection_and_nothing_else() {
    let arena = Arena::new("none");
    let mut random = Random(3);
    for _ in 0..200 {
        let wire = arena.wire();
        let len = 1 + random.below(300) as usize;
        let _ = wire.send_bytes(&pattern(random.next(), len), &[]);
        drop(wire);
    }
    for _ in 0..100 {
        let wire = arena.wire();
        let size = random.pick(&[0, 1, 8, 12, 4096, 4097, 1 << 20, u32::MAX]);
        let flags = random.pick(&[0, 1, 2, 3, 5, 9, 0xF, 0x10, u32::MAX]);
        let mut bytes = u32s(&[random.below(60) as u32, flags, size]);
        bytes.extend(pattern(random.next(), random.below(100) as usize));
        let _ = wire.send_bytes(&bytes, &[]);
    }
}

/// A header that is not all there, and stays so.
#[test]
fn half_a_message_blocks_no_other_disk() {
    let mut arena = Arena::new("none");
    for len in [1, 11, 12, 15] {
        let wire = arena.wire();
        let bytes = [u32s(&[SET_FEATURES, VERSION, 8]), vec![0; 8]].concat();
        wire.send_bytes(&bytes[..len], &[]).unwrap();
        assert_serves(&arena.target.path("other"));
        arena.target.stats("victim", 0);
        drop(wire);
    }
    arena.assert_unharmed();
    let wire = arena.wire();
    wire.send_bytes(&[1, 0], &[]).unwrap();
    wait_until("connected", || !connected(&arena.target).is_empty());
    arena.stop(); // and can be stopped
}

/// Its disk waits for room for the next answer, and stops all the same.
#[test]
fn a_front_end_that_reads_no_answers_does_not_keep_the_target_from_stopping() {
    let arena = Arena::new("none");
    let wire = arena.wire();
    wire.stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while wire.send(GET_FEATURES, VERSION, &[], &[]).is_ok() {}
    assert_serves(&arena.target.path("other"));
    arena.stop();
}

/// Every message, at every stage, with payloads of wrong sizes and wrong files.
#[test]
fn every_message_may_be_wrong_in_every_way() {
    let mut arena = Arena::new("none");
    let files = odd_files();
    let files: Vec<_> = files.iter().map(OwnedFd::as_raw_fd).collect();
    let mut random = Random(17);
    for stage in 0..3 {
        for message in 0..=LAST_MESSAGE + 5 {
            for _ in 0..4 {
                wrong_message(&arena, &mut random, stage, message, &files);
            }
        }
        arena.target.assert_sound();
    }
}

/// Stage 0: nothing was said; 1: negotiated; 2: a ring runs.
fn wrong_message(arena: &Arena, random: &mut Random, stage: u32, message: u32, files: &[RawFd]) {
    let setup = Setup::new(1, 64);
    let driver = match stage {
        0 => Driver::on(arena.wire(), 0, &setup),
        1 => Driver::connect(&arena.target.path("victim"), &setup),
        _ => arena.driver(64),
    };
    let len = random.pick(&[0, 1, 4, 7, 8, 9, 12, 13, 16, 24, 32, 40, 48, 72, 500, 4096]);
    let mut payload = pattern(random.next(), len);
    if random.below(2) == 0 {
        // Small numbers go further than large ones.
        payload.iter_mut().enumerate().for_each(|(i, byte)| *byte = if i % 4 == 0 { *byte % 4 } else { 0 });
    }
    let count = random.pick(&[0, 1, 1, 2, 8]).min(files.len());
    let first = random.below(files.len() as u64) as usize;
    let files: Vec<_> = files.iter().cycle().skip(first).take(count).copied().collect();
    let flags = VERSION | random.pick(&[0, NEED_REPLY]);
    let _ = driver.wire.send(message, flags, &payload, &files);
    let _ = driver.wire.send(GET_FEATURES, VERSION, &[], &[]);
    drop(driver);
    wait_until("the connection is closed", || connected(&arena.target).is_empty());
}

#[test]
fn more_files_than_a_message_may_have_are_closed() {
    let arena = Arena::new("none");
    let null = File::open("/dev/null").unwrap();
    for count in [2, 31, 32, 33, 34, 64, 253] {
        for message in [GET_FEATURES, SET_MEM_TABLE, SET_VRING_KICK, SET_VRING_CALL, ADD_MEM_REG, SET_INFLIGHT_FD] {
            let wire = arena.wire();
            wire.negotiate(!0).unwrap();
            let _ = wire.send(message, VERSION, &u64s(&[0]), &vec![null.as_raw_fd(); count]);
            if count <= 32 {
                wire.wait_closed();
            } // with more it is as if nothing had been said
        }
    }
    // Files that come with the payload instead of the header.
    let wire = arena.wire();
    wire.negotiate(!0).unwrap();
    wire.send_bytes(&u32s(&[SET_VRING_CALL, VERSION, 8]), &[]).unwrap();
    wire.send_bytes(&u64s(&[0]), &[null.as_raw_fd(); 20]).unwrap();
    wire.wait_closed();
}

#[test]
fn a_flood_of_messages_leaves_nothing_behind() {
    let arena = Arena::new("auto");
    let mut driver = arena.driver(64);
    for i in 0..5000_u32 {
        let call = driver.queues[0].call.as_raw_fd();
        driver.wire.send(SET_VRING_CALL, VERSION, &u64s(&[0]), &[call]).unwrap();
        if i % 100 == 0 {
            let memory = driver.setup.regions[0].file.as_raw_fd();
            driver.wire.send(SET_MEM_TABLE, VERSION, &memory_table(&driver.setup.regions), &[memory]).unwrap();
        }
    }
    assert!(arena.target.open_files() < arena.files + 600);
    assert_eq!(driver.queue().run(Op::Flush).status, OK);
    driver.stop_queue(0);
}

/// Writing to an eventfd whose counter is full waits until somebody reads it, unless somebody thought of that.
#[test]
fn a_call_eventfd_that_blocks_does_not_stop_the_queue() {
    use nix::sys::eventfd::EventFd;
    let arena = Arena::new("none");
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    driver.queue().call = EventFd::new().unwrap();
    driver.queue().call.write(u64::MAX - 1).unwrap();
    driver.start_queue(0);
    driver.queue().offer_many(4, &Op::Read(0, 512));
    driver.queue().publish();
    driver.queue().spin(4);
    assert_answers(&arena.target);
}

/// Whether the eventfd may block is not ours to say: the front end changes that whenever it likes.
#[test]
fn a_call_eventfd_that_is_made_to_block_later_does_not_stop_the_queue() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let mut arena = Arena::new("none");
    let mut driver = arena.driver(64);
    assert_eq!(driver.queue().run(Op::Flush).status, OK); // it has heard of the eventfd
    let queue = driver.queue();
    fcntl(&queue.call, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    queue.call.write(u64::MAX - 1).unwrap();
    queue.offer_many(4, &Op::Read(0, 512));
    queue.publish();
    queue.spin(4);
    assert_answers(&arena.target);
    drop(driver);
    arena.assert_unharmed();
    arena.stop();
}

/// The same for a pipe that nobody empties.
#[test]
fn a_call_file_that_is_no_eventfd_does_not_stop_the_queue() {
    let arena = Arena::new("none");
    let files = odd_files();
    for file in &files {
        let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        driver.set_up_queue(0);
        let _ = driver.wire.send(SET_VRING_CALL, VERSION, &u64s(&[0]), &[file.as_raw_fd()]);
        let kick = driver.queues[0].kick.as_raw_fd();
        let _ = driver.wire.send(SET_VRING_KICK, VERSION, &u64s(&[0]), &[kick]);
        let _ = driver.wire.send(SET_VRING_ENABLE, VERSION, &u32s(&[0, 1]), &[]);
        let queue = driver.queue();
        for _ in 0..150 {
            queue.set_used_event(queue.used_idx());
            queue.offer_many(1, &Op::Flush);
            queue.set_avail_idx(queue.next_avail);
            queue.kick();
        }
        assert_answers(&arena.target);
        drop(driver);
        wait_until("the connection is closed", || connected(&arena.target).is_empty());
    }
}

/// The file could keep a queue's thread waiting when it is polled or written to.
#[test]
fn files_that_are_no_eventfds_are_refused() {
    let arena = Arena::new("none");
    for message in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
        for is_running in [false, true] {
            for (i, file) in odd_files().iter().enumerate() {
                let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
                if is_running {
                    driver.start_queue(0);
                }
                let outcome = driver.wire.tell(message, &u64s(&[0]), &[file.as_raw_fd()]);
                assert!(outcome.is_err(), "message {message}, file {i}, running: {is_running}");
                drop(driver);
                wait_until("the connection is closed", || connected(&arena.target).is_empty());
            }
        }
    }
    wait_until("it is logged", || arena.target.log().contains("SET_VRING_KICK: the file is not an eventfd"));
}

/// A ring never runs without the interrupt that its guest waits for: a target that lacks a descriptor for it says so.
#[test]
fn without_descriptors_a_ring_is_refused_and_does_not_run_mute() {
    let arena = Arena::new("none");
    for left in 0..12 {
        let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        let limit = arena.target.limit_files("victim", left);
        let queue = &driver.queues[0];
        let call = queue.call.as_raw_fd();
        let tell = |message, payload: &[u8], files: &[RawFd]| driver.wire.tell(message, payload, files);
        let outcome = tell(SET_VRING_NUM, &u32s(&[0, 64]), &[])
            .and_then(|()| tell(SET_VRING_ADDR, &driver.ring_addresses(0), &[]))
            .and_then(|()| tell(SET_VRING_CALL, &u64s(&[0]), &[call]))
            .and_then(|()| tell(SET_VRING_ERR, &u64s(&[0]), &[queue.error.as_raw_fd()]))
            .and_then(|()| tell(SET_VRING_KICK, &u64s(&[0]), &[queue.kick.as_raw_fd()]))
            .and_then(|()| tell(SET_VRING_ENABLE, &u32s(&[0, 1]), &[]));
        match outcome {
            Ok(()) => assert_eq!(driver.queue().run(Op::Flush).status, OK, "{left} descriptors left: no interrupt"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "{left} descriptors left: it hangs"),
        }
        arena.target.set_file_limit("victim", limit);
        drop(driver);
        wait_until("the connection is closed", || connected(&arena.target).is_empty());
    }
    wait_until("it is logged", || arena.target.log().contains("or no descriptor is left for one of them"));
}

/// The error eventfd is the front end's, and so is whether it blocks.
#[test]
fn an_error_eventfd_that_blocks_does_not_stop_the_queue() {
    use nix::sys::eventfd::EventFd;
    let arena = Arena::new("none");
    let mut driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    driver.queue().error = EventFd::new().unwrap();
    driver.queue().error.write(u64::MAX - 1).unwrap();
    driver.start_queue(0);
    driver.queue().set_avail_idx(1000);
    driver.queue().kick();
    wait_until("the ring breaks", || arena.counted("device/broken_rings") == 1);
}

/// Kicks through a file that is always ready, or never, or gone.
#[test]
fn a_kick_file_that_is_no_eventfd_harms_no_other_disk() {
    let arena = Arena::new("none");
    for file in odd_files() {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        driver.set_up_queue(0);
        let _ = driver.wire.send(SET_VRING_KICK, VERSION, &u64s(&[0]), &[file.as_raw_fd()]);
        let _ = driver.wire.send(SET_VRING_ENABLE, VERSION, &u32s(&[0, 1]), &[]);
        drop(file); // the other end of a pipe or a socket is gone
        assert_serves(&arena.target.path("other"));
        assert_answers(&arena.target);
        drop(driver);
    }
}

/// The control socket answers about all disks: none of them keeps it waiting.
fn assert_answers(target: &Target) {
    let answer = control(&target.path("control"), b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get_stats\"}\n");
    assert_eq!(answer["result"].as_array().map(Vec::len), Some(2), "{answer}");
}

/// A guest may ask for a lot at once; questions about the disk are answered meanwhile.
#[test]
fn long_requests_do_not_keep_the_control_socket_waiting() {
    let (arena, mut driver) = busy();
    let queue = driver.queue();
    let completions = arena.counted("completions");
    let ended = queue.wait(64).len();
    assert_eq!(ended, 64);
    let before = 3; // of the check that all is well
    assert!(completions < before + 64, "the answer came when all {completions} had ended");
}

/// 64 writes of the whole disk, each on its own descriptors, of which one has ended.
fn busy() -> (Arena, Driver) {
    let mut arena = Arena::with(Disk::memory("victim", "64M").policy("none"));
    arena.memory[0] += 128 << 10; // the disk will have been written, and both are mapped
    let mut setup = Setup::new(1, 256);
    setup.regions.push(Region::new(1 << 33, 64 << 20));
    let mut driver = Driver::start(&arena.target.path("victim"), &setup);
    let queue = driver.queue();
    for slot in 0..64 {
        queue.write(queue.header(slot), &header(T_OUT, 0, 0));
        let parts = [(queue.header(slot), 16, 0), (1 << 33, 64 << 20, 0), (queue.status_at(slot), 1, WRITE)];
        queue.write_chain(slot * 4, &chained(&parts));
        queue.offer(slot * 4);
    }
    queue.publish();
    queue.spin(1);
    (arena, driver)
}

/// One request may be as large as the disk: what comes after it does not wait for all of it.
#[test]
fn a_large_request_does_not_keep_small_ones_waiting() {
    let mut arena = Arena::with(Disk::memory("victim", "1G").policy("none"));
    arena.memory[1] += 128 << 10;
    let mut driver = arena.driver(64);
    let spare = driver.setup.spare();
    let queue = driver.queue();
    let len = 1 << 19; // 1000 times the same half of a MiB of guest memory; the table is behind it
    queue.write(queue.header(0), &header(T_IN, 0, 0));
    let mut parts = vec![(queue.header(0), 16, 0)];
    parts.extend([(spare, len, WRITE); 1000]);
    parts.push((queue.status_at(0), 1, WRITE));
    queue.write_desc(0, table(queue, spare + u64::from(len), &chained(&parts)));
    queue.offer(0);
    let large_range = queue.prepare(1, &Op::WriteZeroes(0, 1 << 21, 0));
    queue.offer(large_range);
    let small = queue.prepare(2, &Op::Flush);
    queue.offer(small);
    queue.publish();
    let ids: Vec<_> = queue.wait(3).iter().map(|used| used.id).collect();
    assert_eq!(ids[0], u32::from(small), "{ids:?}");
    assert_eq!([queue.status(0), queue.status(1), queue.status(2)], [OK; 3]);
    queue.offer(0);
    queue.publish();
    // Or has ended, before a slow machine has counted.
    wait_until("it runs", || arena.counted("in_flight") > 0 || driver.queue().used_idx() == 4);
    driver.stop_queue(0); // waits for all of it
    assert_eq!(driver.queue().used_idx(), 4);
}

/// A front end that talks to a busy queue waits, and does not pile up files in this process.
#[test]
fn commands_to_a_busy_queue_are_bounded() {
    let (arena, mut driver) = busy();
    let call = driver.queues[0].call.as_raw_fd();
    let (mut sent, mut files) = (0, 0);
    while driver.queues[0].used_idx() < 60 && sent < 10_000 {
        driver.wire.send(SET_VRING_CALL, VERSION, &u64s(&[0]), &[call]).unwrap();
        sent += 1;
        if sent % 50 == 0 {
            files = files.max(arena.target.open_files());
        }
    }
    assert!(files < arena.files + 100, "{files} files after {sent} messages");
    driver.queue().spin(64);
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let arena = Arena::new("none");
    for (offset, bytes) in [(0, &[1][..]), (31, &[1]), (33, &[1]), (32, &[1, 1]), (4000, &[1]), (32, &[0; 200])] {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        assert!(driver.set_config(offset, bytes).is_err(), "offset {offset}, {} bytes", bytes.len());
    }
    for (offset, len, sent) in
        [(u32::MAX, 1, 1), (0, u32::MAX, 4), (4096, 1, 1), (0, 4085, 4085), (0, 0, 0), (0, 8, 4), (0, 4, 8)]
    {
        let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
        let mut payload = u32s(&[offset, len, 0]);
        payload.resize(12 + sent, 0);
        let _ = driver.wire.ask(GET_CONFIG, &payload);
    }
    let driver = Driver::connect(&arena.target.path("victim"), &Setup::new(1, 64));
    assert_eq!(driver.config(32, 1), [1], "nothing has changed");
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let arena = Arena::new("none");
    let offered = arena.wire().ask_u64(GET_FEATURES).unwrap();
    wait_until("the connection is closed", || connected(&arena.target).is_empty());
    for features in [offered | 1 << 34, offered | 1 << 26, !0, 1 << 63] {
        let wire = arena.wire();
        wire.ask_u64(GET_FEATURES).unwrap();
        wire.send(SET_FEATURES, VERSION, &u64s(&[features]), &[]).unwrap();
        wire.wait_closed();
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Local users
// ---------------------------------------------------------------------------------------------------------------------

#[test]
fn what_is_no_request_is_an_error_on_the_control_socket() {
    let arena = Arena::new("none");
    let path = arena.target.path("control");
    let deep = [b"[".repeat(60_000), b"\n".to_vec()].concat();
    let deep_params = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\",\"params\":{}{}}}\n",
        "{\"a\":".repeat(9000),
        "}".repeat(9000)
    );
    for (name, bytes) in [
        ("an empty line", b"\n".to_vec()),
        ("not JSON", b"hello\n".to_vec()),
        ("half of it", b"{\"jsonrpc\"\n".to_vec()),
        ("invalid UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}\n".to_vec()),
        ("binary", pattern(1, 1000).into_iter().filter(|byte| *byte != b'\n').chain([b'\n']).collect()),
        ("zeroes", vec![0; 1000].into_iter().chain([b'\n']).collect()),
        ("deep", deep),
        ("deep parameters", deep_params.into_bytes()),
        ("a number", b"1\n".to_vec()),
        ("an array", b"[]\n".to_vec()),
        ("null", b"null\n".to_vec()),
        ("a number too large", b"{\"jsonrpc\":\"2.0\",\"id\":1e999,\"method\":\"list\"}\n".to_vec()),
        ("another version", b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"list\"}\n".to_vec()),
        ("a method of a wrong type", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}\n".to_vec()),
        ("no such method", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shutdown\"}\n".to_vec()),
        ("parameters of a wrong type", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\",\"params\":7}\n".to_vec()),
        ("a line too long", [vec![b'x'; 70_000], b"\n".to_vec()].concat()),
        ("a line without end", vec![b'{'; 1 << 20]),
    ] {
        let answer = control(&path, &bytes);
        assert!(answer["error"]["message"].is_string(), "{name}: {answer}");
        arena.target.stats("victim", 0);
    }
    for params in [
        json!({}),
        json!({ "ctrlr": "victim" }),
        json!({ "ctrlr": "victim", "policy": 7 }),
        json!({ "ctrlr": "victim", "policy": "" }),
        json!({ "ctrlr": "victim", "policy": "x".repeat(10_000) }),
        json!({ "ctrlr": "victim", "policy": "nvme:thr=256" }),
        json!({ "ctrlr": "nobody", "policy": "none" }),
        json!({ "ctrlr": "victim", "queue": 1, "policy": "none" }),
        json!({ "ctrlr": "victim", "queue": -1, "policy": "none" }),
        json!({ "ctrlr": "victim", "queue": u64::MAX, "policy": "none" }),
        json!({ "ctrlr": "victim", "policy": "none", "more": 1 }),
    ] {
        assert!(arena.target.call("set_policy", &params).is_err(), "{params}");
    }
    assert_eq!(arena.target.stats("victim", 0)["policy"], "none", "nothing has changed");
}

/// A client that never reads its answers, one that never asks, and many at a time.
#[test]
fn clients_of_the_control_socket_cannot_get_in_each_others_way() {
    let arena = Arena::new("none");
    let path = arena.target.path("control");
    let silent: Vec<_> = (0..50).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let deaf = UnixStream::connect(&path).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let request = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"get_stats\"}\n".repeat(20);
    let mut deaf_mut = &deaf;
    for _ in 0..10_000 {
        if deaf_mut.write(&request).is_err() {
            break; // both directions are full
        }
    }
    assert_answers(&arena.target);
    drop((silent, deaf));
    wait_until("their files are closed", || arena.target.open_files() <= arena.files + 1);
}

/// More clients than are served at a time, under a limit of files that leaves room for those and little more.
#[test]
fn clients_beyond_the_limit_take_the_places_of_others_and_no_files() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("victim", "1M"), Disk::memory("other", "1M")]);
    let limited = |command: &mut std::process::Command| {
        let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        *command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\"", BINARY]).args(args);
    };
    let target = Target::spawn(directory, |command| {
        limited(command);
        command
    });
    let arena = Arena::on(target);
    let path = arena.target.path("control");
    for _ in 0..3 {
        let mut crowd: Vec<_> = (0..300).map_while(|_| UnixStream::connect(&path).ok()).collect();
        let newest = crowd.pop().unwrap();
        let oldest = crowd.iter().take(200).map(|stream| (stream, false));
        for (stream, is_served) in [(&newest, true)].into_iter().chain(oldest) {
            stream.set_read_timeout(Some(HANG)).unwrap();
            let _ = (&mut &*stream).write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"list\"}\n");
            let mut answer = String::new();
            let _ = BufReader::new(stream).read_line(&mut answer); // the connection may be reset
            assert_eq!(answer.contains("result"), is_served, "{answer}");
        }
        drop((crowd, newest));
        let crowd: Vec<_> = (0..60).map_while(|_| UnixStream::connect(arena.target.path("victim")).ok()).collect();
        drop(crowd);
        wait_until("it answers again", || arena.target.call("list", &json!({})).is_ok());
        wait_until("they are closed", || arena.target.open_files() <= arena.files + 1);
    }
    wait_until("it is logged", || arena.target.log().contains("control: 64 clients are connected"));
}

/// A guest that could not get what it needs later must not be served at all.
#[test]
fn too_few_files_for_what_is_configured_are_said_at_the_start() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("victim", "1M").queues(16)]);
    let config = directory.path().join("config.toml");
    let ended = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 100; exec \"$0\" \"$@\"", BINARY, "serve", "--config"])
        .arg(config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("open files are needed; allowed: 100"), "{said}");
}

/// As when what collects the log has stopped, and a guest has made lines until there is no room for more.
#[test]
fn a_standard_error_that_is_not_read_blocks_no_disk() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("victim", "1M"), Disk::memory("other", "1M")]);
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let [config, control] = ["config.toml", "control"].map(|name| directory.path().join(name));
    let mut command = std::process::Command::new(BINARY);
    command.arg("serve").arg("--config").arg(config).arg("--control").arg(&control);
    while poll(&mut [PollFd::new(writer.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO) == Ok(1) {
        writer.write_all(&[b'x'; 4096]).unwrap(); // there is room for a page
    }
    let mut child = Ended(command.stderr(writer).spawn().unwrap());
    wait_until("it serves", || UnixStream::connect(&control).is_ok());
    for _ in 0..3 {
        assert_serves(&directory.path().join("victim"));
        assert_serves(&directory.path().join("other"));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.0.id() as i32), Signal::SIGTERM).unwrap();
    wait_until("it ends", || child.0.try_wait().unwrap().is_some());
}

/// Ends with the test, also with one that fails.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The reader of the target's log may end before it.
#[test]
fn a_closed_standard_error_ends_nothing() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("victim", "1M"), Disk::memory("other", "1M")]);
    let mut child = std::process::Command::new(BINARY)
        .args(["serve", "--config"])
        .arg(directory.path().join("config.toml"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut said = Vec::new();
    while said.iter().filter(|byte| **byte == b'\n').count() < 2 {
        let mut byte = [0];
        stderr.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    drop(stderr);
    let outcome = std::panic::catch_unwind(|| {
        for _ in 0..3 {
            for disk in ["victim", "other"] {
                serves_within_reason(&directory.path().join(disk));
            }
        }
    });
    let alive = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    let _ = child.wait();
    assert!(alive && outcome.is_ok(), "alive: {alive}");
}

/// The connection before this one may not have been noticed to be closed.
fn serves_within_reason(path: &std::path::Path) {
    wait_until("it is accepted", || {
        let wire = Wire::connect(path);
        wire.ask_u64(GET_FEATURES).is_ok()
    });
}

#[test]
fn malformed_metrics_requests_harm_no_disk() {
    let directory = TempDir::new().unwrap();
    write_config(&directory, &[Disk::memory("victim", "1M"), Disk::memory("other", "1M")]);
    let address = free_address();
    let mut arena = Arena::on(Target::spawn(directory, |command| command.args(["--metrics", &address])));
    assert!(get(&address, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").contains("coalesce_"));
    for request in [
        "GET /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615\r\nConnection: close\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nContent-Length: 1099511627776\r\nConnection: close\r\n\r\n",
        "POST /metrics HTTP/1.1\r\nContent-Length: 9223372036854775807\r\nConnection: close\r\n\r\nabc",
        "GET /metrics HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5000000000\r\nConnection: close\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\nffffffffffffffff\r\n",
        "GET /metrics HTTP/1.1\r\nContent-Length: -1\r\nConnection: close\r\n\r\n",
        "GET  HTTP/1.1\r\n\r\n",
        "\r\n\r\n",
        "\0\0\0\0",
        "GET /\u{ff} HTTP/9.9\r\n\r\n",
        "nonsense",
    ] {
        get(&address, request);
        arena.target.assert_sound();
    }
    let long = format!("GET /{} HTTP/1.1\r\nConnection: close\r\n\r\n", "x".repeat(1 << 20));
    get(&address, &long);
    let answer = get(&address, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.contains("coalesce_"), "it still answers: {answer}");
}

/// An address of this machine where nobody listens.
fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// What comes back, until the connection is closed or nothing comes for a while: some requests wait for more.
fn get(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
