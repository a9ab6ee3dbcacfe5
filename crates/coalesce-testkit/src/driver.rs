//! Plays operations to a policy and checks every answer against a model of the device and its consumer.

use crate::{
    Budget, Completion, Decision, Hint, HoldReason, Mark, Op, Promises, Reason, Submission, Tested, Ticket, Urgent,
    When,
};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};

/// How the shell around the policy behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// Every deadline is met on time, and clock jumps are noticed at once: time bounds are checked.
    Punctual,
    /// `on_deadline` is called only where an operation says so: early, late or never.
    Careless,
}

/// A rule that a policy broke, with the events that led to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, in a few words.
    pub rule: &'static str,
    /// What happened, against what was allowed.
    pub detail: String,
    /// The last events, one a line: time, event, decision, completions held.
    pub trace: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n\n{}", self.rule, self.detail, self.trace)
    }
}

/// The same text as `Display`: test frameworks print `Debug`.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A completion that no interrupt has covered yet.
struct Held {
    posted: u128, // in elapsed ticks
    urgent: bool,
}

struct InFlight {
    ticket: Option<Ticket>,
}

/// How many events of the trace a violation shows.
const TRACE_MAX: usize = 40;
/// A budget has shares of this.
const SHARE_OF: u128 = 10_000;
/// How many finished tickets are remembered, to be used a second time.
const STALE_MAX: usize = 16;

/// Drives one policy. [`run`] is all a test needs; use the driver itself to play events of your own.
pub struct Driver<P> {
    policy: P,
    shell: Shell,
    now: u64,
    elapsed: u128,      // time that passed; jumps back do not take from it
    reconfigured: u128, // when the present promises began
    latest: u64,        // before the clock went back; a policy may take it for the time
    slice_end: Option<u64>,
    in_flight: VecDeque<InFlight>,
    stale: VecDeque<Ticket>,
    held: VecDeque<Held>,
    reaping: bool,
    covered: u32,      // and not reaped
    held_time: u128,   // that a budget has to pay for, in commands * ticks
    earned_time: u128, // by which it pays: the same in parts of SHARE_OF
    spent_time: u128,  // by all commands, in commands * ticks
    constant: Constant,
    promises: Promises, // before the present call
    interrupts: u64,
    completions: u64,
    paced: u64,      // since the configuration last changed
    paced_min: i128, // min over paced interrupts j of j * interval - elapsed
    trace: VecDeque<String>,
}

/// What a budget pays besides: of each field the largest that was promised.
#[derive(Clone, Copy, Default)]
struct Constant {
    first: u64,
    growth: u16, // in parts of SHARE_OF
    max: u64,
}

impl Constant {
    fn promise(&mut self, budget: &Budget) {
        self.first = self.first.max(budget.constant);
        self.growth = self.growth.max(budget.growth.as_basis_points());
        self.max = self.max.max(budget.constant_max);
    }

    fn after(self, spent_time: u128) -> u128 {
        let grown = u128::from(self.first) + spent_time * u128::from(self.growth) / SHARE_OF;
        grown.min(self.max.into())
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Commands that finished.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
}

/// Plays `ops` to `policy` from the time `start` on, then lets everything in flight complete, and checks every rule on
/// the way.
///
/// # Errors
/// The first rule that was broken.
pub fn run<P: Tested>(policy: P, shell: Shell, start: u64, ops: &[Op]) -> Result<Summary, Violation> {
    let mut driver = Driver::new(policy, shell, start);
    for op in ops {
        driver.apply(*op)?;
    }
    driver.finish()
}

/// The mark of a command that was aborted.
fn carrying(ticket: Option<Ticket>) -> Mark {
    Mark { ticket, ..Mark::default() }
}

impl<P: Tested> Driver<P> {
    /// A device at rest.
    pub fn new(policy: P, shell: Shell, start: u64) -> Self {
        let mut driver = Self {
            promises: Promises::default(),
            policy,
            shell,
            now: start,
            elapsed: 0,
            reconfigured: 0,
            latest: start,
            slice_end: None,
            in_flight: VecDeque::new(),
            stale: VecDeque::new(),
            held: VecDeque::new(),
            reaping: true,
            covered: 0,
            held_time: 0,
            earned_time: 0,
            spent_time: 0,
            constant: Constant::default(),
            interrupts: 0,
            completions: 0,
            paced: 0,
            paced_min: i128::MAX,
            trace: VecDeque::new(),
        };
        driver.renew_promises();
        driver
    }

