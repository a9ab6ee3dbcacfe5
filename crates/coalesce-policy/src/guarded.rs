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

/// A latency budget, and the guard that may suspend holding.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    core: Budget,
    guard: Option<SlowdownGuard>,
}

impl Core for Guarded {
    type Config = Config;

    const WANTS_SUBMIT: bool = true;

    fn new(Config { budget, is_guarded }: Config) -> Self {
        Self { core: Budget::new(budget), guard: is_guarded.then_some(SlowdownGuard::NEW) }
    }

    fn reconfigure(&mut self, Config { budget, is_guarded }: Config, now: u64) -> Result<Decision, ConfigError> {
        let decision = self.core.reconfigure(budget, now)?;
        self.guard = is_guarded.then_some(SlowdownGuard::NEW);
        Ok(decision)
    }

    fn on_submit(&mut self, now: u64, outstanding: u32) {
        self.core.on_submit(now, outstanding);
    }

    fn decide(&mut self, now: u64, event: Event, completion: &Completion) -> Decision {
        let may_hold = self.guard.as_mut().is_none_or(|guard| {
            guard.advance(now, 1, self.core.depth(), &self.core.config());
            guard.may_hold()
        });
        let is_forced = event == Event::Plain && !may_hold;
        let event = if is_forced { Event::Barrier } else { event };
        match self.core.on_completion(now, event, completion.cif, completion.outstanding) {
            Decision::Deliver(Reason::Barrier) if is_forced => Decision::Deliver(Reason::Slowdown),
            decision => decision,
        }
    }

    /// They complete as any others do, for the depth to be learned, and none of them stays held.
    fn ride(&mut self, now: u64, left: u16, event: Event, last: &Completion) {
        if let Some(guard) = &mut self.guard {
            guard.advance(now, left.into(), self.core.depth(), &self.core.config());
        }
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
        Some(self.core.config().max_hold())
    }

    fn spent(&self) -> Option<Spent> {
        let (held, outstanding) = self.core.spent();
        Some(Spent { held, outstanding, budget: 0, learning: self.core.config().learning() })
    }
}
