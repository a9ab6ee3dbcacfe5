//! Any policy that users can choose, and what it decided so far.

use crate::baseline::Aggregation;
use crate::hinted::Hinted;
use crate::spec::Spec;
use crate::sum::Sum;
use coalesce_decision::{
    Barriers, ConfigError, Counted, Decision, Field, HintCounts, HoldReason, Mark, Policy, Stats, forward,
};

/// A policy for one interrupt vector, and what it decided so far.
#[derive(Clone, Debug)]
pub struct AnyPolicy {
    spec: Spec,
    tick_hz: u64,
    policy: Counted<Hinted<Sum>>,
    #[cfg(feature = "alloc")]
    retired: tickets::Retired,
}

/// A policy that another one has replaced, with what it had learned. It holds nothing, and knows no command.
#[derive(Clone, Debug)]
pub struct SetAside {
    spec: Spec,
    policy: Hinted<Sum>,
}

impl SetAside {
    /// What the policy was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }
}

impl AnyPolicy {
    /// A policy for a clock of `tick_hz` ticks per second.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry. `Spec::explain` says it in the words of the text form.
    pub fn new(spec: Spec, tick_hz: u64) -> Result<Self, ConfigError> {
        let policy = Counted::new(hinted(&spec, tick_hz)?);
        Ok(Self {
            spec,
            tick_hz,
            policy,
            #[cfg(feature = "alloc")]
            retired: None,
        })
    }

    /// What the policy was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Ticks of its clock per second.
    #[must_use]
    pub const fn tick_hz(&self) -> u64 {
        self.tick_hz
    }

    /// Takes another policy, or other parameters. vIC, cint, and `budget` and `auto` as one, go on with what is held where only
    /// parameters but `barrier` change; every other change delivers it, and starts anew.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry; then nothing has happened.
    pub fn reconfigure(&mut self, spec: Spec, now: u64) -> Result<Decision, ConfigError> {
        let policy = self.policy.get_mut();
        let decision = match policy.get_mut().reconfigure(&spec, self.tick_hz, now)? {
            Some(decision) => {
                policy.set_sources(spec.sources());
                decision
            }
            None => {
                let new = hinted(&spec, self.tick_hz)?;
                self.replace(new, now)
            }
        };
        self.spec = spec;
        Ok(self.policy.stats_mut().count(decision))
    }

    /// The policy with what it has learned, for [`resume`](Self::resume) after others were in force; it stays in force itself.
    /// `None`: it is not `auto`, or its Barriers are strict. Then make it anew from its spec; what it has learned is lost.
    #[must_use]
    pub fn set_aside(&self, now: u64) -> Option<SetAside> {
        let mut policy = self.policy.get().clone();
        let Sum::Auto(auto) = policy.get_mut() else { return None };
        *auto = auto.set_aside(now);
        Some(SetAside { spec: self.spec.clone(), policy })
    }

    /// Takes a policy that was set aside under the same clock, which goes on with what it had learned. What is held is delivered.
    pub fn resume(&mut self, aside: SetAside, now: u64) -> Decision {
        let SetAside { spec, policy } = aside;
        let decision = self.replace(policy, now);
        self.spec = spec;
        self.policy.stats_mut().count(decision)
    }

    /// The old policy delivers what it holds.
    fn replace(&mut self, policy: Hinted<Sum>, now: u64) -> Decision {
        let mut old = self.policy.replace(policy);
        #[cfg(feature = "alloc")]
        tickets::keep(&mut self.retired, old.get_mut(), self.policy.get_mut().get_mut());
        old.flush(now)
    }

    /// The host has set NVMe's Feature 08h. Under `nvme:host=on` what is held is delivered, and these parameters count from
    /// now on; any other policy takes no notice. [`reconfigure`](Self::reconfigure) forgets them.
    pub fn set_by_host(&mut self, now: u64, aggregation: Aggregation) -> Decision {
        match self.policy.get_mut().get_mut() {
            Sum::Nvme(nvme) if nvme.is_by_host() => {
                let decision = nvme.flush(now);
                nvme.aggregate(aggregation);
                self.policy.stats_mut().count(decision)
            }
            _ => Decision::Hold(HoldReason::NothingHeld),
        }
    }

    fn waits_for_batch_end(&self) -> bool {
        self.policy.held() > 0 && self.policy.wants_batch_end()
    }

    /// How often each decision was taken.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.policy.stats()
    }

    /// How many completions were decided by an inferred hint, by its source.
    #[must_use]
    pub const fn hints_counted(&self) -> &HintCounts {
        self.policy.hints_counted()
    }

    /// Forgets what was counted.
    pub fn reset_stats(&mut self) {
        self.policy.reset_stats();
    }
}

fn hinted(spec: &Spec, tick_hz: u64) -> Result<Hinted<Sum>, ConfigError> {
    Field::TickHz.check(tick_hz)?;
    Ok(Hinted::new(Sum::new(spec, tick_hz)?, spec.sources()))
}

impl Policy for AnyPolicy {
    /// Where Barriers are not strict, nothing is known of an aborted command's batch, and what is held is delivered.
    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        match self.spec.barriers() {
            Barriers::Strict => self.policy.on_cancel(now, mark),
            Barriers::Relaxed => match self.policy.get_mut().on_cancel(now, mark) {
                Decision::Hold(_) => self.policy.flush(now),
                decision => self.policy.stats_mut().count(decision),
            },
        }
    }

    /// What is held until the end of a batch alone is due at once for a caller that does not call [`on_batch_end`](Policy::on_batch_end).
    /// One that does looks at deadlines between batches, not between the completions of one.
    fn deadline(&self) -> Option<u64> {
        self.policy.deadline().or_else(|| self.waits_for_batch_end().then_some(0))
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        match self.policy.deadline() {
            None if self.waits_for_batch_end() => self.policy.on_batch_end(now),
            _ => self.policy.on_deadline(now),
        }
    }

    forward!(self => self.policy; all but on_cancel, deadline, on_deadline);
}

/// A ticket of an older policy is not given again by a newer one, which would take one command for the other.
#[cfg(feature = "alloc")]
mod tickets {
    use crate::sum::Sum;
    use alloc::boxed::Box;
    use cint_core::Tracker;

    /// The tracker of a policy before this one: it knows which tickets were given.
    pub(super) type Retired = Option<Box<Tracker<16, 16>>>;

    pub(super) fn keep(retired: &mut Retired, old: &mut Sum, new: &mut Sum) {
        if let Sum::Strict(strict) = old {
            *retired = Some(Box::new(core::mem::take(strict.tracker_mut())));
        }
        if let Sum::Strict(strict) = new
            && let Some(mut tracker) = retired.take()
        {
            tracker.reset_tracking();
            *strict.tracker_mut() = *tracker;
        }
    }
}
