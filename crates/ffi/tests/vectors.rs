//! The golden traces in `vectors/`, replayed through the exported functions: the same decisions, reasons and deadlines.

use coalesce::auto::*;
use coalesce::budget::*;
use coalesce::cint::*;
use coalesce::error::coalesce_error;
use coalesce::field::*;
use coalesce::hint::*;
use coalesce::instant::COALESCE_NEVER;
use coalesce::reason::*;
use coalesce::status::*;
use coalesce::strict::*;
use coalesce::vic::*;
use coalesce_testkit::{
    Completion, Decision, Event, HoldReason, Mark, Policy, Promises, Reason, Submission, Tested, Ticket, replay,
};
use serde_json::Value;
use std::path::Path;
use std::ptr::null_mut;

fn decision(status: coalesce_status, reason: u32) -> Decision {
    let delivered = || Reason::from_number(reason).expect("a reason to deliver");
    match status {
        COALESCE_DELIVER => Decision::Deliver(delivered()),
        COALESCE_DELIVER_URGENT if delivered() == Reason::Urgent => Decision::DeliverUrgent,
        COALESCE_HOLD => Decision::Hold(HoldReason::from_number(reason).expect("a reason to hold")),
        error => panic!("status {error}, reason {reason}"),
    }
}

fn instant(deadline: u64) -> Option<u64> {
    (deadline != COALESCE_NEVER).then_some(deadline)
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().expect("a number")
}

/// A machine in C as a policy of the test kit: the names of its types and functions, the calls that have the time alone, and
/// what else is its own.
macro_rules! machine {
    (
        $machine:ident, $config_of:ident $(, $windows:ident)?;
        $state:ident, $config:ident, $info:ident,
        $init:path, $reconfigure:path, $reason:path, $deadline:path, $on_consumed:path, $get_info:path;
        $($call:ident => $function:path),+; $($own:item)+
    ) => {
        #[derive(Debug)]
        struct $machine {
            state: Box<$state>,
            configs: Vec<$config>,
            $($windows: Vec<Vec<u64>>,)? // of each group; none: Barriers are relaxed
        }

        impl $machine {
            fn new(header: &Value) -> Self {
                let configurations = header["configurations"].as_array().expect("a list");
                let configs: Vec<_> = configurations.iter().map($config_of).collect();
                // SAFETY: a state is plain numbers.
                let mut state = Box::new(unsafe { std::mem::zeroed::<$state>() });
                // SAFETY: all of it is ours.
                let status = unsafe { $init(&raw mut *state, size_of::<$state>(), &raw const configs[0], null_mut()) };
                assert_eq!(status, COALESCE_OK);
                $(let $windows = (0..header["groups"].as_u64().unwrap_or(0)).map(|_| window(header)).collect();)?
                Self { state, configs, $($windows)? }
            }

            fn decide(&mut self, call: impl FnOnce(*mut $state) -> coalesce_status) -> Decision {
                let status = call(&raw mut *self.state);
                // SAFETY: the state is ours.
                decision(status, unsafe { $reason(&raw const *self.state) })
            }
        }

        impl Policy for $machine {
            $(fn $call(&mut self, now: u64) -> Decision {
                // SAFETY: the state is ours.
                self.decide(|state| unsafe { $function(state, now) })
            })+

            fn deadline(&self) -> Option<u64> {
                // SAFETY: the state is ours.
                instant(unsafe { $deadline(&raw const *self.state) })
            }

            fn on_consumed(&mut self, now: u64) {
                // SAFETY: the state is ours.
                assert_eq!(unsafe { $on_consumed(&raw mut *self.state, now) }, COALESCE_OK);
            }

            fn held(&self) -> u32 {
                let mut info = $info::default();
                // SAFETY: all of it is ours.
                let status = unsafe { $get_info(&raw const *self.state, &raw mut info, size_of::<$info>()) };
                assert_eq!(status, COALESCE_OK);
                info.held
            }

            $($own)+
        }

        impl Tested for $machine {
            fn promises(&self) -> Promises {
                Promises::default()
            }

            fn reconfigure(&mut self, choice: u8, now: u64) -> Option<Decision> {
                let config = *self.configs.get(usize::from(choice))?;
                let mut error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
                // SAFETY: all of it is ours.
                let status = unsafe { $reconfigure(&raw mut *self.state, &raw const config, now, &raw mut error) };
                if status == COALESCE_E_CONFIG {
                    assert_eq!(error.field, COALESCE_FIELD_TICK_HZ);
                    return None;
                }
                Some(self.decide(|_| status))
            }
        }
    };
}

