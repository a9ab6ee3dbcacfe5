//! The pictures: what each policy saves, against what it costs in latency; and how it got there.

use coalesce_charts::chart::{Head, Line, X_RANGE, Y_RANGE, plot};
use coalesce_charts::html::figure;
use coalesce_charts::scale::Scale;
use coalesce_charts::series::Series;
use coalesce_demo::figure::{Mark, file};
use coalesce_demo::paired::Interval;

use crate::demo::Demo;
use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;
use crate::results::Measured;
use crate::summary::Summary;

/// What is saved, by panel; in a guest an interrupt is one that it takes.
const SAVED: [(What, &str); 2] = [(What::Interrupts, "interrupts per I/O"), (What::Cpu, "CPU time per I/O")];

/// The picture that comes first.
pub fn first(summary: &Summary<'_>) -> String {
    let caption = "Down is what is saved, to the right is what that costs a requester that waits for each of its reads: a policy in the \
                   lower left corner is best. Crosses are intervals, both axes ratios to the baseline, which the dashed lines are.";
    draw("first", "What is saved, and what it costs who waits", caption, first_panel(summary).as_slice())
}

/// What is saved where much is in flight, against what that costs who waits for each read.
fn first_panel(summary: &Summary<'_>) -> Option<String> {
    let (deep, single) = (summary.deep()?, summary.single()?);
    let name = if deep.interrupts() == What::Taken { "interrupts taken" } else { "interrupts" };
    let title = format!("{}: {}", deep.measured.place.title(), deep.load);
    panel(&title, (single.measured, deep.measured), (deep.interrupts(), name), "read, one at a time")
}

/// What each policy saves against its latency, for every job with many requests in flight.
pub fn prices(demo: &Demo) -> String {
    let caption = "Left is faster, and down is less: a policy in the lower left corner wins in both. The dashed lines are the \
                   baseline, crosses are the intervals. Hollow: on neither axis a difference can be told. Both axes are \
                   logarithmic ratios.";
    draw("price", "What is saved at which latency", caption, &deep(demo).flat_map(panels).collect::<Vec<_>>())
}

/// Interrupts by the time that a policy was in force.
pub fn learning(demo: &Demo) -> String {
    let caption = "Interrupts that the disk sends for each I/O, by the time that a policy was in force since it began anew: first the time \
                   in which a policy that learns is not measured, then a marker for each turn. Between its turns others are in force, and \
                   it keeps what it has learned.";
    draw("learning", "How long a policy takes to learn", caption, &deep(demo).filter_map(in_force).collect::<Vec<_>>())
}

fn in_force(measured: &Measured) -> Option<String> {
    let policies = measured.policies.with_control();
    let variants = policies.iter().enumerate().filter(|(variant, policy)| *variant != 1 && !policy.is_further);
    let lines: Vec<_> = variants
        .map(|(variant, policy)| {
            let points = measured.in_force(variant);
            let turns = points.len().saturating_sub(measured.blocks.len());
            let markers = points[turns..].iter().map(|&(at, value)| (at, value, true)).collect();
            let series = Series { label: &policy.label, style: policy.style };
            let hover = points
                .last()
                .map_or_else(String::new, |(at, value)| format!("{}: {value:.2} after {at:.1} s", policy.label));
            Line { series, hover, points, markers }
        })
        .collect();
    let all = || lines.iter().flat_map(|line| &line.points);
    let (last, most) = all().fold((0.0, 0.0), |(last, most): (f64, f64), point| (last.max(point.0), most.max(point.1)));
    let title = title(measured);
    let head = Head { title: &title, about: "interrupts sent per I/O", axis: "seconds in force" };
    let (x, y) = (Scale::linear(last, X_RANGE), Scale::linear(most, Y_RANGE));
    (all().count() > 0).then(|| plot(&head, (&x, &y), "interrupts per I/O", &lines, None))
}

/// All of them as pictures of their own, each with the name of its file.
pub fn files(demo: &Demo) -> Vec<(String, String)> {
    let of_job = |measured| {
        SAVED.into_iter().filter_map(move |(what, name)| {
            let panel = own_panel(measured, (what, name))?;
            let name = format!("{}-{}-{}.svg", measured.place.name(), measured.job.name(), name.split(' ').next()?);
            Some((name.to_lowercase(), file(&panel)))
        })
    };
    let first = first_panel(&demo.summary()).map(|panel| ("first.svg".to_owned(), file(&panel)));
    first.into_iter().chain(deep(demo).flat_map(of_job)).collect()
}

fn deep(demo: &Demo) -> impl Iterator<Item = &Measured> {
    let jobs = demo.sections().into_iter().flat_map(|(_, section)| &section.jobs);
    jobs.filter(|measured| {
        let is_deep = matches!(measured.job, Job::Depth8 | Job::Depth32 | Job::Sqlite);
        is_deep && measured.place != Place::Counted
    })
}

fn panels(measured: &Measured) -> Vec<String> {
    SAVED.into_iter().filter_map(|saved| own_panel(measured, saved)).collect()
}

fn own_panel(measured: &Measured, (what, name): (What, &str)) -> Option<String> {
    let (what, name) = match what {
        What::Interrupts if measured.place != Place::Native => (What::Taken, "interrupts taken"),
        _ => (what, name),
    };
    let unit = measured.job.rates()[0].name.trim_end_matches("s/s");
    panel(&title(measured), (measured, measured), (what, name), unit)
}

fn title(measured: &Measured) -> String {
    format!("{}: {}", measured.place.title(), measured.job.name())
}

fn draw(id: &str, title: &str, caption: &str, panels: &[String]) -> String {
    if panels.is_empty() { String::new() } else { figure(id, title, caption, panels) }
}

/// The latency of one job against what is saved in one.
fn panel(
    title: &str,
    (waiting, saving): (&Measured, &Measured),
    (what, name): (What, &str),
    unit: &str,
) -> Option<String> {
    let (rates, saved) = (waiting.compare(What::Rate(0)), saving.compare(what));
    let marks = saving.policies.others().enumerate().filter_map(|(nth, policy)| {
        let rate = (*rates.ratios.get(nth)?)?;
        let latency = Interval { median: 1.0 / rate.median, low: 1.0 / rate.high, high: 1.0 / rate.low };
        let is_sure = rates.verdicts[nth].differs() || saved.verdicts[nth].differs();
        let series = Series { label: &policy.label, style: policy.style };
        Some(Mark { series, latency, saved: saved.ratios[nth]?, is_sure })
    });
    coalesce_demo::figure::panel(title, name, unit, &marks.collect::<Vec<_>>())
}
