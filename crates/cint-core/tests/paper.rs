//! The worked examples of the paper, and every comparison one tick to either side.

use cint_core::Decision::{self, Deliver, DeliverUrgent, Hold};
use cint_core::Hint::{self, Barrier, Plain, Urgent};
use cint_core::HoldReason::{Burst, Cancelled, Early, NothingHeld, Reconfigured};
use cint_core::{
    Barriers, BothBits, Cint, Class, Completion, Config, Entry, HoldReason, Mark, Params, Policy as _, Reaper, Reason,
    Stats, StormParams, Strict, Submission, SystemCall, Ticket, Tracker,
};

const US: u64 = 1_000;

fn config(params: Params) -> Config {
    Config::new(params).expect("valid")
}

/// The paper's machine with Δ = 6 µs, `thr` = 32, OOO.
fn optane() -> Cint {
    Cint::new(config(Params::OPTANE))
}

/// Figure 9: two batches of four. Burst detection alone (top) pays Δ after each; a Barrier (bottom) ends it at once.
#[test]
fn figure_9_a_barrier_ends_the_burst() {
    let mut adaptive = optane();
    for (i, gap) in [1, 2, 3, 4].into_iter().enumerate() {
        let _ = i;
        assert_eq!(adaptive.on_completion(gap * US, &Completion::default()), Hold(Burst));
    }
    assert_eq!(adaptive.deadline(), Some(10 * US));
    assert_eq!(adaptive.on_deadline(10 * US), Deliver(Reason::Delta));

    let mut cint = optane();
    for now in [1, 2, 3] {
        assert_eq!(cint.on_completion(now * US, &Completion::default()), Hold(Burst));
    }
    assert_eq!(cint.on_completion(4 * US, &Completion::of(Barrier)), Deliver(Reason::Barrier));
    assert_eq!(cint.deadline(), None);
}

/// Figure 14: plain and urgent entries mixed. The first interrupts complete urgent ones only and the doorbell stays;
/// the one after them completes the rest and moves the doorbell over all.
#[test]
fn figure_14_urgent_out_of_order() {
    let hints = [Plain, Urgent, Plain, Urgent, Plain];
    let mut queue = [Entry::default(); 8];
    let mut cint = optane();
    let mut reaper = Reaper::<1>::new(8).expect("8 entries fit");
    let is_urgent = |entry: Entry| hints[usize::from(entry.cid())] == Urgent;
    let mut taken = vec![];
    for (cid, hint) in hints.into_iter().enumerate() {
        queue[cid] = Entry([0, 0, 0, 1 << 16 | cid as u32]); // posted at once: only the interrupt waits
        let decision = cint.on_completion(cid as u64 * US, &Completion::of(hint));
        assert_eq!(decision, if hint == Urgent { DeliverUrgent } else { Hold(Burst) });
        if decision == DeliverUrgent {
            let doorbell = reaper.reap_urgent(|i| queue[usize::from(i)], is_urgent, |entry| taken.push(entry.cid()));
            assert_eq!(doorbell, None, "entry 0 is not taken");
        }
    }
    assert_eq!((taken.as_slice(), cint.held()), ([1, 3].as_slice(), 3));
    assert_eq!(cint.on_deadline(10 * US), Deliver(Reason::Delta), "6 µs after the last completion");
    let doorbell = reaper.reap(|i| queue[usize::from(i)], |entry| taken.push(entry.cid()));
    assert_eq!((taken.as_slice(), doorbell), ([1, 3, 0, 2, 4].as_slice(), Some(5)));
}

