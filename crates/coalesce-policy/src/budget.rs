//! A latency budget as a policy.

use crate::completion::{Class, Completion};
use crate::hints::{Clues, HintCounts, HintSources};
use crate::machine::Machine;
use crate::mark::Mark;
use crate::Decision;
use budget_core::{Budget, Config, Event, Params};
use cint_core::Hint;

/// Parameters of a latency budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "prototype")]
pub struct BudgetSpec {
    pub params: Params,
}

#[derive(Clone, Debug)]
pub(crate) struct Budgeted {
    budget: Budget,
}

impl Budgeted {
    pub(crate) fn new(spec: BudgetSpec, tick_hz: u64) -> Self {
        let config = Config::new(Params { tick_hz, ..spec.params }).expect("prototype");
        Self { budget: Budget::new(config) }
    }
}

impl Machine for Budgeted {
    fn on_completion(&mut self, now: u64, completion: &Completion, hints: &mut HintCounts) -> Decision {
        let Completion { mark, cif, class, outstanding, .. } = *completion;
        let (hint, source) = mark.at_completion(HintSources::AUTO, cif, false);
        hints.count(source);
        let event = match (class, hint) {
            (Class::Io, Hint::Plain) => Event::Plain,
            (Class::Io, Hint::Barrier) => Event::Barrier,
            _ => Event::Urgent,
        };
        self.budget.on_completion(now, event, cif, outstanding)
    }

    fn deadline(&self) -> Option<u64> {
        self.budget.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.budget.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.budget.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.budget.on_consumed(now);
    }

    fn held(&self) -> u64 {
        self.budget.held().into()
    }

    fn max_hold(&self) -> Option<u64> {
        Some(self.budget.config().max_hold())
    }

    fn wants_submit(&self) -> bool {
        true
    }

    fn on_submit(&mut self, now: u64, clues: &Clues) -> Mark {
        self.budget.on_submit(now, clues.outstanding);
        Mark::new(HintSources::AUTO, clues, None)
    }

    fn reset_tracking(&mut self) {
        self.budget.reset();
    }
}
