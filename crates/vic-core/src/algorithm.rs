//! The decision: Algorithms 1 and 2 of the vIC paper, and Algorithm 1 of the Xen paper around them.
//!
//! [`Vic::decide`] is the whole of it. It follows the papers' order and words, and does nothing for speed:
//! [`crate::fast`] answers the usual case before it. Line numbers count the printed lines of an algorithm, comments and
//! declarations included. What no paper has is marked *ours*; `docs/papers.md` gives the reasons.

use crate::config::Config;
use crate::ratio::Ratio;
use crate::window::Window;
use coalesce_decision::{Decision, HoldReason, Reason};

/// A vIC machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Vic {
    pub(crate) config: Config,
    pub(crate) last: u64, // the time of the previous call
    pub(crate) times_back: u16,
    // vIC Algorithms 1 and 2
    pub(crate) cycle: Cycle,
    pub(crate) count_up: u16, // 0: no completion has begun the first epoch yet
    pub(crate) skip_up: u16,
    pub(crate) epoch_start: u64,
    pub(crate) epoch_completions: u32,
    pub(crate) first_held: u64, // when the oldest held completion was posted; valid while any is held
    // Xen Algorithm 1
    window: Window, // the paper's nsecPerEvent
    pub(crate) running: bool,
    // While running: the epoch's start, plus the time since then in which the guest did not run. Otherwise: the time in
    // the epoch in which the guest ran.
    pub(crate) run_start: u64,
    pub(crate) slice_known: bool, // the end of the timeslice was known at the newest held completion
    // fast.rs. Below `low` commands in flight it delivers; above `high` the counter decides.
    pub(crate) until: u64, // the first instant without the fast path; if `slice_known`: the slice deadline
    pub(crate) low: u32,
    pub(crate) high: u32,
}

const _: () = assert!(size_of::<Vic>() == 96, "the paper's figure is 104 bytes; a C caller adds a word to it");

/// The position in a cycle of the delivery ratio: the paper's counter, from 1 to `skip_up`, and the number of held
/// completions, at most `skip_up`. One word saves the fast path three instructions over two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(u32);

impl Cycle {
    pub(crate) const START: Self = Self::new(1, 0);

