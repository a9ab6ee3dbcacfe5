//! The rules of the documentation by example: out-of-order Urgent, the storm guard, configurations.

mod spent;
mod truth;

use budget_core::Decision::{self, Deliver, DeliverUrgent, Hold};
use budget_core::Event::{self, Barrier, Error, Plain, Urgent};
use budget_core::HoldReason::{Company, Early, Reconfigured, Storm};
use budget_core::{
    Allowance, Auto, Budget, Bypassed, Completion, Config, Level, Mark, Params, Policy as _, Reason, Share,
    StormParams, Submission,
};
use spent::spent;
use truth::{Truth, learning};

/// A clock of 1 µs, so that spans are small numbers.
const TICK_HZ: u64 = 1_000_000;
const PARAMS: Params = Params { tick_hz: TICK_HZ, budget: Share::percent(10), ..Params::DEFAULT };
const OOO: Params = Params { ooo: true, ..PARAMS };
/// An interrupt in 250 ticks.
const STORM: Params = Params { storm: Some(StormParams { max_rate: 4_000, shift: 5 }), ..PARAMS };

fn config(params: Params) -> Config {
    Config::new(params).expect("valid")
}

/// A device with 64 commands outstanding, and a completion every 10 ticks.
struct Queue {
    budget: Budget,
    now: u64,
}

impl Queue {
    fn new(params: Params) -> Self {
        Self { budget: Budget::new(config(params)), now: 0 }
    }

    /// 10 ticks later a command completes, and another one takes its place.
    fn complete(&mut self, event: Event) -> Decision {
        self.now += 10;
        let held = self.budget.held();
        let cif = 64_u32.saturating_sub(held).max(1);
        let decision =
            self.budget.on_completion(self.now, &Completion { cif, outstanding: held + cif, ..Completion::of(event) });
        self.budget.on_submits(self.now, 1);
        decision
    }

    /// A gap of 10.
    fn learn(&mut self) {
        (0..50).for_each(|_| _ = self.complete(Plain));
    }

    /// Completions until `count` are held.
    fn hold(&mut self, count: u32) {
        let mut completions = 0;
        while self.budget.held() != count {
            let _ = self.complete(Plain);
            completions += 1;
            assert!(completions < 10_000, "{count} are never held");
        }
    }

    /// Urgent completions until there is a storm.
    fn begin_storm(&mut self) {
        let mut completions = 0;
        while !self.budget.is_storming() {
            assert!(self.complete(Urgent).is_deliver());
            completions += 1;
            assert!(completions < 100, "no storm");
        }
    }
}

/// A guest that needs 25 ticks to submit requests, on a device that takes 2, and waits when `depth` are not reaped.
struct Guest {
    budget: Budget,
    depth: u32,
    now: u64,
    steps: u32,
    truth: Truth,
}

impl Guest {
    fn new(params: Params, depth: u32) -> Self {
        Self { budget: Budget::new(config(params)), depth, now: 0, steps: 0, truth: Truth::default() }
    }

    /// Time passes, in which deadlines are met.
    fn pass(&mut self, ticks: u64) {
        let end = self.now + ticks;
        while let Some(deadline) = self.budget.deadline().filter(|deadline| *deadline <= end) {
            self.truth.go_to(deadline);
            let decision = self.budget.on_deadline(deadline);
            assert!(decision.is_deliver());
            self.truth.decided(decision);
        }
        self.now = end;
        self.truth.go_to(end);
    }

    /// It submits one request or two, which complete, or waits and reaps.
    fn step(&mut self) {
        self.steps += 1;
        if self.truth.outstanding() >= self.depth {
            self.reap();
            return;
        }
        self.pass(25);
        self.submit(if self.steps % 7 == 0 { 2 } else { 1 });
    }

    /// It waits for an interrupt, and takes its time.
    fn reap(&mut self) {
        while self.truth.covered == 0 {
            self.pass(100);
        }
        self.pass(300);
        self.truth.reap();
    }

    /// Requests are submitted at once, and complete.
    fn submit(&mut self, count: u32) {
        for _ in 0..count {
            self.truth.submit(1);
            self.budget.on_submits(self.now, 1);
        }
        self.pass(2);
        for cif in (1..=count).rev() {
            let completion = Completion { outstanding: self.truth.outstanding(), ..Completion::with_cif(cif) };
            let decision = self.budget.on_completion(self.now, &completion);
            self.truth.complete(decision);
        }
    }
}

