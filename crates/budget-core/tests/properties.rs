//! Random events: every part of the contract, checked after every event.

mod spent;
mod truth;

use budget_core::{
    Allowance, Auto, Budget, Completion, Config, Decision, Event, HoldReason, Level, Mark, Params, Policy, Reason,
    Share, StormParams, Submission,
};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use spent::spent;
use std::fmt::Debug;
use truth::Truth;

/// A clock of 1 µs, so that spans are small numbers.
const TICK_HZ: u64 = 1_000_000;

fn params() -> impl Strategy<Value = Params> {
    let budget = prop_oneof![Just(500_u16), Just(1), Just(5_000), 1..5_000_u16].prop_map(Share::basis_points);
    let max_hold_ns = prop_oneof![Just(2_000_000_u64), 1_000..3_000_000_u64];
    let thr = prop_oneof![Just(1_u16), Just(256), 2..40_u16];
    (budget, max_hold_ns, thr, any::<bool>()).prop_map(|(budget, max_hold_ns, thr, ooo)| Params {
        tick_hz: TICK_HZ,
        budget,
        max_hold_ns,
        thr,
        ooo,
        storm: None,
    })
}

/// The same with a storm guard.
fn stormy() -> impl Strategy<Value = Params> {
    let storm = prop_oneof![Just((10_000_u64, 5_u8)), (600..200_000_u64, 5..7_u8)];
    (params(), storm)
        .prop_map(|(params, (max_rate, shift))| Params { storm: Some(StormParams { max_rate, shift }), ..params })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok())
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// As many at once.
    Submit(u32),
    Complete(Event),
    /// A command is aborted; an error: one that there is not.
    Cancel(Event),
    /// The consumer reaps what interrupts cover.
    Reap,
    /// The consumer reaps what is posted, whether an interrupt covers it or not.
    Poll,
    Flush,
    /// The queue is reset, and its consumer takes what is posted.
    Reset,
    EarlyDeadline,
    /// Somebody outside allows something else.
    Allow(Allowance),
    /// Requesters who wait for their answers, for a while.
    Live(Habit),
}

/// A closed loop, in ticks.
#[derive(Clone, Copy, Debug)]
struct Habit {
    depth: u32,
    submit: u64,
    service: u64,
    interrupt: u64,
    completions: u32,
    is_deep: bool, // the device sees all that is outstanding; else one at a time
}

fn habit() -> impl Strategy<Value = Habit> {
    let ticks = || prop_oneof![1 => Just(0_u64), 4 => 1..40_u64];
    let depth = prop_oneof![1 => Just(1_u32), 2 => 2..9_u32, 2 => 9..40_u32];
    (depth, ticks(), ticks(), ticks(), 100..6_000_u32, any::<bool>()).prop_map(
        |(depth, submit, service, interrupt, completions, is_deep)| Habit {
            depth,
            submit,
            service: service.max(1),
            interrupt,
            completions,
            is_deep,
        },
    )
}

/// `hinted`: the weight of completions that are not Plain, beside 30 that are. `other`: the weight of other calls than a machine has
/// without a regulator.
fn call(hinted: u32, other: (u32, impl Strategy<Value = Call>)) -> impl Strategy<Value = Call> {
    let hint = prop_oneof![6 => Just(Event::Urgent), 2 => Just(Event::Barrier), 1 => Just(Event::Error)];
    prop_oneof![
        30 + hinted => prop_oneof![20 => Just(1), 1 => 2..10_u32].prop_map(Call::Submit),
        30 => Just(Call::Complete(Event::Plain)),
        hinted => hint.prop_map(Call::Complete),
        1 => prop_oneof![Just(Event::Plain), Just(Event::Barrier), Just(Event::Error)].prop_map(Call::Cancel),
        20 => Just(Call::Reap),
        1 => Just(Call::Poll),
        1 => Just(Call::EarlyDeadline),
        1 => prop_oneof![2 => Just(Call::Flush), 1 => Just(Call::Reset)],
        other.0 => other.1,
    ]
}

