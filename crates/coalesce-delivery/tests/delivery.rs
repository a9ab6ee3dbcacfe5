//! The order at the ring, and what is held, over a ring that writes down what is done to it.

use coalesce_delivery::{Delivery, DeliveryStats, Ring};
use coalesce_policy::{Class, Completion, Decision, Hint, HoldReason, Mark, Policy as _, Reason, Submission};

/// What was done to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Posted(u32),
    Asked,
    Interrupted,
}
use Done::{Asked, Interrupted, Posted};

/// Nothing can be posted any more.
#[derive(Debug, PartialEq, Eq)]
struct Full;

/// A ring whose consumer does as the test says.
struct Slots {
    done: Vec<Done>,
    free: usize,
    wants_interrupt: bool,
    is_consumed: bool,
    polled: Vec<u32>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { done: Vec::new(), free: 1000, wants_interrupt: true, is_consumed: false, polled: Vec::new() }
    }
}

impl Slots {
    /// What was done since this was asked.
    fn done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }
}

impl Ring for Slots {
    type Entry = u32;
    type Broken = Full;

    fn post(&mut self, entry: u32) -> Result<(), Full> {
        self.free = self.free.checked_sub(1).ok_or(Full)?;
        self.done.push(Posted(entry));
        Ok(())
    }

    fn is_polled(&self, entry: &u32) -> bool {
        self.polled.contains(entry)
    }

    fn wants_interrupt(&mut self) -> bool {
        self.done.push(Asked);
        self.wants_interrupt
    }

    fn is_consumed(&mut self) -> bool {
        self.is_consumed
    }

    fn interrupt(&mut self) -> bool {
        self.done.push(Interrupted);
        true
    }
}

const IN_ORDER: &str = "cint:delta=10us,max_hold=100us,ooo=off,in_flight=off";
const OUT_OF_ORDER: &str = "cint:delta=10us,max_hold=100us,ooo=on,in_flight=off";
const BURST: Decision = Decision::Hold(HoldReason::Burst);
const NOTHING_HELD: Decision = Decision::Hold(HoldReason::NothingHeld);
const FLUSH: Decision = Decision::Deliver(Reason::Flush);

const PLAIN: Completion =
    Completion { mark: Mark::of(Hint::Plain), cif: 9, outstanding: 0, class: Class::Io, slice_end: None };
const URGENT: Completion = Completion { mark: Mark::of(Hint::Urgent), ..PLAIN };

fn delivery(policy: &str) -> Delivery<u32> {
    Delivery::new(policy.parse().unwrap()).unwrap()
}

/// A delivery that holds two completions, posted or not, and its ring.
fn holding_two(policy: &str) -> (Delivery<u32>, Slots) {
    let (mut delivery, mut ring) = (delivery(policy), Slots::default());
    assert_eq!(delivery.complete(&mut ring, 1000, 1, &PLAIN), Ok(BURST));
    assert_eq!(delivery.complete(&mut ring, 2000, 2, &PLAIN), Ok(BURST));
    (delivery, ring)
}

/// Completions, interrupts, suppressed, consumed, and holds whose length was recorded.
fn counts(stats: &DeliveryStats) -> [u64; 5] {
    [stats.completions, stats.interrupts, stats.suppressed, stats.consumed, stats.hold_ns().len()]
}

#[test]
fn the_consumer_is_asked_only_after_the_policy_delivers() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    assert_eq!(ring.done(), [Posted(1), Posted(2)]);
    let deadline = delivery.deadline().unwrap();
    assert_eq!(deadline, 12_000);
    assert_eq!(delivery.on_deadline(&mut ring, deadline), Ok(Decision::Deliver(Reason::Delta)));
    assert_eq!(ring.done(), [Asked, Interrupted]);
    assert_eq!(counts(delivery.stats()), [2, 1, 0, 0, 2]);
}

#[test]
fn a_consumer_that_wants_no_interrupt_gets_none() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    ring.done();
    ring.wants_interrupt = false;
    assert_eq!(delivery.flush(&mut ring, 3000), Ok(FLUSH));
    assert_eq!(ring.done(), [Asked]);
    assert_eq!(counts(delivery.stats()), [2, 0, 1, 0, 2]);
}

