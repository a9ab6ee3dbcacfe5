//! A policy that others replace, and that comes back.

use coalesce_policy::{AnyPolicy, Completion, Decision, HoldReason, Policy as _, Reason, Spec};

fn policy(text: &str) -> AnyPolicy {
    AnyPolicy::new(text.parse().unwrap(), 1_000_000_000).unwrap()
}

/// A requester with 32 commands to whom an interrupt costs as much as a submission: ns.
fn step(policy: &mut AnyPolicy, now: &mut u64) -> Decision {
    *now += 20_000;
    let decision = policy.on_completion(*now, &Completion { outstanding: 32, ..Completion::with_cif(1) });
    *now += if decision.is_deliver() { 20_000 } else { 0 };
    decision
}

const LICENSED: Decision = Decision::Hold(HoldReason::Licensed);

/// `auto`, once it has a licence.
fn licensed(now: &mut u64) -> AnyPolicy {
    let mut auto = policy("auto");
    assert!((0..50_000).any(|_| step(&mut auto, now) == LICENSED));
    auto
}

#[test]
fn auto_goes_on_where_it_was_and_begins_anew_otherwise() {
    let mut now = 0;
    let mut auto = licensed(&mut now);
    let aside = auto.set_aside(now).unwrap();
    let spec: Spec = "auto".parse().unwrap();
    assert!(*aside.spec() == spec && auto.held() > 0, "it is still in force");
    let none = "none".parse::<Spec>().unwrap();
    assert!(auto.reconfigure(none, now).unwrap().is_deliver(), "what is held");
    assert!((0..100).all(|_| step(&mut auto, &mut now).is_deliver()));

    let mut anew = auto.clone();
    let _ = anew.reconfigure(spec.clone(), now).unwrap();
    assert!((0..100).all(|_| step(&mut anew, &mut now.clone()) != LICENSED));

    assert!(!auto.resume(aside, now).is_deliver(), "nothing is held");
    assert_eq!(auto.spec(), &spec);
    assert!((0..100).any(|_| step(&mut auto, &mut now) == LICENSED));
}

#[test]
fn what_is_held_is_delivered_when_a_policy_comes_back() {
    let mut now = 0;
    let aside = licensed(&mut now).set_aside(now).unwrap();
    for other in ["nvme:thr=7,time=1ms", "auto", "auto:budget=20%", "cint:barrier=strict"] {
        let mut other = policy(other);
        let _ = other.on_completion(now, &Completion { outstanding: 32, ..Completion::with_cif(32) });
        let is_held = other.held() > 0;
        assert_eq!(
            other.resume(aside.clone(), now),
            match is_held {
                true => Decision::Deliver(Reason::Flush),
                false => Decision::Hold(HoldReason::NothingHeld),
            }
        );
        assert_eq!((other.held(), other.deadline()), (0, None));
    }
}

#[test]
fn what_learns_nothing_for_long_is_not_kept() {
    for text in ["none", "nvme", "vic", "cint", "dim", "budget", "auto:barrier=strict"] {
        assert!(policy(text).set_aside(0).is_none(), "{text}");
    }
    assert!(policy("auto:budget=2%").set_aside(0).is_some());
}