/// §3.5: with `thr` = 9 in Figure 14 a normal interrupt fires as soon as 9 entries, taken or not, have come.
#[test]
fn urgent_ones_count_once_a_plain_one_waits() {
    let mut cint = Cint::new(config(Params { thr: 9, ..Params::OPTANE }));
    for _ in 0..5 {
        assert_eq!(cint.on_completion(0, &Completion::of(Urgent)), DeliverUrgent, "nobody waits: not counted");
    }
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
    for _ in 0..7 {
        assert_eq!(cint.on_completion(0, &Completion::of(Urgent)), DeliverUrgent);
    }
    assert_eq!(cint.on_completion(0, &Completion::of(Urgent)), Deliver(Reason::Count), "the ninth");
    assert_eq!(cint.held(), 0);
}

/// One plain completion under Urgents every 5 µs waits for 31 of them, Δ or not.
#[test]
fn a_plain_completion_does_not_starve() {
    let mut cint = optane();
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
    let waits = (1..).find(|i| matches!(cint.on_completion(i * 5 * US, &Completion::of(Urgent)), Deliver(_)));
    assert_eq!(waits, Some(31));
}

/// The printed Algorithm 2 lets an Urgent fall through to the counter: 1000 of them, 2000 interrupts.
#[test]
fn lone_urgents_interrupt_once_each() {
    for ooo in [true, false] {
        let mut cint = Cint::new(config(Params { ooo, ..Params::OPTANE }));
        let mut stats = Stats::ZERO;
        for i in 0..1000 {
            let _ = stats.count(cint.on_completion(i * 10 * US, &Completion::of(Urgent)));
            let _ = stats.count(cint.on_deadline(i * 10 * US + 6 * US));
        }
        assert_eq!(stats.of(DeliverUrgent) + stats.of(Deliver(Reason::Urgent)), 1000);
        assert_eq!(stats.of(Hold(NothingHeld)), 1000);
    }
}

/// §3.2: "either it has observed a completion quiescent interval of Δ or thr requests have completed".
#[test]
fn delta_and_thr_are_met_exactly() {
    for (quiet, expected) in
        [(6 * US - 1, Hold(Early)), (6 * US, Deliver(Reason::Delta)), (6 * US + 1, Deliver(Reason::Delta))]
    {
        let mut cint = optane();
        assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
        assert_eq!(cint.on_completion(5 * US, &Completion::default()), Hold(Burst), "each completion starts Δ anew");
        assert_eq!(cint.on_deadline(5 * US + quiet), expected, "{quiet} ns");
    }
    for thr in [1, 2, 32] {
        let mut cint = Cint::new(config(Params { thr, ..Params::OPTANE }));
        for i in 1..=3 * u64::from(thr) {
            let due = i % u64::from(thr) == 0;
            let expected = if due { Deliver(Reason::Count) } else { Hold(Burst) };
            assert_eq!(cint.on_completion(i, &Completion::default()), expected, "completion {i}, thr {thr}");
        }
    }
}

/// Without `max_hold` the worst wait is (thr - 1) * Δ; with it, it is that.
#[test]
fn the_worst_wait() {
    for (max_hold_ns, worst) in [(None, 31 * 6 * US), (Some(100 * US), 100 * US)] {
        let config = config(Params { max_hold_ns, ..Params::OPTANE });
        assert_eq!(config.max_hold(), Some(worst));
        let mut cint = Cint::new(config);
        let mut now = 0;
        while !cint.on_completion(now, &Completion::default()).is_deliver() {
            now = (now + 6 * US - 1).min(cint.deadline().expect("something is held"));
        }
        assert!(now <= worst && now > worst - 6 * US, "{now} of {worst}");
    }
}

#[test]
fn max_hold_is_met_exactly_and_equal_deadlines_are_delta() {
    for (wait, expected) in
        [(100 * US - 1, Hold(Early)), (100 * US, Deliver(Reason::MaxHold)), (100 * US + 1, Deliver(Reason::MaxHold))]
    {
        let mut cint = Cint::new(config(Params { in_flight: None, ..Params::DEFAULT }));
        for now in (0..=95).step_by(5) {
            assert_eq!(cint.on_completion(now * US, &Completion::default()), Hold(Burst));
        }
        assert_eq!(cint.deadline(), Some(100 * US));
        assert_eq!(cint.on_deadline(wait), expected);
    }
    let mut cint = Cint::new(config(Params { max_hold_ns: Some(6 * US), ..Params::OPTANE }));
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
    assert_eq!(cint.on_deadline(6 * US), Deliver(Reason::Delta));
}

