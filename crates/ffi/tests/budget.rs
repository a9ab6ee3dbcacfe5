//! The functions of a latency budget beside the core, with a regulator and without, over long random runs: the same
//! decisions, reasons, deadlines and numbers after every call.

use budget_core::{
    Auto, Budget, Completion, Config, ConfigError, Decision, Event, Mark, Params, Policy, Share, Spent, StormParams,
    Submission,
};
use cint_core::{Ticket, Tracker};
use coalesce::auto::*;
use coalesce::budget::*;
use coalesce::error::coalesce_error;
use coalesce::hint::*;
use coalesce::instant::COALESCE_NEVER;
use coalesce::reason::*;
use coalesce::status::*;
use coalesce::strict::*;
use std::collections::BTreeSet;
use std::ptr::null_mut;

/// Pseudo-random numbers, the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const TICK_HZ: u64 = 1_000_000;

/// The parameters for Rust and for C, written down twice.
fn parameters() -> Vec<(Params, coalesce_budget_config)> {
    let params = Params { tick_hz: TICK_HZ, ..Params::DEFAULT };
    let config = coalesce_budget_config {
        struct_size: 48,
        budget: 500,
        tick_hz: TICK_HZ,
        max_hold_ns: 2_000_000,
        storm_max_rate: 0,
        storm_shift: 7,
        thr: 256,
        ooo: params.ooo.into(),
        reserved: 0,
    };
    let storm = Some(StormParams { max_rate: 10_000, shift: 5 });
    vec![
        (params, config),
        (
            Params { budget: Share::percent(50), max_hold_ns: 300_000, thr: 4, ooo: !params.ooo, ..params },
            coalesce_budget_config { budget: 5_000, max_hold_ns: 300_000, thr: 4, ooo: (!params.ooo).into(), ..config },
        ),
        (Params { budget: Share::basis_points(1), ooo: true, storm, ..params }, {
            coalesce_budget_config { budget: 1, ooo: 1, storm_max_rate: 10_000, storm_shift: 5, ..config }
        }),
        (Params { tick_hz: TICK_HZ / 2, ..params }, coalesce_budget_config { tick_hz: TICK_HZ / 2, ..config }),
    ]
}

/// A latency budget, alone or with its regulator.
enum Core {
    Budget(Budget),
    Auto(Auto),
}

impl Core {
    fn budget(&self) -> &Budget {
        match self {
            Self::Budget(budget) => budget,
            Self::Auto(auto) => auto.budget(),
        }
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Self::Budget(budget) => budget,
            Self::Auto(auto) => auto,
        }
    }

    fn reconfigure(&mut self, config: Config, now: u64) -> Result<Decision, ConfigError> {
        match self {
            Self::Budget(budget) => budget.reconfigure(config, now),
            Self::Auto(auto) => auto.reconfigure(config, now),
        }
    }
}

/// A machine twice, and the commands that it knows of.
struct Pair {
    core: Core,
    state: Box<coalesce_auto_state>, // or the beginning of it
    barriers: Option<Barriers>,
    now: u64,
    in_flight: Vec<u64>, // tickets
    unreaped: u32,
    seen: BTreeSet<&'static str>, // the reasons
}

/// Strict Barriers, for Rust and for C.
struct Barriers {
    tracker: Tracker<1, 1>,
    window: Vec<u64>,
}

impl Barriers {
    fn new() -> Self {
        let mut window = vec![0; coalesce_window_size(64) / 8];
        // SAFETY: the memory is ours.
        assert_eq!(unsafe { coalesce_window_init(window.as_mut_ptr(), window.len() * 8, 64, null_mut()) }, COALESCE_OK);
        Self { tracker: Tracker::new(), window }
    }

    /// The ticket of a submission.
    fn on_submit(&mut self) -> u64 {
        // SAFETY: the window is ours.
        let ticket = unsafe { coalesce_window_on_submit(self.window.as_mut_ptr()) };
        assert_eq!(ticket, self.tracker.on_submit(0).map_or(COALESCE_NO_TICKET, Ticket::to_number));
        ticket
    }
}

impl Pair {
    fn new((params, config): (Params, coalesce_budget_config), are_strict: bool, is_regulated: bool) -> Self {
        let mut state =
            Box::new(coalesce_auto_state { budget: coalesce_budget_state { opaque: [0; 14] }, opaque: [0; 11] });
        let auto = &raw mut *state;
        // SAFETY: all of it is ours.
        let status = unsafe {
            if is_regulated {
                coalesce_auto_init(auto, size_of::<coalesce_auto_state>(), &raw const config, null_mut())
            } else {
                let size = size_of::<coalesce_budget_state>();
                coalesce_budget_init(auto.cast(), size, &raw const config, null_mut())
            }
        };
        assert_eq!(status, COALESCE_OK);
        let config = Config::new(params).unwrap();
        let core = if is_regulated { Core::Auto(Auto::new(config)) } else { Core::Budget(Budget::new(config)) };
        let barriers = are_strict.then(Barriers::new);
        Self { core, state, barriers, now: 0, in_flight: Vec::new(), unreaped: 0, seen: BTreeSet::new() }
    }

