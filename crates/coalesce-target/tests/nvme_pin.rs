//! The interrupt pin (INTx) of the NVMe controller, for guests without MSI-X: it is level-triggered, all queues share it, and the
//! policy still decides when it is asserted first.

mod medium;
mod nvme_host;

use medium::Medium;
use nix::sys::eventfd::EventFd;
use nvme_host::{Cq, DATA, DNR, Host, PATIENCE, QUIET, READ, SIZE, Setup, Sq, Sqe};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::scope;
use std::time::Instant;

const ZEROES: u8 = 8;

/// 8 completions, or 25.5 ms.
const EIGHT: &str = "nvme:thr=7,time=25500us";

fn read(lba: u64) -> Sqe {
    Sqe::io(READ).blocks(lba, 8).prps(DATA, 0)
}

fn signals(pin: &EventFd) -> u64 {
    pin.read().unwrap_or(0)
}

/// Waits for a signal, as the client does before it raises the line of its guest.
fn signal(pin: &EventFd) {
    let start = Instant::now();
    while signals(pin) == 0 {
        assert!(start.elapsed() < PATIENCE, "no interrupt");
        std::thread::yield_now();
    }
}

/// What the client does when its guest accesses a register.
fn unmask(host: &mut Host) {
    host.vectors.mask_pin(false);
    host.controller.pin_is_unmasked();
}

/// Waits until the threads have done what they were told.
fn settle(host: &Host) {
    (0..host.queues.len()).for_each(|queue| drop(host.stats(queue)));
}

fn start(policy: &str) -> (Host, EventFd, Sq, Cq) {
    let mut host = Host::off(&Setup { policy, ..Setup::default() });
    let pin = host.use_pin();
    host.enable();
    let cq = host.create_cq(1, 64, 0, true);
    let sq = host.create_sq(1, 64, 1);
    unmask(&mut host); // after the admin commands
    signals(&pin);
    (host, pin, sq, cq)
}

#[test]
fn the_pin_is_asserted_until_the_host_has_consumed() {
    let (mut host, pin, mut sq, mut cq) = start("none");
    assert!(!host.controller.asserts_pin());
    host.submit(&mut sq, read(0));
    signal(&pin);
    host.submit(&mut sq, read(1));
    host.completed(0, 2);
    assert_eq!((signals(&pin), host.controller.asserts_pin()), (0, true), "its signal masks it");
    unmask(&mut host);
    signal(&pin);
    host.reap(&mut cq, 1);
    unmask(&mut host);
    signal(&pin);
    assert_eq!(host.stats(0).interrupts, 3, "each signal is counted");
    assert!(host.stats(0).host.unwrap().intx);
    host.reap(&mut cq, 1);
    assert!(!host.controller.asserts_pin());
    unmask(&mut host);
    settle(&host);
    assert_eq!((signals(&pin), host.stats(0).interrupts), (0, 3), "nothing is left");
    host.submit(&mut sq, read(2));
    signal(&pin);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
}

#[test]
fn all_queues_share_the_pin() {
    let (mut host, pin, ..) = start("none");
    let mut polled = host.create_cq(2, 8, 0, false);
    let mut polled_sq = host.create_sq(2, 8, 2);
    let create = Sqe::new(5).prps(0x30_0000, 0).dword(10, 3 | 7 << 16).dword(11, 3 | 1 << 16);
    assert_eq!(host.admin(create.dword(10, 2 | 7 << 16)), (0x101 | DNR, 0));
    host.admin_ok(Sqe::new(0).dword(10, 1));
    host.admin_ok(Sqe::new(4).dword(10, 1));
    assert_eq!(host.admin(create.dword(10, 1 | 7 << 16)), (0x108 | DNR, 0), "vector 1 needs MSI-X");
    let mut cq = host.create_cq(1, 64, 0, true);
    let mut sq = host.create_sq(1, 64, 1);
    unmask(&mut host);
    settle(&host);
    signals(&pin);
    unmask(&mut host);
    // One that is polled asserts nothing.
    for count in 1..=20 {
        host.submit(&mut polled_sq, read(0));
        host.completed(0, count);
        unmask(&mut host);
        assert_eq!((signals(&pin), host.controller.asserts_pin()), (0, false), "completion {count}");
        assert_eq!(host.reap(&mut polled, 1)[0].status, 0);
    }
    // An admin completion.
    let event = host.admin_submit(Sqe::new(0x0c));
    assert_eq!(signals(&pin), 0);
    host.doorbell(9, 1); // of no queue
    signal(&pin);
    unmask(&mut host);
    signal(&pin); // it is not consumed
    host.submit(&mut sq, read(0));
    host.completed(0, 21);
    assert_eq!(host.admin_next().cid, event);
    unmask(&mut host);
    signal(&pin);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    // A queue that is deleted with what the host has not consumed.
    host.submit(&mut sq, read(0));
    unmask(&mut host);
    signal(&pin);
    host.admin_ok(Sqe::new(0).dword(10, 1));
    host.admin_ok(Sqe::new(4).dword(10, 1));
    unmask(&mut host);
    settle(&host);
    assert_eq!((signals(&pin), host.controller.asserts_pin()), (0, false));
}

