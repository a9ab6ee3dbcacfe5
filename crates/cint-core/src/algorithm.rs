//! The machine: Algorithm 2 of the cinterrupts paper, and what keeps it safe.

use crate::config::{AGE_MAX, Config, ConfigError, Field, NEVER, SPAN_MAX};
use crate::divide::divide;
use crate::hint::Hint;
use crate::storm::Average;

/// What a completion, or a cancellation, means for the machine. A [`Hint`] is one as it stands; a
/// [`Tracker`](crate::Tracker) turns hints into these where Barriers are strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing in particular.
    Plain,
    /// A batch is complete.
    Barrier,
    /// Somebody waits for this command.
    Urgent,
    /// A ticket that is not valid: delivers.
    Error,
}

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

/// Why an interrupt is delivered. Where several apply, the first in this order is given; of several deadlines the
/// earliest. The numbers are those of the C ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Δ passed without a completion: the burst is over.
    Delta = 10,
    /// A completion was held for `max_hold`.
    MaxHold = 1,
    /// What the storm guard had put off.
    Storm = 11,
    /// A completion or cancellation with a ticket that is not valid.
    Error = 12,
    /// A batch is complete.
    Barrier = 13,
    /// Somebody waits for this command.
    Urgent = 14,
    /// The burst has `thr` completions.
    Count = 15,
    /// More would be held than the commands in flight justify.
    InFlight = 16,
    /// [`Cint::on_batch_end`]
    BatchEnd = 17,
    /// [`Cint::flush`]
    Flush = 7,
}

impl Reason {
    /// The name in traces and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delta => "delta",
            Self::MaxHold => "max_hold",
            Self::Storm => "storm",
            Self::Error => "error",
            Self::Barrier => "barrier",
            Self::Urgent => "urgent",
            Self::Count => "count",
            Self::InFlight => "in_flight",
            Self::BatchEnd => "batch_end",
            Self::Flush => "flush",
        }
    }
}

/// Why no interrupt is delivered. The numbers are those of the C ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The burst goes on.
    Burst = 36,
    /// An interrupt is due, and the storm guard puts it off.
    Storm = 37,
    /// Nothing is held: an interrupt would announce nothing.
    NothingHeld = 33,
    /// The deadline has not come.
    Early = 34,
    /// The new configuration is in force, and nothing is due under it.
    Reconfigured = 35,
    /// The command is forgotten, and nothing is due.
    Cancelled = 38,
}

impl HoldReason {
    /// The name in traces and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Storm => "storm",
            Self::NothingHeld => "nothing_held",
            Self::Early => "early",
            Self::Reconfigured => "reconfigured",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What to do now. Only `Hold` suppresses an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "dropping a decision can lose an interrupt"]
pub enum Decision {
    /// Interrupt the consumer: it covers everything completed so far.
    Deliver(Reason),
    /// Do not interrupt now.
    Hold(HoldReason),
    /// Interrupt the consumer for this urgent completion alone (§3.5): what was held stays held.
    DeliverUrgent,
}

impl Decision {
    /// Whether to interrupt.
    #[inline]
    #[must_use]
    pub const fn is_deliver(self) -> bool {
        !matches!(self, Self::Hold(_))
    }
}

/// A cinterrupts machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // bytes first, where small processors reach them with short instructions
pub struct Cint {
    storming: bool,
    put_off: bool,   // what is held was due, and waits for the storm guard
    delivered: bool, // there is a gap
    filler: [u8; 3], // no byte is undefined: a state may be written to a file
    times_back: u16,
    last: u64, // when it was called last. All other time is counted from there, so that a clock may go back.
    // How long ago, in ticks, up to AGE_MAX
    oldest: u32, // the oldest held completion was posted
    quiet: u32,  // the last completion was: the quiet time Δ starts here
    gap: u32,    // the last interrupt was delivered
    // The burst
    wake: u32, // the short cut ends so many ticks from now; 0: there is none
    held: u32,
    room: u32, // so many held, and one more completes the batch; Alg. 2 `coalesced` counts up instead
    average: Average,
    config: Config,
}

