//! One closed enum over all policies.

use crate::baseline::{Batch, Dim, Nvme, SpdkVhost};
use crate::requester::Requester;
use crate::spec::Spec;
use crate::{CintSpec, Decision, HintSources, HoldReason, Reason, SpecError, Stats};
use cint_core::{Barriers, Cint, Event, Hint, Ticket, Tracker};
use vic_core::Vic;

/// Submitter groups of a strict Barrier, and words of 64 commands in the window of each.
type StrictTracker = Tracker<16, 16>;

/// What kind of command completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// A command of an I/O queue.
    #[default]
    Io,
    /// A command of the admin queue.
    Admin,
    /// A command that failed.
    Failed,
}

/// What a shell knows about a command that completes. A policy uses what it understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Commands in flight on this interrupt vector, counting this one.
    pub cif: u32,
    /// What the requester said.
    pub hint: Hint,
    /// What kind of command it was.
    pub class: Class,
    /// What [`AnyPolicy::on_submit`] answered.
    pub ticket: Option<Ticket>,
    /// When the guest's timeslice ends, if the hypervisor tells.
    pub slice_end: Option<u64>,
    /// How many plain commands of an I/O queue completed just before it and are announced with it, or not yet, as it is:
    /// for a device that finds many at once.
    pub before: u16,
}

impl Completion {
    /// The one of those before it after which `left` are left, counting it.
    fn preceding(&self, left: u16) -> Self {
        Self { cif: self.cif.saturating_add(left.into()), slice_end: self.slice_end, ..Self::default() }
    }
}

/// A policy for one interrupt vector, and what it decided so far.
#[derive(Clone, Debug)]
pub struct AnyPolicy {
    spec: Spec,
    tick_hz: u64,
    machine: Machine,
    retired: Option<Box<StrictTracker>>, // of a policy before this one: it knows which tickets were given
    stats: Stats,
}

#[derive(Clone, Debug)]
enum Machine {
    None,
    Nvme(Nvme),
    Batch(Batch),
    Dim(Dim),
    SpdkVhost(SpdkVhost),
    Vic(Vic),
    Cint(Cint, Option<Box<StrictTracker>>, Option<Requester>),
}

impl Machine {
    fn new(spec: &Spec, tick_hz: u64) -> Result<Self, SpecError> {
        Ok(match spec {
            Spec::None => Self::None,
            Spec::Nvme(params) => Self::Nvme(Nvme::new(*params, tick_hz)),
            Spec::Batch => Self::Batch(Batch::default()),
            Spec::Dim => Self::Dim(Dim::new(tick_hz)),
            Spec::SpdkVhost(params) => Self::SpdkVhost(SpdkVhost::new(*params, tick_hz)),
            Spec::Vic(params) => Self::Vic(Vic::new(spec.vic_config(params, tick_hz)?)),
            Spec::Cint(cint) | Spec::Auto(cint) => {
                let config = spec.cint_config(cint, tick_hz)?;
                Self::Cint(Cint::new(config), Self::tracker(cint), Self::requester(spec, tick_hz))
            }
        })
    }

    fn tracker(spec: &CintSpec) -> Option<Box<StrictTracker>> {
        (spec.barrier == Barriers::Strict).then(Box::default)
    }

    fn requester(spec: &Spec, tick_hz: u64) -> Option<Requester> {
        match spec {
            Spec::Auto(cint) => cint.in_flight.map(|threshold| Requester::new(tick_hz, threshold)), // else it has no say
            _ => None,
        }
    }

