//! The machine: Algorithm 2 of the vIC paper, and what keeps it safe.

use crate::config::{Config, ConfigError, Field};
use crate::ratio::Ratio;
use crate::schedule::Window;

/// Why an interrupt is delivered. Where several apply, the first in this order is given. The numbers are those of the C
/// ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A completion was held for `max_hold`.
    MaxHold = 1,
    /// The guest's timeslice ends before the next interrupt would be due.
    SliceEnd = 2,
    /// Fewer than `cif_threshold` commands in flight.
    LowCif = 3,
    /// It is this completion's turn in a cycle of the delivery ratio.
    Ratio = 4,
    /// The delivery ratio is 1.
    Always = 5,
    /// More would be held than the commands in flight justify now.
    LiveClamp = 6,
    /// [`Vic::flush`]
    Flush = 7,
    /// [`Vic::on_schedule`]
    Schedule = 8,
    /// [`Vic::on_deschedule`]
    Deschedule = 9,
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

/// Why no interrupt is delivered. The numbers are those of the C ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// It is not this completion's turn in a cycle of the delivery ratio.
    Ratio = 32,
    /// Nothing is held: an interrupt would announce nothing.
    NothingHeld = 33,
    /// The deadline has not come.
    Early = 34,
    /// The new configuration is in force, and nothing is due under it.
    Reconfigured = 35,
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
    config: Config,
    // Algorithm 2
    ratio: Cycle,  // at its beginning
    cycle: Cycle,  // as it stands
    started: bool, // the first completion has come
    epoch_start: u64,
    epoch_completions: u32,
    first_held: u64, // when the oldest held completion was posted
    // Time
    last: u64, // of the previous call
    times_back: u16,
    // The short cut: from `last` until `wake`, a CIF below `low` delivers, and above `high` the cycle alone decides.
    wake: u64, // when the slice's end is known: the last instant at which an interrupt comes before it
    low: u32,
    high: u32, // u32::MAX: no CIF is
    // Scheduler awareness
    pub(crate) running: bool,
    pub(crate) run_start: u64, // while running: the epoch's start, moved on by the time not run; else: time run in the epoch
    window: Window,
}

const _: () = assert!(size_of::<Vic>() == 96, "the paper's figure is 104 bytes; a C caller adds a word to it");

/// A cycle of the delivery ratio. The paper's counter runs up from 1 to `skipUp`; `left` runs down from `skipUp` to 1.
#[derive(Clone, Copy, Debug)]
#[repr(align(4))] // copied as one word
struct Cycle {
    left: u16,  // completions to come; the last of them is delivered,
    skips: u16, // and so many before it are held
}

impl Cycle {
    const fn new(Ratio { count_up, skip_up }: Ratio) -> Self {
        Self { left: skip_up, skips: skip_up.wrapping_sub(count_up as u16) }
    }

    const fn ratio(self) -> Ratio {
        #[expect(clippy::cast_possible_truncation, reason = "at most 4")]
        Ratio { count_up: self.left.wrapping_sub(self.skips) as u8, skip_up: self.left }
    }

    const fn held(self) -> u16 {
        self.skips.wrapping_add(1).saturating_sub(self.left)
    }
}

