//! `coalesce-sim calibrate`: the command line, what it prints, and the evidence as pictures.

use super::{Gaps, THRS, Tried, chosen, gaps_of_device, gaps_of_trace, on_plateau, try_on_device, try_on_trace};
use crate::contender::Contender;
use crate::plan::{Machine, Preset};
use crate::replay::command::{TraceArgs, about, facts, notes};
use crate::replay::trace::Format;
use crate::report::{Report, page, refuse_input, text, write};
use crate::units::Cost;
use anyhow::{Context as _, Result, bail};
use clap::{ArgGroup, Args};
use coalesce_charts::chart::{Head, Line, X_RANGE, Y_RANGE, plot};
use coalesce_charts::html;
use coalesce_charts::scale::Scale;
use coalesce_charts::series::Series;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::Error as ValueError;
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Find Δ and thr of cint for a load (cinterrupts §5.2), with the evidence
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

    /// blkparse: one interrupt vector per submitting CPU, instead of one per device
    #[arg(long, conflicts_with = "device")]
    per_cpu: bool,

    /// Δ is this percentile of the gaps between completions
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0, value_parser = percent)]
    percentile: f64,

    /// Gaps longer than this are pauses between bursts, and are ignored
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = coalesce_policy::parse_duration)]
    delta_max: u64,

    /// A thr is on the plateau if its throughput is within this of the best
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent)]
    plateau: f64,

    /// CPU cycles per I/O at 2 GHz without its interrupt; an interrupt for each I/O adds a quarter, as in the paper
    #[arg(long, value_name = "CYCLES", conflicts_with = "device")]
    io_cycles: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Write the evidence as HTML: one file that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
EXAMPLES
  From a trace of the load:
      blktrace -d /dev/nvme0n1 -w 10 -o - | blkparse -i - > load.trace
      coalesce-sim calibrate load.trace --html evidence.html
  The paper's own devices, simulated:
      coalesce-sim calibrate --device optane_p4800x
      coalesce-sim calibrate --device p3700 --percentile 99

A load of one command at a time has no bursts to detect. Use one with many in flight, as the paper does (libaio, 256).";

fn preset(text: &str) -> Result<Preset, String> {
    Preset::deserialize(text.into_deserializer()).map_err(|error: ValueError| error.to_string())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected 0 to 100".into())
}

/// All that was found.
struct Found {
    heading: String,
    facts: Vec<(String, String)>,
    notes: Vec<String>,
    gaps: Vec<Gaps>,
    delta: u64,
    tried: Vec<Tried>,
    thr: u32,
    policy: Contender,
}