#[test]
fn the_host_can_mask_the_pin() {
    let (mut host, pin, mut sq, mut cq) = start("none");
    host.set32(0x0c, 1);
    assert_eq!(host.get32(0x0c), 1);
    host.submit(&mut sq, read(0));
    host.completed(0, 1);
    unmask(&mut host);
    settle(&host);
    assert_eq!((signals(&pin), host.controller.asserts_pin()), (0, false));
    host.set32(0x10, 1);
    signal(&pin);
    assert_eq!((host.reap(&mut cq, 1)[0].status, host.get32(0x10)), (0, 0));
    host.vectors.allow_pin(true, false);
    host.submit(&mut sq, read(0));
    host.completed(0, 2);
    unmask(&mut host);
    settle(&host);
    assert_eq!((signals(&pin), host.controller.asserts_pin()), (0, true), "Interrupt Disable");
    host.vectors.allow_pin(false, false);
    host.controller.pin_is_unmasked();
    signal(&pin);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    // What completes before the client has an eventfd.
    unmask(&mut host);
    host.vectors.deassign_pin();
    host.submit(&mut sq, read(0));
    host.completed(0, 3);
    assert_eq!(signals(&pin), 0);
    let pin = host.use_pin();
    signal(&pin);
    assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
}

/// What is held is posted, but not announced: it does not assert the pin before it is due.
#[test]
fn the_policy_decides_when_the_pin_is_asserted() {
    for _ in 0..20 {
        let (mut host, pin, mut sq, mut cq) = start(EIGHT);
        let begun = Instant::now();
        for lba in 0..8 {
            host.put(&mut sq, read(lba));
        }
        host.ring_sq(&sq);
        signal(&pin);
        for lba in 0..3 {
            host.put(&mut sq, read(lba));
        }
        host.ring_sq(&sq);
        host.completed(0, 11);
        host.reap(&mut cq, 8);
        unmask(&mut host);
        let (is_asserted, seen) = (host.controller.asserts_pin(), signals(&pin));
        if begun.elapsed().as_millis() >= 20 {
            continue; // what was held may be due
        }
        assert_eq!((is_asserted, seen, host.stats(0).interrupts), (false, 0, 1));
        signal(&pin); // by time
        host.reap(&mut cq, 3);
        unmask(&mut host);
        settle(&host);
        assert_eq!((signals(&pin), host.stats(0).interrupts), (0, 2));
        return;
    }
    panic!("the machine is too busy");
}

/// QEMU unmasks the pin at any access to registers: only one of them says that the guest has served the device.
#[test]
fn a_host_that_moves_a_head_serves_the_pin() {
    let (mut host, pin, mut sq, mut cq) = start("none");
    let accesses: [fn(&mut Host, &Sq); 4] = [
        |host, _| _ = host.get32(0x1c),
        |host, _| host.set32(0x0c, 0),
        |host, _| host.controller.write(0x1001, &[0]),
        |host, sq| host.ring_sq(sq),
    ];
    for access in accesses {
        host.submit(&mut sq, read(0));
        signal(&pin);
        assert!(!host.controller.serves_pin(), "a tail");
        host.reap(&mut cq, 1);
        assert!(host.controller.serves_pin(), "a head");
        access(&mut host, &sq);
        assert!(!host.controller.serves_pin(), "something else came later");
        unmask(&mut host);
    }
}

