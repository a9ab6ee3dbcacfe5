//! The rules that hold for every policy, on every policy there is, with changes from any of them to any other.

use coalesce_policy::{
    AnyPolicy, Clues, Completion, Decision, Hint, HoldReason, Mark, MarkParts, Passed, Policy as _, Reason, Spec,
    Ticket,
};
use coalesce_testkit::{Mix, Policy, Promises, Submission, check_any};
use proptest::prelude::*;

/// A policy under test, and others that it may change to.
struct Any {
    policy: AnyPolicy,
    others: Vec<Spec>,
}

/// The kit gives a hint with a completion.
fn mark(hint: Hint, ticket: Option<u64>) -> Mark {
    MarkParts { hint, source: None, ticket: ticket.map(Ticket::from_number) }.into()
}

impl Policy for Any {
    fn on_completion(&mut self, now: u64, completion: coalesce_testkit::Completion) -> coalesce_testkit::Decision {
        let hint = match completion.hint {
            coalesce_testkit::Hint::Plain => Hint::Plain,
            coalesce_testkit::Hint::Urgent => Hint::Urgent,
            coalesce_testkit::Hint::Barrier => Hint::Barrier,
        };
        let coalesce_testkit::Completion { cif, ticket, slice_end, .. } = completion;
        let completion = Completion { mark: mark(hint, ticket), cif, slice_end, ..Completion::default() };
        self.policy.on_completion(now, &completion).into()
    }

