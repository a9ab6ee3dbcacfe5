//! A line for each policy, for spreadsheets and scripts.

use super::{Entry, Held, Percentiles, Report};

const HEAD: &str = "conditions,policy,completions,interrupts,interrupts_per_io,optimum,iops,cycles_per_io,\
                    request_time_ns,held_share,trial_share,licensed_share,\
                    lat_mean_ns,lat_p50_ns,lat_p90_ns,lat_p99_ns,lat_p99.9_ns,lat_max_ns,\
                    delay_mean_ns,delay_p50_ns,delay_p90_ns,delay_p99_ns,delay_p99.9_ns,delay_max_ns,\
                    bound_ns,late,wrong\n";

/// All numbers of a report; what is not known is empty.
#[must_use]
pub fn csv(report: &Report) -> String {
    let lines =
        report.sections.iter().flat_map(|section| section.entries.iter().map(|entry| line(&section.title, entry)));
    std::iter::once(HEAD.to_owned()).chain(lines).collect()
}

fn line(conditions: &str, entry: &Entry) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
    let count = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let held = |of: fn(&Held) -> f64| entry.held.as_ref().map_or_else(String::new, |held| format!("{:.6}", of(held)));
    let mut cells = vec![
        quoted(conditions),
        quoted(&entry.policy),
        entry.delay.count.to_string(),
        count(entry.interrupts),
        format!("{:.6}", entry.interrupts_per_io),
        count(entry.optimum),
        number(entry.iops),
        number(entry.cycles_per_io),
        number(entry.request_time),
        held(|held| held.share),
        held(|held| held.trials),
        held(|held| held.licensed),
    ];
    cells.extend(distribution(&entry.latency));
    cells.extend(distribution(&entry.delay));
    cells.push(count(entry.bound));
    cells.extend([entry.late.to_string(), entry.wrong.to_string()]);
    cells.join(",") + "\n"
}

fn distribution(of: &Percentiles) -> [String; 6] {
    if of.count == 0 {
        return Default::default();
    }
    let at = |percent| of.at(percent).map_or_else(String::new, |ns| ns.to_string());
    [format!("{:.1}", of.mean), at(50.0), at(90.0), at(99.0), at(99.9), of.max.to_string()]
}

/// A policy's text has commas.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Section;

    #[test]
    fn every_line_has_as_many_cells_as_the_head() {
        let delay = Percentiles { count: 2, mean: 1.5, points: vec![(50.0, 1), (99.0, 2)], max: 2 };
        let entry = Entry { policy: "vic:epoch=1ms,max_skip=9".into(), delay, ..Entry::default() };
        let section = Section { title: "depth \"4\"".into(), entries: vec![entry], ..Section::default() };
        let text = csv(&Report { sections: vec![section], ..Report::default() });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], r#""depth ""4""","vic:epoch=1ms,max_skip=9",2,,0.000000,,,,,,,,,,,,,,1.5,1,,2,,2,,0,0"#);
        assert_eq!(lines[0].split(',').count(), lines[1].split(',').count() - 1);
    }
}