    pub(crate) const fn new(counter: u16, held: u16) -> Self {
        Self(counter as u32 | (held as u32) << 16)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) const fn counter(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    pub(crate) const fn held(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Advances the counter and holds one more. Requires a counter below `skip_up`, so neither half overflows.
    #[inline(always)]
    pub(crate) const fn and_one_held(self) -> Self {
        Self(self.0.wrapping_add(0x0001_0001))
    }
}

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
            run_start: 0,
            slice_known: false,
            until: 0,
            low: 0,
            high: u32::MAX,
        }
    }

    /// Decides about a completion with `cif` commands in flight, including this one. A `slice_end` that is not in the
    /// future counts as unknown, and so does `u64::MAX`.
    #[inline(always)]
    pub(crate) fn decide(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        self.advance(now);
        let expired = self.expired(); // ours: checked first, because that interrupt covers this completion too
        self.count_completion(); // Xen §3, next_iops

        let diff = self.since(self.epoch_start); // vIC Alg. 2 l.5; Xen Alg. 1 l.15
        if self.count_up == 0 {
            self.count_up = 1; // the first epoch runs at R = 1
            self.start_epoch();
        } else if diff > self.config.epoch.get() {
            self.recalc(cif); // vIC Alg. 2 l.6-7; Xen Alg. 1 l.16-18, which prints `<`
        }
        let remaining = self.remaining(slice_end); // Xen Alg. 1 l.2-5

        if let Some(reason) = expired {
            self.set_counter(1); // ours: the cycle restarts after every interrupt outside the ratio
            self.deliver(reason)
        } else if self.window.reaches(remaining, self.config.margin) {
            self.set_counter(1);
            self.deliver(Reason::SliceEnd) // Xen Alg. 1 l.13-14
        } else if cif < u32::from(self.config.cif_threshold) {
            self.set_counter(1); // vIC Alg. 2 l.8-9; Xen Alg. 1 l.20-21
            self.deliver(Reason::LowCif) // vIC Alg. 2 l.10
        } else if self.counter() < self.count_up {
            self.set_counter(self.counter().wrapping_add(1)); // vIC Alg. 2 l.11-12; Xen Alg. 1 l.22-23
            self.deliver(Reason::Ratio) // vIC Alg. 2 l.13
        } else if self.counter() >= self.skip_up {
            self.set_counter(1); // vIC Alg. 2 l.14-15; Xen Alg. 1 l.24-25
            let always = self.skip_up == 1;
            self.deliver(if always { Reason::Always } else { Reason::Ratio }) // vIC Alg. 2 l.16
        } else if self.is_clamped(cif) {
            self.set_counter(1); // ours: the live clamp
            self.deliver(Reason::LiveClamp)
        } else {
            self.set_counter(self.counter().wrapping_add(1)); // vIC Alg. 2 l.17-18; Xen Alg. 1 l.27 prints 1
            self.hold(remaining) // vIC Alg. 2 l.19; Xen Alg. 1 l.28
        }
        // vIC Alg. 2 l.20-21 is `IpiGate::delivered`. A caller with a gate calls it.
    }

    /// Ends an epoch: computes a new delivery ratio (vIC Algorithm 1) and a new window (Xen Algorithm 1). The rate is
    /// taken over the epoch's real length, not its nominal one. The counter and the held completions stay.
    #[cold]
    fn recalc(&mut self, cif: u32) {
        let elapsed = if self.running { self.since(self.run_start) } else { self.run_start };
        let completions = self.epoch_completions;
        let ratio = if self.is_low_rate(completions, elapsed) {
            Ratio::ONE // vIC Alg. 1 l.5-8
        } else {
            Ratio::for_cif(cif, self.config.cif_threshold, self.config.max_skip) // vIC Alg. 1 l.5-24
        };
        (self.count_up, self.skip_up) = (u16::from(ratio.count_up), ratio.skip_up);
        self.window = Window::between_interrupts(ratio, elapsed, completions); // Xen Alg. 1 l.6-12
        self.epoch_completions = 0;
        self.start_epoch(); // Xen Alg. 1 l.19
    }

    /// currIOPS < iopsThreshold (vIC Alg. 1 l.5), without a division. If the product exceeds 64 bits, the rate is low.
    const fn is_low_rate(&self, completions: u32, elapsed: u64) -> bool {
        match elapsed.checked_mul(self.config.iops_threshold as u64) {
            Some(needed) => self.config.tick_hz.get().saturating_mul(completions as u64) < needed,
            None => true,
        }
    }

    /// Ours: whether holding this completion would exceed CIF / 2T held completions, as in vIC's Table 1 for the
    /// commands in flight now. A single completion may always be held.
    const fn is_clamped(&self, cif: u32) -> bool {
        let would_hold = (self.held() as u64).wrapping_add(1);
        let two_t = (self.config.cif_threshold as u64).wrapping_mul(2);
        self.config.live_clamp && would_hold > 1 && would_hold.wrapping_mul(two_t) > cif as u64
    }

    const fn counter(&self) -> u16 {
        self.cycle.counter()
    }

    pub(crate) const fn set_counter(&mut self, counter: u16) {
        self.cycle = Cycle::new(counter, self.held());
    }

    /// The number of held completions: posted, and not covered by an interrupt.
    #[must_use]
    pub const fn held(&self) -> u16 {
        self.cycle.held()
    }

    pub(crate) const fn set_held(&mut self, held: u16) {
        self.cycle = Cycle::new(self.counter(), held);
    }

    /// Delivers. The interrupt covers the held completions too.
    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.set_held(0);
        self.slice_known = false;
        Decision::Deliver(reason)
    }

    fn hold(&mut self, remaining: Option<u64>) -> Decision {
        if self.held() == 0 {
            self.first_held = self.last;
        }
        self.set_held(self.held().wrapping_add(1));
        let slice_deadline = self.window.deadline(self.last, remaining, self.config.margin);
        self.slice_known = slice_deadline.is_some();
        self.until = slice_deadline.unwrap_or(self.until);
        Decision::Hold(HoldReason::Ratio)
    }

    /// Ticks until the end of the timeslice, if it is known.
    fn remaining(&self, slice_end: Option<u64>) -> Option<u64> {
        let known = slice_end.filter(|&end| end > self.last && end != u64::MAX);
        known.map(|end| end.wrapping_sub(self.last))
    }

    const fn start_epoch(&mut self) {
        self.epoch_start = self.last;
        self.run_start = if self.running { self.last } else { 0 };
    }

    /// If the count wraps at 2^32 in an epoch, the rate seems low, and every completion interrupts.
    const fn count_completion(&mut self) {
        self.epoch_completions = self.epoch_completions.wrapping_add(self.running as u32);
    }
}

/// Time and deadlines.
impl Vic {
    /// Sets the time of a call. If the clock went back, every stored instant moves back by as much, as if no time had
    /// passed.
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
        self.until = self.until.saturating_sub(by);
        self.times_back = self.times_back.saturating_add(1);
    }

    /// Ticks since `instant`, which may lie before 0 in the caller's clock.
    pub(crate) const fn since(&self, instant: u64) -> u64 {
        self.last.wrapping_sub(instant)
    }

    /// The reason to deliver, if a deadline has passed.
    pub(crate) fn expired(&self) -> Option<Reason> {
        self.pending().filter(|&(deadline, _)| deadline <= self.last).map(|(_, reason)| reason)
    }

    /// The earliest deadline, and its reason to deliver. An instant before 0 is reported as 0.
    #[inline]
    pub(crate) const fn pending(&self) -> Option<(u64, Reason)> {
        if self.held() == 0 { None } else { self.earliest() }
    }

    #[inline(never)]
    const fn earliest(&self) -> Option<(u64, Reason)> {
        let slice_deadline = if self.slice_known { Some(self.until) } else { None };
        match (self.hold_deadline(), slice_deadline) {
            (Some(hold), Some(slice)) if slice < hold => Some((slice, Reason::SliceEnd)),
            (Some(hold), _) => Some((hold, Reason::MaxHold)),
            (None, Some(slice)) => Some((slice, Reason::SliceEnd)),
            (None, None) => None,
        }
    }

    /// The end of `max_hold` for the completions held.
    #[inline(never)]
    pub(crate) const fn hold_deadline(&self) -> Option<u64> {
        let Some(max_hold) = self.config.max_hold() else { return None };
        let waited = self.since(self.first_held);
        Some(match max_hold.checked_sub(waited) {
            Some(left) => self.last.saturating_add(left),
            None => self.last.saturating_sub(waited.wrapping_sub(max_hold)),
        })
    }
}
