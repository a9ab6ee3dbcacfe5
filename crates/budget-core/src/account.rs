//! The account: the cost of held completions, and the credit that pays for it.
//!
//! By Little's law the time that all requests spend is the integral of *outstanding*, and the part of it that holding adds
//! is the integral of *held*. The credit is ε times the first minus the second, with an upper limit.

use crate::algorithm::{Budget, Flags};
use crate::config::{AGE_MAX, SPAN_MAX};
use crate::credit::{cost_of, times};

impl Budget {
    /// Settles the account for the time since the last call. `outstanding`: at the end of that time.
    pub(crate) fn advance(&mut self, now: u64, outstanding: u16) {
        // Until sixteen usual gaps after a completion the depth counts as outstanding, even if the device sees fewer.
        let depth_ticks = self.gap8.wrapping_mul(2).saturating_sub(self.quiet);
        let paced = self.paced();
        let elapsed = self.elapsed(now);
        let (depth_ticks, paced) = (depth_ticks.min(elapsed), paced.min(elapsed));
        // It is not known when commands came or went. The smaller number earns less, so it is safe.
        let seen = outstanding.min(self.outstanding);
        let unseen = self.depth.saturating_sub(seen);
        let earned_by = |commands, ticks| times(self.config.earned_by(commands), ticks);
        let earned = earned_by(seen, elapsed).wrapping_add(earned_by(unseen, depth_ticks));
        // While the storm guard allows no interrupt, holding is not the machine's choice.
        let net = earned.wrapping_sub(times(cost_of(self.held), elapsed.wrapping_sub(paced)));
        // The credit is limited, or a burst could spend all that an hour of light load has earned.
        let rate = if depth_ticks > 0 { seen.max(self.depth) } else { seen };
        let most = self.credit.max(earned_by(rate, self.config.max_hold).wrapping_mul(4));
        let credit = self.credit.saturating_add(net);
        self.credit = if net > 0 { credit.min(most) } else { credit };
        let spent = |commands: u16, ticks: u32| u64::from(commands).wrapping_mul(ticks.into());
        self.held_time = self.held_time.saturating_add(spent(self.held, elapsed));
        let outstanding_time = self.outstanding_time.saturating_add(spent(seen, elapsed));
        self.outstanding_time = outstanding_time.saturating_add(spent(unseen, depth_ticks));
        self.set_outstanding(outstanding);
    }

    /// Ticks since the last call; makes all ages that much older. If the clock went back, no time has passed.
    fn elapsed(&mut self, now: u64) -> u32 {
        let elapsed = match now.checked_sub(self.last) {
            _ if now == u64::MAX => SPAN_MAX, // at the end of the clock everything is due
            #[expect(clippy::cast_possible_truncation, reason = "compared before")]
            Some(elapsed) if elapsed < SPAN_MAX.into() => elapsed as u32,
            Some(_) => SPAN_MAX,
            None => 0,
        };
        let older = |age: u32| age.wrapping_add(elapsed).min(AGE_MAX);
        (self.oldest, self.quiet, self.gap) = (older(self.oldest), older(self.quiet), older(self.gap));
        self.last = now;
        elapsed
    }

    /// Commands that count as outstanding, as far as the machine knows: in flight or held.
    pub(crate) const fn known_outstanding(&self) -> u16 {
        self.in_flight.saturating_add(self.held)
    }

    pub(crate) const fn set_outstanding(&mut self, outstanding: u16) {
        self.outstanding = outstanding;
        if outstanding > 1 {
            self.flags.set(Flags::SEVERAL, true);
        }
    }

    /// A completion ends a gap, unless the last hold ended in silence with nothing in flight: then the requesters were
    /// waiting. A gap counts for at most an eighth of `max_hold`, because a hold waits for eight gaps and never longer than
    /// `max_hold`.
    pub(crate) fn note_gap(&mut self) {
        let gap = self.quiet.min(self.config.max_hold >> 3);
        if self.flags.has(Flags::GAP_COUNTS) {
            self.gap8 =
                if self.gap8 == 0 { gap << 3 } else { self.gap8.wrapping_add(gap).wrapping_sub(self.gap8 >> 3) };
        }
        self.flags.set(Flags::GAP_COUNTS, true);
        self.quiet = 0;
    }
}
