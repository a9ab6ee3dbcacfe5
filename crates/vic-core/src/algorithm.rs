//! The decision: Algorithms 1 and 2 of the vIC paper, and Algorithm 1 of the Xen paper around them.
//!
//! [`Vic::decide`] is the whole of it, [`Ratio`] is vIC's Algorithm 1, and `Window` is what the Xen paper adds. It follows
//! the papers' words, and their order but for two steps: a passed deadline goes first, and an epoch ends before the slice
//! is checked. It does nothing for speed: [`crate::fast`] answers the usual case before it. Line numbers count the printed
//! lines of an algorithm, comments and declarations included. What no paper has is marked *ours*; `docs/papers.md` gives
//! the reasons.
//!
//! Three helpers are in [`crate::time`]: `advance` sets the time of a call, `since` gives the ticks since an instant, and
//! `expired` gives the reason to deliver if a deadline has passed. [`crate::cycle`] packs the counter and the number of held
//! completions into one word.

use crate::config::Config;
use crate::cycle::{Bounds, Cycle};
use coalesce_decision::ticks::{divide, divide_up};
use coalesce_decision::{Decision, HoldReason, Reason};

/// A vIC machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub(crate) window: Window, // the paper's nsecPerEvent
    pub(crate) running: bool,
    // While running, `last - run_base` is the time for which the guest ran in this epoch. Otherwise `run_base` is that
    // time itself.
    pub(crate) run_base: u64,
    pub(crate) has_slice_deadline: bool, // `fast.until` is the slice deadline of the newest held completion
    pub(crate) fast: Bounds,             // of fast.rs; if `has_slice_deadline`, the fast path is closed
}

const _: () = assert!(size_of::<Vic>() == 96, "104 bytes with the 8 that the C ABI adds: the paper's figure");

impl Vic {
    /// Decides about a completion with `cif` commands in flight, including this one. A `slice_end` that is not in the
    /// future counts as unknown, and so does `u64::MAX`.
    #[inline(always)]
    pub(crate) fn decide(&mut self, now: u64, cif: u32, slice_end: Option<u64>) -> Decision {
        self.advance(now); // Xen Alg. 1 l.1
        let expired = self.expired(); // ours: checked first, because that interrupt covers this completion too
        self.count_completion(); // Xen §3, next_iops

        let diff = self.since(self.epoch_start); // vIC Alg. 2 l.5; Xen Alg. 1 l.15
        if self.count_up == 0 {
            self.count_up = 1; // the first epoch runs at R = 1
            self.start_epoch();
        } else if diff > self.config.epoch.get() {
            self.recalc(cif); // vIC Alg. 2 l.6-7; Xen Alg. 1 l.16-18, where `<` is a misprint
        }
        let remaining = self.remaining(slice_end); // Xen Alg. 1 l.2-5

        if let Some(reason) = expired {
            self.cycle.set_counter(1); // ours: the cycle restarts after every interrupt outside the ratio
            self.deliver(reason)
        } else if self.window.reaches(remaining, self.config.margin) {
            self.cycle.set_counter(1);
            self.deliver(Reason::SliceEnd) // Xen Alg. 1 l.13-14
        } else if cif < u32::from(self.config.cif_threshold) {
            self.cycle.set_counter(1); // vIC Alg. 2 l.8-9; Xen Alg. 1 l.20-21
            self.deliver(Reason::LowCif) // vIC Alg. 2 l.10; Xen Alg. 1 l.29
        } else if self.cycle.counter() < self.count_up {
            self.cycle.set_counter(self.cycle.counter().wrapping_add(1)); // vIC Alg. 2 l.11-12; Xen Alg. 1 l.22-23
            self.deliver(Reason::Ratio) // vIC Alg. 2 l.13; Xen Alg. 1 l.29
        } else if self.cycle.counter() >= self.skip_up {
            self.cycle.set_counter(1); // vIC Alg. 2 l.14-15; Xen Alg. 1 l.24-25
            let always = self.skip_up == 1;
            self.deliver(if always { Reason::Always } else { Reason::Ratio }) // vIC Alg. 2 l.16; Xen Alg. 1 l.29
        } else if self.is_clamped(cif) {
            self.cycle.set_counter(1); // ours: the live clamp
            self.deliver(Reason::LiveClamp)
        } else {
            // vIC Alg. 2 l.17-18; Xen Alg. 1 l.26-27, where 1 is a misprint of Counter + 1
            self.cycle.set_counter(self.cycle.counter().wrapping_add(1));
            self.hold(remaining) // vIC Alg. 2 l.19; Xen Alg. 1 l.28
        }
        // vIC Alg. 2 l.20-21 is `IpiGate::delivered`. A caller with a gate calls it.
    }

