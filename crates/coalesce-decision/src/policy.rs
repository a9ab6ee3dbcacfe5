//! What a shell tells a policy, and what it asks.

use crate::{Completion, Decision, Mark, Submission, Submissions};
use core::fmt::Debug;

/// What a latency budget has spent. Times are summed over the requests, in ticks. They saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Spent {
    /// The time for which completions were held.
    pub held: u64,
    /// The time that requests spent.
    pub outstanding: u64,
    /// What trials may cost beyond the budget so far.
    pub learning: u64,
}

/// What a caller did by itself while a policy might [not hold](Policy::may_hold) anything, and nobody asked it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Bypassed {
    /// Commands that completed.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u16,
    /// Deliveries for which the consumer wanted no interrupt.
    pub suppressed: u16,
    /// The most commands outstanding at one of these completions, counting it, as far as is known; 0: not known.
    pub outstanding: u32,
}

impl Bypassed {
    /// Deliveries, with an interrupt or without.
    #[inline]
    #[must_use]
    pub const fn deliveries(&self) -> u16 {
        self.interrupts.saturating_add(self.suppressed)
    }
}

/// A policy for one interrupt vector: it takes events, and decides about interrupts. Times are in ticks of its clock.
///
/// A policy needs six methods. The others have defaults that are right for a policy that knows nothing of what they are
/// about. A shell calls the verbs (`on_...`, `flush`, `reset_tracking`) whose events it has. All other methods are
/// queries, and change nothing.
///
/// What adds something to a policy wraps it, and is a policy itself: [`Counted`](crate::Counted) counts. The macro
/// [`forward!`](crate::forward) writes the methods that a wrapper leaves as they are.
///
/// ```
/// use coalesce_decision::{Completion, Decision, HoldReason, Policy, Reason};
///
/// /// Every second completion interrupts, and each that no other will follow.
/// #[derive(Debug, Default)]
/// struct Second {
///     held: u32,
/// }
///
/// impl Policy for Second {
///     fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
///         self.held += 1;
///         let is_last = completion.cif <= 1; // in flight, counting it; 0: not known
///         if self.held == 2 || is_last { self.flush(now) } else { Decision::Hold(HoldReason::Batch) }
///     }
///     fn deadline(&self) -> Option<u64> { None } // what is held has another command in flight behind it
///     fn on_deadline(&mut self, _: u64) -> Decision { Decision::Hold(HoldReason::NothingHeld) }
///     fn flush(&mut self, _: u64) -> Decision {
///         let held = std::mem::take(&mut self.held);
///         if held > 0 { Decision::Deliver(Reason::Count) } else { Decision::Hold(HoldReason::NothingHeld) }
///     }
///     fn on_consumed(&mut self, _: u64) { self.held = 0 }
///     fn held(&self) -> u32 { self.held }
/// }
///
/// let mut policy = Second::default();
/// assert!(!policy.on_completion(1_000, &Completion::with_cif(2)).is_deliver());
/// assert!(policy.on_completion(2_000, &Completion::with_cif(1)).is_deliver());
/// ```
pub trait Policy: Debug {
    /// A command completed, and its completion is posted.
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision;

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before; `None`: there is no need. Every verb
    /// may change it. A timer that is armed for an earlier instant may stay armed. It may have passed, and be 0, which
    /// disarms a timerfd: set that to 1.
    fn deadline(&self) -> Option<u64>;

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    fn on_deadline(&mut self, now: u64) -> Decision;

    /// Queue stop, reset, migration: delivers what is held.
    fn flush(&mut self, now: u64) -> Decision;

    /// The consumer has reaped everything without an interrupt. Call it only if the consumer has reaped up to the last posted
    /// completion (NVMe: CQ head = CQ tail; virtio: the guest's used index = the ring's), with both indices read inside the
    /// serialisation that protects the policy.
    fn on_consumed(&mut self, now: u64);

    /// Completions held: posted, and not covered by an interrupt. An urgent one that interrupted alone is not held.
    fn held(&self) -> u32;

    /// A command is submitted. Its mark goes back with its completion, or with [`on_cancel`](Self::on_cancel).
    ///
    /// A caller may forget it and lose hints alone, as long as completions say what is in flight, or at least what is outstanding. A
    /// latency budget that is told neither takes it that one request is outstanding at most, whatever was submitted, and can spend
    /// nothing: then [`Spent::outstanding`] is not more than the time that has passed.
    fn on_submit(&mut self, _now: u64, submission: &Submission) -> Mark {
        Mark::of(submission.hint)
    }

