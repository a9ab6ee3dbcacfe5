//! Two policies that must agree on everything.

use crate::{Completion, Decision, Mark, Policy, Promises, Spent, Submission, Tested};
use coalesce_decision::forward;

/// A machine and its reference, given the same events and compared after every call: decision, reason, deadline, count, account and
/// promises.
#[derive(Debug)]
pub struct Lockstep<M, R> {
    machine: M,
    reference: R,
    fault: Option<String>,
}

impl<M: Tested, R: Tested> Lockstep<M, R> {
    /// Both must have the same configuration.
    pub const fn new(machine: M, reference: R) -> Self {
        Self { machine, reference, fault: None }
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, verb: &str, call: impl Fn(&mut dyn Tested) -> T) -> T {
        let (machine, reference) = (call(&mut self.machine), call(&mut self.reference));
        if machine != reference {
            self.disagree(verb, &machine, &reference);
        }
        let (deadline, expected) = (self.machine.deadline(), self.reference.deadline());
        if deadline != expected {
            self.disagree(&format!("deadline() after {verb}"), &deadline, &expected);
        }
        let (held, expected) = (self.machine.held(), self.reference.held());
        if held != expected {
            self.disagree(&format!("held() after {verb}"), &held, &expected);
        }
        let times = |spent: Spent| (spent.held, spent.outstanding); // what learning may cost is a promise
        let (spent, expected) = (self.machine.spent().map(times), self.reference.spent().map(times));
        if spent != expected {
            self.disagree(&format!("spent() after {verb}"), &spent, &expected);
        }
        let (promises, expected) = (self.machine.promises(), self.reference.promises());
        if promises != expected {
            self.disagree(&format!("promises() after {verb}"), &promises, &expected);
        }
        machine
    }

    fn disagree(&mut self, verb: &str, machine: &dyn std::fmt::Debug, reference: &dyn std::fmt::Debug) {
        self.fault.get_or_insert(format!("{verb}: the machine says {machine:?}, the reference {reference:?}"));
    }
}

impl<M: Tested, R: Tested> Policy for Lockstep<M, R> {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.both("on_completion", |policy| policy.on_completion(now, completion))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.both("on_deadline", |policy| policy.on_deadline(now))
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.both("flush", |policy| policy.flush(now))
    }

    fn on_consumed(&mut self, now: u64) {
        self.both("on_consumed", |policy| policy.on_consumed(now));
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        self.both("on_submit", |policy| policy.on_submit(now, submission))
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.both("on_cancel", |policy| policy.on_cancel(now, mark))
    }

    fn reset_tracking(&mut self) {
        self.both("reset_tracking", |policy| policy.reset_tracking());
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.both("on_batch_end", |policy| policy.on_batch_end(now))
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.both("on_schedule", |policy| policy.on_schedule(now))
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.both("on_deschedule", |policy| policy.on_deschedule(now))
    }

    forward!(self => self.machine; all but on_completion, on_completions, on_covered, on_bypassed, on_deadline, flush, on_consumed,
        on_submit, on_cancel, reset_tracking, on_batch_end, on_schedule, on_deschedule);
}

impl<M: Tested, R: Tested> Tested for Lockstep<M, R> {
    fn promises(&self) -> Promises {
        self.machine.promises()
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        self.both("reconfigure", |policy| policy.reconfigure(choice, now))
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone().or_else(|| self.machine.fault()).or_else(|| self.reference.fault())
    }
}
