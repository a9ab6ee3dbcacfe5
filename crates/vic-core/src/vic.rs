//! The machine: Algorithm 2 of the vIC paper, and what keeps it safe.

use crate::config::{Config, ConfigError, Field, NO_MAX_HOLD};
use crate::ratio::Ratio;
use crate::schedule::{NO_SLICE, Window};

/// Why an interrupt is delivered. Where several apply, the first in this order is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A completion was held for `max_hold`.
    MaxHold,
    /// The guest's timeslice ends before the next interrupt would be due.
    SliceEnd,
    /// Fewer than `cif_threshold` commands in flight.
    LowCif,
    /// It is this completion's turn in a cycle of the delivery ratio.
    Ratio,
    /// The delivery ratio is 1.
    Always,
    /// More would be held than the commands in flight justify now.
    LiveClamp,
    /// [`Vic::flush`]
    Flush,
    /// [`Vic::on_schedule`]
    Schedule,
    /// [`Vic::on_deschedule`]
    Deschedule,
}

impl Reason {
    /// The name in traces and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxHold => "max_hold",
            Self::SliceEnd => "slice_end",
            Self::LowCif => "low_cif",
            Self::Ratio => "ratio",
            Self::Always => "always",
            Self::LiveClamp => "live_clamp",
            Self::Flush => "flush",
            Self::Schedule => "schedule",
            Self::Deschedule => "deschedule",
        }
    }
}

/// Why no interrupt is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It is not this completion's turn in a cycle of the delivery ratio.
    Ratio,
    /// Nothing is held: an interrupt would announce nothing.
    NothingHeld,
    /// The deadline has not come.
    Early,
    /// The new configuration is in force, and nothing is due under it.
    Reconfigured,
}

impl HoldReason {
    /// The name in traces and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::NothingHeld => "nothing_held",
            Self::Early => "early",
            Self::Reconfigured => "reconfigured",
        }
    }
}

/// What to do now. Only `Hold` suppresses an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "dropping a decision can lose an interrupt"]
pub enum Decision {
    /// Interrupt the guest: it covers everything completed so far.
    Deliver(Reason),
    /// Do not interrupt now.
    Hold(HoldReason),
}

impl Decision {
    /// Whether to interrupt.
    #[inline]
    #[must_use]
    pub const fn is_deliver(self) -> bool {
        matches!(self, Self::Deliver(_))
    }
}

/// A vIC machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug)]
pub struct Vic {
    // Config, laid out flat: no padding, 96 bytes.
    tick_hz: u64,
    epoch: u64,
    max_hold: u64, // NO_MAX_HOLD: none
    iops_threshold: u32,
    margin: u32,
    cif_threshold: u16,
    max_skip: u16,
    live_clamp: bool,
    // Algorithm 2
    started: bool, // the first completion has come
    count_up: u8,
    skip_up: u16,
    counter: u16,
    epoch_start: u64,
    epoch_completions: u32,
    // What is held
    held: u16, // below skip_up, as counter moves on with each
    first_held: u64,
    // Time
    last: u64, // of the previous call
    times_back: u16,
    // Scheduler awareness
    pub(crate) running: bool,
    pub(crate) run_start: u64, // while running: the epoch's start, moved on by the time not run; else: time run in the epoch
    window: Window,
    slice_deadline: u64, // NO_SLICE: none
}

const _: () = assert!(size_of::<Vic>() == 96, "the paper's figure is 104 bytes; a C caller adds a word to it");

