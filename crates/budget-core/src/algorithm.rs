//! The decision: hold a completion if others are expected to join it, and the account can pay for the wait or a licence
//! makes it free.
//!
//! [`Budget::weigh`] does this, after hints and `thr`. The storm guard may defer a delivery.
//!
//! The methods of [`Budget`] are in files by what they are about. A field belongs to one of them; the others reset it, or count in it what
//! they see.
//!
//! | file | about | fields |
//! |---|---|---|
//! | `algorithm.rs` | a completion: hold or interrupt | `account.held`, `oldest` |
//! | `account.rs` | what is earned and paid; a type of its own | the rest of `account` |
//! | `time.rs` | ages, the usual gap, deadlines | `last`, `quiet`, `silence` |
//! | `licence.rs` | the rule in force, and its end | `level`, `limit`, `evidence`, `epsilon`, `starved`, `longest_gap` |
//! | `events.rs` | submissions, configurations | `config` |
//! | `policy.rs` | the verbs of [`Policy`](crate::Policy) that decide nothing new | |
//! | `fast.rs`, `together.rs` | the same decisions in fewer instructions | |
//!
//! `flags` are switches of all of them: [`Flags`] says whose. `guard` is the storm guard's.

use crate::account::{Account, cost_of, counted, rate, times};
use crate::config::Config;
use crate::constants::HELD_SHIFT;
use crate::level::Level;
#[cfg(doc)]
use coalesce_decision::Policy;
use coalesce_decision::{Completion, Decision, Event, HoldReason, Reason, StormGuard};

/// A latency budget for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // small fields first, where small processors reach them with short instructions
pub struct Budget {
    pub(crate) level: Level,
    pub(crate) flags: Flags,
    pub(crate) epsilon: u16, // of the configuration, or the part of it that the regulator leaves
    pub(crate) oldest: u32,  // age of the oldest completion held
    pub(crate) limit: u8,    // completions for each interrupt, of a licence
    pub(crate) evidence: u8, // C0 is multiplied by 1 more than it
    pub(crate) starved: u16, // holds with a licence that ended because nobody came any more, minus those that filled
    pub(crate) quiet: u32,   // age of the last completion, not counting Urgents that may interrupt alone
    pub(crate) silence: u32, // eight times the usual gap between completions, in ticks, but at least 1
    pub(crate) longest_gap: u32, // no gap counts for more
    pub(crate) guard: StormGuard,
    pub(crate) config: Config,
    pub(crate) account: Account,
    pub(crate) last: u64, // when the account was settled; all other time is an age, so that a clock may go back
}

const _: () = assert!(size_of::<Budget>() == 104);

/// The algorithm.
impl Budget {
    /// Decides about a completed command, as [`Policy::on_completion`], but without the [fast path](Self::on_completion_fast).
    #[inline(always)]
    pub fn on_completion_slow(&mut self, now: u64, completion: &Completion) -> Decision {
        self.on_event(now, completion.event(), completion.cif, completion.outstanding)
    }

    #[inline(never)]
    fn on_event(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        let cif = counted(cif).max(1);
        let known = counted(cif.wrapping_add(self.account.held.into()));
        let outstanding = counted(outstanding).max(known);
        self.advance(now, cif, outstanding.wrapping_sub(known));
        let expired = self.expired().map(|reason| self.end_hold(reason));
        let may_be_held = !(self.config.ooo && matches!(event, Event::Urgent)); // else it may interrupt alone
        let is_together = self.quiet == 0;
        self.account.set_in_flight(cif.wrapping_sub(1));
        if may_be_held {
            self.note_gap();
        }
        if let Some(decision) = expired {
            return decision; // this completion shares the interrupt
        }
        let decision = match event {
            Event::Error => return self.deliver(Reason::Error), // even in a storm
            _ if self.flags.has(Flags::DEFERRED) => Decision::Hold(HoldReason::Storm),
            Event::Barrier => Decision::Deliver(Reason::Barrier),
            Event::Urgent if may_be_held => Decision::Deliver(Reason::Urgent),
            Event::Urgent if self.account.held == 0 => Decision::DeliverUrgent,
            _ => self.decide(outstanding, may_be_held, is_together),
        };
        match decision {
            _ if self.is_pacing() => self.defer(decision),
            Decision::Hold(reason) => self.hold(reason),
            Decision::Deliver(reason) => self.deliver(reason),
            Decision::DeliverUrgent => self.deliver_urgent(),
        }
    }