#[test]
fn an_urgent_completion_overtakes_those_that_are_not_posted() {
    let (mut delivery, mut ring) = holding_two(OUT_OF_ORDER);
    assert_eq!((ring.done(), delivery.unposted()), (vec![], 2));
    assert_eq!(delivery.complete(&mut ring, 3000, 3, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Posted(3), Asked, Interrupted], 2));
    assert_eq!(delivery.flush(&mut ring, 4000), Ok(FLUSH));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Posted(1), Posted(2), Asked, Interrupted], 0));
    assert_eq!(counts(delivery.stats()), [3, 2, 0, 0, 2]);
}

#[test]
fn a_consumer_that_took_everything_is_not_interrupted() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    delivery.on_consumed(&mut ring, 3000);
    assert!(delivery.deadline().is_some(), "a part was taken: the rest is waited for");
    ring.is_consumed = true;
    delivery.on_consumed(&mut ring, 3000);
    assert_eq!(delivery.deadline(), None);
    assert_eq!(delivery.flush(&mut ring, 4000), Ok(NOTHING_HELD));
    assert_eq!(ring.done(), [Posted(1), Posted(2)]);
    assert_eq!(counts(delivery.stats()), [2, 0, 0, 2, 2]);
}

/// As a front end needs it that cannot see the consumer take completions.
#[test]
fn completions_and_deadlines_look_whether_everything_was_consumed() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    ring.is_consumed = true;
    assert_eq!(delivery.on_deadline(&mut ring, 12_000), Ok(NOTHING_HELD));
    assert_eq!(counts(delivery.stats()), [2, 0, 0, 2, 2]);

    assert_eq!(delivery.complete(&mut ring, 13_000, 3, &PLAIN), Ok(BURST));
    assert_eq!(delivery.complete(&mut ring, 14_000, 4, &PLAIN), Ok(BURST));
    assert_eq!(counts(delivery.stats()), [4, 0, 0, 3, 3]);
    assert_eq!(delivery.deadline(), Some(24_000), "the last one is held");
}

#[test]
fn no_other_event_interrupts_for_what_was_consumed() {
    let mut batch = delivery("batch");
    let mut ring = Slots::default();
    for entry in [1, 2] {
        let _ = batch.complete(&mut ring, 1000, entry, &PLAIN).unwrap();
    }
    (ring.is_consumed, ring.done) = (true, Vec::new());
    assert_eq!(batch.on_batch_end(&mut ring, 1000), Ok(Some(NOTHING_HELD)));

    type Event = fn(&mut Delivery<u32>, &mut Slots, u64) -> Result<Decision, Full>;
    let vic = "vic:iops_threshold=0,cif_threshold=2,epoch=1ms";
    let events: [(&str, Event); 3] = [
        (IN_ORDER, |delivery, ring, now| delivery.cancel(ring, now, Mark::of(Hint::Barrier))),
        (vic, |delivery, ring, now| delivery.on_schedule(ring, now)),
        (vic, |delivery, ring, now| delivery.on_deschedule(ring, now)),
    ];
    for (policy, event) in events {
        let (mut delivery, mut ring) = (delivery(policy), Slots::default());
        let many_in_flight = Completion { cif: 64, ..PLAIN };
        let held = (0..10_000_000).step_by(100_000).find(|&now| {
            let decision = delivery.complete(&mut ring, now, 1, &many_in_flight).unwrap();
            !decision.is_deliver()
        });
        (ring.is_consumed, ring.done) = (true, Vec::new());
        let is_deliver = event(&mut delivery, &mut ring, held.unwrap() + 1).unwrap().is_deliver();
        assert_eq!((is_deliver, ring.done()), (false, vec![]), "{policy}");
    }
}

