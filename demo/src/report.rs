//! report.html: one file, nothing from elsewhere, no script.

pub mod figure;

use coalesce_charts::html::{self, escape};
use coalesce_charts::{CSS, chart};
use coalesce_demo::table::number;
use coalesce_policy::Spec;

use crate::claims;
use crate::demo::Demo;
use crate::job_table::table;
use crate::jobs::Job;
use crate::metric::What;
use crate::place::Place;
use crate::results::{Measured, Noise, Section};
use crate::summary::Summary;

const HOW_TO_READ: &str = include_str!("report/how_to_read.html");

const LEAD: &str = "Each time a storage device completes a request it must decide whether to interrupt its host now or to \
                    wait for more completions. Here different ways to decide took turns on the same disk under the same load.";

const CSS_PAGE: &str = include_str!("report/page.css");

/// The whole page: what matters, and behind "more" all the rest.
pub fn page(demo: &Demo) -> String {
    let parts: String = demo.sections().iter().map(|(place, section)| part(demo, *place, section)).collect();
    let measured = demo.sections().into_iter().filter(|(_, section)| !section.jobs.is_empty());
    let nav: String =
        measured.map(|(place, _)| format!("<a href=\"#{}\">{}</a> ", place.name(), place.title())).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Interrupt coalescing: {}</title>\n\
         <style>\n{CSS}{CSS_PAGE}</style>\n</head>\n<body>\n<main>\n{}\
         <details id=\"more\">\n<summary>More: every number, how it was measured, how to repeat it</summary>\n\
         <nav><a href=\"#learning\">Learning</a> <a href=\"#price\">What is saved</a> {nav}<a href=\"#machine\">The machine</a> \
         <a href=\"#read\">How to read this</a> <a href=\"#repeat\">Repeat it</a></nav>\n\
         {}{}{parts}{}{}{}{}</details>\n</main>\n</body>\n</html>\n",
        escape(&demo.machine.date),
        fold(demo),
        figure::learning(demo),
        figure::prices(demo),
        policies(demo),
        machine(demo),
        how_to_read(demo),
        repeat(demo),
    )
}

/// A sentence, nine numbers, a picture.
fn fold(demo: &Demo) -> String {
    let summary = demo.summary();
    let notices: String =
        demo.sections().iter().filter_map(|(_, section)| section.notice.as_deref()).map(html::notice).collect();
    let notes: String = summary.notes().map(|note| format!("<p>{}</p>\n", text(&note))).collect();
    let machine = &demo.machine;
    format!(
        "<header>\n<h1>Interrupt coalescing on this machine</h1>\n<p class=\"lead\">{}</p>\n</header>\n{notices}\
         <div class=\"fold\">\n<div>\n{}<p class=\"muted\">{} of the {} numbers that were <a href=\"#read\">decided beforehand</a> are on this page, all of {}; \
         the rest is exploration.</p>\n<p class=\"muted\">{LEAD} {}, {} CPUs; {}; load {}.</p>\n</div>\n<div>\n{}{notes}</div>\n</div>\n",
        text(&summary.sentence()),
        nine(&summary),
        claims_of(demo),
        claims::NUMBERS.len(),
        escape(judged(demo)),
        escape(&machine.cpu),
        machine.cores,
        escape(&machine.date),
        escape(&machine.load),
        figure::first(&summary),
    )
}

/// Text in which numbers stay with their units.
fn text(text: &str) -> String {
    escape(text).replace(" %", "&nbsp;%")
}

