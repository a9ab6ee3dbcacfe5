//! Parameters, checked once: every later step only adds, multiplies and compares.

use coalesce_decision::ticks::{NS_PER_S, divide, ticks_down};
use coalesce_decision::{ConfigError, Field};

/// Parameters of a latency budget, as a user states them. Start from [`Params::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Ticks of the caller's clock per second. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// ε: the part of the time that requests spend which holding may add, in 1/100 %. 1 to 5000.
    pub budget: u16,
    /// How long a completion may be held, from the first one held. 1 ns to 1 s, and no more than 500 million ticks.
    pub max_hold_ns: u64,
    /// The completions that are announced at once, whatever they cost. 1 to 65535; 1: no coalescing.
    pub thr: u16,
}

impl Params {
    /// 5 %, and nothing held longer than 2 ms, for a clock in nanoseconds.
    pub const DEFAULT: Self = Self { tick_hz: NS_PER_S, budget: 500, max_hold_ns: 2_000_000, thr: 256 };
}

/// Checked parameters, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) tick_hz: u64,
    pub(crate) probe_credit: i64, // what a probe may take beyond what was earned, in requests * ticks * 2^SHIFT
    pub(crate) max_hold: u32,
    epsilon: u16, // ε * 2^SHIFT
    pub(crate) thr: u16,
}

/// The longest time, in ticks, that a configuration can name.
const TICKS_MAX: u64 = 500_000_000;
/// No configured time is longer, and no more time passes between two calls.
pub(crate) const SPAN_MAX: u32 = 1 << 29;
const _: () = assert!(TICKS_MAX <= SPAN_MAX as u64);
/// Ages saturate here: every span has expired by then.
pub(crate) const AGE_MAX: u32 = 2 * SPAN_MAX;
/// Credit is counted in parts of 2^-SHIFT.
pub(crate) const SHIFT: u32 = 12;

/// What a probe may take beyond what was earned, in requests held for `max_hold`.
const PROBE: u64 = 32;

impl Config {
    /// Checks `params` and converts them: `max_hold` to ticks, rounded down.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub const fn new(params: Params) -> Result<Self, ConfigError> {
        let Params { tick_hz, budget, max_hold_ns, thr } = params;
        let checks = [(Field::TickHz, tick_hz), (Field::Budget, budget as u64), (Field::Thr, thr as u64)];
        let mut rest: &[(Field, u64)] = &checks;
        while let [(field, value), tail @ ..] = rest {
            if let Err(error) = field.check(*value) {
                return Err(error);
            }
            rest = tail;
        }
        let (min, max) = Field::MaxHold.range();
        let longest = divide(TICKS_MAX.saturating_mul(NS_PER_S), tick_hz);
        if let Err(error) = Field::MaxHold.check_between(max_hold_ns, min, if longest < max { longest } else { max }) {
            return Err(error);
        }
        let max_hold = ticks_down(max_hold_ns, tick_hz);
        #[expect(clippy::cast_possible_truncation, reason = "at most TICKS_MAX, and at most 2^SHIFT / 2")]
        let (max_hold, epsilon) = (max_hold as u32, divide((budget as u64) << SHIFT, 10_000) as u16);
        let probe_credit = ((max_hold as u64).wrapping_mul(PROBE) << SHIFT).cast_signed();
        Ok(Self { tick_hz, probe_credit, max_hold, epsilon: if epsilon == 0 { 1 } else { epsilon }, thr })
    }

    /// What `commands` outstanding earn in each tick.
    pub(crate) const fn earned_by(&self, commands: u16) -> i64 {
        (self.epsilon as i64).wrapping_mul(commands as i64)
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time.
    #[must_use]
    pub const fn max_hold(&self) -> u64 {
        self.max_hold as u64
    }

    /// ε as the machine has it, in parts of 4096: rounded down, at least 1.
    #[must_use]
    pub const fn epsilon(&self) -> u16 {
        self.epsilon
    }

    /// C0: what probes may take beyond the budget, in requests * ticks.
    #[must_use]
    pub const fn learning(&self) -> u64 {
        (self.max_hold as u64).wrapping_mul(PROBE)
    }
}
