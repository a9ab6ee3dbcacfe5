//! The regulator with a budget, and loads that answer to what is held: what it finds, and what it must not.

mod spent;
mod truth;

use budget_core::{Auto, Bypassed, Completion, Config, Level, Params, Policy as _, Share, Submission};
use spent::spent;
use std::collections::VecDeque;
use truth::Truth;

/// A clock of 1 µs.
const PARAMS: Params = Params { tick_hz: 1_000_000, ..Params::DEFAULT };
/// A device that is faster than any guest: ticks.
const SERVICE: u64 = 2;

/// A guest that keeps `depth` requests, and takes `submit` ticks for each, `interrupt` for an interrupt, and `think` after
/// every `depth` requests: it pauses by itself.
#[derive(Clone)]
struct Guest {
    auto: Auto,
    depth: u32,
    submit: u64,
    interrupt: u64,
    think: u64,
    merges: u64, // it reaps when it takes an interrupt, and others are free for so long; 0: it reaps when all are submitted
    taken: u64,  // when that was
    now: u64,
    truth: Truth,
    requests: u32,
    interrupts: u32,
}

impl Guest {
    fn new(depth: u32, submit: u64, interrupt: u64, think: u64) -> Self {
        let auto = Auto::new(Config::new(PARAMS).expect("valid"));
        let (now, requests, interrupts, merges, taken) = (0, 0, 0, 0, 0);
        let truth = Truth::default();
        Self { auto, depth, submit, interrupt, think, merges, taken, now, truth, requests, interrupts }
    }

    /// Time passes, in which deadlines are met; with an interrupt, more of it.
    fn pass(&mut self, ticks: u64) {
        let mut end = self.now + ticks;
        while let Some(deadline) = self.auto.deadline().filter(|deadline| *deadline <= end) {
            self.truth.go_to(deadline);
            let decision = self.auto.on_deadline(deadline);
            assert!(decision.is_deliver());
            self.truth.decided(decision);
            end += self.take();
        }
        self.now = end;
        self.truth.go_to(end);
    }

    /// An interrupt, and what it takes.
    fn take(&mut self) -> u64 {
        self.interrupts += 1;
        if self.merges > 0 {
            if self.now < self.taken + self.merges {
                return 0;
            }
            self.taken = self.now;
            self.truth.reap();
        }
        self.interrupt
    }

    /// It submits a request, which completes at once; or, at its depth, waits and reaps.
    fn step(&mut self) {
        if self.truth.outstanding() >= self.depth {
            while self.truth.covered == 0 {
                self.pass(10);
            }
            self.truth.reap();
            return;
        }
        let is_burst_end = self.think > 0 && self.requests % self.depth == 0;
        self.pass(if is_burst_end { self.think } else { self.submit });
        self.requests += 1;
        self.truth.submit(1);
        let _ = self.auto.on_submit(self.now, &Submission::default());
        self.pass(SERVICE);
        let completion = Completion { outstanding: self.truth.outstanding(), ..Completion::with_cif(1) };
        let decision = self.auto.on_completion(self.now, &completion);
        self.truth.complete(decision);
        if decision.is_deliver() {
            self.now += self.take();
        }
    }

    /// From now on it has `depth` requests, and waits for those that it has.
    fn turn_to(&mut self, depth: u32) {
        while self.truth.outstanding() > 0 {
            self.pass(10);
            self.truth.reap();
        }
        self.depth = depth;
    }

    /// Interrupts of 1000 requests, and ticks per request, in the second half of `steps`.
    fn run(&mut self, steps: u32) -> (u32, f64) {
        (0..steps / 2).for_each(|_| self.step());
        let (now, requests, interrupts) = (self.now, self.requests, self.interrupts);
        (0..steps / 2).for_each(|_| self.step());
        let requests = self.requests - requests;
        ((self.interrupts - interrupts) * 1_000 / requests, (self.now - now) as f64 / f64::from(requests))
    }
}

