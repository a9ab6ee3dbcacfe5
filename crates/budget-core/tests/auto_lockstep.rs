//! The default policy in lockstep with its reference, on loads that answer to what is held: licences, their suspensions, cuts, bypasses.

#[allow(dead_code, reason = "the reference of the account has its allowances")]
mod machine;
mod reference;
mod spent;

use budget_core::{
    Auto, Bypassed, Completion, Config, Decision, Hint, Mark, Params, Policy, Share, StormParams, Submission,
};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestCaseError, TestRunner};
use reference::{assert_seen, auto::Auto as Reference};
use spent::spent;
use std::fmt::Debug;

/// A clock of 1 µs.
const PARAMS: Params = Params { tick_hz: 1_000_000, ..Params::DEFAULT };

/// Both, and when the last call was.
struct Both {
    choice: Vec<Params>,
    auto: Auto,
    reference: Reference,
    now: u64,
}

type Checked<T = ()> = Result<T, TestCaseError>;

impl Both {
    fn new(choice: &[Params]) -> Self {
        let auto = Auto::new(Config::new(choice[0]).expect("valid"));
        Self { choice: choice.to_vec(), auto, reference: Reference::new(choice), now: 0 }
    }

    fn same<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        auto: impl FnOnce(&mut Auto, u64) -> T,
        reference: impl FnOnce(&mut Reference, u64) -> T,
    ) -> Checked<T> {
        let (answer, expected) = (auto(&mut self.auto, self.now), reference(&mut self.reference, self.now));
        prop_assert_eq!(&answer, &expected, "{} at {}", what, self.now);
        let (auto, reference) = (&self.auto, &self.reference);
        let rule = (auto.budget().level(), auto.budget().limit());
        prop_assert_eq!(rule, reference.rule(), "rule after {} at {}", what, self.now);
        let state = (auto.held(), auto.deadline(), spent(auto), auto.may_hold());
        let expected = (reference.held(), reference.deadline(), spent(reference), reference.may_hold());
        prop_assert_eq!(state, expected, "held, deadline, spent, may hold after {} at {}", what, self.now);
        Ok(answer)
    }

    /// The same verb of both.
    fn call<T: PartialEq + Debug>(&mut self, what: &str, verb: impl Fn(&mut dyn Policy, u64) -> T) -> Checked<T> {
        self.same(what, |auto, now| verb(auto, now), |reference, now| verb(reference, now))
    }

    /// Time passes, in which deadlines are met. Returns what each interrupt took, at `cost` each: it is added.
    fn pass(&mut self, ticks: u64, cost: u64) -> Checked<u64> {
        let (mut end, mut interrupts) = (self.now + ticks, 0);
        while let Some(deadline) = self.auto.deadline().filter(|deadline| *deadline <= end) {
            self.now = deadline.max(self.now);
            let _ = self.call("on_deadline", |policy, now| policy.on_deadline(now))?;
            (end, interrupts) = (end + cost, interrupts + 1);
        }
        self.now = end;
        Ok(interrupts)
    }
}

/// What requesters and a device do.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// A device that answers at once, to a requester that waits when `depth` completions are posted and no interrupt covers one. The
    /// ticks that it takes to submit, for an interrupt, and to think after every `depth` requests.
    Guest { depth: u32, submit: u64, interrupt: u64, think: u64 },
    /// `outstanding` are always in flight. The ticks from a hold to the next completion, and from an interrupt to the next one.
    Stream { outstanding: u32, held: u64, delivered: u64 },
    /// The same, from a device that finds `batch` completions in each poll, and does not ask where nothing may be held.
    Polled { outstanding: u32, batch: u16, held: u64, delivered: u64 },
}

/// A load for a while, and what happens then.
#[derive(Clone, Copy, Debug)]
struct Phase {
    load: Load,
    completions: u32,
    /// Another program has the CPU for up to 2 ms before one completion in this number; 0: never.
    noise: u32,
    /// One completion in this number is urgent; 0: none.
    urgent: u32,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    /// The load pauses.
    Pause(u64),
    /// Another policy is in force.
    SetAside(u64),
    Back(u64),
    Consumed,
    Flush,
    Reset,
    Reconfigure(u8),
}

