//! What is held is delivered when nobody would meet its deadline any more.

use coalesce_vring::{CoalescedVring, VringControl, with_policy};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use vhost_user_backend::VringT as _;
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryAtomic, GuestMemoryMmap};

const DESCRIPTORS: u64 = 0;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;

const FIVE: &str = "nvme:thr=4,time=25ms";

struct Ring {
    vring: CoalescedVring,
    mem: GuestMemoryMmap,
    kick: EventFd,
    call: EventFd,
}

fn eventfd() -> EventFd {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap()
}

fn file(eventfd: &EventFd) -> File {
    eventfd.as_fd().try_clone_to_owned().unwrap().into()
}

impl Ring {
    /// A running ring of a policy that holds for 25 ms, or until five completions.
    fn new() -> Self {
        let ring = Self::of_the_thread();
        ring.vring.set_policy(FIVE.parse().unwrap()).unwrap();
        ring
    }

    /// A running ring of the policy that this thread gives.
    fn of_the_thread() -> Self {
        let mem = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap();
        let vring = CoalescedVring::new(GuestMemoryAtomic::new(mem.clone()), 16).unwrap();
        let ring = Self { vring, mem, kick: eventfd(), call: eventfd() };
        ring.vring.set_queue_size(16);
        ring.vring.set_queue_info(DESCRIPTORS, AVAIL, USED).unwrap();
        ring.vring.set_kick(Some(file(&ring.kick)));
        ring.vring.set_call(Some(file(&ring.call)));
        ring.vring.set_queue_ready(true);
        ring.vring.set_enabled(true);
        ring.look();
        assert_eq!(ring.signals(), 1, "a new call");
        ring
    }

    /// The device's event loop looks at the kick.
    fn look(&self) {
        self.kick.write(1).unwrap();
        assert!(self.vring.read_kick().unwrap());
    }

    /// One of eight requests completes.
    fn complete(&self) {
        self.mem.write_obj(8_u16, GuestAddress(AVAIL + 2)).unwrap();
        self.vring.add_used(0, 1).unwrap();
        assert!(self.vring.needs_notification().unwrap());
        self.vring.signal_used_queue().unwrap();
        assert!(!self.vring.needs_notification().unwrap(), "it is decided");
    }

    /// Where the driver says which used descriptor is to interrupt (EVENT_IDX).
    fn ask_for(&self, event: u16) {
        self.vring.set_queue_event_idx(true);
        self.mem.write_obj(event, GuestAddress(AVAIL + 4 + 2 * 16)).unwrap();
    }

    /// Signals since this was asked last.
    fn signals(&self) -> u64 {
        self.call.read().unwrap_or(0)
    }
}

#[test]
fn a_running_ring_holds_until_its_count_or_its_deadline() {
    let ring = Ring::new();
    (0..4).for_each(|_| ring.complete());
    assert_eq!(ring.signals(), 0);
    ring.complete();
    assert_eq!(ring.signals(), 1);

    ring.complete();
    std::thread::sleep(Duration::from_millis(26));
    assert!(!ring.vring.read_kick().unwrap(), "the timer is no kick");
    assert_eq!(ring.signals(), 1);

    ring.kick.write(1).unwrap();
    assert!(ring.vring.read_kick().unwrap());
    assert_eq!(ring.signals(), 0);
}

#[test]
fn a_ring_that_stops_delivers_what_it_holds() {
    type Stop = fn(&Ring);
    let stops: [(&str, Stop); 4] = [
        ("stopped", |ring| ring.vring.set_queue_ready(false)),
        ("disabled", |ring| ring.vring.set_enabled(false)),
        ("without a kick", |ring| ring.vring.set_kick(None)),
        ("another policy", |ring| ring.vring.set_policy("none".parse().unwrap()).unwrap()),
    ];
    for (what, stop) in stops {
        let ring = Ring::new();
        ring.complete();
        assert_eq!(ring.signals(), 0, "{what}");
        stop(&ring);
        assert_eq!(ring.signals(), 1, "{what}");
        ring.complete();
        assert_eq!(ring.signals(), 1, "{what}: nothing is held any more");
    }
}

/// What was used before the ring came here needs no decision.
#[test]
fn a_ring_that_goes_on_begins_at_its_used_index() {
    let ring = Ring::new();
    ring.vring.set_queue_next_used(5);
    assert!(!ring.vring.needs_notification().unwrap());
    (0..4).for_each(|_| ring.complete());
    assert_eq!(ring.signals(), 0, "five, as it counts to");
}

