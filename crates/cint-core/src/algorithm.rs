//! The slow path: Algorithm 2 of the cinterrupts paper, with deadlines and the storm guard. It can make every
//! decision; [`fast`](crate::fast) makes the usual one in fewer instructions.
//!
//! `cint Alg. 2 l.7` cites a line of the paper, `§3.5` a section. "Ours" marks what is in no paper. `docs/papers.md`
//! lists the deviations.
//!
//! One helper is elsewhere: `advance` in [`events`](crate::events) sets the time of a call and adds the time since the last
//! one to every age. Only the field `fast_for` and the two calls of `open_fast_path` serve the fast path. The calls are here
//! because six events may deliver, and a call in each of them would be more code.

use crate::config::Config;
use coalesce_decision::{Decision, Event, HoldReason, Reason, StormGuard};

/// A cinterrupts machine for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // bytes first, where small processors reach them with short instructions
pub struct Cint {
    pub(crate) deferred: bool,  // the held completions are due, and wait for the storm guard
    pub(crate) filler: [u8; 5], // no padding: a state may be written to a file, so every byte must be defined
    pub(crate) times_back: u16,
    pub(crate) last: u64, // the time of the last call; all other times are ages, so that the clock may go back
    // Ages in ticks; `advance` saturates them at AGE_MAX
    pub(crate) oldest: u32,    // of the oldest held completion
    pub(crate) quiet: u32,     // of the last completion or delivery; at delta, `timeout` of cint Alg. 2 expires
    pub(crate) fast_for: u32,  // the fast path may answer until this many ticks after `last`
    pub(crate) coalesced: u32, // held completions: `coalesced` of cint Alg. 2
    pub(crate) thr_left: u32,  // `thr` of cint Alg. 2, minus the Urgents that interrupted alone while others were held
    pub(crate) guard: StormGuard,
    pub(crate) config: Config,
}

const _: () = assert!(size_of::<Cint>() == 80, "88 bytes with the 8 that the C ABI adds");

/// The algorithm: cint Alg. 2, one completion at a time.
impl Cint {
    /// Decides about a completed command without the fast path. `cif` is the number of commands in flight, including this
    /// one, for the `in_flight` rule; 0: the rule is off for this completion.
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
            _ if coalesced >= self.thr_left => Decision::Deliver(Reason::Count), // cint Alg. 2 l.15, l.16; `>=` as in §3.2
            _ if cif > 0 && cif < self.cif_to_hold(held) => Decision::Deliver(Reason::InFlight), // ours: the device stays busy
            Event::Urgent => Decision::DeliverUrgent, // cint Alg. 2 l.8, l.9; §3.5 out-of-order Urgent
            Event::Plain => Decision::Hold(HoldReason::Burst), // §3.2: the burst continues
        };
        let reason = match decision {
            _ if self.is_paced() => self.defer(decision), // §4.3 storm guard
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
    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.reset_coalesced(); // cint Alg. 2 l.11, l.13, l.16, l.18
        self.interrupt();
        Decision::Deliver(reason)
    }

    /// Fires the urgent IRQ. Held completions stay held.
    fn deliver_urgent(&mut self) -> Decision {
        if self.coalesced > 0 {
            // §3.5: it counts towards thr, so that no held one starves; `thr_left` is above 2 here
            self.thr_left = self.thr_left.wrapping_sub(1);
        }
        self.quiet = 0; // cint Alg. 2 l.6: timeout = now + delta
        self.interrupt(); // cint Alg. 2 l.9
        Decision::DeliverUrgent
    }

    /// §4.3 storm guard: why this completion is held. `Storm` if an interrupt becomes due with it, or is first seen to be;
    /// else `Burst`, even while an earlier one is deferred. One later interrupt covers all.
    fn defer(&mut self, decision: Decision) -> HoldReason {
        let was_due = !self.deferred && self.coalesced > 0 && self.own_deadline().0 <= 0;
        let is_due = was_due || decision.is_deliver();
        self.deferred |= is_due;
        if is_due { HoldReason::Storm } else { HoldReason::Burst }
    }

    /// The reason to deliver, if a deadline has passed.
    #[inline(always)]
    pub(crate) const fn expired(&self) -> Option<Reason> {
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
    pub(crate) const fn next_deadline(&self) -> (i32, Reason) {
        let own = self.own_deadline();
        if self.guard.is_storming() {
            let pace = self.guard.left(self.config.storm_interval);
            if self.deferred || own.0 < pace {
                return (pace, Reason::Storm); // §4.3 storm guard
            }
        }
        own
    }

    /// [`next_deadline`](Self::next_deadline) without the storm guard.
    pub(crate) const fn own_deadline(&self) -> (i32, Reason) {
        let max_hold = left(self.config.max_hold, self.oldest); // ours
        let delta = left(self.config.delta, self.quiet); // cint Alg. 2 l.6: timeout - now
        if max_hold < delta { (max_hold, Reason::MaxHold) } else { (delta, Reason::Delta) }
    }

    /// §4.3 storm guard: whether there is a storm, and the last interrupt is too recent for another one.
    pub(crate) const fn is_paced(&self) -> bool {
        self.guard.is_pacing(self.config.storm_interval)
    }

    /// Ours, the `in_flight` rule: the fewest commands in flight with which `held` completions (1 to `thr` - 1) may be
    /// held. With fewer the device could run out of work.
    #[inline(always)]
    pub(crate) const fn cif_to_hold(&self, held: u32) -> u32 {
        let per_held = self.config.in_flight_per_held;
        if held == 1 { per_held >> 1 } else { per_held.wrapping_mul(held) }
    }

    pub(crate) const fn reset_coalesced(&mut self) {
        self.coalesced = 0;
        self.thr_left = self.config.thr as u32;
        self.quiet = 0; // cint Alg. 2 l.19: timeout = now + delta
        self.deferred = false;
    }

    #[inline(never)]
    fn interrupt(&mut self) {
        self.guard.interrupt(self.config.storm_interval, self.config.storm_shift);
        self.open_fast_path();
    }
}

/// Ticks until the end of a span that began `age` ticks ago; more than SPAN_MAX for a span of NEVER.
const fn left(span: u32, age: u32) -> i32 {
    span.wrapping_sub(age) as i32
}
