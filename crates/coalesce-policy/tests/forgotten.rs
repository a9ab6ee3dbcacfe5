//! A caller that forgets `on_submit`.

use coalesce_policy::{AnyPolicy, Completion, Policy as _, Spent, Submission};

/// What a caller reports.
#[derive(Clone, Copy, Debug, Default)]
struct Reports {
    submissions: bool,
    cif: bool,
    outstanding: bool,
}

/// How long a run is, in ns.
const PASSED: u64 = 400_000_000;

/// Interrupts for 40 000 completions of a device that completes one of 32 requests every 10 µs, and what was spent: in ns.
fn run(reports: Reports) -> (u32, Spent) {
    let mut auto = AnyPolicy::new("auto".parse().unwrap(), 1_000_000_000).unwrap();
    let (mut in_flight, mut interrupts) = (32, 0);
    for now in (10_000..PASSED).step_by(10_000) {
        let (cif, outstanding) = (if reports.cif { in_flight } else { 0 }, if reports.outstanding { 32 } else { 0 });
        in_flight -= 1;
        let is_due = auto.deadline().is_some_and(|deadline| deadline <= now) && auto.on_deadline(now).is_deliver();
        if auto.on_completion(now, &Completion { outstanding, ..Completion::with_cif(cif) }).is_deliver() || is_due {
            interrupts += 1;
            if reports.submissions {
                let _ = auto.on_submit(now, &Submission { before: 31 - in_flight, ..Submission::ALONE });
            }
            in_flight = 32;
        }
    }
    (interrupts, auto.spent().unwrap())
}

/// What completions say of the commands in flight is enough, and of what is outstanding nearly so. Who says neither has nearly every
/// interrupt, though submissions are reported, and finds in what was spent that no more than one request is taken to be outstanding.
#[test]
fn a_budget_is_served_by_what_completions_say_and_tells_if_they_say_nothing() {
    let known = Reports { submissions: true, cif: true, outstanding: true };
    for reports in [
        known,
        Reports { submissions: false, ..known },
        Reports { cif: true, ..Reports::default() },
        Reports { outstanding: true, ..Reports::default() },
    ] {
        let (interrupts, spent) = run(reports);
        assert!(interrupts < 20_000, "{reports:?}: {interrupts} interrupts for 40 000 completions");
        assert!(spent.outstanding > 20 * PASSED, "{reports:?}: {spent:?}");
    }
    for reports in [Reports { submissions: true, ..Reports::default() }, Reports::default()] {
        let (interrupts, spent) = run(reports);
        assert!(interrupts > 38_000, "{reports:?}: {interrupts} interrupts for 40 000 completions");
        assert!(spent.outstanding <= PASSED, "{reports:?}: {spent:?}");
    }
}