    fn renew_promises(&mut self) {
        self.promises = self.policy.promises();
        if let Some(budget) = &self.promises.budget {
            self.constant.promise(budget);
        }
    }

    /// The policy, to look at it.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Plays one operation.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn apply(&mut self, op: Op) -> Result<(), Violation> {
        match op {
            Op::Advance(ticks) => self.advance(ticks),
            Op::Back(ticks) => {
                if self.shell == Shell::Punctual {
                    self.call_deadline()?; // the policy knows the time before the jump
                }
                self.latest = self.latest.max(self.now);
                self.now = self.now.saturating_sub(ticks);
                self.note(format_args!("clock jumps back by {ticks}"));
                match self.shell {
                    Shell::Punctual => self.call_deadline(),
                    Shell::Careless => Ok(()),
                }
            }
            Op::Submit { group, count } => (0..count).try_for_each(|_| self.submit(group)),
            Op::Complete { which, hint, count } => (0..count).try_for_each(|_| self.complete(which, hint)),
            Op::Cancel { which } => {
                let Some(command) = self.take(which) else { return Ok(()) };
                let decision = self.policy.on_cancel(self.now, carrying(command.ticket));
                self.retire(command.ticket);
                self.decided("cancel", decision, None)
            }
            Op::BogusTicket { number, cancel } => {
                let stale = self.stale.get(number as usize % STALE_MAX).copied();
                let ticket = Some(stale.unwrap_or(Ticket::from_number(number)));
                if !cancel {
                    return self.finish_command(ticket, Hint::Plain);
                }
                let decision = self.policy.on_cancel(self.now, carrying(ticket));
                self.decided("cancel, bogus ticket", decision, None)
            }
            Op::ResetTracking => {
                for command in &mut self.in_flight {
                    self.stale.extend(command.ticket.take());
                }
                self.policy.reset_tracking();
                self.note(format_args!("reset_tracking"));
                Ok(())
            }
            Op::Deadline(when) => {
                let due = self.policy.deadline().unwrap_or(self.now).max(self.now);
                match when {
                    When::Now => {}
                    When::OnTime => self.move_to(due),
                    When::Late(by) => self.advance(due.saturating_add(by) - self.now)?,
                }
                self.call_deadline()
            }
            Op::BatchEnd => {
                let decision = self.policy.on_batch_end(self.now);
                self.decided("on_batch_end", decision, None)?;
                if self.policy.deadline().is_none() && !self.held.is_empty() && self.policy.promises().needs_batch_end {
                    return Err(self
                        .violation("nothing is held for ever", "held after on_batch_end, without a deadline".into()));
                }
                Ok(())
            }
            Op::Consumed => {
                self.held.clear();
                self.covered = 0;
                self.policy.on_consumed(self.now);
                self.note(format_args!("on_consumed"));
                self.check_state()
            }
            Op::Reaping(reaping) => {
                self.reaping = reaping;
                self.covered = if reaping { 0 } else { self.covered };
                self.note(format_args!("the consumer reaps {}", if reaping { "at once" } else { "later" }));
                Ok(())
            }
            Op::Flush => {
                let decision = self.policy.flush(self.now);
                self.decided("flush", decision, None)?;
                self.check_empty("flush")
            }
            Op::Schedule => {
                let decision = self.policy.on_schedule(self.now);
                self.decided("on_schedule", decision, None)?;
                self.check_empty("on_schedule")
            }
            Op::Deschedule => {
                let decision = self.policy.on_deschedule(self.now);
                self.decided("on_deschedule", decision, None)?;
                self.check_empty("on_deschedule")
            }
            Op::Slice(ticks) => {
                self.slice_end = ticks.map(|ticks| self.now.saturating_add(ticks));
                Ok(())
            }
            Op::Reconfigure(choice) => match self.policy.reconfigure(choice, self.now) {
                Some(decision) => {
                    (self.paced, self.paced_min) = (0, i128::MAX);
                    self.check_bounds()?;
                    self.reconfigured = self.elapsed;
                    self.decided("reconfigure", decision, None)
                }
                None => {
                    self.note(format_args!("reconfigure to {choice}: refused"));
                    self.check_state()
                }
            },
        }
    }

