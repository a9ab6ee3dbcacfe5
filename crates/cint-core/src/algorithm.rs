//! The slow path: Algorithm 2 of the cinterrupts paper, with deadlines and the storm guard. It makes every decision;
//! [`fast`](crate::fast) makes the usual one in fewer instructions.
//!
//! `cint Alg. 2 l.7` cites a line of the paper, `§3.5` a section. "Ours" marks what is in no paper. `docs/papers.md`
//! lists the deviations.

use crate::config::{AGE_MAX, Config, NEVER, SPAN_MAX};
use crate::hint::Hint;
use coalesce_decision::{Average, ConfigError, Decision, Event, Field, HoldReason, Reason};

impl From<Hint> for Event {
    #[inline]
    fn from(hint: Hint) -> Self {
        match hint {
            Hint::Plain => Self::Plain,
            Hint::Urgent => Self::Urgent,
            Hint::Barrier => Self::Barrier,
        }
    }
}

/// A cinterrupts machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // bytes first, where small processors reach them with short instructions
pub struct Cint {
    pub(crate) storming: bool,
    put_off: bool,     // the held completions were due, and wait for the storm guard
    interrupted: bool, // there was an interrupt, so `gap` is valid
    filler: [u8; 3],   // no padding: a state may be written to a file, so every byte must be defined
    times_back: u16,
    pub(crate) last: u64, // the time of the last call; all other times are ages, so that the clock may go back
    // Ages in ticks; they saturate at AGE_MAX
    pub(crate) oldest: u32,    // of the oldest held completion
    pub(crate) quiet: u32,     // of the last completion; at delta, `timeout` of cint Alg. 2 expires
    pub(crate) gap: u32,       // of the last interrupt
    pub(crate) fast_for: u32,  // the fast path may answer until this many ticks after `last`
    pub(crate) coalesced: u32, // held completions: `coalesced` of cint Alg. 2
    pub(crate) thr: u32,       // `thr` of cint Alg. 2, minus the Urgents that interrupted alone while others were held
    average: Average,
    pub(crate) config: Config,
}

const _: () = assert!(size_of::<Cint>() == 80, "88 bytes with a word that a C caller adds");

/// The number of commands in flight is unknown.
pub const CIF_UNKNOWN: u32 = u32::MAX;

/// The algorithm: cint Alg. 2, one completion at a time.
impl Cint {
    /// [`on_completion`](Self::on_completion) without the fast path.
    #[inline(never)]
    pub fn on_event(&mut self, now: u64, event: Event, cif: u32) -> Decision {
        self.advance(now);
        if let Some(reason) = self.expired() {
            return self.deliver(reason); // cint Alg. 2 l.17, l.18; this completion shares the interrupt
        }
        let coalesced = self.coalesced.saturating_add(1);
        let held = if event == Event::Urgent { self.coalesced } else { coalesced };
        let decision = match event {
            Event::Error => return self.deliver(Reason::Error), // ours: an invalid ticket delivers, even in a storm
            Event::Urgent if !self.config.ooo => Decision::Deliver(Reason::Urgent), // cint Alg. 2 l.7, l.10, l.11
            Event::Urgent if self.coalesced == 0 => Decision::DeliverUrgent, // cint Alg. 2 l.8, l.9
            Event::Barrier => Decision::Deliver(Reason::Barrier), // cint Alg. 2 l.12, l.13
            _ if coalesced >= self.thr => Decision::Deliver(Reason::Count), // cint Alg. 2 l.15, l.16; `>=` as in §3.2
            _ if cif < self.cif_to_hold(held) => Decision::Deliver(Reason::InFlight), // ours: the device stays busy
            Event::Urgent => Decision::DeliverUrgent,           // cint Alg. 2 l.8, l.9; §3.5 out-of-order Urgent
            Event::Plain => Decision::Hold(HoldReason::Burst),  // §3.2: the burst continues
        };
        let reason = match decision {
            _ if self.is_paced() => self.put_off(decision), // §4.3 storm guard
            Decision::Deliver(reason) => return self.deliver(reason),
            Decision::DeliverUrgent => return self.deliver_urgent(),
            Decision::Hold(reason) => reason,
        };
        if self.coalesced == 0 {
            self.oldest = 0; // ours: max_hold starts with the first completion held
        }
        self.quiet = 0; // cint Alg. 2 l.6: timeout = now + delta
        self.coalesced = coalesced; // cint Alg. 2 l.15
        self.open_fast_path();
        Decision::Hold(reason)
    }

