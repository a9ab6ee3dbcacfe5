//! A core that decides by hints, as a policy: where its hints come from, and strict Barriers.

use crate::Decision;
use crate::completion::{Class, Completion};
use crate::hint_spec::HintSpec;
use crate::hints::{Clues, HintCounts, HintSources};
use crate::machine::Machine;
use crate::mark::Mark;
use crate::policy::{Spent, Submissions};
use cint_core::{Barriers, Cint, Hint, Tracker};
use coalesce_decision::{ConfigError, Event};

/// Submitter groups of a strict Barrier, and words of 64 commands in the window of each.
pub(crate) type StrictTracker = Tracker<16, 16>;

/// What a core is asked. The verbs are those of [`Policy`](crate::Policy).
pub(crate) trait Core {
    /// Its checked parameters.
    type Config;

    fn new(config: Self::Config) -> Self;

    fn reconfigure(&mut self, config: Self::Config, now: u64) -> Result<Decision, ConfigError>;

    /// Whether it needs submissions although it tracks no strict Barriers and infers no hints.
    const WANTS_SUBMIT: bool;

    /// `count` commands were submitted; `outstanding` are so after the last of them.
    fn on_submit(&mut self, _now: u64, _outstanding: u32, _count: u32) {}

    /// A command completed, which means `event`.
    fn decide(&mut self, now: u64, event: Event, completion: &Completion) -> Decision;

    /// An interrupt is decided upon. It delivers `left` more completions, too, the last of which is `last` and means `event`.
    fn ride(&mut self, _now: u64, _left: u16, _event: Event, _last: &Completion) {}

    fn deadline(&self) -> Option<u64>;

    fn on_deadline(&mut self, now: u64) -> Decision;

    fn wants_batch_end(&self) -> bool {
        false
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision;

    fn on_consumed(&mut self, now: u64);

    /// A command was aborted, which means `event`.
    fn on_cancel(&mut self, now: u64, event: Event) -> Decision;

    /// Other requesters may come.
    fn forget(&mut self) {}

    fn held(&self) -> u32;

    fn max_hold(&self) -> Option<u64>;

    fn times_back(&self) -> u16 {
        0
    }

    fn spent(&self) -> Option<Spent> {
        None
    }
}

/// A core and what its decisions need beside it.
#[derive(Clone, Debug)]
pub(crate) struct Hinted<C> {
    core: C,
    sources: HintSources,
    tracker: Option<Box<StrictTracker>>, // where Barriers are strict
}

impl<C: Core> Hinted<C> {
    pub(crate) fn new(config: C::Config, hints: &HintSpec) -> Self {
        let tracker = (hints.barrier == Barriers::Strict).then(Box::default);
        Self { core: C::new(config), sources: hints.sources, tracker }
    }

    /// Takes other parameters with the same kind of Barriers. What is held and what was learned stay.
    pub(crate) fn reconfigure(
        &mut self,
        config: C::Config,
        hints: &HintSpec,
        now: u64,
    ) -> Result<Decision, ConfigError> {
        let decision = self.core.reconfigure(config, now)?;
        self.sources = hints.sources;
        Ok(decision)
    }

    /// What tracks strict Barriers.
    pub(crate) const fn tracker(&mut self) -> Option<&mut Box<StrictTracker>> {
        self.tracker.as_mut()
    }

    /// When a Barrier interrupts.
    pub(crate) fn barriers(&self) -> Barriers {
        if self.tracker.is_some() { Barriers::Strict } else { Barriers::Relaxed }
    }

    /// What a completion means.
    fn event(&mut self, completion: &Completion, hints: &mut HintCounts) -> Event {
        let Completion { mark, cif, class, .. } = *completion;
        let (hint, source) = mark.at_completion(self.sources, cif);
        hints.count(source);
        let hint = match class {
            Class::Io => hint,
            Class::Admin | Class::Failed => Hint::Urgent,
        };
        match &mut self.tracker {
            Some(tracker) => tracker.on_completion(mark.ticket(), hint),
            None => hint.into(),
        }
    }
}

impl<C: Core> Machine for Hinted<C> {
    #[inline(never)] // or every other policy saves registers for it
    fn on_completion(&mut self, now: u64, completion: &Completion, hints: &mut HintCounts) -> Decision {
        let event = self.event(completion, hints);
        self.core.decide(now, event, completion)
    }

    fn deadline(&self) -> Option<u64> {
        self.core.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.core.on_deadline(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.core.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.core.on_consumed(now);
    }

    fn held(&self) -> u64 {
        self.core.held().into()
    }

    fn max_hold(&self) -> Option<u64> {
        self.core.max_hold()
    }

    fn ride(&mut self, now: u64, left: u16, last: &Completion, hints: &mut HintCounts) {
        let event = self.event(last, hints); // whatever it means, it is delivered
        self.core.ride(now, left, event, last);
    }

    fn wants_submit(&self) -> Submissions {
        match &self.tracker {
            Some(_) => Submissions::Each,
            None if C::WANTS_SUBMIT || self.sources != HintSources::NONE => Submissions::Counted,
            None => Submissions::None,
        }
    }

    fn on_submit(&mut self, now: u64, clues: &Clues) -> Mark {
        self.core.on_submit(now, clues.outstanding, clues.before.saturating_add(1));
        let ticket = self.tracker.as_mut().and_then(|tracker| tracker.on_submit(clues.group));
        Mark::new(self.sources, clues, ticket)
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        match &mut self.tracker {
            Some(tracker) => self.core.on_cancel(now, tracker.cancel(mark.ticket())),
            None => self.flush(now),
        }
    }

    fn reset_tracking(&mut self) {
        if let Some(tracker) = &mut self.tracker {
            tracker.reset_tracking();
        }
        self.core.forget();
    }

    fn untracked(&self) -> u32 {
        self.tracker.as_ref().map_or(0, |tracker| tracker.untracked())
    }

    fn times_back(&self) -> u16 {
        self.core.times_back()
    }

    fn spent(&self) -> Option<Spent> {
        self.core.spent()
    }

    fn hint_of(&self, mark: Mark, cif: u32) -> Hint {
        mark.at_completion(self.sources, cif).0
    }

    fn wants_batch_end(&self) -> bool {
        self.core.wants_batch_end()
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.core.on_batch_end(now)
    }
}

impl Core for Cint {
    type Config = cint_core::Config;

    const WANTS_SUBMIT: bool = false;

    fn new(config: Self::Config) -> Self {
        Self::new(config)
    }

    fn reconfigure(&mut self, config: Self::Config, now: u64) -> Result<Decision, ConfigError> {
        self.reconfigure(config, now)
    }

    fn decide(&mut self, now: u64, event: Event, completion: &Completion) -> Decision {
        self.on_completion(now, event, Some(completion.cif))
    }

    fn deadline(&self) -> Option<u64> {
        self.deadline()
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    fn wants_batch_end(&self) -> bool {
        self.config().waits_for_batch_end()
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_batch_end(now)
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    fn on_consumed(&mut self, now: u64) {
        self.on_consumed(now);
    }

    fn on_cancel(&mut self, now: u64, event: Event) -> Decision {
        self.on_cancel(now, event)
    }

    fn held(&self) -> u32 {
        self.held()
    }

    fn max_hold(&self) -> Option<u64> {
        self.config().max_hold()
    }

    fn times_back(&self) -> u16 {
        self.times_back()
    }
}
