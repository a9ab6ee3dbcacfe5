//! Values with units, as plans write them: `"15us"`, `"1500cycles"`, `"20K/s"`, `"2GHz"`.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// A number and its unit, in the smallest unit: digits, perhaps a decimal point, then one of `units`.
pub(crate) fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(*size)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let parts = fraction.parse::<u64>().ok()?.checked_mul(*size)?;
    let unit = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    parts.is_multiple_of(unit).then(|| whole.checked_add(parts / unit))?
}

/// The largest of `units` in which `value` is a whole number.
fn print(value: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().filter(|(_, size)| value.is_multiple_of(*size)).max_by_key(|(_, size)| *size);
    fits.map_or_else(|| value.to_string(), |(name, size)| format!("{}{name}", value / size))
}

const FACTOR: [(&str, u64); 1] = [("x", 1000)];
const TIME: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const RATE: [(&str, u64); 3] = [("/s", 1), ("K/s", 1_000), ("M/s", 1_000_000)];
const CLOCK: [(&str, u64); 3] = [("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)];
const CYCLES: [(&str, u64); 2] = [("cycles", 1), ("Kcycles", 1_000)];

/// A duration, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

/// Events per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

/// A processor's clock, in Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock(pub u64);

/// How many times as fast, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(pub u64);

/// What something costs a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Time, in ns.
    Time(u64),
    /// Cycles of the machine's clock.
    Cycles(u64),
}

impl Cost {
    /// In ns, rounded to the nearest.
    #[must_use]
    pub fn ns(self, clock: Clock) -> u64 {
        match self {
            Self::Time(ns) => ns,
            Self::Cycles(cycles) => {
                let ns = (u128::from(cycles) * 1_000_000_000 + u128::from(clock.0) / 2) / u128::from(clock.0.max(1));
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Time {
    /// A number of microseconds.
    #[must_use]
    pub const fn us(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// A number of milliseconds.
    #[must_use]
    pub const fn ms(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
}

/// A value with a unit.
trait Quantity: Sized {
    /// What is allowed, for messages.
    const ALLOWED: &str;
    fn read(text: &str) -> Option<Self>;
    fn print(&self) -> String;
}

impl Quantity for Time {
    const ALLOWED: &str = "a duration such as \"15us\"; units are ns, us, ms, s";
    fn read(text: &str) -> Option<Self> {
        scaled(text, &TIME).map(Self)
    }
    fn print(&self) -> String {
        print(self.0, &TIME)
    }
}

impl Quantity for Rate {
    const ALLOWED: &str = "a rate such as \"20K/s\"; units are /s, K/s, M/s";
    fn read(text: &str) -> Option<Self> {
        scaled(text, &RATE).map(Self)
    }
    fn print(&self) -> String {
        print(self.0, &RATE)
    }
}

impl Quantity for Clock {
    const ALLOWED: &str = "a clock such as \"2GHz\"; units are kHz, MHz, GHz";
    fn read(text: &str) -> Option<Self> {
        scaled(text, &CLOCK).map(Self)
    }
    fn print(&self) -> String {
        print(self.0, &CLOCK)
    }
}

impl Quantity for Factor {
    const ALLOWED: &str = "a factor such as \"10x\" or \"0.5x\"";
    fn read(text: &str) -> Option<Self> {
        scaled(text, &FACTOR).map(Self)
    }
    fn print(&self) -> String {
        let Self(thousandths) = self;
        let fraction = format!("{:03}", thousandths % 1000);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{}{point}{fraction}x", thousandths / 1000)
    }
}

impl Quantity for Cost {
    const ALLOWED: &str = "a cost such as \"1500cycles\" or \"750ns\"; units are cycles, Kcycles, ns, us, ms, s";
    fn read(text: &str) -> Option<Self> {
        scaled(text, &CYCLES).map(Self::Cycles).or_else(|| scaled(text, &TIME).map(Self::Time))
    }
    fn print(&self) -> String {
        match self {
            Self::Time(ns) => print(*ns, &TIME),
            Self::Cycles(cycles) => print(*cycles, &CYCLES),
        }
    }
}

struct QuantityVisitor<Q>(PhantomData<Q>);

impl<Q: Quantity> Visitor<'_> for QuantityVisitor<Q> {
    type Value = Q;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Q::ALLOWED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Q, E> {
        Q::read(text).ok_or_else(|| E::custom(format!("\"{text}\" is not allowed here, but {}", Q::ALLOWED)))
    }
}

macro_rules! text_form {
    ($($type:ident),+) => { $(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(QuantityVisitor(PhantomData))
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.print())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.print())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::read(text).ok_or_else(|| format!("\"{text}\" is not {}", Self::ALLOWED))
            }
        }
    )+ };
}

text_form!(Time, Rate, Clock, Factor, Cost);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_printed() {
        for text in ["15us", "1s", "0ns", "1500ms"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text.replace("0ns", "0s"));
        }
        assert_eq!("1.5us".parse(), Ok(Time(1500)));
        assert_eq!("2.4GHz".parse(), Ok(Clock(2_400_000_000)));
        assert_eq!("20K/s".parse(), Ok(Rate(20_000)));
        assert_eq!("1500cycles".parse(), Ok(Cost::Cycles(1500)));
        assert_eq!(Cost::Cycles(1500).ns(Clock(2_000_000_000)), 750);
        for text in ["10x", "0.5x", "1.025x", "0x"] {
            assert_eq!(text.parse::<Factor>().unwrap().to_string(), text);
        }
        for wrong in
            ["", "15", "us", "15 us", "-1us", "1.us", ".5us", "1.0000000001us", "1.5ns", "99999999999s", "1e3us"]
        {
            assert!(wrong.parse::<Time>().is_err(), "{wrong}");
        }
    }
}
