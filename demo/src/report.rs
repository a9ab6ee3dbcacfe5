//! report.html: one file, nothing from elsewhere, no script.

mod figures;

use coalesce_charts::html::{self, escape};
use coalesce_charts::{CSS, chart};
use coalesce_policy::Spec;
use serde_json::Value;

use crate::demo::Demo;
use crate::guest;
use crate::jobs::{self, Job};
use crate::results::{Part, Place, Section};
use crate::table;
use figures::Figures;

/// The job that coalescing is most likely to hurt stands out.
const CSS_MIXED: &str = "figure[id$=\"-mixed\"] { border: 2px solid var(--accent) }\n";
const HOW_TO_READ: &str = include_str!("report/how_to_read.html");

const LEAD: &str = "Each time a storage device completes a request it must decide whether to interrupt its host now or to \
                    wait for more completions: this page shows what that decision saves in interrupts, and what it \
                    costs in throughput and latency, when it is made in different ways for the same load.";

const NAV: &str = "<nav><a href=\"#glance\">At a glance</a> <a href=\"#native\">Native</a> <a href=\"#guest\">In a Linux \
                   guest</a> <a href=\"#read\">How to read this</a> <a href=\"#repeat\">Repeat it</a></nav>\n";

/// The whole page.
pub fn page(demo: &Demo) -> String {
    let parts = [(&demo.native, Place::Native), (&demo.guest, Place::Guest)];
    let parts: String = parts.into_iter().map(|(section, place)| part(demo, section, place)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Interrupt coalescing: {}</title>\n\
         <style>\n{CSS}{CSS_MIXED}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>Interrupt coalescing, measured</h1>\n<p class=\"lead\">{LEAD}</p>\n{}{NAV}</header>\n{}{}{parts}{HOW_TO_READ}{}</main>\n</body>\n</html>\n",
        escape(&demo.machine.date),
        machine(demo),
        policies(demo),
        glance(demo),
        repeat(demo),
    )
}

fn machine(demo: &Demo) -> String {
    let m = &demo.machine;
    let cache = if demo.direct { "direct I/O" } else { "through the page cache" };
    let seeds = Demo::seeds().iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let facts = [
        ("Processor", format!("{}, {} CPUs", m.cpu, m.cores)),
        ("System", m.kernel.clone()),
        ("Load at the start", m.load.clone()),
        ("Date", m.date.clone()),
        ("Commit", m.commit.clone().unwrap_or_else(|| "not known (no git)".into())),
        ("Version", m.version.to_owned()),
        ("Images", format!("{} MiB per policy, {}, {cache}", demo.image_bytes >> 20, m.file_system)),
        ("Command", demo.command.clone()),
        ("Seeds", format!("native rounds {seeds}; in the guest fio's own, others each time")),
    ];
    let facts = facts.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value)));
    format!("<dl class=\"facts\">\n{}</dl>\n", facts.concat())
}

fn policies(demo: &Demo) -> String {
    let infos = Spec::policies();
    let line = |policy: &crate::options::Policy| {
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
    let lines: String = demo.policies.0.iter().map(line).collect();
    format!("<section>\n<h2>The policies</h2>\n<ul class=\"policies\">\n{lines}</ul>\n</section>\n")
}

/// A few numbers that say most of it.
fn glance<'a>(demo: &'a Demo) -> String {
    let parts: Vec<_> = [&demo.native, &demo.guest].into_iter().filter_map(|section| section.part.as_ref()).collect();
    let cell = |part: &'a Part, row, policy| part.cell(jobs::row(row)?, policy);
    let mut heads = vec!["policy".to_owned()];
    let base = &demo.policies.0[demo.policies.baseline()].label;
    for part in &parts {
        let place = part.place.name();
        heads.extend([
            format!("{place}: interrupts/I/O, depth32"),
            format!("{place}: IOPS, depth32, x {base}"),
            format!("{place}: p99 µs, mixed-sync"),
        ]);
    }
    let lines = demo.policies.0.iter().enumerate().map(|(policy, about)| {
        let mut line = vec![about.label.clone()];
        for part in &parts {
            let (deep, sync) = (cell(part, "depth32", policy), cell(part, "mixed-sync", policy));
            let dash = || "-".to_owned();
            line.push(deep.map_or_else(dash, |cell| format!("{:.3}", cell.interrupts_per_io())));
            let ratio = deep.and_then(|cell| part.iops_ratio(cell));
            line.push(ratio.map_or_else(dash, |ratio| format!("{:.2}", ratio.of_medians)));
            line.push(sync.and_then(|cell| cell.latency_us(99.0)).map_or_else(dash, |us| format!("{us:.0}")));
        }
        line
    });
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let caption = "32 reads in flight, and one reader that somebody waits for beside 32 others (mixed-sync)";
    let table = html::table(caption, &heads, 1..heads.len(), &[lines.collect()]);
    format!("<section id=\"glance\">\n<h2>At a glance</h2>\n{table}</section>\n")
}

