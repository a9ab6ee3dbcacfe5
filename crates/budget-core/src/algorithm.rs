//! The algorithm: what a completion that waits costs, what it may cost, and when company is to be expected.
//!
//! By Little's law the time that all requests spend is the integral of *outstanding*, and the part of it that holding adds
//! is the integral of *held*. [`Budget::advance`] keeps the difference of the two as a credit, and
//! [`Budget::on_completion`] holds only what the credit pays for.

use crate::config::{AGE_MAX, Config, SHIFT, SPAN_MAX};
use coalesce_decision::{ConfigError, Decision, Event, Field, HoldReason, Reason};

/// A latency budget for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    last: u64,             // the time of the last call; all other time is an age, so that a clock may go back
    credit: i64,           // what may still be spent, in requests * ticks * 2^SHIFT
    held_time: u64,        // the integral of `held`, in requests * ticks
    outstanding_time: u64, // the integral of what earned the credit, in requests * ticks
    // Ages in ticks; they saturate at AGE_MAX
    oldest: u32, // of the oldest completion held
    quiet: u32,  // of the last completion
    gap8: u32,   // eight times the usual gap between completions, in ticks
    // Commands
    outstanding: u16, // submitted and not reaped, as of the last submission or completion
    in_flight: u16,   // of them, those that have not completed
    held: u16,
    depth: u16,     // what the requesters keep outstanding before they wait for us; 0: not known
    seen: [u16; 2], // what the last two probes found
    // Completions
    until_probe: u32,
    skip: u16,      // to be delivered at once while nothing is in flight
    skip_next: u16, // the same, after the next hold that nobody joins
    vain: u8,       // probes in a row that found nothing to save
    probing: bool,
    several: bool, // more than one command was outstanding since the last probe
    busy: bool,    // the requesters did not wait for us since the last completion, so that `quiet` is a gap
    config: Config,
}

const _: () = assert!(size_of::<Budget>() == 96);

/// The algorithm.
impl Budget {
    /// A command completed. `cif`: commands in flight, counting this one. `outstanding`: commands submitted and not reaped,
    /// counting this one; 0: not known.
    pub fn on_completion(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        let (cif, outstanding) = (commands(cif), commands(outstanding));
        self.advance(now, outstanding.max(cif.saturating_add(self.held)));
        let expired = self.expired();
        self.note_gap();
        self.in_flight = cif.saturating_sub(1);
        if let Some(reason) = expired {
            return self.end_hold(reason); // this completion shares the interrupt
        }
        match event {
            Event::Error => return self.deliver(Reason::Error),
            Event::Urgent => return self.deliver(Reason::Urgent),
            Event::Barrier => return self.deliver(Reason::Barrier),
            Event::Plain => {}
        }
        let held = self.held.saturating_add(1);
        if held >= self.config.thr {
            return self.deliver(Reason::Count);
        }
        // The next completion usually comes within a gap. Eight of them must be affordable.
        let cost = times(cost_of(held), self.gap8);
        if self.probes() {
            let is_affordable = cost <= self.credit.saturating_add(self.config.probe_credit);
            return if is_affordable { self.hold(held) } else { self.end_hold(Reason::Budget) };
        }
        if held >= self.outstanding.max(self.depth) || self.skips(cif) {
            return self.deliver(Reason::LowCif); // nobody else would come
        }
        // What is in flight or held stays outstanding until we deliver, so that this much is earned for certain.
        let earned = self.config.earned_by(cif.saturating_add(self.held).max(self.depth));
        let is_fair = cost_of(self.held) < earned.wrapping_mul(2); // of what is outstanding, at most 2 ε are held
        let is_affordable = cost.saturating_sub(times(earned, self.gap8)) <= self.credit;
        if is_fair && is_affordable { self.hold(held) } else { self.deliver(Reason::Budget) }
    }

    /// A command was submitted. `outstanding`: commands submitted and not reaped, counting this one; 0: not known.
    pub fn on_submit(&mut self, now: u64, outstanding: u32) {
        let before = commands(outstanding).max(self.certain().saturating_add(1)).wrapping_sub(1);
        self.advance(now, before);
        if self.held > 0 && self.held == before {
            self.skip_next = 1; // what was held has company after all
        }
        self.in_flight = self.in_flight.saturating_add(1);
        self.see(before.saturating_add(1));
    }

