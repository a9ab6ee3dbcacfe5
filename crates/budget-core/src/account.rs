//! The account: the cost of held completions, and the credit that pays for it.
//!
//! By Little's law the time that all requests spend is the integral of *outstanding*, and the part of it that holding adds
//! is the integral of *held*. The credit is ε times the rest of the first minus the second, with an upper limit.

use crate::constants::{SAVED_SHIFT, SHIFT};

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
    /// The ticks from the last settlement to each submission since, summed over them.
    not_yet: u64,
    /// Commands that were submitted and have not completed.
    pub(crate) in_flight: u16,
    /// Posted and covered by an interrupt, but not reaped, at the last settlement.
    reaping: u16,
    /// Posted, and covered by no interrupt.
    pub(crate) held: u16,
    /// Urgents that interrupted alone while others were held.
    pub(crate) overtook: u16,
}

/// What a settlement needs to know beside the account.
pub(crate) struct Terms {
    /// ε * 2^SHIFT.
    pub(crate) epsilon: u16,
    /// In ticks.
    pub(crate) max_hold: u32,
    /// Ticks of the time that is settled in which holding was not the machine's choice: they cost nothing.
    pub(crate) paced: u32,
    /// Holding earns and costs nothing: it is licensed.
    pub(crate) is_licensed: bool,
}

impl Account {
    pub(crate) const NEW: Self =
        Self { credit: 0, request_time: 0, held_time: 0, not_yet: 0, in_flight: 0, reaping: 0, held: 0, overtook: 0 };

    /// `count` commands are submitted, `since` ticks after the last settlement.
    #[inline(always)]
    pub(crate) fn submit(&mut self, since: u32, count: u16) {
        let in_flight = self.in_flight.saturating_add(count);
        self.not_yet = self.not_yet.wrapping_add(product(in_flight.wrapping_sub(self.in_flight), since));
        self.in_flight = in_flight;
    }

    /// Settles for `elapsed` ticks since the last settlement. `in_flight` and `reaping`: at the end of that time.
    #[inline(always)]
    pub(crate) fn settle(&mut self, elapsed: u32, in_flight: u16, reaping: u16, terms: &Terms) {
        // It is not known when commands went. The smaller number earns less, so it is safe.
        let flying = self.in_flight.min(in_flight);
        let waiting = u32::from(flying).wrapping_add(self.reaping.min(reaping).into());
        let waited = u64::from(waiting).wrapping_mul(elapsed.into()).saturating_sub(self.not_yet);
        let held = product(self.held, elapsed);
        self.request_time = self.request_time.saturating_add(waited.wrapping_add(held));
        self.held_time = self.held_time.saturating_add(held);
        (self.in_flight, self.reaping, self.not_yet) = (in_flight, reaping, 0);
        if terms.is_licensed {
            return;
        }
        let paid = product(self.held, elapsed.wrapping_sub(terms.paced));
        let net = (waited.wrapping_mul(terms.epsilon.into()).cast_signed()).wrapping_sub((paid << SHIFT).cast_signed());
        let most = times(rate(terms.epsilon, waiting), terms.max_hold) << SAVED_SHIFT;
        let credit = self.credit.saturating_add(net);
        self.credit = if net > 0 { credit.min(most.max(self.credit)) } else { credit };
    }
}

/// Limits a number of commands or completions to 65 535.
#[expect(clippy::cast_possible_truncation, reason = "compared before")]
pub(crate) fn saturated(number: u32) -> u16 {
    number.min(u16::MAX.into()) as u16
}

const fn product(commands: u16, ticks: u32) -> u64 {
    (commands as u64).wrapping_mul(ticks as u64)
}

/// What `commands` earn in each tick.
pub(crate) const fn rate(epsilon: u16, commands: u32) -> i64 {
    (epsilon as i64).wrapping_mul(commands as i64)
}

/// The credit that `held` completions take in each tick.
pub(crate) const fn cost_of(held: u16) -> i64 {
    (held as i64) << SHIFT
}

/// The credit of a time. Rates are at most 2^30, times below 2^31.
pub(crate) const fn times(rate: i64, ticks: u32) -> i64 {
    rate.wrapping_mul(ticks as i64)
}