    /// The decision without hints and without the storm guard. `may_be_held`: the completion is no Urgent that may interrupt
    /// alone. `is_together`: it came in the same tick as the last one.
    fn decide(&mut self, outstanding: u32, may_be_held: bool, is_together: bool) -> Decision {
        if self.is_full() {
            return Decision::Deliver(Reason::Count);
        }
        let with_it = u32::from(self.account.held).wrapping_add(may_be_held.into());
        match self.weigh(with_it, outstanding.saturating_sub(with_it), is_together) {
            Ok(reason) if may_be_held => Decision::Hold(reason),
            Ok(_) => Decision::DeliverUrgent,
            Err(reason) => Decision::Deliver(reason),
        }
    }

    /// Why to hold, or why to deliver. `with_it`: how many would be held with this completion. `others`: what is outstanding beside those.
    #[inline(always)]
    pub(crate) fn weigh(&mut self, with_it: u32, others: u32, is_together: bool) -> Result<HoldReason, Reason> {
        match self.level {
            Level::Nothing => Err(Reason::Slowdown),
            Level::Strict => self.weigh_strictly(with_it, others, is_together),
            Level::Licensed => self.weigh_with_licence(with_it, HoldReason::Licensed),
            Level::Trial
                if self.price_until_silence(with_it) > self.account.credit.wrapping_add(self.learning_now()) =>
            {
                self.end_licence(Flags::UNPAID);
                Err(Reason::Budget)
            }
            Level::Trial => self.weigh_with_licence(with_it, HoldReason::Probe),
        }
    }

    /// With a licence each interrupt covers as many as its limit says.
    #[inline(always)]
    fn weigh_with_licence(&mut self, with_it: u32, reason: HoldReason) -> Result<HoldReason, Reason> {
        if self.flags.has(Flags::LONELY) && self.account.in_flight == 0 {
            return Err(Reason::LowCif);
        }
        if with_it < self.limit.into() {
            return Ok(reason);
        }
        self.starved = self.starved.saturating_sub(1);
        Err(Reason::Count)
    }

    /// The decision without a licence.
    #[inline(always)]
    fn weigh_strictly(&self, with_it: u32, others: u32, is_together: bool) -> Result<HoldReason, Reason> {
        let (held, in_flight) = (u32::from(self.account.held), u32::from(self.account.in_flight));
        if others == 0 {
            return Err(Reason::LowCif); // no other completion would join
        }
        // Once 2 ε of the outstanding commands are held, no further completion is. One in the same tick as the last is
        // exempt: one poll found both.
        let share = rate(self.epsilon, in_flight.wrapping_add(with_it));
        if cost_of(held) >= share << HELD_SHIFT && !is_together {
            return Err(Reason::Budget);
        }
        let is_paid = self.price_until_silence(with_it) <= self.account.credit;
        if is_paid { Ok(HoldReason::Company) } else { Err(Reason::Budget) }
    }

    /// What the account must be able to pay: the next completion usually comes within one usual gap, and the hold ends after eight. What
    /// is in flight stays outstanding until the next decision, so at least this much is earned.
    #[inline(always)]
    fn price_until_silence(&self, with_it: u32) -> i64 {
        self.price(with_it, self.account.in_flight.into(), self.silence)
    }

