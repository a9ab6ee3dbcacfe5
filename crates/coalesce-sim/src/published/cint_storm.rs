//! cinterrupts with the storm guard as its authors ran it: cinterrupts §4.3, and the kernel they published.
//!
//! The text and that kernel disagree, and the text leaves the rule open: it says that the EWMA of the interrupt *rate*
//! "modifies" thr and Δ, and not how. No thr and no Δ limits Urgents, which Algorithm 2 delivers whatever these are. The
//! kernel averages the *intervals*, in whole ns, and only those between interrupts that cover marked completions. While
//! the average is below the limit, a marked completion is treated as an unmarked one; thr and Δ stay. That is here.
//!
//! Three flaws come with it. The average of nothing is 0, so the first Urgent of all waits. The average rounds down, so it
//! stays up to 127 ns below the true one. And it is a switch, not a pace: interrupts come in runs, each at full rate.

use super::nothing_due;
use coalesce_policy::{Completion, Decision, Event, HoldReason, Policy, Reason};

/// Δ on Optane (§5.2), in ns.
const DELTA: u64 = 6_000;
/// thr (§5.2).
const THR: u32 = 32;
/// 100 K interrupts/s (Figure 17), in ns.
const INTERVAL_MIN: u64 = 10_000;
/// 1/λ (§4.3).
const WEIGHT: u64 = 128;

/// One completion queue of their emulator, with Urgents in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct CintStormAsPublished {
    coalesced: u32,
    coalesced_marked: u32, // Urgents and Barriers among them
    timeout: u64,
    average: u64,             // of intervals between interrupts for marked completions, in ns; 0: of nothing
    last_marked: Option<u64>, // such an interrupt, or the first call
}

impl CintStormAsPublished {
    fn fire(&mut self, now: u64, reason: Reason) -> Decision {
        if self.coalesced_marked > 0 {
            let interval = now.saturating_sub(self.last_marked.replace(now).unwrap_or(now));
            self.average = match self.average {
                0 => interval,
                average => (average * (WEIGHT - 1) + interval) / WEIGHT,
            };
        }
        self.on_consumed(now);
        Decision::Deliver(reason)
    }
}

impl Policy for CintStormAsPublished {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.last_marked.get_or_insert(now);
        self.timeout = now + DELTA;
        self.coalesced += 1;
        let due = match completion.mark.event {
            Event::Plain => None,
            Event::Urgent | Event::Error => Some(Reason::Urgent),
            Event::Barrier => Some(Reason::Barrier),
        };
        self.coalesced_marked += u32::from(due.is_some());
        match due {
            Some(reason) if self.average >= INTERVAL_MIN => self.fire(now, reason),
            _ if self.coalesced >= THR => self.fire(now, Reason::Count),
            Some(_) => Decision::Hold(HoldReason::Storm),
            None => Decision::Hold(HoldReason::Burst),
        }
    }

    fn deadline(&self) -> Option<u64> {
        (self.coalesced > 0).then_some(self.timeout)
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        let is_due = self.deadline().is_some_and(|timeout| timeout <= now);
        if is_due { self.fire(now, Reason::Delta) } else { nothing_due(self.coalesced) }
    }

    fn flush(&mut self, now: u64) -> Decision {
        if self.coalesced > 0 { self.fire(now, Reason::Flush) } else { Decision::Hold(HoldReason::NothingHeld) }
    }

    fn on_consumed(&mut self, _now: u64) {
        (self.coalesced, self.coalesced_marked) = (0, 0);
    }

    fn held(&self) -> u32 {
        self.coalesced
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coalesce_policy::Hint;

    fn complete(cint: &mut CintStormAsPublished, now: u64, hint: Hint) -> Decision {
        cint.on_completion(now, &Completion::of(hint))
    }

    /// One Urgent every `gap` ns for long enough that the average is that of the last ones, and all interrupts since then.
    fn interrupts(gap: u64, completions: u64) -> u64 {
        let mut cint = CintStormAsPublished::default();
        let mut count = 0;
        for now in (1..=10_000 + completions).map(|i| i * gap) {
            let timeout = cint.deadline().filter(|&timeout| timeout < now);
            let fired = timeout.is_some_and(|timeout| cint.on_deadline(timeout).is_deliver());
            let delivered = complete(&mut cint, now, Hint::Urgent).is_deliver();
            count += if now > 10_000 * gap { u64::from(fired) + u64::from(delivered) } else { 0 };
        }
        count
    }

    #[test]
    fn the_first_urgent_waits_as_the_average_of_nothing_is_a_storm() {
        let mut cint = CintStormAsPublished::default();
        assert_eq!(complete(&mut cint, 50_000, Hint::Urgent), Decision::Hold(HoldReason::Storm));
        assert_eq!(cint.on_deadline(55_999), Decision::Hold(HoldReason::Early));
        assert_eq!(cint.on_deadline(56_000), Decision::Deliver(Reason::Delta));
    }

    #[test]
    fn below_the_limit_every_urgent_interrupts() {
        assert_eq!(interrupts(20_000, 1000), 1000);
    }

    /// Urgents every 5 us are 200 K/s. No gap is as long as Δ: while the average is too short, only thr ends a burst.
    #[test]
    fn above_the_limit_the_rate_settles_below_it() {
        let per_s = interrupts(5_000, 100_000) as f64 / (100_000.0 * 5e-6);
        assert!((90_000.0..=100_000.0).contains(&per_s), "{per_s}");
    }

    #[test]
    fn thr_and_delta_are_those_of_plain_completions() {
        let mut cint = CintStormAsPublished::default();
        for now in 0..u64::from(THR) - 1 {
            assert_eq!(complete(&mut cint, now, Hint::Plain), Decision::Hold(HoldReason::Burst));
        }
        assert_eq!(cint.deadline(), Some(u64::from(THR) - 2 + DELTA));
        assert_eq!(complete(&mut cint, THR.into(), Hint::Plain), Decision::Deliver(Reason::Count));
        assert_eq!((cint.deadline(), cint.average), (None, 0), "no marked completion, no sample");
    }
}
