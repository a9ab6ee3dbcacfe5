//! What is counted about delivery.

#[cfg(feature = "std")]
use hdrhistogram::Histogram;
#[cfg(feature = "std")]
use std::sync::LazyLock;

/// What the delivery of one queue counted.
#[derive(Clone, Debug, Default)]
pub struct DeliveryStats {
    /// Requests that completed.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Deliveries for which the guest wanted no interrupt.
    pub suppressed: u64,
    /// Completions that the guest reaped by itself while they were held.
    pub consumed: u64,
    #[cfg(feature = "std")]
    hold_ns: Option<Histogram<u64>>, // none: nothing was held
}

impl DeliveryStats {
    /// Nothing was counted.
    pub const ZERO: Self = Self {
        completions: 0,
        interrupts: 0,
        suppressed: 0,
        consumed: 0,
        #[cfg(feature = "std")]
        hold_ns: None,
    };
}

#[cfg(feature = "std")]
impl DeliveryStats {
    /// Counts a completion that was held for `ns`; 0: it was not held.
    pub fn note_held(&mut self, ns: u64) {
        if ns > 0 {
            self.hold_ns.get_or_insert_with(empty).record(ns).expect("it grows");
        }
    }

    /// How long completions were held, in ns.
    #[must_use]
    pub fn hold_ns(&self) -> &Histogram<u64> {
        static EMPTY: LazyLock<Histogram<u64>> = LazyLock::new(empty);
        self.hold_ns.as_ref().unwrap_or(&EMPTY)
    }
}

#[cfg(not(feature = "std"))]
impl DeliveryStats {
    /// For how long completions were held is not recorded.
    pub(crate) const fn note_held(&mut self, _: u64) {}
}

#[cfg(feature = "std")]
fn empty() -> Histogram<u64> {
    Histogram::new(2).expect("two digits are allowed") // grows: a replay may have thousands of queues
}
