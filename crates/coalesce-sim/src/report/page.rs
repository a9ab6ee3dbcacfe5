//! A report as one HTML file.

use super::summary::{HEADS, LEARNING_HEADS, Summary};
use super::{Entry, Percentiles, Report, Section, figures, text};
use anyhow::{Context as _, Result};
use coalesce_charts::html::{self, escape};
use coalesce_charts::series::{STYLES, Series, styles};
use coalesce_charts::{CSS, chart, timeline};
use coalesce_policy::{PolicyInfo, Spec};

/// The whole page.
///
/// # Errors
/// More policies than there are colours.
pub fn page(report: &Report) -> Result<String> {
    let (policies, styles) = styled(report)?;
    let series_of = |policy: &str| {
        let index = policies.iter().position(|known| *known == policy).unwrap_or(0);
        Series { label: &styles[index].0, style: styles[index].1 }
    };
    let untitled = if report.summary.is_some() { "Details" } else { "Results" };
    // Of several policies of one name, that with its default parameters is explained, else the first.
    let is_explained = |nth: usize| {
        let its_name = name(policies[nth]);
        let first = policies.iter().position(|other| name(other) == its_name);
        policies.iter().position(|other| *other == its_name).or(first) == Some(nth)
    };
    let legend: String = policies
        .iter()
        .enumerate()
        .map(|(nth, policy)| legend_line(series_of(policy), policy, is_explained(nth)))
        .collect();
    let sections = report.sections.iter().enumerate().map(|(nth, section)| {
        let series: Vec<_> = section.entries.iter().map(|entry| series_of(&entry.policy)).collect();
        section_html(&format!("s{nth}"), untitled, section, &series)
    });
    let legend = if policies.is_empty() {
        String::new()
    } else {
        format!("<section>\n<h2>The policies</h2>\n<ul class=\"policies\">\n{legend}</ul>\n</section>\n")
    };
    let details = legend + &sections.collect::<String>();
    let summary = report.summary.as_ref().zip(report.sections.first()).map(|(summary, section)| {
        let series: Vec<_> = section.entries.iter().map(|entry| series_of(&entry.policy)).collect();
        summary_html(summary, section, &series)
    });
    Ok(document(report, &(summary.unwrap_or_default() + &details)))
}

/// The answer, its table, its picture, and what was learned.
fn summary_html(summary: &Summary, section: &Section, series: &[Series]) -> String {
    let answer = if summary.answer.is_empty() {
        String::new()
    } else {
        format!("<p class=\"lead\">{}</p>\n", escape(&summary.answer))
    };
    let heads = HEADS.map(|head| head.replace(" us", " µs"));
    let lines = summary.lines.iter().map(|line| line.to_vec()).collect();
    let table = html::table(&summary.about, &heads.each_ref().map(String::as_str), 1..heads.len(), &[lines]);
    let learning = if summary.learning.is_empty() {
        String::new()
    } else {
        let lines = summary.learning.iter().map(|line| line.to_vec()).collect();
        let about = "Learning, apart: what of the held time trials took, and what a licence that they found; in % of the requests' time";
        html::table(about, &LEARNING_HEADS, 1..LEARNING_HEADS.len(), &[lines])
    };
    let figure = figures::worth(section, series);
    format!("<section id=\"summary\">\n<h2>Is it worth it?</h2>\n{answer}{table}{figure}{learning}</section>\n")
}

/// Labels and styles, one of each for a policy.
type Styles = Vec<(String, usize)>;

/// The policies of a report, and their labels and styles.
fn styled(report: &Report) -> Result<(Vec<&str>, Styles)> {
    let mut policies: Vec<&str> = Vec::new();
    for entry in report.sections.iter().flat_map(|section| &section.entries) {
        if !policies.contains(&entry.policy.as_str()) {
            policies.push(&entry.policy);
        }
    }
    let labels: Vec<_> = policies.iter().map(|policy| label(policy)).collect();
    let styles = styles(&labels.iter().map(String::as_str).collect::<Vec<_>>())
        .with_context(|| format!("a report has room for {STYLES} policies, and three more of one name"))?;
    Ok((policies, styles))
}

