//! All events except completions; and the getters.

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

    /// The instant, in ticks, at which to call [`on_deadline`](Self::on_deadline). Every call that takes `&mut self`
    /// may change it. A timer that is armed for an earlier instant can stay armed.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        match self.pending() {
            Some((deadline, _)) => Some(deadline),
            None => None,
        }
    }

    /// Decides at the deadline. Early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_expired(HoldReason::Early)
    }

    /// Delivers everything held: for a queue stop, a reset and a migration. The epoch and the ratio stay.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_held(Reason::Flush)
    }

    /// Notes that the guest has reaped everything without an interrupt. Call it only if the guest has reaped up to the last
    /// posted completion (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's), with both indices read
    /// inside the serialisation that protects the machine.
    pub const fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.cycle.set_held(0);
    }

    /// Notes that the guest was scheduled on a CPU, and delivers everything held. Until the first
    /// [`on_deschedule`](Self::on_deschedule) the guest counts as running.
    pub fn on_schedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if !self.running {
            self.running = true;
            self.run_base = self.since(self.run_base);
        }
        self.deliver_held(Reason::Schedule)
    }

    /// Notes that the guest was descheduled from its CPU, and delivers everything held: the guest would see a later
    /// interrupt only when it runs again (Xen §4). Until [`on_schedule`](Self::on_schedule), neither time nor
    /// completions count towards the rate (Xen, future work).
    pub fn on_deschedule(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.running {
            self.running = false;
            self.run_base = self.since(self.run_base);
            self.close_fast_path();
        }
        self.deliver_held(Reason::Deschedule)
    }

    /// Changes the configuration, and applies it to the held completions. The ratio and the window stay until the
    /// running epoch ends. A new epoch length applies to the running epoch.
    ///
    /// # Errors
    /// `tick_hz` differs. Then nothing changes, and the call does not advance the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let (new, old) = (config.tick_hz.get(), self.config.tick_hz.get());
        if new != old {
            return Err(ConfigError { field: Field::TickHz, value: new, min: old, max: old, because: None });
        }
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

    /// The number of held completions: posted, and not covered by an interrupt.
    #[must_use]
    pub const fn held(&self) -> u16 {
        self.cycle.held()
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

    /// How often the clock went back from one call to the next; saturates at 65535.
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
        self.cycle.set_counter(1);
        self.deliver(reason)
    }
}
