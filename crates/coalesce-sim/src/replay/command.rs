//! `coalesce-sim replay`: the command line, and what it prints.

use super::optimum::{Budget, Wanted};
use super::trace::{Counts, Format, Options, Trace};
use super::{Optimum, Outcome, Replay, replay, replay_beside_optimum};
use crate::contender::{Contender, own};
use crate::report::page::picture;
use crate::report::{Entry, Outputs, Percentiles, Report, Section, refuse_input, write};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use coalesce_charts::counted;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

/// How a trace is read.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The trace; - is standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Format of the trace [default: detected from its first line]
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// Skip malformed lines, and count them
    #[arg(long)]
    pub lenient: bool,

    /// blkparse, events of the block layer: one interrupt vector per submitting CPU, instead of one per device
    #[arg(long)]
    pub per_cpu: bool,
}

impl TraceArgs {
    /// Opens the trace.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self) -> Result<Trace> {
        let Self { format, lenient, per_cpu, .. } = *self;
        Trace::open(&self.trace, Options { format, lenient, per_cpu })
    }
}

/// Replay a trace: what each policy would have done with the same completions at the same times
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Command {
    #[command(flatten)]
    trace: TraceArgs,

    /// Policy to replay, may be repeated: any that `coalesce-target policies` lists, xen_as_published,
    /// cint_storm_as_published
    /// [default: none, nvme, spdk_vhost, dim, vic, cint, auto]
    #[arg(long = "policy", value_name = "TEXT")]
    policies: Vec<Contender>,

    /// Print JSON: fio's names, times in ns
    #[arg(long)]
    json: bool,

    /// Start of the report's timelines, from the trace's first event: 2s, 350ms [default: in its second half]
    #[arg(long, value_name = "TIME", value_parser = coalesce_policy::parse_duration)]
    at: Option<u64>,

    /// Compare each policy with the fewest interrupts possible. Needs memory for each completion: see THE OPTIMUM below
    #[arg(long)]
    optimum: bool,

    /// How much of the time of all requests, from submission to interrupt, an optimum for all policies may add by
    /// holding: 5%, 0.5%
    #[arg(long, value_name = "SHARE", default_value = "5%", requires = "optimum")]
    budget: Budget,

    /// How long that optimum may hold a completion: 200us [default: no limit but the budget]
    #[arg(long, value_name = "TIME", requires = "optimum", value_parser = coalesce_policy::parse_duration)]
    max_hold: Option<u64>,

    /// Write the report's timelines as a picture of their own (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    outputs: Outputs,
}

const EXAMPLES: &str = "\
TIMES
  `time us` is the mean that a request takes its requester, from its submission
  until the interrupt for it: the requester reaps at once. `delay us` is the part
  from completion to interrupt.

THE OPTIMUM
  A policy decides without knowing what will complete next. --optimum computes,
  with the whole trace known, how much that costs:
  - beside each policy, the fewest interrupts that could have delivered the same
    completions with no more wait in total, and no longer single wait, than the
    policy has or allows. `times it` is 1.00 if nothing can be gained.
  - for all policies, the fewest interrupts if waiting adds no more than --budget
    to the time of all requests. A policy that holds more than this may raise
    fewer: compare `held %`.
  No policy beats the first. It delivers at once what is urgent, if the policy did:
  what failed or is said to be urgent, flushes, durable writes, and requests of
  real-time priority. The second always does.

EXAMPLES
  How far each policy is from the best that could be done by delaying requests by 5 %, or by 1 %:
      coalesce-sim replay disk.trace --optimum
      coalesce-sim replay disk.trace --optimum --budget 1% --max-hold 100us
  A disk of this machine for ten seconds, under every policy:
      blktrace -d /dev/nvme0n1 -w 10 -o - | blkparse -i - | coalesce-sim replay -
  An NVMe disk's queues, from the events of Linux's driver (docs/traces.md has more formats):
      perf record -a -e nvme:nvme_setup_cmd,nvme:nvme_complete_rq -- sleep 10
      perf script --ns | coalesce-sim replay -
  Three policies only:
      coalesce-sim replay disk.trace --policy none --policy nvme:thr=7,time=100us \\
          --policy cint:delta=6us
  A trace that a running target recorded:
      coalesce-target serve --socket /tmp/s --memory 1G --record disk.jsonl
      coalesce-sim replay disk.jsonl

The requester of a trace does not react to the policy: it submits when it did. Interrupts and delays are exact for that \
load. The times of completions already contain what the recorded host's own interrupts cost.";

