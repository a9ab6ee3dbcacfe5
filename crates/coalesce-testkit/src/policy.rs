//! What a policy must answer to be tested, and what it promises.

/// What the requester said about a command (cinterrupts §3.3, §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// Nothing.
    Plain,
    /// Somebody waits for this command.
    Urgent,
    /// The last command of a batch.
    Barrier,
}

/// What the driver knows about one completed command. A policy uses what it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Commands in flight, counting the one that completes now: at least 1.
    pub cif: u32,
    /// Commands submitted and not reaped, counting the one that completes now: at least 1.
    pub outstanding: u32,
    /// What the requester said.
    pub hint: Hint,
    /// What [`Policy::on_submit`] answered when the command was submitted.
    pub ticket: Option<u64>,
    /// When the guest's timeslice ends, if it is known.
    pub slice_end: Option<u64>,
}

/// What the driver knows about a command that is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Submitter group.
    pub group: u8,
    /// Commands submitted and not reaped, counting this one: at least 1.
    pub outstanding: u32,
}

/// What a policy decides, with the reason it gives. Reasons appear in counter-examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Interrupt now. The interrupt covers all completions that are posted so far.
    Deliver(&'static str),
    /// Interrupt now for the urgent command that completes; what was held stays held.
    DeliverUrgent(&'static str),
    /// No interrupt now.
    Hold(&'static str),
}

impl From<coalesce_decision::Decision> for Decision {
    fn from(decision: coalesce_decision::Decision) -> Self {
        let reason = decision.reason_name();
        match decision {
            coalesce_decision::Decision::Deliver(_) => Self::Deliver(reason),
            coalesce_decision::Decision::DeliverUrgent => Self::DeliverUrgent(reason),
            coalesce_decision::Decision::Hold(_) => Self::Hold(reason),
        }
    }
}

/// At most `window / interval + burst` paced interrupts in any window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Ticks between two interrupts, in the long run.
    pub interval: u64,
    /// Interrupts allowed on top in any window.
    pub burst: u64,
}

/// A latency budget: if every deadline is met, what completions were held for, summed over them, is at every moment at most
/// `share` of what other commands were outstanding for, plus `constant`. The driver knows what was outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// In basis points (1/100 %).
    pub share: u16,
    /// In commands * ticks. After a change of the configuration the largest counts.
    pub constant: u64,
    /// Before this instant the policy may not interrupt, so that what is held until then does not count.
    pub free_until: u64,
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
    /// Reasons of interrupts that the rate bound does not count.
    pub unpaced: &'static [&'static str],
    /// The policy may hold without a deadline while a command is in flight, whose completion ends the hold.
    pub needs_next_completion: bool,
    /// The policy may hold without a deadline until [`Policy::on_batch_end`].
    pub needs_batch_end: bool,
}

/// A policy under test: a machine that takes events and decides about interrupts.
///
/// Time is an argument, in ticks. Four verbs suffice; the others have defaults for policies that lack them, and a
/// [`Mix`](crate::Mix) generates only what is asked for.
pub trait Policy {
    /// A command finished. The completion is visible to the consumer already.
    fn on_completion(&mut self, now: u64, completion: Completion) -> Decision;

    /// The instant at which [`on_deadline`](Self::on_deadline) must be called if nothing happened before.
    fn deadline(&self) -> Option<u64>;

    /// The deadline passed, or the caller believes so: early and repeated calls must do no harm.
    fn on_deadline(&mut self, now: u64) -> Decision;

    /// Stop, reset, migration: deliver everything held.
    fn flush(&mut self, now: u64) -> Decision;

    /// What the policy promises in its present configuration.
    fn promises(&self) -> Promises;

    /// How many completions the policy believes it holds, if it counts.
    fn held(&self) -> Option<u64> {
        None
    }

    /// For how long completions were held and commands outstanding, each summed over the commands, if the policy counts.
    fn spent(&self) -> Option<(u64, u64)> {
        None
    }

    /// A command was submitted; the ticket comes back with its completion.
    fn on_submit(&mut self, _now: u64, _submission: Submission) -> Option<u64> {
        None
    }

    /// A command was aborted: it will not complete.
    fn cancel(&mut self, now: u64, _ticket: Option<u64>) -> Decision {
        self.flush(now)
    }

    /// The controller was reset: no ticket is valid any more.
    fn reset_tracking(&mut self) {}

    /// The device has posted everything it had.
    fn on_batch_end(&mut self, _now: u64) -> Decision {
        Decision::Hold("unsupported")
    }

    /// The consumer has taken everything that was posted, without an interrupt.
    fn on_consumed(&mut self, _now: u64) {}

    /// The guest was put on a CPU.
    fn on_schedule(&mut self, _now: u64) -> Decision {
        Decision::Hold("unsupported")
    }

    /// The guest was taken off its CPU.
    fn on_deschedule(&mut self, _now: u64) -> Decision {
        Decision::Hold("unsupported")
    }

    /// The configuration changes to the policy's own number `choice`; `None`: refused, nothing changed.
    fn reconfigure(&mut self, _choice: u8, _now: u64) -> Option<Decision> {
        None
    }

    /// Something the policy found wrong with itself; reported as a violation.
    fn fault(&self) -> Option<String> {
        None
    }
}