/// A completion after the deadline shares the deadline's interrupt, whatever its hint.
#[test]
fn an_expired_deadline_goes_first() {
    for hint in [Plain, Urgent, Barrier] {
        let mut cint = optane();
        assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
        assert_eq!(cint.on_completion(6 * US, &Completion::of(hint)), Deliver(Reason::Delta));
        assert_eq!(cint.held(), 0);
    }
}

/// Δ = 0: the caller ends the batch.
#[test]
fn batch_end_replaces_delta() {
    let mut cint = Cint::new(config(Params { delta_ns: 0, ..Params::OPTANE }));
    assert_eq!(cint.on_batch_end(0), Hold(NothingHeld));
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
    assert_eq!((cint.deadline(), cint.config().max_hold()), (None, None));
    assert_eq!(cint.on_batch_end(1), Deliver(Reason::BatchEnd));

    let mut cint = optane();
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
    assert_eq!(cint.on_batch_end(1), Hold(Early), "Δ decides");
    assert_eq!(cint.on_batch_end(6 * US), Deliver(Reason::Delta));
}

/// The `in_flight` rule with T = 4: at depth 1 everything at once; never more held than CIF / 8, or one.
#[test]
fn in_flight_rule_at_every_step() {
    let rule = || Cint::new(config(Params { in_flight: Some(4), ..Params::OPTANE }));
    for (held, cif, expected) in [
        (0, 1, Deliver(Reason::InFlight)),
        (0, 3, Deliver(Reason::InFlight)),
        (0, 4, Hold(Burst)),
        (1, 15, Deliver(Reason::InFlight)),
        (1, 16, Hold(Burst)),
        (2, 23, Deliver(Reason::InFlight)),
        (2, 24, Hold(Burst)),
    ] {
        let mut cint = rule();
        for _ in 0..held {
            assert_eq!(cint.on_completion(0, &Completion::with_cif(64)), Hold(Burst));
        }
        assert_eq!(cint.on_completion(0, &Completion::with_cif(cif)), expected, "{held} held, CIF {cif}");
    }
    // Urgent ones do not add to what is held, but see what the device has left.
    for (held, cif, expected) in [
        (0, 1, DeliverUrgent),
        (1, 3, Deliver(Reason::InFlight)),
        (1, 4, DeliverUrgent),
        (2, 15, Deliver(Reason::InFlight)),
        (2, 16, DeliverUrgent),
    ] {
        let mut cint = rule();
        for _ in 0..held {
            assert_eq!(cint.on_completion(0, &Completion::with_cif(64)), Hold(Burst));
        }
        assert_eq!(
            cint.on_completion(0, &Completion { cif, ..Completion::of(Urgent) }),
            expected,
            "{held} held, CIF {cif}"
        );
    }
    let mut cint = rule();
    assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst), "no CIF, no rule");
}

/// A machine in a storm: Urgents every `gap` ns until the guard spaces them; the last interrupt was at the time given.
fn storming(max_rate: u64, shift: u8, gap: u64) -> (Cint, u64) {
    let storm = Some(StormParams { max_rate, shift });
    let mut cint = Cint::new(config(Params { storm, ooo: false, ..Params::OPTANE }));
    let mut now = 0;
    while !cint.is_storming() {
        now += gap;
        assert_eq!(cint.on_completion(now, &Completion::of(Urgent)), Deliver(Reason::Urgent));
    }
    (cint, now)
}

