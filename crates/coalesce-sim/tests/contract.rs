//! The contract of a latency budget, by what requesters really waited, and not by what the policy counts.

use coalesce_policy::{Completion, Decision, HoldReason, Policy, Reason};
use coalesce_sim::contender::{Named, introduce};
use coalesce_sim::contract::{EXCEPTIONS, LICENSED_LIMIT, LIMIT, Load, Pair, jobs, loads, pairs};
use coalesce_sim::plan::Plan;
use coalesce_sim::run::{run, run_jobs};
use coalesce_sim::units::Time;
use std::num::NonZero;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::AtomicU64;

/// Arrivals that wait for nobody, but for the limit in front of which they queue: then they look like requesters that wait.
#[test]
fn an_open_load_with_a_limit_waits_no_longer_than_the_budget_allows() {
    let mut plan = Plan::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/limits.toml")).unwrap();
    for seed in 1..=3 {
        plan.seed = seed;
        for outcome in run(&plan).unwrap() {
            assert!(
                outcome.verdict.is_clean(),
                "{} {:?} seed {seed}: {:?}",
                outcome.policy,
                outcome.settings,
                outcome.verdict
            );
        }
    }
}

/// All loads whose names are wanted, under these policies and `none`.
fn compare(is_wanted: impl Fn(&Load) -> bool, duration: Time, policies: &[&str]) -> Vec<Pair> {
    let mut loads = loads(1..9, duration);
    loads.retain(is_wanted);
    let policies: Vec<_> = policies.iter().map(|policy| policy.parse().unwrap()).collect();
    let jobs = jobs(&loads, &policies).unwrap();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let outcomes = run_jobs(&jobs, threads, &AtomicU64::new(0), |_, _| {}).unwrap();
    let pairs = pairs(&loads, &outcomes).unwrap();
    assert_eq!(pairs.len(), policies.len() * loads.len());
    pairs
}

/// What a second is too short for, with the limit there: C0 is much of what the requests take. Each takes at most [`LIMIT`] in 20 s.
const SHORT: [(&str, f64); 2] = [
    ("optane/onoff16k", 1.25), // 45 ms of requests in a second; C0 may take 64 ms
    ("p3700/onoff100k", 1.1),  // 1 s of requests in a second
];