fn held_time(budget: &Budget) -> u64 {
    spent(budget).0
}

/// Nothing has to be learned where the device sees what is outstanding.
#[test]
fn the_first_completion_with_many_in_flight_is_held() {
    let mut budget = Budget::new(config(PARAMS));
    budget.on_submits(10, 64);
    assert_eq!(budget.on_completion(100, &Completion { outstanding: 64, ..Completion::with_cif(64) }), Hold(Company));
}

/// A quarter of the budget is a quarter of the time held, and the whole of it afterwards the whole.
#[test]
fn a_budget_may_be_lowered_and_restored() {
    let mut queue = Queue::new(PARAMS);
    let share = |queue: &mut Queue| {
        let before = spent(&queue.budget);
        for _ in 0..200_000 {
            let _ = queue.complete(Plain);
        }
        let (held, outstanding) = spent(&queue.budget);
        (held - before.0) * 1_000_000 / (outstanding - before.1)
    };
    let whole = share(&mut queue);
    queue.budget.allow(queue.now, Allowance { shift: 2, ..Allowance::STRICT });
    let quarter = share(&mut queue);
    assert!(whole > 50_000 && (whole / 5..whole / 3).contains(&quarter), "{quarter} of {whole} millionths");
    queue.budget.allow(queue.now, Allowance::STRICT);
    assert!(share(&mut queue).abs_diff(whole) < whole / 20);
    queue.budget.allow(queue.now, Allowance { level: Level::Nothing, ..Allowance::STRICT });
    assert_eq!(share(&mut queue), 0);
}

#[test]
fn an_urgent_leaves_the_others_held_with_their_deadline_and_their_account() {
    let mut queue = Queue::new(OOO);
    queue.hold(3);
    let (deadline, before) = (queue.budget.deadline(), held_time(&queue.budget));
    assert_eq!(queue.complete(Urgent), DeliverUrgent);
    assert_eq!((queue.budget.held(), queue.budget.deadline()), (3, deadline));
    assert_eq!(queue.budget.on_deadline(queue.now), Hold(Early));
    let deadline = deadline.expect("3 are held");
    let _ = queue.budget.on_deadline(deadline);
    assert_eq!(held_time(&queue.budget) - before, 3 * (deadline - (queue.now - 10)));

    let mut in_order = Queue::new(PARAMS);
    in_order.hold(3);
    assert_eq!((in_order.complete(Urgent), in_order.budget.held()), (Deliver(Reason::Urgent), 0));
}

#[test]
fn each_urgent_that_goes_past_the_others_counts_towards_thr() {
    let mut queue = Queue::new(Params { thr: 9, ..OOO });
    for _ in 0..20 {
        let _ = queue.complete(Plain);
    }
    let _ = queue.budget.flush(queue.now);
    for _ in 0..20 {
        assert_eq!(queue.complete(Urgent), DeliverUrgent, "nobody is held");
    }
    let urgent = |queue: &mut Queue| {
        queue.now -= 9; // so that all of them come before the silence
        queue.complete(Urgent)
    };
    for _ in 0..3 {
        queue.hold(1);
        for _ in 0..7 {
            assert_eq!(urgent(&mut queue), DeliverUrgent);
        }
        assert_eq!(urgent(&mut queue), Deliver(Reason::Count), "the ninth");
    }
}

/// What earned the time of those that are held goes away with the Urgents.
#[test]
fn an_urgent_takes_the_others_along_if_they_can_no_longer_be_paid_for() {
    let mut queue = Queue::new(OOO);
    queue.hold(3);
    queue.now += 1;
    let decision =
        queue.budget.on_completion(queue.now, &Completion { cif: 2, outstanding: 5, ..Completion::of(Urgent) });
    assert_eq!((decision, queue.budget.held()), (Deliver(Reason::Budget), 0));
}

