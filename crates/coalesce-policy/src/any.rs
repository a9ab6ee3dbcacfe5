//! One closed enum over all policies.

use crate::baseline::{Aggregation, Batch, Dim, Nvme, SpdkVhost};
use crate::completion::Completion;
use crate::guarded::Guarded;
use crate::hinted::{Hinted, StrictTracker};
use crate::hints::{Clues, HintCounts};
use crate::machine::{Always, Machine};
use crate::mark::Mark;
use crate::policy::{Policy, Spent, Submissions};
use crate::spec::Spec;
use crate::{Decision, HoldReason, Reason, SpecError, Stats};
use cint_core::{Cint, Hint};
use vic_core::Vic;

/// A policy for one interrupt vector, and what it decided so far.
#[derive(Clone, Debug)]
pub struct AnyPolicy {
    spec: Spec,
    tick_hz: u64,
    machine: AnyMachine,
    retired: Option<Box<StrictTracker>>, // of a policy before this one: it knows which tickets were given
    stats: Stats,
    spent_before: Spent, // until the statistics were reset
    hints: HintCounts,
}

#[derive(Clone, Debug)]
enum AnyMachine {
    None(Always),
    Nvme(Nvme),
    Batch(Batch),
    Dim(Dim),
    SpdkVhost(SpdkVhost),
    Vic(Vic),
    Cint(Hinted<Cint>),
    Budget(Hinted<Guarded>),
}

