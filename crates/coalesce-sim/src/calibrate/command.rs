//! `coalesce-sim calibrate`: the command line, what it prints, and the evidence as pictures.

use super::{CLOCK_HZ, Chosen, Gaps, THRS, Terms, Tried, micros, of_device, of_trace, on_device};
use crate::contender::Contender;
use crate::cycles::Cycles;
use crate::outcome::Outcome;
use crate::plan::Preset;
use crate::replay::command::TraceArgs;
use crate::replay::optimum::Budget;
use crate::replay::replay;
use crate::replay::report::{about, entry, facts, notes, policy_to_json};
use crate::report::summary::{HEADS, Summary};
use crate::report::text::{self, us};
use crate::report::{Report, page, refuse_mistaken, write};
use crate::trace::Format;
use anyhow::{Context as _, Result, bail};
use clap::{ArgGroup, Args};
use coalesce_charts::chart::{Head, Line, X_RANGE, Y_RANGE, plot};
use coalesce_charts::html;
use coalesce_charts::scale::Scale;
use coalesce_charts::series::Series;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as ValueError;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Find Δ and thr of cint for a load (cinterrupts §5.2), with the evidence, and what they would do
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("source").required(true).args(["trace", "device"]))]
pub struct Command {
    /// A trace of the load, with many commands in flight; it is read several times
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,

    /// Simulate this device under the paper's load instead of reading a trace: optane_p4800x, p3700, san_lun
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    device: Option<Preset>,

    /// Format of the trace [default: detected from its first line]
    #[arg(long, value_enum, conflicts_with = "device")]
    format: Option<Format>,

    /// Skip malformed lines, and count them
    #[arg(long, conflicts_with = "device")]
    lenient: bool,

    /// blkparse, events of the block layer: one interrupt vector per submitting CPU, instead of one per device
    #[arg(long, conflicts_with = "device")]
    per_cpu: bool,

    /// Δ is at most this percentile of the gaps between completions: 90, 90%
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = percent)]
    percentile: f64,

    /// Gaps longer than this are pauses between bursts, and are ignored
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = coalesce_policy::parse_duration)]
    delta_max: u64,

    /// A Δ or a thr is on the plateau if its throughput is within this of the best: 1, 1%
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    plateau: f64,

    /// A Δ or a thr must not hold requests for more than this share of their time: 5%, 0.5%
    #[arg(long, value_name = "SHARE", default_value = "5%", conflicts_with = "device")]
    budget: Budget,

    #[command(flatten)]
    cycles: Cycles,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write the evidence as HTML: one file that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
HOW IT CHOOSES
  Of a trace: Δ may be as long as a percentile of the gaps between completions,
  as in the paper. It and shorter ones are tried with all of cint, hints and limits
  included. Those that hold requests for more than --budget of their time are out.
  Of the others, Δ is the shortest that is on the plateau: a longer one would hold
  longer, and save no more. thr is then the smallest on its plateau. 0 s says that
  no Δ helps within the budget.
  Throughput is what a CPU at 2 GHz could do that does nothing else, with the
  cycles for an I/O and for an interrupt that are stated.
  Of a device, the paper's method: the percentile itself, and throughput as it is
  simulated on the paper's machine.

EXAMPLES
  From a trace of the load:
      blktrace -d /dev/nvme0n1 -w 10 -o - | blkparse -i - > load.trace
      coalesce-sim calibrate load.trace --html evidence.html
  The paper's own devices, simulated:
      coalesce-sim calibrate --device optane_p4800x
      coalesce-sim calibrate --device p3700 --percentile 99

A load of one command at a time has no bursts to detect. Use one with many in flight, as the paper does (libaio, 256).";

/// The axis of Δ begins here, in µs: 0 is tried, too.
const DELTA_MIN_US: f64 = 0.1;
/// What the result is shown beside.
const BESIDE: [&str; 2] = ["none", "auto"];

fn preset(text: &str) -> Result<Preset, String> {
    Preset::deserialize(text.into_deserializer()).map_err(|error: ValueError| error.to_string())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "it is no percentage; allowed: 0% to 100%".into())
}

/// All that was found.
struct Found {
    heading: String,
    machine: String,
    facts: Vec<(String, String)>,
    notes: Vec<String>,
    chosen: Chosen,
    beside: Beside,
}