#[test]
fn in_a_storm_what_is_due_waits_for_the_end_of_the_interval() {
    for event in [Urgent, Barrier] {
        for ooo in [false, true] {
            let mut queue = Queue::new(Params { ooo, ..STORM });
            queue.begin_storm();
            let end = queue.now + 250;
            assert_eq!(queue.complete(event), Hold(Storm));
            assert_eq!((queue.budget.held(), queue.budget.deadline()), (1, Some(end)));
            assert_eq!(queue.complete(event), Hold(Storm));
            assert_eq!(queue.complete(Plain), Hold(Storm), "it joins them");
            assert_eq!(queue.budget.on_deadline(end - 1), Hold(Early));
            assert_eq!(queue.budget.on_deadline(end), Deliver(Reason::Storm));
            assert_eq!(queue.budget.held(), 0);
        }
    }
}

/// Nothing is due yet when it is held, and later no interrupt is allowed.
#[test]
fn in_a_storm_a_silence_waits_for_the_end_of_the_interval() {
    let mut queue = Queue::new(STORM);
    queue.learn();
    queue.begin_storm();
    let end = queue.now + 250;
    assert_eq!(queue.complete(Plain), Hold(Company));
    assert_eq!((queue.budget.held(), queue.budget.deadline()), (1, Some(end)));
    assert_eq!(queue.budget.on_deadline(end), Deliver(Reason::Storm));
}

#[test]
fn in_a_storm_an_error_a_flush_and_a_new_configuration_do_not_wait() {
    let mut queue = Queue::new(STORM);
    queue.begin_storm();
    assert_eq!(queue.complete(Urgent), Hold(Storm));
    let start = queue.budget;
    assert_eq!(queue.complete(Error), Deliver(Reason::Error));
    assert_eq!(start.clone().flush(queue.now), Deliver(Reason::Flush));
    for params in [STORM, PARAMS] {
        assert_eq!(start.clone().reconfigure(config(params), queue.now), Ok(Deliver(Reason::Storm)));
    }
    let mut due = Queue::new(STORM);
    due.learn();
    due.begin_storm();
    assert_eq!(due.complete(Plain), Hold(Company));
    let short = config(Params { max_hold_ns: 250_000, ..STORM });
    assert_eq!(due.budget.reconfigure(short, due.now + 240), Ok(Deliver(Reason::Silence)), "silent for 80 ticks");
    let mut other = start;
    let storm = Some(StormParams { max_rate: 4_000, shift: 6 });
    let _ = other.reconfigure(config(Params { storm, ..STORM }), queue.now);
    assert!(start.is_storming() && !other.is_storming(), "it begins anew");
    assert_eq!(start.config().storm_interval(), Some(250));
}

/// A storm ends when interrupts are rare for long enough, and then nothing waits.
#[test]
fn a_storm_ends() {
    let mut queue = Queue::new(STORM);
    queue.begin_storm();
    let mut interrupts = 0;
    while queue.budget.is_storming() {
        queue.now += 4_000;
        assert!(queue.complete(Urgent).is_deliver());
        interrupts += 1;
        assert!(interrupts < 100, "for ever");
    }
    assert_eq!(queue.complete(Urgent), Deliver(Reason::Urgent));
}

/// What the guard makes wait is counted, but not charged: the next hold need not wait until it is earned.
#[test]
fn a_storm_leaves_no_debt() {
    let mut queue = Queue::new(STORM);
    queue.begin_storm();
    let before = held_time(&queue.budget);
    for _ in 0..1_000 {
        while queue.budget.deadline().is_none_or(|deadline| deadline > queue.now + 10) {
            assert!(!queue.complete(Urgent).is_deliver());
        }
        queue.now = queue.budget.deadline().expect("some are held");
        assert!(queue.budget.on_deadline(queue.now).is_deliver());
    }
    assert!(held_time(&queue.budget) - before > 10 * 250_000, "more than 10 %, and that of 64, would pay for");
    let _ = queue.budget.reconfigure(config(PARAMS), queue.now);
    let holds = (0..100).filter(|_| !queue.complete(Plain).is_deliver()).count();
    assert!(holds > 50, "{holds} of 100");
}

/// On a coarse clock the gap is 0, and yet what is held waits for the next tick.
#[test]
fn a_hold_costs_at_least_a_tick() {
    let mut budget = Budget::new(config(Params { max_hold_ns: 1_000, ..PARAMS }));
    let mut most = 0;
    budget.on_submits(0, 100);
    for cif in (50..=100).rev() {
        let _ = budget.on_completion(0, &Completion { outstanding: cif + budget.held(), ..Completion::with_cif(cif) });
        most = most.max(budget.held());
    }
    assert_eq!(most, 9, "as much as 90 in flight earn in a tick");
}