    /// A command completed, and `before` plain commands of an I/O queue just before it, with no marks: for a device that
    /// finds many at once. Decides about one after the other until one delivers: its interrupt covers them all.
    fn on_completions(&mut self, now: u64, before: u16, last: &Completion) -> Decision {
        for left in (1..=before).rev() {
            let decision = self.on_completion(now, &last.preceding(left));
            if decision.is_deliver() {
                self.on_covered(now, left, last);
                return decision;
            }
        }
        self.on_completion(now, last)
    }

    /// An interrupt is decided upon, and covers `left` more completions, the last of which is `last`. They complete as any
    /// others do, for what is learned from them, and none of them stays held.
    fn on_covered(&mut self, now: u64, left: u16, last: &Completion) {
        for left in (0..left).rev() {
            let _ = self.on_completion(now, &last.preceding(left));
        }
        self.on_consumed(now);
    }

    /// Completions were delivered while it might [not hold](Self::may_hold) anything, and nobody asked it. Nothing is held any more.
    fn on_bypassed(&mut self, now: u64, _bypassed: &Bypassed) {
        self.on_consumed(now);
    }

    /// What the mark of a command becomes when it completes now, with `cif` commands in flight, counting it: its completion
    /// is decided by that.
    fn mark_at(&self, mark: Mark, _cif: u32) -> Mark {
        mark
    }

    /// Whether the shell must call [`on_batch_end`](Self::on_batch_end) after each poll of its device.
    fn wants_batch_end(&self) -> bool {
        false
    }

    /// The device has posted all it had. This batch is the device's, not the requester's batch of a Barrier.
    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    /// A command was aborted and will not complete.
    fn on_cancel(&mut self, now: u64, _mark: Mark) -> Decision {
        self.flush(now)
    }

    /// The guest has been put on a CPU.
    fn on_schedule(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    /// The guest is taken off its CPU.
    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.flush(now)
    }

    /// The queue was reset: what was submitted and has not completed never will. Tickets given before are not valid, and the
    /// next requester may be another than the one that was learned of. Call [`flush`](Self::flush) after it.
    fn reset_tracking(&mut self) {}

    /// Whether held completions stay unposted, so that urgent ones overtake them (out-of-order Urgent).
    fn posts_late(&self) -> bool {
        false
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time; `None`: no such bound.
    fn max_hold(&self) -> Option<u64> {
        None
    }

    /// Whether it may hold the next completion. If not, until its next decision or [`on_bypassed`](Self::on_bypassed) no
    /// [`on_submit`](Self::on_submit) is needed, and a completion needs no mark.
    fn may_hold(&self) -> bool {
        true
    }

    /// For which commands the shell must call [`on_submit`](Self::on_submit).
    fn wants_submit(&self) -> Submissions {
        Submissions::None
    }

    /// What a latency budget has spent; `None`: the policy has no budget.
    fn spent(&self) -> Option<Spent> {
        None
    }

    /// How many calls were older than the one before; saturates. 0: none, or the policy does not count them.
    fn times_back(&self) -> u16 {
        0
    }

    /// Submissions that a strict Barrier could not track: of an unknown group, or with too many in flight. Saturates.
    fn untracked(&self) -> u32 {
        0
    }
}

/// Writes the methods of a [`Policy`] that hand a call on to another policy: what a wrapper leaves as it is. That is `all` of them, or
/// `all but` those that you name, because you write them yourself or want the trait's default, which does not reach the policy inside.
/// Only `on_completions` and `on_covered` have defaults that a wrapper may want: they call its own `on_completion`.
///
/// ```
/// use coalesce_decision::{Completion, Decision, Policy, Reason, forward};
///
/// /// Another policy, as long as it is on.
/// #[derive(Debug)]
/// struct Switched<P> {
///     policy: P,
///     is_on: bool,
/// }
///
/// impl<P: Policy> Policy for Switched<P> {
///     fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
///         let decision = self.policy.on_completion(now, completion);
///         if self.is_on || decision.is_deliver() { decision } else { self.policy.flush(now) }
///     }
///     // Completions that are found together are for its own on_completion, too.
///     forward!(self => self.policy; all but on_completion, on_completions, on_covered);
/// }
/// ```
///
/// A sum of policies names a macro that finds the one:
///
/// ```
/// # use coalesce_decision::{Policy, forward};
/// #[derive(Debug)]
/// enum Either<A, B> {
///     A(A),
///     B(B),
/// }
///
/// macro_rules! either {
///     ($sum:ident, $policy:ident => $call:expr) => {
///         match $sum {
///             Either::A($policy) => $call,
///             Either::B($policy) => $call,
///         }
///     };
/// }
///
/// impl<A: Policy, B: Policy> Policy for Either<A, B> {
///     forward!(self in either; all);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($self:ident => $policy:expr; $($methods:tt)+) => { $crate::forward!(@each ($policy) $self; $($methods)+); };
    ($self:ident in $each:ident; $($methods:tt)+) => { $crate::forward!(@each [$each] $self; $($methods)+); };

