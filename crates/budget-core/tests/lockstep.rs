//! Random events: the rules that hold for every policy, and lockstep with a reference that remembers instants.

mod machine;
mod reference;
mod spent;

use budget_core::{Allowance, Budget, Completion, Config, Event, Level, Mark, Params, Share, StormParams};
use coalesce_testkit::{
    Decision, Driver, Hint, Lockstep, Mix, Op, Policy, Shell, Tested, Violation, When, check_any, run,
};
use machine::{ALLOWANCES, Machine};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestCaseError, TestError, TestRunner};
use reference::{Reference, Said, assert_seen};
use spent::spent;
use std::collections::VecDeque;

/// A clock of 1 µs, so that spans are small numbers.
const TICK_HZ: u64 = 1_000_000;

fn params(storm: impl Strategy<Value = Option<StormParams>>) -> impl Strategy<Value = Params> {
    let tick_hz = prop_oneof![15 => Just(TICK_HZ), 1 => Just(2_000_000_u64)]; // a refused reconfiguration
    let budget = prop_oneof![Just(500_u16), Just(1), Just(5_000), 1..5_000_u16].prop_map(Share::basis_points);
    let max_hold_ns = prop_oneof![Just(2_000_000_u64), 1..3_000_000_u64];
    let thr = prop_oneof![Just(1_u16), Just(256), 2..40_u16, Just(u16::MAX)];
    (tick_hz, budget, max_hold_ns, thr, any::<bool>(), storm)
        .prop_map(|(tick_hz, budget, max_hold_ns, thr, ooo, storm)| Params {
            tick_hz,
            budget,
            max_hold_ns,
            thr,
            ooo,
            storm,
        })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok())
}

fn storm() -> impl Strategy<Value = StormParams> {
    (prop_oneof![Just(10_000_u64), Just(7_001), Just(1_000)], 5..8_u8)
        .prop_map(|(max_rate, shift)| StormParams { max_rate, shift })
}

fn lockstep(choice: &[Params]) -> Lockstep<Machine, Reference> {
    Lockstep::new(Machine::new(choice), Reference::new(choice))
}

const CONFIGURATIONS: usize = 3;
/// The configurations, the levels, and one that does not exist.
const CHOICES: u8 = (CONFIGURATIONS + ALLOWANCES.len() + 1) as u8;

/// With a group, tickets come that nobody gave, and resets.
fn mix(spans: &[u64]) -> Mix {
    Mix {
        hints: true,
        back: true,
        consumed: true,
        reaping: true,
        groups: 1,
        configurations: CHOICES,
        ..Mix::new(spans)
    }
}

fn choice(params: impl Strategy<Value = Params> + 'static) -> BoxedStrategy<Vec<Params>> {
    prop::collection::vec(params, CONFIGURATIONS).boxed()
}

