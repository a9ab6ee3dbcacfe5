//! Hints that nobody said: what an unmodified guest gives away about who waits for a request.

use coalesce_decision::{
    Completion, Decision, Event, Hint, HintSource, HintSources, Mark, Policy, Submission, Submissions, forward,
};

/// A policy that infers hints from what its guest does.
#[derive(Clone, Debug)]
pub struct Hinted<P> {
    policy: P,
    sources: Option<HintSources>,
}

impl<P> Hinted<P> {
    /// `sources`: where it may look; `None`: the policy does not look at hints.
    pub const fn new(policy: P, sources: Option<HintSources>) -> Self {
        Self { policy, sources }
    }

    /// The policy.
    #[must_use]
    pub const fn get(&self) -> &P {
        &self.policy
    }

    /// The policy, for a new configuration.
    pub const fn get_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Where it may look from now on.
    pub const fn set_sources(&mut self, sources: Option<HintSources>) {
        self.sources = sources;
    }

    /// Where nothing is in flight any more, nobody else will interrupt. What a requester said itself stays, and so does what
    /// was inferred.
    #[inline]
    fn is_idle(&self, mark: Mark, cif: u32) -> bool {
        let may_look = self.sources.is_some_and(|sources| sources.has(HintSource::Idle));
        may_look && cif == 1 && mark.event == Event::Plain && mark.source.is_none()
    }

    /// A completion with the mark that counts. Apart, or what is usual copies it.
    #[cold]
    #[inline(never)]
    fn on_idle(&mut self, now: u64, completion: &Completion) -> Decision
    where
        P: Policy,
    {
        let mark = self.mark_at(completion.mark, completion.cif);
        self.policy.on_completion(now, &Completion { mark, ..*completion })
    }
}

impl<P: Policy> Policy for Hinted<P> {
    /// What its requester said counts; the sources are for those who said nothing.
    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        let mark = self.policy.on_submit(now, submission);
        match (self.sources, submission.hint) {
            (Some(sources), Hint::Plain) => {
                let (event, source) = infer(sources, submission);
                Mark { event, source, ..mark }
            }
            _ => mark,
        }
    }

    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        if self.is_idle(completion.mark, completion.cif) {
            return self.on_idle(now, completion);
        }
        self.policy.on_completion(now, completion)
    }

    /// None of those before it is the last in flight.
    #[inline]
    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        let mark = self.mark_at(last.mark, last.cif);
        self.policy.on_completions(now, before, &Completion { mark, ..*last })
    }

    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        let mark = self.mark_at(last.mark, last.cif);
        self.policy.on_covered(now, left, &Completion { mark, ..*last });
    }

    #[inline]
    fn mark_at(&self, mark: Mark, cif: u32) -> Mark {
        if self.is_idle(mark, cif) {
            // Where an Urgent interrupts alone, what is held would wait.
            let event = if self.policy.posts_late() { Event::Barrier } else { Event::Urgent };
            Mark { event, source: Some(HintSource::Idle), ..mark }
        } else {
            Mark { source: mark.source.filter(|_| self.sources.is_some()), ..mark }
        }
    }

    fn wants_submit(&self) -> Submissions {
        match self.policy.wants_submit() {
            Submissions::None if self.sources.is_some_and(|sources| sources != HintSources::NONE) => {
                Submissions::Counted
            }
            wanted => wanted,
        }
    }

    forward!(self => self.policy; all but on_submit, on_completion, on_completions, on_covered, mark_at, wants_submit);
}

const CLASS_SHIFT: u16 = 13;
const CLASS_REAL_TIME: u16 = 1;
const CLASS_IDLE: u16 = 3;