/// A new descriptor gets nothing of what the old one was owed.
#[test]
fn a_call_that_is_replaced_is_signalled_before() {
    let ring = Ring::new();
    ring.complete();
    ring.vring.set_call(Some(file(&eventfd())));
    assert_eq!(ring.signals(), 1);
}

/// A daemon that ends without a word to its front end drops its vrings.
#[test]
fn a_ring_that_nobody_has_any_more_delivers_what_it_holds() {
    let Ring { vring, mem, kick, call } = Ring::new();
    let ring = Ring { vring: vring.clone(), mem, kick, call };
    ring.complete();
    let Ring { vring: last, call, .. } = ring;
    drop(vring);
    assert_eq!(call.read().unwrap_or(0), 0, "somebody has it");
    drop(last);
    assert_eq!(call.read().unwrap_or(0), 1);
}

/// vhost-user-backend starts a ring with its kick. And a process before may have held something for the call that this one gets.
#[test]
fn a_call_where_there_was_none_is_signalled() {
    let ring = Ring::new();
    ring.vring.set_call(None);
    (0..5).for_each(|_| ring.complete());
    assert_eq!(ring.signals(), 0);
    ring.vring.set_call(Some(file(&ring.call)));
    assert_eq!(ring.signals(), 1);
}

#[test]
fn a_device_may_have_asked_the_guest_itself() {
    let ring = Ring::new();
    ring.vring.set_policy("none".parse().unwrap()).unwrap();
    ring.ask_for(0);
    let mut state = ring.vring.get_mut();
    state.add_used(0, 1).unwrap();
    assert!(state.needs_notification().unwrap());
    drop(state);
    ring.vring.signal_used_queue().unwrap();
    assert_eq!(ring.signals(), 1);
}

/// The interrupt of a change of policy is the one that the guest has asked for.
#[test]
fn an_interrupt_without_a_question_answers_the_next_one() {
    let ring = Ring::new();
    ring.ask_for(0);
    (0..3).for_each(|_| ring.complete());
    ring.vring.set_policy("none".parse().unwrap()).unwrap();
    assert_eq!(ring.signals(), 1);
    ring.complete();
    assert_eq!(ring.signals(), 0, "it has not asked for another");
    ring.ask_for(4);
    ring.complete();
    assert_eq!(ring.signals(), 1);
}

/// An error of the device, or of another ring's kick, ends the event loop, and no ring hears of it.
#[test]
fn where_deadlines_are_not_met_nothing_is_held() {
    let ring = Ring::new();
    ring.complete();
    std::thread::sleep(Duration::from_millis(50)); // twice as long as anything may be held
    for _ in 0..3 {
        ring.complete();
        assert_eq!(ring.signals(), 1);
    }
    assert!(!ring.vring.read_kick().unwrap(), "the loop was only late");
    ring.complete();
    assert_eq!(ring.signals(), 0);
}

/// A kick that replaces another on a running ring is in no event loop until the ring starts again: nobody would meet a deadline.
#[test]
fn nothing_is_held_before_the_event_loop_has_looked() {
    let ring = Ring::new();
    ring.vring.set_kick(Some(file(&ring.kick)));
    ring.complete();
    assert_eq!(ring.signals(), 1);
    ring.look();
    ring.complete();
    assert_eq!(ring.signals(), 0);
}

#[test]
fn a_ring_that_cannot_be_read_is_signalled() {
    for policy in [FIVE, "none"] {
        let ring = Ring::new();
        ring.vring.set_policy(policy.parse().unwrap()).unwrap();
        ring.vring.add_used(0, 1).unwrap();
        ring.vring.set_queue_info(DESCRIPTORS, 0x10_0000, USED).unwrap(); // beyond the guest's memory
        ring.vring.signal_used_queue().unwrap();
        assert_eq!(ring.signals(), 1, "{policy}");
    }
}

