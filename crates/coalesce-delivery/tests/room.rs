//! A ring with few entries, as a completion queue of NVMe is: what is held must not keep the consumer from making room.

use coalesce_delivery::{Delivery, Ring};
use coalesce_policy::{Completion, Decision, Hint, Mark, Policy as _, Reason};
use proptest::prelude::*;
use std::collections::VecDeque;

/// It was posted to without room.
#[derive(Debug, PartialEq, Eq)]
struct Overrun;

/// A completion queue whose consumer sleeps until it is interrupted.
struct CompletionQueue {
    size: usize,
    posted: VecDeque<u32>,
    covered: usize, // by interrupts, the oldest of those
    may_hold: bool,
}

impl Ring for CompletionQueue {
    type Entry = u32;
    type Broken = Overrun;

    fn post(&mut self, entry: u32) -> Result<(), Overrun> {
        if self.posted.len() == self.size {
            return Err(Overrun);
        }
        self.posted.push_back(entry);
        Ok(())
    }

    fn room(&self) -> usize {
        self.size - self.posted.len()
    }

    fn may_hold(&self) -> bool {
        self.may_hold
    }

    fn wants_interrupt(&mut self) -> bool {
        true
    }

    fn is_consumed(&mut self) -> bool {
        self.posted.is_empty()
    }

    fn interrupt(&mut self) -> bool {
        self.covered = self.posted.len();
        true
    }
}

/// A controller with one vector, and its consumer. A request is fetched only if there is room for its completion.
struct Controller {
    delivery: Delivery<u32>,
    queue: CompletionQueue,
    now: u64,
    completed: u32,
    reaped: Vec<u32>,
}

impl Controller {
    fn new(policy: &str, size: usize) -> Self {
        let delivery = Delivery::new(policy.parse().unwrap()).unwrap();
        let queue = CompletionQueue { size, posted: VecDeque::new(), covered: 0, may_hold: true };
        Self { delivery, queue, now: 0, completed: 0, reaped: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.queue.posted.len() + self.delivery.unposted() == self.queue.size
    }

    /// The next request completes. None: it was not fetched.
    fn complete(&mut self, cif: u32, hint: Hint) -> Option<Decision> {
        if self.is_full() {
            return None;
        }
        let completion = Completion { mark: Mark::of(hint), cif, ..Completion::default() };
        let entry = self.completed;
        self.completed += 1;
        Some(self.delivery.complete(&mut self.queue, self.now, entry, &completion).unwrap())
    }

    /// The consumer reaps `count` completions, or all that an interrupt covered if those are fewer.
    fn reap(&mut self, count: usize) {
        let count = count.min(self.queue.covered);
        self.queue.covered -= count;
        self.reaped.extend(self.queue.posted.drain(..count));
        self.delivery.on_consumed(&mut self.queue, self.now);
    }

    fn pass(&mut self, ns: u64) {
        self.now += ns;
        let _ = self.delivery.on_batch_end(&mut self.queue, self.now).unwrap();
        if self.delivery.deadline().is_some_and(|deadline| deadline <= self.now) {
            let _ = self.delivery.on_deadline(&mut self.queue, self.now).unwrap();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Complete(u32, Hint),
    Reap(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hint = prop_oneof![4 => Just(Hint::Plain), 1 => Just(Hint::Urgent), 1 => Just(Hint::Barrier)];
    let step = prop_oneof![
        6 => (1..40_u32, hint).prop_map(|(cif, hint)| Step::Complete(cif, hint)),
        2 => (1..4_usize).prop_map(Step::Reap),
        2 => prop_oneof![0..10_000_u64, 0..300_000_000_u64].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..100)
}

const POLICIES: [&str; 9] = [
    "none",
    "nvme",
    "batch",
    "dim",
    "spdk_vhost",
    "vic:profile=paper,epoch=1ms,iops_threshold=0",
    "cint:in_flight=off,max_hold=off",
    "cint:ooo=off,in_flight=off",
    "auto",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn a_full_ring_holds_nothing_and_nothing_is_lost(
        policy in prop::sample::select(&POLICIES[..]),
        size in 1..5_usize,
        steps in steps(),
    ) {
        let mut controller = Controller::new(policy, size);
        for step in steps {
            match step {
                Step::Complete(cif, hint) => drop(controller.complete(cif, hint)),
                Step::Reap(count) => controller.reap(count),
                Step::Pass(ns) => controller.pass(ns),
            }
            let (posted, unposted) = (controller.queue.posted.len(), controller.delivery.unposted());
            let uncovered = posted - controller.queue.covered + unposted;
            prop_assert!(posted + unposted <= size);
            prop_assert!(!controller.is_full() || uncovered == 0, "{} of {} are held", uncovered, size);
            prop_assert!(controller.delivery.policy().held() >= uncovered as u32);
        }
        let _ = controller.delivery.flush(&mut controller.queue, controller.now).unwrap();
        controller.reap(size);
        controller.reaped.sort_unstable();
        prop_assert!(controller.reaped.iter().copied().eq(0..controller.completed));
    }
}

/// As after NVMe's Coalescing Disable.
#[test]
fn a_ring_that_may_not_hold_interrupts_for_every_completion_under_every_policy() {
    for policy in POLICIES {
        let mut controller = Controller::new(policy, 100);
        controller.queue.may_hold = false;
        for i in 0..100 {
            let hint = if i % 7 == 3 { Hint::Urgent } else { Hint::Plain };
            let _ = controller.complete(40, hint).unwrap();
            assert_eq!((controller.queue.covered, controller.delivery.policy().held()), (i + 1, 0), "{policy}");
            controller.pass(1_000);
        }
    }
}

/// The interrupt for the urgent completion is followed by one for those that it overtook.
#[test]
fn an_urgent_completion_that_takes_the_last_room_is_not_delivered_alone() {
    let mut controller = Controller::new("cint:ooo=on,in_flight=off,delta=10us", 2);
    assert!(!controller.complete(9, Hint::Plain).unwrap().is_deliver());
    assert_eq!(controller.complete(9, Hint::Urgent), Some(Decision::Deliver(Reason::Flush)));
    assert_eq!((&controller.queue.posted, controller.queue.covered), (&[1, 0].into(), 2));
    assert_eq!(controller.delivery.deadline(), None);
}

/// The policy that held it delivered when it went, and there was no ring to interrupt.
#[test]
fn what_was_held_when_the_policy_changed_without_a_ring_is_delivered_by_a_flush() {
    let mut queue = CompletionQueue { size: 8, posted: VecDeque::new(), covered: 0, may_hold: true };
    let mut delivery = Delivery::new("nvme:thr=7,time=100us".parse().unwrap()).unwrap();
    let decision = delivery.complete(&mut queue, 1_000, 1, &Completion::with_cif(3)).unwrap();
    assert!(!decision.is_deliver());
    let decision = delivery.reconfigure::<CompletionQueue>(None, 2_000, "none".parse().unwrap()).unwrap().unwrap();
    assert_eq!((decision, queue.covered), (Decision::Deliver(Reason::Flush), 0));
    assert_eq!(delivery.flush(&mut queue, 3_000).unwrap(), Decision::Deliver(Reason::Flush));
    assert_eq!(queue.covered, 1);
    assert!(!delivery.flush(&mut queue, 4_000).unwrap().is_deliver(), "it is delivered once");
}