    /// Lets every command in flight complete, calls the end of the batch, meets the last deadlines, and flushes.
    ///
    /// # Errors
    /// The rule that was broken.
    pub fn finish(mut self) -> Result<Summary, Violation> {
        while !self.in_flight.is_empty() {
            self.complete(0, Hint::Plain)?;
        }
        if self.policy.promises().needs_batch_end {
            self.apply(Op::BatchEnd)?;
        }
        while let Some(deadline) = self.policy.deadline() {
            self.move_to(deadline.max(self.now));
            self.call_deadline()?;
        }
        if !self.held.is_empty() {
            return Err(self.violation(
                "nothing is held for ever",
                "all is quiet, there is no deadline, and completions are held".into(),
            ));
        }
        self.apply(Op::Flush)?;
        Ok(Summary { completions: self.completions, interrupts: self.interrupts })
    }

    fn advance(&mut self, ticks: u64) -> Result<(), Violation> {
        let end = self.now.saturating_add(ticks);
        while let (Shell::Punctual, Some(deadline)) = (self.shell, self.policy.deadline()) {
            if deadline > end {
                break;
            }
            self.move_to(deadline.max(self.now));
            self.call_deadline()?;
        }
        self.move_to(end);
        self.check_bounds()
    }

    fn move_to(&mut self, instant: u64) {
        let elapsed = instant - self.now;
        self.spent_time += u128::from(self.outstanding()) * u128::from(elapsed);
        if let Some(budget) = self.promises.budget {
            let free = budget.free_until.min(instant).saturating_sub(self.now);
            self.held_time += self.held.len() as u128 * u128::from(elapsed - free);
            let others = self.outstanding() - self.held.len() as u32;
            self.earned_time += u128::from(budget.share.as_basis_points()) * u128::from(others) * u128::from(elapsed);
        }
        self.elapsed += u128::from(elapsed);
        self.now = instant;
    }

    fn submit(&mut self, group: u8) -> Result<(), Violation> {
        let outstanding = self.outstanding().saturating_add(1);
        let Mark { ticket, .. } =
            self.policy.on_submit(self.now, &Submission { group, outstanding, ..Submission::ALONE });
        match ticket.map(Ticket::to_number) {
            Some(ticket) => self.note(format_args!("on_submit(group {group}) = ticket {ticket:#x}")),
            None => self.note(format_args!("submit")),
        }
        self.in_flight.push_back(InFlight { ticket });
        self.check_state()
    }

    /// Commands submitted and not reaped.
    fn outstanding(&self) -> u32 {
        let certain = self.in_flight.len() + self.held.len();
        u32::try_from(certain).map_or(u32::MAX, |certain| certain.saturating_add(self.covered))
    }

    /// An interrupt covers the newest completions.
    fn cover(&mut self, count: usize) {
        self.held.truncate(self.held.len().saturating_sub(count));
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.covered = if self.reaping { 0 } else { self.covered.saturating_add(count) };
    }

    fn take(&mut self, which: u8) -> Option<InFlight> {
        let index = usize::from(which).checked_rem(self.in_flight.len())?;
        self.in_flight.remove(index)
    }

    fn complete(&mut self, which: u8, hint: Hint) -> Result<(), Violation> {
        if self.in_flight.is_empty() {
            self.submit(0)?;
        }
        let ticket = self.take(which).and_then(|command| command.ticket);
        self.finish_command(ticket, hint)?;
        self.retire(ticket);
        Ok(())
    }

    fn retire(&mut self, ticket: Option<Ticket>) {
        self.stale.extend(ticket);
        self.stale.drain(..self.stale.len().saturating_sub(STALE_MAX));
    }

