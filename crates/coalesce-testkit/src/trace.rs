//! Golden traces: every call and its answer, one JSON object a line, to be replayed in other languages.

use crate::{Completion, Decision, Driver, Hint, Mark, Mix, Op, Policy, Promises, Shell, Submission, Tested, Ticket};
use coalesce_decision::forward;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

/// One call, with what it answered and when the next deadline was after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// `deliver`, `deliver_urgent`, `hold`, or `refused`; nothing for calls that decide nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The reason of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The deadline after the call.
    pub deadline: Option<u64>,
}

/// A call with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the verbs and arguments of Policy")]
pub enum Call {
    OnSubmit {
        group: u8,
        /// The answer.
        ticket: Option<Ticket>,
        /// As in [`Self::OnCompletion`]: only where the consumer reaps at its leisure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outstanding: Option<u32>,
    },
    OnCompletion {
        now: u64,
        cif: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outstanding: Option<u32>,
        hint: Hint,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ticket: Option<Ticket>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slice_end: Option<u64>,
    },
    OnDeadline {
        now: u64,
    },
    OnBatchEnd {
        now: u64,
    },
    OnConsumed {
        now: u64,
    },
    OnSchedule {
        now: u64,
    },
    OnDeschedule {
        now: u64,
    },
    OnCancel {
        now: u64,
        ticket: Option<Ticket>,
    },
    ResetTracking {},
    Flush {
        now: u64,
    },
    Reconfigure {
        now: u64,
        /// Index into the configurations of the trace's first line.
        choice: u8,
    },
}

/// What a call answered: nothing, a refusal, or a decision.
#[derive(Clone, Copy)]
enum Answer {
    Nothing,
    Refused,
    Decided(Decision),
}

impl Call {
    fn make(&mut self, policy: &mut impl Tested) -> Answer {
        match self {
            Self::OnSubmit { group, ticket, now, outstanding } => {
                let outstanding = outstanding.unwrap_or(0);
                let submission = Submission { group: *group, outstanding, ..Submission::ALONE };
                *ticket = policy.on_submit(now.unwrap_or(0), &submission).ticket;
                Answer::Nothing
            }
            Self::OnCompletion { now, cif, outstanding, hint, ticket, slice_end } => {
                let mark = Mark { ticket: *ticket, ..Mark::of(*hint) };
                let (outstanding, slice_end) = (outstanding.unwrap_or(0), *slice_end);
                let completion = Completion { mark, outstanding, slice_end, ..Completion::with_cif(*cif) };
                Answer::Decided(policy.on_completion(*now, &completion))
            }
            Self::OnDeadline { now } => Answer::Decided(policy.on_deadline(*now)),
            Self::OnBatchEnd { now } => Answer::Decided(policy.on_batch_end(*now)),
            Self::OnConsumed { now } => {
                policy.on_consumed(*now);
                Answer::Nothing
            }
            Self::OnSchedule { now } => Answer::Decided(policy.on_schedule(*now)),
            Self::OnDeschedule { now } => Answer::Decided(policy.on_deschedule(*now)),
            Self::OnCancel { now, ticket } => {
                Answer::Decided(policy.on_cancel(*now, Mark { ticket: *ticket, ..Mark::default() }))
            }
            Self::ResetTracking {} => {
                policy.reset_tracking();
                Answer::Nothing
            }
            Self::Flush { now } => Answer::Decided(policy.flush(*now)),
            Self::Reconfigure { now, choice } => {
                policy.reconfigure(*choice, *now).map_or(Answer::Refused, Answer::Decided)
            }
        }
    }
}

impl Event {
    fn new(call: Call, answer: Answer, deadline: Option<u64>) -> Self {
        let (decision, reason) = match answer {
            Answer::Nothing => (None, None),
            Answer::Refused => (Some("refused"), None),
            Answer::Decided(decision) => {
                let what = match decision {
                    Decision::Deliver(_) => "deliver",
                    Decision::DeliverUrgent => "deliver_urgent",
                    Decision::Hold(_) => "hold",
                };
                (Some(what), Some(decision.reason_name()))
            }
        };
        Self { call, decision: decision.map(Into::into), reason: reason.map(Into::into), deadline }
    }
}

/// Plays the calls of a trace to a fresh policy.
///
/// # Errors
/// The first event that comes out differently: its index, as it was recorded, and as it is.
pub fn replay(policy: &mut impl Tested, trace: &[Event]) -> Result<(), Box<(usize, Event, Event)>> {
    for (index, recorded) in trace.iter().enumerate() {
        let mut call = recorded.call.clone();
        let answer = call.make(policy);
        let event = Event::new(call, answer, policy.deadline());
        if event != *recorded {
            return Err(Box::new((index, recorded.clone(), event)));
        }
    }
    Ok(())
}

/// A policy that records its events, so that a [`Driver`](crate::Driver) writes a trace.
#[derive(Debug)]
pub struct Recorder<P> {
    policy: P,
    submissions: bool,
    outstanding: bool,
    trace: Rc<RefCell<Vec<Event>>>,
}

