//! The account: the cost of held completions, and the credit that pays for it.
//!
//! By Little's law the time that all requests spend is the integral of *outstanding*, and the part of it that holding adds
//! is the integral of *held*. The credit is ε times the rest of the first minus the second, with an upper limit.

#[cfg(doc)]
use crate::config::Config;
use crate::constants::{DEEPEST_DEBT, MOST, SAVED_SHIFT, SHIFT};

/// The commands of one interrupt vector, and what their time has earned and holding has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Account {
    /// What may still be spent, in requests * ticks * 2^SHIFT.
    pub(crate) credit: i64,
    /// The integral of outstanding, as far as the device sees it, in requests * ticks. It saturates.
    pub(crate) request_time: u64,
    /// The integral of held, in requests * ticks. It saturates.
    pub(crate) held_time: u64,
    /// The ticks from the last settlement to each submission since, summed: time in which its command was not outstanding yet.
    not_yet: u64,
    /// Commands that were submitted and have not completed.
    pub(crate) in_flight: u16,
    /// Posted and covered by an interrupt, but not reaped, at the last settlement.
    reaping: u16,
    /// Posted, and covered by no interrupt.
    pub(crate) held: u16,
    /// The most that are held, if there is no storm: [`Config::room`], less by 1 for each Urgent that interrupts alone meanwhile.
    pub(crate) room: u16,
}

/// The time that was settled.
pub(crate) struct Settled {
    /// Commands outstanding throughout it, as far as is known.
    waiting: u32,
    /// What they waited, in requests * ticks.
    waited: u64,
    /// What held completions waited, in requests * ticks.
    held: u64,
}

impl Account {
    pub(crate) const fn new(room: u16) -> Self {
        Self { credit: 0, request_time: 0, held_time: 0, not_yet: 0, in_flight: 0, reaping: 0, held: 0, room }
    }

    /// `count` commands are submitted, `since` ticks after the last settlement.
    #[inline(always)]
    pub(crate) fn submit(&mut self, since: u32, count: u32) {
        let count = count.min(MOST.wrapping_sub(self.in_flight.into()));
        self.not_yet = self.not_yet.wrapping_add(u64::from(count).wrapping_mul(since.into()));
        self.set_in_flight(count.wrapping_add(self.in_flight.into()));
    }

    /// Sets the number of commands in flight, at most [`MOST`].
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 65 535")]
    pub(crate) const fn set_in_flight(&mut self, in_flight: u32) {
        self.in_flight = in_flight as u16;
    }

    /// Nothing is held any more.
    #[inline(always)]
    pub(crate) const fn release(&mut self, room: u16) {
        (self.held, self.room) = (0, room);
    }

    /// Settles for `elapsed` ticks since the last settlement. `in_flight` and `reaping`: at the end of that time, at most
    /// [`MOST`] each. What the time earns and costs is for [`charge`](Self::charge).
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 65 535")]
    pub(crate) fn settle(&mut self, elapsed: u32, in_flight: u32, reaping: u32) -> Settled {
        // It is not known when commands went. The smaller number earns less, so it is safe.
        let flying = in_flight.min(self.in_flight.into());
        let waiting = flying.wrapping_add(reaping.min(self.reaping.into()));
        let waited = u64::from(waiting).wrapping_mul(elapsed.into()).saturating_sub(self.not_yet);
        self.set_in_flight(in_flight);
        (self.reaping, self.not_yet) = (reaping as u16, 0);
        let held = product(self.held.into(), elapsed);
        self.held_time = self.held_time.saturating_add(held);
        self.request_time = self.request_time.saturating_add(waited.wrapping_add(held)); // each is below 2^47
        Settled { waiting, waited, held }
    }

    /// Earns and pays for what was settled, less than 2^60 at a time. `paced`: the ticks of it in which holding was not the machine's
    /// choice; they cost nothing.
    #[inline(always)]
    pub(crate) fn charge(&mut self, settled: &Settled, epsilon: u16, max_hold: u32, paced: u32) {
        let earned = settled.waited.wrapping_mul(epsilon.into()) as i64;
        let paid = (settled.held.wrapping_sub(product(self.held.into(), paced)) << SHIFT) as i64;
        let credit = self.credit.wrapping_add(earned).wrapping_sub(paid);
        let most = times(rate(epsilon, settled.waiting) as i32, max_hold) << SAVED_SHIFT;
        self.credit = credit.min(most.max(self.credit));
    }

    /// Keeps the credit from wrapping where nobody calls at a deadline. Elsewhere a hold ends long before that.
    pub(crate) fn limit_debt(&mut self) {
        self.credit = self.credit.max(DEEPEST_DEBT);
    }
}

/// Limits a number of commands or completions to [`MOST`].
pub(crate) fn counted(number: u32) -> u32 {
    number.min(MOST)
}

pub(crate) fn product(commands: u32, ticks: u32) -> u64 {
    u64::from(commands).wrapping_mul(ticks.into())
}

/// What `commands` earn in each tick: at most 2^30, as ε is at most 2^13 and commands are 2 * [`MOST`].
pub(crate) const fn rate(epsilon: u16, commands: u32) -> u32 {
    (epsilon as u32).wrapping_mul(commands)
}

/// The credit that `held` completions take in each tick: at most 2^30.
pub(crate) const fn cost_of(held: u32) -> u32 {
    held << SHIFT
}

/// The credit of a time, below 2^31 ticks.
pub(crate) const fn times(rate: i32, ticks: u32) -> i64 {
    (rate as i64).wrapping_mul(ticks as i32 as i64)
}
