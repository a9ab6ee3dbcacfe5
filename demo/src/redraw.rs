//! Pictures of what was measured, from its JSON: what is saved against what that costs in latency.

use anyhow::{Context as _, Result};
use coalesce_charts::series::{Series, styles};
use serde_json::Value;

use crate::figure::{Mark, file, heading, panel};
use crate::paired::Interval;

/// Where the demonstration has pictures. Where instructions are counted nothing is as fast as it is.
const PLACES: [&str; 4] = ["native", "guest", "nvme", "bare"];
/// Jobs with many requests in flight.
const DEEP: [&str; 3] = ["depth8", "depth32", "sqlite"];
/// What a comparison of servers has on its y axis, and the names of the files.
const SAVED: [(&str, &str); 2] = [("interrupts/IO", "interrupts"), ("client CPU µs/IO", "cpu")];

/// A picture, and the name of its file; `None`: too few turns for an interval.
pub type Picture = (String, Option<String>);

/// One of several that are compared: its label, and what it is a variant of. Variants of one thing look alike.
struct Variant<'a> {
    name: &'a str,
    label: &'a str,
    kind: &'a str,
}

/// A number of a job at a place, under each policy.
fn policies<'a>(run: &'a Value, place: &str, job: &str, metric: &str) -> Option<&'a Value> {
    let job = run[place]["jobs"].as_array()?.iter().find(|of| of["jobname"] == job)?;
    Some(&job["metrics"].as_array()?.iter().find(|of| of["name"] == metric)?["policies"])
}

/// The picture that comes first: what a guest saves with 32 reads in flight, against what that costs one that waits for each.
fn first(run: &Value, variants: &[Variant<'_>]) -> Result<Option<Picture>> {
    let of = |place| {
        let number = |(job, metric)| policies(run, place, job, metric);
        Some((place, number(("depth1", "reads/s"))?, number(("depth32", "taken/IO"))?))
    };
    let Some((place, rates, taken)) = ["nvme", "guest", "bare"].into_iter().find_map(of) else { return Ok(None) };
    let title = format!("{}: 32 in flight", heading(place));
    let marks = marks(variants, (rates, inverse), taken)?;
    let picture = panel(&title, "interrupts taken", "read, one at a time", &marks).as_deref().map(file);
    Ok(Some(("first.svg".into(), picture)))
}

/// The pictures of a run of the demonstration.
///
/// # Errors
/// It is no such run.
pub fn of_demo<'a>(run: &'a Value) -> Result<Vec<Picture>> {
    let policies = run["policies"].as_array().context("no policies")?;
    let variant = |policy: &'a Value| {
        let (label, text) = (policy["label"].as_str()?, policy["policy"].as_str()?);
        Some(Variant { name: label, label, kind: text.split(':').next()? })
    };
    let others = policies.iter().filter(|policy| policy["label"] != run["baseline"]);
    let variants: Vec<_> = others.filter_map(variant).collect();
    let mut pictures: Vec<_> = first(run, &variants)?.into_iter().collect();
    for place in PLACES {
        for job in run[place]["jobs"].as_array().into_iter().flatten() {
            let name = job["jobname"].as_str().context("a job without a name")?;
            if !DEEP.contains(&name) {
                continue;
            }
            let metrics = job["metrics"].as_array().context("a job without numbers")?;
            let is_rate = |metric: &&Value| metric["name"].as_str().is_some_and(|name| name.ends_with("/s"));
            let rate = metrics.iter().find(is_rate).context("a job without a rate")?;
            let unit = rate["name"].as_str().unwrap_or_default().trim_end_matches("s/s");
            let interrupts = match place {
                "native" => ("interrupts/IO", "interrupts per I/O"),
                _ => ("taken/IO", "interrupts taken"),
            };
            for ((metric, saved), file_name) in [(interrupts, "interrupts"), (("CPU µs/IO", "CPU time per I/O"), "cpu")]
            {
                let Some(metric) = metrics.iter().find(|of| of["name"] == metric) else { continue };
                let title = format!("{}: {name}", heading(place));
                let marks = marks(&variants, (&rate["policies"], inverse), &metric["policies"])?;
                let picture = panel(&title, saved, unit, &marks).as_deref().map(file);
                pictures.push((format!("{place}-{name}-{file_name}.svg"), picture));
            }
        }
    }
    Ok(pictures)
}