/// The reads per second of each load under each policy; below them, small, what they cost.
fn nine(summary: &Summary<'_>) -> String {
    if summary.rows.is_empty() {
        return String::new();
    }
    let (baseline, others) = summary.columns();
    let others: Vec<_> = others.collect();
    let head =
        |title: &str, small: &str| format!("<th scope=\"col\">{}<small>{}</small></th>", escape(title), escape(small));
    let heads: String = others
        .iter()
        .map(|(_, policy)| head(&policy.title(), if policy.is_timer() { policy.text.as_str() } else { "" }))
        .collect();
    let mut html = format!(
        "<table class=\"nine\">\n<thead><tr><th scope=\"col\">Reads per second</th>{}{heads}</tr></thead>\n<tbody>\n",
        head(&baseline.label, if baseline.text == "none" { "interrupts each time" } else { "" })
    );
    for row in &summary.rows {
        let median = |what| number(row.measured.median(0, what));
        let taken = if row.interrupts() == What::Taken { "interrupts taken" } else { "interrupts" };
        html += &format!(
            "<tr><th scope=\"row\">{}<small>{}</small></th><td><b>{}</b><small>{} {taken} for each, {}&nbsp;µs of CPU</small></td>",
            capital(row.load),
            row.place(),
            median(What::Rate(0)),
            median(row.interrupts()),
            median(What::Cpu),
        );
        for (nth, _) in &others {
            let [reads, interrupts, cpu] =
                [What::Rate(0), row.interrupts(), What::Cpu].map(|what| row.change(*nth, what));
            let small = |text: String, is_told| {
                format!("<small{}>{text}</small>", if is_told { "" } else { " class=\"grey\"" })
            };
            html += &format!(
                "<td><b{}>{}</b>{}{}{}</td>",
                if reads.is_told { "" } else { " class=\"grey\"" },
                text(&reads.text),
                small(text(&reads.range), reads.is_told),
                small(format!("{taken}: {}", text(&interrupts.brief())), interrupts.is_told),
                small(format!("CPU: {}", text(&cpu.brief())), cpu.is_told),
            );
        }
        html += "</tr>\n";
    }
    html + "</tbody>\n</table>\n"
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn how_to_read(demo: &Demo) -> String {
    let claimed = format!("{} are on this page", claims_of(demo));
    HOW_TO_READ.replace("CLAIMED", claims::ABOUT).replace("MEASURED", &claimed).replace("JUDGED", &escape(judged(demo)))
}

/// The policy that is judged.
fn judged(demo: &Demo) -> &str {
    demo.options.policies.judged().map_or("no policy", |(_, policy)| &policy.label)
}

/// How many of the numbers that were decided beforehand were measured.
fn claims_of(demo: &Demo) -> usize {
    let sections = demo.sections();
    let is_measured =
        |&&(place, job, _): &&_| sections.iter().any(|(at, section)| *at == place && section.job(job).is_some());
    claims::NUMBERS.iter().filter(is_measured).count()
}

fn machine(demo: &Demo) -> String {
    let m = &demo.machine;
    let cache = if demo.options.direct { "direct I/O" } else { "through the page cache" };
    let Noise { rate, lost, repeats, waited, controls: (controls, hold) } = demo.noise();
    let waited = waited.map_or_else(
        || "not known (no schedstat)".into(),
        |waited| format!("{:.1} % of the time that they could run", waited * 100.0),
    );
    let facts = [
        ("Processor", format!("{}, {} CPUs", m.cpu, m.cores)),
        ("System", m.kernel.clone()),
        ("Load at the start", m.load.clone()),
        ("Two turns of the same thing", format!("differ half of the time by more than {:.1} % in speed", rate * 100.0)),
        ("Taken by others", format!("{:.1} % of the CPU time; {repeats} turns repeated for it", lost * 100.0)),
        ("Client and disk waited for a CPU", waited),
        ("Controls", format!("{hold} of {controls} comparisons of a policy with itself have 1 in their interval")),
        ("Date", m.date.clone()),
        ("Commit", m.commit.clone().unwrap_or_else(|| "not known (no git)".into())),
        ("Version", m.version.to_owned()),
        ("Images", format!("{} MiB, {}, {cache}", demo.options.image_size.0 >> 20, m.file_system)),
        ("Command", demo.command.clone()),
    ];
    let facts = facts.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value)));
    format!(
        "<section id=\"machine\">\n<h2>The machine</h2>\n<dl class=\"facts\">\n{}</dl>\n</section>\n",
        facts.concat()
    )
}

