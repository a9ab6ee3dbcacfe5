//! A device that posts and interrupts by itself: nothing that completed is forgotten, whatever comes between the decision and the
//! interrupt.

use coalesce_delivery::{Deferred, Interrupt};
use coalesce_policy::Bypassed;
use coalesce_policy::{AnyPolicy, Completion, Hint, Mark, Policy as _, Spec, Submission};
use proptest::prelude::*;

const HZ: u64 = 1_000_000_000;
const CINT: &str = "cint:delta=10us,max_hold=100us,ooo=on,in_flight=off";

fn deferred(policy: &str) -> Deferred {
    Deferred::new(AnyPolicy::new(policy.parse().unwrap(), HZ).unwrap())
}

fn of(hint: Hint) -> Completion {
    Completion { mark: Mark::of(hint), ..Completion::with_cif(9) }
}

/// A delivery that holds a completion of instant 1000.
fn holding_one(policy: &str) -> Deferred {
    let mut deferred = deferred(policy);
    deferred.completed(1000, 0, &of(Hint::Plain));
    assert_eq!((deferred.held(), deferred.is_due()), (1, false));
    deferred
}

/// Completions, interrupts, suppressed, consumed, and holds whose length was recorded.
fn counts(deferred: &Deferred) -> [u64; 5] {
    let stats = deferred.stats();
    [stats.completions, stats.interrupts, stats.suppressed, stats.consumed, stats.hold_ns().len()]
}

#[test]
fn what_is_due_stays_due_until_the_interrupt_and_what_came_meanwhile_is_covered_by_it() {
    let mut deferred = holding_one(CINT);
    assert_eq!(deferred.deadline(), Some(11_000));
    deferred.on_deadline(10_999);
    assert!(!deferred.is_due());
    deferred.on_deadline(11_000);
    assert_eq!((deferred.is_due(), deferred.deadline()), (true, Some(0)));
    deferred.completed(12_000, 1, &of(Hint::Plain));
    deferred.interrupted(13_000, Interrupt::Failed);
    deferred.on_deadline(13_000);
    deferred.end_batch(13_000);
    deferred.change(13_000, |policy| policy.reconfigure("none".parse().unwrap(), 13_000).unwrap());
    assert_eq!((deferred.is_due(), deferred.deadline()), (true, Some(0)));
    deferred.interrupted(14_000, Interrupt::Sent);
    assert_eq!((deferred.is_due(), deferred.held(), deferred.deadline()), (false, 0, None));
    assert_eq!((deferred.policy().held(), counts(&deferred)), (0, [3, 1, 0, 0, 3]));
}

#[test]
fn an_interrupt_that_fails_is_due_though_nobody_has_decided_so() {
    let mut deferred = deferred("none");
    deferred.bypassed(1000, &Bypassed { completions: 1, interrupts: 1, suppressed: 0, outstanding: 1 });
    deferred.interrupted(2000, Interrupt::Failed);
    assert_eq!((deferred.is_due(), counts(&deferred)), (true, [1, 1, 0, 0, 0]));
    deferred.interrupted(3000, Interrupt::Unwanted);
    assert_eq!((deferred.is_due(), counts(&deferred)), (false, [1, 1, 1, 0, 0]));
}

/// The interrupts of a bypass came before what is held, or after it: nobody knows.
#[test]
fn a_bypass_that_is_reported_late_costs_an_interrupt_and_loses_none() {
    let mut deferred = holding_one(CINT);
    deferred.bypassed(2000, &Bypassed { completions: 5, interrupts: 0, suppressed: 0, outstanding: 9 });
    assert_eq!((deferred.is_due(), deferred.policy().held()), (true, 1), "no interrupt covers nothing");
    let mut deferred = holding_one(CINT);
    deferred.bypassed(2000, &Bypassed { completions: 5, interrupts: 1, suppressed: 0, outstanding: 9 });
    assert!(deferred.is_due());
    deferred.interrupted(3000, Interrupt::Sent);
    assert_eq!((deferred.deadline(), counts(&deferred)), (None, [6, 2, 0, 0, 1]));
}

#[test]
fn what_waits_for_the_end_of_a_batch_is_not_due_before_it_for_a_caller_that_ends_batches() {
    for policy in ["spdk_vhost", "cint:delta=0,max_hold=off,in_flight=off"] {
        let mut deferred = deferred(policy);
        deferred.completed(1000, 0, &of(Hint::Plain));
        deferred.on_deadline(1000);
        assert!(deferred.is_due(), "{policy}: it may be one that never ends a batch");
        deferred.interrupted(1000, Interrupt::Sent);
        deferred.end_batch(1000);
        deferred.completed(2000, 0, &of(Hint::Plain));
        deferred.on_deadline(2000);
        assert!(!deferred.is_due() && deferred.held() == 1, "{policy}");
        deferred.end_batch(2000);
        assert!(deferred.is_due(), "{policy}");
    }
}

#[test]
fn a_consumer_that_took_everything_needs_no_interrupt_unless_one_is_due() {
    let mut deferred = holding_one(CINT);
    deferred.on_consumed(2000);
    assert_eq!((deferred.deadline(), counts(&deferred)), (None, [1, 0, 0, 1, 1]));
    deferred.completed(3000, 0, &of(Hint::Urgent));
    deferred.on_consumed(4000);
    assert!(deferred.is_due());
}

