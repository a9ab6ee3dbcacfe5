//! The machine: Algorithm 2 of the cinterrupts paper, and what keeps it safe.

use crate::config::{Config, ConfigError, Field, NEVER};
use crate::hint::Hint;
use crate::storm::Storm;

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
/// earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Δ passed without a completion: the burst is over.
    Delta,
    /// A completion was held for `max_hold`.
    MaxHold,
    /// What the storm guard had put off.
    Storm,
    /// A completion or cancellation with a ticket that is not valid.
    Error,
    /// A batch is complete.
    Barrier,
    /// Somebody waits for this command.
    Urgent,
    /// The burst has `thr` completions.
    Count,
    /// More would be held than the commands in flight justify.
    InFlight,
    /// [`Cint::on_batch_end`]
    BatchEnd,
    /// [`Cint::flush`]
    Flush,
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

/// Why no interrupt is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The burst goes on.
    Burst,
    /// An interrupt is due, and the storm guard puts it off.
    Storm,
    /// Nothing is held: an interrupt would announce nothing.
    NothingHeld,
    /// The deadline has not come.
    Early,
    /// The new configuration is in force, and nothing is due under it.
    Reconfigured,
    /// The command is forgotten, and nothing is due.
    Cancelled,
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
    batch: u32,           // Alg. 2 `coalesced`
    first_held: u64,      // when the oldest held completion was posted
    limit: u64,           // `max_hold` after that
    last_completion: u64, // the quiet time Δ starts here
    due: u64,
    due_for: Option<Reason>, // what the deadline `due` will give; None: there is none
    // The storm guard
    storm: Storm,
    last_delivery: u64,
    delivered: bool, // last_delivery is valid
    put_off: bool,   // what is held was due, and waits for the storm guard
    // Time
    times_back: u16,
    last: u64, // of the previous call
}