/// §4.3, Figure 17: 150 000 Urgents a second, 100 000 interrupts allowed.
#[test]
fn figure_17_the_storm_guard_spaces_urgents() {
    let storm = Some(StormParams { max_rate: 100_000, shift: 7 });
    let mut cint = Cint::new(config(Params { storm, ..Params::OPTANE }));
    let gap = 1_000_000_000 / 150_000;
    let (mut interrupts, mut waited_max) = (0, 0);
    let mut first_held = None;
    for i in 1..=150_000_u64 {
        let now = i * gap;
        while let Some(deadline) = cint.deadline().filter(|&deadline| deadline <= now) {
            assert!(cint.on_deadline(deadline).is_deliver());
            interrupts += 1;
            waited_max = waited_max.max(deadline - first_held.take().expect("something was held"));
        }
        if cint.on_completion(now, &Completion::of(Urgent)).is_deliver() {
            interrupts += 1;
        } else {
            first_held.get_or_insert(now);
        }
    }
    assert!((99_000..=100_300).contains(&interrupts), "{interrupts} interrupts in a second");
    assert!(waited_max <= 10 * US, "put off by {waited_max} ns");
}

#[test]
fn a_put_off_interrupt_comes_exactly_at_its_pace() {
    for (wait, expected) in
        [(10 * US - 1, Hold(Early)), (10 * US, Deliver(Reason::Storm)), (10 * US + 1, Deliver(Reason::Storm))]
    {
        let (mut cint, now) = storming(100_000, 7, 2 * US);
        assert_eq!(cint.on_completion(now + 1, &Completion::of(Urgent)), Hold(HoldReason::Storm));
        assert_eq!(cint.on_completion(now + 2, &Completion::of(Barrier)), Hold(HoldReason::Storm));
        assert_eq!(cint.on_completion(now + 3, &Completion::default()), Hold(Burst), "not due itself; it rides along");
        assert_eq!(cint.deadline(), Some(now + 10 * US));
        assert_eq!(cint.on_deadline(now + wait), expected);
    }
    let (mut cint, now) = storming(100_000, 7, 2 * US);
    assert_eq!(cint.on_completion(now + 10 * US, &Completion::of(Urgent)), Deliver(Reason::Urgent), "in pace: at once");
    // Not due, but its own Δ ends before the pace allows: it waits for the pace, and that is the storm's doing.
    assert_eq!(cint.on_completion(now + 11 * US, &Completion::default()), Hold(Burst));
    assert_eq!(cint.deadline(), Some(now + 20 * US));
    assert_eq!(
        cint.on_completion(now + 18 * US, &Completion::default()),
        Hold(HoldReason::Storm),
        "Δ was over at 17 µs"
    );
    assert_eq!(cint.on_deadline(now + 20 * US), Deliver(Reason::Storm));
    // Here Δ ends after the pace.
    assert_eq!(cint.on_completion(now + 25 * US, &Completion::default()), Hold(Burst));
    assert_eq!(cint.on_deadline(now + 31 * US), Deliver(Reason::Delta));
}

#[test]
fn flush_and_reconfigure_do_not_wait_for_the_storm() {
    let (mut cint, now) = storming(100_000, 7, 2 * US);
    assert_eq!(cint.on_completion(now + 1, &Completion::of(Urgent)), Hold(HoldReason::Storm));
    assert_eq!(cint.flush(now + 2), Deliver(Reason::Flush));
    assert_eq!(cint.flush(now + 2), Hold(NothingHeld));
    assert_eq!(cint.on_completion(now + 3, &Completion::of(Urgent)), Hold(HoldReason::Storm));
    assert_eq!(cint.reconfigure(config(Params::OPTANE), now + 4), Ok(Deliver(Reason::Storm)));
    assert!(!cint.is_storming());
}