/// What a trace is replayed under if nothing is said.
const DEFAULT_POLICIES: [&str; 7] = ["none", "nvme", "spdk_vhost", "dim", "vic", "cint", "auto"];

impl Command {
    /// Replays, and prints.
    ///
    /// # Errors
    /// The trace is malformed or cannot be read, or is one of the outputs; or a policy is not right for it.
    pub fn run(&self) -> Result<()> {
        refuse_input(&self.trace.trace, self.outputs.files().chain(&self.plot))?;
        let policies = match self.policies.as_slice() {
            [] => {
                let ours = DEFAULT_POLICIES.iter().map(|text| text.parse());
                ours.chain(own().map(Ok)).collect::<Result<Vec<_>, _>>()?
            }
            policies => policies.to_vec(),
        };
        let name = self.trace.trace.display();
        let mut trace = self.trace.open()?;
        let wanted = Wanted { budget: self.budget, max_hold: self.max_hold };
        let replay = match self.optimum {
            true => replay_beside_optimum(&mut trace, &policies, self.at, wanted),
            false => replay(&mut trace, &policies, self.at),
        };
        let replay = replay.with_context(|| format!("trace {name}"))?;
        if trace.counts().completions == 0 {
            bail!("trace {name}: no completion in {}", counted(trace.counts().lines, "line"));
        }
        let report = report(&trace, &replay, &name.to_string());
        self.outputs.write(&report)?;
        if let Some(path) = &self.plot {
            write(path, &picture(&report).context("--plot")?)?;
        }
        let text = if self.json {
            serde_json::to_string_pretty(&to_json(&trace, &replay))? + "\n"
        } else {
            table(&trace, &replay)
        };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")
    }
}

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
        (counts.resubmitted, "commands submitted again while in flight, whose completions are missing"),
        (counts.in_flight_end, "commands still in flight at the end"),
        (counts.out_of_order, "lines out of order, sorted by time"),
        (counts.late, "events too far out of order to sort, each at the time of the event before it"),
        (counts.failed, "commands failed"),
        (counts.interrupts, "interrupts recorded in the trace"),
    ];
    let mut notes: Vec<_> =
        all.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect();
    if trace.resolution() >= 1_000_000 {
        notes.push(
            "times are in ms, too coarse for coalescing: completions within the same ms look simultaneous".into(),
        );
    }
    notes
}

/// What was read, and a line for each note.
pub fn heading(trace: &Trace, span_ns: u64) -> String {
    let notes = notes(trace).into_iter().map(|note| format!("note: {note}\n"));
    about(trace, span_ns) + "\n" + &notes.collect::<String>() + "\n"
}

fn name_of(trace: &Trace) -> String {
    trace.format().map_or("unknown", Format::name).into()
}