/// What a regulator might allow, but for a licence: with that the account rests.
fn allowance() -> impl Strategy<Value = Call> {
    let level = prop_oneof![Just(Level::Nothing), Just(Level::Strict), Just(Level::Trial), Just(Level::Trial)];
    let allowance = |(level, shift, limit, evidence)| Call::Allow(Allowance { level, shift, limit, evidence });
    (level, prop_oneof![Just(0), 0..6_u8], 2..9_u8, 0..4_u8).prop_map(allowance)
}

/// Most events follow each other closely, some after a pause, a few after an hour.
fn ticks() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..4_u64, 10 => 4..60_u64, 2 => 60..4_000_u64, 1 => 0..4_000_000_000_u64]
}

/// The machine with its regulator, or without one.
trait Machine: Policy + Copy + PartialEq + Debug {
    fn new(config: Config) -> Self;
    fn budget(&self) -> &Budget;
    /// Of no effect where there is a regulator.
    fn allow(&mut self, _now: u64, _allowance: Allowance) {}
}

impl Machine for Budget {
    fn new(config: Config) -> Self {
        Self::new(config)
    }

    fn budget(&self) -> &Budget {
        self
    }

    fn allow(&mut self, now: u64, allowance: Allowance) {
        self.allow(now, allowance);
    }
}

impl Machine for Auto {
    fn new(config: Config) -> Self {
        Self::new(config)
    }

    fn budget(&self) -> &Budget {
        self.budget()
    }
}

/// A queue with a machine, and what its requests wait for, whatever the machine says of it.
struct Queue<M> {
    machine: M,
    params: Params,
    now: u64,
    truth: Truth,
    passed: u32, // Urgents that interrupted alone since the first was held
    held_since: u64,
    interrupted: Option<u64>, // when last
    late_time: u128,          // of the time held, after a deadline
    paced_time: u128,         // of the time held, while the storm guard allowed no interrupt
    factor: u64,              // of C0, the largest so far; 0: there was no trial
    lost_alone: u32,          // holds that ended at their deadline, of who was alone, since others were there
    is_held_alone: bool,
}

impl<M: Machine> Queue<M> {
    fn new(params: Params, factor: u64) -> Self {
        Self {
            machine: M::new(Config::new(params).unwrap()),
            params,
            now: 1_000,
            truth: Truth::at(1_000),
            passed: 0,
            held_since: 0,
            interrupted: None,
            late_time: 0,
            paced_time: 0,
            factor,
            lost_alone: 0,
            is_held_alone: false,
        }
    }

    fn budget(&self) -> &Budget {
        self.machine.budget()
    }

    /// Before this instant the storm guard allows no interrupt.
    fn pace(&self) -> u64 {
        let interval = self.budget().config().storm_interval().filter(|_| self.budget().is_storming());
        self.interrupted.zip(interval).map_or(0, |(interrupted, interval)| interrupted + interval)
    }

