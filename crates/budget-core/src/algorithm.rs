//! The decision: hold a completion if others are expected to join it, and the account can pay for the wait or a licence
//! makes it free.
//!
//! [`Budget::decide`] is the whole of it. `account.rs` keeps the account, and `depth.rs` learns how many commands the
//! requesters submit before they wait. The storm guard may defer a delivery.

use crate::account::{Account, cost_of, counted, rate, times};
use crate::config::Config;
use crate::constants::{
    AGE_MAX, GAP_SHIFT, LICENSED_DEPTH, LICENSED_MAX, LICENSED_SHARE, RARE_SHIFT, SHIFT, SPAN_MAX, TOO_RARE,
};
use crate::depth::{DepthEstimator, State};
use coalesce_decision::{Decision, Event, HoldReason, Reason, StormGuard};

/// A latency budget for one interrupt vector: plain data of fixed size, no pointers.
///
/// See the [crate documentation](crate) for the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)] // small fields first, where small processors reach them with short instructions
pub struct Budget {
    pub(crate) level: Level,
    pub(crate) flags: Flags,
    pub(crate) epsilon: u16, // of the configuration, or the part of it that the regulator leaves
    pub(crate) oldest: u32,  // age of the oldest completion held; or of what the estimator waits for
    pub(crate) depth: DepthEstimator,
    pub(crate) quiet: u32, // age of the last completion, not counting Urgents that may interrupt alone
    pub(crate) gap8: u32,  // eight times the usual gap between completions, in ticks
    pub(crate) guard: StormGuard,
    pub(crate) config: Config,
    pub(crate) account: Account,
    pub(crate) last: u64, // when the account was settled; all other time is an age, so that a clock may go back
}

const _: () = assert!(size_of::<Budget>() == 112);

/// How much may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Level {
    /// Nothing.
    Nothing,
    /// What the account pays for.
    Strict,
    /// While the depth is proven, as much as keeps no requester waiting longer than the host needs for others.
    Licensed,
}

/// The algorithm.
impl Budget {
    /// Decides about a completed command. `cif`: commands in flight, including this one. `outstanding`: commands submitted and
    /// not reaped, including this one; 0: not known.
    #[inline]
    pub(crate) fn on_completion(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        match self.on_completion_fast(now, event, cif, outstanding) {
            Some(decision) => decision,
            None => self.on_event(now, event, cif, outstanding),
        }
    }

