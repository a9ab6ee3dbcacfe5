//! A new machine, a new configuration, and the getters that no other policy has.

use crate::algorithm::Cint;
use crate::config::{AGE_MAX, Config, SPAN_MAX};
use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Policy as _, Reason, StormGuard};

impl Cint {
    /// A machine in its initial state. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            last: 0,
            oldest: 0,
            quiet: 0,
            fast_for: 0,
            coalesced: 0,
            thr_left: config.thr as u32,
            guard: StormGuard::new(config.storm_interval),
            deferred: false,
            filler: [0; 5],
            times_back: 0,
        }
    }

    /// Changes the configuration, and applies it to the held completions. A storm guard with new parameters restarts.
    /// What the guard had deferred is delivered, and so is what has no deadline any more. Rules that need a hint or the
    /// CIF apply from the next completion on.
    ///
    /// # Errors
    /// `tick_hz` differs. Then nothing changes, and the call does not advance the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz;
        Field::TickHz.check_between(config.tick_hz, tick_hz, tick_hz)?;
        self.advance(now);
        if (config.storm_interval, config.storm_shift) != (self.config.storm_interval, self.config.storm_shift) {
            self.guard.restart(config.storm_interval);
        }
        let alone = u32::from(self.config.thr).wrapping_sub(self.thr_left);
        self.thr_left = u32::from(config.thr).saturating_sub(alone);
        self.config = config;
        if self.coalesced == 0 {
            return Ok(Decision::Hold(HoldReason::NothingHeld));
        }
        let (left, reason) = self.own_deadline();
        Ok(if self.deferred {
            self.deliver(Reason::Storm)
        } else if left <= 0 {
            self.deliver(reason)
        } else if self.coalesced >= self.thr_left {
            self.deliver(Reason::Count)
        } else if self.deadline().is_none() {
            self.deliver(Reason::BatchEnd) // and perhaps no batch has begun that could end
        } else {
            Decision::Hold(HoldReason::Reconfigured)
        })
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// Whether there is a storm: the average gap fell below the guard's interval, and has not exceeded twice the interval
    /// since.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.guard.is_storming()
    }

    /// Sets the time of a call. If the clock went back, no time has passed.
    #[inline(never)]
    pub(crate) fn advance(&mut self, now: u64) {
        let elapsed = match now.checked_sub(self.last) {
            _ if now == u64::MAX => AGE_MAX, // at the end of the clock's range everything is due
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(elapsed) if elapsed < SPAN_MAX as u64 => elapsed as u32,
            Some(_) => SPAN_MAX,
            None => {
                self.times_back = self.times_back.saturating_add(1);
                0
            }
        };
        let older = |age: u32| age.wrapping_add(elapsed).min(AGE_MAX);
        (self.oldest, self.quiet) = (older(self.oldest), older(self.quiet));
        self.guard.pass(elapsed, AGE_MAX);
        self.last = now;
        self.fast_for = 0;
    }

    /// Delivers everything held, unless the storm guard defers it.
    #[inline(never)]
    pub(crate) fn deliver_held_paced(&mut self, reason: Reason) -> Decision {
        if self.coalesced == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if self.is_paced() {
            self.deferred = true;
            return Decision::Hold(HoldReason::Storm);
        }
        self.deliver(reason)
    }

    pub(crate) const fn nothing_due(&self, reason: HoldReason) -> Decision {
        Decision::Hold(if self.coalesced > 0 { reason } else { HoldReason::NothingHeld })
    }
}