/// The decisions of a report's first section as a picture, an SVG file.
///
/// # Errors
/// More policies than there are colours; no time line.
pub fn picture(report: &Report) -> Result<String> {
    let (_, styles) = styled(report)?;
    let series: Vec<_> = styles.iter().map(|(label, style)| Series { label, style: *style }).collect();
    let decisions = report.sections.first().and_then(|section| figures::decisions(section, &series));
    let (strip, _) = decisions.context("no completion comes so late")?;
    Ok(chart::standalone(&strip, timeline::WIDTH))
}

/// A page with a report's head, and `body` below that.
#[must_use]
pub fn document(report: &Report, body: &str) -> String {
    let facts = report
        .facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value)));
    let notes: String = report.notes.iter().map(|note| html::notice(note)).collect();
    let title = escape(&report.title);
    let lead =
        if report.lead.is_empty() { String::new() } else { format!("<p class=\"lead\">{}</p>", escape(&report.lead)) };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n{lead}\n<dl class=\"facts\">\n{}</dl>\n</header>\n{notes}{body}</main>\n</body>\n</html>\n",
        facts.collect::<String>()
    )
}

/// The name in a policy's text, as it fits beside a picture.
fn name(policy: &str) -> &str {
    match policy.split(':').next().unwrap_or_default() {
        "xen_as_published" => "xen",
        "cint_storm_as_published" => "cint storm",
        name => name,
    }
}

/// The same, with its budget if that is all that is said of it: those are compared with each other.
fn label(policy: &str) -> String {
    match policy.split_once(":budget=") {
        Some((name, budget)) if budget.ends_with('%') => format!("{name} {budget}"),
        _ => name(policy).to_owned(),
    }
}

/// `is_explained`: with what its name stands for.
fn legend_line(series: Series, policy: &str, is_explained: bool) -> String {
    let is_it = |info: &PolicyInfo| is_explained && info.name == name(policy);
    let about = Spec::policies().into_iter().find(is_it).map_or("", |info| info.about);
    let swatch = chart::swatch(series.style);
    let text = if policy == series.label { "" } else { policy };
    format!(
        "<li>{swatch}<b>{}</b> <span class=\"muted\">{}</span><br>{}</li>\n",
        escape(series.label),
        escape(text),
        escape(about)
    )
}

fn section_html(id: &str, untitled: &str, section: &Section, series: &[Series]) -> String {
    let title = if section.title.is_empty() { untitled } else { &section.title };
    let about = if section.about.is_empty() { String::new() } else { format!("<p>{}</p>\n", escape(&section.about)) };
    format!(
        "<section id=\"{id}\">\n<h2>{}</h2>\n{about}{}{}</section>\n",
        escape(title),
        figures::figures(id, section, series),
        table(section, series)
    )
}

fn table(section: &Section, series: &[Series]) -> String {
    let heads = [
        "policy",
        "interrupts/I/O",
        "request mean µs",
        "latency p50 µs",
        "p99",
        "p99.9",
        "worst",
        "delay mean µs",
        "p99",
        "p99.9",
        "worst",
        "promised",
        "rules",
        "interrupts by reason",
    ];
    let us = |ns: Option<u64>| ns.map_or_else(|| "-".into(), text::us);
    let known = |of: &Percentiles, ns: Option<u64>| us(ns.filter(|_| of.count > 0));
    let line = |(entry, series): (&Entry, &Series)| {
        let (latency, delay) = (&entry.latency, &entry.delay);
        let mut reasons: Vec<_> = entry.reasons.iter().filter(|(_, count)| *count > 0).collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let reasons: Vec<_> = reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        vec![
            series.label.to_owned(),
            format!("{:.3}", entry.interrupts_per_io),
            entry.request_time.map_or_else(|| "-".into(), text::mean_us),
            known(latency, latency.at(50.0)),
            known(latency, latency.at(99.0)),
            known(latency, latency.at(99.9)),
            known(latency, Some(latency.max)),
            if delay.count > 0 { text::mean_us(delay.mean) } else { "-".into() },
            known(delay, delay.at(99.0)),
            known(delay, delay.at(99.9)),
            known(delay, Some(delay.max)),
            us(entry.bound),
            if entry.late + entry.wrong == 0 {
                "kept".into()
            } else {
                format!("{} late, {} wrong", entry.late, entry.wrong)
            },
            reasons.join(", "),
        ]
    };
    let lines = section.entries.iter().zip(series).map(line).collect();
    html::table("All numbers", &heads, 1..heads.len() - 2, &[lines])
}