/// A device that posts by itself has posted them all.
#[test]
fn an_urgent_completion_that_is_posted_with_others_interrupts_for_them_too() {
    let (mut delivery, mut ring) = (delivery(OUT_OF_ORDER), Slots::default());
    assert_eq!(delivery.posted(&mut ring, 1000, 0, &PLAIN), Ok(BURST));
    assert_eq!(delivery.posted(&mut ring, 2000, 2, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!((ring.done(), delivery.policy().held(), delivery.deadline()), (vec![Asked, Interrupted], 0, None));
    assert_eq!(counts(delivery.stats()), [4, 1, 0, 0, 1]);
}

/// As long as nothing waits to be posted: who is urgent goes alone then, as in [`Delivery::complete`].
#[test]
fn what_is_not_posted_stays_held_beside_what_is() {
    let (mut delivery, mut ring) = (delivery(OUT_OF_ORDER), Slots::default());
    assert_eq!(delivery.complete(&mut ring, 1000, 7, &PLAIN), Ok(BURST));
    assert_eq!(delivery.posted(&mut ring, 2000, 0, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Asked, Interrupted], 1));
    let due = delivery.deadline().expect("it has one");
    assert!(delivery.on_deadline(&mut ring, due).unwrap().is_deliver());
    assert_eq!(ring.done(), [Posted(7), Asked, Interrupted]);
}

/// The new policy knows nothing of it.
#[test]
fn what_is_held_is_due_at_once_after_a_change_without_a_ring() {
    for policy in [IN_ORDER, OUT_OF_ORDER] {
        let (mut delivery, mut ring) = holding_two(policy);
        ring.done();
        assert!(delivery.reconfigure::<Slots>(None, 3000, "vic".parse().unwrap()).unwrap().is_ok());
        assert_eq!((delivery.policy().held(), delivery.deadline()), (0, Some(0)));
        assert_eq!(delivery.on_deadline(&mut ring, 4000), Ok(FLUSH));
        assert_eq!(ring.done().last(), Some(&Interrupted));
        assert_eq!((delivery.unposted(), delivery.deadline()), (0, None));
    }
}

/// Also where something completes before anybody looks at the deadline, and the new policy holds it.
#[test]
fn what_was_held_before_a_change_without_a_ring_does_not_wait_for_the_next_completion_s_deadline() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    let spec = "nvme:thr=255,time=25500us".parse().unwrap();
    assert!(delivery.reconfigure::<Slots>(None, 3000, spec).unwrap().is_ok());
    ring.done();
    assert_eq!(delivery.deadline(), Some(0));
    let _ = delivery.complete(&mut ring, 4000, 3, &PLAIN).unwrap();
    assert!(
        ring.done().contains(&Interrupted) || delivery.deadline().is_some_and(|deadline| deadline <= 4000),
        "it waits until {:?}",
        delivery.deadline()
    );
}

#[test]
fn what_was_held_before_a_change_without_a_ring_goes_with_an_urgent_completion() {
    for before in [IN_ORDER, OUT_OF_ORDER] {
        for after in [IN_ORDER, OUT_OF_ORDER, "vic:cif_threshold=2,epoch=1ms"] {
            let (mut delivery, mut ring) = holding_two(before);
            assert!(delivery.reconfigure::<Slots>(None, 3000, "none".parse().unwrap()).unwrap().is_ok());
            assert!(delivery.reconfigure::<Slots>(None, 3000, after.parse().unwrap()).unwrap().is_ok());
            assert!(delivery.complete(&mut ring, 4000, 3, &URGENT).unwrap().is_deliver());
            let done = ring.done();
            let interrupts = done.iter().filter(|done| **done == Interrupted).count();
            assert_eq!((interrupts, done.last()), (1, Some(&Interrupted)), "{before}, {after}: {done:?}");
            let posted = done.iter().filter(|done| matches!(done, Posted(_))).count();
            assert_eq!(posted, 3, "{before}, {after}: {done:?}");
            assert_eq!((delivery.unposted(), delivery.policy().held(), delivery.deadline()), (0, 0, None));
        }
    }
}

