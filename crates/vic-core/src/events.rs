//! What else a machine is told: deadlines, the end of a queue, the guest's scheduling, a new configuration.

use crate::algorithm::Vic;
use crate::config::Config;
use crate::ratio::Ratio;
use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason};

impl Vic {
    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before, in ticks. May change in every
    /// call that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        match self.pending() {
            Some((deadline, _)) => Some(deadline),
            None => None,
        }
    }

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_expired(HoldReason::Early)
    }

    /// Queue stop, reset, migration: delivers if anything is held. The epoch and the ratio stay.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_held(Reason::Flush)
    }

    /// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the
    /// serialisation that protects the machine, the guest's index equals what was posted.
    pub const fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.set_held(0);
    }

    /// The guest has been put on a CPU: delivers if anything is held. A machine that is never told counts as running.
    pub fn on_schedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if !self.running {
            self.running = true;
            self.run_start = self.since(self.run_start);
        }
        self.deliver_held(Reason::Schedule)
    }

    /// The guest is taken off its CPU: delivers if anything is held, as the guest would see a later interrupt only when
    /// it runs again (Xen §4). Until [`on_schedule`](Self::on_schedule), neither time nor completions count for the rate
    /// (Xen, future work).
    pub fn on_deschedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.running {
            self.running = false;
            self.run_start = self.since(self.run_start);
            self.close_fast_path();
        }
        self.deliver_held(Reason::Deschedule)
    }

    /// Takes a new configuration and applies it to what is held. The running epoch, the ratio and the window stay until
    /// the epoch ends; a new epoch length acts at once.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has happened, not even at `now`.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let (new, old) = (config.tick_hz.get(), self.config.tick_hz.get());
        if new != old {
            return Err(ConfigError { field: Field::TickHz, value: new, min: old, max: old, because: None });
        }
        self.advance(now);
        if self.slice_known {
            let without_margin = self.until.saturating_add(u64::from(self.config.margin));
            self.until = without_margin.saturating_sub(u64::from(config.margin));
        }
        self.close_fast_path();
        self.config = config;
        Ok(self.deliver_expired(HoldReason::Reconfigured))
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// The delivery ratio in force.
    #[must_use]
    pub const fn ratio(&self) -> Ratio {
        match self.count_up {
            0 => Ratio::ONE,
            #[expect(clippy::cast_possible_truncation, reason = "at most 4")]
            count_up => Ratio { count_up: count_up as u8, skip_up: self.skip_up },
        }
    }

    /// How many calls were earlier than the one before them; stops at 65535.
    #[must_use]
    pub const fn times_back(&self) -> u16 {
        self.times_back
    }

    fn deliver_expired(&mut self, otherwise: HoldReason) -> Decision {
        match self.expired() {
            Some(reason) => self.deliver_held(reason),
            None if self.held() > 0 => Decision::Hold(otherwise),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    fn deliver_held(&mut self, reason: Reason) -> Decision {
        if self.held() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        self.set_counter(1);
        self.deliver(reason)
    }
}
