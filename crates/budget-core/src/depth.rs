//! The depth: the commands that the requesters submit before they wait for a completion. Only a long hold can show it.

use crate::algorithm::{Budget, Flags, saturated};
use crate::credit::cost_of;
use coalesce_decision::{Decision, Reason};

/// The first probe begins with this completion, or later.
pub(crate) const FIRST_PROBE: u16 = 16;
/// The most times that the interval between probes doubles.
const VAIN_MAX: u8 = 6;
/// A hold in vain exempts at most 2^10 - 1 completions (see `no_hold`).
const NO_HOLD_BITS_MAX: u8 = 10;
/// The most submissions after a probe that are observed, to see how fast the requesters submit again. As the value of
/// `observed`: none is observed any more.
pub(crate) const OBSERVED_MAX: u8 = 6;
/// The value of `observed` when all submissions have been observed, and showed that the probe misled.
const MISLED: u8 = OBSERVED_MAX + 1;

impl Budget {
    /// Counts down to the next probe, begins it when it is due, and returns whether one runs: completions are held to learn
    /// the depth, until all requesters wait for a completion and none submits. None begins while something is held; while
    /// a requester is alone, which must not wait; while posted completions are unreaped, because their requester is busy;
    /// in a storm, when nothing can be learned; or with a credit below -C0 / 2.
    pub(crate) fn probe_step(&mut self) -> bool {
        self.until_probe = self.until_probe.saturating_sub(1);
        let is_alone = !self.flags.has(Flags::SEVERAL) && self.depth <= 1;
        let reaps = self.outstanding > self.in_flight.saturating_add(1);
        let may_find = !(is_alone || reaps || self.is_storming());
        let is_paid = self.credit.saturating_mul(2) >= self.config.probe_credit().wrapping_neg();
        if self.until_probe == 0 && self.held == 0 && may_find && is_paid {
            self.flags.set(Flags::PROBE, true);
        }
        self.flags.has(Flags::PROBE)
    }

    /// Ends a probe that costs too much, without a result.
    pub(crate) fn end_probe(&mut self) -> Decision {
        self.learn(0);
        Decision::Deliver(Reason::Budget)
    }

    /// Delivers because a deadline has passed, and learns from it.
    pub(crate) fn end_hold(&mut self, reason: Reason) -> Decision {
        let all_wait = self.in_flight == 0 && matches!(reason, Reason::Silence);
        if self.flags.has(Flags::PROBE) && !matches!(reason, Reason::Storm) {
            self.learn(if all_wait { self.held } else { 0 });
            self.observed = if all_wait { 0 } else { self.observed };
        } else if all_wait {
            self.no_hold = 1_u16.wrapping_shl(self.no_hold_bits.into()).wrapping_sub(1);
            self.no_hold_bits = self.no_hold_bits.wrapping_add(1).min(NO_HOLD_BITS_MAX);
        }
        if all_wait {
            self.flags.set(Flags::GAP_COUNTS, false);
        }
        self.deliver(reason)
    }

    /// Learns from a probe. `found`: the commands that were outstanding when the requesters fell silent; 0: they did not.
    /// The depth moves only into the range between the results of the last two probes, so that one pause of the guest does
    /// not change it. After a result that is neither 0 nor the depth known before, the next probe follows soon: random
    /// arrivals can look like a closed loop in two probes in a row, so a third must agree before the pauses become long.
    fn learn(&mut self, found: u16) {
        let last = core::mem::replace(&mut self.found, found);
        let last = if self.observed == MISLED { 0 } else { last };
        let before = self.depth;
        self.depth = before.max(last.min(found)).min(last.max(found));
        if found > 0 && found != before {
            self.until_probe = saturated(u32::from(found) << 3 | 1); // look again soon
        } else {
            self.schedule_probe(self.held, !self.allows_two_held());
        }
        self.flags.set(Flags::SEVERAL, false);
    }

    /// Notes `count` submissions. After a probe that found a depth, the first of them (up to six) are observed. If their
    /// gaps are on average less than two fifths of the usual gap, the probe misled: either they had queued in the guest, as
    /// in an open loop at its limit, and no requester waited for what was held; or a closed loop submitted all at once, and
    /// the device sees them. In both cases the depth must not earn credit beyond what the device sees. So it is unknown
    /// again, and the next probe cannot agree with this one.
    pub(crate) fn observe_submits(&mut self, count: u16) {
        if !self.observes_submits() {
            return;
        }
        if self.observed == 0 {
            self.oldest = 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "OBSERVED_MAX at most")]
        let (more, all) = (count.min(OBSERVED_MAX.into()) as u8, self.found.clamp(2, OBSERVED_MAX.into()) as u8);
        self.observed = self.observed.wrapping_add(more);
        if self.observed < all {
            return;
        }
        self.observed = OBSERVED_MAX;
        let gaps = u32::from(all.wrapping_sub(1));
        let took = self.oldest.min(self.gap8); // below 2^29, as max_hold
        let is_misled = took.wrapping_mul(5) < (self.gap8 >> 2).wrapping_mul(gaps);
        if is_misled {
            (self.depth, self.observed) = (0, MISLED);
            self.schedule_probe(self.found, true);
        } else if self.allows_two_held() {
            self.vain_probes = 0;
        }
    }

    /// Whether the submissions after a probe are still being observed. Meanwhile nothing is held.
    pub(crate) const fn observes_submits(&self) -> bool {
        self.observed < OBSERVED_MAX
    }

    /// Whether two completions could be held together with as many outstanding as the last probe found.
    const fn allows_two_held(&self) -> bool {
        self.config.earned_by(self.found).wrapping_mul(2) > cost_of(1)
    }

    /// Schedules the next probe: 128 times `held` completions from now, doubled for each probe in vain: one that found no
    /// depth, or one that saves nothing, or that misled.
    fn schedule_probe(&mut self, held: u16, in_vain: bool) {
        self.vain_probes = self.vain_probes.wrapping_add(in_vain.into()).min(VAIN_MAX);
        // An odd number of completions, or each probe would begin at the same command of a batch.
        self.until_probe = saturated((u32::from(held) << 7).wrapping_shl(self.vain_probes.into()) | 1);
    }

    /// Whether this completion is delivered because nothing else is in flight and an earlier such hold ended in silence.
    /// Counts the exemption down.
    pub(crate) const fn take_exemption(&mut self, cif: u16) -> bool {
        let is_exempt = cif <= 1 && self.no_hold > 0;
        self.no_hold = self.no_hold.wrapping_sub(is_exempt as u16);
        is_exempt
    }
}
