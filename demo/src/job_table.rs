//! The table of a job.

use coalesce_demo::table::Table;

use crate::metric::{Metric, What, metrics};
use crate::results::Measured;

/// The numbers of one job under every policy. `all`: with the columns that a terminal has no room for.
/// A star marks the claims of the page.
pub fn table(measured: &Measured, all: bool) -> Table {
    let policies = &measured.policies;
    let is_shown =
        |metric: &Metric| all || !matches!(metric.what, What::ClientCpu | What::TargetCpu | What::ContextSwitches);
    let others = policies.others().map(|policy| policy.label.as_str());
    let mut table = Table::new("policy", &policies.baseline().label, others);
    for metric in metrics(measured.job, measured.place).iter().filter(|metric| is_shown(metric)) {
        let comparison = measured.compare(metric.what);
        let head = format!("{}{}", metric.name, if measured.is_claim(metric.what) { " *" } else { "" });
        table.push(&head, measured.baseline(metric.what), &comparison, |ratio| metric.is_exact(ratio));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Job;
    use crate::results::tests::measured;

    #[test]
    fn a_difference_within_the_noise_is_grey() {
        let table = table(&measured(Job::Depth32, &[(1000, 1000), (1000, 1000), (1000, 250)]), false);
        let shown = table.text(false);
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[0], "policy       interrupts/IO *  system calls/IO       CPU µs/IO *         reads/s *");
        assert!(lines[3].starts_with("auto              0.25 exact"), "{shown}");
        let auto = &table.lines[2];
        assert_eq!(
            auto.iter().map(|cell| cell.is_grey).collect::<Vec<_>>(),
            [false, false, true, false, true],
            "{shown}"
        );
        assert!(!shown.contains('\x1b') && table.text(true).contains("\x1b[2m"));
    }

    #[test]
    fn a_sixth_policy_fits_a_terminal() {
        let table = table(&measured(Job::Sqlite, &[(1000, 1000); 6]), false);
        assert!(table.text(false).lines().all(|line| line.chars().count() <= 132));
    }
}