    /// The state, for the functions of a budget.
    fn budget(&mut self) -> *mut coalesce_budget_state {
        (&raw mut *self.state).cast()
    }

    /// Both decide the same; then the consumer sees the interrupt, most of the time.
    fn decided(&mut self, core: Decision, status: coalesce_status, random: &mut Random) {
        let expected = match core {
            Decision::Deliver(reason) => (COALESCE_DELIVER, reason as u32),
            Decision::DeliverUrgent => (COALESCE_DELIVER_URGENT, COALESCE_REASON_URGENT),
            Decision::Hold(reason) => (COALESCE_HOLD, reason as u32),
        };
        // SAFETY: the state is ours.
        let reason = unsafe { coalesce_budget_reason(&raw const self.state.budget) };
        assert_eq!((status, reason), expected, "at {}", self.now);
        self.seen.insert(if core == Decision::DeliverUrgent { "urgent alone" } else { core.reason_name() });
        if core.is_deliver() && random.below(8) > 0 {
            self.unreaped = 0;
        }
    }

    fn told(&self, status: coalesce_status) {
        assert_eq!(status, COALESCE_OK, "at {}", self.now);
    }

    /// Commands that are submitted and not reaped, or 0.
    fn outstanding(&self, random: &mut Random) -> u32 {
        if random.below(20) == 0 { 0 } else { self.in_flight.len() as u32 + self.unreaped }
    }

    /// One of those in flight; sometimes one that was never submitted.
    fn take(&mut self, random: &mut Random) -> Option<u64> {
        let which = random.below(self.in_flight.len() as u64 + 1) as usize;
        if self.in_flight.is_empty() || random.below(100) == 0 {
            self.barriers.is_some().then_some(1 << 40)
        } else {
            Some(self.in_flight.swap_remove(which.min(self.in_flight.len() - 1)))
        }
    }

    fn complete(&mut self, random: &mut Random) {
        let cif = self.in_flight.len() as u32;
        let Some(ticket) = self.take(random) else { return };
        self.unreaped += 1;
        let outstanding = self.outstanding(random);
        let (said, number) = match random.below(100) {
            0 => (Event::Urgent, COALESCE_HINT_URGENT),
            1..4 => (Event::Barrier, COALESCE_HINT_BARRIER),
            4 => (Event::Barrier, COALESCE_HINT_FAILED_BARRIER),
            5 => (Event::Error, 4 + random.below(9) as u32),
            _ => (Event::Plain, COALESCE_HINT_PLAIN),
        };
        let (auto, now) = (&raw mut *self.state, self.now);
        let is_regulated = matches!(self.core, Core::Auto(_));
        let (event, status) = match &mut self.barriers {
            None => {
                // SAFETY: the state is ours.
                let status = unsafe {
                    if is_regulated {
                        coalesce_auto_on_completion(auto, now, number, cif, outstanding)
                    } else {
                        coalesce_budget_on_completion(auto.cast(), now, number, cif, outstanding)
                    }
                };
                (said, status)
            }
            Some(Barriers { tracker, window }) => {
                let window = window.as_mut_ptr();
                // SAFETY: both are ours.
                let status = unsafe {
                    if is_regulated {
                        coalesce_auto_on_completion_strict(auto, window, now, ticket, number, cif, outstanding)
                    } else {
                        coalesce_budget_on_completion_strict(auto.cast(), window, now, ticket, number, cif, outstanding)
                    }
                };
                let of_core = (ticket != COALESCE_NO_TICKET).then(|| Ticket::from_number(ticket));
                let event = match tracker.on_completion(of_core, said) {
                    Event::Plain if number == COALESCE_HINT_FAILED_BARRIER => Event::Urgent,
                    event => event,
                };
                (event, status)
            }
        };
        let core = self.core.policy().on_completion(now, &Completion { cif, outstanding, ..Completion::of(event) });
        self.decided(core, status, random);
    }

    fn cancel(&mut self, random: &mut Random) {
        let Some(ticket) = self.take(random) else { return };
        let number = if random.below(3) == 0 { COALESCE_HINT_BARRIER } else { COALESCE_HINT_PLAIN };
        let said = if number == COALESCE_HINT_BARRIER { Event::Barrier } else { Event::Plain };
        let (event, window) = match &mut self.barriers {
            None => (said, null_mut()),
            Some(Barriers { tracker, window }) => {
                let ticket = (ticket != COALESCE_NO_TICKET).then(|| Ticket::from_number(ticket));
                (tracker.on_completion(ticket, said), window.as_mut_ptr())
            }
        };
        let core = self.core.policy().on_cancel(self.now, Mark { event, ..Mark::default() });
        // SAFETY: the state is ours, and the window.
        let status = unsafe { coalesce_budget_on_cancel(self.budget(), window, self.now, ticket, number) };
        self.decided(core, status, random);
    }