    /// Lets time pass, in which nothing happens but that the machine's deadlines are met, `late` ticks late.
    fn pass(&mut self, ticks: u64, late: u64) {
        let end = self.now + ticks;
        while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= end) {
            let at = (deadline.max(self.now) + late).min(end.max(deadline));
            self.late_time += u128::from(self.truth.held) * u128::from(at - deadline.min(at));
            self.go_to(at);
            let pace = self.pace(); // this interrupt may begin a storm
            let decision = self.machine.on_deadline(at);
            assert!(decision.is_deliver(), "at its deadline: {decision:?}");
            assert!(at >= pace, "an interrupt before {pace}");
            self.lost_alone += u32::from(self.is_held_alone);
            assert!(self.lost_alone <= 12, "one who is alone lost {} holds", self.lost_alone);
            self.decided(decision);
        }
        self.go_to(end.max(self.now));
    }

    fn go_to(&mut self, at: u64) {
        self.paced_time += u128::from(self.truth.held) * u128::from(self.pace().min(at).saturating_sub(self.now));
        self.truth.go_to(at);
        self.now = at;
    }

    fn decided(&mut self, decision: Decision) {
        self.truth.decided(decision);
        self.note(decision);
    }

    fn note(&mut self, decision: Decision) {
        if self.truth.held == 0 {
            (self.passed, self.is_held_alone) = (0, false);
        }
        if !matches!(decision, Decision::Hold(_)) {
            self.interrupted = Some(self.now);
        }
    }

    fn submit(&mut self, count: u32) {
        let mut together = self.machine;
        (0..count).for_each(|_| _ = self.machine.on_submit(self.now, &Submission::ALONE));
        let _ = together.on_submit(self.now, &Submission { before: count - 1, ..Submission::ALONE });
        assert_eq!(together, self.machine);
        self.truth.submit(count);
        if self.truth.outstanding() > 1 {
            self.lost_alone = 0;
        }
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Submit(count) => self.submit(count),
            Call::Complete(_) if self.truth.in_flight == 0 => {}
            Call::Complete(event) => self.complete(event),
            Call::Cancel(event) if self.truth.in_flight == 0 && event != Event::Error => {}
            Call::Cancel(event) => {
                let pace = self.pace();
                self.truth.in_flight -= u32::from(event != Event::Error);
                let decision = self.machine.on_cancel(self.now, Mark { event, ..Mark::default() });
                let expected = match event {
                    _ if self.truth.held == 0 => Decision::Hold(HoldReason::NothingHeld),
                    Event::Error => Decision::Deliver(Reason::Error),
                    Event::Barrier if self.now < pace => Decision::Hold(HoldReason::Storm),
                    Event::Barrier => Decision::Deliver(Reason::Barrier),
                    _ if decision == Decision::Deliver(Reason::Budget) => decision, // it can no longer be paid for
                    Event::Plain | Event::Urgent => Decision::Hold(HoldReason::Cancelled),
                };
                assert_eq!(decision, expected);
                self.decided(decision);
            }
            Call::Reap => self.truth.reap(),
            Call::Poll => {
                self.machine.on_consumed(self.now);
                self.truth.poll();
                (self.passed, self.is_held_alone) = (0, false);
            }
            Call::Flush => {
                let decision = self.machine.flush(self.now);
                assert_eq!(decision.is_deliver(), self.truth.held > 0);
                self.decided(decision);
            }
            Call::Reset => {
                self.machine.reset_tracking();
                let decision = self.machine.flush(self.now);
                self.decided(decision);
                self.truth.in_flight = 0;
                self.truth.reap();
            }
            Call::EarlyDeadline => {
                let before = self.machine.held();
                let decision = self.machine.on_deadline(self.now);
                assert!(!decision.is_deliver() && self.machine.held() == before, "{decision:?}");
            }
            Call::Allow(allowance) => {
                self.machine.allow(self.now, allowance);
                let trial_factor = if allowance.level == Level::Trial { u64::from(allowance.evidence) + 1 } else { 0 };
                (self.factor, self.lost_alone) = (self.factor.max(trial_factor), 0);
                // What is held may be due by now.
                let decision = self.machine.on_deadline(self.now);
                self.decided(decision);
            }
            Call::Live(habit) => self.live(habit),
        }
    }

    fn complete(&mut self, event: Event) {
        let (cif, outstanding) = (self.truth.in_flight, self.truth.outstanding());
        let (pace, deadline) = (self.pace(), self.machine.deadline());
        let decision = self.machine.on_completion(self.now, &Completion { cif, outstanding, ..Completion::of(event) });
        if self.truth.held == 0 {
            self.held_since = self.now;
        }
        let held = self.truth.held + 1;
        let is_paced = self.now < pace && event != Event::Error;
        assert!(!is_paced || !decision.is_deliver(), "{decision:?} before {pace}");
        assert!(decision != Decision::Hold(HoldReason::Storm) || is_paced, "no interrupt since {:?}", self.interrupted);
        assert!(event == Event::Plain || is_paced || decision.is_deliver(), "{event:?}: {decision:?}");
        match decision {
            Decision::Deliver(Reason::Urgent) => assert!(event == Event::Urgent && !self.params.ooo),
            Decision::Deliver(Reason::Barrier) => assert_eq!(event, Event::Barrier),
            Decision::Deliver(Reason::Error) => assert_eq!(event, Event::Error),
            Decision::Deliver(Reason::Count) if self.factor == 0 => {
                assert_eq!(held + self.passed, u32::from(self.params.thr));
            }
            Decision::Hold(HoldReason::Licensed | HoldReason::Probe) => assert!(held < 8, "it waits for {held} others"),
            Decision::DeliverUrgent => assert!(event == Event::Urgent && self.params.ooo),
            _ => {}
        }
        if decision == Decision::DeliverUrgent && held > 1 {
            self.passed += 1;
            assert!(
                self.machine.deadline() == deadline || self.budget().is_storming(),
                "it disturbs those that are held"
            );
        }
        self.is_held_alone |= outstanding == 1 && !decision.is_deliver() && !is_paced;
        assert!(!self.is_held_alone || self.factor > 0, "a requester that is alone does not wait: {decision:?}");
        self.truth.complete(decision);
        self.note(decision);
    }

    /// Requesters who wait for their answers.
    fn live(&mut self, Habit { depth, submit, service, interrupt, completions, is_deep }: Habit) {
        for _ in 0..completions {
            if is_deep {
                let missing = depth.saturating_sub(self.truth.outstanding());
                (0..missing).for_each(|_| self.submit(1));
            } else if self.truth.outstanding() < depth {
                self.pass(submit, 0);
                self.submit(1);
            }
            if self.truth.in_flight > 0 {
                self.pass(service, 0);
                self.complete(Event::Plain);
            } else if let Some(deadline) = self.machine.deadline() {
                self.pass(deadline.max(self.now) - self.now, 0);
            }
            let is_full = self.truth.in_flight + self.truth.held == 0 || self.truth.outstanding() >= depth;
            if self.interrupted == Some(self.now) {
                self.pass(interrupt, 0);
            }
            if is_deep || is_full {
                self.truth.reap();
            }
            self.check();
        }
    }

    fn check(&self) {
        let held = self.truth.held;
        assert_eq!(self.machine.held(), held);
        let is_stormed = self.budget().is_storming();
        assert!(held + self.passed < self.params.thr.into() || held == 0 || is_stormed, "{held} are held");
        let deadline = self.machine.deadline();
        assert_eq!(deadline.is_some(), held > 0, "what is held has a deadline");
        let max_hold = self.params.max_hold_ns * TICK_HZ / 1_000_000_000;
        let latest = (self.held_since + max_hold).max(self.pace());
        assert!(deadline.is_none_or(|deadline| deadline <= latest), "{deadline:?}");
        let truth = &self.truth;
        let (held_time, outstanding_time) = spent(self.budget());
        assert!(u128::from(held_time) <= truth.held_time, "{held_time} <= {}", truth.held_time);
        assert!(u128::from(outstanding_time) <= truth.outstanding_time);
        // The invariant.
        let allowed = truth.allowed(&self.params, self.factor) + self.late_time + self.paced_time;
        let held_time = truth.held_time - truth.licensed_time;
        assert!(held_time <= allowed, "held {held_time} of {allowed}");
    }
}