/// The simplest counter-example, on one line.
fn assert_passed<T: std::fmt::Debug>(result: Result<(), TestError<T>>) {
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => panic!("{reason}\nwith {input:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn agrees_with_the_reference() {
    let choice = choice(params(prop::option::of(storm())));
    check_any(&mix(&[1, 10, 2_000]), 400_000, &choice, |choice| lockstep(choice));
    assert_seen(&[
        ("company", 10_000),
        ("slowdown", 1_000),
        ("probe", 300),
        ("licensed", 1_000),
        ("starved", 100),
        ("alone", 50),
        ("not alone", 40),
        ("too dear a trial", 10),
        ("storm", 10_000),
        ("forgotten with some held", 100),
    ]);
}

/// A guest and a device that nothing disturbs.
#[test]
fn agrees_with_the_reference_where_nobody_disturbs() {
    let params = params(Just(None)).prop_map(|params| Params { ooo: false, thr: 256, ..params });
    let mix = Mix { reaping: true, ..Mix::new([1, 10, 100]) };
    check_any(&mix, 400_000, &choice(params), |choice| lockstep(choice));
    assert_seen(&[("company", 10_000)]);
}

/// Everything is urgent and comes fast.
#[test]
fn agrees_with_the_reference_in_storms() {
    let mix = Mix { configurations: 0, consumed: false, ..mix(&[0, 1, 5, 100]) };
    check_any(&mix, 300_000, &choice(params(storm().prop_map(Some))), |choice| lockstep(choice));
    assert_seen(&[("storm begins", 500), ("storm", 10_000), ("forgotten with some held", 100)]);
}

/// Where the clock stops everything is due, and no rate can be kept.
#[test]
fn agrees_with_the_reference_at_the_end_of_time() {
    let mix = Mix { start: u64::MAX - 500, back: false, configurations: 0, ..mix(&[6, 100, u64::MAX >> 12]) };
    check_any(&mix, 100_000, &choice(params(Just(None))), |choice| lockstep(choice));
}

/// Two calls at the end of the clock, and everything is as old as an age can say: which deadline was first is forgotten.
#[test]
fn agrees_with_the_reference_about_the_oldest_holds() {
    let params =
        Params { tick_hz: TICK_HZ, max_hold_ns: 16_000, budget: Share::percent(50), storm: None, ..Params::DEFAULT };
    let complete = Op::Complete { which: 0, hint: Hint::Plain, count: 1 };
    let submit = |count| Op::Submit { group: 0, count };
    let mut ops = vec![submit(1), complete, Op::Advance(2), submit(4), complete, Op::Advance(2), complete];
    ops.extend([Op::Advance(496), submit(1), complete]);
    run(lockstep(&[params]), Shell::Careless, u64::MAX - 500, &ops).unwrap();
}

/// What a guest and its device do for a while.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// The requests that the guest submits before it waits.
    depth: u64,
    /// From an interrupt until it submits the next request, and between two of them.
    answer: u64,
    pace: u64,
    /// How long the device takes, and how long at least between two completions.
    service: u64,
    gap: u64,
    /// So many completions long.
    completions: u32,
    /// The ticks between two requests of others, who do not wait for them; 0: there are no others.
    strangers: u64,
    /// The completions for each one that has a hint; 0: none has.
    hints: u32,
    hint: Hint,
    /// The requests for each one that is aborted; 0: none is.
    cancels: u32,
    /// Timers fire only when nothing else happens.
    is_late: bool,
}

impl Habit {
    /// Nobody else, no hint, and timers on time.
    const PLAIN: Self = Self {
        depth: 1,
        answer: 0,
        pace: 0,
        service: 0,
        gap: 0,
        completions: 1,
        strangers: 0,
        hints: 0,
        hint: Hint::Plain,
        cancels: 0,
        is_late: false,
    };
}

fn habit() -> impl Strategy<Value = Habit> {
    let depth = prop_oneof![4 => 1..8_u64, 4 => 4..16_u64, 4 => 16..64_u64, 1 => 64..256_u64];
    let answer = prop_oneof![0..10_u64, 10..200_u64, 200..800_u64];
    let gap = prop_oneof![2 => Just(0_u64), 4 => 1..8_u64, 1 => 8..80_u64];
    let paces = prop_oneof![3 => 4..8_u64, 1 => 0..4_u64];
    let strangers = prop_oneof![6 => Just(0_u64), 1 => 1..100_u64, 1 => 100..1_000_u64];
    let hints = prop_oneof![4 => Just(0_u32), 1 => 1..100_u32];
    let hint = prop_oneof![Just(Hint::Urgent), Just(Hint::Barrier)];
    let cancels = prop_oneof![6 => Just(0_u32), 1 => 2..100_u32];
    let completions = prop_oneof![1..40_u32, 40..800_u32];
    (depth, answer, gap, paces, 0..50_u64, completions, strangers, (hints, hint, cancels), prop::bool::weighted(0.1))
        .prop_map(|(depth, answer, gap, paces, service, completions, strangers, (hints, hint, cancels), is_late)| {
            Habit {
                depth,
                answer,
                pace: gap * paces / 4,
                service,
                gap,
                completions,
                strangers,
                hints,
                hint,
                cancels,
                is_late,
            }
        })
}

/// What happens between two habits.
fn disturbance() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Advance(0)),
        4 => (0..CHOICES).prop_map(Op::Reconfigure),
        2 => Just(Op::Reconfigure(CONFIGURATIONS as u8 + 4)), // licensed
        1 => Just(Op::Reconfigure(CONFIGURATIONS as u8 + 5)), // a trial
        2 => (0..1_000_u64).prop_map(Op::Advance),
        1 => (0..1_000_u64).prop_map(Op::Back),
        6 => any::<u8>().prop_map(|which| Op::Cancel { which }),
        1 => Just(Op::BogusTicket { number: 0, cancel: true }),
        1 => Just(Op::Consumed),
        1 => Just(Op::Flush),
        1 => Just(Op::ResetTracking),
        1 => Just(Op::Deadline(When::Now)),
    ]
}