impl Command {
    /// Calibrates, and prints what was found.
    ///
    /// # Errors
    /// The trace is malformed, has no bursts, or is the output.
    pub fn run(&self) -> Result<()> {
        let found = match (&self.trace, self.device) {
            (Some(path), _) => {
                refuse_input(path, &self.html)?;
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

    fn trace(&self, path: &Path) -> Result<Found> {
        if path == Path::new("-") {
            bail!("calibrate reads its trace several times: write it to a file first");
        }
        let name = path.display().to_string();
        let named = || format!("trace {name}");
        let args = TraceArgs { trace: path.into(), format: self.format, lenient: self.lenient, per_cpu: self.per_cpu };
        let mut trace = args.open()?;
        let gaps = gaps_of_trace(&mut trace).with_context(named)?;
        let span = span(&gaps);
        let mut notes = notes(&trace);
        if gaps.alone_percent > 50.0 {
            let percent = gaps.alone_percent;
            notes.push(format!(
                "{percent:.0} % of the completions were alone in flight: there are hardly any bursts to detect"
            ));
        }
        let delta = self.delta(std::slice::from_ref(&gaps)).with_context(named)?;
        let mut machine = Machine::default();
        if let Some(cycles) = self.io_cycles {
            (machine.submit, machine.complete, machine.reap) = (Cost::Cycles(cycles), Cost::Cycles(0), Cost::Cycles(0));
        }
        let tried = try_on_trace(&mut args.open()?, delta, &machine).with_context(named)?;
        let (heading, facts) = (about(&trace, span), facts(&trace, &name, span));
        self.found(heading, facts, notes, vec![gaps], delta, tried)
    }

    fn device(&self, preset: Preset) -> Result<Found> {
        let gaps = gaps_of_device(preset)?;
        let delta = self.delta(&gaps)?;
        let tried = try_on_device(preset, delta)?;
        let name = serde_json::to_value(preset)?.as_str().unwrap_or_default().to_owned();
        let load = "reads of 4 KiB by one thread, 256 in flight, one by one and in batches of 16";
        let heading = format!("{name}, simulated: {load}");
        let facts = [("Device", name), ("Load", load.into()), ("Version", env!("CARGO_PKG_VERSION").into())];
        let facts = facts.map(|(name, value)| (name.to_owned(), value)).into();
        self.found(heading, facts, Vec::new(), gaps, delta, tried)
    }

    /// The longest that any of the loads asks for.
    fn delta(&self, gaps: &[Gaps]) -> Result<u64> {
        let delta = gaps.iter().filter_map(|gaps| gaps.delta(self.percentile, self.delta_max)).max();
        delta.with_context(|| {
            format!("no two completions are within {} of each other: raise --delta-max", us(self.delta_max))
        })
    }

    fn found(
        &self,
        heading: String,
        facts: Vec<(String, String)>,
        notes: Vec<String>,
        gaps: Vec<Gaps>,
        delta: u64,
        tried: Vec<Tried>,
    ) -> Result<Found> {
        let thr = on_plateau(&tried, self.plateau).context("nothing was tried")?;
        Ok(Found { heading, facts, notes, gaps, delta, tried, thr, policy: chosen(delta, thr)? })
    }

    fn why_delta(&self, found: &Found) -> String {
        let (percent, delta, limit) = (self.percentile, us(found.delta), us(self.delta_max));
        format!("{percent} % of the gaps up to {limit} are at most {delta}")
    }

    fn why_thr(&self, found: &Found) -> String {
        format!("{} is the smallest thr whose throughput is within {} % of the best", found.thr, self.plateau)
    }

    fn table(&self, found: &Found) -> String {
        let gap_heads = ["gaps between completions", "p50 us", "p90", "p99", "p99.9", "worst"];
        let gap_line = |gaps: &Gaps| {
            let at = |percent: f64| number(gaps.gaps.value_at_quantile(percent / 100.0));
            [gaps.load.to_owned(), at(50.0), at(90.0), at(99.0), at(99.9), number(gaps.gaps.max())]
        };
        let heads = ["thr", "I/O per s", "interrupts per I/O", "delay p99 us"];
        let line = |tried: &Tried| {
            [
                tried.thr.to_string(),
                format!("{:.0}", tried.iops),
                format!("{:.4}", tried.interrupts_per_io),
                number(tried.delay_p99),
            ]
        };
        let notes: String = found
            .notes
            .iter()
            .map(|note| {
                format!(
                    "note: {note}
"
                )
            })
            .collect();
        let gaps: Vec<_> = found.gaps.iter().map(gap_line).collect();
        let lines: Vec<_> = found.tried.iter().map(line).collect();
        format!(
            "{}\n{notes}\n{}\ndelta: {}\n\n{}\nthr: {}\n\n--policy {}\n",
            found.heading,
            text::aligned(&gap_heads, &gaps),
            self.why_delta(found),
            text::aligned(&heads, &lines),
            self.why_thr(found),
            found.policy
        )
    }

    fn to_json(&self, found: &Found) -> Result<String> {
        let gaps = |gaps: &Gaps| {
            let at = |percent: f64| gaps.gaps.value_at_quantile(percent / 100.0);
            json!({ "load": gaps.load, "N": gaps.gaps.len(), "p50": at(50.0), "p90": at(90.0), "p99": at(99.0), "p99.9": at(99.9), "max": gaps.gaps.max() })
        };
        let tried = |tried: &Tried| json!({ "thr": tried.thr, "iops": tried.iops, "interrupts_per_io": tried.interrupts_per_io, "delay_p99_ns": tried.delay_p99 });
        let value = json!({
            "policy": found.policy.to_string(),
            "delta_ns": found.delta,
            "thr": found.thr,
            "percentile": self.percentile,
            "delta_max_ns": self.delta_max,
            "plateau_percent": self.plateau,
            "gaps_ns": found.gaps.iter().map(gaps).collect::<Vec<_>>(),
            "tried": found.tried.iter().map(tried).collect::<Vec<_>>(),
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
            sections: Vec::new(),
        };
        let delta = html::figure(
            "delta",
            &format!("Δ is {}", us(found.delta)),
            &format!(
                "{}. A longer Δ delays the end of every burst; a shorter one ends bursts that go on.",
                self.why_delta(found)
            ),
            &[gaps_panel(found)],
        );
        let thr = html::figure(
            "thr",
            &format!("thr is {}", found.thr),
            &format!("{}. Burst detection alone, without hints and other limits, Δ as above.", self.why_thr(found)),
            &thr_panels(found),
        );
        let command = html::commands(&format!("--policy {}", found.policy));
        page::document(
            &report,
            &format!(
                "<section>\n<h2>The policy</h2>\n{command}</section>\n<section>\n<h2>Why</h2>\n{delta}{thr}</section>\n"
            ),
        )
    }
}

/// Time from the first completion to the last, about, in ns: queues overlap.
fn span(gaps: &Gaps) -> u64 {
    (gaps.gaps.mean() * gaps.gaps.len() as f64) as u64
}

fn number(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

fn us(ns: u64) -> String {
    let text = format!("{:.3}", ns as f64 / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + " µs"
}

/// Share of gaps that are not longer, over their length.
fn gaps_panel(found: &Found) -> String {
    let (mut low, mut high) = (f64::MAX, 0.0f64);
    let lines: Vec<_> = found
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
            let hover = format!("{}: p90 {} µs", gaps.load, number(gaps.gaps.value_at_quantile(0.9)));
            Line { series: Series { label: gaps.load, style: [2, 4][nth % 2] }, hover, points, markers: Vec::new() }
        })
        .collect();
    let head = Head { title: "Gaps between completions", about: "cumulative share", axis: "gap, µs (log)" };
    let delta = found.delta as f64 / 1000.0;
    let x = Scale::log(low.min(delta), high.max(delta), X_RANGE);
    let lines: Vec<_> = lines
        .into_iter()
        .map(|line| Line { points: line.points.into_iter().filter(|point| !x.is_beyond(point.0)).collect(), ..line })
        .collect();
    plot(&head, (&x, &Scale::linear(100.0, Y_RANGE)), "% of gaps", &lines, Some((delta, "Δ")))
}

fn thr_panels(found: &Found) -> [String; 3] {
    let x = Scale::doublings(f64::from(THRS[0]), f64::from(THRS[THRS.len() - 1]), X_RANGE);
    let panel = |title, about, y_axis, value: &dyn Fn(&Tried) -> f64| {
        let points: Vec<_> = found.tried.iter().map(|tried| (f64::from(tried.thr), value(tried))).collect();
        let max = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let markers = points.iter().map(|point| (point.0, point.1, true)).collect();
        let numbers: Vec<_> = points.iter().map(|(thr, value)| format!("thr {thr}: {value:.3}")).collect();
        let line = Line { series: Series { label: "cint", style: 3 }, hover: numbers.join(", "), points, markers };
        let head = Head { title, about, axis: "thr (log)" };
        plot(&head, (&x, &Scale::linear(max, Y_RANGE)), y_axis, &[line], Some((f64::from(found.thr), "thr")))
    };
    let best = found.tried.iter().map(|tried| tried.iops).fold(f64::MIN_POSITIVE, f64::max);
    [
        panel("Throughput", "of one CPU, relative to the best", "throughput / best", &|tried| tried.iops / best),
        panel("Interrupts", "1: every completion interrupts", "interrupts per I/O", &|tried| tried.interrupts_per_io),
        panel("Delay", "99 % of completions wait less", "p99 delay, µs", &|tried| tried.delay_p99 as f64 / 1000.0),
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
