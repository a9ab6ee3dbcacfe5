//! The machine: Algorithm 2 of the cinterrupts paper, and what keeps it safe.

use crate::config::{Config, ConfigError, Field, NEVER};
use crate::hint::Hint;
use crate::storm::Average;

/// What a completion, or a cancellation, means for the machine. A [`Hint`] is one as it stands; a
/// [`Tracker`](crate::Tracker) turns hints into these where Barriers are strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing in particular.
    Plain,
    /// Somebody waits for this command.
    Urgent,
    /// A batch is complete.
    Barrier,
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
    /// Interrupt the consumer for this urgent completion alone (§3.5): what was held stays held.
    DeliverUrgent,
    /// Do not interrupt now.
    Hold(HoldReason),
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
pub struct Cint {
    config: Config,
    // The burst
    held: u32,
    room: u32,            // the short cut: with fewer held another one can be; 0 in a storm
    passed: u16,          // urgent ones announced alone since then; they count in the batch, Alg. 2 `coalesced`
    needed: u64,          // with fewer commands in flight none can be held
    first_held: u64,      // when the oldest held completion was posted
    limit: u64,           // `max_hold` after that
    last_completion: u64, // the quiet time Δ starts here
    due: u64,             // the deadline; NEVER: there is none, or it is the end of the clock
    // The storm guard
    average: Average,
    storming: bool,
    last_delivery: u64,
    delivered: bool, // last_delivery is valid
    put_off: bool,   // what is held was due, and waits for the storm guard
    // Time
    times_back: u16,
    #[expect(dead_code, reason = "no byte of a state is undefined: it may be written to a file")]
    filler: u8,
    last: u64, // of the previous call
}

const _: () = assert!(size_of::<Cint>() <= 120, "128 bytes with a word that a C caller adds");

/// Commands in flight are not known.
pub const CIF_UNKNOWN: u32 = u32::MAX;

const fn is_fewer(cif: u32, needed: u64) -> bool {
    (cif as u64) < needed && cif != CIF_UNKNOWN
}

/// What a completion asks for.
enum Due {
    Nothing,
    UrgentAlone,
    Everything(Reason),
}