/// What the policy does, beside others.
struct Beside {
    heads: Vec<&'static str>,
    lines: Vec<Vec<String>>,
    json: Vec<Value>,
}

impl Command {
    /// Calibrates, and prints what was found.
    ///
    /// # Errors
    /// The trace is malformed, has no bursts, or is the output.
    pub fn run(&self) -> Result<()> {
        let found = match (&self.trace, self.device) {
            (Some(path), _) => {
                refuse_mistaken(path, &self.html)?;
                self.trace(path)?
            }
            (None, Some(preset)) => self.device(preset)?,
            (None, None) => bail!("needs a trace or --device"),
        };
        if let Some(path) = &self.html {
            write(path, &self.page(&found))?;
        }
        let text = if self.json { self.to_json(&found)? } else { self.table(&found) };
        std::io::stdout().write_all(text.as_bytes()).context("standard output")
    }

    fn terms(&self) -> Terms {
        let Self { percentile, delta_max, plateau, budget, cycles, .. } = *self;
        Terms { percentile, delta_max, plateau, budget, cycles }
    }

    fn trace(&self, path: &Path) -> Result<Found> {
        if path == Path::new("-") {
            bail!("calibrate reads its trace several times: write it to a file first");
        }
        let name = path.display().to_string();
        let named = || format!("trace {name}");
        let args = TraceArgs { trace: path.into(), format: self.format, lenient: self.lenient, per_cpu: self.per_cpu };
        let chosen = of_trace(|| args.open(), &self.terms()).with_context(named)?;
        let mut trace = args.open()?;
        let replay = replay(&mut trace, &beside(&chosen.policy)?, None).with_context(named)?;
        let mut notes = notes(&trace);
        let alone = chosen.gaps[0].alone_percent;
        if alone > 50.0 {
            notes.push(format!(
                "{alone:.0} % of the completions were alone in flight: there are hardly any bursts to detect"
            ));
        }
        if chosen.tried.delta == 0 {
            notes.push(format!(
                "no Δ helps: each holds requests for more than {} of their time, or saves less than {} % of the CPU time",
                self.budget, self.plateau
            ));
        }
        let cycles = self.cycles;
        let entries: Vec<_> = replay.outcomes.iter().map(|outcome| entry(&replay, outcome, cycles)).collect();
        // Nobody has looked for the optimum.
        let columns = HEADS.len() - 1;
        let lines = Summary::of(&entries, cycles, replay.completions_max, None)
            .lines
            .into_iter()
            .map(|line| line[..columns].to_vec())
            .collect();
        let json = replay.outcomes.iter().map(|outcome| policy_to_json(&replay, outcome, cycles)).collect();
        Ok(Found {
            heading: about(&trace, replay.span),
            machine: format!("one CPU at {} GHz, {}", CLOCK_HZ / 1e9, cycles.about()),
            facts: facts(&trace, &name, replay.span, cycles),
            notes,
            chosen,
            beside: Beside { heads: HEADS[..columns].to_vec(), lines, json },
        })
    }

