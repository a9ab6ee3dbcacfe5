//! The decision: hold a completion if others are expected to join it and the account can pay for the wait.
//!
//! [`Budget::decide`] is the whole of it. `account.rs` keeps the account, `depth.rs` learns whether more completions can be
//! expected, and `storm.rs` may defer a delivery.

use crate::config::Config;
use crate::credit::{cost_of, times};
use coalesce_decision::{Average, Decision, Event, HoldReason, Reason};

/// A latency budget for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // small fields first, where small processors reach them with short instructions
pub struct Budget {
    pub(crate) flags: Flags,
    pub(crate) observed: u8,     // submissions observed since a find; or OBSERVED_MAX, MISLED
    pub(crate) vain_probes: u8,  // probes in vain since a confirmed one, at most VAIN_MAX; each doubles the pause
    pub(crate) no_hold_bits: u8, // a hold that ends in silence with nothing in flight sets `no_hold` to 2^this - 1
    pub(crate) no_hold: u16,     // completions to deliver at once while nothing else is in flight
    pub(crate) until_probe: u16, // completions; 0: a probe is due
    // Commands
    pub(crate) outstanding: u16, // submitted and not reaped; after a call without the number: in flight or held
    pub(crate) in_flight: u16,   // of them, those that have not completed
    pub(crate) held: u16,
    pub(crate) overtook: u16, // Urgents that interrupted alone while others were held
    pub(crate) depth: u16,    // what the requesters submit before they wait for a completion; 0: not known
    pub(crate) found: u16,    // what the last probe found
    // Ages in ticks; they saturate at AGE_MAX
    pub(crate) oldest: u32, // of the oldest completion held, or of the first submission that is observed
    pub(crate) quiet: u32,  // of the last completion, not counting Urgents that may interrupt alone
    pub(crate) gap: u32,    // of the last interrupt
    pub(crate) gap8: u32,   // eight times the usual gap between completions, in ticks
    pub(crate) average: Average,
    pub(crate) config: Config,
    pub(crate) last: u64, // the time of the last call; all other time is an age, so that a clock may go back
    pub(crate) credit: i64, // what may still be spent, in requests * ticks * 2^SHIFT
    pub(crate) held_time: u64, // the integral of `held`, in requests * ticks
    pub(crate) outstanding_time: u64, // the integral of `outstanding`, or of the depth, in requests * ticks
}

const _: () = assert!(size_of::<Budget>() == 96);

/// The algorithm.
impl Budget {
    /// Decides about a completed command. `cif`: commands in flight, including this one. `outstanding`: commands submitted and
    /// not reaped, including this one; 0: not known.
    pub fn on_completion(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        let (cif, outstanding) = (saturated(cif), saturated(outstanding));
        self.advance(now, outstanding.max(cif.saturating_add(self.held)));
        let expired = self.expired().map(|reason| self.end_hold(reason));
        let may_be_held = !(self.config.ooo && matches!(event, Event::Urgent)); // else it may interrupt alone
        self.flags.set(Flags::TOGETHER, self.quiet == 0);
        if may_be_held {
            self.note_gap();
        }
        self.in_flight = cif.saturating_sub(1);
        if let Some(decision) = expired {
            return decision; // this completion shares the interrupt
        }
        let decision = match event {
            Event::Error => return self.deliver(Reason::Error), // even in a storm
            _ if self.flags.has(Flags::DEFERRED) => Decision::Hold(HoldReason::Storm),
            _ => self.decide(event, cif, may_be_held),
        };
        match decision {
            _ if self.paced() > 0 => self.defer(decision),
            Decision::Hold(reason) => self.hold(reason),
            Decision::Deliver(reason) => self.deliver(reason),
            Decision::DeliverUrgent => self.deliver_urgent(),
        }
    }

