//! Parameters that have a range, and the check of it.

use core::fmt;

numbered! {
    /// A parameter of a policy. Its number is that of the C ABI. The name is that in the parameters of its core; that of the IPI gate's
    /// threshold appears only in errors.
    Field {
        /// Ticks of the caller's clock per second.
        TickHz = 1, "tick_hz";
        /// vIC's `cifThreshold`, in commands in flight.
        CifThreshold = 2, "cif_threshold";
        /// vIC's `epochPeriod`, in ns.
        Epoch = 3, "epoch_ns";
        /// The limit of vIC's `skipUp` in the rows 1/k of its Table 1, in completions.
        MaxSkip = 4, "max_skip";
        /// The longest hold, in ns.
        MaxHold = 5, "max_hold_ns";
        /// The error between the scheduler's clock and the caller's, in ns.
        Margin = 6, "margin_ns";
        /// The threshold of vIC's IPI gate, in ns.
        IpiThreshold = 7, "ipi_threshold_ns";
        /// cinterrupts' Δ, in ns.
        Delta = 9, "delta_ns";
        /// cinterrupts' `thr`, in completions.
        Thr = 10, "thr";
        /// The storm guard's rate, in interrupts per second.
        StormMaxRate = 11, "storm.max_rate";
        /// The storm guard's weight of one gap, 2^-shift.
        StormShift = 12, "storm.shift";
        /// The threshold of the `in_flight` rule, in commands in flight.
        InFlight = 13, "in_flight";
        /// The latency budget, in basis points (1/100 %).
        Budget = 21, "budget";
        /// When a Barrier interrupts: 0 relaxed, 1 strict. Strict Barriers of any policy need an allocator.
        Barrier = 22, "barrier";
    }
}

impl Field {
    /// The smallest and the largest value allowed, whatever the other parameters are.
    #[must_use]
    pub const fn range(self) -> (u64, u64) {
        match self {
            Self::TickHz => (1_000, 10_000_000_000),
            Self::CifThreshold | Self::MaxSkip => (2, 65_535),
            Self::Epoch => (1_000_000, 60_000_000_000),
            Self::MaxHold => (1, 1_000_000_000),
            Self::Margin => (0, 100_000_000),
            Self::IpiThreshold => (0, 1_000_000_000),
            Self::Delta => (0, 10_000_000),
            Self::Thr => (1, 65_535),
            Self::StormMaxRate => (1, 2_000_000_000),
            Self::StormShift => (5, 16),
            Self::InFlight => (2, 32_767),
            Self::Budget => (1, 5_000),
            Self::Barrier => (0, 1),
        }
    }

    /// Whether `value` is in the range.
    ///
    /// # Errors
    /// It is not.
    pub const fn check(self, value: u64) -> Result<(), ConfigError> {
        let (min, max) = self.range();
        self.check_between(value, min, max)
    }

    /// Whether `value` is in a range that other parameters narrow.
    ///
    /// # Errors
    /// It is not.
    pub const fn check_between(self, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
        if value < min || value > max {
            return Err(ConfigError { field: self, value, min, max, because: None });
        }
        Ok(())
    }
}

/// A parameter is out of range. Has the field, its value and its bounds. [`Field::check`] and [`Field::check_between`] make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct ConfigError {
    /// The parameter.
    pub field: Field,
    /// Its value.
    pub value: u64,
    /// The smallest value allowed here.
    pub min: u64,
    /// The largest value allowed here.
    pub max: u64,
    /// The other parameter that sets the bound, with its value. `None`: the parameter's own range, `tick_hz`, or the
    /// configuration in force sets it.
    pub because: Option<(Field, u64)>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, min, max, because } = self;
        write!(f, "{} is {value}; allowed: {min} to {max}", field.name())?;
        match because {
            Some((other, value)) => write!(f, " where {} is {value}", other.name()),
            None => Ok(()),
        }
    }
}

impl core::error::Error for ConfigError {}
