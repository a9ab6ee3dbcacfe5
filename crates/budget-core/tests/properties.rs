//! Random events: every part of the contract, checked after every event.

mod spent;

use budget_core::{
    Budget, Completion, Config, Decision, Event, HoldReason, Mark, Params, Policy as _, Reason, Share, StormParams,
};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use spent::spent;

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
}

/// `hinted`: the weight of completions that are not Plain, beside 30 that are.
fn call(hinted: u32) -> impl Strategy<Value = Call> {
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
    ]
}

/// Most events follow each other closely, some after a pause, a few after an hour.
fn ticks() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..4_u64, 10 => 4..60_u64, 2 => 60..4_000_u64, 1 => 0..4_000_000_000_u64]
}

/// A queue with a machine, and what its requests wait for by an account of its own.
struct Queue {
    budget: Budget,
    params: Params,
    now: u64,
    in_flight: u32,
    held: u32,
    passed: u32,  // Urgents that interrupted alone since the first was held
    covered: u32, // by interrupts, and not reaped
    held_since: u64,
    interrupted: Option<u64>, // when last
    held_time: u128,          // requests * ticks
    outstanding_time: u128,   // the same: what the requesters waited, whatever the machine says of it
    late_time: u128,          // of `held_time`, after a deadline
    paced_time: u128,         // of `held_time`, while the storm guard allowed no interrupt
    most: u32,                // outstanding at once
}

impl Queue {
    fn new(params: Params) -> Self {
        Self {
            budget: Budget::new(Config::new(params).unwrap()),
            params,
            now: 1_000,
            in_flight: 0,
            held: 0,
            passed: 0,
            covered: 0,
            held_since: 0,
            interrupted: None,
            held_time: 0,
            outstanding_time: 0,
            late_time: 0,
            paced_time: 0,
            most: 0,
        }
    }

    const fn outstanding(&self) -> u32 {
        self.in_flight + self.held + self.covered
    }

    /// Before this instant the storm guard allows no interrupt.
    fn pace(&self) -> u64 {
        let interval = self.budget.config().storm_interval().filter(|_| self.budget.is_storming());
        self.interrupted.zip(interval).map_or(0, |(interrupted, interval)| interrupted + interval)
    }

    /// Lets time pass, in which nothing happens but that the machine's deadlines are met, `late` ticks late.
    fn pass(&mut self, ticks: u64, late: u64) {
        let end = self.now + ticks;
        while let Some(deadline) = self.budget.deadline().filter(|deadline| *deadline <= end) {
            let at = (deadline.max(self.now) + late).min(end.max(deadline));
            self.late_time += u128::from(self.held) * u128::from(at - deadline.min(at));
            self.go_to(at);
            let pace = self.pace(); // this interrupt may begin a storm
            let decision = self.budget.on_deadline(at);
            assert!(decision.is_deliver(), "at its deadline: {decision:?}");
            assert!(at >= pace, "an interrupt before {pace}");
            self.decided(decision);
        }
        self.go_to(end.max(self.now));
    }

    fn go_to(&mut self, at: u64) {
        let elapsed = u128::from(at - self.now);
        self.held_time += u128::from(self.held) * elapsed;
        self.paced_time += u128::from(self.held) * u128::from(self.pace().min(at).saturating_sub(self.now));
        self.outstanding_time += u128::from(self.outstanding()) * elapsed;
        self.now = at;
    }

