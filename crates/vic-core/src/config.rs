//! Parameters, checked once; every later step multiplies and compares.

use crate::time::{U40, ticks_down, ticks_up};
use core::fmt;

/// Parameters of vIC, as a user states them. Start from [`Params::DEFAULT`] or [`Params::PAPER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Ticks of the caller's clock per second. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// `cifThreshold`: below this many commands in flight every completion interrupts. 2 to 65535.
    pub cif_threshold: u16,
    /// `iopsThreshold`: below this many completions per second every completion interrupts; 0: never too few.
    pub iops_threshold: u32,
    /// `epochPeriod`: how often the delivery ratio is determined anew. 1 ms to 60 s.
    pub epoch_ns: u64,
    /// The longest cycle: at most one interrupt in `max_skip` completions is delivered. 2 to 65535.
    pub max_skip: u16,
    /// How long a completion may be held, from the first one held; `None`: as long as the device takes to complete
    /// another command. 1 ns to 1 s.
    pub max_hold_ns: Option<u64>,
    /// Compare what is held with the commands in flight at each completion, not only at the start of an epoch.
    pub live_clamp: bool,
    /// Scheduler awareness: by how much the two clocks may differ; interrupts go out earlier by that. 0 to 100 ms.
    pub margin_ns: u64,
}

impl Params {
    /// What the paper describes and no more (vIC §4, Alg. 1 and 2), for a clock in nanoseconds.
    ///
    /// It has no time bound: a completion is held until the device completes another command.
    pub const PAPER: Self = Self {
        tick_hz: 1_000_000_000,
        cif_threshold: 4,
        iops_threshold: 2000,
        epoch_ns: 200_000_000,
        max_skip: u16::MAX,
        max_hold_ns: None,
        live_clamp: false,
        margin_ns: 0,
    };

    /// The paper's, made safe: a cycle of 16 at most (its own stated floor of 6.25 %, vIC §3.2.1), nothing held longer
    /// than 500 µs (its stated bound, 1/iopsThreshold, vIC §3.2), and nothing held that the device could run dry of.
    pub const DEFAULT: Self = Self { max_skip: 16, max_hold_ns: Some(500_000), live_clamp: true, ..Self::PAPER };
}

/// Checked parameters, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) tick_hz: U40,
    pub(crate) epoch: U40,
    pub(crate) max_hold: U40, // U40::MAX: none
    pub(crate) live_clamp: bool,
    pub(crate) iops_threshold: u32,
    pub(crate) margin: u32,
    pub(crate) cif_threshold: u16,
    pub(crate) max_skip: u16,
}

impl Config {
    /// Checks `params` and converts them to ticks: the epoch and the margin rounded up, `max_hold` down.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub const fn new(params: Params) -> Result<Self, ConfigError> {
        let Params { tick_hz, cif_threshold, iops_threshold, epoch_ns, max_skip, max_hold_ns, live_clamp, margin_ns } =
            params;
        let checks = [
            (Field::TickHz, tick_hz),
            (Field::CifThreshold, cif_threshold as u64),
            (Field::Epoch, epoch_ns),
            (Field::MaxSkip, max_skip as u64),
            (
                Field::MaxHold,
                match max_hold_ns {
                    Some(ns) => ns,
                    None => 1,
                },
            ),
            (Field::Margin, margin_ns),
        ];
        let mut rest: &[(Field, u64)] = &checks;
        while let [(field, value), tail @ ..] = rest {
            if let Err(error) = field.check(*value) {
                return Err(error);
            }
            rest = tail;
        }
        Ok(Self {
            tick_hz: U40::new(tick_hz),
            epoch: U40::new(ticks_up(epoch_ns, tick_hz)),
            max_hold: match max_hold_ns {
                Some(ns) => U40::new(ticks_down(ns, tick_hz)),
                None => U40::MAX,
            },
            live_clamp,
            iops_threshold,
            #[expect(clippy::cast_possible_truncation, reason = "100 ms at 10 GHz are 10^9 ticks")]
            margin: ticks_up(margin_ns, tick_hz) as u32,
            cif_threshold,
            max_skip,
        })
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time; `None`: no bound.
    #[must_use]
    pub const fn max_hold(&self) -> Option<u64> {
        match self.max_hold {
            U40::MAX => None,
            ticks => Some(ticks.get()),
        }
    }
}

/// A parameter that can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// [`Params::tick_hz`]
    TickHz,
    /// [`Params::cif_threshold`]
    CifThreshold,
    /// [`Params::epoch_ns`]
    Epoch,
    /// [`Params::max_skip`]
    MaxSkip,
    /// [`Params::max_hold_ns`]
    MaxHold,
    /// [`Params::margin_ns`]
    Margin,
    /// The threshold of an [`IpiGate`](crate::IpiGate)
    IpiThreshold,
}

impl Field {
    /// The name in [`Params`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TickHz => "tick_hz",
            Self::CifThreshold => "cif_threshold",
            Self::Epoch => "epoch_ns",
            Self::MaxSkip => "max_skip",
            Self::MaxHold => "max_hold_ns",
            Self::Margin => "margin_ns",
            Self::IpiThreshold => "ipi_threshold_ns",
        }
    }

    /// The smallest and the largest value allowed.
    #[must_use]
    pub const fn range(self) -> (u64, u64) {
        match self {
            Self::TickHz => (1_000, 10_000_000_000),
            Self::CifThreshold | Self::MaxSkip => (2, 65_535),
            Self::Epoch => (1_000_000, 60_000_000_000),
            Self::MaxHold => (1, 1_000_000_000),
            Self::Margin => (0, 100_000_000),
            Self::IpiThreshold => (0, 1_000_000_000),
        }
    }

    pub(crate) const fn check(self, value: u64) -> Result<(), ConfigError> {
        let (min, max) = self.range();
        if value < min || value > max {
            return Err(ConfigError { field: self, value, min, max });
        }
        Ok(())
    }
}

/// A parameter is out of its range. Names the field, the value, and what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The parameter.
    pub field: Field,
    /// Its value.
    pub value: u64,
    /// The smallest value allowed here.
    pub min: u64,
    /// The largest value allowed here.
    pub max: u64,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, allowed are {} to {}", self.field.name(), self.value, self.min, self.max)
    }
}

impl core::error::Error for ConfigError {}