impl Vic {
    /// A machine that has seen nothing: ratio 1, nothing held. Usable in a `static`.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            ratio: Cycle::new(Ratio::ONE),
            cycle: Cycle::new(Ratio::ONE),
            started: false,
            epoch_start: 0,
            epoch_completions: 0,
            first_held: 0,
            last: 0,
            times_back: 0,
            wake: 0,
            low: 0,
            high: 0,
            running: true,
            run_start: 0,
            window: Window::NONE,
        }
    }

    /// A command completed; `cif` commands were in flight, counting this one. The slice's end is unknown.
    #[inline]
    pub fn on_completion(&mut self, now: u64, cif: u32) -> Decision {
        match self.short_cut(now, cif) {
            Some(decision) => decision,
            None => self.on_completion_in_slice(now, cif, None),
        }
    }

    /// The usual case of [`on_completion`](Self::on_completion), for those who inline that alone: no epoch is over, no
    /// deadline has come, and there are few enough commands in flight, or many. `None`: call `on_completion`; nothing has
    /// happened.
    #[inline(always)]
    pub fn short_cut(&mut self, now: u64, cif: u32) -> Option<Decision> {
        if now < self.last || now >= self.wake {
            return None;
        }
        if cif > self.high {
            self.count(now);
            Some(self.next_in_cycle())
        } else if cif < self.low {
            self.count(now);
            Some(self.deliver(Reason::LowCif))
        } else if self.ratio.skips == 0 {
            self.count(now);
            Some(self.deliver(Reason::Always))
        } else {
            None
        }
    }

    /// As [`on_completion`](Self::on_completion), with the instant at which the guest's timeslice ends, if it is
    /// known (Xen §4, Algorithm 1). An instant that is not in the future says nothing, nor does `u64::MAX`.
    #[inline(never)]
    pub fn on_completion_in_slice(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        self.advance(now);
        let expired = self.expired(); // before anything else: this completion rides on it
        self.epoch_completions = self.epoch_completions.saturating_add(u32::from(self.running));
        if !self.started {
            self.start_epoch();
        } else if self.since(self.epoch_start) > self.config.epoch.get() {
            self.roll(cif);
        }
        let slice_left = slice_end.filter(|&end| end > now && end != u64::MAX).map(|end| end.wrapping_sub(now));

        let decision = match expired.or_else(|| self.reason_now(cif, slice_left)) {
            Some(reason) => self.deliver(reason),
            None => self.next_in_cycle(),
        };
        self.look_ahead(slice_left);
        decision
    }

    /// The first reason to deliver that is not the place in the cycle.
    fn reason_now(&self, cif: u32, slice_left: Option<u64>) -> Option<Reason> {
        if slice_left.is_some_and(|left| self.window.reaches(left, self.config.margin)) {
            Some(Reason::SliceEnd) // before the interrupt after this one, the guest is off the CPU
        } else if cif < u32::from(self.config.cif_threshold) {
            Some(Reason::LowCif)
        } else if self.ratio.skips == 0 {
            Some(Reason::Always)
        } else if self.exceeds(cif) {
            Some(Reason::LiveClamp)
        } else {
            None
        }
    }

    /// Algorithm 2 with `cifThreshold` commands in flight or more.
    #[inline(always)]
    fn next_in_cycle(&mut self) -> Decision {
        let left = u32::from(self.cycle.left).wrapping_sub(1);
        if left == 0 {
            return self.deliver(Reason::Ratio);
        }
        #[expect(clippy::cast_possible_truncation, reason = "it was 16 bits, and not 0")]
        let left = left as u16;
        let skips = self.cycle.skips;
        if left == skips {
            self.first_held = self.last;
        } else if left > skips {
            self.cycle.left = left;
            return Decision::Deliver(Reason::Ratio);
        }
        self.cycle.left = left;
        Decision::Hold(HoldReason::Ratio)
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before. May change in every call
    /// that takes `&mut self`; a timer armed for an earlier instant may be left as it is.
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

    /// Queue stop, reset, migration: announces what is held. The epoch and the ratio stay.
    pub fn flush(&mut self, now: u64) -> Decision {
        self.advance(now);
        self.deliver_held(Reason::Flush)
    }

    /// The guest has taken everything that was posted, without an interrupt. Call it only if, inside the
    /// serialisation that protects the machine, the guest's index equals what was posted.
    pub const fn on_consumed(&mut self, now: u64) {
        self.advance(now);
        if self.held() > 0 {
            self.cycle.skips = self.cycle.left.wrapping_sub(1);
        }
    }

    /// Takes a new configuration, with what is held. The running epoch, the ratio and the window stay until the next
    /// roll; a new epoch length acts at once.
    ///
    /// # Errors
    /// `tick_hz` differs; then nothing has happened, not even at `now`.
    pub fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        let (new, old) = (config.tick_hz.get(), self.config.tick_hz.get());
        if new != old {
            return Err(ConfigError { field: Field::TickHz, value: new, min: old, max: old });
        }
        self.advance(now);
        match self.slice_deadline() {
            Some(slice) => {
                let without_margin = slice.saturating_add(u64::from(self.config.margin));
                self.wake = without_margin.saturating_sub(u64::from(config.margin));
            }
            None => self.no_short_cut(),
        }
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
        self.ratio.ratio()
    }

    /// Completions held: posted and not announced.
    #[must_use]
    pub const fn held(&self) -> u16 {
        self.cycle.held()
    }

    /// How often a call was older than the one before it; stops at 65535.
    #[must_use]
    pub const fn times_back(&self) -> u16 {
        self.times_back
    }

    /// Takes the time of a call. A clock that went back: no time has passed, and all that is stored moves back too.
    #[inline(always)]
    pub(crate) const fn advance(&mut self, now: u64) {
        if now < self.last {
            self.go_back(self.last.wrapping_sub(now));
        }
        self.last = now;
    }

    #[cold]
    #[inline(never)]
    const fn go_back(&mut self, by: u64) {
        self.epoch_start = self.epoch_start.wrapping_sub(by);
        self.first_held = self.first_held.wrapping_sub(by);
        if self.running {
            self.run_start = self.run_start.wrapping_sub(by);
        }
        self.wake = self.wake.saturating_sub(by);
        self.times_back = self.times_back.saturating_add(1);
    }

    /// A completion in the short cut. Should the count pass 2^32 in an epoch, the rate is low, which delivers.
    const fn count(&mut self, now: u64) {
        self.last = now;
        self.epoch_completions = self.epoch_completions.wrapping_add(1);
    }

    /// Until when, and with what in flight, the short cut may be taken. It ends with the epoch; it ends after
    /// `max_hold`, as what is held from now on is due then at the earliest; it ends where the live clamp may act on as
    /// many as this cycle can hold.
    fn look_ahead(&mut self, slice_left: Option<u64>) {
        let margin = self.config.margin;
        if self.held() == 0 {
            self.first_held = self.last;
        } else if let Some(deadline) = slice_left.and_then(|left| self.window.deadline(self.last, left, margin)) {
            (self.wake, self.low, self.high) = (deadline, 0, u32::MAX);
            return;
        }
        let epoch_left = self.config.epoch.get().saturating_sub(self.since(self.epoch_start));
        let epoch_end = self.last.saturating_add(epoch_left);
        self.wake = if self.running { self.hold_deadline().map_or(epoch_end, |hold| hold.min(epoch_end)) } else { 0 };

        self.low = u32::from(self.config.cif_threshold);
        self.high = match u32::from(self.ratio.skips) {
            0 => u32::MAX,
            most if most > 1 && self.config.live_clamp => match self.low.wrapping_mul(2).checked_mul(most) {
                Some(enough) => enough.wrapping_sub(1),
                None => {
                    self.wake = 0; // no CIF is
                    0
                }
            },
            _ => self.low.wrapping_sub(1),
        };
    }

    pub(crate) const fn no_short_cut(&mut self) {
        (self.wake, self.high) = (0, 0);
    }

    /// Ticks since `instant`. It may lie before 0 in the caller's clock, as its difference does not.
    pub(crate) const fn since(&self, instant: u64) -> u64 {
        self.last.wrapping_sub(instant)
    }

    /// The earliest deadline, and the reason it will give. An instant before 0 is reported as 0.
    #[inline]
    const fn pending(&self) -> Option<(u64, Reason)> {
        if self.held() == 0 { None } else { self.earliest() }
    }

    #[inline(never)]
    const fn earliest(&self) -> Option<(u64, Reason)> {
        match (self.hold_deadline(), self.slice_deadline()) {
            (Some(hold), Some(slice)) if slice < hold => Some((slice, Reason::SliceEnd)),
            (Some(hold), _) => Some((hold, Reason::MaxHold)),
            (None, Some(slice)) => Some((slice, Reason::SliceEnd)),
            (None, None) => None,
        }
    }

    /// When the oldest held completion has been held for `max_hold`.
    #[inline(never)]
    const fn hold_deadline(&self) -> Option<u64> {
        let Some(max_hold) = self.config.max_hold() else { return None };
        let waited = self.since(self.first_held);
        Some(match max_hold.checked_sub(waited) {
            Some(left) => self.last.saturating_add(left),
            None => self.last.saturating_sub(waited.wrapping_sub(max_hold)),
        })
    }

    /// The last instant at which an interrupt comes before the slice's end, if that is known.
    const fn slice_deadline(&self) -> Option<u64> {
        if self.high == u32::MAX && self.ratio.skips > 0 { Some(self.wake) } else { None }
    }

    /// The reason of a deadline that has come.
    fn expired(&self) -> Option<Reason> {
        self.pending().filter(|&(deadline, _)| deadline <= self.last).map(|(_, reason)| reason)
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
            Ratio::for_cif(cif, self.config.cif_threshold, self.config.max_skip)
        };
        self.change_ratio(Cycle::new(ratio));
        self.window = Window::between_interrupts(ratio, elapsed, completions);
        self.epoch_completions = 0;
        self.start_epoch();
    }

    /// In mid-cycle the paper's counter stays.
    fn change_ratio(&mut self, ratio: Cycle) {
        let gone = self.ratio.left.wrapping_sub(self.cycle.left);
        let left = ratio.left.saturating_sub(gone).max(1);
        let skips = if left.wrapping_sub(1) > ratio.skips {
            ratio.skips // the completion that rolls is delivered, and what is held with it
        } else {
            left.wrapping_sub(1).wrapping_add(self.held())
        };
        (self.ratio, self.cycle) = (ratio, Cycle { left, skips });
    }

    /// completions / elapsed < iops_threshold, without a division. What does not fit in 64 bits is a low rate.
    const fn is_low_rate(&self, completions: u32, elapsed: u64) -> bool {
        match elapsed.checked_mul(self.config.iops_threshold as u64) {
            Some(needed) => self.config.tick_hz.get().saturating_mul(completions as u64) < needed,
            None => true,
        }
    }

    /// Whether one more held would be more than CIF / 2T, the paper's ratio for the commands in flight now.
    const fn exceeds(&self, cif: u32) -> bool {
        let held = self.held() as u64;
        self.config.live_clamp
            && self.cycle.left > 1
            && held > 0
            && held.wrapping_add(1).wrapping_mul(self.config.cif_threshold as u64).wrapping_mul(2) > cif as u64
    }

    /// A delivery, and a new cycle.
    fn deliver(&mut self, reason: Reason) -> Decision {
        self.cycle = self.ratio;
        Decision::Deliver(reason)
    }

    pub(crate) fn deliver_held(&mut self, reason: Reason) -> Decision {
        if self.held() > 0 { self.deliver(reason) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn deliver_expired(&mut self, otherwise: HoldReason) -> Decision {
        match self.expired() {
            Some(reason) => self.deliver(reason),
            None if self.held() > 0 => Decision::Hold(otherwise),
            None => Decision::Hold(HoldReason::NothingHeld),
        }
    }
}