fn vic_config(value: &Value) -> coalesce_vic_config {
    coalesce_vic_config {
        struct_size: size_of::<coalesce_vic_config>() as u32,
        tick_hz: number(value, "tick_hz"),
        cif_threshold: number(value, "cif_threshold") as u32,
        epoch_ns: number(value, "epoch_ns"),
        max_hold_ns: value["max_hold_ns"].as_u64().unwrap_or(COALESCE_NEVER),
        margin_ns: number(value, "margin_ns"),
        iops_threshold: number(value, "iops_threshold") as u32,
        max_skip: number(value, "max_skip") as u32,
        live_clamp: value["live_clamp"].as_bool().expect("a switch").into(),
        reserved: 0,
    }
}

machine! {
    VicMachine, vic_config;
    coalesce_vic_state, coalesce_vic_config, coalesce_vic_info,
    coalesce_vic_init, coalesce_vic_reconfigure, coalesce_vic_reason, coalesce_vic_deadline, coalesce_vic_on_consumed,
    coalesce_vic_get_info;
    on_deadline => coalesce_vic_on_deadline,
    flush => coalesce_vic_flush,
    on_schedule => coalesce_vic_on_schedule,
    on_deschedule => coalesce_vic_on_deschedule;

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        self.decide(|state| match completion.slice_end {
            // SAFETY: the state is ours.
            Some(end) => unsafe { coalesce_vic_on_completion_in_slice(state, now, completion.cif, end) },
            // SAFETY: the state is ours.
            None => unsafe { coalesce_vic_on_completion(state, now, completion.cif) },
        })
    }
}

fn cint_config(value: &Value) -> coalesce_cint_config {
    coalesce_cint_config {
        struct_size: size_of::<coalesce_cint_config>() as u32,
        tick_hz: number(value, "tick_hz"),
        thr: number(value, "thr") as u32,
        delta_ns: number(value, "delta_ns"),
        max_hold_ns: value["max_hold_ns"].as_u64().unwrap_or(COALESCE_NEVER),
        storm_max_rate: value["storm_max_rate"].as_u64().unwrap_or(0),
        storm_shift: value["storm_shift"].as_u64().unwrap_or(7) as u32,
        in_flight: value["in_flight"].as_u64().unwrap_or(0) as u32,
        ooo: value["ooo"].as_bool().expect("a switch").into(),
        reserved: 0,
    }
}

machine! {
    CintMachine, cint_config, windows;
    coalesce_cint_state, coalesce_cint_config, coalesce_cint_info,
    coalesce_cint_init, coalesce_cint_reconfigure, coalesce_cint_reason, coalesce_cint_deadline, coalesce_cint_on_consumed,
    coalesce_cint_get_info;
    on_deadline => coalesce_cint_on_deadline,
    flush => coalesce_cint_flush,
    on_batch_end => coalesce_cint_on_batch_end;

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let hint = hint(completion.event());
        if self.windows.is_empty() {
            // SAFETY: the state is ours.
            return self.decide(|state| unsafe { coalesce_cint_on_completion(state, now, hint, completion.cif) });
        }
        let (window, ticket) = self.window(completion.mark.ticket);
        // SAFETY: state and window are ours.
        self.decide_strict(|state| unsafe {
            coalesce_cint_on_completion_strict(state, window, now, ticket, hint, completion.cif)
        })
    }

    fn on_submit(&mut self, _: u64, &Submission { group, .. }: &Submission) -> Mark {
        let window = self.windows.get_mut(usize::from(group)).map_or(null_mut(), |window| window.as_mut_ptr());
        // SAFETY: the window is ours.
        let ticket = unsafe { coalesce_window_on_submit(window) };
        let ticket = (ticket != COALESCE_NO_TICKET).then_some(u64::from(group) << GROUP_SHIFT | ticket);
        Mark { ticket: ticket.map(Ticket::from_number), ..Mark::default() }
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        let (window, ticket) = self.window(mark.ticket.filter(|_| !self.windows.is_empty()));
        // SAFETY: state and window are ours.
        self.decide_strict(|state| unsafe { coalesce_cint_on_cancel(state, window, now, ticket, hint(mark.event)) })
    }

    fn reset_tracking(&mut self) {
        for window in &mut self.windows {
            // SAFETY: the window is ours.
            assert_eq!(unsafe { coalesce_window_reset(window.as_mut_ptr()) }, COALESCE_OK);
        }
    }
}

