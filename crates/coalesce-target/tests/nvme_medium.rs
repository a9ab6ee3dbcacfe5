//! The NVMe controller over a medium that remembers what it was asked, and that can be slow: what is durable, and what waits
//! for requests in flight.

mod medium;
mod nvme_host;

use coalesce_target::vfio_user::PATIENCE as ANSWER_BY;
use medium::{Call, Event, Fault, Medium};
use nvme_host::{DATA, Host, PATIENCE, QUIET, READ, SIZE, Setup, Sqe, WRITE};
use std::thread::sleep;
use std::time::Instant;

const FUA: u32 = 1 << 30;
const WRITE_ZEROES: u8 = 8;

fn read(lba: u64) -> Sqe {
    Sqe::io(READ).blocks(lba, 8).prps(DATA, 0)
}

fn write(lba: u64) -> Sqe {
    Sqe::io(WRITE).blocks(lba, 8).prps(DATA, 0)
}

fn zero(lba: u64) -> Sqe {
    Sqe::io(WRITE_ZEROES).blocks(lba, 8)
}

fn fua(sqe: Sqe) -> Sqe {
    sqe.dword(12, sqe.0[12] | FUA)
}

/// What is on the medium when each command has completed: Force Unit Access, and Feature 06h.
#[test]
fn what_must_be_durable_is_on_the_medium_when_it_completes() {
    let Some(medium) = Medium::new_or_skip("durable commands", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
    let (mut sq, mut cq) = host.pair(8);
    for (has_cache, sqe, is_durable) in [
        (true, write(0), false),
        (true, fua(write(0)), true),
        (true, zero(8), false),
        (true, fua(zero(8)), true),
        (true, read(0), false),
        (true, fua(read(0)), true),
        (false, write(0), true),
        (false, zero(8), true),
        (false, read(0), false),
        (false, fua(read(0)), true), // what was written before the cache was switched off may be in it
    ] {
        assert_eq!(host.set_feature(6, u32::from(has_cache)), (0, 0));
        host.write(DATA, &[0x5a; 4096]);
        medium.state().log.clear();
        assert_eq!(host.io((&mut sq, &mut cq), sqe), 0);
        let log = medium.state().log.clone();
        let writes = log.iter().filter(|event| matches!(event, Event::Write { .. })).count();
        let reached = log.iter().any(|event| matches!(event, Event::Flush | Event::Write { durable: true, .. }));
        let is_read = sqe.0[0] as u8 == READ;
        assert!(!is_read || writes == 0);
        assert_eq!(reached, is_durable, "cache: {has_cache}, {sqe:x?}: {log:x?}");
    }
    medium.plan(|call| match call {
        Call::Flush => Fault::Error(nix::errno::Errno::EIO, 0),
        _ => Fault::None,
    });
    assert_eq!(host.set_feature(6, 1), (0, 0));
    assert_eq!(host.io((&mut sq, &mut cq), read(0)), 0);
    assert_eq!(host.io((&mut sq, &mut cq), fua(read(0))) & 0xfff, 0x281, "Unrecovered Read Error");
    host.admin_ok(Sqe::new(2).prps(DATA, 0).dword(10, 2 | 127 << 16));
    assert_eq!(host.bytes(DATA + 160, 1), [1], "an error of the medium, in SMART / Health Information");
}

/// As QEMU resets a guest, or its driver lets go: an answer comes in time, and it does not say what is not so.
#[test]
fn what_waits_for_requests_in_flight_waits_only_for_a_while() {
    let wait = |end: fn(&mut Host) -> bool| {
        let Some(medium) = Medium::new_or_skip("a wait that ends", SIZE as usize) else { return };
        let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
        let (mut sq, _) = host.pair(8);
        let (has_begun, go_on) = medium.stall_first_zeroing();
        host.submit(&mut sq, zero(0));
        has_begun.recv_timeout(PATIENCE).unwrap();
        let start = Instant::now();
        assert!(!end(&mut host) && start.elapsed() >= ANSWER_BY);
        go_on.send(()).unwrap();
        assert!(host.controller.reset(), "now nothing is in flight");
        host.enable();
        host.assert_alive();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| wait(|host| host.controller.reset()));
        scope.spawn(|| wait(|host| host.controller.set_bus_master(false)));
        scope.spawn(|| {
            wait(|host| {
                host.set32(0x14, 0x0046_0000); // disabled, and not drained
                host.controller.set_bus_master(false)
            });
        });
    });
}

/// The last flush of a shutdown needs no guest memory: it does not wait until bus mastering is on again.
#[test]
fn a_shutdown_ends_without_bus_mastering() {
    let mut host = Host::new("none");
    let (mut sq, mut cq) = host.pair(8);
    host.controller.set_bus_master(false);
    host.set32(0x14, 0x0046_4001);
    host.wait_csts(0xc, 0x8);
    assert_eq!(host.stats(0).device.flushes, 1);
    host.submit(&mut sq, read(0));
    sleep(QUIET);
    assert_eq!((host.peek(&mut cq), host.admin_peek(), host.interrupts(1)), (None, None, 0));

    // It has begun, and a command is in flight, when bus mastering ends.
    let Some(medium) = Medium::new_or_skip("a shutdown while bus mastering ends", SIZE as usize) else { return };
    let mut host = Host::with(&Setup { file: Some(&medium.path()), ..Setup::default() });
    let (mut sq, _) = host.pair(8);
    let (has_begun, go_on) = medium.stall_first_zeroing();
    host.submit(&mut sq, zero(0));
    has_begun.recv_timeout(PATIENCE).unwrap();
    host.set32(0x14, 0x0046_4001);
    std::thread::spawn(move || {
        sleep(QUIET);
        let _ = go_on.send(());
    });
    host.controller.set_bus_master(false);
    host.wait_csts(0xc, 0x8);
    assert_eq!(medium.state().log.last(), Some(&Event::Flush));
}