/// What one has to know of a trace to repeat what was done with it.
pub fn facts(trace: &Trace, name: &str, span_ns: u64) -> Vec<(String, String)> {
    let Counts { lines, completions, in_flight_max, .. } = trace.counts();
    let facts = [
        ("Trace", name.to_owned()),
        ("Format", name_of(trace)),
        ("Lines", lines.to_string()),
        ("Completions", completions.to_string()),
        ("Time", format!("{:.3} s", span_ns as f64 / 1e9)),
        ("Queues", trace.queues().len().to_string()),
        ("Most in flight", in_flight_max.to_string()),
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

fn report(trace: &Trace, replay: &Replay, name: &str) -> Report {
    let entry = |outcome: &Outcome| Entry {
        policy: outcome.contender.to_string(),
        interrupts_per_io: outcome.interrupts_per_io(),
        iops: None,
        cycles_per_io: None,
        request_time: (!outcome.latency.is_empty()).then(|| outcome.latency.mean()),
        latency: Percentiles::of(&outcome.latency),
        delay: Percentiles::of(&outcome.delay),
        bound: outcome.bound,
        late: outcome.verdict.late,
        wrong: outcome.verdict.wrong,
        reasons: outcome.stats.delivered().map(|(reason, count)| (reason.to_owned(), count)).collect(),
        timeline: outcome.timeline.clone(),
    };
    Report {
        title: "Interrupt coalescing, replayed".into(),
        lead: "What each policy would have done with the completions of a trace. The requester does not react: it \
               submits when it did. These numbers do not show what a delay would have done to the load."
            .into(),
        facts: facts(trace, name, replay.span),
        notes: notes(trace),
        sections: vec![Section { entries: replay.outcomes.iter().map(entry).collect(), ..Section::default() }],
    }
}

const HEADS: [&str; 11] = [
    "policy",
    "interrupts",
    "per I/O",
    "I/O per interrupt",
    "time us",
    "delay us mean",
    "p50",
    "p99",
    "p99.9",
    "worst",
    "bound us",
];

fn table(trace: &Trace, replay: &Replay) -> String {
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let line = |outcome: &Outcome| {
        let delay = |percent| us(outcome.delay.value_at_quantile(percent / 100.0) as f64);
        [
            outcome.contender.to_string(),
            outcome.interrupts.to_string(),
            format!("{:.3}", outcome.interrupts_per_io()),
            format!("{:.2}", outcome.completions as f64 / outcome.interrupts.max(1) as f64),
            us(outcome.latency.mean()),
            us(outcome.delay.mean()),
            delay(50.0),
            delay(99.0),
            delay(99.9),
            us(outcome.delay.max() as f64),
            outcome.bound.map_or_else(|| "none".into(), |bound| us(bound as f64)),
        ]
    };
    let mut text = heading(trace, replay.span);
    text += &crate::report::text::aligned(&HEADS, &replay.outcomes.iter().map(line).collect::<Vec<_>>());
    for outcome in &replay.outcomes {
        let verdict = &outcome.verdict;
        if !verdict.is_clean() {
            text += &format!("VIOLATED: {}: {} late, {} wrong\n", outcome.contender, verdict.late, verdict.wrong);
            for violation in &verdict.violations {
                text += &format!("    at {} ns: {}\n", violation.at, violation.what);
            }
        }
    }
    if let Some(optimum) = &replay.optimum {
        text += &optimum_table(optimum, replay);
    }
    text
}

fn optimum_table(optimum: &Optimum, replay: &Replay) -> String {
    let Optimum { wanted, interrupts, .. } = optimum;
    let times = |outcome: &Outcome, fewest: u64| format!("{:.2}", outcome.interrupts as f64 / fewest.max(1) as f64);
    let line = |outcome: &Outcome| {
        let fewest = outcome.optimum.unwrap_or_default();
        [
            outcome.contender.to_string(),
            outcome.interrupts.to_string(),
            format!("{:.2}", 100.0 * outcome.held_share(optimum)),
            fewest.to_string(),
            times(outcome, fewest),
            times(outcome, *interrupts),
        ]
    };
    let at_budget = format!("times that at {}", wanted.budget);
    let heads = ["policy", "interrupts", "held %", "optimum", "times it", &at_budget];
    let longest =
        wanted.max_hold.map_or_else(String::new, |ns| format!(", nothing longer than {:.1} us", ns as f64 / 1e3));
    format!(
        "\noptimum for the time that each policy held; at {}{longest} it is {}\n",
        wanted.budget,
        counted(*interrupts, "interrupt"),
    ) + &crate::report::text::aligned(&heads, &replay.outcomes.iter().map(line).collect::<Vec<_>>())
}

fn to_json(trace: &Trace, replay: &Replay) -> Value {
    let nanoseconds = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
    let policy = |outcome: &Outcome| {
        let counts = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| -> BTreeMap<&str, u64> {
            counts.filter(|(_, count)| *count > 0).collect()
        };
        let mut value = json!({
            "policy": outcome.contender.to_string(),
            "completions": outcome.completions,
            "interrupts": outcome.interrupts,
            "interrupts_per_io": outcome.interrupts_per_io(),
            "delay_ns": distribution(&outcome.delay),
            "lat_ns": distribution(&outcome.latency),
            "bound_ns": outcome.bound,
            "late": outcome.verdict.late,
            "wrong": outcome.verdict.wrong,
            "violations": outcome.verdict.violations,
            "delivered": counts(&mut outcome.stats.delivered()),
            "held": counts(&mut outcome.stats.held()),
        });
        if let (Some(optimum), Some(fewest)) = (&replay.optimum, outcome.optimum) {
            value["held_time_ns"] = nanoseconds(outcome.held_time).into();
            value["held_share"] = outcome.held_share(optimum).into();
            value["optimum"] = fewest.into();
        }
        value
    };
    let mut value = json!({
        "format": trace.format(),
        "trace": trace.counts(),
        "queues": trace.queues(),
        "span_ns": replay.span,
        "policies": replay.outcomes.iter().map(policy).collect::<Vec<_>>(),
    });
    if let Some(Optimum { wanted, in_flight_time, interrupts }) = &replay.optimum {
        value["optimum"] = json!({
            "budget": wanted.budget.to_string(),
            "max_hold_ns": wanted.max_hold,
            "in_flight_time_ns": nanoseconds(*in_flight_time),
            "interrupts": interrupts,
        });
    }
    value
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