    /// Fires the IRQ and resets `coalesced`.
    #[inline(never)]
    fn deliver(&mut self, reason: Reason) -> Decision {
        self.reset_coalesced(); // cint Alg. 2 l.11, l.13, l.16, l.18
        self.interrupt();
        Decision::Deliver(reason)
    }

    /// Fires the urgent IRQ. Held completions stay held.
    fn deliver_urgent(&mut self) -> Decision {
        if self.coalesced > 0 {
            self.thr = self.thr.wrapping_sub(1); // §3.5: it counts towards thr, so that no held one starves; thr > 2 here
        }
        self.quiet = 0; // cint Alg. 2 l.6: timeout = now + delta
        self.interrupt(); // cint Alg. 2 l.9
        Decision::DeliverUrgent
    }

    /// §4.3 storm guard: holds what is due, so that one later interrupt covers all of it.
    fn put_off(&mut self, decision: Decision) -> HoldReason {
        let was_due = !self.put_off && self.coalesced > 0 && self.own_deadline().0 <= 0;
        let is_due = was_due || decision.is_deliver();
        self.put_off |= is_due;
        if is_due { HoldReason::Storm } else { HoldReason::Burst }
    }

    /// The reason to deliver, if a deadline has passed.
    #[inline(always)]
    const fn expired(&self) -> Option<Reason> {
        if self.coalesced == 0 {
            return None; // cint Alg. 2 l.17
        }
        match self.next_deadline() {
            (1.., _) => None, // cint Alg. 2 l.4: now < timeout
            (_, reason) => Some(reason),
        }
    }

    /// Ticks until the held completions are due, and the reason to deliver them.
    #[inline(never)]
    const fn next_deadline(&self) -> (i32, Reason) {
        let own = self.own_deadline();
        if self.storming {
            let pace = left(self.config.storm_interval, self.gap);
            if self.put_off || own.0 < pace {
                return (pace, Reason::Storm); // §4.3 storm guard
            }
        }
        own
    }

    /// [`next_deadline`](Self::next_deadline) without the storm guard.
    const fn own_deadline(&self) -> (i32, Reason) {
        let max_hold = left(self.config.max_hold, self.oldest); // ours
        let delta = left(self.config.delta, self.quiet); // cint Alg. 2 l.6: timeout - now
        if max_hold < delta { (max_hold, Reason::MaxHold) } else { (delta, Reason::Delta) }
    }

    /// §4.3 storm guard: whether there is a storm, and the last interrupt is too recent for another one.
    const fn is_paced(&self) -> bool {
        self.storming && self.gap < self.config.storm_interval
    }

    /// Ours, the `in_flight` rule: the fewest commands in flight with which `held` completions (1 to `thr` - 1) may be
    /// held. With fewer the device could run out of work.
    #[inline(always)]
    pub(crate) const fn cif_to_hold(&self, held: u32) -> u32 {
        let per_held = self.config.in_flight_per_held;
        if held == 1 { per_held >> 1 } else { per_held.wrapping_mul(held) }
    }
}

