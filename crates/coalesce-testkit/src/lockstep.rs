//! Two policies that must agree on everything.

use crate::{Completion, Decision, Policy, Promises, Submission};

/// A machine and its reference, given the same events and compared after every call: decision, reason, deadline, count, account and
/// promises.
pub struct Lockstep<M, R> {
    machine: M,
    reference: R,
    fault: Option<String>,
}

impl<M: Policy, R: Policy> Lockstep<M, R> {
    /// Both must have the same configuration.
    pub const fn new(machine: M, reference: R) -> Self {
        Self { machine, reference, fault: None }
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, verb: &str, call: impl Fn(&mut dyn Policy) -> T) -> T {
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
        let (spent, expected) = (self.machine.spent(), self.reference.spent());
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

impl<M: Policy, R: Policy> Policy for Lockstep<M, R> {
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision {
        self.both("on_completion", |policy| policy.on_completion(now, completion))
    }

    fn deadline(&self) -> Option<u64> {
        self.machine.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.both("on_deadline", |policy| policy.on_deadline(now))
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.both("flush", |policy| policy.flush(now))
    }

    fn promises(&self) -> Promises {
        self.machine.promises()
    }

    fn held(&self) -> Option<u64> {
        self.machine.held()
    }

    fn spent(&self) -> Option<(u64, u64)> {
        self.machine.spent()
    }

    fn on_submit(&mut self, now: u64, submission: Submission) -> Option<u64> {
        self.both("on_submit", |policy| policy.on_submit(now, submission))
    }

    fn cancel(&mut self, now: u64, ticket: Option<u64>) -> Decision {
        self.both("cancel", |policy| policy.cancel(now, ticket))
    }

    fn reset_tracking(&mut self) {
        self.both("reset_tracking", |policy| policy.reset_tracking());
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.both("on_batch_end", |policy| policy.on_batch_end(now))
    }

    fn on_consumed(&mut self, now: u64) {
        self.both("on_consumed", |policy| policy.on_consumed(now));
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.both("on_schedule", |policy| policy.on_schedule(now))
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.both("on_deschedule", |policy| policy.on_deschedule(now))
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        self.both("reconfigure", |policy| policy.reconfigure(choice, now))
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone().or_else(|| self.machine.fault()).or_else(|| self.reference.fault())
    }
}