    fn device(&self, preset: Preset) -> Result<Found> {
        if self.cycles != Cycles::PAPER {
            bail!("--io-cycles and --interrupt-cycles are for traces: a device is simulated on the paper's machine");
        }
        let chosen = of_device(preset, &self.terms())?;
        let outcomes = on_device(preset, &beside(&chosen.policy)?)?;
        let name = serde_json::to_value(preset)?.as_str().unwrap_or_default().to_owned();
        let load = "reads of 4 KiB by one thread, 256 in flight, one by one and in batches of 16";
        let (ghz, interrupt) = (CLOCK_HZ / 1e9, Cycles::PAPER.interrupt);
        let facts = [("Device", name.clone()), ("Load", load.into()), ("Version", env!("CARGO_PKG_VERSION").into())];
        let heads = vec!["policy", "I/O per s", "per I/O", "cycles/IO", "p50 us", "p99 us", "p99.9 us"];
        let line = |outcome: &Outcome| {
            let latency = &outcome.latency;
            let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999].map(us);
            let per_io = format!("{:.3}", 1.0 / outcome.requests_per_interrupt.max(1.0));
            let (iops, cycles) = (format!("{:.0}", outcome.iops), format!("{:.0}", outcome.cycles_per_io));
            vec![outcome.policy.clone(), iops, per_io, cycles, p50, p99, p999]
        };
        let json = outcomes.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(Found {
            heading: format!("{name}, simulated: {load}"),
            machine: format!("that of the cinterrupts paper: CPUs at {ghz} GHz, {interrupt} cycles for an interrupt"),
            facts: facts.map(|(name, value)| (name.to_owned(), value)).into(),
            notes: Vec::new(),
            beside: Beside { heads, lines: outcomes.iter().map(line).collect(), json },
            chosen,
        })
    }

    fn why_delta(&self, Chosen { tried, deltas, gaps, .. }: &Chosen) -> String {
        let (delta, limit) = (micros(tried.delta), micros(self.delta_max));
        if deltas.is_empty() {
            return format!("{} % of the gaps up to {limit} are at most {delta}", self.percentile);
        }
        let short = gaps[0].gaps.count_between(0, self.delta_max).max(1) as f64;
        let share = 100.0 * gaps[0].gaps.count_between(0, tried.delta) as f64 / short;
        let mut text = match tried.delta {
            0 => "0: no wait for one more completion helps".to_owned(),
            _ => format!(
                "{delta}, which {share:.0} % of the gaps up to {limit} do not exceed: the shortest within {} % of the best",
                self.plateau
            ),
        };
        let longer: Vec<_> = deltas.iter().filter(|other| other.delta > tried.delta).collect();
        if let Some(next) = longer.iter().find(|next| next.held_share > self.budget.share()) {
            let (next, held) = (micros(next.delta), 100.0 * next.held_share);
            text +=
                &format!("; {next} would hold requests for {held:.1} % of their time, and {} is allowed", self.budget);
        } else if let Some(longest) = longer.last() {
            let more = 100.0 * (longest.iops / tried.iops - 1.0);
            text += &format!("; {} would give {more:.1} % more", micros(longest.delta));
        }
        text
    }

    fn why_thr(&self, chosen: &Chosen) -> String {
        let within =
            if chosen.deltas.is_empty() { String::new() } else { format!(" that holds no more than {}", self.budget) };
        format!("{}, the smallest{within} whose throughput is within {} % of the best", chosen.tried.thr, self.plateau)
    }

    fn table(&self, found: &Found) -> String {
        let Chosen { gaps, deltas, thrs, policy, .. } = &found.chosen;
        let gap_heads = ["gaps between completions", "p50 us", "p90", "p99", "p99.9", "worst"];
        let gap_line = |gaps: &Gaps| {
            let at = |percent: f64| us(gaps.gaps.value_at_quantile(percent / 100.0));
            [gaps.load.to_owned(), at(50.0), at(90.0), at(99.0), at(99.9), us(gaps.gaps.max())]
        };
        let heads = |first| [first, "I/O per s", "interrupts per I/O", "held %", "delay p99 us"];
        let line = |first: String, tried: &Tried| {
            [
                first,
                format!("{:.0}", tried.iops),
                format!("{:.4}", tried.interrupts_per_io),
                format!("{:.2}", 100.0 * tried.held_share),
                us(tried.delay_p99),
            ]
        };
        let notes: String = found.notes.iter().map(|note| format!("note: {note}\n")).collect();
        let mut text = format!("{}\n{notes}machine: {}\n\n", found.heading, found.machine);
        text += &text::aligned(&gap_heads, &gaps.iter().map(gap_line).collect::<Vec<_>>());
        if !deltas.is_empty() {
            let lines: Vec<_> = deltas.iter().map(|tried| line(us(tried.delta), tried)).collect();
            text += &format!("\n{}", text::aligned(&heads("delta us"), &lines));
        }
        text += &format!("delta: {}\n\n", self.why_delta(&found.chosen));
        let lines: Vec<_> = thrs.iter().map(|tried| line(tried.thr.to_string(), tried)).collect();
        text += &text::aligned(&heads("thr"), &lines);
        text += &format!("thr: {}\n\n", self.why_thr(&found.chosen));
        text += &text::aligned(&found.beside.heads, &found.beside.lines);
        text + &format!("\n--policy {policy}\n")
    }

    fn to_json(&self, found: &Found) -> Result<String> {
        let Chosen { tried, policy, gaps, deltas, thrs } = &found.chosen;
        let of_gaps = |gaps: &Gaps| {
            let at = |percent: f64| gaps.gaps.value_at_quantile(percent / 100.0);
            json!({ "load": gaps.load, "N": gaps.gaps.len(), "p50": at(50.0), "p90": at(90.0), "p99": at(99.0), "p99.9": at(99.9), "max": gaps.gaps.max() })
        };
        let of = |tried: &Tried| {
            json!({
                "delta_ns": tried.delta,
                "thr": tried.thr,
                "iops": tried.iops,
                "interrupts_per_io": tried.interrupts_per_io,
                "held_share": tried.held_share,
                "delay_p99_ns": tried.delay_p99,
            })
        };
        let value = json!({
            "policy": policy.to_string(),
            "delta_ns": tried.delta,
            "thr": tried.thr,
            "machine": found.machine,
            "percentile": self.percentile,
            "delta_max_ns": self.delta_max,
            "plateau_percent": self.plateau,
            "budget": self.budget.to_string(),
            "gaps_ns": gaps.iter().map(of_gaps).collect::<Vec<_>>(),
            "deltas": deltas.iter().map(of).collect::<Vec<_>>(),
            "thrs": thrs.iter().map(of).collect::<Vec<_>>(),
            "policies": found.beside.json,
            "notes": found.notes,
        });
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    fn page(&self, found: &Found) -> String {
        let report = Report {
            title: "Δ and thr, calibrated".into(),
            lead: "How long cint should wait for one more completion, and how many completions end a burst, for this \
                   load: the method of the cinterrupts paper (§5.2)."
                .into(),
            facts: found.facts.clone(),
            notes: found.notes.clone(),
            summary: None,
            sections: Vec::new(),
        };
        let Chosen { tried, deltas, policy, .. } = &found.chosen;
        let (why_delta, why_thr) = (self.why_delta(&found.chosen), self.why_thr(&found.chosen));
        let tried_alone =
            if deltas.is_empty() { "Burst detection alone, without hints and other limits, " } else { "" };
        let mut panels = vec![gaps_panel(&found.chosen)];
        if deltas.len() > 1 {
            panels.extend(delta_panels(deltas, *tried));
        }
        let delta = html::figure(
            "delta",
            &format!("Δ is {}", micros(tried.delta)),
            &format!(
                "{}. A longer Δ delays the end of every burst; a shorter one ends bursts that go on.",
                html::escape(&why_delta)
            ),
            &panels,
        );
        let thr = html::figure(
            "thr",
            &format!("thr is {}", tried.thr),
            &format!("{}. {tried_alone}Δ as above.", html::escape(&why_thr)),
            &thr_panels(&found.chosen),
        );
        let heads: Vec<_> = found.beside.heads.iter().map(|head| head.replace(" us", " µs")).collect();
        let heads: Vec<_> = heads.iter().map(String::as_str).collect();
        let beside = html::table("What it would do", &heads, 1..heads.len(), std::slice::from_ref(&found.beside.lines));
        let command = html::commands(&format!("--policy {policy}"));
        let machine = html::escape(&found.machine);
        page::document(
            &report,
            &format!(
                "<section>\n<h2>The policy</h2>\n{command}{beside}<p>Machine: {machine}.</p>\n</section>\n\
                 <section>\n<h2>Why</h2>\n{delta}{thr}</section>\n"
            ),
        )
    }
}

