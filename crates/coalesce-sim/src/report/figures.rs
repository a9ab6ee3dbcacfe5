//! Which pictures there are of a section.

use super::{Entry, Percentiles, Section, lanes};
use coalesce_charts::chart::{Curve, Head, Line, Mark, ROWS_RANGE, RowMark, X_RANGE, Y_RANGE, curves, plot, rows};
use coalesce_charts::html;
use coalesce_charts::scale::{NINES, Scale};
use coalesce_charts::series::Series;
use coalesce_charts::timeline::{self, timeline};

/// A percentile is drawn hollow if fewer than this were slower: another run may show something else.
const SLOWER_MIN: f64 = 10.0;
/// The axis of delays begins here, in µs: a completion that interrupts at once has none.
const DELAY_MIN_US: f64 = 0.1;

/// The axis of the share that is held begins here, in percent: `none` holds nothing.
const HELD_MIN: f64 = 0.1;

/// What each policy saves, what it costs, and how far it is from the fewest interrupts for that price; empty: nothing is
/// known of the price.
pub fn worth(section: &Section, series: &[Series]) -> String {
    let known = section.entries.iter().zip(series).filter_map(|(entry, series)| Some((entry, *series, entry.held?)));
    let lines: Vec<_> = known
        .map(|(entry, series, held)| {
            let (at, interrupts) = ((100.0 * held.share).max(HELD_MIN), entry.interrupts_per_io);
            let fewest = entry.optimum.map(|optimum| optimum as f64 / entry.delay.count.max(1) as f64);
            let beside = fewest.map_or_else(String::new, |fewest| format!(", at best {fewest:.3}"));
            let hover = format!(
                "{}: {interrupts:.3} interrupts per I/O{beside}, {:.2} % of the time held",
                entry.policy,
                100.0 * held.share
            );
            // The last point is the one with the name.
            let marks = fewest.map(|fewest| (at, fewest, false)).into_iter().chain([(at, interrupts, true)]);
            let markers: Vec<_> = marks.collect();
            Line { series, hover, points: markers.iter().map(|mark| (mark.0, mark.1)).collect(), markers }
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let all = || lines.iter().flat_map(|line| &line.points);
    let most = all().map(|point| point.0).fold(10.0 * HELD_MIN, f64::max);
    let highest = all().map(|point| point.1).fold(1.0, f64::max);
    let head = Head {
        title: "Interrupts against what they cost",
        about: "lower and further left is better",
        axis: "held: % of the requests' time (log)",
    };
    let scales = (&Scale::log(HELD_MIN, most, X_RANGE), &Scale::linear(highest, Y_RANGE));
    let caption = format!(
        "Filled: what the policy did. Hollow: the fewest interrupts that as much holding could buy, had all been known \
         beforehand. Less than {HELD_MIN} % is drawn as {HELD_MIN}."
    );
    let panel = plot(&head, scales, "interrupts per I/O", &lines, None);
    html::figure("worth", "What it saves, and the price", &caption, &[format!("<div class=\"long\">{panel}</div>\n")])
}

/// All pictures of a section, in order.
pub fn figures(id: &str, section: &Section, series: &[Series]) -> String {
    [costs(id, section, series), times(id, section, series), strip(id, section, series)].concat()
}

fn costs(id: &str, section: &Section, series: &[Series]) -> String {
    let mut panels = vec![bars(
        "Interrupts per I/O",
        "1: every completion interrupts",
        "interrupts per I/O",
        3,
        section,
        series,
        |entry| Some(entry.interrupts_per_io),
    )];
    if section.entries.iter().any(|entry| entry.cycles_per_io.is_some()) {
        let is_simulated = section.entries.iter().any(|entry| entry.iops.is_some());
        let about = if is_simulated { "interrupts and threads" } else { "with the stated cycles" };
        panels.push(bars("CPU per I/O", about, "cycles per I/O", 0, section, series, |entry| entry.cycles_per_io));
    }
    if section.entries.iter().any(|entry| entry.iops.is_some()) {
        panels.push(bars("Throughput", "commands answered", "I/O per second", 0, section, series, |entry| entry.iops));
    }
    html::figure(&format!("{id}-costs"), "What it saves", "Less is better, but for throughput.", &panels)
}

fn bars(
    title: &str,
    about: &str,
    axis: &str,
    digits: usize,
    section: &Section,
    series: &[Series],
    value: impl Fn(&Entry) -> Option<f64>,
) -> String {
    let max = section.entries.iter().filter_map(&value).fold(0.0, f64::max);
    let marks = section.entries.iter().zip(series).filter_map(|(entry, series)| {
        let value = value(entry)?;
        let hover = format!("{}: {value:.digits$} {axis}", entry.policy);
        Some(RowMark { series: *series, mark: Mark::Bar(value), number: format!("{value:.digits$}"), hover })
    });
    rows(&Head { title, about, axis }, &Scale::linear(max, ROWS_RANGE), &marks.collect::<Vec<_>>())
}

fn times(id: &str, section: &Section, series: &[Series]) -> String {
    let panel = |title, about, y_axis, of: fn(&Entry) -> &Percentiles, min_us: f64| {
        let entries = section.entries.iter().zip(series);
        let lines: Vec<_> = entries
            .map(|(entry, series)| Curve { series: *series, points: points(of(entry), min_us) })
            .filter(|curve| !curve.points.is_empty())
            .collect();
        let head = Head { title, about, axis: "percentile" };
        if lines.is_empty() { String::new() } else { curves(&head, y_axis, &NINES, &lines) }
    };
    let worst = |entry: &Entry| (entry.delay.count > 0).then_some(entry.delay.max as f64 / 1000.0);
    let panels = [
        panel(
            "Latency",
            "from submission to the answer",
            "latency, µs (log)",
            |entry| &entry.latency,
            f64::MIN_POSITIVE,
        ),
        panel("Delay", "from completion to interrupt", "delay, µs (log)", |entry| &entry.delay, DELAY_MIN_US),
        bars("Worst delay", "from completion to interrupt", "delay, µs", 1, section, series, worst),
    ];
    let caption = format!(
        "Lower is better. Hollow: fewer than ten were slower. Delays below {DELAY_MIN_US} µs are drawn as {DELAY_MIN_US}."
    );
    html::figure(&format!("{id}-times"), "What it costs", &caption, &panels)
}

fn points(of: &Percentiles, min_us: f64) -> Vec<(f64, f64, bool)> {
    let point = |&(percent, ns): &(f64, u64)| {
        let slower = of.count as f64 * (1.0 - percent / 100.0);
        // Beyond the slowest one there is nothing to know.
        (slower >= 1.0).then(|| (percent, (ns as f64 / 1000.0).max(min_us), slower >= SLOWER_MIN))
    };
    of.points.iter().filter_map(point).collect()
}

/// The decisions of all policies in one stretch, and where it begins, in ns; `None`: nothing is known of them.
pub fn decisions(section: &Section, series: &[Series]) -> Option<(String, u64)> {
    let (from, to) = lanes::stretch(&section.entries)?;
    let with_events = section.entries.iter().zip(series).filter(|(entry, _)| !entry.timeline.is_empty());
    let lanes: Vec<_> = with_events.map(|(entry, series)| lanes::lane(*series, &entry.timeline, (from, to))).collect();
    let span = (to - from) as f64 / 1000.0;
    let head = Head {
        title: "Decisions",
        about: "below each name: interrupts for completions in this stretch",
        axis: "time, µs",
    };
    Some((timeline(&head, &Scale::to(span, timeline::RANGE), &lanes), from))
}

fn strip(id: &str, section: &Section, series: &[Series]) -> String {
    let Some((strip, from)) = decisions(section, series) else { return String::new() };
    let caption =
        format!("One line (interrupt vector), from {:.6} s on. Point at a mark for its numbers.", from as f64 / 1e9);
    html::figure(
        &format!("{id}-decisions"),
        "What it decides",
        &caption,
        &[format!("<div class=\"long\">{strip}</div>\n")],
    )
}