/// An interrupt takes as long as a submission.
#[test]
fn a_guest_whose_interrupts_cost_gets_a_licence() {
    for (depth, at_most) in [(32, 220), (8, 500)] {
        let mut guest = Guest::new(depth, 20, 20, 0);
        let (interrupts, ticks) = guest.run(400_000);
        assert!(guest.auto.budget().limit() > 1, "no licence at depth {depth}");
        assert!(interrupts <= at_most, "{interrupts} interrupts for 1000 requests at depth {depth}");
        assert!(ticks < 36.0, "{ticks} ticks for a request at depth {depth}; 42 without holding");
    }
}

/// An emulated guest, at 7000 requests a second under `none`: eight of its usual gaps are more than half of `max_hold`.
#[test]
fn a_slow_guest_gets_a_licence() {
    let mut guest = Guest::new(32, 70, 70, 1_000);
    let (interrupts, _) = guest.run(100_000);
    assert!(guest.auto.budget().limit() > 1, "no licence");
    assert!(interrupts <= 260, "{interrupts} interrupts for 1000 requests");
}

/// It takes every other interrupt together with the one before, so a licence for 2 gains it nothing, and one for 8 much.
#[test]
fn a_guest_that_merges_interrupts_gets_a_licence() {
    let mut guest = Guest { merges: 37, ..Guest::new(32, 10, 20, 0) };
    let (interrupts, _) = guest.run(400_000);
    assert!(guest.auto.budget().limit() == 8, "a licence for {}", guest.auto.budget().limit());
    assert!(interrupts <= 220, "{interrupts} interrupts for 1000 requests");
}

/// The next of a sequence of numbers that looks like chance (a linear congruential generator).
fn draw(chance: &mut u64) -> u64 {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *chance
}