fn beside(policy: &Contender) -> Result<Vec<Contender>> {
    let others = BESIDE.iter().map(|text| Ok(text.parse()?));
    let mut all = others.collect::<Result<Vec<_>>>()?;
    all.insert(1, policy.clone());
    Ok(all)
}

/// Share of gaps that are not longer, over their length.
fn gaps_panel(chosen: &Chosen) -> String {
    let (mut low, mut high) = (f64::MAX, 0.0f64);
    let lines: Vec<_> = chosen
        .gaps
        .iter()
        .enumerate()
        .map(|(nth, gaps)| {
            let total = gaps.gaps.len().max(1) as f64;
            let mut seen = 0;
            let mut points = Vec::new();
            for bucket in gaps.gaps.iter_log(50, 1.08) {
                seen += bucket.count_since_last_iteration();
                let (at, share) = (bucket.value_iterated_to() as f64 / 1000.0, seen as f64 / total);
                points.push((at, 100.0 * share));
                // The axis: from where there is anything to where there is nearly everything.
                if share < 0.001 || points.len() == 1 {
                    low = low.min(at);
                }
                if share < 0.9995 {
                    high = high.max(at);
                }
            }
            let hover = format!("{}: p90 {} µs", gaps.load, us(gaps.gaps.value_at_quantile(0.9)));
            Line { series: Series { label: gaps.load, style: [2, 4][nth % 2] }, hover, points, markers: Vec::new() }
        })
        .collect();
    let head = Head { title: "Gaps between completions", about: "cumulative share", axis: "gap, µs (log)" };
    let delta = (chosen.tried.delta > 0).then_some(chosen.tried.delta as f64 / 1000.0);
    let x = Scale::log(delta.map_or(low, |delta| low.min(delta)), delta.map_or(high, |delta| high.max(delta)), X_RANGE);
    let lines: Vec<_> = lines
        .into_iter()
        .map(|line| Line { points: line.points.into_iter().filter(|point| !x.is_beyond(point.0)).collect(), ..line })
        .collect();
    plot(&head, (&x, &Scale::linear(100.0, Y_RANGE)), "% of gaps", &lines, delta.map(|delta| (delta, "Δ")))
}