/// The other events and the queries.
impl Cint {
    /// A machine in its initial state. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            last: 0,
            oldest: 0,
            quiet: 0,
            gap: 0,
            fast_for: 0,
            coalesced: 0,
            thr: config.thr as u32,
            average: Average::cold(config.storm_interval),
            storming: false,
            put_off: false,
            interrupted: false,
            filler: [0; 3],
            times_back: 0,
        }
    }

    /// Decides about a completed command. `cif` is the number of commands in flight, including this one, for the
    /// `in_flight` rule; `None`: the rule is off for this completion.
    #[inline]
    pub fn on_completion(&mut self, now: u64, event: impl Into<Event>, cif: Option<u32>) -> Decision {
        let event = event.into();
        let cif = cif.unwrap_or(CIF_UNKNOWN);
        let decision = if event == Event::Plain { self.on_completion_fast(now, cif) } else { None };
        decision.unwrap_or_else(|| self.on_event(now, event, cif))
    }

    /// The instant, in ticks, at which to call [`on_deadline`](Self::on_deadline). Every call that takes `&mut self`
    /// may change it. A timer that is armed for an earlier instant can stay armed.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.coalesced == 0 {
            return None;
        }
        let (left, _) = if self.storming { self.next_deadline() } else { self.own_deadline() };
        if left > LEFT_MAX {
            return None;
        }
        #[expect(clippy::cast_sign_loss, reason = "compared")]
        let left = if left > 0 { left as u64 } else { 0 };
        Some(self.last.saturating_add(left))
    }

    /// Decides at the deadline. Early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        match self.expired() {
            Some(reason) => self.deliver(reason),
            None => self.nothing_due(HoldReason::Early),
        }
    }

    /// Notes that the device has posted everything that it had to post. With Δ = 0 this ends the burst.
    pub fn on_batch_end(&mut self, now: u64) -> Decision {
        self.advance(now);
        if let Some(reason) = self.expired() {
            return self.deliver(reason);
        }
        if self.config.delta != NEVER {
            return self.nothing_due(HoldReason::Early);
        }
        self.deliver_held_paced(Reason::BatchEnd)
    }

    /// Delivers everything held, even in a storm: for a queue stop, a reset and a migration.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.coalesced > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    /// Notes that the consumer has reaped everything without an interrupt. Call it only if the consumer's index equals
    /// the posted index, both read inside the serialisation that protects the machine.
    pub fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.reset_coalesced();
    }

    /// Notes that a command was aborted and will not complete. `event` is the result of
    /// [`Tracker::cancel`](crate::Tracker::cancel).
    pub fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.advance(now);
        if self.coalesced == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if let Some(reason) = self.expired() {
            return self.deliver(reason);
        }
        match event {
            Event::Error => self.deliver(Reason::Error),
            Event::Barrier => self.deliver_held_paced(Reason::Barrier),
            Event::Plain | Event::Urgent => Decision::Hold(HoldReason::Cancelled),
        }
    }

    /// Changes the configuration, and applies it to the held completions. A storm guard with new parameters restarts.
    /// What the guard had delayed is delivered. Rules that need a hint or the CIF apply from the next completion on.
    ///
    /// # Errors
    /// `tick_hz` differs. Then nothing changes, and the call does not advance the time.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz;
        if config.tick_hz != tick_hz {
            return Err(ConfigError {
                field: Field::TickHz,
                value: config.tick_hz,
                min: tick_hz,
                max: tick_hz,
                because: None,
            });
        }
        self.advance(now);
        if (config.storm_interval, config.storm_shift) != (self.config.storm_interval, self.config.storm_shift) {
            (self.average, self.storming) = (Average::cold(config.storm_interval), false);
        }
        let alone = u32::from(self.config.thr).wrapping_sub(self.thr);
        self.thr = u32::from(config.thr).saturating_sub(alone);
        self.config = config;
        if self.coalesced == 0 {
            return Ok(Decision::Hold(HoldReason::NothingHeld));
        }
        let (left, reason) = self.own_deadline();
        Ok(if self.put_off {
            self.deliver(Reason::Storm)
        } else if left <= 0 {
            self.deliver(reason)
        } else if self.coalesced >= self.thr {
            self.deliver(Reason::Count)
        } else {
            Decision::Hold(HoldReason::Reconfigured)
        })
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        self.config
    }

    /// The number of held completions: posted, and not covered by an interrupt. An Urgent that interrupted alone is not
    /// held.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.coalesced
    }

    /// Whether interrupts come faster than the storm guard allows, so that it paces them.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.storming
    }

    /// How often the clock went back from one call to the next; saturates at 65535.
    #[must_use]
    pub const fn times_back(&self) -> u16 {
        self.times_back
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
        (self.oldest, self.quiet, self.gap) = (older(self.oldest), older(self.quiet), older(self.gap));
        self.last = now;
        self.fast_for = 0;
    }

    /// Delivers everything held, unless the storm guard delays it.
    #[inline(never)]
    fn deliver_held_paced(&mut self, reason: Reason) -> Decision {
        if self.coalesced == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if self.is_paced() {
            self.put_off = true;
            return Decision::Hold(HoldReason::Storm);
        }
        self.deliver(reason)
    }

    const fn nothing_due(&self, reason: HoldReason) -> Decision {
        Decision::Hold(if self.coalesced > 0 { reason } else { HoldReason::NothingHeld })
    }

    const fn reset_coalesced(&mut self) {
        self.coalesced = 0;
        self.thr = self.config.thr as u32;
        self.quiet = 0; // cint Alg. 2 l.19: timeout = now + delta
        self.put_off = false;
    }

    /// Records an interrupt. Each one but the first ends a gap, which is a sample for the storm guard's average.
    #[inline(never)]
    fn interrupt(&mut self) {
        let Config { storm_interval, storm_shift, .. } = self.config;
        if self.interrupted && storm_interval > 0 {
            self.storming = self.average.sample(self.gap, self.storming, storm_interval, storm_shift);
        }
        self.interrupted = true;
        self.gap = 0;
        self.open_fast_path();
    }
}

/// Ticks until a span ends that began `age` ticks ago; more than LEFT_MAX for a span of NEVER.
const fn left(span: u32, age: u32) -> i32 {
    span.wrapping_sub(age).cast_signed()
}

const LEFT_MAX: i32 = SPAN_MAX.cast_signed();