struct World {
    both: Both,
    chance: u64,
    waiting: u32,
    covered: u32,
    is_held: bool,
}

impl World {
    fn one_in(&mut self, many: u32) -> bool {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        many > 0 && (self.chance >> 33) % u64::from(many) == 0
    }

    fn pass(&mut self, ticks: u64, cost: u64) -> Checked {
        if self.both.pass(ticks, cost)? > 0 {
            (self.covered, self.is_held) = (self.waiting, false);
        }
        Ok(())
    }

    /// A completion with `cif` in flight. `before`: the number found together with it; `None`: the device does not poll.
    fn complete(&mut self, cif: u32, outstanding: u32, before: Option<u16>, is_urgent: bool) -> Checked<Decision> {
        let mark = Mark::of(if is_urgent { Hint::Urgent } else { Hint::Plain });
        let last = Completion { mark, outstanding, ..Completion::with_cif(cif) };
        match before {
            None => self.both.call("on_completion", |policy, now| policy.on_completion(now, &last)),
            Some(before) => self.both.call("on_completions", |policy, now| policy.on_completions(now, before, &last)),
        }
    }

    fn submit(&mut self, count: u32) -> Checked {
        let submission = Submission { before: count - 1, ..Submission::ALONE };
        self.both.call("on_submit", |policy, now| policy.on_submit(now, &submission)).map(|_| ())
    }

    fn guest(&mut self, depth: u32, times: [u64; 3], is_urgent: bool, is_first: bool) -> Checked {
        let [submit, interrupt, think] = times;
        while self.waiting >= depth && self.covered == 0 {
            self.pass(10, interrupt)?;
        }
        if self.waiting >= depth {
            self.waiting -= std::mem::take(&mut self.covered).min(self.waiting);
        }
        self.pass(if is_first && think > 0 { think } else { submit }, interrupt)?;
        self.waiting += 1;
        self.submit(1)?;
        self.pass(2, interrupt)?;
        if self.complete(1, self.waiting, None, is_urgent)?.is_deliver() {
            self.covered = self.waiting;
            self.pass(interrupt, 0)?;
        }
        Ok(())
    }

    fn stream(&mut self, outstanding: u32, poll: Option<u16>, times: [u64; 2], is_urgent: bool) -> Checked {
        let [held, delivered] = times;
        self.pass(if self.is_held { held } else { delivered }, 0)?;
        if poll.is_some() && !self.both.auto.may_hold() {
            self.is_held = false;
            return self.both.call("on_bypassed", |policy, now| {
                policy.on_bypassed(now, &Bypassed { interrupts: 1, outstanding, ..Bypassed::default() })
            });
        }
        let found = poll.unwrap_or(1);
        if outstanding > 1 {
            self.submit(found.into())?;
        }
        let cif = outstanding.saturating_sub(found.into()) + 1;
        self.is_held = !self.complete(cif, outstanding, poll.map(|found| found - 1), is_urgent)?.is_deliver();
        Ok(())
    }

    fn live(&mut self, phase: &Phase) -> Checked {
        for number in 0..phase.completions {
            if self.one_in(phase.noise) {
                self.pass(self.chance >> 20 & 0x7FF, 0)?;
            }
            let is_urgent = self.one_in(phase.urgent);
            match phase.load {
                Load::Guest { depth, submit, interrupt, think } => {
                    self.guest(depth, [submit, interrupt, think], is_urgent, number % depth == 0)?;
                }
                Load::Stream { outstanding, held, delivered } => {
                    self.stream(outstanding, None, [held, delivered], is_urgent)?;
                }
                Load::Polled { outstanding, batch, held, delivered } => {
                    self.stream(outstanding, Some(batch), [held, delivered], is_urgent)?;
                }
            }
        }
        self.then(phase.then)
    }