    #[inline]
    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, hint, class, ticket, slice_end, .. } = *completion;
        match self {
            Self::None => Decision::Deliver(Reason::Always),
            Self::Nvme(nvme) => nvme.on_completion(now, class),
            Self::Batch(batch) => batch.on_completion(now),
            Self::Dim(dim) => dim.on_completion(now),
            Self::SpdkVhost(spdk) => spdk.on_completion(now),
            Self::Vic(vic) => {
                let decision = match slice_end {
                    Some(_) => vic.on_completion_in_slice(now, cif, slice_end),
                    None => vic.on_completion(now, cif),
                };
                match class {
                    Class::Admin | Class::Failed if !decision.is_deliver() => vic.flush(now),
                    _ => decision,
                }
            }
            Self::Cint(cint, tracker, requester) => {
                let may_hold = may_hold(cint, tracker, requester);
                let in_flight = requester.as_mut().map_or(cif, |requester| requester.in_flight(now, cif));
                let hint = match class {
                    _ if !may_hold => Hint::Plain, // it is no hint that delivers
                    Class::Io => hint,
                    Class::Admin | Class::Failed => Hint::Urgent,
                };
                let event = tracker.as_mut().map_or(Event::from(hint), |tracker| tracker.on_completion(ticket, hint));
                let held = cint.held();
                let decision = cint.on_completion(now, event, Some(in_flight));
                match (requester, decision) {
                    (Some(requester), Decision::Hold(_)) => requester.on_hold(cif),
                    (Some(requester), Decision::Deliver(Reason::InFlight)) => requester.on_limit(held),
                    _ => {}
                }
                decision
            }
        }
    }

    /// An interrupt is decided upon, and `left` completions more, of which `last` is the last, are announced by it.
    fn ride(&mut self, now: u64, left: u16, last: &Completion) {
        match self {
            Self::None => {}
            Self::Cint(_, tracker, requester) => {
                if let Some(tracker) = tracker {
                    let _ = tracker.on_completion(last.ticket, last.hint); // whatever it means, it is announced
                }
                if let Some(requester) = requester {
                    requester.on_ride(left.into(), last.cif);
                }
            }
            _ => {
                for left in (0..left).rev() {
                    let _ = self.on_completion(now, &if left > 0 { last.preceding(left) } else { *last });
                }
                self.on_consumed(now);
            }
        }
    }

    fn on_consumed(&mut self, now: u64) {
        match self {
            Self::None => {}
            Self::Nvme(nvme) => nvme.on_consumed(now),
            Self::Batch(batch) => batch.on_consumed(now),
            Self::Dim(dim) => dim.on_consumed(now),
            Self::SpdkVhost(spdk) => spdk.on_consumed(now),
            Self::Vic(vic) => vic.on_consumed(now),
            Self::Cint(cint, ..) => cint.on_consumed(now),
        }
    }

    fn flush(&mut self, now: u64) -> Decision {
        match self {
            Self::None => Decision::Hold(HoldReason::NothingHeld),
            Self::Nvme(nvme) => nvme.flush(now),
            Self::Batch(batch) => batch.flush(now),
            Self::Dim(dim) => dim.flush(now),
            Self::SpdkVhost(spdk) => spdk.flush(now),
            Self::Vic(vic) => vic.flush(now),
            Self::Cint(cint, ..) => cint.flush(now),
        }
    }
}

const fn may_hold(cint: &Cint, tracker: &Option<Box<StrictTracker>>, requester: &Option<Requester>) -> bool {
    match requester {
        Some(requester) => requester.may_hold() || tracker.is_some() || cint.is_storming(),
        None => true,
    }
}

impl AnyPolicy {
    /// A policy for a clock of `tick_hz` ticks per second.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry.
    pub fn new(spec: Spec, tick_hz: u64) -> Result<Self, SpecError> {
        spec.check(tick_hz)?;
        let machine = Machine::new(&spec, tick_hz)?;
        Ok(Self { spec, tick_hz, machine, retired: None, stats: Stats::default() })
    }

    /// What the policy was made from.
    #[must_use]
    pub const fn spec(&self) -> &Spec {
        &self.spec
    }

    /// How often each decision was taken.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Forgets how often each decision was taken.
    pub fn reset_stats(&mut self) {
        self.stats = Stats::default();
    }

    /// Whether the requesters are expected to submit more although what is held is not announced: then the end of a
    /// batch is no reason to hurry. Only `auto` learns that.
    #[must_use]
    pub const fn expects_more(&self) -> bool {
        matches!(&self.machine, Machine::Cint(_, _, Some(requester)) if requester.goes_on())
    }

    /// A command of `group` is submitted. `outstanding`: how many its requesters have submitted and not taken back,
    /// counting it. The ticket, if there is one, goes back with its completion.
    pub fn on_submit(&mut self, group: u8, outstanding: u32) -> Option<Ticket> {
        let Machine::Cint(_, tracker, requester) = &mut self.machine else { return None };
        if let Some(requester) = requester {
            requester.on_submits(1, outstanding);
        }
        tracker.as_mut().and_then(|tracker| tracker.on_submit(group))
    }

    /// Whether it may hold what completes next. If not, nothing need be known of that, nor [`on_submit`](Self::on_submit) be
    /// called, until the next decision; or it need not be asked at all, but told by [`on_passed`](Self::on_passed). So with
    /// `none`, and with `auto` while holding costs throughput or few commands are outstanding.
    #[must_use]
    pub const fn may_hold(&self) -> bool {
        match &self.machine {
            Machine::None => false,
            Machine::Cint(cint, tracker, requester) => may_hold(cint, tracker, requester),
            _ => true,
        }
    }