/// "if the Urgent intensity subsides, cinterrupts adapts automatically and turns off the throttling": from an average
/// below the interval until it is above twice that.
#[test]
fn a_storm_ends() {
    let (mut cint, mut now) = storming(100_000, 5, 2 * US);
    let samples = (1..).find(|_| {
        now += 100 * US; // each counts as 40 µs at most
        assert!(cint.on_completion(now, &Completion::of(Urgent)).is_deliver());
        !cint.is_storming()
    });
    // Average a -> a + (40 - a) / 32, from just under 10 to above 20: ln(30/20) * 32 = 13 samples.
    assert_eq!(samples, Some(13));
}

#[test]
fn strict_barriers_wait_for_their_batch() {
    let mut cint = optane();
    let mut tracker = Tracker::<2, 1>::new();
    let [a, b, c, d] = std::array::from_fn(|_| tracker.on_submit(0));
    let other_group = tracker.on_submit(1);
    let mut complete =
        |now, ticket, hint| cint.on_completion(now, &Completion::of(tracker.on_completion(ticket, hint)));
    assert_eq!(complete(1, c, Barrier), Hold(Burst), "a and b are missing");
    assert_eq!(complete(2, b, Plain), Hold(Burst));
    assert_eq!(complete(3, d, Urgent), DeliverUrgent, "behind the Barrier: not its business");
    assert_eq!(complete(4, other_group, Barrier), Deliver(Reason::Barrier), "a group of its own");
    assert_eq!(complete(5, a, Urgent), Deliver(Reason::Barrier), "the low-water mark passes c, once");
    assert_eq!(complete(6, a, Plain), Deliver(Reason::Error), "given back twice");
    assert_eq!(complete(7, Some(Ticket::from_number(77)), Plain), Deliver(Reason::Error), "never given");
    assert_eq!(complete(8, Some(Ticket::from_number(7 << 56)), Plain), Deliver(Reason::Error), "no such group");
    assert_eq!(complete(9, None, Barrier), Deliver(Reason::Barrier), "without a ticket: relaxed");
    assert_eq!(tracker.on_submit(2), None);
    assert_eq!(tracker.untracked(), 1);
}

#[test]
fn a_cancelled_command_completes_a_batch() {
    let mut cint = optane();
    let mut tracker = Tracker::<1, 1>::new();
    let [a, b, c] = std::array::from_fn(|_| tracker.on_submit(0));
    assert_eq!(
        cint.on_cancel(0, Mark { event: tracker.on_completion(c, Plain), ..Mark::default() }),
        Hold(NothingHeld)
    );
    assert_eq!(cint.on_completion(0, &Completion::of(tracker.on_completion(b, Barrier))), Hold(Burst));
    assert_eq!(
        cint.on_cancel(1, Mark { event: tracker.on_completion(None, Plain), ..Mark::default() }),
        Hold(Cancelled)
    );
    assert_eq!(
        cint.on_cancel(1, Mark { event: tracker.on_completion(a, Plain), ..Mark::default() }),
        Deliver(Reason::Barrier)
    );
    assert_eq!(
        cint.on_cancel(1, Mark { event: tracker.on_completion(a, Plain), ..Mark::default() }),
        Hold(NothingHeld),
        "no interrupt is empty"
    );
    assert_eq!(cint.on_completion(2, &Completion::default()), Hold(Burst));
    assert_eq!(
        cint.on_cancel(3, Mark { event: tracker.on_completion(a, Plain), ..Mark::default() }),
        Deliver(Reason::Error)
    );
}

/// Whatever became of it: somebody waits for it, and for its batch.
#[test]
fn a_barrier_that_failed_or_was_aborted_ends_its_batch() {
    for (ooo, is_aborted) in [(true, false), (false, false), (true, true)] {
        let config = Config::new(Params { delta_ns: 0, thr: 65_535, ooo, ..Params::OPTANE }).expect("valid");
        let mut strict = Strict::<_, 1, 1>::new(Cint::new(config));
        let [first, barrier] =
            [Hint::Plain, Hint::Barrier].map(|hint| strict.on_submit(0, &Submission { hint, ..Submission::default() }));
        let at_once = if is_aborted {
            strict.on_cancel(1, barrier)
        } else {
            strict.on_completion(1, &Completion { mark: barrier, class: Class::Failed, ..Completion::with_cif(3) })
        };
        assert_eq!(at_once.is_deliver(), !is_aborted);
        let last = strict.on_completion(2, &Completion { mark: first, ..Completion::with_cif(2) });
        assert_eq!((last, strict.held()), (Deliver(Reason::Barrier), 0), "the batch is complete");
    }
}