    /// The whole of [`on_completion`](Self::on_completion): what the fast path does not answer.
    #[inline(never)]
    pub(crate) fn on_event(&mut self, now: u64, event: Event, cif: u32, outstanding: u32) -> Decision {
        let cif = counted(cif).max(1);
        let known = counted(cif.wrapping_add(self.account.held.into()));
        let outstanding = counted(outstanding).max(known);
        self.advance(now, cif, outstanding.wrapping_sub(known));
        let expired = self.expired().map(|reason| self.end_hold(reason));
        let may_be_held = !(self.config.ooo && matches!(event, Event::Urgent)); // else it may interrupt alone
        let is_together = self.quiet == 0;
        if may_be_held {
            self.note_gap();
        }
        self.account.set_in_flight(cif.wrapping_sub(1));
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
            return self.stop(Reason::Count);
        }
        let with_it = u32::from(self.account.held).wrapping_add(may_be_held.into());
        let is_due = self.depth.note_completion(outstanding);
        if is_due && self.may_probe() {
            self.depth.begin_probe();
        }
        let state = self.depth.state;
        let decision = match state {
            State::Idle => {
                let verdict = match self.licence() {
                    Some(depth) => self.weigh_with_licence(depth, with_it),
                    None => self.weigh(outstanding, with_it, is_together),
                };
                match verdict {
                    Ok(reason) => Decision::Hold(reason),
                    Err(reason) => Decision::Deliver(reason),
                }
            }
            State::Probe if self.goes_on(with_it) => Decision::Hold(HoldReason::Probe),
            State::Probe => self.stop(Reason::Budget),
            State::Answer | State::Pace => Decision::Deliver(Reason::Control),
        };
        if decision.is_deliver() || may_be_held { decision } else { Decision::DeliverUrgent }
    }

    /// The decision with a licence: why to hold, or why to deliver. `with_it`: what would be held if this completion were.
    #[inline(always)]
    pub(crate) fn weigh_with_licence(&mut self, depth: u32, with_it: u32) -> Result<HoldReason, Reason> {
        if self.has_work(depth, self.account.in_flight.into(), with_it) {
            return Ok(HoldReason::Licensed);
        }
        self.flags.set(Flags::STARVED, false);
        Err(Reason::JustInTime)
    }

    /// The decision without a licence.
    #[inline(always)]
    pub(crate) fn weigh(&self, outstanding: u32, with_it: u32, is_together: bool) -> Result<HoldReason, Reason> {
        let Account { held, in_flight, credit, .. } = self.account;
        let (held, in_flight) = (u32::from(held), u32::from(in_flight));
        if self.level == Level::Nothing {
            return Err(Reason::Slowdown);
        }
        if with_it >= outstanding {
            return Err(Reason::LowCif); // no other completion would join
        }
        // Once 2 ε of the outstanding commands are held, no further completion is. One in the same tick as the last is
        // exempt: one poll found both.
        let share = rate(self.epsilon, in_flight.wrapping_add(with_it));
        if cost_of(held) >= share << 1 && !is_together {
            return Err(Reason::Budget);
        }
        // The next completion usually comes within one usual gap. The account must be able to pay for eight gaps. What is
        // in flight stays outstanding until the next decision, so at least this much is earned.
        let is_paid = self.price(with_it, in_flight, self.silence()) <= credit;
        if is_paid { Ok(HoldReason::Company) } else { Err(Reason::Budget) }
    }

    /// Whether one more completion fills `thr`. Urgents that interrupted alone count too: held completions must not block a
    /// queue.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        let Account { held, overtook, .. } = self.account;
        u32::from(held).wrapping_add(overtook.into()).wrapping_add(1) >= self.config.thr.into()
    }

    /// The net cost of holding `held` completions for `ticks`: what it takes from the credit, minus what `in_flight` commands
    /// earn meanwhile.
    pub(crate) const fn price(&self, held: u32, in_flight: u32, ticks: u32) -> i64 {
        times(cost_of(held).wrapping_sub(rate(self.epsilon, in_flight)), ticks)
    }

    /// The depth that a licence is for, if there is one.
    pub(crate) fn licence(&self) -> Option<u32> {
        if !matches!(self.level, Level::Licensed) {
            return None;
        }
        let depth = self.depth.depth();
        (depth >= LICENSED_DEPTH).then_some(depth.into())
    }

    /// Whether `held` completions keep nobody waiting who would not wait anyway: at least half of the depth is in the hands
    /// of the host, which works on that.
    pub(crate) fn has_work(&self, depth: u32, in_flight: u32, held: u32) -> bool {
        let share = depth.wrapping_mul(self.epsilon.into()).saturating_mul(LICENSED_SHARE) >> SHIFT;
        held <= share.min(LICENSED_MAX) && in_flight.wrapping_add(held) <= depth >> 1
    }

    /// Whether a probe may begin: none does while something is held; while a requester is alone, which must not wait; in a
    /// storm, when nothing can be learned; where completions are so rare that each would wait long; or with a credit below
    /// -C0 / 2.
    #[cold]
    #[inline(never)]
    pub(crate) fn may_probe(&mut self) -> bool {
        if self.depth.state != State::Idle {
            return false;
        }
        if self.is_too_rare() {
            self.depth.put_off(TOO_RARE);
            return false;
        }
        let is_wrong_time = self.account.held > 0 || self.flags.has(Flags::IN_TRIAL) || self.guard.is_storming();
        let is_paid = self.account.credit.saturating_mul(2) >= self.learning_now().wrapping_neg();
        !is_wrong_time && !self.depth.is_alone() && is_paid
    }

    /// Whether completions are so rare that one that is held for a probe would wait long.
    #[inline(always)]
    pub(crate) fn is_too_rare(&self) -> bool {
        self.silence() > self.config.max_hold >> RARE_SHIFT
    }

    /// Whether the probe continues with `held` completions held. A long probe that would cost too much continues as a short
    /// one.
    fn goes_on(&mut self, held: u32) -> bool {
        self.probe_is_paid(held) || (self.depth.cut_short() && self.probe_is_paid(held))
    }

    /// Whether the credit and C0 pay for holding `held` completions until the end of the probe.
    #[inline(never)]
    fn probe_is_paid(&self, held: u32) -> bool {
        let age = if self.account.held > 0 { self.oldest } else { 0 };
        let longest = self.silence_now().min(self.config.max_hold.saturating_sub(age));
        times(cost_of(held), longest) <= self.account.credit.saturating_add(self.learning_now())
    }

    /// What probes may take beyond what was earned, at present, in requests * ticks * 2^SHIFT.
    fn learning_now(&self) -> i64 {
        (self.config.learning_after(self.account.request_time, self.depth.evidence()) << SHIFT).cast_signed()
    }

    /// Delivers before a silence, because no more may be held. A probe found no end.
    fn stop(&mut self, reason: Reason) -> Decision {
        if self.depth.state == State::Probe {
            self.depth.miss(self.account.held, true);
        }
        Decision::Deliver(reason)
    }

    /// Delivers because a deadline has passed, and learns from it.
    pub(crate) fn end_hold(&mut self, reason: Reason) -> Decision {
        let Account { held, in_flight, .. } = self.account;
        let is_probe = self.depth.state == State::Probe && !matches!(reason, Reason::Storm);
        // A probe may reach `max_hold` in a silence that is long enough.
        let is_silence =
            matches!(reason, Reason::Silence) || (is_probe && DepthEstimator::is_pause(self.quiet, self.silence()));
        let all_wait = in_flight == 0 && is_silence;
        if is_probe {
            if all_wait { self.depth.find(held) } else { self.depth.miss(held, !is_silence) }
        }
        let is_hold = self.depth.state == State::Idle && !matches!(reason, Reason::Storm);
        let is_starved = is_hold && in_flight == 0 && self.licence().is_some();
        if is_starved {
            self.note_starved();
        }
        if all_wait || is_starved {
            self.flags.set(Flags::GAP_COUNTS, false);
        }
        self.deliver(reason)
    }

    /// A hold with a licence has ended because nobody came any more. Once is a pause. Twice in a row, the requesters have fewer
    /// commands than the proven depth.
    #[cold]
    fn note_starved(&mut self) {
        if self.flags.has(Flags::STARVED) {
            self.depth.doubt();
        }
        self.flags.set(Flags::STARVED, true);
    }

    /// Ticks until what is held is due, negative if that instant has passed, and the reason of the interrupt.
    #[inline(always)]
    pub(crate) fn next_deadline(&self) -> (i32, Reason) {
        let own = self.own_deadline();
        if self.guard.is_storming() {
            let pace = self.guard.left(self.config.storm_interval);
            if self.flags.has(Flags::DEFERRED) || own.0 < pace {
                return (pace, Reason::Storm);
            }
        }
        own
    }

    /// [`next_deadline`](Self::next_deadline) without the storm guard.
    pub(crate) fn own_deadline(&self) -> (i32, Reason) {
        let max_hold = self.config.max_hold.wrapping_sub(self.oldest).cast_signed();
        let silence = self.silence_now().wrapping_sub(self.quiet).cast_signed();
        if max_hold < silence { (max_hold, Reason::MaxHold) } else { (silence, Reason::Silence) }
    }

    /// Ticks without a completion after which a hold ends: eight usual gaps, but at least a tick.
    pub(crate) const fn silence(&self) -> u32 {
        if self.gap8 > 0 { self.gap8 } else { 1 }
    }

    /// The same for what is held now.
    fn silence_now(&self) -> u32 {
        let silence = self.silence();
        if self.depth.state == State::Probe { self.depth.silence(silence) } else { silence }
    }

    /// The reason to deliver, if a deadline has passed.
    #[inline(never)]
    pub(crate) fn expired(&self) -> Option<Reason> {
        if self.account.held == 0 {
            return None;
        }
        match self.next_deadline() {
            (..=0, reason) => Some(reason),
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn hold(&mut self, reason: HoldReason) -> Decision {
        if self.account.held == 0 {
            self.oldest = 0; // max_hold starts with the first completion held
        }
        self.account.held = self.account.held.saturating_add(1);
        Decision::Hold(reason)
    }

    /// Interrupts for everything that is held. A probe that this cuts short learned nothing.
    #[inline(never)]
    pub(crate) fn deliver(&mut self, reason: Reason) -> Decision {
        self.drop_held();
        self.guard.interrupt(self.config.storm_interval, self.config.storm_shift);
        Decision::Deliver(reason)
    }

    /// Interrupts for an Urgent alone: what is held stays held, and still costs.
    fn deliver_urgent(&mut self) -> Decision {
        self.account.overtook = self.account.overtook.saturating_add((self.account.held > 0).into());
        self.guard.interrupt(self.config.storm_interval, self.config.storm_shift);
        Decision::DeliverUrgent
    }

    pub(crate) fn drop_held(&mut self) {
        self.account.release();
        self.flags.set(Flags::DEFERRED, false);
        match self.depth.state {
            State::Idle | State::Pace => {}
            State::Probe => self.depth.put_off(0),
            State::Answer => self.oldest = 0, // its age counts from the interrupt
        }
    }

    /// Ticks until the storm guard allows an interrupt.
    pub(crate) const fn paced(&self) -> u32 {
        self.guard.paced(self.config.storm_interval)
    }

    /// Whether the storm guard allows no interrupt now.
    pub(crate) const fn is_pacing(&self) -> bool {
        self.guard.is_pacing(self.config.storm_interval)
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
        if self.depth.state != State::Idle {
            self.depth.put_off(0); // nothing can be learned
        }
        self.flags.set(Flags::DEFERRED, true);
    }

    /// Settles the account for the time since it was settled last. `in_flight`, `reaping`: at the end of that time.
    #[inline(never)]
    pub(crate) fn advance(&mut self, now: u64, in_flight: u32, reaping: u32) {
        let paced = self.paced();
        let elapsed = self.elapsed(now);
        // While the storm guard allows no interrupt, holding is not the machine's choice.
        let settled = self.account.settle(elapsed, in_flight, reaping);
        if self.licence().is_none() || self.depth.state != State::Idle {
            self.account.charge(&settled, self.epsilon, self.config.max_hold, paced.min(elapsed));
        }
    }

    /// Ticks since the account was settled; makes all ages that much older. If the clock went back, no time has passed.
    fn elapsed(&mut self, now: u64) -> u32 {
        let elapsed = match now.checked_sub(self.last) {
            _ if now == u64::MAX => SPAN_MAX, // at the end of the clock everything is due
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(elapsed) if elapsed < SPAN_MAX.into() => elapsed as u32,
            Some(_) => SPAN_MAX,
            None => 0,
        };
        let older = |age: u32| age.wrapping_add(elapsed).min(AGE_MAX);
        (self.oldest, self.quiet) = (older(self.oldest), older(self.quiet));
        self.guard.pass(elapsed, AGE_MAX);
        self.last = now;
        elapsed
    }

    /// A completion ends a gap, unless the last hold ended in silence with nothing in flight: then the requesters were
    /// waiting. A gap counts for at most an eighth of `max_hold`, because a hold waits for eight gaps and never longer than
    /// `max_hold`.
    #[inline(always)]
    pub(crate) fn note_gap(&mut self) {
        let gap = self.quiet.min(self.config.max_hold >> GAP_SHIFT);
        if self.flags.has(Flags::GAP_COUNTS) {
            self.gap8 = if self.gap8 == 0 {
                gap << GAP_SHIFT
            } else {
                self.gap8.wrapping_add(gap).wrapping_sub(self.gap8 >> GAP_SHIFT)
            };
        }
        self.flags.set(Flags::GAP_COUNTS, true);
        self.quiet = 0;
    }
}

/// Switches that share a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// `quiet` counts as a gap: there was a completion, and the last hold did not end in silence with nothing in flight.
    pub(crate) const GAP_COUNTS: u8 = 1;
    /// What is held is due, and waits for the storm guard.
    pub(crate) const DEFERRED: u8 = 2;
    /// The regulator compares: no probe begins.
    pub(crate) const IN_TRIAL: u8 = 4;
    /// The last hold with a licence ended because nobody came any more.
    pub(crate) const STARVED: u8 = 8;

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(crate) const fn set(&mut self, flag: u8, is_on: bool) {
        self.0 = if is_on { self.0 | flag } else { self.0 & !flag };
    }
}
