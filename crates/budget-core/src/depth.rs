//! The depth: the commands that the requesters submit before they wait for a completion. Only a long hold can show it.
//!
//! ```text
//!                  due                    all fell silent              the first submission, in time
//!        ┌──────┐ ─────────────► ┌───────┐ ───────────────► ┌────────┐ ─────────────────► ┌──────┐
//!        │ Idle │                │ Probe │                  │ Answer │                    │ Pace │
//!        └──────┘ ◄───────────── └───────┘                  └────────┘                    └──────┘
//!            ▲     no end found,                               │ too late: refuted           │ confirmed, or
//!            │     or refuted                                  │                             │ too fast: refuted
//!            └─────────────────────────────────────────────────┴─────────────────────────────┘
//! ```
//!
//! A silence proves nothing: a load that pauses by itself falls silent, too. What proves a depth is the answer. Who was
//! waiting for what was held submits again as soon as the interrupt has come, each time after about the same time, and no
//! faster than the host works. And he does not submit while it is still held, even if that lasts: every second probe waits
//! longer.

use crate::account::saturated;
use crate::constants::{
    EVIDENCE_MAX, FIRST_PROBE, LATER_SHIFT, LICENSED_DEPTH, PROBE_SHIFT, PROVEN, REFUTED, SOON_SHIFT, VAIN_MAX,
    WATCHED_MAX,
};

/// What the estimator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Waits for the next probe.
    Idle,
    /// Everything is held until the requesters fall silent.
    Probe,
    /// They fell silent, and what was held was delivered: nothing is held until they submit.
    Answer,
    /// They have answered: nothing is held while their pace is watched.
    Pace,
}

/// How long a probe waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Patience {
    Short,
    /// Longer than an answer takes: every second probe.
    Long,
    /// It was to be long, and would cost too much.
    CutShort,
}

/// Learns the depth of the requesters of one interrupt vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct DepthEstimator {
    answer: u32, // the shortest answer to a find since the evidence was 0, in ticks; 0: there was none
    until: u16,  // completions until a probe is due
    /// What the last probe found; 0: the requesters did not fall silent.
    pub(crate) found: u16,
    depth: u16, // what the last confirmed find was
    pub(crate) state: State,
    evidence: u8, // finds confirmed, as far as not refuted, at most EVIDENCE_MAX
    vain: u8,     // probes in vain since the last confirmed one, at most VAIN_MAX
    watched: u8,  // submissions since the find
    patience: Patience,
    is_several: bool, // more than one command was outstanding at a time since the last probe
}

const _: () = assert!(size_of::<DepthEstimator>() == 16);

impl DepthEstimator {
    /// It knows nothing.
    pub(crate) const NEW: Self = Self {
        answer: 0,
        until: FIRST_PROBE,
        found: 0,
        depth: 0,
        state: State::Idle,
        evidence: 0,
        vain: 0,
        watched: 0,
        patience: Patience::Short,
        is_several: false,
    };

    /// The depth, if it is proven; else 0.
    pub(crate) const fn depth(&self) -> u16 {
        if self.evidence >= PROVEN { self.depth } else { 0 }
    }

    /// How well it is proven: 0 to EVIDENCE_MAX.
    pub(crate) const fn evidence(&self) -> u8 {
        self.evidence
    }

    /// A command completed while `outstanding` were outstanding. Returns whether a probe is due, if one may begin.
    #[inline(always)]
    pub(crate) const fn note_completion(&mut self, outstanding: u32) -> bool {
        self.is_several |= outstanding > 1;
        self.until = self.until.saturating_sub(1);
        self.until == 0
    }

    /// Whether a probe may begin with the next completion, if `outstanding` commands are outstanding then.
    #[inline(always)]
    pub(crate) const fn probes_next(&self, outstanding: u32) -> bool {
        self.until <= 1 && (outstanding > 1 || !self.is_alone())
    }

    /// Whether a requester has one command outstanding at a time, as far as is known: it must not wait.
    pub(crate) const fn is_alone(&self) -> bool {
        !self.is_several && self.depth() <= 1
    }

    pub(crate) const fn begin_probe(&mut self) {
        (self.state, self.is_several) = (State::Probe, false);
        if matches!(self.patience, Patience::CutShort) {
            self.patience = Patience::Long;
        }
    }

    /// The probe goes on as a short one. Whether it was a long one.
    pub(crate) const fn cut_short(&mut self) -> bool {
        let is_long = matches!(self.patience, Patience::Long);
        if is_long {
            self.patience = Patience::CutShort;
        }
        is_long
    }

    /// Makes the next probe due after `completions` more.
    pub(crate) const fn put_off(&mut self, completions: u16) {
        (self.state, self.until) = (State::Idle, completions);
    }