    fn then(&mut self, then: Then) -> Checked {
        match then {
            Then::Nothing => {}
            Then::Pause(ticks) => self.pass(ticks, 0)?,
            Then::SetAside(ticks) => {
                let aside = |both: &mut Both| {
                    both.same(
                        "set_aside",
                        |auto, now| *auto = auto.set_aside(now),
                        |reference, now| *reference = reference.set_aside(now),
                    )
                };
                aside(&mut self.both)?;
                self.both.now += ticks;
            }
            Then::Back(ticks) => self.both.now = self.both.now.saturating_sub(ticks),
            Then::Consumed => self.both.call("on_consumed", |policy, now| policy.on_consumed(now))?,
            Then::Flush => _ = self.both.call("flush", |policy, now| policy.flush(now))?,
            Then::Reset => self.both.call("reset_tracking", |policy, _| policy.reset_tracking())?,
            Then::Reconfigure(choice) => {
                let config = Config::new(self.both.choice[usize::from(choice)]).expect("valid");
                self.both.same(
                    "reconfigure",
                    |auto, now| auto.reconfigure(config, now).ok(),
                    |reference, now| reference.reconfigure(choice, now),
                )?;
            }
        }
        (self.waiting, self.covered) = (self.both.auto.held(), 0);
        Ok(())
    }
}

/// Where there may be storms, phases are short: the reference derives the storm from all interrupts there were.
fn run(choice: &[Params], phases: &[Phase], chance: u64) -> Checked {
    let mut world = World { both: Both::new(choice), chance, waiting: 0, covered: 0, is_held: false };
    let most = if choice.iter().any(|params| params.storm.is_some()) { 500 } else { u32::MAX };
    phases.iter().try_for_each(|phase| world.live(&Phase { completions: phase.completions.min(most), ..*phase }))
}

fn params() -> impl Strategy<Value = Params> {
    let budget = prop_oneof![4 => Just(500_u16), 1 => Just(200), 1 => 1..5_000_u16].prop_map(Share::basis_points);
    let max_hold_ns = prop_oneof![3 => Just(2_000_000_u64), 1 => 50_000..10_000_000_u64];
    let storm = prop::option::weighted(0.1, Just(StormParams { max_rate: 50_000, shift: 5 }));
    let tick_hz = prop_oneof![15 => Just(1_000_000_u64), 1 => Just(2_000_000)]; // a refused reconfiguration
    (tick_hz, budget, max_hold_ns, any::<bool>(), storm)
        .prop_map(|(tick_hz, budget, max_hold_ns, ooo, storm)| Params {
            tick_hz,
            budget,
            max_hold_ns,
            ooo,
            storm,
            ..PARAMS
        })
        .prop_filter("max_hold is not shorter than the interval", |params| Config::new(*params).is_ok())
}

const CONFIGURATIONS: usize = 3;

fn load() -> impl Strategy<Value = Load> {
    let outstanding = || prop_oneof![1 => Just(1_u32), 6 => 2..64_u32];
    let times = || {
        prop_oneof![
            3 => (5..40_u64, 5..40_u64),
            2 => (5..40_u64, 1..4_u64).prop_map(|(held, times)| (held, held * times)), // holding pays
            2 => (5..40_u64, 2..4_u64).prop_map(|(delivered, times)| (delivered * times, delivered)), // it costs
            1 => (5..40_u64).prop_map(|both| (both, both)),
            1 => (200..700_u64, 200..400_u64), // rare
        ]
    };
    prop_oneof![
        4 => (prop_oneof![1 => 1..5_u32, 3 => 5..64_u32], 5..40_u64, 0..60_u64, prop_oneof![2 => Just(0_u64), 1 => 0..3_000_u64])
            .prop_map(|(depth, submit, interrupt, think)| Load::Guest { depth, submit, interrupt, think }),
        4 => (outstanding(), times())
            .prop_map(|(outstanding, (held, delivered))| Load::Stream { outstanding, held, delivered }),
        3 => (outstanding(), prop_oneof![1 => Just(1_u16), 3 => 2..20_u16], times())
            .prop_map(|(outstanding, batch, (held, delivered))| Load::Polled { outstanding, batch, held, delivered }),
    ]
}

