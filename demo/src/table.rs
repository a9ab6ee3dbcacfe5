//! Tables: the same cells on the terminal and in the report.

use crate::jobs::ROWS;
use crate::options::Policies;
use crate::results::{Cell, Part, Place, Ratio};

/// Number of columns.
pub const COLUMNS: usize = 8;

/// Heads of the columns, with their units.
pub fn heads(baseline: &str) -> [String; COLUMNS] {
    let ratio = format!("x {baseline}");
    ["job", "policy", "IOPS", &ratio, "p50 µs", "p99 µs", "interrupts/I/O", &ratio].map(str::to_owned)
}

/// The lines of one part, grouped by job.
pub fn groups(part: &Part, policies: &Policies) -> Vec<Vec<[String; COLUMNS]>> {
    let rows = 0..ROWS.len();
    let groups = rows.map(|row| {
        let cells = (0..policies.0.len()).filter_map(|policy| part.cell(row, policy));
        cells.map(|cell| line(part, cell, policies)).collect()
    });
    groups.filter(|group: &Vec<_>| !group.is_empty()).collect()
}

fn line(part: &Part, cell: &Cell, policies: &Policies) -> [String; COLUMNS] {
    let ratio = |ratio: Option<Ratio>| ratio.map_or("-".into(), |ratio| format!("{:.2}", ratio.of_medians));
    let us = |percent| cell.latency_us(percent).map_or("-".into(), |us| format!("{us:.1}"));
    [
        cell.row().name.into(),
        policies.0[cell.policy].label.clone(),
        format!("{:.0}", cell.iops()),
        ratio(part.iops_ratio(cell)),
        us(50.0),
        us(99.0),
        format!("{:.3}", cell.interrupts_per_io()),
        ratio(part.interrupts_ratio(cell)),
    ]
}

/// One line that says what a table shows.
pub fn caption(part: &Part) -> String {
    let what = match part.place {
        Place::Native => "Native: built-in client, EVENT_IDX off as NVMe (the device alone decides)",
        Place::Guest => "Guest: fio in Linux under QEMU, EVENT_IDX on, interrupts from /proc/interrupts",
    };
    format!("{what}, median of {} rounds of {} s", part.rounds(), part.seconds)
}

/// What the heads of the columns are too short for.
pub fn notes(part: &Part, policies: &Policies) -> String {
    let baseline = &policies.0[part.baseline].label;
    format!(
        "x {baseline}: the number before it divided by that of {baseline}.\n\
         Interrupts are the whole queue's: both readers of mixed share them, and fsync counts flushes as well as writes."
    )
}

/// The table of one part for a terminal. `bold`: it is one.
pub fn table(part: &Part, policies: &Policies, bold: bool) -> String {
    let heads = heads(&policies.0[part.baseline].label);
    let groups = groups(part, policies);
    let mut widths = heads.each_ref().map(|head| head.chars().count());
    for line in groups.iter().flatten() {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let emphasized = |text: String| if bold { format!("\x1b[1m{text}\x1b[0m") } else { text };
    let mut lines = vec![emphasized(caption(part)), String::new(), emphasized(aligned(&heads, &widths))];
    for mut group in groups {
        // The job's name once is enough to see where it begins.
        group.iter_mut().skip(1).for_each(|line| line[0].clear());
        lines.extend(group.iter().map(|line| aligned(line, &widths)));
    }
    lines.extend([String::new(), notes(part, policies)]);
    lines.join("\n") + "\n"
}

/// Words to the left, numbers to the right.
fn aligned(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let columns = cells.iter().zip(widths).enumerate();
    let padded = columns.map(|(column, (cell, &width))| match column {
        0 | 1 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Policy;
    use crate::results::tests::{cell, part};

    #[test]
    fn columns_are_aligned_and_jobs_named_once() {
        let policy = |label: &str| Policy { label: label.into(), text: label.into(), style: 0 };
        let policies = Policies(vec![policy("none"), policy("auto")]);
        let cells = vec![cell(0, 0, &[(1000.0, 100)]), cell(0, 1, &[(12_345.0, 25)]), cell(3, 1, &[(1.0, 1)])];
        let text = table(&part(Place::Native, cells), &policies, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[2], "job         policy   IOPS  x none     p50 µs     p99 µs  interrupts/I/O  x none");
        assert_eq!(lines[3], "depth1      none     1000    1.00     1000.0     2000.0           1.000    1.00");
        assert_eq!(lines[4], "            auto    12345   12.35       81.0      162.0           0.250    0.25");
        assert_eq!(lines[5], "mixed-sync  auto        1       -  1000000.0  2000000.0           0.010       -");
        assert!(lines[0].contains("EVENT_IDX off") && !text.contains('\x1b'));
    }
}