/// A guest that waits for its interrupts, before a driver.
struct Guest {
    driver: Driver<Lockstep<Machine, Reference>>,
    now: u64,
    /// When the requests are submitted that are not yet, and when those complete that are.
    coming: VecDeque<u64>,
    in_flight: VecDeque<u64>,
    posted: u32,
    /// When the next stranger submits, and what theirs are of all that are in flight or posted.
    stranger: u64,
}

impl Guest {
    fn new(choice: &[Params], shell: Shell) -> Self {
        let driver = Driver::new(lockstep(choice), shell, 0);
        Self { driver, now: 0, coming: VecDeque::new(), in_flight: VecDeque::new(), posted: 0, stranger: 0 }
    }

    fn apply(&mut self, op: Op, habit: &Habit) -> Result<(), Violation> {
        self.driver.apply(op)?;
        match op {
            Op::Submit { .. } => {
                let last = self.in_flight.back().copied().unwrap_or(0);
                self.in_flight.push_back((last + habit.gap).max(self.now + habit.service));
            }
            Op::Complete { .. } => self.posted += 1,
            Op::Cancel { .. } => _ = self.in_flight.pop_front(),
            Op::Advance(ticks) => self.now += ticks,
            Op::Back(ticks) => self.now = self.now.saturating_sub(ticks),
            _ => {}
        }
        // What an interrupt covers, and what was submitted by nobody, comes back.
        self.posted = self.driver.policy().held().min(self.posted);
        let outstanding = self.coming.len() as u64 + self.in_flight.len() as u64 + u64::from(self.posted);
        for _ in outstanding..habit.depth {
            let last = self.coming.back().map_or(0, |last| last + habit.pace);
            self.coming.push_back(last.max(self.now + habit.answer));
        }
        Ok(())
    }

    fn go_to(&mut self, instant: u64, habit: &Habit) -> Result<(), Violation> {
        let due = self.driver.policy().deadline().filter(|due| *due <= instant && !habit.is_late);
        if let Some(due) = due {
            self.apply(Op::Advance(due.saturating_sub(self.now)), habit)?;
            self.apply(Op::Deadline(When::Now), habit)
        } else {
            self.apply(Op::Advance(instant.saturating_sub(self.now)), habit)
        }
    }

    fn live(&mut self, habit: &Habit) -> Result<(), Violation> {
        let mut completions = 0;
        self.apply(Op::Advance(0), habit)?;
        while completions < habit.completions {
            let due = self.driver.policy().deadline().unwrap_or(u64::MAX);
            let submit = self.coming.front().copied().unwrap_or(u64::MAX);
            let complete = self.in_flight.front().copied().unwrap_or(u64::MAX);
            if habit.strangers > 0 && self.stranger <= self.now {
                self.stranger = self.now + habit.strangers;
                self.apply(Op::Submit { group: 0, count: 1 }, habit)?;
            } else if submit <= self.now {
                self.coming.pop_front();
                self.apply(Op::Submit { group: 0, count: 1 }, habit)?;
            } else if complete <= self.now && completions.checked_rem(habit.cancels) == Some(1) {
                completions += 1;
                self.apply(Op::Cancel { which: 0 }, habit)?;
            } else if complete <= self.now {
                self.in_flight.pop_front();
                completions += 1;
                let is_hinted = completions.checked_rem(habit.hints) == Some(0);
                let hint = if is_hinted { habit.hint } else { Hint::Plain };
                self.apply(Op::Complete { which: 0, hint, count: 1 }, habit)?;
            } else if submit.min(complete) < u64::MAX {
                let stranger = if habit.strangers > 0 { self.stranger } else { u64::MAX };
                self.go_to(submit.min(complete).min(stranger), habit)?;
            } else {
                self.go_to(due, &Habit { is_late: false, ..*habit })?;
            }
        }
        Ok(())
    }
}