/// The position of the group in a traced ticket.
const GROUP_SHIFT: u32 = 56;

impl CintMachine {
    /// The window and the ticket in it; null: the ticket's group has none.
    fn window(&mut self, ticket: Option<Ticket>) -> (*mut u64, u64) {
        let Some(ticket) = ticket.map(Ticket::to_number) else { return (null_mut(), COALESCE_NO_TICKET) };
        let window = self.windows.get_mut((ticket >> GROUP_SHIFT) as usize);
        (window.map_or(null_mut(), |window| window.as_mut_ptr()), ticket & !(u64::MAX << GROUP_SHIFT))
    }

    /// A null window gives an error, although the machine has decided.
    fn decide_strict(&mut self, call: impl FnOnce(*mut coalesce_cint_state) -> coalesce_status) -> Decision {
        self.decide(|state| match call(state) {
            // SAFETY: the state is ours.
            COALESCE_E_NULL if unsafe { coalesce_cint_reason(state) } == COALESCE_REASON_ERROR => COALESCE_DELIVER,
            COALESCE_E_NULL => COALESCE_HOLD,
            status => status,
        })
    }
}

const fn hint(event: coalesce_decision::Event) -> u32 {
    match event {
        coalesce_decision::Event::Plain => COALESCE_HINT_PLAIN,
        coalesce_decision::Event::Barrier => COALESCE_HINT_BARRIER,
        coalesce_decision::Event::Urgent | coalesce_decision::Event::Error => COALESCE_HINT_URGENT,
    }
}

fn window(header: &Value) -> Vec<u64> {
    let commands = number(header, "window") as u32;
    let mut window = vec![0; coalesce_window_size(commands) / 8];
    // SAFETY: the memory is ours.
    let status = unsafe { coalesce_window_init(window.as_mut_ptr(), window.len() * 8, commands, null_mut()) };
    assert_eq!(status, COALESCE_OK);
    window
}

fn budget_config(value: &Value) -> coalesce_budget_config {
    coalesce_budget_config {
        struct_size: size_of::<coalesce_budget_config>() as u32,
        tick_hz: number(value, "tick_hz"),
        budget: number(value, "budget") as u32,
        max_hold_ns: number(value, "max_hold_ns"),
        storm_max_rate: value["storm_max_rate"].as_u64().unwrap_or(0),
        storm_shift: value["storm_shift"].as_u64().unwrap_or(7) as u32,
        thr: number(value, "thr") as u32,
        ooo: value["ooo"].as_bool().expect("a switch").into(),
        reserved: 0,
    }
}