fn policies(demo: &Demo) -> String {
    let infos = Spec::policies();
    let line = |policy: &crate::policies::Policy| {
        let info = infos.iter().find(|info| info.name == policy.name());
        let about = info.map_or("", |info| info.about);
        let text = match info {
            _ if policy.text != policy.label => &policy.text,
            Some(info) if !info.keys.is_empty() => "with its defaults",
            _ => "",
        };
        let swatch = chart::swatch(policy.style);
        format!(
            "<li>{swatch}<b>{}</b> <span class=\"muted\">{}</span><br>{}</li>\n",
            escape(&policy.label),
            escape(text),
            escape(about)
        )
    };
    let lines: String = demo.options.policies.0.iter().map(line).collect();
    format!("<section>\n<h2>The policies</h2>\n<ul class=\"policies\">\n{lines}</ul>\n</section>\n")
}

fn part(demo: &Demo, place: Place, section: &Section) -> String {
    let mut html = String::new();
    if !section.jobs.is_empty() {
        html += &format!("<section id=\"{}\">\n<h2>{}</h2>\n", place.name(), place.title());
        html += &format!("<p>{}</p>\n", place.about());
        if !section.about.is_empty() {
            html += &format!("<p class=\"muted\">{}</p>\n", escape(&section.about));
        }
        html += &format!(
            "<p>First line: medians under {0}. Below: ratios to {0} with their intervals; grey where no difference can be told. \
             Interrupts, system calls and context switches are counted; the others are times. <i>exact</i>: the \
             interval is narrower than 1&nbsp;%. *: <a href=\"#read\">claims</a>; the rest is exploration.</p>\n",
            escape(&demo.options.policies.baseline().label)
        );
        html += &section.jobs.iter().map(job_table).collect::<String>();
        html += "</section>\n";
    }
    html
}

fn job_table(measured: &Measured) -> String {
    let shown = table(measured);
    let heads: Vec<_> = shown.heads.iter().map(String::as_str).collect();
    let (table, regime) = (html::table(&caption(measured), &heads, 1..heads.len(), &[shown.lines]), measured.regime());
    let below = format!("{regime}; {}; {}", measured.smallest_effects(), measured.turns());
    format!("{table}<p class=\"below\">{}</p>\n", text(&below))
}

/// One line that says what a table shows.
fn caption(measured: &Measured) -> String {
    let Measured { job, blocks, .. } = measured;
    format!("{}: {}; {} blocks", job.name(), job.about(), blocks.len())
}

fn repeat(demo: &Demo) -> String {
    let mut lines = format!("# all of this\n{}\n\n# one disk by hand\n", demo.command);
    lines += &format!("head -c {}M /dev/urandom > disk.img\n", demo.options.image_size.0 >> 20);
    let direct = if demo.options.direct { " --direct" } else { "" };
    let policy = demo.options.policies.0.last().map_or("auto", |policy| &policy.text);
    lines += &format!(
        "coalesce-target serve --socket /tmp/disk --file disk.img{direct} --policy '{policy}' --control /tmp/control &\n"
    );
    lines += "\n# the native jobs on it, with their percentiles\n";
    for arguments in demo.options.jobs.iter().filter_map(|job| Job::bench_arguments(*job)) {
        lines += &format!("coalesce-bench --socket /tmp/disk --seconds 2 {arguments}\n");
    }
    let loads: Vec<_> = demo.options.jobs.iter().map(|job| job.name()).collect();
    lines +=
        &format!("\n# the guest's jobs on it\nguest/run-guest.sh demo /tmp/disk LOADS={} RUNTIME=2\n", loads.join(","));
    lines += "\n# what the target counted; another policy while it serves\ncoalesce-target call --control /tmp/control get_stats\n";
    lines += "coalesce-target call --control /tmp/control set_policy '{\"ctrlr\": \"disk\", \"policy\": \"vic\"}'\n";
    format!("<section id=\"repeat\">\n<h2>Repeat it</h2>\n{}</section>\n", html::commands(&lines))
}