fn phase() -> impl Strategy<Value = Phase> {
    let completions = prop_oneof![2 => 1..300_u32, 2 => 300..4_000_u32, 2 => 4_000..16_000_u32];
    let noise = prop_oneof![3 => Just(0_u32), 1 => 16..256_u32];
    let urgent = prop_oneof![4 => Just(0_u32), 1 => 2..200_u32];
    let then = prop_oneof![
        12 => Just(Then::Nothing),
        3 => (0..10_000_u64).prop_map(Then::Pause),
        1 => (0..2_000_000_u64).prop_map(Then::SetAside),
        1 => (0..3_000_u64).prop_map(Then::Back),
        1 => Just(Then::Consumed),
        1 => Just(Then::Flush),
        1 => Just(Then::Reset),
        1 => (0..CONFIGURATIONS as u8).prop_map(Then::Reconfigure),
    ];
    (load(), completions, noise, urgent, then).prop_map(|(load, completions, noise, urgent, then)| Phase {
        load,
        completions,
        noise,
        urgent,
        then,
    })
}

#[test]
fn agrees_with_the_reference_on_loads_that_answer() {
    let choice = prop::collection::vec(params(), CONFIGURATIONS);
    let phases = prop::collection::vec(phase(), 1..8);
    let cases = Cases { failure_persistence: None, max_shrink_iters: 60, ..Cases::with_cases(150) };
    let result = TestRunner::new(cases)
        .run(&(choice, phases, any::<u64>()), |(choice, phases, chance)| run(&choice, &phases, chance));
    result.unwrap_or_else(|error| panic!("{error}"));
    assert_seen(&[
        ("a licence for 2", 8),
        ("a licence for 4", 1),
        ("the next attempt is larger", 20),
        ("a climb gives up", 5),
        ("a climb has to wait", 10),
        ("a check is lost", 5),
        ("a check halves the licence", 2),
        ("slow with a licence", 3),
        ("cut", 1),
        ("halves differ", 5),
        ("a cut after a climb in vain", 2),
        ("bypass: large polls", 30),
    ]);
}

/// What takes longer than a load of the test above lasts.
#[test]
fn agrees_with_the_reference_on_loads_that_last() {
    let last = |load, completions| Phase { load, completions, noise: 0, urgent: 0, then: Then::Nothing };
    let stream = |outstanding, held, delivered| Load::Stream { outstanding, held, delivered };
    let polled = |outstanding, batch, held, delivered| Load::Polled { outstanding, batch, held, delivered };
    let guest = |depth| Load::Guest { depth, submit: 20, interrupt: 20, think: 0 };
    let stalls = [last(guest(32), 250), last(guest(1), 44)].repeat(200);
    let loads = [
        // Each hold costs as much as two completions; then each interrupt does.
        vec![last(polled(32, 1, 30, 10), 200_000), last(polled(32, 1, 10, 30), 300_000)],
        vec![last(stream(32, 30, 10), 100_000), last(stream(32, 10, 30), 300_000)],
        // The account is in debt after trials of a licence.
        vec![last(stream(16, 200, 40), 100_000)],
        vec![last(stream(4, 160, 40), 100_000)],
        // First as above, then neither costs anything.
        vec![last(stream(32, 30, 10), 100_000), last(stream(32, 10, 10), 500_000)],
        // A guest that stalls, and one that at last has one request.
        [vec![last(guest(32), 10_000)], stalls].concat(),
        vec![last(guest(32), 20_000), last(guest(1), 3_000)],
        // A guest that pays for interrupts, and then a load that does not.
        vec![last(guest(32), 60_000), last(stream(2, 30, 30), 5_000)],
        vec![last(guest(32), 60_000), last(stream(2, 200, 200), 5_000)],
        // One request at a time, until there are two.
        vec![last(polled(1, 1, 10, 10), 3_000), last(polled(2, 1, 10, 10), 300)],
    ];
    for load in loads {
        if let Err(difference) = run(&[PARAMS], &load, 1) {
            panic!("{difference}");
        }
    }
    assert_seen(&[
        ("a licence for 8", 2),
        ("a check is lost", 3),
        ("a licence is suspended", 10),
        ("cut", 6),
        ("a cut is undone", 1),
        ("a cut in debt", 1),
        ("a climb that lost ends unpaid", 1),
        ("a check after a suspension starves", 1),
        ("nobody came back", 1),
        ("checks of another load", 1),
        ("a licence of another load", 1),
        ("bypass: cut off", 1),
        ("bypass: alone", 1),
    ]);
}
