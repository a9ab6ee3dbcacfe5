//! Numbers as traces print them.

/// Seconds, in ns.
pub const SECOND: u64 = 1_000_000_000;

/// A decimal number of some unit of `unit_ns` (a power of ten), in ns: exact, and digits beyond ns are cut off.
pub fn ns(text: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut ns = whole.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    let mut unit = unit_ns;
    for digit in fraction.bytes() {
        unit /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * unit)?;
    }
    Some(ns)
}

/// `major,minor`.
pub fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(',')?;
    Some(u64::from(major.parse::<u32>().ok()?) << 32 | u64::from(minor.parse::<u32>().ok()?))
}

/// What a number is, for messages.
pub fn number<T: std::str::FromStr>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{what} is {text:?}, not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        for (text, unit, expected) in [
            ("0.000004001", 1_000_000_000, Some(4001)),
            ("12.345678", 1_000_000_000, Some(12_345_678_000)),
            ("0.74", 1_000_000, Some(740_000)),
            ("611", 1_000_000, Some(611_000_000)),
            ("1.0000000019", 1_000_000_000, Some(1_000_000_001)),
            ("", 1, None),
            (".5", 10, None),
            ("1.-5", 10, None),
            ("-1", 1, None),
            ("99999999999999999999", 1, None),
            ("18446744073709551615", 10, None),
        ] {
            assert_eq!(ns(text, unit), expected, "{text}");
        }
    }
}