/// QEMU lowers the line of its guest at an access to registers: a host with shadow doorbells has none.
#[test]
fn shadow_doorbells_are_for_hosts_with_msix() {
    let (mut host, ..) = start("none");
    let controller = |host: &mut Host| {
        host.admin_ok(Sqe::new(6).prps(DATA, 0).dword(10, 1));
        host.bytes(DATA + 256, 2)
    };
    assert_eq!(controller(&mut host), [0, 0]);
    assert_eq!(host.admin(Sqe::new(0x7c).prps(DATA, DATA + 4096)), (0x01 | DNR, 0));
    host.vectors.allow_pin(false, true);
    assert_eq!(controller(&mut host), [0, 1]);
    host.admin_ok(Sqe::new(0x7c).prps(DATA + 0x10_0000, DATA + 0x10_1000));
}

/// A reset with completions announced, held and in flight.
#[test]
fn a_reset_ends_what_is_asserted() {
    let Some(medium) = Medium::new_or_skip("the pin and a reset", SIZE as usize) else { return };
    let mut host = Host::off(&Setup { policy: EIGHT, file: Some(&medium.path()), ..Setup::default() });
    let pin = host.use_pin();
    for round in 0..5 {
        let (has_begun, go_on) = medium.stall_first_zeroing();
        host.enable();
        host.create_cq(1, 64, 0, true);
        let mut sq = host.create_sq(1, 64, 1);
        for lba in 0..9 {
            host.put(&mut sq, read(lba));
        }
        host.put(&mut sq, Sqe::io(ZEROES).blocks(0, 8));
        host.ring_sq(&sq);
        has_begun.recv_timeout(PATIENCE).unwrap();
        host.completed(0, 9 * (round + 1) + round);
        assert!(host.controller.asserts_pin());
        host.set32(0x14, 0x0046_0000);
        assert!(!host.controller.asserts_pin());
        unmask(&mut host);
        signals(&pin);
        go_on.send(()).unwrap();
        host.wait_csts(1, 0);
        unmask(&mut host);
        settle(&host);
        assert_eq!(signals(&pin), 0, "round {round}");
    }
}

/// The next driver does not know what the one before has masked.
#[test]
fn a_reset_ends_the_masks_of_the_host() {
    let (mut host, pin, ..) = start("none");
    let resets: [fn(&mut Host); 2] = [Host::disable, |host| assert!(host.controller.reset())];
    for reset in resets {
        host.set32(0x0c, u32::MAX);
        assert_eq!(host.get32(0x0c), u32::MAX);
        reset(&mut host);
        assert_eq!([host.get32(0x0c), host.get32(0x10)], [0; 2]);
        host.enable();
        let mut cq = host.create_cq(1, 64, 0, true);
        let mut sq = host.create_sq(1, 64, 1);
        unmask(&mut host); // after the admin commands
        signals(&pin);
        host.submit(&mut sq, read(0));
        signal(&pin);
        assert_eq!(host.reap(&mut cq, 1)[0].status, 0);
    }
}

/// The host consumes in its handler, masks and unmasks as it likes, and sleeps until it is interrupted: it is, each time.
#[test]
fn no_interrupt_is_lost_while_the_pin_is_masked_and_unmasked() {
    for policy in ["none", "auto", EIGHT, "cint:ooo=on,barrier=strict,in_flight=off"] {
        let (mut host, pin, mut sq, mut cq) = start(policy);
        let vectors = host.vectors.clone();
        let (goes_on, is_over) = channel::<()>();
        scope(|threads| {
            let _goes_on = goes_on; // until this has ended, or failed
            // Masks that the client sets by itself: the host unmasks after each.
            threads.spawn(move || {
                while is_over.recv_timeout(QUIET / 1000) == Err(RecvTimeoutError::Timeout) {
                    vectors.mask_pin(true);
                }
            });
            let (mut number, mut in_flight) = (1_u64, 0);
            let begin = Instant::now();
            for round in 0..400 {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                for _ in 0..=number >> 61 {
                    if in_flight < 40 {
                        host.put(&mut sq, read(round));
                        in_flight += 1;
                    }
                }
                host.ring_sq(&sq);
                let mut seen = 0;
                while seen == 0 {
                    unmask(&mut host);
                    seen = signals(&pin);
                    assert!(begin.elapsed() < 10 * PATIENCE, "{policy}: round {round}, no interrupt for {in_flight}");
                }
                let most = if number >> 50 & 1 == 0 { u64::MAX } else { number >> 40 & 3 };
                let mut reaped = 0;
                while reaped < most && host.peek(&mut cq).is_some() {
                    reaped += 1;
                }
                if reaped > 0 {
                    host.ring(3, cq.head);
                    in_flight -= reaped;
                }
                unmask(&mut host);
                if in_flight == 0 {
                    settle(&host);
                    signals(&pin);
                }
            }
        });
    }
}