/// Guests that wait for their interrupts.
#[test]
fn agrees_with_the_reference_about_guests_that_wait() {
    let params = params(prop_oneof![4 => Just(None), 1 => storm().prop_map(Some)]);
    let params = (params, any::<bool>()).prop_map(|(params, is_usual)| match is_usual {
        true => Params { tick_hz: TICK_HZ, thr: 256, max_hold_ns: 2_000_000, ..params },
        false => params,
    });
    let choice = choice(params);
    let habits = || prop::collection::vec((habit(), prop::collection::vec((disturbance(), 1..200_u32), 0..4)), 1..4);
    for shell in [Shell::Punctual, Shell::Careless] {
        let cases = Cases { failure_persistence: None, max_shrink_iters: 4_000, ..Cases::with_cases(1_000) };
        let result = TestRunner::new(cases).run(&(&choice, habits()), |(choice, habits)| {
            let mut guest = Guest::new(&choice, shell);
            let mut live = || {
                for (habit, disturbances) in &habits {
                    let habit = Habit { is_late: habit.is_late && shell == Shell::Careless, ..*habit };
                    guest.live(&habit)?;
                    for &(op, completions) in disturbances {
                        guest.apply(op, &habit)?;
                        guest.live(&Habit { completions, ..habit })?;
                    }
                }
                Ok(())
            };
            live().map_err(|violation: Violation| TestCaseError::fail(violation.to_string()))
        });
        assert_passed(result);
    }
    assert_seen(&[
        ("probe", 500),
        ("licensed", 500),
        ("starved", 50),
        ("alone", 50),
        ("failed", 3),
        ("too dear a trial", 3),
        ("broken by a cancel", 10),
        ("slowdown", 1_000),
        ("storm begins", 50),
    ]);
}

/// Many requests that all wait, come back late, and complete one after the other.
#[test]
fn agrees_with_the_reference_about_many_requests_that_come_back_late() {
    let every = [16, 60, 250, 1_000].into_iter().flat_map(|depth| [20, 200, 600].map(|answer| (depth, answer)));
    let every = every.flat_map(|(depth, answer)| [0, 1, 4].map(|gap| (depth, answer, gap)));
    for ((depth, answer, gap), thr) in every.flat_map(|guest| [256, u16::MAX].map(|thr| (guest, thr))) {
        let params = Params { tick_hz: TICK_HZ, thr, ..Params::DEFAULT };
        let mut guest = Guest::new(&[params], Shell::Punctual);
        let service = depth * gap;
        let habit = Habit { depth, answer, pace: gap, service, gap, completions: 6_000, ..Habit::PLAIN };
        if let Err(violation) = guest.live(&habit) {
            panic!("{habit:?}, thr {thr}: {violation}");
        }
    }
}

/// A call with any arguments.
#[derive(Clone, Copy, Debug)]
enum Act {
    Advance(u64),
    Back(u64),
    At(u64),
    Submits(u32),
    Complete(Said, u32, u32),
    Cancel(Said),
    Deadline { is_due: bool },
    Flush,
    Consumed,
    Forget,
    Reconfigure(u8),
    Allow(Allowance),
}

fn act() -> impl Strategy<Value = Act> {
    let span = || {
        prop_oneof![20 => 0..10_u64, 10 => 10..1_000_u64, 1 => (1_u64 << 29) - 2..(1 << 29) + 2,
        1 => (1_u64 << 30) - 2..(1 << 30) + 2, 1 => 0..1_u64 << 40]
    };
    let number = || prop_oneof![20 => 0..6_u32, 4 => 0..200_u32, 1 => 65_530..65_540_u32, 1 => any::<u32>()];
    let said = || prop_oneof![12 => Just(Said::Plain), 3 => Just(Said::Urgent), 1 => Just(Said::Barrier), 1 => Just(Said::Error)];
    let level = prop_oneof![
        1 => Just(Level::Nothing),
        1 => Just(Level::Strict),
        2 => Just(Level::Trial),
        2 => Just(Level::Licensed)
    ];
    let shift = prop_oneof![3 => Just(0), 2 => 0..16_u8, 1 => any::<u8>()];
    let limit = prop_oneof![4 => 0..9_u8, 1 => any::<u8>()];
    let allowance = (level, shift, limit, 0..5_u8).prop_map(|(level, shift, limit, evidence)| Allowance {
        level,
        shift,
        limit,
        evidence,
    });
    prop_oneof![
        40 => span().prop_map(Act::Advance),
        2 => span().prop_map(Act::Back),
        1 => prop_oneof![Just(u64::MAX), u64::MAX - 1_000..u64::MAX, any::<u64>(), 0..1_000_u64].prop_map(Act::At),
        30 => number().prop_map(Act::Submits),
        60 => (said(), number(), number()).prop_map(|(said, cif, outstanding)| Act::Complete(said, cif, outstanding)),
        4 => said().prop_map(Act::Cancel),
        12 => any::<bool>().prop_map(|is_due| Act::Deadline { is_due }),
        1 => Just(Act::Flush),
        1 => Just(Act::Consumed),
        1 => Just(Act::Forget),
        2 => (0..CONFIGURATIONS as u8).prop_map(Act::Reconfigure),
        2 => allowance.prop_map(Act::Allow),
    ]
}

