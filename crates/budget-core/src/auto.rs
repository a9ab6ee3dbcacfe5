//! A latency budget and its regulator: the default policy of the targets.

use crate::algorithm::{Allowance, Budget};
use crate::config::Config;
use crate::regulator::Regulator;
use coalesce_decision::{ConfigError, Decision, Event};

/// A latency budget whose regulator cuts it where holding slows the requesters down, and licenses more where trials show
/// that holding makes them faster.
///
/// The calls are those of [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Auto {
    budget: Budget,
    regulator: Regulator,
}

const _: () = assert!(size_of::<Auto>() == 200);

impl Auto {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { budget: Budget::new(config), regulator: Regulator::NEW }
    }

    /// A regulator around a latency budget, with what that has learned and earned.
    #[must_use]
    pub const fn around(budget: Budget) -> Self {
        Self { budget, regulator: Regulator::NEW }
    }

    /// The latency budget without its regulator.
    #[must_use]
    pub const fn into_budget(self) -> Budget {
        self.budget
    }

    /// The latency budget, for what can be asked of it.
    #[must_use]
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// See [`Budget::on_submits`].
    #[inline]
    pub fn on_submits(&mut self, now: u64, count: u32) {
        self.budget.on_submits(now, count);
    }

    /// See [`Budget::on_completion`].
    #[inline]
    pub(crate) fn on_completion(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        if self.regulator.advance(now, outstanding, self.budget.config.max_hold) {
            self.regulate(now);
        }
        self.budget.on_completion(now, event, cif, outstanding)
    }

    #[cold]
    #[inline(never)]
    fn regulate(&mut self, now: u64) {
        let allowed = self.regulator.look(self.budget.known(), &self.budget.config);
        self.budget.allow(now, allowed);
    }

    /// See [`Budget::on_deadline`].
    pub(crate) fn on_deadline(&mut self, now: u64) -> Decision {
        self.budget.on_deadline(now)
    }

    /// See [`Budget::flush`].
    pub(crate) fn flush(&mut self, now: u64) -> Decision {
        self.budget.flush(now)
    }

    /// See [`Budget::on_cancel`].
    pub(crate) fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.budget.on_cancel(now, event)
    }

    /// See [`Budget::on_consumed`].
    pub(crate) fn on_consumed(&mut self, now: u64) {
        self.budget.on_consumed(now);
    }

    /// See [`Budget::reconfigure`]. What the regulator has learned is forgotten.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has changed, not even the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let decision = self.budget.reconfigure(config, now)?;
        self.regulator = Regulator::NEW;
        self.budget.allow(now, Allowance::STRICT);
        Ok(decision)
    }

    /// See [`Budget::forget`]. What the regulator has learned is forgotten, too.
    pub(crate) fn forget(&mut self) {
        self.regulator = Regulator::NEW;
        self.budget.forget();
    }
}
