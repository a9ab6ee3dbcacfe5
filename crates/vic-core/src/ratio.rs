//! The delivery ratio as a function of the commands in flight (vIC §3.2.1, Algorithm 1 and Table 1).

use coalesce_decision::ticks::divide;

/// A delivery ratio: of every `skip_up` completions, `count_up` interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Interrupts delivered in a cycle: 1 to 4.
    pub count_up: u8,
    /// Completions in a cycle: 1 to 65535.
    pub skip_up: u16,
}

impl Ratio {
    /// Every completion is delivered: R = 1.
    pub const ONE: Self = Self { count_up: 1, skip_up: 1 };

    /// Algorithm 1: `cif` commands in flight, threshold T = `cif_threshold`, cycles no longer than `max_skip`.
    ///
    /// This is the paper's Table 1, which shows T = 4. In its last row the quotient is rounded down, so that a cycle is
    /// never longer than CIF / 2T: at CIF 23 the ratio is 1/2, not 8/23.
    #[must_use]
    pub const fn for_cif(cif: u32, cif_threshold: u16, max_skip: u16) -> Self {
        let t = cif_threshold as u32;
        if cif < t {
            Self::ONE
        } else if cif < t.saturating_mul(2) {
            Self { count_up: 4, skip_up: 5 }
        } else if cif < t.saturating_mul(3) {
            Self { count_up: 3, skip_up: 4 }
        } else if cif < t.saturating_mul(4) {
            Self { count_up: 2, skip_up: 3 }
        } else {
            // The only 32-bit division, once per epoch.
            let cycle = divide(cif as u64, (t as u64).saturating_mul(2));
            #[expect(clippy::cast_possible_truncation, reason = "below max_skip")]
            Self { count_up: 1, skip_up: if cycle < max_skip as u64 { cycle as u16 } else { max_skip } }
        }
    }
}