fn part(demo: &Demo, section: &Section, place: Place) -> String {
    let (id, title, about) = match place {
        Place::Native => (
            "native",
            "Native",
            "The built-in client plays a guest's driver over vhost-user: it takes completions only after an interrupt, \
             and counts every interrupt exactly. EVENT_IDX is off, as NVMe knows nothing like it: the device alone \
             decides.",
        ),
        Place::Guest => (
            "guest",
            "In a Linux guest",
            "An unmodified Linux under QEMU with one disk per policy runs the same jobs with fio. EVENT_IDX is on, as \
             Linux negotiates it. Interrupts are what its /proc/interrupts counted.",
        ),
    };
    let mut html = format!("<section id=\"{id}\">\n<h2>{title}</h2>\n<p>{about}</p>\n");
    html += &section.notice.as_deref().map(html::notice).unwrap_or_default();
    if let Some(part) = &section.part {
        if !part.about.is_empty() {
            html += &format!("<p class=\"muted\">{}</p>\n", escape(&part.about));
        }
        html += &Figures { part, policies: &demo.policies }.html();
        let heads = table::heads(&demo.policies.0[part.baseline].label);
        let heads = heads.each_ref().map(String::as_str);
        let groups = table::groups(part, &demo.policies);
        let groups: Vec<Vec<Vec<String>>> =
            groups.into_iter().map(|group| group.into_iter().map(Vec::from).collect()).collect();
        html += &html::table(&table::caption(part), &heads, 2..heads.len(), &groups);
        html += &format!("<p class=\"muted\">{}</p>\n", escape(&table::notes(part, &demo.policies)));
        html += &counts(demo, part);
    }
    html + "</section>\n"
}

/// What the target itself counted, beside what the guest saw.
fn counts(demo: &Demo, part: &Part) -> String {
    let mut lines = Vec::new();
    for (index, policy) in demo.policies.0.iter().enumerate() {
        let (before, after) = (queues(&part.target_before, &policy.label), queues(&part.target_after, &policy.label));
        let (Some(before), Some(after)) = (before, after) else { continue };
        let count = |queues: &[Value], key: &str| queues.iter().filter_map(|queue| queue[key].as_u64()).sum::<u64>();
        let delta = |key| count(after, key).saturating_sub(count(before, key)).to_string();
        let reasons = |queues: &[Value], reason: &str| -> u64 {
            queues.iter().filter_map(|queue| queue["delivered"][reason].as_u64()).sum()
        };
        let names = after.iter().filter_map(|queue| queue["delivered"].as_object()).flat_map(|counts| counts.keys());
        let mut delivered: Vec<_> =
            names.map(|name| (reasons(after, name).saturating_sub(reasons(before, name)), name)).collect();
        delivered.sort_by(|a, b| b.cmp(a));
        delivered.dedup();
        let why = delivered.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{name} {count}"));
        let mut line = vec![policy.label.clone(), delta("completions"), delta("interrupts")];
        if part.place == Place::Guest {
            line.push(part.guest_interrupts.get(index).map_or("-".into(), u64::to_string));
        }
        line.extend([delta("suppressed"), delta("consumed"), why.collect::<Vec<_>>().join(", ")]);
        lines.push(line);
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut heads = vec!["policy", "requests completed", "interrupts sent"];
    let caption = match part.place {
        Place::Native => "The target's own counts, warm-ups included",
        Place::Guest => {
            heads.push("interrupts in the guest");
            "The target's own counts beside the guest's, from boot to the end. QEMU may pass on two interrupts as one"
        }
    };
    heads.extend(["not wanted by the driver", "taken while held", "deliveries by reason"]);
    html::table(caption, &heads, 1..heads.len() - 1, &[lines])
}

/// The queues of one disk in an answer of get_stats.
fn queues<'a>(stats: &'a Value, disk: &str) -> Option<&'a [Value]> {
    let disk = stats.as_array()?.iter().find(|about| about["ctrlr"] == disk)?;
    disk["queues"].as_array().map(Vec::as_slice)
}

fn repeat(demo: &Demo) -> String {
    let mut lines = format!("# all of this\n{}\n\n# one disk by hand\n", demo.command);
    lines += &format!("head -c {}M /dev/urandom > disk.img\n", demo.image_bytes >> 20);
    let direct = if demo.direct { " --direct" } else { "" };
    let policy = demo.policies.0.last().map_or("auto", |policy| &policy.text);
    lines += &format!(
        "coalesce-target serve --socket /tmp/disk --file disk.img{direct} --policy '{policy}' --control /tmp/control &\n"
    );
    if let Some(part) = &demo.native.part {
        lines += "\n# the native jobs on it\n";
        for job in Job::ALL {
            let (seconds, arguments) = (part.seconds, job.bench_arguments());
            let warmup = jobs::warmup_seconds(seconds);
            lines += &format!(
                "coalesce-target bench --socket /tmp/disk --seconds {seconds} --warmup {warmup} --seed 1 {arguments}\n"
            );
        }
    }
    if let Some(part) = &demo.guest.part {
        let parameters = guest::parameters(part.seconds).join(" ");
        lines += &format!("\n# the guest's jobs on it\nguest/run-guest.sh demo /tmp/disk {parameters}\n");
    }
    lines += "\n# what the target counted; another policy while it serves\ncoalesce-target call --control /tmp/control get_stats\n";
    lines += "coalesce-target call --control /tmp/control set_policy '{\"ctrlr\": \"disk\", \"policy\": \"vic\"}'\n";
    format!("<section id=\"repeat\">\n<h2>Repeat it</h2>\n{}</section>\n", html::commands(&lines))
}
