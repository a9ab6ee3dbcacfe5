//! The worked examples of the papers, and every comparison one tick to either side.

use vic_core::{
    Completion, Config, Decision, HoldReason, Ipi, IpiGate, IpiParams, Params, Policy as _, Ratio, Reason, Stats, Vic,
};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

fn config(params: Params) -> Config {
    Config::new(params).expect("valid")
}

/// A machine whose first epoch is over, at `gap` ns between completions and `cif` commands in flight: the ratio for
/// `cif` is in force and a cycle begins. Returns the time of the last completion.
fn warm(params: Params, cif: u32, gap: u64) -> (Vic, u64) {
    let mut vic = Vic::new(config(params));
    let mut now = 0;
    while vic.ratio() != Ratio::for_cif(cif, params.cif_threshold, params.max_skip) || now <= params.epoch_ns {
        let _ = vic.on_completion(now, &Completion::with_cif(cif));
        now += gap;
    }
    let mut deliver_next = |deliver| {
        while vic.on_completion(now, &Completion::with_cif(cif)).is_deliver() != deliver {
            now += gap;
        }
    };
    deliver_next(false);
    deliver_next(true); // the last of a cycle: it comes after those not delivered
    (vic, now)
}

#[test]
fn table_1_for_every_cif() {
    for cif in 1..=256 {
        let expected = match cif {
            1..=3 => (1, 1),
            4..=7 => (4, 5),
            8..=11 => (3, 4),
            12..=15 => (2, 3),
            _ => (1, cif / 8), // R = 8 / CIF, cut off
        };
        let Ratio { count_up, skip_up } = Ratio::for_cif(cif, 4, u16::MAX);
        assert_eq!((u32::from(count_up), u32::from(skip_up)), expected, "CIF {cif}");
    }
    // "e.g., CIF = 64: 12 %"
    assert_eq!(Ratio::for_cif(64, 4, u16::MAX), Ratio { count_up: 1, skip_up: 8 });
    // "for 6.25 % countUp = 1 and skipUp = 16": the floor of the safe defaults
    assert_eq!(Ratio::for_cif(1000, 4, 16), Ratio { count_up: 1, skip_up: 16 });
    assert_eq!(Ratio::for_cif(u32::MAX, u16::MAX, u16::MAX), Ratio { count_up: 1, skip_up: 32768 });
    assert_eq!(Ratio::for_cif(u32::MAX, 2, u16::MAX), Ratio { count_up: 1, skip_up: u16::MAX });
}

/// vIC §3.2.2: the series of ⟨counter, deliver?⟩, as yes and no.
#[test]
fn series_of_the_text() {
    for (cif, expected) in [
        (8, "yes yes no yes yes yes no yes"),         // 3/4
        (40, "no no no no yes no no no no yes"),      // 1/5
        (4, "yes yes yes no yes yes yes yes no yes"), // 4/5
        (12, "yes no yes yes no yes"),                // 2/3
    ] {
        let (mut vic, mut now) = warm(Params::PAPER, cif, 10 * US);
        let series: Vec<_> = expected
            .split(' ')
            .map(|_| {
                now += 10 * US;
                if vic.on_completion(now, &Completion::with_cif(cif)).is_deliver() { "yes" } else { "no" }
            })
            .collect();
        assert_eq!(series.join(" "), expected, "CIF {cif}");
    }
}

/// vIC §3.2: `dd` has one command in flight. If its completion were held, it would hang for ever.
#[test]
fn dd_never_waits() {
    let mut vic = Vic::new(config(Params::PAPER));
    for now in (0..400 * MS).step_by(20_000) {
        assert_eq!(vic.on_completion(now, &Completion::with_cif(1)), Decision::Deliver(Reason::LowCif));
    }
}

/// vIC §3.2 (1): the rate is below `iopsThreshold` or not, at the exact rate and one completion to either side.
#[test]
fn low_rate_is_below_the_threshold() {
    for (completions, low) in [(399, true), (400, false), (401, false)] {
        let mut vic = Vic::new(config(Params { epoch_ns: 200 * MS - 1, ..Params::PAPER }));
        for i in 0..completions - 1 {
            let _ = vic.on_completion(i, &Completion::with_cif(64));
        }
        let _ = vic.on_completion(200 * MS, &Completion::with_cif(64)); // 2000 per second are 400 in 200 ms
        assert_eq!(vic.ratio() == Ratio::ONE, low, "{completions} completions in 200 ms");
    }
}