    /// Ends an epoch: computes a new delivery ratio (vIC Algorithm 1) and a new window (Xen Algorithm 1). The rate is
    /// taken over the time for which the guest ran in this epoch, not over the nominal length. The counter and the held
    /// completions stay.
    #[cold]
    fn recalc(&mut self, cif: u32) {
        let elapsed = if self.running { self.since(self.run_base) } else { self.run_base };
        let completions = self.epoch_completions;
        let ratio = if self.is_low_rate(completions, elapsed) {
            Ratio::ONE // vIC Alg. 1 l.5-8
        } else {
            Ratio::for_cif(cif, self.config.cif_threshold, self.config.max_skip) // vIC Alg. 1
        };
        (self.count_up, self.skip_up) = (u16::from(ratio.count_up), ratio.skip_up);
        self.window = Window::between_interrupts(ratio, elapsed, completions); // Xen §4
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

    /// Ours, the live clamp: whether with this completion more than CIF / 2T would be held. CIF / 2T is the cycle length in
    /// the last row of vIC's Table 1, here with the CIF of this completion. One completion may always be held.
    const fn is_clamped(&self, cif: u32) -> bool {
        let would_hold = (self.cycle.held() as u64).wrapping_add(1);
        let two_t = (self.config.cif_threshold as u64).wrapping_mul(2);
        self.config.live_clamp && would_hold > 1 && would_hold.wrapping_mul(two_t) > cif as u64
    }

    /// Delivers. The interrupt covers the held completions too.
    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.cycle.set_held(0);
        self.has_slice_deadline = false;
        Decision::Deliver(reason)
    }

    fn hold(&mut self, remaining: Option<u64>) -> Decision {
        if self.cycle.held() == 0 {
            self.first_held = self.last;
        }
        self.cycle.set_held(self.cycle.held().wrapping_add(1));
        let slice_deadline = self.window.deadline(self.last, remaining, self.config.margin);
        self.has_slice_deadline = slice_deadline.is_some();
        self.fast.until = slice_deadline.unwrap_or(self.fast.until);
        Decision::Hold(HoldReason::Ratio)
    }

    /// Ticks until the end of the timeslice, if it is known.
    fn remaining(&self, slice_end: Option<u64>) -> Option<u64> {
        let known = slice_end.filter(|&end| end > self.last && end != u64::MAX);
        known.map(|end| end.wrapping_sub(self.last))
    }

    const fn start_epoch(&mut self) {
        self.epoch_start = self.last;
        self.run_base = if self.running { self.last } else { 0 };
    }

    /// If the count wraps at 2^32 in an epoch, the rate is taken for too low; at worst every completion interrupts.
    const fn count_completion(&mut self) {
        self.epoch_completions = self.epoch_completions.wrapping_add(self.running as u32);
    }
}

/// A delivery ratio (vIC §3.2.1): of every `skip_up` completions, `count_up` interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ratio {
    /// Interrupts delivered in a cycle: 1 to 4.
    pub count_up: u8,
    /// Completions in a cycle: 1 to 65535.
    pub skip_up: u16,
}

impl Ratio {
    /// Every completion is delivered: R = 1.
    pub const ONE: Self = Self { count_up: 1, skip_up: 1 };

