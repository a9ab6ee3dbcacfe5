//! A device that posts each completion when it comes: `cargo test -p coalesce-delivery --no-default-features --test no_alloc`

use coalesce_delivery::{Count, Delivery, Ring};
use coalesce_policy::{
    AnyPolicy, CintSpec, Completion, Decision, Hint, HintSpec, HoldReason, Mark, Policy, Reason, Spec,
};
use core::convert::Infallible;

/// What was done to a ring, newest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Posted(u32),
    Decided(Decision, u32), // and how many the policy holds then
    Interrupted,
}
use Done::{Decided, Interrupted, Posted};

/// A ring of a device, with room for what is done to it.
struct Line {
    done: [Option<Done>; 8],
    may_hold: bool,
    is_consumed: bool,
}

impl Line {
    const NEW: Self = Self { done: [None; 8], may_hold: true, is_consumed: false };

    fn note(&mut self, done: Done) {
        *self.done.iter_mut().find(|place| place.is_none()).unwrap() = Some(done);
    }

    fn check(&mut self, expected: &[Done]) {
        assert!(self.done.iter().flatten().eq(expected), "{:?}", self.done);
        self.done = [None; 8];
    }
}

impl Ring for Line {
    type Entry = u32;
    type Broken = Infallible;

    fn post(&mut self, entry: u32) -> Result<(), Infallible> {
        self.note(Posted(entry));
        Ok(())
    }

    fn may_hold(&self) -> bool {
        self.may_hold
    }

    fn wants_interrupt(&mut self) -> bool {
        true
    }

    fn is_consumed(&mut self) -> bool {
        self.is_consumed
    }

    fn interrupt(&mut self) -> bool {
        self.note(Interrupted);
        true
    }

    fn decided<P: Policy>(&mut self, decision: Decision, policy: &P) {
        self.note(Decided(decision, policy.held()));
    }
}

const BURST: Decision = Decision::Hold(HoldReason::Burst);

fn delivery() -> Delivery<u32, AnyPolicy, Count> {
    let hints = HintSpec { ooo: true, ..HintSpec::DEFAULT };
    let cint = CintSpec { delta_ns: 10_000, in_flight: None, hints, ..CintSpec::DEFAULT };
    Delivery::counting(AnyPolicy::new(Spec::Cint(cint), 1_000_000_000).unwrap())
}

fn of(hint: Hint) -> Completion {
    Completion { mark: Mark::of(hint), ..Completion::with_cif(9) }
}

#[test]
fn what_is_held_is_posted_and_an_urgent_completion_interrupts_alone() {
    let (mut delivery, mut line) = (delivery(), Line::NEW);
    assert_eq!(delivery.complete(&mut line, 1000, 1, &of(Hint::Plain)), Ok(BURST));
    assert_eq!(delivery.complete(&mut line, 2000, 2, &of(Hint::Urgent)), Ok(Decision::DeliverUrgent));
    line.check(&[Posted(1), Decided(BURST, 1), Posted(2), Decided(Decision::DeliverUrgent, 1), Interrupted]);
    assert_eq!((delivery.policy().held(), delivery.unposted(), delivery.deadline()), (1, 0, Some(12_000)));
    let delta = Decision::Deliver(Reason::Delta);
    assert_eq!(delivery.on_deadline(&mut line, 12_000), Ok(delta));
    line.check(&[Decided(delta, 0), Interrupted]);
    assert_eq!((delivery.stats().completions, delivery.stats().interrupts, delivery.deadline()), (2, 2, None));
}

#[test]
fn a_ring_that_forbids_holds_sees_the_flush_alone() {
    let (mut delivery, mut line) = (delivery(), Line { may_hold: false, ..Line::NEW });
    let flush = Decision::Deliver(Reason::Flush);
    assert_eq!(delivery.complete(&mut line, 1000, 1, &of(Hint::Plain)), Ok(flush));
    line.check(&[Posted(1), Decided(flush, 0), Interrupted]);
}

#[test]
fn what_was_consumed_is_counted_and_not_interrupted_for() {
    let (mut delivery, mut line) = (delivery(), Line::NEW);
    for entry in [1, 2] {
        assert_eq!(delivery.complete(&mut line, 1000, entry, &of(Hint::Plain)), Ok(BURST));
    }
    line.is_consumed = true;
    delivery.on_consumed(&mut line, 2000);
    assert_eq!((delivery.stats().consumed, delivery.policy().held(), delivery.deadline()), (2, 0, None));
}

/// The policy may have been told to hold no more, or something else, by who knows its type.
#[test]
fn a_change_is_carried_out() {
    let (mut delivery, mut line) = (delivery(), Line::NEW);
    assert_eq!(delivery.complete(&mut line, 1000, 1, &of(Hint::Plain)), Ok(BURST));
    line.done = [None; 8];
    let now = 2000;
    let changed = delivery.change(Some(&mut line), now, |policy| policy.reconfigure(Spec::None, now).unwrap());
    assert_eq!(changed, Ok(Decision::Deliver(Reason::Flush)));
    line.check(&[Decided(Decision::Deliver(Reason::Flush), 0), Interrupted]);
}