/// What the runs of a test saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    completions: u64,
    holds: u64,
    storms: u64, // events in a storm
    passed: u64, // Urgents that interrupted alone while others were held
    trials: u64, // calls after which a trial was in force, or a licence
    licences: u64,
}

/// Random calls to machines for which C0 has this factor at first.
fn run_calls<M: Machine>(
    cases: u32,
    factor: u64,
    params: impl Strategy<Value = Params>,
    calls: impl Strategy<Value = Vec<(u64, Call)>>,
    late: impl Strategy<Value = u64>,
) -> Seen {
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(cases) });
    let seen = std::cell::Cell::new(Seen::default());
    let result = runner.run(&(params, calls, late), |(params, calls, late)| {
        let mut queue = Queue::<M>::new(params, factor);
        for (ticks, call) in calls {
            queue.pass(ticks, late);
            queue.check();
            let before = (queue.truth.held, queue.passed);
            queue.call(call);
            queue.check();
            let mut now = seen.get();
            now.completions += u64::from(matches!(call, Call::Complete(_)));
            now.holds += u64::from(queue.truth.held > before.0);
            now.storms += u64::from(queue.budget().is_storming());
            now.passed += u64::from(queue.passed > before.1);
            now.trials += u64::from(queue.budget().level() == Level::Trial);
            now.licences += u64::from(queue.budget().level() == Level::Licensed);
            seen.set(now);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    seen.get()
}

fn run(cases: u32, params: impl Strategy<Value = Params>, hinted: u32, late: impl Strategy<Value = u64>) -> Seen {
    let calls = prop::collection::vec((ticks(), call(hinted, (1, Just(Call::EarlyDeadline)))), 1..400);
    run_calls::<Budget>(cases, 0, params, calls, late)
}

#[test]
fn holding_costs_no_more_than_the_budget() {
    let seen = run(4_000, params(), 1, Just(0));
    assert!(seen.holds > seen.completions / 20, "too few were held to say anything: {seen:?}");
}

/// Whatever trials are allowed: what they take beyond the budget is C0 in proportion, and nobody who is alone loses more than a dozen
/// holds in one.
#[test]
fn trials_cost_no_more_than_c0() {
    let calls = prop::collection::vec((ticks(), call(1, (3, allowance()))), 1..400);
    let seen = run_calls::<Budget>(4_000, 0, params(), calls, Just(0));
    assert!(seen.trials > seen.completions / 10, "too few trials to say anything: {seen:?}");
}

/// The regulator chooses its trials, and gives licences: beside what it holds with them the account is kept, with C0.
#[test]
fn a_regulator_keeps_the_account() {
    let params = params().prop_map(|params| Params { thr: params.thr.max(8), ..params });
    let calls = prop::collection::vec((ticks(), call(1, (20, habit().prop_map(Call::Live)))), 1..40);
    let seen = run_calls::<Auto>(200, 4, params, calls, Just(0));
    assert!(seen.trials > 20 && seen.licences > 20, "too few to say anything: {seen:?}");
}

/// Out of order: the others stay held, with their deadline and their account.
#[test]
fn urgents_that_interrupt_alone_cost_no_more_than_the_budget() {
    let params = params().prop_map(|params| Params { ooo: true, ..params });
    let seen = run(4_000, params, 30, Just(0));
    assert!(seen.passed > seen.holds / 10, "too few went past others to say anything: {seen:?}");
}

#[test]
fn a_storm_costs_no_more_than_the_time_in_which_no_interrupt_is_allowed() {
    let seen = run(4_000, stormy(), 60, Just(0));
    assert!(seen.storms > seen.completions / 20, "too few storms to say anything: {seen:?}");
}

#[test]
fn a_late_timer_costs_no_more_than_its_lateness() {
    let late = || prop_oneof![0..50_u64, 50..5_000_u64];
    let _ = run(2_000, params(), 1, late());
    let _ = run(2_000, stormy(), 60, late());
}

/// A requester of depth 1, whatever its think time and the device's time are.
#[test]
fn a_synchronous_requester_has_one_interrupt_for_each_request_and_never_waits() {
    proptest!(|(budget in 1..5_000_u16, times in prop::collection::vec((0..3_000_u64, 0..3_000_u64), 1..600))| {
        let params = Params { tick_hz: TICK_HZ, budget: Share::basis_points(budget), ..Params::DEFAULT };
        let mut queue = Queue::<Budget>::new(params, 0);
        for (think, device) in times {
            queue.pass(think, 0);
            queue.call(Call::Submit(1));
            queue.pass(device, 0);
            queue.call(Call::Complete(Event::Plain));
            prop_assert_eq!(queue.truth.held, 0);
            queue.call(Call::Reap);
        }
    });
}

/// Arrivals that do not wait for us.
#[test]
fn an_open_load_is_hardly_held() {
    let mut queue = Queue::<Budget>::new(Params { tick_hz: TICK_HZ, ..Params::DEFAULT }, 0);
    let mut delays = 0_u64;
    for _ in 0..100_000 {
        queue.pass(10, 0);
        queue.call(Call::Submit(1));
        queue.call(Call::Submit(1));
        queue.pass(10, 0);
        for _ in 0..2 {
            queue.call(Call::Complete(Event::Plain));
            queue.check();
        }
        delays += u64::from(queue.truth.held > 0);
        queue.call(Call::Reap);
    }
    assert!(delays < 5_000, "{delays}");
}