    /// Algorithm 1: `cif` commands in flight, threshold T = `cif_threshold`. `max_skip` limits `skip_up` in the last row.
    ///
    /// This is the paper's Table 1, which shows T = 4. In its last row the quotient is rounded down, so that a cycle is
    /// never longer than CIF / 2T: at CIF 23 the ratio is 1/2, not 8/23.
    #[doc(hidden)] // for tests: a machine has its ratio
    #[must_use]
    pub const fn for_cif(cif: u32, cif_threshold: u16, max_skip: u16) -> Self {
        let t = cif_threshold as u32;
        if cif < t {
            Self::ONE // vIC Alg. 1 l.5-8
        } else if cif < t.saturating_mul(2) {
            Self { count_up: 4, skip_up: 5 } // vIC Alg. 1 l.9-12
        } else if cif < t.saturating_mul(3) {
            Self { count_up: 3, skip_up: 4 } // vIC Alg. 1 l.13-16
        } else if cif < t.saturating_mul(4) {
            Self { count_up: 2, skip_up: 3 } // vIC Alg. 1 l.17-20
        } else {
            // vIC Alg. 1 l.21-24. The first of the two divisions per epoch.
            let cycle = divide(cif as u64, (t as u64).saturating_mul(2));
            #[expect(clippy::cast_possible_truncation, reason = "below max_skip")]
            Self { count_up: 1, skip_up: if cycle < max_skip as u64 { cycle as u16 } else { max_skip } }
        }
    }
}

/// Scheduler awareness (Xen §4). An interrupt for a guest that is off its CPU waits until the guest runs again. So held
/// completions are delivered before the timeslice ends.
///
/// The window is the time between two interrupts under the delivery ratio, 1 / (R * IOPS). For R above 1/2 it is 2 / IOPS,
/// the worst case. It is stored in ticks plus 1; 0: unknown. It is the paper's nsecPerEvent (Xen §4, Alg. 1 l.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window(u32);

impl Window {
    pub(crate) const NONE: Self = Self(0);
    /// Longer than any timeslice.
    const UNBOUNDED: Self = Self(u32::MAX);

    /// The window after an epoch of `elapsed` ticks with `completions`, rounded up.
    pub(crate) const fn between_interrupts(ratio: Ratio, elapsed: u64, completions: u32) -> Self {
        if completions == 0 {
            return Self::NONE; // Xen Alg. 1 l.6
        }
        // Above R = 1/2 an interrupt covers one completion or two; two is the worst case.
        let double = (ratio.count_up as u16).wrapping_mul(2);
        let io_per_event = if ratio.skip_up < double { 2 } else { ratio.skip_up }; // Xen Alg. 1 l.8-11
        // The second of the two divisions per epoch: Xen Alg. 1 l.7 and l.12 in one.
        let ticks = divide_up(elapsed.saturating_mul(io_per_event as u64), completions as u64);
        #[expect(clippy::cast_possible_truncation, reason = "below 2^32")]
        if ticks < Self::UNBOUNDED.0 as u64 { Self((ticks as u32).wrapping_add(1)) } else { Self::UNBOUNDED }
    }

    /// Whether the timeslice ends within this window plus `margin` from now (Xen Alg. 1 l.13). False if the end or the
    /// window is unknown.
    pub(crate) fn reaches(self, remaining: Option<u64>, margin: u32) -> bool {
        match (self, remaining) {
            (_, None) | (Self::NONE, _) => false,
            (Self::UNBOUNDED, _) => true,
            (Self(ticks), Some(remaining)) => remaining < u64::from(ticks).wrapping_add(u64::from(margin)),
        }
    }

    /// The instant from which on the window plus `margin` [reaches](Self::reaches) the end of the timeslice. Requires
    /// that it does not reach it yet.
    pub(crate) fn deadline(self, now: u64, remaining: Option<u64>, margin: u32) -> Option<u64> {
        let (ticks, remaining) = (self.0.checked_sub(1)?, remaining?);
        Some(now.wrapping_add(remaining).wrapping_sub(u64::from(ticks)).wrapping_sub(u64::from(margin)))
    }
}