/// Without a ticket Barriers are relaxed: it delivers what is held when it completes, fails or is aborted.
#[test]
fn a_barrier_without_a_ticket_delivers_whatever_became_of_it() {
    for (class, is_aborted) in [(Class::Io, false), (Class::Failed, false), (Class::Io, true)] {
        let mut strict = Strict::<_, 1, 1>::new(optane());
        assert_eq!(strict.on_completion(1, &Completion::with_cif(3)), Hold(Burst));
        let barrier = Mark::of(Hint::Barrier);
        let decision = if is_aborted {
            strict.on_cancel(2, barrier)
        } else {
            strict.on_completion(2, &Completion { mark: barrier, class, ..Completion::with_cif(2) })
        };
        assert_eq!((decision, strict.held()), (Deliver(Reason::Barrier), 0));
    }
}

#[test]
fn a_reset_forgets_tickets_and_their_numbers() {
    let mut tracker = Tracker::<1, 1>::new();
    let a = tracker.on_submit(0);
    tracker.reset_tracking();
    let b = tracker.on_submit(0);
    assert_ne!(a, b);
    assert_eq!(tracker.on_completion(a, Plain), cint_core::Event::Error);
    assert_eq!(tracker.on_completion(b, Barrier), cint_core::Event::Barrier);
}

/// Table 1, row by row.
#[test]
fn table_1() {
    use SystemCall::{IoSubmit, Msync, Read, Sync, Vectored2, Write};
    let v2 = |nowait, urgent, barrier| Vectored2 { nowait, urgent, barrier };
    for (call, hint) in [
        (Read { blocking: true }, Urgent),
        (Read { blocking: false }, Plain),
        (Write { blocking: true, direct: false }, Urgent),
        (Write { blocking: false, direct: true }, Urgent),
        (Write { blocking: false, direct: false }, Plain),
        (v2(false, false, false), Urgent),
        (v2(true, false, false), Plain),
        (v2(true, true, false), Urgent),
        (v2(false, false, true), Barrier),
        (v2(false, true, true), Plain), // "explicitly ask for a request to be unmarked by passing both flags"
        (IoSubmit { last: true }, Barrier),
        (IoSubmit { last: false }, Plain),
        (Sync, Urgent),
        (Msync { sync: true, last: true }, Barrier),
        (Msync { sync: true, last: false }, Plain),
        (Msync { sync: false, last: true }, Plain),
    ] {
        assert_eq!(call.hint(), hint, "{call:?}");
    }
}

#[test]
fn hints_travel_merge_and_split() {
    for (bits, plain, urgent) in [(0, Plain, Plain), (1, Urgent, Urgent), (2, Barrier, Barrier), (3, Plain, Urgent)] {
        assert_eq!(Hint::from_bits(bits, BothBits::Plain), plain);
        assert_eq!(Hint::from_bits(bits | 0xfc, BothBits::Urgent), urgent);
        assert_eq!(Hint::from_cdw12(u32::from(bits) << 16 | 0xfffc_ffff, BothBits::Urgent), urgent);
    }
    for (latency, hint) in [(0b00, Plain), (0b01, Plain), (0b10, Plain), (0b11, Urgent)] {
        assert_eq!(Hint::from_access_latency(latency << 4 | 0xffff_ffcf), hint);
    }
    for (a, b, merged) in
        [(Plain, Plain, Plain), (Plain, Barrier, Barrier), (Barrier, Urgent, Urgent), (Plain, Urgent, Urgent)]
    {
        assert_eq!((a.merge(b), b.merge(a), a.max(b)), (merged, merged, merged));
    }
    for (hint, barriers, first, last) in [
        (Urgent, Barriers::Strict, Urgent, Urgent),
        (Plain, Barriers::Strict, Plain, Plain),
        (Barrier, Barriers::Relaxed, Barrier, Barrier),
        (Barrier, Barriers::Strict, Plain, Barrier),
    ] {
        assert_eq!((hint.split(false, barriers), hint.split(true, barriers)), (first, last));
    }
}