    fn decided(&mut self, decision: Decision) {
        let covered = match decision {
            Decision::Deliver(_) => self.held,
            Decision::DeliverUrgent => 1,
            Decision::Hold(_) => return,
        };
        (self.covered, self.held) = (self.covered + covered, self.held - covered);
        if self.held == 0 {
            self.passed = 0;
        }
        self.interrupted = Some(self.now);
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Submit(count) => {
                let mut together = self.budget;
                (0..count).for_each(|_| self.budget.on_submits(self.now, 1));
                together.on_submits(self.now, count);
                self.in_flight += count;
                assert_eq!(together, self.budget);
                self.most = self.most.max(self.outstanding());
            }
            Call::Complete(_) if self.in_flight == 0 => {}
            Call::Complete(event) => self.complete(event),
            Call::Cancel(event) if self.in_flight == 0 && event != Event::Error => {}
            Call::Cancel(event) => {
                let pace = self.pace();
                self.in_flight -= u32::from(event != Event::Error);
                let decision = self.budget.on_cancel(self.now, Mark { event, ..Mark::default() });
                let expected = match event {
                    _ if self.held == 0 => Decision::Hold(HoldReason::NothingHeld),
                    Event::Error => Decision::Deliver(Reason::Error),
                    Event::Barrier if self.now < pace => Decision::Hold(HoldReason::Storm),
                    Event::Barrier => Decision::Deliver(Reason::Barrier),
                    _ if decision == Decision::Deliver(Reason::Budget) => decision, // it can no longer be paid for
                    Event::Plain | Event::Urgent => Decision::Hold(HoldReason::Cancelled),
                };
                assert_eq!(decision, expected);
                self.decided(decision);
            }
            Call::Reap => self.covered = 0,
            Call::Poll => {
                self.budget.on_consumed(self.now);
                (self.held, self.passed, self.covered) = (0, 0, 0);
            }
            Call::Flush => {
                let decision = self.budget.flush(self.now);
                assert_eq!(decision.is_deliver(), self.held > 0);
                self.decided(decision);
            }
            Call::Reset => {
                self.budget.reset_tracking();
                let decision = self.budget.flush(self.now);
                self.decided(decision);
                (self.in_flight, self.covered) = (0, 0);
            }
            Call::EarlyDeadline => {
                let before = self.budget.held();
                let decision = self.budget.on_deadline(self.now);
                assert!(!decision.is_deliver() && self.budget.held() == before, "{decision:?}");
            }
        }
    }

    fn complete(&mut self, event: Event) {
        let (cif, outstanding) = (self.in_flight, self.outstanding());
        let (pace, deadline) = (self.pace(), self.budget.deadline());
        let decision = self.budget.on_completion(self.now, &Completion { cif, outstanding, ..Completion::of(event) });
        if self.held == 0 {
            self.held_since = self.now;
        }
        (self.in_flight, self.held) = (self.in_flight - 1, self.held + 1);
        let is_paced = self.now < pace && event != Event::Error;
        assert!(!is_paced || !decision.is_deliver(), "{decision:?} before {pace}");
        assert!(decision != Decision::Hold(HoldReason::Storm) || is_paced, "no interrupt since {:?}", self.interrupted);
        assert!(event == Event::Plain || is_paced || decision.is_deliver(), "{event:?}: {decision:?}");
        match decision {
            Decision::Deliver(Reason::Urgent) => assert!(event == Event::Urgent && !self.params.ooo),
            Decision::Deliver(Reason::Barrier) => assert_eq!(event, Event::Barrier),
            Decision::Deliver(Reason::Error) => assert_eq!(event, Event::Error),
            Decision::Deliver(Reason::Count) => assert_eq!(self.held + self.passed, u32::from(self.params.thr)),
            Decision::DeliverUrgent => assert!(event == Event::Urgent && self.params.ooo),
            _ => {}
        }
        if decision == Decision::DeliverUrgent && self.held > 1 {
            self.passed += 1;
            assert!(self.budget.deadline() == deadline || self.budget.is_storming(), "it disturbs those that are held");
        }
        assert!(
            decision.is_deliver() || is_paced || self.most > 1,
            "a requester that is alone does not wait: {decision:?}"
        );
        self.decided(decision);
    }

    fn check(&self) {
        assert_eq!(self.budget.held(), self.held);
        let is_stormed = self.budget.is_storming();
        assert!(
            self.held + self.passed < self.params.thr.into() || self.held == 0 || is_stormed,
            "{} are held",
            self.held
        );
        let deadline = self.budget.deadline();
        assert_eq!(deadline.is_some(), self.held > 0, "what is held has a deadline");
        let max_hold = self.params.max_hold_ns * TICK_HZ / 1_000_000_000;
        let latest = (self.held_since + max_hold).max(self.pace());
        assert!(deadline.is_none_or(|deadline| deadline <= latest), "{deadline:?}");
        let (held_time, outstanding_time) = spent(&self.budget);
        assert!(u128::from(held_time) <= self.held_time, "{held_time} <= {}", self.held_time);
        assert!(u128::from(outstanding_time) <= self.outstanding_time);
        // The invariant.
        let (parts, of) = self.budget.config().epsilon();
        let earned = u128::from(parts) * (self.outstanding_time - self.held_time) / u128::from(of);
        let learning = self.budget.config().learning_of(u64::try_from(self.outstanding_time).unwrap_or(u64::MAX));
        let allowed = earned + u128::from(learning) + self.late_time + self.paced_time;
        assert!(self.held_time <= allowed, "held {} of {allowed}", self.held_time);
    }
}

/// What the runs of a test saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    completions: u64,
    holds: u64,
    storms: u64, // events in a storm
    passed: u64, // Urgents that interrupted alone while others were held
}

fn run(cases: u32, params: impl Strategy<Value = Params>, hinted: u32, late: impl Strategy<Value = u64>) -> Seen {
    let calls = prop::collection::vec((ticks(), call(hinted)), 1..400);
    let mut runner = TestRunner::new(Cases { failure_persistence: None, ..Cases::with_cases(cases) });
    let seen = std::cell::Cell::new(Seen::default());
    let result = runner.run(&(params, calls, late), |(params, calls, late)| {
        let mut queue = Queue::new(params);
        for (ticks, call) in calls {
            queue.pass(ticks, late);
            queue.check();
            let before = (queue.held, queue.passed);
            queue.call(call);
            queue.check();
            let mut now = seen.get();
            now.completions += u64::from(matches!(call, Call::Complete(_)));
            now.holds += u64::from(queue.held > before.0);
            now.storms += u64::from(queue.budget.is_storming());
            now.passed += u64::from(queue.passed > before.1);
            seen.set(now);
        }
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    seen.get()
}

#[test]
fn holding_costs_no_more_than_the_budget() {
    let seen = run(4_000, params(), 1, Just(0));
    assert!(seen.holds > seen.completions / 20, "too few were held to say anything: {seen:?}");
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
        let mut queue = Queue::new(Params { tick_hz: TICK_HZ, budget: Share::basis_points(budget), ..Params::DEFAULT });
        for (think, device) in times {
            queue.pass(think, 0);
            queue.call(Call::Submit(1));
            queue.pass(device, 0);
            queue.call(Call::Complete(Event::Plain));
            prop_assert_eq!(queue.held, 0);
            queue.call(Call::Reap);
        }
    });
}

/// Arrivals that do not wait for us.
#[test]
fn an_open_load_is_hardly_held() {
    let mut queue = Queue::new(Params { tick_hz: TICK_HZ, ..Params::DEFAULT });
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
        delays += u64::from(queue.held > 0);
        queue.call(Call::Reap);
    }
    assert!(delays < 5_000, "{delays}");
}