/// Algorithm 2: `diff > epochPeriod`.
#[test]
fn an_epoch_ends_after_its_length() {
    for (now, rolled) in [(200 * MS - 1, false), (200 * MS, false), (200 * MS + 1, true)] {
        let mut vic = Vic::new(config(Params { iops_threshold: 0, ..Params::PAPER }));
        let _ = vic.on_completion(0, &Completion::with_cif(64));
        let _ = vic.on_completion(now, &Completion::with_cif(64));
        assert_eq!(vic.ratio() != Ratio::ONE, rolled, "at {now} ns");
    }
}

/// After an idle gap the first completion ends an epoch with a low rate: R = 1 for the one that begins.
#[test]
fn idle_makes_the_rate_low() {
    let (mut vic, now) = warm(Params::PAPER, 64, 10 * US);
    assert_eq!(vic.ratio().skip_up, 8);
    assert_eq!(vic.on_completion(now + 1_000 * MS, &Completion::with_cif(64)), Decision::Deliver(Reason::Always));
    assert_eq!(vic.on_completion(now + 1_001 * MS, &Completion::with_cif(64)), Decision::Deliver(Reason::Always));
}

/// Algorithm 2: `cif < cifThreshold`; the counter starts again.
#[test]
fn low_cif_delivers_at_once() {
    let (mut vic, now) = warm(Params::PAPER, 64, 10 * US);
    assert_eq!(vic.on_completion(now, &Completion::with_cif(4)), Decision::Hold(HoldReason::Ratio));
    assert_eq!(vic.on_completion(now, &Completion::with_cif(3)), Decision::Deliver(Reason::LowCif));
    assert_eq!(vic.held(), 0);
    for _ in 0..7 {
        assert_eq!(
            vic.on_completion(now, &Completion::with_cif(64)),
            Decision::Hold(HoldReason::Ratio),
            "a whole cycle of 8"
        );
    }
    assert_eq!(vic.on_completion(now, &Completion::with_cif(64)), Decision::Deliver(Reason::Ratio));
}

#[test]
fn max_hold_is_met_exactly() {
    for (wait, expected) in [
        (500 * US - 1, Decision::Hold(HoldReason::Early)),
        (500 * US, Decision::Deliver(Reason::MaxHold)),
        (500 * US + 1, Decision::Deliver(Reason::MaxHold)),
    ] {
        let (mut vic, now) = warm(Params { live_clamp: false, ..Params::DEFAULT }, 64, 10 * US);
        assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
        assert!(!vic.on_completion(now + 400 * US, &Completion::with_cif(64)).is_deliver());
        assert_eq!(vic.deadline(), Some(now + 500 * US), "from the first one held");
        assert_eq!(vic.on_deadline(now + wait), expected, "after {wait} ns");
        if expected.is_deliver() {
            assert_eq!(vic.deadline(), None);
            assert_eq!(vic.on_deadline(now + wait), Decision::Hold(HoldReason::NothingHeld));
        }
    }
}

/// A completion after the deadline shares the deadline's interrupt, whatever other rule applies.
#[test]
fn an_expired_deadline_goes_first() {
    for (wait, expected) in [(500 * US - 1, Reason::LowCif), (500 * US, Reason::MaxHold)] {
        let (mut vic, now) = warm(Params { live_clamp: false, ..Params::DEFAULT }, 64, 10 * US);
        assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
        assert_eq!(vic.on_completion(now + wait, &Completion::with_cif(1)), Decision::Deliver(expected));
    }
}

/// The device stays busy: one completion may be held at any CIF above the threshold, two at 16, three at 24.
#[test]
fn live_clamp_at_every_step() {
    let params = Params { max_hold_ns: None, ..Params::DEFAULT };
    for (held, cif, expected) in [
        (0, 4, Decision::Hold(HoldReason::Ratio)),
        (1, 15, Decision::Deliver(Reason::LiveClamp)),
        (1, 16, Decision::Hold(HoldReason::Ratio)),
        (2, 23, Decision::Deliver(Reason::LiveClamp)),
        (2, 24, Decision::Hold(HoldReason::Ratio)),
    ] {
        let (mut vic, now) = warm(params, 64, 10 * US);
        for _ in 0..held {
            assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
        }
        assert_eq!(vic.on_completion(now, &Completion::with_cif(cif)), expected, "{held} held, CIF {cif}");
    }
}