    /// Whether the shell must call [`on_submit`](Self::on_submit).
    #[must_use]
    pub fn wants_submit(&self) -> bool {
        match &self.machine {
            Machine::Cint(_, tracker, requester) => {
                tracker.is_some() || requester.is_some() || self.spec.hints() != HintSources::NONE
            }
            _ => false,
        }
    }

    /// Whether the shell must call [`on_submit`](Self::on_submit) for each command, as it gets a ticket.
    #[must_use]
    pub const fn wants_each_submit(&self) -> bool {
        matches!(self.machine, Machine::Cint(_, Some(_), _))
    }

    /// So many commands were submitted since the last decision, of which nothing else is known. `outstanding`: as of
    /// [`on_submit`](Self::on_submit), at most. For a policy that does not [want each](Self::wants_each_submit).
    pub fn on_plain_submits(&mut self, count: u32, outstanding: u32) {
        if let (Machine::Cint(_, _, Some(requester)), 1..) = (&mut self.machine, count) {
            requester.on_submits(count, outstanding);
        }
    }

    /// A command completed, and others [before](Completion::before) it: decides about one after the other until one
    /// delivers, as whose interrupt announces them all.
    pub fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        for left in (1..=completion.before).rev() {
            let decision = self.machine.on_completion(now, &completion.preceding(left));
            if decision.is_deliver() {
                self.machine.ride(now, left, completion);
                return self.stats.count(decision);
            }
            let _ = self.stats.count(decision);
        }
        self.stats.count(self.machine.on_completion(now, completion))
    }

    /// While it might [not hold](Self::may_hold) anything, nobody asked: so many commands completed since the last call, all of
    /// them are announced, by so many interrupts, and at most so many were outstanding, submitted and not taken back.
    pub fn on_passed(&mut self, now: u64, completions: u32, interrupts: u16, outstanding: u32) {
        match &mut self.machine {
            Machine::None => {}
            Machine::Cint(cint, _, requester) => {
                cint.on_passed(now, interrupts);
                if let Some(requester) = requester {
                    requester.on_passed(now, completions, outstanding);
                }
            }
            other => other.on_consumed(now),
        }
        self.stats.count_times(Decision::Deliver(Reason::Always), interrupts.into());
    }

    /// When [`on_deadline`](Self::on_deadline) must be called if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        match &self.machine {
            Machine::None | Machine::Batch(_) => None,
            Machine::Nvme(nvme) => nvme.deadline(),
            Machine::Dim(dim) => dim.deadline(),
            Machine::SpdkVhost(spdk) => spdk.deadline(),
            Machine::Vic(vic) => vic.deadline(),
            Machine::Cint(cint, ..) => cint.deadline(),
        }
    }

    /// The deadline has passed, or so the caller believes: early, late and repeated calls are harmless.
    pub fn on_deadline(&mut self, now: u64) -> Decision {
        let decision = match &mut self.machine {
            Machine::None => Decision::Hold(HoldReason::NothingHeld),
            Machine::Nvme(nvme) => nvme.on_deadline(now),
            Machine::Batch(batch) => batch.on_deadline(now),
            Machine::Dim(dim) => dim.on_deadline(now),
            Machine::SpdkVhost(spdk) => spdk.on_deadline(now),
            Machine::Vic(vic) => vic.on_deadline(now),
            Machine::Cint(cint, _, requester) => {
                let held = cint.held();
                let decision = cint.on_deadline(now);
                if let (Some(requester), true) = (requester, decision.is_deliver()) {
                    requester.on_deadline(held);
                }
                decision
            }
        };
        self.stats.count(decision)
    }

    /// Whether the shell must call [`on_batch_end`](Self::on_batch_end) after each poll of its device.
    #[must_use]
    pub fn wants_batch_end(&self) -> bool {
        match &self.machine {
            Machine::Batch(_) | Machine::SpdkVhost(_) => true,
            Machine::Cint(cint, ..) => cint.config().waits_for_batch_end(),
            _ => false,
        }
    }

    /// The device has posted all it had.
    pub fn on_batch_end(&mut self, now: u64) -> Decision {
        let decision = match &mut self.machine {
            Machine::Batch(batch) => batch.on_batch_end(now),
            Machine::SpdkVhost(spdk) => spdk.on_batch_end(now),
            Machine::Cint(cint, ..) => cint.on_batch_end(now),
            _ => return self.on_deadline(now),
        };
        self.stats.count(decision)
    }

    /// Queue stop, reset, migration: announces what is held.
    pub fn flush(&mut self, now: u64) -> Decision {
        let decision = self.machine.flush(now);
        self.stats.count(decision)
    }

    /// The consumer has taken everything that was posted, without an interrupt.
    pub fn on_consumed(&mut self, now: u64) {
        self.machine.on_consumed(now);
    }

    /// The queue was reset: what was submitted and has not completed never will. Tickets given before are not valid, and who
    /// comes may be another than who was learned of.
    pub fn reset_tracking(&mut self) {
        if let Machine::Cint(_, tracker, requester) = &mut self.machine {
            if let Some(tracker) = tracker {
                tracker.reset_tracking();
            }
            *requester = Machine::requester(&self.spec, self.tick_hz);
        }
    }

    /// A command was aborted and will not complete.
    pub fn on_cancel(&mut self, now: u64, ticket: Option<Ticket>) -> Decision {
        match &mut self.machine {
            Machine::Cint(cint, Some(tracker), _) => {
                let decision = cint.on_cancel(now, tracker.cancel(ticket));
                self.stats.count(decision)
            }
            _ => self.flush(now),
        }
    }

    /// The guest has been put on a CPU.
    pub fn on_schedule(&mut self, now: u64) -> Decision {
        self.on_run_state(now, Vic::on_schedule)
    }

    /// The guest is taken off its CPU.
    pub fn on_deschedule(&mut self, now: u64) -> Decision {
        self.on_run_state(now, Vic::on_deschedule)
    }

    fn on_run_state(&mut self, now: u64, tell: fn(&mut Vic, u64) -> Decision) -> Decision {
        match &mut self.machine {
            Machine::Vic(vic) => {
                let decision = tell(vic, now);
                self.stats.count(decision)
            }
            _ => self.flush(now),
        }
    }

    /// Takes another policy, or other parameters, with what is held: a machine of the same kind goes on with it, any
    /// other delivers it and starts anew.
    ///
    /// # Errors
    /// A parameter that this clock cannot carry; then nothing has happened.
    pub fn reconfigure(&mut self, spec: Spec, now: u64) -> Result<Decision, SpecError> {
        let decision = match (&mut self.machine, &spec) {
            (Machine::Vic(vic), Spec::Vic(params)) => {
                let config = spec.vic_config(params, self.tick_hz)?;
                vic.reconfigure(config, now).map_err(|error| spec.wrong(error))?
            }
            (Machine::Cint(cint, tracker, requester), Spec::Cint(params) | Spec::Auto(params))
                if tracker.is_some() == (params.barrier == Barriers::Strict) =>
            {
                let config = spec.cint_config(params, self.tick_hz)?;
                *requester = match (requester.take(), Machine::requester(&spec, self.tick_hz)) {
                    (Some(before), Some(new)) => Some(new.after(before)),
                    (_, new) => new,
                };
                cint.reconfigure(config, now).map_err(|error| spec.wrong(error))?
            }
            _ => {
                let machine = Machine::new(&spec, self.tick_hz)?;
                let mut old = std::mem::replace(&mut self.machine, machine);
                self.keep_tickets(&mut old);
                old.flush(now)
            }
        };
        self.spec = spec;
        Ok(self.stats.count(decision))
    }

    /// A ticket of an older policy is not given again by a newer one, which would take one command for the other.
    fn keep_tickets(&mut self, old: &mut Machine) {
        if let Machine::Cint(_, tracker @ Some(_), _) = old {
            self.retired = tracker.take();
        }
        if let Machine::Cint(_, Some(tracker), _) = &mut self.machine
            && let Some(mut retired) = self.retired.take()
        {
            retired.reset_tracking();
            *tracker = retired;
        }
    }

    /// Completions held: posted and not announced.
    #[must_use]
    pub fn held(&self) -> u64 {
        match &self.machine {
            Machine::None => 0,
            Machine::Nvme(nvme) => nvme.held(),
            Machine::Batch(batch) => batch.held(),
            Machine::Dim(dim) => dim.held(),
            Machine::SpdkVhost(spdk) => spdk.held(),
            Machine::Vic(vic) => vic.held().into(),
            Machine::Cint(cint, ..) => cint.held().into(),
        }
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time; `None`: no such bound.
    #[must_use]
    pub fn max_hold(&self) -> Option<u64> {
        match &self.machine {
            Machine::None => Some(0),
            Machine::Nvme(nvme) => Some(nvme.max_hold()),
            Machine::Dim(dim) => Some(dim.max_hold()),
            Machine::Batch(_) | Machine::SpdkVhost(_) => None,
            Machine::Vic(vic) => vic.config().max_hold(),
            Machine::Cint(cint, ..) => cint.config().max_hold(),
        }
    }
}