impl Vic {
    /// A machine that has seen nothing: ratio 1, nothing held. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        let Config { tick_hz, epoch, max_hold, iops_threshold, margin, cif_threshold, max_skip, live_clamp } = config;
        let Ratio { count_up, skip_up } = Ratio::ONE;
        Self {
            tick_hz,
            epoch,
            max_hold,
            iops_threshold,
            margin,
            cif_threshold,
            max_skip,
            live_clamp,
            started: false,
            count_up,
            skip_up,
            counter: 1,
            epoch_start: 0,
            epoch_completions: 0,
            held: 0,
            first_held: 0,
            last: 0,
            times_back: 0,
            running: true,
            run_start: 0,
            window: Window::NONE,
            slice_deadline: NO_SLICE,
        }
    }

    /// A command completed; `cif` commands were in flight, counting this one. The slice's end is unknown.
    #[inline]
    pub fn on_completion(&mut self, now: u64, cif: u32) -> Decision {
        self.on_completion_in_slice(now, cif, None)
    }

    /// As [`on_completion`](Self::on_completion), with the instant at which the guest's timeslice ends, if it is
    /// known (Xen §4, Algorithm 1). An instant that is not in the future says nothing, nor does `u64::MAX`.
    #[inline]
    pub fn on_completion_in_slice(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        self.advance(now);
        let expired = self.expired(); // before anything else: this completion rides on it
        self.epoch_completions = self.epoch_completions.saturating_add(u32::from(self.running));
        if !self.started {
            self.start_epoch();
        } else if self.since(self.epoch_start) > self.epoch {
            self.roll(cif);
        }
        if let Some(reason) = expired {
            return self.deliver(reason);
        }

        let slice_left = slice_end.filter(|&end| end > now && end != NO_SLICE).map(|end| end.wrapping_sub(now));
        if slice_left.is_some_and(|left| self.window.reaches(left, self.margin)) {
            return self.deliver(Reason::SliceEnd); // before the interrupt after this one, the guest is off the CPU
        }

        // Algorithm 2
        if cif < u32::from(self.cif_threshold) {
            self.deliver(Reason::LowCif)
        } else if self.counter < u16::from(self.count_up) {
            self.counter = self.counter.wrapping_add(1);
            self.deliver_in_turn(Reason::Ratio)
        } else if self.counter >= self.skip_up {
            self.counter = 1;
            self.deliver_in_turn(if self.skip_up == 1 { Reason::Always } else { Reason::Ratio })
        } else if self.live_clamp && self.held > 0 && self.exceeds(cif) {
            self.deliver(Reason::LiveClamp)
        } else {
            self.counter = self.counter.wrapping_add(1);
            self.hold(slice_left)
        }
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before. May change in every call
    /// that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
    #[inline]
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        match (self.hold_deadline(), self.slice_deadline) {
            (None, NO_SLICE) => None,
            (None, slice) => Some(slice),
            (Some(hold), slice) => Some(if hold < slice { hold } else { slice }),
        }
    }

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        self.advance(now);
        match self.expired() {
            Some(reason) => self.deliver(reason),
            None if self.held > 0 => Decision::Hold(HoldReason::Early),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    /// Queue stop, reset, migration: announces what is held. The epoch and the ratio stay.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_held(Reason::Flush)
    }

    /// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the
    /// serialisation that protects the machine, the guest's index equals what was posted.
    pub const fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        self.held = 0;
    }

    /// Takes a new configuration, with what is held. The running epoch, the ratio and the window stay until the next
    /// roll; a new epoch length acts at once.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has happened, not even at `now`.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        if config.tick_hz != self.tick_hz {
            let tick_hz = self.tick_hz;
            return Err(ConfigError { field: Field::TickHz, value: config.tick_hz, min: tick_hz, max: tick_hz });
        }
        self.advance(now);
        if self.slice_deadline != NO_SLICE {
            let without_margin = self.slice_deadline.saturating_add(u64::from(self.margin));
            self.slice_deadline = without_margin.saturating_sub(u64::from(config.margin));
        }
        *self = Self {
            epoch: config.epoch,
            max_hold: config.max_hold,
            iops_threshold: config.iops_threshold,
            margin: config.margin,
            cif_threshold: config.cif_threshold,
            max_skip: config.max_skip,
            live_clamp: config.live_clamp,
            ..*self
        };
        Ok(match self.expired() {
            Some(reason) => self.deliver(reason),
            None if self.held > 0 => Decision::Hold(HoldReason::Reconfigured),
            None => Decision::Hold(HoldReason::NothingHeld),
        })
    }

    /// The configuration in force.
    #[must_use]
    pub const fn config(&self) -> Config {
        let Self { tick_hz, epoch, max_hold, iops_threshold, margin, cif_threshold, max_skip, live_clamp, .. } = *self;
        Config { tick_hz, epoch, max_hold, iops_threshold, margin, cif_threshold, max_skip, live_clamp }
    }

    /// The delivery ratio in force.
    #[must_use]
    pub const fn ratio(&self) -> Ratio {
        Ratio { count_up: self.count_up, skip_up: self.skip_up }
    }

    /// Completions held: posted and not announced.
    #[must_use]
    pub const fn held(&self) -> u16 {
        self.held
    }

    /// How often a call was older than the one before it; stops at 65535.
    #[must_use]
    pub const fn times_back(&self) -> u16 {
        self.times_back
    }

    /// Takes the time of a call. A clock that went back: no time has passed, and all that is stored moves back too.
    pub(crate) const fn advance(&mut self, now: u64) {
        if now < self.last {
            let by = self.last.wrapping_sub(now);
            self.epoch_start = self.epoch_start.wrapping_sub(by);
            self.first_held = self.first_held.wrapping_sub(by);
            if self.running {
                self.run_start = self.run_start.wrapping_sub(by);
            }
            if self.slice_deadline != NO_SLICE {
                self.slice_deadline = self.slice_deadline.saturating_sub(by);
            }
            self.times_back = self.times_back.saturating_add(1);
        }
        self.last = now;
    }

    /// Ticks since `instant`. It may lie before 0 in the caller's clock, as its difference does not.
    pub(crate) const fn since(&self, instant: u64) -> u64 {
        self.last.wrapping_sub(instant)
    }

    /// When the oldest held completion has been held for `max_hold`. Past instants are exact, if not before 0.
    const fn hold_deadline(&self) -> Option<u64> {
        if self.max_hold == NO_MAX_HOLD {
            return None;
        }
        let waited = self.since(self.first_held);
        Some(if waited <= self.max_hold {
            self.last.saturating_add(self.max_hold.wrapping_sub(waited))
        } else {
            self.last.saturating_sub(waited.wrapping_sub(self.max_hold))
        })
    }

    /// The reason of the earliest deadline that has come.
    fn expired(&self) -> Option<Reason> {
        let deadline = self.deadline().filter(|&deadline| deadline <= self.last)?;
        Some(if Some(deadline) == self.hold_deadline() { Reason::MaxHold } else { Reason::SliceEnd })
    }

    const fn start_epoch(&mut self) {
        self.started = true;
        self.epoch_start = self.last;
        self.run_start = if self.running { self.last } else { 0 };
    }

    /// The epoch is over (vIC `IntrCoalesceRecalc`; Xen lines 6-12). Its real length counts, not its nominal one.
    #[cold]
    fn roll(&mut self, cif: u32) {
        let elapsed = if self.running { self.since(self.run_start) } else { self.run_start };
        let completions = self.epoch_completions;
        let ratio = if self.is_low_rate(completions, elapsed) {
            Ratio::ONE
        } else {
            Ratio::for_cif(cif, self.cif_threshold, self.max_skip)
        };
        (self.count_up, self.skip_up) = (ratio.count_up, ratio.skip_up);
        self.window = Window::between_interrupts(ratio, elapsed, completions);
        self.epoch_completions = 0;
        self.start_epoch();
    }

    /// completions / elapsed < iops_threshold, without a division. What does not fit in 64 bits is a low rate.
    const fn is_low_rate(&self, completions: u32, elapsed: u64) -> bool {
        match elapsed.checked_mul(self.iops_threshold as u64) {
            Some(needed) => self.tick_hz.saturating_mul(completions as u64) < needed,
            None => true,
        }
    }

    /// Whether one more would be more than CIF / 2T, the paper's ratio for the commands in flight now.
    const fn exceeds(&self, cif: u32) -> bool {
        let held = (self.held as u64).wrapping_add(1);
        held.wrapping_mul(self.cif_threshold as u64).wrapping_mul(2) > cif as u64
    }

    fn hold(&mut self, slice_left: Option<u64>) -> Decision {
        if self.held == 0 {
            self.first_held = self.last;
        }
        self.held = self.held.wrapping_add(1);
        self.slice_deadline = match slice_left {
            Some(left) => self.window.deadline(self.last, left, self.margin),
            None => NO_SLICE,
        };
        Decision::Hold(HoldReason::Ratio)
    }

    /// A delivery that is not a turn of the ratio begins a new cycle.
    fn deliver(&mut self, reason: Reason) -> Decision {
        self.counter = 1;
        self.deliver_in_turn(reason)
    }

    fn deliver_in_turn(&mut self, reason: Reason) -> Decision {
        self.held = 0;
        Decision::Deliver(reason)
    }

    pub(crate) fn deliver_held(&mut self, reason: Reason) -> Decision {
        if self.held > 0 { self.deliver(reason) } else { Decision::Hold(HoldReason::NothingHeld) }
    }
}