    /// Ticks without a completion after which this probe ends, of a hold that would end after `silence`: longer than a
    /// host pauses that is not waiting; in every second probe twice that, and longer than an answer takes.
    pub(crate) fn silence(&self, silence: u32) -> u32 {
        let pause = pause(silence);
        match self.patience {
            Patience::Short | Patience::CutShort => pause,
            Patience::Long => pause.saturating_add(pause.max(self.answer.saturating_add(self.answer >> 1))),
        }
    }

    /// Whether `quiet` ticks without a completion are longer than a host pauses that is not waiting.
    pub(crate) const fn is_pause(quiet: u32, silence: u32) -> bool {
        quiet > pause(silence)
    }

    /// The probe ends in silence, with `found` held and nothing in flight.
    pub(crate) const fn find(&mut self, found: u16) {
        (self.found, self.state, self.watched) = (found, State::Answer, 0);
    }

    /// The probe of `held` completions ends without silence. `is_endless`: because more and more came.
    pub(crate) fn miss(&mut self, held: u16, is_endless: bool) {
        self.found = 0;
        self.evidence = self.evidence.saturating_sub(is_endless.into());
        self.end(held, false);
    }

    /// They submitted what they had not waited for.
    pub(crate) fn refute(&mut self, found: u16) {
        self.evidence = self.evidence.saturating_sub(REFUTED);
        self.end(found, false);
    }

    /// `count` submissions after a find, `age` ticks after its interrupt ([`State::Answer`]) or after the first of them
    /// ([`State::Pace`]). Returns whether the age counts from now on.
    ///
    /// The first must come within twice the shortest answer, and within a third of `max_hold`. If the first few come in
    /// less than two fifths of the usual gap, they had queued in the host, as in an open loop at its limit; or they were
    /// submitted all at once, and the device sees them without a probe.
    pub(crate) fn watch(&mut self, count: u32, age: u32, gap8: u32, max_hold: u32) -> bool {
        let is_answer = self.state == State::Answer;
        if is_answer {
            let is_late = self.answer > 0 && age >> 1 > self.answer;
            if is_late || age.saturating_mul(3) > max_hold {
                self.refute(self.found);
                return false;
            }
            if age < self.answer >> 1 {
                self.evidence = 0; // what was proven was not this
            }
            self.answer = if self.answer == 0 { age.max(1) } else { self.answer.min(age.max(1)) };
            self.state = State::Pace;
        }
        let age = if is_answer { 0 } else { age };
        #[expect(clippy::cast_possible_truncation, reason = "WATCHED_MAX at most")]
        let (more, all) = (count.min(WATCHED_MAX.into()) as u8, self.found.clamp(2, WATCHED_MAX.into()) as u8);
        self.watched = self.watched.wrapping_add(more).min(all);
        if self.watched >= all {
            let gaps = u32::from(all.wrapping_sub(1));
            // below 2^29, as max_hold
            if age.min(gap8).wrapping_mul(5) < (gap8 >> 2).wrapping_mul(gaps) {
                self.refute(self.found);
            } else {
                self.confirm();
            }
        }
        is_answer
    }

    /// The requesters waited although fewer commands were held than they can have: the depth is proven no longer, or less well,
    /// and a probe is due soon.
    pub(crate) fn doubt(&mut self) {
        self.evidence = self.evidence.saturating_sub(1);
        if self.evidence < PROVEN {
            self.until = self.until.min(saturated(u32::from(self.depth) << SOON_SHIFT));
        }
    }

    /// Forgets what speaks for a depth: nothing does any more, or it has no effect.
    pub(crate) const fn disprove(&mut self) {
        (self.evidence, self.answer, self.patience) = (0, 0, Patience::Short);
    }

    fn confirm(&mut self) {
        (self.depth, self.evidence) = (self.found, self.evidence.wrapping_add(1).min(EVIDENCE_MAX));
        self.patience = if matches!(self.patience, Patience::Short) { Patience::Long } else { Patience::Short };
        self.end(self.found, true);
    }

    /// Schedules the next probe.
    fn end(&mut self, held: u16, is_confirmed: bool) {
        if self.evidence == 0 {
            self.disprove();
        }
        let is_useful = is_confirmed && held >= LICENSED_DEPTH;
        self.vain = if is_useful { 0 } else { self.vain.wrapping_add(1).min(VAIN_MAX) };
        let is_soon = is_useful && self.evidence < EVIDENCE_MAX;
        let shift = if is_soon { SOON_SHIFT } else { LATER_SHIFT.wrapping_add(self.vain.into()) };
        self.put_off(saturated(u32::from(held).wrapping_shl(shift)));
    }
}

/// The longest pause, in ticks, of a host that is not waiting; `silence`: of a hold.
const fn pause(silence: u32) -> u32 {
    silence << PROBE_SHIFT
}
