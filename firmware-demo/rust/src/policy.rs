//! The policies that the host can select.

use crate::aggregation::Aggregation;
use crate::board::TICK_HZ;
use budget_core::{Auto, Budget};
use cint_core::{Cint, StormParams, Strict};
use coalesce_decision::{Policy, forward};
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
    /// A latency budget with its regulator.
    Auto = 5,
}

impl TryFrom<u32> for Choice {
    type Error = ();

    fn try_from(number: u32) -> Result<Self, ()> {
        let all = [Self::Nvme, Self::Vic, Self::Cint, Self::Strict, Self::Budget, Self::Auto];
        all.into_iter().find(|&choice| choice as u32 == number).ok_or(())
    }
}

#[derive(Debug)]
enum Machine {
    Nvme,
    Vic(Vic),
    Cint(Cint),
    Budget(Budget),
    Auto(Auto),
    Strict(Strict<Cint, 1, 4>), // 256 commands from the oldest in flight to the newest
}

impl Machine {
    fn new(choice: Choice, storm_rate: u32) -> Result<Self, ()> {
        let tick_hz = TICK_HZ.into();
        let storm = (storm_rate > 0).then_some(StormParams { max_rate: storm_rate.into(), shift: STORM_SHIFT });
        let vic = || vic_core::Params { tick_hz, epoch_ns: 1_000_000, ..vic_core::Params::DEFAULT };
        let cint = || cint_core::Params { tick_hz, delta_ns: 30_000, storm, ..cint_core::Params::DEFAULT };
        let strict =
            || cint_core::Params { delta_ns: 1_000_000, max_hold_ns: Some(1_000_000), in_flight: None, ..cint() };
        let budget = || {
            let params = budget_core::Params { tick_hz, max_hold_ns: 200_000, storm, ..budget_core::Params::DEFAULT };
            budget_core::Config::new(params).map_err(|_| ())
        };
        let new_cint = |params| cint_core::Config::new(params).map(Cint::new).map_err(|_| ());
        Ok(match choice {
            Choice::Nvme => Self::Nvme,
            Choice::Vic => Self::Vic(Vic::new(vic_core::Config::new(vic()).map_err(|_| ())?)),
            Choice::Cint => Self::Cint(new_cint(cint())?),
            Choice::Strict => Self::Strict(Strict::new(new_cint(strict())?)),
            Choice::Budget => Self::Budget(Budget::new(budget()?)),
            Choice::Auto => Self::Auto(Auto::new(budget()?)),
        })
    }
}

/// The policy of a vector.
#[derive(Debug)]
pub struct Selected {
    machine: Machine,
    aggregation: Aggregation,
}

impl Selected {
    /// Every completion interrupts.
    pub const OFF: Self = Self { machine: Machine::Nvme, aggregation: Aggregation::OFF };

    /// Sets the policy by its number in Feature C0h. `storm_rate` is the storm guard's limit, in interrupts per second;
    /// 0: no guard. `Err`: the policy or the limit is invalid.
    pub fn choose(&mut self, choice: u32, storm_rate: u32) -> Result<(), ()> {
        self.machine = Machine::new(choice.try_into()?, storm_rate)?;
        Ok(())
    }

    /// Whether Feature 08h holds completions.
    pub fn is_aggregating(&self) -> bool {
        self.aggregation.held() > 0
    }

    pub const fn set(&mut self, threshold: u32, time: u64) {
        self.aggregation.set(threshold, time);
    }
}

/// The policy that is selected.
macro_rules! selected {
    ($selected:ident, $policy:ident => $call:expr) => {
        match $selected {
            Selected { machine: Machine::Nvme, aggregation: $policy } => $call,
            Selected { machine: Machine::Vic($policy), .. } => $call,
            Selected { machine: Machine::Cint($policy), .. } => $call,
            Selected { machine: Machine::Budget($policy), .. } => $call,
            Selected { machine: Machine::Auto($policy), .. } => $call,
            Selected { machine: Machine::Strict($policy), .. } => $call,
        }
    };
}

impl Policy for Selected {
    forward!(self in selected; on_submit, on_completion, deadline, on_deadline, on_consumed, flush, held);
}
