//! What a replay gave: as tables, as JSON, as a report.

use super::{LATENCY_MAX, Optimum, Outcome, Replay};
use crate::cycles::Cycles;
use crate::report::summary::Summary;
use crate::report::text::{aligned, mean_us, us};
use crate::report::{Entry, Held, Percentiles, Report, Section};
use crate::trace::{Counts, Format, Trace};
use coalesce_cli::counted;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Times of this many ns and more do not show what completes together.
const COARSE: u64 = 1_000_000;
/// The part of the time in flight that may be that of commands whose completion is missing: as much as the CPU time that is
/// called worth it.
const MISSING_MAX: f64 = 0.05;
/// The part of the events whose time may be another's.
const LATE_MAX: f64 = 0.05;

/// What was read, in words.
pub fn about(trace: &Trace, span_ns: u64) -> String {
    let Counts { lines, completions, in_flight_max, .. } = trace.counts();
    let queues = trace.queues().len();
    format!(
        "{}: {}, {} in {:.3} s, {}, at most {in_flight_max} in flight",
        name_of(trace),
        counted(lines, "line"),
        counted(completions, "completion"),
        span_ns as f64 / 1e9,
        counted(queues as u64, "queue"),
    )
}

/// Everything that is not as it should be.
pub fn notes(trace: &Trace) -> Vec<String> {
    let counts = trace.counts();
    let all = [
        (counts.malformed, "malformed lines, skipped"),
        (counts.cut, "last line, which has no end, skipped"),
        (counts.unmatched, "completions without a submission, which came before the trace or was lost by it"),
        (counts.lost, "events that the recorder says it lost"),
        (counts.queued, "commands submitted when they were queued, as their device (dm, md) has no requests"),
        (counts.requeued, "commands requeued, in flight until they complete"),
        (counts.resubmitted, "commands submitted again while in flight, whose completions are missing"),
        (counts.in_flight_end, "commands still in flight at the end"),
        (counts.out_of_order, "lines out of order, sorted by time"),
        (counts.late, "events too far out of order to sort, each at the time of the event before it"),
        (counts.failed, "commands failed"),
        (counts.interrupts, "interrupts recorded in the trace"),
    ];
    let mut notes: Vec<_> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect();
    if trace.resolution() >= COARSE {
        notes.push(
            "times are in ms, too coarse for coalescing: completions within the same ms look simultaneous".into(),
        );
    }
    notes
}

/// Latencies that are longer than what is recorded of them.
pub fn about_latencies(replay: &Replay) -> Option<String> {
    (replay.long > 0).then(|| {
        let seconds = LATENCY_MAX / 1_000_000_000;
        format!(
            "commands in flight for more than {seconds} s, which count as {seconds} s in latencies: {}",
            replay.long
        )
    })
}

/// Why nothing can be said of a policy's worth; `None`: it can.
fn no_answer(trace: &Trace, replay: &Replay) -> Option<String> {
    if trace.resolution() >= COARSE {
        let record = match trace.format() {
            Some(Format::Fio) => "fio's clat log with log_issue_time=1 and log_offset=1 (fio 3.38 or newer)",
            _ => "events of the NVMe driver or of the block layer (perf script --ns, blktrace)",
        };
        return Some(format!(
            "times are in ms, so what completes within one looks simultaneous, and that an interrupt for all of it is enough is no \
             saving that a policy could have had. Record {record}: these times are in ns"
        ));
    }
    let Counts { late, submissions, completions, .. } = trace.counts();
    let events = submissions + completions;
    if late as f64 > LATE_MAX * events as f64 {
        return Some(format!(
            "{late} of {events} events are too far out of order to sort. Where a clock began again, it is more than one recording: \
             replay each by itself"
        ));
    }
    let (missing, Counts { resubmitted, in_flight_end, submissions, .. }) = (replay.missing_share(), trace.counts());
    (missing > MISSING_MAX).then(|| {
        format!(
            "the completions of {} are missing, of {submissions} submitted, and {:.0} % of the time in flight is what these \
             seem to take. A policy would see more in flight than there was. Record for longer, or so that no event is lost \
             (blktrace -b, perf record -m)",
            counted(resubmitted + in_flight_end, "command"),
            100.0 * missing,
        )
    })
}