    fn step(&mut self, parameters: &[(Params, coalesce_budget_config)], random: &mut Random) {
        self.now += match random.below(200) {
            0 => random.below(1_000_000_000),
            1..10 => random.below(4_000),
            _ => random.below(20),
        };
        let (auto, state, now) = (&raw mut *self.state, self.budget(), self.now);
        let is_regulated = matches!(self.core, Core::Auto(_));
        // SAFETY: all of it is ours.
        unsafe {
            match random.below(100) {
                0..45 => {
                    self.in_flight.push(self.barriers.as_mut().map_or(COALESCE_NO_TICKET, Barriers::on_submit));
                    let count = if random.below(20) == 0 { 3 } else { 1 };
                    self.core.policy().on_submit(now, &Submission { before: count - 1, ..Submission::default() });
                    self.told(coalesce_budget_on_submits(state, now, count));
                }
                45..90 => self.complete(random),
                90..95 => {
                    let core = self.core.policy().on_deadline(now);
                    self.decided(core, coalesce_budget_on_deadline(state, now), random);
                }
                95 => {
                    self.unreaped = 0;
                    self.core.policy().on_consumed(now);
                    self.told(coalesce_budget_on_consumed(state, now));
                }
                96 if random.below(2) == 0 => self.cancel(random),
                96 => {
                    let core = self.core.policy().flush(now);
                    self.decided(core, coalesce_budget_flush(state, now), random);
                }
                97 if random.below(20) == 0 => {
                    self.core.policy().reset_tracking();
                    self.told(if is_regulated { coalesce_auto_forget(auto) } else { coalesce_budget_forget(state) });
                }
                98 if random.below(4) == 0 => {
                    let (params, config) = parameters[random.below(parameters.len() as u64) as usize];
                    let mut error = coalesce_error { field: 0, because: 0, value: 0, min: 0, max: 0, because_value: 0 };
                    let status = if is_regulated {
                        coalesce_auto_reconfigure(auto, &raw const config, now, &raw mut error)
                    } else {
                        coalesce_budget_reconfigure(state, &raw const config, now, &raw mut error)
                    };
                    match self.core.reconfigure(Config::new(params).unwrap(), now) {
                        Ok(core) => self.decided(core, status, random),
                        Err(refused) => {
                            assert_eq!((status, error), (COALESCE_E_CONFIG, refused.into()));
                            self.seen.insert("refused");
                        }
                    }
                }
                99 if random.below(20) == 0 => self.now -= random.below(1_000).min(self.now),
                _ => {}
            }
        }
        self.compare();
        self.wake_in_time(random);
    }

    /// What can be asked.
    fn compare(&self) {
        let (state, core) = (&raw const self.state.budget, self.core.budget());
        let mut info = coalesce_budget_info::default();
        // SAFETY: all of it is ours.
        unsafe {
            assert_eq!(coalesce_budget_get_info(state, &raw mut info, size_of::<coalesce_budget_info>()), COALESCE_OK);
            assert_eq!(coalesce_budget_deadline(state), core.deadline().unwrap_or(COALESCE_NEVER));
        }
        let config = core.config();
        let Spent { held: held_time, outstanding: outstanding_time, .. } = core.spent().unwrap();
        let expected = coalesce_budget_info {
            held: core.held(),
            is_storming: core.is_storming().into(),
            max_hold: config.max_hold().unwrap(),
            learning: config.learning_of(outstanding_time),
            held_time,
            outstanding_time,
        };
        assert_eq!(info, expected, "at {}", self.now);
    }

    /// Most deadlines are met; a few are late.
    fn wake_in_time(&mut self, random: &mut Random) {
        if let Some(deadline) = self.core.budget().deadline().filter(|_| random.below(3) == 0) {
            self.now = self.now.max(deadline) + if random.below(10) == 0 { random.below(100) } else { 0 };
            let core = self.core.policy().on_deadline(self.now);
            // SAFETY: the state is ours.
            let status = unsafe { coalesce_budget_on_deadline(self.budget(), self.now) };
            self.decided(core, status, random);
            self.compare();
        }
    }
}

#[test]
fn c_decides_as_the_core_does() {
    let parameters = parameters();
    let mut seen = BTreeSet::new();
    for seed in 0..120 {
        let mut random = Random(seed);
        let mut pair = Pair::new(parameters[seed as usize % parameters.len()], seed % 3 == 0, seed >= 60);
        for _ in 0..5_000 {
            pair.step(&parameters, &mut random);
        }
        seen.append(&mut pair.seen);
    }
    let expected = "barrier, budget, cancelled, company, count, early, error, flush, low_cif, max_hold, nothing_held, probe, \
                    reconfigured, refused, silence, slowdown, storm, urgent, urgent alone";
    assert_eq!(Vec::from_iter(seen).join(", "), expected);
}