    /// Whether one more completion fills `thr`. Urgents that interrupted alone count too: held completions must not block a
    /// queue.
    #[inline(always)]
    pub(crate) const fn is_full(&self) -> bool {
        self.account.held >= self.account.room
    }

    /// The net cost of holding `held` completions for `ticks`: what it takes from the credit, minus what `in_flight` commands
    /// earn meanwhile.
    pub(crate) const fn price(&self, held: u32, in_flight: u32, ticks: u32) -> i64 {
        times(cost_of(held).wrapping_sub(rate(self.epsilon, in_flight)) as i32, ticks)
    }

    /// Delivers because a deadline has passed, and learns from it.
    pub(crate) fn end_hold(&mut self, reason: Reason) -> Decision {
        if self.account.in_flight == 0 {
            let is_starved = self.is_licensed() && !matches!(reason, Reason::Storm);
            if is_starved {
                self.note_starved();
            }
            if is_starved || matches!(reason, Reason::Silence) {
                self.flags.set(Flags::GAP_COUNTS, false); // they were waiting
            }
        }
        self.deliver(reason)
    }

    #[inline(always)]
    pub(crate) fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.account.held == 0 {
            self.oldest = 0; // max_hold starts with the first completion held
        }
        self.account.held = self.account.held.saturating_add(1);
        Decision::Hold(reason)
    }

    /// Interrupts for everything that is held.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.drop_held();
        self.guard.interrupt(self.config.storm_interval, self.config.storm_shift);
        Decision::Deliver(reason)
    }

    /// Interrupts for an Urgent alone: what is held stays held, and still costs.
    fn deliver_urgent(&mut self) -> Decision {
        self.account.room = self.account.room.saturating_sub((self.account.held > 0).into());
        self.guard.interrupt(self.config.storm_interval, self.config.storm_shift);
        Decision::DeliverUrgent
    }

    pub(crate) fn drop_held(&mut self) {
        self.account.release(self.config.room);
        self.flags.set(Flags::DEFERRED, false);
    }

    /// Holds a completion, whatever was decided: an interrupt would come too soon.
    fn defer(&mut self, decision: Decision) -> Decision {
        match decision {
            Decision::Hold(reason) => self.hold(reason),
            Decision::Deliver(_) | Decision::DeliverUrgent => {
                self.wait_for_guard();
                self.hold(HoldReason::Storm)
            }
        }
    }

    /// What is held is due, and waits only for the storm guard.
    pub(crate) fn wait_for_guard(&mut self) {
        self.flags.set(Flags::DEFERRED, true);
    }
}

/// Switches that share a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// `quiet` counts as a gap: there was a completion, and the last hold did not end in silence with nothing in flight.
    pub(crate) const GAP_COUNTS: u8 = 1;
    /// What is held is due, and waits for the storm guard.
    pub(crate) const DEFERRED: u8 = 2;
    /// Too many holds starved: the licence has ended, or its trial, before the regulator said so.
    pub(crate) const FAILED: u8 = 4;
    /// A trial of a licence has ended because it would cost too much.
    pub(crate) const UNPAID: u8 = 8;
    /// With a licence, or in its trial: nobody came while the last completion was held, and nobody has since.
    pub(crate) const LONELY: u8 = 16;
    /// The usual gap is not known yet, or 0.
    pub(crate) const GAPLESS: u8 = 32;
    /// There is a storm guard.
    pub(crate) const GUARDED: u8 = 64;

    /// Those of a machine that has seen nothing.
    pub(crate) const fn new(is_guarded: bool) -> Self {
        Self(Self::GAPLESS | if is_guarded { Self::GUARDED } else { 0 })
    }

    /// No storm guard, nothing is due, nothing has ended, and the gap counts as one more.
    pub(crate) const fn is_usual(self) -> bool {
        self.0 == Self::GAP_COUNTS
    }

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u8, is_on: bool) {
        self.0 = if is_on { self.0 | flag } else { self.0 & !flag };
    }
}
