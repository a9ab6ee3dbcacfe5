//! The tables of `top`: lines for a terminal, which are the text for a file.

use super::Outcomes;
use super::rates::Row;
use ratatui::style::Stylize as _;
use ratatui::text::Line;
use std::collections::BTreeMap;

/// A table for each target.
pub(super) fn lines(outcomes: &Outcomes<'_>) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (path, outcome) in outcomes {
        match outcome {
            Ok(rows) => {
                lines.push(line(&path.display().to_string()).cyan());
                lines.extend(table(rows));
            }
            Err(error) => lines.push(line(&format!("{error:#}")).red()),
        }
        lines.push(Line::default());
    }
    lines
}

/// A line that a terminal only shows, whatever a target says.
fn line(text: &str) -> Line<'static> {
    Line::from(coalesce_cli::printable(text).into_owned())
}

/// The lines without their colours.
pub(super) fn text(outcomes: &Outcomes<'_>) -> String {
    lines(outcomes).iter().map(|line| format!("{line}\n")).collect()
}

fn table(rows: &[Row]) -> Vec<Line<'static>> {
    let wide = rows.iter().map(|row| row.ctrlr.chars().count()).max().unwrap_or(0).max("disk".len());
    let columns = |name: &str, queue: &str, numbers: [&str; 5], reasons: &str| {
        let [iops, interrupts, added, budget, limited] = numbers;
        line(&format!(
            "{name:wide$} {queue:>5} {iops:>9} {interrupts:>13} {added:>9} {budget:>12} {limited:>10}  {reasons}"
        ))
    };
    let heads = ["IOPS", "interrupts/IO", "added us", "budget %", "at limit %"];
    let mut lines = vec![columns("disk", "queue", heads, "delivered because").bold()];
    for row in rows {
        if let Some(error) = &row.error {
            lines.push(line(&format!("{:wide$} {error}", row.ctrlr)).red());
            continue;
        }
        let numbers = [
            format!("{:.0}", row.iops),
            format!("{:.3}", row.interrupts_per_io),
            format!("{:.2}", row.added_ns / 1e3),
            row.budget_percent.map_or("-".to_owned(), |[spent, limit]| format!("{spent:.2} of {limit}")),
            if row.limited_percent > 0.0 { format!("{:.0}", row.limited_percent) } else { "-".to_owned() },
        ];
        let numbers = numbers.each_ref().map(String::as_str);
        let changed = if row.policy_changed { "(policy changed) " } else { "" };
        let reasons = format!("{changed}{}", reasons(&row.delivered));
        lines.push(match row.queue {
            None => columns(&row.ctrlr, "all", numbers, &reasons).bold(),
            Some(queue) => columns("", &queue.to_string(), numbers, &reasons),
        });
    }
    lines
}

/// The three most frequent reasons, with their shares.
fn reasons(delivered: &BTreeMap<String, u64>) -> String {
    let total: u64 = delivered.values().sum();
    let mut counts: Vec<_> = delivered.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let share = |(reason, count): &(&String, &u64)| format!("{reason} {:.0} %", 100.0 * **count as f64 / total as f64);
    counts.iter().take(3).map(share).collect::<Vec<_>>().join(", ")
}