impl<P: Tested> Recorder<P> {
    /// The recorder, and where the trace appears. Submissions are of interest only where `mix` has tickets or counts what
    /// is outstanding.
    pub fn new(policy: P, mix: &Mix) -> (Self, Rc<RefCell<Vec<Event>>>) {
        let trace = Rc::default();
        let submissions = mix.groups > 0 || mix.reaping;
        (Self { policy, submissions, outstanding: mix.reaping, trace: Rc::clone(&trace) }, trace)
    }

    fn record(&mut self, mut call: Call) -> Answer {
        let answer = call.make(&mut self.policy);
        self.trace.borrow_mut().push(Event::new(call, answer, self.policy.deadline()));
        answer
    }

    fn decide(&mut self, call: Call) -> Decision {
        match self.record(call) {
            Answer::Decided(decision) => decision,
            Answer::Nothing | Answer::Refused => unreachable!("calls that decide"),
        }
    }
}

impl<P: Tested> Policy for Recorder<P> {
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, outstanding, mark, slice_end, .. } = *completion;
        let hint = match mark.event {
            coalesce_decision::Event::Plain => Hint::Plain,
            coalesce_decision::Event::Barrier => Hint::Barrier,
            coalesce_decision::Event::Urgent | coalesce_decision::Event::Error => Hint::Urgent,
        };
        let outstanding = self.outstanding.then_some(outstanding);
        self.decide(Call::OnCompletion { now, cif, outstanding, hint, ticket: mark.ticket, slice_end })
    }

    fn on_deadline(&mut self, now: u64) -> Decision {
        self.decide(Call::OnDeadline { now })
    }

    fn flush(&mut self, now: u64) -> Decision {
        self.decide(Call::Flush { now })
    }

    fn on_consumed(&mut self, now: u64) {
        self.record(Call::OnConsumed { now });
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        let mark = self.policy.on_submit(now, submission);
        if self.submissions {
            let (now, outstanding) = self.outstanding.then_some((now, submission.outstanding)).unzip();
            let call = Call::OnSubmit { group: submission.group, ticket: mark.ticket, now, outstanding };
            let event = Event::new(call, Answer::Nothing, self.policy.deadline());
            self.trace.borrow_mut().push(event);
        }
        mark
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        self.decide(Call::OnCancel { now, ticket: mark.ticket })
    }

    fn reset_tracking(&mut self) {
        self.record(Call::ResetTracking {});
    }

    fn on_batch_end(&mut self, now: u64) -> Decision {
        self.decide(Call::OnBatchEnd { now })
    }

    fn on_schedule(&mut self, now: u64) -> Decision {
        self.decide(Call::OnSchedule { now })
    }

    fn on_deschedule(&mut self, now: u64) -> Decision {
        self.decide(Call::OnDeschedule { now })
    }

    // Completions that are found together are recorded one by one, and what was passed as what was consumed.
    forward!(self => self.policy; all but on_completion, on_completions, on_covered, on_bypassed, on_deadline, flush, on_consumed,
        on_submit, on_cancel, reset_tracking, on_batch_end, on_schedule, on_deschedule);
}

impl<P: Tested> Tested for Recorder<P> {
    fn promises(&self) -> Promises {
        self.policy.promises()
    }

    fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
        match self.record(Call::Reconfigure { now, choice }) {
            Answer::Decided(decision) => Some(decision),
            Answer::Nothing | Answer::Refused => None,
        }
    }

    fn fault(&self) -> Option<String> {
        self.policy.fault()
    }
}

/// A trace of the operations, with a punctual shell. `mix` says when it begins, and which arguments are of interest.
///
/// # Panics
/// If the policy breaks a rule.
pub fn record<P: Tested>(policy: P, mix: &Mix, ops: &[Op]) -> Vec<Event> {
    let (recorder, trace) = Recorder::new(policy, mix);
    let mut driver = Driver::new(recorder, Shell::Punctual, mix.start);
    for op in ops {
        driver.apply(*op).expect("no rule is broken");
    }
    driver.finish().expect("no rule is broken");
    trace.take()
}

/// The golden traces of one machine: files of a first line with its configurations, and a line for each event.
///
/// Replays `path` on a policy made by `build` from its first line. With the environment variable `UPDATE_VECTORS` set,
/// writes the file first, from `header` and a trace of `ops`.
///
/// # Panics
/// If an event comes out differently: with the file, the line, and what is different.
pub fn check_vector<P: Tested>(path: &Path, header: &Value, mix: &Mix, ops: &[Op], build: impl Fn(&Value) -> P) {
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        let trace = record(build(header), mix, ops);
        let lines = trace.iter().map(|event| serde_json::to_string(event).expect("plain data"));
        let text: String = std::iter::once(header.to_string()).chain(lines).map(|line| line + "\n").collect();
        std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let first: Value = serde_json::from_str(lines.next().unwrap_or_default()).expect("the first line is JSON");
    assert_eq!(first, *header, "{}: made for other configurations; set UPDATE_VECTORS", path.display());
    let trace: Vec<Event> = lines.map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert!(!trace.is_empty(), "{}: no event", path.display());
    if let Err(difference) = replay(&mut build(header), &trace) {
        let (index, recorded, event) = *difference;
        panic!("{}:{}: recorded {recorded:?}, now {event:?}", path.display(), index + 2);
    }
}