/// What is in flight pays for what is held. A command that will never complete pays for nothing, and neither does one whose
/// requesters are gone.
#[test]
fn what_is_held_is_delivered_when_those_who_paid_for_it_are_cancelled() {
    for max_hold_ns in [1_000, 2_000_000] {
        let mut queue = Queue::new(Params { max_hold_ns, ..PARAMS });
        queue.budget.on_submits(0, 1_000);
        let mut cif = 1_000;
        while queue.budget.held() < 50 {
            let _ = queue
                .budget
                .on_completion(0, &Completion { outstanding: cif + queue.budget.held(), ..Completion::with_cif(cif) });
            cif -= 1;
            assert!(cif > 800, "they are held");
        }
        let mut decisions = (0..cif).map(|_| queue.budget.on_cancel(0, Mark::default()));
        assert!(decisions.any(|decision| decision == Deliver(Reason::Budget)), "{max_hold_ns} ns");
        assert_eq!(queue.budget.held(), 0);

        let mut gone = Queue::new(Params { max_hold_ns, ..PARAMS });
        gone.budget.on_submits(5, 1_000);
        assert_eq!(
            gone.budget.on_completion(5, &Completion { outstanding: 1_000, ..Completion::with_cif(1_000) }),
            Hold(Company)
        );
        gone.budget.reset_tracking();
        assert_eq!(gone.budget.deadline(), Some(5), "due at once");
        assert!(gone.budget.on_deadline(5).is_deliver());
    }
}

/// 64 commands outstanding, of which a poll finds 32 at a time.
#[test]
fn what_a_poll_finds_at_once_is_held_together() {
    let mut budget = Budget::new(config(PARAMS));
    budget.on_submits(0, 64);
    let is_held = |poll: &u64| {
        let now = poll * 100;
        while budget.deadline().is_some_and(|deadline| deadline <= now) {
            assert!(budget.on_deadline(now).is_deliver());
        }
        let cif = 64 - budget.held();
        for i in 0..32 {
            let _ = budget.on_completion(now, &Completion { outstanding: 64, ..Completion::with_cif(cif - i) });
        }
        budget.on_submits(now, 1);
        budget.held() >= 16 // more than twice the budget of 64
    };
    let holds = (1..1_000).filter(is_held).count();
    assert!(holds > 80, "after {holds} of 1000 polls");
}

#[test]
fn a_pause_earns_nothing() {
    let mut guest = Guest::new(PARAMS, 16);
    for _ in 0..100 {
        (0..500).for_each(|_| guest.step());
        while guest.truth.outstanding() > 0 {
            guest.step();
        }
        let before = spent(&guest.budget).1;
        guest.pass(1_000_000);
        guest.budget.on_submits(guest.now, 1);
        let _ = guest.budget.on_completion(guest.now, &Completion { outstanding: 1, ..Completion::with_cif(1) });
        let earned = spent(&guest.budget).1 - before;
        assert!(earned <= 16 * 16 * 40, "{earned} in a pause");
    }
}

/// What a requester that waits for each of its requests can lose beside others that have a licence.
#[test]
fn with_a_licence_no_completion_waits_for_more_than_its_limit_says() {
    for limit in [2, 4, 8] {
        let mut guest = Guest::new(PARAMS, 32);
        (0..100).for_each(|_| guest.step());
        guest.budget.allow(guest.now, Allowance { level: Level::Licensed, limit, ..Allowance::STRICT });
        let mut held = 0;
        for _ in 0..1_000 {
            guest.step();
            held = held.max(guest.truth.held);
        }
        assert_eq!((held, guest.budget.limit()), (u32::from(limit) - 1, limit));
    }
}

/// A licence, or its trial, for more than the requesters have: nobody comes any more.
#[test]
fn holds_that_starve_end_a_licence_and_a_trial() {
    for (level, depth) in [(Level::Licensed, 1), (Level::Licensed, 3), (Level::Trial, 1), (Level::Trial, 7)] {
        let mut guest = Guest::new(PARAMS, depth);
        let round = |guest: &mut Guest| {
            for _ in 0..depth {
                guest.pass(25);
                guest.submit(1);
            }
            guest.reap();
        };
        (0..20).for_each(|_| round(&mut guest));
        guest.budget.allow(guest.now, Allowance { level, limit: 8, shift: 0, evidence: 3 });
        (0..11).for_each(|_| round(&mut guest));
        assert_eq!(guest.budget.level(), level, "depth {depth}: a dozen is not full");
        round(&mut guest);
        assert_eq!(guest.budget.level(), Level::Strict, "{level:?}, depth {depth}");
    }
}

