//! Parameters, checked once: every later step only adds and compares.

use coalesce_decision::ticks::{NS_PER_S, divide, divide_up};
use coalesce_decision::{ConfigError, Field, ticks};

/// Parameters of cinterrupts, as a user states them. Start from [`Params::DEFAULT`], [`Params::OPTANE`] or
/// [`Params::P3700`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Ticks of the caller's clock per second. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// Δ: the quiet time that ends a burst; 0: the caller ends it, with
    /// [`on_batch_end`](crate::Cint::on_batch_end). 0 to 10 ms.
    pub delta_ns: u64,
    /// `thr`: the completions that end a burst. 1 to 65535; 1: no coalescing.
    pub thr: u16,
    /// Out-of-order Urgent: an urgent completion is delivered alone, what is held stays held (§3.5).
    pub ooo: bool,
    /// How long a completion may be held, from the first one held; `None`: up to (thr - 1) * Δ. 1 ns to 1 s, and no
    /// more than 500 million ticks.
    pub max_hold_ns: Option<u64>,
    /// The storm guard (§4.3); `None`: off.
    pub storm: Option<StormParams>,
    /// The `in_flight` rule, where the caller gives commands in flight: below this threshold T every completion
    /// interrupts, and above it no more than max(1, CIF / 2T) plain ones are held, so that the device stays busy.
    /// 2 to 32767; `None`: off.
    pub in_flight: Option<u16>,
}

/// Parameters of the storm guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormParams {
    /// Interrupts per second in the long run, at most. `tick_hz` / 125 million (8 where a tick is a nanosecond) to `tick_hz` / 5.
    pub max_rate: u64,
    /// The weight of one gap between interrupts in the moving average is 2^-shift. 5 to 16; the authors' is 7.
    pub shift: u8,
}

impl Params {
    /// What the paper describes for an Intel Optane P4800X and no more (§5.2), for a clock in nanoseconds.
    pub const OPTANE: Self = Self {
        tick_hz: 1_000_000_000,
        delta_ns: 6_000,
        thr: 32,
        ooo: true,
        max_hold_ns: None,
        storm: None,
        in_flight: None,
    };

    /// The same for an Intel P3700 (§5.2).
    pub const P3700: Self = Self { delta_ns: 15_000, ..Self::OPTANE };

    /// The paper's for Optane, made safe: nothing held longer than 100 µs, and so few that the device does not run out of work.
    pub const DEFAULT: Self = Self { max_hold_ns: Some(100_000), in_flight: Some(4), ..Self::OPTANE };
}

/// Checked parameters, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) tick_hz: u64,
    pub(crate) delta: u32,              // NEVER: none
    pub(crate) max_hold: u32,           // NEVER: none
    pub(crate) max_hold_fast: u32,      // the same, but BURST_MAX if none: for the fast path
    pub(crate) storm_interval: u32,     // 0: no storm guard
    pub(crate) in_flight_per_held: u32, // twice the threshold; 0: no in_flight rule
    pub(crate) thr: u16,
    pub(crate) storm_shift: u8,
    pub(crate) ooo: bool,
}

const _: () = assert!(size_of::<Config>() == 32, "no byte is undefined");

/// The longest time, in ticks, that a configuration can name.
const TICKS_MAX: u64 = 500_000_000;
/// No configured time is longer. It and its double are immediate operands on Arm.
pub(crate) const SPAN_MAX: u32 = 124 << 22;
/// Ages saturate here: every span has expired by then.
pub(crate) const AGE_MAX: u32 = 2 * SPAN_MAX;
/// Without `max_hold`, the oldest completion held may become this old in the fast path, which saturates no age.
const BURST_MAX: u32 = AGE_MAX + SPAN_MAX;
/// A span that never expires.
pub(crate) const NEVER: u32 = BURST_MAX + SPAN_MAX + 1;
const _: () = assert!(NEVER <= i32::MAX.cast_unsigned());
// The oldest age there is: of an interrupt, then an idle time, then a burst in the fast path, then one slow call.
const _: () = assert!((AGE_MAX + SPAN_MAX + BURST_MAX).checked_add(AGE_MAX).is_some());
/// The longest interval of the storm guard. Its samples are up to four times as long.
const INTERVAL_MAX: u64 = 125_000_000;
const _: () = assert!(4 * INTERVAL_MAX <= TICKS_MAX && TICKS_MAX <= SPAN_MAX as u64);

