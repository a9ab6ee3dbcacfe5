//! The rules that hold for every policy, on every policy there is, with changes from any of them to any other.

use std::collections::VecDeque;

use coalesce_policy::{
    AnyPolicy, Bypassed, Completion, Decision, Hint, HoldReason, Mark, Policy, Reason, Share, Spec, Submission, forward,
};
use coalesce_testkit::{Mix, Promises, Tested, Urgent, check_any};
use proptest::prelude::*;

/// A policy under test, and others that it may change to.
#[derive(Debug)]
struct Any {
    policy: AnyPolicy,
    others: Vec<Spec>,
}

impl Policy for Any {
    forward!(self => self.policy; all);
}

impl Tested for Any {
    /// A deadline for what is held even if nobody says when a batch ends. Those that know hints do not make an Urgent wait.
    fn promises(&self) -> Promises {
        let hold_max = self.policy.max_hold();
        let needs_next_completion = hold_max.is_none() && !self.policy.wants_batch_end();
        let urgent = match self.policy.spec().hints() {
            Some(hints) if hints.storm_max_rate.is_some() => Urgent::InterruptsUnlessStorm,
            Some(_) => Urgent::Interrupts,
            None => Urgent::MayWait,
        };
        Promises { hold_max, needs_next_completion, urgent, ..Promises::default() }
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        let spec = self.others.get(usize::from(choice))?.clone();
        self.policy.reconfigure(spec, now).ok()
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
    "auto:budget=50%,max_hold=10ms",
    "auto:barrier=strict",
    "auto:ooo=on,storm=100k,storm_shift=5",
    "budget:budget=0.01%,thr=4",
];

const TICK_HZ: u64 = 10_000_000;

/// When a policy is warm.
const WARM: u64 = 15_000 * WARM_STEP as u64;
const WARM_STEP: usize = (TICK_HZ / 25_000) as usize;

/// A policy that has seen 32 outstanding complete every 40 us, held or not: a budget holds.
fn warm(spec: &Spec) -> AnyPolicy {
    let mut policy = AnyPolicy::new(spec.clone(), TICK_HZ).unwrap();
    if is_budget(spec) {
        let mut held = 0;
        for now in (0..WARM).step_by(WARM_STEP) {
            let mark = policy.on_submit(now, &Submission { outstanding: 32, ..Submission::default() });
            let completion = Completion { mark, cif: 16, outstanding: 32, ..Completion::default() };
            held += u64::from(!policy.on_completion(now, &completion).is_deliver());
        }
        assert!(held > 0 || spec.budget() < Some(Share::percent(5)), "{spec:?}");
        let _ = policy.flush(WARM);
    }
    policy
}

const fn is_budget(spec: &Spec) -> bool {
    matches!(spec, Spec::Budget(_) | Spec::Auto(_))
}

/// A guest of depth 8, slower than its device, which sees one command at a time. An interrupt takes as long as a submission.
fn serve_a_slow_guest(policy: &mut AnyPolicy, mut now: u64) -> u64 {
    for _ in 0..2000 {
        for outstanding in 1..=8 {
            now += 10;
            let mark = policy.on_submit(now, &Submission { outstanding, ..Submission::default() });
            let completion = Completion { mark, cif: 1, outstanding, ..Completion::default() };
            now += if policy.on_completion(now + 5, &completion).is_deliver() { 10 } else { 0 };
        }
        if let Some(deadline) = policy.deadline() {
            now = deadline;
            assert!(policy.on_deadline(now).is_deliver());
        }
    }
    now
}

/// Somebody else comes.
#[test]
fn a_reset_forgets_the_licence() {
    let mut policy = AnyPolicy::new("auto".parse().unwrap(), TICK_HZ).unwrap();
    let mut now = serve_a_slow_guest(&mut policy, 0);
    let mut holds = |policy: &mut AnyPolicy| {
        now += 10;
        let mark = policy.on_submit(now, &Submission::default());
        let one = Completion { mark, cif: 1, outstanding: 1, ..Completion::default() };
        let holds = !policy.on_completion(now + 5, &one).is_deliver();
        let _ = policy.flush(now + 6);
        holds
    };
    assert!((0..300).any(|_| holds(&mut policy)), "it has a licence");
    policy.reset_tracking();
    assert!((0..300).all(|_| !holds(&mut policy)));
}

/// Whether holding slows this guest down says nothing about the next.
#[test]
fn a_reset_ends_a_trial() {
    let mut policy = AnyPolicy::new("auto".parse().unwrap(), TICK_HZ).unwrap();
    let mut now = serve_a_slow_guest(&mut policy, 0);
    let mut one = |policy: &mut AnyPolicy| {
        now += 10;
        let mark = policy.on_submit(now, &Submission { outstanding: 8, ..Submission::default() });
        policy.on_completion(now + 5, &Completion { mark, cif: 1, outstanding: 8, ..Completion::default() })
    };
    let tried = Decision::Deliver(Reason::Slowdown);
    assert!((0..100_000).any(|_| one(&mut policy) == tried), "there is a stretch without holding");
    assert_eq!(one(&mut policy), tried, "which goes on");
    policy.reset_tracking();
    assert!((0..20).all(|_| one(&mut policy) != tried));
}

/// A closed loop of 32 on a device that completes a command in 10 ticks. A client that takes several at once needs 3 more
/// ticks for each. The share of its budget that the policy spends in the second half.
fn share_of_a_budget(text: &str) -> u64 {
    const COMPLETIONS: u64 = 200_000;
    let mut policy = AnyPolicy::new(text.parse().unwrap(), TICK_HZ).unwrap();
    let (mut now, mut in_flight, mut held) = (0, 0, 0);
    for completion in 0..COMPLETIONS {
        if completion == COMPLETIONS / 2 {
            policy.reset_stats();
        }
        let mut delivers = false;
        if in_flight > 0 {
            now += 10;
            held += 1;
            let one = Completion { cif: in_flight, outstanding: in_flight + held - 1, ..Completion::default() };
            delivers = policy.on_completion(now, &one).is_deliver();
            in_flight -= 1;
        } else if let Some(deadline) = policy.deadline() {
            now = deadline;
            delivers = policy.on_deadline(now).is_deliver();
        }
        if delivers || in_flight + held == 0 {
            now += 3 * u64::from(held).saturating_sub(1);
            held = 0;
            while in_flight < 32 {
                in_flight += 1;
                policy.on_submit(now, &Submission { outstanding: in_flight, ..Submission::default() });
            }
        }
    }
    let spent = policy.spent().unwrap();
    spent.held * 1_000_000 / spent.outstanding / u64::from(policy.spec().budget().unwrap().as_basis_points())
}

#[test]
fn a_budget_that_costs_too_much_is_cut() {
    let [whole, part] = ["budget:budget=10%", "auto:budget=10%"].map(share_of_a_budget);
    assert!(whole > 80, "{whole} %");
    assert!(part < 10, "{part} %: a tenth is added by a part of it, too; so nothing is held but while it is tried");
}

/// With a regulator and without, strict Barriers or not: what was earned and spent stays.
#[test]
fn an_account_outlives_a_change_between_budget_and_auto() {
    for barrier in ["relaxed", "strict"] {
        let [budget, auto] =
            ["budget", "auto"].map(|name| format!("{name}:barrier={barrier}").parse::<Spec>().unwrap());
        let mut policy = warm(&budget);
        for spec in [&auto, &budget, &auto, &auto] {
            let before = policy.spent();
            assert!(before.is_some_and(|spent| spent.held > 0), "{spec}");
            assert_eq!(policy.reconfigure(spec.clone(), WARM), Ok(Decision::Hold(HoldReason::NothingHeld)));
            assert_eq!((policy.spent(), policy.spec()), (before, spec));
        }
    }
}

/// A shell that is never late, and sums up how long commands are outstanding and completions held. What an interrupt covers is
/// reaped at once.
struct Punctual {
    policy: AnyPolicy,
    now: u64,
    in_flight: VecDeque<Mark>,
    held: u32,
    held_time: u64,        // commands * ticks
    outstanding_time: u64, // the same
}

impl Punctual {
    const fn new(policy: AnyPolicy) -> Self {
        Self { policy, now: 0, in_flight: VecDeque::new(), held: 0, held_time: 0, outstanding_time: 0 }
    }