/// With a licence that others have earned: one hold in vain is enough, until somebody comes.
#[test]
fn who_turns_out_to_be_alone_does_not_wait_again() {
    for level in [Level::Licensed, Level::Trial] {
        let mut queue = Queue::new(PARAMS);
        queue.learn();
        queue.budget.on_consumed(queue.now);
        queue.budget.reset_tracking();
        queue.budget.allow(queue.now, Allowance { level, limit: 8, evidence: 3, ..Allowance::STRICT });
        let mut alone = |think: u64| {
            queue.now += think;
            queue.budget.on_submits(queue.now, 1);
            queue.now += 5;
            let decision = queue.budget.on_completion(queue.now, &Completion::with_cif(1));
            if let Some(due) = queue.budget.deadline() {
                queue.now = due;
                assert!(queue.budget.on_deadline(due).is_deliver());
            }
            decision.is_deliver()
        };
        assert_eq!([1_000; 6].map(&mut alone), [false, true, true, true, true, true], "{level:?}");
        assert_eq!([20, 1_000, 1_000].map(&mut alone), [false, true, true], "somebody came soon after");
        let _ = queue.complete(Plain);
        assert!(!queue.complete(Plain).is_deliver(), "with others it is held");
    }
}

/// It is paid for by what is earned meanwhile, what was saved, and C0, which grows with what the load has spent and what speaks for a
/// licence: who has spent little is tried little.
#[test]
fn a_trial_ends_when_it_costs_too_much() {
    for (steps, evidence) in
        [100, 2_000, 20_000].into_iter().flat_map(|steps| [0, 1, 2, 3].map(|evidence| (steps, evidence)))
    {
        let mut guest = Guest::new(PARAMS, 16);
        (0..steps).for_each(|_| guest.step());
        let before = guest.truth;
        guest.budget.allow(guest.now, Allowance { level: Level::Trial, limit: 8, evidence, ..Allowance::STRICT });
        let _ = (0..100_000).find(|_| {
            guest.step();
            guest.budget.level() != Level::Trial
        });
        assert_eq!(guest.budget.level(), Level::Strict);
        let earned = guest.truth.earned(&PARAMS) - before.earned(&PARAMS);
        let saved = (before.earned(&PARAMS) - before.held_time).min(4 * 2_000 * 16 / 10);
        let learning = learning(&PARAMS, guest.truth.outstanding_time, u64::from(evidence) + 1);
        let (held, may_be) = (guest.truth.held_time - before.held_time, earned + saved + learning);
        assert!((learning / 4..=may_be).contains(&held), "{held} of {may_be}, with {evidence} after {steps} steps");
        assert!(guest.truth.held_time <= guest.truth.allowed(&PARAMS, u64::from(evidence) + 1));
    }
}

#[test]
fn a_reconfiguration_delivers_what_is_due_under_it() {
    let mut queue = Queue::new(PARAMS);
    queue.hold(3);
    let start = queue.budget;
    let reconfigured = |params| {
        let mut budget = start;
        (budget.reconfigure(config(params), queue.now + 1), budget.held())
    };
    assert_eq!(reconfigured(Params { thr: 3, ..PARAMS }), (Ok(Deliver(Reason::Count)), 0));
    assert_eq!(reconfigured(Params { max_hold_ns: 1_000, ..PARAMS }), (Ok(Deliver(Reason::MaxHold)), 0));
    assert_eq!(reconfigured(Params { max_hold_ns: 3_000_000, ..PARAMS }), (Ok(Hold(Reconfigured)), 3));
    let (refused, held) = reconfigured(Params { tick_hz: 2 * TICK_HZ, ..PARAMS });
    assert_eq!(
        (refused.unwrap_err().to_string().as_str(), held),
        ("tick_hz is 2000000; allowed: 1000000 to 1000000", 3)
    );
    assert_eq!(queue.complete(Plain), Hold(Company));
}