const _: () = assert!(size_of::<Cint>() == 80, "88 bytes with a word that a C caller adds");

/// Commands in flight are not known.
pub const CIF_UNKNOWN: u32 = u32::MAX;

impl Cint {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            last: 0,
            oldest: 0,
            quiet: 0,
            gap: 0,
            wake: 0,
            held: 0,
            room: config.room(),
            average: Average::cold(&config),
            storming: false,
            put_off: false,
            delivered: false,
            filler: [0; 3],
            times_back: 0,
        }
    }

    /// A command completed. `cif`: commands in flight, counting this one, for the `in_flight` rule; `None`: the rule
    /// is off for this completion.
    #[inline]
    pub fn on_completion(&mut self, now: u64, event: impl Into<Event>, cif: Option<u32>) -> Decision {
        let event = event.into();
        let cif = cif.unwrap_or(CIF_UNKNOWN);
        let decision = if event == Event::Plain { self.short_cut(now, cif) } else { None };
        decision.unwrap_or_else(|| self.on_event(now, event, cif))
    }

    /// The usual case of a plain completion, for those who inline that alone: the burst goes on, and there is no storm.
    /// `None`: call [`on_completion`](Self::on_completion); nothing has happened.
    #[inline(always)]
    pub fn short_cut(&mut self, now: u64, cif: u32) -> Option<Decision> {
        let elapsed = now.wrapping_sub(self.last); // more than any wake if the clock went back
        if elapsed >= u64::from(self.wake) {
            return None;
        }
        if self.held >= self.room {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "below wake")]
        let elapsed = elapsed as u32;
        let held = self.held.wrapping_add(1);
        let (needed, oldest) = match self.held {
            0 => (self.needed(1), 0),
            _ => (self.needed_for_more(held), self.oldest.wrapping_add(elapsed)),
        };
        if cif < needed {
            return None;
        }
        (self.last, self.held, self.oldest) = (now, held, oldest);
        self.gap = self.gap.wrapping_add(elapsed);
        self.quiet = 0;
        self.wake = self.own_wake();
        Some(Decision::Hold(HoldReason::Burst))
    }

    /// As [`on_completion`](Self::on_completion), without the short cut.
    #[inline(never)]
    pub fn on_event(&mut self, now: u64, event: Event, cif: u32) -> Decision {
        self.advance(now);
        if let Some(reason) = self.expired() {
            return self.deliver(reason); // this completion rides on it
        }
        let due = self.due(event, cif);
        let is_urgent = event == Event::Urgent;
        if self.is_paced() && event != Event::Error {
            return self.put_off(due.is_some() || is_urgent);
        }
        match due {
            Some(reason) => self.deliver(reason),
            None if is_urgent => self.deliver_urgent(),
            None => self.hold(HoldReason::Burst),
        }
    }

    /// Algorithm 2, with `>=` at `thr` and without the fall-through of Urgent: why this completion announces everything.
    fn due(&self, event: Event, cif: u32) -> Option<Reason> {
        match event {
            Event::Error => Some(Reason::Error),
            Event::Barrier => Some(Reason::Barrier),
            Event::Urgent if !self.config.ooo => Some(Reason::Urgent),
            Event::Urgent if self.held == 0 => None,
            _ if self.held >= self.room => Some(Reason::Count),
            _ if cif < self.needed(self.held.wrapping_add(u32::from(event == Event::Plain))) => Some(Reason::InFlight),
            _ => None,
        }
    }

    /// A completion before the storm guard allows the next interrupt.
    fn put_off(&mut self, is_due: bool) -> Decision {
        let is_due = is_due || !self.put_off && self.held > 0 && self.own_deadline().0 <= 0;
        self.put_off |= is_due;
        self.hold(if is_due { HoldReason::Storm } else { HoldReason::Burst })
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before. May change in every call
    /// that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.held == 0 {
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

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        match self.expired() {
            Some(reason) => self.deliver(reason),
            None => self.nothing_due(HoldReason::Early),
        }
    }

    /// The device has posted all it had. Ends a burst where Δ is 0.
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

    /// Queue stop, reset, migration: announces what is held, storm or not.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        if self.held > 0 { self.deliver(Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    /// The consumer has taken everything that was posted, without an interrupt. Call it only if, inside the
    /// serialisation that protects the machine, the consumer's index equals what was posted.
    pub fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.forget_held();
    }

    /// The consumer was interrupted so many times since the last call, and told of everything that was posted, and this
    /// machine was not asked: for the storm guard.
    pub fn on_passed(&mut self, now: u64, interrupts: u16) {
        self.advance(now);
        self.forget_held();
        if interrupts > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "not more than the gap")]
            let gap = divide(self.gap.into(), interrupts.into()) as u32;
            self.interrupts(interrupts, gap);
        } else {
            self.look_ahead();
        }
    }

    /// A command was aborted and will not complete; `event` is what [`Tracker::cancel`](crate::Tracker::cancel) says.
    pub fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.advance(now);
        if self.held == 0 {
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

    /// Takes a new configuration, with what is held. A storm guard that changes starts anew; what it had put off is
    /// delivered. What needs a hint or commands in flight acts from the next completion on.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has happened, not even at `now`.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let tick_hz = self.config.tick_hz;
        if config.tick_hz != tick_hz {
            return Err(ConfigError { field: Field::TickHz, value: config.tick_hz, min: tick_hz, max: tick_hz });
        }
        self.advance(now);
        if (config.storm_interval, config.storm_shift) != (self.config.storm_interval, self.config.storm_shift) {
            (self.average, self.storming) = (Average::cold(&config), false);
        }
        let passed = self.config.room().wrapping_sub(self.room);
        self.room = config.room().saturating_sub(passed);
        self.config = config;
        if self.held == 0 {
            return Ok(Decision::Hold(HoldReason::NothingHeld));
        }
        let (left, reason) = self.own_deadline();
        Ok(if self.put_off {
            self.deliver(Reason::Storm)
        } else if left <= 0 {
            self.deliver(reason)
        } else if self.held > self.room {
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

    /// Completions held: posted and not announced; those delivered as urgent alone are not among them.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Whether interrupts come faster than the storm guard allows, so that it spaces them.
    #[must_use]
    pub const fn is_storming(&self) -> bool {
        self.storming
    }

    /// How often a call was older than the one before it; stops at 65535.
    #[must_use]
    pub const fn times_back(&self) -> u16 {
        self.times_back
    }

    /// Takes the time of a call. When the clock goes back no time has passed.
    #[inline(never)]
    fn advance(&mut self, now: u64) {
        let elapsed = match now.checked_sub(self.last) {
            _ if now == u64::MAX => AGE_MAX, // at the end of the clock everything is due
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
        self.wake = 0;
    }

    /// The reason of a deadline that has come.
    #[inline(always)]
    const fn expired(&self) -> Option<Reason> {
        if self.held == 0 {
            return None;
        }
        match self.next_deadline() {
            (1.., _) => None,
            (_, reason) => Some(reason),
        }
    }

    /// Ticks until what is held is due, and the reason it will give.
    #[inline(never)]
    const fn next_deadline(&self) -> (i32, Reason) {
        let mut next = self.own_deadline();
        if self.storming {
            let pace = left(self.config.storm_interval, self.gap);
            if self.put_off || next.0 < pace {
                next = (pace, Reason::Storm); // nothing comes before its pace
            }
        }
        next
    }

    /// The same, the storm guard aside: Δ after the last completion, `max_hold` after the first held.
    const fn own_deadline(&self) -> (i32, Reason) {
        let limit = left(self.config.max_hold, self.oldest);
        let quiet = left(self.config.delta, self.quiet);
        if limit < quiet { (limit, Reason::MaxHold) } else { (quiet, Reason::Delta) }
    }

    /// In a storm, and too soon after the last interrupt for another.
    const fn is_paced(&self) -> bool {
        self.storming && self.gap < self.config.storm_interval
    }

    /// The `in_flight` rule: with fewer commands in flight, holding `held` completions, below `thr`, leaves the device too
    /// little to do.
    #[inline(always)]
    const fn needed(&self, held: u32) -> u32 {
        if held > 1 { self.needed_for_more(held) } else { self.config.in_flight_per_held >> 1 }
    }

    #[inline(always)]
    const fn needed_for_more(&self, held: u32) -> u32 {
        self.config.in_flight_per_held.wrapping_mul(held)
    }

    fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.held == 0 {
            self.oldest = 0;
        }
        self.held = self.held.saturating_add(1);
        self.quiet = 0;
        self.look_ahead();
        Decision::Hold(reason)
    }

    #[inline(never)]
    fn deliver(&mut self, reason: Reason) -> Decision {
        self.forget_held();
        self.interrupt();
        Decision::Deliver(reason)
    }

    /// Plain ones that are held see an urgent one pass: it counts in their batch, so that they do not starve.
    fn deliver_urgent(&mut self) -> Decision {
        if self.held > 0 {
            self.quiet = 0;
            self.room = self.room.wrapping_sub(1); // or it had been everything: held < room
        }
        self.interrupt();
        Decision::DeliverUrgent
    }

    /// Until when the short cut may be taken, after a completion or a delivery.
    #[inline(never)]
    const fn look_ahead(&mut self) {
        self.wake = if self.storming || self.last >= CLOCK_END {
            0
        } else if self.held == 0 {
            SPAN_MAX
        } else {
            self.own_wake()
        };
    }

    /// Until what is held is due, after a completion.
    #[inline(always)]
    const fn own_wake(&self) -> u32 {
        let (delta, limit) = (self.config.delta, self.config.burst_max.wrapping_sub(self.oldest));
        if delta < limit { delta } else { limit }
    }

    #[inline(never)]
    fn deliver_held_paced(&mut self, reason: Reason) -> Decision {
        if self.held == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if self.is_paced() {
            self.put_off = true;
            return Decision::Hold(HoldReason::Storm);
        }
        self.deliver(reason)
    }

    const fn nothing_due(&self, reason: HoldReason) -> Decision {
        Decision::Hold(if self.held > 0 { reason } else { HoldReason::NothingHeld })
    }

    const fn forget_held(&mut self) {
        self.held = 0;
        self.room = self.config.room();
        self.put_off = false;
    }

    #[inline(never)]
    fn interrupt(&mut self) {
        self.interrupts(1, self.gap);
    }

    /// Every interrupt but the first is a sample for the storm guard.
    #[inline(always)]
    fn interrupts(&mut self, count: u16, gap: u32) {
        if self.delivered && self.config.storm_interval > 0 {
            for _ in 0..count {
                self.storming = self.average.sample(gap, self.storming, &self.config);
            }
        }
        self.delivered = true;
        self.gap = 0;
        self.look_ahead();
    }
}

/// Ticks until a span is over that began so long ago; more than LEFT_MAX: it has no end.
const fn left(span: u32, age: u32) -> i32 {
    span.wrapping_sub(age).cast_signed()
}

/// From here on there is no short cut: it may neither pass over the end of the clock nor take a clock that went back for
/// one that did.
const CLOCK_END: u64 = 0xFFFF_FFFF << 32;
const _: () = assert!(u64::MAX - CLOCK_END > 2 * NEVER as u64);

const LEFT_MAX: i32 = SPAN_MAX.cast_signed();
