//! The table of a job.

use coalesce_demo::table::Table;

use crate::metric::metrics;
use crate::results::Measured;

/// The numbers of one job under every policy. A star marks the claims of the page.
pub fn table(measured: &Measured) -> Table {
    let policies = &measured.policies;
    let others = policies.others().map(|policy| policy.label.as_str());
    let mut table = Table::new("policy", &policies.baseline().label, others);
    for metric in metrics(measured.job, measured.place) {
        let comparison = measured.compare(metric.what);
        let head = format!("{}{}", metric.name, if measured.is_claim(metric.what) { " *" } else { "" });
        table.push(&head, measured.median(0, metric.what), &comparison, |ratio| metric.is_exact(ratio));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Job;
    use crate::results::tests::measured;

    #[test]
    fn what_tells_no_difference_is_grey() {
        let table = table(&measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (1000, 250)]));
        let shown = table.text(false);
        let lines: Vec<_> = shown.lines().collect();
        assert!(
            lines[0].starts_with("policy       interrupts/IO  taken/IO *       CPU µs/IO *         reads/s *  system"),
            "{shown}"
        );
        assert!(lines[3].starts_with("auto            0.25 exact  0.25 exact"), "{shown}");
        let grey: Vec<_> = table.lines[2].iter().map(|cell| cell.is_grey).collect();
        assert_eq!(grey[..5], [false, false, false, false, true], "{shown}");
        assert!(!shown.contains('\x1b') && table.text(true).contains("\x1b[2m"));
    }
}
