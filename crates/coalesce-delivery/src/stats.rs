//! What is counted about delivery.

use hdrhistogram::Histogram;

/// What the delivery of one queue counted.
#[derive(Clone, Debug)]
pub struct DeliveryStats {
    /// Requests that completed.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// Deliveries for which the guest wanted no interrupt.
    pub suppressed: u64,
    /// Completions that the guest reaped by itself while they were held.
    pub consumed: u64,
    hold_ns: Histogram<u64>,
}

/// What a caller did by itself, [without asking the policy](crate::Delivery::passed).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Requests that completed.
    pub completions: u64,
    /// Interrupts.
    pub interrupts: u16,
    /// Deliveries for which the guest wanted no interrupt.
    pub suppressed: u16,
}

impl Default for DeliveryStats {
    fn default() -> Self {
        let hold_ns = Histogram::new(2).expect("two digits are allowed"); // grows: a replay may have thousands of queues
        Self { completions: 0, interrupts: 0, suppressed: 0, consumed: 0, hold_ns }
    }
}

impl DeliveryStats {
    /// Counts a completion that was held for `ns`; 0: it was not held.
    pub fn note_held(&mut self, ns: u64) {
        if ns > 0 {
            self.hold_ns.record(ns).expect("it grows");
        }
    }

    /// How long completions were held, in ns.
    #[must_use]
    pub const fn hold_ns(&self) -> &Histogram<u64> {
        &self.hold_ns
    }
}