/// Under all loads whose names are wanted every rule is kept, and requesters need at most [`LIMIT`] times the time. But for what is
/// [too short](SHORT), and for those who wait beside a flood, as no budget of a vector can tell them from it: of [`EXCEPTIONS`] those
/// that are loads by name.
fn check(is_wanted: impl Fn(&Load) -> bool, duration: Time) {
    let pairs = compare(is_wanted, duration, &["auto", "budget"]);
    let broken: Vec<_> = pairs.iter().filter(|pair| pair.broken.is_some()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let limit = |pair: &Pair| {
        let own = SHORT.iter().chain(&EXCEPTIONS).find(|(load, _)| *load == pair.load);
        own.map_or(LIMIT, |&(_, limit)| limit)
    };
    let over: Vec<_> = pairs.iter().filter(|pair| pair.time > limit(pair)).collect();
    assert!(over.is_empty(), "{over:#?}");
}

/// The short form of `coalesce-sim contract`.
#[test]
fn a_load_that_pauses_by_itself_waits_no_longer_than_the_budget_allows() {
    let names =
        ["8K/s for 600us, 2000us of pause", "16K/s for 200us, 600us of pause", "40K/s for 400us, 2000us of pause"];
    check(|load| names.contains(&&*load.plan.name), Time::ms(10_000));
}

#[test]
fn nor_does_one_that_comes_at_random() {
    check(|load| load.family == "random open", Time::ms(4_000));
}

/// A licence ends with the load that earned it.
#[test]
fn nor_does_what_comes_after_a_flood() {
    check(|load| load.family == "after a flood" && load.plan.name.ends_with("9K/s"), Time::ms(20_000));
}

/// Light ones, recorded ones, who waits beside a flood, and those whose processor is taken.
#[test]
fn nor_do_the_loads_of_the_scoreboard() {
    check(|load| load.family == "scoreboard", Time::ms(1_000));
}

/// It holds each completion for 100 us, and says that trials have shown that to pay.
#[derive(Debug, Default)]
struct Pretender {
    held: u32,
    due: u64,
}

impl Policy for Pretender {
    fn on_completion(&mut self, now: u64, _: &Completion) -> Decision {
        if self.held == 0 {
            self.due = now + 100_000;
        }
        self.held += 1;
        Decision::Hold(HoldReason::Licensed)
    }

    fn deadline(&self) -> Option<u64> {
        (self.held > 0).then_some(self.due)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        if self.held > 0 && self.due <= now { self.flush(now) } else { Decision::Hold(HoldReason::Early) }
    }

    fn flush(&mut self, _: u64) -> Decision {
        match std::mem::take(&mut self.held) {
            0 => Decision::Hold(HoldReason::NothingHeld),
            _ => Decision::Deliver(Reason::Silence),
        }
    }

    fn on_consumed(&mut self, _: u64) {
        self.held = 0;
    }

    fn held(&self) -> u32 {
        self.held
    }
}

/// Once for all tests.
fn introduce_own() {
    static ONCE: Once = Once::new();
    let pretender = Named { name: "pretender", policy: || Box::<Pretender>::default() };
    let stuck = Named { name: "stuck", policy: || Box::<Stuck>::default() };
    ONCE.call_once(|| introduce(&[pretender, stuck]).unwrap());
}

/// Guests that wait for all they have: most of what is held is held with a licence, and each command takes them less time.
#[test]
fn a_licence_makes_requesters_faster() {
    let is_guest = |load: &Load| ["/guest-depth", "/virtual-depth"].iter().any(|kind| load.plan.name.contains(kind));
    let pairs = compare(is_guest, Time::ms(500), &["auto"]);
    let licensed: Vec<_> = pairs.iter().filter(|pair| pair.licensed > 0.5).collect();
    assert!(licensed.len() > 6, "{pairs:#?}");
    assert!(licensed.iter().all(|pair| pair.time_of_all < LICENSED_LIMIT && pair.broken.is_none()), "{licensed:#?}");
}

/// A licence is judged by what it does, not by its name.
#[test]
fn who_pretends_to_have_a_licence_is_found() {
    introduce_own();
    for pair in compare(|load| load.plan.name == "memory/stolen-depth1", Time::ms(100), &["pretender"]) {
        let broken = pair.broken.as_deref().unwrap_or_default();
        assert!(pair.licensed > 0.9 && broken.contains("with a licence"), "{pair:#?}");
    }
}

/// It holds until a deadline that has passed, and then goes on.
#[derive(Debug, Default)]
struct Stuck(u32);

impl Policy for Stuck {
    fn on_completion(&mut self, _: u64, _: &Completion) -> Decision {
        self.0 += 1;
        Decision::Hold(HoldReason::Burst)
    }

    fn deadline(&self) -> Option<u64> {
        (self.0 > 0).then_some(0)
    }

    fn on_deadline(&mut self, _: u64) -> Decision {
        Decision::Hold(HoldReason::Early)
    }

    fn flush(&mut self, _: u64) -> Decision {
        match std::mem::take(&mut self.0) {
            0 => Decision::Hold(HoldReason::NothingHeld),
            _ => Decision::Deliver(Reason::Flush),
        }
    }

    fn on_consumed(&mut self, _: u64) {
        self.0 = 0;
    }

    fn held(&self) -> u32 {
        self.0
    }
}

/// And simulated time does not stand still.
#[test]
fn who_holds_on_at_a_deadline_is_found() {
    introduce_own();
    let mut loads = loads(1..2, Time::ms(1));
    loads.retain(|load| load.plan.name == "memory/stolen-depth1");
    let outcomes =
        run_jobs(&jobs(&loads, &["stuck".parse().unwrap()]).unwrap(), 1, &AtomicU64::new(0), |_, _| {}).unwrap();
    let outcome = outcomes.iter().find(|outcome| outcome.policy == "stuck").unwrap();
    let found = &outcome.verdict.violations[0].what; // by the policy's own clock
    assert!(found.starts_with("the deadline was 0, on_deadline("), "{found}");
    assert!(found.ends_with(") answered Hold(early)"), "as the test kit says it: {found}");
}

#[test]
fn a_seed_is_a_load_and_no_two_have_the_same_name() {
    let (all, again) = (loads(1..100, Time::ms(1)), loads(1..100, Time::ms(1)));
    let names: std::collections::HashSet<_> = all.iter().map(|load| &load.plan.name).collect();
    assert_eq!(names.len(), all.len());
    assert_eq!(all.iter().filter(|load| load.family == "on/off").count(), 80);
    for (load, same) in all.iter().zip(&again) {
        assert_eq!(load.plan, same.plan);
    }
}