/// `spdk_vhost` may hold for minutes.
#[test]
fn a_long_hold_counts_as_long_as_it_was() {
    let (mut delivery, mut ring) = (delivery("spdk_vhost:delay_base_us=60000000,iops_threshold=100"), Slots::default());
    let now = 20_000_000;
    for entry in 0..900 {
        let _ = delivery.complete(&mut ring, now, entry, &PLAIN).unwrap();
    }
    let _ = delivery.on_batch_end(&mut ring, now).unwrap();
    let due = delivery.deadline().unwrap();
    assert!(delivery.on_deadline(&mut ring, due).unwrap().is_deliver());
    assert!(due - now > 10_000_000_000 && delivery.stats().hold_ns().max() > (due - now) / 100 * 98);
}

#[test]
fn unposted_completions_cannot_be_consumed() {
    let (mut delivery, mut ring) = holding_two(OUT_OF_ORDER);
    ring.is_consumed = true;
    delivery.on_consumed(&mut ring, 3000);
    assert_eq!((delivery.policy().held(), delivery.stats().consumed), (2, 0));
}

#[test]
fn a_reset_delivers_what_is_held() {
    for policy in [IN_ORDER, OUT_OF_ORDER] {
        let (mut delivery, mut ring) = holding_two(policy);
        assert_eq!(delivery.reset(&mut ring, 3000), Ok(FLUSH));
        assert_eq!(ring.done(), [Posted(1), Posted(2), Asked, Interrupted]);
        assert_eq!(delivery.reset(&mut ring, 3000), Ok(NOTHING_HELD));
    }
}

/// Strict Barriers: the last request of a batch is due once all others have completed, or never will.
#[test]
fn a_barrier_does_not_wait_for_a_cancelled_request() {
    for is_reset in [false, true] {
        let (mut delivery, mut ring) = (delivery("cint:barrier=strict,in_flight=off"), Slots::default());
        let [first, barrier] = [Hint::Plain, Hint::Barrier]
            .map(|hint| delivery.on_submit(0, &Submission { hint, ..Submission::default() }));
        let completion = Completion { mark: barrier, ..PLAIN };
        assert_eq!(delivery.complete(&mut ring, 1000, 2, &completion), Ok(BURST));
        let (decision, reason) = if is_reset {
            (delivery.reset(&mut ring, 2000), Reason::Flush)
        } else {
            (delivery.cancel(&mut ring, 2000, first), Reason::Barrier)
        };
        assert_eq!(decision, Ok(Decision::Deliver(reason)));
        assert_eq!(ring.done().last(), Some(&Interrupted));
    }
}

#[test]
fn a_guest_that_leaves_its_cpu_is_interrupted_first() {
    let (mut delivery, mut ring) = (delivery("vic:iops_threshold=0,cif_threshold=2,epoch=1ms"), Slots::default());
    let many_in_flight = Completion { cif: 64, ..PLAIN };
    let held = (0..10_000_000).step_by(100_000).find(|&now| {
        let decision = delivery.complete(&mut ring, now, 1, &many_in_flight).unwrap();
        !decision.is_deliver()
    });
    let now = held.unwrap() + 1;
    ring.done();
    assert_eq!(delivery.on_deschedule(&mut ring, now), Ok(Decision::Deliver(Reason::Deschedule)));
    assert_eq!(ring.done(), [Asked, Interrupted]);
    assert_eq!(delivery.on_schedule(&mut ring, now), Ok(NOTHING_HELD));
}

#[test]
fn only_a_policy_that_waits_for_the_end_of_a_batch_decides_then() {
    let (mut nvme, mut ring) = (delivery("nvme:thr=8,time=100us"), Slots::default());
    assert_eq!(nvme.on_batch_end(&mut ring, 1000), Ok(None));

    let mut batch = delivery("batch");
    assert_eq!(batch.complete(&mut ring, 1000, 1, &PLAIN), Ok(Decision::Deliver(Reason::LeadingEdge)));
    assert_eq!(batch.complete(&mut ring, 1000, 2, &PLAIN), Ok(Decision::Hold(HoldReason::Batch)));
    assert_eq!(batch.on_batch_end(&mut ring, 1000), Ok(Some(Decision::Deliver(Reason::BatchEnd))));
    assert_eq!(ring.done(), [Posted(1), Asked, Interrupted, Posted(2), Asked, Interrupted]);
}