    fn outstanding(&self) -> u32 {
        self.in_flight.len() as u32 + self.held
    }

    fn move_to(&mut self, instant: u64) {
        self.held_time += u64::from(self.held) * (instant - self.now);
        self.outstanding_time += u64::from(self.outstanding()) * (instant - self.now);
        self.now = instant;
    }

    /// What a budget pays for of the time until now, times 10 000: its share of what commands spent without being held, and C0 as
    /// the documentation has it, with its largest factor.
    fn allowed(&self) -> u64 {
        let spec = self.policy.spec();
        let max_hold = self.policy.max_hold().unwrap();
        let learning = (4 * (4 * max_hold + self.outstanding_time / 128)).min(32 * max_hold);
        let share = u64::from(spec.budget().unwrap().as_basis_points());
        (self.outstanding_time - self.held_time) * share + learning * 10_000
    }

    fn wait(&mut self, ticks: u64) {
        let end = self.now + ticks;
        while let Some(deadline) = self.policy.deadline().filter(|&deadline| deadline <= end) {
            self.move_to(deadline.max(self.now));
            let decision = self.policy.on_deadline(self.now);
            self.decided(decision);
        }
        self.move_to(end);
    }

    /// A closed loop of so many commands, of which a device completes one every 40 us.
    fn serve(&mut self, depth: u32, completions: u32) {
        for _ in 0..completions {
            while self.outstanding() < depth {
                self.submit();
            }
            self.wait(TICK_HZ / 25_000);
            self.complete();
        }
    }

