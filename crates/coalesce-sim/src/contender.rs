//! What can decide in a simulation: every policy that users can choose, and baselines that only the simulator has.

use crate::published::{Published, PublishedMachine};
use coalesce_delivery::Policy;
use coalesce_policy::{
    AnyPolicy, Clues, Completion, Decision, Hint, HintCounts, HoldReason, Mark, Spec, SpecError, Stats,
};
use std::fmt;
use std::str::FromStr;

/// Ticks per second of every clock in the simulator: times are in nanoseconds.
pub const TICK_HZ: u64 = 1_000_000_000;

/// A policy to simulate, with its parameters. Its text form is that of [`Spec`], or [`Published::name`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One that users can choose.
    Policy(Spec),
    /// What the authors of a paper ran, flaws included.
    Published(Published),
}

impl FromStr for Contender {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match Published::ALL.into_iter().find(|published| published.name() == text) {
            Some(published) => Ok(Self::Published(published)),
            None => text.parse().map(Self::Policy),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(spec) => spec.fmt(f),
            Self::Published(published) => f.write_str(published.name()),
        }
    }
}

/// A contender at work.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each line")]
pub(crate) enum Machine {
    Policy(AnyPolicy),
    Published(PublishedMachine, Stats),
}

impl Machine {
    pub(crate) fn new(contender: &Contender) -> Result<Self, SpecError> {
        Ok(match contender {
            Contender::Policy(spec) => Self::Policy(AnyPolicy::new(spec.clone(), TICK_HZ)?),
            Contender::Published(published) => Self::Published(published.machine(), Stats::default()),
        })
    }

    /// The hint by which a completion will be decided.
    pub(crate) fn hint_of(&self, mark: Mark, cif: u32) -> Hint {
        match self {
            Self::Policy(policy) => policy.hint_of(mark, cif),
            Self::Published(..) => mark.hint(),
        }
    }

    /// How many hints were inferred, and from what.
    pub(crate) fn hints_counted(&self) -> HintCounts {
        match self {
            Self::Policy(policy) => policy.hints_counted().clone(),
            Self::Published(..) => HintCounts::default(),
        }
    }

    pub(crate) fn held(&self) -> u64 {
        match self {
            Self::Policy(policy) => policy.held(),
            Self::Published(machine, _) => machine.get().held(),
        }
    }

    pub(crate) const fn stats(&self) -> &Stats {
        match self {
            Self::Policy(policy) => policy.stats(),
            Self::Published(_, stats) => stats,
        }
    }

    /// The longest time, in ns, that a completion is held if deadlines are met on time; `None`: no such bound.
    ///
    /// A storm guard may exceed `max_hold` by less than its interval while urgent completions are announced alone.
    pub(crate) fn bound(&self) -> Option<u64> {
        let Self::Policy(policy) = self else { return None };
        let over = match policy.spec() {
            Spec::Cint(cint) | Spec::Auto(cint) if cint.ooo => {
                cint.storm_max_rate.map_or(0, |rate| TICK_HZ.div_ceil(rate))
            }
            _ => 0,
        };
        policy.max_hold().map(|hold| hold + over)
    }

    fn nothing_due(&self) -> Decision {
        Decision::Hold(if self.held() > 0 { HoldReason::Early } else { HoldReason::NothingHeld })
    }
}

impl Policy for Machine {
    fn posts_late(&self) -> bool {
        matches!(self, Self::Policy(policy) if policy.posts_late())
    }

    fn on_submit(&mut self, clues: &Clues) -> Mark {
        match self {
            Self::Policy(policy) => policy.on_submit(clues),
            Self::Published(machine, _) => {
                machine.get_mut().on_submit();
                Mark::of(clues.hint)
            }
        }
    }

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_completion(now, completion),
            Self::Published(machine, stats) => stats.count(machine.get_mut().on_completion(now, completion)),
        }
    }

    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Policy(policy) => policy.deadline(),
            Self::Published(machine, _) => machine.get().deadline(),
        }
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_deadline(now),
            Self::Published(machine, stats) => match machine.get_mut().on_deadline(now) {
                Some(decision) => stats.count(decision),
                None => self.nothing_due(),
            },
        }
    }

    fn wants_batch_end(&self) -> bool {
        matches!(self, Self::Policy(policy) if policy.wants_batch_end())
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_batch_end(now),
            Self::Published(..) => self.nothing_due(),
        }
    }

    fn flush(&mut self, now: u64) -> Decision {
        match self {
            Self::Policy(policy) => policy.flush(now),
            Self::Published(machine, stats) => stats.count(machine.get_mut().flush(now)),
        }
    }

    fn on_consumed(&mut self, now: u64) {
        match self {
            Self::Policy(policy) => policy.on_consumed(now),
            Self::Published(machine, _) => machine.get_mut().on_consumed(),
        }
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_cancel(now, mark),
            Self::Published(..) => self.nothing_due(),
        }
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_schedule(now),
            Self::Published(..) => self.nothing_due(),
        }
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        match self {
            Self::Policy(policy) => policy.on_deschedule(now),
            Self::Published(..) => self.nothing_due(),
        }
    }

    fn reset_tracking(&mut self) {
        if let Self::Policy(policy) = self {
            policy.reset_tracking();
        }
    }

    fn reset_stats(&mut self) {
        match self {
            Self::Policy(policy) => policy.reset_stats(),
            Self::Published(_, stats) => *stats = Stats::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_read_and_printed() {
        for text in ["none", "vic:cif_threshold=2", "xen_as_published", "cint_storm_as_published"] {
            assert_eq!(text.parse::<Contender>().unwrap().to_string(), text);
        }
        assert!("xen".parse::<Contender>().is_err());
    }
}
