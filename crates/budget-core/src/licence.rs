//! What is held for its number: the rule in force, and the end of a licence that starves.

use crate::algorithm::{Budget, Flags};
use crate::constants::{EVIDENCE_MAX, GAP_SHIFT, PATIENCE_SHIFT, SHIFT, STARVED_MAX};
use crate::level::{Allowance, Level};

impl Budget {
    /// What may be held from now on; what is held now stays held until its deadline, which may be earlier then. Without a call it is
    /// [`Allowance::STRICT`].
    pub fn allow(&mut self, now: u64, allowance: Allowance) {
        self.settle_known(now);
        let Allowance { level, shift, limit, evidence } = allowance;
        self.epsilon = if shift < 16 { self.config.epsilon >> shift } else { 0 };
        (self.level, self.limit, self.evidence) = (level, limit, evidence.min(EVIDENCE_MAX));
        self.limit_gap();
        self.flags.set(Flags::FAILED | Flags::UNPAID, false);
    }

    /// The rule in force: that of the allowance, or [`Level::Strict`] if a licence or its trial has failed.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Completions for each interrupt, of a licence or its trial.
    #[must_use]
    pub const fn limit(&self) -> u8 {
        self.limit
    }

    /// Sets what a gap counts for at most, and with it the silence, under the level and the configuration in force. Without a licence it does
    /// not matter who is alone.
    pub(crate) fn limit_gap(&mut self) {
        let mut longest = self.config.max_hold;
        if self.is_licensed() {
            longest >>= PATIENCE_SHIFT;
            self.set_silence(self.eight_gaps().min(longest));
        } else {
            self.flags.set(Flags::LONELY, false);
        }
        self.longest_gap = longest >> GAP_SHIFT;
    }

    /// Whether completions are held up to a number, `limit`: with a licence, or in a trial of one.
    pub(crate) const fn is_licensed(&self) -> bool {
        matches!(self.level, Level::Trial | Level::Licensed)
    }

    /// What trials may take beyond what was earned, at present, in requests * ticks * 2^SHIFT.
    pub(crate) fn learning_now(&self) -> i64 {
        (self.config.learning_after(self.account.request_time, self.evidence) << SHIFT) as i64
    }

    /// The licence, or its trial, ends before the regulator says so. `why`: [`Flags::FAILED`] or [`Flags::UNPAID`].
    #[cold]
    #[inline(never)]
    pub(crate) fn end_licence(&mut self, why: u8) {
        (self.level, self.starved) = (Level::Strict, 0);
        self.limit_gap();
        self.flags.set(why, true);
    }

    /// Nobody came any more while completions were held for their number: a pause, or the requesters have fewer commands.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_starved(&mut self) {
        self.starved = self.starved.wrapping_add(1);
        self.flags.set(Flags::LONELY, true);
        if self.starved >= STARVED_MAX {
            self.end_licence(Flags::FAILED);
        }
    }
}
