//! A policy with a mistake in it, and what the checker says: `cargo run -p coalesce-testkit --example broken`
//!
//! Interrupt at the eighth completion, or 100 ticks after the first one held. The mistake is the most common one in
//! this field: the timer restarts at each completion, so a steady trickle holds the first one for longer and longer.

use coalesce_testkit::{Completion, Decision, HoldReason, Mix, Policy, Promises, Reason, Tested, try_check_any};
use proptest::strategy::{Just, Strategy};

const COUNT: u32 = 8;
const TIME: u64 = 100;

#[derive(Debug, Default)]
struct CountAndTime {
    held: u32,
    armed: u64,
}

impl Policy for CountAndTime {
    fn on_completion(&mut self, now: u64, _: &Completion) -> Decision {
        self.held += 1;
        self.armed = now; // the mistake: only where self.held == 1
        if self.held == COUNT { self.flush(now) } else { Decision::Hold(HoldReason::Aggregate) }
    }

    fn deadline(&self) -> Option<u64> {
        (self.held > 0).then_some(self.armed + TIME)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.flush(now)
        } else {
            Decision::Hold(HoldReason::Early)
        }
    }

    fn flush(&mut self, _: u64) -> Decision {
        if std::mem::take(&mut self.held) > 0 {
            Decision::Deliver(Reason::Count)
        } else {
            Decision::Hold(HoldReason::NothingHeld)
        }
    }

    fn on_consumed(&mut self, _: u64) {
        self.held = 0;
    }

    fn held(&self) -> u32 {
        self.held
    }
}

impl Tested for CountAndTime {
    fn promises(&self) -> Promises {
        Promises { hold_max: Some(TIME), ..Promises::default() }
    }
}

fn main() {
    let any = Just("count 8, time 100").boxed();
    match try_check_any(&Mix::new([TIME]), 100_000, &any, |_| CountAndTime::default()) {
        Ok(()) => unreachable!("the mistake is there"),
        Err(counterexample) => println!("{counterexample}"),
    }
}
