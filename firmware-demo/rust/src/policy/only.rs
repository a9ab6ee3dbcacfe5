//! A single policy, with parameters that the compiler checks, so that the firmware does not contain the checks. Nothing
//! of it is inlined, so that its instructions can be counted.

#[cfg_attr(feature = "only-vic", path = "only_vic.rs")]
#[cfg_attr(not(feature = "only-vic"), path = "only_guarded.rs")]
mod machine;

use coalesce_decision::{Completion, Decision, Mark, Policy, Submission};
use machine::Machine;

#[derive(Debug)]
pub struct Selected(Machine);

impl Selected {
    pub const OFF: Self = Self(machine::OFF);

    /// Sets the policy by its number in Feature C0h. `Err`: this firmware does not have the policy.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.0 = machine::choose(choice, storm_rate)?;
        Ok(())
    }

    /// Does nothing: there is no Feature 08h.
    pub const fn set(&mut self, _: u32, _: u64) {}

    /// It holds nothing.
    pub const fn is_aggregating(&self) -> bool {
        false
    }
}

impl Policy for Selected {
    #[inline(never)]
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.0.on_submit(now, submission)
    }

    #[inline(never)]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.0.on_completion(now, completion)
    }

    #[inline(never)]
    fn deadline(&self) -> Option<u64> {
        self.0.deadline()
    }

    #[inline(never)]
    fn on_deadline(&mut self, now: u64) -> Decision {
        self.0.on_deadline(now)
    }

    #[inline(never)]
    fn on_consumed(&mut self, now: u64) {
        self.0.on_consumed(now);
    }

    #[inline(never)]
    fn flush(&mut self, now: u64) -> Decision {
        self.0.flush(now)
    }

    fn held(&self) -> u32 {
        self.0.held()
    }
}
