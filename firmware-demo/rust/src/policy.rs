//! The policies that the host can select.

use crate::aggregation::Aggregation;
use crate::board::TICK_HZ;
use crate::decision::{Completed, Decision};
use budget_core::Budget;
use cint_core::{Cint, StormParams, Ticket, Tracker};
use vic_core::Vic;

const STORM_SHIFT: u8 = 5;

/// A policy, by its number in Feature C0h.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// Feature 08h only.
    Nvme = 0,
    Vic = 1,
    Cint = 2,
    /// cint with strict Barriers, which alone end a burst.
    Strict = 3,
    /// A latency budget.
    Budget = 4,
}

impl TryFrom<u32> for Choice {
    type Error = ();

    fn try_from(number: u32) -> Result<Self, ()> {
        let all = [Self::Nvme, Self::Vic, Self::Cint, Self::Strict, Self::Budget];
        all.into_iter().find(|&choice| choice as u32 == number).ok_or(())
    }
}

enum Machine {
    Nvme,
    Vic(Vic),
    Cint(Cint),
    Budget(Budget),
    Strict(Cint, Tracker<1, 4>), // 256 commands from the oldest in flight to the newest
}

impl Machine {
    fn new(choice: Choice, storm_rate: u32) -> Result<Self, ()> {
        let vic = vic_core::Params { tick_hz: TICK_HZ.into(), epoch_ns: 1_000_000, ..vic_core::Params::DEFAULT };
        let vic = vic_core::Config::new(vic).map_err(|_| ())?;
        let storm = (storm_rate > 0).then_some(StormParams { max_rate: storm_rate.into(), shift: STORM_SHIFT });
        let mut cint =
            cint_core::Params { tick_hz: TICK_HZ.into(), delta_ns: 30_000, storm, ..cint_core::Params::DEFAULT };
        if choice == Choice::Strict {
            (cint.delta_ns, cint.max_hold_ns, cint.in_flight) = (1_000_000, Some(1_000_000), None);
        }
        let cint = Cint::new(cint_core::Config::new(cint).map_err(|_| ())?);
        let budget = budget_core::Params {
            tick_hz: TICK_HZ.into(),
            max_hold_ns: 200_000,
            storm,
            ..budget_core::Params::DEFAULT
        };
        let budget = budget_core::Config::new(budget).map_err(|_| ())?;
        Ok(match choice {
            Choice::Nvme => Self::Nvme,
            Choice::Vic => Self::Vic(Vic::new(vic)),
            Choice::Cint => Self::Cint(cint),
            Choice::Strict => Self::Strict(cint, Tracker::new()),
            Choice::Budget => Self::Budget(Budget::new(budget)),
        })
    }
}

pub struct Policy {
    machine: Machine,
    aggregation: Aggregation,
}

impl Policy {
    /// Every completion interrupts.
    pub const OFF: Self = Self { machine: Machine::Nvme, aggregation: Aggregation::OFF };

    /// Sets the policy by its number in Feature C0h. `storm_rate` is the storm guard's limit, in interrupts per second;
    /// 0: no guard. `Err`: the policy or the limit is invalid.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.machine = Machine::new(choice.try_into()?, storm_rate)?;
        Ok(())
    }

    pub const fn set(&mut self, threshold: u32, time: u64) {
        self.aggregation.set(threshold, time);
    }

    pub fn on_submit(&mut self, now: u64) -> Option<Ticket> {
        match &mut self.machine {
            Machine::Budget(budget) => {
                budget.on_submit(now);
                None
            }
            Machine::Strict(_, tracker) => tracker.on_submit(0),
            _ => None,
        }
    }

    pub fn on_completion(&mut self, now: u64, completed: &Completed, cif: u32, outstanding: u32) -> Decision {
        let &Completed { ticket, hint, has_failed } = completed;
        match &mut self.machine {
            Machine::Nvme => self.aggregation.on_completion(now, has_failed),
            Machine::Vic(vic) => match vic.on_completion(now, cif) {
                Decision::Hold(_) if has_failed => vic.flush(now), // vIC has no hints
                decision => decision,
            },
            Machine::Cint(cint) => cint.on_completion(now, hint, Some(cif)),
            Machine::Budget(budget) => budget.on_completion(now, hint.into(), cif, outstanding),
            Machine::Strict(cint, tracker) => {
                let event = tracker.on_completion(ticket, hint);
                cint.on_completion(now, event, Some(cif))
            }
        }
    }

    pub fn deadline(&self) -> Option<u64> {
        match &self.machine {
            Machine::Nvme => self.aggregation.deadline(),
            Machine::Vic(vic) => vic.deadline(),
            Machine::Cint(cint) | Machine::Strict(cint, _) => cint.deadline(),
            Machine::Budget(budget) => budget.deadline(),
        }
    }

    pub fn on_deadline(&mut self, now: u64) -> Decision {
        match &mut self.machine {
            Machine::Nvme => self.aggregation.on_deadline(now),
            Machine::Vic(vic) => vic.on_deadline(now),
            Machine::Cint(cint) | Machine::Strict(cint, _) => cint.on_deadline(now),
            Machine::Budget(budget) => budget.on_deadline(now),
        }
    }

    pub fn on_consumed(&mut self, now: u64) {
        match &mut self.machine {
            Machine::Nvme => self.aggregation.on_consumed(),
            Machine::Vic(vic) => vic.on_consumed(now),
            Machine::Cint(cint) | Machine::Strict(cint, _) => cint.on_consumed(now),
            Machine::Budget(budget) => budget.on_consumed(now),
        }
    }

    pub fn flush(&mut self, now: u64) -> Decision {
        match &mut self.machine {
            Machine::Nvme => self.aggregation.flush(),
            Machine::Vic(vic) => vic.flush(now),
            Machine::Cint(cint) | Machine::Strict(cint, _) => cint.flush(now),
            Machine::Budget(budget) => budget.flush(now),
        }
    }
}
