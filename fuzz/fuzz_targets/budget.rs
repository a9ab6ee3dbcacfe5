//! A latency budget with arbitrary parameters, and arbitrary calls with arbitrary arguments: it agrees with its reference
//! wherever the arguments can be true, nothing panics and no interrupt is lost wherever they cannot, and where they are
//! true every rule of the test kit holds, the budget among them.
#![no_main]

#[path = "../../crates/budget-core/tests/machine/mod.rs"]
mod machine;
#[path = "../../crates/budget-core/tests/reference/mod.rs"]
mod reference;

use arbitrary::Arbitrary;
use budget_core::{Budget, Config, Decision, Event, Params, Share, StormParams};
use coalesce_testkit::{
    Completion, Driver, Hint, Lockstep, Mark, Op, Policy as _, Shell, Submission, Tested as _, Ticket, When,
};
use libfuzzer_sys::fuzz_target;
use machine::{ALLOWANCES, Machine};
use reference::Reference;

#[derive(Arbitrary, Debug)]
struct Input {
    configurations: [Parameters; 3],
    calls: Vec<Call>,
}

#[derive(Arbitrary, Debug)]
struct Parameters {
    tick_hz: Number,
    budget: u16,
    max_hold_ns: Number,
    thr: u16,
    ooo: bool,
    storm: Option<(Number, u8)>,
    sound: u8,
}

/// Numbers that are often sensible, and can be anything.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u8),
    Kilo(u16),
    Mega(u16),
    Any(u64),
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Self::Small(n) => n.into(),
            Self::Kilo(n) => u64::from(n) * 1_000,
            Self::Mega(n) => u64::from(n) * 1_000_000,
            Self::Any(n) => n,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Call {
    Complete { event: u8, cif: u32, outstanding: u32 },
    Submit { outstanding: u32 },
    Cancel { is_bogus: bool },
    Wait { ticks: Number },
    Tick { ticks: u8 },
    Back { ticks: u32 },
    Deadline,
    Reaping { at_once: bool },
    Consumed,
    Flush,
    Forget,
    Reconfigure { choice: u8 },
}

impl Parameters {
    /// With `sound` bits set, fields are as they should be: or else hardly any parameters would be accepted.
    fn params(&self) -> Params {
        let keep = |bit: u8| self.sound >> bit & 1 == 1;
        let storm = self.storm.map(|(rate, shift)| match keep(3) {
            true => StormParams { max_rate: 600 + rate.get() % 100_000, shift: 5 + shift % 4 },
            false => StormParams { max_rate: rate.get(), shift },
        });
        Params {
            tick_hz: if keep(0) { 1_000_000 } else { self.tick_hz.get() },
            budget: Share::basis_points(if keep(1) { 1 + self.budget % 5_000 } else { self.budget }),
            max_hold_ns: if keep(2) { 2_000_000 } else { self.max_hold_ns.get() },
            thr: if keep(4) { self.thr } else { 256 },
            ooo: self.ooo,
            storm,
        }
    }
}

/// The configurations, the allowances, and one that does not exist.
const CHOICES: u8 = (3 + ALLOWANCES.len() + 1) as u8;
/// More than any number that can be true.
const MANY: u32 = 20_000;
/// A wait after which the deadline is met, so that no age reaches its end.
const LONG: u64 = 1 << 20;

/// A ticket that nobody gave.
fn bogus(is_any: bool) -> Option<Ticket> {
    is_any.then_some(Ticket::from_number(0))
}

/// The machine beside its reference. Numbers may be wrong, but not impossible.
fn in_lockstep(choice: &[Params], calls: &[Call]) {
    let mut both = Lockstep::new(Machine::new(choice), Reference::new(choice));
    let mut now = 0_u64;
    for call in calls {
        match *call {
            Call::Complete { event, cif, outstanding } => {
                let (cif, outstanding) = (1 + cif % MANY, outstanding % MANY);
                let hint = [Hint::Plain, Hint::Plain, Hint::Urgent, Hint::Barrier][usize::from(event % 4)];
                let mark = Mark { ticket: bogus(event > 250), ..Mark::of(hint) };
                let _ = both.on_completion(now, &Completion { mark, outstanding, ..Completion::with_cif(cif) });
            }
            Call::Submit { outstanding } => {
                let _ = both.on_submit(now, &Submission { outstanding: outstanding % MANY, ..Submission::ALONE });
            }
            Call::Cancel { is_bogus } => {
                let _ = both.on_cancel(now, Mark { ticket: bogus(is_bogus), ..Mark::default() });
            }
            Call::Tick { ticks } => now = now.saturating_add(ticks.into()),
            Call::Wait { ticks } => {
                now = now.saturating_add(ticks.get());
                if ticks.get() > LONG {
                    let _ = both.on_deadline(now);
                }
            }
            Call::Back { ticks } => now = now.saturating_sub(ticks.into()),
            Call::Deadline => {
                now = now.max(both.deadline().unwrap_or(now));
                let _ = both.on_deadline(now);
            }
            Call::Reaping { .. } => {}
            Call::Consumed => both.on_consumed(now),
            Call::Flush => _ = both.flush(now),
            Call::Forget => both.reset_tracking(),
            Call::Reconfigure { choice } => _ = both.reconfigure(choice % CHOICES, now),
        }
        assert_eq!(both.fault(), None, "{call:?} at {now}");
    }
}