    (@each $to:tt $self:ident; all) => { $crate::forward!(@each $to $self; all but); };
    (@each $to:tt $self:ident; all but $($own:ident),* $(,)?) => {
        $crate::forward!(@all [$($own)*] $to $self; on_completion, deadline, on_deadline, flush, on_consumed, held, on_submit,
            on_completions, on_covered, on_bypassed, mark_at, wants_batch_end, on_batch_end, on_cancel, on_schedule, on_deschedule,
            reset_tracking, posts_late, max_hold, may_hold, wants_submit, spent, times_back, untracked);
    };
    (@each $to:tt $self:ident; $($method:ident),+ $(,)?) => { $($crate::forward!(@$method $to $self);)+ };

    // Each but those among its own.
    (@all $own:tt $to:tt $self:ident; $($method:ident),+) => { $($crate::forward!(@but $own $method $to $self);)+ };
    (@but [] $method:ident $to:tt $self:ident) => { $crate::forward!(@$method $to $self); };
    (@but [on_completion $($own:ident)*] on_completion $to:tt $self:ident) => {};
    (@but [deadline $($own:ident)*] deadline $to:tt $self:ident) => {};
    (@but [on_deadline $($own:ident)*] on_deadline $to:tt $self:ident) => {};
    (@but [flush $($own:ident)*] flush $to:tt $self:ident) => {};
    (@but [on_consumed $($own:ident)*] on_consumed $to:tt $self:ident) => {};
    (@but [held $($own:ident)*] held $to:tt $self:ident) => {};
    (@but [on_submit $($own:ident)*] on_submit $to:tt $self:ident) => {};
    (@but [on_completions $($own:ident)*] on_completions $to:tt $self:ident) => {};
    (@but [on_covered $($own:ident)*] on_covered $to:tt $self:ident) => {};
    (@but [on_bypassed $($own:ident)*] on_bypassed $to:tt $self:ident) => {};
    (@but [mark_at $($own:ident)*] mark_at $to:tt $self:ident) => {};
    (@but [wants_batch_end $($own:ident)*] wants_batch_end $to:tt $self:ident) => {};
    (@but [on_batch_end $($own:ident)*] on_batch_end $to:tt $self:ident) => {};
    (@but [on_cancel $($own:ident)*] on_cancel $to:tt $self:ident) => {};
    (@but [on_schedule $($own:ident)*] on_schedule $to:tt $self:ident) => {};
    (@but [on_deschedule $($own:ident)*] on_deschedule $to:tt $self:ident) => {};
    (@but [reset_tracking $($own:ident)*] reset_tracking $to:tt $self:ident) => {};
    (@but [posts_late $($own:ident)*] posts_late $to:tt $self:ident) => {};
    (@but [max_hold $($own:ident)*] max_hold $to:tt $self:ident) => {};
    (@but [may_hold $($own:ident)*] may_hold $to:tt $self:ident) => {};
    (@but [wants_submit $($own:ident)*] wants_submit $to:tt $self:ident) => {};
    (@but [spent $($own:ident)*] spent $to:tt $self:ident) => {};
    (@but [times_back $($own:ident)*] times_back $to:tt $self:ident) => {};
    (@but [untracked $($own:ident)*] untracked $to:tt $self:ident) => {};
    (@but [$other:ident $($own:ident)*] $method:ident $to:tt $self:ident) => {
        $crate::forward!(@but [$($own)*] $method $to $self);
    };