/// The pictures of one depth and number of queues under several servers, of which the first is the baseline.
///
/// # Errors
/// It is no such row, or there are more kinds of servers than colours.
pub fn of_servers(servers: &[&str], row: &Value) -> Result<Vec<Picture>> {
    let variants: Vec<_> =
        servers.iter().skip(1).map(|name| Variant { name, label: label(name), kind: kind(name) }).collect();
    let (depth, queues) = (&row["depth"], &row["queues"]);
    let title = format!("depth {depth}, {queues} queue{}", if *queues == 1 { "" } else { "s" });
    let metrics = row["metrics"].as_array().context("a row without numbers")?;
    let find = |name: &str| metrics.iter().find(|metric| metric["name"] == name).with_context(|| format!("no {name}"));
    let latency = find("p50 µs")?;
    let of = |(saved, name): (&str, &str)| {
        let marks = marks(&variants, (&latency["servers"], |ratio| ratio), &find(saved)?["servers"])?;
        let picture = panel(&title, saved, "read", &marks).as_deref().map(file);
        Ok((format!("depth{depth}-queues{queues}-{name}.svg"), picture))
    };
    SAVED.into_iter().map(of).collect()
}

/// All pictures of a comparison of servers.
///
/// # Errors
/// It is no comparison.
pub fn of_comparison(comparison: &Value) -> Result<Vec<Picture>> {
    let servers = comparison["servers"].as_array().context("no servers")?;
    let servers: Vec<_> = servers.iter().filter_map(Value::as_str).collect();
    let rows = comparison["rows"].as_array().context("no rows")?;
    Ok(rows.iter().map(|row| of_servers(&servers, row)).collect::<Result<Vec<_>>>()?.concat())
}

/// The marks of those whose intervals are known. `latency`: the ratios on the x axis, and what makes latencies of them.
fn marks<'a>(
    variants: &[Variant<'a>],
    latency: (&Value, fn(Interval) -> Interval),
    saved: &Value,
) -> Result<Vec<Mark<'a>>> {
    let mut kinds: Vec<_> = variants.iter().map(|variant| variant.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let styles = styles(&kinds).context("too many kinds for a picture")?;
    let mark = |Variant { name, label, kind }: &Variant<'a>| {
        let (x, y) = (&latency.0[name], &saved[name]);
        let style = kinds.iter().position(|of| of == kind)?;
        Some(Mark {
            series: Series { label, style: styles[style].1 },
            latency: latency.1(interval(&x["ratio"])?),
            saved: interval(&y["ratio"])?,
            is_sure: [x, y].iter().any(|told| told["verdict"] == "differs"),
        })
    };
    Ok(variants.iter().filter_map(mark).collect())
}

fn interval(ratio: &Value) -> Option<Interval> {
    let end = |name| ratio[name].as_f64();
    Some(Interval { median: end("median")?, low: end("low")?, high: end("high")? })
}

/// A request takes so much longer where there are so many fewer in a second.
fn inverse(Interval { median, low, high }: Interval) -> Interval {
    Interval { median: 1.0 / median, low: 1.0 / high, high: 1.0 / low }
}

/// What a picture calls a server: `auto 5%` instead of `SPDK, our auto 5%`.
fn label(server: &str) -> &str {
    server.rsplit_once("our ").map_or(server, |(_, policy)| policy)
}

/// The policy of such a server, without its budget; the name of another.
fn kind(server: &str) -> &str {
    let label = label(server);
    if label == server { server } else { label.split(' ').next().unwrap_or(label) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_one_policy_look_alike() {
        let kinds =
            ["SPDK", "SPDK, 50 µs", "SPDK, our auto 5%", "SPDK, our auto", "SPDK, our vic", "ours, none"].map(kind);
        assert_eq!(kinds, ["SPDK", "SPDK, 50 µs", "auto", "auto", "vic", "ours, none"]);
    }
}
