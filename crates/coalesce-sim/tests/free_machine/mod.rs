//! A machine for tests of what can be computed by hand.

use coalesce_sim::plan::Machine;
use coalesce_sim::units::Cost;

/// A machine on which nothing costs anything.
pub fn free() -> Machine {
    let nothing = Cost::Time(0);
    Machine {
        submit_call: nothing,
        submit: nothing,
        interrupt: nothing,
        complete: nothing,
        context_switch: nothing,
        reap: nothing,
        ..Machine::default()
    }
}