/// The machine in a device where everything is as it says, by the rules of the test kit.
fn by_the_rules(choice: &[Params], calls: &[Call]) {
    for shell in [Shell::Punctual, Shell::Careless] {
        let mut driver = Driver::new(Machine::new(choice), shell, 0);
        for call in calls {
            let op = match *call {
                Call::Complete { event, cif, outstanding } => {
                    let hint = [Hint::Plain, Hint::Plain, Hint::Urgent, Hint::Barrier][usize::from(event % 4)];
                    match event {
                        251.. => Op::BogusTicket { number: 0, cancel: false },
                        _ => Op::Complete { which: cif as u8, hint, count: 1 + outstanding as u8 % 16 },
                    }
                }
                Call::Submit { outstanding } => Op::Submit { group: 0, count: 1 + outstanding as u8 % 64 },
                Call::Cancel { is_bogus: true } => Op::BogusTicket { number: 0, cancel: true },
                Call::Cancel { is_bogus: false } => Op::Cancel { which: 0 },
                Call::Tick { ticks } => Op::Advance(ticks.into()),
                Call::Wait { ticks } => Op::Advance(ticks.get() % LONG),
                Call::Back { ticks } => Op::Back(u64::from(ticks) % LONG),
                Call::Deadline => Op::Deadline(When::OnTime),
                Call::Reaping { at_once } => Op::Reaping(at_once),
                Call::Consumed => Op::Consumed,
                Call::Flush => Op::Flush,
                Call::Forget => Op::ResetTracking,
                Call::Reconfigure { choice } => Op::Reconfigure(choice % CHOICES),
            };
            driver.apply(op).unwrap();
        }
        driver.finish().unwrap();
    }
}

/// The machine alone, whatever it is told: what is held has a deadline, and a flush delivers it.
fn alone(choice: &[Params], calls: &[Call]) {
    let configs: Vec<_> = choice.iter().map(|params| Config::new(*params).unwrap()).collect();
    let (mut budget, mut now, mut held) = (Budget::new(configs[0]), 0_u64, 0_u32);
    for call in calls {
        let (posted, decision) = match *call {
            Call::Complete { event, cif, outstanding } => {
                let event = [Event::Plain, Event::Urgent, Event::Barrier, Event::Error][usize::from(event % 4)];
                (1, budget.on_completion(now, &Completion { cif, outstanding, ..Completion::of(event) }))
            }
            Call::Cancel { is_bogus } => {
                let event = if is_bogus { Event::Error } else { Event::Barrier };
                (0, budget.on_cancel(now, Mark { event, ..Mark::default() }))
            }
            Call::Deadline => {
                now = now.max(budget.deadline().unwrap_or(now));
                (0, budget.on_deadline(now))
            }
            Call::Flush => (0, budget.flush(now)),
            Call::Reconfigure { choice } => match budget.reconfigure(configs[usize::from(choice) % 3], now) {
                Ok(decision) => (0, decision),
                Err(error) => {
                    assert!(error.value < error.min || error.value > error.max, "{error}");
                    continue;
                }
            },
            Call::Submit { outstanding } => {
                budget.on_submits(now, outstanding);
                continue;
            }
            Call::Consumed => {
                budget.on_consumed(now);
                held = 0;
                continue;
            }
            Call::Forget => {
                budget.reset_tracking();
                continue;
            }
            Call::Tick { ticks } => {
                now = now.saturating_add(ticks.into());
                continue;
            }
            Call::Wait { ticks } => {
                now = now.saturating_add(ticks.get());
                continue;
            }
            Call::Back { ticks } => {
                now = now.saturating_sub(ticks.into());
                continue;
            }
            Call::Reaping { .. } => continue,
        };
        held = match decision {
            Decision::Deliver(_) => 0,
            Decision::DeliverUrgent => held,
            Decision::Hold(_) => held + posted,
        };
        assert_eq!(budget.held(), held, "after {call:?}: {decision:?}");
        assert_eq!(budget.deadline().is_some(), held > 0);
        assert!(!matches!(call, Call::Deadline | Call::Flush) || held == 0, "{call:?} left {held}");
    }
}

fuzz_target!(|input: Input| {
    let mut choice = vec![];
    for parameters in &input.configurations {
        match Config::new(parameters.params()) {
            Ok(_) => choice.push(parameters.params()),
            Err(error) => {
                assert!(error.value < error.min || error.value > error.max, "{error}");
                choice.push(Params { tick_hz: 1_000_000, ..Params::DEFAULT });
            }
        }
    }
    in_lockstep(&choice, &input.calls);
    by_the_rules(&choice, &input.calls);
    alone(&choice, &input.calls);
});