impl Cint {
    /// A machine that has seen nothing. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            held: 0,
            room: config.room(),
            passed: 0,
            first_held: 0,
            limit: 0,
            last_completion: 0,
            due: NEVER,
            average: Average::cold(&config),
            storming: false,
            needed: config.needed(),
            last_delivery: 0,
            delivered: false,
            put_off: false,
            times_back: 0,
            filler: 0,
            last: 0,
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
        if now < self.last {
            return None;
        }
        if now >= self.due {
            return None;
        }
        if u64::from(cif) < self.needed {
            return None;
        }
        if self.held >= self.room {
            return None;
        }
        self.last = now;
        self.hold();
        Some(Decision::Hold(HoldReason::Burst))
    }

    /// As [`on_completion`](Self::on_completion), without the short cut.
    #[inline(never)]
    pub fn on_event(&mut self, now: u64, event: Event, cif: u32) -> Decision {
        self.advance(now);
        if let Some(reason) = self.expired() {
            return self.deliver(reason); // this completion rides on it
        }
        match self.due(event, cif) {
            Due::Everything(Reason::Error) => self.deliver(Reason::Error),
            due if self.is_paced() => self.wait(due),
            Due::Everything(reason) => self.deliver(reason),
            Due::UrgentAlone => self.deliver_urgent(),
            Due::Nothing => {
                self.hold_another();
                if self.storming {
                    self.look_ahead();
                }
                Decision::Hold(HoldReason::Burst)
            }
        }
    }

    /// A completion before the storm guard allows the next interrupt.
    #[cold]
    #[inline(never)]
    fn wait(&mut self, due: Due) -> Decision {
        let (waits, pace) = (self.put_off, self.due);
        let is_due = !matches!(due, Due::Nothing) || !waits && self.own_deadline().is_some_and(|(left, _)| left <= 0);
        self.put_off |= is_due;
        self.hold_another();
        if waits {
            self.due = pace; // whatever comes
        } else {
            self.look_ahead();
        }
        Decision::Hold(if is_due { HoldReason::Storm } else { HoldReason::Burst })
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before. May change in every call
    /// that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.due == NEVER && self.next_deadline().is_none() { None } else { Some(self.due) }
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
        self.config = config;
        self.needed = self.needed(self.held.saturating_add(1));
        self.make_room();
        Ok(match self.own_deadline() {
            _ if self.put_off => self.deliver(Reason::Storm),
            Some((left, reason)) if self.has_come(left) => self.deliver(reason),
            _ if self.held > 0 && self.batch() >= u32::from(config.thr) => self.deliver(Reason::Count),
            _ => {
                self.look_ahead();
                self.nothing_due(HoldReason::Reconfigured)
            }
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

    /// Takes the time of a call. A clock that went back: no time has passed, and all that is stored moves back too.
    #[inline(always)]
    fn advance(&mut self, now: u64) {
        if now < self.last {
            self.go_back(now);
        }
        self.last = now;
    }

    #[cold]
    #[inline(never)]
    fn go_back(&mut self, now: u64) {
        let by = self.last.wrapping_sub(now);
        self.last = now;
        self.first_held = self.first_held.wrapping_sub(by);
        self.last_completion = self.last_completion.wrapping_sub(by);
        self.last_delivery = self.last_delivery.wrapping_sub(by);
        self.times_back = self.times_back.saturating_add(1);
        self.look_ahead();
    }

    /// Ticks since `instant`. It may lie before 0 in the caller's clock, as its difference does not.
    const fn since(&self, instant: u64) -> u64 {
        self.last.wrapping_sub(instant)
    }

    /// Ticks from now until `span` ticks after `instant`; negative: so long ago.
    const fn left(&self, instant: u64, span: u64) -> i64 {
        0_i64.saturating_add_unsigned(span).saturating_sub_unsigned(self.since(instant))
    }

    const fn has_come(&self, left: i64) -> bool {
        self.last.saturating_add_signed(left) <= self.last
    }

    /// When what is held is due, the storm guard aside: Δ after the last completion, `max_hold` after the first held.
    #[inline(never)]
    const fn own_deadline(&self) -> Option<(i64, Reason)> {
        if self.held == 0 {
            return None;
        }
        let Config { delta, max_hold, .. } = self.config;
        let quiet = (self.left(self.last_completion, delta), Reason::Delta);
        let limit = (self.left(self.first_held, max_hold), Reason::MaxHold);
        match (delta, max_hold) {
            (NEVER, NEVER) => None,
            (NEVER, _) => Some(limit),
            (_, NEVER) => Some(quiet),
            _ => Some(if limit.0 < quiet.0 { limit } else { quiet }),
        }
    }

    /// When what is held is due, and the reason it will give.
    #[inline(never)]
    const fn next_deadline(&self) -> Option<(i64, Reason)> {
        let own = self.own_deadline();
        if !self.storming {
            return own;
        }
        let pace = (self.left(self.last_delivery, self.config.storm_interval), Reason::Storm);
        match own {
            _ if self.put_off => Some(pace), // in a storm nothing comes before its pace
            Some((left, _)) if left < pace.0 => Some(pace),
            own => own,
        }
    }

    /// Finds the deadline of what is held, anew.
    #[cold]
    #[inline(never)]
    fn look_ahead(&mut self) {
        self.due = self.next_deadline().map_or(NEVER, |(left, _)| self.last.saturating_add_signed(left));
        self.limit = match self.config.max_hold {
            NEVER => NEVER,
            max_hold => self.last.saturating_add_signed(self.left(self.first_held, max_hold)),
        };
    }

    /// The reason of a deadline that has come.
    #[inline(always)]
    fn expired(&self) -> Option<Reason> {
        if self.last < self.due { None } else { self.why_due() }
    }

    #[cold]
    #[inline(never)]
    fn why_due(&self) -> Option<Reason> {
        self.next_deadline().map(|(_, reason)| reason)
    }

    /// Alg. 2 `coalesced`
    const fn batch(&self) -> u32 {
        self.held.saturating_add(self.passed as u32)
    }

    const fn make_room(&mut self) {
        self.room = if self.storming { 0 } else { self.config.room().saturating_sub(self.passed as u32) };
    }

    /// In a storm, and too soon after the last interrupt for another.
    fn is_paced(&self) -> bool {
        self.storming && self.since(self.last_delivery) < self.config.storm_interval
    }

    /// Algorithm 2, with `>=` at `thr` and without the fall-through of Urgent: what this completion asks for.
    fn due(&self, event: Event, cif: u32) -> Due {
        match event {
            Event::Error => Due::Everything(Reason::Error),
            Event::Barrier => Due::Everything(Reason::Barrier),
            Event::Urgent if !self.config.ooo => Due::Everything(Reason::Urgent),
            Event::Urgent if self.held == 0 => Due::UrgentAlone,
            _ if self.batch().saturating_add(1) >= u32::from(self.config.thr) => Due::Everything(Reason::Count),
            Event::Urgent if is_fewer(cif, self.needed(self.held)) => Due::Everything(Reason::InFlight),
            Event::Urgent => Due::UrgentAlone,
            Event::Plain if is_fewer(cif, self.needed) => Due::Everything(Reason::InFlight),
            Event::Plain => Due::Nothing,
        }
    }

    /// The `in_flight` rule: with fewer commands in flight, holding `held` completions leaves the device too little to do.
    const fn needed(&self, held: u32) -> u64 {
        let per_held = self.config.in_flight_per_held as u64;
        if held > 1 { per_held.wrapping_mul(held as u64) } else { per_held >> 1 }
    }

    #[inline(always)]
    const fn hold(&mut self) {
        if self.held == 0 {
            self.first_held = self.last;
            self.limit = self.last.saturating_add(self.config.max_hold);
            self.needed = self.config.in_flight_per_held as u64;
        }
        self.needed = self.needed.wrapping_add(self.config.in_flight_per_held as u64);
        self.last_completion = self.last;
        self.held = self.held.saturating_add(1);
        let quiet = self.last.saturating_add(self.config.delta);
        self.due = if self.limit < quiet { self.limit } else { quiet };
    }

    #[inline(never)]
    fn hold_another(&mut self) {
        self.hold();
    }

    fn deliver(&mut self, reason: Reason) -> Decision {
        self.forget_held();
        self.interrupt();
        Decision::Deliver(reason)
    }

    /// Plain ones that are held see an urgent one pass: it counts in their batch, so that they do not starve.
    fn deliver_urgent(&mut self) -> Decision {
        self.interrupt();
        if self.held > 0 {
            self.last_completion = self.last;
            self.passed = self.passed.saturating_add(1);
            self.make_room();
            self.look_ahead();
        }
        Decision::DeliverUrgent
    }

    #[inline(never)]
    fn deliver_held_paced(&mut self, reason: Reason) -> Decision {
        if self.held == 0 {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        if self.is_paced() {
            self.put_off = true;
            self.look_ahead();
            return Decision::Hold(HoldReason::Storm);
        }
        self.deliver(reason)
    }

    const fn nothing_due(&self, reason: HoldReason) -> Decision {
        Decision::Hold(if self.held > 0 { reason } else { HoldReason::NothingHeld })
    }

    const fn forget_held(&mut self) {
        self.held = 0;
        self.passed = 0;
        self.put_off = false;
        self.due = NEVER;
        self.needed = self.config.needed();
        self.make_room();
    }

    /// Every interrupt but the first is a sample for the storm guard.
    #[inline(never)]
    fn interrupt(&mut self) {
        if self.delivered && self.config.storm_interval > 0 {
            self.average.sample(self.since(self.last_delivery), &self.config);
            self.storming = self.average.is_storm(self.storming, &self.config);
            self.make_room();
        }
        self.delivered = true;
        self.last_delivery = self.last;
    }
}
