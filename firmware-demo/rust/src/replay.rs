//! Replays the golden traces on the cores.

use crate::board::NEVER;
use crate::decision::{Decision, numbers};
use crate::owned::Owned;
use budget_core::Budget;
use cint_core::{Cint, Hint, StormParams, Ticket, Tracker};
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
            budget: self.budget.try_into().ok()?,
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
    Cint(Cint, Tracker<GROUPS, 1>),
    Budget(Budget),
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
        CINT => first.and_then(Config::cint).map(|config| Machine::Cint(Cint::new(config), Tracker::new())),
        BUDGET => first.and_then(Config::budget).map(|config| Machine::Budget(Budget::new(config))),
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
    let decision = match &mut replay.machine {
        Machine::None => None,
        Machine::Vic(vic) => replay_vic(vic, event, replay.configs),
        Machine::Cint(cint, tracker) => {
            if event.call == ON_SUBMIT {
                let ticket = tracker.on_submit(event.choice);
                answer.ticket = ticket.map_or(NEVER, Ticket::to_number);
            }
            replay_cint(cint, tracker, event, replay.configs, replay.are_strict)
        }
        Machine::Budget(budget) => replay_budget(budget, event, replay.configs),
    };
    let (number, reason) = match decision {
        Some(Some(decision)) => numbers(Some(decision)),
        Some(None) => (REFUSED, ""),
        None => numbers(None),
    };
    (answer.decision, answer.reason, answer.reason_length) = (number.into(), reason.as_ptr(), reason.len() as u32);
    answer.deadline = match &replay.machine {
        Machine::None => None,
        Machine::Vic(vic) => vic.deadline(),
        Machine::Cint(cint, _) => cint.deadline(),
        Machine::Budget(budget) => budget.deadline(),
    }
    .unwrap_or(NEVER);
}

/// What the requester said.
fn hint(event: &Event) -> Hint {
    [Hint::Plain, Hint::Barrier, Hint::Urgent][usize::from(event.hint % 3)]
}

/// `None`: there is nothing to decide. `Some(None)`: the configuration is refused.
fn replay_vic(vic: &mut Vic, event: &Event, configs: &[Config]) -> Option<Option<Decision>> {
    let now = event.now;
    let decision = match event.call {
        ON_COMPLETION => vic.on_completion_in_slice(now, event.cif, some(event.slice_end)),
        ON_DEADLINE => vic.on_deadline(now),
        ON_CONSUMED => {
            vic.on_consumed(now);
            return None;
        }
        ON_SCHEDULE => vic.on_schedule(now),
        ON_DESCHEDULE => vic.on_deschedule(now),
        FLUSH => vic.flush(now),
        RECONFIGURE => {
            let config = configs.get(usize::from(event.choice)).and_then(Config::vic)?;
            return Some(vic.reconfigure(config, now).ok());
        }
        _ => return None,
    };
    Some(Some(decision))
}

/// As [`replay_vic`].
fn replay_cint(
    cint: &mut Cint,
    tracker: &mut Tracker<GROUPS, 1>,
    event: &Event,
    configs: &[Config],
    are_strict: bool,
) -> Option<Option<Decision>> {
    let now = event.now;
    let ticket = some(event.ticket).filter(|_| are_strict).map(Ticket::from_number);
    let decision = match event.call {
        ON_COMPLETION => cint.on_completion(now, tracker.on_completion(ticket, hint(event)), Some(event.cif)),
        ON_DEADLINE => cint.on_deadline(now),
        ON_BATCH_END => cint.on_batch_end(now),
        ON_CONSUMED => {
            cint.on_consumed(now);
            return None;
        }
        ON_CANCEL => cint.on_cancel(now, tracker.cancel(ticket)),
        RESET_TRACKING => {
            tracker.reset_tracking();
            return None;
        }
        FLUSH => cint.flush(now),
        RECONFIGURE => {
            let config = configs.get(usize::from(event.choice)).and_then(Config::cint)?;
            return Some(cint.reconfigure(config, now).ok());
        }
        _ => return None,
    };
    Some(Some(decision))
}

/// As [`replay_vic`].
fn replay_budget(budget: &mut Budget, event: &Event, configs: &[Config]) -> Option<Option<Decision>> {
    let now = event.now;
    let decision = match event.call {
        ON_SUBMIT => {
            budget.on_submit(now);
            return None;
        }
        ON_COMPLETION => budget.on_completion(now, hint(event).into(), event.cif, event.outstanding),
        ON_DEADLINE => budget.on_deadline(now),
        ON_CONSUMED => {
            budget.on_consumed(now);
            return None;
        }
        ON_CANCEL => budget.on_cancel(now, Hint::Plain.into()),
        RESET_TRACKING => {
            budget.forget();
            return None;
        }
        FLUSH => budget.flush(now),
        RECONFIGURE => {
            let config = configs.get(usize::from(event.choice)).and_then(Config::budget)?;
            return Some(budget.reconfigure(config, now).ok());
        }
        _ => return None,
    };
    Some(Some(decision))
}