    /// Settles the account for the time since the last call. `outstanding`: at the end of that time.
    fn advance(&mut self, now: u64, outstanding: u16) {
        let is_idle = self.quiet > self.gap8;
        let elapsed = self.elapsed(now);
        let during = outstanding.min(self.outstanding); // it is not known when commands came or went
        let during = if is_idle { during } else { during.max(self.depth) };
        let earned = self.config.earned_by(during);
        let net = times(earned.wrapping_sub(cost_of(self.held)), elapsed);
        // What was not needed for long is forfeited, or the first burst after an idle hour could spend it all.
        let most = self.credit.max(times(earned, self.config.max_hold).wrapping_mul(4));
        let credit = self.credit.saturating_add(net);
        self.credit = if net > 0 { credit.min(most) } else { credit };
        self.held_time = self.held_time.saturating_add(u64::from(self.held).wrapping_mul(elapsed.into()));
        self.outstanding_time = self.outstanding_time.saturating_add(u64::from(during).wrapping_mul(elapsed.into()));
        self.see(outstanding);
    }

    /// Whether this completion is held to learn the depth: until nobody submits any more, as all of them wait for us.
    fn probes(&mut self) -> bool {
        self.until_probe = self.until_probe.saturating_sub(1);
        let may_find = self.several || self.depth > 1; // who is alone does not wait
        let is_due = self.until_probe == 0 && self.held == 0 && may_find;
        self.probing |= is_due && self.credit.saturating_mul(2) >= self.config.probe_credit.wrapping_neg();
        self.probing
    }

    /// Learns from a probe. `found`: the commands that were outstanding when the requesters fell silent; 0: they did not.
    /// The depth is the median of three probes, so that a single pause of the guest does not change it.
    fn learn(&mut self, found: u16) {
        let [first, second] = self.seen;
        self.seen = [second, found];
        self.depth = first.min(second).max(first.max(second).min(found));
        self.until_probe = if found > 0 && found != self.depth {
            u32::from(found) << 3 // look again soon
        } else {
            let saves = self.config.earned_by(found).wrapping_mul(2) > cost_of(1);
            self.vain = if saves { 0 } else { self.vain.wrapping_add(1).min(VAIN_MAX) };
            (u32::from(self.held) << 7).wrapping_shl(self.vain.into())
        };
        self.several = false;
    }

    /// A hold ends because a deadline passed, or because a probe costs too much.
    fn end_hold(&mut self, reason: Reason) -> Decision {
        let all_wait = self.in_flight == 0 && matches!(reason, Reason::Silence);
        if self.probing {
            self.learn(if all_wait { self.held } else { 0 });
        } else if all_wait {
            self.skip = self.skip_next;
            self.skip_next = (self.skip_next << 1 | 1) & SKIP_MAX;
        }
        self.busy &= !all_wait;
        self.deliver(reason)
    }

    /// Whether this completion is delivered although the depth promises company, because the last time nobody came.
    const fn skips(&mut self, cif: u16) -> bool {
        let skips = cif <= 1 && self.skip > 0;
        self.skip = self.skip.wrapping_sub(skips as u16);
        skips
    }
}

/// The credit that `held` completions take in each tick.
const fn cost_of(held: u16) -> i64 {
    (held as i64) << SHIFT
}

/// The credit of a time. Rates are below 2^28, times below 2^31.
const fn times(rate: i64, ticks: u32) -> i64 {
    rate.wrapping_mul(ticks as i64)
}

/// So many commands; more than 65 535 count as that many.
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
fn commands(number: u32) -> u16 {
    number.min(u16::MAX.into()) as u16
}

/// Completions to skip, at most: a mask.
const SKIP_MAX: u16 = 1_023;
/// The interval between probes doubles so often, at most.
const VAIN_MAX: u8 = 6;
/// Completions before the first probe.
const FIRST_PROBE: u32 = 16;
/// A longer gap counts as this one, so that eight of them fit.
const GAP_MAX: u32 = SPAN_MAX >> 3;