/// Values of Δ or thr that were tried, as an axis.
struct Sweep<'a> {
    tried: &'a [Tried],
    /// The place of one on the axis.
    at: fn(&Tried) -> f64,
    scale: Scale,
    axis: &'static str,
    /// The name of a place.
    name: fn(f64) -> String,
    chosen: (f64, &'static str),
}

impl Sweep<'_> {
    fn panel(&self, title: &str, about: &str, y_axis: &str, value: impl Fn(&Tried) -> f64) -> String {
        let points: Vec<_> = self.tried.iter().map(|tried| ((self.at)(tried), value(tried))).collect();
        let max = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let markers = points.iter().map(|point| (point.0, point.1, true)).collect();
        let numbers: Vec<_> = points.iter().map(|&(at, value)| format!("{}: {value:.3}", (self.name)(at))).collect();
        let line = Line { series: Series { label: "cint", style: 3 }, hover: numbers.join(", "), points, markers };
        let head = Head { title, about, axis: self.axis };
        plot(&head, (&self.scale, &Scale::linear(max, Y_RANGE)), y_axis, &[line], Some(self.chosen))
    }

    fn interrupts(&self) -> String {
        let about = "1: every completion interrupts";
        self.panel("Interrupts", about, "interrupts per I/O", |tried| tried.interrupts_per_io)
    }
}

/// What each Δ saves and costs: on an axis of its own each, as they are far apart.
fn delta_panels(deltas: &[Tried], chosen: Tried) -> [String; 2] {
    let at = |tried: &Tried| (tried.delta as f64 / 1000.0).max(DELTA_MIN_US);
    let (low, high) = deltas.iter().map(at).fold((f64::MAX, 0.0f64), |(low, high), us| (low.min(us), high.max(us)));
    let sweep = Sweep {
        tried: deltas,
        at,
        scale: Scale::log(low, high, X_RANGE),
        axis: "Δ, µs (log)",
        name: |us| format!("{us:.1} µs"),
        chosen: (at(&chosen), "Δ"),
    };
    let held = sweep.panel("Held", "of the time of the requests", "held, %", |tried| 100.0 * tried.held_share);
    [sweep.interrupts(), held]
}

fn thr_panels(Chosen { thrs, tried: chosen, .. }: &Chosen) -> [String; 3] {
    let at = |tried: &Tried| f64::from(tried.thr);
    let sweep = Sweep {
        tried: thrs,
        at,
        scale: Scale::doublings(f64::from(THRS[0]), f64::from(THRS[THRS.len() - 1]), X_RANGE),
        axis: "thr (log)",
        name: |thr| format!("thr {thr}"),
        chosen: (at(chosen), "thr"),
    };
    let best = thrs.iter().map(|tried| tried.iops).fold(f64::MIN_POSITIVE, f64::max);
    [
        sweep.panel("Throughput", "of one CPU, relative to the best", "throughput / best", |tried| tried.iops / best),
        sweep.interrupts(),
        sweep
            .panel("Delay", "99 % of completions wait less", "p99 delay, µs", |tried| tried.delay_p99 as f64 / 1000.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_named_as_in_plans() {
        assert_eq!(preset("p3700"), Ok(Preset::P3700));
        assert!(preset("p3701").unwrap_err().contains("optane_p4800x"));
    }
}