impl Config {
    /// Checks `params` and converts them to ticks: Δ and `max_hold` rounded down, the interval of the storm guard up.
    ///
    /// # Errors
    /// The first field that is out of its range. With a storm guard `max_hold` cannot be shorter than the interval
    /// between two of its interrupts.
    pub const fn new(params: Params) -> Result<Self, ConfigError> {
        let Params { tick_hz, delta_ns, thr, ooo, max_hold_ns, storm, in_flight } = params;
        let (max_rate, shift) = match storm {
            Some(StormParams { max_rate, shift }) => (max_rate, shift),
            None => (1, 5),
        };
        let checks = [
            (Field::TickHz, tick_hz),
            (Field::Delta, delta_ns),
            (Field::Thr, thr as u64),
            (Field::StormShift, shift as u64),
            (
                Field::InFlight,
                match in_flight {
                    Some(threshold) => threshold as u64,
                    None => 2,
                },
            ),
        ];
        let mut rest: &[(Field, u64)] = &checks;
        while let [(field, value), tail @ ..] = rest {
            if let Err(error) = field.check(*value) {
                return Err(error);
            }
            rest = tail;
        }
        let storm_interval = match storm {
            Some(_) => {
                match Field::StormMaxRate.check_between(max_rate, divide_up(tick_hz, INTERVAL_MAX), divide(tick_hz, 5))
                {
                    Ok(()) => divide_up(tick_hz, max_rate),
                    Err(error) => return Err(error),
                }
            }
            None => 0,
        };
        let max_hold = match max_hold_ns {
            Some(ns) => {
                let (min, max) = Field::MaxHold.range();
                let longest = divide(TICKS_MAX.saturating_mul(NS_PER_S), tick_hz);
                let max = if longest < max { longest } else { max };
                if let Err(error) = Field::MaxHold.check_between(ns, min, max) {
                    return Err(error);
                }
                let ticks = ticks_down(ns, tick_hz);
                if (ticks as u64) < storm_interval {
                    let min = divide_up(storm_interval.saturating_mul(NS_PER_S), tick_hz);
                    let because = Some((Field::StormMaxRate, max_rate));
                    return Err(ConfigError { field: Field::MaxHold, value: ns, min, max, because });
                }
                ticks
            }
            None => NEVER,
        };
        Ok(Self {
            tick_hz,
            delta: match delta_ns {
                0 => NEVER,
                ns => ticks_down(ns, tick_hz),
            },
            max_hold,
            max_hold_fast: if max_hold == NEVER { BURST_MAX } else { max_hold },
            #[expect(clippy::cast_possible_truncation, reason = "at most INTERVAL_MAX")]
            storm_interval: storm_interval as u32,
            thr,
            in_flight_per_held: match in_flight {
                Some(threshold) => (threshold as u32).wrapping_mul(2),
                None => 0,
            },
            storm_shift: shift,
            ooo,
        })
    }

    /// The longest time, in ticks, that a completion is held if deadlines are met on time; `None`: no bound, as the
    /// caller ends each hold with [`on_batch_end`](crate::Cint::on_batch_end).
    #[must_use]
    pub const fn max_hold(&self) -> Option<u64> {
        let hold = match (self.max_hold, self.delta) {
            (NEVER, NEVER) => return None,
            (NEVER, delta) => (delta as u64).saturating_mul((self.thr as u64).saturating_sub(1)),
            (max_hold, _) => max_hold as u64,
        };
        Some(hold.saturating_add(self.storm_interval as u64))
    }

    /// Whether a burst ends only when the caller says so, with [`on_batch_end`](crate::Cint::on_batch_end): Δ is 0.
    #[must_use]
    pub const fn waits_for_batch_end(&self) -> bool {
        self.delta == NEVER
    }

    /// Ticks between two interrupts that the storm guard allows in the long run; `None`: off.
    #[must_use]
    pub const fn storm_interval(&self) -> Option<u64> {
        if self.storm_interval == 0 { None } else { Some(self.storm_interval as u64) }
    }
}

/// Nanoseconds, up to `TICKS_MAX` ticks, to ticks, rounded down, but at least 1 unless `ns` is 0: a promise is kept.
#[expect(clippy::cast_possible_truncation, reason = "at most TICKS_MAX")]
const fn ticks_down(ns: u64, tick_hz: u64) -> u32 {
    ticks::ticks_down(ns, tick_hz) as u32
}
