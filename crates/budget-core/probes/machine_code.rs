//! The calls of a device: `scripts/check-cores.sh` looks at their machine code.
#![no_std]

use budget_core::{Auto, Budget, Completion, Config, ConfigError, Decision, Mark, Params, Policy as _, Submission};

/// A machine.
pub fn new(params: Params) -> Result<Budget, ConfigError> {
    Ok(Budget::new(Config::new(params)?))
}

/// On a completion.
pub fn on_completion(budget: &mut Budget, now: u64, completion: &Completion) -> Decision {
    budget.on_completion(now, completion)
}

/// On a submission.
pub fn on_submit(budget: &mut Budget, now: u64, submission: &Submission) -> Mark {
    budget.on_submit(now, submission)
}

/// The same with the regulator.
pub fn on_regulated_completion(auto: &mut Auto, now: u64, completion: &Completion) -> Decision {
    auto.on_completion(now, completion)
}

/// The deadline.
pub fn deadline(budget: &Budget) -> Option<u64> {
    budget.deadline()
}

/// At the deadline.
pub fn on_deadline(budget: &mut Budget, now: u64) -> Decision {
    budget.on_deadline(now)
}

/// A stop or a reset.
pub fn flush(budget: &mut Budget, now: u64) -> Decision {
    budget.flush(now)
}

/// An aborted command.
pub fn on_cancel(budget: &mut Budget, now: u64, mark: Mark) -> Decision {
    budget.on_cancel(now, mark)
}

/// A consumer that polls.
pub fn on_consumed(budget: &mut Budget, now: u64) {
    budget.on_consumed(now);
}

/// Another configuration.
pub fn reconfigure(budget: &mut Budget, config: Config, now: u64) -> Result<Decision, ConfigError> {
    budget.reconfigure(config, now)
}

/// Another guest.
pub fn forget(budget: &mut Budget) {
    budget.reset_tracking();
}

/// Whether the storm guard paces interrupts.
pub fn is_storming(budget: &Budget) -> bool {
    budget.is_storming()
}
