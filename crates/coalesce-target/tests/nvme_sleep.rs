//! Shadow doorbells: whatever the order of both sides' steps, no command is slept through. Every interleaving, with every
//! reordering that the memory model allows, by loom.

use coalesce_target::nvme::doorbell::{AWAKE, FOR_HEADS_TOO, FOR_TAILS, prepare_sleep, ring, wakes};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};
use loom::thread;
use std::sync::Arc;

/// What the host and the controller share.
struct Shared {
    shadow: AtomicU32,
    event: AtomicU32,
    register: AtomicU32,
    sleeps: AtomicU8,
    is_woken: AtomicBool,
}

const COMMANDS: u32 = 2;

/// Linux: a message is due if the new value passes the event index.
const fn is_due(event: u32, new: u32, old: u32) -> bool {
    (new as u16).wrapping_sub(event as u16).wrapping_sub(1) < (new as u16).wrapping_sub(old as u16)
}

/// A host that submits commands one after the other, and a controller that takes them until it can sleep. If it has not
/// taken all of them, it must be woken.
fn host_and_controller(host_barrier: fn(), controller_barrier: fn()) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            shadow: AtomicU32::new(0),
            event: AtomicU32::new(0),
            register: AtomicU32::new(0),
            sleeps: AtomicU8::new(0),
            is_woken: AtomicBool::new(false),
        });
        let host = shared.clone();
        let host = thread::spawn(move || {
            for new in 1..=COMMANDS {
                host.shadow.store(new, Ordering::Release);
                host_barrier();
                if is_due(host.event.load(Ordering::Relaxed), new, new - 1) {
                    // A message: the connection's thread handles it.
                    let store = || host.register.store(new, Ordering::Release);
                    if ring(store, controller_barrier, || host.sleeps.load(Ordering::Relaxed) != 0) {
                        host.is_woken.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        let mut tail = 0;
        loop {
            let ask = || {
                shared.event.store(tail, Ordering::Release);
                shared.sleeps.store(1, Ordering::Relaxed);
            };
            if !prepare_sleep(ask, controller_barrier, || shared.shadow.load(Ordering::Acquire) != tail) {
                break;
            }
            shared.sleeps.store(0, Ordering::Relaxed);
            tail = shared.shadow.load(Ordering::Acquire);
            shared.event.store(tail - 1, Ordering::Release); // it is awake: behind the host, which does not pass it
        }
        host.join().unwrap();
        let is_woken = shared.is_woken.load(Ordering::Relaxed);
        assert!(is_woken || tail == COMMANDS, "slept through command {}", tail + 1);
    });
}

fn barrier() {
    fence(Ordering::SeqCst);
}

#[test]
fn no_command_is_slept_through() {
    host_and_controller(barrier, barrier);
}

#[test]
#[should_panic(expected = "slept through")]
fn without_the_controllers_barrier_one_is() {
    host_and_controller(barrier, || fence(Ordering::AcqRel));
}

#[test]
#[should_panic(expected = "slept through")]
fn without_the_hosts_barrier_one_is() {
    host_and_controller(|| fence(Ordering::AcqRel), barrier);
}

/// One doorbell: the host's value, the value at which the controller wants a message, and the register.
#[derive(Default)]
struct Doorbell {
    shadow: AtomicU32,
    event: AtomicU32,
    register: AtomicU32,
}

/// A host that submits a second command, and then takes the first one's completion out of a queue that it fills. The
/// controller has room for the second command only then: it must not sleep through either.
fn host_and_controller_without_room(controller_barrier: fn(), for_heads: u8) {
    loom::model(move || {
        let doorbells: Arc<[Doorbell; 2]> = Arc::default(); // tail, head
        let sleeps = Arc::new(AtomicU8::new(AWAKE));
        let is_woken = Arc::new(AtomicBool::new(false));
        let (host, host_sleeps, host_wakes) = (doorbells.clone(), sleeps.clone(), is_woken.clone());
        let host = thread::spawn(move || {
            for (at, doorbell) in host.iter().enumerate() {
                doorbell.shadow.store(1, Ordering::Release);
                barrier();
                if is_due(doorbell.event.load(Ordering::Relaxed), 1, 0) {
                    let store = || doorbell.register.store(1, Ordering::Release);
                    let wakes = || wakes(host_sleeps.load(Ordering::Relaxed), at == 1);
                    if ring(store, controller_barrier, wakes) {
                        host_wakes.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        let value = |at: usize| doorbells[at].shadow.load(Ordering::Acquire);
        let is_done = loop {
            let (has_command, has_room) = (value(0) == 1, value(1) == 1);
            if has_command && has_room {
                break true;
            }
            let waits_for_room = has_command;
            let ask = || {
                doorbells[0].event.store(u32::from(has_command), Ordering::Release);
                if waits_for_room {
                    doorbells[1].event.store(0, Ordering::Release);
                }
                sleeps.store(if waits_for_room { for_heads } else { FOR_TAILS }, Ordering::Relaxed);
            };
            let has_news = || value(0) != u32::from(has_command) || waits_for_room && value(1) == 1;
            if !prepare_sleep(ask, controller_barrier, has_news) {
                break false;
            }
            sleeps.store(AWAKE, Ordering::Relaxed);
        };
        host.join().unwrap();
        assert!(is_done || is_woken.load(Ordering::Relaxed), "slept through room");
    });
}

#[test]
fn no_room_is_slept_through() {
    host_and_controller_without_room(barrier, FOR_HEADS_TOO);
}

#[test]
#[should_panic(expected = "slept through room")]
fn without_the_controllers_barrier_room_is() {
    host_and_controller_without_room(|| fence(Ordering::AcqRel), FOR_HEADS_TOO);
}

#[test]
#[should_panic(expected = "slept through room")]
fn without_a_wish_for_heads_room_is() {
    host_and_controller_without_room(barrier, FOR_TAILS);
}
