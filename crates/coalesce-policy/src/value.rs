//! Values in a policy's text form: numbers, durations, switches and choices.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Units of a duration, the largest first.
pub(crate) const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A value, as the text form writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    /// In nanoseconds.
    Duration(u64),
    /// In basis points (1/100 %).
    Percent(u64),
    /// A word: a switch, a choice, or a set of words joined by `+`.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Duration(ns) => {
                let (unit, size) = UNITS.into_iter().find(|(_, size)| ns % size == 0).unwrap_or(("ns", 1));
                write!(f, "{}{unit}", ns / size)
            }
            Self::Percent(parts) => match (parts / 100, parts % 100) {
                (whole, 0) => write!(f, "{whole}%"),
                (whole, tenths) if tenths % 10 == 0 => write!(f, "{whole}.{}%", tenths / 10),
                (whole, hundredths) => write!(f, "{whole}.{hundredths:02}%"),
            },
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Why a text is not a value of its kind.
pub(crate) enum Malformed {
    NotANumber,
    NotWhole,
    TooFine,
    /// It may be one of these.
    NoUnit(&'static [&'static str]),
    UnknownUnit,
    Space,
    OutOfRange,
}

impl Malformed {
    /// What is wrong with `text`, where `allowed` says what is not, and `is_allowed` which texts are worth a proposal.
    pub(crate) fn problem(&self, text: &str, allowed: &str, is_allowed: impl Fn(&str) -> bool) -> String {
        let write = |what: &str, texts: Vec<String>| {
            let texts: Vec<_> = texts.into_iter().filter(|text| is_allowed(text)).collect();
            match texts.split_last() {
                None => format!("has {what}; allowed: {allowed}"),
                Some((only, [])) => format!("has {what}; write {only}"),
                Some((last, others)) => format!("has {what}; write {} or {last}", others.join(", ")),
            }
        };
        match self {
            Self::NotANumber => format!("is not a number; allowed: {allowed}"),
            Self::NotWhole => format!("is not a whole number; allowed: {allowed}"),
            Self::TooFine => format!("has more than two decimals; allowed: {allowed}"),
            Self::NoUnit(units) => write("no unit", units.iter().map(|unit| format!("{text}{unit}")).collect()),
            Self::UnknownUnit => "has an unknown unit; allowed: ns, us, ms, s".into(),
            Self::Space => write("a space", vec![text.split_whitespace().collect()]),
            Self::OutOfRange => format!("is out of range; allowed: {allowed}"),
        }
    }
}

/// Reads a duration such as `32us`, in ns. `0` needs no unit.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let is_allowed = |text: &str| duration(text).is_ok();
    duration(text).map_err(|malformed| malformed.problem(text, "a number with ns, us, ms or s", is_allowed))
}

/// `4`, `100000`, `100k`, `2M`.
pub(crate) fn number(text: &str) -> Result<u64, Malformed> {
    no_space(text)?;
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    scaled(digits, factor)
}

/// `6us`, `100ms`; `0` needs no unit.
pub(crate) fn duration(text: &str) -> Result<u64, Malformed> {
    no_space(text)?;
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &text[digits.len()..];
    match UNITS.iter().find(|(name, _)| *name == unit || unit == "µs" && *name == "us") {
        Some((_, size)) => scaled(digits, *size),
        None if !unit.is_empty() && digits.is_empty() => Err(Malformed::NotANumber),
        None if !unit.is_empty() => scaled(digits, 1).and(Err(Malformed::UnknownUnit)),
        None => match scaled(digits, 1)? {
            0 => Ok(0),
            _ => Err(Malformed::NoUnit(&["ns", "us", "ms", "s"])),
        },
    }
}

/// `5%`, `0.25%`, in basis points (1/100 %).
pub(crate) fn percent(text: &str) -> Result<u64, Malformed> {
    no_space(text)?;
    let number = text.strip_suffix('%');
    let (whole, part) = number.unwrap_or(text).split_once('.').unwrap_or((number.unwrap_or(text), "0"));
    let part = match part.len() {
        1 => scaled(part, 10)?,
        2 => scaled(part, 1)?,
        _ if is_digits(part) => return Err(Malformed::TooFine),
        _ => return Err(Malformed::NotANumber),
    };
    let parts = scaled(whole, 100)?.checked_add(part).ok_or(Malformed::OutOfRange)?;
    number.map(|_| parts).ok_or(Malformed::NoUnit(&["%"]))
}

fn no_space(text: &str) -> Result<(), Malformed> {
    if text.contains(char::is_whitespace) { Err(Malformed::Space) } else { Ok(()) }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn scaled(digits: &str, factor: u64) -> Result<u64, Malformed> {
    if !is_digits(digits) {
        let is_decimal = digits.split_once('.').is_some_and(|(whole, part)| is_digits(whole) && is_digits(part));
        return Err(if is_decimal { Malformed::NotWhole } else { Malformed::NotANumber });
    }
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or(Malformed::OutOfRange)
}
