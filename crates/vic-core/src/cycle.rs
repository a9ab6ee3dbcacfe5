//! State laid out for the fast path: a counter that one addition advances, and bounds for the time and the CIF.

/// The position in a cycle of the delivery ratio: the paper's counter, from 1 to `skip_up`, and the number of held
/// completions, at most `skip_up`. Two fields would cost the fast path three more instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cycle(u32);

impl Cycle {
    pub(crate) const START: Self = Self::new(1, 0);

    const fn new(counter: u16, held: u16) -> Self {
        Self(counter as u32 | (held as u32) << 16)
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) const fn counter(self) -> u16 {
        self.0 as u16
    }

    pub(crate) const fn set_counter(&mut self, counter: u16) {
        *self = Self::new(counter, self.held());
    }

    #[inline(always)]
    pub(crate) const fn held(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(crate) const fn set_held(&mut self, held: u16) {
        *self = Self::new(self.counter(), held);
    }

    /// Advances the counter and holds one more. Requires a counter below `skip_up`, so neither half overflows.
    #[inline(always)]
    pub(crate) const fn and_one_held(self) -> Self {
        Self(self.0.wrapping_add(0x0001_0001))
    }
}

/// With a CIF below `low` the fast path delivers; above `high` the counter decides. Between them the fast path applies
/// only if the ratio is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) until: u64, // the first instant without the fast path
    pub(crate) low: u32,
    pub(crate) high: u32,
}

impl Bounds {
    /// The fast path never applies: no CIF is below `low` or above `high`, and `until` excludes a ratio of 1 as well.
    pub(crate) const CLOSED: Self = Self { until: 0, low: 0, high: u32::MAX };
}
