//! Long division: small processors do not divide 64 bits, and firmware need not have a library that does.

/// The quotient and the remainder, bit by bit, for a divisor up to 2^63. By 0 the quotient is the largest number.
#[inline(never)]
pub(crate) const fn divide(dividend: u64, divisor: u64) -> (u64, u64) {
    let (mut quotient, mut remainder) = (dividend, 0_u64);
    let mut bits = u64::BITS;
    while bits > 0 {
        bits = bits.wrapping_sub(1);
        remainder = remainder << 1 | quotient >> 63;
        quotient <<= 1;
        if remainder >= divisor {
            remainder = remainder.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    (quotient, remainder)
}

/// The quotient, rounded up.
pub(crate) const fn divide_up(dividend: u64, divisor: u64) -> u64 {
    let (quotient, remainder) = divide(dividend, divisor);
    quotient.saturating_add((remainder > 0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dividend: u64, divisor: u64) {
        let (quotient, remainder) = divide(dividend, divisor);
        assert!(remainder < divisor, "{dividend} / {divisor}");
        let product = u128::from(quotient).checked_mul(divisor.into());
        assert_eq!(product.and_then(|product| product.checked_add(remainder.into())), Some(dividend.into()));
        assert_eq!(divide_up(dividend, divisor), dividend.div_ceil(divisor));
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
        assert_eq!(divide(7, 0).0, u64::MAX);
    }
}