    fn finish_command(&mut self, ticket: Option<Ticket>, hint: Hint) -> Result<(), Violation> {
        let cif = u32::try_from(self.in_flight.len()).map_or(u32::MAX, |n| n.saturating_add(1));
        let outstanding = self.outstanding().saturating_add(1);
        let mark = Mark { ticket, ..Mark::of(hint) };
        let completion = Completion { mark, outstanding, slice_end: self.slice_end, ..Completion::with_cif(cif) };
        self.completions += 1;
        self.held.push_back(Held { posted: self.elapsed, urgent: hint == Hint::Urgent });
        let decision = self.policy.on_completion(self.now, &completion);
        let mut event = format!("on_completion(cif {cif}, {hint:?}");
        if !self.reaping {
            let _ = write!(event, ", outstanding {outstanding}");
        }
        if let Some(ticket) = ticket.map(Ticket::to_number) {
            let _ = write!(event, ", ticket {ticket:#x}");
        }
        if let Some(slice_end) = self.slice_end {
            let _ = write!(event, ", slice ends {slice_end}");
        }
        self.decided(&(event + ")"), decision, Some(hint))
    }

    fn call_deadline(&mut self) -> Result<(), Violation> {
        let (before, held) = (self.policy.deadline(), self.held.len());
        let now = self.now;
        let decision = self.policy.on_deadline(now);
        self.decided("on_deadline", decision, None)?;
        match (before, decision) {
            (Some(deadline), Decision::Hold(reason)) if deadline <= now && held > 0 => Err(self.violation(
                "a deadline that is met ends the hold",
                format!("the deadline was {deadline}, on_deadline({now}) answered Hold({})", reason.name()),
            )),
            (Some(deadline), Decision::Deliver(reason)) if deadline > now.max(self.latest) => Err(self.violation(
                "an early on_deadline is harmless",
                format!("the deadline was {deadline}, on_deadline({now}) answered Deliver({})", reason.name()),
            )),
            (None, Decision::Deliver(reason)) => Err(self.violation(
                "a spurious on_deadline is harmless",
                format!("there was no deadline, on_deadline({now}) answered Deliver({})", reason.name()),
            )),
            _ => self.repeat_deadline(decision),
        }
    }

    /// A second call at the same instant changes nothing.
    fn repeat_deadline(&mut self, first: Decision) -> Result<(), Violation> {
        let before = self.policy.deadline();
        let second = self.policy.on_deadline(self.now);
        let after = self.policy.deadline();
        let holds = |decision| matches!(decision, Decision::Hold(_));
        if holds(first) && second != first || !holds(second) || after != before {
            let detail = format!("{first:?} and deadline {before:?}, then {second:?} and deadline {after:?}");
            return Err(self.violation("a repeated on_deadline is harmless", detail));
        }
        Ok(())
    }

    /// Applies a decision to the model. `completing` is the hint of the command that completes in this very call.
    fn decided(&mut self, event: &str, decision: Decision, completing: Option<Hint>) -> Result<(), Violation> {
        let may_wait = match self.promises.urgent {
            Urgent::MayWait => true,
            Urgent::Interrupts => false,
            Urgent::InterruptsUnlessStorm => decision == Decision::Hold(HoldReason::Storm),
        };
        let reason = match decision {
            Decision::Hold(reason) if completing == Some(Hint::Urgent) && !may_wait => {
                self.note(format_args!("{event:<44} {decision:?}"));
                return Err(self.violation(
                    "nobody who is marked urgent waits",
                    format!("{event} answered Hold({})", reason.name()),
                ));
            }
            Decision::Hold(_) => None,
            Decision::Deliver(reason) => {
                let empty = self.held.is_empty();
                self.check_bounds()?;
                self.cover(self.held.len());
                if empty {
                    self.note(format_args!("{event:<44} {decision:?}"));
                    return Err(self.violation(
                        "no interrupt is spurious",
                        format!("{event} answered {decision:?} with nothing held"),
                    ));
                }
                Some(reason)
            }
            Decision::DeliverUrgent => {
                if completing != Some(Hint::Urgent) {
                    self.note(format_args!("{event:<44} {decision:?}"));
                    return Err(self.violation(
                        "only an urgent completion interrupts alone",
                        format!("{event} answered {decision:?}"),
                    ));
                }
                self.check_bounds()?;
                self.cover(1);
                Some(Reason::Urgent)
            }
        };
        self.note(format_args!("{event:<44} {decision:?}"));
        if let Some(reason) = reason {
            self.interrupts += 1;
            self.check_rate(reason)?;
        }
        self.check_state()
    }

