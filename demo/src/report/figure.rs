//! The picture: what each policy saves, against what it costs in latency.

use coalesce_charts::html::figure;
use coalesce_charts::series::Series;
use coalesce_demo::figure::{Mark, file};
use coalesce_demo::paired::Interval;

use crate::demo::Demo;
use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;
use crate::results::Measured;

/// What is saved, by panel.
const SAVED: [(What, &str); 2] = [(What::Interrupts, "interrupts per I/O"), (What::Cpu, "CPU time per I/O")];

/// The headline's job, in the guest if there is one: a panel for each of what is saved.
pub fn lead(demo: &Demo) -> String {
    let panels = chosen(demo).map_or_else(Vec::new, panels);
    draw("price", "What is saved, and what it costs who waits", &panels)
}

/// The same of the other jobs with many requests in flight.
pub fn others(demo: &Demo) -> String {
    let chosen = chosen(demo).map(|measured| (measured.place, measured.job));
    let others = deep(demo).filter(|measured| Some((measured.place, measured.job)) != chosen);
    draw("others", "The other jobs in the same way", &others.flat_map(panels).collect::<Vec<_>>())
}

/// All of them as pictures of their own, each with the name of its file.
pub fn files(demo: &Demo) -> Vec<(String, String)> {
    let of_job = |measured| {
        SAVED.into_iter().filter_map(move |(what, name)| {
            let panel = panel(&title(measured), measured, (what, name))?;
            let name = format!("{}-{}-{}.svg", measured.place.name(), measured.job.name(), name.split(' ').next()?);
            Some((name.to_lowercase(), file(&panel)))
        })
    };
    deep(demo).flat_map(of_job).collect()
}

fn deep(demo: &Demo) -> impl Iterator<Item = &Measured> {
    let jobs = demo.sections().into_iter().flat_map(|(_, section)| &section.jobs);
    jobs.filter(|measured| {
        let is_deep = matches!(measured.job, Job::Depth8 | Job::Depth32 | Job::Sqlite);
        is_deep && measured.place != Place::Counted
    })
}

fn chosen(demo: &Demo) -> Option<&Measured> {
    [&demo.guest, &demo.native, &demo.nvme].into_iter().find_map(|section| section.job(Job::Depth32))
}

fn panels(measured: &Measured) -> Vec<String> {
    SAVED.into_iter().filter_map(|saved| panel(&title(measured), measured, saved)).collect()
}

fn title(measured: &Measured) -> String {
    format!("{}: {}", measured.place.title(), measured.job.name())
}

fn draw(id: &str, title: &str, panels: &[String]) -> String {
    let caption = "Left is faster, and down is less: a policy in the lower left corner wins in both. The dashed lines are the \
                   baseline, crosses are the intervals. Hollow: on neither axis a difference can be told. Both axes are \
                   logarithmic ratios.";
    if panels.is_empty() { String::new() } else { figure(id, title, caption, panels) }
}

fn panel(title: &str, measured: &Measured, (what, name): (What, &str)) -> Option<String> {
    let (rates, saved) = (measured.compare(What::Rate(0)), measured.compare(what));
    let marks = measured.policies.others().enumerate().filter_map(|(nth, policy)| {
        let rate = rates.ratios[nth]?;
        let latency = Interval { median: 1.0 / rate.median, low: 1.0 / rate.high, high: 1.0 / rate.low };
        let is_sure = rates.verdicts[nth].differs() || saved.verdicts[nth].differs();
        let series = Series { label: &policy.label, style: policy.style };
        Some(Mark { series, latency, saved: saved.ratios[nth]?, is_sure })
    });
    let unit = measured.job.rates()[0].name.trim_end_matches("s/s");
    coalesce_demo::figure::panel(title, name, unit, &marks.collect::<Vec<_>>())
}
