//! A policy of one's own, tested, and beside those of this project in every command of the simulator:
//!
//! ```sh
//! cargo test --manifest-path examples/own-policy/Cargo.toml
//! cargo run --release --manifest-path examples/own-policy/Cargo.toml -- score --workloads optane
//! cargo run --release --manifest-path examples/own-policy/Cargo.toml -- replay disk.trace
//! ```

use coalesce_decision::{Completion, Decision, Event, HoldReason, Policy, Reason};
use coalesce_sim::command_line::run_with;
use coalesce_sim::contender::Named;
use std::process::ExitCode;

/// The longest wait, in ns: the simulator's clock.
const MAX_HOLD: u64 = 20_000;

/// Two completions for each interrupt, as long as another command is in flight that may be the second.
#[derive(Debug, Default)]
struct Pairs {
    /// When the first completion of a pair came.
    first: Option<u64>,
}

impl Policy for Pairs {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let is_first = self.first.take().is_none();
        match completion.event() {
            Event::Plain if !is_first => Decision::Deliver(Reason::Count),
            Event::Plain if completion.cif > 1 => {
                self.first = Some(now);
                Decision::Hold(HoldReason::Company)
            }
            Event::Plain => Decision::Deliver(Reason::LowCif),
            Event::Urgent => Decision::Deliver(Reason::Urgent),
            Event::Barrier => Decision::Deliver(Reason::Barrier),
            Event::Error => Decision::Deliver(Reason::Error),
        }
    }

    fn deadline(&self) -> Option<u64> {
        self.first.map(|first| first.saturating_add(MAX_HOLD))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        match self.deadline() {
            Some(deadline) if now < deadline => Decision::Hold(HoldReason::Early),
            Some(_) => {
                self.first = None;
                Decision::Deliver(Reason::MaxHold)
            }
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    fn flush(&mut self, _: u64) -> Decision {
        match self.first.take() {
            Some(_) => Decision::Deliver(Reason::Flush),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    fn on_consumed(&mut self, _: u64) {
        self.first = None;
    }

    fn held(&self) -> u32 {
        self.first.is_some().into()
    }

    fn max_hold(&self) -> Option<u64> {
        Some(MAX_HOLD)
    }
}

fn main() -> ExitCode {
    run_with(&[Named { name: "pairs", policy: || Box::new(Pairs::default()) }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_testkit::{Mix, Promises, Tested, check};

    impl Tested for Pairs {
        fn promises(&self) -> Promises {
            Promises { hold_max: Some(MAX_HOLD), ..Promises::default() }
        }
    }

    #[test]
    fn no_interrupt_is_lost_or_late() {
        check(&Mix::new([MAX_HOLD]), 100_000, Pairs::default);
    }
}
