//! Parameters, checked once: every later step only adds, multiplies and compares.

use crate::constants::{EVIDENCE_MAX, FIRST_SHIFT, LEARNING_SHIFT, SHIFT, SPAN_MAX, SPENT_SHIFT};
use coalesce_decision::ticks::{NS_PER_S, TICKS_MAX, U40, divide};
use coalesce_decision::{ConfigError, Field, Share, StormParams, storm_and_hold};

/// Parameters of a latency budget, as a user states them. Start from [`Params::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Ticks of the caller's clock per second. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// ε: the largest share of the requests' time that holding may add. 0.01 % to 50 %.
    pub budget: Share,
    /// How long a completion may be held, from the first one held. 1 ns to 1 s, and no more than 500 million ticks.
    pub max_hold_ns: u64,
    /// The most completions that one interrupt covers, if there is no storm; Urgents that interrupted alone meanwhile count
    /// too. 1 to 65535; 1: no coalescing.
    pub thr: u16,
    /// Out-of-order Urgent: the interrupt of an urgent completion covers it alone, and held completions stay held
    /// (cinterrupts §3.5). The Urgents that go past held completions count towards `thr`.
    pub ooo: bool,
    /// The storm guard (cinterrupts §4.3); `None`: off.
    pub storm: Option<StormParams>,
}

impl Params {
    /// 5 %, and nothing held longer than 2 ms, for a clock in nanoseconds.
    pub const DEFAULT: Self = Self {
        tick_hz: NS_PER_S,
        budget: Share::percent(5),
        max_hold_ns: 2_000_000,
        thr: 256,
        ooo: false,
        storm: None,
    };
}

/// Checked parameters, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Config {
    pub(crate) max_hold: u32,
    pub(crate) storm_interval: u32, // 0: no storm guard
    pub(crate) epsilon: u16,        // ε * 2^SHIFT
    pub(crate) room: u16,           // the most that are held, if there is no storm: one more fills `thr`
    pub(crate) tick_hz: U40,
    pub(crate) storm_shift: u8,
    pub(crate) ooo: bool,
    filler: u8, // so that no byte is undefined, because a state may be written to a file
}

const _: () = assert!(size_of::<Config>() == 20);

const _: () = assert!(TICKS_MAX <= SPAN_MAX as u64);

impl Config {
    /// Checks `params` and converts them to ticks. `max_hold` is rounded down, but to no less than a tick; the interval of
    /// the storm guard is rounded up.
    ///
    /// # Errors
    /// The first field that is out of its range. With a storm guard, `max_hold` must be at least the interval between two
    /// of its interrupts.
    pub const fn new(params: Params) -> Result<Self, ConfigError> {
        let Params { tick_hz, budget, max_hold_ns, thr, ooo, storm } = params;
        let storm_shift = match storm {
            Some(StormParams { shift, .. }) => shift,
            None => 5,
        };
        let checks = [
            (Field::TickHz, tick_hz),
            (Field::Budget, budget.as_basis_points() as u64),
            (Field::Thr, thr as u64),
            (Field::StormShift, storm_shift as u64),
        ];
        let mut rest: &[(Field, u64)] = &checks;
        while let [(field, value), tail @ ..] = rest {
            if let Err(error) = field.check(*value) {
                return Err(error);
            }
            rest = tail;
        }
        let (storm_interval, max_hold) = match storm_and_hold(storm, Some(max_hold_ns), tick_hz) {
            Ok(both) => both,
            Err(error) => return Err(error),
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 2^SHIFT / 2")]
        let epsilon = divide((budget.as_basis_points() as u64) << SHIFT, 10_000) as u16;
        let room = thr.wrapping_sub(1);
        Ok(Self { max_hold, storm_interval, epsilon, room, tick_hz: U40::new(tick_hz), storm_shift, ooo, filler: 0 })
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time. Always `Some`, as a budget has a
    /// `max_hold`: the type is that of the other cores.
    #[must_use]
    pub const fn max_hold(&self) -> Option<u64> {
        Some((self.max_hold as u64).saturating_add(self.storm_interval as u64))
    }

    /// The shortest average interval between two interrupts that the storm guard allows, in ticks; `None`: no guard.
    #[must_use]
    pub const fn storm_interval(&self) -> Option<u64> {
        if self.storm_interval == 0 { None } else { Some(self.storm_interval as u64) }
    }

    /// ε as a fraction: the numerator, rounded down, and the denominator.
    #[must_use]
    pub const fn epsilon(&self) -> (u64, u64) {
        (self.epsilon as u64, 1 << SHIFT)
    }

    /// C0 in its present proportion, in requests * ticks: for requests that have spent `request_time`, with so much evidence
    /// that holding makes them faster.
    pub(crate) const fn learning_after(&self, request_time: u64, evidence: u8) -> u64 {
        let start = (self.max_hold as u64) << FIRST_SHIFT;
        let so_far =
            start.saturating_add(request_time >> SPENT_SHIFT).saturating_mul((evidence as u64).wrapping_add(1));
        let most = self.learning();
        if so_far < most { so_far } else { most }
    }

    /// C0: what trials may take beyond the budget of requests that have spent `request_time`, at most; in requests * ticks.
    #[must_use]
    pub const fn learning_of(&self, request_time: u64) -> u64 {
        self.learning_after(request_time, EVIDENCE_MAX)
    }

    /// The most that C0 becomes, in requests * ticks.
    #[must_use]
    pub const fn learning(&self) -> u64 {
        (self.max_hold as u64) << LEARNING_SHIFT
    }
}
