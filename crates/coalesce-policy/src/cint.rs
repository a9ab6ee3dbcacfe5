//! cinterrupts as a policy: with the hints of its requests, strict Barriers, and for `auto` a model of its requesters.

use crate::cint_spec::CintSpec;
use crate::completion::{Class, Completion, Passed};
use crate::error::SpecError;
use crate::hints::{Clues, HintCounts, HintSources};
use crate::machine::Machine;
use crate::mark::Mark;
use crate::requester::Requester;
use crate::spec::Spec;
use crate::{Decision, Reason};
use cint_core::{Barriers, Cint, Hint, Tracker};

/// Submitter groups of a strict Barrier, and words of 64 commands in the window of each.
pub(crate) type StrictTracker = Tracker<16, 16>;

/// A machine of cinterrupts and what its decisions need beside it.
#[derive(Clone, Debug)]
pub(crate) struct HintedCint {
    cint: Cint,
    tick_hz: u64,
    sources: HintSources,
    tracker: Option<Box<StrictTracker>>, // where Barriers are strict
    requester: Option<Requester>,        // of `auto`
}

/// The model for `auto`. Without the `in_flight` rule it has no say.
fn requester(spec: &Spec, params: &CintSpec, tick_hz: u64) -> Option<Requester> {
    let threshold = params.in_flight.filter(|_| matches!(spec, Spec::Auto(_)));
    threshold.map(|threshold| Requester::new(tick_hz, threshold))
}

impl HintedCint {
    /// `params`: those of `spec`.
    pub(crate) fn new(spec: &Spec, params: &CintSpec, tick_hz: u64) -> Result<Self, SpecError> {
        Ok(Self {
            cint: Cint::new(spec.cint_config(params, tick_hz)?),
            tick_hz,
            sources: params.hints,
            tracker: (params.barrier == Barriers::Strict).then(Box::default),
            requester: requester(spec, params, tick_hz),
        })
    }

    /// Takes other parameters with the same kind of Barriers. What is held and what was learned stay.
    pub(crate) fn reconfigure(&mut self, spec: &Spec, params: &CintSpec, now: u64) -> Result<Decision, SpecError> {
        let config = spec.cint_config(params, self.tick_hz)?;
        let decision = self.cint.reconfigure(config, now).map_err(|error| spec.wrong(error))?;
        self.sources = params.hints;
        self.requester = match (self.requester, requester(spec, params, self.tick_hz)) {
            (Some(before), Some(new)) => Some(new.after(before)),
            (_, new) => new,
        };
        Ok(decision)
    }

    /// What tracks strict Barriers.
    pub(crate) const fn tracker(&mut self) -> Option<&mut Box<StrictTracker>> {
        self.tracker.as_mut()
    }

    /// Whether the requesters are expected to submit more although what is held is not announced: then the end of a batch is
    /// no reason to hurry. Only `auto` learns that.
    fn expects_more(&self) -> bool {
        self.requester.as_ref().is_some_and(Requester::goes_on)
    }
}

impl Machine for HintedCint {
    #[inline(never)] // or every other policy saves registers for it
    fn on_completion(&mut self, now: u64, completion: &Completion, hints: &mut HintCounts) -> Decision {
        let Completion { mark, cif, class, .. } = *completion;
        let (hint, source) = mark.at_completion(self.sources, cif, self.expects_more());
        hints.count(source);
        let may_hold = self.may_hold();
        let in_flight = self.requester.as_mut().map_or(cif, |requester| requester.in_flight(now, cif));
        let hint = match class {
            _ if !may_hold => Hint::Plain, // it is no hint that delivers
            Class::Io => hint,
            Class::Admin | Class::Failed => Hint::Urgent,
        };
        let event = match &mut self.tracker {
            Some(tracker) => tracker.on_completion(mark.ticket(), hint),
            None => hint.into(),
        };
        let held = self.cint.held();
        let decision = self.cint.on_completion(now, event, Some(in_flight));
        match (&mut self.requester, decision) {
            (Some(requester), Decision::Hold(_)) => requester.on_hold(cif),
            (Some(requester), Decision::Deliver(Reason::InFlight)) => requester.on_limit(held),
            _ => {}
        }
        decision
    }

    fn deadline(&self) -> Option<u64> {
        self.cint.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        let held = self.cint.held();
        let decision = self.cint.on_deadline(now);
        if let (Some(requester), true) = (&mut self.requester, decision.is_deliver()) {
            requester.on_deadline(held);
        }
        decision
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.cint.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.cint.on_consumed(now);
    }

    fn held(&self) -> u64 {
        self.cint.held().into()
    }

    fn max_hold(&self) -> Option<u64> {
        self.cint.config().max_hold()
    }

    fn ride(&mut self, _now: u64, left: u16, last: &Completion, hints: &mut HintCounts) {
        let (hint, source) = last.mark.at_completion(self.sources, last.cif, self.expects_more());
        hints.count(source);
        if let Some(tracker) = &mut self.tracker {
            let _ = tracker.on_completion(last.mark.ticket(), hint); // whatever it means, it is announced
        }
        if let Some(requester) = &mut self.requester {
            requester.on_ride(left.into(), last.cif);
        }
    }

    fn may_hold(&self) -> bool {
        match &self.requester {
            Some(requester) => requester.may_hold() || self.tracker.is_some() || self.cint.is_storming(),
            None => true,
        }
    }

    fn on_passed(&mut self, now: u64, passed: &Passed) {
        self.cint.on_passed(now, passed.interrupts);
        if let Some(requester) = &mut self.requester {
            requester.on_passed(now, passed.completions, passed.outstanding);
        }
    }

    fn wants_submit(&self) -> bool {
        self.tracker.is_some() || self.requester.is_some() || self.sources != HintSources::NONE
    }

    fn wants_each_submit(&self) -> bool {
        self.tracker.is_some()
    }

    fn on_submit(&mut self, clues: &Clues) -> Mark {
        if let Some(requester) = &mut self.requester {
            if clues.before > 0 {
                requester.on_submits(clues.before, clues.outstanding);
            }
            requester.on_submits(1, clues.outstanding);
        }
        let ticket = self.tracker.as_mut().and_then(|tracker| tracker.on_submit(clues.group));
        Mark::new(self.sources, clues, ticket)
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        match &mut self.tracker {
            Some(tracker) => self.cint.on_cancel(now, tracker.cancel(mark.ticket())),
            None => self.flush(now),
        }
    }

    fn reset_tracking(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.reset_tracking();
        }
        if let Some(requester) = &mut self.requester {
            *requester = requester.forgotten(self.tick_hz);
        }
    }

    fn untracked(&self) -> u32 {
        self.tracker.as_ref().map_or(0, |tracker| tracker.untracked())
    }

    fn times_back(&self) -> u16 {
        self.cint.times_back()
    }

    fn hint_of(&self, mark: Mark, cif: u32) -> Hint {
        mark.at_completion(self.sources, cif, self.expects_more()).0
    }

    fn wants_batch_end(&self) -> bool {
        self.cint.config().waits_for_batch_end()
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.cint.on_batch_end(now)
    }
}
