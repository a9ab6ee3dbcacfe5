//! A latency budget and its slowdown guard.

use crate::completion::Completion;
use crate::hinted::Core;
use crate::policy::Spent;
use crate::slowdown::SlowdownGuard;
use budget_core::Budget;
use coalesce_decision::{ConfigError, Decision, Event, Reason};

/// Parameters, and whether there is a slowdown guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) budget: budget_core::Config,
    pub(crate) is_guarded: bool,
}

/// A latency budget, and the guard that may lower it.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    core: Budget,
    budget: budget_core::Config, // of which the guard may leave the core a part
    guard: Option<SlowdownGuard>,
}

impl Guarded {
    /// `completions` commands completed. Whether they may be held.
    fn may_hold(&mut self, now: u64, completions: u32) -> bool {
        let Some(guard) = &mut self.guard else { return true };
        let has_changed = guard.advance(now, completions, self.core.found(), &self.budget);
        let Some(shift) = guard.shift() else { return false };
        if has_changed {
            self.core.set_budget(&self.budget.lowered(shift));
        }
        true
    }
}

impl Core for Guarded {
    type Config = Config;

    const WANTS_SUBMIT: bool = true;

    fn new(Config { budget, is_guarded }: Config) -> Self {
        Self { core: Budget::new(budget), budget, guard: is_guarded.then_some(SlowdownGuard::NEW) }
    }

    fn reconfigure(&mut self, Config { budget, is_guarded }: Config, now: u64) -> Result<Decision, ConfigError> {
        let decision = self.core.reconfigure(budget, now)?;
        self.budget = budget;
        self.guard = is_guarded.then_some(SlowdownGuard::NEW);
        Ok(decision)
    }

    fn on_submit(&mut self, now: u64, outstanding: u32, count: u32) {
        self.core.on_submits(now, outstanding, count);
    }

    fn decide(&mut self, now: u64, event: Event, completion: &Completion) -> Decision {
        let is_forced = !self.may_hold(now, 1) && event == Event::Plain;
        let event = if is_forced { Event::Barrier } else { event };
        match self.core.on_completion(now, event, completion.cif, completion.outstanding) {
            Decision::Deliver(Reason::Barrier) if is_forced => Decision::Deliver(Reason::Slowdown),
            decision => decision,
        }
    }

    /// They complete as any others do, for the depth to be learned, and none of them stays held.
    fn ride(&mut self, now: u64, left: u16, event: Event, last: &Completion) {
        let _ = self.may_hold(now, left.into());
        for left in (0..left).rev() {
            let event = if left > 0 { Event::Plain } else { event };
            let _ = self.core.on_completion(now, event, last.cif.saturating_add(left.into()), last.outstanding);
        }
        self.core.on_consumed(now);
    }

    fn deadline(&self) -> Option<u64> {
        self.core.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.core.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.core.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.core.on_consumed(now);
    }

    fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.core.on_cancel(now, event)
    }

    fn forget(&mut self) {
        self.core.forget();
        self.guard = self.guard.as_ref().map(|_| SlowdownGuard::NEW);
    }

    fn held(&self) -> u32 {
        self.core.held()
    }

    fn max_hold(&self) -> Option<u64> {
        Some(self.budget.max_hold())
    }

    fn spent(&self) -> Option<Spent> {
        let (held, outstanding) = self.core.spent();
        Some(Spent { held, outstanding, budget: 0, learning: self.budget.learning() })
    }
}