    (@on_completion $to:tt $self:ident) => {
        #[inline]
        fn on_completion(&mut $self, now: u64, completion: &$crate::Completion) -> $crate::Decision {
            $crate::forward!(@call $to $self.on_completion(now, completion))
        }
    };
    (@on_completions $to:tt $self:ident) => {
        #[inline]
        fn on_completions(&mut $self, now: u64, before: u16, last: &$crate::Completion) -> $crate::Decision {
            $crate::forward!(@call $to $self.on_completions(now, before, last))
        }
    };
    (@on_covered $to:tt $self:ident) => {
        #[inline]
        fn on_covered(&mut $self, now: u64, left: u16, last: &$crate::Completion) {
            $crate::forward!(@call $to $self.on_covered(now, left, last))
        }
    };
    (@on_bypassed $to:tt $self:ident) => {
        #[inline]
        fn on_bypassed(&mut $self, now: u64, bypassed: &$crate::Bypassed) {
            $crate::forward!(@call $to $self.on_bypassed(now, bypassed))
        }
    };
    (@on_submit $to:tt $self:ident) => {
        #[inline]
        fn on_submit(&mut $self, now: u64, submission: &$crate::Submission) -> $crate::Mark {
            $crate::forward!(@call $to $self.on_submit(now, submission))
        }
    };
    (@on_cancel $to:tt $self:ident) => {
        #[inline]
        fn on_cancel(&mut $self, now: u64, mark: $crate::Mark) -> $crate::Decision {
            $crate::forward!(@call $to $self.on_cancel(now, mark))
        }
    };
    (@on_consumed $to:tt $self:ident) => {
        #[inline]
        fn on_consumed(&mut $self, now: u64) {
            $crate::forward!(@call $to $self.on_consumed(now))
        }
    };
    (@reset_tracking $to:tt $self:ident) => {
        #[inline]
        fn reset_tracking(&mut $self) {
            $crate::forward!(@call $to $self.reset_tracking())
        }
    };
    (@mark_at $to:tt $self:ident) => {
        #[inline]
        fn mark_at(&$self, mark: $crate::Mark, cif: u32) -> $crate::Mark {
            $crate::forward!(@call $to $self.mark_at(mark, cif))
        }
    };
    (@deadline $to:tt $self:ident) => { $crate::forward!(@ask $to $self deadline Option<u64>); };
    (@held $to:tt $self:ident) => { $crate::forward!(@ask $to $self held u32); };
    (@wants_batch_end $to:tt $self:ident) => { $crate::forward!(@ask $to $self wants_batch_end bool); };
    (@posts_late $to:tt $self:ident) => { $crate::forward!(@ask $to $self posts_late bool); };
    (@max_hold $to:tt $self:ident) => { $crate::forward!(@ask $to $self max_hold Option<u64>); };
    (@may_hold $to:tt $self:ident) => { $crate::forward!(@ask $to $self may_hold bool); };
    (@wants_submit $to:tt $self:ident) => { $crate::forward!(@ask $to $self wants_submit $crate::Submissions); };
    (@spent $to:tt $self:ident) => { $crate::forward!(@ask $to $self spent Option<$crate::Spent>); };
    (@times_back $to:tt $self:ident) => { $crate::forward!(@ask $to $self times_back u16); };
    (@untracked $to:tt $self:ident) => { $crate::forward!(@ask $to $self untracked u32); };
    (@ask $to:tt $self:ident $method:ident $answer:ty) => {
        #[inline]
        fn $method(&$self) -> $answer {
            $crate::forward!(@call $to $self.$method())
        }
    };
    (@call ($policy:expr) $self:ident.$method:ident($($argument:ident),*)) => { $policy.$method($($argument),*) };
    (@call [$each:ident] $self:ident.$method:ident($($argument:ident),*)) => {
        $each!($self, policy => policy.$method($($argument),*))
    };
    (@$verb:ident $to:tt $self:ident) => {
        #[inline]
        fn $verb(&mut $self, now: u64) -> $crate::Decision {
            $crate::forward!(@call $to $self.$verb(now))
        }
    };
}

impl<P: Policy + ?Sized> Policy for &mut P {
    forward!(self => (**self); all);
}

#[cfg(feature = "alloc")]
impl<P: Policy + ?Sized> Policy for alloc::boxed::Box<P> {
    forward!(self => (**self); all);
}