    fn deadline(&self) -> Option<u64> {
        self.policy.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> coalesce_testkit::Decision {
        self.policy.on_deadline(now).into()
    }

    fn flush(&mut self, now: u64) -> coalesce_testkit::Decision {
        self.policy.flush(now).into()
    }

    fn promises(&self) -> Promises {
        let bounded = self.policy.max_hold().is_some();
        let needs_batch_end = self.policy.wants_batch_end();
        let needs_next_completion = !bounded && !needs_batch_end;
        Promises { hold_max: self.policy.max_hold(), needs_batch_end, needs_next_completion, ..Promises::default() }
    }

    fn held(&self) -> Option<u64> {
        Some(self.policy.held())
    }

    fn on_submit(&mut self, _: u64, Submission { group, .. }: Submission) -> Option<u64> {
        let MarkParts { ticket, .. } = self.policy.on_submit(&Clues { group, ..Clues::default() }).into();
        ticket.map(Ticket::to_number)
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> coalesce_testkit::Decision {
        self.policy.on_cancel(now, mark(Hint::Plain, ticket)).into()
    }

    fn on_batch_end(&mut self, now: u64) -> coalesce_testkit::Decision {
        self.policy.on_batch_end(now).into()
    }

    fn on_consumed(&mut self, now: u64) {
        self.policy.on_consumed(now);
    }

    fn on_schedule(&mut self, now: u64) -> coalesce_testkit::Decision {
        self.policy.on_schedule(now).into()
    }

    fn on_deschedule(&mut self, now: u64) -> coalesce_testkit::Decision {
        self.policy.on_deschedule(now).into()
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<coalesce_testkit::Decision> {
        let spec = self.others.get(usize::from(choice))?.clone();
        self.policy.reconfigure(spec, now).ok().map(Into::into)
    }
}

const SPECS: &[&str] = &[
    "none",
    "nvme",
    "nvme:thr=0",
    "nvme:thr=3,time=200us",
    "batch",
    "dim",
    "spdk_vhost",
    "spdk_vhost:delay_base_us=10,iops_threshold=100",
    "vic:epoch=1ms",
    "vic:profile=paper,epoch=1ms,iops_threshold=0",
    "cint",
    "cint:profile=optane",
    "cint:delta=0,max_hold=off,in_flight=off",
    "cint:barrier=strict",
    "cint:storm=100k,storm_shift=5,in_flight=off",
    "auto",
    "auto:in_flight=off",
    "auto:storm=100k,storm_shift=5",
];

const TICK_HZ: u64 = 10_000_000;

/// When a policy is warm.
const WARM: u64 = 15_000 * WARM_STEP as u64;
const WARM_STEP: usize = (TICK_HZ / 25_000) as usize;

/// A policy that has seen 32 outstanding complete every 40 us, held or not: `auto` holds.
fn warm(spec: &Spec) -> AnyPolicy {
    let mut policy = AnyPolicy::new(spec.clone(), TICK_HZ).unwrap();
    if matches!(spec, Spec::Auto(_)) {
        for now in (0..WARM).step_by(WARM_STEP) {
            let mark = policy.on_submit(&Clues { outstanding: 32, ..Clues::default() });
            let _ = policy.on_completion(now, &Completion { mark, cif: 16, ..Completion::default() });
        }
        assert!(policy.may_hold(), "{spec:?}");
        let _ = policy.flush(WARM);
    }
    policy
}

/// Somebody else comes.
#[test]
fn a_reset_forgets_the_requester() {
    let mut policy = warm(&"auto".parse().unwrap());
    assert_eq!(policy.reconfigure("auto:thr=16".parse().unwrap(), WARM), Ok(Decision::Hold(HoldReason::NothingHeld)));
    assert!(policy.may_hold());
    policy.reset_tracking();
    assert!(!policy.may_hold());
}

#[test]
fn every_policy_keeps_the_rules() {
    let spec = || prop::sample::select(SPECS).prop_map(|text| text.parse::<Spec>().unwrap());
    let choice = (spec(), prop::collection::vec(spec(), 3)).boxed();
    let mix = Mix {
        hints: true,
        back: true,
        batch_end: true,
        consumed: true,
        schedule: true,
        groups: 2,
        configurations: 4,
        ..Mix::new([10, 60, 1000, 10_000])
    };
    check_any(&mix, 1_000_000, &choice, |(spec, others)| Any { policy: warm(spec), others: others.clone() });
}

/// Completions that come together are decided as if they came one by one until one delivers, and the others ride on its
/// interrupt; and where a policy says that it may not hold, whatever completes delivers.
#[test]
fn completions_may_come_together() {
    const CIF: [u32; 6] = [1, 2, 5, 20, 100, 5000];
    let step =
        (0..40_u64, 0..20_u16, prop::sample::select(&CIF[..]), prop::sample::select(&[Hint::Plain, Hint::Urgent][..]));
    let spec = prop::sample::select(SPECS);
    proptest!(ProptestConfig::with_cases(2000), |(text in spec, is_warm: bool, steps in prop::collection::vec(step, 1..1500))| {
        let spec = text.parse::<Spec>().unwrap();
        let mut together = if is_warm { warm(&spec) } else { AnyPolicy::new(spec.clone(), TICK_HZ).unwrap() };
        let mut apart = together.clone();
        let learns = matches!(spec, Spec::Auto(_)); // from those that ride, too
        let mut now = WARM;
        for (ticks, before, cif, hint) in steps {
            now += ticks * ticks * ticks;
            let last = Completion { mark: Mark::of(hint), cif, ..Completion::default() };
            if learns {
                assert_eq!(together.on_submit(&Clues { outstanding: 32, ..Clues::default() }), Mark::default());
            }
            let may_hold = together.may_hold();
            if !may_hold && before > 15 {
                let (completions, interrupts) = (before.into(), before / 4);
                together.on_passed(now, &Passed { completions, interrupts, outstanding: cif });
                prop_assert_eq!((together.held(), together.deadline()), (0, None), "{}", text);
                apart = together.clone();
                continue;
            }
            let decision = together.on_completion(now, &Completion { before, ..last });
            prop_assert!(may_hold || decision.is_deliver(), "{text}: {decision:?}");
            let may_wait = hint != Hint::Urgent || decision == Decision::Hold(HoldReason::Storm);
            prop_assert!(!learns || may_wait || decision.is_deliver(), "{text}: {decision:?}");
            prop_assert!(decision != Decision::DeliverUrgent || before == 0 || hint == Hint::Urgent);

            let (mut expected, mut ride) = (Decision::Hold(HoldReason::Early), false);
            for left in (0..=before).rev() {
                if ride && matches!(spec, Spec::Cint(_) | Spec::Auto(_)) {
                    break;
                }
                let plain = Completion { cif: cif + u32::from(left), ..Completion::default() };
                let one = apart.on_completion(now, if left > 0 { &plain } else { &last });
                expected = if ride { expected } else { one };
                ride |= one.is_deliver() && left > 0;
            }
            if ride {
                apart.on_consumed(now);
            }
            if learns {
                apart = together.clone();
            } else {
                prop_assert_eq!(decision, expected, "{}", text);
            }
            prop_assert_eq!((together.held(), together.deadline()), (apart.held(), apart.deadline()), "{}", text);
        }
    });
}

/// Where nothing may be held, interrupts that nobody asked about make the storm guard look nevertheless.
#[test]
fn a_storm_that_passes_is_noticed() {
    for (text, gap, storms) in [
        ("auto:storm=20k", 100, true), // 100 000 interrupts a second
        ("auto:storm=200k", 100, false),
        ("auto:storm=off", 100, false),
        ("auto", 8, false), // 1.25 million: a CPU takes as many
        ("auto", 4, true),
    ] {
        let mut policy = AnyPolicy::new(text.parse().unwrap(), TICK_HZ).unwrap();
        assert!(!policy.may_hold(), "nobody has submitted");
        for lot in 0..100 {
            policy.on_passed(lot * 64 * gap, &Passed { completions: 64, interrupts: 64, outstanding: 1 });
        }
        assert_eq!(policy.may_hold(), storms, "{text}");
        let urgent = Completion { mark: Mark::of(Hint::Urgent), cif: 1, ..Completion::default() };
        assert_eq!(policy.on_completion(99 * 64 * gap + 1, &urgent).is_deliver(), !storms, "{text}");
    }
}

/// Who comes back late, with a ticket of a policy before the last two, is nobody's command now.
#[test]
fn tickets_are_not_given_twice() {
    let [strict, relaxed] = ["cint:barrier=strict", "cint"].map(|text| text.parse::<Spec>().unwrap());
    let mut policy = AnyPolicy::new(strict.clone(), TICK_HZ).unwrap();
    let submit = |policy: &mut AnyPolicy| policy.on_submit(&Clues::default());
    let old = [(); 10].map(|()| submit(&mut policy));
    let nothing = Decision::Hold(HoldReason::NothingHeld);
    assert_eq!(policy.reconfigure(relaxed, 1), Ok(nothing));
    assert_eq!(submit(&mut policy), Mark::default());
    assert_eq!(policy.reconfigure(strict, 2), Ok(nothing));
    let new = [(); 10].map(|()| submit(&mut policy));
    assert!(new.iter().all(|mark| *mark != Mark::default() && !old.contains(mark)), "{old:?} {new:?}");
    let late = Completion { mark: old[3], cif: 100, ..Completion::default() };
    assert_eq!(policy.on_completion(3, &late), Decision::Deliver(Reason::Error));
    let in_time = Completion { mark: new[3], ..late };
    assert_eq!(policy.on_completion(4, &in_time), Decision::Hold(HoldReason::Burst));
}
