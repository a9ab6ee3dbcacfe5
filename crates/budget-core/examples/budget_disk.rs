//! What a budget buys: a disk that takes 3 µs for a command, a guest that keeps 32 in flight, and four budgets.
//! `cargo run -p budget-core --example budget_disk`
//!
//! The guest reaps completions at interrupts only, and submits as many commands again.

use budget_core::{Budget, Completion, Config, ConfigError, Params, Policy as _, Share, Spent};

const DEPTH: u32 = 32;
const SERVICE: u64 = 3_000; // in ticks of the clock, which are nanoseconds
const SECOND: u64 = 1_000_000_000;

fn main() -> Result<(), ConfigError> {
    println!("budget  interrupts per I/O  I/Os per s  held, % of the time of all requests");
    for percent in [1, 5, 10, 20] {
        let mut budget = Budget::new(Config::new(Params { budget: Share::percent(percent), ..Params::DEFAULT })?);
        let (mut now, mut in_flight, mut held) = (0, 0, 0);
        let (mut completions, mut interrupts) = (0_u64, 0_u64);
        while now < SECOND {
            while in_flight + held < DEPTH {
                in_flight += 1;
                budget.on_submits(now, 1);
            }
            let completion = if in_flight > 0 { now + SERVICE } else { u64::MAX };
            let deadline = budget.deadline().unwrap_or(u64::MAX);
            let decision = if deadline <= completion {
                now = now.max(deadline);
                budget.on_deadline(now)
            } else {
                now = completion;
                completions += 1;
                let decision = budget.on_completion(
                    now,
                    &Completion { outstanding: in_flight + held, ..Completion::with_cif(in_flight) },
                );
                (in_flight, held) = (in_flight - 1, held + 1);
                decision
            };
            if decision.is_deliver() {
                interrupts += 1;
                held = 0;
            }
        }
        let Spent { held: held_time, outstanding: outstanding_time, .. } = budget.spent().unwrap_or_default();
        println!(
            "{percent:>4} %  {:>18.3}  {completions:>10}  {:>5.2}",
            interrupts as f64 / completions as f64,
            100.0 * held_time as f64 / outstanding_time as f64,
        );
    }
    Ok(())
}