#[test]
fn after_a_reset_nothing_is_held_and_nothing_is_due() {
    for is_due in [false, true] {
        let mut deferred = holding_one(CINT);
        if is_due {
            deferred.flush(2000);
            deferred.completed(2000, 0, &of(Hint::Plain));
        }
        deferred.reset(3000);
        assert_eq!(
            (deferred.is_due(), deferred.held(), deferred.policy().held(), deferred.deadline()),
            (false, 0, 0, None)
        );
    }
}

#[test]
fn a_completion_of_which_nothing_is_known_is_due() {
    let mut deferred = deferred(CINT);
    deferred.completed_unknown(1000);
    assert!(deferred.is_due());
}

/// More than the policy counts in one call.
#[test]
fn a_report_of_very_many_counts_them_all() {
    let mut deferred = deferred("none");
    deferred.completed(1000, 1_000_000, &of(Hint::Plain));
    assert_eq!((deferred.is_due(), deferred.stats().completions), (true, 1_000_001));
}

#[derive(Clone, Debug)]
enum Op {
    Advance(u64),
    Submit(u32),
    Complete(u32, Hint, u32),
    EndBatch,
    Deadline,
    Interrupted(Interrupt),
    Bypassed(Bypassed),
    Consumed,
    Cancel,
    Deschedule,
    Flush,
    Policy(usize),
    Reset,
}

/// Every one of them bounds what it holds.
const POLICIES: [&str; 8] = [
    CINT,
    "cint:delta=0,max_hold=off,in_flight=off",
    "cint:barrier=strict,max_hold=100us",
    "vic:iops_threshold=0,epoch=1ms",
    "auto",
    "batch",
    "nvme:thr=8,time=100us",
    "none",
];

fn op() -> impl Strategy<Value = Op> {
    let hint = prop_oneof![6 => Just(Hint::Plain), 1 => Just(Hint::Urgent), 1 => Just(Hint::Barrier)];
    let interrupt = prop_oneof![Just(Interrupt::Sent), Just(Interrupt::Unwanted), Just(Interrupt::Failed)];
    let bypassed = (0..20_u64, 0..3_u16, 0..2_u16).prop_map(|(completions, interrupts, suppressed)| Bypassed {
        completions,
        interrupts,
        suppressed,
        outstanding: 1,
    });
    prop_oneof![
        4 => (0..50_000_u64).prop_map(Op::Advance),
        2 => (1..40_u32).prop_map(Op::Submit),
        8 => (0..20_u32, hint, 1..40_u32).prop_map(|(before, hint, cif)| Op::Complete(before, hint, cif)),
        3 => Just(Op::EndBatch),
        3 => Just(Op::Deadline),
        4 => interrupt.prop_map(Op::Interrupted),
        1 => bypassed.prop_map(Op::Bypassed),
        1 => Just(Op::Consumed),
        1 => Just(Op::Cancel),
        1 => Just(Op::Deschedule),
        1 => Just(Op::Flush),
        1 => (0..POLICIES.len()).prop_map(Op::Policy),
        1 => Just(Op::Reset),
    ]
}

proptest! {
    #[test]
    fn every_completion_is_covered_by_an_interrupt_that_is_due_or_by_a_deadline(
        first in 0..POLICIES.len(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let mut deferred = deferred(POLICIES[first]);
        let (mut now, mut uncovered, mut completions) = (1_000_000, 0_u64, 0_u64);
        for op in ops {
            let was_due = deferred.is_due();
            let mut may_end = false; // what was due
            match op.clone() {
                Op::Advance(ns) => now += ns,
                Op::Submit(outstanding) => {
                    let _ = deferred.on_submit(now, &Submission { outstanding, ..Submission::ALONE });
                }
                Op::Complete(before, hint, cif) => {
                    deferred.completed(now, before, &Completion { cif, ..of(hint) });
                    uncovered += u64::from(before) + 1;
                    completions += u64::from(before) + 1;
                }
                Op::EndBatch => deferred.end_batch(now),
                Op::Deadline => deferred.on_deadline(now),
                Op::Interrupted(interrupt) => {
                    deferred.interrupted(now, interrupt);
                    if interrupt != Interrupt::Failed {
                        (uncovered, may_end) = (0, true);
                        prop_assert_eq!((deferred.held(), deferred.policy().held()), (0, 0));
                    }
                }
                Op::Bypassed(bypassed) => {
                    deferred.bypassed(now, &bypassed);
                    completions += bypassed.completions;
                }
                Op::Consumed => {
                    deferred.on_consumed(now);
                    uncovered = 0;
                }
                Op::Cancel => deferred.cancel(now, Mark::default()),
                Op::Deschedule => deferred.on_deschedule(now),
                Op::Flush => {
                    deferred.flush(now);
                    prop_assert!(uncovered == 0 || deferred.is_due());
                }
                Op::Policy(next) => {
                    let spec: Spec = POLICIES[next].parse().unwrap();
                    deferred.change(now, |policy| policy.reconfigure(spec, now).unwrap());
                }
                Op::Reset => {
                    deferred.reset(now);
                    (uncovered, may_end) = (0, true);
                }
            }
            prop_assert!(may_end || !was_due || deferred.is_due(), "{op:?}: what was due is not any more");
            prop_assert!(uncovered == 0 || deferred.deadline().is_some(), "{op:?}: nobody will come");
            prop_assert_eq!(deferred.stats().completions, completions);
        }
        // The device polls: it ends batches, and looks at deadlines.
        for _ in 0..100 {
            deferred.end_batch(now);
            now = now.max(deferred.deadline().unwrap_or(now));
            deferred.on_deadline(now);
        }
        prop_assert!(uncovered == 0 || deferred.is_due());
    }
}