/// Neither is it lost, nor does it wait.
#[test]
fn what_waits_for_the_end_of_a_batch_is_due_at_once_for_a_caller_that_forgets_to_say_so() {
    for policy in ["batch", "spdk_vhost", "cint:delta=0,max_hold=off,in_flight=off"] {
        let (mut delivery, mut ring) = (delivery(policy), Slots::default());
        for entry in 0..3 {
            let _ = delivery.complete(&mut ring, 1000, entry, &PLAIN).unwrap();
        }
        ring.done();
        assert!(delivery.policy().held() > 0, "{policy}");
        assert!(delivery.deadline().is_some_and(|due| due <= 1000), "{policy}");
        assert!(delivery.on_deadline(&mut ring, 1000).unwrap().is_deliver(), "{policy}");
        assert_eq!((ring.done().last(), delivery.policy().held(), delivery.deadline()), (Some(&Interrupted), 0, None));
    }
}

#[test]
fn another_policy_goes_on_with_what_is_held() {
    let (mut delivery, mut ring) = holding_two(OUT_OF_ORDER);
    let decision = delivery.reconfigure(Some(&mut ring), 3000, IN_ORDER.parse().unwrap()).unwrap();
    assert_eq!(decision, Ok(Decision::Hold(HoldReason::Reconfigured)));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Posted(1), Posted(2)], 0));
    let decision = delivery.reconfigure(Some(&mut ring), 4000, "none".parse().unwrap()).unwrap();
    assert_eq!(decision, Ok(FLUSH));
    assert_eq!(ring.done(), [Asked, Interrupted]);
}

#[test]
fn what_is_posted_and_held_stays_so_under_a_policy_that_posts_late() {
    let (mut delivery, mut ring) = holding_two(IN_ORDER);
    ring.done();
    let decision = delivery.reconfigure(Some(&mut ring), 3000, OUT_OF_ORDER.parse().unwrap()).unwrap();
    assert_eq!(decision, Ok(Decision::Hold(HoldReason::Reconfigured)));
    assert_eq!(delivery.complete(&mut ring, 4000, 3, &PLAIN), Ok(BURST));
    assert_eq!((ring.done(), delivery.unposted()), (vec![], 1));
    assert_eq!(delivery.complete(&mut ring, 5000, 4, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!(delivery.flush(&mut ring, 6000), Ok(FLUSH));
    assert_eq!(ring.done(), [Posted(4), Asked, Interrupted, Posted(3), Asked, Interrupted]);
}

#[test]
fn what_the_consumer_polls_is_posted_at_once() {
    let (mut delivery, mut ring) = (delivery(OUT_OF_ORDER), Slots { polled: vec![2, 3], ..Slots::default() });
    assert_eq!(delivery.complete(&mut ring, 1000, 1, &PLAIN), Ok(BURST));
    assert_eq!(delivery.complete(&mut ring, 2000, 2, &PLAIN), Ok(BURST));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Posted(2)], 1));
    assert_eq!(delivery.complete(&mut ring, 3000, 3, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!((ring.done(), delivery.unposted()), (vec![Posted(3), Asked, Interrupted], 1), "not the one before it");
    assert_eq!(delivery.complete(&mut ring, 4000, 4, &URGENT), Ok(Decision::DeliverUrgent));
    assert_eq!(delivery.flush(&mut ring, 5000), Ok(FLUSH));
    assert_eq!(ring.done(), [Posted(4), Asked, Interrupted, Posted(1), Asked, Interrupted]);
}

#[test]
fn a_broken_ring_interrupts_for_what_is_posted() {
    let (mut delivery, mut ring) = (delivery(IN_ORDER), Slots { free: 1, ..Slots::default() });
    assert_eq!(delivery.complete(&mut ring, 1000, 1, &PLAIN), Ok(BURST));
    assert_eq!(delivery.complete(&mut ring, 2000, 2, &URGENT), Err(Full));
    assert_eq!(ring.done(), [Posted(1)]);
    delivery.abandon(&mut ring, 3000);
    assert_eq!(ring.done(), [Interrupted]);
    assert_eq!((delivery.unposted(), delivery.policy().held(), delivery.deadline()), (0, 0, None));
}