/// Calls a method of [`Machine`].
macro_rules! call {
    ($machine:expr, $method:ident($($argument:expr),*)) => {
        match $machine {
            AnyMachine::None(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Nvme(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Batch(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Dim(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::SpdkVhost(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Vic(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Cint(machine) => Machine::$method(machine, $($argument),*),
            AnyMachine::Budget(machine) => Machine::$method(machine, $($argument),*),
        }
    };
}

impl AnyMachine {
    fn new(spec: &Spec, tick_hz: u64) -> Result<Self, SpecError> {
        Ok(match spec {
            Spec::None => Self::None(Always),
            Spec::Nvme(params) => Self::Nvme(Nvme::new(*params, tick_hz)),
            Spec::Batch => Self::Batch(Batch::default()),
            Spec::Dim => Self::Dim(Dim::new(tick_hz)),
            Spec::SpdkVhost(params) => Self::SpdkVhost(SpdkVhost::new(*params, tick_hz)),
            Spec::Vic(params) => Self::Vic(Vic::new(spec.vic_config(params, tick_hz)?)),
            Spec::Cint(params) => Self::Cint(Hinted::new(spec.cint_config(params, tick_hz)?, &params.hints)),
            Spec::Budget(params) | Spec::Auto(params) => {
                Self::Budget(Hinted::new(spec.budget_config(params, tick_hz)?, &params.hints))
            }
        })
    }

    /// What tracks strict Barriers.
    fn tracker(&mut self) -> Option<&mut Box<StrictTracker>> {
        match self {
            Self::Cint(cint) => cint.tracker(),
            Self::Budget(budget) => budget.tracker(),
            _ => None,
        }
    }
}

impl AnyPolicy {
    /// A policy for a clock of `tick_hz` ticks per second.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry.
    pub fn new(spec: Spec, tick_hz: u64) -> Result<Self, SpecError> {
        spec.check_clock(tick_hz)?;
        let machine = AnyMachine::new(&spec, tick_hz)?;
        let (stats, hints) = (Stats::default(), HintCounts::default());
        Ok(Self { spec, tick_hz, machine, retired: None, stats, spent_before: Spent::default(), hints })
    }

    /// What the policy was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether it may hold the next completion. If not, until its next decision no [`on_submit`](Self::on_submit) is needed and
    /// a completion needs no mark; or the policy is not asked at all, and [`on_passed`](Self::on_passed) reports afterwards. It
    /// is false with `none`.
    #[must_use]
    pub fn may_hold(&self) -> bool {
        call!(&self.machine, may_hold())
    }

    /// For which commands the shell must call [`on_submit`](Self::on_submit).
    #[must_use]
    pub fn wants_submit(&self) -> Submissions {
        call!(&self.machine, wants_submit())
    }

    /// Decides about those before a completion. `None`: it holds them all.
    #[inline(never)] // or the usual case saves registers for it
    fn on_preceding(&mut self, now: u64, completion: &Completion) -> Option<Decision> {
        for left in (1..=completion.before).rev() {
            let decision = call!(&mut self.machine, on_completion(now, &completion.preceding(left), &mut self.hints));
            let _ = self.stats.count(decision);
            if decision.is_deliver() {
                call!(&mut self.machine, ride(now, left, completion, &mut self.hints));
                return Some(decision);
            }
        }
        None
    }

    /// `interrupts` were sent while it might [not hold](Self::may_hold) anything, and nobody asked it. They cover
    /// everything that completed.
    pub fn on_passed(&mut self, now: u64, interrupts: u16) {
        self.on_consumed(now);
        self.stats.count_times(Decision::Deliver(Reason::Always), interrupts.into());
    }

    /// Takes another policy, or other parameters, with what is held: a machine of the same kind goes on with it, any
    /// other delivers it and starts anew.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry; then nothing has happened.
    pub fn reconfigure(&mut self, spec: Spec, now: u64) -> Result<Decision, SpecError> {
        let decision = match (&mut self.machine, &spec) {
            (AnyMachine::Vic(vic), Spec::Vic(params)) => {
                let config = spec.vic_config(params, self.tick_hz)?;
                vic.reconfigure(config, now).map_err(|error| spec.wrong(error))?
            }
            (AnyMachine::Cint(cint), Spec::Cint(params)) if cint.barriers() == params.hints.barrier => {
                let config = spec.cint_config(params, self.tick_hz)?;
                cint.reconfigure(config, &params.hints, now).map_err(|error| spec.wrong(error))?
            }
            (AnyMachine::Budget(budget), Spec::Budget(params) | Spec::Auto(params))
                if budget.barriers() == params.hints.barrier =>
            {
                let config = spec.budget_config(params, self.tick_hz)?;
                budget.reconfigure(config, &params.hints, now).map_err(|error| spec.wrong(error))?
            }
            _ => {
                let machine = AnyMachine::new(&spec, self.tick_hz)?;
                let mut old = std::mem::replace(&mut self.machine, machine);
                self.keep_tickets(&mut old);
                self.spent_before = Spent::default();
                call!(&mut old, flush(now))
            }
        };
        self.spec = spec;
        Ok(self.stats.count(decision))
    }

    /// The host has set NVMe's Feature 08h. Under `nvme:host=on` what is held is delivered, and these parameters count from
    /// now on; any other policy takes no notice. [`reconfigure`](Self::reconfigure) forgets them.
    pub fn set_by_host(&mut self, now: u64, aggregation: Aggregation) -> Decision {
        let AnyMachine::Nvme(nvme) = &mut self.machine else { return Decision::Hold(HoldReason::NothingHeld) };
        if !nvme.is_by_host() {
            return Decision::Hold(HoldReason::NothingHeld);
        }
        let decision = nvme.flush(now);
        nvme.aggregate(aggregation);
        self.stats.count(decision)
    }

    /// A ticket of an older policy is not given again by a newer one, which would take one command for the other.
    fn keep_tickets(&mut self, old: &mut AnyMachine) {
        if let Some(tracker) = old.tracker() {
            self.retired = Some(std::mem::take(tracker));
        }
        if let Some(tracker) = self.machine.tracker()
            && let Some(mut retired) = self.retired.take()
        {
            retired.reset_tracking();
            *tracker = retired;
        }
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time; `None`: no such bound.
    #[must_use]
    pub fn max_hold(&self) -> Option<u64> {
        call!(&self.machine, max_hold())
    }

    /// Submissions that a strict Barrier could not track: of an unknown group, or with too many in flight. Saturates.
    #[must_use]
    pub fn untracked(&self) -> u32 {
        call!(&self.machine, untracked())
    }

    /// How many calls were older than the one before; saturates. Counted by vIC and cinterrupts, from 0 again after a
    /// change to another kind of machine; 0 under every other policy.
    #[must_use]
    pub fn times_back(&self) -> u16 {
        call!(&self.machine, times_back())
    }
}

impl Policy for AnyPolicy {
    fn on_submit(&mut self, now: u64, clues: &Clues) -> Mark {
        call!(&mut self.machine, on_submit(now, clues))
    }

    fn hint_of(&self, mark: Mark, cif: u32) -> Hint {
        call!(&self.machine, hint_of(mark, cif))
    }

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        if completion.before > 0
            && let Some(decision) = self.on_preceding(now, completion)
        {
            return decision;
        }
        let decision = call!(&mut self.machine, on_completion(now, completion, &mut self.hints));
        self.stats.count(decision)
    }

    fn deadline(&self) -> Option<u64> {
        call!(&self.machine, deadline())
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        let decision = call!(&mut self.machine, on_deadline(now));
        self.stats.count(decision)
    }

    fn wants_batch_end(&self) -> bool {
        call!(&self.machine, wants_batch_end())
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        let decision = call!(&mut self.machine, on_batch_end(now));
        self.stats.count(decision)
    }

    fn flush(&mut self, now: u64) -> Decision {
        let decision = call!(&mut self.machine, flush(now));
        self.stats.count(decision)
    }

    fn on_consumed(&mut self, now: u64) {
        call!(&mut self.machine, on_consumed(now));
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        let decision = call!(&mut self.machine, on_cancel(now, mark));
        self.stats.count(decision)
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        let decision = call!(&mut self.machine, on_schedule(now));
        self.stats.count(decision)
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        let decision = call!(&mut self.machine, on_deschedule(now));
        self.stats.count(decision)
    }

    fn reset_tracking(&mut self) {
        call!(&mut self.machine, reset_tracking());
    }

    fn posts_late(&self) -> bool {
        self.spec.is_ooo()
    }

    fn held(&self) -> u64 {
        call!(&self.machine, held())
    }

    fn spent(&self) -> Option<Spent> {
        let total = call!(&self.machine, spent())?;
        Some(Spent {
            held: total.held.saturating_sub(self.spent_before.held),
            outstanding: total.outstanding.saturating_sub(self.spent_before.outstanding),
            budget: self.spec.budget()?,
            ..total
        })
    }

    fn stats(&self) -> &Stats {
        &self.stats
    }

    fn hints_counted(&self) -> &HintCounts {
        &self.hints
    }

    fn reset_stats(&mut self) {
        self.stats = Stats::default();
        self.spent_before = call!(&self.machine, spent()).unwrap_or_default();
        self.hints = HintCounts::default();
    }
}
