//! Time, gaps and deadlines. All time but one instant is an age, so that a clock may go back.

use crate::algorithm::{Budget, Flags};
use crate::constants::{AGE_MAX, GAP_SHIFT, SPAN_MAX};
use crate::level::Level;
use coalesce_decision::Reason;

/// From here on the slow path answers: a clock that starts anew looks like one that goes on, and at its end everything is due.
pub(crate) const LATE: u64 = 1 << 63;

impl Budget {
    /// Ticks since the account was settled; `None`: too many to count, the clock went back, or it is [`LATE`].
    #[inline(always)]
    pub(crate) fn short_while(&self, now: u64) -> Option<u32> {
        let elapsed = now.wrapping_sub(self.last);
        #[expect(clippy::cast_possible_truncation, reason = "compared before")]
        (elapsed < SPAN_MAX.into() && self.last < LATE).then_some(elapsed as u32)
    }

    /// Settles the account for the time since it was settled last. `in_flight`, `reaping`: at the end of that time.
    #[inline(never)]
    pub(crate) fn advance(&mut self, now: u64, in_flight: u32, reaping: u32) {
        let paced = self.paced();
        let elapsed = self.elapsed(now);
        // While the storm guard allows no interrupt, holding is not the machine's choice.
        let settled = self.account.settle(elapsed, in_flight, reaping);
        if self.level != Level::Licensed {
            self.account.charge(&settled, self.epsilon, self.config.max_hold, paced.min(elapsed));
            self.account.limit_debt();
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
    /// `max_hold`; with a licence, and in its trials, for [less](crate::constants::PATIENCE_SHIFT).
    #[inline(always)]
    pub(crate) fn note_gap(&mut self) {
        if self.flags.is_usual() {
            self.learn_gap();
        } else {
            self.note_unusual_gap();
        }
        self.quiet = 0;
    }

    /// The usual gap is an average of which this gap is an eighth.
    #[inline(always)]
    fn learn_gap(&mut self) {
        let gap = self.quiet.min(self.longest_gap);
        self.silence = self.silence.wrapping_add(gap).wrapping_sub(self.silence >> GAP_SHIFT);
    }

    /// A gap that may not count, or that is the first one. After a hold that starved no gap counts, until a completion comes while others
    /// are in flight, or within a silence.
    #[cold]
    #[inline(never)]
    fn note_unusual_gap(&mut self) {
        let counts = self.flags.has(Flags::GAP_COUNTS);
        self.flags.set(Flags::GAP_COUNTS, true);
        if self.flags.has(Flags::LONELY) {
            // The requester has waited for a silence if the last completion was held.
            let since_interrupt = self.quiet.saturating_sub(if counts { 0 } else { self.silence });
            if since_interrupt >= self.silence && self.account.in_flight == 0 {
                self.note_starved(); // as a hold would
            } else {
                self.flags.set(Flags::LONELY, false);
                self.starved = self.starved.saturating_sub(counts.into()); // a hold would have ended with this one
            }
        }
        if counts && !self.flags.has(Flags::LONELY) {
            if self.flags.has(Flags::GAPLESS) {
                self.set_silence(self.quiet.min(self.longest_gap) << GAP_SHIFT);
            } else {
                self.learn_gap();
            }
        }
    }

    /// Eight times the usual gap; 0: not known.
    pub(crate) const fn eight_gaps(&self) -> u32 {
        if self.flags.has(Flags::GAPLESS) { 0 } else { self.silence }
    }

    /// Sets the usual gap.
    pub(crate) fn set_silence(&mut self, eight_gaps: u32) {
        self.silence = eight_gaps.max(1);
        self.flags.set(Flags::GAPLESS, eight_gaps == 0);
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
        let max_hold = self.config.max_hold.wrapping_sub(self.oldest) as i32;
        let silence = self.silence.wrapping_sub(self.quiet) as i32;
        if max_hold < silence { (max_hold, Reason::MaxHold) } else { (silence, Reason::Silence) }
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

    /// Ticks until the storm guard allows an interrupt.
    pub(crate) const fn paced(&self) -> u32 {
        self.guard.paced(self.config.storm_interval)
    }

    /// Whether the storm guard allows no interrupt now.
    pub(crate) const fn is_pacing(&self) -> bool {
        self.guard.is_pacing(self.config.storm_interval)
    }
}