#[test]
fn on_consumed_ends_the_burst_without_an_interrupt() {
    let mut cint = Cint::new(config(Params { thr: 3, ..Params::OPTANE }));
    for _ in 0..3 {
        assert_eq!(cint.on_completion(0, &Completion::default()), Hold(Burst));
        assert_eq!(cint.on_completion(1, &Completion::default()), Hold(Burst));
        cint.on_consumed(2);
        assert_eq!((cint.held(), cint.deadline()), (0, None));
    }
}

#[test]
fn a_clock_that_goes_back_keeps_the_bound() {
    let mut cint = optane();
    assert_eq!(cint.on_completion(100 * US, &Completion::default()), Hold(Burst));
    assert_eq!(cint.on_deadline(102 * US), Hold(Early));
    assert_eq!(cint.on_deadline(1), Hold(Early));
    assert_eq!((cint.deadline(), cint.times_back()), (Some(1 + 4 * US), 1));
    assert_eq!(cint.on_deadline(1 + 4 * US), Deliver(Reason::Delta));
}

#[test]
fn reconfigure_applies_to_what_is_held() {
    let p = Params::OPTANE;
    for (params, expected) in [
        (Params { delta_ns: 2 * US, ..p }, Deliver(Reason::Delta)),
        (Params { delta_ns: 2 * US + 1, ..p }, Hold(Reconfigured)),
        (Params { max_hold_ns: Some(3 * US), ..p }, Deliver(Reason::MaxHold)),
        (Params { max_hold_ns: Some(3 * US + 1), ..p }, Hold(Reconfigured)),
        (Params { thr: 2, ..p }, Deliver(Reason::Count)),
        (Params { thr: 3, ..p }, Hold(Reconfigured)),
        (Params { delta_ns: 0, max_hold_ns: Some(10 * US), ..p }, Hold(Reconfigured)),
        (Params { delta_ns: 0, max_hold_ns: None, ..p }, Deliver(Reason::BatchEnd)),
    ] {
        let mut cint = optane();
        assert_eq!(cint.reconfigure(config(p), 0), Ok(Hold(NothingHeld)));
        assert_eq!(cint.on_completion(10 * US, &Completion::default()), Hold(Burst));
        assert_eq!(cint.on_completion(11 * US, &Completion::default()), Hold(Burst));
        assert_eq!(cint.reconfigure(config(params), 13 * US), Ok(expected), "{params:?}");
    }
    let mut cint = optane();
    let other_clock = config(Params { tick_hz: 1_000_000, ..p });
    let error = cint.reconfigure(other_clock, 0).unwrap_err();
    assert_eq!(error.to_string(), "tick_hz is 1000000; allowed: 1000000000 to 1000000000");
}