#[test]
fn parameters_out_of_range_are_named() {
    let wrong = |params| Config::new(params).unwrap_err().to_string();
    let storm = |max_rate, shift| Params { storm: Some(StormParams { max_rate, shift }), ..Params::DEFAULT };
    for (params, field) in [
        (Params { tick_hz: 999, ..Params::DEFAULT }, "tick_hz is 999"),
        (Params { budget: Share::basis_points(0), ..Params::DEFAULT }, "budget is 0"),
        (Params { budget: Share::basis_points(5_001), ..Params::DEFAULT }, "budget is 5001"),
        (Params { max_hold_ns: 0, ..Params::DEFAULT }, "max_hold_ns is 0"),
        (Params { max_hold_ns: 500_000_001, ..Params::DEFAULT }, "max_hold_ns is 500000001"),
        (Params { thr: 0, ..Params::DEFAULT }, "thr is 0"),
        (storm(7, 5), "storm.max_rate is 7"),
        (storm(1_000, 4), "storm.shift is 4"),
        (storm(499, 5), "max_hold_ns is 2000000; allowed: 2004009 to 500000000 where storm.max_rate is 499"),
    ] {
        assert!(wrong(params).starts_with(field), "{}", wrong(params));
    }
    let config = Config::new(storm(500, 5)).unwrap();
    assert!(format!("{config:?}").contains("tick_hz: 1000000000,"), "{config:?}");
}

/// 32 completions in each poll, 1000 polls a second, each with one interrupt: a tenth of what the guard allows.
#[test]
fn what_an_interrupt_covers_is_no_interrupt_of_its_own() {
    let storm = Some(StormParams { max_rate: 10_000, shift: 5 });
    let mut budget = Budget::new(config(Params { thr: 1, storm, ..PARAMS }));
    for now in (1..200).map(|poll| poll * TICK_HZ / 1_000) {
        assert!(budget.on_completions(now, 31, &Completion::with_cif(1)).is_deliver(), "at {now}");
        assert!(!budget.is_storming(), "at {now}");
    }
}

/// `polls` of a device, each of which finds this many completions, with 399 in flight behind them. Returns how many of them held.
fn poll(auto: &mut Auto, now: &mut u64, polls: u32, found: u16) -> u32 {
    let mut held = 0;
    for _ in 0..polls {
        *now += 5_000;
        let _ = auto.on_submit(*now, &Submission { before: u32::from(found) - 1, ..Submission::default() });
        held += u32::from(!auto.on_completions(*now, found - 1, &Completion::with_cif(400)).is_deliver());
        assert!(auto.may_hold() || auto.held() == 0, "what is held is not forgotten");
    }
    held
}

/// Where polls coalesce by themselves, a policy that is asked about each completion would cost more than it saves.
#[test]
fn it_is_bypassed_where_polls_complete_many() {
    let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
    poll(&mut auto, &mut now, 64, 7);
    assert!(auto.may_hold(), "seven are not many");
    assert!(poll(&mut auto, &mut now, 80, 40) > 10, "there is something to forget");
    assert_eq!((auto.may_hold(), auto.held(), auto.deadline()), (false, 0, None));
    auto.on_bypassed(now, &Bypassed { interrupts: 900, outstanding: 400, ..Bypassed::default() });
    assert_eq!(poll(&mut auto, &mut now, 20, 1), 0, "a shell that asks anyway is not told to hold");
    assert!(!auto.may_hold());
    auto.on_bypassed(now, &Bypassed { interrupts: 104, outstanding: 400, ..Bypassed::default() });
    assert!(auto.may_hold(), "1024 interrupts later it is asked again");
    for _ in 0..8 {
        poll(&mut auto, &mut now, 60, 1);
        poll(&mut auto, &mut now, 4, 1000);
    }
    assert!(auto.may_hold(), "a few large batches do not decide");
}