/// However many are in flight: 32768 may be held at 2^32 - 1 of them and a threshold of 65535.
#[test]
fn live_clamp_at_the_end_of_its_range() {
    let longest = Params { max_skip: u16::MAX, max_hold_ns: None, ..Params::DEFAULT };
    let (mut vic, now) = warm(longest, u32::MAX, 10 * US);
    let strict = Config::new(Params { cif_threshold: u16::MAX, ..longest }).unwrap();
    assert_eq!(vic.flush(now), Decision::Hold(HoldReason::NothingHeld));
    assert!(!vic.reconfigure(strict, now).unwrap().is_deliver());
    let held =
        (0..65_534).take_while(|_| !vic.on_completion(now, &Completion::with_cif(u32::MAX)).is_deliver()).count();
    assert_eq!(held, 32_768);
}

const SLICE: u64 = 30 * MS;

/// At 1 ms between completions the first epoch has 202 completions in 201 ms; at R = 1/4 an interrupt comes every 4.
const WINDOW: u64 = (4 * 201 * MS).div_ceil(202);

/// Xen Figure 2: at R = 1/4, ten completions come in a timeslice. Two interrupts cover eight; two completions wait
/// until the guest runs again.
#[test]
fn xen_figure_2_completions_miss_the_timeslice() {
    let (mut vic, now) = warm(Params::PAPER, 32, 3 * MS / 10);
    assert_eq!(vic.ratio(), Ratio { count_up: 1, skip_up: 4 });
    let delivered =
        (1..=10).filter(|i| vic.on_completion(now + i * 100, &Completion::with_cif(32)).is_deliver()).count();
    assert_eq!((delivered, vic.held()), (2, 2));
}

/// Xen Figure 3: the same ten, with the end of the slice known: nothing is left over.
/// Xen Figure 4: the threshold is the time between two interrupts, 1 / (R * IOPS): here 4 completions, 1.2 ms.
#[test]
fn xen_figures_3_and_4_the_last_window_delivers_at_once() {
    let gap = 3 * MS / 10;
    let (mut vic, now) = warm(Params::PAPER, 32, gap);
    let slice_end = now + 10 * gap + 100;
    let decisions: Vec<_> = (1..=10).map(|i| vic.on_completion_in_slice(now + i * gap, 32, Some(slice_end))).collect();
    let hold = Decision::Hold(HoldReason::Ratio);
    let ratio = Decision::Deliver(Reason::Ratio);
    let slice = Decision::Deliver(Reason::SliceEnd);
    // The window is 4 gaps: from the seventh on, 3 gaps and 100 ns before the end, each is delivered.
    assert_eq!(decisions, [hold, hold, hold, ratio, hold, hold, slice, slice, slice, slice]);
}

/// The window is met exactly, and `margin` makes it longer.
#[test]
fn slice_window_at_its_edge() {
    for margin in [0, 200 * US] {
        let (vic, now) = warm(Params { margin_ns: margin, iops_threshold: 0, ..Params::PAPER }, 32, MS);
        for (left, delivers) in [(0, false), (1, true), (WINDOW + margin, true), (WINDOW + margin + 1, false)] {
            let mut vic = vic;
            let decision = vic.on_completion_in_slice(now, 32, Some(now + left));
            assert_eq!(decision.is_deliver(), delivers, "{left} ns left, margin {margin}");
            if left > WINDOW + margin {
                assert_eq!(vic.deadline(), Some(now + 1), "what is held goes out when the window begins");
                assert_eq!(vic.on_deadline(now + 1), Decision::Deliver(Reason::SliceEnd));
            }
        }
    }
}

/// Newest slice information wins, and "unknown" removes it.
#[test]
fn slice_information_is_replaced() {
    let (mut vic, now) = warm(Params { iops_threshold: 0, ..Params::PAPER }, 32, MS);
    let _ = vic.on_completion_in_slice(now, 32, Some(now + SLICE));
    assert_eq!(vic.deadline(), Some(now + SLICE - WINDOW));
    let _ = vic.on_completion_in_slice(now, 32, Some(now + 2 * SLICE));
    assert_eq!(vic.deadline(), Some(now + 2 * SLICE - WINDOW));
    let _ = vic.on_completion_in_slice(now, 32, None);
    assert_eq!(vic.deadline(), None);
}

