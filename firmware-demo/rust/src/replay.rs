//! Replays the golden traces on the cores.

use crate::board::NEVER;
use crate::decision::numbers;
use crate::owned::Owned;
use budget_core::{Auto, Budget, Share};
use cint_core::{Cint, StormParams, Strict};
use coalesce_decision::{Completion, Decision, Hint, Mark, Policy, Submission, Ticket};
use vic_core::Vic;

const GROUPS: usize = 2;

// `enum vector_call`
const ON_SUBMIT: u8 = 0;
const ON_COMPLETION: u8 = 1;
const ON_DEADLINE: u8 = 2;
const ON_BATCH_END: u8 = 3;
const ON_CONSUMED: u8 = 4;
const ON_SCHEDULE: u8 = 5;
const ON_DESCHEDULE: u8 = 6;
const ON_CANCEL: u8 = 7;
const RESET_TRACKING: u8 = 8;
const FLUSH: u8 = 9;
const RECONFIGURE: u8 = 10;

const REFUSED: u8 = 4; // a decision beside those of `decision.rs`

// `enum vector_machine`
const VIC: u32 = 0;
const CINT: u32 = 1;
const BUDGET: u32 = 2;
const AUTO: u32 = 3;

#[repr(C)]
struct Trace {
    file: [u8; 32],
    machine: u32,
    groups: u32,
    configs: u32,
    events: u32,
}

#[repr(C)]
struct Config {
    tick_hz: u64,
    max_hold_ns: u64,
    epoch_ns: u64,
    margin_ns: u64,
    delta_ns: u64,
    storm_max_rate: u64,
    cif_threshold: u32,
    iops_threshold: u32,
    max_skip: u32,
    live_clamp: u32,
    thr: u32,
    storm_shift: u32,
    in_flight: u32,
    ooo: u32,
    budget: u32,
    reserved: u32,
}

#[repr(C)]
struct Event {
    now: u64,
    ticket: u64,
    slice_end: u64,
    deadline: u64,
    cif: u32,
    outstanding: u32,
    call: u8,
    hint: u8,
    decision: u8,
    choice: u8,
    reason: [u8; 20],
}

#[repr(C)]
struct Answer {
    ticket: u64,
    deadline: u64,
    reason: *const u8,
    reason_length: u32,
    decision: u32,
}

/// The number, unless it means none.
fn some(number: u64) -> Option<u64> {
    (number != NEVER).then_some(number)
}

impl Config {
    /// `None`: the machine refuses the configuration.
    fn vic(&self) -> Option<vic_core::Config> {
        vic_core::Config::new(vic_core::Params {
            tick_hz: self.tick_hz,
            cif_threshold: self.cif_threshold.try_into().ok()?,
            iops_threshold: self.iops_threshold,
            epoch_ns: self.epoch_ns,
            max_skip: self.max_skip.try_into().ok()?,
            max_hold_ns: some(self.max_hold_ns),
            live_clamp: self.live_clamp != 0,
            margin_ns: self.margin_ns,
        })
        .ok()
    }

    /// As [`vic`](Self::vic).
    fn budget(&self) -> Option<budget_core::Config> {
        budget_core::Config::new(budget_core::Params {
            tick_hz: self.tick_hz,
            budget: Share::basis_points(self.budget.try_into().ok()?),
            max_hold_ns: self.max_hold_ns,
            thr: self.thr.try_into().ok()?,
            ooo: self.ooo != 0,
            storm: self.storm()?,
        })
        .ok()
    }

    /// The storm guard; `None`: refused.
    fn storm(&self) -> Option<Option<StormParams>> {
        let shift = self.storm_shift.try_into().ok()?;
        Some((self.storm_max_rate > 0).then_some(StormParams { max_rate: self.storm_max_rate, shift }))
    }

    /// As [`vic`](Self::vic).
    fn cint(&self) -> Option<cint_core::Config> {
        let in_flight = self.in_flight.try_into().ok()?;
        cint_core::Config::new(cint_core::Params {
            tick_hz: self.tick_hz,
            delta_ns: self.delta_ns,
            thr: self.thr.try_into().ok()?,
            ooo: self.ooo != 0,
            max_hold_ns: some(self.max_hold_ns),
            storm: self.storm()?,
            in_flight: (in_flight > 0).then_some(in_flight),
        })
        .ok()
    }
}

enum Machine {
    None,
    Vic(Vic),
    Cint(Strict<Cint, GROUPS, 1>),
    Budget(Budget),
    Auto(Auto),
}

struct Replay {
    machine: Machine,
    configs: &'static [Config],
    are_strict: bool, // Barriers
}

static REPLAY: Owned<Replay> = Owned::new(Replay { machine: Machine::None, configs: &[], are_strict: false });

