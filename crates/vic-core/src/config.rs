//! Parameters. They are checked and converted once, so that no later step converts a unit or checks a range.

use coalesce_decision::ticks::{U40, ticks_down, ticks_up};
use coalesce_decision::{ConfigError, Field};

/// Parameters of vIC in the user's units. Start from [`Params::DEFAULT`] or [`Params::PAPER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Params {
    /// Ticks per second of the caller's clock. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// `cifThreshold`: below this many commands in flight every completion interrupts. 2 to 65535.
    pub cif_threshold: u16,
    /// `iopsThreshold`: below this many completions per second every completion interrupts; 0: no such limit.
    pub iops_threshold: u32,
    /// `epochPeriod`: the interval at which the delivery ratio is recomputed. 1 ms to 60 s.
    pub epoch_ns: u64,
    /// The limit of the paper's `skipUp` in the rows 1/k of its Table 1. Of every `max_skip` completions (of five, if
    /// `max_skip` is less and there is no live clamp) at least one interrupts. 2 to 65535.
    pub max_skip: u16,
    /// The longest time that a completion may be held. 1 ns to 1 s; `None`: no limit in time, only that of
    /// `max_skip`.
    pub max_hold_ns: Option<u64>,
    /// Whether to limit held completions by the commands in flight at each completion, not only at the start of an
    /// epoch.
    pub live_clamp: bool,
    /// Scheduler awareness: the largest difference between the clock of `slice_end` and the caller's. The window before the
    /// end of a timeslice is longer by this. 0 to 100 ms.
    pub margin_ns: u64,
}

impl Params {
    /// Exactly what the paper describes (vIC §4, Alg. 1 and 2), for a clock in nanoseconds.
    ///
    /// There is no limit in time: a held completion waits for up to `max_skip` - 1 further completions.
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

    /// The paper's parameters with three bounds. A cycle has at most 16 completions (the paper's floor of 6.25 %, vIC
    /// §3.2.1). A completion is held for at most 500 µs (the paper's bound, 1/iopsThreshold, vIC §3.2). The live clamp
    /// keeps the device busy.
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
    /// Checks `params` and converts them to ticks. The epoch and the margin are rounded up, `max_hold` is rounded down,
    /// but to no less than a tick.
    ///
    /// # Errors
    /// The first field that is out of range.
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

    /// The longest time, in ticks, that a completion is held if `on_deadline` is called on time; `None`: no bound.
    #[must_use]
    pub const fn max_hold(&self) -> Option<u64> {
        match self.max_hold {
            U40::MAX => None,
            ticks => Some(ticks.get()),
        }
    }
}
