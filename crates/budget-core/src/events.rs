//! All events except completions; and the getters.

use crate::algorithm::{Budget, Flags, saturated};
use crate::config::{AGE_MAX, Config};
use crate::depth::{FIRST_PROBE, OBSERVED_MAX};
use coalesce_decision::{Average, ConfigError, Decision, Event, Field, HoldReason, Reason};

impl Budget {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            flags: Flags::NONE,
            observed: OBSERVED_MAX,
            vain_probes: 0,
            no_hold_bits: 1,
            no_hold: 0,
            until_probe: FIRST_PROBE,
            outstanding: 0,
            in_flight: 0,
            held: 0,
            overtook: 0,
            depth: 0,
            found: 0,
            oldest: 0,
            quiet: 0,
            gap: AGE_MAX,
            gap8: 0,
            average: Average::cold(config.storm_interval),
            config,
            last: 0,
            credit: 0,
            held_time: 0,
            outstanding_time: 0,
        }
    }

    /// A command was submitted. `outstanding`: commands submitted and not reaped, counting this one; 0: not known.
    pub fn on_submit(&mut self, now: u64, outstanding: u32) {
        self.on_submits(now, outstanding, 1);
    }

    /// As `count` calls of [`on_submit`](Self::on_submit), the last of which has this `outstanding`.
    #[inline] // with a count of one it is shorter
    pub fn on_submits(&mut self, now: u64, outstanding: u32, count: u32) {
        let count = saturated(count);
        let before = saturated(outstanding).max(self.known_outstanding().saturating_add(count)).saturating_sub(count);
        self.advance(now, before);
        if self.held > 0 && self.held == before {
            self.no_hold_bits = 1; // others share the interrupt after all
        }
        self.observe_submits(count);
        self.in_flight = self.in_flight.saturating_add(count);
        self.set_outstanding(before.saturating_add(count));
    }

    /// When to call [`on_deadline`](Self::on_deadline) if nothing happens before. May change in every call that takes
    /// `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let (left, _) = self.next_deadline();
        (self.held > 0).then(|| self.last.saturating_add(left.max(0).unsigned_abs().into()))
    }

    /// Decides at the deadline. Early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now, self.known_outstanding());
        match self.expired() {
            Some(reason) => self.end_hold(reason),
            None if self.held > 0 => Decision::Hold(HoldReason::Early),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    /// Queue stop, reset, migration: delivers what is held, even in a storm.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now, self.known_outstanding());
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    /// A command was aborted and will not complete. `event`: the result of `cancel` of cint-core's `Tracker`; without a
    /// tracker, [`Event::Plain`].
    pub fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.advance(now, self.known_outstanding());
        if !matches!(event, Event::Error) {
            self.in_flight = self.in_flight.saturating_sub(1); // an invalid ticket names no command
            self.outstanding = self.known_outstanding();
        }
        match (self.expired(), event) {
            _ if self.held == 0 => Decision::Hold(HoldReason::NothingHeld),
            (Some(reason), _) => self.end_hold(reason),
            (None, Event::Error) => self.deliver(Reason::Error),
            (None, Event::Barrier) if self.paced() > 0 => {
                self.wait_for_guard();
                Decision::Hold(HoldReason::Storm)
            }
            (None, Event::Barrier) => self.deliver(Reason::Barrier),
            (None, Event::Plain | Event::Urgent) => Decision::Hold(HoldReason::Cancelled),
        }
    }

    /// Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to
    /// the last posted completion (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's), with both indices
    /// read inside the serialisation that protects the machine.
    pub fn on_consumed(&mut self, now: u64) {
        self.advance(now, self.known_outstanding());
        self.drop_held();
        self.outstanding = self.in_flight;
    }

    /// Applies a new configuration to what is held. What was learned and earned stays. A storm guard with new parameters
    /// restarts. What the guard had deferred is delivered in any case.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has changed, not even the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz.get();
        Field::TickHz.check_between(config.tick_hz.get(), tick_hz, tick_hz)?;
        self.advance(now, self.known_outstanding());
        if (config.storm_interval, config.storm_shift) != (self.config.storm_interval, self.config.storm_shift) {
            self.average = Average::cold(config.storm_interval);
            self.flags.set(Flags::STORM, false);
        }
        self.config = config;
        Ok(match self.own_deadline() {
            _ if self.held == 0 => Decision::Hold(HoldReason::NothingHeld),
            _ if self.flags.has(Flags::DEFERRED) => self.deliver(Reason::Storm),
            (..=0, reason) => self.end_hold(reason),
            _ if self.held.saturating_add(self.overtook) >= config.thr => self.deliver(Reason::Count),
            _ => Decision::Hold(HoldReason::Reconfigured),
        })
    }

    /// Takes the budget of `config`, and nothing else of it. What was saved may still be spent. Nothing becomes due.
    pub const fn set_budget(&mut self, config: &Config) {
        self.config.epsilon = config.epsilon;
    }

    /// Forgets what was learned about the requesters, as others may come, and the commands in flight, which never complete.
    /// What is held stays held; the credit and the usual gap stay.
    pub fn forget(&mut self) {
        self.flags.set(Flags::PROBE | Flags::SEVERAL | Flags::GAP_COUNTS, false);
        (self.depth, self.found, self.observed, self.until_probe, self.vain_probes) =
            (0, 0, OBSERVED_MAX, FIRST_PROBE, 0);
        (self.no_hold, self.no_hold_bits) = (0, 1);
        (self.in_flight, self.outstanding) = (0, self.held);
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// Completions held: posted, and not covered by an interrupt. An Urgent that interrupted alone is not held.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held as u32
    }

    /// The depth: commands that the requesters submit before they wait for a completion, as far as known; 0: not known.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth as u32
    }

    /// Commands that the last probe held when the requesters fell silent; 0: they did not. If the submissions after the
    /// probe showed that it misled, [`depth`](Self::depth) is 0 and this number stays.
    #[must_use]
    pub const fn found(&self) -> u32 {
        self.found as u32
    }

    /// The time for which completions were held, and the time that requests spent: each summed over the requests, in ticks.
    /// They saturate.
    #[must_use]
    pub const fn spent(&self) -> (u64, u64) {
        (self.held_time, self.outstanding_time)
    }
}