    fn submit(&mut self) {
        let mark = self
            .policy
            .on_submit(self.now, &Submission { outstanding: self.outstanding() + 1, ..Submission::default() });
        self.in_flight.push_back(mark);
    }

    fn complete(&mut self) {
        let Some(mark) = self.in_flight.pop_front() else { return };
        let cif = self.in_flight.len() as u32 + 1;
        self.held += 1;
        let completion = Completion { mark, cif, outstanding: self.outstanding(), ..Completion::default() };
        let decision = self.policy.on_completion(self.now, &completion);
        self.decided(decision);
    }

    fn decided(&mut self, decision: Decision) {
        if decision.is_deliver() {
            self.held = 0;
        }
    }
}

/// The contract of a budget, through everything that surrounds its core, by what commands really wait.
#[test]
fn no_budget_is_overspent() {
    // A short `max_hold`, so that C0 is small beside what is spent.
    const BUDGETS: [&str; 5] = [
        "auto:max_hold=50us",
        "auto:budget=50%,max_hold=20us",
        "auto:barrier=strict,max_hold=50us",
        "budget:budget=0.01%,thr=4,max_hold=50us",
        "budget:budget=1%,max_hold=50us",
    ];
    let step = (0..20_u64, 1..8_u8, 0..10_u8);
    let steps = prop::collection::vec(step, 1..3000);
    proptest!(ProptestConfig::with_cases(500), |(text in prop::sample::select(&BUDGETS[..]), is_warm: bool, steps in steps)| {
        let mut shell = Punctual::new(AnyPolicy::new(text.parse().unwrap(), TICK_HZ).unwrap());
        if is_warm {
            shell.serve(32, 15_000);
        }
        for (ticks, submitted, completed) in steps {
            shell.wait(ticks * ticks);
            (0..completed).for_each(|_| shell.complete());
            (0..submitted).for_each(|_| shell.submit());
            let (held, allowed) = (shell.held_time, shell.allowed());
            prop_assert!(held * 10_000 <= allowed, "{text}: {held} of {}", shell.outstanding_time);
            let _ = shell.policy.on_deadline(shell.now); // nothing is due, but it brings the account up to date
            prop_assert_eq!(shell.policy.spent().unwrap().held, held, "{}: what it says", text);
        }
    });
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
    let most = prop::sample::select(&[4_u16, 20][..]); // with 20 a budget is bypassed most of the time
    let steps = prop::collection::vec(step, 1..1500);
    proptest!(ProptestConfig::with_cases(2000), |(text in spec, is_warm: bool, most in most, steps in steps)| {
        let spec = text.parse::<Spec>().unwrap();
        let mut together = if is_warm { warm(&spec) } else { AnyPolicy::new(spec.clone(), TICK_HZ).unwrap() };
        let mut apart = together.clone();
        let is_budget = is_budget(&spec);
        let mut now = WARM;
        for (ticks, before, cif, hint) in steps {
            now += ticks * ticks * ticks;
            let before = before % most;
            let last = Completion { mark: Mark::of(hint), cif, ..Completion::default() };
            for policy in [&mut together, &mut apart] {
                let _ = policy.on_submit(now, &Submission { outstanding: 32, ..Submission::default() });
            }
            let may_hold = together.may_hold();
            if !may_hold && (before > 15 || is_budget) {
                if before > 15 {
                    together.on_bypassed(now, &Bypassed { interrupts: before / 4, outstanding: cif + u32::from(before), ..Bypassed::default() });
                } else {
                    let decision = together.on_completions(now, before, &last); // a shell that asks anyway
                    prop_assert!(decision.is_deliver(), "{text}: {decision:?}");
                }
                prop_assert_eq!((together.held(), together.deadline()), (0, None), "{}", text);
                apart = together.clone();
                continue;
            }
            let decision = together.on_completions(now, before, &last);
            prop_assert!(may_hold || decision.is_deliver(), "{text}: {decision:?}");
            let may_wait = hint != Hint::Urgent || decision == Decision::Hold(HoldReason::Storm);
            prop_assert!(!is_budget || may_wait || decision.is_deliver(), "{text}: {decision:?}");
            prop_assert!(decision != Decision::DeliverUrgent || before == 0 || hint == Hint::Urgent);

            let (mut expected, mut ride) = (Decision::Hold(HoldReason::Early), false);
            for left in (0..=before).rev() {
                // A storm guard sees one interrupt, however many it covers.
                if ride && (matches!(spec, Spec::Cint(_)) || spec.hints().is_some_and(|hints| hints.storm_max_rate.is_some())) {
                    apart.on_covered(now, left + 1, &last);
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
            prop_assert_eq!(decision, expected, "{}", text);
            prop_assert_eq!((together.held(), together.deadline()), (apart.held(), apart.deadline()), "{}", text);
        }
    });
}

/// A command that completes late, with a ticket of a policy before the last two, is unknown.
#[test]
fn tickets_are_not_given_twice() {
    let [strict, relaxed] = ["cint:barrier=strict", "cint"].map(|text| text.parse::<Spec>().unwrap());
    let mut policy = AnyPolicy::new(strict.clone(), TICK_HZ).unwrap();
    let submit = |policy: &mut AnyPolicy| policy.on_submit(1, &Submission::default());
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

/// At any rate: here each window has a thousand times the completions of the threshold.
#[test]
fn spdk_vhost_delays_no_longer_than_a_minute() {
    const MS: u64 = 1_000_000;
    let spec = "spdk_vhost:delay_base_us=60000000,iops_threshold=100".parse().unwrap();
    let mut policy = AnyPolicy::new(spec, 1_000_000_000).unwrap();
    for window in 2..100 {
        let now = window * 10 * MS;
        for _ in 0..1000 {
            assert!(!policy.on_completion(now, &Completion::default()).is_deliver());
        }
        assert!(!policy.on_batch_end(now).is_deliver());
        assert_eq!(policy.deadline(), Some(60_000 * MS), "after the start, which had the last signal");
    }
    assert!(policy.on_deadline(60_000 * MS).is_deliver());
}