/// Licences of 32 such guests whose CPU other programs take for up to 2 ms, before one request in `one_in`.
fn licences_under_noise(guest: &Guest, one_in: u64) -> [u32; 9] {
    let mut licences = [0; 9];
    for seed in 1..=32_u64 {
        let (mut guest, mut chance) = (guest.clone(), seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for _ in 0..60_000 {
            if (draw(&mut chance) >> 32) % one_in == 0 {
                guest.pass(chance >> 20 & 0x7FF);
            }
            guest.step();
        }
        licences[usize::from(guest.auto.budget().limit())] += 1;
    }
    licences
}

/// An attempt for a licence for 2 is then often in vain.
#[test]
fn under_noise_a_larger_licence_is_found() {
    let licences = licences_under_noise(&Guest::new(32, 40, 40, 0), 64);
    assert!(licences[1] <= 3 && licences[8] >= 14, "licences of 32 guests: {licences:?}");
}

/// What other programs take is most of the time that completions take: it is not what is compared.
#[test]
fn the_time_of_other_programs_hides_no_gain() {
    let licences = licences_under_noise(&Guest::new(32, 20, 20, 0), 32);
    assert!(licences[1] <= 14 && licences[8] >= 14, "licences of 32 guests: {licences:?}");
}

/// Now and then the guest waits for a CPU of its own, and its requests come one by one: that ends neither a climb nor a licence.
#[test]
fn a_guest_that_stalls_keeps_its_licence() {
    for (every, length, at_most) in [(500, 11, 350), (2_000, 30, 300), (5_000, 100, 200)] {
        let mut guest = Guest::new(32, 20, 20, 0);
        let mut together = (0, 0);
        for round in 0..400_000 / every {
            guest.turn_to(1);
            (0..2 * length).for_each(|_| guest.step());
            guest.turn_to(32);
            let (interrupts, requests) = (guest.interrupts, guest.requests);
            (0..every).for_each(|_| guest.step());
            if round >= 200_000 / every {
                together = (together.0 + guest.interrupts - interrupts, together.1 + guest.requests - requests);
            }
        }
        let interrupts = together.0 * 1_000 / together.1;
        assert!(interrupts <= at_most, "{interrupts} interrupts for 1000 requests, {length} of {every} one by one");
    }
}

/// Stalls come at any moment, so now and then the check after one is interrupted by another.
#[test]
fn a_stall_in_the_check_after_a_stall_halves_no_licence() {
    let (mut guest, mut chance) = (Guest::new(32, 20, 20, 0), 1_u64);
    let (mut whole, mut all) = (0, 0);
    for step in 0..1_000_000 {
        if (draw(&mut chance) >> 32) % 3_000 == 0 {
            guest.turn_to(1);
            (0..60).for_each(|_| guest.step());
            guest.turn_to(32);
        }
        guest.step();
        if step >= 200_000 {
            (whole, all) = (whole + u32::from(guest.auto.budget().limit() == 8), all + 1);
        }
    }
    assert!(whole > all / 20 * 19, "the whole licence for {whole} of {all} steps");
}

/// Bursts of a few requests, and pauses: what a trial would find is worth less than what it costs.
#[test]
fn where_completions_are_rare_nobody_is_tried() {
    for (burst, pause) in [(4, 5_000), (10, 16_000), (40, 40_000)] {
        let mut guest = Guest::new(u32::MAX, 20, 0, 0);
        for _ in 0..2_000 {
            for _ in 0..burst {
                guest.step();
                assert_ne!(guest.auto.budget().level(), Level::Trial, "{burst}, {pause}");
            }
            guest.pass(pause);
            guest.truth.reap();
        }
    }
}

/// One completion every 90 ms where holds may last 100 ms.
#[test]
fn completions_are_rare_at_a_long_max_hold_too() {
    let params = Params { tick_hz: 1_000_000_000, max_hold_ns: 100_000_000, ..PARAMS };
    let mut auto = Auto::new(Config::new(params).expect("valid"));
    for now in (0..5_000).map(|i| i * 90_000_000) {
        let _ = auto.on_deadline(now);
        let _ = auto.on_completion(now, &Completion { outstanding: 8, ..Completion::with_cif(8) });
        assert_ne!(auto.budget().level(), Level::Trial);
    }
}

/// Another policy is in force for a second.
#[test]
fn what_was_learned_outlasts_another_policy_and_nothing_is_earned_meanwhile() {
    let mut guest = Guest::new(32, 20, 20, 0);
    let _ = guest.run(400_000);
    let limit = guest.auto.budget().limit();
    while guest.truth.held == 0 || guest.truth.outstanding() < 8 {
        guest.step();
    }
    (0..2).for_each(|_| _ = guest.auto.on_submit(guest.now, &Submission::default()));
    guest.auto = guest.auto.set_aside(guest.now);
    assert_eq!((guest.auto.held(), guest.auto.deadline()), (0, None), "the other one delivers it");
    let (_, before) = spent(guest.auto.budget());
    guest.truth.poll();
    guest.now += 1_000_000;
    let _ = guest.auto.on_completion(guest.now, &Completion::with_cif(2));
    assert_eq!(spent(guest.auto.budget()).1, before, "the second counts");
    let _ = guest.auto.flush(guest.now);
    assert!(limit > 1 && guest.auto.budget().limit() == limit, "the licence for {limit} is forgotten");
    assert!(guest.run(2_000).0 <= 220);
}

/// Interrupts that cost nothing: holding has no effect, so there is no licence, and what is held was paid for.
#[test]
fn a_guest_whose_interrupts_cost_nothing_gets_none() {
    let mut guest = Guest::new(32, 20, 0, 0);
    let _ = guest.run(400_000);
    let (truth, allowed) = (guest.truth, guest.truth.allowed(&PARAMS, 4));
    assert!(truth.held_time <= allowed, "{truth:?}, allowed: {allowed}");
    assert_eq!(truth.licensed_time, 0);
}

/// Bursts of 16 requests, one every `gap`, that never wait for us and take `service` each; after a burst there is a pause.
fn pause_by_itself(gap: u64, service: u64, pause: u64) -> Truth {
    let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
    let (mut truth, mut completions) = (Truth::default(), VecDeque::new());
    let arrivals = (0..20_000).flat_map(|burst| (0..16).map(move |i| burst * (16 * gap + pause) + i * gap));
    let mut arrivals = arrivals.peekable();
    while let Some(at) = [arrivals.peek().copied(), completions.front().copied()].into_iter().flatten().min() {
        while let Some(deadline) = auto.deadline().filter(|deadline| *deadline <= at) {
            truth.go_to(deadline);
            truth.decided(auto.on_deadline(deadline));
            truth.reap();
        }
        truth.go_to(at);
        if completions.front() == Some(&at) {
            completions.pop_front();
            let (cif, outstanding) = (truth.in_flight, truth.outstanding());
            truth.complete(auto.on_completion(at, &Completion { outstanding, ..Completion::with_cif(cif) }));
            truth.reap();
        } else {
            arrivals.next();
            truth.submit(1);
            let _ = auto.on_submit(at, &Submission::default());
            completions.push_back(at + service);
        }
    }
    truth
}

/// Holding has no effect, so it gets no licence, and what is held was paid for.
#[test]
fn a_load_that_pauses_by_itself_is_hardly_held() {
    for (gap, service, pause) in [(20, 70, 600), (20, 70, 2_000), (100, 300, 5_000), (7, 300, 300)] {
        let truth = pause_by_itself(gap, service, pause);
        let allowed = truth.allowed(&PARAMS, 4);
        assert!(truth.held_time > 0 && truth.held_time <= allowed, "{truth:?}, allowed: {allowed}");
        assert_eq!(truth.licensed_time, 0);
    }
}

/// A trial is charged to nobody who is alone.
#[test]
fn a_requester_that_is_alone_never_waits() {
    let mut guest = Guest::new(1, 20, 20, 0);
    let (interrupts, _) = guest.run(100_000);
    assert_eq!((interrupts, guest.truth.held_time), (1_000, 0));
}

/// With a licence the requesters turn to fewer commands: soon nobody waits for what is held any more.
#[test]
fn a_licence_ends_when_the_requesters_have_less_to_do() {
    for (depth, later) in [(32, 1), (32, 4), (8, 1), (8, 2), (8, 4)] {
        let mut guest = Guest::new(depth, 20, 20, 0);
        let _ = guest.run(400_000);
        assert!(guest.auto.budget().limit() > 1, "no licence at depth {depth}");
        guest.turn_to(later);
        guest.requests = 0;
        let since = guest.now;
        while guest.requests < 1_000 {
            guest.step();
        }
        let alone = 1_000 * (20 + SERVICE + 20);
        let lost = (guest.now - since).saturating_sub(alone);
        assert!(lost <= 15 * 2_000, "{lost} ticks lost from {depth} to {later}");
    }
}

/// Whenever the requesters turn from many commands to one, in a pause, a climb or a check: a dozen holds are lost at most.
#[test]
fn who_turns_to_one_command_loses_a_dozen_holds() {
    let mut guest = Guest::new(32, 20, 20, 0);
    let mut most = 0;
    for moment in 0..2_000 {
        (0..50).for_each(|_| guest.step());
        let mut one = guest.clone();
        one.turn_to(1);
        let mut holds = 0;
        let end = one.requests + 400;
        while one.requests < end {
            one.step();
            holds += u32::from(one.truth.held > 0);
        }
        assert!(holds <= 12, "{holds} holds after moment {moment}");
        most = holds.max(most);
    }
    assert_eq!(most, 12, "no moment has a licence");
}

/// A device that completes a command every 1 to 20 ticks, and a host that reaps at each interrupt and submits again, up to `depth`.
/// Returns which of the commands were held while no other was outstanding.
fn bound_by_device(auto: &mut Auto, truth: &mut Truth, depth: u32, commands: u64) -> Vec<u64> {
    let mut held = Vec::new();
    let mut end = truth.now;
    for command in 0..commands {
        end = end.max(truth.now) + 1 + command * 7_919 % 20;
        loop {
            truth.reap();
            while truth.outstanding() < depth {
                truth.submit(1);
                let _ = auto.on_submit(truth.now, &Submission::default());
            }
            let Some(deadline) = auto.deadline().filter(|deadline| *deadline <= end || truth.in_flight == 0) else {
                break;
            };
            truth.go_to(deadline);
            truth.decided(auto.on_deadline(deadline));
            end = end.max(deadline + 1);
        }
        truth.go_to(end);
        let outstanding = truth.outstanding();
        let completion = Completion { outstanding, ..Completion::with_cif(truth.in_flight) };
        truth.complete(auto.on_completion(end, &completion));
        if truth.held > 0 && outstanding == 1 {
            held.push(command);
        }
    }
    held
}

/// Whenever requesters turn from many commands to one, the holds that this costs are among their next completions.
#[test]
fn who_has_been_alone_for_a_while_does_not_wait() {
    let mut holds = 0;
    for busy in (100..60_000).step_by(1_501) {
        let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
        let mut truth = Truth::default();
        let _ = bound_by_device(&mut auto, &mut truth, 16, busy);
        let held = bound_by_device(&mut auto, &mut truth, 1, 40_000);
        assert!(held.len() <= 12 && held.iter().all(|command| *command < 400), "{held:?} after {busy} with others");
        holds += held.len();
    }
    assert!(holds > 0, "no moment has a trial");
}

/// A licence ends first, as nobody knows yet whether the others come back.
#[test]
fn who_is_left_alone_is_asked_until_the_licence_is_gone() {
    let mut guest = Guest::new(32, 20, 20, 0);
    let _ = guest.run(1_000_000);
    assert!(guest.auto.budget().limit() > 1);
    let (mut auto, mut now, mut asked) = (guest.auto, guest.now, 0);
    auto.on_consumed(now);
    while auto.may_hold() {
        now += 100;
        let _ = auto.on_submit(now, &Submission::ALONE);
        now += 100;
        let _ = auto.on_completions(now, 0, &Completion::with_cif(1));
        while let Some(deadline) = auto.deadline() {
            now = deadline.max(now);
            assert!(auto.on_deadline(now).is_deliver());
        }
        asked += 1;
        assert!(asked < 100_000, "a licence for {}", auto.budget().limit());
    }
    assert_eq!(auto.budget().limit(), 1, "after {asked} completions");
}

/// A guest earns a licence and stops. Random arrivals follow, which gain nothing by holding, although some checks find a gain by chance.
/// The licence must not hold them for long.
#[test]
fn a_licence_ends_with_the_load_that_earned_it() {
    for seed in 1..=24_u64 {
        let mut guest = Guest::new(32, 20, 20, 0);
        let _ = guest.run(200_000 + 997 * seed as u32);
        assert!(guest.auto.budget().limit() > 1);
        guest.turn_to(1);
        let mut truth = Truth::at(guest.now);
        let (mut chance, mut next) = (seed, guest.now);
        let mut ends = VecDeque::new();
        while truth.now < guest.now + 8_000_000 {
            let deadline = guest.auto.deadline().unwrap_or(u64::MAX);
            let end = ends.front().copied().unwrap_or(u64::MAX);
            truth.go_to(next.min(end).min(deadline));
            if truth.now == deadline {
                truth.decided(guest.auto.on_deadline(deadline));
            } else if truth.now == end {
                ends.pop_front();
                let completion =
                    Completion { outstanding: truth.outstanding(), ..Completion::with_cif(truth.in_flight) };
                truth.complete(guest.auto.on_completion(end, &completion));
            } else {
                truth.submit(1);
                let _ = guest.auto.on_submit(next, &Submission::default());
                ends.push_back(next.max(ends.back().copied().unwrap_or(0)) + 22);
                next += 1 + (draw(&mut chance) >> 32) % 300;
            }
            truth.reap();
        }
        let share = truth.held_time as f64 / (truth.outstanding_time - truth.held_time) as f64;
        assert!(share < 0.25, "waits of {share} of the requests' time, seed {seed}");
    }
}

/// Who states a small budget means it.
#[test]
fn a_small_budget_gets_a_small_licence_or_none() {
    for (budget, limit) in [(100, 1), (200, 2), (300, 4), (500, 8), (5_000, 8)] {
        let mut guest = Guest::new(32, 20, 20, 0);
        guest.auto = Auto::new(Config::new(Params { budget: Share::basis_points(budget), ..PARAMS }).expect("valid"));
        let _ = guest.run(1_000_000);
        assert!(guest.auto.budget().limit() <= limit, "{budget}: {}", guest.auto.budget().limit());
    }
}

/// Open loads, faster in one part of each period: what is compared must not be in the same part every time. Chance gives one in a hundred
/// a licence for a while.
#[test]
fn a_load_that_repeats_itself_gets_no_licence() {
    let loads = (300..900).step_by(24).flat_map(|period| (0..period).step_by(46).map(move |phase| (period, phase)));
    let (mut completions, mut licensed) = (0_u32, 0_u32);
    for (period, phase) in loads {
        let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
        let mut now = 0;
        for i in 0..100_000 {
            now += if (i + phase) % period < period / 2 { 8 } else { 12 };
            while let Some(deadline) = auto.deadline().filter(|deadline| *deadline <= now) {
                assert!(auto.on_deadline(deadline).is_deliver());
            }
            let mark = auto.on_submit(now, &Submission { outstanding: 2, ..Submission::default() });
            let _ = auto.on_completion(now, &Completion { mark, outstanding: 2, ..Completion::with_cif(1) });
            completions += 1;
            licensed += u32::from(auto.budget().level() == Level::Licensed && auto.budget().limit() > 1);
        }
    }
    assert!(licensed <= completions / 200, "a licence for {licensed} of {completions}");
}

/// A device that completes one of 32 requests every 10 ticks, and a caller that forgets `on_submit`: what completions say of the
/// commands in flight is enough.
#[test]
fn a_caller_that_forgets_its_submissions_is_served() {
    let interrupts = [true, false].map(|says_submissions| {
        let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
        let (mut in_flight, mut interrupts) = (32, 0_u32);
        for now in (10..400_000).step_by(10) {
            let completion = Completion { outstanding: 32, ..Completion::with_cif(in_flight) };
            in_flight -= 1;
            let is_due = auto.deadline().is_some_and(|deadline| deadline <= now) && auto.on_deadline(now).is_deliver();
            if auto.on_completion(now, &completion).is_deliver() || is_due {
                interrupts += 1;
                let reaped = 32 - in_flight;
                if says_submissions {
                    let _ = auto.on_submit(now, &Submission { before: reaped - 1, ..Submission::ALONE });
                }
                in_flight = 32;
            }
        }
        interrupts
    });
    let [said, forgotten] = interrupts;
    assert!(said < 20_000, "{said} interrupts for 40 000 completions");
    assert!(forgotten < said + said / 5, "{forgotten} interrupts instead of {said}");
}

/// Who says only what is in flight gets trials, too: here of a host that works 20 ticks for an interrupt, and has 16 requests.
#[test]
fn a_caller_that_does_not_know_what_is_outstanding_gets_a_licence() {
    let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
    let (mut now, mut held) = (0, 0);
    for _ in 0..200_000 {
        now += 20;
        let is_due = auto.deadline().is_some_and(|deadline| deadline <= now) && auto.on_deadline(now).is_deliver();
        let _ = auto.on_submit(now, &Submission::default());
        held += 1;
        if is_due || auto.on_completion(now, &Completion::with_cif(17 - held.min(16))).is_deliver() {
            (now, held) = (now + 20, 0);
        }
    }
    assert!(auto.budget().limit() > 1, "no licence");
}

/// A load becomes too slow for trials of a licence while such trials go on: the account is still compared with nothing.
#[test]
fn a_climb_that_cannot_go_on_does_not_keep_the_cut_from_its_turn() {
    let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
    let (mut now, mut gap, mut was_tried, mut cuts) = (0, 40, false, 0);
    for _ in 0..1_000_000 {
        now += gap;
        let _ = auto.on_deadline(now);
        let _ = auto.on_completion(now, &Completion { outstanding: 8, ..Completion::with_cif(8) });
        let level = auto.budget().level();
        if was_tried && level != Level::Trial {
            gap = 400;
        }
        was_tried |= level == Level::Trial;
        cuts += u32::from(gap == 400 && level == Level::Nothing);
    }
    assert!(was_tried && cuts > 0, "no stretch without holding");
}

/// On a noisy machine many trials of a cut say nothing, also those of an account that has lost more than it won.
#[test]
fn a_cut_that_finds_nothing_does_not_keep_the_climb_from_its_turn() {
    for seed in 1..=16_u64 {
        let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
        let (mut now, mut gap, mut chance) = (0, 40, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut cuts, mut last, mut worst) = (0, 0, 0);
        for completion in 0..1_000_000 {
            if completion % 80 == 0 {
                gap = 30 + (draw(&mut chance) >> 32) % 30;
            }
            now += gap;
            let _ = auto.on_deadline(now);
            let _ = auto.on_completion(now, &Completion { outstanding: 8, ..Completion::with_cif(8) });
            match auto.budget().level() {
                Level::Trial => cuts = 0,
                Level::Nothing if completion > last + 1_000 => (cuts, last) = (cuts + 1, completion),
                _ => {}
            }
            worst = worst.max(cuts);
        }
        assert!(worst <= 3, "{worst} trials of cuts with no climb between, seed {seed}");
    }
}

/// A client that is slow to wake: completions come every `gap` ticks, and `cost` ticks later after a hold.
struct SlowToWake {
    auto: Auto,
    outstanding: u32,
    gap: u64,
    cost: u64,
    now: u64,
    is_held: bool,
}

impl SlowToWake {
    fn new(outstanding: u32, gap: u64, cost: u64) -> Self {
        let auto = Auto::new(Config::new(PARAMS).expect("valid"));
        Self { auto, outstanding, gap, cost, now: 0, is_held: false }
    }

    /// How many of the next completions were held, and the ticks that all of them took.
    fn run(&mut self, completions: u32) -> (u32, u64) {
        let (mut held, start) = (0, self.now);
        for _ in 0..completions {
            self.now += self.gap + if self.is_held { self.cost } else { 0 };
            let _ = self.auto.on_deadline(self.now);
            let completion = Completion { outstanding: self.outstanding, ..Completion::with_cif(self.outstanding) };
            self.is_held = !self.auto.on_completion(self.now, &completion).is_deliver();
            held += u32::from(self.is_held);
        }
        (held, self.now - start)
    }
}

/// A client that is slow to wake: each hold costs it as much time as two completions. Holding ends before it has cost much.
#[test]
fn a_load_that_holding_slows_down_is_soon_rid_of_it() {
    let (slow, _) = SlowToWake::new(32, 10, 20).run(200_000);
    assert!(slow < 25_000, "{slow} of 200 000 completions were held");
}

/// Such clients: their outstanding commands, the time between two completions, and what each hold costs beside, in us. What trials hold
/// must not cost them much either, for how long they may go on. In turn: those of a cut hold nothing, as the account is in debt from
/// those of a licence; the account can never hold anything before the next ones; they are made only while it is in debt; none of a licence
/// that has lost is paid for again until its end; the account spends in one half of a trial what it saved before.
#[test]
fn trials_alone_slow_no_load_down() {
    for (outstanding, gap, cost) in [(16, 40, 160), (8, 80, 320), (4, 40, 120), (32, 160, 48), (16, 10, 30)] {
        let mut client = SlowToWake::new(outstanding, gap, cost);
        let _ = client.run(300_000);
        let (_, ticks) = client.run(600_000);
        let took = ticks as f64 / (600_000 * gap) as f64;
        assert!(took < 1.06, "{took:.2} of the time: {outstanding} outstanding, {gap} us, a hold costs {cost} us");
    }
}

/// Where such a load has nothing held any more, nobody is asked about most of it. Trials go on: it may become one that interrupts slow
/// down.
#[test]
fn who_holds_nothing_is_bypassed_between_trials() {
    let mut auto = Auto::new(Config::new(PARAMS).expect("valid"));
    let (mut now, mut is_held) = (0, false);
    let mut run = |[held, delivered]: [u64; 2]| {
        let mut asked_and_held = [0, 0];
        for _ in 0..400_000 {
            now += if is_held { held } else { delivered };
            if !auto.may_hold() {
                auto.on_bypassed(now, &Bypassed { interrupts: 1, outstanding: 32, ..Bypassed::default() });
                is_held = false;
                continue;
            }
            let is_due = auto.on_deadline(now).is_deliver() && is_held;
            let completion = Completion { outstanding: 32, ..Completion::with_cif(32) };
            is_held = !auto.on_completions(now, 0, &completion).is_deliver() && !is_due;
            asked_and_held[0] += 1;
            asked_and_held[1] += u32::from(is_held);
        }
        asked_and_held
    };
    let _ = run([30, 10]);
    let [asked, held] = run([30, 10]);
    assert!(asked < 100_000 && held > 0, "asked about {asked} of 400 000, held {held}");
    let _ = run([10, 30]);
    let [_, held] = run([10, 30]);
    let limit = auto.budget().limit();
    assert!(held > 300_000 && limit > 1, "held {held} of 400 000, where holding pays, licence for {limit}");
}