/// One who waits for each request is never held, so nobody need be asked, until somebody else comes.
#[test]
fn it_is_bypassed_while_the_requester_is_alone() {
    let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
    let mut complete = |auto: &mut Auto, polls: u32, cif: u32| {
        for _ in 0..polls {
            now += 5_000;
            let _ = auto.on_submit(now, &Submission::default());
            now += 5_000;
            assert!(auto.on_completions(now, 0, &Completion::with_cif(cif)).is_deliver());
        }
    };
    complete(&mut auto, 63, 1);
    assert!(auto.may_hold());
    complete(&mut auto, 1, 1);
    assert!(!auto.may_hold());
    auto.on_bypassed(10_000_000, &Bypassed { interrupts: 1_023, outstanding: 1, ..Bypassed::default() });
    assert!(!auto.may_hold(), "still alone");
    auto.on_bypassed(11_000_000, &Bypassed { interrupts: 1, outstanding: 1, ..Bypassed::default() });
    assert!(auto.may_hold(), "1024 interrupts later it is asked again");

    complete(&mut auto, 64, 1);
    assert!(!auto.may_hold());
    let mut asked = auto;
    auto.on_bypassed(12_000_000, &Bypassed { interrupts: 1, outstanding: 2, ..Bypassed::default() });
    assert!(auto.may_hold(), "two were outstanding");
    complete(&mut asked, 1, 2);
    assert!(asked.may_hold(), "two were outstanding, says a shell that asks anyway");
    complete(&mut auto, 64, 1);
    assert!(auto.may_hold(), "since the last trial it was not always alone");
}

/// Not even in the moment in which a trial begins, from which on it is noted whether somebody else comes.
#[test]
fn who_is_never_alone_is_never_bypassed() {
    for cif in [2, 8, 32] {
        let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
        for poll in 0..300_000 {
            now += 5_000;
            let _ = auto.on_submit(now, &Submission::default());
            let _ = auto.on_completions(now, 0, &Completion::with_cif(cif));
            assert!(auto.may_hold(), "{cif} in flight, poll {poll}");
        }
    }
}

/// Small batches after a bypass are coalesced again.
#[test]
fn after_a_bypass_it_holds_again() {
    let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
    poll(&mut auto, &mut now, 80, 40);
    assert!(!auto.may_hold());
    auto.on_bypassed(now, &Bypassed { interrupts: u16::MAX, outstanding: 400, ..Bypassed::default() });
    let mut held = 0;
    for n in 0..20_000_u32 {
        now += 4_000;
        let _ = auto.on_submit(now, &Submission::default());
        let last = Completion::with_cif(32);
        held += u32::from(!auto.on_completions(now, (n & 1) as u16, &last).is_deliver());
        while let Some(due) = auto.deadline().filter(|due| *due <= now + 4_000) {
            let _ = auto.on_deadline(due);
        }
    }
    assert!(held > 2_000, "{held}");
}

/// A shell need not report submissions during a bypass. If it does, nobody says when they complete.
#[test]
fn what_is_submitted_during_a_bypass_earns_nothing() {
    let spent = [false, true].map(|reports| {
        let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
        poll(&mut auto, &mut now, 80, 40);
        while !auto.may_hold() {
            now += 5_000;
            if reports {
                let _ = auto.on_submit(now - 4_000, &Submission { before: 39, ..Submission::default() });
            }
            auto.on_bypassed(now, &Bypassed { interrupts: 1, outstanding: 400, ..Bypassed::default() });
        }
        auto.spent().unwrap().outstanding
    });
    assert_eq!(spent[0], spent[1]);
}

/// The storm guard may have to hold, and a policy that may hold is asked.
#[test]
fn a_storm_guard_is_always_asked() {
    let storm = StormParams { max_rate: 100_000, shift: 5 };
    let config = Config::new(Params { storm: Some(storm), ..Params::DEFAULT }).unwrap();
    let (mut auto, mut now) = (Auto::new(config), 0);
    poll(&mut auto, &mut now, 640, 40);
    assert!(auto.may_hold());
}

/// A bypass ends even if the shell asks about each completion and never about a whole poll.
#[test]
fn a_bypass_ends_for_a_shell_that_asks_about_each() {
    let (mut auto, mut now) = (Auto::new(Config::new(Params::DEFAULT).unwrap()), 0);
    poll(&mut auto, &mut now, 80, 40);
    let mut asked = 0;
    while !auto.may_hold() {
        now += 5_000;
        asked += 1;
        let decision = auto.on_completion(now, &Completion::with_cif(400));
        assert!(decision.is_deliver() || auto.may_hold(), "{asked}");
    }
    assert!((1_000..70_000).contains(&asked), "{asked}");
}