    /// Interrupts i and j: (i - j + 1) * interval <= elapsed between them + burst * interval.
    fn check_rate(&mut self, reason: Reason) -> Result<(), Violation> {
        let Promises { rate, unpaced, .. } = self.policy.promises();
        let Some(rate) = rate.filter(|_| !unpaced.contains(&reason)) else { return Ok(()) };
        let interval = i128::from(rate.interval);
        let here = i128::from(self.paced) * interval - self.elapsed.cast_signed();
        self.paced_min = self.paced_min.min(here);
        self.paced += 1;
        let excess = here + interval - self.paced_min - i128::from(rate.burst) * interval;
        if excess > 0 {
            return Err(
                self.violation("the interrupt rate is bounded", format!("{excess} ticks too early for {rate:?}"))
            );
        }
        Ok(())
    }

    fn check_bounds(&self) -> Result<(), Violation> {
        self.check_budget()?;
        let (Shell::Punctual, Some(bound), Some(first)) = (self.shell, self.promises.hold_max, self.held.front())
        else {
            return Ok(());
        };
        let waited = self.elapsed - first.posted.max(self.reconfigured);
        if waited > u128::from(bound) {
            return Err(self.violation(
                "no completion waits longer than promised",
                format!("one waited {waited} ticks, promised are {bound}"),
            ));
        }
        Ok(())
    }

    fn check_budget(&self) -> Result<(), Violation> {
        let (Shell::Punctual, Some(budget)) = (self.shell, self.promises.budget) else { return Ok(()) };
        let paid = self.earned_time / SHARE_OF + self.constant.after(self.spent_time);
        if self.held_time > paid {
            return Err(self.violation(
                "holding costs no more than the budget",
                format!("{} command ticks were held, {budget:?} pays for {paid}", self.held_time),
            ));
        }
        Ok(())
    }

    fn check_empty(&mut self, event: &'static str) -> Result<(), Violation> {
        if self.held.is_empty() {
            return Ok(());
        }
        Err(self.violation("a flush covers everything", format!("{event}; completions left held: {}", self.held.len())))
    }

    /// What must hold after every call.
    fn check_state(&mut self) -> Result<(), Violation> {
        self.renew_promises();
        if let Some(fault) = self.policy.fault() {
            return Err(self.violation("the policy agrees with itself", fault));
        }
        let held = self.policy.held();
        if held as usize != self.held.len() {
            return Err(self.violation(
                "completions = covered + held",
                format!("the policy counts {held} held, {} are", self.held.len()),
            ));
        }
        let promises = self.promises;
        match self.policy.deadline() {
            Some(deadline) if self.held.is_empty() => {
                Err(self.violation("no deadline without need", format!("nothing is held, the deadline is {deadline}")))
            }
            None if !(self.held.is_empty()
                || promises.needs_batch_end
                || promises.needs_next_completion && !self.in_flight.is_empty()) =>
            {
                let urgent = self.held.iter().filter(|held| held.urgent).count();
                let (held, in_flight) = (self.held.len(), self.in_flight.len());
                let detail = format!("{held} held ({urgent} urgent), {in_flight} in flight, no deadline");
                Err(self.violation("nothing is held for ever", detail))
            }
            _ => self.check_bounds(),
        }
    }

    fn note(&mut self, event: fmt::Arguments<'_>) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        let deadline = self.policy.deadline().map_or(String::from("-"), |deadline| deadline.to_string());
        let line = format!(
            "{:>12}  {:>3} in flight {:>3} held  deadline {deadline:<12} {event}",
            self.now,
            self.in_flight.len(),
            self.held.len()
        );
        self.trace.push_back(line);
    }

    fn violation(&self, rule: &'static str, detail: String) -> Violation {
        let trace = self.trace.iter().map(|line| format!("{line}\n")).collect();
        Violation { rule, detail, trace }
    }
}