/// A slice that ends later hides no other deadline; of two at the same instant `max_hold` is the reason.
#[test]
fn a_slice_hides_no_other_deadline() {
    let params = Params { iops_threshold: 0, live_clamp: false, ..Params::DEFAULT };
    for (slice_left, cif) in [(SLICE, 1), (SLICE, 32), (WINDOW + 500 * US, 1)] {
        let (mut vic, now) = warm(params, 32, MS);
        assert!(!vic.on_completion_in_slice(now, 32, Some(now + slice_left)).is_deliver());
        assert_eq!(vic.deadline(), Some(now + 500 * US));
        assert_eq!(
            vic.on_completion(now + 500 * US, &Completion::with_cif(cif)),
            Decision::Deliver(Reason::MaxHold),
            "{slice_left} ns left"
        );
    }
}

/// Xen, future work: a guest that runs half of the time and completes 3000 commands per second of running time is not
/// slow, though it completes 1500 per second.
#[test]
fn the_rate_counts_running_time_only() {
    for aware in [false, true] {
        let mut vic = Vic::new(config(Params::PAPER));
        for slice in 0..20 {
            let start = slice * 2 * SLICE;
            if aware {
                let _ = vic.on_schedule(start);
            }
            for i in 0..90 {
                let _ = vic.on_completion(start + i * SLICE / 90, &Completion::with_cif(64));
            }
            if aware {
                let _ = vic.on_deschedule(start + SLICE);
            }
        }
        assert_eq!(vic.ratio() != Ratio::ONE, aware);
    }
}

#[test]
fn schedule_and_deschedule_deliver_what_is_held() {
    type Verb = fn(&mut Vic, u64) -> Decision;
    let verbs: [(Verb, Reason); 3] =
        [(Vic::on_deschedule, Reason::Deschedule), (Vic::on_schedule, Reason::Schedule), (Vic::flush, Reason::Flush)];
    for (verb, reason) in verbs {
        let (mut vic, now) = warm(Params::PAPER, 64, 10 * US);
        assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
        assert_eq!(verb(&mut vic, now), Decision::Deliver(reason));
        assert_eq!(verb(&mut vic, now), Decision::Hold(HoldReason::NothingHeld));
    }
}

#[test]
fn a_clock_that_goes_back_keeps_the_bound() {
    let (mut vic, now) = warm(Params { live_clamp: false, ..Params::DEFAULT }, 64, 10 * US);
    assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
    let _ = vic.on_completion(now + 100 * US, &Completion::with_cif(64)); // 100 of 500 µs are over
    assert_eq!(vic.on_deadline(7), Decision::Hold(HoldReason::Early));
    assert_eq!(vic.deadline(), Some(7 + 400 * US));
    assert_eq!(vic.times_back(), 1);
    assert_eq!(vic.on_deadline(7 + 400 * US), Decision::Deliver(Reason::MaxHold));
}

#[test]
fn reconfigure_applies_to_what_is_held() {
    let with = |max_hold_ns| config(Params { max_hold_ns, live_clamp: false, ..Params::DEFAULT });
    let (vic, now) = warm(Params { live_clamp: false, ..Params::DEFAULT }, 64, 10 * US);
    for (max_hold_ns, expected) in [
        (Some(99 * US), Decision::Deliver(Reason::MaxHold)),
        (Some(100 * US), Decision::Deliver(Reason::MaxHold)),
        (Some(101 * US), Decision::Hold(HoldReason::Reconfigured)),
        (None, Decision::Hold(HoldReason::Reconfigured)),
    ] {
        let mut vic = vic;
        assert!(!vic.on_completion(now, &Completion::with_cif(64)).is_deliver());
        assert_eq!(vic.reconfigure(with(max_hold_ns), now + 100 * US), Ok(expected));
        assert_eq!(vic.config(), with(max_hold_ns));
    }
    let mut vic = vic;
    let other_clock = config(Params { tick_hz: 1_000_000, ..Params::DEFAULT });
    let error = vic.reconfigure(other_clock, 0).unwrap_err();
    assert_eq!(error.to_string(), "tick_hz is 1000000; allowed: 1000000000 to 1000000000");
    assert_eq!(vic.times_back(), 0, "refused whole: not even the time is looked at");
}

