//! A latency budget as a policy, with its regulator or without.

use crate::completion::Completion;
use crate::hinted::Core;
use crate::policy::Spent;
use budget_core::Auto;
use coalesce_decision::{ConfigError, Decision, Event};

/// Parameters, and whether there is a regulator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) budget: budget_core::Config,
    pub(crate) is_regulated: bool,
}

/// A latency budget, and the regulator that may cut it or license more.
#[derive(Clone, Debug)]
pub(crate) struct Guarded {
    auto: Auto,
    is_regulated: bool,
}

impl Core for Guarded {
    type Config = Config;

    const WANTS_SUBMIT: bool = true;

    fn new(Config { budget, is_regulated }: Config) -> Self {
        Self { auto: Auto::new(budget), is_regulated }
    }

    fn reconfigure(&mut self, Config { budget, is_regulated }: Config, now: u64) -> Result<Decision, ConfigError> {
        self.is_regulated = is_regulated;
        self.auto.reconfigure(budget, now)
    }

    fn on_submit(&mut self, now: u64, _outstanding: u32, count: u32) {
        self.auto.on_submits(now, count);
    }

    fn decide(&mut self, now: u64, event: Event, completion: &Completion) -> Decision {
        let Completion { cif, outstanding, .. } = *completion;
        if self.is_regulated {
            self.auto.on_completion(now, event, cif, outstanding)
        } else {
            self.auto.unregulated().on_completion(now, event, cif, outstanding)
        }
    }

    /// They complete as any others do, for the depth to be learned, and none of them stays held.
    fn ride(&mut self, now: u64, left: u16, event: Event, last: &Completion) {
        for left in (0..left).rev() {
            let completion = if left > 0 { last.preceding(left) } else { *last };
            let _ = self.decide(now, if left > 0 { Event::Plain } else { event }, &completion);
        }
        self.auto.on_consumed(now);
    }

    fn deadline(&self) -> Option<u64> {
        self.auto.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.auto.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.auto.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.auto.on_consumed(now);
    }

    fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.auto.on_cancel(now, event)
    }

    fn forget(&mut self) {
        self.auto.forget();
    }

    fn held(&self) -> u32 {
        self.auto.budget().held()
    }

    fn max_hold(&self) -> Option<u64> {
        Some(self.auto.budget().config().max_hold())
    }

    fn spent(&self) -> Option<Spent> {
        let budget = self.auto.budget();
        let (held, outstanding) = budget.spent();
        Some(Spent { held, outstanding, budget: 0, learning: budget.config().learning_of(outstanding) })
    }
}
