//! The depth: the commands that the requesters submit before they wait for a completion. Only a long hold can show it.

use crate::algorithm::{Budget, Flags, commands};
use crate::credit::cost_of;
use coalesce_decision::{Decision, Reason};

/// Completions before the first probe.
pub(crate) const FIRST_PROBE: u16 = 16;
/// The most times that the interval between probes doubles.
const VAIN_MAX: u8 = 6;
/// At most 2^10 - 1 completions are skipped.
const SKIP_BITS_MAX: u8 = 10;
/// The most submissions after a probe that are observed, to see how fast the requesters submit again.
pub(crate) const BACK: u8 = 6;
/// Instead of [`BACK`]: those submissions showed that the probe misled.
const MISLED: u8 = BACK + 1;

impl Budget {
    /// Whether completions are held to learn the depth, until all requesters wait for a completion and none submits. No
    /// probe begins if a requester is alone, because it must not wait; if there are completions to reap, because their
    /// requester does not wait for held ones; or in a storm, because nothing can be learned then.
    pub(crate) fn probes(&mut self) -> bool {
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

    /// A probe costs too much.
    pub(crate) fn end_probe(&mut self) -> Decision {
        self.learn(0);
        Decision::Deliver(Reason::Budget)
    }

    /// A hold ends because a deadline passed.
    pub(crate) fn end_hold(&mut self, reason: Reason) -> Decision {
        let all_wait = self.in_flight == 0 && matches!(reason, Reason::Silence);
        if self.flags.has(Flags::PROBE) && !matches!(reason, Reason::Storm) {
            self.learn(if all_wait { self.held } else { 0 });
            self.back = if all_wait { 0 } else { self.back };
        } else if all_wait {
            self.skip = 1_u16.wrapping_shl(self.skip_bits.into()).wrapping_sub(1);
            self.skip_bits = self.skip_bits.wrapping_add(1).min(SKIP_BITS_MAX);
        }
        if all_wait {
            self.flags.set(Flags::BUSY, false);
        }
        self.deliver(reason)
    }

    /// Learns from a probe. `found`: the commands that were outstanding when the requesters fell silent; 0: they did not.
    /// The depth moves only as far as two probes agree, so that a single pause of the guest does not change it. A third must
    /// agree before the next one is late: arrivals at random can come back as a closed loop does twice in a row.
    fn learn(&mut self, found: u16) {
        let last = core::mem::replace(&mut self.found, found);
        let last = if self.back == MISLED { 0 } else { last };
        let before = self.depth;
        self.depth = before.max(last.min(found)).min(last.max(found));
        if found > 0 && found != before {
            self.until_probe = commands(u32::from(found) << 3 | 1); // look again soon
        } else {
            self.rest(self.held, !self.find_saves());
        }
        self.flags.set(Flags::SEVERAL, false);
    }

    /// Notes `count` submissions. After a probe that found a depth, the first of them (up to six) are observed. If their
    /// gaps are less than two fifths of the usual gap, the probe misled: either requests were queued in the guest, as in an
    /// open loop that has reached its limit, or all were submitted at once and are in flight. In both cases the device sees
    /// all that is outstanding, and only that earns credit. So the depth is unknown again, and the next probe cannot agree
    /// with this one.
    pub(crate) fn note_return(&mut self, count: u16) {
        if !self.sees_return() {
            return;
        }
        if self.back == 0 {
            self.oldest = 0;
        }
        #[expect(clippy::cast_possible_truncation, reason = "BACK at most")]
        let (more, all) = (count.min(BACK.into()) as u8, self.found.clamp(2, BACK.into()) as u8);
        self.back = self.back.wrapping_add(more);
        if self.back < all {
            return;
        }
        self.back = BACK;
        let gaps = u32::from(all.wrapping_sub(1));
        let took = self.oldest.min(self.gap8); // below 2^29, as max_hold
        let is_misled = took.wrapping_mul(5) < (self.gap8 >> 2).wrapping_mul(gaps);
        if is_misled {
            (self.depth, self.back) = (0, MISLED);
            self.rest(self.found, true);
        } else if self.find_saves() {
            self.vain = 0;
        }
    }

    /// Whether the submissions after a probe are still being observed. Meanwhile nothing is held.
    pub(crate) const fn sees_return(&self) -> bool {
        self.back < BACK
    }

    /// Whether anything could be held with as many outstanding as the last probe found.
    const fn find_saves(&self) -> bool {
        self.config.earned_by(self.found).wrapping_mul(2) > cost_of(1)
    }

    /// Schedules the next probe: 128 times `held` completions from now, doubled for each probe in vain.
    fn rest(&mut self, held: u16, in_vain: bool) {
        self.vain = self.vain.wrapping_add(in_vain.into()).min(VAIN_MAX);
        // An odd number of completions, or each probe would begin at the same command of a batch.
        self.until_probe = commands((u32::from(held) << 7).wrapping_shl(self.vain.into()) | 1);
    }

    /// Whether this completion is delivered although the depth lets us expect more, because none joined the last such hold.
    pub(crate) const fn skips(&mut self, cif: u16) -> bool {
        let skips = cif <= 1 && self.skip > 0;
        self.skip = self.skip.wrapping_sub(skips as u16);
        skips
    }
}
