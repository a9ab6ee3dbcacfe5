//! report.html: one file, nothing from elsewhere, no script.

pub mod figure;

use coalesce_charts::html::{self, escape};
use coalesce_charts::{CSS, chart};
use coalesce_policy::Spec;

use crate::claims;
use crate::demo::Demo;
use crate::job_table::table;
use crate::jobs::Job;
use crate::place::Place;
use crate::results::{Measured, Noise, Section};

const HOW_TO_READ: &str = include_str!("report/how_to_read.html");

const LEAD: &str = "Each time a storage device completes a request it must decide whether to interrupt its host now or to \
                    wait for more completions. This page shows what that decision saves, and what it costs, when it is made \
                    in different ways for the same load on the same disk.";

/// Two panels beside each other belong together; tables have many columns.
const CSS_PAGE: &str = "\
.headline { padding-left: 1.2rem; font-size: 1.08rem } .headline li { max-width: 56rem; margin: .5rem 0 }
@media (min-width: 40rem) { .panels { grid-template-columns: repeat(2, minmax(0, 460px)); gap: 1.8rem 4rem } }
table { font-size: .78rem } th, td { padding: .2rem .4rem } .wide { margin-bottom: .4rem }
.below { color: var(--muted); font-size: .9rem; margin: 0 0 1.6rem; max-width: none }
@media print { .wide { break-inside: avoid; break-after: avoid } table { font-size: 6.5pt } th, td { padding: .15rem .25rem } }
";

/// The whole page.
pub fn page(demo: &Demo) -> String {
    let parts: String = demo.sections().iter().map(|(place, section)| part(demo, *place, section)).collect();
    let nav =
        demo.sections().map(|(place, _)| format!("<a href=\"#{}\">{}</a> ", place.name(), place.title())).concat();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Interrupt coalescing: {}</title>\n\
         <style>\n{CSS}{CSS_PAGE}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>Interrupt coalescing, measured</h1>\n<p class=\"lead\">{LEAD}</p>\n</header>\n{}\
         <nav><a href=\"#price\">What is saved</a> {nav}<a href=\"#read\">How to read this</a> <a href=\"#repeat\">Repeat it</a></nav>\n\
         {}{parts}{}{}{}{}{}</main>\n</body>\n</html>\n",
        escape(&demo.machine.date),
        headline(demo),
        figure::lead(demo),
        figure::others(demo),
        policies(demo),
        machine(demo),
        how_to_read(demo),
        repeat(demo),
    )
}

fn how_to_read(demo: &Demo) -> String {
    let judged = demo.options.policies.judged().map_or("no policy", |(_, policy)| &policy.label);
    HOW_TO_READ.replace("CLAIMED", claims::ABOUT).replace("JUDGED", &escape(judged))
}

fn headline(demo: &Demo) -> String {
    let lines: String =
        demo.headline().iter().map(|line| format!("<li>{}</li>\n", escape(line).replace(" %", "&nbsp;%"))).collect();
    format!("<ul class=\"headline\">\n{lines}</ul>\n")
}

fn machine(demo: &Demo) -> String {
    let m = &demo.machine;
    let cache = if demo.options.direct { "direct I/O" } else { "through the page cache" };
    let Noise { lost, repeats, waited, controls: (controls, hold), .. } = demo.noise();
    let waited = waited.map_or_else(
        || "not known (no schedstat)".into(),
        |waited| format!("{:.1} % of the time that they could run", waited * 100.0),
    );
    let facts = [
        ("Processor", format!("{}, {} CPUs", m.cpu, m.cores)),
        ("System", m.kernel.clone()),
        ("Load at the start", m.load.clone()),
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
        let name = policy.text.split(':').next().unwrap_or_default();
        let info = infos.iter().find(|info| info.name == name);
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
    let mut html = format!("<section id=\"{}\">\n<h2>{}</h2>\n", place.name(), place.title());
    html += &section.notice.as_deref().map(html::notice).unwrap_or_default();
    if !section.jobs.is_empty() {
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
    }
    html + "</section>\n"
}

fn job_table(measured: &Measured) -> String {
    let shown = table(measured, true);
    let heads: Vec<_> = shown.heads.iter().map(String::as_str).collect();
    let (table, regime) = (html::table(&caption(measured), &heads, 1..heads.len(), &[shown.lines]), measured.regime());
    format!("{table}<p class=\"below\">{}; {}</p>\n", escape(&regime.to_string()), escape(&measured.smallest_effects()))
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
        lines += &format!("coalesce-target bench --socket /tmp/disk --seconds 2 {arguments}\n");
    }
    let loads: Vec<_> = demo.options.jobs.iter().map(|job| job.name()).collect();
    lines +=
        &format!("\n# the guest's jobs on it\nguest/run-guest.sh demo /tmp/disk LOADS={} RUNTIME=2\n", loads.join(","));
    lines += "\n# what the target counted; another policy while it serves\ncoalesce-target call --control /tmp/control get_stats\n";
    lines += "coalesce-target call --control /tmp/control set_policy '{\"ctrlr\": \"disk\", \"policy\": \"vic\"}'\n";
    format!("<section id=\"repeat\">\n<h2>Repeat it</h2>\n{}</section>\n", html::commands(&lines))
}
