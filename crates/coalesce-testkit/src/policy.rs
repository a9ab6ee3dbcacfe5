//! What a policy promises, to be tested.

#[cfg(doc)]
use coalesce_decision::HoldReason;
use coalesce_decision::{Decision, Policy, Reason, Share};

/// At most `window / interval + burst` paced interrupts in any window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Ticks between two interrupts, in the long run.
    pub interval: u64,
    /// Interrupts allowed on top in any window.
    pub burst: u64,
}

/// A latency budget: if every deadline is met, what completions were held for, summed over them, is at every moment at most
/// `share` of what other commands were outstanding for, plus a constant: what learning may cost. The driver knows what was outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Of the time that commands spend.
    pub share: Share,
    /// The constant of commands that have spent no time yet, in commands * ticks. Of this and the next two the largest counts that
    /// was ever promised.
    pub constant: u64,
    /// The share of the time that commands have spent by which the constant grows.
    pub growth: Share,
    /// What the constant grows to, in commands * ticks.
    pub constant_max: u64,
    /// Before this instant the policy may not interrupt, so that what is held until then does not count.
    pub free_until: u64,
}

/// Whether a completion that is marked urgent may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// As any other.
    #[default]
    MayWait,
    /// Never.
    Interrupts,
    /// Only where a storm guard allows no interrupt: [`HoldReason::Storm`].
    InterruptsUnlessStorm,
}

/// What a policy promises. The checker holds it to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// An interrupt covers a completion within this many ticks if every deadline is met; `None`: no such bound. After a
    /// change of the configuration the time restarts.
    pub hold_max: Option<u64>,
    /// The bound on the interrupt rate, if there is one.
    pub rate: Option<Rate>,
    /// The bound on what holding costs, if there is one.
    pub budget: Option<Budget>,
    /// Whether who is marked urgent may wait.
    pub urgent: Urgent,
    /// Reasons of interrupts that the rate bound does not count.
    pub unpaced: &'static [Reason],
    /// The policy may hold without a deadline while a command is in flight, whose completion ends the hold.
    pub needs_next_completion: bool,
    /// The policy may hold without a deadline until [`Policy::on_batch_end`].
    pub needs_batch_end: bool,
}

/// A policy under test. A [`Mix`](crate::Mix) generates only the events that are asked for.
pub trait Tested: Policy {
    /// What the policy promises in its present configuration.
    fn promises(&self) -> Promises;

    /// The configuration changes to the policy's own number `choice`; `None`: refused, nothing changed.
    fn reconfigure(&mut self, _choice: u8, _now: u64) -> Option<Decision> {
        None
    }

    /// Something the policy found wrong with itself; reported as a violation.
    fn fault(&self) -> Option<String> {
        None
    }
}
