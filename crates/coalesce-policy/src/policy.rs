//! What a shell asks of a policy.

use crate::completion::Completion;
use crate::hints::{Clues, HintCounts};
use crate::mark::Mark;
use crate::{Decision, Stats};
use cint_core::Hint;
use std::fmt::Debug;

/// What a latency budget has spent. Times are summed over the requests, in ticks. They saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The time for which completions were held.
    pub held: u64,
    /// The time that requests spent.
    pub outstanding: u64,
    /// The share of it that holding may add, in basis points (1/100 %).
    pub budget: u16,
    /// What learning may cost beyond that, once.
    pub learning: u64,
}

/// The submissions that a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submissions {
    /// None.
    None,
    /// Those of which something is known. Others need no call: [`Clues::outstanding`] of a later one counts them.
    Counted,
    /// Each, as a strict Barrier needs.
    Each,
}

/// A policy for one interrupt vector, and what it decided so far. Times are in ticks of its clock.
///
/// The verbs are the events (`on_...`), `flush` and `reset_tracking`; a shell calls those whose events it has. `reset_stats`
/// clears what was counted. All other methods are queries, and change nothing.
///
/// [`AnyPolicy`](crate::AnyPolicy) is any policy that users can choose, and adds the verbs and queries of a shell that changes
/// its policy or does not always ask it. The simulator implements one more policy.
pub trait Policy: Debug {
    /// A command is submitted. Its mark goes back with its completion, or with [`on_cancel`](Self::on_cancel).
    fn on_submit(&mut self, _now: u64, clues: &Clues) -> Mark {
        Mark::of(clues.hint)
    }

    /// The hint by which the completion of a command will be decided now, with `cif` commands in flight, counting it. For
    /// observers: changes nothing.
    fn hint_of(&self, mark: Mark, _cif: u32) -> Hint {
        mark.hint()
    }

    /// A command completed, and others [before](Completion::before) it: decides about one after the other until one
    /// delivers: its interrupt covers them all.
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision;

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    fn deadline(&self) -> Option<u64>;

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    fn on_deadline(&mut self, now: u64) -> Decision;

    /// Whether the shell must call [`on_batch_end`](Self::on_batch_end) after each poll of its device.
    fn wants_batch_end(&self) -> bool {
        false
    }

    /// The device has posted all it had.
    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.on_deadline(now)
    }

    /// Queue stop, reset, migration: delivers what is held.
    fn flush(&mut self, now: u64) -> Decision;

    /// The consumer has taken everything that was posted, without an interrupt.
    fn on_consumed(&mut self, now: u64);

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
    /// next requester may be another than the one that was learned of.
    fn reset_tracking(&mut self) {}

    /// Whether held completions stay unposted, so that urgent ones overtake them (out-of-order Urgent).
    fn posts_late(&self) -> bool {
        false
    }

    /// Completions held: no interrupt covers them.
    fn held(&self) -> u64;

    /// What a latency budget has spent since the statistics were reset; `None`: the policy has no budget.
    fn spent(&self) -> Option<Spent> {
        None
    }

    /// How often each decision was taken.
    fn stats(&self) -> &Stats;

    /// How many completions were decided by an inferred hint, by its source.
    fn hints_counted(&self) -> &HintCounts;

    /// Forgets what was counted.
    fn reset_stats(&mut self);
}