const _: () = assert!(size_of::<Cint>() <= 120, "128 bytes with a word that a C caller adds");

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
            batch: 0,
            first_held: 0,
            limit: 0,
            last_completion: 0,
            due: 0,
            due_for: None,
            storm: Storm::cold(&config),
            last_delivery: 0,
            delivered: false,
            put_off: false,
            times_back: 0,
            last: 0,
        }
    }

    /// A command completed. `cif`: commands in flight, counting this one, for the `in_flight` rule; `None`: the rule
    /// is off for this completion.
    #[inline]
    pub fn on_completion(&mut self, now: u64, event: impl Into<Event>, cif: Option<u32>) -> Decision {
        let event = event.into();
        let decision = if event == Event::Plain { self.short_cut(now, cif) } else { None };
        decision.unwrap_or_else(|| self.on_event(now, event, cif))
    }

    /// The usual case of a plain completion, for those who inline that alone: the burst goes on, and there is no storm.
    /// `None`: call [`on_completion`](Self::on_completion); nothing has happened.
    #[inline(always)]
    pub fn short_cut(&mut self, now: u64, cif: Option<u32>) -> Option<Decision> {
        let is_usual = now >= self.last
            && (now < self.due || self.due_for.is_none())
            && !self.storm.is_storming()
            && self.batch < u32::from(self.config.thr).saturating_sub(1)
            && !self.starves(cif, self.held.saturating_add(1));
        if !is_usual {
            return None;
        }
        self.last = now;
        Some(self.hold(HoldReason::Burst))
    }

    /// As [`on_completion`](Self::on_completion), without the short cut.
    #[inline(never)]
    pub fn on_event(&mut self, now: u64, event: Event, cif: Option<u32>) -> Decision {
        self.advance(now);
        if let Some(decision) = self.deliver_expired() {
            return decision; // this completion rides on it
        }
        if event == Event::Error {
            return self.deliver(Reason::Error);
        }

        let paced = self.is_paced();
        let was_due = paced && !self.put_off && self.own_deadline().is_some_and(|(left, _)| left <= 0);
        let due = if was_due { Due::Everything(Reason::Storm) } else { self.due(event, cif) };
        let reason = match due {
            Due::Nothing => HoldReason::Burst,
            _ if paced => {
                self.put_off = true; // due, but not yet allowed
                HoldReason::Storm
            }
            Due::UrgentAlone => return self.deliver_urgent(),
            Due::Everything(reason) => return self.deliver(reason),
        };
        self.hold(reason)
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before. May change in every call
    /// that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.due_for.is_some() { Some(self.due) } else { None }
    }

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_expired().unwrap_or_else(|| self.nothing_due(HoldReason::Early))
    }

    /// The device has posted all it had. Ends a burst where Δ is 0.
    pub fn on_batch_end(&mut self, now: u64) -> Decision {
        self.advance(now);
        if let Some(decision) = self.deliver_expired() {
            return decision;
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
        if let Some(decision) = self.deliver_expired() {
            return decision;
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
            self.storm = Storm::cold(&config);
        }
        self.config = config;
        Ok(match self.own_deadline() {
            _ if self.put_off => self.deliver(Reason::Storm),
            Some((left, reason)) if self.has_come(left) => self.deliver(reason),
            _ if self.held > 0 && self.batch >= u32::from(config.thr) => self.deliver(Reason::Count),
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
        self.storm.is_storming()
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
    fn own_deadline(&self) -> Option<(i64, Reason)> {
        if self.held == 0 {
            return None;
        }
        let delta =
            (self.config.delta != NEVER).then(|| (self.left(self.last_completion, self.config.delta), Reason::Delta));
        let max_hold = (self.config.max_hold != NEVER)
            .then(|| (self.left(self.first_held, self.config.max_hold), Reason::MaxHold));
        match (delta, max_hold) {
            (Some(delta), Some(max_hold)) => Some(if max_hold.0 < delta.0 { max_hold } else { delta }),
            (delta, max_hold) => delta.or(max_hold),
        }
    }

    /// Finds the deadline of what is held, anew.
    #[cold]
    #[inline(never)]
    fn look_ahead(&mut self) {
        let own = self.own_deadline();
        let pace = (self.left(self.last_delivery, self.config.storm_interval), Reason::Storm);
        let next = match own {
            _ if !self.storm.is_storming() => own,
            _ if self.put_off => Some(pace), // in a storm nothing comes before its pace
            Some(own) if own.0 >= pace.0 => Some(own),
            own => own.map(|_| pace),
        };
        self.due_for = next.map(|(_, reason)| reason);
        self.due = self.last.saturating_add_signed(next.map_or(0, |(left, _)| left));
        self.limit = match self.config.max_hold {
            NEVER => NEVER,
            max_hold => self.last.saturating_add_signed(self.left(self.first_held, max_hold)),
        };
    }

    /// In a storm, and too soon after the last interrupt for another.
    fn is_paced(&self) -> bool {
        self.storm.is_storming() && self.since(self.last_delivery) < self.config.storm_interval
    }

    /// Algorithm 2, with `>=` at `thr` and without the fall-through of Urgent: what this completion asks for.
    fn due(&self, event: Event, cif: Option<u32>) -> Due {
        match event {
            Event::Error => Due::Everything(Reason::Error),
            Event::Barrier => Due::Everything(Reason::Barrier),
            Event::Urgent if !self.config.ooo => Due::Everything(Reason::Urgent),
            Event::Urgent if self.held == 0 => Due::UrgentAlone,
            _ if self.batch.saturating_add(1) >= u32::from(self.config.thr) => Due::Everything(Reason::Count),
            Event::Urgent if self.starves(cif, self.held) => Due::Everything(Reason::InFlight),
            Event::Urgent => Due::UrgentAlone,
            Event::Plain if self.starves(cif, self.held.saturating_add(1)) => Due::Everything(Reason::InFlight),
            Event::Plain => Due::Nothing,
        }
    }

    /// The `in_flight` rule: whether holding `held` completions leaves the device too little to do.
    const fn starves(&self, cif: Option<u32>, held: u32) -> bool {
        let threshold = self.config.cif_threshold as u64;
        match cif {
            Some(cif) if threshold > 0 => {
                (cif as u64) < threshold
                    || held > 1 && (held as u64).wrapping_mul(threshold).wrapping_mul(2) > cif as u64
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.held == 0 {
            self.first_held = self.last;
            self.limit = self.last.saturating_add(self.config.max_hold);
        }
        self.last_completion = self.last;
        self.held = self.held.saturating_add(1);
        self.batch = self.batch.saturating_add(1);
        let quiet = self.last.saturating_add(self.config.delta);
        (self.due, self.due_for) =
            if self.limit < quiet { (self.limit, Some(Reason::MaxHold)) } else { (quiet, Some(Reason::Delta)) };
        if self.due == NEVER || self.storm.is_storming() {
            self.look_ahead();
        }
        Decision::Hold(reason)
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
            self.batch = self.batch.saturating_add(1);
            self.look_ahead();
        }
        Decision::DeliverUrgent
    }

    fn deliver_expired(&mut self) -> Option<Decision> {
        match self.due_for {
            Some(reason) if self.last >= self.due => Some(self.deliver(reason)),
            _ => None,
        }
    }

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
        self.batch = 0;
        self.put_off = false;
        self.due_for = None;
    }

    /// Every interrupt but the first is a sample for the storm guard.
    #[inline(never)]
    fn interrupt(&mut self) {
        if self.delivered && self.config.storm_interval > 0 {
            self.storm.sample(self.since(self.last_delivery), &self.config);
        }
        self.delivered = true;
        self.last_delivery = self.last;
    }
}
