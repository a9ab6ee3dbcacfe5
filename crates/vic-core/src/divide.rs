//! Long division: small processors do not divide 64 bits, and firmware need not have a library that does.

/// The quotient, bit by bit, for a divisor up to 2^63. By 0 it is the largest number.
#[inline(never)]
pub(crate) const fn divide(dividend: u64, divisor: u64) -> u64 {
    let (mut quotient, mut rest) = (dividend, 0_u64);
    let mut bits = u64::BITS;
    while bits > 0 {
        bits = bits.wrapping_sub(1);
        rest = rest << 1 | quotient >> 63;
        quotient <<= 1;
        if rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// The quotient, rounded up. What does not fit in 64 bits is rounded down.
pub(crate) const fn divide_up(dividend: u64, divisor: u64) -> u64 {
    divide(dividend.saturating_add(divisor.saturating_sub(1)), divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dividend: u64, divisor: u64) {
        let (wide, by) = (u128::from(dividend), u128::from(divisor));
        assert_eq!(Some(divide(dividend, divisor).into()), wide.checked_div(by), "{dividend} / {divisor}");
        if dividend <= u64::MAX.saturating_sub(divisor) {
            assert_eq!(u128::from(divide_up(dividend, divisor)), wide.div_ceil(by), "{dividend} / {divisor}, up");
        }
    }

    /// Everything small, and everything around every power of 2 and of 10.
    #[test]
    fn agrees_with_wider_arithmetic() {
        let ends = (0..64).map(|bit| 1_u64 << bit).chain((0..20).map(|digits| 10_u64.saturating_pow(digits)));
        let near = ends.flat_map(|end| (0..5).map(move |by| end.wrapping_add(by).wrapping_sub(2)));
        for divisor in near.clone().filter(|divisor| (1..=1 << 63).contains(divisor)) {
            near.clone().for_each(|dividend| check(dividend, divisor));
        }
        for divisor in 1..=300 {
            (0..=2_000).for_each(|dividend| check(dividend, divisor));
        }
        assert_eq!(divide(7, 0), u64::MAX);
    }
}
