//! Parameters. They are checked and converted once, so that no later step converts a unit, checks a range or
//! divides.

use coalesce_decision::ticks::{TICKS_MAX, ticks_down};
use coalesce_decision::{ConfigError, Field, StormParams, storm_and_hold};

/// Parameters of cinterrupts in the user's units. Start from [`Params::DEFAULT`], [`Params::OPTANE`] or
/// [`Params::P3700`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Params {
    /// Ticks per second of the caller's clock. 1 kHz to 10 GHz.
    pub tick_hz: u64,
    /// Δ: the time without a completion that ends a burst. 0 to 10 ms; 0: the caller ends bursts with
    /// [`on_batch_end`](crate::Policy::on_batch_end).
    pub delta_ns: u64,
    /// `thr`: the number of completions that ends a burst. 1 to 65535; 1: no coalescing.
    pub thr: u16,
    /// Out-of-order Urgent: the interrupt of an urgent completion covers it alone, and held completions stay held
    /// (§3.5), unless `thr` or the `in_flight` rule ends their hold with it.
    pub ooo: bool,
    /// The longest time that a completion may be held. 1 ns to 1 s, and at most 500 million ticks; `None`: no limit of its
    /// own; Δ and `thr` then limit it to (thr - 1) * Δ, if Δ is not 0.
    pub max_hold_ns: Option<u64>,
    /// The storm guard (§4.3); `None`: off.
    pub storm: Option<StormParams>,
    /// The threshold T of the `in_flight` rule, for callers who give the CIF. With a CIF below T every completion
    /// interrupts. Otherwise at most max(1, CIF / 2T) Plain completions are held, so that the device stays busy. 2 to
    /// 32767; `None`: no rule.
    pub in_flight: Option<u16>,
}

impl Params {
    /// Exactly what the paper describes for an Intel Optane P4800X (§5.2), for a clock in nanoseconds.
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

    /// The paper's parameters for Optane with two bounds: a completion is held for at most 100 µs, and the `in_flight`
    /// rule keeps the device busy.
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

/// The longest span, and the most by which `advance` ages the state, except at the end of the clock's range. At least
/// `TICKS_MAX`; it and its double are immediate operands on Arm.
pub(crate) const SPAN_MAX: u32 = 124 << 22;
/// Ages saturate here: every span has expired by then.
pub(crate) const AGE_MAX: u32 = 2 * SPAN_MAX;
/// Without `max_hold`, the greatest age of a held completion in the fast path, which does not saturate ages.
const BURST_MAX: u32 = AGE_MAX + SPAN_MAX;
/// A span that never expires.
pub(crate) const NEVER: u32 = BURST_MAX + SPAN_MAX + 1;
const _: () = assert!(NEVER <= i32::MAX as u32);
// No age overflows. The greatest is `gap`: AGE_MAX after a slow call, SPAN_MAX more while the fast path is open with
// nothing held, BURST_MAX more in a burst on the fast path, and AGE_MAX more in the next `advance`, before it saturates.
const _: () = assert!((AGE_MAX + SPAN_MAX + BURST_MAX).checked_add(AGE_MAX).is_some());
const _: () = assert!(TICKS_MAX <= SPAN_MAX as u64);

impl Config {
    /// Checks `params` and converts them to ticks. Δ and `max_hold` are rounded down, but to no less than a tick; the
    /// interval of the storm guard is rounded up.
    ///
    /// # Errors
    /// The first field that is out of range. With a storm guard, `max_hold` must be at least the interval between two
    /// of its interrupts.
    pub const fn new(params: Params) -> Result<Self, ConfigError> {
        let Params { tick_hz, delta_ns, thr, ooo, max_hold_ns, storm, in_flight } = params;
        let storm_shift = match storm {
            Some(StormParams { shift, .. }) => shift,
            None => 5,
        };
        let checks = [
            (Field::TickHz, tick_hz),
            (Field::Delta, delta_ns),
            (Field::Thr, thr as u64),
            (Field::StormShift, storm_shift as u64),
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
        let (storm_interval, max_hold) = match storm_and_hold(storm, max_hold_ns, tick_hz) {
            Ok((interval, u32::MAX)) => (interval, NEVER),
            Ok(both) => both,
            Err(error) => return Err(error),
        };
        Ok(Self {
            tick_hz,
            delta: match delta_ns {
                0 => NEVER,
                #[expect(clippy::cast_possible_truncation, reason = "at most 10 ms, so 10^8 ticks")]
                ns => ticks_down(ns, tick_hz) as u32,
            },
            max_hold,
            max_hold_fast: if max_hold == NEVER { BURST_MAX } else { max_hold },
            storm_interval,
            thr,
            in_flight_per_held: match in_flight {
                Some(threshold) => (threshold as u32).wrapping_mul(2),
                None => 0,
            },
            storm_shift,
            ooo,
        })
    }

    /// The longest time, in ticks, that a completion is held if `on_deadline` is called on time; `None`: no bound,
    /// because the caller ends each hold with [`on_batch_end`](crate::Policy::on_batch_end).
    #[must_use]
    pub const fn max_hold(&self) -> Option<u64> {
        let hold = match (self.max_hold, self.delta) {
            (NEVER, NEVER) => return None,
            (NEVER, delta) => (delta as u64).saturating_mul((self.thr as u64).saturating_sub(1)),
            (max_hold, _) => max_hold as u64,
        };
        Some(hold.saturating_add(self.storm_interval as u64))
    }

    /// Whether Δ is 0: a burst then ends at [`on_batch_end`](crate::Policy::on_batch_end), not after a time without a
    /// completion.
    #[must_use]
    pub const fn waits_for_batch_end(&self) -> bool {
        self.delta == NEVER
    }

    /// The shortest average interval between two interrupts that the storm guard allows, in ticks; `None`: no guard.
    #[must_use]
    pub const fn storm_interval(&self) -> Option<u64> {
        if self.storm_interval == 0 { None } else { Some(self.storm_interval as u64) }
    }
}