/// Begins a trace: a new machine.
///
/// # Safety
/// `trace` and the configurations at `configs` are valid, and stay valid during the replay.
#[unsafe(no_mangle)]
unsafe extern "C" fn replay_begin(trace: *const Trace, configs: *const Config) {
    // SAFETY: the caller's promise; only the main loop calls this.
    let (trace, replay) = unsafe { (&*trace, REPLAY.get()) };
    // SAFETY: the caller's promise.
    replay.configs = unsafe { core::slice::from_raw_parts(configs, trace.configs as usize) };
    replay.are_strict = trace.groups as usize == GROUPS;
    let first = replay.configs.first();
    let machine = match trace.machine {
        VIC => first.and_then(Config::vic).map(|config| Machine::Vic(Vic::new(config))),
        CINT => first.and_then(Config::cint).map(|config| Machine::Cint(Strict::new(Cint::new(config)))),
        BUDGET => first.and_then(Config::budget).map(|config| Machine::Budget(Budget::new(config))),
        AUTO => first.and_then(Config::budget).map(|config| Machine::Auto(Auto::new(config))),
        _ => None,
    };
    replay.machine = machine.unwrap_or(Machine::None);
}

/// Answers an event.
///
/// # Safety
/// `event` is valid, and `answer` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn replay(event: *const Event, answer: *mut Answer) {
    // SAFETY: the caller's promise; only the main loop calls this.
    let (event, answer, replay) = unsafe { (&*event, &mut *answer, REPLAY.get()) };
    let config = replay.configs.get(usize::from(event.choice));
    let are_strict = replay.are_strict;
    let (decision, deadline) = match &mut replay.machine {
        Machine::None => (None, None),
        Machine::Vic(vic) => {
            let again = config.and_then(Config::vic).filter(|_| event.call == RECONFIGURE);
            let again = again.map(|config| vic.reconfigure(config, event.now).ok());
            (again.or_else(|| call(vic, event, false, answer)), vic.deadline())
        }
        Machine::Cint(strict) => {
            let again = config.and_then(Config::cint).filter(|_| event.call == RECONFIGURE);
            let again = again.map(|config| strict.get_mut().reconfigure(config, event.now).ok());
            (again.or_else(|| call(strict, event, are_strict, answer)), strict.deadline())
        }
        Machine::Budget(budget) => {
            let again = config.and_then(Config::budget).filter(|_| event.call == RECONFIGURE);
            let again = again.map(|config| budget.reconfigure(config, event.now).ok());
            (again.or_else(|| call(budget, event, false, answer)), budget.deadline())
        }
        Machine::Auto(auto) => {
            let again = config.and_then(Config::budget).filter(|_| event.call == RECONFIGURE);
            let again = again.map(|config| auto.reconfigure(config, event.now).ok());
            (again.or_else(|| call(auto, event, false, answer)), auto.deadline())
        }
    };
    let (number, reason) = match decision {
        Some(Some(decision)) => numbers(Some(decision)),
        Some(None) => (REFUSED, ""),
        None => numbers(None),
    };
    (answer.decision, answer.reason, answer.reason_length) = (number.into(), reason.as_ptr(), reason.len() as u32);
    answer.deadline = deadline.unwrap_or(NEVER);
}

/// What the requester said.
fn hint(event: &Event) -> Hint {
    [Hint::Plain, Hint::Barrier, Hint::Urgent][usize::from(event.hint % 3)]
}

/// Every call but for a new configuration. `None`: there is nothing to decide.
fn call(policy: &mut impl Policy, event: &Event, are_strict: bool, answer: &mut Answer) -> Option<Option<Decision>> {
    let now = event.now;
    let ticket = some(event.ticket).filter(|_| are_strict).map(Ticket::from_number);
    let decision = match event.call {
        ON_SUBMIT => {
            let mark = policy.on_submit(now, &Submission { group: event.choice, ..Submission::ALONE });
            answer.ticket = mark.ticket.map_or(NEVER, Ticket::to_number);
            return None;
        }
        ON_COMPLETION => {
            let mark = Mark { ticket, ..Mark::of(hint(event)) };
            let (outstanding, slice_end) = (event.outstanding, some(event.slice_end));
            policy.on_completion(now, &Completion { mark, outstanding, slice_end, ..Completion::with_cif(event.cif) })
        }
        ON_DEADLINE => policy.on_deadline(now),
        ON_BATCH_END => policy.on_batch_end(now),
        ON_CONSUMED => {
            policy.on_consumed(now);
            return None;
        }
        ON_SCHEDULE => policy.on_schedule(now),
        ON_DESCHEDULE => policy.on_deschedule(now),
        ON_CANCEL => policy.on_cancel(now, Mark { ticket, ..Mark::default() }),
        RESET_TRACKING => {
            policy.reset_tracking();
            return None;
        }
        FLUSH => policy.flush(now),
        _ => return None,
    };
    Some(Some(decision))
}