/// Everything else: what a machine is told beside completions, and what it can be asked.
impl Budget {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            last: 0,
            credit: 0,
            held_time: 0,
            outstanding_time: 0,
            oldest: 0,
            quiet: 0,
            gap8: 0,
            outstanding: 0,
            in_flight: 0,
            held: 0,
            depth: 0,
            seen: [0; 2],
            until_probe: FIRST_PROBE,
            skip: 0,
            skip_next: 1,
            vain: 0,
            probing: false,
            several: false,
            busy: false,
            config,
        }
    }

    /// When to call [`on_deadline`](Self::on_deadline) if nothing happens before. May change in every call that takes
    /// `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.held > 0).then(|| self.last.saturating_add(self.left().0.into()))
    }

    /// The deadline has passed, or so the caller believes. Early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now, self.certain());
        match self.expired() {
            Some(reason) => self.end_hold(reason),
            None if self.held > 0 => Decision::Hold(HoldReason::Early),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    /// Queue stop, reset, migration: delivers what is held.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now, self.certain());
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    /// The consumer reaped everything that was posted, without an interrupt. Call it only if, inside the serialisation that
    /// protects the machine, the consumer's index equals the index posted last.
    pub fn on_consumed(&mut self, now: u64) {
        self.advance(now, self.certain());
        (self.held, self.probing) = (0, false);
        self.outstanding = self.in_flight;
    }

    /// Applies a new configuration to what is held. What was learned and earned stays.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has changed, not even the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz;
        Field::TickHz.check_between(config.tick_hz, tick_hz, tick_hz)?;
        self.advance(now, self.certain());
        self.config = config;
        Ok(match self.expired() {
            _ if self.held == 0 => Decision::Hold(HoldReason::NothingHeld),
            Some(reason) => self.end_hold(reason),
            None if self.held >= config.thr => self.deliver(Reason::Count),
            None => Decision::Hold(HoldReason::Reconfigured),
        })
    }

    /// Forgets what was learned about the requesters, as others may come. What is held stays held.
    pub fn forget(&mut self) {
        let Self { config, last, credit, held_time, outstanding_time, oldest, quiet, gap8, held, .. } = *self;
        let new = Self::new(config);
        *self = Self { last, credit, held_time, outstanding_time, oldest, quiet, gap8, held, outstanding: held, ..new };
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// Completions held: posted, and not covered by an interrupt.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held as u32
    }

    /// Commands that the requesters keep outstanding before they wait for us, as far as was learned; 0: not known.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth as u32
    }

    /// The time for which completions were held, and the time that requests spent: each summed over the requests, in ticks.
    /// They saturate.
    #[must_use]
    pub const fn spent(&self) -> (u64, u64) {
        (self.held_time, self.outstanding_time)
    }

    /// Ticks since the last call; makes all ages that much older. If the clock went back, no time has passed.
    fn elapsed(&mut self, now: u64) -> u32 {
        let elapsed = match now.checked_sub(self.last) {
            _ if now == u64::MAX => SPAN_MAX, // at the end of the clock everything is due
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(elapsed) if elapsed < SPAN_MAX.into() => elapsed as u32,
            Some(_) => SPAN_MAX,
            None => 0,
        };
        let older = |age: u32| age.wrapping_add(elapsed).min(AGE_MAX);
        (self.oldest, self.quiet) = (older(self.oldest), older(self.quiet));
        self.last = now;
        elapsed
    }

    /// Commands that cannot have been reaped: in flight, or held.
    const fn certain(&self) -> u16 {
        self.in_flight.saturating_add(self.held)
    }

    const fn see(&mut self, outstanding: u16) {
        self.outstanding = outstanding;
        self.several |= outstanding > 1;
    }

    /// A completion ends a gap, unless the requesters had to wait for us.
    fn note_gap(&mut self) {
        let gap = self.quiet.min(GAP_MAX);
        if self.busy {
            self.gap8 =
                if self.gap8 == 0 { gap << 3 } else { self.gap8.wrapping_add(gap).wrapping_sub(self.gap8 >> 3) };
        }
        (self.busy, self.quiet) = (true, 0);
    }

    /// Ticks until what is held is due, and the reason the interrupt will give.
    fn left(&self) -> (u32, Reason) {
        let max_hold = self.config.max_hold.saturating_sub(self.oldest);
        let silence = self.gap8.max(1).saturating_sub(self.quiet);
        if max_hold < silence { (max_hold, Reason::MaxHold) } else { (silence, Reason::Silence) }
    }

    /// The reason of a deadline that has passed.
    fn expired(&self) -> Option<Reason> {
        match self.left() {
            (0, reason) if self.held > 0 => Some(reason),
            _ => None,
        }
    }

    fn hold(&mut self, held: u16) -> Decision {
        if self.held == 0 {
            self.oldest = 0; // max_hold starts with the first completion held
        }
        self.held = held;
        Decision::Hold(HoldReason::Company)
    }

    fn deliver(&mut self, reason: Reason) -> Decision {
        (self.held, self.probing) = (0, false);
        Decision::Deliver(reason)
    }
}
