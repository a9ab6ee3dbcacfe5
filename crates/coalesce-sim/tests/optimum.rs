//! No policy raises fewer interrupts than the optimum beside it.

use coalesce_sim::contender::{Contender, PUBLISHED};
use coalesce_sim::replay::optimum::Wanted;
use coalesce_sim::replay::{Replay, replay_beside_optimum};
use coalesce_sim::trace::{Options, Trace};
use rand_core::Rng as _;
use rand_pcg::Pcg32;
use std::io::Cursor;

/// A number below `below`.
fn number(random: &mut Pcg32, below: u32) -> u64 {
    (u64::from(random.next_u32()) * u64::from(below)) >> 32
}

/// A trace of up to `queues` queues, with bursts, ties, and everything that makes a request urgent.
fn trace(seed: u64, queues: u32) -> String {
    let random = &mut Pcg32::new(seed, 7);
    let (queues, requests) = (1 + number(random, queues), 20 + number(random, 400));
    let (pace, latency) =
        ([10, 1_000, 20_000][number(random, 3) as usize], [100, 10_000, 300_000][number(random, 3) as usize]);
    let urgent = [0, 5, 50][number(random, 3) as usize];
    let (mut at, mut lines) = (1_000_000, Vec::new());
    for id in 0..requests {
        at += if number(random, 10) == 0 { number(random, 50 * pace) } else { number(random, pace) };
        let queue = number(random, queues as u32);
        let said = match number(random, 100) {
            n if n >= urgent => "",
            n => [
                r#","hint":"urgent""#,
                r#","hint":"barrier""#,
                r#","op":"flush""#,
                r#","durable":true"#,
                r#","ioprio":8192"#,
            ][n as usize % 5],
        };
        let failed = if number(random, 200) < urgent { r#","failed":true"# } else { "" };
        // Hundreds of ns, so that completions meet.
        let end = at + (number(random, latency) + 1) / 100 * 100;
        let line = |at, event, more| {
            format!("{{\"time_ns\":{at},\"queue\":{queue},\"event\":\"{event}\",\"id\":{id}{more}}}\n")
        };
        lines.push((at, line(at, "submit", said)));
        lines.push((end, line(end, "complete", failed)));
    }
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Every kind of policy, with parameters that make it hold a lot and a little.
fn contenders() -> Vec<Contender> {
    let texts = [
        "none",
        "batch",
        "dim",
        "nvme",
        "nvme:thr=3,time=100us",
        "spdk_vhost:delay_base_us=50,iops_threshold=10000",
        "vic",
        "vic:profile=paper,iops_threshold=0,epoch=1ms",
        "vic:cif_threshold=2,iops_threshold=0,epoch=1ms,max_hold=50us",
        "cint",
        "cint:profile=optane",
        "cint:delta=1us,thr=4,in_flight=off,hints=all",
        "cint:delta=50us,ooo=off,in_flight=off,max_hold=off",
        "cint:delta=0s,barrier=strict,hints=all",
        "cint:in_flight=off,storm=100k,max_hold=20us",
        "auto",
        "auto:budget=25%,max_hold=200us",
        "budget:budget=2%,thr=4",
        "auto:ooo=on,storm=10k,max_hold=200us",
    ];
    let published = PUBLISHED.map(|published| published.name);
    texts.into_iter().chain(published).map(|text| text.parse().unwrap()).collect()
}

fn replayed(text: String, contenders: &[Contender], budget: &str, max_hold: Option<u64>) -> Replay {
    let mut trace = Trace::new(Box::new(Cursor::new(text.into_bytes())), Options::default());
    let wanted = Wanted { budget: budget.parse().unwrap(), max_hold, most: None };
    replay_beside_optimum(&mut trace, contenders, None, wanted).unwrap()
}

#[test]
fn nobody_beats_it() {
    let contenders = contenders();
    let (mut reached, mut missed) = (0, 0);
    for seed in 0..200 {
        for outcome in replayed(trace(seed, 3), &contenders, "5%", None).outcomes {
            let optimum = outcome.optimum.unwrap();
            assert!(outcome.verdict.is_clean(), "seed {seed}, {}: {:?}", outcome.contender, outcome.verdict);
            let interrupts = outcome.interrupts;
            assert!(interrupts >= optimum, "seed {seed}, {}: {interrupts} of {optimum}", outcome.contender);
            *if interrupts == optimum { &mut reached } else { &mut missed } += 1;
        }
    }
    assert!(reached > 300 && missed > 300, "{reached} reached it, {missed} did not");
}

/// A policy that keeps to the budget and delivers at once what is urgent does not beat that one either.
#[test]
fn within_the_budget_nobody_beats_the_other() {
    let texts = ["none", "cint:in_flight=off,hints=all,ooo=off,delta=2us", "cint:thr=2", "cint"];
    let contenders = texts.map(|text| text.parse().unwrap());
    let (mut within, mut beyond) = (0, 0);
    for seed in 0..300 {
        let replay = replayed(trace(seed, 1), &contenders, "5%", None);
        let optimum = replay.optimum.unwrap();
        for outcome in &replay.outcomes {
            let is_within = replay.held_share(outcome) <= 0.05;
            assert!(!is_within || outcome.interrupts >= optimum.interrupts, "seed {seed}, {}", outcome.contender);
            *if is_within { &mut within } else { &mut beyond } += 1;
        }
    }
    assert!(within > 300 && beyond > 100, "{within} within, {beyond} beyond");
}

/// More may be held: no more interrupts. A bound for each wait: no fewer.
#[test]
fn it_follows_the_budget_and_the_bound() {
    for seed in 0..50 {
        let of = |budget, max_hold| replayed(trace(seed, 3), &[], budget, max_hold).optimum.unwrap().interrupts;
        let by_budget = ["0%", "1%", "5%", "50%", "99%"].map(|budget| of(budget, None));
        assert!(by_budget.is_sorted_by(|a, b| a >= b), "{by_budget:?}");
        let by_bound = [None, Some(100_000), Some(1_000), Some(0)].map(|max_hold| of("50%", max_hold));
        assert!(by_bound.is_sorted() && by_bound[3] == by_budget[0], "{by_bound:?}, {by_budget:?}");
    }
}
