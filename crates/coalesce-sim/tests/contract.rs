//! The contract of a latency budget, by what requests really waited for: also where the account counts a depth that no
//! device sees.

use coalesce_sim::plan::Plan;
use coalesce_sim::run::run;
use std::path::Path;

/// What learning may cost: 32 requests held for `max_hold`, in ns.
const LEARNING: f64 = 32.0 * 2e6;

/// Arrivals that do not wait have no depth. Where a limit makes them queue, none may be learned either: it would pay for waits.
#[test]
fn an_open_load_with_a_limit_waits_no_longer_than_the_budget_allows() {
    let mut plan = Plan::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/limits.toml")).unwrap();
    for seed in 1..=3 {
        plan.seed = seed;
        for outcome in run(&plan).unwrap() {
            let [held, outstanding] = [outcome.delay, outcome.latency].map(|time| time.mean * time.count as f64);
            let allowed = 0.05 * outstanding + LEARNING;
            let of = format!("{} {:?} seed {seed}", outcome.policy, outcome.settings);
            assert!(held <= allowed, "{of}: {:.2} of what is allowed", held / allowed);
        }
    }
}