machine! {
    BudgetMachine, budget_config;
    coalesce_budget_state, coalesce_budget_config, coalesce_budget_info,
    coalesce_budget_init, coalesce_budget_reconfigure, coalesce_budget_reason, coalesce_budget_deadline, coalesce_budget_on_consumed,
    coalesce_budget_get_info;
    on_deadline => coalesce_budget_on_deadline,
    flush => coalesce_budget_flush;

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, outstanding, .. } = *completion;
        // SAFETY: the state is ours.
        self.decide(|state| unsafe { coalesce_budget_on_completion(state, now, hint(completion.event()), cif, outstanding) })
    }

    fn on_submit(&mut self, now: u64, submission: &Submission) -> Mark {
        // SAFETY: the state is ours.
        let status = unsafe { coalesce_budget_on_submits(&raw mut *self.state, now, submission.count()) };
        assert_eq!(status, COALESCE_OK);
        Mark::default()
    }

    fn on_cancel(&mut self, now: u64, mark: Mark) -> Decision {
        // SAFETY: the state is ours.
        self.decide(|state| unsafe { coalesce_budget_on_cancel(state, null_mut(), now, COALESCE_NO_TICKET, hint(mark.event)) })
    }

    fn reset_tracking(&mut self) {
        // SAFETY: the state is ours.
        assert_eq!(unsafe { coalesce_budget_forget(&raw mut *self.state) }, COALESCE_OK);
    }
}

/// The functions of a budget, on the budget of a state with its regulator.
mod of_auto {
    use super::*;

    pub unsafe fn deadline(state: *const coalesce_auto_state) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_deadline(&raw const (*state).budget) }
    }

    pub unsafe fn reason(state: *const coalesce_auto_state) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_reason(&raw const (*state).budget) }
    }

    pub unsafe fn get_info(
        state: *const coalesce_auto_state,
        info: *mut coalesce_budget_info,
        size: usize,
    ) -> coalesce_status {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_get_info(&raw const (*state).budget, info, size) }
    }

    pub unsafe fn on_deadline(state: *mut coalesce_auto_state, now: u64) -> coalesce_status {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_on_deadline(&raw mut (*state).budget, now) }
    }

    pub unsafe fn flush(state: *mut coalesce_auto_state, now: u64) -> coalesce_status {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_flush(&raw mut (*state).budget, now) }
    }

    pub unsafe fn on_consumed(state: *mut coalesce_auto_state, now: u64) -> coalesce_status {
        // SAFETY: the caller's promise.
        unsafe { coalesce_budget_on_consumed(&raw mut (*state).budget, now) }
    }
}

machine! {
    AutoMachine, budget_config;
    coalesce_auto_state, coalesce_budget_config, coalesce_budget_info,
    coalesce_auto_init, coalesce_auto_reconfigure, of_auto::reason, of_auto::deadline, of_auto::on_consumed, of_auto::get_info;
    on_deadline => of_auto::on_deadline,
    flush => of_auto::flush;

    fn on_completion(&mut self, now: u64, completion: &Completion) -> Decision {
        let Completion { cif, outstanding, .. } = *completion;
        // SAFETY: the state is ours.
        self.decide(|state| unsafe { coalesce_auto_on_completion(state, now, hint(completion.event()), cif, outstanding) })
    }
}

/// The number of events in the traces of one machine, all of which were decided the same.
fn replay_all<P: Tested>(machine: &str, build: impl Fn(&Value) -> P) -> usize {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut events = 0;
    for entry in std::fs::read_dir(directory).expect("vectors") {
        let path = entry.expect("vectors").path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue; // no policy's
        }
        let text = std::fs::read_to_string(&path).expect("a trace");
        let mut lines = text.lines();
        let header: Value = serde_json::from_str(lines.next().expect("a header")).expect("JSON");
        if header["machine"] != machine {
            continue;
        }
        let trace: Vec<Event> = lines.map(|line| serde_json::from_str(line).expect("an event")).collect();
        events += trace.len();
        if let Err(difference) = replay(&mut build(&header), &trace) {
            let (index, recorded, event) = *difference;
            panic!("{}:{}: recorded {recorded:?}, now {event:?}", path.display(), index + 2);
        }
    }
    events
}

#[test]
fn vic_decides_the_same() {
    assert!(replay_all("vic", VicMachine::new) > 1000);
}

#[test]
fn cint_decides_the_same() {
    assert!(replay_all("cint", CintMachine::new) > 1000);
}

#[test]
fn budget_decides_the_same() {
    assert!(replay_all("budget", BudgetMachine::new) > 1000);
}

#[test]
fn auto_decides_the_same() {
    assert!(replay_all("auto", AutoMachine::new) > 1000);
}