#[test]
fn parameters_at_their_bounds() {
    let ok = |params| assert!(Config::new(params).is_ok(), "{params:?}");
    let wrong =
        |params, message| assert_eq!(Config::new(params).map_err(|e| e.to_string()), Err(String::from(message)));
    let p = Params::DEFAULT;
    let storm = |max_rate, shift| Some(StormParams { max_rate, shift });
    ok(Params { tick_hz: 1_000, ..p });
    ok(Params { tick_hz: 10_000_000_000, ..p });
    wrong(Params { tick_hz: 999, ..p }, "tick_hz is 999; allowed: 1000 to 10000000000");
    ok(Params { delta_ns: 10_000 * US, ..p });
    wrong(Params { delta_ns: 10_000 * US + 1, ..p }, "delta_ns is 10000001; allowed: 0 to 10000000");
    wrong(Params { thr: 0, ..p }, "thr is 0; allowed: 1 to 65535");
    wrong(Params { max_hold_ns: Some(0), ..p }, "max_hold_ns is 0; allowed: 1 to 500000000");
    ok(Params { tick_hz: 500_000_000, max_hold_ns: Some(1_000_000_000), ..p });
    wrong(Params { max_hold_ns: Some(500_000_001), ..p }, "max_hold_ns is 500000001; allowed: 1 to 500000000");
    wrong(Params { in_flight: Some(1), ..p }, "in_flight is 1; allowed: 2 to 32767");
    ok(Params { storm: storm(200_000_000, 16), ..p });
    wrong(Params { storm: storm(200_000_001, 7), ..p }, "storm.max_rate is 200000001; allowed: 8 to 200000000");
    wrong(Params { storm: storm(7, 7), ..p }, "storm.max_rate is 7; allowed: 8 to 200000000");
    wrong(Params { storm: storm(100_000, 4), ..p }, "storm.shift is 4; allowed: 5 to 16");
    wrong(Params { storm: storm(100_000, 17), ..p }, "storm.shift is 17; allowed: 5 to 16");
    // The default max_hold of 100 µs against an interval of 101 µs; refused, naming both.
    ok(Params { storm: storm(10_000, 7), ..p });
    let message = "max_hold_ns is 100000; allowed: 101011 to 500000000 where storm.max_rate is 9900";
    wrong(Params { storm: storm(9_900, 7), ..p }, message);
    ok(Params { storm: storm(9_900, 7), max_hold_ns: Some(101_011), ..p });
    ok(Params { storm: storm(8, 16), max_hold_ns: None, ..p });
    ok(Params { tick_hz: 100_000_000, storm: storm(1, 16), max_hold_ns: None, ..p });
}

/// The numbers of a decision do not depend on the clock's rate.
#[test]
fn any_clock_gives_the_same_decisions() {
    let decisions = |tick_hz: u64| -> Vec<Decision> {
        let mut cint = Cint::new(config(Params { tick_hz, ..Params::DEFAULT }));
        (0..1000_u64)
            .map(|i| {
                let us = i * 3 + i % 7;
                cint.on_completion(
                    us * tick_hz / 1_000_000,
                    &Completion { cif: i as u32 % 40 + 1, ..Completion::of(if i % 11 == 0 { Urgent } else { Plain }) },
                )
            })
            .collect()
    };
    assert_eq!(decisions(1_000_000), decisions(1_000_000_000));
    assert_eq!(decisions(1_000_000), decisions(10_000_000_000));
}

/// Ages saturate, deadlines do not: 10 s of completions in one burst, at 1 GHz.
#[test]
fn a_burst_may_last_longer_than_any_age() {
    for (delta_ns, deadline) in [(10_000 * US, Some(10_000 * US)), (0, None)] {
        let params = Params { delta_ns, thr: u16::MAX, max_hold_ns: None, in_flight: None, ..Params::DEFAULT };
        let mut cint = Cint::new(config(params));
        for n in 1..=1_100 {
            let now = n * 9_000 * US;
            assert_eq!(cint.on_completion(now, &Completion::default()), Decision::Hold(HoldReason::Burst));
            assert_eq!(cint.deadline(), deadline.map(|after| now + after), "after {n}");
        }
        let limit = config(Params { max_hold_ns: Some(400_000 * US), ..params });
        assert_eq!(
            cint.reconfigure(limit, 10_000_000 * US),
            Ok(Decision::Deliver(Reason::MaxHold)),
            "the oldest is old"
        );
    }
}