/// What a request means that said no hint, and where it came from. Sources that are not in `sources` are not looked at.
fn infer(sources: HintSources, submission: &Submission) -> (Event, Option<HintSource>) {
    let class = submission.ioprio >> CLASS_SHIFT;
    let is_batch =
        submission.last_of_batch && submission.batch_len > 1 && submission.outstanding as usize == submission.batch_len;
    let found = |source, applies| applies && sources.has(source);
    if found(HintSource::Ioprio, class == CLASS_IDLE) {
        (Event::Plain, Some(HintSource::Ioprio))
    } else if found(HintSource::Flush, submission.flush) {
        (Event::Urgent, Some(HintSource::Flush))
    } else if found(HintSource::Fua, submission.durable) {
        (Event::Urgent, Some(HintSource::Fua))
    } else if found(HintSource::Ioprio, class == CLASS_REAL_TIME) {
        (Event::Urgent, Some(HintSource::Ioprio))
    } else if found(HintSource::Single, submission.outstanding == 1) {
        (Event::Urgent, Some(HintSource::Single))
    } else if found(HintSource::Batch, is_batch) {
        (Event::Barrier, Some(HintSource::Batch))
    } else {
        (Event::Plain, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Always;

    const NONE: Submission = Submission { ioprio: 0x4004, outstanding: 32, ..Submission::ALONE };

    #[test]
    fn each_source_is_found_and_can_be_switched_off() {
        for (submission, event, source) in [
            (Submission { flush: true, ..NONE }, Event::Urgent, HintSource::Flush),
            (Submission { durable: true, ..NONE }, Event::Urgent, HintSource::Fua),
            (Submission { ioprio: 0x2000, ..NONE }, Event::Urgent, HintSource::Ioprio),
            (Submission { ioprio: 0x2007, ..NONE }, Event::Urgent, HintSource::Ioprio),
            (Submission { ioprio: 0x6000, outstanding: 1, ..NONE }, Event::Plain, HintSource::Ioprio),
            (Submission { outstanding: 1, ..NONE }, Event::Urgent, HintSource::Single),
            (Submission { batch_len: 4, outstanding: 4, ..NONE }, Event::Barrier, HintSource::Batch),
        ] {
            assert_eq!(infer(HintSources::ALL, &submission), (event, Some(source)), "{submission:?}");
            let others = HintSource::ALL.iter().filter(|other| **other != source);
            let without = others.fold(HintSources::NONE, |set, other| set.with(*other));
            assert_ne!(infer(without, &submission).1, Some(source), "{submission:?}");
        }
        for submission in [
            NONE,
            Submission { outstanding: 2, ..NONE },
            Submission { batch_len: 4, ..NONE },
            Submission { batch_len: 4, last_of_batch: false, outstanding: 4, ..NONE },
            Submission { ioprio: 0, ..NONE },
        ] {
            assert_eq!(infer(HintSources::ALL, &submission), (Event::Plain, None), "{submission:?}");
        }
    }

    fn at_completion(sources: HintSources, mark: Mark, cif: u32) -> Mark {
        Hinted::new(Always, Some(sources)).mark_at(mark, cif)
    }

    #[test]
    fn the_last_in_flight_is_urgent_unless_it_is_idle_class() {
        let (all, plain) = (HintSources::ALL, Mark::default());
        let idle = Mark { event: Event::Urgent, source: Some(HintSource::Idle), ..plain };
        assert_eq!(at_completion(all, plain, 1), idle);
        assert_eq!(at_completion(all, plain, 2), plain);
        let idle_class = Mark { source: Some(HintSource::Ioprio), ..plain };
        assert_eq!(at_completion(all, idle_class, 1), idle_class);
        assert_eq!(at_completion(HintSources::EXPLICIT, plain, 1), plain);
    }

    /// Out of order an Urgent interrupts alone, and what is held would wait for nobody.
    #[test]
    fn the_last_in_flight_leaves_nothing_held() {
        for spec in ["cint:hints=idle,in_flight=off", "cint:hints=idle,ooo=on,in_flight=off"] {
            let mut policy = crate::AnyPolicy::new(spec.parse().expect("valid"), 1_000_000_000).expect("valid");
            for (now, cif) in [(1_000, 3), (2_000, 2)] {
                assert!(!policy.on_completion(now, &Completion::with_cif(cif)).is_deliver());
            }
            assert!(policy.on_completion(3_000, &Completion::with_cif(1)).is_deliver());
            assert_eq!((policy.held(), policy.deadline()), (0, None), "{spec}");
        }
    }

    #[test]
    fn what_a_requester_said_stays() {
        for said in [Hint::Barrier, Hint::Urgent] {
            assert_eq!(at_completion(HintSources::ALL, Mark::of(said), 1), Mark::of(said));
        }
    }
}
