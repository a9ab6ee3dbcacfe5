//! Operations on a policy, and strategies that generate them.

use crate::Hint;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// When `on_deadline` is called, relative to the deadline the policy asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now, whatever the policy asked for.
    Now,
    /// At the deadline: the clock moves there first.
    OnTime,
    /// This many ticks after the deadline.
    Late(u64),
}

/// One thing that happens to a policy. Every sequence of operations makes sense, so that any of them may be left out
/// when a counter-example is shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Time passes.
    Advance(u64),
    /// The clock jumps back.
    Back(u64),
    /// Commands of this submitter group are issued.
    Submit {
        /// Submitter group.
        group: u8,
        /// How many.
        count: u8,
    },
    /// Commands in flight complete, one after the other; if there is none, one is submitted first.
    Complete {
        /// Which is first: taken modulo the number in flight.
        which: u8,
        /// What their requester said.
        hint: Hint,
        /// How many.
        count: u8,
    },
    /// One of the commands in flight is aborted.
    Cancel {
        /// Which: taken modulo the number in flight.
        which: u8,
    },
    /// `on_deadline` is called.
    Deadline(When),
    /// Everything the device had is posted.
    BatchEnd,
    /// The consumer takes all without an interrupt.
    Consumed,
    /// From now on the consumer reaps at once what interrupts cover, as it does at the start; or it does not reap.
    Reaping(bool),
    /// Flush.
    Flush,
    /// The guest is put on a CPU.
    Schedule,
    /// The guest is taken off its CPU.
    Deschedule,
    /// From now on the hypervisor says that the timeslice ends this many ticks from now, or nothing.
    Slice(Option<u64>),
    /// The configuration changes.
    Reconfigure(u8),
    /// A ticket comes back that was never given, or twice.
    BogusTicket {
        /// The ticket, or which of those given back lately.
        number: u64,
        /// With an abort, not with a completion.
        cancel: bool,
    },
    /// The controller is reset.
    ResetTracking,
}

/// Which operations are generated, and around which spans of time.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Spans of time, in ticks, at which the policy changes its mind: each is hit exactly, and one tick to either side.
    pub spans: Vec<u64>,
    /// The time at which a run begins.
    pub start: u64,
    /// Urgent and Barrier hints are used.
    pub hints: bool,
    /// The clock may jump back.
    pub back: bool,
    /// `on_batch_end` is called.
    pub batch_end: bool,
    /// `on_consumed` is called.
    pub consumed: bool,
    /// The consumer may leave for later what interrupts cover, so that it stays outstanding; traces then have submissions.
    pub reaping: bool,
    /// The guest is scheduled and descheduled, and the ends of timeslices are known.
    pub schedule: bool,
    /// Submitter groups that ask for tickets; 0: tickets are not used.
    pub groups: u8,
    /// Configurations to choose from; 0: never reconfigured.
    pub configurations: u8,
}

impl Mix {
    /// Completions, deadlines, flushes and passing time around `spans`.
    pub fn new(spans: impl Into<Vec<u64>>) -> Self {
        Self {
            spans: spans.into(),
            start: 0,
            hints: false,
            back: false,
            batch_end: false,
            consumed: false,
            reaping: false,
            schedule: false,
            groups: 0,
            configurations: 0,
        }
    }

    /// A span of time near one that matters.
    fn span(&self) -> BoxedStrategy<u64> {
        let near = self.spans.iter().flat_map(|&s| [s.saturating_sub(1), s, s.saturating_add(1)]).collect::<Vec<_>>();
        let max = self.spans.iter().copied().max().unwrap_or(0).saturating_mul(2).saturating_add(2);
        let small = self.spans.iter().copied().min().unwrap_or(0).saturating_add(2);
        prop_oneof![3 => 0..=small, 3 => prop::sample::select([near, vec![0, 1]].concat()), 1 => 0..=max].boxed()
    }

    /// One operation.
    pub fn op(&self) -> BoxedStrategy<Op> {
        let hint = if self.hints {
            prop_oneof![5 => Just(Hint::Plain), 2 => Just(Hint::Urgent), 1 => Just(Hint::Barrier)].boxed()
        } else {
            Just(Hint::Plain).boxed()
        };
        let count = prop_oneof![20 => Just(1), 2 => 0..8_u8, 1 => any::<u8>()];
        let when = prop_oneof![3 => Just(When::Now), 3 => Just(When::OnTime), 1 => self.span().prop_map(When::Late)];
        let mut ops: Vec<(u32, BoxedStrategy<Op>)> = vec![
            (12, self.span().prop_map(Op::Advance).boxed()),
            (14, (0..=self.groups, count.clone()).prop_map(|(group, count)| Op::Submit { group, count }).boxed()),
            (
                18,
                (any::<u8>(), hint, count).prop_map(|(which, hint, count)| Op::Complete { which, hint, count }).boxed(),
            ),
            (6, when.prop_map(Op::Deadline).boxed()),
            (1, Just(Op::Flush).boxed()),
        ];
        if self.back {
            ops.push((1, self.span().prop_map(Op::Back).boxed()));
        }
        if self.batch_end {
            ops.push((3, Just(Op::BatchEnd).boxed()));
        }
        if self.consumed {
            ops.push((1, Just(Op::Consumed).boxed()));
        }
        if self.reaping {
            ops.push((2, any::<bool>().prop_map(Op::Reaping).boxed()));
        }
        if self.schedule {
            ops.push((1, Just(Op::Schedule).boxed()));
            ops.push((1, Just(Op::Deschedule).boxed()));
            ops.push((3, prop::option::weighted(0.8, self.span()).prop_map(Op::Slice).boxed()));
        }
        if self.groups > 0 {
            ops.push((2, any::<u8>().prop_map(|which| Op::Cancel { which }).boxed()));
            ops.push((1, any::<(u64, bool)>().prop_map(|(number, cancel)| Op::BogusTicket { number, cancel }).boxed()));
            ops.push((1, Just(Op::ResetTracking).boxed()));
        }
        if self.configurations > 0 {
            ops.push((1, (0..self.configurations).prop_map(Op::Reconfigure).boxed()));
        }
        prop::strategy::Union::new_weighted(ops).boxed()
    }

    /// `len` operations, the same at each call.
    ///
    /// # Panics
    /// Never: every mix generates operations.
    pub fn same_ops(&self, len: usize) -> Vec<Op> {
        let mut runner = TestRunner::deterministic();
        let mut next = || self.op().new_tree(&mut runner).expect("every mix generates operations").current();
        (0..len).map(|_| next()).collect()
    }

    /// A sequence of at most `len` operations.
    pub fn ops(&self, len: usize) -> BoxedStrategy<Vec<Op>> {
        prop::collection::vec(self.op(), 0..=len).boxed()
    }
}
