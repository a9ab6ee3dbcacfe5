//! What an I/O and an interrupt cost a CPU. No trace says that, so it is stated.

use serde::Serialize;

/// Cycles of a CPU. The defaults are of the machine of the cinterrupts paper, as [`Machine`](crate::plan::Machine) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Cycles {
    /// CPU cycles that an I/O costs without its interrupt; the default is of the cinterrupts paper's machine
    #[cfg_attr(feature = "cli", arg(long = "io-cycles", value_name = "CYCLES", default_value_t = Self::PAPER.io,
        value_parser = clap::value_parser!(u64).range(1..=CYCLES_MAX)))]
    pub io: u64,

    /// CPU cycles that an interrupt costs: entry, handler and exit
    #[cfg_attr(feature = "cli", arg(long = "interrupt-cycles", value_name = "CYCLES", default_value_t = Self::PAPER.interrupt,
        value_parser = clap::value_parser!(u64).range(0..=CYCLES_MAX)))]
    pub interrupt: u64,
}

#[cfg(feature = "cli")]
const CYCLES_MAX: u64 = 1_000_000_000;

impl Cycles {
    /// Of the machine of the cinterrupts paper.
    pub const PAPER: Self = Self { io: 4700, interrupt: 1500 };

    /// Cycles for each I/O.
    #[must_use]
    pub fn per_io(self, interrupts_per_io: f64) -> f64 {
        self.io as f64 + self.interrupt as f64 * interrupts_per_io
    }

    /// The same over that of `none`, which interrupts for each.
    #[must_use]
    pub fn over_none(self, interrupts_per_io: f64) -> f64 {
        self.per_io(interrupts_per_io) / self.per_io(1.0)
    }

    /// What is assumed, in words.
    #[must_use]
    pub fn about(self) -> String {
        let Self { io, interrupt } = self;
        let whose = if self == Self::PAPER { ", as on the machine of the cinterrupts paper" } else { "" };
        format!("{io} cycles for an I/O and {interrupt} for an interrupt{whose} (--io-cycles, --interrupt-cycles)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Machine;

    #[test]
    fn the_paper_s_machine_is_the_one_of_plans() {
        let machine = Machine::default();
        let cycles = |costs: &[crate::units::Cost]| costs.iter().map(|cost| cost.ns(machine.clock)).sum::<u64>() * 2; // 2 GHz
        assert_eq!(cycles(&[machine.submit, machine.complete, machine.reap]), Cycles::PAPER.io);
        assert_eq!(cycles(&[machine.interrupt]), Cycles::PAPER.interrupt);
    }

    #[test]
    fn none_costs_one() {
        let cycles = Cycles { io: 3000, interrupt: 1000 };
        assert!((cycles.over_none(1.0) - 1.0).abs() < 1e-9 && (cycles.over_none(0.0) - 0.75).abs() < 1e-9);
    }
}