/// Before the first kick, when a device has not seen its vrings yet.
#[test]
fn a_policy_is_chosen_where_vrings_are_made_and_each_has_a_control() {
    let held = |control: &VringControl| control.stats().held().map(|(_, count)| count).sum::<u64>();
    let ((rings, inner), queues) = with_policy(FIVE.parse().unwrap(), || {
        let (_, inner) = with_policy("none".parse().unwrap(), Ring::of_the_thread).unwrap();
        ([Ring::of_the_thread(), Ring::of_the_thread()], inner)
    })
    .unwrap();
    assert_eq!((queues.len(), inner.len()), (2, 1), "a daemon's own");
    (0..5).for_each(|_| rings[1].complete());
    assert_eq!((held(&queues[0]), held(&queues[1]), rings[1].signals()), (0, 4, 1));
    let stats = queues[1].delivery_stats();
    assert_eq!((stats.completions, stats.interrupts, stats.hold_ns().len()), (5, 1, 4));

    rings[0].complete();
    queues[0].set_policy("none".parse().unwrap()).unwrap();
    assert_eq!((held(&queues[0]), rings[0].signals()), (1, 1), "another policy delivers what is held");
}

#[test]
fn strict_barriers_are_refused() {
    let strict = || "cint:barrier=strict".parse().unwrap();
    let refused = [
        Ring::new().vring.set_policy(strict()).unwrap_err(),
        with_policy(strict(), || panic!("nothing is made")).map(|((), _)| ()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.to_string(), "cint: barrier=strict is not possible on a vring; allowed: relaxed");
    }
}

/// A device may add a descriptor with the ring's state in its hands.
#[test]
fn what_was_added_to_the_state_is_undecided_too() {
    let ring = Ring::new();
    ring.vring.get_mut().add_used(0, 1).unwrap();
    assert!(ring.vring.needs_notification().unwrap());
    ring.vring.signal_used_queue().unwrap();
    assert!(!ring.vring.needs_notification().unwrap(), "it is decided");
}

/// The event loop ends with an error of `read_kick`, and all its rings with it.
#[test]
fn a_call_that_fails_at_a_deadline_takes_no_kick_and_no_loop_with_it() {
    let ring = Ring::new();
    ring.vring.set_call(Some(File::open("/dev/null").unwrap())); // cannot be written
    ring.complete();
    std::thread::sleep(Duration::from_millis(26));
    ring.kick.write(1).unwrap();
    assert!(ring.vring.read_kick().unwrap());
}

/// Of two workers that have added, one decides for both; without EVENT_IDX the other one signals all the same.
#[test]
fn a_signal_about_nothing_that_was_added_delivers_what_is_held() {
    let ring = Ring::new();
    ring.complete();
    ring.vring.signal_used_queue().unwrap();
    assert_eq!(ring.signals(), 1);
    std::thread::sleep(Duration::from_millis(26));
    assert!(!ring.vring.read_kick().unwrap());
    assert_eq!(ring.signals(), 0, "it was delivered");
}

/// Both have asked before either has signalled. With EVENT_IDX the guest answers one of them.
#[test]
fn the_second_of_two_workers_that_have_added_neither_signals_nor_delivers_early() {
    for (policy, event, expected) in [("none", 0, 1), ("none", 1000, 0), (FIVE, 0, 0), (FIVE, 1000, 0)] {
        let ring = Ring::new();
        ring.vring.set_policy(policy.parse().unwrap()).unwrap();
        ring.ask_for(event);
        let workers = [0, 1];
        workers.iter().for_each(|_| ring.vring.add_used(0, 1).unwrap());
        assert!(workers.iter().all(|_| ring.vring.needs_notification().unwrap()), "{policy}, {event}");
        workers.iter().for_each(|_| ring.vring.signal_used_queue().unwrap());
        assert_eq!(ring.signals(), expected, "{policy}, {event}");
        std::thread::sleep(Duration::from_millis(26));
        assert!(!ring.vring.read_kick().unwrap());
        assert_eq!(ring.signals(), u64::from(policy == FIVE && event == 0), "{policy}, {event}: at the deadline");
    }
}

#[test]
fn with_event_idx_a_signal_about_nothing_that_was_added_loses_none() {
    for policy in [FIVE, "none"] {
        let ring = Ring::new();
        ring.vring.set_policy(policy.parse().unwrap()).unwrap();
        ring.ask_for(0);
        ring.vring.set_call(Some(File::open("/dev/null").unwrap())); // cannot be written
        (0..5).for_each(|_| ring.vring.add_used(0, 1).unwrap());
        ring.vring.signal_used_queue().unwrap_err();
        ring.vring.set_call(Some(file(&ring.call)));
        ring.vring.signal_used_queue().unwrap();
        assert_eq!(ring.signals(), 1, "{policy}: the one that has failed");

        ring.mem.write_obj(7_u16, GuestAddress(USED + 2)).unwrap();
        ring.vring.signal_used_queue().unwrap();
        assert_eq!(ring.signals(), 1, "{policy}: somebody else has added");
    }
    let ring = Ring::new();
    ring.ask_for(0);
    ring.complete();
    std::thread::sleep(Duration::from_millis(50)); // twice as long as anything may be held
    ring.vring.signal_used_queue().unwrap();
    assert_eq!(ring.signals(), 1, "the event loop has ended");
}