#[test]
fn parameters_at_their_bounds() {
    let ok = |params| assert!(Config::new(params).is_ok(), "{params:?}");
    let wrong =
        |params, message| assert_eq!(Config::new(params).map_err(|e| e.to_string()), Err(String::from(message)));
    let p = Params::DEFAULT;
    ok(Params { tick_hz: 1_000, ..p });
    ok(Params { tick_hz: 10_000_000_000, ..p });
    wrong(Params { tick_hz: 999, ..p }, "tick_hz is 999; allowed: 1000 to 10000000000");
    wrong(Params { tick_hz: 10_000_000_001, ..p }, "tick_hz is 10000000001; allowed: 1000 to 10000000000");
    ok(Params { cif_threshold: 2, ..p });
    wrong(Params { cif_threshold: 1, ..p }, "cif_threshold is 1; allowed: 2 to 65535");
    ok(Params { epoch_ns: MS, ..p });
    ok(Params { epoch_ns: 60_000 * MS, ..p });
    wrong(Params { epoch_ns: MS - 1, ..p }, "epoch_ns is 999999; allowed: 1000000 to 60000000000");
    wrong(Params { epoch_ns: 60_000 * MS + 1, ..p }, "epoch_ns is 60000000001; allowed: 1000000 to 60000000000");
    ok(Params { max_skip: 2, ..p });
    wrong(Params { max_skip: 1, ..p }, "max_skip is 1; allowed: 2 to 65535");
    ok(Params { max_hold_ns: Some(1), ..p });
    ok(Params { max_hold_ns: Some(1_000 * MS), ..p });
    wrong(Params { max_hold_ns: Some(0), ..p }, "max_hold_ns is 0; allowed: 1 to 1000000000");
    wrong(Params { max_hold_ns: Some(1_000 * MS + 1), ..p }, "max_hold_ns is 1000000001; allowed: 1 to 1000000000");
    ok(Params { margin_ns: 100 * MS, ..p });
    wrong(Params { margin_ns: 100 * MS + 1, ..p }, "margin_ns is 100000001; allowed: 0 to 100000000");
    // A promise is rounded down but kept: half a tick is one tick.
    let config = config(Params { tick_hz: 1_000, max_hold_ns: Some(500 * US), ..p });
    assert_eq!(config.max_hold(), Some(1));
}

/// vIC §3.3: send if the last virtual interrupt is more than the threshold ago.
#[test]
fn ipi_gate_at_its_threshold() {
    let gate = IpiGate::new(IpiParams::PAPER).expect("valid");
    assert_eq!(gate.should_send(0), Ipi::Send, "never delivered");
    gate.delivered(MS);
    let until = MS + 100 * US + 1;
    for (now, expected) in [
        (MS, Ipi::Defer { until }),
        (MS + 100 * US, Ipi::Defer { until }),
        (until, Ipi::Send),
        (MS - 100 * US, Ipi::Defer { until }),
        (MS - 100 * US - 1, Ipi::Send), // the stamp is too far in the future
    ] {
        assert_eq!(gate.should_send(now), expected, "at {now}");
    }
    gate.delivered(u64::MAX);
    assert_eq!(gate.should_send(u64::MAX - 1), Ipi::Defer { until: u64::MAX });
    assert_eq!(gate.should_send(u64::MAX), Ipi::Send, "at the end of the clock everything is due");
    assert!(IpiGate::new(IpiParams { threshold_ns: 1_000 * MS + 1, ..IpiParams::PAPER }).is_err());
    assert!(IpiGate::new(IpiParams { tick_hz: 999, threshold_ns: 0 }).is_err());
}

#[test]
fn statistics_add_up() {
    let (mut vic, mut now) = warm(Params::DEFAULT, 64, 10 * US);
    let mut stats = Stats::ZERO;
    for i in 0..1000 {
        now += 10 * US;
        let _ = stats.count(vic.on_completion(now, &Completion::with_cif(i % 70)));
    }
    let _ = stats.count(vic.flush(now));
    let _ = stats.count(vic.flush(now));
    let delivered = |reason| stats.of(Decision::Deliver(reason));
    let held = |reason| stats.of(Decision::Hold(reason));
    let counts =
        [delivered(Reason::LowCif), delivered(Reason::Ratio), delivered(Reason::LiveClamp), held(HoldReason::Ratio)];
    assert_eq!(counts.iter().sum::<u64>(), 1000);
    assert!(counts.iter().all(|count| *count > 0), "{stats:?}");
    assert_eq!(delivered(Reason::Flush) + held(HoldReason::NothingHeld), 2);
}