fn event(said: Said) -> Event {
    match said {
        Said::Plain => Event::Plain,
        Said::Urgent => Event::Urgent,
        Said::Barrier => Event::Barrier,
        Said::Error => Event::Error,
    }
}

/// Callers that lie, about the time, too. What is held has a deadline, and at it goes out.
#[test]
fn agrees_with_the_reference_about_callers_that_lie() {
    let params = params(prop_oneof![2 => Just(None), 1 => storm().prop_map(Some)]);
    let acts = prop::collection::vec(act(), 1..400);
    let cases = Cases { failure_persistence: None, max_shrink_iters: 20_000, ..Cases::with_cases(4_000) };
    let result = TestRunner::new(cases).run(&(choice(params), acts), |(choice, acts)| {
        let configs: Vec<_> = choice.iter().map(|params| Config::new(*params).unwrap()).collect();
        let (mut budget, mut reference) = (Budget::new(configs[0]), Reference::new(&choice));
        let mut now = 0_u64;
        for act in acts {
            let both = match act {
                Act::Advance(ticks) => {
                    now = now.saturating_add(ticks);
                    continue;
                }
                Act::Back(ticks) => {
                    now = now.saturating_sub(ticks);
                    continue;
                }
                Act::At(instant) => {
                    now = instant;
                    continue;
                }
                Act::Submits(count) => {
                    budget.on_submits(now, count);
                    reference.on_submits(now, count);
                    None
                }
                Act::Complete(said, cif, outstanding) => Some((
                    budget.on_completion(now, &Completion { cif, outstanding, ..Completion::of(event(said)) }),
                    reference.complete(now, said, cif, outstanding),
                )),
                Act::Cancel(said) => Some((
                    budget.on_cancel(now, Mark { event: event(said), ..Mark::default() }),
                    reference.abort(now, said),
                )),
                Act::Deadline { is_due } => {
                    let deadline = budget.deadline().filter(|_| is_due);
                    now = now.max(deadline.unwrap_or(0));
                    let decision = budget.on_deadline(now);
                    prop_assert!(deadline.is_none() || matches!(decision, Decision::Deliver(_)), "{decision:?}");
                    Some((decision, reference.on_deadline(now)))
                }
                Act::Flush => Some((budget.flush(now), reference.flush(now))),
                Act::Consumed => {
                    budget.on_consumed(now);
                    reference.on_consumed(now);
                    None
                }
                Act::Forget => {
                    budget.reset_tracking();
                    reference.reset_tracking();
                    None
                }
                Act::Reconfigure(choice) => {
                    let decision = budget.reconfigure(configs[usize::from(choice)], now).ok();
                    let expected = reference.reconfigure(choice, now);
                    prop_assert_eq!(decision.is_none(), expected.is_none());
                    decision.zip(expected)
                }
                Act::Allow(allowance) => {
                    budget.allow(now, allowance);
                    reference.allow(now, allowance);
                    None
                }
            };
            if let Some((decision, expected)) = both {
                prop_assert_eq!(decision, expected, "{:?} at {}", act, now);
            }
            let machine = (budget.held(), budget.deadline(), spent(&budget), budget.paced_until());
            let expected = (reference.held(), reference.deadline(), spent(&reference), reference.paced_until());
            prop_assert_eq!(machine, expected, "held, deadline, spent, paced until: {:?} at {}", act, now);
            let machine = (budget.level(), budget.limit(), budget.is_storming());
            let expected = (reference.level(), reference.limit(), reference.is_storming());
            prop_assert_eq!(machine, expected, "level, limit, storming: {:?} at {}", act, now);
            prop_assert_eq!(budget.held() > 0, budget.deadline().is_some(), "what is held has a deadline");
        }
        Ok(())
    });
    assert_passed(result);
    assert_seen(&[
        ("probe", 300),
        ("licensed", 300),
        ("company", 10_000),
        ("broken by a cancel", 3),
        ("broken by a configuration", 3),
        ("forgotten with some held", 100),
        ("storm begins", 50),
    ]);
}
