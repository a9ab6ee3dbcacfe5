//! Strict Barriers in front of any policy.

use crate::barrier::Tracker;
use coalesce_decision::{Class, Completion, Decision, Event, Mark, Policy, Submission, Submissions, forward};

/// A policy whose Barriers are strict: a [`Tracker`] says what a completion means, from the ticket that its command got when
/// it was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strict<P, const GROUPS: usize, const WORDS: usize> {
    policy: P,
    tracker: Tracker<GROUPS, WORDS>,
}

impl<P, const GROUPS: usize, const WORDS: usize> Strict<P, GROUPS, WORDS> {
    /// No ticket is given yet. Usable in a `static`.
    pub const fn new(policy: P) -> Self {
        Self { policy, tracker: Tracker::new() }
    }

    /// The policy behind the tracker.
    #[must_use]
    pub const fn get(&self) -> &P {
        &self.policy
    }

    /// The same, for a new configuration.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// The tracker. Another one may take its place where tickets must outlive the policy.
    pub const fn tracker_mut(&mut self) -> &mut Tracker<GROUPS, WORDS> {
        &mut self.tracker
    }

    /// What counts from here on is the event: the class of the command is in it. Somebody waits for a Barrier that failed, although
    /// others of its batch have not completed.
    fn tracked(&mut self, completion: &Completion) -> Completion {
        let event = match self.tracker.on_completion(completion.mark.ticket, completion.event()) {
            Event::Plain if completion.class != Class::Io => Event::Urgent,
            event => event,
        };
        Completion { mark: Mark { event, ..completion.mark }, class: Class::Io, ..*completion }
    }
}

impl<P: Policy, const GROUPS: usize, const WORDS: usize> Policy for Strict<P, GROUPS, WORDS> {
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        let mark = self.policy.on_submit(now, submission);
        Mark { ticket: self.tracker.on_submit(submission.group), ..mark }
    }

    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let completion = self.tracked(completion);
        self.policy.on_completion(now, &completion)
    }

    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        let last = self.tracked(last);
        self.policy.on_covered(now, left, &last);
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        let event = self.tracker.on_completion(mark.ticket, mark.event);
        self.policy.on_cancel(now, Mark { event, ..mark })
    }

    fn reset_tracking(&mut self) {
        self.tracker.reset_tracking();
        self.policy.reset_tracking();
    }

    fn wants_submit(&self) -> Submissions {
        Submissions::Each
    }

    fn untracked(&self) -> u32 {
        self.tracker.untracked()
    }

    // The default of `on_completions` calls the one above.
    forward!(self => self.policy; all but on_submit, on_completion, on_completions, on_covered, on_cancel, reset_tracking, wants_submit,
        untracked);
}