/// A front end sends SET_VRING_ADDR for a running ring, too, for example when a migration begins.
#[test]
fn what_is_undecided_stays_so_when_the_used_index_is_set() {
    let ring = Ring::new();
    ring.complete();
    ring.vring.add_used(0, 1).unwrap();
    ring.vring.set_queue_next_used(ring.vring.queue_used_idx().unwrap());
    assert!(ring.vring.needs_notification().unwrap());
    ring.vring.set_queue_next_used(40);
    assert!(ring.vring.needs_notification().unwrap());
    ring.vring.signal_used_queue().unwrap();
    assert!(!ring.vring.needs_notification().unwrap());
}

/// An event loop ends with an error of its kick: here a socket, which can be polled and not read.
#[test]
fn where_the_event_loop_ends_nothing_is_held() {
    let ring = Ring::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kick");
    let listener = UnixListener::bind(&path).unwrap();
    ring.vring.set_kick(Some(OwnedFd::from(listener).into()));
    let _client = UnixStream::connect(&path).unwrap();
    assert!(ring.vring.read_kick().is_err());
    ring.complete();
    assert_eq!(ring.signals(), 1);
}

/// The loop was called for a kick that another has replaced: it does not wait for the new one's timer.
#[test]
fn a_kick_without_an_event_is_watched_by_nobody() {
    let ring = Ring::new();
    let kick = eventfd();
    ring.vring.set_kick(Some(file(&kick)));
    assert!(!ring.vring.read_kick().unwrap());
    ring.complete();
    assert_eq!(ring.signals(), 1);
}

/// What is signalled without asking the policy is counted as what it decides, also before it is told.
#[test]
fn who_may_hold_nothing_is_counted_all_the_same() {
    let ring = Ring::new();
    ring.vring.set_policy("none".parse().unwrap()).unwrap();
    let mut signals = 0;
    for (completed, event) in [(1, None), (64, None), (200, None), (210, Some(1000)), (300, Some(1000))] {
        if let Some(event) = event {
            ring.ask_for(event);
        }
        let stats = ring.vring.delivery_stats();
        (stats.completions..completed).for_each(|_| ring.complete());
        let stats = ring.vring.delivery_stats();
        let delivered: u64 = ring.vring.stats().delivered().map(|(_, count)| count).sum();
        let interrupts = completed.min(200);
        assert_eq!(
            (stats.completions, stats.interrupts, stats.suppressed),
            (completed, interrupts, completed - interrupts)
        );
        assert_eq!(delivered, completed);
        signals += ring.signals();
        assert_eq!(signals, interrupts);
    }
    ring.ask_for(300);
    ring.complete();
    assert_eq!(ring.signals(), 1, "it asks again");

    ring.vring.set_queue_event_idx(false);
    ring.vring.set_policy(FIVE.parse().unwrap()).unwrap();
    ring.signals();
    (0..4).for_each(|_| ring.complete());
    assert_eq!(ring.signals(), 0, "the next policy holds from the first completion on");
    ring.complete();
    assert_eq!(ring.signals(), 1);
    assert_eq!(ring.vring.delivery_stats().completions, 306);
}

#[test]
fn as_many_as_the_used_index_counts_are_not_none() {
    for policy in ["none", "auto", "nvme:thr=1,time=25ms"] {
        for event in [None, Some(u16::MAX)] {
            let ring = Ring::new();
            ring.vring.set_policy(policy.parse().unwrap()).unwrap();
            ring.signals();
            if let Some(event) = event {
                ring.ask_for(event); // the guest polls until the index has wrapped, and waits for this one
            }
            (0..1_u32 << 16).for_each(|_| ring.vring.add_used(0, 1).unwrap());
            assert!(ring.vring.needs_notification().unwrap(), "{policy}, {event:?}");
            if event.is_some() {
                ring.vring.add_used(0, 1).unwrap();
            }
            ring.vring.signal_used_queue().unwrap();
            assert_eq!(ring.signals(), 1, "{policy}, {event:?}");
        }
    }
}
