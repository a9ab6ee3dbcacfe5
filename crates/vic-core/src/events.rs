//! A new machine, a new configuration, and the getters that no other policy has.

use crate::algorithm::{Ratio, Vic, Window};
use crate::config::Config;
use crate::cycle::{Bounds, Cycle};
use coalesce_decision::{ConfigError, Decision, Field, HoldReason, Reason};

impl Vic {
    /// A machine in its initial state: ratio 1, nothing held. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            last: 0,
            times_back: 0,
            cycle: Cycle::START,
            count_up: 0,
            skip_up: 1,
            epoch_start: 0,
            epoch_completions: 0,
            first_held: 0,
            window: Window::NONE,
            running: true,
            run_base: 0,
            has_slice_deadline: false,
            fast: Bounds::CLOSED,
        }
    }

    /// Changes the configuration, and applies it to the held completions. The ratio and the window stay until the
    /// running epoch ends. A new epoch length applies to the running epoch.
    ///
    /// # Errors
    /// `tick_hz` differs. Then nothing changes, and the call does not advance the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz.get();
        Field::TickHz.check_between(config.tick_hz.get(), tick_hz, tick_hz)?;
        self.advance(now);
        if self.has_slice_deadline {
            let without_margin = self.fast.until.saturating_add(u64::from(self.config.margin));
            self.fast.until = without_margin.saturating_sub(u64::from(config.margin));
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

    pub(crate) fn deliver_expired(&mut self, otherwise: HoldReason) -> Decision {
        match self.expired() {
            Some(reason) => self.deliver_held(reason),
            None if self.cycle.held() > 0 => Decision::Hold(otherwise),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    pub(crate) fn deliver_held(&mut self, reason: Reason) -> Decision {
        if self.cycle.held() == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        self.cycle.set_counter(1);
        self.deliver(reason)
    }
}
