//! Submissions, new configurations, and what can be asked.

use crate::account::Account;
use crate::algorithm::{Budget, Flags};
use crate::config::Config;
use crate::constants::{AGE_MAX, DEBT_TO_TRY, GAP_SHIFT, SPAN_MAX};
use crate::level::{Allowance, Level};
use crate::regulator::Known;
use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason, StormGuard};

impl Budget {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            level: Level::Strict,
            flags: Flags::new(config.storm_interval > 0),
            epsilon: config.epsilon,
            oldest: 0,
            limit: 1,
            evidence: 0,
            starved: 0,
            quiet: 0,
            silence: 1,
            longest_gap: config.max_hold >> GAP_SHIFT,
            guard: StormGuard::new(config.storm_interval),
            config,
            account: Account::new(config.room),
            last: 0,
        }
    }

    /// `count` commands were submitted.
    #[inline]
    pub fn on_submits(&mut self, now: u64, count: u32) {
        match self.short_while(now) {
            Some(since) => self.account.submit(since, count),
            None => self.on_late_submits(now, count),
        }
    }

    /// As [`on_submits`](Self::on_submits), settled first, because ages would become too old.
    #[cold]
    #[inline(never)]
    fn on_late_submits(&mut self, now: u64, count: u32) {
        match now.checked_sub(self.last) {
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(since) if since < SPAN_MAX.into() => self.account.submit(since as u32, count),
            _ => {
                self.settle_known(now);
                self.account.submit(0, count);
            }
        }
    }

    /// Settles with what the machine knows by itself.
    pub(crate) fn settle_known(&mut self, now: u64) {
        self.advance(now, self.account.in_flight.into(), 0);
    }

    /// Why what is held may not be held any longer: fewer commands are in flight, or the configuration is another, so the account cannot
    /// pay until a silence any more.
    pub(crate) fn broken(&self) -> Option<Reason> {
        let Account { held, in_flight, credit, .. } = self.account;
        let (held, in_flight) = (held.into(), in_flight.into());
        let left = self.silence.saturating_sub(self.quiet);
        (!self.is_licensed() && self.price(held, in_flight, left) > credit).then_some(Reason::Budget)
    }

    /// Applies a new configuration to what is held. What was learned and earned stays. A storm guard with new parameters
    /// restarts. What the guard had deferred is delivered in any case.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has changed, not even the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz.get();
        Field::TickHz.check_between(config.tick_hz.get(), tick_hz, tick_hz)?;
        self.settle_known(now);
        if (config.storm_interval, config.storm_shift) != (self.config.storm_interval, self.config.storm_shift) {
            self.guard.restart(config.storm_interval);
        }
        let overtook = self.config.room.saturating_sub(self.account.room);
        self.account.room = config.room.saturating_sub(overtook);
        (self.config, self.epsilon) = (config, config.epsilon);
        self.flags.set(Flags::GUARDED, config.storm_interval > 0);
        self.limit_gap();
        Ok(match self.own_deadline() {
            _ if self.account.held == 0 => Decision::Hold(HoldReason::NothingHeld),
            _ if self.flags.has(Flags::DEFERRED) => self.deliver(Reason::Storm),
            (..=0, reason) => self.end_hold(reason),
            _ if self.account.held > self.account.room => self.deliver(Reason::Count),
            _ => match self.broken() {
                Some(reason) => self.deliver(reason),
                None => Decision::Hold(HoldReason::Reconfigured),
            },
        })
    }

    /// Another policy takes its place for a while, and sees the end of what is in flight. Call it only while nothing is held.
    pub(crate) fn set_aside(&mut self, now: u64, allowance: Allowance) {
        self.allow(now, allowance);
        self.advance(now, 0, 0);
        self.flags.set(Flags::GAP_COUNTS, false);
        self.quiet = AGE_MAX;
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// What the regulator asks.
    pub(crate) fn known(&self) -> Known {
        let (part, whole) = DEBT_TO_TRY;
        let least = self.learning_now().saturating_mul(part.wrapping_neg());
        let is_paid = self.level == Level::Licensed || self.account.credit.saturating_mul(whole) >= least;
        Known {
            is_unpaid: self.flags.has(Flags::UNPAID),
            has_failed: self.flags.has(Flags::FAILED),
            is_rich: self.account.credit > 0,
            may_try: is_paid && !self.guard.is_storming(),
        }
    }

    /// Whether there is a storm: the average gap between interrupts fell below the guard's interval, and has not exceeded
    /// twice the interval since.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.guard.is_storming()
    }

    /// Before this instant the storm guard allows no interrupt; `None`: it allows one now.
    #[must_use]
    pub fn paced_until(&self) -> Option<u64> {
        let paced = self.paced();
        (paced > 0).then(|| self.last.saturating_add(paced.into()))
    }
}