fn name_of(trace: &Trace) -> String {
    trace.format().map_or("unknown", Format::name).into()
}

/// What one has to know of a trace to repeat what was done with it.
pub fn facts(trace: &Trace, name: &str, span_ns: u64, cycles: Cycles) -> Vec<(String, String)> {
    let Counts { lines, completions, in_flight_max, .. } = trace.counts();
    let Cycles { io, interrupt } = cycles;
    let facts = [
        ("Trace", name.to_owned()),
        ("Format", name_of(trace)),
        ("Lines", lines.to_string()),
        ("Completions", completions.to_string()),
        ("Time", format!("{:.3} s", span_ns as f64 / 1e9)),
        ("Queues", trace.queues().len().to_string()),
        ("Most in flight", in_flight_max.to_string()),
        ("CPU cycles", format!("{io} for an I/O, {interrupt} for an interrupt")),
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What a policy did, for tables and pictures.
pub fn entry(replay: &Replay, outcome: &Outcome, cycles: Cycles) -> Entry {
    let held = &outcome.held_time;
    Entry {
        policy: outcome.contender.to_string(),
        interrupts: Some(outcome.interrupts),
        interrupts_per_io: outcome.interrupts_per_io(),
        iops: None,
        cycles_per_io: Some(cycles.per_io(outcome.interrupts_per_io())),
        request_time: (!outcome.latency.is_empty()).then(|| outcome.latency.mean()),
        held: Some(Held {
            share: replay.held_share(outcome),
            trials: replay.share(outcome, held.trials),
            licensed: replay.share(outcome, held.licensed),
        }),
        optimum: outcome.optimum,
        latency: Percentiles::of(&outcome.latency),
        delay: Percentiles::of(&outcome.delay),
        bound: outcome.bound,
        late: outcome.verdict.late,
        wrong: outcome.verdict.wrong,
        reasons: outcome.stats.delivered().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        timeline: outcome.timeline.clone(),
    }
}

/// All that a replay of the trace `name` says. `notes`: of the trace and of how it was replayed.
pub fn report(trace: &Trace, replay: &Replay, name: &str, notes: &[String], cycles: Cycles) -> Report {
    let entries: Vec<_> = replay.outcomes.iter().map(|outcome| entry(replay, outcome, cycles)).collect();
    Report {
        title: "Interrupt coalescing, replayed".into(),
        lead: "What each policy would have done with the completions of a trace. The requester does not react: it \
               submits when it did. These numbers do not show what a delay would have done to the load."
            .into(),
        facts: facts(trace, name, replay.span, cycles),
        notes: notes.to_vec(),
        summary: Some(Summary::of(&entries, cycles, replay.completions_max, no_answer(trace, replay))),
        sections: vec![Section { entries, ..Section::default() }],
    }
}

const HEADS: [&str; 8] = ["policy", "I/O per interrupt", "delay us mean", "p50", "p99", "p99.9", "worst", "bound us"];

/// For a terminal: the summary, and what it leaves out.
pub fn table(trace: &Trace, replay: &Replay, report: &Report, shows_optimum: bool) -> String {
    let line = |outcome: &Outcome| {
        let delay = |percent| us(outcome.delay.value_at_quantile(percent / 100.0));
        [
            outcome.contender.to_string(),
            format!("{:.2}", outcome.completions as f64 / outcome.interrupts.max(1) as f64),
            mean_us(outcome.delay.mean()),
            delay(50.0),
            delay(99.0),
            delay(99.9),
            us(outcome.delay.max()),
            outcome.bound.map_or_else(|| "none".into(), us),
        ]
    };
    let notes = report.notes.iter().map(|note| format!("note: {note}\n"));
    let mut text = about(trace, replay.span) + "\n" + &notes.collect::<String>() + "\n";
    text += &report.summary.as_ref().map_or_else(String::new, Summary::text);
    text += &format!("\n{}", aligned(&HEADS, &replay.outcomes.iter().map(line).collect::<Vec<_>>()));
    for outcome in &replay.outcomes {
        let verdict = &outcome.verdict;
        if !verdict.is_clean() {
            text += &format!("VIOLATED: {}: {} late, {} wrong\n", outcome.contender, verdict.late, verdict.wrong);
            for violation in &verdict.violations {
                text += &format!("    at {} ns: {}\n", violation.at, violation.what);
            }
        }
    }
    if let Some(optimum) = replay.optimum.as_ref().filter(|_| shows_optimum) {
        text += &optimum_table(optimum, replay);
    }
    text
}

fn optimum_table(optimum: &Optimum, replay: &Replay) -> String {
    let Optimum { wanted, interrupts } = optimum;
    let times = |outcome: &Outcome, fewest: u64| format!("{:.2}", outcome.interrupts as f64 / fewest.max(1) as f64);
    let line = |outcome: &Outcome| {
        let fewest = outcome.optimum.unwrap_or_default();
        [
            outcome.contender.to_string(),
            outcome.interrupts.to_string(),
            format!("{:.2}", 100.0 * replay.held_share(outcome)),
            fewest.to_string(),
            times(outcome, fewest),
            times(outcome, *interrupts),
        ]
    };
    let at_budget = format!("times that at {}", wanted.budget);
    let heads = ["policy", "interrupts", "held %", "optimum", "times it", &at_budget];
    let longest = wanted.max_hold.map_or_else(String::new, |ns| format!(", nothing longer than {} us", us(ns)));
    format!(
        "\noptimum for the time that each policy held; at {}{longest} it is {}\n",
        wanted.budget,
        counted(*interrupts, "interrupt"),
    ) + &aligned(&heads, &replay.outcomes.iter().map(line).collect::<Vec<_>>())
}

fn nanoseconds(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// For programs: `docs/json.md`.
pub fn to_json(trace: &Trace, replay: &Replay, report: &Report, cycles: Cycles) -> Value {
    let optimum = replay.optimum.as_ref().map(|optimum| {
        json!({
            "budget": optimum.wanted.budget.to_string(),
            "max_hold_ns": optimum.wanted.max_hold,
            "interrupts": optimum.interrupts,
        })
    });
    json!({
        "format": trace.format(),
        "trace": trace.counts(),
        "queues": trace.queues(),
        "notes": report.notes,
        "span_ns": replay.span,
        "in_flight_time_ns": nanoseconds(replay.in_flight_time),
        "missing_time_ns": nanoseconds(replay.missing_time),
        "cycles": cycles,
        "answer": report.summary.as_ref().map(|summary| &summary.answer),
        "optimum": optimum,
        "policies": replay.outcomes.iter().map(|outcome| policy_to_json(replay, outcome, cycles)).collect::<Vec<_>>(),
    })
}

/// One of `policies`.
pub fn policy_to_json(replay: &Replay, outcome: &Outcome, cycles: Cycles) -> Value {
    let counts = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| -> BTreeMap<&str, u64> {
        counts.filter(|(_, count)| *count > 0).collect()
    };
    let held = &outcome.held_time;
    json!({
        "policy": outcome.contender.to_string(),
        "completions": outcome.completions,
        "interrupts": outcome.interrupts,
        "interrupts_per_io": outcome.interrupts_per_io(),
        "optimum": outcome.optimum,
        "cycles_per_io": cycles.per_io(outcome.interrupts_per_io()),
        "cpu": cycles.over_none(outcome.interrupts_per_io()),
        "held_share": replay.held_share(outcome),
        "held_time_ns": nanoseconds(held.all()),
        "trial_time_ns": nanoseconds(held.trials),
        "licensed_time_ns": nanoseconds(held.licensed),
        "delay_ns": distribution(&outcome.delay),
        "lat_ns": distribution(&outcome.latency),
        "bound_ns": outcome.bound,
        "late": outcome.verdict.late,
        "wrong": outcome.verdict.wrong,
        "violations": outcome.verdict.violations,
        "delivered": counts(&mut outcome.stats.delivered()),
        "held": counts(&mut outcome.stats.held()),
    })
}

/// A distribution in fio's words.
fn distribution(values: &Histogram<u64>) -> Value {
    let percentile = |percent: f64| (format!("{percent:.6}"), values.value_at_quantile(percent / 100.0));
    let percentiles: BTreeMap<_, _> = [50.0, 90.0, 99.0, 99.9, 99.99].into_iter().map(percentile).collect();
    json!({
        "N": values.len(),
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "stddev": values.stdev(),
        "percentile": percentiles,
    })
}