    /// The decision without the storm guard. `may_be_held`: the completion is no Urgent that may interrupt alone.
    fn decide(&mut self, event: Event, cif: u16, may_be_held: bool) -> Decision {
        match event {
            Event::Barrier => return Decision::Deliver(Reason::Barrier),
            Event::Urgent if may_be_held => return Decision::Deliver(Reason::Urgent),
            Event::Urgent if self.held == 0 => return Decision::DeliverUrgent,
            _ => {}
        }
        if self.held.saturating_add(self.overtook).saturating_add(1) >= self.config.thr {
            return Decision::Deliver(Reason::Count); // Urgents that interrupted alone count too: held completions must not block a queue
        }
        let allowed = if may_be_held { Decision::Hold(HoldReason::Company) } else { Decision::DeliverUrgent };
        let held = self.held.saturating_add(may_be_held.into());
        // The next completion usually comes within one usual gap. The account must be able to pay for eight gaps.
        let silence = self.silence();
        let cost = times(cost_of(held), silence);
        if self.probe_step() {
            let is_affordable = cost <= self.credit.saturating_add(self.config.probe_credit());
            return if is_affordable { allowed } else { self.end_probe() };
        }
        // A probe's result is being checked; no other completion would join; or nothing else is in flight, and none joined
        // an earlier such hold.
        if self.observes_submits() || held >= self.outstanding.max(self.depth) || self.take_exemption(cif) {
            return Decision::Deliver(Reason::LowCif);
        }
        // What is in flight or held stays outstanding until the next interrupt, so at least this much is earned.
        let earned = self.config.earned_by(self.in_flight.saturating_add(held).max(self.depth));
        // Once 2 ε of the outstanding commands are held, no further completion is. One in the same tick as the last is
        // exempt: one poll found both.
        let is_below_share = self.flags.has(Flags::TOGETHER) || cost_of(self.held) < earned.wrapping_mul(2);
        let is_affordable = cost.saturating_sub(times(earned, silence)) <= self.credit;
        if is_below_share && is_affordable { allowed } else { Decision::Deliver(Reason::Budget) }
    }

    /// Ticks until what is held is due, negative if that instant has passed, and the reason of the interrupt.
    pub(crate) const fn next_deadline(&self) -> (i32, Reason) {
        let own = self.own_deadline();
        if self.is_storming() {
            let pace = self.config.storm_interval.wrapping_sub(self.gap).cast_signed();
            if self.flags.has(Flags::DEFERRED) || own.0 < pace {
                return (pace, Reason::Storm);
            }
        }
        own
    }

    /// [`next_deadline`](Self::next_deadline) without the storm guard.
    pub(crate) const fn own_deadline(&self) -> (i32, Reason) {
        let max_hold = self.config.max_hold.wrapping_sub(self.oldest).cast_signed();
        let silence = self.silence().wrapping_sub(self.quiet).cast_signed();
        if max_hold < silence { (max_hold, Reason::MaxHold) } else { (silence, Reason::Silence) }
    }

    /// Ticks without a completion after which a hold ends: eight usual gaps, but at least a tick.
    const fn silence(&self) -> u32 {
        if self.gap8 > 0 { self.gap8 } else { 1 }
    }

    /// The reason to deliver, if a deadline has passed.
    pub(crate) const fn expired(&self) -> Option<Reason> {
        match self.next_deadline() {
            (..=0, reason) if self.held > 0 => Some(reason),
            _ => None,
        }
    }

    pub(crate) fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.held == 0 {
            self.oldest = 0; // max_hold starts with the first completion held
        }
        self.held = self.held.saturating_add(1);
        Decision::Hold(reason)
    }

    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.drop_held();
        self.interrupt();
        Decision::Deliver(reason)
    }

    /// Interrupts for an Urgent alone: what is held stays held, and still costs.
    fn deliver_urgent(&mut self) -> Decision {
        self.overtook = self.overtook.saturating_add((self.held > 0).into());
        self.interrupt();
        Decision::DeliverUrgent
    }

    pub(crate) const fn drop_held(&mut self) {
        (self.held, self.overtook) = (0, 0);
        self.flags.set(Flags::PROBE | Flags::DEFERRED, false);
    }
}

/// Limits a number of commands or completions to 65 535.
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
pub(crate) fn saturated(number: u32) -> u16 {
    number.min(u16::MAX.into()) as u16
}

/// Switches that share a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// More than one command was outstanding since the last probe.
    pub(crate) const SEVERAL: u8 = 1;
    /// `quiet` counts as a gap: there was a completion, and the last hold did not end in silence with nothing in flight.
    pub(crate) const GAP_COUNTS: u8 = 2;
    /// There is a storm.
    pub(crate) const STORM: u8 = 4;
    /// The completion came in the same tick as the one before.
    pub(crate) const TOGETHER: u8 = 8;
    /// What is held waits until the requesters fall silent, to learn the depth.
    pub(crate) const PROBE: u8 = 16;
    /// What is held is due, and waits for the storm guard.
    pub(crate) const DEFERRED: u8 = 32;

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u8, is_on: bool) {
        self.0 = if is_on { self.0 | flag } else { self.0 & !flag };
    }
}
